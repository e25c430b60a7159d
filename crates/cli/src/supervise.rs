//! A file system that a program provides (FUSE) may not respond, and then nothing ends a thread that waits for it. So what copies files
//! from or to one, keeps something there, or serves it, runs in a process of its own, and the one that the user has started ends when it is
//! told to.

use std::{
    ffi::OsString,
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::PathBuf,
    pin::{Pin, pin},
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
    signals::{again, ended, interrupted},
    url::Target,
    verdict,
};

/// Tells the other process which one it belongs to.
const PARENT: &str = "NFSW_SUPERVISED_BY";

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
        let told_to_end: Pin<Box<dyn Future<Output = ()>>> = match command {
            // It says goodbye also when the terminal is closed.
            args::Command::Share(_) => Box::pin(ended()),
            _ => Box::pin(interrupted()),
        };
        let reader = Receiver::from_owned_fd(reader.into()).ok()?;
        // Where there can be no other process, this one does it.
        let other = other.spawn().ok()?;
        let code = wait(other, told_to_end, reader, patience(command)).await;
        drop(told);
        Some(code)
    })
}

/// Returns how long the other process may take to end once it was told to.
fn patience(command: &args::Command) -> Duration {
    let farewell = match command {
        args::Command::Share(arguments) => arguments.farewell(),
        _ => Duration::ZERO,
    };
    farewell + GRACE * 3 / 2
}

/// Returns the paths on this machine that a command copies files from or to, or serves, and those below which it keeps something.
fn paths(command: &args::Command) -> Vec<PathBuf> {
    use args::Command;

    match command {
        Command::Cp(it) => {
            let words = it.sources.iter().chain([&it.destination]);
            copied(words, &it.filter, it.log_file.as_ref(), it.dereference)
        }
        Command::Sync(it) => {
            copied([&it.source, &it.destination], &it.filter, it.log_file.as_ref(), it.dereference)
        }
        Command::Ls(_) | Command::Stat(_) | Command::Cat(_) | Command::Df(_) | Command::Mkdir(_) => kept(),
        Command::Rm(_) | Command::Mv(_) | Command::Ln(_) | Command::Chmod(_) | Command::Exports(_) => kept(),
        Command::Share(it) if it.asks() => Vec::new(),
        Command::Share(it) => vec![it.directory().to_owned()],
        Command::Serve(it) => vec![it.directory.clone()],
        _ => Vec::new(),
    }
}

/// Returns the paths of a copy.
fn copied<'a>(
    words: impl IntoIterator<Item = &'a OsString>,
    filters: &args::FilterArgs,
    log: Option<&PathBuf>,
    dereference: bool,
) -> Vec<PathBuf> {
    let path = |word: &OsString| match Target::parse(word) {
        Ok(Target::Local(path)) => Some(path),
        Ok(Target::Remote(_) | Target::Standard) | Err(_) => None,
    };
    // Links lead anywhere.
    let anywhere = dereference.then(|| PathBuf::from("/"));
    let options = filters.exclude_from.iter().chain(&filters.files_from).chain(log).cloned();
    words.into_iter().filter_map(path).chain(options).chain(anywhere).chain(kept()).collect()
}

/// Returns the directories below which it is kept what is known of copies and of servers, and the files that the standard streams are.
fn kept() -> Vec<PathBuf> {
    let directories = [("XDG_STATE_HOME", ".local/state"), ("XDG_CACHE_HOME", ".cache")];
    let path = |(variable, below_home): (&str, &str)| {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(below_home));
        std::env::var_os(variable).map(PathBuf::from).or_else(home)
    };
    let streams = (0..=2).filter_map(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).ok());
    directories.into_iter().filter_map(path).chain(streams.filter(|path| path.is_absolute())).collect()
}

/// Waits for the end of the other process, and hands on what asks this one to end.
async fn wait(
    mut other: Child,
    told_to_end: impl Future<Output = ()>,
    mut told: Receiver,
    patience: Duration,
) -> ExitCode {
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
        () = told_to_end => {}
    }
    let _ = kill_process(pid, Signal::TERM);
    match tokio::time::timeout(patience, over).await {
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
