//! `nfsw completions` and `nfsw man`: text made from the command line's own description.

mod sections;

use clap::CommandFactory;

use crate::{
    args::{Cli, CompletionsArgs, ManArgs},
    complete::Shell,
    exit::Exit,
    report::print_all,
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
    let name = page.get_name().to_owned();
    let usage = page.render_usage().to_string();
    let page = page
        .override_usage(usage.trim_start_matches("Usage: ").to_owned())
        .after_help(None)
        .mut_args(|option| option.hide_short_help(false).hide_long_help(false));
    let made = clap_mangen::Man::new(page).render(&mut text);
    match made.and_then(|()| sections::after_options(&name, &notes.unwrap_or_default())) {
        Ok(sections) => print(&[text, sections].concat()),
        Err(_) => Exit::LocalIo,
    }
}

fn print(text: &[u8]) -> Exit {
    let Err(error) = print_all(text) else { return Exit::Done };
    eprintln!("nfsw: {error}");
    Exit::of(error.as_ref())
}
