//! The server as a machine: calls in, replies out, time as an argument.

mod admission;
mod stats;
mod waiting;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nfs_wire::{
    DecodeError, Procedure, Reader, Status,
    nfs3_types::nfs3::nfstime3,
    portmap::Protocol,
    rpc::{CallHeader, Program, Rejection, ReplyHeader, Xid},
};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

pub use self::{
    stats::Stats,
    work::{Done, Work},
};
use self::{
    waiting::{Line, Waiting},
    work::{Common, Job, Outcome, SMALL_REPLY_BYTES, Task},
};
use crate::{
    address_validation::{AddressValidation, Grant},
    config::{ConfigError, ServiceConfig},
    faults::{FaultState, Faults, Plan, REORDER_TIME},
    handle::Handles,
    nfs3::Limits,
    reply_cache::{CallKey, Known, ReplyCache},
    stream,
    vfs::Vfs,
};

/// Who a call comes from, and a reply goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Address and port.
    pub address: SocketAddr,
    /// Transport.
    pub protocol: Protocol,
}

/// One reply: a datagram, or a record without its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub peer: Peer,
    /// The whole RPC message.
    pub bytes: Vec<u8>,
}

/// An NFSv3 server, with MOUNT and a port mapper, as a plain machine.
///
/// - Commands: [`set_faults`](Self::set_faults), [`crash`](Self::crash),
///   [`change_write_verifier`](Self::change_write_verifier), [`change_handles`](Self::change_handles), [`revoke`](Self::revoke).
/// - Input: [`handle_input`](Self::handle_input), [`handle_timeout`](Self::handle_timeout).
/// - Output: [`poll_transmit`](Self::poll_transmit) until it is empty, then [`poll_timeout`](Self::poll_timeout).
/// - Getters: [`stats`](Self::stats), [`backend`](Self::backend), [`faults`](Self::faults).
///
/// AUTH_NONE and AUTH_SYS are accepted and believed; nobody is refused anything. This is not a NAS.
#[derive(Debug)]
pub struct Service {
    config: ServiceConfig,
    common: Arc<Common>,
    seed: u64,
    started: Instant,
    latest: Instant,
    handles: Handles,
    write_verifier: [u8; 8],
    verifiers: ChaCha8Rng,
    cache: Option<ReplyCache>,
    pub(crate) addresses: AddressValidation,
    faults: FaultState,
    /// Calls of the back end are handed out, to be made elsewhere.
    defers: bool,
    /// Room for the reply of a call that was handed out is set aside before it is made.
    reserves: bool,
    /// Which of them are of before a crash.
    generation: u64,
    work: VecDeque<Work>,
    /// Bytes of deferred calls and of the replies that they may bring, by caller.
    deferred_bytes: BTreeMap<Peer, usize>,
    busy_threads: usize,
    /// Deferred calls that wait for a thread or are being made, and are not in the duplicate request cache.
    underway: BTreeSet<CallKey>,
    waiting: Line,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    /// Replies that a fault holds back until another one has left.
    held: BTreeMap<u64, Transmit>,
    ready: VecDeque<Transmit>,
    stats: Stats,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most events are calls")]
enum Event {
    /// A thread is done with a call.
    Served(Job, Vec<u8>),
    /// A delayed reply is due.
    Due(Transmit),
    /// A reordered reply has waited long enough.
    Release(u64),
}

impl Service {
    /// Creates a service that exports `backend`.
    ///
    /// The seed decides write verifiers, what faults strike, and handles, unless the back end numbers its files for
    /// good: another seed is another instance then, to which handles of this one are stale.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn new(
        config: ServiceConfig,
        backend: impl Vfs + 'static,
        seed: u64,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let random = |stream| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream);
            random
        };
        let instance = backend.instance().unwrap_or_else(|| random(stream::INSTANCE).next_u64());
        let mut service = Self {
            handles: Handles {
                instance,
                file_system: instance,
                length: config.handle_bytes,
                are_revoked: false,
            },
            cache: config.reply_cache.map(ReplyCache::new),
            addresses: AddressValidation::new(random(stream::ADDRESSES)),
            common: Arc::new(Common {
                backend: Box::new(backend),
                mounts: Mutex::default(),
                export: config.export.clone(),
            }),
            config,
            seed,
            started: now,
            latest: now,
            write_verifier: [0; 8],
            verifiers: random(stream::VERIFIER),
            faults: FaultState::new(Faults::default(), seed),
            defers: false,
            reserves: true,
            generation: 0,
            work: VecDeque::new(),
            deferred_bytes: BTreeMap::new(),
            busy_threads: 0,
            underway: BTreeSet::new(),
            waiting: Line::default(),
            events: BTreeMap::new(),
            sequence: 0,
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            stats: Stats::default(),
        };
        service.change_write_verifier();
        Ok(service)
    }

    /// Takes one RPC message: a datagram, or a record without its mark.
    ///
    /// # Errors
    /// [`DecodeError`] when it is no call; then only [`Stats::malformed`] has changed, and no reply follows.
    pub fn handle_input(&mut self, now: Instant, peer: Peer, bytes: &[u8]) -> Result<(), DecodeError> {
        let now = self.advance(now);
        let mut reader = Reader::new(bytes);
        let Some(header) = self.decode_header(peer, &mut reader)? else { return Ok(()) };
        self.stats.calls += 1;
        let plan = self.plan(&header, reader);
        if plan.drop_call {
            self.stats.dropped_calls += 1;
            return Ok(());
        }
        let grant = self.grant(peer, &header, bytes.len(), reader);
        let call_key = |header: &CallHeader| CallKey::new(peer.address, peer.protocol, header, reader.rest());
        let key = match &mut self.cache {
            Some(cache) if changes_something(&header) => {
                let key = call_key(&header);
                match cache.begin(key) {
                    Known::New => Some(key),
                    Known::InProgress => {
                        self.drop_repeated(peer, grant);
                        return Ok(());
                    }
                    Known::Answered(reply) => {
                        self.stats.replayed += 1;
                        let bytes = reply.to_vec();
                        if self.is_granted(peer, grant, bytes.len()) {
                            self.send(now, Transmit { peer, bytes }, &plan);
                        }
                        return Ok(());
                    }
                }
            }
            _ => None,
        };
        let mut job =
            Job { peer, header, plan, key, underway: None, grant, deferred_bytes: 0, reply_bytes: 0 };
        let is_deferred = self.defers && job.needs_back_end();
        if is_deferred {
            // A call may wait for long, and its retransmissions must not take what others need. Those of what changes something are known.
            if job.key.is_none() {
                let key = call_key(&job.header);
                if !self.underway.insert(key) {
                    self.drop_repeated(peer, grant);
                    return Ok(());
                }
                job.underway = Some(key);
            }
            if self.reserves {
                job.reply_bytes = job.reply_limit(reader, self.limits(peer.protocol).transfer);
            }
            job.deferred_bytes = bytes.len() + job.reply_bytes;
        }
        // Where calls of the back end are made elsewhere, all others wait for nobody.
        let may_start = self.busy_threads < self.config.timing.threads.get();
        if may_start || (self.defers && !is_deferred) {
            self.begin(job, reader, now);
        } else {
            self.wait(job, reader);
        }
        Ok(())
    }

    /// Returns a call of the back end that is to be made elsewhere, if calls are [deferred](Self::defer_calls).
    pub fn poll_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// Takes what has come of a call that was made elsewhere.
    pub fn handle_done(&mut self, now: Instant, done: Done) {
        let now = self.advance(now);
        if done.generation == self.generation {
            let Done { job, outcome, .. } = done;
            self.release(&job);
            self.note_end(&job);
            self.busy_threads -= 1;
            self.end(now, job, outcome);
            self.start_waiting(now);
        }
    }

    /// Finishes the calls and sends the delayed replies that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        while let Some(entry) = self.events.first_entry() {
            let (due, _) = *entry.key();
            if due > now {
                return;
            }
            match entry.remove() {
                Event::Served(job, reply) => {
                    self.finish(due, job, reply);
                    self.busy_threads -= 1;
                    self.start_waiting(due);
                }
                Event::Due(transmit) => self.ready.push_back(transmit),
                Event::Release(number) => self.ready.extend(self.held.remove(&number)),
            }
        }
    }

    /// Returns the next reply to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        self.advance(now);
        self.ready.pop_front()
    }

    /// Changes what goes wrong from now on; rules count from zero.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = FaultState::new(faults, self.seed);
    }

    /// Changes the write verifier, as a server does that restarts (RFC 1813 §4.8).
    pub fn change_write_verifier(&mut self) {
        self.verifiers.fill_bytes(&mut self.write_verifier);
    }

    /// Hands out the calls of the back end with [`poll_work`](Self::poll_work) from now on, as many at once as
    /// [`Timing::threads`](crate::Timing::threads), so that one that waits holds up no other.
    pub const fn defer_calls(&mut self) {
        self.defers = true;
    }

    /// As [`defer_calls`](Self::defer_calls), for calls that may wait for seconds before anything is known of their replies:
    /// no room is set aside for these, so that calls which wait do not keep others of the same caller from being taken.
    pub const fn defer_calls_for_long(&mut self) {
        (self.defers, self.reserves) = (true, false);
    }

    /// Makes every handle stale that was given out so far, as servers do that do not know their files again after a
    /// restart; file and file system numbers stay.
    pub const fn change_handles(&mut self) {
        self.handles.instance = self.handles.instance.wrapping_add(1);
    }

    /// Lets nobody in any more: every handle is stale, and no directory can be mounted. What was begun is still answered.
    pub const fn revoke(&mut self) {
        self.handles.are_revoked = true;
    }

    /// Restarts after a power failure: the back end loses what was not committed, the write verifier changes, and
    /// the duplicate request cache, the mounts and every call and reply under way are gone. Handles stay valid.
    pub fn crash(&mut self) {
        self.lose_volatile_data();
        self.common.forget_mounts();
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        self.addresses.clear();
        self.generation += 1;
        self.work.clear();
        self.deferred_bytes.clear();
        self.busy_threads = 0;
        self.underway.clear();
        self.waiting.clear();
        self.events.clear();
        self.held.clear();
        self.ready.clear();
    }

    /// Says where the service is reached, for its port mapper.
    pub const fn set_address(&mut self, address: SocketAddr) {
        self.config.address = address;
    }

    /// Says what time of day, since 1970, it is at `now`.
    pub fn set_wall_clock(&mut self, now: Instant, time: nfstime3) {
        self.started = self.advance(now);
        self.config.start_time = time;
    }

    /// Returns the back end, to fill it or to look into it without NFS.
    pub fn backend(&self) -> &dyn Vfs {
        &*self.common.backend
    }

    /// Returns the bytes of a caller's calls that are [deferred](Self::defer_calls), and of the replies that they may
    /// bring. A driver bounds them, as it bounds replies that wait.
    pub fn deferred_bytes(&self, peer: Peer) -> usize {
        self.deferred_bytes.get(&peer).copied().unwrap_or(0)
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.events.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Returns a copy of the counters.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the faults in force.
    pub const fn faults(&self) -> &Faults {
        self.faults.faults()
    }

    /// Returns the settings in force.
    pub const fn config(&self) -> &ServiceConfig {
        &self.config
    }

    /// Returns whether so many calls wait that a stream should not be read further before some are answered.
    pub fn is_congested(&self) -> bool {
        self.waiting.is_full()
    }

    /// Believes that an address receives what is sent to it, as [`ServiceConfig::validates_addresses`] asks: something else has shown it.
    pub fn validate_address(&mut self, address: IpAddr) {
        self.addresses.validate(address);
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn wait(&mut self, job: Job, arguments: Reader<'_>) {
        if self.is_congested() && job.peer.protocol == Protocol::Udp {
            let address = job.peer.address.ip();
            match self.defers.then(|| self.waiting.make_room(address)).flatten() {
                Some(Waiting { job, .. }) => {
                    self.release(&job);
                    self.drop_call(&job);
                }
                None => return self.drop_call(&job),
            }
        }
        self.hold(&job);
        self.waiting.add(Waiting { job, arguments: arguments.rest().to_vec() });
    }

    /// Drops a retransmission of a call that is being served: its reply will come.
    fn drop_repeated(&mut self, peer: Peer, grant: Grant) {
        self.stats.in_progress += 1;
        self.addresses.give_back(peer.address.ip(), grant.reply_bytes);
    }

    /// Notes that a deferred call is not underway any more.
    fn note_end(&mut self, job: &Job) {
        if let Some(key) = &job.underway {
            self.underway.remove(key);
        }
    }

    /// Forgets a call for which there is no room.
    fn drop_call(&mut self, job: &Job) {
        self.stats.overflowed += 1;
        self.note_end(job);
        self.addresses.give_back(job.peer.address.ip(), job.grant.reply_bytes);
        if let (Some(cache), Some(key)) = (&mut self.cache, job.key) {
            cache.forget(key);
        }
    }

    fn start_waiting(&mut self, now: Instant) {
        while self.busy_threads < self.config.timing.threads.get() {
            // A model of a server, in which calls take a time that was said, has one queue.
            let next = if self.defers { self.waiting.next_in_turn() } else { self.waiting.next() };
            let Some(Waiting { job, arguments }) = next else {
                return;
            };
            self.release(&job);
            self.begin(job, Reader::new(&arguments), now);
        }
    }

    fn hold(&mut self, job: &Job) {
        if job.deferred_bytes > 0 {
            *self.deferred_bytes.entry(job.peer).or_default() += job.deferred_bytes;
        }
    }

    fn release(&mut self, job: &Job) {
        if let Some(bytes) = self.deferred_bytes.get_mut(&job.peer) {
            *bytes -= job.deferred_bytes;
            if *bytes == 0 {
                self.deferred_bytes.remove(&job.peer);
            }
        }
    }

    /// Runs a call, or hands it out.
    fn begin(&mut self, job: Job, arguments: Reader<'_>, now: Instant) {
        if job.plan.crash {
            self.lose_volatile_data();
        } else if job.plan.change_verifier {
            self.change_write_verifier();
        }
        let task = Task {
            now: wall_time(self.config.start_time, now - self.started),
            handles: self.handles,
            limits: self.limits(job.peer.protocol),
            write_verifier: self.write_verifier,
            mountable: self.faults.faults().mountable,
            hides_exports: self.faults.faults().hides_exports,
            inner_exports: self.faults.faults().inner_exports.clone(),
            address: self.config.address,
            service_time: job.service_time(&self.config.timing, arguments),
        };
        if job.deferred_bytes > 0 {
            self.hold(&job);
            self.busy_threads += 1;
            let (common, generation) = (Arc::clone(&self.common), self.generation);
            let (arguments, reply) = (arguments.rest().to_vec(), Vec::with_capacity(job.reply_bytes));
            self.work.push_back(Work { common, task, job, arguments, reply, generation });
        } else {
            let (common, reply) = (&self.common, Vec::with_capacity(SMALL_REPLY_BYTES));
            let outcome = task.run(common, &*common.backend, &job, arguments, reply);
            self.end(now, job, outcome);
        }
    }

    /// A call was made; its reply is held back for as long as the call takes.
    fn end(&mut self, now: Instant, job: Job, outcome: Outcome) {
        let Outcome { mut reply, rejected, served, read_bytes, read, written_bytes, service_time } = outcome;
        self.stats.rejected += u64::from(rejected);
        self.stats.read_bytes += read_bytes;
        self.stats.last_read = read.or(self.stats.last_read);
        self.stats.written_bytes += written_bytes;
        if let Some(procedure) = served {
            self.stats.served[procedure.number() as usize] += 1;
        }
        if reply.len() > job.grant.reply_bytes {
            // Whoever really is there asks again over TCP. This reply is shorter than any call.
            self.stats.rejected += 1;
            reply = rejection(job.header.xid, Rejection::SystemError);
        }
        self.is_granted(job.peer, job.grant, reply.len());
        if service_time.is_zero() {
            self.finish(now, job, reply);
        } else {
            self.busy_threads += 1;
            self.schedule(now + service_time, Event::Served(job, reply));
        }
    }

    fn limits(&self, protocol: Protocol) -> Limits {
        let transfer = match protocol {
            Protocol::Udp => self.config.udp_transfer_bytes,
            Protocol::Tcp => self.config.tcp_transfer_bytes,
        };
        let faults = self.faults.faults();
        Limits {
            transfer,
            claimed_read: faults.claimed_read_bytes.unwrap_or(transfer),
            claimed_write: faults.claimed_write_bytes.unwrap_or(transfer),
        }
    }

    fn finish(&mut self, now: Instant, job: Job, bytes: Vec<u8>) {
        if let (Some(cache), Some(key)) = (&mut self.cache, job.key) {
            if job.plan.fail == Some(Status::JUKEBOX) || job.plan.reject.is_some() {
                cache.forget(key);
            } else {
                cache.finish(key, &bytes);
            }
        }
        let peer = job.peer;
        self.send(now, Transmit { peer, bytes }, &job.plan);
    }

    fn send(&mut self, now: Instant, transmit: Transmit, plan: &Plan) {
        if plan.drop_reply {
            self.stats.dropped_replies += 1;
            return;
        }
        let copy = plan.duplicate_reply.then(|| transmit.clone());
        for transmit in [Some(transmit), copy].into_iter().flatten() {
            if let Some(delay) = plan.delay.filter(|delay| !delay.is_zero()) {
                self.schedule(now + delay, Event::Due(transmit));
            } else if plan.reorder_reply {
                let number = self.schedule_release(now);
                self.held.insert(number, transmit);
            } else {
                self.ready.push_back(transmit);
                self.ready.extend(std::mem::take(&mut self.held).into_values());
            }
        }
    }

    fn schedule_release(&mut self, now: Instant) -> u64 {
        let number = self.sequence;
        self.schedule(now + REORDER_TIME, Event::Release(number));
        number
    }

    fn schedule(&mut self, due: Instant, event: Event) {
        self.events.insert((due, self.sequence), event);
        self.sequence += 1;
    }

    fn lose_volatile_data(&mut self) {
        self.common.backend.crash();
        self.change_write_verifier();
    }
}

fn rejection(xid: Xid, rejection: Rejection) -> Vec<u8> {
    let mut bytes = Vec::new();
    let outcome = Err(rejection);
    ReplyHeader { xid, outcome }.encode(&mut bytes);
    bytes
}

/// Whether the reply of a call is worth keeping for its retransmission.
fn changes_something(header: &CallHeader) -> bool {
    header.program == Program::NFS
        && Procedure::from_number(header.procedure).is_some_and(|procedure| !procedure.is_read_only())
}

fn wall_time(start: nfstime3, elapsed: Duration) -> nfstime3 {
    let time = Duration::new(start.seconds.into(), start.nseconds) + elapsed;
    nfstime3 { seconds: u32::try_from(time.as_secs()).unwrap_or(u32::MAX), nseconds: time.subsec_nanos() }
}

#[cfg(test)]
mod tests;
