//! Directories by path.

use nfs_proto::attr::{FileType, Metadata};
use nfs_wire::Status;

use super::find;
use crate::{error::Error, read_dir::ReadDir};

/// The entries of a directory, in the server's order, without `.` and `..`: as `tokio::fs::ReadDir`.
///
/// ```no_run
/// # async fn example(nas: nfs_wireless_client::Fs) -> Result<(), Box<dyn std::error::Error>> {
/// let mut entries = nas.read_dir("music").await?;
/// while let Some(entry) = entries.next_entry().await? {
///     println!("{} {}", entry.file_name().escape_ascii(), entry.metadata()?.size);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FsReadDir {
    listing: ReadDir,
    path: Vec<u8>,
}

/// Whether a name that a server gives may become part of a path: it is one component, and neither the directory itself nor its parent.
///
/// ```
/// # use nfs_wireless_client::is_plain_name;
/// assert!(is_plain_name(b"song.ogg") && !is_plain_name(b"../song.ogg"));
/// ```
pub fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

impl FsReadDir {
    pub(super) fn new(listing: ReadDir, path: &[u8]) -> Self {
        Self { listing, path: path.to_vec() }
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// As [`Fs::open`](crate::Fs::open); the listing must not be used further.
    pub async fn next_entry(&mut self) -> Result<Option<FsDirEntry>, Error> {
        let entry = loop {
            match self.listing.next_complete().await? {
                Some(entry) if is_plain_name(&entry.name) => break entry,
                Some(entry) => {
                    tracing::warn!(name = %entry.name.escape_ascii(), "no program can use this name")
                }
                None => return Ok(None),
            }
        };
        let separator: &[u8] = if self.path.is_empty() || self.path.ends_with(b"/") { b"" } else { b"/" };
        let path = [&self.path, separator, &entry.name].concat();
        Ok(Some(FsDirEntry { name_at: path.len() - entry.name.len(), path, metadata: entry.metadata }))
    }
}

/// An entry of a directory: as `tokio::fs::DirEntry`, but that its attributes came with the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsDirEntry {
    path: Vec<u8>,
    name_at: usize,
    metadata: Option<Metadata>,
}

impl FsDirEntry {
    /// Returns the name, as the server gave it: one that leads nowhere else. Others are left out.
    pub fn file_name(&self) -> &[u8] {
        &self.path[self.name_at..]
    }

    /// Returns the path: that of the directory, as it was given, with the name.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the attributes, of a symbolic link its own.
    ///
    /// # Errors
    /// `NotFound` where the server lists the name and does not find it.
    pub fn metadata(&self) -> Result<Metadata, Error> {
        self.metadata.ok_or_else(|| find::refused(Status::NOENT))
    }

    /// Returns the kind of file.
    ///
    /// # Errors
    /// As [`FsDirEntry::metadata`].
    pub fn file_type(&self) -> Result<FileType, Error> {
        Ok(self.metadata()?.file_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", b"../x"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b".x", b"a b", b"\xff", b"a\nb", b"-rf"] {
            assert!(is_plain_name(name), "{name:?}");
        }
    }
}
