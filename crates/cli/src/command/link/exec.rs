//! `nfsw link exec`: a program in a network of its own, behind the link.

mod device;
mod inside;
mod namespace;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use linkemu::tunnel::{Tunnel, TunnelError, TunnelHandle, TunnelStats};
use rustix::{
    io::Errno,
    process::{Signal, pidfd_send_signal},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use self::{
    device::{Device, Ends, Side},
    namespace::{Inside, Plan},
};
use crate::{
    args::{LinkExecArgs, LinkInsideArgs},
    error::{explain, io_text, local},
    exit::{Exit, Failure},
};

/// Exit status: there is no link. As with env(1) and timeout(1), COMMAND is not to blame for these three.
const NO_LINK: u8 = 125;
/// Exit status: COMMAND cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status: there is no such COMMAND.
const NOT_FOUND: u8 = 127;

/// How long what COMMAND has sent may take to cross the link after its end.
const LINGER: Duration = Duration::from_secs(10);
/// How often somebody looks whether it has.
const LOOK: Duration = Duration::from_millis(5);

pub(super) fn run(arguments: &LinkExecArgs) -> ExitCode {
    finish(execute(arguments))
}

pub(super) fn inside(arguments: &LinkInsideArgs) -> ExitCode {
    finish(inside::run(arguments))
}

fn finish(code: anyhow::Result<u8>) -> ExitCode {
    code.unwrap_or_else(|error| {
        eprintln!("nfsw: {}", explain(&error));
        match Exit::of(&error) {
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
        let mut tunnel = Tunnel::new(link, arguments.link.seed).map_err(explained)?;
        for observer in super::observers(&arguments.capture)? {
            tunnel.observe(observer);
        }
        let stats = match &arguments.stats {
            Some(path) => Some((path.as_path(), super::create(path)?)),
            None => None,
        };
        let host = Device::make("nfsw%d").map_err(|error| refused("make a network device", &error))?;
        let ends =
            Ends::of(&host).ok_or_else(|| anyhow::anyhow!("there are 32768 links on this host already"))?;
        let ipv6 = host.configure(ends, Side::Host, mtu_bytes).await;
        let ipv6 = ipv6.map_err(|error| refused(&format!("set up {}", host.name), &error))?;
        let talkative = !arguments.quiet && io::stderr().is_terminal();
        if talkative {
            eprintln!("nfsw: behind the link this host is {} (NFSW_HOST)", ends.ipv4(Side::Host));
        }
        // Before there is a COMMAND to send them to.
        let mut signals = Signals::catch()?;
        let command = arguments.command.clone();
        let inside = namespace::start(Plan { device: host.name, ends, mtu_bytes, ipv6, command }).await?;
        hurry();
        let Inside { device, process, mut ended, sent } = inside;
        tunnel.attach(device, host.descriptor)?;
        let handle = tunnel.handle();
        let running = tokio::spawn(tunnel.run());
        let status = loop {
            tokio::select! {
                status = &mut ended => break status??,
                passed_on = signals.next() => {
                    // It may have ended just now.
                    let _ = passed_on.map(|signal| pidfd_send_signal(&process, signal));
                }
            }
        };
        tokio::select! {
            () = drained(&handle, sent) => {}
            () = tokio::time::sleep(LINGER) => {}
            _ = signals.next() => {}
        }
        handle.stop().await;
        report(stats, talkative, &running.await?);
        Ok(inside::code(status))
    })
}

/// Lets this thread go before others, for a link is late when it waits for a processor that COMMAND uses.
fn hurry() {
    let lowest = libc::sched_param { sched_priority: 1 };
    #[expect(unsafe_code, reason = "no crate in use has a safe sched_setscheduler")]
    // SAFETY: the parameters are read during the call.
    let refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest) };
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

/// Waits until the network of COMMAND has `sent` everything and nothing is under way.
async fn drained(handle: &TunnelHandle, sent: oneshot::Receiver<()>) {
    // An error means the same: nobody is left who would send.
    let _ = sent.await;
    while let Some(stats) = handle.stats().await.map(|stats| stats.link.stats) {
        if stats.settled() >= stats.datagrams {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Writes what is to be known when COMMAND has ended, whose exit status nothing here changes.
fn report(file: Option<(&Path, File)>, talkative: bool, stats: &TunnelStats) {
    for problem in &stats.problems {
        eprintln!("nfsw: {problem}; the link went on");
    }
    if let Some((path, mut file)) = file
        && let Err(error) = writeln!(file, "{}", stats.to_json())
    {
        eprintln!("nfsw: {}", explain(&local(path, &error)));
    }
    if talkative {
        eprint!("{}", super::summary(&stats.link, &stats.lateness));
    }
}

fn explained(error: TunnelError) -> anyhow::Error {
    match error {
        TunnelError::Config(error) => Failure::usage(error.to_string()),
        other => other.into(),
    }
}

/// Says what the system does not let us do, which knob that is, and what works without.
fn refused(what: &str, error: &io::Error) -> anyhow::Error {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "run it as root, in a container with the capabilities NET_ADMIN and SYS_ADMIN and the device /dev/net/tun; \
             or in a network of your own: unshare -Urn nfsw link exec ..."
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
