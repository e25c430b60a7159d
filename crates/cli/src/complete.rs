//! Completion in shells: the shell asks the program what may follow.
//!
//! `nfsw completions SHELL` prints a script that calls the program with `NFSW_COMPLETE=SHELL` and the words typed so far after `--`. Whatever goes
//! wrong then, nothing is said: the user is typing.

mod remote;
mod shell;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::engine::{
    self, ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};

pub(crate) use shell::Shell;

use crate::{args::Cli, config::Config, paths};

/// Which shell asks.
const ASKED: &str = "NFSW_COMPLETE";

/// Answers a shell, or lists a directory for one that will ask; `None` if nobody asks.
pub(crate) fn answer() -> Option<ExitCode> {
    if let Some(directory) = std::env::var_os(remote::LIST) {
        remote::list(&directory);
        return Some(ExitCode::SUCCESS);
    }
    let shell = Shell::named(&std::env::var_os(ASKED)?)?;
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let Some(words) = shell.words(words) else { return Some(ExitCode::SUCCESS) };
    let last = words.len().saturating_sub(1);
    let word = words.last().cloned().unwrap_or_default();
    let directory = std::env::current_dir().ok();
    let found = engine::complete(&mut Cli::command(), words, last, directory.as_deref()).unwrap_or_default();
    // Options are offered to whoever begins one.
    let wanted = |found: &CompletionCandidate| {
        word.as_bytes().starts_with(b"-") || !found.get_value().as_bytes().starts_with(b"-")
    };
    let found: Vec<_> = found.into_iter().filter(wanted).collect();
    shell.print(&word, &found);
    Some(ExitCode::SUCCESS)
}

/// Completes paths on servers.
pub(crate) fn on_servers() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let mut found = hosts(word, ":");
        found.extend(remote::complete(word));
        found
    })
}

/// Completes paths on servers and on this machine.
pub(crate) fn anywhere() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let mut found = PathCompleter::any().complete(word);
        found.extend(hosts(word, ":"));
        found.extend(remote::complete(word));
        found
    })
}

/// Completes names of servers.
pub(crate) fn servers() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| hosts(word, ""))
}

/// Offers names that are known.
pub(crate) fn names<I: IntoIterator<Item = &'static str> + 'static>(names: fn() -> I) -> ArgValueCandidates {
    ArgValueCandidates::new(move || names().into_iter().map(CompletionCandidate::new).collect())
}

/// Offers names that are known, several of them with commas between.
pub(crate) fn lists<I: IntoIterator<Item = String> + 'static>(names: fn() -> I) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        let Some(word) = word.to_str() else { return Vec::new() };
        let at = word.rfind(',').map_or(0, |at| at + 1);
        let (before, begun) = word.split_at(at);
        let names = names().into_iter().filter(|name| name.starts_with(begun));
        names.map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
    })
}

/// Offers the servers that the configuration, the table of file systems and earlier runs know.
fn hosts(word: &OsStr, end: &str) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str().filter(|word| !word.contains([':', '/'])) else { return Vec::new() };
    let configured = Config::of_user().unwrap_or_default().hosts.hosts.into_keys();
    let mut hosts: Vec<String> = configured.collect();
    hosts.extend(mounted(&std::fs::read_to_string("/etc/fstab").unwrap_or_default()));
    hosts.extend(paths::known().map(|server| server.ip().to_string()).filter(|ip| !ip.contains(':')));
    hosts.retain(|host| host.starts_with(word));
    hosts.sort();
    hosts.dedup();
    hosts.into_iter().map(|host| CompletionCandidate::new(host + end)).collect()
}

/// Returns the NFS servers of a table of file systems (fstab(5)).
fn mounted(table: &str) -> impl Iterator<Item = String> {
    table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (source, kind) = (fields.next()?, fields.nth(1)?);
        let (host, path) = source.rsplit_once(":/").or_else(|| source.rsplit_once(':'))?;
        let is_nfs = matches!(kind, "nfs" | "nfs3" | "nfs4") && !source.starts_with('#');
        (is_nfs && !host.is_empty() && !path.contains(':')).then(|| host.to_owned())
    })
}

/// Returns bytes as a word.
fn word(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_from_the_table_of_file_systems() {
        let table = "\
# nas:/old /mnt nfs defaults 0 0
UUID=1 / ext4 defaults 0 1
nas:/srv/photos /photos nfs ro,vers=3 0 0
[2001:db8::1]:/x /x nfs4 defaults 0 0
//samba/share /share cifs defaults 0 0
broken
";
        assert_eq!(mounted(table).collect::<Vec<_>>(), ["nas", "[2001:db8::1]"]);
    }
}
