//! What a mobile host is beside its network: a processor, an interface that loses frames, and the file.

use std::time::{Duration, Instant};

use bytes::Bytes;
use nfs_proto::{
    session::{Incoming, TransferId},
    transfer::Range,
};
use nfs_wire::rpc::Rejection;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use crate::{
    HostCosts, Operation,
    server::{COMPARED_BYTES, pattern},
};

/// READ replies up to this length carry no data worth a processor's time.
const READ_REPLY_HEAD: usize = 128;

/// Bytes of a datagram in each Ethernet frame.
const FRAME_BYTES: usize = 1480;

/// A mobile host.
#[derive(Debug)]
pub(crate) struct Host {
    operation: Operation,
    costs: HostCosts,
    /// Decides which frames the interface loses.
    overflow: ChaCha8Rng,
    processor_free: Instant,
    /// Length of the file, in bytes.
    size: u64,
    /// The bytes that arrived are those of the file.
    intact: bool,
    buffer: Vec<u8>,
    /// Bytes that arrived since somebody looked, with the transfer that they came for.
    pub(crate) arrived: Vec<(TransferId, Range)>,
    /// Calls of the application that were answered since then.
    pub(crate) answered: Vec<Answered>,
}

/// A call of the application that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) token: u64,
    /// How long that took since what was answered was sent.
    pub(crate) round_trip: Duration,
    /// Whether the server ran it.
    pub(crate) outcome: Result<(), Rejection>,
    pub(crate) results: Bytes,
}

impl Answered {
    /// Returns what a reply to a call of the application says; `None` for any other message.
    pub(crate) fn from_reply(incoming: &Incoming, message: &[u8]) -> Option<Self> {
        let &Incoming::Reply { token, results_at, outcome, round_trip, .. } = incoming else { return None };
        let results = Bytes::copy_from_slice(message.get(results_at..).unwrap_or_default());
        Some(Self { token, round_trip, outcome, results })
    }
}

impl Host {
    pub(crate) fn new(operation: Operation, costs: HostCosts, size: u64, seed: u64, now: Instant) -> Self {
        Self {
            operation,
            costs,
            overflow: ChaCha8Rng::seed_from_u64(seed),
            processor_free: now,
            size,
            intact: true,
            buffer: Vec::new(),
            arrived: Vec::new(),
            answered: Vec::new(),
        }
    }

    pub(crate) const fn intact(&self) -> bool {
        self.intact
    }

    /// Whether the interface loses one of the frames of a packet with so many bytes of payload. It loses file data only.
    pub(crate) fn overflows(&mut self, bytes: usize) -> bool {
        if self.operation != Operation::Read || bytes <= READ_REPLY_HEAD {
            return false;
        }
        let frames = bytes.div_ceil(FRAME_BYTES) as i32;
        let lost = 1.0 - (1.0 - self.costs.overflow).powi(frames);
        // 53 bits are a fraction from 0 to 1.
        let draw = (self.overflow.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        draw < lost
    }

    /// What it takes to take in a message of so many bytes.
    pub(crate) fn cost_of_reply(&self, bytes: usize) -> Duration {
        match self.operation {
            Operation::Read if bytes > READ_REPLY_HEAD => self.costs.read((bytes - READ_REPLY_HEAD) as u64),
            Operation::Read | Operation::Write => Duration::ZERO,
        }
    }

    /// What it takes to prepare a WRITE.
    pub(crate) fn cost_of_write(&self, bytes: u32) -> Duration {
        self.costs.write(bytes.into())
    }

    /// The processor is busy for `cost`, after what it is busy with already; when it is done.
    pub(crate) fn process(&mut self, now: Instant, cost: Duration) -> Instant {
        self.processor_free = self.processor_free.max(now) + cost;
        self.processor_free
    }

    /// Takes bytes of the file.
    pub(crate) fn take(&mut self, transfer: TransferId, offset: u64, data: &[u8]) {
        self.arrived.push((transfer, Range { start: offset, end: offset + data.len() as u64 }));
        if self.size <= COMPARED_BYTES {
            self.buffer.resize(data.len(), 0);
            pattern(offset, &mut self.buffer);
            self.intact &= self.buffer == data;
        }
    }

    /// Gives bytes of the file; long ones are zeros.
    pub(crate) fn give(&self, offset: u64, buffer: &mut [u8]) {
        if self.size <= COMPARED_BYTES {
            pattern(offset, buffer);
        }
    }
}
