//! From an error to one line that says what went wrong and what to do.

use std::{
    fmt::Display,
    io::{self, ErrorKind},
    net::{Ipv4Addr, UdpSocket},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::io::Errno;

use nfs_wireless_client::{self as client, MountStatus, NfsStatus as Status, Procedure, Rejection};

use crate::{
    exit::{Exit, Failure},
    text::escape,
    units,
};

/// Names the file that an operation on a server was about.
pub(crate) trait ResultExt<T> {
    /// Puts the name of the file before the error.
    fn at(self, name: impl Display) -> anyhow::Result<T>;

    /// As [`ResultExt::at`], for a source that the user named: status 4 when it does not exist.
    fn at_source(self, name: impl Display) -> anyhow::Result<T>;
}

impl<T> ResultExt<T> for Result<T, client::Error> {
    fn at(self, name: impl Display) -> anyhow::Result<T> {
        self.map_err(|error| about(error, name))
    }

    fn at_source(self, name: impl Display) -> anyhow::Result<T> {
        match self {
            Err(error) if is_missing(&error) || has_status(&error, Status::NOTDIR) => {
                Err(Failure::with(Exit::SourceMissing, format!("{name}: {error}")))
            }
            other => other.at(name),
        }
    }
}

/// Takes the client's error out of the `io::Error` that a [`client::File`] returns.
pub(crate) fn remote_error(error: io::Error, name: impl Display) -> anyhow::Error {
    match error.downcast::<client::Error>() {
        Ok(error) => anyhow::Error::new(error).context(name.to_string()),
        Err(error) => Failure::with(Exit::SomeFailed, format!("{name}: {error}")),
    }
}

/// Names the file that an error is about.
pub(crate) fn about(error: client::Error, name: impl Display) -> anyhow::Error {
    match error {
        // Nothing else will work either.
        client::Error::AnotherServer { .. } => {
            Failure::last(Exit::SomeFailed, client_kind(&error), format!("{error}; run it again"))
        }
        error => anyhow::Error::new(error).context(name.to_string()),
    }
}

/// Turns an error met while a server is sought into one with status 3.
pub(crate) fn unreachable(error: client::Error, name: impl Display) -> anyhow::Error {
    let exit = match error {
        client::Error::Config(_) => Exit::Usage,
        client::Error::Local(_) => Exit::LocalIo,
        _ => Exit::Unreachable,
    };
    let kind = client_kind(&error);
    let error = anyhow::Error::new(error).context(name.to_string());
    Failure::of_kind(exit, kind, explain(&error))
}

/// Returns the word by which programs tell what went wrong.
pub(crate) fn kind(error: &anyhow::Error) -> &'static str {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.kind;
    }
    error.downcast_ref::<client::Error>().map_or_else(|| Exit::SomeFailed.outcome(), client_kind)
}

/// The kind of errors of a server that does not let us mount.
pub(crate) const MOUNT_REFUSED: &str = "mount_refused";

/// The kind of errors that are a status of NFS.
const NFS_STATUS: &str = "nfs_status";

/// All kinds.
#[cfg(test)]
pub(crate) const KINDS: [&str; 20] = [
    "usage",
    "host_not_found",
    "unreachable",
    "not_registered",
    MOUNT_REFUSED,
    "ambiguous_export",
    NFS_STATUS,
    "unknown_outcome",
    "rejected",
    "broken_reply",
    "no_answer",
    "another_server",
    "source_changed",
    "local_io",
    NO_SPACE,
    "some_failed",
    "source_missing",
    "verify_mismatch",
    "gave_up",
    "interrupted",
];

fn client_kind(error: &client::Error) -> &'static str {
    use client::Error;
    match error {
        Error::Config(_) => Exit::Usage.outcome(),
        Error::Resolve { .. } => "host_not_found",
        Error::Unreachable { source, .. } if source.kind() == ErrorKind::InvalidData => "broken_reply",
        Error::Unreachable { .. } => Exit::Unreachable.outcome(),
        Error::NotRegistered { .. } => "not_registered",
        Error::Mount { .. } => MOUNT_REFUSED,
        Error::NotEntered { source, .. } => client_kind(source),
        Error::SameDirectory { .. } | Error::TwoDirectories { .. } | Error::MountsAnything { .. } => {
            "ambiguous_export"
        }
        _ if has_no_room(error) => NO_SPACE,
        Error::Status { .. } => NFS_STATUS,
        Error::Ambiguous { .. } => "unknown_outcome",
        Error::Rejected { .. } => "rejected",
        Error::Protocol { .. } | Error::Broken { .. } | Error::Circle { .. } => "broken_reply",
        Error::Silent { .. } | Error::ConnectTimeout { .. } | Error::Stalled(_) => "no_answer",
        Error::AnotherServer { .. } => "another_server",
        Error::SourceChanged => "source_changed",
        Error::Local(_) => Exit::LocalIo.outcome(),
        _ => Exit::SomeFailed.outcome(),
    }
}

/// Returns an error about a disk that has no room for the rest of a file, of which a partial file takes `bytes` there.
pub(crate) fn full(
    exit: Exit,
    name: impl Display,
    words: impl Display,
    part: impl Display,
    bytes: u64,
) -> anyhow::Error {
    let bytes = units::bytes(bytes);
    let place = if exit == Exit::LocalIo { "" } else { " there" };
    let text = format!(
        "{name}: {words} (the partial file {part} takes {bytes}; free space{place} and run it again, which resumes, or remove that file)"
    );
    Failure::last(exit, NO_SPACE, text)
}

/// The kind of errors of disks without room.
const NO_SPACE: &str = "no_space";

/// Whether a server says that it has no room.
pub(crate) fn has_no_room(error: &client::Error) -> bool {
    matches!(error.status(), Some(Status::NOSPC | Status::DQUOT))
}

/// Whether an error says that there is no room on a disk of this machine.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether the server says that there is no such file.
pub(crate) fn is_missing(error: &client::Error) -> bool {
    has_status(error, Status::NOENT)
}

/// Whether an operation failed because the server does not know a handle any more.
pub(crate) fn is_stale(error: &anyhow::Error) -> bool {
    error.downcast_ref::<client::Error>().is_some_and(client::Error::is_stale)
}

/// Whether the server answered with this status.
pub(crate) fn has_status(error: &client::Error, wanted: Status) -> bool {
    error.status() == Some(wanted)
}

/// Returns the line for a person.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let words = without_number(&cause.to_string());
        // Some errors tell their cause themselves.
        if line.ends_with(&words) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&words);
    }
    match error.downcast_ref::<client::Error>().and_then(advice) {
        Some(advice) => format!("{line} ({advice})"),
        None => line,
    }
}

/// Returns an error about a name on a server that is taken, as of a call that the server refuses for that.
pub(crate) fn exists(name: impl Display) -> anyhow::Error {
    Failure::of_kind(Exit::SomeFailed, NFS_STATUS, format!("{name}: file exists"))
}

/// Returns an error about a local file.
pub(crate) fn local(path: &Path, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => " (free space and run it again)",
        ErrorKind::FileTooLarge => " (the file system or ulimit -f allows no file of this size)",
        ErrorKind::ReadOnlyFilesystem => " (choose another place, or mount it writable)",
        ErrorKind::PermissionDenied => " (check owner and mode)",
        _ => "",
    };
    let text = format!("{}: {}{advice}", show(path), io_text(error));
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
            let kind = if is_full(error) { NO_SPACE } else { Exit::LocalIo.outcome() };
            Failure::last(Exit::LocalIo, kind, text)
        }
        _ if is_scarcity(error) => Failure::scarce(Exit::LocalIo, text),
        _ => Failure::with(Exit::LocalIo, text),
    }
}

/// Whether this machine, or this process, has no more of something at present: descriptors or buffers.
fn is_scarcity(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|number| scarce.iter().any(|it| it.raw_os_error() == number))
}

/// Whether an operation may work when others have ended.
pub(crate) fn is_scarce(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<client::Error>() {
        Some(client::Error::Local(source) | client::Error::Unreachable { source, .. }) => is_scarcity(source),
        Some(_) => false,
        None => error.downcast_ref::<Failure>().is_some_and(|failure| failure.is_scarce),
    }
}

/// Writes a local path so that it cannot harm the terminal.
pub(crate) fn show(path: &Path) -> String {
    escape(path.as_os_str().as_bytes()).into_owned()
}

/// Returns the system's words for an error, without its number.
pub(crate) fn io_text(error: &io::Error) -> String {
    let words = without_number(&error.to_string());
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Cuts off the number that the standard library puts behind the system's words.
fn without_number(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_owned()
}

fn advice(error: &client::Error) -> Option<&'static str> {
    let advice = match error {
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
        client::Error::NotEntered { source, .. } => return advice(source),
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
    !bound.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
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

    #[test]
    fn system_errors_read_like_the_rest() {
        assert_eq!(io_text(&io::Error::from_raw_os_error(2)), "no such file or directory");
        assert_eq!(io_text(&io::Error::other("odd")), "odd");
    }

    #[test]
    fn a_cause_is_told_once() {
        let source = std::sync::Arc::new(io::Error::from_raw_os_error(111));
        let error = client::Error::Resolve { host: "nas".to_owned(), source };
        let line = explain(&anyhow::Error::new(error).context("nas:/x"));
        let wanted =
            "nas:/x: cannot find the host nas: Connection refused (check the name, or give the address)";
        assert_eq!(line, wanted);
    }
}
