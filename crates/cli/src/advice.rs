//! From an error to one line that says what went wrong and what to do, and to the word for programs.

use std::{
    error::Error as StdError,
    io::{self, ErrorKind as IoErrorKind},
    net::{Ipv4Addr, UdpSocket},
};

use nfs_wireless_client::{self as client, MountStatus, NfsStatus as Status, Procedure, Rejection};

use crate::{
    error::{Error, ErrorKind, Partial, kind_of, without_number},
    exit::{Exit, failure},
    text::needs_escape,
    units,
};

/// Returns what went wrong, for programs to tell.
pub(crate) fn kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    match error.downcast_ref::<Error>() {
        Some(error) => Some(error.kind()),
        None => error.downcast_ref::<client::Error>().map(kind_of),
    }
}

/// Returns the word by which programs tell what went wrong.
pub(crate) fn word(error: &(dyn StdError + 'static)) -> &'static str {
    match (failure(error), kind(error)) {
        (Some(failure), _) => failure.exit.outcome(),
        (None, Some(kind)) => word_of(kind),
        (None, None) => Exit::SomeFailed.outcome(),
    }
}

const fn word_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Usage => "usage",
        ErrorKind::SourceMissing => "source_missing",
        ErrorKind::HostNotFound => "host_not_found",
        ErrorKind::Unreachable => "unreachable",
        ErrorKind::NotRegistered => "not_registered",
        ErrorKind::MountRefused => "mount_refused",
        ErrorKind::AmbiguousExport => "ambiguous_export",
        ErrorKind::NfsStatus => "nfs_status",
        ErrorKind::UnknownOutcome => "unknown_outcome",
        ErrorKind::Rejected => "rejected",
        ErrorKind::BrokenReply => "broken_reply",
        ErrorKind::NoAnswer => "no_answer",
        ErrorKind::AnotherServer => "another_server",
        ErrorKind::SourceChanged => "source_changed",
        ErrorKind::LocalIo => "local_io",
        ErrorKind::NoSpace => "no_space",
        ErrorKind::Mismatch => "verify_mismatch",
        ErrorKind::OutputClosed => "done",
        ErrorKind::Other => "some_failed",
    }
}

/// All words.
#[cfg(test)]
pub(crate) fn words() -> Vec<&'static str> {
    use ErrorKind::*;
    let kinds = [
        Usage,
        HostNotFound,
        Unreachable,
        NotRegistered,
        MountRefused,
        AmbiguousExport,
        NfsStatus,
        UnknownOutcome,
        Rejected,
        BrokenReply,
        NoAnswer,
        AnotherServer,
        SourceChanged,
        LocalIo,
        NoSpace,
        Other,
        SourceMissing,
        Mismatch,
    ];
    let of_runs = [Exit::GaveUp, Exit::Interrupted].map(Exit::outcome);
    kinds.into_iter().map(word_of).chain(of_runs).collect()
}

/// Returns the line for a person.
pub(crate) fn explain(error: &(dyn StdError + 'static)) -> String {
    tame(explained(error))
}

/// Escapes what a terminal would obey and no message of ours has: a part of it that a server, or another user, chose was not escaped.
fn tame(line: String) -> String {
    let is_obeyed = |it: char| it != '\\' && it != '\n' && it != '\t' && needs_escape(it);
    if !line.contains(is_obeyed) {
        return line;
    }
    let mut tame = String::with_capacity(line.len() + 8);
    for character in line.chars() {
        if is_obeyed(character) { tame.extend(character.escape_default()) } else { tame.push(character) }
    }
    tame
}

fn explained(error: &(dyn StdError + 'static)) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        let words = cause.to_string();
        let words = without_number(&words);
        // Some errors tell their cause themselves.
        if line.ends_with(words) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(words);
    }
    match advice(error) {
        Some(advice) => format!("{line} ({advice})"),
        None => line,
    }
}

fn advice(error: &(dyn StdError + 'static)) -> Option<String> {
    let Some(error) = error.downcast_ref::<Error>() else {
        return client_advice(error.downcast_ref()?).map(str::to_owned);
    };
    if let Some(partial) = error.partial() {
        return Some(partial_advice(partial));
    }
    let advice = match (error.client(), error.local()) {
        (Some(error), _) => client_advice(error),
        (None, Some(error)) => local_advice(error),
        (None, None) => None,
    };
    advice.map(str::to_owned)
}

fn partial_advice(Partial { name, bytes, is_local }: &Partial) -> String {
    let bytes = units::bytes(*bytes);
    let place = if *is_local { "" } else { " there" };
    format!(
        "the partial file {name} takes {bytes}; free space{place} and run it again, which resumes, or remove that file"
    )
}

fn local_advice(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        IoErrorKind::StorageFull | IoErrorKind::QuotaExceeded => "free space and run it again",
        IoErrorKind::FileTooLarge => "the file system or ulimit -f allows no file of this size",
        IoErrorKind::ReadOnlyFilesystem => "choose another place, or mount it writable",
        IoErrorKind::PermissionDenied => "check owner and mode",
        _ => return None,
    })
}

fn client_advice(error: &client::Error) -> Option<&'static str> {
    let advice = match error {
        client::Error::Resolve { host, .. } if nfs_share::Code::is_like(host) => {
            "if it is a code, a word is wrong: check both; otherwise check the name, or give the address"
        }
        client::Error::Resolve { .. } => "check the name, or give the address",
        client::Error::Unreachable { what: "the port mapper", .. } | client::Error::NotRegistered { .. } => {
            "without a port mapper, give the ports: nfs://HOST:2049/PATH?mountport=PORT"
        }
        client::Error::Unreachable { .. } => "is the NFS service running there?",
        client::Error::ConnectTimeout { .. } => "is the host right, and does a firewall stand between?",
        client::Error::Broken { .. } => {
            "is that an NFS server, and nothing in between? --transport udp may help; run it again, it resumes"
        }
        client::Error::Mount { status: MountStatus::ACCES | MountStatus::PERM, .. }
        | client::Error::Rejected { rejection: Rejection::Authentication(_), .. }
        | client::Error::Status {
            procedure: Procedure::Getattr | Procedure::Lookup | Procedure::Access | Procedure::Fsinfo,
            status: Status::PERM,
        } if !may_use_low_ports() => LOW_PORTS,
        client::Error::NotEntered { source, .. } => return client_advice(source),
        client::Error::Mount { .. } => "nfsw exports HOST lists what it offers, and to whom",
        client::Error::Rejected { rejection: Rejection::Authentication(_), .. } => "try --uid and --gid",
        _ => return status_advice(error.status()?),
    };
    Some(advice)
}

/// What to do about a server that refuses everybody whose calls come from other ports, as Linux does unless it is told otherwise.
const LOW_PORTS: &str = "it may take calls from ports below 1024 only: export with 'insecure' there, or here run nfsw as root or after \
     setcap cap_net_bind_service=+ep on it; nfsw exports HOST lists to whom it exports";

/// Whether this process may use ports below 1024. Where it may, the client does.
fn may_use_low_ports() -> bool {
    let bound = UdpSocket::bind((Ipv4Addr::LOCALHOST, 1023));
    !bound.is_err_and(|error| error.kind() == IoErrorKind::PermissionDenied)
}

fn status_advice(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::ACCES | Status::PERM => "is --uid or --gid needed? the server may also map root to nobody",
        Status::ROFS => "the export is read-only",
        Status::NOSPC | Status::DQUOT => "free space there and run it again",
        Status::STALE => "run it again; the file may have been removed or replaced meanwhile",
        Status::NAMETOOLONG => "choose a shorter name",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::about;

    #[test]
    fn a_cause_is_told_once() {
        let source = std::sync::Arc::new(io::Error::from_raw_os_error(111));
        let error = client::Error::Resolve { host: "nas".to_owned(), source };
        let line = explain(&about(error, "nas:/x"));
        let wanted =
            "nas:/x: cannot find the host nas: Connection refused (check the name, or give the address)";
        assert_eq!(line, wanted);
    }
}
