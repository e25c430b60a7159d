//! What users of rsync, scp, cp and mount type: options and commands that nfsw does not have, and what to use instead.
//!
//! Options that can do here what they do there are options of the commands (`args/habits.rs`, `args/copy.rs`, `args/sync.rs`).

mod table;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use self::table::{COMMANDS, MOUNT_OPTIONS, OPTIONS};

/// Returns a sentence about what is wrong with a command line, where it is a habit from another program.
pub(crate) fn sentence(error: &clap::Error, line: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand)?;
            let (_, instead) = COMMANDS.iter().find(|(names, _)| names.contains(&typed))?;
            Some(format!("{typed} is not a command of nfsw. {instead}"))
        }
        ErrorKind::UnknownArgument | ErrorKind::TooManyValues => {
            // `--rsh=ssh` is reported as `--rsh`.
            let typed = text(ContextKind::InvalidArg)?;
            let command = line.get(1)?.to_str()?;
            if let Some(word) = port(command, typed, line) {
                return Some(format!(
                    "cp {word}: -P copies links as links, as for cp. The port is part of the name: nfs://HOST:PORT/PATH."
                ));
            }
            if command == "mount" && ["-o", "--options"].contains(&typed) {
                return Some(format!("mount {typed}: {}", mount_options(line)));
            }
            if command == "sync" && !typed.starts_with('-') {
                return Some(format!(
                    "sync takes one SRC and DST, and {typed} is one more. nfsw cp -a SRC... DST copies several files and directories."
                ));
            }
            let (.., instead) = OPTIONS
                .iter()
                .find(|(commands, options, _)| commands.contains(&command) && options.contains(&typed))?;
            Some(format!("{command} {typed}: {instead}"))
        }
        _ => None,
    }
}

/// Returns the word in which a port follows `-P`, as for scp: it is taken apart, and its first digit reported.
fn port<'a>(command: &str, typed: &str, line: &'a [OsString]) -> Option<&'a str> {
    let digit =
        typed.strip_prefix('-').filter(|digit| digit.len() == 1 && digit.as_bytes()[0].is_ascii_digit())?;
    let mut words = options(line).iter().filter_map(|word| word.to_str());
    words.find(|word| {
        let is_short = word.starts_with('-') && !word.starts_with("--");
        command == "cp" && is_short && word.contains(&format!("P{digit}"))
    })
}

/// Returns the words of a command line before `--`.
fn options(line: &[OsString]) -> &[OsString] {
    let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
    &line[..end]
}

/// Writes the names after `--` on a line of `nfsw cp` so that none looks like an option: clap takes the last two apart by
/// what they look like, even there.
pub(crate) fn with_names_kept(mut line: Vec<OsString>) -> Vec<OsString> {
    let end = options(&line).len();
    if line.get(1).is_some_and(|command| command == "cp") {
        for name in line.iter_mut().skip(end + 1).filter(|name| name.len() > 1) {
            if name.as_encoded_bytes().starts_with(b"-") {
                let mut path = OsString::from("./");
                path.push(&name);
                *name = path;
            }
        }
    }
    line
}

/// Whether a command line asks with `-h` alone for the help of a command where `-h` also means sizes for people, as for rsync.
pub(crate) fn asks_for_help(error: &clap::Error, line: &[OsString]) -> bool {
    let is_alone =
        matches!(line, [_, command, option] if (command == "cp" || command == "sync") && option == "-h");
    is_alone && error.kind() == ErrorKind::MissingRequiredArgument
}

/// Translates the options of `mount -o`.
fn mount_options(line: &[OsString]) -> String {
    let words: Vec<_> = line.iter().map(|word| word.to_string_lossy()).collect();
    let given = words.iter().enumerate().find_map(|(at, word)| match &**word {
        "-o" | "--options" => words.get(at + 1).map(|next| next.to_string()),
        word => word.strip_prefix("-o").or_else(|| word.strip_prefix("--options=")).map(str::to_owned),
    });
    let mut answers: Vec<String> = Vec::new();
    for option in given.iter().flat_map(|given| given.split(',')).filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let known = MOUNT_OPTIONS.iter().find(|(names, _)| names.contains(&name) || names.contains(&option));
        let answer = known.map_or("has no counterpart", |(_, answer)| answer).replace("{}", value);
        answers.push(format!("{} {answer}", crate::text::escape(option.as_bytes())));
    }
    let known = if answers.is_empty() { String::new() } else { format!(": {}", answers.join("; ")) };
    format!("nfsw mount takes its options by their own names{known}")
}

#[cfg(all(test, mount))]
mod tests;
