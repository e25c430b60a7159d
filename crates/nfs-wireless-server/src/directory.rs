//! A directory of the host as an export, with no way out of it.
//!
//! Every step goes from an open directory to one name in it, and symbolic links are never followed, so that neither a
//! `..`, nor a link, nor a rename made meanwhile leads outside.

mod config;
mod host;
mod listing;
mod open_files;
mod search;
mod state;
mod table;

use std::{
    io,
    ops::ControlFlow,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, nfstime3, sattr3, set_atime, set_mtime, stable_how},
};
use rustix::{
    buffer::spare_capacity,
    fs::{AtFlags, FileType, Mode, OFlags, RawMode},
    io::Errno,
};

pub use self::config::{Access, DirectoryConfig, Metadata};
use self::{
    host::{look, look_at, retry, status, verifier_times},
    open_files::{Candidate, OpenFile},
    state::{State, place},
    table::{NameInDirectory, ROOT},
};
use crate::vfs::{Detail, EndOfFile, Entry, Name, NewObject, NodeId, Owner, Space, Vfs};

/// A directory of the host.
///
/// Unstable writes are in the host's page cache, COMMIT is `fsync`. Files belong to the user the server runs as:
/// callers' numbers are ignored, and a change of owner is refused with `NFS3ERR_PERM`. Set-user-ID and set-group-ID
/// bits of files are left out: a program with them would give whoever runs it on the host the server's rights outside the
/// export. Directories keep theirs. Handles stay valid across renames through the server, and across renames on the host within one
/// directory; where the host tells when files were made they survive the server, too. Devices cannot be made.
///
/// What the host has mounted in the directory is another file system (`fsid`), also if it was only bound there ("mount --bind"): on Linux
/// since 5.8, by the number of the mount. Numbers and handles of what is on the directory's own mount do not depend on that. Those on a mount
/// within it survive the server where its file system tells when files were made, but not a new mount.
///
/// Calls may come from several threads: what moves data or waits for the disk to have it holds no lock.
#[derive(Debug)]
pub struct Directory {
    config: DirectoryConfig,
    state: Mutex<State>,
}

/// Bits of a mode that clients can set.
const MODE_BITS: u32 = 0o1777;

/// The same for directories, where set-group-ID passes the group on to new entries.
const DIRECTORY_MODE_BITS: u32 = 0o7777;

/// Set-group-ID.
const SET_GROUP: u32 = 0o2000;

/// Modes of what is created without one.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

impl Directory {
    /// Exports the directory at `path`; a symbolic link there is followed, once and for all.
    ///
    /// # Errors
    /// The host's error when it is no directory that can be opened.
    pub fn open(path: impl AsRef<Path>, config: DirectoryConfig) -> io::Result<Self> {
        Self::of(host::open_root(path.as_ref())?, config)
    }

    /// Exports a directory that is open, whatever its path leads to by now.
    ///
    /// # Errors
    /// The host's error when it is no directory.
    pub fn of(root: OwnedFd, config: DirectoryConfig) -> io::Result<Self> {
        let identity = look(&root)?.identity;
        let state = Mutex::new(State::new(&config, root, identity));
        Ok(Self { config, state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self, file: impl AsFd) -> Result<(), Status> {
        match self.config.metadata {
            Metadata::Synced => host::sync(&file),
            Metadata::Cached => Ok(()),
        }
    }
}

/// Bytes that one READ returns of a file that says that it is empty, at most.
const MOST_WITHOUT_SIZE: u64 = 64 << 10;

impl Vfs for Directory {
    fn root(&self) -> NodeId {
        ROOT
    }

    fn instance(&self) -> Option<u64> {
        let root = self.lock().table.root();
        root.is_unique().then(|| root.number(root))
    }

    fn may_block(&self) -> bool {
        true
    }

    /// Closes files that were removed on the host, as they take room on its disk until then, and those that were written and are not any
    /// more, as the host runs no program that is open for writing.
    fn rest(&self) {
        let mut state = self.lock();
        state.listings.rest();
        let open = state.open_files.rest();
        drop(state);
        let done: Vec<_> = open.into_iter().filter(Candidate::is_done).collect();
        self.lock().open_files.let_go(&done);
    }

    /// `None` also while a call holds the lock: it may wait for a file system that does not respond, and who only shows a path does not.
    fn path(&self, node: NodeId) -> Option<Vec<u8>> {
        let mut state = self.state.try_lock().ok()?;
        let nodes = state.table.path(node)?;
        let names: Option<Vec<&[u8]>> =
            nodes.into_iter().map(|node| Some(&state.table.place(node)?.name[..])).collect();
        Some(names?.join(&b'/'))
    }

    fn attributes(&self, node: NodeId) -> Result<fattr3, Status> {
        self.lock().attributes(node)
    }

    fn set_attributes(&self, _: nfstime3, node: NodeId, changes: &sattr3) -> Result<(), Status> {
        let mut state = self.lock();
        // The new mode may not let it be opened.
        let file = match self.config.metadata {
            Metadata::Synced => state.file(node, Access::ReadOnly).ok(),
            Metadata::Cached => None,
        };
        state.apply(node, changes)?;
        if self.config.metadata == Metadata::Cached {
            return Ok(());
        }
        match state.attributes(node)?.type_ {
            ftype3::NF3REG => {
                drop(state);
                match file {
                    Some(file) => file.sync(),
                    None => self.commit(node, 0, 0),
                }
            }
            ftype3::NF3DIR => {
                let inside = state.enter(node)?;
                drop(state);
                self.sync(inside)
            }
            // The host cannot flush these by themselves; the next flush of their directory takes them along.
            _ => Ok(()),
        }
    }

    fn lookup(&self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        let mut state = self.lock();
        let inside = state.locate(directory)?.reference;
        state.find(inside.directory().map_err(status)?, directory, name).map(|(node, _)| node)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId, Status> {
        let mut state = self.lock();
        let located = state.locate(directory)?;
        if located.reference.look().map_err(status)?.attributes.type_ != ftype3::NF3DIR {
            return Err(Status::NOTDIR);
        }
        Ok(state.table.place(directory).map_or(ROOT, |place| place.directory))
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>, Status> {
        let reference = self.lock().locate(node)?.reference;
        if reference.look().map_err(status)?.attributes.type_ != ftype3::NF3LNK {
            return Err(Status::INVAL);
        }
        reference.read_link().map_err(status)
    }

    fn read(
        &self,
        _: nfstime3,
        node: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, Status> {
        let file = self.lock().file(node, Access::ReadOnly)?;
        let size = look(&*file).map_err(status)?.attributes.size;
        // What says that it is empty may have bytes all the same, as in /proc.
        let has_size = size > 0;
        let most = if has_size { size.saturating_sub(offset) } else { MOST_WITHOUT_SIZE };
        let there = most.min(count.into()) as usize;
        let start = buffer.len();
        buffer.reserve_exact(there);
        while buffer.len() < start + there {
            let position = offset + (buffer.len() - start) as u64;
            if retry(|| rustix::io::pread(&file, spare_capacity(buffer), position))? == 0 {
                break;
            }
        }
        buffer.truncate(start + there);
        let end = offset.saturating_add((buffer.len() - start) as u64);
        if (has_size || there == 0) && end >= size || buffer.len() < start + there {
            Ok(EndOfFile::Reached)
        } else {
            Ok(EndOfFile::NotReached)
        }
    }

    fn write(
        &self,
        _: nfstime3,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<stable_how, Status> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Status::FBIG);
        }
        let file = self.lock().file(node, Access::ReadWrite)?;
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match retry(|| rustix::io::pwrite(&file, rest, offset + done as u64))? {
                0 => return Err(Status::IO),
                written => done += written,
            }
            file.note_written();
        }
        match stable {
            stable_how::UNSTABLE => {}
            stable_how::DATA_SYNC => file.sync_data()?,
            stable_how::FILE_SYNC => file.sync()?,
        }
        Ok(stable)
    }

    fn commit(&self, node: NodeId, _: u64, _: u32) -> Result<(), Status> {
        let file = self.lock().file(node, Access::ReadOnly);
        match file {
            // Its mode does not let it be opened again.
            Err(Status::ACCES) => rustix::fs::sync(),
            file => file?.sync()?,
        }
        Ok(())
    }

    fn create(
        &self,
        _: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        object: NewObject<'_>,
        attributes: &sattr3,
        _: Owner,
    ) -> Result<NodeId, Status> {
        let mut state = self.lock();
        let inside = state.enter(directory)?;
        let bytes = name.as_bytes();
        let wanted = match (attributes.mode, object) {
            (Nfs3Option::Some(mode), NewObject::Directory) => mode & DIRECTORY_MODE_BITS,
            (Nfs3Option::Some(mode), _) => mode & MODE_BITS,
            (Nfs3Option::None, NewObject::Directory) => DIRECTORY_MODE,
            (Nfs3Option::None, _) => FILE_MODE,
        };
        let mode = Mode::from_raw_mode(wanted as RawMode);
        let mut file = None;
        match object {
            NewObject::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                file = Some(retry(|| rustix::fs::openat(&inside, bytes, flags, mode))?);
            }
            NewObject::Directory => retry(|| rustix::fs::mkdirat(&inside, bytes, mode))?,
            NewObject::Symlink(target) => retry(|| rustix::fs::symlinkat(target, &inside, bytes))?,
            NewObject::Fifo => host::make_special(&inside, bytes, FileType::Fifo, mode)?,
            NewObject::Socket => host::make_special(&inside, bytes, FileType::Socket, mode)?,
            NewObject::CharacterDevice(..) | NewObject::BlockDevice(..) => return Err(Status::NOTSUPP),
        }
        let (node, made) = state.find(&inside, directory, name)?;
        // A directory has it from the one that it is in.
        let inherited = if object == NewObject::Directory { made.attributes.mode & SET_GROUP } else { 0 };
        if let Some(file) = file {
            state.open_files.keep(node, OpenFile::new(file, Access::ReadWrite));
        }
        // The mode again, because the host's mask may have taken bits away. A wish that cannot be granted, such as
        // another owner, does not undo the creation (RFC 1813 §3.3.8).
        let rest = sattr3 {
            mode: Nfs3Option::Some(wanted | inherited),
            uid: Nfs3Option::None,
            gid: Nfs3Option::None,
            ..attributes.clone()
        };
        match state.apply(node, &rest) {
            // A file system that keeps no modes.
            Err(Status::PERM | Status::ACCES | Status::NOTSUPP | Status::INVAL) | Ok(()) => {}
            Err(status) => return Err(status),
        }
        drop(state);
        self.sync(&inside)?;
        Ok(node)
    }

    fn create_exclusive(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        verifier: [u8; 8],
        owner: Owner,
    ) -> Result<NodeId, Status> {
        let (accessed, modified) = verifier_times(verifier);
        let time = |seconds| nfstime3 { seconds, nseconds: 0 };
        let attributes = sattr3 {
            atime: set_atime::SET_TO_CLIENT_TIME(time(accessed)),
            mtime: set_mtime::SET_TO_CLIENT_TIME(time(modified)),
            ..sattr3::default()
        };
        match self.create(now, directory, name, NewObject::File, &attributes, owner) {
            Err(Status::EXIST) => {
                let node = self.lookup(directory, name)?;
                let found = self.attributes(node)?;
                let same = found.type_ == ftype3::NF3REG
                    && found.size == 0
                    && (found.atime, found.mtime) == (time(accessed), time(modified));
                if same { Ok(node) } else { Err(Status::EXIST) }
            }
            Ok(node) => {
                let made = self.attributes(node)?;
                if (made.atime, made.mtime) == (time(accessed), time(modified)) {
                    return Ok(node);
                }
                // A file system that keeps no such times: a repeated call would not know its own work (RFC 1813 §3.3.8).
                self.remove(now, directory, name)?;
                Err(Status::NOTSUPP)
            }
            refused => refused,
        }
    }

    fn remove(&self, _: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let mut state = self.lock();
        let inside = state.enter(directory)?;
        let before = look_at(&inside, name.as_bytes()).map_err(status)?;
        if before.attributes.type_ == ftype3::NF3DIR {
            return Err(Status::ISDIR);
        }
        retry(|| rustix::fs::unlinkat(&inside, name.as_bytes(), AtFlags::empty()))?;
        state.unlinked(directory, name, &before);
        drop(state);
        self.sync(&inside)
    }

    fn remove_directory(&self, _: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let mut state = self.lock();
        let inside = state.enter(directory)?;
        let before = look_at(&inside, name.as_bytes()).map_err(status)?;
        retry(|| rustix::fs::unlinkat(&inside, name.as_bytes(), AtFlags::REMOVEDIR))?;
        state.unlinked(directory, name, &before);
        drop(state);
        self.sync(&inside)
    }

    fn rename(&self, _: nfstime3, from: (NodeId, Name<'_>), to: (NodeId, Name<'_>)) -> Result<(), Status> {
        let mut state = self.lock();
        let (source, target) = (state.enter(from.0)?, state.enter(to.0)?);
        let moved = look_at(&source, from.1.as_bytes()).map_err(status)?;
        let replaced = look_at(&target, to.1.as_bytes());
        retry(|| rustix::fs::renameat(&source, from.1.as_bytes(), &target, to.1.as_bytes()))?;
        match replaced {
            // Two names of one file: the host does nothing.
            Ok(replaced) if replaced.identity == moved.identity => return Ok(()),
            Ok(replaced) => state.unlinked(to.0, to.1, &replaced),
            Err(_) => {}
        }
        if let Some(node) = state.table.find(moved.identity) {
            state.table.add_place(node, place(to.0, to.1));
            state.table.remove_place(node, &place(from.0, from.1));
        }
        drop(state);
        self.sync(&target)?;
        self.sync(&source)
    }

    fn link(&self, _: nfstime3, node: NodeId, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let mut state = self.lock();
        let located = state.locate(node)?;
        if located.reference.look().map_err(status)?.attributes.type_ == ftype3::NF3DIR {
            return Err(Status::ISDIR);
        }
        let (source, old) = located.place.ok_or(Status::ISDIR)?;
        let source = source.directory().map_err(status)?;
        let inside = state.enter(directory)?;
        retry(|| rustix::fs::linkat(source, &old[..], &inside, name.as_bytes(), AtFlags::empty()))?;
        state.table.add_place(node, place(directory, name));
        drop(state);
        self.sync(&inside)
    }

    fn list(
        &self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Status> {
        let mut state = self.lock();
        let state = &mut *state;
        let inside = state.enter(directory)?;
        let lines = state.listings.after(directory, after, &inside).map_err(status)?;
        for line in lines {
            let node = match detail {
                Detail::Names => None,
                Detail::Attributes => match look_at(&inside, &line.name) {
                    Ok(found) => {
                        let name = line.name.to_vec();
                        let node = state.table.enter(NameInDirectory { directory, name }, found.identity);
                        Some((node, found.shown(state.table.root())))
                    }
                    // Removed since the names were read.
                    Err(Errno::NOENT) => continue,
                    Err(_) => None,
                },
            };
            let entry = Entry {
                name: &line.name,
                file_id: node.as_ref().map_or(line.file_id, |(_, found)| found.fileid),
                cookie: line.cookie,
                node,
            };
            if visit(entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        state.listings.end(directory);
        Ok(ControlFlow::Continue(()))
    }

    fn space(&self) -> Result<Space, Status> {
        let host = rustix::fs::fstatvfs(&self.lock().root).map_err(status)?;
        Ok(Space {
            total_bytes: host.f_blocks.saturating_mul(host.f_frsize),
            free_bytes: host.f_bfree.saturating_mul(host.f_frsize),
            available_bytes: host.f_bavail.saturating_mul(host.f_frsize),
            total_files: host.f_files,
            free_files: host.f_ffree,
        })
    }

    fn is_read_only(&self) -> bool {
        self.config.access == Access::ReadOnly
    }
}

#[cfg(test)]
mod tests;
