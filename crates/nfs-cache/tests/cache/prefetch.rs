//! What is fetched before anybody asks, over a link with a rate and a round trip, in virtual time.

#![expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]

use std::time::{Duration, Instant};

use nfs_cache::{
    Answer, Cache, CacheConfig, CallId, Event, Failure, GRAIN_BYTES, MemoryStore, NodeId, OpenId,
    OperationId, Outcome, Wanted,
};
use nfs_wire::{
    Procedure, Reader, call,
    nfs3_types::nfs3::{LOOKUP3args, READ3args},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::model::{Habits, NAMES, ROOT, Server, below};

/// Bytes per second of the link.
const RATE: u64 = 1_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// A call, told by what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Read { name: &'static str, offset: u64, count: u32 },
    Lookup(String),
    Other(Procedure),
}

struct World {
    start: Instant,
    now: Duration,
    random: ChaCha8Rng,
    server: Server,
    cache: Cache<MemoryStore>,
    /// Replies on their way, in order.
    back: Vec<(Duration, CallId, Outcome)>,
    /// Until when the link carries what was sent so far.
    busy_until: Duration,
    is_up: bool,
    asked: Vec<(Duration, Asked)>,
    events: Vec<Event>,
    most_in_flight: usize,
}

fn config() -> CacheConfig {
    let mut config = CacheConfig::default();
    config.prefetch = true;
    // Who looks at something waits for it, or nothing is asked.
    config.refresh = Duration::ZERO;
    config
}

impl World {
    fn new(config: CacheConfig, sizes: [usize; 5], has_plus: bool) -> Self {
        let mut server = Server::new(Habits::calm(has_plus));
        for ((name, file), size) in NAMES.into_iter().zip(ROOT + 1..).zip(sizes) {
            server.put(
                Duration::ZERO,
                name,
                file,
                (0..size).map(|at| (at % 251) as u8 ^ file as u8).collect(),
            );
        }
        let start = Instant::now();
        let mut cache =
            Cache::new(config, start, Server::handle(ROOT), server.metadata(ROOT), MemoryStore::default());
        cache.set_read_block(32 << 10);
        Self {
            start,
            now: Duration::ZERO,
            random: ChaCha8Rng::seed_from_u64(7),
            server,
            cache,
            back: Vec::new(),
            busy_until: Duration::ZERO,
            is_up: true,
            asked: Vec::new(),
            events: Vec::new(),
            most_in_flight: 0,
        }
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn drain(&mut self) {
        while let Some(gone) = self.cache.poll_cancel() {
            self.back.retain(|reply| reply.1 != gone);
        }
        while let Some(sent) = self.cache.poll_transmit(self.instant()) {
            self.asked.push((self.now, told(&self.server, sent.procedure, &sent.arguments)));
            if !self.is_up {
                // The outcome of a silent link comes late, if ever.
                self.back.push((self.now + Duration::from_secs(3), sent.call, Outcome::NotAsked));
                continue;
            }
            let results = self.server.answer(self.now, &mut self.random, sent.procedure, &sent.arguments);
            let takes = Duration::from_nanos(results.len() as u64 * 1_000_000_000 / RATE);
            self.busy_until = self.busy_until.max(self.now) + takes;
            self.back.push((self.busy_until + ROUND_TRIP, sent.call, Outcome::Results(results)));
        }
        self.most_in_flight = self.most_in_flight.max(self.back.len());
        while let Some(event) = self.cache.poll_event() {
            self.events.push(event);
        }
    }

    /// Lets time pass until something is true, or for so long; whether it became true.
    fn until(&mut self, longest: Duration, is_done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + longest;
        loop {
            self.drain();
            if is_done(self) {
                return true;
            }
            let timer = self.cache.poll_timeout().map(|at| at.saturating_duration_since(self.start));
            let next = self.back.iter().map(|reply| reply.0).chain(timer).min();
            let Some(next) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(next);
            while let Some(at) = self.back.iter().position(|reply| reply.0 <= self.now) {
                let (_, call, outcome) = self.back.remove(at);
                self.cache.handle_reply(self.instant(), call, outcome);
            }
            self.cache.handle_timeout(self.instant());
        }
        self.now = end;
        false
    }

    fn pass(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    fn run(
        &mut self,
        begin: impl FnOnce(&mut Cache<MemoryStore>, Instant) -> OperationId,
    ) -> Result<Answer, Failure> {
        let now = self.instant();
        let begun = begin(&mut self.cache, now);
        let is_done = |event: &Event| matches!(event, Event::Done { operation, .. } if *operation == begun);
        assert!(self.until(Duration::from_secs(60), |world| world.events.iter().any(is_done)));
        let at = self.events.iter().position(is_done).expect("it is there");
        let Event::Done { result, .. } = self.events.remove(at) else { unreachable!("it was just found") };
        result
    }

    fn list(&mut self) {
        assert!(matches!(self.run(|cache, now| cache.list(now, NodeId::ROOT)), Ok(Answer::Listing(_))));
    }

    fn node(&mut self, name: &str) -> NodeId {
        match self.run(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes())) {
            Ok(Answer::Entry { node, .. }) => node,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, name: &str) -> OpenId {
        let node = self.node(name);
        match self.run(|cache, now| cache.open(now, node)) {
            Ok(Answer::Opened { open, .. }) => open,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, open: OpenId, grains: std::ops::Range<u64>) {
        for grain in grains {
            let read = self.run(|cache, now| cache.read(now, open, grain * GRAIN_BYTES, GRAIN_BYTES as u32));
            assert!(matches!(read, Ok(Answer::Data(_))), "{read:?}");
        }
    }

    fn held(&mut self, name: &str) -> u64 {
        let node = self.node(name);
        self.cache.state(self.instant(), node).map_or(0, |state| state.held_bytes)
    }

    /// READs so far, without those of the same grain.
    fn grains_read(&self) -> Vec<(&'static str, u64)> {
        let mut grains: Vec<(&'static str, u64)> = Vec::new();
        for (_, asked) in &self.asked {
            if let Asked::Read { name, offset, .. } = asked
                && !grains.contains(&(name, offset / GRAIN_BYTES))
            {
                grains.push((name, offset / GRAIN_BYTES));
            }
        }
        grains
    }

    fn reads_since(&self, at: Duration) -> usize {
        let is_read = |asked: &Asked| matches!(asked, Asked::Read { .. });
        self.asked.iter().filter(|(when, asked)| *when >= at && is_read(asked)).count()
    }
}

fn told(server: &Server, procedure: Procedure, arguments: &[u8]) -> Asked {
    let reader = Reader::new(arguments);
    match procedure {
        Procedure::Read => {
            let READ3args { file, offset, count } = call::decode(reader).expect("arguments");
            let number = u64::from_be_bytes(file.data.as_ref().try_into().expect("eight bytes"));
            let names = server.now_names();
            let name = names.iter().find(|(_, file)| **file == number).map_or("?", |(name, _)| name);
            Asked::Read { name, offset, count }
        }
        Procedure::Lookup => {
            let LOOKUP3args { what } = call::decode(reader).expect("arguments");
            Asked::Lookup(String::from_utf8_lossy(what.name.as_ref()).into_owned())
        }
        other => Asked::Other(other),
    }
}

/// Nothing is prefetched in the first second: the pause after the front's operation is over then.
const SECONDS: Duration = Duration::from_secs(1);

#[test]
fn after_a_listing_heads_come_first_then_small_files() {
    let mut config = config();
    config.told_heads = vec!["jpg".to_owned()];
    // "a", "b.jpg", "c.zip", "d", "e.mp4"
    let mut world = World::new(config, [1000, 300_000, 200_000, 65_536, 70_000], true);
    world.list();
    assert_eq!(world.reads_since(Duration::ZERO), 0);
    world.pass(60 * SECONDS);
    let grains = [
        ("b.jpg", 0),
        ("c.zip", 0),
        ("c.zip", 2),
        ("c.zip", 3),
        ("e.mp4", 0),
        ("e.mp4", 1),
        ("a", 0),
        ("d", 0),
    ];
    assert_eq!(world.grains_read(), grains);
    let heads: Vec<&Event> = world.events.iter().filter(|it| matches!(it, Event::Head { .. })).collect();
    let [Event::Head { path, data, .. }] = &heads[..] else { panic!("{heads:?}") };
    assert_eq!((path.as_slice(), data.len() as u64), (&b"b.jpg"[..], GRAIN_BYTES));
    // Nothing is fetched twice.
    let before = world.asked.len();
    world.pass(2 * SECONDS);
    world.list();
    let listed = world.asked.len();
    world.pass(60 * SECONDS);
    assert_eq!(world.asked.len(), listed, "after {before}: {:?}", &world.asked[listed..]);
}

#[test]
fn heads_of_what_was_read_are_told_as_well_one_after_the_other() {
    let mut config = config();
    config.told_heads = ["jpg", "zip"].map(str::to_owned).to_vec();
    let mut world = World::new(config, [1000, 300_000, 200_000, 65_536, 70_000], true);
    for name in ["b.jpg", "c.zip", "d"] {
        let open = world.open(name);
        world.read(open, 0..1);
    }
    let heads = |world: &World| -> Vec<String> {
        let heads = world.events.iter().filter_map(|event| match event {
            Event::Head { path, data, .. } if data.len() as u64 == GRAIN_BYTES => Some(path.clone()),
            _ => None,
        });
        heads.map(|path| String::from_utf8(path).unwrap()).collect()
    };
    assert!(world.until(SECONDS, |world| !heads(world).is_empty()));
    assert_eq!(heads(&world), ["b.jpg"]);
    world.pass(Duration::from_millis(20));
    assert_eq!(heads(&world), ["b.jpg", "c.zip"]);
    world.list();
    world.pass(60 * SECONDS);
    assert_eq!(heads(&world), ["b.jpg", "c.zip"], "once");
}

#[test]
fn attributes_come_first_where_a_listing_has_none() {
    let mut world = World::new(config(), [1000; 5], false);
    world.list();
    world.pass(2 * SECONDS);
    let looked_up: Vec<&Asked> =
        world.asked.iter().map(|it| &it.1).filter(|it| matches!(it, Asked::Lookup(_))).collect();
    assert_eq!(looked_up, NAMES.map(|name| Asked::Lookup(name.to_owned())).each_ref());
    assert_eq!(world.cache.stats().prefetched_bytes, 5000);
    let first_read = world.asked.iter().position(|it| matches!(it.1, Asked::Read { .. }));
    let last_lookup = world.asked.iter().rposition(|it| matches!(it.1, Asked::Lookup(_)));
    assert!(last_lookup < first_read);
    // Now everything is answered without a call.
    let calls = world.asked.len();
    for name in NAMES {
        world.node(name);
    }
    assert_eq!(world.asked.len(), calls);
}

#[test]
fn three_blocks_in_order_bring_the_file_within_the_share_and_a_grain_at_a_time() {
    // Of a clean path, and of one that carries no fragments.
    for block in [32 << 10, 1372] {
        let size = 8 << 20;
        let mut world = World::new(config(), [size, 0, 0, 0, 0], true);
        world.cache.set_read_block(block);
        let open = world.open("a");
        world.read(open, 0..2);
        world.pass(5 * SECONDS);
        let two = world.held("a");
        world.pass(20 * SECONDS);
        assert_eq!(world.held("a"), two, "two blocks are no order");
        world.read(open, 2..3);
        world.pass(SECONDS);
        let (begun, before) = (world.now, world.held("a"));
        world.most_in_flight = 0;
        world.pass(20 * SECONDS);
        assert!(world.most_in_flight <= GRAIN_BYTES as usize / block as usize + 1);
        let bytes = world.held("a") - before;
        let share = bytes as f64 / (RATE as f64 * (world.now - begun).as_secs_f64());
        assert!((0.08..=0.25).contains(&share), "{share} in blocks of {block}");
        world.pass(60 * SECONDS);
        assert_eq!(world.held("a"), size as u64);
    }
}

#[test]
fn who_asks_waits_for_one_call_at_most() {
    let mut world = World::new(config(), [4 << 20, 0, 0, 0, 0], true);
    let open = world.open("a");
    world.read(open, 0..3);
    // What the reader is ahead of itself comes first.
    world.pass(SECONDS);
    let longest = ROUND_TRIP + Duration::from_nanos((GRAIN_BYTES + 500) * 1_000_000_000 / RATE);
    let (mut worst, mut delayed) = (Duration::ZERO, 0);
    for _ in 0..60 {
        let pause = Duration::from_millis(150 + below(&mut world.random, 1500));
        world.pass(pause);
        let (begun, calls) = (world.now, world.asked.len());
        // The attributes of the root are not known any more after a while.
        assert!(matches!(world.run(|cache, now| cache.list(now, NodeId::ROOT)), Ok(Answer::Listing(_))));
        let took = world.now - begun;
        worst = worst.max(took);
        delayed += u32::from(took > ROUND_TRIP * 2);
        let own = world.asked[calls..].iter().filter(|(_, asked)| matches!(asked, Asked::Read { .. }));
        assert_eq!(own.count(), 0, "something is fetched while somebody waits");
    }
    // A listing takes three pages.
    assert!(worst <= longest + 3 * ROUND_TRIP + Duration::from_millis(5), "{worst:?}");
    assert!(delayed > 5, "it was never put to the test");
}

#[test]
fn nothing_is_fetched_without_a_link_and_hoarded_files_are_looked_at_again_after_it() {
    let mut world = World::new(config(), [3_000_000, 0, 0, 100_000, 0], true);
    let now = world.instant();
    world.cache.hoard(now, Box::new(Only("d")));
    world.pass(5 * SECONDS);
    assert_eq!(world.held("d"), 100_000, "hoarded without being listed");
    let open = world.open("a");
    world.read(open, 0..3);
    world.pass(2 * SECONDS);
    world.is_up = false;
    world.back.clear();
    world.pass(5 * SECONDS);
    // Somebody asks: now it is known.
    assert!(world.run(|cache, now| cache.list(now, NodeId::ROOT)).is_ok());
    assert!(!world.cache.is_connected());
    let (since, held) = (world.now, world.held("a"));
    world.server.put(world.now, "d", ROOT + 4, vec![9; 120_000]);
    world.pass(30 * SECONDS);
    assert_eq!((world.reads_since(since), world.held("a")), (0, held));
    world.is_up = true;
    world.pass(10 * SECONDS);
    assert_eq!(world.held("d"), 120_000, "the new version");
    world.pass(60 * SECONDS);
    assert_eq!(world.held("a"), 3_000_000);
}

#[test]
fn what_was_used_is_not_dropped_for_what_nobody_asked_for() {
    let mut config = config();
    config.size_bytes = 400_000;
    let mut world = World::new(config, [150_000, 150_000, 150_000, 60_000, 150_000], true);
    let open = world.open("a");
    world.read(open, 0..3);
    world.cache.release(open);
    world.list();
    world.pass(60 * SECONDS);
    assert_eq!(world.held("a"), 150_000);
    let held = world.cache.stats().held_bytes;
    assert!((300_000..=360_000).contains(&held), "{held}");
    // The other way round: it goes first.
    let open = world.open("e.mp4");
    world.read(open, 0..3);
    assert_eq!((world.held("a"), world.held("e.mp4")), (150_000, 150_000));
}

#[test]
fn hoarded_files_stay_and_do_not_take_more_than_there_is() {
    let mut config = config();
    config.size_bytes = 400_000;
    let mut world = World::new(config, [200_000, 100_000, 900_000, 100_000, 100_000], true);
    let open = world.open("e.mp4");
    world.read(open, 0..2);
    world.cache.release(open);
    let now = world.instant();
    world.cache.hoard(now, Box::new(Only("a")));
    world.pass(20 * SECONDS);
    for name in ["b.jpg", "d", "e.mp4"] {
        let open = world.open(name);
        world.read(open, 0..2);
        world.cache.release(open);
        assert_eq!(world.held("a"), 200_000, "after {name}");
    }
    assert!(!world.cache.hoard_is_full());
    let now = world.instant();
    world.cache.hoard(now, Box::new(Only("c.zip")));
    world.pass(60 * SECONDS);
    assert!(world.cache.hoard_is_full() && world.cache.stats().held_bytes <= 400_000);
    let calls = world.asked.len();
    world.pass(60 * SECONDS);
    assert_eq!(world.asked.len(), calls, "what has no room is not fetched again and again");
}

#[test]
fn what_is_not_hoarded_makes_room_though_it_lies_beside_what_is() {
    let mut config = config();
    config.size_bytes = 400_000;
    let mut world = World::new(config, [100_000, 200_000, 100_000, 200_000, 200_000], true);
    let now = world.instant();
    world.cache.hoard(now, Box::new(Only("a")));
    world.pass(20 * SECONDS);
    for name in ["b.jpg", "d", "e.mp4"] {
        let open = world.open(name);
        world.read(open, 0..4);
        world.cache.release(open);
        assert_eq!((world.held("a"), world.held(name)), (100_000, 200_000), "after {name}");
    }
}

#[test]
fn what_nobody_uses_for_long_is_dropped() {
    let mut config = config();
    config.idle = Duration::from_secs(160);
    let mut world = World::new(config, [50_000; 5], true);
    let now = world.instant();
    world.cache.hoard(now, Box::new(Only("d")));
    let open = world.open("a");
    world.read(open, 0..1);
    let closed = world.open("b.jpg");
    world.read(closed, 0..1);
    world.cache.release(closed);
    world.pass(140 * SECONDS);
    assert_eq!(world.cache.stats().held_bytes, 150_000);
    world.pass(60 * SECONDS);
    assert_eq!(world.cache.stats().held_bytes, 100_000, "what is open and what is pinned");
    world.cache.release(open);
    world.pass(400 * SECONDS);
    assert_eq!(world.cache.stats().held_bytes, 50_000);
}

/// Hoards one file.
#[derive(Debug)]
struct Only(&'static str);

impl Wanted for Only {
    fn wants(&self, path: &[u8]) -> bool {
        path == self.0.as_bytes()
    }

    fn may_hold(&self, _: &[u8]) -> bool {
        true
    }
}
