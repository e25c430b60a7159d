//! How a mount begins: with the server, or with what an earlier mount of the same directory has left.

use std::{
    convert::Infallible,
    future::pending,
    io::ErrorKind,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nfs_cache::{Cache, CacheConfig, MemoryStore};
use nfs_wireless_client::{Client, FileHandle};
use tokio::time::{sleep, timeout};

use nfs_files::Context;

use crate::{
    args::{MountArgs, Via},
    error::{io_text, local, show},
    exit::{Exit, Failure},
    held::{DiskStore, Holder, Home, Root, pins},
    mount::{PHOTOS, View},
    remote::{Found, find, follow},
    report::Reporter,
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

/// A mount that has begun.
pub(super) struct Begun {
    pub(super) cache: Cache<Holder>,
    /// The connection, once there is one.
    pub(super) server: Arc<OnceLock<Client>>,
    /// What tells the server from others.
    pub(super) root: (FileHandle, (u64, u64)),
    /// Where it is held.
    pub(super) place: Option<PathBuf>,
}

/// Begins a mount.
///
/// # Errors
/// Why there is nothing to show.
pub(super) async fn begin(
    arguments: &MountArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<Begun> {
    let target = arguments.target();
    if arguments.offline {
        return held(arguments, reporter)?.ok_or_else(|| {
            let text =
                format!("{target}: nothing of it is in the cache; mount it once while the server responds");
            Failure::with(Exit::SourceMissing, text)
        });
    }
    match reach(arguments, context).await {
        Ok(found) => Ok(connected(arguments, &found, reporter)),
        Err(error) if Exit::of(error.as_ref()) == Exit::Unreachable => match held(arguments, reporter)? {
            Some(begun) => {
                reporter.note(format!("{}; what is held is shown", crate::advice::explain(error.as_ref())));
                Ok(begun)
            }
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Finds the directory that is to be mounted.
async fn reach(arguments: &MountArgs, context: Context<'_>) -> anyhow::Result<Found> {
    let target = arguments.target();
    let found = async { follow(context, find(context, target).await?).await };
    let Ok(found) = timeout(REACH, found).await else {
        let text =
            format!("{target}: no answer from the server for {} s (nfsw doctor tells more)", REACH.as_secs());
        return Err(Failure::with(Exit::Unreachable, text));
    };
    let found = found?;
    if !found.is_directory() {
        return Err(Failure::usage(format!("{target} is not a directory")));
    }
    Ok(found)
}

/// Begins with a directory of a server.
fn connected(arguments: &MountArgs, found: &Found, reporter: &Reporter) -> Begun {
    let numbers = (found.metadata.fsid, found.metadata.fileid);
    let root = open(arguments, (found.handle, numbers), reporter);
    let place = root.as_ref().map(|root| root.path().to_owned());
    let mut config = config(arguments);
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
    let server = Arc::new(OnceLock::from(found.client.clone()));
    Begun { cache, server, root: (found.handle, numbers), place }
}

/// Opens the place of a root on the disk, for this process alone; says why there is none.
fn open(arguments: &MountArgs, root: (FileHandle, (u64, u64)), reporter: &Reporter) -> Option<Root> {
    let target = arguments.target();
    let without = |text: String| {
        reporter.note(format!("{text}; what is read of {target} is held in memory, until it is unmounted"));
        None
    };
    let home = match Home::new(arguments.cache.as_deref()) {
        Ok(home) => home,
        Err(error) => return without(io_text(&error)),
    };
    match home.open(root.0, root.1, &target.to_bytes()) {
        Ok(root) => Some(root),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            without("another nfsw has the cache of this directory".to_owned())
        }
        Err(error) => without(format!("{}: {}", show(home.path()), io_text(&error))),
    }
}

/// Begins with what an earlier mount has left.
fn held(arguments: &MountArgs, reporter: &Reporter) -> anyhow::Result<Option<Begun>> {
    let target = arguments.target();
    // The home directory that is not there holds nothing.
    let home = match Home::new(arguments.cache.as_deref()) {
        Ok(home) => home,
        Err(error) => {
            reporter.note(io_text(&error));
            return Ok(None);
        }
    };
    let found = home.find(&target.to_bytes()).map_err(|(path, error)| local(&path, &error))?;
    let Some(root) = found else { return Ok(None) };
    let identity = (root.handle, root.numbers);
    let opened = match home.open(root.handle, root.numbers, &target.to_bytes()) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => root.open_read_only().inspect(|_| {
            let (path, error) = (show(home.path()), io_text(&error));
            reporter.note(format!("{path}: {error}; what it has is shown, and nothing is added to it"));
        }),
        opened => opened,
    };
    let Ok(root) = opened else {
        let text = format!("{target}: another nfsw uses its cache");
        return Err(Failure::with(Exit::Unreachable, text));
    };
    let place = Some(root.path().to_owned());
    let store = Holder::Disk(Box::new(DiskStore::new(root)));
    let cache = Cache::disconnected(config(arguments), Instant::now(), wall(), identity.0, store);
    Ok(cache.map(|cache| Begun { cache, server: Arc::default(), root: identity, place }))
}

fn config(arguments: &MountArgs) -> CacheConfig {
    let mut config = CacheConfig::default();
    // Nobody would come.
    config.wait = if arguments.offline { Duration::ZERO } else { arguments.wait };
    config.size_bytes = arguments.cache_size;
    config.prompt = PROMPT;
    config.prefetch = arguments.prefetch;
    // An NFS client mounts it where we do not know.
    if arguments.via == Via::Fuse {
        config.told_heads = PHOTOS.map(str::to_owned).to_vec();
    }
    config
}

/// What the clock of this machine shows, since 1970.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Begun {
    /// Returns what looks for the server where it was not there at the beginning.
    pub(super) fn seeker(&self) -> Seeker {
        Seeker { server: Arc::clone(&self.server), root: self.root }
    }
}

/// Looks for a server.
pub(super) struct Seeker {
    server: Arc<OnceLock<Client>>,
    pub(super) root: (FileHandle, (u64, u64)),
}

impl Seeker {
    /// Tries until the server shows the root that is held; another one is told of once, and not asked.
    pub(super) async fn seek(
        &self,
        arguments: &MountArgs,
        context: Context<'_>,
        reporter: &Reporter,
        view: &View,
    ) -> Infallible {
        let (mut was_another, began) = (false, Instant::now());
        while self.server.get().is_none() && !arguments.offline {
            sleep((began.elapsed() / AGAIN_PART).clamp(AGAIN, MAX_AGAIN)).await;
            let Ok(found) = reach(arguments, context).await else { continue };
            if (found.handle, (found.metadata.fsid, found.metadata.fileid)) == self.root {
                // Nobody else sets it.
                let _ = self.server.set(found.client);
                view.reached();
            } else if !std::mem::replace(&mut was_another, true) {
                reporter.note(super::another(arguments.target()));
            }
        }
        pending().await
    }
}

/// Tells a cache what the user pins.
pub(super) async fn follow_pins(view: &View, place: Option<PathBuf>) -> Infallible {
    let Some(place) = place else { return pending().await };
    let (mut pinned, mut all_known) = (Vec::new(), true);
    loop {
        let wanted = pins(&place);
        if wanted != pinned || !all_known {
            pinned.retain(|path| !wanted.contains(path));
            all_known = view.pin(&wanted, &pinned);
            pinned = wanted;
        }
        sleep(LOOK).await;
    }
}
