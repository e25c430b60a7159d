//! `nfsw cp`

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};
use nfs_files::{copy::Shard, local::Sparse};

use super::{Completes, ConnectionArgs, FilterArgs, HabitArgs, OutputArgs};
use crate::units;

/// `nfsw cp`
#[derive(Args, Debug)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct CpArgs {
    /// What to copy: HOST:/PATH, nfs://HOST/PATH, a local path, or - for standard input. `*`, `?` and `[...]` in a
    /// server path match names there.
    #[arg(value_name = "SRC", required = true, num_args = 1.., add = Completes::Anywhere)]
    pub(crate) sources: Vec<OsString>,
    /// Where to: into DST if it is an existing directory, otherwise to DST itself. - is standard output.
    #[arg(value_name = "DST", add = Completes::Anywhere)]
    pub(crate) destination: OsString,
    /// Copy directories and their contents.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Same as -r -p -P: copy trees with their modes, times and links. Hard links become separate files; nfsw sync keeps them.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy SRC to DST itself, even if DST is an existing directory.
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Follow symbolic links that are given as SRC; the default without -r.
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "no_dereference"])]
    pub(crate) follow: bool,
    /// Follow all symbolic links, also those in directories.
    #[arg(short = 'L', long, overrides_with_all = ["follow", "no_dereference"])]
    pub(crate) dereference: bool,
    /// Copy symbolic links as links; the default with -r, except for those given as SRC with -H.
    #[arg(short = 'P', long, overrides_with_all = ["follow", "dereference"])]
    pub(crate) no_dereference: bool,
    /// Preserve modes, times and, where allowed, owners.
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Do not replace files that exist at the destination.
    #[arg(short, long, conflicts_with = "update")]
    pub(crate) no_clobber: bool,
    /// Is always so: what exists is replaced, unless with -n or -u.
    #[arg(short, long, hide = true)]
    force: bool,
    /// Accepted, and changes nothing: NFS cannot compress.
    #[arg(short = 'C', hide = true)]
    pub(crate) compress_as_scp: bool,
    /// Replace only files that are older than their source, whatever their size. Times are compared at the resolution
    /// of the destination.
    #[arg(short, long)]
    pub(crate) update: bool,
    /// Show what would be copied, without copying.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Copy from a share without asking first.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write into the destination file itself, without a temporary file; such a copy cannot be resumed.
    #[arg(long)]
    pub(crate) inplace: bool,
    /// Make holes in the copy where the source has holes (auto), wherever it has zeros (always), or nowhere (never).
    /// Uploads do not send holes, except with never or --inplace.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) sparse: SparseWhen,
    /// Copy every file from the beginning instead of resuming an interrupted run.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// After copying, read source and copy again and compare them (one BLAKE3 hash per MiB).
    #[arg(long)]
    pub(crate) verify: bool,
    /// Limit the rate: in KiB/s as for rsync (500), or in bytes or bits per second with a unit (2M, 80Mbit) [default: 0, no limit].
    #[arg(long, value_name = "RATE", value_parser = units::parse_bandwidth, allow_negative_numbers = true)]
    pub(crate) bwlimit: Option<u64>,
    /// Copy up to N files at once; more than 16 only while they have 512 KiB together.
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// Copy only the K-th of N parts of the files. N runs, anywhere, that differ only in K copy together what one run copies; DST must exist, or -T be given.
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,
    /// Name each file when it is done.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// No progress and no warnings, only errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) habits: HabitArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Append every action and message to FILE, one per line with the time, even with -q.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) log_file: Option<PathBuf>,
}

const EXAMPLES: &str = "\
SRC/ follows a symbolic link to a directory. A file is copied to DST/ only if DST is an existing directory. Otherwise a trailing slash makes no difference. SRC/. stands for the contents of SRC. With -r, symbolic links are copied as links. Fifos, sockets and \
devices in a tree are skipped with a warning; given as SRC, they are an error.

If DST is a symbolic link, it is followed: SRC is copied into the directory it points to, or replaces the file it points to. A dangling link \
is refused. With -T, no directory is copied through a link, and a SRC that is copied as a link replaces DST. Links inside the \
destination are never followed: a file or link replaces them; a directory, or --inplace, is refused.

A file is written to .NAME.nfsw-part beside its target and renamed when complete.

Run the same command again to resume an interrupted run. Files larger than 128 KiB resume in the middle, and complete, unchanged files of \
a tree are skipped. The state is kept beside downloads (.NAME.nfsw-journal-USER) and, for uploads and trees, in $XDG_STATE_HOME/nfsw or \
~/.local/state/nfsw. Copies with --inplace, from standard input or between servers always start from the beginning. --verify also compares \
what an interrupted run has copied.

NFSv3 does not report holes: with --sparse auto, a download makes holes of all zeros of a file that takes less space on the server than its size.

-u compares only times, as cp -u does. It keeps a file that has the time of its source but another size, and warns.

These options of rsync, scp and cp are accepted without effect: --progress, --partial, -h, -f and -W, because they are always on, and -z and \
-C, because NFS has no compression. The port of a server is part of its name: nfs://HOST:PORT/PATH.

Examples:
  nfsw cp nas:/srv/photos/cat.jpg .
  nfsw cp -av nas:/srv/photos .
  nfsw cp -rp nas:/srv/photos backup
  nfsw cp 'nas:/srv/logs/2026-*' logs/
  nfsw cp -r --bwlimit 2M thesis nas:/home/me
  tar c src | nfsw cp - nas:/srv/backup/src.tar
  nfsw cp --timeout 1m 'nfs://nas:2049/srv/big.iso?mountport=2049' .";

/// When zeros become holes (`--sparse`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SparseWhen {
    /// Where the source has holes.
    #[default]
    Auto,
    /// Wherever the source has zeros.
    Always,
    /// Nowhere.
    Never,
}

impl From<SparseWhen> for Sparse {
    fn from(when: SparseWhen) -> Self {
        match when {
            SparseWhen::Auto => Self::Auto,
            SparseWhen::Always => Self::Always,
            SparseWhen::Never => Self::Never,
        }
    }
}
