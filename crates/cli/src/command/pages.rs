//! `nfsw completions` and `nfsw man`: text made from the command line's own description.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_mangen::roff::{Roff, roman};

use crate::{
    args::{Cli, CompletionsArgs, ManArgs},
    complete::Shell,
    exit::Exit,
    schema,
};

/// Prints a completion script.
pub(super) fn completions(arguments: &CompletionsArgs) -> Exit {
    if let Some(shell) = Shell::named(arguments.shell.to_string().as_ref()) {
        return print(shell.script().as_bytes());
    }
    // Other shells get a script that knows the options alone.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "nfsw", &mut script);
    print(&script)
}

/// Prints a manual page.
pub(super) fn manual(arguments: &ManArgs) -> Exit {
    if arguments.command == ["json"] {
        return print(schema::page().as_bytes());
    }
    let mut page = Cli::command();
    page.build();
    for name in &arguments.command {
        let Some(command) = page.find_subcommand(name) else {
            let parent = page.get_bin_name().unwrap_or("nfsw");
            eprintln!("nfsw: there is no command {name:?}; {parent} --help lists them");
            return Exit::Usage;
        };
        page = command.clone().name(format!("{}-{name}", page.get_name()));
    }
    let notes = page.get_after_help().map(ToString::to_string);
    let mut text = Vec::new();
    let made = clap_mangen::Man::new(page.after_help(None)).render(&mut text);
    match made.and_then(|()| write_notes(&notes.unwrap_or_default(), &mut text)) {
        Ok(()) => print(&text),
        Err(_) => Exit::LocalIo,
    }
}

/// Writes what a help text ends with: paragraphs, and indented lines, which stay as they are.
fn write_notes(notes: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
    }
    for line in notes.lines() {
        match line {
            "" => roff.control("PP", []),
            line if line.starts_with(' ') => roff.control("nf", []).text([roman(line)]).control("fi", []),
            line => roff.text([roman(line)]),
        };
    }
    roff.to_writer(page)
}

fn print(text: &[u8]) -> Exit {
    match io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::LocalIo,
        _ => Exit::Done,
    }
}
