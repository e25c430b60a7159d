//! Options of every command that talks to a server, and what the configuration says of servers (docs/config.md).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};

use crate::{
    color::Color,
    units::{self, AutoOr},
};

/// How to talk to servers.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Transport for NFS, MOUNT and the port mapper; auto tries both, and may change in the middle of a file
    /// [default: auto].
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) transport: Option<Transport>,
    /// How lost UDP calls are detected [default: adaptive; hybrid with --timeo, --linear-steps, --linear-step or --max-timeo].
    #[arg(hide_short_help = true, hide_long_help = true, long, value_enum, value_name = "NAME")]
    pub(crate) policy: Option<Policy>,
    /// Bytes in one READ or WRITE (1024, 8K ...); auto adapts to the link [default: auto].
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "BYTES", value_parser = AutoOr::parse_block)]
    pub(crate) block_size: Option<AutoOr>,
    /// Upper bound for --block-size auto.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "BYTES", value_parser = units::parse_max_block)]
    pub(crate) max_block: Option<u32>,
    /// READ and WRITE calls in flight at once; auto adapts to the link [default: auto].
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "N", value_parser = AutoOr::parse_calls)]
    pub(crate) window: Option<AutoOr>,
    /// How long to wait for a reply before the first retransmission (UDP).
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Retransmission over UDP")]
    pub(crate) timeo: Option<Duration>,
    /// How many retransmissions lengthen the timeout linearly, before it doubles (--policy hybrid).
    #[arg(
        hide_short_help = true,
        hide_long_help = true,
        long,
        value_name = "N",
        help_heading = "Retransmission over UDP"
    )]
    pub(crate) linear_steps: Option<u32>,
    /// How much longer each linear step waits (--policy hybrid).
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Retransmission over UDP")]
    pub(crate) linear_step: Option<Duration>,
    /// Longest wait before a retransmission.
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "TIME", value_parser = units::parse_duration, help_heading = "Retransmission over UDP")]
    pub(crate) max_timeo: Option<Duration>,
    /// Give up when the run makes no progress for this long, in seconds or with a unit (5m) [default: 0, never].
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Give up after this time, in seconds or with a unit, whatever the progress [default: 0, never].
    #[arg(
        hide_short_help = true,
        hide_long_help = true,
        long,
        value_name = "TIME",
        value_parser = units::parse_seconds,
        allow_negative_numbers = true
    )]
    pub(crate) deadline: Option<Duration>,
    /// Maximum number of entries read from one directory, in case a listing never ends [default: 10000000].
    #[arg(hide_short_help = true, hide_long_help = true, long, value_name = "N")]
    pub(crate) max_entries: Option<u64>,
    /// User id to act as on the server [default: yours].
    #[arg(long, value_name = "N")]
    pub(crate) uid: Option<u32>,
    /// Group id to act as on the server [default: yours].
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,
    /// Explain the options for tuning: block sizes, calls in flight, retransmission, limits.
    #[arg(long)]
    pub(crate) help_connection: bool,
    /// What the configuration file says of single servers.
    #[arg(skip)]
    pub(crate) hosts: Option<Arc<Hosts>>,
}

impl ConnectionArgs {
    /// Entries of one directory, at most, unless it is said.
    const MAX_ENTRIES: u64 = 10_000_000;

    /// Returns these options, and where one is not given, that of others.
    pub(crate) fn or(&self, others: &Self) -> Self {
        Self {
            transport: self.transport.or(others.transport),
            policy: self.policy.or(others.policy),
            block_size: self.block_size.or(others.block_size),
            max_block: self.max_block.or(others.max_block),
            window: self.window.or(others.window),
            timeo: self.timeo.or(others.timeo),
            linear_steps: self.linear_steps.or(others.linear_steps),
            linear_step: self.linear_step.or(others.linear_step),
            max_timeo: self.max_timeo.or(others.max_timeo),
            timeout: self.timeout.or(others.timeout),
            deadline: self.deadline.or(others.deadline),
            max_entries: self.max_entries.or(others.max_entries),
            uid: self.uid.or(others.uid),
            gid: self.gid.or(others.gid),
            help_connection: self.help_connection,
            hosts: self.hosts.clone(),
        }
    }

    /// Returns these options, and where one is not given, what the configuration says of all servers. A time of 0 is no
    /// limit, as for rsync; until here it outweighs what the configuration says.
    pub(crate) fn or_default(&self) -> Self {
        let all = self.hosts.as_ref().map_or_else(|| self.clone(), |hosts| self.or(&hosts.defaults));
        let limit = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        Self { timeout: limit(all.timeout), deadline: limit(all.deadline), ..all }
    }

    /// Returns the transport.
    pub(crate) fn transport(&self) -> Transport {
        self.transport.unwrap_or(Transport::Auto)
    }

    /// Returns the exact size of blocks, if one is asked for.
    pub(crate) fn exact_block(&self) -> Option<u32> {
        self.block_size.and_then(AutoOr::number)
    }

    /// Returns how many entries of one directory are read, at most.
    pub(crate) fn max_entries(&self) -> u64 {
        self.max_entries.unwrap_or(Self::MAX_ENTRIES)
    }

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
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON object per line; the last one sums up the run (nfsw man json).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print calls, retransmissions and round-trip times at the end, on standard error.
    #[arg(long)]
    pub(crate) stats: bool,
    /// Whether to use colours: on a terminal, unless NO_COLOR is set (auto), always, or never.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) color: Color,
}

/// `--transport`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// UDP or TCP, whichever is better.
    Auto,
    /// UDP only.
    Udp,
    /// TCP only.
    Tcp,
}

/// `--policy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Detects losses by replies to later calls and by probes; adapts to the link.
    Adaptive,
    /// A timeout that grows by a few linear steps, then doubles.
    Hybrid,
    /// A timeout that doubles from the first retransmission.
    Exponential,
    /// The timeouts of the Linux kernel's NFS client over UDP.
    Kernel,
}

/// What the configuration says of connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Options for every server.
    pub(crate) defaults: ConnectionArgs,
    /// How many of them are given.
    pub(crate) given: usize,
    /// Servers by the name that targets have.
    pub(crate) hosts: BTreeMap<String, Host>,
}

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// Name or address to connect to, if that is another one.
    pub(crate) name: Option<String>,
    /// Port of the NFS service.
    pub(crate) nfs_port: Option<u16>,
    /// Port of the MOUNT service.
    pub(crate) mount_port: Option<u16>,
    /// How calls say whom they come from.
    pub(crate) security: Security,
    /// Options.
    pub(crate) connection: ConnectionArgs,
}

/// How calls say whom they come from (RFC 5531 §8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Security {
    /// AUTH_SYS.
    #[default]
    Sys,
    /// AUTH_NONE.
    None,
}
