//! A mobile that lists a directory instead of copying a file.

use std::time::{Duration, Instant};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Observer, Outgoing, Simulation, Station};
use nfs_proto::{
    session::{Incoming, Session},
    transfer::Listing,
};
use nfs_wire::{
    FileHandle, Procedure, encode,
    nfs3_types::nfs3::{ACCESS3args, GETATTR3args, LOOKUP3args, diropargs3, filename3},
    portmap::Protocol,
    rpc::Program,
};

use crate::{
    Error, Plan,
    server::{SERVER, ServerHost, server_address},
    world::session,
};

/// How a directory is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// LOOKUP, ACCESS and GETATTR for every entry, one call after the other, as the kernels of 2005 did.
    OneByOne,
    /// Pages of READDIRPLUS, as this project's client does.
    Pages,
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
    let Some(root) = root else { return Ok(Vec::new()) };
    let work = match style {
        Style::OneByOne => Work::OneByOne { root, files, step: 0 },
        Style::Pages => Work::Pages(Listing::new(root, PAGE_BYTES)),
    };
    let reader = Reader {
        session: session(plan, Protocol::Udp, seed, 0, epoch)?,
        work,
        asked: false,
        epoch,
        seen: Vec::new(),
    };
    world.attach(Station::Mobile(0), Machine::Reader(Box::new(reader)));
    world.attach(SERVER.station, Machine::Server(Box::new(server)));
    world.run_while(PATIENCE, |world| match world.node(Station::Mobile(0)) {
        Some(Machine::Reader(reader)) => !reader.work.is_done(),
        _ => false,
    });
    match world.node(Station::Mobile(0)) {
        Some(Machine::Reader(reader)) => Ok(reader.seen.clone()),
        _ => Ok(Vec::new()),
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
    session: Session,
    work: Work,
    asked: bool,
    epoch: Instant,
    seen: Vec<Duration>,
}

impl Reader {
    fn ask(&mut self, now: Instant) {
        if !self.asked && !self.work.is_done() {
            let (work, call) = (&self.work, (Program::NFS, self.work.procedure().number()));
            self.asked = self.session.submit(now, 0, call, None, |buffer| work.encode(buffer)).is_some();
        }
    }
}

impl Node for Reader {
    fn handle_input(&mut self, now: Instant, _: Endpoint, _: Endpoint, payload: Bytes) {
        // What is broken or a stranger's is counted by the engine.
        if let Ok(Incoming::Reply { results_at, .. }) =
            self.session.handle_head(now, server_address(), &payload, true)
        {
            let entries = self.work.take_in(payload.get(results_at..).unwrap_or_default());
            self.seen.extend(std::iter::repeat_n(now - self.epoch, entries));
            self.asked = false;
            self.ask(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ask(now);
        self.session.handle_timeout(now);
        while self.session.poll_event().is_some() {}
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        let transmit = self.session.poll_transmit(now)?;
        let payload = Bytes::copy_from_slice(transmit.head);
        Some(Outgoing { from: Endpoint::mobile(0, 700), to: SERVER, payload })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let start = (!self.asked && !self.work.is_done()).then_some(self.epoch);
        self.session.poll_timeout().into_iter().chain(start).min()
    }
}

/// Whatever is on the link.
#[derive(Debug)]
enum Machine {
    Reader(Box<Reader>),
    Server(Box<ServerHost>),
}

impl Machine {
    fn node(&mut self) -> &mut dyn Node {
        match self {
            Self::Reader(reader) => &mut **reader,
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
            Self::Server(server) => server.poll_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use nfs_proto::config::RetryPolicy;

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
}
