//! From the options that say which files of a tree are copied to a filter.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use crate::{
    args::FilterArgs,
    copy::Filter,
    error::{io_text, show},
    exit::Failure,
    local::is_closed_input,
    text::escape,
};

/// Reads patterns and lists of files.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn filter(arguments: &FilterArgs) -> anyhow::Result<Filter> {
    let mut filter = Filter::new(arguments.rules.clone(), arguments.gitignore);
    filter.set_one_file_system(arguments.one_file_system);
    for path in &arguments.exclude_from {
        let wrong = |error| Failure::usage(format!("--exclude-from {}: {error}", show(path)));
        let text = read(path).map_err(|error| wrong(io_text(&error)))?;
        refuse_rules(&text).map_err(wrong)?;
        filter.add_patterns(&text).map_err(wrong)?;
    }
    if let Some(path) = &arguments.files_from {
        let wrong = |error| Failure::usage(format!("--files-from {}: {error}", show(path)));
        filter.set_listed(&read(path).map_err(|error| wrong(io_text(&error)))?).map_err(wrong)?;
    }
    Ok(filter)
}

/// Refuses lines that mean something else to rsync: `- /cache/` would protect nothing.
fn refuse_rules(text: &[u8]) -> Result<(), String> {
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let (sign, rest) = match line {
            [b'-', b' ', rest @ ..] => ("", rest),
            [b'+', b' ', rest @ ..] => ("!", rest),
            _ => continue,
        };
        let [line, rest] = [line, rest].map(escape);
        let index = index + 1;
        return Err(format!(
            "line {index}: {line}: is a rule of rsync; this file has the syntax of .gitignore: {sign}{rest}"
        ));
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return fs::read(path);
    }
    if is_closed_input() {
        return Err(io::Error::other("standard input is closed or cannot be read"));
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}
