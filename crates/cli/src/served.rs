//! Command lines of tests, and the server that they name.

use clap::Parser;

pub(crate) use private_servers::{Call, Served};

use crate::args::{Cli, Command, CpArgs, SyncArgs};

/// Reads the arguments of `nfsw cp`.
pub(crate) fn cp(arguments: &[&str]) -> CpArgs {
    match Cli::parse_from(["nfsw", "cp"].iter().chain(arguments)).command {
        Command::Cp(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

/// Reads the arguments of `nfsw sync`.
pub(crate) fn sync(arguments: &[&str]) -> SyncArgs {
    match Cli::parse_from(["nfsw", "sync"].iter().chain(arguments)).command {
        Command::Sync(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}
