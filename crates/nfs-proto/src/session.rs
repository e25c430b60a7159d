//! An engine and the transfers that feed it: everything a driver needs to drive, without a socket or a clock.
//!
//! The driver receives and calls [`Session::handle_head`]; when that says [`Incoming::Data`] it moves the
//! file bytes and calls [`Session::handle_payload_done`]. It drains [`Session::poll_transmit`], then
//! [`Session::poll_event`], and calls [`Session::handle_timeout`] at [`Session::poll_timeout`].

mod application;
mod blocks;
mod handover;
mod later;
mod loading;
mod pacer;
mod path;
mod replies;
mod rests;
mod server_limits;
mod setup;
mod write_size;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nfs_wire::{
    DecodeError, Status,
    rpc::{Program, Rejection},
};

pub use self::server_limits::ServerLimits;
use self::{
    later::Standing,
    loading::{Loading, spec_of},
    pacer::Pacer,
    rests::Rests,
    server_limits::{Bounds, FSINFO},
    write_size::WriteSize,
};
use crate::{
    attr::Metadata,
    config::MIN_BLOCK_BYTES,
    engine::{
        self, CallId, Class, Engine, EngineConfig, Head, MAX_CALLS, Owner, PathEstimate, Payload, Reply,
        Stats,
    },
    transfer::{Download, Limits, Machine, TransferError, Upload, Uploaded},
};

/// Settings of a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Settings of the engine.
    pub engine: EngineConfig,
    /// Bytes per READ and WRITE at most.
    pub limits: Limits,
    /// Whether WRITEs become smaller where the path takes long for them, and nothing else chooses.
    pub measure_writes: bool,
    /// How long a transfer may go without progress; `None` is for ever.
    pub stall_timeout: Option<Duration>,
    /// Upper bound of the transfer rate in bit/s, counted in file bytes.
    pub rate_limit: Option<u64>,
}

/// Names one transfer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(u32);

/// A machine that moves one file.
#[derive(Debug)]
pub enum Transfer {
    /// From the server.
    Download(Download),
    /// To the server.
    Upload(Box<Upload>),
}

impl Transfer {
    fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Self::Download(download) => download,
            Self::Upload(upload) => &mut **upload,
        }
    }

    /// What its data calls are for.
    const fn class(&self) -> Class {
        match self {
            Self::Download(_) => Class::Read,
            Self::Upload(_) => Class::Write,
        }
    }
}

/// What a received message turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// More of the message is needed to tell.
    NeedMore,
    /// Nobody needs the rest of this message.
    Done,
    /// File bytes: the driver moves them and calls [`Session::handle_payload_done`].
    Data {
        /// The transfer they belong to.
        transfer: TransferId,
        /// Offset in the file.
        offset: u64,
        /// Length in bytes, without padding.
        length: u32,
        /// The file's attributes after the READ, if the server tells them.
        attributes: Option<Metadata>,
        /// Where the bytes begin in the message.
        data_at: usize,
    },
    /// The reply to a call that was submitted with [`Session::submit`]; the message is complete.
    Reply {
        /// The token given at submission.
        token: u64,
        /// Where the results begin in the message.
        results_at: usize,
        /// Whether the server ran the call.
        outcome: Result<(), Rejection>,
        /// How often the call was sent.
        attempts: u32,
        /// Since what was answered was sent.
        round_trip: Duration,
    },
}

/// A message to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The transfer whose source holds the payload.
    pub transfer: Option<TransferId>,
    /// The message up to its payload.
    pub head: &'a [u8],
    /// File bytes that follow the head, padded by the driver to a multiple of four.
    pub payload: Option<Payload>,
    /// Whether it must not be fragmented on its way.
    pub dont_fragment: bool,
}

/// What the application should learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This many more bytes of a transfer were accepted.
    Progress(TransferId, u64),
    /// An upload, of which [`Event::Finished`] is told next, has made or filled this file.
    Uploaded(TransferId, Uploaded),
    /// A transfer is complete, and on stable storage if it was an upload.
    Finished(TransferId),
    /// A WRITE waits for its bytes: [`Session::handle_loaded`] takes them.
    Load(TransferId, Payload),
    /// A transfer ended early.
    Failed(TransferId, TransferError),
    /// A transfer went without progress for as long as it may.
    Stalled(TransferId, Duration),
    /// A submitted call got no reply before its deadline.
    Expired {
        /// The token given at submission.
        token: u64,
        /// How often the call was sent.
        attempts: u32,
        /// How long it was outstanding.
        elapsed: Duration,
    },
}

#[derive(Debug)]
struct Active {
    id: TransferId,
    transfer: Transfer,
    last_progress: Instant,
    /// Whether it makes no further calls: it is to leave.
    leaving: bool,
    /// Since the server asked to come back later: when that is, and how often it has asked in a row.
    later: Option<(Instant, u32)>,
    loading: Loading,
}

/// File bytes on their way to where they belong.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    call: CallId,
    transfer: TransferId,
    part: u32,
    asked: u32,
    length: u32,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    /// Calls of the application that are outstanding.
    application_calls: usize,
    rests: Rests,
    bounds: Bounds,
    /// Largest READ and WRITE that were answered; only larger ones are suspected to be too large.
    proven: Limits,
    write_size: Option<WriteSize>,
    stall_timeout: Option<Duration>,
    pacer: Option<Pacer>,
    transfers: Vec<Active>,
    next_transfer: u32,
    turn: usize,
    /// Since no transfer wanted to send, something has changed what there is to send or room for: a call left or ended, a
    /// transfer began or ended, a timer fired, the link or the connection is another. Nothing else makes a transfer want to.
    has_work: bool,
    arriving: Option<Arriving>,
    probing: bool,
    /// Since when the server refuses a credential that it had accepted, if it had.
    credential: Standing,
    /// When timers were looked at last.
    last_timeout: Instant,
    events: VecDeque<Event>,
}

/// What a transfer did in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    /// None wants to do anything, or may.
    Nothing,
    /// It asked for the bytes of a WRITE.
    Load,
    /// It queued a call.
    Call,
}

/// A NULL call that tells a server that ignores large calls from one that is gone.
const PROBE: Owner = Owner(u64::MAX);
const TRANSFER_BIT: u64 = 1 << 63;

/// Most calls of the application outstanding at once; further ones wait for a place.
pub const APPLICATION_CALLS: usize = MAX_CALLS / 2;

/// Most calls of transfers, so that they and the application's keep each other from nothing. The session's own, a NULL and an FSINFO,
/// have room beside both.
const TRANSFER_CALLS: usize = MAX_CALLS - APPLICATION_CALLS - 8;

impl Session {
    /// Starts with nothing to do.
    pub fn new(config: SessionConfig, peer: SocketAddr, seed: u64, now: Instant) -> Self {
        Self {
            engine: Engine::new(config.engine, peer, seed, now),
            application_calls: 0,
            rests: Rests::default(),
            bounds: Bounds::new(config.limits),
            proven: Limits { read_block: MIN_BLOCK_BYTES, write_block: MIN_BLOCK_BYTES, ..Limits::default() },
            write_size: config.measure_writes.then(|| WriteSize::new(now)),
            stall_timeout: config.stall_timeout,
            pacer: config.rate_limit.map(|rate| Pacer { rate, next: now, paused: false }),
            transfers: Vec::new(),
            next_transfer: 0,
            turn: 0,
            has_work: false,
            arriving: None,
            probing: false,
            credential: Standing::Unknown,
            last_timeout: now,
            events: VecDeque::new(),
        }
    }

    /// Starts a transfer.
    pub fn start(&mut self, now: Instant, transfer: Transfer) -> TransferId {
        if self.transfers.is_empty()
            && let Some(write_size) = &mut self.write_size
        {
            write_size.begin(now);
        }
        let id = TransferId(self.next_transfer);
        self.next_transfer = (self.next_transfer + 1) & 0x3fff_ffff;
        let loading = Loading::Never;
        self.transfers.push(Active {
            id,
            transfer,
            last_progress: now,
            leaving: false,
            later: None,
            loading,
        });
        self.has_work = true;
        self.finish_if_done(id);
        id
    }

    /// Records what the path moves, in bytes per second, as another session has found.
    pub const fn expect_rate(&mut self, rate: f64) {
        if let Some(write_size) = &mut self.write_size {
            write_size.expect_rate(rate);
        }
    }

    /// Ends a transfer without waiting for what is outstanding.
    pub fn stop(&mut self, now: Instant, id: TransferId) {
        self.transfers.retain(|active| active.id != id);
        self.arriving.take_if(|arriving| arriving.transfer == id);
        self.engine
            .cancel_matching(now, |owner, _, _, _| owner_transfer(owner).is_some_and(|(it, _)| it == id));
        self.has_work = true;
    }

    /// Looks at the beginning of a received message; `complete` says that `bytes` is all of it.
    ///
    /// # Errors
    /// [`DecodeError`] when it is no reply; nothing changed. A datagram is dropped, a connection closed.
    pub fn handle_head(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        bytes: &[u8],
        complete: bool,
    ) -> Result<Incoming, DecodeError> {
        let reply = match self.engine.handle_head(now, peer, bytes, complete)? {
            Head::NeedMore => return Ok(Incoming::NeedMore),
            Head::Stray => {
                // It may have shown that others are lost, which makes room for more.
                self.has_work = true;
                return Ok(Incoming::Done);
            }
            Head::Reply(reply) => reply,
        };
        let results = &bytes[reply.results_at..];
        if reply.outcome.is_ok() && reply.program == Program::NFS {
            match results.first_chunk::<4>() {
                None if !complete => return Ok(Incoming::NeedMore),
                Some(status) if u32::from_be_bytes(*status) == Status::JUKEBOX.code() => {
                    self.put_off(now, &reply);
                    return Ok(Incoming::Done);
                }
                _ => {}
            }
        }
        if self.waits_for_credential(now, &reply) {
            self.put_off(now, &reply);
            return Ok(Incoming::Done);
        }
        if reply.owner == PROBE {
            self.complete(now, reply.id);
            self.shrink_silent_blocks(now);
            return Ok(Incoming::Done);
        }
        if reply.owner == FSINFO {
            if !complete {
                return Ok(Incoming::NeedMore);
            }
            self.complete(now, reply.id);
            self.handle_fsinfo(now, reply.outcome, results);
            return Ok(Incoming::Done);
        }
        match owner_transfer(reply.owner) {
            Some((transfer, part)) => {
                Ok(self.handle_transfer_reply(now, &reply, transfer, part, results, complete))
            }
            None if !complete => Ok(Incoming::NeedMore),
            None => {
                self.remember_rest(&reply, results);
                let Reply { owner: Owner(token), results_at, outcome, attempts, round_trip, .. } = reply;
                self.complete(now, reply.id);
                self.application_calls -= 1;
                Ok(Incoming::Reply { token, results_at, outcome, attempts, round_trip })
            }
        }
    }

    /// Records that the file bytes of the last [`Incoming::Data`] are where they belong.
    pub fn handle_payload_done(&mut self, now: Instant) {
        let Some(Arriving { call, transfer, part, asked, length }) = self.arriving.take() else {
            return;
        };
        self.complete(now, call);
        if let Some(active) = self.find(transfer) {
            active.transfer.machine().handle_payload_done(part);
            self.handle_moved(now, transfer, asked, length);
            self.accept(now, transfer, length.into());
        }
    }

    /// Makes every call again that was sent over a connection that is gone.
    pub fn handle_reconnect(&mut self, now: Instant) {
        self.arriving = None;
        self.engine.handle_reconnect(now);
        // It may be another server by now, or the same one with other limits.
        self.ask_limits(now);
        self.has_work = true;
    }

    /// Fires every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
        self.last_timeout = self.last_timeout.max(now);
        self.has_work = true;
        self.stop_waiting_for_limits(now);
        if let Some(pacer) = self.pacer.as_mut().filter(|pacer| pacer.paused && pacer.next <= now) {
            pacer.paused = false;
        }
        if let Some(stall) = self.stall_timeout {
            let since = |active: &&Active| now.saturating_duration_since(active.last_progress);
            let stalled = self.transfers.iter().filter(|active| since(active) >= stall);
            for id in stalled.map(|active| active.id).collect::<Vec<_>>() {
                self.stop(now, id);
                self.events.push_back(Event::Stalled(id, stall));
            }
        }
        while let Some(event) = self.engine.poll_event() {
            match event {
                engine::Event::Expired { owner: Owner(token), attempts, elapsed } => {
                    // Nobody else's calls have a deadline.
                    self.application_calls -= 1;
                    self.events.push_back(Event::Expired { token, attempts, elapsed });
                }
                engine::Event::Silent { class, bytes, attempts, elapsed } => {
                    self.suspect_block(now, class, bytes, attempts, elapsed);
                    self.resegment(now, bytes, attempts);
                }
            }
        }
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        while self.has_work {
            match self.feed(now) {
                Fed::Nothing => self.has_work = false,
                // Its bytes may take long: the others do not wait for them.
                Fed::Load => {}
                Fed::Call => break,
            }
        }
        let transmit = self.engine.poll_transmit(now)?;
        // What left may have been what kept others from being queued.
        self.has_work = true;
        Some(Transmit {
            transfer: owner_transfer(transmit.owner).map(|(transfer, _)| transfer),
            head: transmit.head,
            payload: transmit.payload,
            dont_fragment: transmit.dont_fragment,
        })
    }

    /// Returns the next thing the application should learn.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when to call [`Session::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let stalls = self.transfers.iter().filter_map(|it| it.last_progress.checked_add(self.stall_timeout?));
        let paced = self.pacer.as_ref().filter(|pacer| pacer.paused).map(|pacer| pacer.next);
        let later = self.transfers.iter().filter_map(|it| it.later.map(|(due, _)| due));
        // What is past has fired, and set the session going.
        let later = later.chain(self.bounds.wait_until()).filter(|&due| due > self.last_timeout);
        self.engine.poll_timeout().into_iter().chain(stalls).chain(paced).chain(later).min()
    }

    /// Returns what the adaptive policy has measured of the path, once something was delivered.
    pub fn path_estimate(&self) -> Option<PathEstimate> {
        self.engine.path_estimate()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &Stats {
        self.engine.stats()
    }

    /// Returns the bytes per READ and WRITE in use now.
    pub fn limits(&self) -> Limits {
        self.narrowed(self.engine.block())
    }

    /// Returns the limits with a block that the engine chose.
    fn narrowed(&self, block: Option<u32>) -> Limits {
        let block = block.unwrap_or(u32::MAX);
        let measured = self.write_size.map_or(u32::MAX, |size| size.bytes());
        let Limits { read_block, write_block, .. } = self.bounds.limits();
        let pace = self.engine.pace();
        Limits { read_block: read_block.min(block), write_block: write_block.min(block).min(measured), pace }
    }

    /// Returns an upload that is under way.
    pub fn upload(&self, id: TransferId) -> Option<&Upload> {
        match self.transfers.iter().find(|active| active.id == id).map(|active| &active.transfer) {
            Some(Transfer::Upload(upload)) => Some(upload),
            Some(Transfer::Download(_)) | None => None,
        }
    }

    /// Returns how many calls are outstanding.
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    /// Whether a transfer waits for any call.
    pub fn is_asking(&self, id: TransferId) -> bool {
        is_asking(&self.engine, id)
    }

    fn find(&mut self, id: TransferId) -> Option<&mut Active> {
        self.transfers.iter_mut().find(|active| active.id == id)
    }

    /// Lets the transfers, in turn, queue one call or ask for the bytes of one.
    fn feed(&mut self, now: Instant) -> Fed {
        self.resegment_for_path(now);
        // Whatever ends makes room and is followed by another look.
        if self.engine.outstanding() - self.application_calls + self.loads().count() >= TRANSFER_CALLS {
            return Fed::Nothing;
        }
        let loads = self.loads_in_window();
        let block = self.engine.next_block(now);
        let limits = self.narrowed(block);
        let paused = self.bounds.waits(now) || self.pacer.as_mut().is_some_and(|pacer| pacer.pauses(now));
        for step in 0..self.transfers.len() {
            let turn = (self.turn + step) % self.transfers.len();
            let Active { id, transfer, leaving, later, loading, .. } = &mut self.transfers[turn];
            let engine = &self.engine;
            if *leaving
                || loading.is_some()
                || later.is_some_and(|(due, _)| now < due || is_asking(engine, *id))
            {
                continue;
            }
            let has_room: &dyn Fn(_, _) -> _ = match loading {
                _ if paused => &|_, _| false,
                Loading::Never => &|class, bytes| engine.has_room(class, bytes),
                Loading::Each(_) => &|class, bytes| engine.has_room_beside(loads, class, bytes),
            };
            let machine = transfer.machine();
            let Some(call) = machine.next_call(limits, has_room) else {
                continue;
            };
            if let Some(pacer) = &mut self.pacer {
                pacer.spend(now, call.bytes);
            }
            self.turn = turn + 1;
            if let Some(payload) = call.payload.filter(|_| *loading == Loading::Each(None)) {
                *loading = Loading::Each(Some(call));
                self.events.push_back(Event::Load(*id, payload));
                return Fed::Load;
            }
            let spec = spec_of(*id, &call, now);
            let queued = self.engine.submit(now, spec, |buffer| machine.encode(&call, buffer));
            debug_assert!(queued.is_some(), "calls of transfers and of the application are bounded");
            return Fed::Call;
        }
        Fed::Nothing
    }
}

fn is_asking(engine: &Engine, id: TransferId) -> bool {
    let mut asking = false;
    engine.look(|owner, _, _, _| asking |= owner_transfer(owner).is_some_and(|(it, _)| it == id));
    asking
}

fn owner_transfer(owner: Owner) -> Option<(TransferId, u32)> {
    let Owner(number) = owner;
    (number & TRANSFER_BIT != 0 && owner != PROBE && owner != FSINFO)
        .then_some((TransferId((number >> 32) as u32 & 0x7fff_ffff), number as u32))
}

#[cfg(test)]
mod tests;
