//! Which addresses receive what is sent to them (address validation, RFC 9000 §8).
//!
//! The source address of a datagram can be forged, and replies to it then go to somebody else. Until an address is
//! validated, it gets at most three times the bytes that came from it (RFC 9000 §8.1). A file handle validates
//! nothing: handles are the same for everybody, and outlast the server. What validates an address is an answer to
//! something random that a reply has carried there:
//!
//! - a READ is answered with a random part of its data (a short READ, RFC 1813 §3.3.6), and the next one must begin
//!   where that part ended;
//! - a listing carries a random cookie verifier, which the call for its next page must bring (RFC 1813 §3.3.16);
//! - a call over TCP needs no more, as its connection has been set up.
//!
//! So a client that comes from another address, or to a server that was restarted, is served with all it has kept,
//! and is slower for a round trip or two.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use nfs_wire::{FileHandle, Procedure, Reader, rpc::CallHeader, rpc::Program};
use rand_chacha::{ChaCha8Rng, rand_core::Rng};

/// Bytes of replies for each byte of calls that an address gets before it is validated, at most (RFC 9000 §8.1).
const MAX_AMPLIFICATION: usize = 3;

/// Random bits that an address must have answered to be validated.
const ENOUGH_BITS: u32 = 32;

/// Validated addresses that are remembered; the one validated first goes first.
const MAX_VALIDATED: usize = 4096;

/// Addresses that are not validated yet and are remembered; the one heard of first goes first.
const MAX_CANDIDATES: usize = 256;

/// Short READs of one address whose continuation is waited for.
const MAX_SHORT_READS: usize = 64;

/// READs that find no room among these before all of them are forgotten, as those of a client that has gone.
const MAX_SKIPPED: usize = 1024;

/// Bytes of a READ's reply beside its data: header, status, attributes, count, end mark, length, padding.
const READ_HEAD_BYTES: usize = 24 + 4 + 88 + 4 + 4 + 4 + 3;

/// What a reply may carry to the address of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Most bytes of the reply.
    pub(crate) reply_bytes: usize,
    /// Most bytes of data in a READ's reply.
    pub(crate) read_bytes: u32,
    /// What goes into the cookie verifier of a listing; 0 where nothing is to be shown.
    pub(crate) challenge: u32,
}

impl Grant {
    /// Anything.
    pub(crate) const UNLIMITED: Self = Self { reply_bytes: usize::MAX, read_bytes: u32::MAX, challenge: 0 };

    pub(crate) const fn is_limited(&self) -> bool {
        self.reply_bytes != usize::MAX
    }
}

/// What is known of addresses.
#[derive(Debug)]
pub(crate) struct AddressValidation {
    random: ChaCha8Rng,
    validated: Recent<()>,
    candidates: Recent<Candidate>,
}

/// An address that is not validated yet.
#[derive(Debug, Default)]
struct Candidate {
    received_bytes: usize,
    /// Sent, or set aside for replies that are being made.
    sent_bytes: usize,
    /// Random bits answered so far.
    bits: u32,
    challenge: u32,
    short_reads: Vec<ShortRead>,
    skipped: usize,
}

/// A READ that was answered in part.
#[derive(Debug)]
struct ShortRead {
    file: FileHandle,
    offset: u64,
    /// Where the next READ begins, if the reply arrives.
    next: u64,
    end: u64,
    bits: u32,
}

/// The part of a call that can answer what was sent, or that is answered in part.
#[derive(Debug)]
enum Shape {
    Read { file: FileHandle, offset: u64, end: u64 },
    Page { cookie: u64, verifier: [u8; 8] },
    Other,
}

impl AddressValidation {
    pub(crate) const fn new(random: ChaCha8Rng) -> Self {
        Self { random, validated: Recent::new(MAX_VALIDATED), candidates: Recent::new(MAX_CANDIDATES) }
    }

    /// Records that an address receives what is sent to it.
    pub(crate) fn validate(&mut self, address: IpAddr) {
        self.candidates.remove(address);
        self.validated.enter(address);
    }

    /// Records a call over UDP of `call_bytes`, says what its reply may carry, and sets that aside.
    ///
    /// READs move at most `transfer_bytes`.
    pub(crate) fn admit(
        &mut self,
        address: IpAddr,
        call_bytes: usize,
        header: &CallHeader,
        arguments: Reader<'_>,
        transfer_bytes: u32,
    ) -> Grant {
        if self.validated.get(address).is_some() {
            return Grant::UNLIMITED;
        }
        let shape = Shape::of(header, arguments, transfer_bytes);
        let candidate = self.candidates.enter(address);
        candidate.hear(&shape);
        if candidate.bits >= ENOUGH_BITS {
            self.validate(address);
            return Grant::UNLIMITED;
        }
        candidate.received_bytes = candidate.received_bytes.saturating_add(call_bytes);
        let earned = candidate.received_bytes.saturating_mul(MAX_AMPLIFICATION);
        let reply_bytes = earned.saturating_sub(candidate.sent_bytes);
        candidate.sent_bytes = candidate.sent_bytes.saturating_add(reply_bytes);
        while candidate.challenge == 0 {
            candidate.challenge = self.random.next_u32();
        }
        // Not what earlier calls have left: a retransmission must have room for the same part.
        let room = reply_bytes.min(call_bytes * MAX_AMPLIFICATION).saturating_sub(READ_HEAD_BYTES);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let read_bytes = match shape {
            Shape::Read { file, offset, end } => candidate.shorten(&mut self.random, file, offset..end, room),
            Shape::Page { .. } | Shape::Other => room,
        };
        Grant { reply_bytes, read_bytes, challenge: candidate.challenge }
    }

    /// Takes back what was set aside for a reply and is not sent.
    pub(crate) fn give_back(&mut self, address: IpAddr, unused_bytes: usize) {
        if let Some(candidate) = self.candidates.get_mut(address) {
            candidate.sent_bytes = candidate.sent_bytes.saturating_sub(unused_bytes);
        }
    }

    /// Forgets everything, as a restart does.
    pub(crate) fn clear(&mut self) {
        self.validated = Recent::new(MAX_VALIDATED);
        self.candidates = Recent::new(MAX_CANDIDATES);
    }
}

impl Candidate {
    /// Looks whether a call answers what was sent to its address.
    fn hear(&mut self, shape: &Shape) {
        match shape {
            Shape::Read { file, offset, end } => {
                let same_file = |it: &ShortRead| it.file == *file;
                if let Some(at) = self.short_reads.iter().position(|it| same_file(it) && it.next == *offset) {
                    self.bits += self.short_reads.swap_remove(at).bits;
                } else if self
                    .short_reads
                    .iter()
                    .any(|it| same_file(it) && it.offset != *offset && *offset < it.end && it.offset < *end)
                {
                    // A guess: nothing that was guessed before counts.
                    self.bits = 0;
                    self.short_reads.clear();
                }
            }
            Shape::Page { cookie, verifier } => {
                let [.., a, b, c, d] = *verifier;
                if *cookie != 0 && self.challenge != 0 && u32::from_be_bytes([a, b, c, d]) == self.challenge {
                    self.bits = ENOUGH_BITS;
                }
            }
            Shape::Other => {}
        }
    }

    /// Returns how many bytes of a READ are answered: all that have room, or a random part of them.
    fn shorten(
        &mut self,
        random: &mut ChaCha8Rng,
        file: FileHandle,
        range: std::ops::Range<u64>,
        room: u32,
    ) -> u32 {
        let count = range.end - range.start;
        if count <= room.into() {
            return room;
        }
        let again = |it: &ShortRead| it.file == file && it.offset == range.start;
        if let Some(at) = self.short_reads.iter().position(again) {
            // A retransmission is answered as before; a call with a shorter credential may have no room for that.
            let before = self.short_reads[at].next - range.start;
            if before <= room.into() {
                return before as u32;
            }
            self.short_reads.swap_remove(at);
        }
        if self.short_reads.len() == MAX_SHORT_READS {
            self.skipped += 1;
            if self.skipped == MAX_SKIPPED {
                self.skipped = 0;
                self.short_reads.clear();
            }
            return room;
        }
        let length = self.draw(random, room);
        let next = range.start + u64::from(length);
        let bits = room.checked_ilog2().unwrap_or(0);
        self.short_reads.push(ShortRead { file, offset: range.start, next, end: range.end, bits });
        length
    }

    /// Draws a length that no other short READ has: clients take one that comes twice for the server's limit.
    fn draw(&self, random: &mut ChaCha8Rng, room: u32) -> u32 {
        const ATTEMPTS: usize = 8;
        let mut length = room;
        for _ in 0..ATTEMPTS {
            length = (random.next_u64() % u64::from(room.max(1))) as u32 + 1;
            if self.short_reads.iter().all(|it| it.next - it.offset != u64::from(length)) {
                break;
            }
        }
        length.min(room)
    }
}

impl Shape {
    fn of(header: &CallHeader, arguments: Reader<'_>, transfer_bytes: u32) -> Self {
        let is_nfs = header.program == Program::NFS;
        let shape = match Procedure::from_number(header.procedure).filter(|_| is_nfs) {
            Some(Procedure::Read) => Self::read(arguments, transfer_bytes),
            Some(Procedure::Readdir | Procedure::Readdirplus) => Self::page(arguments),
            _ => None,
        };
        shape.unwrap_or(Self::Other)
    }

    fn read(mut arguments: Reader<'_>, transfer_bytes: u32) -> Option<Self> {
        let file = FileHandle::decode(&mut arguments).ok()?;
        let offset = arguments.u64("offset").ok()?;
        let count = arguments.u32("count").ok()?.min(transfer_bytes);
        let end = offset.checked_add(count.into())?;
        Some(Self::Read { file, offset, end })
    }

    fn page(mut arguments: Reader<'_>) -> Option<Self> {
        FileHandle::decode(&mut arguments).ok()?;
        let cookie = arguments.u64("cookie").ok()?;
        let verifier = arguments.u64("cookie verifier").ok()?.to_be_bytes();
        Some(Self::Page { cookie, verifier })
    }
}

/// A bounded map of addresses; the one that was entered first goes first.
#[derive(Debug)]
struct Recent<T> {
    entries: BTreeMap<IpAddr, T>,
    order: VecDeque<IpAddr>,
    most: usize,
}

impl<T: Default> Recent<T> {
    const fn new(most: usize) -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), most }
    }

    fn enter(&mut self, address: IpAddr) -> &mut T {
        if !self.entries.contains_key(&address) {
            if self.order.len() == self.most
                && let Some(first) = self.order.pop_front()
            {
                self.entries.remove(&first);
            }
            self.order.push_back(address);
        }
        self.entries.entry(address).or_default()
    }

    fn remove(&mut self, address: IpAddr) {
        if self.entries.remove(&address).is_some() {
            self.order.retain(|other| *other != address);
        }
    }

    fn get(&self, address: IpAddr) -> Option<&T> {
        self.entries.get(&address)
    }

    fn get_mut(&mut self, address: IpAddr) -> Option<&mut T> {
        self.entries.get_mut(&address)
    }
}

#[cfg(test)]
mod tests;
