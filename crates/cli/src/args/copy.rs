//! `nfsw cp`

use std::ffi::OsString;

use clap::Args;

use super::{Completes, ConnectionArgs, FilterArgs, HabitArgs, OutputArgs};
use crate::{local::Sparse, units};

/// `nfsw cp`
#[derive(Args, Debug)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct CpArgs {
    /// What to copy: HOST:/PATH, nfs://HOST/PATH, a local path, or - for standard input. `*`, `?` and `[...]` in a
    /// server path match names there.
    #[arg(value_name = "SRC", required = true, num_args = 1.., add = Completes::Anywhere)]
    pub(crate) sources: Vec<OsString>,
    /// Where to: an existing directory receives each SRC inside, otherwise SRC becomes DST. - is standard output.
    #[arg(value_name = "DST", add = Completes::Anywhere)]
    pub(crate) destination: OsString,
    /// Copy directories and what is in them.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// As -r -p -P: copy trees with their modes, times and links. Hard links become separate files; nfsw sync keeps them.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// DST is what SRC becomes, also if it is a directory that exists.
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Copy what symbolic links named as SRC point to, not the links; without -r that is done anyway.
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "no_dereference"])]
    pub(crate) follow: bool,
    /// Copy what any symbolic links point to, also those in directories.
    #[arg(short = 'L', long, overrides_with_all = ["follow", "no_dereference"])]
    pub(crate) dereference: bool,
    /// Copy symbolic links themselves, always; with -r that is done anyway.
    #[arg(short = 'P', long, overrides_with_all = ["follow", "dereference"])]
    pub(crate) no_dereference: bool,
    /// Keep modes and times, and owners where allowed.
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Leave files alone that exist at the destination.
    #[arg(short, long, conflicts_with = "update")]
    pub(crate) no_clobber: bool,
    /// Is always so: what exists is replaced, unless with -n or -u.
    #[arg(short, long, hide = true)]
    force: bool,
    /// Accepted, and changes nothing: NFS cannot compress.
    #[arg(short = 'C', hide = true)]
    pub(crate) compress_as_scp: bool,
    /// Copy only what is missing at the destination or older there, whatever its size: nothing newer, or as new, is
    /// replaced. Times are compared as finely as the destination keeps them.
    #[arg(short, long)]
    pub(crate) update: bool,
    /// Say what would be copied, and copy nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write straight into the destination file, instead of beside it and renaming when complete; never resumed.
    #[arg(long)]
    pub(crate) inplace: bool,
    /// When zeros become holes in a copy, and are not sent to a server: where the source has holes, wherever it has
    /// zeros, or nowhere.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) sparse: Sparse,
    /// Copy every file from its beginning, even where an interrupted run has left a part of it.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Read every copy and its source again and compare them (BLAKE3, in steps of 1 MiB).
    #[arg(long)]
    pub(crate) verify: bool,
    /// Send or receive no more than this: KiB a second as for rsync (500), or bytes or bits a second with a unit (2M, 80Mbit ...).
    #[arg(long, value_name = "RATE", value_parser = units::parse_bandwidth)]
    pub(crate) bwlimit: Option<u64>,
    /// Files in flight at once.
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// Name each file when it is done.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// No progress and no warnings, only errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) habits: HabitArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const EXAMPLES: &str = "\
A trailing slash means nothing; SRC/. means what is in SRC. With -r symbolic links are copied as links; fifos, sockets and devices in a tree are \
skipped with a warning, and one that is named as SRC is an error.

A symbolic link that is named as DST is what it leads to: a directory receives SRC, a file is replaced and the link stays; \
one that leads nowhere is refused. With -T, a directory never becomes what a link leads to; where SRC is copied as a link, it \
replaces the link. A link in a directory that is copied into is replaced, or refused where it would be a directory or with \
--inplace; it is never followed.

A file is written to .NAME.nfsw-part beside its target and renamed when complete.

The same command, run again, resumes where an interrupted run ended: within files above 128 KiB, and \
without the files of a tree that are complete and unchanged. What that takes is kept beside downloads \
(.NAME.nfsw-journal) and, for uploads and trees, in $XDG_STATE_HOME/nfsw or ~/.local/state/nfsw. \
--no-resume copies files from their beginning; with --inplace, from standard input and between servers that is always so. --verify compares every file \
of the run, also what an interrupted run has copied.

Holes are not sent to a server (with --inplace they are, as zeros), and zeros of a file with holes on a server are not written here.

-u goes by times alone, as cp -u does: what is newer or as new stays, whatever its size; a file with the time of its source and \
another size is named in a warning.

Options of rsync, scp and cp that need not be said here are accepted: --progress, --partial, -h, -f, -W, and -z and -C, although nothing \
is compressed. The port of a server is part of its name: nfs://HOST:PORT/PATH.

Examples:
  nfsw cp nas:/srv/photos/cat.jpg .
  nfsw cp -av nas:/srv/photos .
  nfsw cp -rp nas:/srv/photos backup
  nfsw cp 'nas:/srv/logs/2026-*' logs/
  nfsw cp -r --bwlimit 2M thesis nas:/home/me
  tar c src | nfsw cp - nas:/srv/backup/src.tar
  nfsw cp --timeout 1m nfs://nas:2049/srv/big.iso?mountport=2049 .";
