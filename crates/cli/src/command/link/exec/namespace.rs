//! The namespaces of a link: a network with one way out, and processes and mounts that end with it.

use std::{
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, ExitStatus},
    thread,
};

use rustix::{
    process::{Pid, PidfdFlags},
    thread::{UnshareFlags, unshare_unsafe},
};
use tokio::sync::oneshot;

use super::{
    INSIDE, LOOK,
    device::{Device, Ends, Side},
    refused,
};
use crate::error::io_text;

/// What is to run, and where.
#[derive(Debug)]
pub(super) struct Plan {
    /// The name of the device, the same as on the host, so that links within links do not meet.
    pub(super) device: String,
    pub(super) ends: Ends,
    pub(super) mtu_bytes: u32,
    /// Whether the host's end has IPv6.
    pub(super) ipv6: bool,
    /// How TCP controls congestion, if not as the system does.
    pub(super) congestion: Option<String>,
    pub(super) command: Vec<OsString>,
}

/// COMMAND, running.
#[derive(Debug)]
pub(super) struct Inside {
    /// The device in its network.
    pub(super) device: OwnedFd,
    /// To send signals to the first process.
    pub(super) process: OwnedFd,
    /// The status of the first process.
    pub(super) ended: oneshot::Receiver<io::Result<ExitStatus>>,
    /// Comes when the network has sent what COMMAND had left to it.
    pub(super) sent: oneshot::Receiver<()>,
}

/// Makes the namespaces and starts COMMAND in them.
///
/// Namespaces belong to threads: the one that makes them keeps them until COMMAND has ended, and no other notices.
pub(super) async fn start(plan: Plan) -> anyhow::Result<Inside> {
    let (started, inside) = oneshot::channel();
    thread::Builder::new().name("namespace".to_owned()).spawn(move || {
        let ((ended, status), (drained, sent)) = (oneshot::channel(), oneshot::channel());
        match enter(plan, status, sent) {
            Ok((inside, mut child)) => {
                // If nobody listens any more the process ends.
                let _ = started.send(Ok(inside));
                let _ = ended.send(child.wait());
                while is_sending().unwrap_or(false) {
                    thread::sleep(LOOK);
                }
                let _ = drained.send(());
            }
            Err(error) => drop(started.send(Err(error))),
        }
    })?;
    inside.await?
}

fn enter(
    plan: Plan,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    sent: oneshot::Receiver<()>,
) -> anyhow::Result<(Inside, Child)> {
    unshare(UnshareFlags::NEWNET).map_err(|error| refused("make a network", &error))?;
    let Plan { device: name, ends, mtu_bytes, ipv6, congestion, command } = plan;
    let device = Device::make(&name).map_err(|error| refused("make a network device", &error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ipv6 = runtime.block_on(async {
        let own = device.configure(ends, Side::Mobile, mtu_bytes).await?;
        if let Some(algorithm) = congestion {
            device.control(ends, Side::Mobile, own, &algorithm).await?;
        }
        Ok(own && ipv6)
    });
    let ipv6 =
        ipv6.map_err(|error: io::Error| anyhow::anyhow!("cannot set up {name}: {}", io_text(&error)))?;

    let mut first = Command::new("/proc/self/exe");
    first.arg0(INSIDE).arg(&name).args(command);
    first.env("NFSW_HOST", ends.ipv4(Side::Host).to_string());
    if ipv6 {
        first.env("NFSW_HOST6", ends.ipv6(Side::Host).to_string());
    } else {
        // It may be that of an outer link.
        first.env_remove("NFSW_HOST6");
    }
    // From here on this thread can have no sibling, but children.
    unshare(UnshareFlags::NEWPID).map_err(|error| refused("make a process namespace", &error))?;
    let child = first.spawn()?;
    let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((Inside { device: device.descriptor, process, ended, sent }, child))
}

/// Whether a TCP connection in the network of this thread has bytes or its end still to send, after its process is gone.
fn is_sending() -> io::Result<bool> {
    // FIN_WAIT1, LAST_ACK and CLOSING of the kernel's `enum` of TCP states (include/net/tcp_states.h).
    const SENDING: [&str; 3] = ["04", "09", "0B"];
    let mut tables = fs::read_to_string("/proc/thread-self/net/tcp")?;
    // Absent without IPv6.
    tables += &fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
    Ok(tables
        .lines()
        .any(|line| line.split_whitespace().nth(3).is_some_and(|state| SENDING.contains(&state))))
}

/// Leaves namespaces of this thread for new ones.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(unsafe_code, reason = "namespaces of a thread have no other call")]
    // SAFETY: the table of descriptors stays shared.
    unsafe {
        unshare_unsafe(flags)?;
    }
    Ok(())
}
