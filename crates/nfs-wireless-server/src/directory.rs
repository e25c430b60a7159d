//! A directory of the host as an export, with no way out of it.
//!
//! Every step goes from an open directory to one name in it, and symbolic links are never followed, so that neither a
//! `..`, nor a link, nor a rename made meanwhile leads outside.

mod config;
mod host;
mod listing;
mod search;
mod table;

use std::{
    collections::VecDeque,
    io,
    ops::ControlFlow,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, nfstime3, sattr3, set_atime, set_mtime, stable_how},
};
use rustix::{
    buffer::spare_capacity,
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

pub use self::config::{Access, DirectoryConfig, Metadata};
use self::{
    host::{Found, look, look_at, open_entry, reopen_directory, retry, set_times, status, verifier_times},
    listing::Listings,
    search::Search,
    table::{Place, ROOT, Table},
};
use crate::vfs::{Detail, EndOfFile, Entry, Name, NewObject, NodeId, Owner, Space, Vfs};

/// A directory of the host.
///
/// Unstable writes are in the host's page cache, COMMIT is `fsync`. Files belong to the user the server runs as:
/// callers' numbers are ignored, a change of owner is refused with `NFS3ERR_PERM`, and set-user-ID and set-group-ID
/// bits are left out. Handles stay valid across renames through the server, and across renames on the host within one
/// directory; where the host tells when files were made they survive the server, too. Devices cannot be made.
#[derive(Debug)]
pub struct Directory {
    config: DirectoryConfig,
    root: OwnedFd,
    table: Table,
    search: Search,
    listings: Listings,
    /// Files open for reading or writing, the last used first.
    open_files: VecDeque<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    node: NodeId,
    file: OwnedFd,
    access: Access,
}

/// A file that was found where the table says it is.
struct Located {
    /// A mere reference to the file, which also a symbolic link can have.
    reference: OwnedFd,
    /// The directory it lies in, and its name there; the root has none.
    place: Option<(OwnedFd, Vec<u8>)>,
}

/// Bits of a mode that clients can set.
const MODE_BITS: u32 = 0o1777;

/// Modes of what is created without one.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

impl Directory {
    /// Exports the directory at `path`; a symbolic link there is followed, once and for all.
    ///
    /// # Errors
    /// The host's error when it is no directory that can be opened.
    pub fn open(path: impl AsRef<Path>, config: DirectoryConfig) -> io::Result<Self> {
        let root = host::open_root(path.as_ref())?;
        let identity = look(&root)?.identity;
        Ok(Self {
            table: Table::new(identity, config.max_nodes),
            search: Search::new(identity),
            config,
            root,
            listings: Listings::default(),
            open_files: VecDeque::new(),
        })
    }

    /// Finds a node again, step by step from the root, and checks that every step is still the same file.
    fn locate(&mut self, node: NodeId) -> Result<Located, Status> {
        /// Names of one path that may have changed behind our back.
        const ATTEMPTS: usize = 16;
        if self.table.identity(node).is_none() {
            self.find_again(node)?;
        }
        for _ in 0..ATTEMPTS {
            let path = self.table.path(node).ok_or(Status::STALE)?;
            let mut reference = self.root.try_clone().map_err(|_| Status::JUKEBOX)?;
            let mut place = None;
            let mut lost = None;
            for step in path {
                let (name, identity) = match (self.table.place(step), self.table.identity(step)) {
                    (Some(place), Some(identity)) => (place.name.clone(), identity),
                    _ => return Err(Status::STALE),
                };
                match open_entry(&reference, &name).and_then(|next| Ok((look(&next)?, next))) {
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
    fn look_around(&mut self, node: NodeId, directory: &OwnedFd) -> Result<(), Status> {
        let (place, identity) = match (self.table.place(node), self.table.identity(node)) {
            (Some(place), Some(identity)) => (place.clone(), identity),
            _ => return Err(Status::STALE),
        };
        self.table.remove_place(node, &place);
        if self.table.place(node).is_some() {
            return Ok(());
        }
        let reopened = reopen_directory(directory).map_err(status)?;
        let lines = self.listings.after(place.directory, 0, &reopened).map_err(status)?;
        let name = lines
            .iter()
            .find(|line| look_at(directory, &line.name).is_ok_and(|found| found.identity == identity))
            .map(|line| line.name.to_vec());
        match name {
            Some(name) => {
                let directory = place.directory;
                self.table.add_place(node, Place { directory, name });
                Ok(())
            }
            None => {
                self.table.forget(node);
                self.close(node);
                Err(Status::STALE)
            }
        }
    }

    /// Opens a directory for work inside it.
    fn enter(&mut self, directory: NodeId) -> Result<OwnedFd, Status> {
        let located = self.locate(directory)?;
        reopen_directory(&located.reference).map_err(status)
    }

    /// Opens a regular file, or finds it open already.
    fn file(&mut self, node: NodeId, access: Access) -> Result<&OwnedFd, Status> {
        let open = self.open_files.iter().position(|open| {
            open.node == node && (open.access == Access::ReadWrite || access == Access::ReadOnly)
        });
        if let Some(open) = open.and_then(|index| self.open_files.remove(index)) {
            self.open_files.push_front(open);
        } else {
            let located = self.locate(node)?;
            let found = look(&located.reference).map_err(status)?;
            match found.attributes.type_ {
                ftype3::NF3REG => {}
                ftype3::NF3DIR => return Err(Status::ISDIR),
                _ => return Err(Status::INVAL),
            }
            let (directory, name) = located.place.ok_or(Status::ISDIR)?;
            let (file, access) = self.open_data(&directory, &name, access)?;
            if look(&file).map_err(status)?.identity != found.identity {
                return Err(Status::STALE);
            }
            self.keep_open(node, file, access);
        }
        self.open_files.front().map(|open| &open.file).ok_or(Status::SERVERFAULT)
    }

    fn open_data(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        access: Access,
    ) -> Result<(OwnedFd, Access), Status> {
        // Should a named pipe take the file's place meanwhile, opening it must not wait.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |mode| retry(|| rustix::fs::openat(directory, name, flags | mode, Mode::empty()));
        if self.config.access == Access::ReadWrite {
            match open(OFlags::RDWR) {
                Ok(file) => return Ok((file, Access::ReadWrite)),
                Err(status) if access == Access::ReadWrite => return Err(status),
                Err(_) => {}
            }
        }
        Ok((open(OFlags::RDONLY)?, Access::ReadOnly))
    }

    fn keep_open(&mut self, node: NodeId, file: OwnedFd, access: Access) {
        self.close(node);
        self.open_files.truncate(self.config.max_open_files.saturating_sub(1));
        self.open_files.push_front(OpenFile { node, file, access });
    }

    fn close(&mut self, node: NodeId) {
        self.open_files.retain(|open| open.node != node);
    }

    fn find(
        &mut self,
        directory: &OwnedFd,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<(NodeId, Found), Status> {
        let found = look_at(directory, name.as_bytes()).map_err(status)?;
        let place = place(parent, name);
        Ok((self.table.enter(place, found.identity), found))
    }

    fn sync(&self, file: impl AsFd) -> Result<(), Status> {
        match self.config.metadata {
            Metadata::Synced => retry(|| rustix::fs::fsync(&file)),
            Metadata::Cached => Ok(()),
        }
    }

    /// Changes attributes in the host's memory.
    fn apply(&mut self, node: NodeId, changes: &sattr3) -> Result<(), Status> {
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
            retry(|| rustix::fs::ftruncate(file, size))?;
        }
        let located = self.locate(node)?;
        if let Nfs3Option::Some(mode) = changes.mode
            && before.type_ != ftype3::NF3LNK
        {
            let mode = Mode::from_bits_truncate(mode & MODE_BITS);
            host::set_mode(&located.reference, mode).map_err(status)?;
        }
        set_times(&located.reference, located.place.as_ref(), changes).map_err(status)
    }

    /// Takes a name out of the table; the file may have others.
    fn unlinked(&mut self, directory: NodeId, name: Name<'_>, before: &Found) {
        if let Some(node) = self.table.find(before.identity) {
            if before.attributes.nlink <= 1 || before.attributes.type_ == ftype3::NF3DIR {
                self.table.forget(node);
                self.close(node);
            } else {
                self.table.remove_place(node, &place(directory, name));
            }
        }
    }
}

fn place(directory: NodeId, name: Name<'_>) -> Place {
    Place { directory, name: name.as_bytes().to_vec() }
}

impl Vfs for Directory {
    fn root(&self) -> NodeId {
        ROOT
    }

    fn instance(&self) -> Option<u64> {
        let root = self.table.identity(ROOT).filter(|root| root.is_unique())?;
        Some(root.number())
    }

    fn attributes(&mut self, node: NodeId) -> Result<fattr3, Status> {
        let open = self.open_files.iter().find(|open| open.node == node);
        let found = match open.map(|open| look(&open.file)) {
            Some(found) => found,
            None => look(&self.locate(node)?.reference),
        };
        let attributes = found.map_err(status)?.attributes;
        if attributes.nlink == 0 {
            self.table.forget(node);
            self.close(node);
            return Err(Status::STALE);
        }
        Ok(attributes)
    }

    fn set_attributes(&mut self, _: nfstime3, node: NodeId, changes: &sattr3) -> Result<(), Status> {
        self.apply(node, changes)?;
        if self.config.metadata == Metadata::Cached {
            return Ok(());
        }
        match self.attributes(node)?.type_ {
            ftype3::NF3REG => self.commit(node, 0, 0),
            ftype3::NF3DIR => {
                let inside = self.enter(node)?;
                self.sync(inside)
            }
            // The host cannot flush these by themselves; the next flush of their directory takes them along.
            _ => Ok(()),
        }
    }

    fn lookup(&mut self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        let inside = self.locate(directory)?.reference;
        self.find(&inside, directory, name).map(|(node, _)| node)
    }

    fn parent(&mut self, directory: NodeId) -> Result<NodeId, Status> {
        let located = self.locate(directory)?;
        if look(&located.reference).map_err(status)?.attributes.type_ != ftype3::NF3DIR {
            return Err(Status::NOTDIR);
        }
        Ok(self.table.place(directory).map_or(ROOT, |place| place.directory))
    }

    fn read_link(&mut self, node: NodeId) -> Result<Vec<u8>, Status> {
        let reference = self.locate(node)?.reference;
        if look(&reference).map_err(status)?.attributes.type_ != ftype3::NF3LNK {
            return Err(Status::INVAL);
        }
        let target = rustix::fs::readlinkat(&reference, "", Vec::new()).map_err(status)?;
        Ok(target.into_bytes())
    }

    fn read(
        &mut self,
        _: nfstime3,
        node: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, Status> {
        let file = self.file(node, Access::ReadOnly)?;
        let size = look(file).map_err(status)?.attributes.size;
        let there = size.saturating_sub(offset).min(count.into()) as usize;
        let start = buffer.len();
        buffer.reserve_exact(there);
        while buffer.len() < start + there {
            let position = offset + (buffer.len() - start) as u64;
            if retry(|| rustix::io::pread(file, spare_capacity(buffer), position))? == 0 {
                break;
            }
        }
        buffer.truncate(start + there);
        let end = offset.saturating_add((buffer.len() - start) as u64);
        if end >= size || buffer.len() < start + there {
            Ok(EndOfFile::Reached)
        } else {
            Ok(EndOfFile::NotReached)
        }
    }

    fn write(
        &mut self,
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
        let file = self.file(node, Access::ReadWrite)?;
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match retry(|| rustix::io::pwrite(file, rest, offset + done as u64))? {
                0 => return Err(Status::IO),
                written => done += written,
            }
        }
        match stable {
            stable_how::UNSTABLE => {}
            stable_how::DATA_SYNC => retry(|| rustix::fs::fdatasync(file))?,
            stable_how::FILE_SYNC => retry(|| rustix::fs::fsync(file))?,
        }
        Ok(stable)
    }

    fn commit(&mut self, node: NodeId, _: u64, _: u32) -> Result<(), Status> {
        let file = self.file(node, Access::ReadOnly)?;
        retry(|| rustix::fs::fsync(file))
    }

    fn create(
        &mut self,
        _: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        object: NewObject<'_>,
        attributes: &sattr3,
        _: Owner,
    ) -> Result<NodeId, Status> {
        let inside = self.enter(directory)?;
        let bytes = name.as_bytes();
        let wanted = match (attributes.mode, object) {
            (Nfs3Option::Some(mode), _) => mode & MODE_BITS,
            (Nfs3Option::None, NewObject::Directory) => DIRECTORY_MODE,
            (Nfs3Option::None, _) => FILE_MODE,
        };
        let mode = Mode::from_bits_truncate(wanted);
        let mut file = None;
        match object {
            NewObject::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                file = Some(retry(|| rustix::fs::openat(&inside, bytes, flags, mode))?);
            }
            NewObject::Directory => retry(|| rustix::fs::mkdirat(&inside, bytes, mode))?,
            NewObject::Symlink(target) => retry(|| rustix::fs::symlinkat(target, &inside, bytes))?,
            NewObject::Fifo => retry(|| rustix::fs::mknodat(&inside, bytes, FileType::Fifo, mode, 0))?,
            NewObject::Socket => retry(|| rustix::fs::mknodat(&inside, bytes, FileType::Socket, mode, 0))?,
            NewObject::CharacterDevice(..) | NewObject::BlockDevice(..) => return Err(Status::NOTSUPP),
        }
        let (node, _) = self.find(&inside, directory, name)?;
        if let Some(file) = file {
            self.keep_open(node, file, Access::ReadWrite);
        }
        // The mode again, because the host's mask may have taken bits away. A wish that cannot be granted, such as
        // another owner, does not undo the creation (RFC 1813 §3.3.8).
        let rest = sattr3 {
            mode: Nfs3Option::Some(wanted),
            uid: Nfs3Option::None,
            gid: Nfs3Option::None,
            ..attributes.clone()
        };
        self.apply(node, &rest)?;
        self.sync(&inside)?;
        Ok(node)
    }

    fn create_exclusive(
        &mut self,
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
            made => made,
        }
    }

    fn remove(&mut self, _: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let inside = self.enter(directory)?;
        let before = look_at(&inside, name.as_bytes()).map_err(status)?;
        if before.attributes.type_ == ftype3::NF3DIR {
            return Err(Status::ISDIR);
        }
        retry(|| rustix::fs::unlinkat(&inside, name.as_bytes(), AtFlags::empty()))?;
        self.unlinked(directory, name, &before);
        self.sync(&inside)
    }

    fn remove_directory(&mut self, _: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let inside = self.enter(directory)?;
        let before = look_at(&inside, name.as_bytes()).map_err(status)?;
        retry(|| rustix::fs::unlinkat(&inside, name.as_bytes(), AtFlags::REMOVEDIR))?;
        self.unlinked(directory, name, &before);
        self.sync(&inside)
    }

    fn rename(
        &mut self,
        _: nfstime3,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
    ) -> Result<(), Status> {
        let (source, target) = (self.enter(from.0)?, self.enter(to.0)?);
        let moved = look_at(&source, from.1.as_bytes()).map_err(status)?;
        let replaced = look_at(&target, to.1.as_bytes());
        retry(|| rustix::fs::renameat(&source, from.1.as_bytes(), &target, to.1.as_bytes()))?;
        match replaced {
            // Two names of one file: the host does nothing.
            Ok(replaced) if replaced.identity == moved.identity => return Ok(()),
            Ok(replaced) => self.unlinked(to.0, to.1, &replaced),
            Err(_) => {}
        }
        if let Some(node) = self.table.find(moved.identity) {
            self.table.add_place(node, place(to.0, to.1));
            self.table.remove_place(node, &place(from.0, from.1));
        }
        self.sync(&target)?;
        self.sync(&source)
    }

    fn link(&mut self, _: nfstime3, node: NodeId, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let located = self.locate(node)?;
        if look(&located.reference).map_err(status)?.attributes.type_ == ftype3::NF3DIR {
            return Err(Status::ISDIR);
        }
        let (source, old) = located.place.ok_or(Status::ISDIR)?;
        let inside = self.enter(directory)?;
        retry(|| rustix::fs::linkat(&source, &old[..], &inside, name.as_bytes(), AtFlags::empty()))?;
        self.table.add_place(node, place(directory, name));
        self.sync(&inside)
    }

    fn list(
        &mut self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Status> {
        let inside = self.enter(directory)?;
        let lines = self.listings.after(directory, after, &inside).map_err(status)?;
        for line in lines {
            let node = match detail {
                Detail::Names => None,
                Detail::Attributes => match look_at(&inside, &line.name) {
                    Ok(found) => {
                        let name = line.name.to_vec();
                        let node = self.table.enter(Place { directory, name }, found.identity);
                        Some((node, found.attributes))
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
        self.listings.end(directory);
        Ok(ControlFlow::Continue(()))
    }

    fn space(&mut self) -> Result<Space, Status> {
        let host = rustix::fs::fstatvfs(&self.root).map_err(status)?;
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
