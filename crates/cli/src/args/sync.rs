//! `nfsw sync`

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use nfs_files::copy::Shard;

use super::copy::SparseWhen;
use super::{Completes, ConnectionArgs, FilterArgs, HabitArgs, OutputArgs};
use crate::units;

/// `nfsw sync`
#[derive(Args, Debug)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct SyncArgs {
    /// The directory whose contents are copied: HOST:/PATH, nfs://HOST/PATH or a local path.
    #[arg(value_name = "SRC", add = Completes::Anywhere)]
    pub(crate) source: OsString,
    /// The directory that receives the same contents; it is created if it does not exist.
    #[arg(value_name = "DST", add = Completes::Anywhere)]
    pub(crate) destination: OsString,
    /// Delete what only DST has, after everything is copied; delete nothing if anything failed before.
    #[arg(long, aliases = ["delete-after", "delete-delay"])]
    pub(crate) delete: bool,
    /// Delete nothing if more than N files and directories would be deleted.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,
    /// Show what would be copied and deleted, without changing anything.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Copy from a share without asking first.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Compare contents instead of times of files of the same size; reads them on both sides.
    #[arg(short, long, conflicts_with = "size_only")]
    pub(crate) checksum: bool,
    /// Compare sizes only, and not times.
    #[arg(long)]
    pub(crate) size_only: bool,
    /// Skip files that are newer in DST, without an error.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) update: bool,
    /// Skip files that exist in DST.
    #[arg(long, conflicts_with_all = ["update", "force"])]
    pub(crate) ignore_existing: bool,
    /// Replace files that are newer in DST; with --delete, also delete everything in DST if SRC is empty.
    #[arg(long)]
    pub(crate) force: bool,
    /// Copy what symbolic links point to, not the links.
    #[arg(short = 'L', long, visible_alias = "copy-links")]
    pub(crate) dereference: bool,
    /// Make holes in the copy where the source has holes (auto), wherever it has zeros (always), or nowhere (never).
    /// Uploads do not send holes, except with never.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) sparse: SparseWhen,
    /// Same as --sparse always.
    #[arg(short = 'S', hide = true)]
    pub(crate) sparse_always: bool,
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
    /// Copy only the K-th of N parts of the files. N runs, anywhere, that differ only in K copy together what one run copies; --delete needs a last run without --shard.
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,
    /// Name each file that is copied or deleted, and say why.
    #[arg(short, long, visible_short_alias = 'i', alias = "itemize-changes", conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// No progress and no warnings, only errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) habits: HabitArgs,
    #[command(flatten)]
    always: AlwaysArgs,
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

/// Options of rsync that a sync always has.
#[derive(Args, Clone, Debug, Default)]
struct AlwaysArgs {
    /// Is always so.
    #[arg(short, long, hide = true)]
    recursive: bool,
    /// Is always so.
    #[arg(short, long, hide = true)]
    archive: bool,
    /// Is always so: links are copied as links.
    #[arg(short, long, hide = true)]
    links: bool,
    /// Is always so.
    #[arg(short, long, hide = true)]
    perms: bool,
    /// Is always so.
    #[arg(short, long, hide = true)]
    times: bool,
    /// Is always so, where allowed.
    #[arg(short, long, hide = true)]
    owner: bool,
    /// Is always so, where allowed.
    #[arg(short, long, hide = true)]
    group: bool,
    /// Accepted as a part of -a; what is neither file, directory nor link is skipped with a warning.
    #[arg(short = 'D', long = "no-D", aliases = ["no-devices", "no-specials"], hide = true)]
    devices: bool,
    /// Is always so.
    #[arg(short = 'H', long, hide = true)]
    hard_links: bool,
    /// Is always so: NFSv3 knows owners as numbers only.
    #[arg(long, hide = true)]
    numeric_ids: bool,
    /// As --partial --progress, which are always so.
    #[arg(short = 'P', hide = true)]
    partial_progress: bool,
}

const EXAMPLES: &str = "\
DST receives the contents of SRC, never SRC itself; a trailing slash makes no difference. Modes, times, symbolic links, hard links and holes \
are kept, and owners where allowed. Fifos, sockets and devices are skipped with a warning.

A file counts as unchanged if it has the size and time of its source. A file that is newer in DST is kept and reported, and the exit status is \
1; --update skips it without an error, --force replaces it.

--delete deletes nothing if anything failed or a newer file was kept, if SRC changed while it was listed, if SRC is empty (as an unmounted file system is) and --force is \
not given, or if more than --max-delete files and directories would be deleted. If something of another type is in the way of a file \
or directory of SRC, it is deleted before that is copied. --delete never deletes what filters exclude or what is mounted in DST, and never follows symbolic links there.

Run the same command again to resume an interrupted run.

Options of rsync and scp:
  -a, -r, -l, -p, -t, -H         always on; -o and -g where allowed
  -P, --progress, --partial, -h  always on: progress, resuming, sizes with units
  -v, -i                         name each file copied or deleted, and say why
  -n, --dry-run                  show what would be done
  --delete, --delete-after       delete what only DST has
  -u, -c, --size-only            decide what is copied
  --exclude, --include           with the patterns of rsync
  --exclude-from FILE            patterns in the syntax of .gitignore
  --files-from FILE              names of files, one per line
  -x                             stay on one file system
  --bwlimit RATE                 KiB/s; scp -l 8000 is --bwlimit 8000kbit
  -z, -W                         no effect: no compression, always whole files
  -e, scp -i                     not needed: no ssh, no login; --uid, --gid
  --port, scp -P                 part of the name: nfs://HOST:PORT/PATH

For most other options, nfsw says what to use instead. -S is --sparse always.

Examples:
  nfsw sync ~/Pictures nas:/backup --delete --dry-run
  nfsw sync ~/Pictures nas:/backup --delete --max-delete 100
  nfsw sync nas:/srv/music ~/Music --exclude '*.flac'
  nfsw sync . nas:/home/me/project --gitignore --exclude /.git
  nfsw sync --shard 2/4 /data nas:/backup        the second of four runs
  nfsw sync nas:/srv/photos nas2:/srv/photos";
