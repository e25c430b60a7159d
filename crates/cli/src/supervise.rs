//! A file system that a program provides (FUSE) may not respond, and then nothing ends a thread that waits for it. So what copies files
//! from or to one runs in a process of its own, and the one that the user has started ends when it is told to.

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, ExitCode, ExitStatus},
    time::Duration,
};

use nfs_files::local::mounts::OfPrograms;
use rustix::process::{
    Pid, Signal, getppid, kill_process, set_parent_process_death_signal as end_with_parent,
};
use tokio::sync::oneshot;

use crate::{
    args,
    exit::Exit,
    signals::{again, interrupted},
    url::Target,
};

/// Tells the other process which one it belongs to.
const PARENT: &str = "NFSW_SUPERVISED_BY";

/// How long the other process may take to end by itself.
const GRACE: Duration = Duration::from_millis(1000);

/// Runs this command line in another process, if the command copies files of a file system that may not respond; `None` if it does not,
/// or this is that process.
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
    other.args(words).env(PARENT, std::process::id().to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        // What asks this process to end is waited for before there is another one.
        let told = interrupted();
        // Where there can be no other process, this one does it.
        let other = other.spawn().ok()?;
        Some(wait(other, told).await)
    })
}

/// Returns the paths on this machine that a command copies files from or to.
fn paths(command: &args::Command) -> Vec<PathBuf> {
    let words: Vec<&OsString> = match command {
        args::Command::Cp(arguments) => arguments.sources.iter().chain([&arguments.destination]).collect(),
        args::Command::Sync(arguments) => vec![&arguments.source, &arguments.destination],
        _ => Vec::new(),
    };
    let path = |word: &OsString| match Target::parse(word) {
        Ok(Target::Local(path)) => Some(path),
        Ok(Target::Remote(_) | Target::Standard) | Err(_) => None,
    };
    words.into_iter().filter_map(path).collect()
}

/// Waits for the end of the other process, and hands on what asks this one to end.
async fn wait(mut other: Child, told: impl Future<Output = ()>) -> ExitCode {
    let pid = Pid::from_child(&other);
    let (ended, mut end) = oneshot::channel();
    std::thread::spawn(move || ended.send(other.wait()));
    tokio::select! {
        status = &mut end => return code(status.ok().and_then(Result::ok)),
        () = told => {}
    }
    let _ = kill_process(pid, Signal::TERM);
    match tokio::time::timeout(GRACE, end).await {
        Ok(status) => code(status.ok().and_then(Result::ok)),
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
