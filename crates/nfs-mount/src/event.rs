//! What happens to a mount.

use std::{io, path::PathBuf, sync::Arc};

use nfs_cache::Failure;
use nfs_files::Error;

/// Something that the user of a mount should know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The server does not respond any more: what is cached is shown.
    Disconnected,
    /// It responds again.
    Connected,
    /// Another server responds at its address. It is not asked for anything.
    AnotherServer,
    /// What was shared is not any more: from now on nothing is shown of it.
    Ended(Arc<io::Error>),
    /// A directory on the server has a name that no program can use. It is left out, and told once.
    UnusableName(Arc<[u8]>),
    /// A directory, by its path below the mounted one, cannot be listed; and why.
    Unlisted(Vec<u8>, Failure),
    /// The server could not be reached when the mount began: what an earlier one has left is shown.
    BegunOffline(Error),
    /// The cache is in memory, and ends with the mount.
    CacheInMemory(NoDisk),
    /// The cache, in this directory, cannot be written: it is shown, and nothing is added to it.
    CacheReadOnly(PathBuf, io::Error),
    /// There is no cache directory.
    NoCache(io::Error),
}

/// Why a cache is not on the disk.
#[derive(Debug)]
pub enum NoDisk {
    /// Another mount, of this or of another process, has the cache of the directory.
    InUse,
    /// There is no cache directory that is this user's alone.
    NoHome(io::Error),
    /// The cache in this directory cannot be opened.
    Unusable(PathBuf, io::Error),
}
