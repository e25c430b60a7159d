//! Reading a copy back and comparing it with its source.

use std::{io, ops::Range};

use futures_util::future::try_join;
use nfs_wireless_client::{Client, File};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    context::Context,
    copy::{
        Links, Run,
        destination::Location,
        source::{Node, Origin},
    },
    error::{Error, ErrorKind, Result, ResultExt, local, remote_error},
    escape::escape,
    event::{Event, Name, Warning},
    local::SourcePath,
};

/// Bytes that one hash stands for: differences are told in steps of this.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Ranges that are named in an error; JSON has all.
const NAMED_RANGES: usize = 4;

/// What a stream of bytes was: the BLAKE3 hash of every chunk.
#[derive(Debug, Default)]
pub(in crate::copy) struct Digest {
    bytes: u64,
    complete: Vec<blake3::Hash>,
    /// The chunk that has begun.
    hasher: blake3::Hasher,
    hashed: usize,
}

impl Digest {
    /// Returns how many there were.
    pub(in crate::copy) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes in the next bytes.
    pub(in crate::copy) fn update(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.hashed));
            self.hasher.update(piece);
            self.hashed += piece.len();
            if self.hashed == CHUNK_BYTES {
                self.complete.push(self.hasher.finalize());
                self.hasher.reset();
                self.hashed = 0;
            }
            bytes = rest;
        }
    }

    /// Reads a stream to its end.
    async fn of(stream: &mut (impl AsyncRead + Unpin), context: Context<'_>) -> io::Result<Self> {
        let mut digest = Self::default();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match stream.read(&mut piece).await? {
                0 => return Ok(digest),
                count => digest.update(&piece[..count]),
            }
            context.servers.activity().step();
        }
    }

    /// Where two streams differ, neighbouring chunks together.
    fn differences(&self, other: &Self) -> Vec<Range<u64>> {
        let end = self.bytes.max(other.bytes);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (index, start) in (0..end).step_by(CHUNK_BYTES).enumerate() {
            let range = start..end.min(start + CHUNK_BYTES as u64);
            if self.chunk(index) == other.chunk(index) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    fn chunk(&self, index: usize) -> Option<blake3::Hash> {
        // Of no bytes, if none came after the last chunk: no other chunk has this hash.
        let begun = || (index == self.complete.len()).then(|| self.hasher.finalize());
        self.complete.get(index).copied().or_else(begun)
    }
}

impl Run<'_> {
    /// Whether a copy is to be read back: because the user wants it, or because the network may have put fragments of
    /// different datagrams together.
    pub(in crate::copy) fn is_to_be_verified(&self, node: &Node, location: Option<&Location>) -> bool {
        let source = match &node.origin {
            Origin::Remote(file) => Some(&file.client),
            Origin::Local(_) | Origin::Standard => None,
        };
        let target = match location {
            Some(Location::Remote(location)) => Some(&location.client),
            Some(Location::Local { .. } | Location::Planned(_)) | None => None,
        };
        let is_doubtful = source.into_iter().chain(target).any(Client::identifications_may_have_wrapped);
        if is_doubtful && !self.copy.verify {
            self.warn(Warning::IdentificationsWrap);
        }
        is_doubtful || self.copy.verify
    }

    /// Compares a copy, which may still be open, with its source, of which `length` bytes were copied, or with what it `was` if that cannot be read again;
    /// whatever can be is read again.
    pub(in crate::copy) async fn verify(
        &self,
        node: &Node,
        was: Option<&Digest>,
        length: Option<u64>,
        (copy, location, name): (Option<&std::fs::File>, &Location, &[u8]),
    ) -> Result<()> {
        let activity = self.context.servers.activity();
        activity.set_current(format!("verifying {}", escape(name)));
        let _verifying = activity.verify();
        match self.differences(node, was, length, (copy, location, name)).await? {
            Some(ranges) => self.judge(node, &ranges, &location.name(name)),
            None => Ok(()),
        }
    }

    /// Returns where a copy differs from its source, as for [`Run::verify`]; `None` if there is nothing to compare.
    pub(in crate::copy) async fn differences(
        &self,
        node: &Node,
        was: Option<&Digest>,
        length: Option<u64>,
        (copy, location, name): (Option<&std::fs::File>, &Location, &[u8]),
    ) -> Result<Option<Vec<Range<u64>>>> {
        let name_there = location.name(name);
        let target = &name_there.shown;
        let copy: Box<dyn AsyncRead + Unpin> = match location {
            Location::Planned(_) => return Ok(None),
            Location::Local { directory, .. } => {
                let file = directory.read(name).or_else(|error| match copy {
                    // Its mode lets nobody read it, and what has written it can.
                    Some(copy) if error.kind() == io::ErrorKind::PermissionDenied => {
                        directory.again(name, copy)
                    }
                    _ => Err(error),
                });
                let file = file.map_err(|error| local(&directory.join(name), &error))?;
                Box::new(tokio::fs::File::from_std(file))
            }
            Location::Remote(location) => {
                let entry = location.client.lookup(location.handle, name).await.at(target)?;
                Box::new(File::new(location.client.clone(), entry.handle))
            }
        };
        // A damaged WRITE may have made the copy very long; one byte too many is enough to see.
        let least = |size: u64| size.saturating_add(1);
        let (source, size): (Box<dyn AsyncRead + Unpin>, _) = match (&node.origin, was) {
            // What has another length than its size says tells something else each time it is read.
            (Origin::Standard | Origin::Local(_), Some(was)) => {
                let copy = Digest::of(&mut copy.take(least(was.bytes)), self.context).await;
                let copy = copy.map_err(|error| remote_error(error, target))?;
                return Ok(Some(was.differences(&copy)));
            }
            (Origin::Standard, None) => return Ok(None),
            (Origin::Local(path), None) => {
                let file = self.open(path).await?;
                let size = file.metadata().map_err(|error| local(path, &error))?.len();
                (Box::new(tokio::fs::File::from_std(file)), size)
            }
            (Origin::Remote(file), was) => {
                let size = file.client.metadata(file.handle).await.at(node)?.size;
                let size = size.max(was.map_or(0, |was| was.bytes));
                (Box::new(File::new(file.client.clone(), file.handle)), size)
            }
        };
        // What was appended since belongs to no copy.
        let mut source = source.take(length.unwrap_or(u64::MAX));
        let mut copy = copy.take(least(length.unwrap_or(size)));
        let both = try_join(Digest::of(&mut source, self.context), Digest::of(&mut copy, self.context)).await;
        let (source, copy) = both.map_err(|error| remote_error(error, target))?;
        Ok(Some(source.differences(&copy)))
    }

    /// Compares what was written to something that cannot be read back with its source, which is read again.
    pub(in crate::copy) async fn verify_output(
        &self,
        node: &Node,
        was: &Digest,
        target: &Name,
    ) -> Result<()> {
        let Origin::Remote(file) = &node.origin else { return Ok(()) };
        let mut source = File::new(file.client.clone(), file.handle);
        let source = Digest::of(&mut source, self.context).await;
        let source = source.map_err(|error| remote_error(error, node))?;
        self.judge(node, &source.differences(was), target)
    }

    fn judge(&self, node: &Node, ranges: &[Range<u64>], target: &Name) -> Result<()> {
        if ranges.is_empty() {
            return self.context.events.tell(&Event::Verified);
        }
        self.context.events.tell(&Event::Differs { source: &node.name(), target, ranges })?;
        let named = ranges.iter().take(NAMED_RANGES);
        let named: Vec<_> = named.map(|range| format!("{} to {}", range.start, range.end - 1)).collect();
        let more = match ranges.len().saturating_sub(NAMED_RANGES) {
            0 => String::new(),
            more => format!(" and {more} more ranges"),
        };
        let text = format!(
            "{}: differs from {node} in bytes {}{more}; copy it again",
            target.shown,
            named.join(", ")
        );
        Err(Error::new(ErrorKind::Mismatch, text))
    }

    async fn open(&self, path: &SourcePath) -> Result<std::fs::File> {
        path.open(self.copy.links != Links::Never).await.map_err(|error| local(path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of two streams, the second of which comes in odd pieces.
    fn differences(left: &[u8], right: &[u8]) -> Vec<(u64, u64)> {
        let (mut a, mut b) = (Digest::default(), Digest::default());
        a.update(left);
        right.chunks(77_777).for_each(|piece| b.update(piece));
        let ranges = a.differences(&b);
        assert_eq!(ranges, b.differences(&a));
        ranges.into_iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn differences_are_found_wherever_they_are() {
        const CHUNK: u64 = CHUNK_BYTES as u64;
        let long = vec![7; 4 * CHUNK_BYTES + 5];
        assert_eq!(differences(&long, &long), []);
        assert_eq!(differences(b"", b""), []);
        assert_eq!(differences(b"", b"x"), [(0, 1)]);
        assert_eq!(differences(&long, &long[..4 * CHUNK_BYTES]), [(4 * CHUNK, 4 * CHUNK + 5)]);
        assert_eq!(differences(&long, &long[..CHUNK_BYTES]), [(CHUNK, 4 * CHUNK + 5)], "one range, not four");
        let mut other = long.clone();
        other[0] = 8;
        other[2 * CHUNK_BYTES - 1] = 8;
        other[4 * CHUNK_BYTES] = 8;
        assert_eq!(differences(&long, &other), [(0, 2 * CHUNK), (4 * CHUNK, 4 * CHUNK + 5)]);
    }
}
