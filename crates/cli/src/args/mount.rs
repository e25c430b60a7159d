//! The command lines of `nfsw mount` and `nfsw umount`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{Completes, ConnectionArgs, parse_remote};
use crate::{target::Remote, units};

/// `nfsw mount`
#[derive(Args, Debug)]
#[command(after_help = "\
Programs see the files of the server below DIR, read-only; nfsw cp and nfsw sync write. What was read is kept in memory, \
and served while the server does not respond. An opened file keeps the version that it had: when it changes on the server, what \
was not read of it yet fails as stale, and whoever opens it again gets the new version.

The attribute user.nfsw.state says how a file relates to the server: fresh, or stale since when, and how much of it is held.

Examples:
  nfsw mount nas:/srv/photos ~/photos
  getfattr -n user.nfsw.state ~/photos/cat.jpg
  nfsw mount --via nfs --listen 127.0.0.1:20490 nas:/srv/photos
  nfsw umount ~/photos")]
pub(crate) struct MountArgs {
    /// Directory on a server.
    #[arg(value_name = "TARGET", value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) target: Remote,
    /// Directory of this machine in which it is shown.
    #[arg(value_name = "DIR", required_unless_present = "listen")]
    pub(crate) directory: Option<PathBuf>,
    /// What programs go through: FUSE, or the system's NFS client, for which nfsw is a server on this machine.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) via: Via,
    /// Address and port of that server. Without DIR it only serves. [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// How long a program waits for what is not held before it gets an error.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration)]
    pub(crate) wait: Duration,
    /// How much file data is held in memory.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::parse_size)]
    pub(crate) cache_size: u64,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
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
