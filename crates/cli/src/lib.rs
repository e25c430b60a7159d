//! The `nfsw` command. It is a library only so that its parsers can be fuzzed; nothing here is for other programs.

#![doc(hidden)]

mod advice;
mod args;
mod clock;
mod color;
mod command;
mod complete;
mod config;
mod exit;
pub mod fuzzing;
mod habits;
mod hang;
mod link_options;
mod links;
mod log;
mod mode;
mod outcome;
mod process;
mod progress;
mod report;
mod schema;
#[cfg(test)]
mod served;
mod shares;
mod signals;
mod sockets;
mod summary;
#[cfg(linux)]
mod supervise;
mod text;
mod units;
mod verdict;

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use clap::CommandFactory;
use exit::Exit;
use nfs_files::{
    chain, copy, descriptors, error, event, find, local, name, pattern, servers,
    servers::{path_cache, remembered},
    url,
};
use outcome::Outcome;
use summary::Summary;

/// Runs the command line of this process and returns its exit status.
pub fn main() -> ExitCode {
    // A thread that is gone would be waited for.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        // A stranger's packet may end the search for shares, and not a share.
        if std::thread::current().name() != Some(nfs_share::DISCOVERY_THREAD) {
            std::process::exit(101);
        }
    }));
    if let Some(ended) = complete::answer() {
        return ended;
    }
    let filter = tracing_subscriber::EnvFilter::from_env("NFSW_LOG");
    let is_terminal = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(io::stderr).init();
    #[cfg(linux)]
    if command::link::exec::is_inside() {
        return command::link::exec::inside();
    }
    // Whoever asks for help need not say what to work on.
    let mut options = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if options.any(|argument| argument == args::HELP_CONNECTION) {
        let printed = args::ConnectionArgs::explained().print_help();
        return helped(printed, &[]).into();
    }
    let line = habits::with_names_kept(std::env::args_os().collect());
    let color = color::Color::of_line(line.iter().filter_map(|word| word.to_str()));
    let mut program = args::Cli::command().color(color.into());
    let cli = match config::read(&mut program, &line) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &line, &mut program).into(),
    };
    match config::apply(&mut program, line, cli) {
        #[cfg(linux)]
        Ok(cli) => supervise::run(&cli.command).unwrap_or_else(|| command::execute(cli.command)),
        #[cfg(not(linux))]
        Ok(cli) => command::execute(cli.command),
        Err(error) => {
            complain(&error, &std::env::args_os().collect::<Vec<_>>());
            say_usage(&error);
            Exit::Usage.into()
        }
    }
}

/// Says what is wrong before a command runs.
fn complain(text: &str, line: &[OsString]) {
    let color = color::Color::of_line(line.iter().filter_map(|word| word.to_str()));
    let name = color::Style::Error.paint("nfsw:", color.shows(io::stderr().is_terminal()));
    eprintln!("{name} {text}");
}

/// Prints help, the version, or what is wrong with the command line.
fn usage(error: &clap::Error, line: &[OsString], program: &mut clap::Command) -> Exit {
    if habits::asks_for_help(error, line) {
        let name = line.get(1).and_then(|name| name.to_str()).unwrap_or_default();
        let printed = program.find_subcommand_mut(name).map_or(Ok(()), clap::Command::print_help);
        return helped(printed, line);
    }
    if !error.use_stderr() {
        return helped(error.print(), line);
    }
    let sentence = habits::sentence(error, line);
    match &sentence {
        Some(sentence) => complain(sentence, line),
        // There is nowhere else to say it.
        None => drop(error.print()),
    }
    say_usage(&sentence.unwrap_or_else(|| config::first_line(error)));
    Exit::Usage
}

/// Says whether help could be printed; that nobody reads on is no failure.
fn helped(printed: io::Result<()>, line: &[OsString]) -> Exit {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let error = report::stdout_error(error);
            complain(&error.to_string(), line);
            Exit::of(error.as_ref())
        }
        _ => Exit::Done,
    }
}

/// Says to programs that the command line cannot be obeyed, and why.
fn say_usage(why: &str) {
    if std::env::args_os().any(|argument| argument == "--json") {
        let error = report::error_event(Exit::Usage, Exit::Usage.outcome(), why);
        let summary = Summary::default().to_json(Duration::ZERO, &Outcome::of_failure(Exit::Usage));
        let _ = writeln!(io::stdout(), "{error}\n{summary}");
    }
}
