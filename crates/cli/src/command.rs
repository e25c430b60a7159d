//! The subcommands, one file each.

mod accept;
mod cache;
mod cat;
mod chmod;
mod config;
mod cp;
mod curve;
mod demo;
mod df;
mod doctor;
mod exports;
mod filters;
mod find;
pub(crate) mod link;
mod ln;
mod ls;
mod mkdir;
#[cfg(mount)]
mod mount;
mod mv;
mod pages;
mod ping;
mod rm;
mod serve;
mod share;
mod stat;
mod sync;

use std::process::ExitCode;

use crate::{args::Command, process::Process};

/// Runs a subcommand to its end.
pub(crate) fn execute(command: Command) -> ExitCode {
    macro_rules! on_servers {
        ($arguments:expr, $run:path) => {
            Process::new(&$arguments.connection, &$arguments.output)
                .run(async |context, reporter| $run(&$arguments, context, reporter).await)
        };
    }
    macro_rules! changing {
        ($arguments:expr, $run:path) => {
            Process::new(&$arguments.connection, &$arguments.output)
                .that_changes($arguments.verbose)
                .run(async |context, reporter| $run(&$arguments, context, reporter).await)
        };
    }
    let exit = match command {
        Command::Cp(arguments) => cp::execute(arguments, None).0,
        Command::Sync(arguments) => sync::execute(arguments),
        Command::Ls(arguments) => on_servers!(arguments, ls::run),
        Command::Stat(arguments) => on_servers!(arguments, stat::run),
        Command::Cat(arguments) => cat::execute(arguments),
        Command::Df(arguments) => on_servers!(arguments, df::run),
        Command::Mkdir(arguments) => changing!(arguments, mkdir::run),
        Command::Rm(arguments) => changing!(arguments, rm::run),
        Command::Mv(arguments) => changing!(arguments, mv::run),
        Command::Ln(arguments) => changing!(arguments, ln::run),
        Command::Chmod(arguments) => changing!(arguments, chmod::run),
        Command::Exports(arguments) => on_servers!(arguments, exports::run),
        Command::Ping(arguments) => ping::execute(arguments),
        Command::Doctor(arguments) => on_servers!(arguments, doctor::run),
        #[cfg(mount)]
        Command::Mount(arguments) => return mount::execute(arguments),
        #[cfg(mount)]
        Command::Umount(arguments) => mount::execute_umount(&arguments),
        #[cfg(mount)]
        Command::Cache(arguments) => cache::execute(&arguments.command),
        Command::Serve(arguments) => serve::execute(&arguments),
        Command::Share(arguments) => share::execute(&arguments),
        Command::Find(arguments) => find::execute(&arguments),
        Command::Link(arguments) => return link::execute(&arguments),
        Command::Curve(arguments) => curve::execute(&arguments),
        Command::Demo(arguments) => demo::execute(&arguments),
        Command::Config(arguments) => config::execute(&arguments),
        Command::Completions(arguments) => pages::completions(&arguments),
        Command::Man(arguments) => pages::manual(&arguments),
    };
    exit.into()
}

#[cfg(test)]
mod tests;
