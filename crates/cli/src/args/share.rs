//! `nfsw share`

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use super::completion::interfaces;
use crate::units;

/// `nfsw share`
#[derive(Args, Debug)]
#[command(after_help = "\
Prints a code for each person, and what the person types: with the address, which always works, and without it, for those on the same network, \
to whom the share is announced (nfsw find lists what they see). A code is used once: the first who types it may read, encrypted, until the time is \
over; the same person's later commands need the same code. Three wrong guesses replace a code. Files are read-only, and nothing outside DIR can \
be reached. Ctrl-C ends the share for all. If nfsw share is killed, the same command resumes it, until its time.

--list, --stop, --allow and --extend show and change a share that runs, in another terminal. Where several run, DIR says which, or the name of one.

Examples:
  nfsw share ~/photos/trip
  nfsw share ~/photos --for 2h --to sophia=trip --to boss=documents
  nfsw share --list
  nfsw share --allow carol=trip --for 1h
  nfsw share --stop boss")]
pub(crate) struct ShareArgs {
    /// The directory to share.
    #[arg(value_name = "DIR", required_unless_present_any = CHANGES)]
    pub(crate) directory: Option<PathBuf>,
    /// End after this time; with --allow: of that person.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = units::parse_duration)]
    pub(crate) lifetime: Duration,
    /// Share with a person, who gets a code, and only SUBDIR of DIR if it is given; repeat it for several.
    #[arg(long, value_name = "NAME[=SUBDIR]", conflicts_with_all = CHANGES)]
    pub(crate) to: Vec<String>,
    /// What the share is called [default: the name of DIR for those who have a code, user and host for those who look for shares].
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Announce the share to people nearby on this network interface, and not on all that lead to some; repeat it for several.
    #[arg(long, value_name = "NAME", conflicts_with_all = CHANGES, add = interfaces())]
    pub(crate) interface: Vec<String>,
    /// Do not announce the share: only its address leads to it.
    #[arg(long, conflicts_with_all = CHANGES, conflicts_with = "interface")]
    pub(crate) no_announce: bool,
    /// Address and port to listen on; port 0 takes any free one [default: 0.0.0.0:7049, or where it was before it was killed].
    #[arg(long, value_name = "ADDR:PORT", value_parser = units::parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// End when nobody has read anything for this long.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, conflicts_with_all = CHANGES)]
    pub(crate) idle: Option<Duration>,
    /// List who may read what is shared now, until when, and who has read how much.
    #[arg(long, conflicts_with_all = ["stop", "allow", "extend"])]
    pub(crate) list: bool,
    /// Let a person, by name or by number in the list, read no more.
    #[arg(long, value_name = "NAME|N", conflicts_with_all = ["allow", "extend"])]
    pub(crate) stop: Option<String>,
    /// Let a person read for the time of --for from now on: a new one gets a code. NAME alone keeps the SUBDIR of one who was on the list, NAME= is
    /// all of DIR.
    #[arg(long, value_name = "NAME[=SUBDIR]", conflicts_with = "extend")]
    pub(crate) allow: Option<String>,
    /// Let all who may read do so for this time longer.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) extend: Option<Duration>,
    /// Also show the files to browsers, over HTTP, without encryption; it listens on ADDR:PORT [default: 0.0.0.0:7080].
    #[arg(
        long,
        value_name = "ADDR:PORT",
        conflicts_with_all = CHANGES,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.0.0.0:7080",
        value_parser = units::parse_listen
    )]
    pub(crate) web: Option<SocketAddr>,
    /// Also serve all of DIR to any NFS client that reaches ADDR:PORT, read-only, without a code and without encryption [default: 0.0.0.0:20490].
    #[arg(
        long,
        value_name = "ADDR:PORT",
        conflicts_with_all = CHANGES,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.0.0.0:20490",
        value_parser = units::parse_listen
    )]
    pub(crate) plain: Option<SocketAddr>,
}

/// `nfsw find`
#[derive(Args, Debug)]
#[command(after_help = "\
Lists shares that are announced on this network (multicast DNS), and those that were used here before and still answer where they were. A line \
has what the sharer calls it, four digits of its key, its addresses, when it began, the numbers of codes that nobody has used yet, and how it was \
found. Whoever has one of these codes types it without the address: nfsw ls 7-velvet-cactus:/

Anybody on the network can announce anything: that a share is listed says nothing about whose it is.

Examples:
  nfsw find
  nfsw find --for 10s --interface wlan0")]
pub(crate) struct FindArgs {
    /// How long to look.
    #[arg(long = "for", value_name = "TIME", default_value = "2500ms", value_parser = units::parse_duration)]
    pub(crate) time: Duration,
    /// Look on this network interface, and not on all that lead to people nearby; repeat it for several.
    #[arg(long, value_name = "NAME", add = interfaces())]
    pub(crate) interface: Vec<String>,
    /// Print one JSON object per line; the last one sums up the run (nfsw man json).
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long NFS clients without a code are told at the end that their files are gone. Those that ask later get no answer.
const FAREWELL: Duration = Duration::from_secs(3);

/// Options that are for a share that runs.
const CHANGES: [&str; 4] = ["list", "stop", "allow", "extend"];

impl ShareArgs {
    /// Whether a share that runs is asked something, and none begins.
    pub(crate) const fn asks(&self) -> bool {
        self.list || self.stop.is_some() || self.allow.is_some() || self.extend.is_some()
    }

    /// Returns how long clients are told at the end that their files are gone.
    pub(crate) fn farewell(&self) -> Duration {
        if self.plain.is_some() { FAREWELL } else { Duration::ZERO }
    }

    /// Returns what is to be shared: the parser has made sure of it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.as_deref().expect("the parser requires it")
    }
}
