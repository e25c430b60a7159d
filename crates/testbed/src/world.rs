//! One run: mobiles, link and server under one virtual clock.

use std::time::{Duration, Instant};

use linkemu::{Channel, Endpoint, Node, Observer, Outgoing, Simulation, Station};
use nfs_proto::{config::Window, engine::Resends, transfer::Limits};
use nfs_wire::portmap::Protocol;

use crate::{
    Error, Limit, Operation, Plan, TcpStats, Transport,
    address::SERVER,
    agent::Agent,
    client::session,
    competitor::{self, Receiver, Sender},
    host::Host,
    mobile::{Copier, Mobile, Progress, Rehearsal, Work},
    path::Path,
    ping::Ping,
    server::{COMPARED_BYTES, ServerHost},
};

/// What became of one mobile's copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copy {
    /// When its first call was made, counted from the first of all.
    pub started: Duration,
    /// From its first call to its end; `None` if it failed or was given up.
    pub response: Option<Duration>,
    /// Calls made.
    pub calls: u64,
    /// Attempts after the first, by cause.
    pub resends: Resends,
    /// NULL calls that were probes.
    pub probes: u64,
    /// Of the resends, spurious ones: the reply to an earlier attempt arrived anyway.
    pub spurious_resends: u64,
    /// Round-trip time, mean over all calls that were sent once.
    pub rtt_mean: Duration,
    /// Bytes per READ and WRITE in the end.
    pub limits: Limits,
    /// TCP connections made because another had died.
    pub reconnections: u64,
    /// The transport that the file's data took in the end.
    pub transport: Protocol,
    /// How often that changed.
    pub transport_changes: u32,
}

/// What one run shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// One for each mobile.
    pub copies: Vec<Copy>,
    /// The end of the last copy, counted from the first call; `None` if one failed.
    pub last_done: Option<Duration>,
    /// What the channel allowed.
    pub limit: Limit,
    /// Round-trip times of the pings that were answered while a copy was under way.
    pub pings: Vec<Duration>,
    /// Bytes per second that the competitor got while copies were under way.
    pub competitor_rate: Option<f64>,
    /// What the senders of TCP have done, at both ends of all connections to the server.
    pub tcp: TcpStats,
    /// The link's counters.
    pub link: linkemu::Stats,
}

/// How long replies that nobody waits for any more may take to be counted.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Longer than any plan's patience: mobiles give up by themselves.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The ports that mobiles call from.
const UDP_PORT: u16 = 700;
const TCP_PORT: u16 = 701;

/// Makes the copies of a plan once.
///
/// # Errors
/// [`Error`] when the plan cannot be.
pub fn run(plan: &Plan, seed: u64) -> Result<Run, Error> {
    run_observed(plan, seed, None)
}

/// As [`run`], with somebody who is told of every datagram and frame.
///
/// # Errors
/// [`Error`] when the plan cannot be.
pub fn run_observed(plan: &Plan, seed: u64, observer: Option<Box<dyn Observer>>) -> Result<Run, Error> {
    plan.check()?;
    let (mut world, competitor) = populate(plan, seed, observer)?;
    // A mobile that is done stays done, so each is asked only until it is.
    let mut done = 0;
    world.run_while(FOR_EVER, |world| {
        while done < plan.clients && find(world, done).is_done() {
            done += 1;
        }
        done < plan.clients
    });
    let end = world.elapsed();
    if let Some(Machine::Ping(ping)) = world.node_mut(Station::Mobile(plan.clients)) {
        ping.stop();
    }
    let received = competitor.and_then(|ends| stop_competitor(&mut world, ends));
    let competitor_rate = received.map(|bytes| bytes as f64 / end.as_secs_f64());
    world.run_while(end + AFTERMATH, |_| true);
    report(plan, seed, &mut world, competitor_rate)
}

/// The two ends of the competitor's flow.
type Flow = (Station, Station);

/// Puts everybody on the link.
fn populate(
    plan: &Plan,
    seed: u64,
    observer: Option<Box<dyn Observer>>,
) -> Result<(Simulation<Machine>, Option<Flow>), Error> {
    let pings = u16::from(plan.ping.is_some());
    let mobiles = plan.clients + pings + u16::from(plan.competitor);
    let mut world = Simulation::new(plan.room.link.clone(), mobiles, seed)?;
    if let Some(observer) = observer {
        world.cell_mut().observe(observer);
    }
    let epoch = world.now();
    let mut server = ServerHost::new(&plan.room.server, plan.outages.clone(), seed, epoch)?;
    for number in 0..plan.clients {
        let mobile = mobile(plan, seed, number, &mut server, epoch)?;
        world.attach(Station::Mobile(number), Machine::Mobile(mobile));
    }
    if let Some(every) = plan.ping {
        let ping = Ping::new(plan.clients, every, epoch);
        world.attach(Station::Mobile(plan.clients), Machine::Ping(ping));
    }
    world.attach(SERVER.station, Machine::Server(Box::new(server)));
    let mut competitor = None;
    if plan.competitor {
        let ((from, sender), (to, receiver)) = competitor::flow(plan.operation, plan.clients + pings, epoch);
        world.attach(from.station, Machine::Sender(sender));
        world.attach(to.station, Machine::Receiver(receiver));
        competitor = Some((from.station, to.station));
    }
    Ok((world, competitor))
}

/// Ends the competitor's flow; the bytes that it got.
fn stop_competitor(world: &mut Simulation<Machine>, (from, to): Flow) -> Option<u64> {
    if let Some(Machine::Sender(sender)) = world.node_mut(from) {
        sender.stop();
    }
    match world.node_mut(to) {
        Some(Machine::Receiver(receiver)) => Some(receiver.received()),
        _ => None,
    }
}

fn mobile(
    plan: &Plan,
    seed: u64,
    number: u16,
    server: &mut ServerHost,
    epoch: Instant,
) -> Result<Box<dyn Copier>, Error> {
    let name = format!("file-{number}");
    let size = match plan.operation {
        Operation::Read => plan.size,
        Operation::Write => 0,
    };
    let (file, root) = server.place(epoch, &name, size);
    let work = Work { operation: plan.operation, file, root, size: plan.size, patience: plan.patience };
    let starts = epoch + plan.spacing * u32::from(number);
    let host_seed = seed ^ u64::from(number) << 32;
    let host = Host::new(plan.operation, plan.room.client, plan.size, host_seed, starts);
    let path = match plan.transport {
        Transport::Udp => {
            let session = session(plan, Protocol::Udp, seed, number, epoch)?;
            Path::datagrams(session, Endpoint::mobile(number, UDP_PORT))
        }
        Transport::Tcp => {
            let session = session(plan, Protocol::Tcp, seed, number, epoch)?;
            Path::stream(session, Endpoint::mobile(number, TCP_PORT), starts)
        }
        Transport::Auto => {
            let (several, own) = (plan.window == Window::Auto, plan.clone());
            let make = move |protocol, now| session(&own, protocol, seed, number, now);
            return Ok(Box::new(Agent::new(number, Box::new(make), several, host, work, starts)));
        }
    };
    let rehearsal = plan.warm.map(|bytes| Rehearsal { bytes, plan: plan.clone(), seed: !seed, number });
    Ok(Box::new(Mobile::new(path, host, work, starts, rehearsal)))
}

fn report(
    plan: &Plan,
    seed: u64,
    world: &mut Simulation<Machine>,
    competitor_rate: Option<f64>,
) -> Result<Run, Error> {
    let channel_start = world.cell().channel_start();
    let first = (0..plan.clients).map(|number| find(world, number).starts()).min();
    let first = first.expect("a plan has at least one client");
    let copies: Vec<Copy> = (0..plan.clients).map(|number| copy(find(world, number), first)).collect();
    for number in 0..plan.clients {
        let mobile = find(world, number);
        assert!(mobile.intact(), "bytes that arrived are not those of the file: seed {seed}");
        let written =
            plan.operation == Operation::Write && matches!(mobile.progress(), Progress::Finished(_));
        if written && plan.size <= COMPARED_BYTES {
            let Some(Machine::Server(server)) = world.node_mut(SERVER.station) else { continue };
            assert!(server.holds(&format!("file-{number}"), plan.size), "an upload is broken: seed {seed}");
        }
    }
    // Mobile 0 stands for all where each has a channel of its own.
    let mut channel = Channel::new(&plan.room.link.channel, seed, 0)?;
    let start = channel_start.map_or(Duration::ZERO, |start| first.saturating_duration_since(start));
    let limit =
        Limit::of(plan, world.cell().config(), &mut channel, start).ok_or_else(|| Error::OutOfRange {
            field: "limit",
            value: "never".into(),
            bound: "reached by a channel that is good at times",
        })?;
    let ends: Option<Vec<_>> = copies.iter().map(|copy| Some(copy.started + copy.response?)).collect();
    let pings = match world.node(Station::Mobile(plan.clients)) {
        Some(Machine::Ping(ping)) => ping.answers().to_vec(),
        _ => Vec::new(),
    };
    let last_done = ends.and_then(|ends| ends.into_iter().max());
    let mut tcp = match world.node(SERVER.station) {
        Some(Machine::Server(server)) => server.tcp_stats(),
        _ => TcpStats::NONE,
    };
    for number in 0..plan.clients {
        tcp = tcp.plus(&find(world, number).tcp_stats());
    }
    let link = world.cell().stats();
    Ok(Run { seed, copies, last_done, limit, pings, competitor_rate, tcp, link })
}

fn copy(mobile: &dyn Copier, first: Instant) -> Copy {
    let (now, before) = mobile.stats();
    let (transport, transport_changes) = mobile.transport();
    let response = match mobile.progress() {
        Progress::Finished(at) => Some(at - mobile.starts()),
        Progress::Waiting | Progress::Copying | Progress::Failed => None,
    };
    Copy {
        started: mobile.starts().saturating_duration_since(first),
        response,
        calls: now.calls - before.calls,
        resends: now.resends.since(&before.resends),
        probes: now.probes - before.probes,
        spurious_resends: now.spurious_resends - before.spurious_resends,
        rtt_mean: now.rtt.mean_since(&before.rtt).unwrap_or_default(),
        limits: mobile.limits(),
        reconnections: mobile.reconnections(),
        transport,
        transport_changes,
    }
}

fn find(world: &Simulation<Machine>, number: u16) -> &dyn Copier {
    match world.node(Station::Mobile(number)) {
        Some(Machine::Mobile(mobile)) => &**mobile,
        _ => unreachable!("mobiles below `clients` copy"),
    }
}

/// Whatever is on the link.
enum Machine {
    Mobile(Box<dyn Copier>),
    Ping(Ping),
    Server(Box<ServerHost>),
    Sender(Sender),
    Receiver(Receiver),
}

impl Machine {
    fn node(&mut self) -> &mut dyn Node {
        match self {
            Self::Mobile(mobile) => &mut **mobile,
            Self::Ping(ping) => ping,
            Self::Server(server) => &mut **server,
            Self::Sender(sender) => sender,
            Self::Receiver(receiver) => receiver,
        }
    }
}

impl Node for Machine {
    fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: bytes::Bytes) {
        self.node().handle_input(now, from, to, payload);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node().handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        self.node().poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Mobile(mobile) => mobile.poll_timeout(),
            Self::Ping(ping) => ping.poll_timeout(),
            Self::Server(server) => server.poll_timeout(),
            Self::Sender(sender) => sender.poll_timeout(),
            Self::Receiver(receiver) => receiver.poll_timeout(),
        }
    }
}
