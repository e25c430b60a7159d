//! The command lines of `nfsw mount` and `nfsw umount`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};

use super::{Completes, ConnectionArgs, parse_remote};
use crate::{target::Remote, units};

/// `nfsw mount`
#[derive(Args, Debug)]
#[command(after_help = "\
Programs see the files of the server below DIR, read-only; nfsw cp and nfsw sync write. What was read is kept in \
a cache on the disk, and served while the server does not respond, also to later mounts of the same directory (nfsw cache shows \
it). An opened file keeps the version that it had: when it changes on the server, what was not read of it yet fails as stale, and whoever opens it again gets the new version.

What --hoard names is fetched while no program waits for something else. With --prefetch the beginnings of photos, films and documents \
are fetched after their directory was listed, then its small files, with a quarter of the link.

The attribute user.nfsw.state says how a file relates to the server: fresh, or stale since when, and how much of it is held.

Examples:
  nfsw mount nas:/srv/photos ~/photos
  nfsw mount --offline nas:/srv/photos ~/photos
  nfsw mount --background --hoard 'albums/2026' nas:/srv/photos ~/photos
  nfsw mount --status
  getfattr -n user.nfsw.state ~/photos/cat.jpg
  nfsw mount --via nfs --listen 127.0.0.1:20490 nas:/srv/photos
  nfsw umount ~/photos")]
pub(crate) struct MountArgs {
    /// Directory on a server.
    #[arg(value_name = "TARGET", value_parser = parse_remote(), required_unless_present = "status", add = Completes::OnServers)]
    target: Option<Remote>,
    /// Directory of this machine in which it is shown.
    #[arg(value_name = "DIR", required_unless_present_any = ["status", "listen"])]
    pub(crate) directory: Option<PathBuf>,
    /// What programs go through: FUSE, or the system's NFS client, for which nfsw is a server on this machine.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) via: Via,
    /// With --via nfs: address and port of that server. Without DIR it only serves. [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// How long a program waits for what is not held before it gets an error.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration)]
    pub(crate) wait: Duration,
    /// Directory of the cache; $XDG_CACHE_HOME/nfsw/mount when left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// How much file data is held of TARGET; what was used longest ago goes first.
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = units::parse_size)]
    pub(crate) cache_size: u64,
    /// Do not ask the server for anything: show what the cache has.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Fetch the files that match, paths below TARGET, and keep them whatever else is read; may be given several times.
    #[arg(long, value_name = "GLOB")]
    pub(crate) hoard: Vec<String>,
    /// Fetch what programs will probably ask for.
    #[arg(long, conflicts_with = "offline")]
    pub(crate) prefetch: bool,
    /// Unmount when no program has used it for so long.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) idle: Option<Duration>,
    /// Return when the mount works, which goes on in the background.
    #[arg(long)]
    pub(crate) background: bool,
    /// This is the process in the background.
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,
    /// Say how all mounts of this user are, or the one at DIR.
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["target", "directory"])]
    pub(crate) status: Option<Option<PathBuf>>,
    /// With --status: print JSON, one event a line.
    #[arg(long, requires = "status")]
    pub(crate) json: bool,
    /// Say nothing but errors.
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
        self.directory.as_deref().expect("the parser requires it")
    }
}

/// How programs reach a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// A file system in user space.
    #[default]
    Fuse,
    /// An NFS server on this machine, and its NFS client.
    Nfs,
}

/// `nfsw umount`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw umount ~/photos")]
pub(crate) struct UmountArgs {
    /// Where it is mounted.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
