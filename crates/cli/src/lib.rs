//! The `nfsw` command. It is a library only so that its parsers can be fuzzed; nothing here is for other programs.

#![doc(hidden)]

mod args;
mod clock;
mod command;
mod complete;
mod config;
mod connections;
mod copy;
mod error;
mod exit;
pub mod fuzzing;
#[cfg(all(target_os = "linux", feature = "mount"))]
mod held;
mod journal;
mod link_options;
mod links;
mod local;
mod mode;
#[cfg(all(target_os = "linux", feature = "mount"))]
mod mount;
mod name;
mod outcome;
mod paths;
mod process;
mod progress;
mod remote;
mod report;
mod schema;
#[cfg(test)]
mod served;
mod signals;
mod summary;
mod target;
mod text;
mod units;

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::Parser;
use exit::Exit;
use outcome::Outcome;
use summary::Summary;

/// Runs the command line of this process and returns its exit status.
pub fn main() -> ExitCode {
    // A thread that is gone would be waited for.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        std::process::exit(101);
    }));
    if let Some(ended) = complete::answer() {
        return ended;
    }
    let filter = tracing_subscriber::EnvFilter::from_env("NFSW_LOG");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    #[cfg(target_os = "linux")]
    if command::link::exec::is_inside() {
        return command::link::exec::inside();
    }
    // Whoever asks for help need not say what to work on.
    let mut options = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if options.any(|argument| argument == args::HELP_CONNECTION) {
        let printed = args::ConnectionArgs::explained().print_help();
        return if printed.is_ok() { Exit::Done } else { Exit::LocalIo }.into();
    }
    let line: Vec<OsString> = std::env::args_os().collect();
    let cli = match args::Cli::try_parse_from(&line) {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    match config::apply(line, cli) {
        Ok(cli) => command::execute(cli.command),
        Err(error) => {
            eprintln!("nfsw: {error}");
            say_usage();
            Exit::Usage.into()
        }
    }
}

/// Prints help, the version, or what is wrong with the command line.
fn usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if !error.use_stderr() {
        return if printed.is_ok() { Exit::Done } else { Exit::LocalIo };
    }
    say_usage();
    Exit::Usage
}

/// Says to programs that the command line cannot be obeyed.
fn say_usage() {
    if std::env::args_os().any(|argument| argument == "--json") {
        let _ = writeln!(
            std::io::stdout(),
            "{}",
            Summary::default().to_json(std::time::Duration::ZERO, &Outcome::of_failure(Exit::Usage))
        );
    }
}
