//! `nfsw curve`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use nfs_files::copy::Shard;

use super::{
    LinkOptions,
    completion::{lists, names},
    connection::Policy,
};
use crate::units::{self, AutoOr};

/// `nfsw curve`
#[derive(Args, Debug)]
#[command(after_help = "\
The protocol code of client and server runs with an emulated link under one virtual clock: a copy of ten seconds takes \
milliseconds, and the same seed gives the same result on every machine. Lists are separated by commas; \
0,20,..,160 stands for 0,20,40 and so on up to 160. All combinations are run with the same seeds, so that all meet the same fades.

`over limit` says how much longer a copy takes than the channel of its seed allows (the limit); `over edge` says the same for the \
edge-aware limit, which also counts one lost block for each fade. Both limits include the headers of datagrams, so a copy over TCP can be a few per cent faster than the limit.

Examples:
  nfsw curve                                 the adaptive policy on the link of 1997
  nfsw curve --policy adaptive,hybrid,exponential,kernel --bad 0,40,80,160 --runs 20
  nfsw curve --room paper-1997 --policy exponential --block 1024,2048,4096,8192 --op both
  nfsw curve --room satellite-600 --size 32M --block auto --loss 3% --bad 10
  nfsw curve --transport udp,tcp,auto --bad 40,160 --block auto --window auto
  nfsw curve --figure 1997-5 --out figure    a published figure beside ours: figure/index.html
  nfsw curve --figure all --out report       all of them
  nfsw curve --figure adaptive-targets,cellular,recorded --traces DIR --runs 100
  nfsw curve --bad 40 --runs 1000 --shard 2/4 > 2.jsonl      the second of four runs
  nfsw curve --bad 40 --runs 1000 --merge 1.jsonl 2.jsonl 3.jsonl 4.jsonl
  nfsw curve --print-room modern > mine.toml; nfsw curve --room mine.toml")]
pub(crate) struct CurveArgs {
    /// Repeat published figures or tables instead (1997-5, 1995-table-1, rxhex-4, 2005-3 ..., or all), or show the
    /// targets of the adaptive policy (adaptive-targets, cellular, recorded) or the effect of each of its rules
    /// (ablation). An unknown name prints all names.
    #[arg(long, value_name = "NAMES", conflicts_with_all = ["room", "print_room", "op", "transport", "policy", "block", "max_block",
        "window", "size", "clients", "outage", "competitor", "warm", "patience", "preset", "config", "rate", "delay", "mtu", "duplex",
        "good", "bad", "loss", "distribution", "granularity", "phase", "start", "arq", "arq_ack", "arq_retry", "arq_rts",
        "retry_limit", "scheduler", "queue", "header_compression"],
        add = lists(testbed::figures::names))]
    pub(crate) figure: Option<String>,
    /// Directory of the recorded channels for --figure recorded and ablation; each *.toml in it describes a link.
    #[arg(long, value_name = "DIR", requires = "figure")]
    pub(crate) traces: Option<PathBuf>,
    /// Hosts and link to simulate: the name of a room (modern, paper-1997, slip-9600, bluetooth, wifi-54, lan-50ms,
    /// satellite-600, wired-10) or a file. Options of links change its link.
    #[arg(long, value_name = "NAME|FILE", default_value = "modern", add = names(testbed::Room::names))]
    pub(crate) room: String,
    /// Print the file of a room, as a basis for one of your own, and stop.
    #[arg(long, value_name = "NAME", add = names(testbed::Room::names))]
    pub(crate) print_room: Option<String>,
    /// Direction: from the server, to it, or one after the other.
    #[arg(long, value_enum, value_name = "OP", default_value = "both")]
    pub(crate) op: Op,
    /// Transport: UDP; one TCP connection, simulated like that of Linux (CUBIC, SACK, RACK-TLP); or auto, which
    /// chooses between them as cp does.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_value = "udp")]
    pub(crate) transport: Vec<CurveTransport>,
    /// Policies of the client over UDP.
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',', default_value = "adaptive")]
    pub(crate) policy: Vec<Policy>,
    /// Bytes in one READ or WRITE, or auto.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4096", value_parser = AutoOr::parse_block)]
    pub(crate) block: Vec<AutoOr>,
    /// Upper bound for --block auto.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_max_block)]
    pub(crate) max_block: Option<u32>,
    /// READs and WRITEs in flight, or auto [default: the room's].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = AutoOr::parse_calls)]
    pub(crate) window: Vec<AutoOr>,
    /// Size of the file.
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = units::parse_size)]
    pub(crate) size: u64,
    /// Number of clients that copy at once.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    pub(crate) clients: Vec<u16>,
    /// Number of seeds for each point, from --seed on.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) runs: u32,
    /// Run only the K-th of N parts of the seeds, and print what --merge takes.
    #[arg(long, value_name = "K/N", conflicts_with_all = ["figure", "print_room", "merge", "out", "json"])]
    pub(crate) shard: Option<Shard>,
    /// Run nothing: show the sweep whose parts --shard has printed to these files. The options of the sweep are given again.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["figure", "print_room"], value_hint = ValueHint::FilePath)]
    pub(crate) merge: Vec<PathBuf>,
    /// Make the server unreachable AT this time after the first call, for LENGTH (2s:10s).
    #[arg(long, value_name = "AT:LENGTH", value_parser = parse_outage)]
    pub(crate) outage: Vec<(Duration, Duration)>,
    /// Share the link with an endless competing flow; tcp is a TCP connection with CUBIC.
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) competitor: Option<Competitor>,
    /// Copy once before the measurement, so that the client knows the link.
    #[arg(long)]
    pub(crate) warm: bool,
    /// Give up a copy after this time, and count it as failed.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = units::parse_duration)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// Write plots (SVG and PNG), CSV, JSON and a page with all of them (index.html) to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object per row.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--competitor`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Competitor {
    /// A TCP connection with CUBIC, in the direction of the copy.
    Tcp,
}

/// `--transport`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CurveTransport {
    /// Datagrams.
    Udp,
    /// One TCP connection.
    Tcp,
    /// As `nfsw cp` chooses.
    Auto,
}

/// `--op`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// From the server.
    Read,
    /// To the server.
    Write,
    /// Both, one row each.
    Both,
}

fn parse_outage(text: &str) -> Result<(Duration, Duration), String> {
    let (at, length) = text.split_once(':').ok_or("it must be AT:LENGTH, such as 2s:10s")?;
    Ok((units::parse_duration(at)?, units::parse_duration(length)?))
}
