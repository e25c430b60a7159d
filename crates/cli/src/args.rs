//! The command line: clap types only.

mod access;
#[cfg(mount)]
mod cache;
mod completion;
mod connection;
mod copy;
mod curve;
mod doctor;
mod files;
mod filter;
mod habits;
mod link;
#[cfg(mount)]
mod mount;
mod share;
mod sync;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use completion::Completes;
pub(crate) use connection::{
    ConnectionArgs, HELP_CONNECTION, Host, Hosts, OutputArgs, Policy, Security, Transport,
};
pub(crate) use copy::CpArgs;
pub(crate) use curve::{CurveArgs, CurveTransport, Op};
pub(crate) use doctor::DoctorArgs;
pub(crate) use files::{CatArgs, ChmodArgs, DfArgs, LnArgs, LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub(crate) use filter::FilterArgs;
pub(crate) use habits::{HabitArgs, NO_COMPRESSION};
#[cfg(linux)]
pub(crate) use link::LinkExecArgs;
pub(crate) use link::{CaptureArgs, LinkArgs, LinkCommand, LinkOptions, LinkProxyArgs, LinkShowArgs};

#[cfg(mount)]
pub(crate) use cache::{CacheCommand, CacheDropArgs, CacheLsArgs, CachePinArgs, CachePlace};
#[cfg(mount)]
pub(crate) use mount::{MountArgs, UmountArgs, Via};
pub(crate) use share::{FindArgs, ShareArgs};
pub(crate) use sync::SyncArgs;

use crate::{units, url::Remote};

/// NFS for bad links: work with files on NFSv3 servers without mounting them, as any user.
///
/// A file on a server is HOST:/PATH or nfs://HOST/PATH, with the path that the server uses. The export is discovered
/// automatically.
#[derive(Debug, Parser)]
#[command(name = "nfsw", version, args_override_self = true, max_term_width = 100, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nfsw demo                                try it, no server needed
  nfsw exports nas                         what does the server offer?
  nfsw ls -l nas:/srv/photos
  nfsw cp nas:/srv/photos/cat.jpg .        get a file
  nfsw cp -r holiday nas:/srv/photos       put a directory
  nfsw cp 'nas:/srv/logs/*.gz' logs/       the pattern matches names there
  nfsw sync holiday nas:/srv/photos/holiday    copy only what has changed
  nfsw cat nas:/etc/motd | less

`nfsw COMMAND --help` explains a command.

Exit status:
  0 done; what was put on a server is on stable storage there
  1 some files failed     2 wrong usage           3 cannot reach or mount
  4 source missing        5 gave up, resumable    6 a copy differs
  7 local file error      130 interrupted
After 5, 7 or 130, run the same nfsw cp or nfsw sync again to resume.";

/// The subcommands.
#[derive(Debug, Subcommand)]
#[command(infer_subcommands = false)]
pub(crate) enum Command {
    /// Copy files or trees: from a server, to a server, or between servers.
    Cp(CpArgs),
    /// Make one directory's contents equal to another's: copy what has changed and, with --delete, delete the rest.
    Sync(SyncArgs),
    /// List directories.
    Ls(LsArgs),
    /// Show all attributes of files.
    Stat(StatArgs),
    /// Write files to standard output.
    Cat(CatArgs),
    /// Show the free space of servers' file systems.
    Df(DfArgs),
    /// Create directories.
    Mkdir(MkdirArgs),
    /// Remove files or trees.
    Rm(RmArgs),
    /// Move or rename within one export.
    Mv(MvArgs),
    /// Create hard or symbolic links.
    Ln(LnArgs),
    /// Change permissions.
    Chmod(ChmodArgs),
    /// List what a server exports.
    Exports(ExportsArgs),
    /// Measure round-trip time and loss to a server's NFS service.
    Ping(PingArgs),
    /// Report what a server can do and what its administrator should change.
    Doctor(DoctorArgs),
    /// Mount a directory of a server, read-only; what was read stays readable while the server does not respond.
    #[cfg(mount)]
    Mount(MountArgs),
    /// Unmount what `nfsw mount` has mounted.
    #[cfg(mount)]
    Umount(UmountArgs),
    /// List, pin, drop or verify what `nfsw mount` keeps on this machine's disk.
    #[cfg(mount)]
    Cache(cache::CacheArgs),
    /// Serve a local directory over NFSv3, on UDP and TCP.
    Serve(ServeArgs),
    /// Share a local directory with people nearby who have a code, encrypted, until a time.
    Share(ShareArgs),
    /// Find what people nearby share.
    Find(FindArgs),
    /// Emulate a bad link under any program or as a UDP proxy, or draw its fades.
    Link(LinkArgs),
    /// Compute response-time curves in virtual time.
    Curve(Box<CurveArgs>),
    /// Try nfsw without a server: copy a tree out and back, compare it, then copy a file over a bad link.
    Demo(DemoArgs),
    /// Check the configuration file, or print its path.
    Config(ConfigArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page of nfsw or of one of its commands.
    Man(ManArgs),
}

impl Command {
    /// Takes a limit of 0 for none, when all that may outweigh it has been read.
    pub(crate) fn drop_zero_limits(&mut self) {
        if let Self::Cp(CpArgs { bwlimit, .. }) | Self::Sync(SyncArgs { bwlimit, .. }) = self {
            *bwlimit = bwlimit.filter(|&rate| rate > 0);
        }
    }

    /// Returns the options of the connections of a command that talks to servers.
    pub(crate) fn connection_mut(&mut self) -> Option<&mut ConnectionArgs> {
        Some(match self {
            Self::Cp(arguments) => &mut arguments.connection,
            Self::Sync(arguments) => &mut arguments.connection,
            Self::Ls(arguments) => &mut arguments.connection,
            Self::Stat(arguments) => &mut arguments.connection,
            Self::Cat(arguments) => &mut arguments.connection,
            Self::Df(arguments) => &mut arguments.connection,
            Self::Mkdir(arguments) => &mut arguments.connection,
            Self::Rm(arguments) => &mut arguments.connection,
            Self::Mv(arguments) => &mut arguments.connection,
            Self::Ln(arguments) => &mut arguments.connection,
            Self::Chmod(arguments) => &mut arguments.connection,
            Self::Exports(arguments) => &mut arguments.connection,
            Self::Ping(arguments) => &mut arguments.connection,
            Self::Doctor(arguments) => &mut arguments.connection,
            #[cfg(mount)]
            Self::Mount(arguments) => &mut arguments.connection,
            #[cfg(mount)]
            Self::Umount(_) | Self::Cache(_) => return None,
            Self::Serve(_)
            | Self::Share(_)
            | Self::Find(_)
            | Self::Link(_)
            | Self::Curve(_)
            | Self::Demo(_)
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_) => return None,
        })
    }
}

/// `nfsw exports`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw exports nas")]
pub(crate) struct ExportsArgs {
    /// Name or address of the server; nfs://HOST:PORT for one without a port mapper.
    #[arg(value_name = "HOST", value_parser = parse_host(), add = Completes::Servers)]
    pub(crate) host: Remote,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw ping`
#[derive(Args, Debug)]
#[command(after_help = "\
Sends NULL calls, which every server answers, one after the other on each transport. Calls are not \
retransmitted: a call without a reply within --wait counts as lost. `nfsw doctor` reports more about a server.

Examples:
  nfsw ping nas
  nfsw ping --transport udp --count 100 --interval 50ms nas")]
pub(crate) struct PingArgs {
    /// Name or address of the server; nfs://HOST:PORT for one without a port mapper.
    #[arg(value_name = "HOST", value_parser = parse_host(), add = Completes::Servers)]
    pub(crate) host: Remote,
    /// Calls per transport.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time between calls.
    #[arg(short, long, value_name = "TIME", default_value = "500ms", value_parser = units::parse_seconds)]
    pub(crate) interval: Duration,
    /// How long to wait for each reply.
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s", value_parser = units::parse_seconds)]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `nfsw serve`
#[derive(Args, Debug)]
#[command(after_help = "\
NFS and MOUNT share one port, which clients give in the URL. If a port mapper also runs on this host, they must give it twice:
  nfsw ls nfs://127.0.0.1:20490/
  nfsw ls 'nfs://127.0.0.1:20490/?mountport=20490'

The listening address is the only access control: everyone who reaches the port can access DIR with the rights of the \
user who runs nfsw serve.

Examples:
  nfsw serve ~/photos --read-only
  nfsw serve . --listen 192.168.1.7:20490 --for 30m")]
pub(crate) struct ServeArgs {
    /// The directory to serve; nothing outside it can be reached.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Address and port to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:20490", value_parser = units::parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Refuse every change.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Stop after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) lifetime: Option<Duration>,
    /// Print one JSON object per line: the address, and how serving ended.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `nfsw demo`
#[derive(Args, Debug)]
#[command(after_help = "It uses only a temporary directory, and needs neither root nor a mount.")]
pub(crate) struct DemoArgs {
    /// Keep the generated files and say where they are.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// `nfsw config`
#[derive(Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
The file is $XDG_CONFIG_HOME/nfsw/config.toml or ~/.config/nfsw/config.toml:

  [defaults]
  timeout = \"5m\"             # an option of any command, by its long name
  bwlimit = \"2M\"

  [host.nas]                 # for nas:/PATH
  name = \"192.168.1.7\"
  nfs-port = 2050
  mount-port = 2051
  transport = \"tcp\"
  uid = 1000
  security = \"sys\"

Precedence: the URL of the target, the command line, NFSW_OPTS (long options, quoted as for a shell), \
[host.NAME], [defaults]."
)]
pub(crate) struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
    /// Print one JSON object per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The subcommands of `nfsw config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the file and NFSW_OPTS, and show their settings.
    Check,
    /// Print the path of the file.
    Path,
}

/// `nfsw completions`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  nfsw completions bash > ~/.local/share/bash-completion/completions/nfsw")]
pub(crate) struct CompletionsArgs {
    /// The shell to complete for.
    pub(crate) shell: Shell,
}

/// `nfsw man`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  nfsw man | man -l -\n  nfsw man link exec | man -l -")]
pub(crate) struct ManArgs {
    /// The command to describe, such as cp or link exec [default: nfsw itself]. json describes what --json prints, as Markdown.
    pub(crate) command: Vec<String>,
}

/// Reads `HOST`, `HOST:`, `HOST:/`, `[V6]` or an `nfs://` URL.
fn parse_host() -> impl clap::builder::TypedValueParser<Value = Remote> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    OsStringValueParser::new().try_map(|argument: OsString| Remote::parse_host(&argument))
}

/// Reads a path on a server.
fn parse_remote() -> impl clap::builder::TypedValueParser<Value = Remote> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    OsStringValueParser::new().try_map(|argument: OsString| crate::url::Target::parse_remote(&argument))
}

/// Reads a path on a server, or `HOST:` alone.
fn parse_listed() -> impl clap::builder::TypedValueParser<Value = Remote> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    OsStringValueParser::new().try_map(|argument: OsString| Remote::parse_listed(&argument))
}

#[cfg(all(test, mount))]
mod documents;
#[cfg(test)]
mod tests;
