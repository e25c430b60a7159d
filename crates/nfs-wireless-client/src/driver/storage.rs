//! Where the bytes of a transfer come from and go to.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::Instant,
};

use bytes::Bytes;
use nfs_proto::{attr::Metadata, transfer::Upload};

use super::Observer;

/// Takes the bytes of a download, in any order.
///
/// It is called where it may wait for a disk: on threads of the runtime's blocking pool, one call at a time; on the client's own thread,
/// if there is one ([`ClientConfig::own_thread`](crate::ClientConfig::own_thread)). It is dropped before the download returns.
pub trait Sink: Send {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Any error ends the transfer.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Records the file's attributes after a READ whose bytes follow; `None` when the server did not tell them.
    fn told(&mut self, _attributes: Option<Metadata>) {}
}

/// Gives the bytes of an upload, any of them, any number of times.
///
/// It is called where a [`Sink`] is, and dropped before the upload returns.
pub trait Source: Send {
    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// An empty buffer at the end of the source asks, when all is on stable storage and before the copy gets its name, whether the
    /// source is still what was read.
    ///
    /// # Errors
    /// Any error ends the transfer; `UnexpectedEof` means that the source became shorter.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns the file that holds the bytes at the same offsets, if one does; it saves copying them.
    fn as_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Records that the server accepted `bytes` more; `upload` knows what it has by now.
    ///
    /// Called after each WRITE, or after several, where the last call took longer. The last bytes of an upload may not be told.
    fn progressed(&mut self, _upload: &Upload, _bytes: u64) {}
}

/// A source, and who hears of its progress.
pub(crate) struct Supply {
    source: Box<dyn Source>,
    observer: Option<Observer>,
}

impl Supply {
    pub(crate) fn new(source: Box<dyn Source>, observer: Option<Observer>) -> Self {
        Self { source, observer }
    }

    pub(super) fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.source.read_at(offset, buffer)
    }

    /// Returns another descriptor of the file that holds the bytes, if one does and there is a descriptor left.
    pub(super) fn file(&self) -> Option<OwnedFd> {
        self.source.as_file()?.try_clone_to_owned().ok()
    }

    /// Tells everybody that the server accepted so many bytes more.
    pub(super) fn progressed(&mut self, upload: Option<&Upload>, bytes: u64) {
        if let Some(observer) = &self.observer {
            observer(bytes);
        }
        if let Some(upload) = upload {
            self.source.progressed(upload, bytes);
        }
    }
}

/// Takes what a driver receives for a download; it waits for nothing but a disk, and that only on a thread of the client's own.
pub(crate) trait Arrivals: Send {
    /// Takes in bytes that have just arrived.
    ///
    /// # Errors
    /// Any error ends the transfer.
    fn arrived(&mut self, now: Instant, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Records the file's attributes after a READ whose bytes follow; `None` when the server did not tell them.
    fn told(&mut self, attributes: Option<Metadata>);
}

impl Sink for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// Ends a transfer with `UnexpectedEof` beyond the last byte.
impl Source for Bytes {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        buffer.copy_from_slice(self.get(start..end).ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Source for File {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn as_file(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        Some(self.as_fd())
    }
}
