//! Contents that say whose they are: blocks with file, version, place and a check of all of it.

use std::fmt;

/// Size of a block. Sizes of files are multiples of it.
pub(crate) const BLOCK: usize = 512;

/// Whose a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    pub(crate) file: u64,
    pub(crate) version: u64,
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.version)
    }
}

/// Numbers that look random (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) const fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A block: its label and place, and bytes that follow from these.
fn block(label: Label, place: u64) -> Vec<u8> {
    let mut random = Random(label.file << 48 ^ label.version << 24 ^ place);
    let head = [label.file, label.version, place];
    let words = head.into_iter().chain(std::iter::repeat_with(|| random.next()));
    words.take(BLOCK / 8).flat_map(u64::to_le_bytes).collect()
}

/// Blocks of a version, from one place to another.
pub(crate) fn contents(label: Label, places: std::ops::Range<u64>) -> Vec<u8> {
    places.flat_map(|place| block(label, place)).collect()
}

/// Whose bytes are that were read at a multiple of the size of blocks: all labels of one descriptor should be one.
///
/// # Errors
/// What is wrong: they belong to another place, or to nothing.
pub(crate) fn check(bytes: &[u8], offset: u64) -> Result<Vec<Label>, String> {
    let mut all = Vec::new();
    for (place, read) in (offset / BLOCK as u64..).zip(bytes.chunks(BLOCK)) {
        if read.len() < BLOCK {
            return Err(format!("a torn block at {place}"));
        }
        let word = |at: usize| u64::from_le_bytes(read[at * 8..][..8].try_into().expect("eight bytes"));
        let (label, said) = (Label { file: word(0), version: word(1) }, word(2));
        if read != block(label, place) {
            return Err(format!("block {place} says {label} at {said}, and is not that"));
        }
        if all.last() != Some(&label) {
            all.push(label);
        }
    }
    Ok(all)
}

#[test]
fn whose_a_block_is_can_be_seen_and_what_is_damaged_too() {
    let [old, new] = [1, 2].map(|version| contents(Label { file: 7, version }, 0..8));
    assert_eq!(check(&new[BLOCK..], BLOCK as u64), Ok(vec![Label { file: 7, version: 2 }]));
    assert_eq!(check(&[&old[..BLOCK], &new[BLOCK..]].concat(), 0).unwrap().len(), 2);
    assert!(check(&new, BLOCK as u64).is_err());
    assert!(check(&new[..BLOCK - 1], 0).is_err());
    assert!(check(&[0; BLOCK], 0).is_err());
    let mut damaged = new;
    damaged[BLOCK + 300] ^= 1;
    assert!(check(&damaged, 0).is_err());
}
