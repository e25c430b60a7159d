//! Record marking: how RPC messages follow each other on a stream (RFC 5531 §11).

use thiserror::Error;

const LAST_FRAGMENT: u32 = 0x8000_0000;

/// Most fragments of one record; more is an attempt to keep us busy with empty ones.
const MAX_FRAGMENTS: u32 = 4096;

/// The stream is no sequence of RPC records any more; the connection must be closed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A record grows beyond the limit.
    #[error("record of more than {limit} bytes")]
    TooLong {
        /// The limit in force, in bytes.
        limit: u64,
    },
    /// A record consists of too many fragments.
    #[error("record of more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
}

/// Returns the mark of a record that is sent as one fragment of `length` bytes.
///
/// # Panics
/// If `length` needs more than 31 bits.
pub const fn mark(length: usize) -> [u8; 4] {
    assert!(length < LAST_FRAGMENT as usize, "a fragment has at most 2^31 - 1 bytes");
    (length as u32 | LAST_FRAGMENT).to_be_bytes()
}

/// A contiguous piece of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Bytes of the record, in order; may be empty.
    pub bytes: &'a [u8],
    /// Whether the record ends with these bytes.
    pub end: bool,
}

/// Takes the marks out of a stream and hands on the records' bytes where they lie.
#[derive(Clone, Debug)]
pub struct RecordReader {
    limit: u64,
    mark: [u8; 4],
    mark_bytes: usize,
    fragment_left: u32,
    last_fragment: bool,
    record_bytes: u64,
    fragments: u32,
}

impl RecordReader {
    /// Starts at the beginning of a record; records may have up to `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            mark: [0; 4],
            mark_bytes: 0,
            fragment_left: 0,
            last_fragment: false,
            record_bytes: 0,
            fragments: 0,
        }
    }

    /// Takes the next piece of at most `most` bytes off the front of `input`; `None` means: feed more input.
    ///
    /// # Errors
    /// [`RecordError`] when a limit is exceeded; the reader must not be used further.
    pub fn next<'a>(&mut self, input: &mut &'a [u8], most: usize) -> Result<Option<Chunk<'a>>, RecordError> {
        while self.fragment_left == 0 {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            self.mark[self.mark_bytes] = byte;
            self.mark_bytes += 1;
            *input = rest;
            if self.mark_bytes == 4 {
                self.start_fragment()?;
                if self.fragment_left == 0 && self.last_fragment {
                    self.start_record();
                    return Ok(Some(Chunk { bytes: &[], end: true }));
                }
            }
        }
        let length = input.len().min(most).min(self.fragment_left as usize);
        if length == 0 {
            return Ok(None);
        }
        let (bytes, rest) = input.split_at(length);
        *input = rest;
        self.fragment_left -= length as u32;
        let end = self.fragment_left == 0 && self.last_fragment;
        if end {
            self.start_record();
        }
        Ok(Some(Chunk { bytes, end }))
    }

    fn start_fragment(&mut self) -> Result<(), RecordError> {
        let mark = u32::from_be_bytes(self.mark);
        self.mark_bytes = 0;
        self.fragment_left = mark & !LAST_FRAGMENT;
        self.last_fragment = mark & LAST_FRAGMENT != 0;
        self.fragments += 1;
        self.record_bytes += u64::from(self.fragment_left);
        if self.record_bytes > self.limit {
            return Err(RecordError::TooLong { limit: self.limit });
        }
        if self.fragments > MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments);
        }
        Ok(())
    }

    const fn start_record(&mut self) {
        self.record_bytes = 0;
        self.fragments = 0;
        self.last_fragment = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(stream: &[u8], cuts: usize) -> Vec<Vec<u8>> {
        let mut reader = RecordReader::new(1 << 20);
        let (mut done, mut open) = (Vec::new(), Vec::new());
        for mut piece in stream.chunks(cuts) {
            while let Some(chunk) = reader.next(&mut piece, usize::MAX).unwrap() {
                open.extend_from_slice(chunk.bytes);
                if chunk.end {
                    done.push(std::mem::take(&mut open));
                }
            }
        }
        assert!(open.is_empty(), "the stream ends with a whole record");
        done
    }

    proptest! {
        #[test]
        fn records_survive_any_fragmentation_and_any_split(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
            fragment in 1_usize..64,
            cuts in 1_usize..64,
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                let mut pieces = message.chunks(fragment).peekable();
                if pieces.peek().is_none() {
                    stream.extend_from_slice(&mark(0));
                }
                while let Some(piece) = pieces.next() {
                    let last = if pieces.peek().is_none() { LAST_FRAGMENT } else { 0 };
                    stream.extend_from_slice(&(piece.len() as u32 | last).to_be_bytes());
                    stream.extend_from_slice(piece);
                }
            }
            prop_assert_eq!(records(&stream, cuts), messages);
        }
    }

    #[test]
    fn a_record_above_the_limit_is_refused_at_its_mark() {
        let mut reader = RecordReader::new(100);
        let mark = mark(101);
        assert_eq!(reader.next(&mut &mark[..], usize::MAX), Err(RecordError::TooLong { limit: 100 }));
    }

    #[test]
    fn every_record_may_be_as_long_and_as_divided_as_the_limits() {
        let mut reader = RecordReader::new(100);
        let mut stream = Vec::new();
        for _ in 0..3 {
            let empty = vec![0; 4 * (MAX_FRAGMENTS as usize - 1)];
            stream.extend([&empty[..], &mark(100), &[7; 100]].concat());
        }
        let mut input = &stream[..];
        for _ in 0..3 {
            let chunk = reader.next(&mut input, usize::MAX).unwrap().unwrap();
            assert_eq!(chunk, Chunk { bytes: &[7; 100], end: true });
        }
        assert_eq!(reader.next(&mut input, usize::MAX), Ok(None));
    }

    #[test]
    fn endless_empty_fragments_are_refused() {
        let mut reader = RecordReader::new(100);
        let stream = vec![0; 4 * (MAX_FRAGMENTS as usize + 1)];
        assert_eq!(reader.next(&mut &stream[..], usize::MAX), Err(RecordError::TooManyFragments));
    }
}
