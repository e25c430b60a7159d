//! What was read ahead, and what is still to be.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    super::ranges::{Range, RangeSet},
    StreamTuning,
    pages::Pages,
};

/// The bytes after the reader, as far as they were asked for. Chunks do not overlap.
#[derive(Debug)]
pub(super) struct ReadAhead<E> {
    /// By offset.
    chunks: BTreeMap<u64, Chunk<E>>,
    /// Bytes to be asked for ahead of the reader.
    window: u64,
}

#[derive(Debug)]
enum Chunk<E> {
    /// A READ is in flight.
    Asked {
        part: u32,
        count: u32,
        /// Bytes behind it were forgotten meanwhile, so that the file may end later than the reply
        /// says.
        end_is_in_doubt: bool,
    },
    Here {
        data: Bytes,
        /// The file ends after them.
        end: bool,
    },
    Failed {
        count: u32,
        error: E,
    },
}

/// What there is for a reader.
#[derive(Debug)]
pub(super) enum Ahead<'a, E> {
    /// The next bytes, at least one.
    Data(&'a [u8]),
    /// The file has no further bytes on the server.
    End,
    /// Nothing yet.
    Wait,
    /// READ failed here.
    Failed(&'a E),
}

impl<E> ReadAhead<E> {
    /// Starts with nothing; the first reader is taken for one that reads the whole file.
    pub(super) const fn new(tuning: &StreamTuning) -> Self {
        Self { chunks: BTreeMap::new(), window: tuning.read_ahead_bytes }
    }

    /// Forgets everything; what is in flight is not wanted any more.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
    }

    /// Forgets everything, as the reader has gone somewhere else: it has to read on there before
    /// much is read ahead.
    pub(super) fn restart(&mut self, tuning: &StreamTuning) {
        self.clear();
        self.window = tuning.read_ahead_after_seek_bytes.min(tuning.read_ahead_bytes);
    }

    /// Forgets what is behind the reader. A reader that goes on gets more ahead.
    pub(super) fn advance(&mut self, position: u64, tuning: &StreamTuning) {
        while let Some(first) = self.chunks.first_entry()
            && first.get().reach(*first.key()) <= position
        {
            first.remove();
            self.window = self.window.saturating_mul(2).min(tuning.read_ahead_bytes);
        }
    }

    /// Returns what there is at a position.
    pub(super) fn at(&self, position: u64) -> Ahead<'_, E> {
        match self.covering(position) {
            None | Some((_, Chunk::Asked { .. })) => Ahead::Wait,
            Some((_, Chunk::Failed { error, .. })) => Ahead::Failed(error),
            Some((offset, Chunk::Here { data, .. })) => match data.get((position - offset) as usize..) {
                Some(rest) if !rest.is_empty() => Ahead::Data(rest),
                _ => Ahead::End,
            },
        }
    }

    /// Returns the first range within the window that is neither in `pages` nor asked for, at most
    /// one block.
    pub(super) fn gap(
        &self,
        position: u64,
        pages: &Pages,
        block: u32,
        tuning: &StreamTuning,
    ) -> Option<Range> {
        // What the reader needs first is asked for in any case.
        let is_full = self.chunks.len() >= tuning.read_ahead_chunks;
        let end = position.saturating_add(if is_full { 1 } else { self.window });
        let mut at = position;
        while at < end {
            if let Some(run) = pages.run(at).filter(|run| run.start <= at) {
                at = run.end;
            } else if let Some((offset, chunk)) = self.covering(at) {
                if !chunk.goes_on() {
                    return None;
                }
                at = chunk.reach(offset);
            } else {
                let next = self.chunks.range(at..).next().map_or(u64::MAX, |(&offset, _)| offset);
                return Some(Range { start: at, end: next.min(at.saturating_add(block.into())) });
            }
        }
        None
    }

    /// Records a READ that is sent; `count` bytes at `offset` are a gap.
    pub(super) fn ask(&mut self, part: u32, offset: u64, count: u32) {
        self.chunks.insert(offset, Chunk::Asked { part, count, end_is_in_doubt: false });
    }

    /// Whether the reply to a READ at this offset is still wanted.
    pub(super) fn wants(&self, part: u32, offset: u64) -> bool {
        matches!(self.chunks.get(&offset), Some(Chunk::Asked { part: asked, .. }) if *asked == part)
    }

    /// Takes in the results of a READ that is wanted.
    pub(super) fn receive(&mut self, offset: u64, data: Bytes, end: bool) {
        let in_doubt = matches!(self.chunks.get(&offset), Some(Chunk::Asked { end_is_in_doubt: true, .. }));
        let end = end && !in_doubt;
        if data.is_empty() && !end {
            self.chunks.remove(&offset);
        } else {
            self.chunks.insert(offset, Chunk::Here { data, end });
        }
    }

    /// Records that a READ that is wanted has failed.
    pub(super) fn fail(&mut self, offset: u64, error: E) {
        if let Some(Chunk::Asked { count, .. }) = self.chunks.get(&offset) {
            let count = *count;
            self.chunks.insert(offset, Chunk::Failed { count, error });
        }
    }

    /// Records that pages are forgotten which hid what the server had: what was asked for before
    /// may be older.
    pub(super) fn outdate(&mut self, forgotten: &RangeSet) {
        self.chunks.retain(|&offset, chunk| match chunk {
            Chunk::Failed { .. } => true,
            Chunk::Asked { count, end_is_in_doubt, .. } => {
                let asked = Range { start: offset, end: offset.saturating_add((*count).into()) };
                *end_is_in_doubt |= forgotten.end() > offset;
                !forgotten.overlaps(asked)
            }
            Chunk::Here { data, end } => {
                let reach = offset + data.len() as u64;
                *end &= forgotten.end() <= reach;
                !forgotten.overlaps(Range { start: offset, end: reach }) && (*end || !data.is_empty())
            }
        });
    }

    fn covering(&self, position: u64) -> Option<(u64, &Chunk<E>)> {
        let (&offset, chunk) = self.chunks.range(..=position).next_back()?;
        (chunk.reach(offset) > position).then_some((offset, chunk))
    }
}

impl<E> Chunk<E> {
    /// Offset after the last byte that this chunk knows or will know.
    fn reach(&self, offset: u64) -> u64 {
        match self {
            Self::Asked { count, .. } | Self::Failed { count, .. } => offset.saturating_add((*count).into()),
            Self::Here { end: true, .. } => u64::MAX,
            Self::Here { data, end: false } => offset + data.len() as u64,
        }
    }

    /// Whether there is something to be read behind it.
    const fn goes_on(&self) -> bool {
        match self {
            Self::Asked { .. } | Self::Here { end: false, .. } => true,
            Self::Failed { .. } | Self::Here { end: true, .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader finds at an offset.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Found {
        Bytes(usize),
        End,
        Wait,
        Failed,
    }
    use Found::{Bytes as Data, End, Failed, Wait};

    fn at(read_ahead: &ReadAhead<()>, position: u64) -> Found {
        match read_ahead.at(position) {
            Ahead::Data(data) => Data(data.len()),
            Ahead::End => End,
            Ahead::Wait => Wait,
            Ahead::Failed(()) => Failed,
        }
    }

    /// A READ of 50 bytes at offset 100 is in flight.
    fn asked() -> ReadAhead<()> {
        let mut read_ahead = ReadAhead::new(&StreamTuning::default());
        read_ahead.ask(1, 100, 50);
        read_ahead
    }

    fn received(bytes: usize, end: bool) -> ReadAhead<()> {
        let mut read_ahead = asked();
        read_ahead.receive(100, vec![7; bytes].into(), end);
        read_ahead
    }

    fn forgotten(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::default();
        ranges.iter().for_each(|&(start, end)| set.insert(Range { start, end }));
        set
    }

    #[test]
    fn what_a_read_brought_is_there_from_its_first_to_its_last_byte() {
        let found = |read_ahead: &ReadAhead<()>| [99, 100, 149, 150, u64::MAX].map(|it| at(read_ahead, it));
        assert_eq!(found(&asked()), [Wait; 5]);
        assert_eq!(found(&received(50, false)), [Wait, Data(50), Data(1), Wait, Wait]);
        assert_eq!(found(&received(49, false)), [Wait, Data(49), Wait, Wait, Wait]);
        assert_eq!(found(&received(50, true))[..4], [Wait, Data(50), Data(1), End]);
        assert_eq!(found(&received(0, true))[..4], [Wait, End, End, End]);
        assert_eq!(found(&received(0, false)), [Wait; 5]);
        let mut failed = asked();
        failed.fail(100, ());
        assert_eq!(found(&failed), [Wait, Failed, Failed, Wait, Wait]);
        // There is a READ for every byte but those that are not known.
        let gap = |read_ahead: &ReadAhead<()>| {
            read_ahead.gap(100, &Pages::default(), 20, &StreamTuning::default()).map(|gap| gap.start)
        };
        let gaps = [asked(), received(50, false), received(49, false), received(0, false)].map(|it| gap(&it));
        assert_eq!(gaps, [Some(150), Some(150), Some(149), Some(100)]);
        assert_eq!([received(50, true), received(0, true), failed].map(|it| gap(&it)), [None; 3]);
    }

    #[test]
    fn what_may_be_older_than_forgotten_pages_is_read_again() {
        // What is forgotten, and what is at offsets 100 and 150 afterwards: for a READ in flight whose reply has 50
        // bytes and the end of the file, for such a reply that came before, and for one without bytes.
        let table: [(&[(u64, u64)], _, _, _); 6] = [
            (&[], [Data(50), End], [Data(50), End], End),
            (&[(0, 100)], [Data(50), End], [Data(50), End], End),
            (&[(0, 101)], [Wait, Wait], [Wait, Wait], Wait),
            (&[(149, 150)], [Wait, Wait], [Wait, Wait], Wait),
            (&[(150, 151)], [Data(50), Wait], [Data(50), Wait], Wait),
            (&[(0, 100), (150, 151)], [Data(50), Wait], [Data(50), Wait], Wait),
        ];
        for (ranges, in_flight, complete, empty) in table {
            let forgotten = forgotten(ranges);
            let mut read_ahead = asked();
            read_ahead.outdate(&forgotten);
            assert_eq!(read_ahead.wants(1, 100), in_flight[0] != Wait, "{ranges:?}");
            if read_ahead.wants(1, 100) {
                read_ahead.receive(100, vec![7; 50].into(), true);
            }
            assert_eq!([100, 150].map(|it| at(&read_ahead, it)), in_flight, "{ranges:?}");
            let mut read_ahead = received(50, true);
            read_ahead.outdate(&forgotten);
            assert_eq!([100, 150].map(|it| at(&read_ahead, it)), complete, "{ranges:?}");
            let mut read_ahead = received(0, true);
            read_ahead.outdate(&forgotten);
            assert_eq!(at(&read_ahead, 100), empty, "{ranges:?}");
            // Bytes in the middle of a file have no end to doubt, and an error is no older than what follows.
            let mut read_ahead = received(50, false);
            read_ahead.outdate(&forgotten);
            assert_eq!(at(&read_ahead, 100), complete[0], "{ranges:?}");
            let mut read_ahead = asked();
            read_ahead.fail(100, ());
            read_ahead.outdate(&forgotten);
            assert_eq!(at(&read_ahead, 100), Failed, "{ranges:?}");
        }
    }

    #[test]
    fn only_the_latest_read_of_an_offset_is_wanted() {
        let mut read_ahead = asked();
        assert!(read_ahead.wants(1, 100) && !read_ahead.wants(2, 100) && !read_ahead.wants(1, 101));
        read_ahead.ask(2, 100, 50);
        assert!(!read_ahead.wants(1, 100) && read_ahead.wants(2, 100));
        read_ahead.receive(100, vec![7; 50].into(), false);
        assert!(!read_ahead.wants(2, 100));
        read_ahead.fail(100, ());
        assert_eq!(at(&read_ahead, 100), Data(50), "it did not fail");
    }
}
