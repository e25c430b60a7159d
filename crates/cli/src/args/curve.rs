//! `nfsw curve`

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{LinkOptions, Policy};
use crate::units::{self, AutoOr};

/// `nfsw curve`
#[derive(Args, Debug)]
#[command(after_help = "\
The client, the server and the link are the ones of this program, under a virtual clock: a copy of ten seconds takes
milliseconds, and the same seed gives the same numbers everywhere. Contenders meet the same fades.
Options with an s in their value name take lists: 0,40,80 or 0,20,..,160. One row is printed for each combination.

Limit is the earliest end that the channel allows for this block size, edge the same if every bad period also costs
one block; over and edge say by how many per cent the runs were slower.

Examples:
  nfsw curve --bad 0,20,..,160 --policy exponential,hybrid,adaptive --out curves
  nfsw curve --room wifi-54 --bad 5 --loss 3% --block auto --op both
  nfsw curve --clients 8 --arq selective-repeat --scheduler round-robin-frame --bad 160
  nfsw curve --figure 1997-5 --out figure            a published figure, run again
  nfsw curve --figure all --out report               all of them: report/index.html")]
pub(crate) struct CurveArgs {
    /// A published figure or table instead of an experiment of your own; a wrong name lists the right ones.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["room", "op", "block", "window", "policy", "clients", "size",
        "outage", "warm", "LinkOptions"])]
    pub(crate) figure: Option<String>,
    /// Link and hosts: a name, or a TOML file. A wrong name lists the right ones.
    #[arg(long, value_name = "NAME|FILE", default_value = "modern")]
    pub(crate) room: String,
    /// Which way the file goes.
    #[arg(long, value_enum, value_name = "WAY", default_value = "read")]
    pub(crate) op: Way,
    /// Bytes in one READ or WRITE, or auto.
    #[arg(long, value_name = "SIZES", default_value = "4096", value_delimiter = ',', value_parser = AutoOr::parse_block)]
    pub(crate) block: Vec<AutoOr>,
    /// Calls in flight, or auto [default: the room's].
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = AutoOr::parse_calls)]
    pub(crate) window: Vec<AutoOr>,
    /// How lost calls are found.
    #[arg(long, value_enum, value_name = "NAMES", default_value = "adaptive", value_delimiter = ',')]
    pub(crate) policy: Vec<Policy>,
    /// Mobiles that copy at the same time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) clients: u16,
    /// Size of each file, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = units::parse_size)]
    pub(crate) size: u64,
    /// Runs of each point, with the seeds --seed and up.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) runs: u32,
    /// The server cannot be reached from AT on for LENGTH (5s:2s); may be repeated.
    #[arg(long, value_name = "AT:LENGTH", value_parser = parse_outage)]
    pub(crate) outage: Vec<(Duration, Duration)>,
    /// Copy a file before the one that is timed, so that the client knows the link.
    #[arg(long)]
    pub(crate) warm: bool,
    /// Write plots (SVG, PNG), CSV, JSON and a page to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object for each row.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) link: LinkOptions,
}

/// `--op`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// From the server.
    Read,
    /// To the server, to stable storage.
    Write,
    /// One row each.
    Both,
}

fn parse_outage(text: &str) -> Result<(Duration, Duration), String> {
    let (at, length) = text.split_once(':').ok_or("expected AT:LENGTH, such as 5s:2s")?;
    let (at, length) = (units::parse_duration(at)?, units::parse_duration(length)?);
    if length.is_zero() { Err("an outage takes more than 0 s".to_owned()) } else { Ok((at, length)) }
}
