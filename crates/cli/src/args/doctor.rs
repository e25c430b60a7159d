//! `nfsw doctor`

use std::time::Duration;

use clap::Args;

use super::{Completes, ConnectionArgs, OutputArgs, parse_host};
use crate::{units, url::Remote};

/// `nfsw doctor`
#[derive(Args, Debug)]
#[command(after_help = "\
Prints a page that can be sent to the server's administrator: which transports answer, on which ports, what is exported, \
the limits and abilities of the file system, what is unusual, and what to change on the server. Nothing on the server is changed, \
unless --write-test is given. If TARGET is a file, READs of it are also tried over UDP.

Examples:
  nfsw doctor nas
  nfsw doctor nas:/srv/photos/cat.jpg
  nfsw doctor --write-test nas:/srv/scratch
  nfsw doctor 'nfs://nas:20490/srv?mountport=20490'  without a port mapper")]
pub(crate) struct DoctorArgs {
    /// A server, or a file or directory on it: HOST, HOST:/PATH or nfs://HOST:PORT/PATH.
    #[arg(value_name = "TARGET", value_parser = parse_host(), add = Completes::OnServers)]
    pub(crate) target: Remote,
    /// Also create, change and remove files named .nfsw-doctor-... in the given directory. This shows whether the
    /// server recognises repeated calls, answers large WRITEs and creates links and fifos, and how the clocks differ.
    #[arg(long)]
    pub(crate) write_test: bool,
    /// How long to wait for each reply.
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = units::parse_duration)]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
