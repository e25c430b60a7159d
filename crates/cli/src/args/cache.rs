//! The command line of `nfsw cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Completes, parse_remote};
use crate::url::Remote;

/// `nfsw cache`
#[derive(Args, Debug)]
pub(crate) struct CacheArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

/// The subcommands of `nfsw cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the mounted directories that are in the cache, or the files below TARGET that have data in it.
    #[command(after_help = "Examples:\n  nfsw cache ls\n  nfsw cache ls nas:/srv/photos/2026")]
    Ls(CacheLsArgs),
    /// Never delete what is in the cache at and below TARGET to make room for other files. A running mount notices
    /// this within seconds.
    ///
    /// This fetches nothing: nfsw mount --hoard does.
    #[command(
        after_help = "Examples:\n  nfsw cache pin nas:/srv/photos/2026\n  nfsw cache pin --remove nas:/srv/photos/2026"
    )]
    Pin(CachePinArgs),
    /// Delete what is in the cache at and below TARGET, which must not be mounted.
    #[command(after_help = "Examples:\n  nfsw cache drop nas:/srv/photos/2019\n  nfsw cache drop --all")]
    Drop(CacheDropArgs),
    /// Compare all data in the cache with the hashes from when it was fetched. Directories that are mounted are
    /// skipped.
    /// A mount verifies the data that it reads, and fetches damaged data again instead of serving it.
    #[command(after_help = "Example:\n  nfsw cache verify")]
    Verify(CacheVerifyArgs),
}

/// What all of them have.
#[derive(Args, Debug)]
pub(crate) struct CachePlace {
    /// Directory of the cache [default: $XDG_CACHE_HOME/nfsw/mount or ~/.cache/nfsw/mount].
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Print JSON, one event per line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `nfsw cache ls`
#[derive(Args, Debug)]
pub(crate) struct CacheLsArgs {
    /// A directory that was mounted, or a directory below one.
    #[arg(value_name = "TARGET", value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) target: Option<Remote>,
    #[command(flatten)]
    pub(crate) place: CachePlace,
}

/// `nfsw cache pin`
#[derive(Args, Debug)]
pub(crate) struct CachePinArgs {
    /// A directory that was mounted, or a file or directory below one.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Remove the protection.
    #[arg(long)]
    pub(crate) remove: bool,
    #[command(flatten)]
    pub(crate) place: CachePlace,
}

/// `nfsw cache drop`
#[derive(Args, Debug)]
pub(crate) struct CacheDropArgs {
    /// A directory that was mounted, or a file or directory below one.
    #[arg(value_name = "TARGET", required_unless_present = "all", value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Delete everything in the cache.
    #[arg(long, conflicts_with = "targets")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) place: CachePlace,
}

/// `nfsw cache verify`
#[derive(Args, Debug)]
pub(crate) struct CacheVerifyArgs {
    #[command(flatten)]
    pub(crate) place: CachePlace,
}
