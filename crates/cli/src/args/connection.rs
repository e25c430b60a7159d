//! Options of every command that talks to a server.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::units::{self, AutoOr};

/// How to talk to servers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Transport for NFS, MOUNT and the port mapper; auto takes what does best, and may change in the middle of a file.
    #[arg(long, value_enum, value_name = "NAME", default_value = "auto")]
    pub(crate) transport: Transport,
    /// How lost UDP calls are found [default: adaptive; hybrid with --timeo, --linear-steps, --linear-step or --max-timeo].
    #[arg(hide_short_help = true, hide_long_help = true, long, value_enum, value_name = "NAME")]
    pub(crate) policy: Option<Policy>,
    /// Bytes in one READ or WRITE (1024, 8K ...); auto finds what the link carries best.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "BYTES", default_value = "auto", value_parser = AutoOr::parse_block)]
    pub(crate) block_size: AutoOr,
    /// Upper bound for --block-size auto.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "BYTES", value_parser = units::parse_max_block)]
    pub(crate) max_block: Option<u32>,
    /// READ and WRITE calls in flight at once; auto takes what the link needs.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "N", default_value = "auto", value_parser = AutoOr::parse_calls)]
    pub(crate) window: AutoOr,
    /// How long to wait for an answer before the first resend (UDP).
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Resending over UDP")]
    pub(crate) timeo: Option<Duration>,
    /// How many resends lengthen the timeout linearly, before it doubles (--policy hybrid).
    #[arg(
        hide_short_help = true,
        hide_long_help = true,
        long,
        value_name = "N",
        help_heading = "Resending over UDP"
    )]
    pub(crate) linear_steps: Option<u32>,
    /// How much longer each linear step waits (--policy hybrid).
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Resending over UDP")]
    pub(crate) linear_step: Option<Duration>,
    /// Longest wait before a resend.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Resending over UDP")]
    pub(crate) max_timeo: Option<Duration>,
    /// Give up after no progress of the whole run for this long; without it, wait for ever.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Give up after this long, whatever the progress.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) deadline: Option<Duration>,
    /// Entries of one directory, at most: a server can list without end.
    #[arg(
        hide_short_help = true,
        hide_long_help = true,
        long,
        value_name = "N",
        default_value_t = 10_000_000
    )]
    pub(crate) max_entries: u64,
    /// User id to act as on the server [default: yours].
    #[arg(long, value_name = "N")]
    pub(crate) uid: Option<u32>,
    /// Group id to act as on the server [default: yours].
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,
    /// Explain the options for tuning: block sizes, calls in flight, retransmission, limits.
    #[arg(long)]
    pub(crate) help_connection: bool,
}

impl ConnectionArgs {
    /// Returns a command whose help explains all of them.
    pub(crate) fn explained() -> clap::Command {
        let command = Self::augment_args(clap::Command::new("nfsw COMMAND"));
        let command = command.disable_help_flag(true).mut_args(|option| {
            let is_this = option.get_id() == "help_connection";
            option.hide_short_help(false).hide_long_help(false).hide(is_this)
        });
        command
            .about("Options of all commands that talk to servers")
            .override_usage("nfsw COMMAND [OPTIONS] ...")
    }
}

/// The option that prints the help of the others here.
pub(crate) const HELP_CONNECTION: &str = "--help-connection";

/// What to print.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON object a line; the last one sums up the run. Names are the real ones; of one that is not UTF-8 all
    /// bytes follow in hexadecimal digits (path and path_bytes, source and source_bytes ...).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print calls, resends and round-trip times at the end, on standard error.
    #[arg(long)]
    pub(crate) stats: bool,
}

/// `--transport`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// What does best.
    Auto,
    /// UDP only.
    Udp,
    /// TCP only.
    Tcp,
}

/// `--policy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// From later replies and from silences; learns the link as it goes.
    Adaptive,
    /// By a timeout that takes a few linear steps, then doubles.
    Hybrid,
    /// By a timeout that doubles from the first resend.
    Exponential,
    /// By timeouts as the Linux kernel's UDP client has them.
    Kernel,
}
