//! Whether a source is still what it was when its copy was begun.
//!
//! A size is a hint: files of `/proc` say 0, those of `/sys` 4096, and a log is longer by the time it is copied.

use std::{fs::File, io, os::unix::fs::FileExt};

use nfs_wireless_client::{self as client, Client, FileHandle};

use crate::copy::source::Attributes;

/// Files up to this size are looked at whole.
pub(in crate::copy) const WHOLE_BYTES: u64 = 64 << 10;

/// Of larger ones so many pieces are, at equal distances, the first and the last among them.
const PIECES: u64 = 16;

/// Bytes of each of these pieces: a page.
const PIECE_BYTES: u64 = 4 << 10;

/// What has become of a source since its copy was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::copy) enum Since {
    /// Nothing that is known.
    Same,
    /// Something was appended: what was there is the same, as far as it was looked at.
    Grew,
    /// It has other contents, or is another file.
    Changed,
}

/// What the attributes of a source tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::copy) enum Told {
    /// This is what has become of it.
    Is(Since),
    /// It is this if the pieces of what was there are the same.
    IfSame(Since),
}

/// Compares the attributes of a source with those that it had.
pub(in crate::copy) fn told(now: &Attributes, before: &Attributes) -> Told {
    let is_as_long = now.size == before.size;
    if now.file.1 != before.file.1
        || now.size < before.size
        || is_as_long && now.times.modified != before.times.modified
    {
        return Told::Is(Since::Changed);
    }
    match (is_as_long, now.changed == before.changed) {
        (true, true) => Told::Is(Since::Same),
        // Its mode or its names; or its bytes, and its time was put back.
        (true, false) => Told::IfSame(Since::Same),
        (false, _) => Told::IfSame(Since::Grew),
    }
}

/// Returns where the pieces of a file begin that are looked at, and how long they are.
fn pieces(size: u64) -> impl Iterator<Item = (u64, usize)> {
    let (count, length) = if size <= WHOLE_BYTES { (1, size) } else { (PIECES, PIECE_BYTES) };
    (0..count).map(move |at| {
        // The product may be more than 64 bits hold.
        let start = u128::from(size - length) * u128::from(at) / u128::from((count - 1).max(1));
        (start as u64, length as usize)
    })
}

/// What the pieces of a local file were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::copy) struct Sample(blake3::Hash);

/// What looking at a local file has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::copy) enum Looked {
    /// It has as many bytes as its size says, and these pieces.
    Whole(Sample),
    /// It has more or fewer.
    IsNotItsSize,
}

impl Sample {
    /// Looks at a file that is said to have so many bytes, and whether it has.
    ///
    /// # Errors
    /// What reading the file fails of.
    pub(in crate::copy) fn look(file: &File, size: u64) -> io::Result<Looked> {
        let mut hasher = blake3::Hasher::new();
        // One byte more than a piece has: behind the last one nothing is to come.
        let mut buffer = vec![0; pieces(size).map(|(_, length)| length).max().unwrap_or(0) + 1];
        for (start, length) in pieces(size) {
            let found = fill(file, &mut buffer, start)?;
            let is_last = start + length as u64 == size;
            if found < length || is_last && found > length {
                return Ok(Looked::IsNotItsSize);
            }
            hasher.update(&buffer[..length]);
        }
        Ok(Looked::Whole(Self(hasher.finalize())))
    }

    /// Whether the first `size` bytes of a file have these pieces still.
    pub(in crate::copy) fn is_of(&self, file: &File, size: u64) -> io::Result<bool> {
        let mut hasher = blake3::Hasher::new();
        for (start, length) in pieces(size) {
            let mut piece = vec![0; length];
            if fill(file, &mut piece, start)? < length {
                return Ok(false);
            }
            hasher.update(&piece);
        }
        Ok(hasher.finalize() == self.0)
    }
}

/// Reads until the buffer is full or the file ends; returns how much there was.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Something of which pieces can be read.
pub(in crate::copy) enum Pieces<'a> {
    Local(&'a File),
    Remote(&'a Client, FileHandle),
}

impl Pieces<'_> {
    async fn read(&self, start: u64, length: usize) -> Result<Vec<u8>, client::Error> {
        let mut piece = vec![0; length];
        match self {
            Self::Local(file) => {
                let filled =
                    fill(file, &mut piece, start).map_err(|error| client::Error::Local(error.into()))?;
                piece.truncate(filled);
            }
            Self::Remote(client, file) => {
                let mut filled = 0;
                while filled < length {
                    let count = u32::try_from(length - filled).unwrap_or(u32::MAX);
                    let (bytes, is_end) = client.read(*file, start + filled as u64, count).await?;
                    let count = bytes.len().min(length - filled);
                    piece[filled..filled + count].copy_from_slice(&bytes[..count]);
                    filled += count;
                    if is_end || count == 0 {
                        break;
                    }
                }
                piece.truncate(filled);
            }
        }
        Ok(piece)
    }

    /// Whether the first `size` bytes of both are the same, as far as pieces of them tell.
    ///
    /// # Errors
    /// What reading them fails of.
    pub(in crate::copy) async fn are_same(&self, other: &Self, size: u64) -> Result<bool, client::Error> {
        for (start, length) in pieces(size) {
            let piece = self.read(start, length).await?;
            if piece.len() < length || piece != other.read(start, length).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_pieces_of_a_file_are_its_beginning_its_end_and_some_between() {
        for size in [0, 1, WHOLE_BYTES] {
            assert_eq!(pieces(size).collect::<Vec<_>>(), [(0, size as usize)]);
        }
        for size in [WHOLE_BYTES + 1, 1 << 40, u64::MAX] {
            let pieces: Vec<_> = pieces(size).collect();
            assert_eq!(pieces.len() as u64, PIECES);
            assert_eq!(pieces.first(), Some(&(0, PIECE_BYTES as usize)));
            assert_eq!(pieces.last(), Some(&(size - PIECE_BYTES, PIECE_BYTES as usize)));
        }
    }

    #[test]
    fn a_file_is_looked_at_once_and_again() {
        let file = tempfile::tempfile().unwrap();
        for size in [0_u64, 10, WHOLE_BYTES, WHOLE_BYTES + 1, 1 << 20] {
            file.set_len(0).unwrap();
            let bytes: Vec<u8> = (0..size).map(|at| (at / 7) as u8).collect();
            file.write_all_at(&bytes, 0).unwrap();
            let Looked::Whole(sample) = Sample::look(&file, size).unwrap() else { panic!("{size}") };
            for wrong in [size + 1, size.saturating_sub(1)].into_iter().filter(|&wrong| wrong != size) {
                assert_eq!(Sample::look(&file, wrong).unwrap(), Looked::IsNotItsSize, "{size} as {wrong}");
            }
            file.write_all_at(b"more", size).unwrap();
            assert!(sample.is_of(&file, size).unwrap(), "{size}: appended to");
            if size > 0 {
                file.write_all_at(b"\xff", 0).unwrap();
                assert!(!sample.is_of(&file, size).unwrap(), "{size}: its beginning was changed");
                file.set_len(size - 1).unwrap();
                assert!(!sample.is_of(&file, size).unwrap(), "{size}: cut");
            }
        }
    }

    #[test]
    fn attributes_tell_what_may_have_become_of_a_file() {
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = tempfile::tempfile().unwrap();
        let before = Attributes { changed: time(5), size: 10, ..Attributes::from(&file.metadata().unwrap()) };
        let mut later = before;
        later.changed = time(6);
        let mut dated = later;
        dated.times.modified = time(6);
        let other = Attributes { file: (0, before.file.1 + 1), ..before };
        for (now, expected) in [
            (before, Told::Is(Since::Same)),
            (later, Told::IfSame(Since::Same)),
            (dated, Told::Is(Since::Changed)),
            (other, Told::Is(Since::Changed)),
            (Attributes { size: 11, ..dated }, Told::IfSame(Since::Grew)),
            (Attributes { size: 11, ..later }, Told::IfSame(Since::Grew)),
            (Attributes { size: 9, ..dated }, Told::Is(Since::Changed)),
        ] {
            assert_eq!(told(&now, &before), expected, "{now:?}");
        }
    }
}
