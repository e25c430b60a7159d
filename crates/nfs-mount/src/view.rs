//! What the threads of a mount share.

mod answers;
mod interrupted;
mod listings;
mod names;
mod opens;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use nfs_cache::{Cache, Event as CacheEvent, Failure, NodeId, OpenId, OperationId, Stats, Wanted};
use rustix::io::Errno;
use tokio::sync::{Notify, oneshot};

pub(super) use self::{
    answers::{Asker, Reply},
    listings::DirectoryReader,
};
use self::{listings::OpenDirectory, names::OtherNames, opens::Retries};
use crate::{
    event::Event,
    kernel::{Notifier, Space},
    store::Holder,
    thumbnails::{Head, Thumbnails},
};

/// Directories remembered that cannot be listed.
const MOST_UNLISTED: usize = 1000;

/// Whether the server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It does.
    Up,
    /// It does not, or there is no way to it.
    Down,
    /// Another server is at its address.
    AnotherServer,
    /// What was shared is not any more.
    Ended,
}

impl Link {
    /// Returns the word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::AnotherServer => "another server",
            Self::Ended => "ended",
        }
    }
}

/// A mount at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What the cache counts.
    pub stats: Stats,
    /// Whether the server responds.
    pub link: Link,
    /// Since when.
    pub link_since: Instant,
    /// Requests of the kernel that wait.
    pub waiting: usize,
    /// The name of what is fetched though nobody waits for it.
    pub fetching: Option<Vec<u8>>,
    /// No file and no directory is open.
    pub is_unused: bool,
    /// When the kernel asked last.
    pub used_at: Instant,
    /// A part of what is to be hoarded has no room.
    pub hoard_is_full: bool,
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
    other_names: OtherNames,
    retries: Retries,
    /// Files that have changed, of which the kernel is to forget the attributes.
    altered: BTreeSet<NodeId>,
    directories: BTreeMap<u64, OpenDirectory>,
    next_directory: u64,
    pub(super) space: SpaceQuestions,
    pub(super) events: Vec<Event>,
    /// The user was told of a name that no program can use.
    told_unusable: bool,
    /// Directories that cannot be listed, of which the user was told.
    unlisted: BTreeSet<Vec<u8>>,
    link: (Link, Instant),
    /// Files that the kernel has open.
    open_files: u64,
    used_at: Instant,
    thumbnails: Option<Thumbnails>,
    kernel: Option<Notifier>,
}

/// A request without an answer yet.
#[derive(Debug)]
struct Waiting {
    asker: Asker,
    reply: Reply,
}

/// Requests for the space of the file system, which the cache does not hold: the last answer of the server is remembered.
#[derive(Debug)]
pub(super) struct SpaceQuestions {
    waiting: Vec<Waiting>,
    last: Option<Space>,
    /// Where the cache on disk is, in which it is kept for later mounts.
    place: Option<PathBuf>,
    /// It is to be asked for, although nobody waits.
    is_wanted: bool,
}

impl View {
    /// Shows what a cache holds, which lies in `place` if it is on disk.
    pub(crate) fn new(cache: Cache<Holder>, place: Option<&Path>) -> Self {
        let last = place.and_then(crate::store::space).map(Space::from);
        let space =
            SpaceQuestions { waiting: Vec::new(), last, place: place.map(Path::to_owned), is_wanted: true };
        let link = if cache.is_connected() { Link::Up } else { Link::Down };
        let inner = Inner {
            cache,
            waiting: BTreeMap::new(),
            other_names: OtherNames::default(),
            retries: Retries::default(),
            altered: BTreeSet::new(),
            directories: BTreeMap::new(),
            next_directory: 1,
            space,
            events: Vec::new(),
            told_unusable: false,
            unlisted: BTreeSet::new(),
            link: (link, Instant::now()),
            open_files: 0,
            used_at: Instant::now(),
            thumbnails: None,
            kernel: None,
        };
        Self { inner: Mutex::new(inner), bell: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation, and answers what can be answered.
    pub(super) fn begin(
        &self,
        asker: Asker,
        reply: Reply,
        ask: impl FnOnce(&mut Cache<Holder>, Instant) -> OperationId,
    ) -> OperationId {
        let (mut inner, now) = (self.lock(), Instant::now());
        inner.used_at = now;
        let before = inner.cache.poll_timeout();
        let operation = ask(&mut inner.cache, now);
        inner.waiting.insert(operation, Waiting { asker, reply });
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

    /// Says whom to tell what the kernel shall forget.
    pub(crate) fn attach(&self, kernel: Notifier) {
        self.lock().kernel = Some(kernel);
    }

    /// Shows nothing any more: whoever waits and whoever asks later gets ESTALE, also for what the kernel has kept.
    pub(crate) fn end(&self, why: Arc<io::Error>) {
        let mut inner = self.lock();
        if inner.link.0 == Link::Ended {
            return;
        }
        inner.cache.end(Instant::now());
        inner.answer();
        inner.tell(Event::Ended(why), Link::Ended);
        let Some(kernel) = inner.kernel.clone() else { return };
        let known: Vec<_> = inner.cache.nodes().flat_map(|node| inner.nodes_of(node)).collect();
        drop(inner);
        // The kernel may wait for the answer to a read of such a page.
        std::thread::spawn(move || known.into_iter().for_each(|node| kernel.forget(node)));
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
            link: inner.link.0,
            link_since: inner.link.1,
            waiting: inner.waiting.len() + inner.space.waiting.len(),
            fetching: inner.cache.prefetching().map(<[u8]>::to_vec),
            is_unused: inner.open_files == 0 && inner.directories.is_empty() && inner.waiting.is_empty(),
            used_at: inner.used_at,
            hoard_is_full: inner.cache.hoard_is_full(),
        }
    }

    /// Records that it is used in a way that the kernel does not tell.
    pub(crate) fn record_use(&self) {
        self.lock().used_at = Instant::now();
    }

    /// Returns what the user should be told.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }
}

impl Inner {
    /// Answers what the cache has answers for.
    pub(super) fn answer(&mut self) {
        while let Some(event) = self.cache.poll_event() {
            match event {
                CacheEvent::Done { operation, result } => {
                    if let Some(Waiting { asker, reply }) = self.waiting.remove(&operation) {
                        match (&reply, &result) {
                            // The kernel tries an open twice.
                            (Reply::Open { named, is_again: false, .. }, Err(Failure::Stale)) => {
                                self.expect_retry(asker, *named, operation);
                            }
                            (Reply::Entry(directory, name, _), Err(_)) => {
                                self.expect_no_retry(asker, *directory, name);
                            }
                            _ => {}
                        }
                        self.send(reply, result);
                    }
                }
                CacheEvent::Altered { node } => _ = self.altered.insert(node),
                CacheEvent::Disconnected => self.tell(Event::Disconnected, Link::Down),
                CacheEvent::Connected => self.tell(Event::Connected, Link::Up),
                CacheEvent::AnotherServer => self.tell(Event::AnotherServer, Link::AnotherServer),
                // However often a program asks.
                CacheEvent::Unlisted { path, failure } if self.unlisted.insert(path.clone()) => {
                    self.events.push(Event::Unlisted(path, failure));
                    if self.unlisted.len() > MOST_UNLISTED {
                        self.unlisted.clear();
                    }
                }
                CacheEvent::Head { path, metadata, data } => {
                    if let Some(thumbnails) = &self.thumbnails {
                        let changed = metadata.mtime.seconds;
                        thumbnails.offer(Head { path, changed, size: metadata.size, data });
                    }
                }
                _ => {}
            }
        }
    }

    fn tell(&mut self, event: Event, link: Link) {
        self.events.push(event);
        self.link = (link, Instant::now());
    }

    /// Records that the kernel has closed a file.
    pub(super) fn release(&mut self, open: OpenId) {
        self.cache.release(open);
        self.open_files = self.open_files.saturating_sub(1);
        self.used_at = Instant::now();
    }

    /// Whether somebody waits for an answer.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.space.waiting.is_empty()
    }
}

impl View {
    /// Asks for the space of the file system. While the server does not respond, what it said last is true for all that is known.
    pub(super) fn ask_space(&self, asker: Asker, reply: Reply) {
        let mut inner = self.lock();
        inner.used_at = Instant::now();
        match inner.space.last {
            _ if inner.link.0 == Link::Ended => reply.fail(Errno::STALE),
            Some(last) if inner.link.0 != Link::Up => reply.space(Some(last)),
            _ => inner.space.waiting.push(Waiting { asker, reply }),
        }
        drop(inner);
        self.bell.notify_one();
    }

    /// Returns the space of the file system, if that is known.
    pub(super) async fn space(&self) -> Option<Space> {
        let (sender, receiver) = oneshot::channel();
        self.ask_space(Asker::NOBODY, Reply::SpaceTask(sender));
        receiver.await.ok().flatten()
    }
}

impl SpaceQuestions {
    /// Whether the server is to be asked; where nobody waits, only once the mount `has_begun`.
    pub(super) const fn is_open(&self, has_begun: bool) -> bool {
        self.is_wanted && has_begun || !self.waiting.is_empty()
    }

    /// Takes in what the server said, if it did.
    pub(super) fn answer(&mut self, told: Option<Space>) {
        self.is_wanted = false;
        if let (Some(told), Some(place)) = (told.filter(|_| told != self.last), &self.place)
            && let Err(error) = crate::store::keep_space(place, told.into())
        {
            tracing::debug!(%error, "the cache cannot be written to");
        }
        self.last = told.or(self.last);
        for Waiting { reply, .. } in self.waiting.drain(..) {
            reply.space(self.last);
        }
    }
}
