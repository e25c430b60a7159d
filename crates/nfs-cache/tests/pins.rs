//! What is pinned stays when room is made.

#![expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]

mod model;

use std::time::{Duration, Instant};

use nfs_cache::{Answer, Cache, CacheConfig, Event, MemoryStore, NodeId, OperationId, Outcome};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use model::{Habits, NAMES, ROOT, Server};

struct World {
    start: Instant,
    random: ChaCha8Rng,
    server: Server,
    cache: Cache<MemoryStore>,
}

impl World {
    fn new(config: CacheConfig) -> Self {
        let habits = Habits {
            tick: 1,
            has_plus: true,
            is_terse: false,
            is_torn: false,
            busy: 0,
            lingers: false,
            is_hectic: false,
        };
        let mut server = Server::new(habits);
        for (name, file) in NAMES.into_iter().zip(ROOT + 1..) {
            server.put(Duration::ZERO, name, file, vec![file as u8; 100_000]);
        }
        let start = Instant::now() + Duration::from_secs(60);
        let store = MemoryStore::default();
        let cache = Cache::new(config, start, Server::handle(ROOT), server.metadata(ROOT), store);
        Self { start, random: ChaCha8Rng::seed_from_u64(1), server, cache }
    }

    /// Runs an operation to its end, on a link that takes no time.
    fn run(&mut self, begin: impl FnOnce(&mut Cache<MemoryStore>, Instant) -> OperationId) -> Answer {
        let now = self.start;
        let begun = begin(&mut self.cache, now);
        loop {
            while let Some(event) = self.cache.poll_event() {
                if let Event::Done { operation, result } = event
                    && operation == begun
                {
                    return result.expect("the server answers");
                }
            }
            let sent = self.cache.poll_transmit(now).expect("something is asked");
            let results =
                self.server.answer(Duration::ZERO, &mut self.random, sent.procedure, &sent.arguments);
            self.cache.handle_reply(now, sent.call, Outcome::Results(results));
        }
    }

    fn node(&mut self, name: &str) -> NodeId {
        match self.run(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes())) {
            Answer::Entry { node, .. } => node,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, node: NodeId) {
        let Answer::Opened { open, .. } = self.run(|cache, now| cache.open(now, node)) else {
            panic!("not opened")
        };
        assert!(matches!(self.run(|cache, now| cache.read(now, open, 0, 100_000)), Answer::Data(_)));
        self.cache.release(open);
    }

    fn held(&self, node: NodeId) -> u64 {
        self.cache.state(self.start, node).map_or(0, |state| state.held_bytes)
    }
}

#[test]
fn pinned_data_stays_until_it_is_unpinned() {
    let mut config = CacheConfig::default();
    config.size_bytes = 250_000;
    let mut world = World::new(config);
    let nodes = NAMES.map(|name| world.node(name));
    world.cache.pin(nodes[0], true);
    for node in nodes {
        world.read(node);
    }
    assert_eq!(world.held(nodes[0]), 100_000);
    assert!(world.held(nodes[1]) < 100_000, "something had to go");
    world.cache.pin(nodes[0], false);
    for node in [nodes[3], nodes[4]] {
        world.read(node);
    }
    assert_eq!(world.held(nodes[0]), 0);
}

#[test]
fn a_pinned_object_is_not_forgotten() {
    let mut config = CacheConfig::default();
    config.objects = 3;
    let mut world = World::new(config);
    let pinned = world.node(NAMES[0]);
    world.cache.pin(pinned, true);
    world.cache.forget(pinned, 1);
    for name in &NAMES[1..] {
        let node = world.node(name);
        world.cache.forget(node, 1);
    }
    assert!(world.cache.state(world.start, pinned).is_some());
    world.cache.pin(pinned, false);
    for name in &NAMES[1..] {
        world.cache.forget(pinned, 1);
        let node = world.node(name);
        world.cache.forget(node, 1);
    }
    assert!(world.cache.state(world.start, pinned).is_none());
}
