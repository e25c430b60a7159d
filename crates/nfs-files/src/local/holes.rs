//! Holes of local files: where a file has only zeros and nothing on the disk.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use nfs_wireless_client::{Range, RangeSet, Sink};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

/// When zeros become holes (`cp --sparse`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// Where the source has holes.
    #[default]
    Auto,
    /// Wherever the source has zeros.
    Always,
    /// Nowhere.
    Never,
}

/// Shorter holes are copied as zeros: to divide WRITEs at them costs more than it saves.
const MIN_HOLE_BYTES: u64 = 32 << 10;

/// Holes of one file that are kept track of; those behind are copied as zeros.
const MAX_HOLES: usize = 1 << 14;

/// Zeros are looked for in pieces of this size, the block of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// Bytes that are read at once to look for zeros.
const SCAN_BYTES: usize = 1 << 20;

/// Returns the ranges of the first `size` bytes of a file that need not be copied because a new file has zeros there.
///
/// # Errors
/// What reading the file fails of, where it is searched for zeros.
pub fn holes(file: &File, size: u64, sparse: Sparse) -> io::Result<RangeSet> {
    match sparse {
        Sparse::Never => Ok(RangeSet::new()),
        // A file system that does not tell where its holes are is read as if there were none.
        Sparse::Auto => Ok(told(file, size).unwrap_or_default()),
        Sparse::Always => zeros(file, size),
    }
}

/// Asks the file system.
fn told(file: &File, size: u64) -> rustix::io::Result<RangeSet> {
    let mut holes = Holes::default();
    let mut offset = 0;
    while offset < size && holes.has_room() {
        let data = match seek(file, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => size,
            other => other?.min(size),
        };
        holes.add(Range { start: offset, end: data });
        if data >= size {
            break;
        }
        let hole = seek(file, SeekFrom::Hole(data))?;
        if hole <= data {
            // It does not tell the truth, and would be asked for ever.
            break;
        }
        offset = hole;
    }
    Ok(holes.found)
}

/// Reads the file.
fn zeros(file: &File, size: u64) -> io::Result<RangeSet> {
    let mut holes = Holes::default();
    let mut buffer = vec![0; SCAN_BYTES];
    let (mut offset, mut hole) = (0, Range { start: 0, end: 0 });
    while offset < size && holes.has_room() {
        let length = usize::try_from(size - offset).unwrap_or(usize::MAX).min(SCAN_BYTES);
        let bytes = &mut buffer[..length];
        file.read_exact_at(bytes, offset)?;
        for run in runs(offset, bytes) {
            if run.is_zero {
                hole.end = run.range.end;
            } else {
                holes.add(hole);
                hole = Range { start: run.range.end, end: run.range.end };
            }
        }
        offset += length as u64;
    }
    holes.add(hole);
    Ok(holes.found)
}

#[derive(Default)]
struct Holes {
    found: RangeSet,
    count: usize,
}

impl Holes {
    fn add(&mut self, hole: Range) {
        if hole.start + MIN_HOLE_BYTES <= hole.end && self.has_room() {
            self.found.insert(hole);
            self.count += 1;
        }
    }

    const fn has_room(&self) -> bool {
        self.count < MAX_HOLES
    }
}

/// Bytes of a file that are all zero, or belong to blocks that are not.
struct Extent {
    range: Range,
    is_zero: bool,
}

/// Divides bytes that begin at `offset` into runs of zeros and of others, at the blocks of the file.
fn runs(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Extent> + '_ {
    let mut rest = bytes;
    let mut at = offset;
    let mut next = move || {
        let aligned = usize::try_from(BLOCK_BYTES - at % BLOCK_BYTES).expect("at most one block");
        let (block, behind) = rest.split_at(aligned.min(rest.len()));
        let range = Range { start: at, end: at + block.len() as u64 };
        (rest, at) = (behind, range.end);
        (!block.is_empty()).then(|| Extent { range, is_zero: block.iter().all(|&byte| byte == 0) })
    };
    let mut ahead = next();
    std::iter::from_fn(move || {
        let mut run = ahead.take()?;
        ahead = next();
        while let Some(more) = ahead.take_if(|more| more.is_zero == run.is_zero) {
            run.range.end = more.range.end;
            ahead = next();
        }
        Some(run)
    })
}

/// Writes a local file, and leaves out zeros where it is known to have zeros already.
#[derive(Debug)]
pub struct Writer {
    file: Arc<File>,
    skips_zeros: bool,
}

impl Writer {
    /// Writes everything.
    pub const fn new(file: Arc<File>) -> Self {
        Self { file, skips_zeros: false }
    }

    /// Leaves out zeros. Makes the file `size` bytes long, and its `missing` ranges, which are to be written, zeros. A file
    /// system that cannot do this gets the zeros.
    ///
    /// # Errors
    /// What looking at the file fails of.
    pub fn sparse(file: Arc<File>, missing: &RangeSet, size: u64) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let is_punched = missing.below(length).iter().try_for_each(|range| punch(&file, range)).is_ok();
        let skips_zeros = is_punched && file.set_len(size).is_ok();
        Ok(Self { file, skips_zeros })
    }
}

/// Makes a range of a file zeros that take no place.
#[cfg(linux)]
fn punch(file: &File, range: Range) -> rustix::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};

    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, range.start, range.end - range.start)
}

/// Refuses: only what is beyond the end of a file becomes a hole.
#[cfg(not(linux))]
const fn punch(_: &File, _: Range) -> rustix::io::Result<()> {
    Err(Errno::NOTSUP)
}

impl Sink for Writer {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.skips_zeros {
            return self.file.write_all_at(bytes, offset);
        }
        for Extent { range, .. } in runs(offset, bytes).filter(|run| !run.is_zero) {
            let part = |at: u64| usize::try_from(at - offset).expect("within the bytes");
            self.file.write_all_at(&bytes[part(range.start)..part(range.end)], range.start)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn sparse_file(data: &[(u64, u64)], size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        for &(start, length) in data {
            file.write_all_at(&vec![7; length as usize], start).unwrap();
        }
        file.set_len(size).unwrap();
        file
    }

    fn found(file: &File, sparse: Sparse) -> Vec<(u64, u64)> {
        let size = file.metadata().unwrap().len();
        holes(file, size, sparse).unwrap().iter().map(|hole| (hole.start / KIB, hole.end / KIB)).collect()
    }

    #[test]
    fn holes_are_found_where_the_file_system_or_the_zeros_say_so() {
        let file =
            sparse_file(&[(64 * KIB, 4 * KIB), (84 * KIB, 8 * KIB), (2048 * KIB, 4 * KIB)], 4096 * KIB);
        // Between 68 and 84 KiB it is shorter than is worth it.
        let expected = [(0, 64), (92, 2048), (2052, 4096)];
        assert_eq!(found(&file, Sparse::Auto), expected);
        assert_eq!(found(&file, Sparse::Always), expected);
        assert_eq!(found(&file, Sparse::Never), []);
        assert_eq!(found(&sparse_file(&[], 512 * KIB), Sparse::Auto), [(0, 512)]);
        assert_eq!(found(&sparse_file(&[], 0), Sparse::Always), []);
        // Zeros that were written are no holes.
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[0; 256 << 10], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(found(&file, Sparse::Auto), []);
        assert_eq!(found(&file, Sparse::Always), [(0, 256)]);
    }

    #[test]
    fn what_an_earlier_run_has_left_in_a_hole_is_gone() {
        let file = sparse_file(&[(0, 256 * KIB)], 256 * KIB);
        let mut had = RangeSet::new();
        had.insert(Range { start: 0, end: 64 * KIB });
        let mut writer =
            Writer::sparse(file.try_clone().unwrap().into(), &had.missing(512 * KIB), 512 * KIB).unwrap();
        writer.write_at(64 * KIB, &vec![0; 448 << 10]).unwrap();
        let mut bytes = vec![1; 512 << 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..64 << 10].iter().all(|&byte| byte == 7));
        assert!(bytes[64 << 10..].iter().all(|&byte| byte == 0));
        if cfg!(linux) {
            assert!(file.metadata().unwrap().blocks() * 512 <= 64 * KIB, "the rest is a hole");
        }
    }

    proptest! {
        #[test]
        fn a_sparse_copy_has_the_same_bytes_in_whatever_pieces_they_come(
            blocks in prop::collection::vec(prop::sample::select(vec![0_u8, 0, 1]), 1..20),
            tail in 0_usize..4096,
            cuts in prop::collection::vec(1_usize..9000, 1..40),
        ) {
            let mut bytes: Vec<u8> = blocks.iter().flat_map(|&byte| [byte; 4096]).collect();
            bytes.truncate(bytes.len() - tail);
            let file = tempfile::tempfile().unwrap();
            let missing = RangeSet::new().missing(bytes.len() as u64);
            let mut writer = Writer::sparse(file.try_clone().unwrap().into(), &missing, bytes.len() as u64).unwrap();
            let mut pieces = Vec::new();
            let (mut rest, mut at, mut cuts) = (&bytes[..], 0, cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                pieces.push((at, piece));
                (rest, at) = (behind, at + piece.len() as u64);
            }
            for (at, piece) in pieces.into_iter().rev() {
                writer.write_at(at, piece).unwrap();
            }
            let mut copy = vec![9; bytes.len()];
            file.read_exact_at(&mut copy, 0).unwrap();
            prop_assert_eq!(copy, bytes);
        }
    }
}
