//! A mobile host: the client's session, the file it copies, and the time its processor takes.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};
use nfs_proto::{
    engine::Stats,
    session::{Event, Incoming, Session, Transfer, TransferId},
    transfer::{Download, Limits, Placement, Upload, UploadSpec},
};
use nfs_wire::{FileHandle, padding};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use crate::{
    HostCosts, Operation,
    server::{COMPARED_BYTES, SERVER, pattern, server_address},
};

/// The port that mobiles call from.
const PORT: u16 = 700;

/// READ replies up to this length carry no data worth a processor's time.
const READ_REPLY_HEAD: usize = 128;

/// Bytes of a datagram in each Ethernet frame.
const FRAME_BYTES: usize = 1480;

/// A file to be copied.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) operation: Operation,
    pub(crate) file: FileHandle,
    pub(crate) root: FileHandle,
    pub(crate) size: u64,
    /// When the copy is given up, counted from its first call.
    pub(crate) patience: Duration,
}

impl Work {
    fn transfer(&self) -> Transfer {
        match self.operation {
            Operation::Read => Transfer::Download(Download::new(&self.file, self.size)),
            Operation::Write => Transfer::Upload(Box::new(Upload::new(UploadSpec::new(
                self.root,
                Vec::new(),
                Placement::Existing(self.file),
                self.size,
            )))),
        }
    }
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    Copying,
    Finished(Instant),
    Failed,
}

/// One mobile that copies one file: the client of the programs, but for sockets and clock.
#[derive(Debug)]
pub(crate) struct Mobile {
    place: Endpoint,
    session: Session,
    costs: HostCosts,
    /// Decides which frames the interface loses.
    overflow: ChaCha8Rng,
    work: Work,
    /// Copies to make before the one that counts.
    rehearsals: u32,
    starts: Instant,
    transfer: Option<TransferId>,
    progress: Progress,
    /// The counters when the copy that counts began.
    before: Stats,
    /// The bytes that arrived are those of the file.
    intact: bool,
    processor_free: Instant,
    arriving: VecDeque<(Instant, Bytes)>,
    leaving: VecDeque<(Instant, Bytes)>,
    buffer: Vec<u8>,
}

impl Mobile {
    pub(crate) fn new(
        (number, seed): (u16, u64),
        session: Session,
        costs: HostCosts,
        work: Work,
        starts: Instant,
        rehearsals: u32,
    ) -> Self {
        Self {
            place: Endpoint::mobile(number, PORT),
            session,
            costs,
            overflow: ChaCha8Rng::seed_from_u64(seed),
            work,
            rehearsals,
            starts,
            transfer: None,
            progress: Progress::Waiting,
            before: Stats::default(),
            intact: true,
            processor_free: starts,
            arriving: VecDeque::new(),
            leaving: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    pub(crate) const fn progress(&self) -> Progress {
        self.progress
    }

    /// When the copy that counts began, or will.
    pub(crate) const fn starts(&self) -> Instant {
        self.starts
    }

    /// Whether nothing is left to wait for.
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Finished(_) | Progress::Failed)
    }

    pub(crate) const fn intact(&self) -> bool {
        self.intact
    }

    /// The counters now, and when the copy that counts began.
    pub(crate) const fn stats(&self) -> (&Stats, &Stats) {
        (self.session.stats(), &self.before)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.session.limits()
    }

    fn take_in(&mut self, now: Instant, message: &[u8]) {
        match self.session.handle_head(now, server_address(), message, true) {
            Ok(Incoming::Data { offset, length, data_at, .. }) => {
                if let Some(data) = message.get(data_at..data_at + length as usize) {
                    self.check(offset, data);
                }
                self.session.handle_payload_done(now);
            }
            // What is broken or a stranger's is counted by the engine.
            Ok(Incoming::NeedMore | Incoming::Done | Incoming::Reply { .. }) | Err(_) => {}
        }
    }

    fn check(&mut self, offset: u64, data: &[u8]) {
        if self.work.size <= COMPARED_BYTES {
            self.buffer.resize(data.len(), 0);
            pattern(offset, &mut self.buffer);
            self.intact &= self.buffer == data;
        }
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Finished(_) if self.rehearsals > 0 => {
                    self.rehearsals -= 1;
                    self.starts = now;
                    self.transfer = None;
                }
                Event::Finished(_) => self.progress = Progress::Finished(now),
                Event::Failed(..) => self.progress = Progress::Failed,
                _ => {}
            }
        }
    }

    /// Whether the interface loses one of the frames of a datagram.
    fn overflows(&mut self, bytes: usize) -> bool {
        let frames = bytes.div_ceil(FRAME_BYTES) as i32;
        let lost = 1.0 - (1.0 - self.costs.overflow).powi(frames);
        // 53 bits are a fraction from 0 to 1.
        let draw = (self.overflow.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        draw < lost
    }

    fn gives_up_at(&self) -> Instant {
        self.starts + self.work.patience
    }

    /// The processor is busy for `cost`, after what it is busy with already; when it is done.
    fn process(&mut self, now: Instant, cost: Duration) -> Instant {
        self.processor_free = self.processor_free.max(now) + cost;
        self.processor_free
    }
}

impl Node for Mobile {
    fn handle_input(&mut self, now: Instant, _from: Endpoint, _to: Endpoint, payload: Bytes) {
        let data = payload.len().saturating_sub(READ_REPLY_HEAD);
        let reads = self.work.operation == Operation::Read;
        if reads && data > 0 && self.overflows(payload.len()) {
            return;
        }
        let cost = match self.work.operation {
            Operation::Read if data > 0 => self.costs.read(data as u64),
            Operation::Read | Operation::Write => Duration::ZERO,
        };
        if cost.is_zero() && self.arriving.is_empty() {
            self.take_in(now, &payload);
            self.handle_events(now);
        } else {
            let done = self.process(now, cost);
            self.arriving.push_back((done, payload));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.transfer.is_none() && self.starts <= now {
            self.before = self.session.stats().clone();
            self.progress = Progress::Copying;
            self.transfer = Some(self.session.start(now, self.work.transfer()));
        }
        while self.arriving.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, message)) = self.arriving.pop_front() {
                self.take_in(now, &message);
            }
        }
        self.session.handle_timeout(now);
        self.handle_events(now);
        if let Some(transfer) = self.transfer.filter(|_| !self.is_done() && self.gives_up_at() <= now) {
            self.session.stop(now, transfer);
            self.progress = Progress::Failed;
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        let from = self.place;
        let outgoing = |payload| Some(Outgoing { from, to: SERVER, payload });
        if self.leaving.front().is_some_and(|(at, _)| *at <= now) {
            return self.leaving.pop_front().and_then(|(_, message)| outgoing(message));
        }
        while let Some(transmit) = self.session.poll_transmit(now) {
            let mut message = Vec::with_capacity(transmit.head.len());
            message.extend_from_slice(transmit.head);
            let mut cost = Duration::ZERO;
            if let Some(payload) = transmit.payload {
                let (head, length) = (message.len(), payload.length as usize);
                message.resize(head + length + padding(length), 0);
                if self.work.size <= COMPARED_BYTES {
                    pattern(payload.offset, &mut message[head..head + length]);
                }
                cost = self.costs.write(payload.length.into());
            }
            if cost.is_zero() && self.leaving.is_empty() {
                return outgoing(message.into());
            }
            let done = self.process(now, cost);
            self.leaving.push_back((done, message.into()));
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let change = match (self.transfer, self.progress) {
            (None, _) => Some(self.starts),
            (_, Progress::Copying) => Some(self.gives_up_at()),
            _ => None,
        };
        let queues = [self.arriving.front(), self.leaving.front()].into_iter().flatten().map(|(at, _)| *at);
        self.session.poll_timeout().into_iter().chain(change).chain(queues).min()
    }
}
