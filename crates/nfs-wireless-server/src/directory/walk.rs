//! From nodes to files of the host, and back. Each call of the host is made without the lock; what others have changed meanwhile is
//! noticed when what it told is noted.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, sattr3},
};
use rustix::{
    fs::{Dir, Mode, OFlags, RawMode},
    io::Errno,
};

use super::{
    Access, DIRECTORY_MODE_BITS, Directory, MODE_BITS,
    host::{Found, Reference, look, look_at, retry, status},
    listing::Listing,
    open_files::OpenFile,
    state::State,
    table::{NameInDirectory, Step},
};
use crate::vfs::NodeId;

/// Entries looked at before the client is asked to come again, so that others are served meanwhile.
const ENTRIES_PER_TURN: usize = 8192;

/// Longest wait for another call; after that the client is asked to come again, as that call may wait for a file system that does not
/// respond.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a name is looked at whose file may have become another one meanwhile.
const LOOKS: usize = 8;

/// A file that was found where the table says it is.
pub(super) struct Located {
    pub(super) reference: Reference,
    /// Its place, and the directory of it; the root has none.
    pub(super) place: Option<(Reference, NameInDirectory)>,
}

/// Directories in which nobody else gives or takes a name until this is dropped.
pub(super) struct Claim<'a> {
    directory: &'a Directory,
    claimed: [NodeId; 2],
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.directory.lock();
        for node in self.claimed {
            if let Some(index) = state.claimed.iter().position(|&it| it == node) {
                state.claimed.swap_remove(index);
            }
        }
        drop(state);
        self.directory.changed.notify_all();
    }
}

impl Directory {
    /// Waits for others as long as `waits`; they say when something has changed.
    fn wait_while(&self, waits: impl FnMut(&mut State) -> bool) -> Result<MutexGuard<'_, State>, Status> {
        let waited = self.changed.wait_timeout_while(self.lock(), PATIENCE, waits);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() { Err(Status::JUKEBOX) } else { Ok(state) }
    }

    /// Claims one directory or two, to give and take names there.
    pub(super) fn claim(&self, one: NodeId, other: NodeId) -> Result<Claim<'_>, Status> {
        let claimed = [one, other];
        let mut state = self.wait_while(|state| claimed.iter().any(|it| state.claimed.contains(it)))?;
        state.claimed.extend(claimed);
        Ok(Claim { directory: self, claimed })
    }

    /// Finds a node again, step by step from the root, and checks that every step is still the same file.
    pub(super) fn locate(&self, node: NodeId) -> Result<Located, Status> {
        /// Names of one path that may have changed behind our back.
        const ATTEMPTS: usize = 16;
        if self.lock().table.identity(node).is_none() {
            self.find_again(node)?;
        }
        for _ in 0..ATTEMPTS {
            let path = self.lock().table.path(node).ok_or(Status::STALE)?;
            let mut reference = Reference::to(&self.root).map_err(|_| Status::JUKEBOX)?;
            let mut place = None;
            let mut lost = None;
            for step in path {
                match reference.entry(&step.place.name).and_then(|next| Ok((next.look()?, next))) {
                    Ok((found, next)) if found.identity == step.identity => {
                        place = Some((std::mem::replace(&mut reference, next), step.place));
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
                Some(step) => self.look_around(&step, &reference)?,
            }
        }
        Err(Status::STALE)
    }

    /// Looks for a node that is not where it was last seen: at its other names, then among its old neighbours.
    fn look_around(&self, step: &Step, directory: &Reference) -> Result<(), Status> {
        let Step { node, identity, place } = step;
        let mut state = self.wait_while(|state| state.moving.contains(identity))?;
        match state.table.place(*node) {
            None => return Err(Status::STALE),
            // It was moved, or found by others.
            Some(now) if now != place => return Ok(()),
            Some(_) if state.table.has_other_place(*node, place) => {
                state.table.remove_place(*node, place);
                return Ok(());
            }
            Some(_) => drop(state),
        }
        let reopened = directory.reopen_directory().map_err(status)?;
        let listing = self.listing(place.directory, 0, &reopened).map_err(status)?;
        let is_it = |name: &[u8]| directory.look_at(name).is_ok_and(|found| found.identity == *identity);
        let name = listing.after(0).iter().find(|line| is_it(&line.name)).map(|line| line.name.to_vec());
        let mut state = self.wait_while(|state| state.moving.contains(identity))?;
        match name {
            _ if state.table.place(*node).is_some_and(|now| now != place) => Ok(()),
            Some(name) => {
                state.table.remove_place(*node, place);
                state.table.add_place(*node, NameInDirectory { directory: place.directory, name });
                Ok(())
            }
            None => {
                let closed = state.forget(*node);
                drop(state);
                drop(closed);
                Err(Status::STALE)
            }
        }
    }

    /// Opens a directory for work inside it.
    pub(super) fn enter(&self, directory: NodeId) -> Result<OwnedFd, Status> {
        let located = self.locate(directory)?;
        located.reference.reopen_directory().map_err(status)
    }

    /// Returns the names of a directory, which are read if they must be.
    pub(super) fn listing(&self, directory: NodeId, cookie: u64, inside: &OwnedFd) -> Result<Listing, Errno> {
        let kept = self.lock().listings.of(directory);
        let listing = Listing::at(kept, directory, cookie, inside)?;
        self.lock().listings.keep(listing.clone());
        Ok(listing)
    }

    /// Opens a regular file, or finds it open already. Where there are no descriptors left, what is kept open is closed.
    pub(super) fn file(&self, node: NodeId, access: Access) -> Result<Arc<OpenFile>, Status> {
        match self.try_file(node, access) {
            Err(Status::JUKEBOX) => {
                let mut state = self.lock();
                if state.open_files.is_empty() {
                    return Err(Status::JUKEBOX);
                }
                let closed = state.open_files.close_all();
                drop(state);
                drop(closed);
                self.try_file(node, access)
            }
            found => found,
        }
    }

    fn try_file(&self, node: NodeId, access: Access) -> Result<Arc<OpenFile>, Status> {
        if let Some(open) = self.lock().open_files.find(node, access) {
            return Ok(open);
        }
        let located = self.locate(node)?;
        let found = located.reference.look().map_err(status)?;
        match found.attributes.type_ {
            ftype3::NF3REG => {}
            ftype3::NF3DIR => return Err(Status::ISDIR),
            _ => return Err(Status::INVAL),
        }
        let (directory, place) = located.place.ok_or(Status::ISDIR)?;
        let directory = directory.directory().map_err(status)?;
        // Should a named pipe take the file's place meanwhile, opening it must not wait. The host does not run what is open for writing.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = flags
            | match access {
                Access::ReadWrite => OFlags::RDWR,
                Access::ReadOnly => OFlags::RDONLY,
            };
        let file = retry(|| rustix::fs::openat(directory, &place.name[..], flags, Mode::empty()))?;
        if look(&file).map_err(status)?.identity != found.identity {
            return Err(Status::STALE);
        }
        Ok(self.keep_open(node, OpenFile::new(file, access)))
    }

    /// Keeps a file open, unless another call has opened it meanwhile: then that is returned.
    pub(super) fn keep_open(&self, node: NodeId, file: OpenFile) -> Arc<OpenFile> {
        let file = Arc::new(file);
        let mut state = self.lock();
        if let Some(open) = state.open_files.find(node, file.access()) {
            return open;
        }
        let closed = state.open_files.keep(node, Arc::clone(&file));
        drop(state);
        drop(closed);
        file
    }

    /// Looks at a name, and returns the node of what has it.
    pub(super) fn find(
        &self,
        inside: &OwnedFd,
        directory: NodeId,
        name: &[u8],
    ) -> Result<(NodeId, Found), Errno> {
        let mut looks = 0;
        loop {
            let unlinks = self.lock().unlinks;
            let found = look_at(inside, name)?;
            let mut state = self.lock();
            looks += 1;
            // A file that was removed meanwhile may have left its identity to another one.
            if state.unlinks == unlinks || looks == LOOKS {
                let place = NameInDirectory { directory, name: name.to_vec() };
                return Ok((state.table.enter(place, found.identity), found));
            }
        }
    }

    /// Changes attributes in the host's memory.
    pub(super) fn apply(&self, node: NodeId, changes: &sattr3) -> Result<(), Status> {
        let before = self.look(node)?;
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
        let place = located.place.as_ref().map(|(directory, place)| (directory, &place.name[..]));
        located.reference.set_times(place, changes).map_err(status)
    }

    /// Returns the attributes of a node.
    pub(super) fn look(&self, node: NodeId) -> Result<fattr3, Status> {
        let open = self.lock().open_files.any(node);
        let found = match open {
            Some(open) => look(&*open),
            None => self.locate(node)?.reference.look(),
        };
        let attributes = found.map_err(status)?.shown(self.identity);
        if attributes.nlink == 0 {
            let closed = self.lock().forget(node);
            drop(closed);
            return Err(Status::STALE);
        }
        Ok(attributes)
    }

    /// Looks for a node that nobody has asked about since the server was started.
    ///
    /// # Errors
    /// JUKEBOX when there is more to look through, also for others who have not ended; STALE when there is not.
    fn find_again(&self, node: NodeId) -> Result<(), Status> {
        let mut entries = 0;
        loop {
            let is_known = |state: &State| state.table.identity(node).is_some();
            let mut state = self.wait_while(|state| state.search.waits() && !is_known(state))?;
            if is_known(&state) {
                return Ok(());
            }
            if entries >= ENTRIES_PER_TURN {
                return Err(Status::JUKEBOX);
            }
            let directory = state.search.next().ok_or(Status::STALE)?;
            drop(state);
            let looked = self.look_into(directory);
            let mut state = self.lock();
            state.search.end();
            if looked == Err(Status::JUKEBOX) {
                state.search.put_back(directory);
            }
            drop(state);
            self.changed.notify_all();
            entries += match looked {
                Ok(count) => count,
                Err(Status::JUKEBOX) => return Err(Status::JUKEBOX),
                // A directory that has gone meanwhile, or is not for us, holds nothing that could be asked for.
                Err(_) => 1,
            };
        }
    }

    fn look_into(&self, directory: NodeId) -> Result<usize, Status> {
        // A directory that was forgotten again must not be searched for in turn.
        self.lock().table.identity(directory).ok_or(Status::STALE)?;
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
            let place = NameInDirectory { directory, name: name.to_vec() };
            let node = self.lock().table.enter(place, found.identity);
            if found.is_directory() {
                below.push((node, !found.identity.is_on_mount_of(self.identity)));
            }
        }
        let mut state = self.lock();
        for (node, is_mounted) in below {
            state.search.add(node, is_mounted);
        }
        Ok(count)
    }
}
