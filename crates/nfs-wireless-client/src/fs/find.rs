//! Where a path leads.

use std::{collections::VecDeque, io, sync::Arc};

use nfs_proto::attr::FileType;
use nfs_wire::{FileHandle, Procedure, Status};
use rustix::io::Errno;

use super::Fs;
use crate::{client::Entry, error::Error};

/// Symbolic links that a path may lead through, as on Linux (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// What becomes of a symbolic link that a path ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// Its target is meant.
    Followed,
    /// It is meant; with a slash behind it, its target.
    Itself,
    /// The name is meant, which is to be made or removed.
    Name,
}

/// Where a path leads.
#[derive(Debug)]
pub(super) struct Resolved {
    /// The directory that has its last name, and that name, if it has one.
    at: Option<(FileHandle, Vec<u8>)>,
    /// What has that name.
    entry: Option<Entry>,
    /// The path ends so that it can only be that of a directory.
    is_directory: bool,
}

impl Resolved {
    /// Whether there is a last name: the root has none, nor has what ends with `.` or `..`.
    pub(super) const fn has_name(&self) -> bool {
        self.at.is_some()
    }

    /// Whether the path, or the target of a link that it ends with, can only be that of a directory.
    pub(super) const fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Returns what is there, if anything is.
    pub(super) fn entry(&self) -> Result<Option<Entry>, Error> {
        match self.entry {
            Some(entry) if self.is_directory && entry.metadata.file_type != FileType::Directory => {
                Err(refused(Status::NOTDIR))
            }
            entry => Ok(entry),
        }
    }

    /// Returns what is there.
    pub(super) fn there(&self) -> Result<Entry, Error> {
        self.entry()?.ok_or_else(|| refused(Status::NOENT))
    }

    /// Returns the directory and the name, whatever is there.
    fn place(&self) -> Result<(FileHandle, &[u8]), Error> {
        let (directory, name) = self.at.as_ref().ok_or_else(|| refused(Status::INVAL))?;
        Ok((*directory, name))
    }

    /// Returns the directory and the name, for something of this type.
    pub(super) fn place_for(&self, file_type: FileType) -> Result<(FileHandle, &[u8]), Error> {
        match (file_type, self.is_directory) {
            (FileType::Directory, _) | (_, false) => self.place(),
            _ => Err(refused(if self.entry.is_some() { Status::NOTDIR } else { Status::NOENT })),
        }
    }

    /// Returns the directory and the name, which nothing has, for something of this type.
    pub(super) fn free_for(&self, file_type: FileType) -> Result<(FileHandle, &[u8]), Error> {
        if self.entry.is_some() { Err(refused(Status::EXIST)) } else { self.place_for(file_type) }
    }

    /// Returns the directory, the name and what has it.
    pub(super) fn named(&self) -> Result<(FileHandle, &[u8], Entry), Error> {
        let entry = self.there()?;
        let (directory, name) = self.place()?;
        Ok((directory, name, entry))
    }
}

/// What a server says where a path leads nowhere.
pub(super) const fn refused(status: Status) -> Error {
    Error::refused(Procedure::Lookup, status)
}

/// Bytes of the target of a symbolic link, at most: those of a path on Linux.
const MAX_TARGET_BYTES: usize = 4096;

/// Whether a path can only be that of a directory.
pub(super) fn ends_as_directory(path: &[u8]) -> bool {
    matches!(path.rsplit(|&byte| byte == b'/').next(), Some(b"" | b"." | b".."))
}

impl Fs {
    /// Returns the handle and the attributes of what a path leads to, for the methods of [`Fs::client`].
    ///
    /// ```no_run
    /// # use nfs_wireless_client::Fs;
    /// # async fn example(nas: Fs) -> Result<(), Box<dyn std::error::Error>> {
    /// let song = nas.entry("latest.ogg").await?;
    /// let target = std::fs::File::create("latest.ogg")?;
    /// nas.client().download(song.handle, song.metadata.size, target, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn entry(&self, path: impl AsRef<[u8]>) -> Result<Entry, Error> {
        self.find(path.as_ref(), Last::Followed).await?.there()
    }

    /// Finds where a path leads. That its last name is missing is no error.
    ///
    /// A directory that is replaced meanwhile is looked up once more, as the kernel's client does it.
    pub(super) async fn find(&self, path: &[u8], last: Last) -> Result<Resolved, Error> {
        match self.walk(path, last).await {
            Err(error) if error.is_stale() => self.walk(path, last).await,
            found => found,
        }
    }

    async fn walk(&self, path: &[u8], last: Last) -> Result<Resolved, Error> {
        let mut walk = self.begin_walk(path)?;
        let (mut at, mut entry) = (None, None);
        while let Some(name) = walk.rest.pop_front() {
            let directory = walk.directory();
            (at, entry) = (None, None);
            match &name[..] {
                b"." => continue,
                b".." => {
                    self.leave_directory(&mut walk)?;
                    continue;
                }
                _ => {}
            }
            let is_last = walk.rest.is_empty();
            let found = match self.client.lookup(directory, &name).await {
                Ok(found) => found,
                Err(error) if is_last && error.status() == Some(Status::NOENT) => {
                    let is_directory = walk.is_directory;
                    return Ok(Resolved { at: Some((directory, name)), entry: None, is_directory });
                }
                Err(error) => return Err(error),
            };
            let follows = !is_last || last == Last::Followed || (last == Last::Itself && walk.is_directory);
            match found.metadata.file_type {
                FileType::Symlink if follows => self.follow_link(&mut walk, found.handle).await?,
                FileType::Directory => {
                    walk.above.push(found.handle);
                    (at, entry) = (Some((directory, name)), Some(found));
                }
                _ if !is_last => return Err(refused(Status::NOTDIR)),
                _ => (at, entry) = (Some((directory, name)), Some(found)),
            }
        }
        if entry.is_none() {
            let handle = walk.directory();
            entry = Some(Entry { handle, metadata: self.client.metadata(handle).await? });
        }
        Ok(Resolved { at, entry, is_directory: walk.is_directory })
    }

    /// Starts at the export's root, with the names that lead from there.
    fn begin_walk(&self, path: &[u8]) -> Result<Walk, Error> {
        if path.contains(&0) {
            return Err(refused(Status::INVAL));
        }
        // The base itself has no name by which it could be removed or renamed.
        let path = if path.is_empty() { b"." } else { path };
        let is_directory = ends_as_directory(path);
        let path = if path.starts_with(b"/") { path.to_vec() } else { [&self.base, path].join(&b'/') };
        let mut rest = names(&path);
        self.come_back(Vec::new(), &mut rest)?;
        Ok(Walk { rest, above: vec![self.client.root()], links: 0, is_directory })
    }

    /// Goes to the directory above, which may be outside the export.
    fn leave_directory(&self, walk: &mut Walk) -> Result<(), Error> {
        if walk.above.len() > 1 {
            walk.above.pop();
            return Ok(());
        }
        let mut outside = names(self.client.export());
        outside.pop_back();
        self.come_back(outside.into(), &mut walk.rest)
    }

    /// Puts the target of a symbolic link in the place of its name.
    async fn follow_link(&self, walk: &mut Walk, link: FileHandle) -> Result<(), Error> {
        walk.links += 1;
        if walk.links > MOST_LINKS {
            return Err(Error::Local(Arc::new(io::Error::from(Errno::LOOP))));
        }
        let target = self.client.read_link(link).await?;
        if target.len() > MAX_TARGET_BYTES {
            return Err(refused(Status::NAMETOOLONG));
        }
        if target.is_empty() {
            return Err(refused(Status::NOENT));
        }
        walk.is_directory |= walk.rest.is_empty() && ends_as_directory(&target);
        names(&target).into_iter().rev().for_each(|name| walk.rest.push_front(name));
        if target.starts_with(b"/") {
            walk.above.truncate(1);
            self.come_back(Vec::new(), &mut walk.rest)?;
        }
        Ok(())
    }

    /// Takes the names that lead from a directory of the server to the export's root. Outside the export nothing else is known.
    fn come_back(&self, mut outside: Vec<Vec<u8>>, rest: &mut VecDeque<Vec<u8>>) -> Result<(), Error> {
        let export = names(self.client.export());
        while outside.len() < export.len() {
            match rest.pop_front() {
                Some(name) if name == b"." => {}
                Some(name) if name == b".." => _ = outside.pop(),
                Some(name) if name == export[outside.len()] => outside.push(name),
                Some(_) | None => return Err(refused(Status::NOENT)),
            }
        }
        Ok(())
    }
}

/// A path on the way to where it leads.
struct Walk {
    /// Names that are still to be looked up.
    rest: VecDeque<Vec<u8>>,
    /// The directories from the export's root down.
    above: Vec<FileHandle>,
    /// Symbolic links that were followed.
    links: u32,
    /// The path, or the target of a link that it ends with, can only be that of a directory.
    is_directory: bool,
}

impl Walk {
    /// Returns the directory that the next name is looked up in.
    fn directory(&self) -> FileHandle {
        *self.above.last().expect("the root stays")
    }
}

/// Returns the names of a path, also those that stand for directories.
fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}
