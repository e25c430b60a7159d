//! The `nfsw` command.

mod args;
mod command;
mod context;
mod copy;
mod error;
mod exit;
mod journal;
mod link_options;
mod links;
mod local;
mod mode;
mod name;
mod paths;
mod progress;
mod remote;
mod report;
mod session;
mod summary;
mod target;
mod text;
mod units;

use std::{io::Write, process::ExitCode};

use clap::Parser;
use exit::Exit;
use summary::Summary;

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::from_env("NFSW_LOG");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    #[cfg(target_os = "linux")]
    if command::link::exec::is_inside() {
        return command::link::exec::inside();
    }
    match args::Cli::try_parse() {
        Ok(cli) => command::execute(cli.command),
        Err(error) => usage(&error).into(),
    }
}

/// Prints help, the version, or what is wrong with the command line.
fn usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if !error.use_stderr() {
        return if printed.is_ok() { Exit::Done } else { Exit::LocalIo };
    }
    if std::env::args_os().any(|argument| argument == "--json") {
        let _ = writeln!(
            std::io::stdout(),
            "{}",
            Summary::default().to_json(std::time::Duration::ZERO, Exit::Usage)
        );
    }
    Exit::Usage
}
