//! The files of the server, and what somebody who works on the server does to them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3},
};

/// A week: what changed so long ago is of a version that nobody doubts.
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Number of a file: its handle and its fileid are made of it.
pub(crate) type Id = u64;

/// What a file is.
#[derive(Clone)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Link(Vec<u8>),
    Directory(Directory),
}

/// A directory: its entries by name, and in the order of their cookies.
#[derive(Clone, Default)]
pub(crate) struct Directory {
    pub(crate) parent: Id,
    names: BTreeMap<Vec<u8>, (Id, u64)>,
    pub(crate) order: BTreeMap<u64, (Vec<u8>, Id)>,
    /// A file system that is mounted on it: what LOOKUP finds, and listings do not (as on Linux).
    covered_by: Option<Id>,
}

/// A file of any kind.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) links: u32,
    pub(crate) mtime: Duration,
    pub(crate) ctime: Duration,
    pub(crate) fsid: u64,
    pub(crate) fileid: u64,
}

/// The clock of the server, from which files get their times.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    /// Times are cut to whole ticks.
    pub(crate) tick: Duration,
    /// How far it is behind.
    pub(crate) behind: Duration,
}

impl Clock {
    pub(crate) fn now(self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - self.behind;
        Duration::from_nanos((now.as_nanos() / self.tick.as_nanos() * self.tick.as_nanos()) as u64)
    }
}

/// All files of a server.
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<Id, Node>,
    pub(crate) root: Id,
    pub(crate) clock: Clock,
    /// Handles and fileids of removed files are given to new ones.
    pub(crate) reuses: bool,
    free: Vec<Id>,
    next: Id,
    cookie: u64,
}

impl Tree {
    /// An empty root, in a file system of this number.
    pub(crate) fn new(fsid: u64) -> Self {
        let clock = Clock { tick: Duration::from_nanos(1), behind: Duration::ZERO };
        let root = 2 + fsid * 1000;
        let (nodes, free) = (BTreeMap::new(), Vec::new());
        let mut tree = Self { nodes, root, clock, reuses: false, free, next: root + 1, cookie: 10 };
        let directory = Directory { parent: root, ..Directory::default() };
        tree.insert(root, Kind::Directory(directory), fsid, root);
        tree
    }

    fn insert(&mut self, id: Id, kind: Kind, fsid: u64, fileid: u64) {
        let (now, is_directory) = (self.clock.now(), matches!(kind, Kind::Directory(_)));
        let (mode, links) = if is_directory { (0o755, 2) } else { (0o644, 1) };
        self.nodes.insert(id, Node { kind, mode, owner: 0, links, mtime: now, ctime: now, fsid, fileid });
    }

    pub(crate) fn directory(&self, id: Id) -> Result<&Directory, Status> {
        match self.nodes.get(&id).map(|node| &node.kind) {
            Some(Kind::Directory(directory)) => Ok(directory),
            Some(_) => Err(Status::NOTDIR),
            None => Err(Status::STALE),
        }
    }

    fn directory_mut(&mut self, id: Id) -> &mut Directory {
        let now = self.clock.now();
        let node = self.nodes.get_mut(&id).expect("a directory");
        (node.mtime, node.ctime) = (now, now);
        match &mut node.kind {
            Kind::Directory(directory) => directory,
            _ => panic!("not a directory"),
        }
    }

    /// LOOKUP.
    pub(crate) fn lookup(&self, id: Id, name: &[u8]) -> Result<Id, Status> {
        let directory = self.directory(id)?;
        let found = match name {
            b"." => id,
            b".." => directory.parent,
            name => directory.names.get(name).ok_or(Status::NOENT)?.0,
        };
        Ok(self.directory(found).ok().and_then(|it| it.covered_by).unwrap_or(found))
    }

    /// Whether a listing does not tell what is there, for a file system is mounted on it.
    pub(crate) fn is_covered(&self, id: Id) -> bool {
        self.directory(id).is_ok_and(|it| it.covered_by.is_some())
    }

    /// Number of what a path leads to.
    pub(crate) fn find(&self, path: &str) -> Id {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.fold(self.root, |id, name| self.lookup(id, name.as_bytes()).expect("it exists"))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(self.root, |id, name| self.lookup(id, name.as_bytes())).is_ok()
    }

    fn above<'a>(&self, path: &'a str) -> (Id, &'a str) {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.find(directory), name)
    }

    fn enter(&mut self, path: &str, id: Id) {
        let (above, name) = self.above(path);
        self.leave(path);
        self.cookie += 1;
        let cookie = self.cookie;
        let directory = self.directory_mut(above);
        directory.names.insert(name.as_bytes().to_vec(), (id, cookie));
        directory.order.insert(cookie, (name.as_bytes().to_vec(), id));
        if let Some(Kind::Directory(directory)) = self.nodes.get_mut(&id).map(|node| &mut node.kind) {
            directory.parent = above;
        }
    }

    fn leave(&mut self, path: &str) -> Option<Id> {
        let (above, name) = self.above(path);
        let directory = self.directory_mut(above);
        let (id, cookie) = directory.names.remove(name.as_bytes())?;
        directory.order.remove(&cookie);
        Some(id)
    }

    fn make(&mut self, path: &str, kind: Kind) -> Id {
        let fsid = self.nodes[&self.above(path).0].fsid;
        let id = self.free.pop().filter(|_| self.reuses).unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.insert(id, kind, fsid, id);
        assert!(!self.exists(path), "{path} exists");
        self.enter(path, id);
        id
    }

    /// Creates a directory.
    pub(crate) fn mkdir(&mut self, path: &str) {
        self.make(path, Kind::Directory(Directory::default()));
    }

    /// Creates a symbolic link.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        self.make(path, Kind::Link(target.into()));
    }

    /// Creates a file.
    pub(crate) fn create(&mut self, path: &str, bytes: Vec<u8>) {
        self.make(path, Kind::File(bytes));
    }

    /// Creates a file that changed last a week ago.
    pub(crate) fn create_old(&mut self, path: &str, bytes: Vec<u8>) {
        self.create(path, bytes);
        self.age(path);
    }

    /// Sets the times of a file back by a week.
    pub(crate) fn age(&mut self, path: &str) {
        let (id, then) = (self.find(path), self.clock.now() - WEEK);
        let node = self.nodes.get_mut(&id).expect("it exists");
        (node.mtime, node.ctime) = (then, then);
    }

    /// Mounts another file system on a directory: its root has the fileid that roots have there, so fileids come twice.
    pub(crate) fn nest(&mut self, path: &str, fsid: u64) {
        self.mkdir(path);
        let (covered, fileid) = (self.find(path), self.nodes[&self.root].fileid);
        self.next += 1;
        let (id, parent) = (self.next, self.above(path).0);
        self.insert(id, Kind::Directory(Directory { parent, ..Directory::default() }), fsid, fileid);
        self.directory_mut(covered).covered_by = Some(id);
    }

    /// Writes another file under a temporary name, and renames it over this one, as programs save.
    pub(crate) fn replace(&mut self, path: &str, bytes: Vec<u8>) {
        let temporary = format!("{path}.new");
        self.create(&temporary, bytes);
        self.rename(&temporary, path);
    }

    /// Changes the bytes of a file where they are.
    pub(crate) fn rewrite(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let (id, now) = (self.find(path), self.clock.now());
        let node = self.nodes.get_mut(&id).expect("it exists");
        (node.mtime, node.ctime) = (now, now);
        match &mut node.kind {
            Kind::File(bytes) => change(bytes),
            _ => panic!("{path} is no file"),
        }
    }

    pub(crate) fn append(&mut self, path: &str, more: &[u8]) {
        self.rewrite(path, |bytes| bytes.extend_from_slice(more));
    }

    /// Changes an attribute of a file, and its ctime.
    pub(crate) fn change(&mut self, path: &str, change: impl FnOnce(&mut Node)) {
        let (id, now) = (self.find(path), self.clock.now());
        let node = self.nodes.get_mut(&id).expect("it exists");
        node.ctime = now;
        change(node);
    }

    /// Gives a file one more name.
    pub(crate) fn link(&mut self, path: &str, other: &str) {
        self.change(path, |node| node.links += 1);
        self.enter(other, self.find(path));
    }

    /// Renames a file, whose ctime changes, as on most file systems.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        self.change(from, |_| {});
        let id = self.leave(from).expect("it exists");
        if self.exists(to) {
            self.remove(to);
        }
        self.enter(to, id);
    }

    /// Takes a name away, and the file, if it has no other one.
    pub(crate) fn remove(&mut self, path: &str) {
        let now = self.clock.now();
        let id = self.leave(path).expect("it exists");
        let node = self.nodes.get_mut(&id).expect("it exists");
        node.links -= 1;
        node.ctime = now;
        let is_directory = matches!(node.kind, Kind::Directory(_));
        if node.links == 0 || is_directory {
            self.nodes.remove(&id);
            self.free.push(id);
        }
    }

    /// What GETATTR tells.
    pub(crate) fn attributes(&self, id: Id) -> Result<fattr3, Status> {
        let node = self.nodes.get(&id).ok_or(Status::STALE)?;
        let (type_, size) = match &node.kind {
            Kind::File(bytes) => (ftype3::NF3REG, bytes.len()),
            Kind::Link(target) => (ftype3::NF3LNK, target.len()),
            Kind::Directory(_) => (ftype3::NF3DIR, 4096),
        };
        let time =
            |time: Duration| nfstime3 { seconds: time.as_secs() as u32, nseconds: time.subsec_nanos() };
        Ok(fattr3 {
            type_,
            mode: node.mode,
            nlink: node.links,
            uid: node.owner,
            gid: node.owner,
            size: size as u64,
            used: size as u64,
            rdev: specdata3 { specdata1: 0, specdata2: 0 },
            fsid: node.fsid,
            fileid: node.fileid,
            atime: time(node.mtime),
            mtime: time(node.mtime),
            ctime: time(node.ctime),
        })
    }
}
