//! A mobile whose programs look at the server through the cache of `nfsw mount`: its machine makes the calls that the cache wants, as
//! the program does on sockets.

#[cfg(test)]
mod mobile;
#[cfg(test)]
mod prefetch;
#[cfg(test)]
mod unvalidated;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};
use nfs_cache::{
    Answer, Cache, CacheConfig, CallId, Event, Failure, MemoryStore, NodeId, OperationId, Outcome, Transmit,
};
use nfs_proto::{attr::Metadata, engine};
use nfs_wire::{FileHandle, rpc::Program};

use crate::{host::Host, path::Path};

/// How often a directory is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Once,
    /// Again and again, with a pause after each.
    Every(Duration),
}

/// What one listing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// When it began and when it had its answers, counted from the mount.
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    /// How many entries it showed with their attributes.
    pub(crate) entries: usize,
    /// Operations of it that failed.
    pub(crate) errors: usize,
}

impl Listed {
    pub(crate) fn took(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }
}

/// A mobile that lists a directory as `ls -l` does on a mount: the directory's attributes, its listing, and every name in it.
#[derive(Debug)]
pub(crate) struct Mounted {
    front: Front,
    repeat: Repeat,
    epoch: Instant,
    starts: Option<Instant>,
    running: Option<Running>,
    listed: Vec<Listed>,
}

/// A listing under way.
#[derive(Debug)]
struct Running {
    began: Instant,
    waits_for: OperationId,
    /// Names that are looked up after this one.
    names: VecDeque<Vec<u8>>,
    entries: usize,
    errors: usize,
}

impl Mounted {
    /// Lists the directory `root`, whose attributes a call told when it was mounted, from `starts` on.
    pub(crate) fn new(
        path: Path,
        host: Host,
        (root, metadata): (FileHandle, Metadata),
        round_trip: Duration,
        epoch: Instant,
        starts: Duration,
        repeat: Repeat,
    ) -> Self {
        let mut cache = Cache::new(CacheConfig::default(), epoch, root, metadata, MemoryStore::default());
        cache.set_round_trip(round_trip);
        Self {
            front: Front::new(path, host, cache),
            repeat,
            epoch,
            starts: Some(epoch + starts),
            running: None,
            listed: Vec::new(),
        }
    }

    /// Listings that have ended.
    pub(crate) fn listed(&self) -> &[Listed] {
        &self.listed
    }
}

impl User for Mounted {
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
        let waits_for = self.front.cache.attributes(now, NodeId::ROOT);
        let names = VecDeque::new();
        self.running = Some(Running { began: now, waits_for, names, entries: 0, errors: 0 });
    }

    fn go_on(&mut self, now: Instant, result: Result<Answer, Failure>) {
        let Some(mut running) = self.running.take() else { return };
        let mut next = running.names.pop_front();
        match result {
            Ok(Answer::Attributes(_)) => {
                running.waits_for = self.front.cache.list(now, NodeId::ROOT);
                self.running = Some(running);
                return;
            }
            Ok(Answer::Listing(entries)) => {
                running.names = entries.iter().map(|entry| entry.name.to_vec()).collect();
                next = running.names.pop_front();
            }
            Ok(Answer::Entry { node, .. }) => {
                self.front.cache.forget(node, 1);
                running.entries += 1;
            }
            Ok(_) | Err(_) => running.errors += 1,
        }
        if let Some(name) = next {
            running.waits_for = self.front.cache.lookup(now, NodeId::ROOT, &name);
            self.running = Some(running);
            return;
        }
        let Running { began, entries, errors, .. } = running;
        let since = |at: Instant| at.saturating_duration_since(self.epoch);
        self.listed.push(Listed { began: since(began), ended: since(now), entries, errors });
        self.starts = match self.repeat {
            Repeat::Once => None,
            Repeat::Every(pause) => Some(now + pause),
        };
    }
}

impl Node for Mounted {
    fn handle_input(&mut self, now: Instant, _: Endpoint, to: Endpoint, payload: Bytes) {
        if self.front.handle_input(now, to, payload) {
            self.pump(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.front.handle_timeout(now);
        self.pump(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        self.front.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_due()
    }
}

/// Somebody who uses a mount, one operation after the other.
trait User {
    fn front(&self) -> &Front;

    fn front_mut(&mut self) -> &mut Front;

    /// The operation under way.
    fn waits_for(&self) -> Option<OperationId>;

    /// When the next thing begins.
    fn starts(&self) -> Option<Instant>;

    /// When anything is due.
    fn next_due(&self) -> Option<Instant> {
        self.front().poll_timeout().into_iter().chain(self.starts()).min()
    }

    /// Begins what is due.
    fn begin(&mut self, now: Instant);

    /// Takes in what the operation under way came to, and begins the next one.
    fn go_on(&mut self, now: Instant, result: Result<Answer, Failure>);

    /// Looks at what the cache tells.
    fn notice(&mut self, _: &Event) {}

    /// Moves calls, replies and answers until there are no more.
    fn pump(&mut self, now: Instant) {
        loop {
            self.begin(now);
            let events = self.front_mut().pump(now);
            if events.is_empty() {
                return;
            }
            for event in events {
                self.notice(&event);
                if let Event::Done { operation, result } = event
                    && self.waits_for() == Some(operation)
                {
                    self.go_on(now, result);
                }
            }
        }
    }
}

/// The cache of a mount, and the connection that makes its calls.
#[derive(Debug)]
struct Front {
    path: Path,
    host: Host,
    cache: Cache<MemoryStore>,
    /// Calls that the session has, by token.
    calls: BTreeMap<u64, (CallId, engine::CallId)>,
    next_token: u64,
}

impl Front {
    const fn new(path: Path, host: Host, cache: Cache<MemoryStore>) -> Self {
        Self { path, host, cache, calls: BTreeMap::new(), next_token: 0 }
    }

    /// Moves calls and replies, and returns what the cache tells.
    fn pump(&mut self, now: Instant) -> Vec<Event> {
        for answered in std::mem::take(&mut self.host.answered) {
            if let Some((call, _)) = self.calls.remove(&answered.token) {
                let outcome = match answered.outcome {
                    Ok(()) => Outcome::Results(answered.results),
                    Err(rejection) => Outcome::Rejected(rejection),
                };
                self.cache.handle_reply(now, call, outcome);
            }
        }
        while self.path.session.poll_event().is_some() {}
        while let Some(gone) = self.cache.poll_cancel() {
            let token = self.calls.iter().find(|(_, (call, _))| *call == gone).map(|(&token, _)| token);
            if let Some((_, call)) = token.and_then(|token| self.calls.remove(&token)) {
                self.path.session.cancel(now, call);
            }
        }
        self.cache.set_read_block(self.path.session.limits().read_block);
        while let Some(sent) = self.cache.poll_transmit(now) {
            self.make(now, &sent);
        }
        std::iter::from_fn(|| self.cache.poll_event()).collect()
    }

    fn make(&mut self, now: Instant, sent: &Transmit) {
        self.next_token += 1;
        let token = self.next_token;
        let procedure = (Program::NFS, sent.procedure.number());
        let made = self.path.session.submit(now, token, procedure, None, |buffer| {
            buffer.extend_from_slice(&sent.arguments);
        });
        match made {
            Some(call) => _ = self.calls.insert(token, (sent.call, call)),
            None => self.cache.handle_reply(now, sent.call, Outcome::NotAsked),
        }
    }

    /// Takes what came for a place; whether it was for this.
    fn handle_input(&mut self, now: Instant, to: Endpoint, payload: Bytes) -> bool {
        let is_own = to == self.path.place();
        if is_own {
            self.path.handle_input(now, &mut self.host, payload);
        }
        is_own
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.path.handle_timeout(now, &mut self.host);
        self.cache.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        self.path.poll_transmit(now, &mut self.host)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.path.poll_timeout().into_iter().chain(self.cache.poll_timeout()).min()
    }
}
