//! What may follow where an argument is being typed.

use std::ffi::OsStr;

use clap::builder::ArgExt;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};

/// Arguments whose values are found while they are typed: by looking at servers and at this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completes {
    /// Names of servers.
    Servers,
    /// Paths on servers.
    OnServers,
    /// Paths on servers and on this machine.
    Anywhere,
}

impl ArgExt for Completes {}

/// Offers names that are known.
pub(super) fn names<I: IntoIterator<Item = &'static str> + 'static>(names: fn() -> I) -> ArgValueCandidates {
    ArgValueCandidates::new(move || names().into_iter().map(CompletionCandidate::new).collect())
}

/// Offers the network interfaces of this machine (sysfs, Linux).
pub(super) fn interfaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        interfaces.map(|interface| CompletionCandidate::new(interface.file_name())).collect()
    })
}

/// Offers names that are known, several of them with commas between.
pub(super) fn lists<I: IntoIterator<Item = String> + 'static>(names: fn() -> I) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        let Some(word) = word.to_str() else { return Vec::new() };
        let at = word.rfind(',').map_or(0, |at| at + 1);
        let (before, begun) = word.split_at(at);
        let names = names().into_iter().filter(|name| name.starts_with(begun));
        names.map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
    })
}
