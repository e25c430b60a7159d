//! `nfsw completions` and `nfsw man`: text made from the command line's own description.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::{
    args::{Cli, CompletionsArgs, ManArgs},
    exit::Exit,
};

/// Prints a completion script.
pub(super) fn completions(arguments: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "nfsw", &mut script);
    print(&script)
}

/// Prints a manual page.
pub(super) fn manual(arguments: &ManArgs) -> Exit {
    let mut cli = Cli::command();
    cli.build();
    let page = match &arguments.command {
        None => cli,
        Some(name) => match cli.find_subcommand(name) {
            Some(command) => command.clone().name(format!("nfsw-{name}")),
            None => {
                eprintln!("nfsw: there is no command {name:?}; nfsw --help lists them");
                return Exit::Usage;
            }
        },
    };
    let mut text = Vec::new();
    match clap_mangen::Man::new(page).render(&mut text) {
        Ok(()) => print(&text),
        Err(_) => Exit::LocalIo,
    }
}

fn print(text: &[u8]) -> Exit {
    match io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::LocalIo,
        _ => Exit::Done,
    }
}
