//! A mobile that lists a directory instead of copying a file.

use std::time::{Duration, Instant};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Observer, Outgoing, Simulation, Station};
use nfs_proto::transfer::Listing;
use nfs_wire::{
    FileHandle, Procedure, encode,
    nfs3_types::nfs3::{ACCESS3args, GETATTR3args, LOOKUP3args, diropargs3, filename3},
    portmap::Protocol,
    rpc::Program,
};

use crate::{
    Error, Plan, Transport,
    address::SERVER,
    client::session,
    host::Host,
    mounted::{Listed, Mounted, Repeat},
    path::Path,
    server::ServerHost,
};

/// How a directory is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// LOOKUP, ACCESS and GETATTR for every entry, one call after the other, as the kernels of 2005 did.
    OneByOne,
    /// Pages of READDIRPLUS, as this project's client does.
    Pages,
    /// `ls -l` through the cache of `nfsw mount`, which holds nothing yet.
    Mounted,
}

/// Bytes of a page.
const PAGE_BYTES: u32 = 8 << 10;

/// When a listing is given up.
const PATIENCE: Duration = Duration::from_secs(300);

/// Lists a directory of `entries` names over a plan's link, with its policy and outages. Returns when each entry was
/// there, counted from the first call; fewer than `entries` if the listing was given up.
pub(crate) fn list(plan: &Plan, style: Style, entries: u32, seed: u64) -> Result<Vec<Duration>, Error> {
    list_observed(plan, style, entries, seed, None)
}

/// As [`list`], with somebody who is told of every datagram and frame.
pub(crate) fn list_observed(
    plan: &Plan,
    style: Style,
    entries: u32,
    seed: u64,
    observer: Option<Box<dyn Observer>>,
) -> Result<Vec<Duration>, Error> {
    let mut room = Populated::new(plan, entries, seed, observer)?;
    let Some(root) = room.root else { return Ok(Vec::new()) };
    let work = match style {
        Style::OneByOne => Work::OneByOne { root, files: std::mem::take(&mut room.files), step: 0 },
        Style::Pages => Work::Pages(Listing::new(root, PAGE_BYTES)),
        Style::Mounted => {
            let listed = room.list_mounted(plan, seed, Duration::ZERO, Repeat::Once, PATIENCE)?;
            let whole = listed.first().filter(|listed| listed.errors == 0);
            return Ok(whole.map_or_else(Vec::new, |listed| vec![listed.ended; listed.entries]));
        }
    };
    let (path, host) = room.mobile(plan, seed)?;
    let reader = Reader { path, host, work, asked: false, epoch: room.epoch, seen: Vec::new() };
    room.world.attach(Station::Mobile(0), Machine::Reader(Box::new(reader)));
    room.world.run_while(PATIENCE, |world| match world.node(Station::Mobile(0)) {
        Some(Machine::Reader(reader)) => !reader.work.is_done(),
        _ => false,
    });
    match room.world.node(Station::Mobile(0)) {
        Some(Machine::Reader(reader)) => Ok(reader.seen.clone()),
        _ => Ok(Vec::new()),
    }
}

/// Lists a directory of `entries` names as `ls -l` does on a mount, with nothing held at first, from `starts` on, until `end`.
pub(crate) fn list_mounted(
    plan: &Plan,
    entries: u32,
    seed: u64,
    (starts, end): (Duration, Duration),
    repeat: Repeat,
) -> Result<Vec<Listed>, Error> {
    Populated::new(plan, entries, seed, None)?.list_mounted(plan, seed, starts, repeat, end)
}

/// A link, and a server with a directory.
struct Populated {
    world: Simulation<Machine>,
    epoch: Instant,
    root: Option<FileHandle>,
    files: Vec<(String, FileHandle)>,
}

impl Populated {
    fn new(plan: &Plan, entries: u32, seed: u64, observer: Option<Box<dyn Observer>>) -> Result<Self, Error> {
        plan.check()?;
        let mut world = Simulation::new(plan.room.link.clone(), 1, seed)?;
        if let Some(observer) = observer {
            world.cell_mut().observe(observer);
        }
        let epoch = world.now();
        let mut server = ServerHost::new(&plan.room.server, plan.outages.clone(), seed, epoch)?;
        let mut files = Vec::new();
        let mut root = None;
        for number in 0..entries {
            let name = format!("entry-{number:04}");
            let (file, directory) = server.place(epoch, &name, 0);
            files.push((name, file));
            root = Some(directory);
        }
        world.attach(SERVER.station, Machine::Server(Box::new(server)));
        Ok(Self { world, epoch, root, files })
    }

    /// What the mobile has of a network.
    fn mobile(&self, plan: &Plan, seed: u64) -> Result<(Path, Host), Error> {
        let epoch = self.epoch;
        let host = Host::new(plan.operation, plan.room.client, 0, seed, epoch);
        let place = Endpoint::mobile(0, 700);
        let path = match plan.transport {
            Transport::Tcp => Path::stream(session(plan, Protocol::Tcp, seed, 0, epoch)?, place, epoch),
            Transport::Udp | Transport::Auto => {
                Path::datagrams(session(plan, Protocol::Udp, seed, 0, epoch)?, place)
            }
        };
        Ok((path, host))
    }

    fn list_mounted(
        &mut self,
        plan: &Plan,
        seed: u64,
        starts: Duration,
        repeat: Repeat,
        end: Duration,
    ) -> Result<Vec<Listed>, Error> {
        let Some(root) = self.root else { return Ok(Vec::new()) };
        let Some(Machine::Server(server)) = self.world.node_mut(SERVER.station) else {
            return Ok(Vec::new());
        };
        let root = (root, server.attributes(self.epoch, root));
        let (path, host) = self.mobile(plan, seed)?;
        // How long the call took that told the attributes.
        let link = &plan.room.link;
        let round_trip = 2 * (link.delay + link.wired.delay + link.air_time(100));
        let mounted = Mounted::new(path, host, root, round_trip, self.epoch, starts, repeat);
        self.world.attach(Station::Mobile(0), Machine::Mounted(Box::new(mounted)));
        self.world.run_while(end, |world| match world.node(Station::Mobile(0)) {
            Some(Machine::Mounted(mounted)) => repeat != Repeat::Once || mounted.listed().is_empty(),
            _ => false,
        });
        match self.world.node(Station::Mobile(0)) {
            Some(Machine::Mounted(mounted)) => Ok(mounted.listed().to_vec()),
            _ => Ok(Vec::new()),
        }
    }
}

/// What is still to be asked.
#[derive(Debug)]
enum Work {
    OneByOne { root: FileHandle, files: Vec<(String, FileHandle)>, step: usize },
    Pages(Listing),
}

impl Work {
    fn is_done(&self) -> bool {
        match self {
            Self::OneByOne { files, step, .. } => *step == CALLS.len() * files.len(),
            Self::Pages(listing) => listing.is_done(),
        }
    }

    fn procedure(&self) -> Procedure {
        match self {
            Self::OneByOne { step, .. } => CALLS[step % CALLS.len()],
            Self::Pages(listing) => listing.procedure(),
        }
    }

    fn encode(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Pages(listing) => listing.encode(buffer),
            Self::OneByOne { root, files, step } => {
                let (name, file) = &files[step / CALLS.len()];
                let object = file.to_fh3();
                match step % CALLS.len() {
                    0 => {
                        let name = filename3::from(name.as_bytes());
                        encode(buffer, &LOOKUP3args { what: diropargs3 { dir: root.to_fh3(), name } });
                    }
                    1 => encode(buffer, &ACCESS3args { object, access: READ_ACCESS }),
                    _ => encode(buffer, &GETATTR3args { object }),
                }
            }
        }
    }

    /// Takes in the results of a call; how many entries became known.
    fn take_in(&mut self, results: &[u8]) -> usize {
        match self {
            Self::OneByOne { step, .. } => {
                *step += 1;
                usize::from(step.is_multiple_of(CALLS.len()))
            }
            Self::Pages(listing) => listing.handle_results(results).map_or(0, |entries| entries.len()),
        }
    }
}

/// The calls for one entry.
const CALLS: [Procedure; 3] = [Procedure::Lookup, Procedure::Access, Procedure::Getattr];

/// `ACCESS3_READ` (RFC 1813 §3.3.4).
const READ_ACCESS: u32 = 1;

/// A mobile with one call outstanding at a time.
#[derive(Debug)]
struct Reader {
    path: Path,
    host: Host,
    work: Work,
    asked: bool,
    epoch: Instant,
    seen: Vec<Duration>,
}

impl Reader {
    fn go_on(&mut self, now: Instant) {
        while self.path.session.poll_event().is_some() {}
        for answered in std::mem::take(&mut self.host.answered) {
            let entries = self.work.take_in(&answered.results);
            self.seen.extend(std::iter::repeat_n(now - self.epoch, entries));
            self.asked = false;
        }
        if !self.asked && !self.work.is_done() {
            let (work, call) = (&self.work, (Program::NFS, self.work.procedure().number()));
            let made = self.path.session.submit(now, 0, call, None, |buffer| work.encode(buffer));
            self.asked = made.is_some();
        }
    }
}

impl Node for Reader {
    fn handle_input(&mut self, now: Instant, _: Endpoint, _: Endpoint, payload: Bytes) {
        self.path.handle_input(now, &mut self.host, payload);
        self.go_on(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.path.handle_timeout(now, &mut self.host);
        self.go_on(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        self.path.poll_transmit(now, &mut self.host)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let start = (!self.asked && !self.work.is_done()).then_some(self.epoch);
        self.path.poll_timeout().into_iter().chain(start).min()
    }
}

/// Whatever is on the link.
#[derive(Debug)]
enum Machine {
    Reader(Box<Reader>),
    Mounted(Box<Mounted>),
    Server(Box<ServerHost>),
}

impl Machine {
    fn node(&mut self) -> &mut dyn Node {
        match self {
            Self::Reader(reader) => &mut **reader,
            Self::Mounted(mounted) => &mut **mounted,
            Self::Server(server) => &mut **server,
        }
    }
}

impl Node for Machine {
    fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: Bytes) {
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
            Self::Reader(reader) => reader.poll_timeout(),
            Self::Mounted(mounted) => mounted.poll_timeout(),
            Self::Server(server) => server.poll_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use nfs_proto::config::{RetryPolicy, Window};

    use super::*;
    use crate::{Outage, Room};

    #[test]
    fn every_entry_is_listed_once_and_an_outage_delays_the_rest() {
        let mut plan = Plan::new(Room::named("bluetooth").expect("a room"));
        plan.policy = RetryPolicy::exponential();
        let quick = list(&plan, Style::OneByOne, 20, 1).expect("a valid plan");
        assert_eq!(quick.len(), 20);
        let calls = u32::try_from(20 * CALLS.len()).expect("few");
        let each = *quick.last().expect("entries") / calls;
        assert!((Duration::from_millis(26)..Duration::from_millis(36)).contains(&each), "{each:?} a call");
        plan.outages =
            vec![Outage { at: Duration::from_secs(1), length: Duration::from_secs(3), over: None }];
        let slow = list(&plan, Style::OneByOne, 20, 1).expect("a valid plan");
        assert_eq!(slow.len(), 20);
        assert!(*slow.last().expect("entries") >= *quick.last().expect("entries") + Duration::from_secs(3));
        assert_eq!(list(&plan, Style::Pages, 20, 1).expect("a valid plan").len(), 20);
    }

    fn adaptive(room: &str) -> Plan {
        let mut plan = Plan::new(Room::named(room).expect("a room"));
        (plan.policy, plan.window) = (RetryPolicy::Adaptive, Window::Auto);
        plan
    }

    /// Listings of 300 entries over Bluetooth, as `ls -l` makes them on a mount; disconnections in milliseconds.
    fn mounted(outages: &[(u64, u64)], starts: u64, repeat: Repeat) -> Vec<Listed> {
        let ms = Duration::from_millis;
        let mut plan = adaptive("bluetooth");
        let outage = |&(at, length): &(u64, u64)| Outage { at: ms(at), length: ms(length), over: None };
        plan.outages = outages.iter().map(outage).collect();
        list_mounted(&plan, 300, 1, (ms(starts), ms(61_000)), repeat).expect("a valid plan")
    }

    /// Listings through which answers keep coming, though they take longer than an operation waits for one.
    #[test]
    fn a_mount_lists_what_takes_longer_than_the_wait_on_any_link() {
        let ms = Duration::from_millis;
        for (room, entries, seconds) in [
            // Pages take longer than a silence that means something: the root is asked for in between.
            ("slip-9600", 150, 47),
            ("bluetooth", 5000, 13),
            ("satellite-600", 5000, 11),
            ("lan-50ms", 5000, 1),
        ] {
            let listed = list_mounted(&adaptive(room), entries, 1, (ms(10_000), ms(600_000)), Repeat::Once);
            let [once] = listed.expect("a valid plan")[..] else { panic!("{room}: one listing") };
            assert_eq!((once.entries, once.errors), (entries as usize, 0), "{room}");
            assert!(once.took() <= Duration::from_secs(seconds), "{room}: {once:?}");
        }
    }

    #[test]
    fn a_page_that_met_a_disconnection_makes_nobody_wait_in_the_next_one() {
        let ms = Duration::from_millis;
        let mut plan = adaptive("bluetooth");
        let outage = |at| Outage { at: ms(at), length: ms(5500), over: None };
        plan.outages = vec![outage(910), outage(21_000)];
        let listed = list_mounted(&plan, 20, 1, (ms(900), ms(40_000)), Repeat::Every(ms(15_000)));
        let listed = listed.expect("a valid plan");
        let longest = listed[1..].iter().map(Listed::took).max().expect("more than one");
        assert!(listed[0].took() > ms(5000), "{:?}", listed[0]);
        assert!(longest <= ms(1010), "{longest:?}");
    }

    const WITHOUT_ERRORS: (usize, usize) = (300, 0);

    #[test]
    fn a_mount_lists_as_fast_as_the_link_can_and_loses_little_to_a_disconnection() {
        let [quiet] = mounted(&[], 0, Repeat::Once)[..] else { panic!("one listing") };
        assert_eq!((quiet.entries, quiet.errors), WITHOUT_ERRORS);
        assert!(quiet.took() <= Duration::from_millis(750), "{quiet:?}");
        let [cut] = mounted(&[(1000, 5500)], 900, Repeat::Once)[..] else { panic!("one listing") };
        assert_eq!((cut.entries, cut.errors), WITHOUT_ERRORS);
        let limit = quiet.took() + Duration::from_millis(5500);
        assert!(cut.took() <= limit + Duration::from_millis(100), "{cut:?} {limit:?}");
    }

    #[test]
    fn what_a_mount_holds_is_listed_at_once_whatever_the_link_does() {
        let disconnections = [(1000, 5500), (21_000, 5500), (41_000, 5500)];
        let listed = mounted(&disconnections, 0, Repeat::Every(Duration::from_millis(100)));
        assert!(listed.len() > 500, "{} listings", listed.len());
        assert!(listed.iter().all(|it| (it.entries, it.errors) == WITHOUT_ERRORS));
        let slow = listed[1..].iter().filter(|it| it.took() > Duration::from_millis(10));
        let slow: Vec<&Listed> = slow.collect();
        assert!(slow.len() * 100 <= listed.len(), "{slow:?}");
        let is_down = |it: &&Listed| {
            disconnections.iter().any(|&(at, length)| {
                (u128::from(at)..u128::from(at + length)).contains(&it.began.as_millis())
            })
        };
        let down: Vec<&Listed> = listed.iter().filter(is_down).collect();
        let slow = down.iter().filter(|it| it.took() > Duration::from_millis(10)).count();
        assert!(slow * 100 <= down.len(), "{slow} of {} while disconnected", down.len());
    }
}
