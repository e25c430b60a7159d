//! Sets of byte ranges.

/// Bytes `start..end` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl Range {
    /// Returns the number of bytes.
    pub const fn length(self) -> u64 {
        self.end - self.start
    }
}

/// Disjoint ranges in ascending order; neighbours are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range>,
}

impl RangeSet {
    /// Starts with nothing.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Adds a range, unless it is empty; what of it is in the set already stays.
    pub fn insert(&mut self, range: Range) {
        if range.start >= range.end {
            return;
        }
        let first = self.ranges.partition_point(|other| other.end < range.start);
        let beyond = self.ranges.partition_point(|other| other.start <= range.end);
        let mut joined = range;
        if let Some(touched) = self.ranges.get(first..beyond).filter(|touched| !touched.is_empty()) {
            joined.start = joined.start.min(touched[0].start);
            joined.end = joined.end.max(touched[touched.len() - 1].end);
        }
        self.ranges.splice(first..beyond, [joined]);
    }

    /// Takes up to `most` bytes off the lowest range.
    pub fn take(&mut self, most: u64) -> Option<Range> {
        let first = self.ranges.first_mut()?;
        let taken = Range { start: first.start, end: first.end.min(first.start + most) };
        first.start = taken.end;
        if first.start == first.end {
            self.ranges.remove(0);
        }
        Some(taken)
    }

    /// Takes up to `most` bytes off the lowest range, and the ranges after it that are whole within that, where each counts as `least` bytes
    /// at least.
    pub(crate) fn take_several(&mut self, most: u64, least: u64) -> Self {
        let Some(first) = self.take(most) else { return Self::default() };
        let mut bytes = first.length().max(least);
        let fits = |range: &&Range| {
            bytes += range.length().max(least);
            bytes <= most
        };
        let count = self.ranges.iter().take_while(fits).count();
        let ranges = std::iter::once(first).chain(self.ranges.drain(..count)).collect::<Vec<_>>();
        Self { ranges }
    }

    /// Returns what of this set is not in another one.
    pub(crate) fn without(&self, other: &Self) -> Self {
        Self { ranges: self.iter().flat_map(|range| other.gaps(range).ranges).collect() }
    }

    /// Returns how many bytes of a range are in the set.
    pub(crate) fn bytes_in(&self, range: Range) -> u64 {
        let overlapping = self.ranges.get(self.overlapping(range)).unwrap_or_default();
        overlapping.iter().map(|other| other.end.min(range.end) - other.start.max(range.start)).sum()
    }

    /// Returns which ranges have bytes of a range.
    fn overlapping(&self, range: Range) -> std::ops::Range<usize> {
        let first = self.ranges.partition_point(|other| other.end <= range.start);
        let beyond = self.ranges.partition_point(|other| other.start < range.end);
        first..beyond
    }

    /// Takes a range out of the set, as far as it is in it.
    pub(crate) fn remove(&mut self, range: Range) {
        if range.start >= range.end {
            return;
        }
        let overlapping = self.overlapping(range);
        let Some(touched) = self.ranges.get(overlapping.clone()).filter(|touched| !touched.is_empty()) else {
            return;
        };
        let before = Range { start: touched[0].start, end: range.start };
        let after = Range { start: range.end, end: touched[touched.len() - 1].end };
        let kept = [before, after].into_iter().filter(|rest| rest.start < rest.end);
        self.ranges.splice(overlapping, kept);
    }

    /// Moves everything into `other`.
    pub(super) fn drain_into(&mut self, other: &mut Self) {
        for range in self.ranges.drain(..) {
            other.insert(range);
        }
    }

    /// Returns the bytes of a file of `size` bytes that are not in the set.
    pub fn missing(&self, size: u64) -> Self {
        self.gaps(Range { start: 0, end: size })
    }

    /// Returns the bytes of `range` that are not in the set.
    pub fn gaps(&self, range: Range) -> Self {
        let (mut gaps, mut start) = (Vec::new(), range.start);
        for other in self.ranges.get(self.overlapping(range)).unwrap_or_default() {
            if start < other.start {
                gaps.push(Range { start, end: other.start });
            }
            start = other.end;
        }
        if start < range.end {
            gaps.push(Range { start, end: range.end });
        }
        Self { ranges: gaps }
    }

    /// Returns the part of the set below `size`.
    pub fn below(&self, size: u64) -> Self {
        let mut below = Self::default();
        for range in self.iter() {
            below.insert(Range { end: range.end.min(size), ..range });
        }
        below
    }

    /// Returns the ranges in ascending order, neither overlapping nor touching.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.ranges.iter().copied()
    }

    /// Returns the first range of the set that ends after `offset`.
    pub(crate) fn first_after(&self, offset: u64) -> Option<Range> {
        self.ranges.get(self.ranges.partition_point(|range| range.end <= offset)).copied()
    }

    /// Whether any byte of a range is in the set.
    pub(crate) fn overlaps(&self, range: Range) -> bool {
        range.start < range.end && self.first_after(range.start).is_some_and(|first| first.start < range.end)
    }

    /// Returns the number of ranges.
    pub(crate) const fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the offset after the last byte in the set.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// Whether there is nothing in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.length()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_set_is_a_set_of_bytes(
            operations in prop::collection::vec((0..3, 0_u64..60, 0_u64..20), 0..60),
        ) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (operation, start, length) in operations {
                let range = Range { start, end: start + length };
                prop_assert_eq!(set.overlaps(range), model.range(start..range.end).next().is_some());
                let first = set.first_after(start);
                prop_assert_eq!(first.map(|it| it.start.max(start)), model.range(start..).next().copied());
                prop_assert!(first.is_none_or(|first| set.iter().any(|it| it == first)));
                if operation == 0 {
                    set.insert(range);
                    model.extend(start..range.end);
                } else if operation == 1 {
                    set.remove(range);
                    model.retain(|byte| !(start..range.end).contains(byte));
                } else if let Some(range) = set.take(length + 1) {
                    prop_assert_eq!(Some(&range.start), model.iter().next());
                    for byte in range.start..range.end {
                        prop_assert!(model.remove(&byte));
                    }
                }
                prop_assert_eq!(set.bytes(), model.len() as u64);
                prop_assert_eq!(set.count(), set.iter().count());
                prop_assert!(set.iter().all(|range| range.start < range.end));
                prop_assert!(set.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(set.is_empty(), model.is_empty());
                let bytes = |set: &RangeSet| set.iter().flat_map(|it| it.start..it.end).collect::<BTreeSet<_>>();
                prop_assert_eq!(&bytes(&set), &model);
                prop_assert_eq!(set.end(), model.last().map_or(0, |last| last + 1));
                prop_assert_eq!(bytes(&set.missing(40)), (0..40).filter(|byte| !model.contains(byte)).collect());
                let gaps = set.gaps(Range { start: 15, end: 40 });
                prop_assert_eq!(bytes(&gaps), (15..40).filter(|byte| !model.contains(byte)).collect());
                prop_assert_eq!(set.bytes_in(Range { start: 15, end: 40 }), 25 - gaps.bytes());
                let middle = RangeSet::new().gaps(Range { start: 15, end: 40 });
                prop_assert_eq!(&middle.without(&set), &gaps);
                let outside = model.iter().copied().filter(|byte| !(15..40).contains(byte)).collect();
                prop_assert_eq!(bytes(&set.without(&middle)), outside);
                let mut rest = set.clone();
                let taken = rest.take_several(20, 3);
                let counted: u64 = taken.iter().map(|range| range.length().max(3)).sum();
                let next = rest.iter().next().map_or(u64::MAX - 20, |range| range.length().max(3));
                prop_assert!(counted <= 20 && counted + next > 20);
                prop_assert!(taken.end() <= rest.iter().next().map_or(u64::MAX, |first| first.start));
                let mut both = taken;
                rest.drain_into(&mut both);
                prop_assert_eq!(&both, &set);
                prop_assert_eq!(bytes(&set.below(40)), model.range(..40).copied().collect());
                let (mut source, mut union) = (set.clone(), RangeSet::default());
                union.insert(Range { start: 10, end: 25 });
                source.drain_into(&mut union);
                prop_assert!(source.is_empty());
                prop_assert_eq!(bytes(&union), model.iter().copied().chain(10..25).collect());
            }
        }
    }
}
