//! `nfsw share`

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use crate::units;

/// `nfsw share`
#[derive(Args, Debug)]
#[command(after_help = "\
Prints a code for each person, and what the person types. A code is used once: the first who types it may read, encrypted, until the time is \
over; the same person's later commands need the same code. Three wrong guesses replace a code. Files are read-only, and nothing outside DIR can \
be reached. Ctrl-C ends the share for all. If nfsw share is killed, the same command resumes it, until its time.

Examples:
  nfsw share ~/photos/trip
  nfsw share ~/photos --for 2h --to sophia=trip --to boss=documents")]
pub(crate) struct ShareArgs {
    /// The directory to share.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = units::parse_duration)]
    pub(crate) lifetime: Duration,
    /// Share with a person, who gets a code, and only SUBDIR of DIR if it is given; repeat it for several.
    #[arg(long, value_name = "NAME[=SUBDIR]")]
    pub(crate) to: Vec<String>,
    /// What those who have a code see as the name of the share [default: the name of DIR].
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Address and port to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7049", value_parser = units::parse_listen)]
    pub(crate) listen: SocketAddr,
    /// Also show the files to browsers, over HTTP, without encryption; it listens on ADDR:PORT [default: 0.0.0.0:7080].
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.0.0.0:7080",
        value_parser = units::parse_listen
    )]
    pub(crate) web: Option<SocketAddr>,
}
