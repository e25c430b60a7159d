//! `nfsw link exec`: a program in a network of its own, behind the link.

mod cell;
mod device;
mod inside;
mod namespace;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::OwnedFd,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use linkemu::{
    LinkConfig,
    tunnel::{Tunnel, TunnelError, TunnelHandle, TunnelStats},
};
use rustix::{
    io::Errno,
    process::{Signal, pidfd_send_signal},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
};

use self::{
    cell::{Door, Member, Role},
    device::{Device, Ends, Side},
    namespace::{Inside, Plan},
};
use crate::{
    advice::explain,
    args::LinkExecArgs,
    error::{io_text, local},
    exit::{Exit, Failure},
    text::escape,
};

/// Exit status: there is no link. As with env(1) and timeout(1), COMMAND is not to blame for these three.
const NO_LINK: u8 = 125;
/// Exit status: COMMAND cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status: there is no such COMMAND.
const NOT_FOUND: u8 = 127;

/// The name under which this program starts COMMAND: its arguments are the device and the words of COMMAND.
const INSIDE: &str = "nfsw-inside";

/// How long what COMMAND has sent may take to cross the link after its end.
const LINGER: Duration = Duration::from_secs(10);
/// How often somebody looks whether it has.
const LOOK: Duration = Duration::from_millis(5);

pub(super) fn run(arguments: &LinkExecArgs) -> ExitCode {
    finish(execute(arguments))
}

/// Whether this process was started as the first one behind a link: by its name, which no command line shows.
pub(crate) fn is_inside() -> bool {
    std::env::args_os().next().is_some_and(|name| name == INSIDE)
}

/// Runs COMMAND, in the namespaces that are there.
pub(crate) fn inside() -> ExitCode {
    finish(inside::run(std::env::args_os().skip(1).collect()))
}

fn finish(code: anyhow::Result<u8>) -> ExitCode {
    code.unwrap_or_else(|error| {
        eprintln!("nfsw: {}", explain(error.as_ref()));
        match Exit::of(error.as_ref()) {
            Exit::Usage => Exit::Usage.code(),
            _ => NO_LINK,
        }
    })
    .into()
}

fn execute(arguments: &LinkExecArgs) -> anyhow::Result<u8> {
    let link = arguments.link.link()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mtu_bytes = link.mtu_bytes;
        let mut carrier = Carrier::new(arguments, link).await?;
        let host = Device::make_host().map_err(|error| refused("make a network device", &error))?;
        let ends =
            Ends::of(&host).ok_or_else(|| anyhow::anyhow!("there are 32768 links on this host already"))?;
        let ipv6 = host.configure(ends, Side::Host, mtu_bytes).await;
        let ipv6 = ipv6.map_err(|error| refused(&format!("set up {}", host.name), &error))?;
        let congestion = arguments.congestion.clone();
        if let Some(algorithm) = &congestion {
            let controlled = host.control(ends, Side::Host, ipv6, algorithm).await;
            controlled.map_err(|error| uncontrolled(algorithm, &error))?;
        }
        let talkative = !arguments.quiet && io::stderr().is_terminal();
        if talkative {
            eprintln!("nfsw: behind the link this host is {} (NFSW_HOST)", ends.ipv4(Side::Host));
        }
        // Before there is a COMMAND to send them to.
        let mut signals = Signals::catch()?;
        let command = arguments.command.clone();
        let inside =
            namespace::start(Plan { device: host.name, ends, mtu_bytes, ipv6, congestion, command }).await?;
        let Inside { device, process, mut ended, sent } = inside;
        carrier.attach(device, host.descriptor).await?;
        let status = loop {
            tokio::select! {
                status = &mut ended => break status??,
                passed_on = signals.next() => {
                    // It may have ended just now.
                    let _ = passed_on.map(|signal| pidfd_send_signal(&process, signal));
                }
                going_on = carrier.serve() => if !going_on {
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                    anyhow::bail!("the first in the cell has ended, and the link with it");
                }
            }
        };
        tokio::select! {
            () = carrier.drained(sent) => {}
            () = tokio::time::sleep(LINGER) => {}
            _ = signals.next() => {}
        }
        tokio::select! {
            () = carrier.emptied(talkative) => {}
            _ = signals.next() => {}
        }
        carrier.finish(talkative).await?;
        Ok(inside::code(status))
    })
}

/// Who carries the packets.
enum Carrier {
    /// This process, for others in the cell, too.
    Own {
        handle: TunnelHandle,
        running: JoinHandle<TunnelStats>,
        stats: Option<(PathBuf, File)>,
        door: Option<Door>,
    },
    /// The first in the cell.
    Other(Member),
}

impl Carrier {
    async fn new(arguments: &LinkExecArgs, link: LinkConfig) -> anyhow::Result<Self> {
        let LinkExecArgs { capture, stats, .. } = arguments;
        let seed = arguments.link.seed;
        let door = match &arguments.cell {
            None => None,
            Some(name) => match cell::enter(name, &link, seed).await? {
                Role::First(door) => Some(door),
                Role::Member(_) if stats.is_some() || capture.is_some() => {
                    return Err(Failure::usage(format!(
                        "--cell {name} has a link already, and only the first can say what is written down about it"
                    )));
                }
                Role::Member(member) => return Ok(Self::Other(member)),
            },
        };
        let mut tunnel = Tunnel::new(link, seed).map_err(explained)?;
        for observer in super::observers(capture)? {
            tunnel.observe(observer);
        }
        let create = |path: &PathBuf| super::create(path).map(|file| (path.clone(), file));
        let stats = stats.as_ref().map(create).transpose()?;
        let handle = tunnel.handle();
        Ok(Self::Own { handle, running: tokio::spawn(tunnel.run()), stats, door })
    }

    async fn attach(&self, mobile: OwnedFd, host: OwnedFd) -> anyhow::Result<()> {
        match self {
            Self::Own { handle, .. } => {
                hurry();
                handle.attach(mobile, host).await?;
            }
            Self::Other(member) => member.attach(mobile, host).await?,
        }
        Ok(())
    }

    /// Does something for others in the cell, and returns whether there still is a link.
    async fn serve(&mut self) -> bool {
        match self {
            Self::Own { handle, door: Some(door), .. } => door.serve(handle).await,
            Self::Own { door: None, .. } => std::future::pending().await,
            Self::Other(member) => {
                member.abandoned().await;
                return false;
            }
        }
        true
    }

    /// Waits until the network of COMMAND has `sent` everything and it has crossed the link.
    async fn drained(&self, sent: oneshot::Receiver<()>) {
        // Errors mean the same: nobody is left who would send, or nothing that would carry it.
        let _ = sent.await;
        match self {
            Self::Own { handle, .. } => drained(handle).await,
            Self::Other(member) => drop(member.drained().await),
        }
    }

    /// Waits until all others have left the cell.
    async fn emptied(&mut self, talkative: bool) {
        let Self::Own { handle, door: Some(door), .. } = self else {
            return;
        };
        if talkative && door.members() > 0 {
            eprintln!("nfsw: the link goes on for {} more in the cell; Ctrl-C ends it", door.members());
        }
        while door.members() > 0 {
            door.serve(handle).await;
        }
    }

    /// Ends the link, and writes what is to be known. The exit status is that of COMMAND all the same.
    async fn finish(self, talkative: bool) -> anyhow::Result<()> {
        let Self::Own { handle, running, stats: file, .. } = self else {
            return Ok(());
        };
        handle.stop().await;
        let stats = running.await?;
        for problem in &stats.problems {
            eprintln!("nfsw: {problem}; the link went on");
        }
        if let Some((path, mut file)) = file
            && let Err(error) = writeln!(file, "{}", stats.to_json())
        {
            eprintln!("nfsw: {}", explain(&local(&path, &error)));
        }
        if talkative {
            eprint!("{}", super::summary(&stats.link, &stats.lateness));
        }
        Ok(())
    }
}

/// Waits until everything that was offered to the link by now has arrived or is lost.
async fn drained(handle: &TunnelHandle) {
    let mut offered = None;
    while let Some(stats) = handle.stats().await.map(|stats| stats.link.stats) {
        if stats.settled() >= *offered.get_or_insert(stats.datagrams) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Lets this thread go before others, for a link is late when it waits for a processor that COMMAND uses.
fn hurry() {
    #[expect(unsafe_code, reason = "no crate in use has a safe sched_setscheduler")]
    // SAFETY: the parameters are integers, which may be zero, and are read during the call.
    let refused = unsafe {
        // Some C libraries have more of them.
        let mut lowest: libc::sched_param = std::mem::zeroed();
        lowest.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest)
    };
    if refused != 0 {
        // The next best thing, which may be refused, too.
        let _ = rustix::process::setpriority_process(None, -10);
    }
}

/// Signals that would end this process while COMMAND runs.
#[derive(Debug)]
struct Signals([(tokio::signal::unix::Signal, Option<Signal>); 4]);

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self([
            // A terminal sends these two to COMMAND, too, which decides.
            (signal(SignalKind::interrupt())?, None),
            (signal(SignalKind::quit())?, None),
            (signal(SignalKind::terminate())?, Some(Signal::TERM)),
            (signal(SignalKind::hangup())?, Some(Signal::HUP)),
        ]))
    }

    /// Waits for the next signal, and returns it if it is to be passed on.
    async fn next(&mut self) -> Option<Signal> {
        let [interrupt, quit, terminate, hang_up] = &mut self.0;
        let (caught, passed_on) = tokio::select! {
            caught = interrupt.0.recv() => (caught, interrupt.1),
            caught = quit.0.recv() => (caught, quit.1),
            caught = terminate.0.recv() => (caught, terminate.1),
            caught = hang_up.0.recv() => (caught, hang_up.1),
        };
        caught.and(passed_on)
    }
}

fn explained(error: TunnelError) -> anyhow::Error {
    match error {
        TunnelError::Config(error) => Failure::usage(error.to_string()),
        other => other.into(),
    }
}

/// Says which algorithms there are.
fn uncontrolled(algorithm: &str, error: &io::Error) -> anyhow::Error {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(", ");
    Failure::usage(format!(
        "--congestion {}: {} (this kernel has {known})",
        escape(algorithm.as_bytes()),
        io_text(error)
    ))
}

/// Says what the system does not let us do, which knob that is, and what works without.
fn refused(what: &str, error: &io::Error) -> anyhow::Error {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "run it as root, in a container with the capabilities NET_ADMIN and SYS_ADMIN and the device /dev/net/tun; \
             or, if you may open /dev/net/tun, in a network of your own: unshare -Urn nfsw link exec ..."
        }
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            "there must be a /dev/net/tun: modprobe tun, or start the container with --device /dev/net/tun"
        }
        Some(Errno::NOSPC | Errno::USERS) => {
            "sysctl user.max_net_namespaces and user.max_pid_namespaces limit them"
        }
        _ => "does the kernel have namespaces and TUN devices?",
    };
    let error = io_text(error);
    anyhow::anyhow!("cannot {what}: {error} ({advice}; nfsw link proxy needs nothing of this, for UDP)")
}
