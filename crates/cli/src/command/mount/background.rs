//! `--background`: the mount goes on in a process of its own.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use rustix::fs::OFlags;

use crate::{
    error::{io_text, show},
    exit::{Exit, Failure},
    local::Own,
    shares,
    url::Remote,
};

use super::socket::id;

/// The option that tells the process in the background what it is.
const INSIDE: &str = "--in-background";

/// What the process in the background writes when the mount works, after its events.
const READY: &[u8] = b"ready\n";

/// A longer log is begun again, empty.
const LONGEST_LOG: u64 = 1 << 20;

/// What became of a mount in the background.
#[derive(Debug)]
pub(crate) enum Started {
    /// It works.
    Ready(Ready),
    /// It does not; it said why, and ended with this.
    Failed(ExitCode),
}

/// A mount that works in the background.
#[derive(Debug)]
pub(crate) struct Ready {
    /// What it has said so far.
    pub(crate) said: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Where it writes what it has to say.
    pub(crate) log: PathBuf,
}

/// Starts this command again in the background, and waits until it works or has said why it cannot.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(point: &Path, target: &Remote) -> anyhow::Result<Started> {
    // Its standard input is empty.
    let code = target.host.strip_prefix('@').map(shares::secret).transpose()?;
    let (path, mut log) = open_log(point)?;
    let failed = |error: io::Error| {
        Failure::with(Exit::LocalIo, format!("cannot go to the background: {}", io_text(&error)))
    };
    let begin = log.seek(SeekFrom::End(0)).map_err(failed)?;
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    let at = words.iter().position(|word| word == "mount").map_or(words.len(), |at| at + 1);
    words.insert(at, INSIDE.into());
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(words)
        .envs(code.map(|code| (shares::VARIABLE, code)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        // It closes its end when the mount works.
        stdout.read_to_end(&mut said).map_err(failed)?;
    }
    let events = said.strip_suffix(READY);
    // Whoever does not want to read them wants the mount all the same.
    let _ = io::stdout().write_all(events.unwrap_or(&said));
    let status = if events.is_none() { Some(child.wait().map_err(failed)?) } else { None };
    log.seek(SeekFrom::Start(begin)).map_err(failed)?;
    let Some(status) = status else {
        let mut said = Vec::new();
        log.read_to_end(&mut said).map_err(failed)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        return Ok(Started::Ready(Ready { said, pid: child.id(), log: path }));
    };
    io::copy(&mut log, &mut io::stderr()).map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Started::Failed(code.map_or_else(|| Exit::LocalIo.into(), ExitCode::from)))
}

/// Leaves the terminal, if this process is the one in the background.
pub(crate) fn leave_terminal() {
    // It fails in a process that leads others, which has no terminal then.
    let _ = rustix::process::setsid();
}

/// Says that the mount works, and leaves what whoever started it may want to unmount or close.
///
/// # Errors
/// If nobody hears it.
pub(crate) fn settle() -> anyhow::Result<()> {
    let said = rustix::io::write(rustix::stdio::stdout(), READY);
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
    let _ = std::env::set_current_dir("/");
    if said.is_ok_and(|length| length == READY.len()) {
        return Ok(());
    }
    Err(Failure::with(Exit::Interrupted, "whoever started this has gone; nothing is mounted"))
}

fn open_log(point: &Path) -> anyhow::Result<(PathBuf, File)> {
    let directory = Own::directory("XDG_STATE_HOME", ".local/state", "mounts").ok_or_else(|| {
        Failure::with(
            Exit::LocalIo,
            "no place for a log: set XDG_STATE_HOME or HOME, or mount without --background",
        )
    })?;
    let path = directory.path().join(format!("{}.log", id(point)));
    let open = || -> io::Result<File> {
        directory.open()?;
        let is_long = fs::metadata(&path).is_ok_and(|file| file.len() > LONGEST_LOG);
        if is_long {
            fs::remove_file(&path)?;
        }
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32).open(&path)
    };
    match open() {
        Ok(log) => Ok((path, log)),
        Err(error) => Err(Failure::with(Exit::LocalIo, format!("{}: {}", show(&path), io_text(&error)))),
    }
}
