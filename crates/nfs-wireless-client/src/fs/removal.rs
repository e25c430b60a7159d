//! Directories that are removed with everything in them.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use nfs_wire::{FileHandle, Status};

use super::listing::is_plain_name;
use crate::{
    client::{Client, Entry},
    connect::all,
    error::Error,
    shown::shown,
};

/// Entries of a directory that are removed at the same time.
const REMOVED_AT_ONCE: usize = 32;

/// Directories that lie in each other, at most: a server may go on for ever.
const MAX_DEPTH: usize = 16_384;

/// Times that a directory is listed in part, and nothing of that could be removed.
const MOST_IDLE: u32 = 3;

/// Bytes that names may take. What is beyond is listed again, once what was listed is gone.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Of directories to be removed.
    directories: usize,
    /// Of other files, in one listing.
    files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { directories: 1 << 20, files: 1 << 20 }
    }
}

/// A directory that is being removed.
struct Level {
    above: FileHandle,
    name: Vec<u8>,
    handle: FileHandle,
    /// Directories in it.
    below: Vec<Vec<u8>>,
    /// There is more in it than was listed.
    has_more: bool,
    /// Entries removed since it was listed.
    removed: usize,
    idle: u32,
}

/// What a tree is removed with.
struct Removal<'a> {
    client: &'a Client,
    file_system: u64,
    limits: Limits,
    levels: Vec<Level>,
    /// Bytes of the names of directories to be removed.
    kept: usize,
}

/// Removes a directory and everything in it.
pub(super) async fn remove_tree(client: &Client, at: (FileHandle, &[u8]), top: &Entry) -> Result<(), Error> {
    let (limits, file_system) = (Limits::default(), top.metadata.fsid);
    Removal { client, file_system, limits, levels: Vec::new(), kept: 0 }.run(at).await
}

impl Removal<'_> {
    async fn run(&mut self, (above, name): (FileHandle, &[u8])) -> Result<(), Error> {
        self.enter(above, name.to_vec()).await?;
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.below.pop() {
                let above = level.handle;
                self.kept -= bytes_of(&name);
                self.enter(above, name).await?;
                continue;
            }
            if level.has_more && level.removed == 0 {
                level.idle += 1;
            }
            if level.has_more && level.idle < MOST_IDLE {
                self.list().await?;
                continue;
            }
            let is_removed = is_removed(self.client.rmdir(level.above, &level.name).await)?;
            self.levels.pop();
            self.count(is_removed.into());
        }
        Ok(())
    }

    /// Begins with what has a name, which was that of a directory when it was listed.
    async fn enter(&mut self, above: FileHandle, name: Vec<u8>) -> Result<(), Error> {
        let shown = || shown(&name);
        // It may have been moved since, and something else may have its name.
        let Entry { handle, metadata } = match self.client.lookup(above, &name).await {
            Ok(found) => found,
            Err(error) if error.status() == Some(Status::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !metadata.is_dir() {
            let is_removed = is_removed(self.client.remove(above, &name).await)?;
            self.count(is_removed.into());
            return Ok(());
        }
        if self.client.is_inner_export(handle) {
            return Err(Error::MountPoint { path: shown() });
        }
        if metadata.fsid != self.file_system {
            return Err(Error::OtherFileSystem { path: shown() });
        }
        if self.levels.iter().any(|level| level.handle == handle) {
            return Err(Error::Circle { name: shown(), above: "a directory".to_owned() });
        }
        if self.levels.len() == MAX_DEPTH {
            let why = format!("directories lie more than {MAX_DEPTH} deep");
            return Err(Error::Local(Arc::new(io::Error::new(ErrorKind::InvalidData, why))));
        }
        let below = Vec::new();
        self.levels.push(Level { above, name, handle, below, has_more: true, removed: 1, idle: 0 });
        Ok(())
    }

    /// Counts entries that were removed in the last directory.
    fn count(&mut self, removed: usize) {
        if let Some(level) = self.levels.last_mut() {
            level.removed += removed;
        }
    }

    /// Lists the last directory, as far as there is room for names, and removes what is no directory.
    async fn list(&mut self) -> Result<(), Error> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        (level.has_more, level.removed) = (false, 0);
        let (mut files, mut files_bytes) = (Vec::new(), 0);
        let mut listing = self.client.read_dir(level.handle);
        // At least one name of each kind.
        while files_bytes < self.limits.files
            && (level.below.is_empty() || self.kept < self.limits.directories)
        {
            let entry = match listing.next_complete().await {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // It has changed: what was not listed is listed again.
                Err(error) if error.status() == Some(Status::BAD_COOKIE) && !files.is_empty() => {
                    level.has_more = true;
                    break;
                }
                Err(error) => return Err(error),
            };
            if !is_plain_name(&entry.name) {
                tracing::warn!(name = %entry.name.escape_ascii(), "this name cannot be removed");
            } else if entry.metadata.is_some_and(|it| it.is_dir()) {
                self.kept += bytes_of(&entry.name);
                level.below.push(entry.name);
            } else {
                files_bytes += bytes_of(&entry.name);
                files.push(entry.name);
            }
        }
        let is_full = files_bytes >= self.limits.files || self.kept >= self.limits.directories;
        level.has_more |= is_full;
        for names in files.chunks(REMOVED_AT_ONCE) {
            let done = all(names.iter().map(|name| self.client.remove(level.handle, name))).await;
            for done in done {
                level.removed += usize::from(is_removed(done)?);
            }
        }
        Ok(())
    }
}

/// Returns the bytes that a name takes.
const fn bytes_of(name: &[u8]) -> usize {
    size_of::<Vec<u8>>() + name.len()
}

/// Whether something was removed; somebody else may have been faster.
fn is_removed(removed: Result<(), Error>) -> Result<bool, Error> {
    match removed {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(false),
        removed => removed.map(|()| true),
    }
}
