//! A file system in memory, mounted through FUSE, that takes less than others do.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use unicode_normalization::UnicodeNormalization;

/// The kernel asks every time.
const NOW: Duration = Duration::ZERO;

/// What is odd about it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odd {
    /// It takes names that differ by case or by Unicode normalisation only for one, and keeps the first.
    pub(crate) folds: bool,
    /// It lists a colon as another character, which it takes for one, as servers for Windows do.
    pub(crate) lists_no_colon: bool,
    /// All files have this mode, whatever they are given.
    pub(crate) all_have: Option<u16>,
    /// It takes names for one that differ by digits only.
    pub(crate) ignores_digits: bool,
    /// It refuses to change modes, times and owners.
    pub(crate) refuses_attributes: bool,
    /// It has times up to this one, in steps of so long.
    pub(crate) times: Option<(SystemTime, Duration)>,
    /// It does not know RENAME_NOREPLACE.
    pub(crate) has_no_flags: bool,
    /// It does not answer to writes.
    pub(crate) hangs: bool,
    /// With what it fails when a file is closed, and when it is flushed.
    pub(crate) fails: [Option<i32>; 2],
}

#[derive(Debug)]
struct Node {
    parent: u64,
    name: Vec<u8>,
    content: Option<Vec<u8>>,
    modified: SystemTime,
    mode: u16,
    is_there: bool,
}

#[derive(Debug)]
struct Files {
    odd: Odd,
    /// The first is the root.
    nodes: Mutex<Vec<Node>>,
    hanging: Arc<Hanging>,
}

/// What does not answer yet.
#[derive(Debug, Default)]
pub(crate) struct Hanging {
    /// Whether something waits, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Hanging {
    fn hang(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, goes_on)| !*goes_on).unwrap());
    }

    fn go_on(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// The file system where it is mounted.
pub(crate) struct Mounted {
    hanging: Arc<Hanging>,
    /// Unmounts it when it is dropped, before its place goes.
    _session: BackgroundSession,
    place: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn new(odd: Odd) -> Self {
        super::common::needs_root("mounts a file system");
        let place = tempfile::tempdir().unwrap();
        let root = Node {
            parent: 1,
            name: Vec::new(),
            content: None,
            modified: SystemTime::now(),
            mode: 0o755,
            is_there: true,
        };
        let hanging = Arc::<Hanging>::default();
        let files = Files { odd, nodes: Mutex::new(vec![root]), hanging: Arc::clone(&hanging) };
        let session = fuser::spawn_mount(files, place.path(), &Config::default()).unwrap();
        Self { hanging, _session: session, place }
    }

    /// Returns when something waits that is not answered.
    pub(crate) fn wait_until_it_hangs(&self) {
        let state = self.hanging.state.lock().unwrap();
        let minute = Duration::from_secs(60);
        let (state, _) =
            self.hanging.changed.wait_timeout_while(state, minute, |(hangs, _)| !*hangs).unwrap();
        assert!(state.0, "nothing hangs within a minute");
    }

    /// Answers everything from now on.
    pub(crate) fn go_on(&self) {
        self.hanging.go_on();
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn answer(error: Option<i32>, reply: ReplyEmpty) {
    match error {
        Some(error) => reply.error(Errno::from_i32(error)),
        None => reply.ok(),
    }
}

impl Odd {
    fn folded(&self, name: &[u8]) -> Vec<u8> {
        let mut folded = name.to_vec();
        if self.folds
            && let Ok(text) = str::from_utf8(name)
        {
            // Full case folding.
            let folding = text.to_lowercase().to_uppercase().to_lowercase();
            folded = folding.nfd().collect::<String>().into_bytes();
        }
        if self.lists_no_colon {
            folded = self.listed(&folded);
        }
        folded.retain(|byte| !self.ignores_digits || !byte.is_ascii_digit());
        folded
    }

    fn listed(&self, name: &[u8]) -> Vec<u8> {
        match str::from_utf8(name) {
            Ok(text) if self.lists_no_colon => text.replace(':', "\u{f022}").into_bytes(),
            _ => name.to_vec(),
        }
    }

    fn kept(&self, time: SystemTime) -> SystemTime {
        let Some((last, step)) = self.times else { return time };
        let since = time.min(last).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs() / step.as_secs() * step.as_secs())
    }
}

impl Files {
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, nodes: &[Node], parent: INodeNo, name: &OsStr) -> Option<u64> {
        let wanted = self.odd.folded(name.as_bytes());
        let is_it =
            |node: &Node| node.is_there && node.parent == parent.0 && self.odd.folded(&node.name) == wanted;
        (1..nodes.len()).find(|&at| is_it(&nodes[at])).map(|at| at as u64 + 1)
    }

    fn attributes(&self, nodes: &[Node], number: u64) -> FileAttr {
        let node = &nodes[number as usize - 1];
        let size = node.content.as_ref().map_or(0, Vec::len) as u64;
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: node.modified,
            mtime: node.modified,
            ctime: node.modified,
            crtime: node.modified,
            kind: if node.content.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: self.odd.all_have.unwrap_or(node.mode),
            nlink: if node.content.is_some() { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        content: Option<Vec<u8>>,
    ) -> Result<FileAttr, Errno> {
        let mut nodes = self.nodes();
        if self.find(&nodes, parent, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let modified = self.odd.kept(SystemTime::now());
        let (name, mode) = (name.as_bytes().to_vec(), (mode & 0o7777) as u16);
        nodes.push(Node { parent: parent.0, name, content, modified, mode, is_there: true });
        Ok(self.attributes(&nodes, nodes.len() as u64))
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut nodes = self.nodes();
        match self.find(&nodes, parent, name) {
            None => reply.error(Errno::ENOENT),
            Some(number) if nodes.iter().any(|node| node.is_there && node.parent == number) => {
                reply.error(Errno::ENOTEMPTY);
            }
            Some(number) => {
                nodes[number as usize - 1].is_there = false;
                reply.ok();
            }
        }
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let nodes = self.nodes();
        match self.find(&nodes, parent, name) {
            Some(number) => reply.entry(&NOW, &self.attributes(&nodes, number), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NOW, &self.attributes(&self.nodes(), number.0));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let asks =
            mode.is_some() || uid.is_some() || gid.is_some() || accessed.is_some() || modified.is_some();
        if asks && size.is_none() && self.odd.refuses_attributes {
            return reply.error(Errno::EPERM);
        }
        let mut nodes = self.nodes();
        let node = &mut nodes[number.0 as usize - 1];
        if let Some(mode) = mode {
            node.mode = (mode & 0o7777) as u16;
        }
        if let (Some(size), Some(content)) = (size, &mut node.content) {
            content.resize(size as usize, 0);
        }
        if let Some(time) = modified {
            let time = match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            };
            node.modified = self.odd.kept(time);
        }
        reply.attr(&NOW, &self.attributes(&nodes, number.0));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        match self.make(parent, name, mode, None) {
            Ok(made) => reply.entry(&NOW, &made, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if self.odd.has_no_flags && !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let mut nodes = self.nodes();
        let Some(moved) = self.find(&nodes, parent, name) else { return reply.error(Errno::ENOENT) };
        match self.find(&nodes, new_parent, new_name).filter(|&there| there != moved) {
            Some(_) if !flags.is_empty() => return reply.error(Errno::EEXIST),
            Some(there) => nodes[there as usize - 1].is_there = false,
            None => {}
        }
        let node = &mut nodes[moved as usize - 1];
        (node.parent, node.name) = (new_parent.0, new_name.as_bytes().to_vec());
        reply.ok();
    }

    /// Its hard links are copies.
    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (mode, content) = {
            let nodes = self.nodes();
            let node = &nodes[number.0 as usize - 1];
            (node.mode.into(), node.content.clone())
        };
        match self.make(parent, name, mode, content) {
            Ok(made) => reply.entry(&NOW, &made, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(parent, name, mode, Some(Vec::new())) {
            Ok(made) => reply.created(&NOW, &made, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let nodes = self.nodes();
        let content = nodes[number.0 as usize - 1].content.as_deref().unwrap_or_default();
        let start = content.len().min(offset as usize);
        reply.data(&content[start..content.len().min(start + size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.odd.hangs {
            self.hanging.hang();
        }
        let mut nodes = self.nodes();
        let node = &mut nodes[number.0 as usize - 1];
        node.modified = self.odd.kept(SystemTime::now());
        let content = node.content.as_mut().unwrap();
        let (start, end) = (offset as usize, offset as usize + data.len());
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer(self.odd.fails[0], reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(self.odd.fails[1], reply);
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let nodes = self.nodes();
        for (at, node) in nodes.iter().enumerate().skip(offset.max(1) as usize) {
            if !node.is_there || node.parent != number.0 {
                continue;
            }
            let kind = if node.content.is_some() { FileType::RegularFile } else { FileType::Directory };
            let name = self.odd.listed(&node.name);
            if reply.add(INodeNo(at as u64 + 1), at as u64 + 1, kind, OsStr::from_bytes(&name)) {
                break;
            }
        }
        reply.ok();
    }
}
