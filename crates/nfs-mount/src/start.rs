//! How a mount begins: with the server, or with what an earlier mount of the same directory has left.

use std::{
    convert::Infallible,
    future::pending,
    io::{self, ErrorKind as IoErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nfs_cache::{Cache, CacheConfig, MemoryStore};
use nfs_files::{
    Context, Error, ErrorKind, Result,
    error::local,
    find::{Found, find, follow},
    url::Remote,
};
use nfs_wireless_client::{Client, FileHandle};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::{
    driver::{self, Driver},
    event::{Event, NoDisk},
    hoard::Patterns,
    store::{DiskStore, Holder, Home, Root, pins},
    thumbnails::{PHOTOS, Thumbnails},
    view::{Snapshot, View},
};

/// How long the server may take to show what is to be mounted.
const REACH: Duration = Duration::from_secs(5);

/// How long a program that opens nothing waits for news of what is less than a minute old: a server nearby has answered by then.
const PROMPT: Duration = Duration::from_millis(5);

/// How long until a server that could not be reached is tried again: this part of the time for which it has not been there, within these bounds.
const AGAIN_PART: u32 = 64;
const AGAIN: Duration = Duration::from_millis(500);
const MAX_AGAIN: Duration = Duration::from_secs(2);

/// How often it is looked whether the user has pinned something.
const LOOK: Duration = Duration::from_secs(2);

/// Most data that is held in memory, where there is no place on a disk.
const MEMORY_BYTES: u64 = 256 << 20;

/// What is mounted, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The directory on the server.
    pub source: Remote,
    /// The cache directory; without one it is `$XDG_CACHE_HOME/nfsw/mount`.
    pub cache: Option<PathBuf>,
    /// Most bytes of data that are cached. Default: 2 GiB.
    pub cache_bytes: u64,
    /// How long a program waits for a server that does not respond, before it gets an error. Default: 10 s.
    pub wait: Duration,
    /// The server is not asked: what an earlier mount has left is shown.
    pub offline: bool,
    /// What programs will probably read next is fetched in the background.
    pub prefetch: bool,
    /// Thumbnails are made of the photos that are prefetched, where the file managers of this user look for them.
    pub thumbnails: bool,
}

impl Options {
    /// Mounts a directory of a server.
    pub const fn new(source: Remote) -> Self {
        Self {
            source,
            cache: None,
            cache_bytes: 2 << 30,
            wait: Duration::from_secs(10),
            offline: false,
            prefetch: false,
            thumbnails: false,
        }
    }

    fn cache_config(&self) -> CacheConfig {
        let mut config = CacheConfig::default();
        // Nobody would come.
        config.wait = if self.offline { Duration::ZERO } else { self.wait };
        config.size_bytes = self.cache_bytes;
        config.prompt = PROMPT;
        config.prefetch = self.prefetch;
        if self.thumbnails {
            config.told_heads = PHOTOS.map(str::to_owned).to_vec();
        }
        config
    }
}

/// What tells a directory of a server from others: its handle, and the numbers of its file system and file.
pub(crate) type RootIdentity = (FileHandle, (u64, u64));

/// A directory of a server, or what is cached of it, which fronts show to programs.
#[derive(Debug)]
pub struct Mount {
    options: Options,
    view: Arc<View>,
    driver: Mutex<Driver>,
    /// The connection, once there is one.
    server: OnceLock<Client>,
    root: RootIdentity,
    /// Where the cache is.
    place: Option<PathBuf>,
}

impl Mount {
    /// Finds the directory. Where its server cannot be reached within 5 s, what an earlier mount has left is shown.
    ///
    /// # Errors
    /// Why there is nothing to show.
    pub async fn begin(options: Options, context: Context<'_>, tell: &dyn Fn(Event)) -> Result<Self> {
        if options.offline {
            return Self::held(&options, tell)?.ok_or_else(|| {
                let target = &options.source;
                let text = format!(
                    "{target}: nothing of it is in the cache; mount it once while the server responds"
                );
                Error::new(ErrorKind::SourceMissing, text)
            });
        }
        match reach(&options.source, context).await {
            Ok(found) => Ok(Self::connected(&options, &found, tell)),
            Err(error) if is_absence(&error) => match Self::held(&options, tell)? {
                Some(mount) => {
                    tell(Event::BegunOffline(error));
                    Ok(mount)
                }
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn new(options: &Options, cache: Cache<Holder>, root: RootIdentity, place: Option<PathBuf>) -> Self {
        let view = Arc::new(View::new(cache, place.as_deref()));
        let (driver, server) = Default::default();
        Self { options: options.clone(), view, driver, server, root, place }
    }

    /// Begins with a directory of a server.
    fn connected(options: &Options, found: &Found, tell: &dyn Fn(Event)) -> Self {
        let numbers = (found.metadata.fsid, found.metadata.fileid);
        let root =
            open(options, (found.handle, numbers)).map_err(|reason| tell(Event::CacheInMemory(reason)));
        let root = root.ok();
        let place = root.as_ref().map(|root| root.path().to_owned());
        let mut config = options.cache_config();
        let store = match root {
            Some(root) => Holder::Disk(Box::new(DiskStore::new(root))),
            None => {
                config.size_bytes = config.size_bytes.min(MEMORY_BYTES);
                Holder::Memory(MemoryStore::default())
            }
        };
        let now = Instant::now();
        let mut cache = Cache::new(config, now, found.handle, found.metadata, store);
        cache.set_wall_clock(now, wall());
        cache.set_round_trip(found.client.round_trip());
        let mount = Self::new(options, cache, (found.handle, numbers), place);
        // Nobody else has set it.
        let _ = mount.server.set(found.client.clone());
        mount
    }

    /// Begins with what an earlier mount has left.
    fn held(options: &Options, tell: &dyn Fn(Event)) -> Result<Option<Self>> {
        let target = options.source.to_bytes();
        // The home directory that is not there holds nothing.
        let home = match Home::new(options.cache.as_deref()) {
            Ok(home) => home,
            Err(error) => {
                tell(Event::NoCache(error));
                return Ok(None);
            }
        };
        let found = home.find(&target).map_err(|(path, error)| local(&path, &error))?;
        let Some(root) = found else { return Ok(None) };
        let identity = (root.handle, root.numbers);
        let opened = match home.open(root.handle, root.numbers, &target) {
            Err(error) if error.kind() != IoErrorKind::WouldBlock => {
                root.open_read_only().inspect(|_| tell(Event::CacheReadOnly(home.path().to_owned(), error)))
            }
            opened => opened,
        };
        let Ok(root) = opened else {
            let text = format!("{}: another nfsw uses its cache", options.source);
            return Err(Error::new(ErrorKind::Unreachable, text));
        };
        let place = Some(root.path().to_owned());
        let store = Holder::Disk(Box::new(DiskStore::new(root)));
        let cache = Cache::disconnected(options.cache_config(), Instant::now(), wall(), identity.0, store);
        Ok(cache.map(|cache| Self::new(options, cache, identity, place)))
    }

    /// Makes the calls that programs need, finds the server if it was not there at the beginning, and looks what the user pins; `tell`
    /// is told what happens.
    ///
    /// The future may be dropped, and another one goes on from there; two at the same time take turns. While none is polled, programs
    /// that ask for what is not cached wait.
    pub async fn drive(&self, context: Context<'_>, tell: &dyn Fn(Event)) -> Infallible {
        let events = || self.view.take_events().into_iter().for_each(tell);
        let mut driver = self.driver.lock().await;
        tokio::select! {
            biased;
            never = driver::drive(&mut driver, &self.view, &self.server, events) => match never {},
            never = self.seek(context, tell) => match never {},
            never = self.follow_pins() => match never {},
        }
    }

    /// Tries until the server shows the root that is held; another one is told of once, and not asked.
    async fn seek(&self, context: Context<'_>, tell: &dyn Fn(Event)) -> Infallible {
        let (mut was_another, began) = (false, Instant::now());
        while self.server.get().is_none() && !self.options.offline {
            sleep((began.elapsed() / AGAIN_PART).clamp(AGAIN, MAX_AGAIN)).await;
            let Ok(found) = reach(&self.options.source, context).await else { continue };
            if (found.handle, (found.metadata.fsid, found.metadata.fileid)) == self.root {
                // Nobody else sets it.
                let _ = self.server.set(found.client);
                self.view.path_changed();
            } else if !std::mem::replace(&mut was_another, true) {
                tell(Event::AnotherServer);
            }
        }
        pending().await
    }

    /// Tells the cache what the user pins.
    async fn follow_pins(&self) -> Infallible {
        let Some(place) = &self.place else { return pending().await };
        let (mut pinned, mut all_known) = (Vec::new(), true);
        loop {
            let wanted = pins(place);
            if wanted != pinned || !all_known {
                pinned.retain(|path| !wanted.contains(path));
                all_known = self.view.pin(&wanted, &pinned);
                pinned = wanted;
            }
            sleep(LOOK).await;
        }
    }

    /// Returns the state of the mount.
    pub fn snapshot(&self) -> Snapshot {
        self.view.snapshot()
    }

    /// Says that an address, a route or a link of this machine has changed, so that the server is tried again at once.
    pub fn path_changed(&self) {
        self.view.path_changed();
    }

    /// Fetches files in the background, and keeps them whatever else needs room.
    pub fn hoard(&self, patterns: Patterns) {
        self.view.hoard(Box::new(patterns));
    }

    /// Records that it is used in a way that no request tells.
    pub fn record_use(&self) {
        self.view.record_use();
    }

    pub(crate) const fn view(&self) -> &Arc<View> {
        &self.view
    }

    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) const fn root(&self) -> RootIdentity {
        self.root
    }

    /// Makes thumbnails of photos below a mount point, if that is wanted.
    pub(crate) fn make_thumbnails(&self, point: &Path) {
        if self.options.prefetch && self.options.thumbnails {
            self.view.make_thumbnails(Thumbnails::start(point));
        }
    }
}

/// Writes what is cached, and not on the disk yet, for later mounts.
impl Drop for Mount {
    fn drop(&mut self) {
        self.view.keep_all();
    }
}

/// Whether nobody could be asked.
fn is_absence(error: &Error) -> bool {
    error.is_unreachable() && error.kind() != ErrorKind::SourceMissing
}

/// Finds the directory that is to be mounted.
async fn reach(target: &Remote, context: Context<'_>) -> Result<Found> {
    let found = async { follow(context, find(context, target).await?).await };
    let Ok(found) = timeout(REACH, found).await else {
        let text =
            format!("{target}: no answer from the server for {} s (nfsw doctor tells more)", REACH.as_secs());
        return Err(Error::new(ErrorKind::Unreachable, text));
    };
    let found = found?;
    if !found.is_directory() {
        return Err(Error::usage(format!("{target} is not a directory")));
    }
    Ok(found)
}

/// Opens the place of a root on the disk, for this mount alone.
fn open(options: &Options, root: RootIdentity) -> Result<Root, NoDisk> {
    let home = Home::new(options.cache.as_deref()).map_err(NoDisk::NoHome)?;
    home.open(root.0, root.1, &options.source.to_bytes()).map_err(|error: io::Error| match error.kind() {
        IoErrorKind::WouldBlock => NoDisk::InUse,
        _ => NoDisk::Unusable(home.path().to_owned(), error),
    })
}

/// What the clock of this machine shows, since 1970.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
