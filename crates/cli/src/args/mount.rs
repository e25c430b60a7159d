//! The command lines of `nfsw mount` and `nfsw umount`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};

use super::{Completes, ConnectionArgs, parse_remote};
use crate::{units, url::Remote};

/// `nfsw mount`
#[derive(Args, Debug)]
#[command(after_help = "\
Programs see the files of the server below DIR, read-only; nfsw cp and nfsw sync write. What was read is kept in \
a cache on disk, and is served while the server does not respond, by later mounts of the same directory as well (nfsw cache lists \
it). An open file keeps its version: when the file changes on the server, reading a part that is not in the cache fails with \
ESTALE, and the next open gets the new version.

Files that --hoard names are fetched when no program waits for the server. --prefetch fetches the beginnings of photos, music, films and \
documents, and the ends of the last two, once their directory has been listed, then small files; it takes at most a quarter of the link's rate. \
The thumbnails that cameras put into photos go to the user's thumbnail cache, for file managers.

The attribute user.nfsw.state tells whether a file is fresh, or since when it is stale, and how much of it is in the cache.

--timeout and --deadline do not end a mount: it waits for its server without limit. --wait limits how long a program waits.

Examples:
  nfsw mount nas:/srv/photos ~/photos
  nfsw mount --offline nas:/srv/photos ~/photos
  nfsw mount 7-velvet-cactus@192.168.1.5:/
  nfsw mount --background --hoard 'albums/2026' nas:/srv/photos ~/photos
  nfsw mount --status
  getfattr -n user.nfsw.state ~/photos/cat.jpg
  nfsw mount --via nfs --listen 127.0.0.1:20490 nas:/srv/photos
  nfsw umount ~/photos")]
pub(crate) struct MountArgs {
    /// Directory on a server.
    #[arg(value_name = "TARGET", value_parser = parse_remote(), required_unless_present = "status", add = Completes::OnServers)]
    target: Option<Remote>,
    /// Local directory to mount it on; a share that is named without one is mounted at ~/nfsw/NAME, the same for all.
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// How to mount: as a FUSE file system, or with the system's NFS client, to which nfsw is a local server (as root).
    #[arg(long, value_enum, default_value_t)]
    pub(crate) via: Via,
    /// With --via nfs: the address and port on which nfsw serves the view. Without DIR, nothing is mounted. [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR:PORT", value_parser = units::parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// How long a program waits for what is not in the cache, while no part of it arrives, before it gets an error.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration)]
    pub(crate) wait: Duration,
    /// Directory of the cache [default: $XDG_CACHE_HOME/nfsw/mount or ~/.cache/nfsw/mount].
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// How much file data of TARGET to keep; the least recently used is deleted first.
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = units::parse_size)]
    pub(crate) cache_size: u64,
    /// Show only what is in the cache, and send nothing to the server.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Fetch the files whose paths below TARGET match, and keep them in the cache; may be repeated.
    #[arg(long, value_name = "GLOB")]
    pub(crate) hoard: Vec<String>,
    /// Fetch what programs will probably read next.
    #[arg(long, conflicts_with = "offline")]
    pub(crate) prefetch: bool,
    /// Unmount when no program has used the mount for this long; without DIR, stop serving.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) idle: Option<Duration>,
    /// Delete what is held of a share when it cannot be reached for this long, as when it has ended.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = units::parse_duration)]
    pub(crate) forget: Duration,
    /// Return as soon as the mount works, and keep it in the background.
    #[arg(long)]
    pub(crate) background: bool,
    /// This is the process in the background.
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,
    /// Print the state of all mounts of this user, or of the one at DIR.
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["target", "directory"])]
    pub(crate) status: Option<Option<PathBuf>>,
    /// Print JSON, one event per line: when it is mounted, when its state changes, and a summary.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl MountArgs {
    /// Returns what is to be mounted: the parser has made sure of it.
    pub(crate) const fn target(&self) -> &Remote {
        self.target.as_ref().expect("the parser requires it")
    }

    /// Returns where.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.as_deref().expect("it was made where none was named")
    }
}

/// How programs reach a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// A file system in user space (FUSE).
    #[default]
    Fuse,
    /// The system's NFS client.
    Nfs,
}

/// `nfsw umount`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw umount ~/photos")]
pub(crate) struct UmountArgs {
    /// The directory where it is mounted.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Print JSON, one event per line, and a summary.
    #[arg(long)]
    pub(crate) json: bool,
}
