//! The small file commands.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use super::{Completes, ConnectionArgs, OutputArgs, parse_listed, parse_remote};
use crate::{mode::ModeChange, url::Remote};

/// `nfsw ls`
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  nfsw ls nas:\n  nfsw ls -lh nas:/srv\n  nfsw ls -lt 'nas:/srv/logs/*.gz'"
)]
pub(crate) struct LsArgs {
    /// Directories or files on servers; HOST: lists everything that a server exports.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_listed(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Show type, mode, links, owner, group, size and time.
    #[arg(short)]
    pub(crate) long: bool,
    /// Show names that begin with a dot, and . and .. too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show names that begin with a dot, but not . and ..
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// Show directories themselves, not their contents.
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// With -l, show sizes such as 4.0K.
    #[arg(short, long)]
    pub(crate) human_readable: bool,
    /// List subdirectories too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Newest first.
    #[arg(short = 't', conflicts_with = "by_size")]
    pub(crate) by_time: bool,
    /// Largest first.
    #[arg(short = 'S')]
    pub(crate) by_size: bool,
    /// Reverse the order.
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Show inode numbers.
    #[arg(short, long)]
    pub(crate) inode: bool,
    /// One name per line.
    #[arg(short = '1')]
    pub(crate) one_per_line: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw stat`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw stat nas:/srv/photos/cat.jpg")]
pub(crate) struct StatArgs {
    /// Files on servers.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Show the attributes of what a symbolic link points to, not of the link.
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw cat`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw cat nas:/srv/movie.mkv | mpv -")]
pub(crate) struct CatArgs {
    /// Files on servers.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Print calls, retransmissions and round-trip times at the end, on standard error.
    #[arg(long)]
    pub(crate) stats: bool,
}

/// `nfsw df`
#[derive(Args, Debug)]
#[command(disable_help_flag = true, after_help = "Example:\n  nfsw df -h nas:/srv")]
pub(crate) struct DfArgs {
    /// Paths on servers.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Show sizes such as 4.0G.
    #[arg(short, long)]
    pub(crate) human_readable: bool,
    /// Show inodes instead of blocks.
    #[arg(short, long)]
    pub(crate) inodes: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw mkdir`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw mkdir -p nas:/srv/backup/2026/11")]
pub(crate) struct MkdirArgs {
    /// Directories to create.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Create missing parents too, and accept directories that exist.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions in octal [default: 777 less the umask].
    #[arg(short, long, value_name = "MODE", value_parser = crate::mode::parse_octal)]
    pub(crate) mode: Option<u32>,
    /// Name each directory that is created.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw rm`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  nfsw rm 'nas:/srv/logs/*.old'\n  nfsw rm -r nas:/srv/scratch")]
pub(crate) struct RmArgs {
    /// Files to remove; `*`, `?` and `[...]` match names on the server.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Remove directories and their contents.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Name each file that is removed.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw mv`
#[derive(Args, Debug)]
#[command(after_help = "\
If DST is an existing directory, each SRC is moved into it; otherwise SRC is renamed to DST.

Example:
  nfsw mv nas:/srv/new/report.pdf nas:/srv/done")]
pub(crate) struct MvArgs {
    /// What to move; `*`, `?` and `[...]` match names on the server.
    #[arg(value_name = "SRC", required = true, num_args = 1.., value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) sources: Vec<Remote>,
    /// Where to, within the same export.
    #[arg(value_name = "DST", value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) destination: Remote,
    /// Do not replace files that exist at the destination.
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Name each file that is moved.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw ln`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  nfsw ln nas:/srv/a nas:/srv/b            a second name for the same file
  nfsw ln -s ../shared nas:/srv/me/shared  a symbolic link; its text is taken as it is")]
pub(crate) struct LnArgs {
    /// The file to link to: a server path, or with -s any text.
    #[arg(value_name = "TARGET")]
    pub(crate) target: OsString,
    /// The name to create; in an existing directory, the link gets the target's name.
    #[arg(value_name = "LINK", value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) link: Remote,
    /// Create a symbolic link.
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Name each link that is created.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw chmod`
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  nfsw chmod 640 nas:/srv/secret\n  nfsw chmod -R u+rwX,go-w nas:/srv/tree"
)]
pub(crate) struct ChmodArgs {
    /// The new mode: octal, or letters as for chmod(1).
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: ModeChange,
    /// Files on servers; `*`, `?` and `[...]` match names there.
    #[arg(value_name = "TARGET", required = true, value_parser = parse_remote(), add = Completes::OnServers)]
    pub(crate) targets: Vec<Remote>,
    /// Change directories and their contents.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Name each file and its mode.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
