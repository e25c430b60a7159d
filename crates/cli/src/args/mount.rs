//! The command lines of `nfsw mount` and `nfsw umount`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Completes, ConnectionArgs, parse_remote};
use crate::{target::Remote, units};

/// `nfsw mount`
#[derive(Args, Debug)]
#[command(after_help = "\
Programs see the files of the server below DIR, read-only; nfsw cp and nfsw sync write. What was read is kept in \
a cache on the disk, and served while the server does not respond, also to later mounts of the same directory (nfsw cache shows \
it). An opened file keeps the version that it had: when it changes on the server, what was not read of it yet fails as stale, and whoever opens it again gets the new version.

The attribute user.nfsw.state says how a file relates to the server: fresh, or stale since when, and how much of it is held.

Examples:
  nfsw mount nas:/srv/photos ~/photos
  nfsw mount --offline nas:/srv/photos ~/photos
  getfattr -n user.nfsw.state ~/photos/cat.jpg
  nfsw umount ~/photos")]
pub(crate) struct MountArgs {
    /// Directory on a server.
    #[arg(value_name = "TARGET", value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) target: Remote,
    /// Directory of this machine in which it is shown.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
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
    /// Say nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// `nfsw umount`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw umount ~/photos")]
pub(crate) struct UmountArgs {
    /// Where it is mounted.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
