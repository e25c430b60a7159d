//! `nfsw cp`

use std::{ffi::OsString, path::PathBuf};

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
    /// Copy SRC to DST itself, also if DST is a directory that exists.
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Follow symbolic links that are named as SRC; the default without -r.
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "no_dereference"])]
    pub(crate) follow: bool,
    /// Follow all symbolic links, also those in directories.
    #[arg(short = 'L', long, overrides_with_all = ["follow", "no_dereference"])]
    pub(crate) dereference: bool,
    /// Copy symbolic links as links; the default with -r, except for those named as SRC with -H.
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
    /// Say what would be copied, and copy nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write into the destination file itself, not into a temporary file that is renamed; cannot be resumed.
    #[arg(long)]
    pub(crate) inplace: bool,
    /// Holes in the copy: where the source has them (auto), wherever it has zeros (always), or nowhere (never). Holes
    /// are not sent.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) sparse: Sparse,
    /// Copy every file from the beginning; do not resume what an interrupted run has left.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Read source and copy again after copying, and compare them (BLAKE3 hashes of 1 MiB).
    #[arg(long)]
    pub(crate) verify: bool,
    /// Limit the rate: KiB/s as for rsync (500), or bytes or bits a second with a unit (2M, 80Mbit).
    #[arg(long, value_name = "RATE", value_parser = units::parse_bandwidth)]
    pub(crate) bwlimit: Option<u64>,
    /// Copy up to N files at once.
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
    /// Add what is done and said to FILE, a line each, with the time; with -q, too.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) log_file: Option<PathBuf>,
}

const EXAMPLES: &str = "\
A trailing slash means nothing; SRC/. means what is in SRC. With -r symbolic links are copied as links; fifos, sockets and devices in a tree are \
skipped with a warning, and one that is named as SRC is an error.

A symbolic link named as DST is followed: a directory receives SRC, a file is replaced and the link stays; a link that leads nowhere is \
refused. With -T, a directory is never copied to where a link leads, and a SRC that is copied as a link replaces it. Links inside the \
destination are never followed: a file or link replaces them, a directory or --inplace is refused.

A file is written to .NAME.nfsw-part beside its target and renamed when complete.

The same command, run again, resumes an interrupted run: within files above 128 KiB, and without the files of a tree that are complete and \
unchanged. Its state is kept beside downloads (.NAME.nfsw-journal) and, for uploads and trees, in $XDG_STATE_HOME/nfsw or \
~/.local/state/nfsw. --no-resume restarts every file; copies with --inplace, from standard input and between servers always restart. --verify \
also compares what an interrupted run has copied.

Holes are not sent to a server, except with --inplace. A download does not write the zeros of a sparse file.

-u compares times only, as cp -u does. A file with the time of its source but another size is kept, with a warning.

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
