//! The contents of a file in memory: sparse, and with an older, committed state to fall back to.

use std::{collections::BTreeMap, ops::Range};

/// Bytes in a page; a page in memory ends at its last byte written that is not zero, or later.
const PAGE_BYTES: u64 = 64 * 1024;

/// Whether a write is to survive a crash at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    Volatile,
    Durable,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: BTreeMap<u64, Vec<u8>>,
    /// What the pages were that have changed since they were last committed; `None`: there was none.
    undo: BTreeMap<u64, Option<Vec<u8>>>,
    size: u64,
    committed_size: u64,
    page_bytes: u64,
    undo_bytes: u64,
}

impl Pages {
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the current contents that are in memory.
    pub(super) const fn used_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Bytes in memory, the committed state included.
    pub(super) const fn held_bytes(&self) -> u64 {
        self.page_bytes + self.undo_bytes
    }

    /// How many more bytes a write may take at most.
    pub(super) fn growth(&self, offset: u64, length: usize) -> u64 {
        spans(offset, length)
            .map(|span| {
                let held = self.pages.get(&span.page).map_or(0, Vec::len) as u64;
                let copied = if self.undo.contains_key(&span.page) { 0 } else { held };
                copied + (span.within.end as u64).saturating_sub(held)
            })
            .sum()
    }

    /// Writes all of `data`; the caller has checked that the end does not overflow.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], durability: Durability) {
        for span in spans(offset, data.len()) {
            let before = self.pages.get(&span.page);
            match durability {
                Durability::Volatile => {
                    self.undo.entry(span.page).or_insert_with(|| {
                        self.undo_bytes += before.map_or(0, Vec::len) as u64;
                        before.cloned()
                    });
                }
                Durability::Durable => {
                    let undone = self.undo.remove(&span.page).flatten();
                    self.undo_bytes -= undone.map_or(0, |page| page.len() as u64);
                }
            }
            let page = self.pages.entry(span.page).or_default();
            let (within, source) = (span.within, &data[span.source]);
            // Zeros after the page's end are there already.
            let kept = source.iter().rposition(|byte| *byte != 0).map_or(0, |last| within.start + last + 1);
            let end = kept.max(page.len().min(within.end));
            if page.len() < end {
                self.page_bytes += (end - page.len()) as u64;
                page.resize(end, 0);
            }
            if within.start < end {
                page[within.start..end].copy_from_slice(&source[..end - within.start]);
            }
        }
        let end = offset + data.len() as u64;
        if !data.is_empty() {
            self.size = self.size.max(end);
            if durability == Durability::Durable {
                self.committed_size = self.committed_size.max(end);
            }
        }
    }

    /// Appends what lies at `offset`, at most `count` bytes, to `buffer`.
    pub(super) fn read(&self, offset: u64, count: u32, buffer: &mut Vec<u8>) {
        let count = u64::from(count).min(self.size.saturating_sub(offset));
        let count = usize::try_from(count).expect("a count of 32 bits");
        buffer.reserve(count);
        for span in spans(offset, count) {
            let end = buffer.len() + span.source.len();
            let page = self.pages.get(&span.page).map_or(&[][..], Vec::as_slice);
            let there = span.within.start.min(page.len())..span.within.end.min(page.len());
            buffer.extend_from_slice(&page[there]);
            buffer.resize(end, 0);
        }
    }

    /// Cuts or extends the file, for good.
    pub(super) fn set_size(&mut self, size: u64) {
        let boundary = size / PAGE_BYTES;
        let within = (size % PAGE_BYTES) as usize;
        self.pages.split_off(&(boundary + 1));
        self.undo.split_off(&(boundary + 1));
        if let Some(page) = self.pages.get_mut(&boundary) {
            page.truncate(within);
        }
        if let Some(Some(page)) = self.undo.get_mut(&boundary) {
            page.truncate(within);
        }
        self.size = size;
        self.committed_size = size;
        self.recount();
    }

    /// Makes the pages that touch `range` durable.
    pub(super) fn commit(&mut self, range: Range<u64>) {
        let mut kept = self.undo.split_off(&(range.start / PAGE_BYTES));
        let beyond = kept.split_off(&range.end.div_ceil(PAGE_BYTES));
        self.undo.extend(beyond);
        self.committed_size = self.committed_size.max(self.size.min(range.end));
        self.recount();
    }

    /// Goes back to what was committed.
    pub(super) fn crash(&mut self) {
        for (number, page) in std::mem::take(&mut self.undo) {
            match page {
                Some(page) => self.pages.insert(number, page),
                None => self.pages.remove(&number),
            };
        }
        self.set_size(self.committed_size);
    }

    fn recount(&mut self) {
        self.page_bytes = self.pages.values().map(|page| page.len() as u64).sum();
        self.undo_bytes = self.undo.values().flatten().map(|page| page.len() as u64).sum();
    }
}

/// The part of a range that lies in one page.
struct Span {
    page: u64,
    within: Range<usize>,
    source: Range<usize>,
}

fn spans(offset: u64, length: usize) -> impl Iterator<Item = Span> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = offset + done as u64;
        let start = (position % PAGE_BYTES) as usize;
        let taken = (PAGE_BYTES as usize - start).min(length - done);
        let source = done..done + taken;
        done += taken;
        Some(Span { page: position / PAGE_BYTES, within: start..start + taken, source })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(pages: &Pages) -> Vec<u8> {
        let mut buffer = Vec::new();
        pages.read(0, u32::MAX, &mut buffer);
        buffer
    }

    #[test]
    fn a_hole_takes_no_memory_and_reads_as_zeros() {
        let mut pages = Pages::default();
        pages.write(5 << 30, b"end", Durability::Volatile);
        assert_eq!(pages.size(), (5 << 30) + 3);
        assert!(pages.held_bytes() <= PAGE_BYTES);
        let mut buffer = Vec::new();
        pages.read((5 << 30) - 4, 100, &mut buffer);
        assert_eq!(buffer, b"\0\0\0\0end");
        pages.set_size(1 << 50);
        pages.set_size(0);
        assert_eq!(pages.held_bytes(), 0);
    }

    #[test]
    fn zeros_take_no_memory_either() {
        let mut pages = Pages::default();
        pages.write(0, &vec![0; 10 << 20], Durability::Volatile);
        assert_eq!((pages.size(), pages.held_bytes()), (10 << 20, 0));
        pages.write(5, b"text", Durability::Volatile);
        pages.write(6, &[0; 20], Durability::Volatile);
        assert_eq!(contents(&pages)[..10], *b"\0\0\0\0\0t\0\0\0\0");
    }

    #[test]
    fn a_crash_loses_the_volatile_and_nothing_else() {
        let mut pages = Pages::default();
        pages.write(0, b"durable", Durability::Durable);
        pages.write(3, b"LOST, and longer", Durability::Volatile);
        pages.crash();
        assert_eq!(contents(&pages), b"durable");
        pages.write(3, b"KEPT", Durability::Volatile);
        pages.commit(0..u64::MAX);
        pages.crash();
        assert_eq!(contents(&pages), b"durKEPT");
    }

    #[test]
    fn a_commit_covers_its_range_only() {
        let mut pages = Pages::default();
        pages.write(0, b"first", Durability::Volatile);
        pages.write(PAGE_BYTES, b"second", Durability::Volatile);
        pages.commit(PAGE_BYTES..PAGE_BYTES + 6);
        pages.crash();
        let mut expected = vec![0; PAGE_BYTES as usize];
        expected.extend_from_slice(b"second");
        assert_eq!(contents(&pages), expected);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        SetSize(u64),
        CommitAll,
        Crash,
    }

    fn step() -> impl Strategy<Value = Step> {
        let offset = 0..3 * PAGE_BYTES;
        prop_oneof![
            4 => (offset.clone(), prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..300))
                .prop_map(|(offset, data)| Step::Write(offset, data)),
            1 => offset.prop_map(Step::SetSize),
            1 => Just(Step::CommitAll),
            1 => Just(Step::Crash),
        ]
    }

    fn apply(contents: &mut Vec<u8>, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        if !data.is_empty() {
            contents.resize(contents.len().max(end), 0);
            contents[offset as usize..end].copy_from_slice(data);
        }
    }

    proptest! {
        #[test]
        fn pages_agree_with_two_plain_vectors(steps in prop::collection::vec(step(), 0..40)) {
            let mut pages = Pages::default();
            let (mut current, mut committed) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Write(offset, data) => {
                        let growth = pages.growth(offset, data.len());
                        let held = pages.held_bytes();
                        pages.write(offset, &data, Durability::Volatile);
                        prop_assert!(pages.held_bytes() <= held + growth);
                        apply(&mut current, offset, &data);
                    }
                    Step::SetSize(size) => {
                        pages.set_size(size);
                        current.resize(size as usize, 0);
                        committed.resize(size as usize, 0);
                    }
                    Step::CommitAll => {
                        pages.commit(0..u64::MAX);
                        committed.clone_from(&current);
                    }
                    Step::Crash => {
                        pages.crash();
                        current.clone_from(&committed);
                    }
                }
                prop_assert_eq!(contents(&pages), &current[..]);
            }
        }
    }
}
