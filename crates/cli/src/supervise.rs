//! A file system that a program provides (FUSE) may not respond, and then nothing ends a thread that waits for it. So what copies files
//! from or to one, or keeps something there, runs in a process of its own, and the one that the user has started ends when it is told to.

use std::{
    ffi::OsString,
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::PathBuf,
    pin::pin,
    process::{Child, Command, ExitCode, ExitStatus},
    time::Duration,
};

use nfs_files::local::mounts::OfPrograms;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal as end_with_parent},
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver, sync::oneshot};

use crate::{
    args,
    exit::Exit,
    signals::{again, interrupted},
    url::Target,
    verdict,
};

/// Tells the other process which one it belongs to.
const PARENT: &str = "NFSW_SUPERVISED_BY";

/// The words, filters, log and `--dereference` of a command that copies nothing.
const NOTHING: (Vec<&OsString>, Option<&args::FilterArgs>, &Option<PathBuf>, bool) =
    (Vec::new(), None, &None, false);

/// How long the other process may take to end by itself.
const GRACE: Duration = Duration::from_millis(1000);

/// Runs this command line in another process, if the command has to do with a file system that may not respond; `None` if it has not, or
/// this is that process.
pub(crate) fn run(command: &args::Command) -> Option<ExitCode> {
    if let Some(parent) = std::env::var_os(PARENT) {
        let _ = end_with_parent(Some(Signal::KILL));
        let is_there = getppid().is_some_and(|it| parent == *it.as_raw_pid().to_string());
        return (!is_there).then(|| Exit::Interrupted.into());
    }
    let paths = paths(command);
    if paths.is_empty() || !OfPrograms::read().is_ok_and(|held| paths.iter().any(|path| held.hold(path))) {
        return None;
    }
    let mut words = std::env::args_os();
    let mut other = Command::new(std::env::current_exe().ok()?);
    std::os::unix::process::CommandExt::arg0(&mut other, words.next().unwrap_or_default());
    let (reader, told) = std::io::pipe().ok()?;
    other.args(words).env(PARENT, std::process::id().to_string());
    other.env(verdict::DESCRIPTOR, told.as_raw_fd().to_string());
    // The other process inherits it: it may not look into this one, if the program has capabilities of its own.
    fcntl_setfd(&told, FdFlags::empty()).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        // What asks this process to end is waited for before there is another one.
        let interrupted = interrupted();
        let reader = Receiver::from_owned_fd(reader.into()).ok()?;
        // Where there can be no other process, this one does it.
        let other = other.spawn().ok()?;
        let code = wait(other, interrupted, reader).await;
        drop(told);
        Some(code)
    })
}

/// Returns the paths on this machine that a command copies files from or to, and below which it keeps something.
fn paths(command: &args::Command) -> Vec<PathBuf> {
    use args::Command;

    let (words, filters, log, dereference) = match command {
        Command::Cp(it) => {
            let words = it.sources.iter().chain([&it.destination]);
            (words.collect(), Some(&it.filter), &it.log_file, it.dereference)
        }
        Command::Sync(it) => {
            (vec![&it.source, &it.destination], Some(&it.filter), &it.log_file, it.dereference)
        }
        Command::Ls(_) | Command::Stat(_) | Command::Cat(_) | Command::Df(_) | Command::Mkdir(_) => NOTHING,
        Command::Rm(_) | Command::Mv(_) | Command::Ln(_) | Command::Chmod(_) | Command::Exports(_) => NOTHING,
        // Others run for as long as the user wants, or in the background.
        _ => return Vec::new(),
    };
    let path = |word: &OsString| match Target::parse(word) {
        Ok(Target::Local(path)) => Some(path),
        Ok(Target::Remote(_) | Target::Standard) | Err(_) => None,
    };
    let files = filters.into_iter().flat_map(|it| it.exclude_from.iter().chain(&it.files_from)).chain(log);
    // Links lead anywhere.
    let anywhere = dereference.then(|| PathBuf::from("/"));
    let mut paths: Vec<PathBuf> = words.into_iter().filter_map(path).chain(files.cloned()).collect();
    paths.extend(anywhere);
    // What is kept of copies and of servers lies there.
    for (variable, below_home) in [("XDG_STATE_HOME", ".local/state"), ("XDG_CACHE_HOME", ".cache")] {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(below_home));
        paths.extend(std::env::var_os(variable).map(PathBuf::from).or_else(home));
    }
    paths
}

/// Waits for the end of the other process, and hands on what asks this one to end.
async fn wait(mut other: Child, interrupted: impl Future<Output = ()>, mut told: Receiver) -> ExitCode {
    let pid = Pid::from_child(&other);
    let (ended, mut end) = oneshot::channel();
    std::thread::spawn(move || ended.send(other.wait()));
    let mut over = pin!(async {
        tokio::select! {
            status = &mut end => code(status.ok().and_then(Result::ok)),
            Ok(status) = told.read_u8() => match tokio::time::timeout(GRACE, &mut end).await {
                Ok(status) => code(status.ok().and_then(Result::ok)),
                Err(_) => status.into(),
            },
        }
    });
    tokio::select! {
        code = &mut over => return code,
        () = interrupted => {}
    }
    let _ = kill_process(pid, Signal::TERM);
    match tokio::time::timeout(GRACE * 3 / 2, over).await {
        Ok(code) => code,
        Err(_) => {
            let line = format!("nfsw: interrupted; {}\n", again());
            let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
            Exit::Interrupted.into()
        }
    }
}

/// Returns the exit status that stands for the end of a process.
fn code(status: Option<ExitStatus>) -> ExitCode {
    let number = status.map(|status| status.code().or_else(|| Some(128 + status.signal()?)));
    let number = number.flatten().and_then(|number| u8::try_from(number).ok());
    number.map_or_else(|| Exit::LocalIo.into(), ExitCode::from)
}
