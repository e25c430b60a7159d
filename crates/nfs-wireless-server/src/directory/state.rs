//! What a directory of the host knows of its files, behind one lock.

use std::{os::fd::OwnedFd, sync::Arc};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, sattr3},
};
use rustix::{
    fs::{Dir, Mode, OFlags, RawMode},
    io::Errno,
};

use super::{
    Access, DIRECTORY_MODE_BITS, DirectoryConfig, MODE_BITS,
    host::{Found, Identity, Reference, look, look_at, retry, status},
    listing::Listings,
    open_files::{OpenFile, OpenFiles},
    search::Search,
    table::{NameInDirectory, Table},
};
use crate::vfs::{Name, NodeId};

/// Entries looked at before the client is asked to come again, so that others are served meanwhile.
const ENTRIES_PER_TURN: usize = 8192;

/// What is known of the files, and which are open.
#[derive(Debug)]
pub(super) struct State {
    pub(super) root: OwnedFd,
    pub(super) table: Table,
    pub(super) search: Search,
    pub(super) listings: Listings,
    pub(super) open_files: OpenFiles,
}

/// A file that was found where the table says it is.
pub(super) struct Located {
    pub(super) reference: Reference,
    /// The directory it lies in, and its name there; the root has none.
    pub(super) place: Option<(Reference, Vec<u8>)>,
}

impl State {
    pub(super) fn new(config: &DirectoryConfig, root: OwnedFd, identity: Identity) -> Self {
        Self {
            table: Table::new(identity, config.max_nodes),
            search: Search::new(identity),
            open_files: OpenFiles::new(config.max_open_files),
            root,
            listings: Listings::default(),
        }
    }

    /// Finds a node again, step by step from the root, and checks that every step is still the same file.
    pub(super) fn locate(&mut self, node: NodeId) -> Result<Located, Status> {
        /// Names of one path that may have changed behind our back.
        const ATTEMPTS: usize = 16;
        if self.table.identity(node).is_none() {
            self.find_again(node)?;
        }
        for _ in 0..ATTEMPTS {
            let path = self.table.path(node).ok_or(Status::STALE)?;
            let mut reference = Reference::to(&self.root).map_err(|_| Status::JUKEBOX)?;
            let mut place = None;
            let mut lost = None;
            for step in path {
                let (name, identity) = match (self.table.place(step), self.table.identity(step)) {
                    (Some(place), Some(identity)) => (place.name.clone(), identity),
                    _ => return Err(Status::STALE),
                };
                match reference.entry(&name).and_then(|next| Ok((next.look()?, next))) {
                    Ok((found, next)) if found.identity == identity => {
                        place = Some((std::mem::replace(&mut reference, next), name));
                    }
                    Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {
                        lost = Some(step);
                        break;
                    }
                    Err(errno) => return Err(status(errno)),
                }
            }
            match lost {
                None => return Ok(Located { reference, place }),
                Some(step) => self.look_around(step, &reference)?,
            }
        }
        Err(Status::STALE)
    }

    /// Looks for a node that is not where it was last seen: at its other names, then among its old neighbours.
    pub(super) fn look_around(&mut self, node: NodeId, directory: &Reference) -> Result<(), Status> {
        let (place, identity) = match (self.table.place(node), self.table.identity(node)) {
            (Some(place), Some(identity)) => (place.clone(), identity),
            _ => return Err(Status::STALE),
        };
        self.table.remove_place(node, &place);
        if self.table.place(node).is_some() {
            return Ok(());
        }
        let reopened = directory.reopen_directory().map_err(status)?;
        let lines = self.listings.after(place.directory, 0, &reopened).map_err(status)?;
        let name = lines
            .iter()
            .find(|line| directory.look_at(&line.name).is_ok_and(|found| found.identity == identity))
            .map(|line| line.name.to_vec());
        match name {
            Some(name) => {
                let directory = place.directory;
                self.table.add_place(node, NameInDirectory { directory, name });
                Ok(())
            }
            None => {
                self.table.forget(node);
                self.open_files.close(node);
                Err(Status::STALE)
            }
        }
    }

    /// Opens a directory for work inside it.
    pub(super) fn enter(&mut self, directory: NodeId) -> Result<OwnedFd, Status> {
        let located = self.locate(directory)?;
        located.reference.reopen_directory().map_err(status)
    }

    /// Opens a regular file, or finds it open already. Where there are no descriptors left, what is kept open is closed.
    pub(super) fn file(&mut self, node: NodeId, access: Access) -> Result<Arc<OpenFile>, Status> {
        match self.try_file(node, access) {
            Err(Status::JUKEBOX) if !self.open_files.is_empty() => {
                self.open_files.close_all();
                self.try_file(node, access)
            }
            found => found,
        }
    }

    fn try_file(&mut self, node: NodeId, access: Access) -> Result<Arc<OpenFile>, Status> {
        if let Some(open) = self.open_files.find(node, access) {
            return Ok(open);
        }
        let located = self.locate(node)?;
        let found = located.reference.look().map_err(status)?;
        match found.attributes.type_ {
            ftype3::NF3REG => {}
            ftype3::NF3DIR => return Err(Status::ISDIR),
            _ => return Err(Status::INVAL),
        }
        let (directory, name) = located.place.ok_or(Status::ISDIR)?;
        let directory = directory.directory().map_err(status)?;
        // Should a named pipe take the file's place meanwhile, opening it must not wait. The host does not run what is open for writing.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = flags
            | match access {
                Access::ReadWrite => OFlags::RDWR,
                Access::ReadOnly => OFlags::RDONLY,
            };
        let file = retry(|| rustix::fs::openat(directory, &name[..], flags, Mode::empty()))?;
        if look(&file).map_err(status)?.identity != found.identity {
            return Err(Status::STALE);
        }
        Ok(self.open_files.keep(node, OpenFile::new(file, access)))
    }

    pub(super) fn find(
        &mut self,
        directory: &OwnedFd,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<(NodeId, Found), Status> {
        let found = look_at(directory, name.as_bytes()).map_err(status)?;
        let place = place(parent, name);
        Ok((self.table.enter(place, found.identity), found))
    }

    /// Changes attributes in the host's memory.
    pub(super) fn apply(&mut self, node: NodeId, changes: &sattr3) -> Result<(), Status> {
        let before = self.attributes(node)?;
        let keeps = |wanted: &Nfs3Option<u32>, present| match wanted {
            Nfs3Option::Some(wanted) => *wanted == present,
            Nfs3Option::None => true,
        };
        if !keeps(&changes.uid, before.uid) || !keeps(&changes.gid, before.gid) {
            return Err(Status::PERM);
        }
        if let Nfs3Option::Some(size) = changes.size {
            if size > i64::MAX as u64 {
                return Err(Status::FBIG);
            }
            let file = self.file(node, Access::ReadWrite)?;
            retry(|| rustix::fs::ftruncate(&file, size))?;
        }
        let located = self.locate(node)?;
        if let Nfs3Option::Some(mode) = changes.mode
            && before.type_ != ftype3::NF3LNK
        {
            let bits = if before.type_ == ftype3::NF3DIR { DIRECTORY_MODE_BITS } else { MODE_BITS };
            let mode = Mode::from_raw_mode((mode & bits) as RawMode);
            located.reference.set_mode(mode).map_err(status)?;
        }
        located.reference.set_times(located.place.as_ref(), changes).map_err(status)
    }

    pub(super) fn attributes(&mut self, node: NodeId) -> Result<fattr3, Status> {
        let found = match self.open_files.any(node).map(look) {
            Some(found) => found,
            None => self.locate(node)?.reference.look(),
        };
        let attributes = found.map_err(status)?.shown(self.table.root());
        if attributes.nlink == 0 {
            self.table.forget(node);
            self.open_files.close(node);
            return Err(Status::STALE);
        }
        Ok(attributes)
    }

    /// Takes a name out of the table; the file may have others.
    pub(super) fn unlinked(&mut self, directory: NodeId, name: Name<'_>, before: &Found) {
        if let Some(node) = self.table.find(before.identity) {
            if before.attributes.nlink <= 1 || before.attributes.type_ == ftype3::NF3DIR {
                self.table.forget(node);
                self.open_files.close(node);
            } else {
                self.table.remove_place(node, &place(directory, name));
            }
        }
    }

    /// Looks for a node that nobody has asked about since the server was started.
    ///
    /// # Errors
    /// JUKEBOX when there is more to look through, STALE when there is not.
    pub(super) fn find_again(&mut self, node: NodeId) -> Result<(), Status> {
        let mut entries = 0;
        while let Some(directory) = self.search.next() {
            entries += match self.look_into(directory) {
                Ok(count) => count,
                Err(Status::JUKEBOX) => {
                    self.search.put_back(directory);
                    return Err(Status::JUKEBOX);
                }
                // A directory that has gone meanwhile, or is not for us, holds nothing that could be asked for.
                Err(_) => 1,
            };
            if self.table.identity(node).is_some() {
                return Ok(());
            }
            if entries >= ENTRIES_PER_TURN {
                return Err(Status::JUKEBOX);
            }
        }
        Err(Status::STALE)
    }

    fn look_into(&mut self, directory: NodeId) -> Result<usize, Status> {
        // A directory that was forgotten again must not be searched for in turn.
        self.table.identity(directory).ok_or(Status::STALE)?;
        let inside = self.enter(directory)?;
        let mut count = 0;
        let mut below = Vec::new();
        for entry in Dir::read_from(&inside).map_err(status)? {
            let entry = match entry.map_err(status) {
                Ok(entry) => entry,
                Err(Status::JUKEBOX) => return Err(Status::JUKEBOX),
                Err(_) => break,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            count += 1;
            // What cannot be looked at, such as a mount whose program is gone, does not hide its neighbours. Numbers of files whose time of
            // birth is not told prove nothing.
            let found = match look_at(&inside, name).map_err(status) {
                Ok(found) => found,
                Err(Status::JUKEBOX) => return Err(Status::JUKEBOX),
                Err(_) => continue,
            };
            if !found.identity.is_unique() {
                continue;
            }
            let node = self.table.enter(NameInDirectory { directory, name: name.to_vec() }, found.identity);
            if found.attributes.type_ == ftype3::NF3DIR {
                let is_mounted = !found.identity.is_on_mount_of(self.table.root());
                below.push((node, is_mounted));
            }
        }
        for (node, is_mounted) in below {
            self.search.add(node, is_mounted);
        }
        Ok(count)
    }
}

pub(super) fn place(directory: NodeId, name: Name<'_>) -> NameInDirectory {
    NameInDirectory { directory, name: name.as_bytes().to_vec() }
}
