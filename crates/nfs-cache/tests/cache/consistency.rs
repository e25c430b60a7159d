//! Random operations against a model server that changes all the time, behind a link with outages, in virtual time.

#![expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]

mod checks;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::{Duration, Instant},
};

use nfs_cache::{
    Cache, CacheConfig, CallId, Event, GRAIN_BYTES, NodeId, OpenId, OperationId, Outcome, Wanted,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::model::{
    Habits, NAMES, ROOT, Server, Version,
    bad_store::BadStore,
    below,
    disk::{Disk, Platter},
    seeds,
};

/// Hoards two of the names.
#[derive(Debug)]
struct TwoNames;

impl Wanted for TwoNames {
    fn wants(&self, path: &[u8]) -> bool {
        [NAMES[0].as_bytes(), NAMES[2].as_bytes()].contains(&path)
    }

    fn may_hold(&self, _: &[u8]) -> bool {
        true
    }
}

/// What an operation was about.
#[derive(Clone, Debug)]
enum Doing {
    Lookup(&'static str),
    List,
    Attributes,
    Find(u64),
    Confirm(NodeId),
    Open(NodeId, &'static str),
    Read { open: OpenId, offset: u64, count: u32 },
}

#[derive(Debug)]
struct Opened {
    file: u64,
    node: NodeId,
    /// When it was begun, if its version must be of that time or later.
    fresh_since: Option<Duration>,
    /// The times and sizes of versions that something read so far is not of.
    refuted: BTreeSet<(u64, usize)>,
}

struct World {
    seed: u64,
    start: Instant,
    now: Duration,
    /// When the last reply came.
    replied: Duration,
    random: ChaCha8Rng,
    server: Server,
    cache: Cache<BadStore>,
    config: CacheConfig,
    /// Calls on their way there, with when they arrive.
    there: Vec<(Duration, CallId, nfs_wire::Procedure, Vec<u8>)>,
    /// Replies on their way back.
    back: Vec<(Duration, CallId, Outcome)>,
    /// The link is down until then; up since.
    outage_until: Duration,
    up_since: Duration,
    doing: BTreeMap<OperationId, (Duration, Doing)>,
    nodes: BTreeMap<NodeId, u64>,
    /// The name by which each was found last.
    names: BTreeMap<NodeId, &'static str>,
    opens: BTreeMap<OpenId, Opened>,
    /// What a kernel keeps of a node: what was read there.
    pages: BTreeMap<NodeId, BTreeMap<(u64, u32), Vec<u8>>>,
    done: BTreeMap<&'static str, u64>,
    is_bad: bool,
    /// Whether files that have no name any more can be read, once the cache can have seen that the server counts names.
    lingers: bool,
    /// What the store has may have been damaged.
    is_damaged: bool,
    /// What outlasts a cache, if anything does.
    platter: Option<Rc<RefCell<Platter>>>,
    newest: BTreeMap<u64, (u32, u32)>,
    /// A crash may have lost the record that some of it was dropped.
    most_held: u64,
}

/// Worlds in which something was wrong once: a late reply told of a file that the server had forgotten meanwhile; what the store had
/// kept did; a file was closed while a read of it waited.
const FOUND: [u64; 3] = [14_017, 5_118_141, 5_283_725];

/// Longest way of a datagram, in milliseconds; and how long after an outage a call comes through.
const WAY: u64 = 60;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let ticks = [1, 4_000_000, 1_000_000_000, 2_000_000_000];
        let is_hectic = below(&mut random, 2) == 0;
        let habits = Habits {
            is_hectic,
            lingers: false,
            tick: ticks[below(&mut random, 4) as usize],
            has_plus: below(&mut random, 4) > 0,
            is_terse: below(&mut random, 4) == 0,
            is_torn: below(&mut random, 2) == 0,
            busy: [0, 0, 20][below(&mut random, 3) as usize],
        };
        let lingers = below(&mut random, 2) == 0;
        let mut server = Server::new(habits);
        for _ in 0..8 {
            server.change(Duration::ZERO, &mut random);
        }
        let mut config = CacheConfig::default();
        if below(&mut random, 3) == 0 {
            config.size_bytes = 300_000;
        }
        if below(&mut random, 3) == 0 {
            config.objects = 4;
        }
        let is_bad = below(&mut random, 3) == 0;
        // Whatever else the seed says of the world.
        let platter = (seed / 8 % 2 == 1).then(Rc::default);
        // Half of the worlds fetch what nobody asks for, half of these hoard.
        config.prefetch = seed % 2 == 1;
        config.prefetch_pause = Duration::from_millis(10);
        config.hoard_every = Duration::from_secs(5);
        config.told_heads = vec!["jpg".to_owned()];
        if seed % 8 == 5 {
            config.idle = Duration::from_secs(20);
        }
        let store =
            BadStore { store: Self::disk(&platter), random: ChaCha8Rng::seed_from_u64(!seed), is_bad };
        let start = Instant::now();
        let mut cache = Cache::new(config.clone(), start, Server::handle(ROOT), server.metadata(ROOT), store);
        cache.set_read_block([4096, 8192, 32_768, 1 << 20][below(&mut random, 4) as usize]);
        if seed % 4 == 3 {
            cache.hoard(start, Box::new(TwoNames));
        }
        Self {
            most_held: config.size_bytes,
            seed,
            start,
            now: Duration::ZERO,
            replied: Duration::ZERO,
            random,
            server,
            cache,
            config,
            there: Vec::new(),
            back: Vec::new(),
            outage_until: Duration::ZERO,
            up_since: Duration::ZERO,
            doing: BTreeMap::new(),
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            opens: BTreeMap::new(),
            pages: BTreeMap::new(),
            done: BTreeMap::new(),
            is_bad,
            lingers,
            is_damaged: false,
            platter,
            newest: BTreeMap::new(),
        }
    }

    fn disk(platter: &Option<Rc<RefCell<Platter>>>) -> Disk {
        platter.as_ref().map_or_else(Disk::default, Disk::on)
    }

    /// The program ends, and another one begins with what the store has kept.
    fn restart(&mut self) {
        let Some(platter) = self.platter.clone() else { return };
        if self.below(2) == 0 {
            self.cache.keep_all();
        } else {
            platter.borrow_mut().damage(&mut self.random);
            self.is_damaged = true;
        }
        let random = ChaCha8Rng::seed_from_u64(self.below(u64::MAX));
        let store = BadStore { store: Disk::on(&platter), random, is_bad: self.is_bad };
        let (config, now, root) = (self.config.clone(), self.instant(), Server::handle(ROOT));
        let is_up = self.now >= self.outage_until;
        let wall = Duration::from_secs(1_700_000_000) + self.now;
        let cache = if is_up {
            Some(Cache::new(config, now, root, self.server.metadata(ROOT), store))
        } else {
            Cache::disconnected(config, now, wall, root, store)
        };
        let Some(mut cache) = cache else { return };
        cache.set_wall_clock(now, wall);
        *self.done.entry(if is_up { "restarted" } else { "restarted disconnected" }).or_default() += 1;
        self.most_held = self.config.size_bytes.max(cache.stats().held_bytes);
        self.cache = cache;
        (self.there, self.back) = (Vec::new(), Vec::new());
        self.doing.clear();
        self.nodes.clear();
        self.opens.clear();
        self.pages.clear();
        self.newest.clear();
        self.server.habits.lingers = false;
    }

    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    /// When something sent now arrives: after an outage if there is one.
    fn arrival(&mut self) -> Duration {
        let way = Duration::from_millis(1 + self.below(WAY));
        self.now.max(self.outage_until) + way
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            // What races with each other happens at nearly the same time.
            let pauses = if self.server.habits.is_hectic { 5 } else { 7 };
            let pause = [0, 1, 7, 40, 300, 2_500, 9_000][self.below(pauses) as usize];
            let until = self.now + Duration::from_millis(pause) + Duration::from_micros(self.below(900));
            self.pass(until);
            self.act();
            self.drain();
            self.check_disconnected();
        }
        self.pass(self.now.max(self.outage_until) + Duration::from_secs(60));
        assert!(self.doing.is_empty(), "seed {}: {:?} never ended", self.seed, self.doing);
    }

    /// Lets time pass.
    fn pass(&mut self, until: Duration) {
        loop {
            let arrivals = self.there.iter().map(|call| call.0).chain(self.back.iter().map(|reply| reply.0));
            let timer = self.cache.poll_timeout().map(|at| at.saturating_duration_since(self.start));
            let next = arrivals.chain(timer).min().filter(|&at| at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.deliver();
            self.cache.handle_timeout(self.instant());
            self.drain();
            let timer = self.cache.poll_timeout();
            assert!(timer.is_none_or(|at| at > self.instant()), "seed {}: a timer does not end", self.seed);
        }
        self.now = until;
    }

    fn deliver(&mut self) {
        let now = self.now;
        while let Some(at) = self.there.iter().position(|call| call.0 <= now) {
            let (_, call, procedure, arguments) = self.there.swap_remove(at);
            let results = self.server.answer(now, &mut self.random, procedure, &arguments);
            let arrival = self.arrival();
            self.back.push((arrival, call, Outcome::Results(results)));
        }
        while let Some(at) = self.back.iter().position(|reply| reply.0 <= now) {
            let (_, call, outcome) = self.back.swap_remove(at);
            let was_asked = !matches!(outcome, Outcome::NotAsked);
            let held = self.held();
            if was_asked {
                self.replied = self.now;
            }
            self.cache.handle_reply(self.instant(), call, outcome);
            assert!(
                was_asked || self.is_bad || self.is_damaged || self.held() == held,
                "seed {}: silence changes what is known",
                self.seed
            );
            self.drain();
        }
    }

    /// What is held of every node, and since when.
    fn held(&self) -> Vec<Option<(Instant, u64)>> {
        let state =
            |&node: &NodeId| self.cache.state(self.instant(), node).map(|it| (it.asked_at, it.held_bytes));
        self.nodes.keys().map(state).collect()
    }

    fn drain(&mut self) {
        while let Some(gone) = self.cache.poll_cancel() {
            self.there.retain(|call| call.1 != gone);
            self.back.retain(|reply| reply.1 != gone);
        }
        while let Some(sent) = self.cache.poll_transmit(self.instant()) {
            // A link that is down may say so.
            if self.now < self.outage_until && self.below(10) == 0 {
                self.back.push((self.now, sent.call, Outcome::NotAsked));
                continue;
            }
            let arrival = self.arrival();
            self.there.push((arrival, sent.call, sent.procedure, sent.arguments));
        }
        while let Some(event) = self.cache.poll_event() {
            match event {
                Event::Done { operation, result } => self.check(operation, result),
                Event::Altered { .. } | Event::Connected | Event::Disconnected => {}
                Event::Head { path, metadata, data } => {
                    assert_eq!(path, b"b.jpg");
                    let versions = &self.server.files[&metadata.fileid].versions;
                    let head = |it: &Version| it.data.slice(..it.data.len().min(GRAIN_BYTES as usize));
                    // A torn reply, or two versions within a tick, show bytes that no open would be given later.
                    let is_exact = !self.server.habits.is_torn && self.server.habits.tick == 1;
                    assert!(!is_exact || versions.iter().any(|it| head(it) == data), "seed {}", self.seed);
                    *self.done.entry("heads").or_default() += 1;
                }
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
        if self.below(3) == 0 {
            self.cache.keep(self.instant(), 1);
        }
        let held = self.cache.stats().held_bytes;
        assert!(held <= self.most_held, "seed {}: {held} bytes held", self.seed);
    }

    /// Does something, as a program, a server or a link does.
    fn act(&mut self) {
        let names = if self.server.habits.is_hectic { 1 } else { NAMES.len() as u64 };
        let (now, name) = (self.instant(), NAMES[self.below(names) as usize]);
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let opens: Vec<OpenId> = self.opens.keys().copied().collect();
        let begun = match self.below(20) {
            0..=3 => {
                self.server.change(self.now, &mut self.random);
                return;
            }
            4 if !self.server.habits.is_hectic || self.below(8) == 0 => {
                let length = Duration::from_millis([300, 3_000, 30_000][self.below(3) as usize]);
                self.outage_until = self.outage_until.max(self.now + length);
                self.up_since = self.outage_until;
                // What is on its way meets the outage, too.
                let until = self.outage_until;
                for at in self
                    .there
                    .iter_mut()
                    .map(|call| &mut call.0)
                    .chain(self.back.iter_mut().map(|it| &mut it.0))
                {
                    let left = at.saturating_sub(self.now).min(Duration::from_millis(WAY));
                    *at = (*at).max(until + left);
                }
                return;
            }
            5 if self.below(4) == 0 => return self.cache.path_changed(now),
            5 if self.below(3) == 0 => return self.restart(),
            6 if !opens.is_empty() => {
                let open = opens[self.below(opens.len() as u64) as usize];
                self.opens.remove(&open);
                return self.cache.release(open);
            }
            7 if !nodes.is_empty() => {
                let node = nodes[self.below(nodes.len() as u64) as usize];
                return self.forget(node);
            }
            8 => (self.cache.list(now, NodeId::ROOT), Doing::List),
            9 if !nodes.is_empty() => {
                let node = nodes[self.below(nodes.len() as u64) as usize];
                match self.below(4) {
                    0 => (self.cache.attributes(now, node), Doing::Attributes),
                    1 => {
                        let file = self.nodes[&node];
                        (self.cache.find(now, Server::handle(file)), Doing::Find(file))
                    }
                    _ => (self.cache.confirm(now, node, None), Doing::Confirm(node)),
                }
            }
            10..=12 if !nodes.is_empty() => {
                let node = nodes[self.below(nodes.len() as u64) as usize];
                let name = self.names[&node];
                let begun = self.cache.open_by(now, node, NodeId::ROOT, name.as_bytes());
                (begun, Doing::Open(node, name))
            }
            13..=17 if !opens.is_empty() => {
                let open = opens[self.below(opens.len() as u64) as usize];
                let offset = self.below(5) * 50_000;
                let count = [1_000, 65_536, 131_072][self.below(3) as usize];
                let pages = self.pages.get(&self.opens[&open].node);
                if let Some(data) = pages.and_then(|pages| pages.get(&(offset, count))) {
                    let data = data.clone();
                    return self.check_data(open, offset, &data);
                }
                (self.cache.read(now, open, offset, count), Doing::Read { open, offset, count })
            }
            _ => (self.cache.lookup(now, NodeId::ROOT, name.as_bytes()), Doing::Lookup(name)),
        };
        self.doing.insert(begun.0, (self.now, begun.1));
    }

    /// Forgets a node as a kernel does, which keeps that of an open file.
    fn forget(&mut self, node: NodeId) {
        if self.opens.values().all(|open| open.node != node) && self.doing.is_empty() {
            self.nodes.remove(&node);
            self.pages.remove(&node);
            self.cache.forget(node, u64::MAX);
        }
    }
}

#[test]
fn every_byte_is_of_one_version_and_not_older_than_the_open() {
    let mut done = BTreeMap::<&str, u64>::new();
    let is_replay = std::env::var_os("NFSW_SEED").is_some();
    for seed in seeds(1500).chain(FOUND.into_iter().filter(|_| !is_replay)) {
        let mut world = World::new(seed);
        world.run(200);
        let grains = world.cache.stats().prefetched_bytes / 1000;
        *world.done.entry("prefetched").or_default() += grains;
        for (outcome, count) in world.done {
            *done.entry(outcome).or_default() += count;
        }
    }
    if !is_replay {
        println!("{done:?}");
        for outcome in
            ["answered", "stale", "absent", "unreachable", "disconnected", "confirmed", "heads", "prefetched"]
        {
            let least = if outcome == "heads" { 300 } else { 1000 };
            assert!(done.get(outcome).is_some_and(|&count| count > least), "{outcome}: {done:?}");
        }
        let count = |outcome: &str| done.get(outcome).copied().unwrap_or(0);
        assert!(count("asked") * 20 < count("disconnected"), "{done:?}");
        for outcome in ["restarted", "restarted disconnected"] {
            assert!(done.get(outcome).is_some_and(|&count| count > 200), "{done:?}");
        }
    }
}
