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
};

/// Reads patterns and lists of files.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn filter(arguments: &FilterArgs) -> anyhow::Result<Filter> {
    let mut filter = Filter::new(arguments.rules.clone(), arguments.gitignore);
    for path in &arguments.exclude_from {
        let wrong = |error| Failure::usage(format!("--exclude-from {}: {error}", show(path)));
        filter.add_patterns(&read(path).map_err(|error| wrong(io_text(&error)))?).map_err(wrong)?;
    }
    if let Some(path) = &arguments.files_from {
        let wrong = |error| Failure::usage(format!("--files-from {}: {error}", show(path)));
        filter.set_listed(&read(path).map_err(|error| wrong(io_text(&error)))?).map_err(wrong)?;
    }
    Ok(filter)
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
