//! What of a file has been copied: a small file that survives the end of a run at any moment.
//!
//! A journal has two slots, written in turn; the valid one with the higher number counts, so that a write that was cut
//! short leaves the other. Whatever is in the file, reading it gives a state that makes sense or none.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    time::{SystemTime, UNIX_EPOCH},
};

use nfs_wireless_client::{Range, RangeSet};

use crate::local::Key;

/// What a file is known by: the same file with the same contents has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// File system and file.
    pub file: (u64, u64),
    /// In bytes.
    pub size: u64,
    /// Last change of the contents, in nanoseconds since 1970.
    pub modified: i128,
    /// Last change of contents or attributes.
    pub changed: i128,
}

impl Identity {
    /// Returns the fields in their order, little-endian.
    pub fn to_bytes(self) -> Vec<u8> {
        let Self { file, size, modified, changed } = self;
        let numbers = [file.0, file.1, size].map(u64::to_le_bytes);
        let times = [modified, changed].map(i128::to_le_bytes);
        [numbers.as_flattened(), times.as_flattened()].concat()
    }
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The file that is copied.
    pub source: Identity,
    /// The unfinished copy.
    pub target: [u64; 4],
    /// Copied for good.
    pub solid: RangeSet,
    /// What `tentative` depends on.
    pub token: [u8; 16],
    /// Copied, for as long as the token stays what it is.
    pub tentative: RangeSet,
}

/// The file that keeps a [`State`].
#[derive(Debug)]
pub struct Journal {
    file: File,
    key: Key,
    /// Number of the last state written.
    number: u64,
}

/// Bytes of a slot.
const SLOT: usize = 32 << 10;

/// Bytes of a journal.
pub const LENGTH: u64 = 2 * SLOT as u64;

/// What a slot begins with; the last byte is the version of the format.
const MAGIC: [u8; 8] = *b"nfswjrn\x02";

/// Bytes of what shows that this user has written a slot.
const SEAL: usize = 16;

/// Ranges in a state at most. Those above the limit are forgotten, which costs their bytes and nothing else.
const MAX_RANGES: usize = (SLOT - 256) / 16;

impl Journal {
    /// Takes an open file as a journal, and returns the state in it, if there is one that was sealed with this key.
    ///
    /// # Errors
    /// What reading the file fails of.
    pub fn open(file: File, key: Key) -> io::Result<(Self, Option<State>)> {
        let mut newest: Option<(u64, State)> = None;
        for slot in 0..2 {
            let mut bytes = Vec::with_capacity(SLOT);
            read_slot(&file, slot, &mut bytes)?;
            if let Some((number, state)) = State::decode(&bytes, key)
                && newest.as_ref().is_none_or(|(other, _)| *other < number)
            {
                newest = Some((number, state));
            }
        }
        let number = newest.as_ref().map_or(0, |(number, _)| *number);
        Ok((Self { file, key, number }, newest.map(|(_, state)| state)))
    }

    /// Returns the file that it is in.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Puts a state in the place of the last but one.
    ///
    /// # Errors
    /// What writing the file fails of; the last state then still stands.
    pub fn write(&mut self, state: &State) -> io::Result<()> {
        let number = self.number.wrapping_add(1);
        self.file.write_all_at(&state.encode(number, self.key), number % 2 * SLOT as u64)?;
        self.number = number;
        Ok(())
    }
}

fn read_slot(file: &File, slot: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.resize(SLOT, 0);
    let mut filled = 0;
    while filled < SLOT {
        match file.read_at(&mut bytes[filled..], slot * SLOT as u64 + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(())
}

impl State {
    fn encode(&self, number: u64, key: Key) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&self.source.to_bytes());
        for field in self.target {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.token);
        let solid: Vec<Range> = self.solid.iter().take(MAX_RANGES).collect();
        let tentative: Vec<Range> = self.tentative.iter().take(MAX_RANGES - solid.len()).collect();
        for ranges in [solid, tentative] {
            out.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
            for Range { start, end } in ranges {
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(&end.to_le_bytes());
            }
        }
        out.extend_from_slice(&seal_of(&out, key));
        out
    }

    /// Reads a slot; `None` when it holds no state of this version, whole and unharmed.
    fn decode(slot: &[u8], key: Key) -> Option<(u64, Self)> {
        let mut rest = slot;
        if take::<8>(&mut rest)? != MAGIC {
            return None;
        }
        let number = u64::from_le_bytes(take(&mut rest)?);
        let file = (number_of(&mut rest)?, number_of(&mut rest)?);
        let size = number_of(&mut rest)?;
        let modified = i128::from_le_bytes(take(&mut rest)?);
        let changed = i128::from_le_bytes(take(&mut rest)?);
        let mut target = [0; 4];
        for field in &mut target {
            *field = number_of(&mut rest)?;
        }
        let token = take(&mut rest)?;
        let solid = ranges(&mut rest, size)?;
        let tentative = ranges(&mut rest, size)?;
        let length = slot.len() - rest.len();
        let sealed = take::<SEAL>(&mut rest)?;
        let source = Identity { file, size, modified, changed };
        (sealed == seal_of(&slot[..length], key))
            .then_some((number, Self { source, target, solid, token, tentative }))
    }
}

/// Returns what shows that a slot was written by who has the key, and is whole.
fn seal_of(slot: &[u8], key: Key) -> [u8; SEAL] {
    let hash = blake3::keyed_hash(&key.0, slot);
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

/// Takes bytes from the beginning.
pub fn take<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn number_of(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

/// Reads ranges, which must lie within a file of `size` bytes.
fn ranges(rest: &mut &[u8], size: u64) -> Option<RangeSet> {
    let count = number_of(rest)?;
    let mut set = RangeSet::new();
    for _ in 0..count {
        let (start, end) = (number_of(rest)?, number_of(rest)?);
        if start >= end || end > size {
            return None;
        }
        set.insert(Range { start, end });
    }
    Some(set)
}

/// Returns a slot with these contents whose beginning and seal are right.
pub fn sealed(contents: &[u8], key: Key) -> Vec<u8> {
    let mut slot = [&MAGIC[..], contents].concat();
    slot.extend_from_slice(&seal_of(&slot, key));
    slot
}

/// Returns contents with what they begin with, which names the format and its version, and their checksum.
pub fn seal(magic: [u8; 8], contents: &[u8]) -> Vec<u8> {
    let mut sealed = [&magic[..], contents].concat();
    sealed.extend_from_slice(&checksum(&[&sealed]));
    sealed
}

/// Returns what ends a sealed file whose bytes before that are these pieces.
pub fn checksum(pieces: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize().to_le_bytes()
}

/// Returns the contents of what [`seal`] has made, if it is whole and of this format.
pub fn unseal(magic: [u8; 8], sealed: &[u8]) -> Option<&[u8]> {
    let (contents, end) = sealed.split_last_chunk()?;
    let is_whole = checksum(&[contents]) == *end;
    contents.strip_prefix(&magic[..]).filter(|_| is_whole)
}

/// Returns a time in nanoseconds since 1970.
pub fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(error) => -(error.duration().as_nanos() as i128),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: Key = Key([7; 32]);

    fn state(solid: &[(u64, u64)], tentative: &[(u64, u64)]) -> State {
        let set = |ranges: &[(u64, u64)]| {
            let mut set = RangeSet::new();
            ranges.iter().for_each(|&(start, length)| set.insert(Range { start, end: start + length }));
            set
        };
        let source =
            Identity { file: (3, 4), size: u64::MAX / 2, modified: -5, changed: i128::from(u64::MAX) };
        let (solid, tentative) = (set(solid), set(tentative));
        State { source, target: [5, 6, 7, 8], solid, token: [9; 16], tentative }
    }

    fn reopened(journal: &Journal) -> Option<State> {
        Journal::open(journal.file.try_clone().unwrap(), KEY).unwrap().1
    }

    #[test]
    fn the_last_whole_state_counts() {
        let (mut journal, found) = Journal::open(tempfile::tempfile().unwrap(), KEY).unwrap();
        assert_eq!(found, None);
        let (first, second) = (state(&[(0, 5)], &[]), state(&[(0, 50)], &[(60, 5)]));
        journal.write(&first).unwrap();
        assert_eq!(reopened(&journal), Some(first.clone()));
        journal.write(&second).unwrap();
        assert_eq!(reopened(&journal), Some(second));
        // The second state is in the first slot; a write over it that was cut short leaves the first.
        journal.file.write_all_at(&[0; 20], 10).unwrap();
        assert_eq!(reopened(&journal), Some(first));
        journal.file.set_len(3).unwrap();
        assert_eq!(reopened(&journal), None);
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_an_error() {
        let directory = File::open(std::env::temp_dir()).unwrap();
        assert_eq!(Journal::open(directory, KEY).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_journal_of_somebody_else_is_none() {
        let file = tempfile::tempfile().unwrap();
        let (mut journal, _) = Journal::open(file.try_clone().unwrap(), Key([8; 32])).unwrap();
        journal.write(&state(&[(0, 5)], &[])).unwrap();
        assert_eq!(Journal::open(file, KEY).unwrap().1, None);
    }

    #[test]
    fn the_slots_take_turns() {
        let (mut journal, _) = Journal::open(tempfile::tempfile().unwrap(), KEY).unwrap();
        for end in 1..=5 {
            let state = state(&[(0, end)], &[]);
            journal.write(&state).unwrap();
            assert_eq!(reopened(&journal), Some(state));
        }
    }

    #[test]
    fn more_ranges_than_fit_are_forgotten() {
        let (mut journal, _) = Journal::open(tempfile::tempfile().unwrap(), KEY).unwrap();
        let many: Vec<_> = (0..10_000).map(|index| (index * 10, 5)).collect();
        for _ in 0..2 {
            journal.write(&state(&many, &many)).unwrap();
        }
        let found = reopened(&journal).unwrap();
        assert_eq!(found.solid.bytes(), MAX_RANGES as u64 * 5);
        assert!(found.tentative.is_empty());
        assert!(journal.file.metadata().unwrap().len() <= 2 * SLOT as u64);
    }

    proptest! {
        #[test]
        fn a_state_survives_the_file(
            solid in prop::collection::vec((0_u64..1 << 40, 1_u64..1 << 20), 0..50),
            tentative in prop::collection::vec((0_u64..1 << 40, 1_u64..1 << 20), 0..50),
            number: u64,
        ) {
            let state = state(&solid, &tentative);
            let slot = state.encode(number, KEY);
            prop_assert_eq!(&sealed(&slot[MAGIC.len()..slot.len() - SEAL], KEY), &slot);
            prop_assert_eq!(State::decode(&slot, KEY), Some((number, state)));
        }

        #[test]
        fn damage_is_noticed(flip in 0_usize..8 * 200, cut in 0_usize..200) {
            let bytes = state(&[(0, 5), (10, 5)], &[(20, 5)]).encode(7, KEY);
            let mut damaged = bytes.clone();
            damaged[flip / 8 % bytes.len()] ^= 1 << (flip % 8);
            prop_assert_eq!(State::decode(&damaged, KEY), None);
            prop_assert_eq!(State::decode(&bytes[..cut.min(bytes.len() - 1)], KEY), None);
        }

        #[test]
        fn a_hostile_journal_is_a_state_that_makes_sense_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..600), fields in prop::collection::vec(any::<u64>(), 0..60),
        ) {
            prop_assert_eq!(State::decode(&bytes, KEY), None);
            // With everything right but the contents.
            let bytes = sealed(&fields.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>(), KEY);
            if let Some((_, state)) = State::decode(&bytes, KEY) {
                prop_assert!(state.solid.end().max(state.tentative.end()) <= state.source.size);
            }
        }
    }
}
