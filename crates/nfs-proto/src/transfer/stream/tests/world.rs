//! A stream, a server that may restart, and a network that delays, repeats and reorders, in virtual
//! time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nfs_wire::Status;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::super::{super::stability::lateness, *};

/// What goes wrong in a sequence, each per mille of the calls it may strike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    short_writes: u64,
    empty_writes: u64,
    stable_writes: u64,
    short_reads: u64,
    empty_reads: u64,
    copies: u64,
    long_delays: u64,
    errors: u64,
    restarts: u64,
    has_commit: bool,
    has_reply_cache: bool,
}

impl Trouble {
    fn draw(random: &mut ChaCha8Rng) -> Self {
        let mut rate = |most: u64| if random.next_u32().is_multiple_of(2) { 0 } else { most };
        Self {
            short_writes: rate(200),
            empty_writes: rate(50),
            stable_writes: rate(200),
            short_reads: rate(200),
            empty_reads: rate(50),
            copies: rate(300),
            long_delays: rate(50),
            errors: rate(1),
            restarts: rate(10),
            has_commit: rate(100) == 0 || rate(1) == 0,
            has_reply_cache: rate(1) == 0,
        }
    }
}

/// A server that keeps what is unstable in memory, and promises no more than RFC 1813 §3.3.7 says.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) current: Vec<u8>,
    durable: Vec<u8>,
    /// What was written since the last COMMIT, and whether it is stable.
    log: Vec<(u64, Vec<u8>, bool)>,
    life: u64,
}

impl Server {
    fn verifier(&self) -> writeverf3 {
        writeverf3(self.life.to_be_bytes())
    }

    fn write(&mut self, offset: u64, data: &[u8], stable: stable_how) {
        put(&mut self.current, offset, data);
        self.log.push((offset, data.to_vec(), stable != stable_how::UNSTABLE));
    }

    fn commit(&mut self) {
        self.durable.clone_from(&self.current);
        self.log.clear();
    }

    /// Returns what a restart would leave, where `survives` says whether an unstable WRITE does.
    pub(super) fn after_restart(&self, mut survives: impl FnMut() -> bool) -> Vec<u8> {
        let mut durable = self.durable.clone();
        for (offset, data, stable) in &self.log {
            if *stable || survives() {
                put(&mut durable, *offset, data);
            }
        }
        durable
    }

    /// Loses some of what is unstable.
    fn restart(&mut self, random: &mut ChaCha8Rng) {
        self.current = self.after_restart(|| random.next_u32().is_multiple_of(2));
        self.commit();
        self.life += 1;
    }
}

/// Writes to a vector as to a file.
pub(super) fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    if !data.is_empty() && file.len() < end {
        file.resize(end, 0);
    }
    if !data.is_empty() {
        file[start..end].copy_from_slice(data);
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A call reaches the server. The reply to it, if there is to be one, travels for so long.
    Run {
        part: u32,
        reply_after: Option<Duration>,
        attempts: u32,
    },
    Reply {
        part: u32,
        attempts: u32,
        reply: Reply,
    },
}

#[derive(Clone, Debug)]
enum Reply {
    Read(Bytes, bool),
    Written(WriteResult),
    Committed(writeverf3),
    NoCommit,
    Failed(TransferError),
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    action: StreamAction,
    /// What a server with a duplicate request cache answers the second time, until it restarts.
    cached: Option<Reply>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) stream: Stream<TransferError>,
    pub(super) server: Server,
    pub(super) now: Instant,
    trouble: Trouble,
    limits: Limits,
    tuning: StreamTuning,
    /// By time and order of insertion.
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    sent: BTreeMap<u32, Sent>,
    network: ChaCha8Rng,
    faults: ChaCha8Rng,
    /// Errors that the server has answered with.
    pub(super) errors: u32,
}

fn named(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

const PER_MILLE: u64 = 1000;

/// Events that lead to nothing before the stream is taken for stuck.
const MAX_EVENTS: u32 = 20_000;

#[expect(clippy::disallowed_methods, reason = "the arbitrary epoch of virtual time")]
impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut settings = named(seed, 1);
        let mut draw = |from: u64, to: u64| from + settings.next_u64() % (to - from);
        let pages = draw(1, 8);
        let tuning = StreamTuning {
            dirty_bytes: (pages * pages::PAGE_BYTES) as usize,
            fragments: draw(1, 10) as usize,
            commit_bytes: draw(1, pages * pages::PAGE_BYTES),
            writes: draw(1, 6) as usize,
            write_bytes: draw(1, 4000) as u32,
            empty_writes: 8,
            read_ahead_bytes: draw(1, 9000),
            read_ahead_after_seek_bytes: draw(1, 3000),
            reads: draw(1, 6) as usize,
            read_ahead_chunks: draw(1, 12) as usize,
            empty_reads: 8,
        };
        let trouble = Trouble::draw(&mut named(seed, 2));
        let mut world = Self {
            stream: Stream::new(tuning.clone()),
            server: Server::default(),
            now: Instant::now(),
            trouble,
            limits: Limits::default(),
            tuning,
            events: BTreeMap::new(),
            sequence: 0,
            sent: BTreeMap::new(),
            network: named(seed, 3),
            faults: named(seed, 4),
            errors: 0,
        };
        world.change_blocks();
        world
    }

    /// Another size suits the path better.
    pub(super) fn change_blocks(&mut self) {
        self.limits.read_block = 1 + self.network.next_u32() % 3000;
        self.limits.write_block = 1 + self.network.next_u32() % 3000;
    }

    /// Opens the file again. Of the calls under way some are still run; nobody but the server
    /// decides what of it becomes stable.
    pub(super) fn reopen(&mut self) {
        for (_, event) in std::mem::take(&mut self.events) {
            if let Event::Run { part, attempts, .. } = event
                && self.network.next_u32().is_multiple_of(2)
            {
                self.run(part, None, attempts);
            }
        }
        self.sent.clear();
        if self.network.next_u32().is_multiple_of(2) {
            self.server.restart(&mut self.faults);
        } else {
            self.server.commit();
        }
        self.stream = Stream::new(self.tuning.clone());
    }

    pub(super) fn restart(&mut self) {
        self.server.restart(&mut self.faults);
        self.sent.values_mut().for_each(|sent| sent.cached = None);
        // Some replies are lost, and their calls sent again.
        for key in self.events.keys().copied().collect::<Vec<_>>() {
            if let Event::Reply { part, attempts, .. } = self.events[&key]
                && self.network.next_u32().is_multiple_of(2)
            {
                let after = Some(self.delay());
                self.events.insert(key, Event::Run { part, reply_after: after, attempts: attempts + 1 });
            }
        }
    }

    /// Lets the stream send, and then the next thing happen; whether there was any.
    pub(super) fn step(&mut self) -> bool {
        self.send();
        let Some(((at, _), event)) = self.events.pop_first() else { return false };
        self.now = self.now.max(at);
        match event {
            Event::Run { part, reply_after, attempts } => self.run(part, reply_after, attempts),
            Event::Reply { part, attempts, reply } => self.deliver(part, attempts, reply),
        }
        if self.strikes(self.trouble.restarts) && self.server.life < 6 {
            self.restart();
        }
        self.send();
        true
    }

    /// Lets things happen until `done` says that it is.
    pub(super) fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..MAX_EVENTS {
            if let Some(value) = done(self) {
                return value;
            }
            assert!(
                self.step() || !self.events.is_empty(),
                "the stream waits for nothing: {:#?}",
                self.stream
            );
        }
        panic!("the stream gets nowhere: {:#?}", self.stream);
    }

    pub(super) fn send(&mut self) {
        self.stream.cancel_unwanted();
        while let Some(StreamCall { part, delay, action }) = self.stream.next_call(self.now, self.limits) {
            let at = self.now + delay;
            self.inspect(&action);
            let first = at + self.delay();
            let back = self.delay();
            self.sent.insert(part, Sent { at, action, cached: None });
            if !self.strikes_network(self.trouble.copies) {
                self.put(first, Event::Run { part, reply_after: Some(back), attempts: 1 });
                continue;
            }
            // Sent again before the first reply came: the other copy is run before it, or for as
            // long after it as the stream allows for.
            let replied = first + back;
            let latest = replied + lateness(replied - at) - Duration::from_nanos(1);
            let other = at + (latest - at).mul_f64(self.network.next_u32() as f64 / f64::from(u32::MAX));
            self.put(first, Event::Run { part, reply_after: Some(back), attempts: 2 });
            self.put(other, Event::Run { part, reply_after: None, attempts: 2 });
        }
    }

    /// What must be true of every call.
    fn inspect(&self, action: &StreamAction) {
        let StreamAction::Write { offset, data, .. } = action else { return };
        let range = Range { start: *offset, end: offset + data.len() as u64 };
        assert!(
            data.len() <= self.limits.write_block.min(self.tuning.write_bytes) as usize && !data.is_empty()
        );
        let others = self.stream.writes().filter(|other| other.start < range.end && range.start < other.end);
        assert_eq!(others.count(), 1, "WRITEs in flight overlap at {range:?}");
        let memory = self.stream.pages.memory_bytes();
        assert!(memory <= self.tuning.dirty_bytes + 2 * pages::PAGE_BYTES as usize);
        assert!(self.stream.writes().count() <= self.tuning.writes);
        let calls = self.stream.in_flight.values();
        let reads = calls.clone().filter(|call| matches!(call, InFlight::Read { .. })).count();
        assert!(reads <= self.tuning.reads);
        assert!(calls.filter(|call| matches!(call, InFlight::Commit)).count() <= 1);
    }

    fn run(&mut self, part: u32, reply_after: Option<Duration>, attempts: u32) {
        let Some(sent) = self.sent.get(&part) else { return };
        let reply = match sent.cached.clone().filter(|_| self.trouble.has_reply_cache) {
            Some(cached) => cached,
            None => {
                let action = sent.action.clone();
                let reply = self.serve(action);
                self.sent.get_mut(&part).expect("just looked up").cached = Some(reply.clone());
                reply
            }
        };
        if let Some(after) = reply_after {
            self.put(self.now + after, Event::Reply { part, attempts, reply });
        }
    }

    fn serve(&mut self, action: StreamAction) -> Reply {
        if self.strikes(self.trouble.errors) {
            self.errors += 1;
            let (procedure, status) = match action {
                StreamAction::Read { .. } => (Procedure::Read, Status::STALE),
                StreamAction::Write { .. } => (Procedure::Write, Status::NOSPC),
                StreamAction::Commit => (Procedure::Commit, Status::IO),
            };
            return Reply::Failed(TransferError::Status { procedure, status });
        }
        match action {
            StreamAction::Read { offset, count } => {
                let rest = self.server.current.get(offset as usize..).unwrap_or_default();
                let whole = rest.len().min(count as usize);
                let (short, empty) = (self.trouble.short_reads, self.trouble.empty_reads);
                let most = self.shorten(whole, short, empty);
                let rest = self.server.current.get(offset as usize..).unwrap_or_default();
                // Servers may or may not say that the file ends where the bytes do.
                let end = most == rest.len() && (most == 0 || self.faults.next_u32().is_multiple_of(2));
                Reply::Read(Bytes::copy_from_slice(&rest[..most]), end)
            }
            StreamAction::Write { offset, data, stable } => {
                let (short, empty) = (self.trouble.short_writes, self.trouble.empty_writes);
                let count = self.shorten(data.len(), short, empty);
                let at_once = self.strikes(self.trouble.stable_writes);
                let committed = if at_once { stable_how::FILE_SYNC } else { stable };
                self.server.write(offset, &data[..count], committed);
                let (count, verifier) = (count as u32, self.server.verifier());
                Reply::Written(WriteResult { count, committed, verifier })
            }
            StreamAction::Commit if !self.trouble.has_commit => Reply::NoCommit,
            StreamAction::Commit => {
                self.server.commit();
                Reply::Committed(self.server.verifier())
            }
        }
    }

    fn deliver(&mut self, part: u32, attempts: u32, reply: Reply) {
        let elapsed = self.now - self.sent[&part].at;
        match reply {
            Reply::Read(data, end) => self.stream.handle_read(part, data, end),
            Reply::Written(result) => {
                self.stream.handle_write(self.now, part, Effort { attempts, elapsed }, result);
            }
            Reply::Committed(verifier) => self.stream.handle_commit(part, verifier),
            Reply::NoCommit => self.stream.handle_no_commit(part),
            Reply::Failed(error) => self.stream.handle_failure(part, error),
        }
    }

    fn shorten(&mut self, whole: usize, short: u64, empty: u64) -> usize {
        if self.strikes(empty) {
            0
        } else if self.strikes(short) && whole > 0 {
            self.faults.next_u64() as usize % whole + 1
        } else {
            whole
        }
    }

    fn delay(&mut self) -> Duration {
        let longest = if self.strikes_network(self.trouble.long_delays) { 3_000_000 } else { 50_000 };
        Duration::from_micros(self.network.next_u64() % longest)
    }

    fn put(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn strikes(&mut self, per_mille: u64) -> bool {
        self.faults.next_u64() % PER_MILLE < per_mille
    }

    fn strikes_network(&mut self, per_mille: u64) -> bool {
        self.network.next_u64() % PER_MILLE < per_mille
    }
}
