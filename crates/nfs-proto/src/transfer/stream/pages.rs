//! The newest bytes that were written, kept until they are on stable storage.

use std::collections::BTreeMap;

use super::super::ranges::{Range, RangeSet};

/// Bytes of a page: what one byte alone costs.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Dirty pages: some bytes of a file, the last ones that were written to each place.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// By number, which is the offset divided by [`PAGE_BYTES`].
    pages: BTreeMap<u64, Box<[u8]>>,
    present: RangeSet,
}

impl Pages {
    /// Takes bytes in, over older ones. `offset + data.len()` is at most `u64::MAX`.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut rest = data;
        for (number, at, length) in parts(Range { start: offset, end }) {
            let (part, after) = rest.split_at(length);
            let page = self.pages.entry(number).or_insert_with(|| vec![0; PAGE_BYTES as usize].into());
            page[at..at + length].copy_from_slice(part);
            rest = after;
        }
        self.present.insert(Range { start: offset, end });
    }

    /// Copies bytes out, all of which are present.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let mut rest = buffer;
        for (number, at, length) in parts(Range { start: offset, end }) {
            let (part, after) = rest.split_at_mut(length);
            part.copy_from_slice(&self.pages[&number][at..at + length]);
            rest = after;
        }
    }

    /// Forgets bytes.
    pub(super) fn remove(&mut self, range: Range) {
        if range.start >= range.end {
            return;
        }
        self.present.remove(range);
        let numbers = range.start / PAGE_BYTES..=range.end / PAGE_BYTES;
        let is_empty = |number: u64| {
            let start = number * PAGE_BYTES;
            !self.present.overlaps(Range { start, end: start.saturating_add(PAGE_BYTES) })
        };
        let empty: Vec<_> =
            self.pages.range(numbers).map(|(&number, _)| number).filter(|&it| is_empty(it)).collect();
        for number in empty {
            self.pages.remove(&number);
        }
    }

    /// Returns the run of bytes that holds `offset`, or else the first one after it.
    pub(super) fn run(&self, offset: u64) -> Option<Range> {
        self.present.first_after(offset)
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES as usize
    }

    /// Returns the number of runs.
    pub(super) const fn fragments(&self) -> usize {
        self.present.count()
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }
}

/// Splits a range into page number, place in the page, and length.
fn parts(range: Range) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let at = start % PAGE_BYTES;
        let length = (PAGE_BYTES - at).min(range.end - start);
        let part = (start / PAGE_BYTES, at as usize, length as usize);
        start += length;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_hold_the_newest_bytes_and_no_others(
            operations in prop::collection::vec((any::<bool>(), 0_u64..5, 0_u64..5000, 0_usize..9000), 0..40),
            far in any::<bool>(),
        ) {
            // The last byte of all files has the offset u64::MAX - 1.
            let base = if far { u64::MAX - 30_000 } else { 0 };
            let mut pages = Pages::default();
            let mut model = vec![None; 30_000];
            for (number, (write, page, at, length)) in operations.into_iter().enumerate() {
                let start = page * PAGE_BYTES + at;
                let range = start as usize..(start as usize + length).min(model.len());
                if write {
                    let data: Vec<_> = range.clone().map(|index| (index + number) as u8).collect();
                    pages.write(base + start, &data);
                    model[range].copy_from_slice(&data.into_iter().map(Some).collect::<Vec<_>>());
                } else {
                    pages.remove(Range { start: base + range.start as u64, end: base + range.end as u64 });
                    model[range].fill(None);
                }
                let mut found = vec![None; model.len()];
                let mut offset = base;
                let mut runs = 0;
                while let Some(run) = pages.run(offset) {
                    let mut bytes = vec![0; run.length() as usize];
                    pages.read(run.start, &mut bytes);
                    let at = (run.start - base) as usize;
                    found[at..at + bytes.len()]
                        .copy_from_slice(&bytes.into_iter().map(Some).collect::<Vec<_>>());
                    (offset, runs) = (run.end, runs + 1);
                }
                prop_assert_eq!(&found, &model);
                prop_assert_eq!((pages.fragments(), pages.is_empty()), (runs, runs == 0));
                let used = (0..model.len() as u64)
                    .filter(|&it| model[it as usize].is_some())
                    .map(|it| (base + it) / PAGE_BYTES)
                    .collect::<std::collections::BTreeSet<_>>();
                prop_assert_eq!(pages.memory_bytes(), used.len() * PAGE_BYTES as usize);
            }
        }
    }
}
