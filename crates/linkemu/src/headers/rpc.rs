//! What the codec knows of RPC and NFS: where a header ends, what it belongs to, and which of its fields count up.
//!
//! Everything here is a guess about bytes that may be something else altogether: a wrong guess costs compression, never
//! correctness.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::packet::HEADER_BYTES;

/// The XID in a packet (RFC 5531 §9).
pub(super) const XID: usize = HEADER_BYTES;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const NFS: (u32, u32) = (100_003, 3);
const READ: u32 = 6;
const WRITE: u32 = 7;
/// Longest credential or verifier (RFC 5531 §8.2) and handle (RFC 1813 §2.4).
const MAX_AUTH: usize = 400;
const MAX_HANDLE: usize = 64;
const FATTR: usize = 84;
/// Words of the attributes before a change that WCC data hold (RFC 1813 §2.6).
const WCC_ATTR: usize = 24;

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes from the IP header to the last one before names and file data; a multiple of four.
    pub(super) length: usize,
    /// Addresses, ports, direction, program, procedure and `length`.
    pub(super) family: u64,
    /// The same and the file handle.
    pub(super) context: u64,
    /// An RPC call.
    pub(super) call: Option<Call>,
}

/// What a call says about its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    procedure: (u32, u32, u32),
    handle: u64,
}

/// A part of arguments or results.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// An opaque handle: length and bytes.
    Handle,
    /// The same, or nothing (`post_op_fh3`).
    PostOpHandle,
    /// Attributes, or nothing (`post_op_attr`).
    PostOpAttr,
    /// Attributes before and after, each or nothing (`wcc_data`).
    Wcc,
    /// So many bytes.
    Bytes(usize),
}
use Part::{Bytes, Handle, PostOpAttr, PostOpHandle, Wcc};

/// The fixed beginning of the arguments of an NFSv3 procedure (RFC 1813 §3.3), up to a name's length or the data's.
const fn arguments(procedure: u32) -> &'static [Part] {
    match procedure {
        0 => &[],
        // ACCESS, and those with a name.
        3 | 4 | 8..=14 => &[Handle, Bytes(4)],
        READ => &[Handle, Bytes(12)],
        WRITE => &[Handle, Bytes(20)],
        15 => &[Handle, Handle, Bytes(4)],
        16 => &[Handle, Bytes(20)],
        17 => &[Handle, Bytes(24)],
        21 => &[Handle, Bytes(12)],
        _ => &[Handle],
    }
}

/// The fixed beginning of its results, after a status of zero.
const fn results(procedure: u32) -> &'static [Part] {
    match procedure {
        1 => &[Bytes(FATTR)],
        2 | 12 | 13 => &[Wcc],
        3 => &[Handle, PostOpAttr, PostOpAttr],
        4 | 5 => &[PostOpAttr, Bytes(4)],
        READ => &[PostOpAttr, Bytes(12)],
        WRITE => &[Wcc, Bytes(16)],
        8..=11 => &[PostOpHandle, PostOpAttr, Wcc],
        14 => &[Wcc, Wcc],
        15 => &[PostOpAttr, Wcc],
        16 | 17 => &[PostOpAttr, Bytes(8)],
        18 => &[PostOpAttr, Bytes(52)],
        19 => &[PostOpAttr, Bytes(48)],
        20 => &[PostOpAttr, Bytes(24)],
        21 => &[Wcc, Bytes(8)],
        _ => &[],
    }
}

/// Reads the header of an IPv4 packet with a UDP datagram; `call` finds the call with a reply's XID. What is not RPC has
/// the 28 bytes of IP and UDP for a header.
pub(super) fn shape(packet: &[u8], call: impl FnOnce(u32) -> Option<Call>) -> Shape {
    let flow = &packet[12..24];
    let plain = || Shape {
        length: HEADER_BYTES,
        family: digest(&(flow, HEADER_BYTES)),
        context: digest(&(flow, HEADER_BYTES)),
        call: None,
    };
    let mut cursor = Cursor { bytes: packet, at: HEADER_BYTES };
    let (Some(xid), Some(direction)) = (cursor.word(), cursor.word()) else {
        return plain();
    };
    let read = match direction {
        CALL => read_call(&mut cursor).map(|call| (call, Some(call))),
        REPLY => call(xid).and_then(|call| read_reply(&mut cursor, call.procedure).map(|()| (call, None))),
        _ => None,
    };
    let Some((Call { procedure, handle }, call)) = read else {
        return plain();
    };
    let family = digest(&(flow, direction, procedure, cursor.at));
    Shape { length: cursor.at, family, context: digest(&(family, handle)), call }
}

fn read_call(cursor: &mut Cursor<'_>) -> Option<Call> {
    if cursor.word()? != RPC_VERSION {
        return None;
    }
    let procedure = (cursor.word()?, cursor.word()?, cursor.word()?);
    for _ in ["credential", "verifier"] {
        cursor.skip(4)?;
        cursor.opaque(MAX_AUTH)?;
    }
    let mut handle = 0;
    if (procedure.0, procedure.1) == NFS {
        let start = cursor.at;
        cursor.parts(arguments(procedure.2))?;
        let mut first = Cursor { bytes: cursor.bytes, at: start };
        if first.opaque(MAX_HANDLE).is_some() {
            handle = digest(&cursor.bytes[start..first.at]);
        }
    }
    Some(Call { procedure, handle })
}

fn read_reply(cursor: &mut Cursor<'_>, procedure: (u32, u32, u32)) -> Option<()> {
    // Accepted (0), a verifier, success (0).
    if cursor.word()? != 0 {
        return None;
    }
    cursor.skip(4)?;
    cursor.opaque(MAX_AUTH)?;
    let accepted = cursor.word()? == 0;
    if accepted && (procedure.0, procedure.1) == NFS && procedure.2 != 0 && cursor.word()? == 0 {
        cursor.parts(results(procedure.2))?;
    }
    Some(())
}

/// Where a header has fields that count up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    /// Whether there is an XID at [`XID`].
    pub(super) xid: bool,
    /// A file offset of eight bytes, and the length of the block, which follows it.
    pub(super) offset: Option<usize>,
}

/// Finds them in a header as [`shape`] cut it.
pub(super) fn counters(header: &[u8]) -> Counters {
    let mut cursor = Cursor { bytes: header, at: XID + 4 };
    let offset = (cursor.word() == Some(CALL))
        .then(|| read_call(&mut cursor))
        .flatten()
        .filter(|call| (call.procedure.0, call.procedure.1) == NFS)
        .and_then(|call| match call.procedure.2 {
            READ => Some(header.len() - 12),
            WRITE => Some(header.len() - 20),
            _ => None,
        });
    Counters { xid: header.len() > HEADER_BYTES, offset }
}

/// Reads XDR (RFC 4506).
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        let end = self.at + bytes;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    fn word(&mut self) -> Option<u32> {
        let word = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(u32::from_be_bytes(word.try_into().ok()?))
    }

    /// A length and so many bytes, at most `most`, padded to a multiple of four.
    fn opaque(&mut self, most: usize) -> Option<()> {
        let length = usize::try_from(self.word()?).ok().filter(|&length| length <= most)?;
        self.skip(length.next_multiple_of(4))
    }

    fn optional(&mut self, bytes: usize) -> Option<()> {
        match self.word()? {
            0 => Some(()),
            1 => self.skip(bytes),
            _ => None,
        }
    }

    fn parts(&mut self, parts: &[Part]) -> Option<()> {
        for &part in parts {
            match part {
                Handle => self.opaque(MAX_HANDLE)?,
                PostOpHandle => match self.word()? {
                    0 => {}
                    _ => self.opaque(MAX_HANDLE)?,
                },
                PostOpAttr => self.optional(FATTR)?,
                Wcc => {
                    self.optional(WCC_ATTR)?;
                    self.optional(FATTR)?;
                }
                Bytes(bytes) => self.skip(bytes)?,
            }
        }
        Some(())
    }
}

/// The same on every machine: the keys of this hasher are fixed.
fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
