//! Where the bytes of a transfer come from and go to.

use std::{
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt},
};

use crate::{attr::Metadata, transfer::Upload};

/// Takes the bytes of a download, in any order.
pub trait Sink: Send {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Any error ends the transfer.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Takes note of the file's attributes after a READ whose bytes follow; `None` when the server did not tell them.
    ///
    /// Runs on the I/O thread, for every READ.
    fn told(&mut self, _attributes: Option<Metadata>) {}
}

/// Gives the bytes of an upload, any of them, any number of times.
pub trait Source: Send {
    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// Any error ends the transfer; `UnexpectedEof` means that the source became shorter.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns the file that holds the bytes at the same offsets, if one does; it saves copying them.
    fn as_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes note that the server accepted `bytes` more; `upload` knows what it has by now.
    ///
    /// Runs on the I/O thread, for every WRITE.
    fn progressed(&mut self, _upload: &Upload, _bytes: u64) {}
}

impl Sink for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
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
