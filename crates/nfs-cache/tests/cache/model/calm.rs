//! A server that does not change by itself, on a link that takes no time.

use std::time::{Duration, Instant};

use nfs_cache::{Answer, Cache, CacheConfig, Event, Failure, NodeId, OperationId, Outcome, Store, Transmit};
use nfs_wire::{Procedure, Status};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{Habits, NAMES, ROOT, Server};

pub(crate) struct World<S> {
    pub(crate) now: Instant,
    random: ChaCha8Rng,
    pub(crate) server: Server,
    pub(crate) cache: Cache<S>,
    /// Calls are answered.
    pub(crate) is_up: bool,
    /// Calls to answer so, as long as this says so.
    pub(crate) fault: Option<Fault>,
    /// READs that were answered.
    pub(crate) reads: u64,
}

/// What a server says instead of its results.
pub(crate) type Fault = fn(Procedure) -> Option<Status>;

/// Bytes of every file.
pub(crate) const SIZE: u64 = 100_000;

/// A server with files of [`SIZE`] bytes, which are their numbers, from 2 on.
pub(crate) fn server() -> Server {
    let mut server = Server::new(Habits::calm(true));
    for (name, file) in NAMES.into_iter().zip(ROOT + 1..) {
        server.put(Duration::ZERO, name, file, vec![file as u8; SIZE as usize]);
    }
    server
}

impl<S: Store> World<S> {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
    pub(crate) fn new(config: CacheConfig, store: S) -> Self {
        let (server, now) = (server(), Instant::now() + Duration::from_secs(60));
        let cache = Cache::new(config, now, Server::handle(ROOT), server.metadata(ROOT), store);
        Self::with(cache, server, now)
    }

    pub(crate) fn with(mut cache: Cache<S>, server: Server, now: Instant) -> Self {
        cache.set_wall_clock(now, Duration::from_secs(1_700_000_000));
        Self { now, random: ChaCha8Rng::seed_from_u64(1), server, cache, is_up: true, fault: None, reads: 0 }
    }

    /// Runs an operation to its end.
    pub(crate) fn run(
        &mut self,
        begin: impl FnOnce(&mut Cache<S>, Instant) -> OperationId,
    ) -> Result<Answer, Failure> {
        let begun = begin(&mut self.cache, self.now);
        loop {
            while let Some(event) = self.cache.poll_event() {
                if let Event::Done { operation, result } = event
                    && operation == begun
                {
                    return result;
                }
            }
            self.call();
            if let Some(at) = self.cache.poll_timeout().filter(|at| *at > self.now) {
                self.now = at;
            }
            self.cache.handle_timeout(self.now);
        }
    }

    /// Runs an operation to its end, in no time.
    pub(crate) fn run_at_once(
        &mut self,
        begin: impl FnOnce(&mut Cache<S>, Instant) -> OperationId,
    ) -> Result<Answer, Failure> {
        let begun = begin(&mut self.cache, self.now);
        for _ in 0..100 {
            while let Some(event) = self.cache.poll_event() {
                if let Event::Done { operation, result } = event
                    && operation == begun
                {
                    return result;
                }
            }
            self.call();
        }
        panic!("it waits")
    }

    /// Makes the calls that are to be made now.
    pub(crate) fn call(&mut self) {
        while let Some(sent) = self.cache.poll_transmit(self.now) {
            let fault = self.fault.and_then(|fault| fault(sent.procedure));
            let outcome = if let Some(status) = fault.filter(|_| self.is_up) {
                Outcome::Results(status.code().to_be_bytes().to_vec().into())
            } else if self.is_up {
                self.reads += u64::from(sent.procedure == Procedure::Read);
                let results =
                    self.server.answer(Duration::ZERO, &mut self.random, sent.procedure, &sent.arguments);
                Outcome::Results(results)
            } else {
                Outcome::NotAsked
            };
            self.cache.handle_reply(self.now, sent.call, outcome);
        }
    }

    /// What the server answers to a call.
    pub(crate) fn answer(&mut self, sent: &Transmit) -> Outcome {
        let results = self.server.answer(Duration::ZERO, &mut self.random, sent.procedure, &sent.arguments);
        Outcome::Results(results)
    }

    pub(crate) fn node(&mut self, name: &str) -> NodeId {
        match self.run(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes())) {
            Ok(Answer::Entry { node, .. }) => node,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, node: NodeId) -> Result<Vec<u8>, Failure> {
        let Answer::Opened { open, .. } = self.run(|cache, now| cache.open(now, node))? else {
            panic!("not opened")
        };
        let read = self.run(|cache, now| cache.read(now, open, 0, SIZE as u32));
        self.cache.release(open);
        match read? {
            Answer::Data(pieces) => Ok(pieces.concat()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn held(&mut self, node: NodeId) -> u64 {
        self.cache.recall(node);
        self.cache.state(self.now, node).map_or(0, |state| state.held_bytes)
    }
}
