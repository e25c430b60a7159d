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
    hang::while_others_take_their_time,
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

/// Bytes of a file with patterns or paths, at most: a million paths, and more.
const MOST_BYTES: usize = 256 << 20;

/// Bytes read at once.
const PIECE_BYTES: usize = 64 << 10;

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return read_from(fs::File::open(path)?, MOST_BYTES);
    }
    if is_closed_input() {
        return Err(io::Error::other("standard input is closed or cannot be read"));
    }
    while_others_take_their_time(|| read_from(io::stdin().lock(), MOST_BYTES))
}

/// Reads a list to its end, if it has one.
fn read_from(mut list: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        let start = text.len();
        if (&mut list).take(PIECE_BYTES as u64).read_to_end(&mut text)? == 0 {
            return Ok(text);
        }
        if text[start..].contains(&0) {
            return Err(io::Error::other("has bytes that are no text"));
        }
        if text.len() > most {
            return Err(io::Error::other(format!("has more than {} MiB", most >> 20)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_end_is_refused() {
        const MOST: usize = 2 << 20;
        let list = vec![b'y'; MOST];
        assert!(read_from(&list[..], MOST).unwrap() == list);
        for (byte, text) in [(0, "has bytes that are no text"), (b'y', "has more than 2 MiB")] {
            assert_eq!(read_from(io::repeat(byte), MOST).unwrap_err().to_string(), text);
        }
    }
}
