//! `nfsw link`, and the options that describe an emulated link wherever one is.

#[cfg(linux)]
use std::ffi::OsString;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::completion::names;
use crate::units;

/// `nfsw link`
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct LinkArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LinkCommand,
}

/// The subcommands of `nfsw link`.
#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// Run a UDP proxy that emulates a bad link, without root.
    Proxy(Box<LinkProxyArgs>),
    /// Run a program behind a bad link, whatever protocols it speaks.
    #[cfg(linux)]
    Exec(Box<LinkExecArgs>),
    /// Draw the fades of a seed.
    Show(Box<LinkShowArgs>),
    /// List the named links (--preset) and the sources of their numbers.
    Presets(LinkPresetsArgs),
}

/// `nfsw link proxy`
#[derive(Args, Debug)]
#[command(after_help = "\
Clients send to the proxy instead of the server. Their datagrams and the replies cross one emulated link. The pairs of --listen and --to match \
in order and share the link, for example for NFS and MOUNT. Each client has its own port towards the server. The same seed gives the same \
fades in every run, counted from the first datagram.

DNS over a train's link:
  nfsw link proxy --preset train --listen 127.0.0.1:5353 --to 9.9.9.9:53
  dig @127.0.0.1 -p 5353 example.org

A file over the link of 1997:
  nfsw link proxy --preset paper-1997 --bad 80 --seed 1 --listen 127.0.0.1:12049 --to nas:2049 \\
                  --listen 127.0.0.1:12048 --to nas:20048 --pcap link.pcapng
  nfsw cp --transport udp 'nfs://127.0.0.1/srv/photos/cat.jpg?nfsport=12049&mountport=12048' .")]
pub(crate) struct LinkProxyArgs {
    /// Address that clients send to; port 0 takes any free one. Give one for each --to.
    #[arg(long, value_name = "ADDR:PORT", value_parser = units::parse_listen, required = true)]
    pub(crate) listen: Vec<SocketAddr>,
    /// The server behind the link.
    #[arg(long, value_name = "HOST:PORT", required = true)]
    pub(crate) to: Vec<String>,
    /// Stop after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) lifetime: Option<Duration>,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Print the counters as one JSON object at the end.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not show the live view.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) link: LinkOptions,
}

/// `nfsw link exec`
#[cfg(linux)]
#[derive(Args, Debug)]
#[command(
    override_usage = "nfsw link exec [OPTIONS] -- COMMAND [ARGUMENT]...",
    after_help = "\
COMMAND runs in a network namespace of its own, whose only way out is the link. At the other end is this host, with the addresses in NFSW_HOST and, \
unless IPv6 is off or the MTU is below 1280, NFSW_HOST6. Services here that listen on all addresses can be reached there. Other destinations \
can be reached if this host routes packets (sysctl \
net.ipv4.ip_forward=1, and masquerading). TCP, UDP and ICMP all cross the same link, in packets up to its MTU. COMMAND also \
has its own process IDs and mounts.

When COMMAND ends, the packets that it has sent still cross the link, for at most 10 s. Its background processes are killed. Ctrl-C goes to \
COMMAND; SIGTERM and SIGHUP are passed on to it.

Links of different runs are independent, unless --cell joins them: then each COMMAND is a mobile station of one cell. The first run owns the \
link, and ends only when all others have ended. If nfsw link exec runs inside another one, its host is the network namespace of the outer COMMAND.

The exit status is that of COMMAND, 128+N if signal N ended it, 127 if there is no such command, 126 if it \
cannot be run, and 125 if there is no link.

Creating network namespaces needs root and /dev/net/tun, and in a container the capabilities NET_ADMIN and SYS_ADMIN. A user who may open /dev/net/tun \
needs no root in a network namespace of their own, in which the server must run too: see the last example.

Examples:
  sudo nfsw link exec --preset satellite-600 -- bash
  sudo nfsw link exec --bad 80 -- sh -c 'nfsw cp nfs://$NFSW_HOST/srv/photos/cat.jpg .'
  unshare -Urn sh -c 'nfsw serve . --listen 0.0.0.0:20490 & nfsw link exec --rate 1M -- bash'"
)]
pub(crate) struct LinkExecArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Write the counters as one JSON object when COMMAND has ended.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Share the medium with all runs of the same NAME, each as a mobile station; their link options must be equal.
    #[arg(long, value_name = "NAME")]
    pub(crate) cell: Option<String>,
    /// Congestion control of TCP at both ends of the link (cubic, bbr ...) [default: that of this host].
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Do not show the state of the link.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to run, and its arguments.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) link: LinkOptions,
}

/// What is written down about a link.
#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    /// Write one JSON object for each datagram and frame: when it was offered, sent or lost, and why it was lost.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Write a capture of both ends as pcapng, for Wireshark; comments give the reason of each drop.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write one line for each RPC message over UDP: XID, procedure, how often this XID was sent, what became of the message, state of the channel.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_log: Option<PathBuf>,
}

#[cfg(linux)]
impl CaptureArgs {
    /// Whether anything is to be written.
    pub(crate) fn is_some(&self) -> bool {
        self.records.is_some() || self.pcap.is_some() || self.rpc_log.is_some()
    }
}

/// `nfsw link show`
#[derive(Args, Debug)]
#[command(after_help = "\
In the plot # is good, . is bad and + is both within one column.

Examples:
  nfsw link show --preset paper-1997 --bad 80 --seed 1
  nfsw link show --good 57s --bad 3s --distribution exponential --for 10m")]
pub(crate) struct LinkShowArgs {
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// How much time to show.
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = units::parse_duration)]
    pub(crate) length: Duration,
    /// Print one JSON object, with every period.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `nfsw link presets`
#[derive(Args, Debug)]
pub(crate) struct LinkPresetsArgs {
    /// Print one JSON object for each.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A link: a preset or a file, and what differs from it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Link")]
pub(crate) struct LinkOptions {
    /// A named link; `nfsw link presets` lists them [default: 1 Mbit/s without fades; for curve, the link of --room].
    #[arg(long, value_name = "NAME", add = names(presets))]
    pub(crate) preset: Option<String>,
    /// A link described in a TOML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Rate of the medium in bit/s (9600, 1M ...).
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// One-way delay of the medium.
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<String>,
    /// Largest IP packet, in bytes.
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Compress headers of IP, UDP, RPC and NFS at both ends of the medium, for datagrams that fit one frame.
    #[arg(long)]
    pub(crate) header_compression: bool,
    /// Whether only one end can send at a time (half) or both (full).
    #[arg(long, value_name = "HALF|FULL", add = names(duplexes))]
    pub(crate) duplex: Option<String>,
    /// Mean length of good periods, in ms unless it has a unit.
    #[arg(long, value_name = "TIME")]
    pub(crate) good: Option<String>,
    /// Mean length of bad periods, in ms unless it has a unit; 0 is none.
    #[arg(long, value_name = "TIME")]
    pub(crate) bad: Option<String>,
    /// Share of the time that is bad (3%): sets the mean good period from the mean bad one.
    #[arg(long, value_name = "SHARE", conflicts_with = "good")]
    pub(crate) loss: Option<String>,
    /// Lengths of periods: uniform, exponential, deterministic, pareto:EXPONENT or log-normal:SIGMA.
    #[arg(long, value_name = "NAME", add = names(distributions))]
    pub(crate) distribution: Option<String>,
    /// Round periods to multiples of this.
    #[arg(long, value_name = "TIME")]
    pub(crate) granularity: Option<String>,
    /// State at the beginning: random or good.
    #[arg(long, value_name = "NAME", add = names(phases))]
    pub(crate) phase: Option<String>,
    /// When the channel's time begins: first-datagram or creation.
    #[arg(long, value_name = "NAME", add = names(starts))]
    pub(crate) start: Option<String>,
    /// Link-level retransmission: none, ideal, stop-and-wait, rts-cts or selective-repeat.
    #[arg(long, value_name = "NAME", add = names(arqs))]
    pub(crate) arq: Option<String>,
    /// Air time of an acknowledgement, or of a block acknowledgement with selective-repeat.
    #[arg(long, value_name = "TIME")]
    pub(crate) arq_ack: Option<String>,
    /// Pause after a failed attempt.
    #[arg(long, value_name = "TIME")]
    pub(crate) arq_retry: Option<String>,
    /// Send an RTS before stop-and-wait retransmits a frame, or not.
    #[arg(long, value_name = "ON|OFF")]
    pub(crate) arq_rts: Option<String>,
    /// Failed attempts before a frame is given up [default: no limit].
    #[arg(long, value_name = "N")]
    pub(crate) retry_limit: Option<u32>,
    /// Which frame goes next: fifo, round-robin-frame, round-robin-datagram or channel-state.
    #[arg(long, value_name = "NAME", add = names(schedulers))]
    pub(crate) scheduler: Option<String>,
    /// Length of the queue before the medium, in packets [default: one bandwidth-delay product, at least 50; presets and rooms have their own].
    #[arg(long, value_name = "PACKETS")]
    pub(crate) queue: Option<u32>,
    /// Random seed: the same seed gives the same fades.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The names of links.
fn presets() -> impl Iterator<Item = &'static str> {
    linkemu::Preset::ALL.iter().map(|preset| preset.name)
}

fn duplexes() -> [&'static str; 2] {
    [linkemu::Duplex::Half, linkemu::Duplex::Full].map(linkemu::Duplex::name)
}

fn phases() -> [&'static str; 2] {
    [linkemu::Phase::Random, linkemu::Phase::Good].map(linkemu::Phase::name)
}

fn starts() -> [&'static str; 2] {
    [linkemu::ChannelStart::FirstDatagram, linkemu::ChannelStart::Creation].map(linkemu::ChannelStart::name)
}

fn arqs() -> [&'static str; 5] {
    use linkemu::ArqKind;
    [ArqKind::None, ArqKind::Ideal, ArqKind::StopAndWait, ArqKind::RtsCts, ArqKind::SelectiveRepeat]
        .map(ArqKind::name)
}

fn schedulers() -> [&'static str; 4] {
    use linkemu::Scheduler;
    [Scheduler::Fifo, Scheduler::RoundRobinFrame, Scheduler::RoundRobinDatagram, Scheduler::ChannelState]
        .map(Scheduler::name)
}

fn distributions() -> [&'static str; 5] {
    ["uniform", "exponential", "deterministic", "pareto:", "log-normal:"]
}
