//! Fragments that share an identification, for links where it wraps (RFC 791 §3.2, RFC 4963).

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::{
    ReassemblyConfig, Station,
    fragment::{Frame, UDP_HEADER_BYTES, fragment_bytes},
    units::{Nanos, nanos},
};

/// Fragments that wait for the missing ones, at all destinations.
///
/// Bounded in bytes and time; the oldest datagram goes first. A fragment whose place is taken is dropped, as Linux does.
#[derive(Debug)]
pub(crate) struct Reassembly {
    timeout: Nanos,
    most_bytes: u64,
    fragment_bytes: u32,
    bytes: u64,
    partials: BTreeMap<Key, Partial>,
    /// Keys by arrival of their first fragment, with the number of the partial: stale entries are skipped.
    ages: VecDeque<(Nanos, Key, u64)>,
    next_number: u64,
    identifications: BTreeMap<(Station, Station), u32>,
}

type Key = (Station, Station, u16);

#[derive(Debug)]
struct Partial {
    number: u64,
    pieces: Vec<Option<Piece>>,
    missing: usize,
    bytes: u64,
}

/// A fragment at its destination.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The frame that brought it, which names its datagram.
    pub(crate) frame: Frame,
    /// The payload of that datagram.
    pub(crate) payload: Bytes,
}

/// What a fragment led to.
#[derive(Debug)]
pub(crate) enum Joined {
    /// Others are missing.
    Waiting,
    /// The place of this fragment was taken by an older datagram.
    PlaceTaken,
    /// The datagram is whole.
    Whole,
    /// A datagram is complete, but from pieces of several.
    Spliced(Vec<Piece>),
}

impl Reassembly {
    pub(crate) fn new(config: &ReassemblyConfig, mtu_bytes: u32) -> Self {
        Self {
            timeout: nanos(config.timeout),
            most_bytes: config.memory_bytes,
            fragment_bytes: fragment_bytes(mtu_bytes),
            bytes: 0,
            partials: BTreeMap::new(),
            ages: VecDeque::new(),
            next_number: 0,
            identifications: BTreeMap::new(),
        }
    }

    /// The identification of the next datagram of this pair.
    pub(crate) fn identify(&mut self, from: Station, to: Station, values: u32) -> u16 {
        let next = self.identifications.entry((from, to)).or_insert(0);
        let identification = *next as u16;
        *next = (*next + 1) % values;
        identification
    }

    /// A fragment of a datagram of `count` fragments arrives.
    pub(crate) fn arrive(&mut self, now: Nanos, key: Key, count: usize, piece: Piece) -> Joined {
        self.expire(now);
        if count == 1 {
            return Joined::Whole;
        }
        let (datagram, index, bytes) =
            (piece.frame.datagram, usize::from(piece.frame.index), u64::from(piece.frame.bytes));
        let number = self.next_number;
        let partial = self.partials.entry(key).or_insert_with(|| {
            self.next_number += 1;
            self.ages.push_back((now, key, number));
            Partial { number, pieces: vec![None; count], missing: count, bytes: 0 }
        });
        match partial.pieces.get_mut(index) {
            Some(place @ None) => *place = Some(piece),
            Some(Some(_)) | None => return Joined::PlaceTaken,
        }
        partial.missing -= 1;
        partial.bytes += bytes;
        self.bytes += bytes;
        if partial.missing > 0 {
            self.shrink();
            return Joined::Waiting;
        }
        let Some(partial) = self.partials.remove(&key) else {
            return Joined::Waiting;
        };
        self.bytes -= partial.bytes;
        let pieces: Vec<Piece> = partial.pieces.into_iter().flatten().collect();
        if pieces.iter().all(|piece| piece.frame.datagram == datagram) {
            return Joined::Whole;
        }
        Joined::Spliced(pieces)
    }

    /// The payload that these pieces make together, and whether its UDP length and checksum agree with the first one's
    /// header (RFC 768).
    pub(crate) fn splice(&self, pieces: &[Piece]) -> (Bytes, bool) {
        let each = self.fragment_bytes as usize;
        let header = UDP_HEADER_BYTES as usize;
        let mut joined = BytesMut::new();
        for piece in pieces {
            let start = usize::from(piece.frame.index) * each;
            let end = (start + each).saturating_sub(header).min(piece.payload.len());
            joined.extend_from_slice(&piece.payload[start.saturating_sub(header).min(end)..end]);
        }
        let agrees = pieces
            .first()
            .is_some_and(|first| first.payload.len() == joined.len() && sum(&first.payload) == sum(&joined));
        (joined.freeze(), agrees)
    }

    fn expire(&mut self, now: Nanos) {
        while let Some(&(born, key, number)) = self.ages.front() {
            let live = self.partials.get(&key).is_some_and(|partial| partial.number == number);
            if live && now < born.saturating_add(self.timeout) {
                return;
            }
            self.ages.pop_front();
            if live {
                self.remove(&key);
            }
        }
    }

    fn shrink(&mut self) {
        while self.bytes > self.most_bytes {
            let Some((_, key, number)) = self.ages.pop_front() else {
                return;
            };
            if self.partials.get(&key).is_some_and(|partial| partial.number == number) {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(partial) = self.partials.remove(key) {
            self.bytes -= partial.bytes;
        }
    }
}

/// The one's complement sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let total: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low)))
        .sum();
    let mut folded = total;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    // In one's complement 0 and 0xffff are the same number.
    if folded == 0xffff { 0 } else { folded as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (Station::Host(0), Station::Mobile(0), 7);

    fn reassembly(timeout_ms: u64, memory_bytes: u64) -> Reassembly {
        let config = ReassemblyConfig {
            timeout: std::time::Duration::from_millis(timeout_ms),
            memory_bytes,
            ..ReassemblyConfig::default()
        };
        Reassembly::new(&config, 1500)
    }

    fn piece(datagram: u64, index: u16, fill: u8) -> Piece {
        let frame = Frame {
            datagram,
            slot: 0,
            index,
            end: 0,
            bytes: 1518,
            air_bytes: 1518,
            queued: 0,
            first_air: 0,
            attempts: 1,
        };
        Piece { frame, payload: Bytes::from(vec![fill; 2000]) }
    }

    #[test]
    fn a_fragment_of_a_later_datagram_completes_an_older_one() {
        let mut reassembly = reassembly(30_000, 1 << 20);
        assert!(matches!(reassembly.arrive(0, KEY, 2, piece(1, 0, 1)), Joined::Waiting));
        assert!(matches!(reassembly.arrive(5, KEY, 2, piece(2, 0, 2)), Joined::PlaceTaken));
        let Joined::Spliced(pieces) = reassembly.arrive(6, KEY, 2, piece(2, 1, 2)) else {
            panic!("the second fragment fills the hole");
        };
        let (bytes, agrees) = reassembly.splice(&pieces);
        assert_eq!(bytes.len(), 2000);
        assert_eq!((bytes[1471], bytes[1472]), (1, 2));
        assert!(!agrees);
    }

    #[test]
    fn a_splice_of_equal_bytes_passes_the_checksum() {
        let mut reassembly = reassembly(30_000, 1 << 20);
        reassembly.arrive(0, KEY, 2, piece(1, 0, 9));
        let Joined::Spliced(pieces) = reassembly.arrive(6, KEY, 2, piece(2, 1, 9)) else {
            panic!("the second fragment fills the hole");
        };
        assert!(reassembly.splice(&pieces).1);
    }

    #[test]
    fn fragments_are_forgotten_after_the_timeout_and_beyond_the_memory() {
        let mut late = reassembly(1, 1 << 20);
        late.arrive(0, KEY, 2, piece(1, 0, 1));
        assert!(matches!(late.arrive(1_000_000, KEY, 2, piece(2, 1, 2)), Joined::Waiting));

        let mut small = reassembly(30_000, 3000);
        small.arrive(0, KEY, 2, piece(1, 0, 1));
        let other = (KEY.0, KEY.1, 8);
        small.arrive(0, other, 2, piece(2, 0, 1));
        assert!(matches!(small.arrive(0, KEY, 2, piece(1, 1, 1)), Joined::Waiting), "the oldest was dropped");
    }
}
