//! A remote file as a tokio stream: reads ahead, writes behind.

use std::{
    collections::VecDeque,
    future::Future,
    io::{self, ErrorKind, SeekFrom},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use nfs_wire::{DecodeError, FileHandle, Procedure, rpc::Rejection};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use crate::{
    client::{Client, Stability, Written},
    error::Error,
};

/// Bytes asked for ahead of the reader.
const READ_AHEAD_BYTES: u64 = 2 << 20;

/// READs in flight at most.
const READ_AHEAD_CALLS: usize = 32;

/// Unstable bytes after which a COMMIT is made: they are kept in memory until then.
const COMMIT_BYTES: usize = 4 << 20;

/// WRITEs in flight at most.
const WRITE_BEHIND_CALLS: usize = 16;

/// Bytes of a WRITE at most: each is held in memory until it is stable, and copied on its way.
const WRITE_BEHIND_BLOCK: usize = 128 << 10;

/// Changes of the write verifier without a COMMIT in between after which WRITEs ask for stable storage at once: this is no restart.
const LOSSES_BEFORE_STABLE: u32 = 3;

/// The same after which the server cannot be believed: WRITEs that were under way may have brought as many.
const MAX_LOSSES: u32 = LOSSES_BEFORE_STABLE + 2 * WRITE_BEHIND_CALLS as u32;

/// WRITEs in a row that are accepted and move nothing.
const MAX_IDLE: u32 = 3;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// An open file on the server: [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`].
///
/// Reads keep several READs in flight. Writes are gathered into blocks, several WRITEs are in flight, and their
/// bytes are kept until a COMMIT with the same write verifier has been answered: `flush` and `shutdown` return
/// when everything is on stable storage. No two WRITEs in flight overlap. A file that is dropped without `flush`
/// may lose what was written last.
pub struct File {
    client: Client,
    handle: FileHandle,
    position: u64,
    read: ReadAhead,
    write: WriteBehind,
}

#[derive(Default)]
struct ReadAhead {
    /// What the reader gets next.
    ready: Bytes,
    /// Where the next READ begins.
    next: u64,
    pending: VecDeque<(u32, Pending<(Bytes, bool)>)>,
    eof: bool,
}

#[derive(Default)]
struct WriteBehind {
    /// Bytes not yet sent, which begin at `start`.
    gathered: BytesMut,
    start: u64,
    pending: VecDeque<(Block, Pending<Written>)>,
    /// Accepted but not stable.
    unstable: Vec<Block>,
    unstable_bytes: usize,
    verifier: Option<[u8; 8]>,
    committing: Option<Pending<[u8; 8]>>,
    /// The server has no COMMIT.
    write_through: bool,
    /// How often the verifier has changed since the last COMMIT that made something stable.
    losses: u32,
    /// WRITEs in a row that moved nothing.
    idle: u32,
    /// What ended the writing; every later attempt fails the same way.
    failed: Option<Error>,
}

/// Bytes of a WRITE; kept until they are stable.
#[derive(Clone)]
struct Block {
    offset: u64,
    data: Bytes,
}

impl File {
    /// Opens a file for reading and writing from its beginning.
    pub fn new(client: Client, handle: FileHandle) -> Self {
        Self { client, handle, position: 0, read: ReadAhead::default(), write: WriteBehind::default() }
    }

    /// Returns the handle of the file.
    pub const fn handle(&self) -> FileHandle {
        self.handle
    }

    fn start_reads(&mut self) {
        let block = self.client.limits().read_block.max(1);
        let read = &mut self.read;
        while !read.eof
            && read.pending.len() < READ_AHEAD_CALLS
            && (read.pending.is_empty() || read.next - self.position < READ_AHEAD_BYTES)
        {
            let (client, handle, offset) = (self.client.clone(), self.handle, read.next);
            read.pending
                .push_back((block, Box::pin(async move { client.read(handle, offset, block).await })));
            read.next += u64::from(block);
        }
    }

    fn write_block(&self) -> usize {
        (self.client.limits().write_block as usize).clamp(1, WRITE_BEHIND_BLOCK)
    }

    /// Forgets what was read ahead.
    fn restart_reads(&mut self) {
        self.read = ReadAhead { next: self.position, ..ReadAhead::default() };
    }

    fn start_write(&mut self, block: Block) {
        let (client, handle) = (self.client.clone(), self.handle);
        let Block { offset, data } = block.clone();
        let stability = if self.write.write_through { Stability::Stable } else { Stability::Unstable };
        let call = Box::pin(async move { client.write(handle, offset, &data, stability).await });
        self.write.pending.push_back((block, call));
    }

    /// Sends what is gathered, in blocks; a rest below one block only if `all`.
    fn send_gathered(&mut self, all: bool) {
        let block = self.write_block();
        while self.write.gathered.len() >= block || (all && !self.write.gathered.is_empty()) {
            let length = block.min(self.write.gathered.len());
            let data = self.write.gathered.split_to(length).freeze();
            let offset = self.write.start;
            self.write.start += length as u64;
            self.start_write(Block { offset, data });
        }
    }

    /// Waits until at most `most` WRITEs are in flight.
    fn poll_writes(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Result<(), Error>> {
        let mut index = 0;
        while index < self.write.pending.len() {
            match self.write.pending[index].1.as_mut().poll(cx) {
                Poll::Pending => index += 1,
                Poll::Ready(result) => {
                    let (block, _) = self.write.pending.remove(index).expect("the index was just used");
                    self.take_written(block, result?)?;
                }
            }
        }
        if self.write.pending.len() <= most { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn take_written(&mut self, mut block: Block, written: Written) -> Result<(), Error> {
        let accepted = block.data.split_to(written.count as usize);
        self.write.idle = if accepted.is_empty() { self.write.idle + 1 } else { 0 };
        if self.write.idle >= MAX_IDLE && !block.data.is_empty() {
            return Err(contradiction(Procedure::Write, "count"));
        }
        if !block.data.is_empty() {
            let offset = block.offset + accepted.len() as u64;
            self.start_write(Block { offset, data: block.data });
        }
        if written.stability == Stability::Stable {
            return Ok(());
        }
        self.observe(written.verifier)?;
        self.write.unstable_bytes += accepted.len();
        self.write.unstable.push(Block { offset: block.offset, data: accepted });
        Ok(())
    }

    /// A changed verifier means that the server may have lost every unstable byte: they are written again, after the second time so
    /// that they need no COMMIT.
    fn observe(&mut self, verifier: [u8; 8]) -> Result<(), Error> {
        if self.write.verifier.replace(verifier).is_none_or(|old| old == verifier) {
            return Ok(());
        }
        self.write.losses += 1;
        if self.write.losses > MAX_LOSSES {
            return Err(contradiction(Procedure::Commit, "write verifier"));
        }
        self.write.write_through |= self.write.losses >= LOSSES_BEFORE_STABLE;
        self.rewrite();
        Ok(())
    }

    fn rewrite(&mut self) {
        self.write.unstable_bytes = 0;
        for block in std::mem::take(&mut self.write.unstable) {
            self.start_write(block);
        }
    }

    /// Brings everything accepted so far to stable storage. No WRITE may be in flight.
    fn poll_commit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            ready!(self.poll_writes(cx, 0))?;
            if self.write.unstable.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if self.write.committing.is_none() {
                let (client, handle) = (self.client.clone(), self.handle);
                self.write.committing = Some(Box::pin(async move { client.commit(handle, 0, 0).await }));
            }
            let commit = self.write.committing.as_mut().expect("set above");
            let result = ready!(commit.as_mut().poll(cx));
            self.write.committing = None;
            match result {
                Ok(verifier) if self.write.verifier == Some(verifier) => {
                    self.write.unstable.clear();
                    (self.write.unstable_bytes, self.write.losses) = (0, 0);
                }
                Ok(verifier) => self.observe(verifier)?,
                Err(Error::Rejected { rejection: Rejection::ProcedureUnavailable, .. }) => {
                    self.write.write_through = true;
                    self.rewrite();
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_all_stable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = &self.write.failed {
            return Poll::Ready(Err(to_io(error.clone())));
        }
        self.send_gathered(true);
        let result = ready!(self.poll_commit(cx));
        Poll::Ready(result.map_err(|error| {
            self.write.failed = Some(error.clone());
            to_io(error)
        }))
    }
}

impl AsyncRead for File {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let file = &mut *self;
        if !file.write.gathered.is_empty() || !file.write.pending.is_empty() {
            ready!(file.poll_all_stable(cx))?;
            file.restart_reads();
        }
        loop {
            if !file.read.ready.is_empty() {
                let count = file.read.ready.len().min(buffer.remaining());
                buffer.put_slice(&file.read.ready[..count]);
                file.read.ready.advance(count);
                file.position += count as u64;
                return Poll::Ready(Ok(()));
            }
            if file.read.eof || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            file.start_reads();
            // All are polled, so that all are sent; the first is what the reader needs.
            let mut first = Poll::Pending;
            for (index, (_, call)) in file.read.pending.iter_mut().enumerate().rev() {
                // A finished later READ is put back as a ready one.
                match call.as_mut().poll(cx) {
                    Poll::Ready(result) if index == 0 => first = Poll::Ready(result),
                    Poll::Ready(result) => *call = Box::pin(std::future::ready(result)),
                    Poll::Pending => {}
                }
            }
            let result = ready!(first);
            let (asked, _) = file.read.pending.pop_front().expect("its future was just polled");
            let (data, eof) = result.map_err(to_io)?;
            let short = data.len() < asked as usize;
            if short && !eof && data.is_empty() {
                return Poll::Ready(Err(io::Error::other("READ returns neither data nor end of file")));
            }
            let arrived = file.position + data.len() as u64;
            file.read.ready = data;
            if eof {
                file.read.eof = true;
                file.read.pending.clear();
            } else if short {
                // The later READs begin in the wrong place now.
                file.read.pending.clear();
                file.read.next = arrived;
            }
        }
    }
}

impl AsyncWrite for File {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let file = &mut *self;
        if let Some(error) = &file.write.failed {
            return Poll::Ready(Err(to_io(error.clone())));
        }
        let result = if file.write.unstable_bytes >= COMMIT_BYTES || file.write.committing.is_some() {
            file.poll_commit(cx)
        } else {
            file.poll_writes(cx, WRITE_BEHIND_CALLS - 1)
        };
        if let Err(error) = ready!(result) {
            file.write.failed = Some(error.clone());
            return Poll::Ready(Err(to_io(error)));
        }
        if file.write.gathered.is_empty() {
            file.write.start = file.position;
            file.restart_reads();
        }
        let block = file.write_block();
        let count = data.len().min(block);
        file.write.gathered.extend_from_slice(&data[..count]);
        file.position += count as u64;
        file.send_gathered(false);
        // Polled once, so that they are sent.
        if let Poll::Ready(Err(error)) = file.poll_writes(cx, WRITE_BEHIND_CALLS) {
            file.write.failed = Some(error.clone());
            return Poll::Ready(Err(to_io(error)));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_all_stable(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        // What is gathered belongs where it was written; the next write starts a new run.
        self.send_gathered(true);
        let target = match position {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
            SeekFrom::End(_) => {
                let hint = "the end of a remote file moves: ask for its size and seek from the start";
                return Err(io::Error::new(ErrorKind::Unsupported, hint));
            }
        };
        self.position = target.ok_or(ErrorKind::InvalidInput)?;
        self.restart_reads();
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        // WRITEs in flight might overlap with the next one.
        ready!(self.poll_writes(cx, 0)).map_err(to_io)?;
        Poll::Ready(Ok(self.position))
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("File")
            .field("handle", &self.handle)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// An answer that contradicts others, time and again.
fn contradiction(procedure: Procedure, field: &'static str) -> Error {
    Error::Protocol { what: procedure.name(), source: DecodeError::Inconsistent { field } }
}

fn to_io(error: Error) -> io::Error {
    match error {
        Error::Local(error) => Arc::try_unwrap(error).unwrap_or_else(|shared| shared.kind().into()),
        other => io::Error::other(other),
    }
}
