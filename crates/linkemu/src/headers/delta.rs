//! A header as its difference from another one that both ends remember.
//!
//! Counting fields are predicted: XID and IP identification grow together by n, a file offset by n blocks. An XID that does not count is
//! given as it is, and n is by how much the identification grows. What differs from the prediction is listed word by word.

use super::rpc::{self, XID};
use crate::packet::HEADER_BYTES;

/// The IP identification does not follow the XID: its difference is given.
pub(super) const IDENTIFICATION: u8 = 0x40;
/// The offset does not follow the XID: the difference in blocks is given.
pub(super) const OFFSET: u8 = 0x20;
/// Other words differ: they are listed.
pub(super) const WORDS: u8 = 0x10;
/// The XID does not count: it is given.
pub(super) const GIVEN_XID: u8 = 0x04;

/// XIDs that differ by more steps do not count: their difference would take as many bytes as they do.
const MOST_STEPS: u32 = 1 << 20;

/// IP identification (RFC 791 §3.1).
const IP_ID: usize = 4;
/// Unchanged words that one entry of the list can skip; this many, and more follow.
const FAR: usize = 15;
/// How a word of the list is given: in so many bytes as a difference from the prediction, four being the word itself; or with the
/// difference of the word listed before; or with the value of the word two before it, as ctime and mtime often are.
const RAW: u8 = 4;
const SAME_DIFFERENCE: u8 = 5;
const TWO_BEFORE: u8 = 6;

/// Fields of lengths and checksums, which follow from the rest of a packet or are carried apart: zero here.
pub(super) fn blank(header: &[u8]) -> Vec<u8> {
    let mut image = header.to_vec();
    for field in [2..4, 10..12, 24..28] {
        image[field].fill(0);
    }
    image
}

/// Writes the difference of two blank headers of one length; returns the flags that say what was written.
pub(super) fn encode(base: &[u8], header: &[u8], out: &mut Vec<u8>) -> u8 {
    let counters = rpc::counters(base);
    let mut flags = 0;
    let identification = half(header, IP_ID).wrapping_sub(half(base, IP_ID));
    let xid = counters.xid.then(|| word(header, XID));
    let counted = xid.map(|xid| xid.wrapping_sub(word(base, XID)) as i32);
    let counted = counted.filter(|steps| steps.unsigned_abs() <= MOST_STEPS);
    let steps = counted.unwrap_or_else(|| i32::from(identification as i16));
    put_signed(out, i64::from(steps));
    let given = xid.filter(|_| counted.is_none());
    if let Some(xid) = given {
        flags |= GIVEN_XID;
        out.extend_from_slice(&xid.to_be_bytes());
    }
    let drift = identification.wrapping_sub(steps as u16) as i16;
    if drift != 0 {
        flags |= IDENTIFICATION;
        put_signed(out, i64::from(drift));
    }
    let mut blocks = 0;
    if let Some(at) = counters.offset {
        let block = i64::from(word(base, at + 8));
        let moved = long(header, at).wrapping_sub(long(base, at)) as i64;
        if block > 0 && moved.checked_rem(block) == Some(0) {
            blocks = moved / block - i64::from(steps);
        }
        // What has too many bits for a number is listed as words.
        if blocks.unsigned_abs() >= 1 << 61 {
            blocks = 0;
        }
        if blocks != 0 {
            flags |= OFFSET;
            put_signed(out, blocks);
        }
    }
    let predicted = predict(base, given, steps, drift, blocks);
    if encode_words(&predicted, header, out) {
        flags |= WORDS;
    }
    flags
}

/// Reads a difference; returns the blank header, and the bytes after the difference. `None` if it makes no sense.
pub(super) fn decode<'a>(base: &[u8], flags: u8, bytes: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
    let mut rest = bytes;
    let steps = i32::try_from(take_signed(&mut rest)?).ok()?;
    let given = match flags & GIVEN_XID {
        0 => None,
        _ => Some(word(take(&mut rest, 4)?, 0)),
    };
    let drift = match flags & IDENTIFICATION {
        0 => 0,
        _ => i16::try_from(take_signed(&mut rest)?).ok()?,
    };
    let blocks = match flags & OFFSET {
        0 => 0,
        _ => take_signed(&mut rest)?,
    };
    let mut header = predict(base, given, steps, drift, blocks);
    if flags & WORDS != 0 {
        decode_words(&mut header, &mut rest)?;
    }
    Some((header, rest))
}

fn predict(base: &[u8], given: Option<u32>, steps: i32, drift: i16, blocks: i64) -> Vec<u8> {
    let counters = rpc::counters(base);
    let mut header = base.to_vec();
    let identification = half(base, IP_ID).wrapping_add(steps as u16).wrapping_add(drift as u16);
    header[IP_ID..IP_ID + 2].copy_from_slice(&identification.to_be_bytes());
    if counters.xid {
        let xid = given.unwrap_or_else(|| word(base, XID).wrapping_add(steps as u32));
        header[XID..XID + 4].copy_from_slice(&xid.to_be_bytes());
    }
    if let Some(at) = counters.offset {
        let block = i64::from(word(base, at + 8));
        let moved = block.wrapping_mul(blocks.wrapping_add(i64::from(steps)));
        let offset = long(base, at).wrapping_add(moved as u64);
        header[at..at + 8].copy_from_slice(&offset.to_be_bytes());
    }
    header
}

/// Lists the words that differ; false if there are none.
fn encode_words(predicted: &[u8], header: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut skipped, mut difference, mut any) = (0, None, false);
    for at in (0..header.len()).step_by(4) {
        let (expected, value) = (word(predicted, at), word(header, at));
        if expected == value {
            skipped += 1;
            continue;
        }
        any = true;
        while skipped >= FAR {
            out.push((FAR as u8) << 4);
            skipped -= FAR;
        }
        let change = value.wrapping_sub(expected) as i32;
        let (code, bytes) = if difference == Some(change) {
            (SAME_DIFFERENCE, 0)
        } else if at >= 8 && word(header, at - 8) == value {
            (TWO_BEFORE, 0)
        } else {
            match (1..RAW).find(|&bytes| change.unsigned_abs() < 1 << (8 * bytes - 1)) {
                Some(bytes) => (bytes, usize::from(bytes)),
                None => (RAW, 4),
            }
        };
        out.push((skipped as u8) << 4 | code);
        let given = if code == RAW { value } else { change as u32 };
        out.extend_from_slice(&given.to_be_bytes()[4 - bytes..]);
        (skipped, difference) = (0, Some(change));
    }
    if any {
        out.push(0);
    }
    any
}

fn decode_words(header: &mut [u8], rest: &mut &[u8]) -> Option<()> {
    let (mut at, mut difference) = (0, 0_u32);
    loop {
        let entry = take(rest, 1)?[0];
        let (skipped, code) = (usize::from(entry >> 4), entry & 15);
        if entry == 0 {
            return Some(());
        }
        at += 4 * skipped;
        if code == 0 {
            if skipped != FAR {
                return None;
            }
            continue;
        }
        let expected = header.get(at..at + 4).map(|_| word(header, at))?;
        let value = match code {
            RAW => word(take(rest, 4)?, 0),
            SAME_DIFFERENCE => expected.wrapping_add(difference),
            TWO_BEFORE if at >= 8 => word(header, at - 8),
            1..RAW => {
                let bytes = usize::from(code);
                let given =
                    take(rest, bytes)?.iter().fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
                let unused = 32 - 8 * bytes as u32;
                expected.wrapping_add((((given << unused) as i32) >> unused) as u32)
            }
            _ => return None,
        };
        difference = value.wrapping_sub(expected);
        header[at..at + 4].copy_from_slice(&value.to_be_bytes());
        at += 4;
    }
}

/// Seven bits a byte, low ones first; the sign is the lowest bit.
fn put_signed(out: &mut Vec<u8>, value: i64) {
    let mut left = (value << 1 ^ value >> 63) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn take_signed(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(4), "words of all layers are aligned");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_difference_reads_back(
            base in prop::collection::vec(any::<u8>(), 28..200),
            changes in prop::collection::vec((0..200_usize, any::<u8>()), 0..40),
            tail in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let base = blank(&base[..base.len() / 4 * 4]);
            let mut header = base.clone();
            for (at, byte) in changes {
                let at = at % header.len();
                header[at] = byte;
            }
            let header = blank(&header);
            let mut bytes = Vec::new();
            let flags = encode(&base, &header, &mut bytes);
            bytes.extend_from_slice(&tail);
            prop_assert_eq!(decode(&base, flags, &bytes), Some((header, &tail[..])));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            base in prop::collection::vec(any::<u8>(), 28..200),
            flags: u8,
            bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let base = blank(&base[..base.len() / 4 * 4]);
            if let Some((header, rest)) = decode(&base, flags, &bytes) {
                prop_assert!(header.len() == base.len() && rest.len() < bytes.len());
            }
        }

        #[test]
        fn numbers_read_back(value in -(1_i64 << 61)..1 << 61) {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, value);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_signed(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }
    }
}
