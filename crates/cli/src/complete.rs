//! Completion in shells: the shell asks the program what may follow.
//!
//! `nfsw completions SHELL` prints a script that calls the program with `NFSW_COMPLETE=SHELL` and the words typed so far after `--`. Whatever goes
//! wrong then, nothing is said: the user is typing.

mod remote;
pub(crate) mod shell;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::engine::{self, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};

pub(crate) use shell::Shell;

use crate::{
    args::{Cli, Completes},
    config::Config,
    path_cache,
};

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
    let found = engine::complete(&mut command(), words, last, directory.as_deref()).unwrap_or_default();
    // Options are offered to whoever begins one.
    let wanted = |found: &CompletionCandidate| {
        word.as_bytes().starts_with(b"-") || !found.get_value().as_bytes().starts_with(b"-")
    };
    let found: Vec<_> = found.into_iter().filter(wanted).collect();
    shell.print(&found);
    Some(ExitCode::SUCCESS)
}

/// Returns the command line with what finds values while they are typed.
fn command() -> clap::Command {
    with_completers(Cli::command())
}

fn with_completers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get::<Completes>().copied() {
        Some(kind) => argument.add(ArgValueCompleter::new(move |word: &OsStr| values(kind, word))),
        None => argument,
    });
    command.mut_subcommands(with_completers)
}

fn values(kind: Completes, word: &OsStr) -> Vec<CompletionCandidate> {
    let on_servers = || hosts(word, ":").into_iter().chain(remote::complete(word));
    match kind {
        Completes::Servers => hosts(word, ""),
        Completes::OnServers => on_servers().collect(),
        Completes::Anywhere => PathCompleter::any().complete(word).into_iter().chain(on_servers()).collect(),
    }
}

/// Offers the servers that the configuration, the table of file systems and earlier runs know.
fn hosts(word: &OsStr, end: &str) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str().filter(|word| !word.contains([':', '/'])) else { return Vec::new() };
    let configured = Config::of_user().unwrap_or_default().hosts.hosts.into_keys();
    let mut hosts: Vec<String> = configured.collect();
    hosts.extend(mounted(&std::fs::read_to_string("/etc/fstab").unwrap_or_default()));
    hosts.extend(path_cache::known().map(|server| server.ip().to_string()).filter(|ip| !ip.contains(':')));
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
