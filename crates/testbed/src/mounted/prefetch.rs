//! How long those wait who use a mount while it fetches what nobody has asked for.

use std::fmt::Write as _;

use linkemu::{Simulation, Station};
use nfs_cache::OpenId;
use nfs_wire::portmap::Protocol;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::{
    mobile::{Machine, front, plan},
    *,
};
use crate::{Room, address::SERVER, server::ServerHost};

/// Photos of a directory that was listed first: enough for all of the time.
const PHOTOS: usize = 2000;
const PHOTO_BYTES: u64 = 2_000_000;

/// Directories of which each is listed once, of so many files that nobody fetches.
const DIRECTORIES: usize = 60;
const ENTRIES: usize = 20;

/// Bytes of a file that is read once.
const READ_BYTES: u32 = 50_000;

const SEEDS: u64 = 16;

/// What a person asks for, one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// `ls -l` of the photos, after which there is something to fetch.
    Photos,
    /// `ls -l` of another directory.
    List(usize),
    Read(usize),
}

impl Request {
    fn name(self) -> String {
        match self {
            Self::Photos => "photos".to_owned(),
            Self::List(number) => format!("directory-{number}"),
            Self::Read(number) => format!("file-{number}"),
        }
    }
}

#[derive(Debug)]
struct Person {
    front: Front,
    random: ChaCha8Rng,
    requests: VecDeque<Request>,
    starts: Option<Instant>,
    running: Option<Asking>,
    took: Vec<(Request, Duration)>,
}

#[derive(Debug)]
struct Asking {
    request: Request,
    began: Instant,
    waits_for: OperationId,
    node: Option<NodeId>,
    open: Option<OpenId>,
    names: VecDeque<Vec<u8>>,
}

impl User for Person {
    fn front(&self) -> &Front {
        &self.front
    }

    fn front_mut(&mut self) -> &mut Front {
        &mut self.front
    }

    fn waits_for(&self) -> Option<OperationId> {
        self.running.as_ref().map(|running| running.waits_for)
    }

    fn starts(&self) -> Option<Instant> {
        self.starts
    }

    fn begin(&mut self, now: Instant) {
        if self.starts.is_none_or(|at| at > now) {
            return;
        }
        self.starts = None;
        let Some(request) = self.requests.pop_front() else { return };
        let waits_for = self.front.cache.lookup(now, NodeId::ROOT, request.name().as_bytes());
        let names = VecDeque::new();
        self.running = Some(Asking { request, began: now, waits_for, node: None, open: None, names });
    }

    fn go_on(&mut self, now: Instant, result: Result<Answer, Failure>) {
        let Some(mut running) = self.running.take() else { return };
        let cache = &mut self.front.cache;
        let next = match (result.expect("a link without outages"), running.node) {
            (Answer::Entry { node, .. }, None) => {
                running.node = Some(node);
                Some(match running.request {
                    Request::Read(_) => cache.open(now, node),
                    Request::Photos | Request::List(_) => cache.attributes(now, node),
                })
            }
            (Answer::Attributes(_), Some(node)) => Some(cache.list(now, node)),
            (Answer::Opened { open, .. }, _) => {
                running.open = Some(open);
                Some(cache.read(now, open, 0, READ_BYTES))
            }
            (answer, Some(directory)) => {
                match answer {
                    Answer::Entry { node, .. } => cache.forget(node, 1),
                    Answer::Listing(entries) => {
                        running.names = entries.iter().map(|entry| entry.name.to_vec()).collect();
                    }
                    _ => {}
                }
                running.names.pop_front().map(|name| cache.lookup(now, directory, &name))
            }
            (answer, None) => panic!("{answer:?}"),
        };
        if let Some(waits_for) = next {
            running.waits_for = waits_for;
            self.running = Some(running);
            return;
        }
        running.open.into_iter().for_each(|open| cache.release(open));
        running.node.into_iter().for_each(|node| cache.forget(node, 1));
        self.took.push((running.request, now - running.began));
        let pause = 200 + u64::from(self.random.next_u32() % 2800);
        self.starts = Some(now + Duration::from_millis(pause));
    }
}

/// What each request took, without the first one, and the bytes that nobody had asked for.
fn use_mount(room: &str, protocol: Protocol, prefetch: bool, seed: u64) -> (Vec<(Request, Duration)>, u64) {
    let plan = plan(Room::named(room).expect("a room"));
    let mut world = Simulation::new(plan.room.link.clone(), 1, seed).expect("a link");
    let epoch = world.now();
    let mut server = ServerHost::new(&plan.room.server, Vec::new(), seed, epoch).expect("a server");
    for number in 0..PHOTOS {
        server.place_hole(&format!("/photos/{number:04}.jpg"), PHOTO_BYTES);
    }
    let mut requests = VecDeque::from([Request::Photos]);
    for number in 0..DIRECTORIES {
        requests.extend([Request::List(number), Request::Read(number)]);
        server.place_hole(&format!("/{}", Request::Read(number).name()), READ_BYTES.into());
        for entry in 0..ENTRIES {
            server.place_hole(&format!("/{}/{entry}", Request::List(number).name()), 100_000);
        }
    }
    let (_, root) = server.place(epoch, "file-0", 0);
    let metadata = server.attributes(epoch, root);
    world.attach(SERVER.station, Machine::Server(Box::new(server)));
    let mut config = CacheConfig::default();
    config.prefetch = prefetch;
    let cache = Cache::new(config, epoch, root, metadata, MemoryStore::default());
    let front = front(&plan, protocol, seed, cache, epoch);
    let (random, wanted) = (ChaCha8Rng::seed_from_u64(seed), requests.len());
    let person = Person { front, random, requests, starts: Some(epoch), running: None, took: Vec::new() };
    world.attach(Station::Mobile(0), Machine::User(Box::new(person)));
    world.run_while(Duration::from_secs(10_000), |world| match world.node(Station::Mobile(0)) {
        Some(Machine::User(person)) => person.took.len() < wanted,
        _ => false,
    });
    let Some(Machine::User(person)) = world.node(Station::Mobile(0)) else { panic!("it was attached") };
    assert_eq!(person.took.len(), wanted);
    (person.took[1..].to_vec(), person.front.cache.stats().prefetched_bytes)
}

/// Median and 99th percentile of listings and of reads, in milliseconds, and the bytes that nobody had asked for.
fn quantiles(room: &str, protocol: Protocol, prefetch: bool) -> ([[f64; 2]; 2], u64) {
    let runs: Vec<_> = (0..SEEDS).map(|seed| use_mount(room, protocol, prefetch, seed)).collect();
    let of = |is_wanted: fn(Request) -> bool| {
        let all = runs.iter().flat_map(|(took, _)| took);
        let mut times: Vec<Duration> = all.filter(|(of, _)| is_wanted(*of)).map(|(_, took)| *took).collect();
        times.sort();
        [0.5, 0.99].map(|part| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1000.0)
    };
    let quantiles = [of(|of| matches!(of, Request::List(_))), of(|of| matches!(of, Request::Read(_)))];
    (quantiles, runs.iter().map(|(_, bytes)| bytes).min().copied().unwrap_or_default())
}

#[test]
fn who_uses_a_mount_waits_little_for_what_is_prefetched() {
    let mut table = "| link | request | p50 | with --prefetch | p99 | with --prefetch |\n".to_owned();
    let rooms = ["bluetooth", "satellite-600"].into_iter();
    for (room, protocol) in rooms.flat_map(|room| [(room, Protocol::Udp), (room, Protocol::Tcp)]) {
        let (without, none) = quantiles(room, protocol, false);
        let (with, bytes) = quantiles(room, protocol, true);
        assert_eq!(none, 0);
        assert!(bytes > 1_000_000, "{bytes} bytes are no test");
        assert!(bytes < PHOTOS as u64 * nfs_cache::GRAIN_BYTES, "all was fetched before the end");
        for (request, (without, with)) in ["ls -l", "50 kB"].into_iter().zip(without.into_iter().zip(with)) {
            assert!(with[0] <= without[0] * 1.1, "{room}, {request}, median: {without:?} {with:?}");
            // A READ is under way; over TCP, other replies queue behind its reply.
            assert!(with[1] <= without[1] * 2.1, "{room}, {request}, p99: {without:?} {with:?}");
            let row = [without[0], with[0], without[1], with[1]].map(|ms| format!("{ms:.0} ms"));
            writeln!(table, "| {room}, {protocol:?} | {request} | {} |", row.join(" | ")).expect("a string");
        }
        writeln!(table, "at least {} kB prefetched", bytes / 1000).expect("a string");
    }
    println!("{table}");
}
