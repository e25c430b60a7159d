//! What the threads of a mount share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEntry, ReplyOpen, ReplyStatfs,
};
use nfs_cache::{Answer, Cache, Event, Failure, ListEntry, NodeId, OpenId, OperationId, Stats, Wanted};
use nfs_wireless_client::Metadata;
use tokio::sync::{Notify, oneshot};

use super::{
    attributes::{attributes, errno, kind, unknown},
    interrupt::is_interrupted,
    thumbnails::{Head, Thumbnails},
};
use crate::held::Holder;

/// How long the kernel may use names and attributes without asking: an upcall costs microseconds, and the cache behind it knows
/// what is still true.
pub(super) const KERNEL_TTL: Duration = Duration::from_secs(1);

/// Something to tell the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The server does not respond any more.
    Disconnected,
    /// It responds again.
    Connected,
    /// Another server is there.
    AnotherServer,
}

/// Whether the server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    AnotherServer,
}

impl Way {
    /// Returns the word for programs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::AnotherServer => "another server",
        }
    }
}

/// A mount at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) stats: Stats,
    pub(crate) way: Way,
    /// Since when.
    pub(crate) way_since: Instant,
    /// Requests of the kernel that wait.
    pub(crate) waiting: usize,
    /// The name of what is fetched though nobody waits for it.
    pub(crate) fetching: Option<Vec<u8>>,
    /// No file and no directory is open.
    pub(crate) is_unused: bool,
    /// When the kernel asked last.
    pub(crate) used_at: Instant,
    /// A part of what is to be hoarded has no room.
    pub(crate) hoard_is_full: bool,
}

/// A cache, and the requests of the kernel that wait for it.
#[derive(Debug)]
pub(crate) struct View {
    inner: Mutex<Inner>,
    /// Rings when there may be calls to make.
    pub(super) bell: Notify,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) cache: Cache<Holder>,
    waiting: BTreeMap<OperationId, Waiting>,
    /// Open directories, with the listing that their reader goes through.
    directories: BTreeMap<u64, Option<Arc<Vec<ListEntry>>>>,
    next_directory: u64,
    /// Requests for the space of the file system, which is not held.
    pub(super) space: Vec<ReplyStatfs>,
    pub(super) notices: Vec<Notice>,
    way: (Way, Instant),
    /// Files that the kernel has open.
    open_files: u64,
    used_at: Instant,
    thumbnails: Option<Thumbnails>,
}

/// A request without an answer yet.
#[derive(Debug)]
struct Waiting {
    thread: u32,
    reply: Reply,
}

/// How the kernel is to be answered.
#[derive(Debug)]
pub(super) enum Reply {
    Entry(ReplyEntry),
    Attributes(NodeId, ReplyAttr),
    Open(ReplyOpen),
    Data(ReplyData),
    Names(DirectoryReader, ReplyDirectory),
    Entries(DirectoryReader, ReplyDirectoryPlus),
    /// Not the kernel: a task of this program.
    Task(oneshot::Sender<Result<Answer, Failure>>),
}

/// Who reads a directory, and how far that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectoryReader {
    pub(super) node: NodeId,
    pub(super) handle: FileHandle,
    pub(super) offset: u64,
}

impl View {
    /// Shows what a cache holds.
    pub(crate) fn new(cache: Cache<Holder>) -> Self {
        let way = if cache.is_connected() { Way::Up } else { Way::Down };
        let inner = Inner {
            cache,
            waiting: BTreeMap::new(),
            directories: BTreeMap::new(),
            next_directory: 1,
            space: Vec::new(),
            notices: Vec::new(),
            way: (way, Instant::now()),
            open_files: 0,
            used_at: Instant::now(),
            thumbnails: None,
        };
        Self { inner: Mutex::new(inner), bell: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation for a thread, and answers what can be answered.
    pub(super) fn begin(
        &self,
        thread: u32,
        reply: Reply,
        ask: impl FnOnce(&mut Cache<Holder>, Instant) -> OperationId,
    ) -> OperationId {
        let (mut inner, now) = (self.lock(), Instant::now());
        inner.used_at = now;
        let before = inner.cache.poll_timeout();
        let operation = ask(&mut inner.cache, now);
        inner.waiting.insert(operation, Waiting { thread, reply });
        inner.answer();
        let is_done = !inner.waiting.contains_key(&operation);
        // Reading ahead may want calls although the operation is done.
        let is_sooner = inner.cache.poll_timeout().is_some_and(|at| before.is_none_or(|before| at < before));
        drop(inner);
        if !is_done || is_sooner {
            self.bell.notify_one();
        }
        operation
    }

    /// Says that the way to the server may be another one.
    pub(crate) fn path_changed(&self) {
        self.lock().cache.path_changed(Instant::now());
        self.bell.notify_one();
    }

    /// Says that the server can be asked now.
    pub(crate) fn reached(&self) {
        self.path_changed();
    }

    /// Writes what is held, and not on the disk yet, for later mounts.
    pub(crate) fn keep_all(&self) {
        self.lock().cache.keep_all();
    }

    /// Makes the cache keep what the user has pinned since the last call, and no longer what is not pinned any more. Returns whether all
    /// paths are known.
    pub(crate) fn pin(&self, pins: &[Vec<u8>], unpinned: &[Vec<u8>]) -> bool {
        let cache = &mut self.lock().cache;
        for path in unpinned {
            if let Some(node) = cache.known_at(path) {
                cache.pin(node, false);
            }
        }
        let mut all = true;
        for path in pins {
            match cache.known_at(path) {
                Some(node) => cache.pin(node, true),
                None => all = false,
            }
        }
        all
    }

    /// Says what is to be held whatever happens.
    pub(crate) fn hoard(&self, wanted: Box<dyn Wanted>) {
        self.lock().cache.hoard(Instant::now(), wanted);
        self.bell.notify_one();
    }

    /// Says who is told the heads of photos.
    pub(crate) fn make_thumbnails(&self, thumbnails: Option<Thumbnails>) {
        self.lock().thumbnails = thumbnails;
    }

    /// Returns the state of the mount.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let inner = self.lock();
        Snapshot {
            stats: inner.cache.stats(),
            way: inner.way.0,
            way_since: inner.way.1,
            waiting: inner.waiting.len(),
            fetching: inner.cache.prefetching().map(<[u8]>::to_vec),
            is_unused: inner.open_files == 0 && inner.directories.is_empty() && inner.waiting.is_empty(),
            used_at: inner.used_at,
            hoard_is_full: inner.cache.hoard_is_full(),
        }
    }

    /// Takes note that it is used in a way that the kernel does not tell.
    pub(crate) fn is_used(&self) {
        self.lock().used_at = Instant::now();
    }

    /// Returns what the user should be told.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut self.lock().notices)
    }
}

impl Inner {
    /// Answers what the cache has answers for.
    pub(super) fn answer(&mut self) {
        while let Some(event) = self.cache.poll_event() {
            match event {
                Event::Done { operation, result } => {
                    if let Some(Waiting { reply, .. }) = self.waiting.remove(&operation) {
                        self.send(reply, result);
                    }
                }
                Event::Disconnected => self.notice(Notice::Disconnected, Way::Down),
                Event::Connected => self.notice(Notice::Connected, Way::Up),
                Event::AnotherServer => self.notice(Notice::AnotherServer, Way::AnotherServer),
                Event::Head { path, metadata, data } => {
                    if let Some(thumbnails) = &self.thumbnails {
                        let changed = metadata.mtime.seconds;
                        thumbnails.offer(Head { path, changed, size: metadata.size, data });
                    }
                }
                _ => {}
            }
        }
    }

    fn notice(&mut self, notice: Notice, way: Way) {
        self.notices.push(notice);
        self.way = (way, Instant::now());
    }

    /// Takes note that the kernel has closed a file.
    pub(super) fn release(&mut self, open: OpenId) {
        self.cache.release(open);
        self.open_files = self.open_files.saturating_sub(1);
        self.used_at = Instant::now();
    }

    /// Whether somebody waits for an answer.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ends the requests of threads that are to die.
    pub(super) fn end_interrupted(&mut self) {
        let interrupted = |waiting: &Waiting| is_interrupted(waiting.thread);
        let gone: Vec<OperationId> =
            self.waiting.iter().filter(|(_, waiting)| interrupted(waiting)).map(|(&id, _)| id).collect();
        for operation in gone {
            self.cache.abandon(Instant::now(), operation);
            if let Some(Waiting { reply, .. }) = self.waiting.remove(&operation) {
                reply.fail(Errno::EINTR);
            }
        }
    }

    /// Opens a directory for reading.
    pub(super) fn open_directory(&mut self) -> FileHandle {
        let handle = self.next_directory;
        self.next_directory += 1;
        self.directories.insert(handle, None);
        FileHandle(handle)
    }

    /// Closes a directory.
    pub(super) fn close_directory(&mut self, handle: FileHandle) {
        self.directories.remove(&handle.0);
        self.used_at = Instant::now();
    }

    /// Returns the listing that a reader goes through; one at its beginning has none.
    pub(super) fn listing(&self, reader: DirectoryReader) -> Option<Arc<Vec<ListEntry>>> {
        if reader.offset == 0 {
            return None;
        }
        self.directories.get(&reader.handle.0)?.clone()
    }

    fn send(&mut self, reply: Reply, result: Result<Answer, Failure>) {
        match (reply, result) {
            // A task that was given up does not listen.
            (Reply::Task(task), result) => drop(task.send(result)),
            (reply, Err(failure)) => reply.fail(errno(&failure)),
            (Reply::Entry(reply), Ok(Answer::Entry { node, metadata })) => {
                reply.entry(&KERNEL_TTL, &attributes(node, &metadata), Generation(0));
            }
            (Reply::Attributes(node, reply), Ok(Answer::Attributes(metadata))) => {
                reply.attr(&KERNEL_TTL, &attributes(node, &metadata));
            }
            (Reply::Open(reply), Ok(Answer::Opened { open, keep_cache })) => {
                let flags = if keep_cache { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                self.open_files += 1;
                reply.opened(FileHandle(open.number()), flags);
            }
            (Reply::Data(reply), Ok(Answer::Data(pieces))) => match pieces.as_slice() {
                [piece] => reply.data(piece),
                pieces => reply.data(&pieces.concat()),
            },
            (Reply::Data(reply), Ok(Answer::Target(target))) => reply.data(&target),
            (Reply::Names(reader, reply), Ok(Answer::Listing(entries))) => {
                self.keep_listing(reader, &entries);
                self.send_names(reader, reply, &entries);
            }
            (Reply::Entries(reader, reply), Ok(Answer::Listing(entries))) => {
                self.keep_listing(reader, &entries);
                self.send_entries(reader, reply, &entries);
            }
            (reply, Ok(_)) => reply.fail(Errno::EIO),
        }
    }

    fn keep_listing(&mut self, reader: DirectoryReader, entries: &Arc<Vec<ListEntry>>) {
        if let Some(listing) = self.directories.get_mut(&reader.handle.0) {
            *listing = Some(Arc::clone(entries));
        }
    }

    /// Sends names with attributes, of which the kernel makes nodes.
    pub(super) fn send_entries(
        &mut self,
        reader: DirectoryReader,
        mut reply: ReplyDirectoryPlus,
        entries: &[ListEntry],
    ) {
        for (offset, name) in dots(reader) {
            let own = unknown(reader.node.number(), fuser::FileType::Directory);
            // The kernel makes no node of these.
            if reply.add(own.ino, offset, name, &KERNEL_TTL, &own, Generation(0)) {
                return reply.ok();
            }
        }
        for (offset, entry) in after(reader, entries) {
            let name = os(&entry.name);
            let is_full = match self.known(entry) {
                Some((node, metadata)) => {
                    let known = attributes(node, &metadata);
                    let is_full = reply.add(known.ino, offset, name, &KERNEL_TTL, &known, Generation(0));
                    if !is_full {
                        self.cache.reference(node);
                    }
                    is_full
                }
                // Node 0: it is looked up when it is needed.
                None => {
                    let known = unknown(entry.fileid, fuser::FileType::RegularFile);
                    reply.add(INodeNo(0), offset, name, &KERNEL_TTL, &known, Generation(0))
                }
            };
            if is_full {
                break;
            }
        }
        reply.ok();
    }

    /// Sends names alone.
    pub(super) fn send_names(
        &self,
        reader: DirectoryReader,
        mut reply: ReplyDirectory,
        entries: &[ListEntry],
    ) {
        for (offset, name) in dots(reader) {
            if reply.add(INodeNo(reader.node.number()), offset, fuser::FileType::Directory, name) {
                return reply.ok();
            }
        }
        for (offset, entry) in after(reader, entries) {
            let (number, kind) = match self.known(entry) {
                Some((node, metadata)) => (node.number(), kind(metadata.file_type)),
                None => (entry.fileid, fuser::FileType::RegularFile),
            };
            if reply.add(INodeNo(number), offset, kind, os(&entry.name)) {
                break;
            }
        }
        reply.ok();
    }

    /// What an entry is, and its attributes, while they are known.
    fn known(&self, entry: &ListEntry) -> Option<(NodeId, Metadata)> {
        let node = entry.node?;
        Some((node, self.cache.known(node)?))
    }
}

impl Reply {
    pub(super) fn fail(self, error: Errno) {
        match self {
            Self::Entry(reply) => reply.error(error),
            Self::Attributes(_, reply) => reply.error(error),
            Self::Open(reply) => reply.error(error),
            Self::Data(reply) => reply.error(error),
            Self::Names(_, reply) => reply.error(error),
            Self::Entries(_, reply) => reply.error(error),
            Self::Task(task) => drop(task),
        }
    }
}

const DOTS: [&str; 2] = [".", ".."];

/// The two names that every directory has, from a reader's offset on, each with the offset after it.
fn dots(reader: DirectoryReader) -> impl Iterator<Item = (u64, &'static str)> {
    (1..).zip(DOTS).skip(usize::try_from(reader.offset).unwrap_or(usize::MAX))
}

/// The entries from a reader's offset on, each with the offset after it.
fn after(reader: DirectoryReader, entries: &[ListEntry]) -> impl Iterator<Item = (u64, &ListEntry)> {
    let skipped = reader.offset.saturating_sub(DOTS.len() as u64);
    (DOTS.len() as u64 + 1..).zip(entries).skip(usize::try_from(skipped).unwrap_or(usize::MAX))
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}
