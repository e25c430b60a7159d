//! The state of a file system in memory.

use std::{collections::BTreeMap, ops::ControlFlow};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{
        Nfs3Option, fattr3, ftype3, nfstime3, sattr3, set_atime, set_mtime, specdata3, stable_how,
    },
};

use super::{
    MemoryConfig,
    pages::{Durability, Pages},
};
use crate::vfs::{
    Detail, EndOfFile, Entry, FIRST_COOKIE, MAX_LINK_TARGET_BYTES, Name, NewObject, NodeId, Owner, Space,
};

/// Files, directories and what they hold.
#[derive(Debug)]
pub(super) struct State {
    config: MemoryConfig,
    nodes: BTreeMap<NodeId, Node>,
    last: NodeId,
    held_bytes: u64,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    links: u32,
    owner: Owner,
    accessed: nfstime3,
    modified: nfstime3,
    changed: nfstime3,
    /// The verifier of the EXCLUSIVE create that made the file.
    verifier: Option<[u8; 8]>,
}

#[derive(Debug)]
enum Kind {
    File(Pages),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special(ftype3, specdata3),
}

#[derive(Debug)]
struct Directory {
    parent: NodeId,
    names: BTreeMap<Vec<u8>, (NodeId, u64)>,
    /// Names by cookie: cookies count up and are never given out again, so a listing survives any change.
    order: BTreeMap<u64, Vec<u8>>,
    last_cookie: u64,
}

const ROOT: NodeId = NodeId(1);

/// Largest file, in bytes: offsets of a signed 64-bit type, as in POSIX.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Most names of one file, as on ext4.
const MAX_LINKS: u32 = 65_000;

impl State {
    /// Creates an empty file system.
    pub(super) fn new(config: MemoryConfig) -> Self {
        let mut memory = Self { config, nodes: BTreeMap::new(), last: NodeId(0), held_bytes: 0 };
        let root = Node::new(nfstime3::default(), Kind::Directory(Directory::new(ROOT)), Owner::default());
        memory.insert(root);
        memory
    }

    fn insert(&mut self, node: Node) -> NodeId {
        self.last.0 += 1;
        self.nodes.insert(self.last, node);
        self.last
    }

    fn add(
        &mut self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        mut node: Node,
    ) -> Result<NodeId, Status> {
        if self.directory(directory)?.names.contains_key(name.as_bytes()) {
            return Err(Status::EXIST);
        }
        if self.nodes.len() as u64 >= self.config.max_files {
            return Err(Status::NOSPC);
        }
        let is_directory = matches!(node.kind, Kind::Directory(_));
        node.links = if is_directory { 2 } else { 1 };
        let id = self.insert(node);
        let parent = self.node_mut(directory)?;
        parent.links += u32::from(is_directory);
        parent.touch(now);
        self.directory_mut(directory)?.enter(name, id);
        Ok(id)
    }

    fn drop_link(&mut self, now: nfstime3, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.links -= 1;
        node.changed = now;
        let is_directory = matches!(node.kind, Kind::Directory(_));
        if is_directory || node.links == 0 {
            if let Kind::File(pages) = &node.kind {
                self.held_bytes -= pages.held_bytes();
            }
            self.nodes.remove(&id);
        }
    }

    fn detach(&mut self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        let entries = self.directory_mut(directory)?;
        let (id, cookie) = entries.names.remove(name.as_bytes()).ok_or(Status::NOENT)?;
        entries.order.remove(&cookie);
        let is_directory = matches!(self.node(id)?.kind, Kind::Directory(_));
        let parent = self.node_mut(directory)?;
        parent.links -= u32::from(is_directory);
        parent.touch(now);
        Ok(id)
    }

    fn is_within(&self, mut directory: NodeId, ancestor: NodeId) -> Result<bool, Status> {
        while directory != ancestor {
            if directory == ROOT {
                return Ok(false);
            }
            directory = self.directory(directory)?.parent;
        }
        Ok(true)
    }

    fn edit<T>(&mut self, id: NodeId, edit: impl FnOnce(&mut Pages) -> T) -> Result<T, Status> {
        let pages = file(self.nodes.get_mut(&id).ok_or(Status::STALE)?)?;
        let before = pages.held_bytes();
        let result = edit(pages);
        self.held_bytes = self.held_bytes - before + pages.held_bytes();
        Ok(result)
    }

    fn node(&self, id: NodeId) -> Result<&Node, Status> {
        self.nodes.get(&id).ok_or(Status::STALE)
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Status> {
        self.nodes.get_mut(&id).ok_or(Status::STALE)
    }

    fn directory(&self, id: NodeId) -> Result<&Directory, Status> {
        match &self.node(id)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) | Kind::Symlink(_) | Kind::Special(..) => Err(Status::NOTDIR),
        }
    }

    fn directory_mut(&mut self, id: NodeId) -> Result<&mut Directory, Status> {
        match &mut self.node_mut(id)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) | Kind::Symlink(_) | Kind::Special(..) => Err(Status::NOTDIR),
        }
    }

    fn find(&self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        let found = self.directory(directory)?.names.get(name.as_bytes());
        found.map(|&(id, _)| id).ok_or(Status::NOENT)
    }
}

fn file(node: &mut Node) -> Result<&mut Pages, Status> {
    match &mut node.kind {
        Kind::File(pages) => Ok(pages),
        Kind::Directory(_) => Err(Status::ISDIR),
        Kind::Symlink(_) | Kind::Special(..) => Err(Status::INVAL),
    }
}

impl Node {
    fn new(now: nfstime3, kind: Kind, owner: Owner) -> Self {
        let (mode, links) = match kind {
            Kind::Directory(_) => (0o755, 2),
            Kind::Symlink(_) => (0o777, 1),
            Kind::File(_) | Kind::Special(..) => (0o644, 1),
        };
        Self { kind, mode, links, owner, accessed: now, modified: now, changed: now, verifier: None }
    }

    const fn touch(&mut self, now: nfstime3) {
        self.modified = now;
        self.changed = now;
    }

    /// Applies everything but the size.
    fn apply(&mut self, now: nfstime3, changes: &sattr3) {
        if let Nfs3Option::Some(mode) = changes.mode {
            self.mode = mode & 0o7777;
        }
        if let Nfs3Option::Some(uid) = changes.uid {
            self.owner.uid = uid;
        }
        if let Nfs3Option::Some(gid) = changes.gid {
            self.owner.gid = gid;
        }
        match changes.atime {
            set_atime::DONT_CHANGE => {}
            set_atime::SET_TO_SERVER_TIME => self.accessed = now,
            set_atime::SET_TO_CLIENT_TIME(time) => self.accessed = time,
        }
        match changes.mtime {
            set_mtime::DONT_CHANGE => {}
            set_mtime::SET_TO_SERVER_TIME => self.modified = now,
            set_mtime::SET_TO_CLIENT_TIME(time) => self.modified = time,
        }
        self.changed = now;
    }
}

impl Directory {
    const fn new(parent: NodeId) -> Self {
        Self { parent, names: BTreeMap::new(), order: BTreeMap::new(), last_cookie: FIRST_COOKIE - 1 }
    }

    fn enter(&mut self, name: Name<'_>, id: NodeId) {
        self.last_cookie += 1;
        self.names.insert(name.as_bytes().to_vec(), (id, self.last_cookie));
        self.order.insert(self.last_cookie, name.as_bytes().to_vec());
    }
}

/// What the procedures do; see [`Vfs`](crate::Vfs).
impl State {
    pub(super) const fn root() -> NodeId {
        ROOT
    }

    pub(super) fn attributes(&mut self, id: NodeId) -> Result<fattr3, Status> {
        let node = self.node(id)?;
        let (type_, size, used, rdev) = match &node.kind {
            Kind::File(pages) => (ftype3::NF3REG, pages.size(), pages.used_bytes(), specdata3::default()),
            Kind::Directory(_) => (ftype3::NF3DIR, 4096, 4096, specdata3::default()),
            Kind::Symlink(target) => (ftype3::NF3LNK, target.len() as u64, 0, specdata3::default()),
            Kind::Special(type_, device) => (*type_, 0, 0, device.clone()),
        };
        Ok(fattr3 {
            type_,
            mode: node.mode,
            nlink: node.links,
            uid: node.owner.uid,
            gid: node.owner.gid,
            size,
            used,
            rdev,
            fsid: 0,
            fileid: id.0,
            atime: node.accessed,
            mtime: node.modified,
            ctime: node.changed,
        })
    }

    pub(super) fn set_attributes(
        &mut self,
        now: nfstime3,
        id: NodeId,
        changes: &sattr3,
    ) -> Result<(), Status> {
        if let Nfs3Option::Some(size) = changes.size {
            if size > MAX_FILE_BYTES {
                return Err(Status::FBIG);
            }
            self.edit(id, |pages| pages.set_size(size))?;
            self.node_mut(id)?.touch(now);
        }
        self.node_mut(id)?.apply(now, changes);
        Ok(())
    }

    pub(super) fn lookup(&mut self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        self.find(directory, name)
    }

    pub(super) fn parent(&mut self, directory: NodeId) -> Result<NodeId, Status> {
        self.directory(directory).map(|directory| directory.parent)
    }

    pub(super) fn read_link(&mut self, id: NodeId) -> Result<Vec<u8>, Status> {
        match &self.node(id)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            Kind::File(_) | Kind::Directory(_) | Kind::Special(..) => Err(Status::INVAL),
        }
    }

    pub(super) fn read(
        &mut self,
        now: nfstime3,
        id: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, Status> {
        let node = self.node_mut(id)?;
        node.accessed = now;
        let pages = file(node)?;
        pages.read(offset, count, buffer);
        if offset.saturating_add(count.into()) >= pages.size() {
            Ok(EndOfFile::Reached)
        } else {
            Ok(EndOfFile::NotReached)
        }
    }

    pub(super) fn write(
        &mut self,
        now: nfstime3,
        id: NodeId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<stable_how, Status> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > MAX_FILE_BYTES) {
            return Err(Status::FBIG);
        }
        let growth = file(self.node_mut(id)?)?.growth(offset, data.len());
        if self.held_bytes + growth > self.config.capacity_bytes {
            return Err(Status::NOSPC);
        }
        let durability = match stable {
            stable_how::UNSTABLE => Durability::Volatile,
            stable_how::DATA_SYNC | stable_how::FILE_SYNC => Durability::Durable,
        };
        self.edit(id, |pages| pages.write(offset, data, durability))?;
        self.node_mut(id)?.touch(now);
        Ok(stable)
    }

    pub(super) fn commit(&mut self, id: NodeId, offset: u64, count: u32) -> Result<(), Status> {
        let end = match count {
            0 => u64::MAX,
            count => offset.saturating_add(count.into()),
        };
        self.edit(id, |pages| pages.commit(offset..end))
    }

    pub(super) fn create(
        &mut self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        object: NewObject<'_>,
        attributes: &sattr3,
        owner: Owner,
    ) -> Result<NodeId, Status> {
        let kind = match object {
            NewObject::File => {
                let mut pages = Pages::default();
                if let Nfs3Option::Some(size) = attributes.size {
                    if size > MAX_FILE_BYTES {
                        return Err(Status::FBIG);
                    }
                    pages.set_size(size);
                }
                Kind::File(pages)
            }
            NewObject::Directory => Kind::Directory(Directory::new(directory)),
            NewObject::Symlink(target) if target.len() > MAX_LINK_TARGET_BYTES => {
                return Err(Status::NAMETOOLONG);
            }
            NewObject::Symlink(target) => Kind::Symlink(target.to_vec()),
            NewObject::Fifo
            | NewObject::Socket
            | NewObject::CharacterDevice(..)
            | NewObject::BlockDevice(..) => Kind::Special(object.file_type(), object.device()),
        };
        let mut node = Node::new(now, kind, owner);
        node.apply(now, attributes);
        self.add(now, directory, name, node)
    }

    pub(super) fn create_exclusive(
        &mut self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        verifier: [u8; 8],
        owner: Owner,
    ) -> Result<NodeId, Status> {
        match self.find(directory, name) {
            Ok(id) if self.node(id)?.verifier == Some(verifier) => Ok(id),
            Ok(_) => Err(Status::EXIST),
            Err(Status::NOENT) => {
                let mut node = Node::new(now, Kind::File(Pages::default()), owner);
                node.verifier = Some(verifier);
                self.add(now, directory, name, node)
            }
            Err(status) => Err(status),
        }
    }

    pub(super) fn remove(&mut self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        let id = self.find(directory, name)?;
        if matches!(self.node(id)?.kind, Kind::Directory(_)) {
            return Err(Status::ISDIR);
        }
        self.detach(now, directory, name)?;
        self.drop_link(now, id);
        Ok(())
    }

    pub(super) fn remove_directory(
        &mut self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
    ) -> Result<(), Status> {
        let id = self.find(directory, name)?;
        if !self.directory(id)?.names.is_empty() {
            return Err(Status::NOTEMPTY);
        }
        self.detach(now, directory, name)?;
        self.drop_link(now, id);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        now: nfstime3,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
    ) -> Result<(), Status> {
        let source = self.find(from.0, from.1)?;
        let is_directory = matches!(self.node(source)?.kind, Kind::Directory(_));
        if is_directory && self.is_within(to.0, source)? {
            return Err(Status::INVAL);
        }
        match self.find(to.0, to.1) {
            Ok(target) if target == source => return Ok(()),
            Ok(target) => match (is_directory, &self.node(target)?.kind) {
                (true, Kind::Directory(entries)) if !entries.names.is_empty() => {
                    return Err(Status::NOTEMPTY);
                }
                (true, Kind::Directory(_)) => self.remove_directory(now, to.0, to.1)?,
                (true, _) => return Err(Status::NOTDIR),
                (false, Kind::Directory(_)) => return Err(Status::ISDIR),
                (false, _) => self.remove(now, to.0, to.1)?,
            },
            Err(Status::NOENT) => {}
            Err(status) => return Err(status),
        }
        self.detach(now, from.0, from.1)?;
        self.directory_mut(to.0)?.enter(to.1, source);
        let parent = self.node_mut(to.0)?;
        parent.links += u32::from(is_directory);
        parent.touch(now);
        let node = self.node_mut(source)?;
        node.changed = now;
        if let Kind::Directory(directory) = &mut node.kind {
            directory.parent = to.0;
        }
        Ok(())
    }

    pub(super) fn link(
        &mut self,
        now: nfstime3,
        id: NodeId,
        directory: NodeId,
        name: Name<'_>,
    ) -> Result<(), Status> {
        let node = self.node(id)?;
        if matches!(node.kind, Kind::Directory(_)) {
            return Err(Status::ISDIR);
        }
        if node.links >= MAX_LINKS {
            return Err(Status::MLINK);
        }
        let entries = self.directory_mut(directory)?;
        if entries.names.contains_key(name.as_bytes()) {
            return Err(Status::EXIST);
        }
        entries.enter(name, id);
        self.node_mut(directory)?.touch(now);
        let node = self.node_mut(id)?;
        node.links += 1;
        node.changed = now;
        Ok(())
    }

    pub(super) fn list(
        &mut self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Status> {
        // The cookies of one page are taken out first: looking at a file needs the file system as a whole.
        let mut after = after;
        loop {
            let entries = self.directory(directory)?;
            let next = after.checked_add(1).and_then(|first| entries.order.range(first..).next());
            let Some((&cookie, name)) = next else {
                return Ok(ControlFlow::Continue(()));
            };
            after = cookie;
            let (name, id) = (name.clone(), entries.names[name].0);
            let node = match detail {
                Detail::Names => None,
                Detail::Attributes => Some((id, self.attributes(id)?)),
            };
            let entry = Entry { name: &name, file_id: id.0, cookie, node };
            if visit(entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    pub(super) fn space(&mut self) -> Result<Space, Status> {
        let free_bytes = self.config.capacity_bytes.saturating_sub(self.held_bytes);
        Ok(Space {
            total_bytes: self.config.capacity_bytes,
            free_bytes,
            available_bytes: free_bytes,
            total_files: self.config.max_files,
            free_files: self.config.max_files.saturating_sub(self.nodes.len() as u64),
        })
    }

    pub(super) fn crash(&mut self) {
        self.held_bytes = 0;
        for node in self.nodes.values_mut() {
            if let Kind::File(pages) = &mut node.kind {
                pages.crash();
                self.held_bytes += pages.held_bytes();
            }
        }
    }
}
