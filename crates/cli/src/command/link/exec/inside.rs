//! The first process in the namespaces of a link: runs COMMAND, and takes everything with it when it ends.

use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags},
    process::{Pid, Signal, WaitOptions},
    thread::UnshareFlags,
};
use tokio::signal::unix::{SignalKind, signal};

use super::{NO_LINK, NOT_EXECUTABLE, NOT_FOUND, device, namespace::unshare};
use crate::{error::io_text, text::escape};

/// Runs COMMAND to its end. The kernel kills what is left in a process namespace when its first process ends.
pub(super) fn run(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    let [device, program, arguments @ ..] = arguments.as_slice() else {
        return Ok(NO_LINK);
    };
    // Whoever carries the packets takes this process along, however it ends. It holds the device open; if that is gone, it
    // had ended before.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if device.to_str().is_none_or(|device| device::index(device).is_err()) {
        return Ok(NO_LINK);
    }
    show_own_processes();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise(program, arguments))
}

/// Replaces `/proc`. Where that is not allowed, `/proc` shows the processes of the host.
fn show_own_processes() {
    // What is mounted outside still appears here, but nothing of this outside.
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mount = || -> io::Result<()> {
        unshare(UnshareFlags::NEWNS)?;
        rustix::mount::mount_change("/", private)?;
        Ok(rustix::mount::mount("proc", "/proc", "proc", flags, None)?)
    };
    if let Err(error) = mount() {
        tracing::debug!(%error, "/proc stays as it is");
    }
}

async fn supervise(program: &OsStr, arguments: &[OsString]) -> anyhow::Result<u8> {
    // Caught before there is anything to catch.
    let mut ended = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let child = match Command::new(program).args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            let name = escape(program.as_encoded_bytes());
            eprintln!("nfsw: cannot run {name}: {}", io_text(&error));
            return Ok(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    let child = Pid::from_child(&child);
    loop {
        // This process inherits every orphan of its namespace.
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == child {
                return Ok(code(ExitStatus::from_raw(status.as_raw())));
            }
        }
        let forward = tokio::select! {
            _ = ended.recv() => continue,
            _ = terminate.recv() => Signal::TERM,
            _ = hang_up.recv() => Signal::HUP,
        };
        // It may have ended just now, which the next round sees.
        let _ = rustix::process::kill_process(child, forward);
    }
}

/// The status that a shell would show.
pub(super) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or_default() as u8,
    }
}
