//! The one error type that callers of [`Client`](crate::Client) see.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use nfs_proto::{config::ConfigError, transfer::TransferError};
use nfs_wire::{DecodeError, MountStatus, Procedure, Status, portmap::Protocol, rpc::Rejection};
use thiserror::Error;

use crate::url::UrlError;

/// Why an operation failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A URL cannot be.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The host name has no address.
    #[error("cannot find the host {host}: {source}")]
    Resolve {
        /// The name looked up.
        host: String,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// Nobody listens there, or the way there is closed.
    #[error("{}", not_reached(what, *address, *protocol, source))]
    Unreachable {
        /// The service that was wanted.
        what: &'static str,
        /// Where it was looked for.
        address: SocketAddr,
        /// The transport tried.
        protocol: Protocol,
        /// What the network said.
        source: Arc<io::Error>,
    },
    /// The port mapper does not know the service.
    #[error("the server does not offer {what} over {}", protocol_name(*protocol))]
    NotRegistered {
        /// The service that was wanted.
        what: &'static str,
        /// The transport asked for.
        protocol: Protocol,
    },
    /// The server refused to mount.
    #[error("the server refuses to mount {path}: {status}")]
    Mount {
        /// The path asked for.
        path: String,
        /// The server's reason.
        status: MountStatus,
    },
    /// The server gives the same handle for a directory and one below it: one of them is something else.
    #[error(
        "the server gives the same directory for {shorter} and {longer}; it is unknown which files are meant"
    )]
    SameDirectory {
        /// Path of the directory.
        shorter: String,
        /// Path of the one below it.
        longer: String,
    },
    /// The server mounts another directory for a path than its names lead to.
    #[error(
        "{longer} is one directory when it is mounted and another one when it is looked up in {shorter}; it is unknown which files are meant"
    )]
    TwoDirectories {
        /// Path of the mounted directory that the names were looked up from.
        shorter: String,
        /// Path of the directory that is two.
        longer: String,
    },
    /// The server mounts any path, so that its answer does not show which directory that is.
    #[error("the server mounts any path, {longer} as well as {shorter}; it is unknown which files are meant")]
    MountsAnything {
        /// The path asked for.
        shorter: String,
        /// A path that does not exist.
        longer: String,
    },
    /// A name in a directory leads to that directory, or to one above it.
    #[error(
        "the server gives {name} the handle of {above}, which it lies in; it is unknown which files are meant"
    )]
    Circle {
        /// The name looked up.
        name: String,
        /// The directory it leads to.
        above: String,
    },
    /// A directory is an export of its own, which cannot be mounted: what is in it is not known.
    #[error("is an export of its own, which is not entered: {source}")]
    NotEntered {
        /// Path of the directory.
        path: String,
        /// Why it cannot be mounted.
        source: Arc<Self>,
    },
    /// A name is an export of its own, which is neither removed nor renamed.
    #[error("is an export of its own, which stays where it is")]
    MountPoint {
        /// Path of the export.
        path: String,
    },
    /// A directory is on another file system than the tree that it was to be removed with.
    #[error("is on another file system, and stays as it is")]
    OtherFileSystem {
        /// Name of the directory.
        path: String,
    },
    /// The server carried a procedure out and refused.
    #[error("{status}")]
    Status {
        /// The procedure called.
        procedure: Procedure,
        /// The server's reason.
        status: Status,
    },
    /// The server did not carry a call out.
    #[error("the server rejects {what}: {rejection}")]
    Rejected {
        /// The procedure called.
        what: &'static str,
        /// The server's reason.
        rejection: Rejection,
    },
    /// The server's answer makes no sense.
    #[error("the server's answer to {what} is broken: {source}")]
    Protocol {
        /// The procedure called.
        what: &'static str,
        /// What is wrong with the answer.
        source: DecodeError,
    },
    /// What comes over TCP is no sequence of replies, in several connections in a row without a single reply.
    #[error("{address} answers over TCP with what is not NFS: {reason}, connection after connection")]
    Broken {
        /// Where it comes from.
        address: SocketAddr,
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// No answer within the time allowed.
    #[error("no answer to {what} after {attempts} attempts in {:.1} s", elapsed.as_secs_f64())]
    Silent {
        /// The procedure called.
        what: &'static str,
        /// How often it was sent.
        attempts: u32,
        /// How long it was waited for.
        elapsed: Duration,
    },
    /// The [channel](crate::ClientConfig::channel) cannot be opened, or has ended.
    #[error("{0}")]
    Channel(Arc<io::Error>),
    /// No server was reached within the time allowed.
    #[error("no answer from {host} within {:.1} s", elapsed.as_secs_f64())]
    ConnectTimeout {
        /// The host asked for.
        host: String,
        /// How long it was tried.
        elapsed: Duration,
    },
    /// A transfer went without progress for as long as it may.
    #[error("no progress for {:.1} s", .0.as_secs_f64())]
    Stalled(Duration),
    /// A transfer ended early.
    #[error(transparent)]
    Transfer(TransferError),
    /// A repeated call may or may not have been carried out, and looking did not tell.
    #[error(
        "{procedure} was sent more than once and answered with '{status}': it may have been done; look before doing it again"
    )]
    Ambiguous {
        /// The procedure called.
        procedure: Procedure,
        /// The answer to a later attempt.
        status: Status,
    },
    /// LINK succeeded, and the new name is not the file's: the server made no link, or somebody took the name away again.
    #[error(
        "the server says that it made {name}, but that is not the file's name; the file keeps its old name"
    )]
    NotLinked {
        /// The new name.
        name: String,
    },
    /// The host's name leads to a server that gives the export another root: nothing begun with the old one goes on
    /// there.
    #[error("{host} is another server now, at {address}; what was begun with the old one has ended")]
    AnotherServer {
        /// The host asked for.
        host: String,
        /// Where the other server is.
        address: SocketAddr,
    },
    /// The local source became shorter or was changed while it was copied.
    #[error("the local file changed while it was copied; copy it again")]
    SourceChanged,
    /// Reading or writing a local file failed.
    #[error("{0}")]
    Local(Arc<io::Error>),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl Error {
    /// Returns the NFS status of the latest answer, if it is one: also of an operation that an earlier attempt may have
    /// carried out ([`Error::Ambiguous`]).
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. }
            | Self::Ambiguous { status, .. }
            | Self::Transfer(TransferError::Status { status, .. }) => Some(*status),
            _ => None,
        }
    }

    /// Whether the server does not know a handle (any more): looking its path up again may help.
    pub fn is_stale(&self) -> bool {
        matches!(self.status(), Some(Status::STALE | Status::BADHANDLE))
    }

    /// Whether LINK failed for a reason that does not keep RENAME or a copy from succeeding: the server has no hard links, or makes none
    /// of this file there (RFC 1813 §3.3.15).
    pub fn is_no_link(&self) -> bool {
        // Servers and file systems without links say so in many ways: NOTSUPP, PERM, IO, SERVERFAULT; go-nfs answers INVAL, as it takes
        // the arguments for those of SYMLINK.
        const OTHER_REASONS: [Status; 9] = [
            Status::EXIST,
            Status::NOENT,
            Status::STALE,
            Status::BADHANDLE,
            Status::ACCES,
            Status::ROFS,
            Status::NOSPC,
            Status::DQUOT,
            Status::JUKEBOX,
        ];
        match self {
            Self::Status { procedure: Procedure::Link, status } => !OTHER_REASONS.contains(status),
            Self::Rejected { what, .. } => *what == Procedure::Link.name(),
            _ => false,
        }
    }

    /// Whether the call may have been carried out, though it failed: the replies were lost, and looking did not tell. A program looks before
    /// it does it again. [`Error::kind`] is `Other` or `TimedOut` then, and no word for a refusal.
    pub const fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Ambiguous { .. } | Self::Silent { .. } | Self::Stalled(_))
    }

    /// Whether the network or the server stayed silent, so that trying again later may help.
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Silent { .. } | Self::ConnectTimeout { .. } | Self::Stalled(_))
    }

    /// Returns what `std::fs` would call it: `NotFound`, `PermissionDenied`, `TimedOut`, ...; `Other` where it has no word, as for what may
    /// have been done ([`Error::is_outcome_unknown`]).
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Resolve { source, .. } | Self::Unreachable { source, .. } => source.kind(),
            Self::Silent { .. } | Self::ConnectTimeout { .. } | Self::Stalled(_) => ErrorKind::TimedOut,
            Self::Protocol { .. } | Self::Broken { .. } | Self::Circle { .. } => ErrorKind::InvalidData,
            Self::Config(_) | Self::Url(_) => ErrorKind::InvalidInput,
            Self::NotEntered { .. } => ErrorKind::PermissionDenied,
            Self::MountPoint { .. } => ErrorKind::ResourceBusy,
            Self::OtherFileSystem { .. } => ErrorKind::CrossesDevices,
            Self::Closed => ErrorKind::NotConnected,
            Self::Channel(source) => source.kind(),
            // The status is of a later attempt, and `std` has no word for what may have been done.
            Self::Ambiguous { .. } => ErrorKind::Other,
            Self::Mount { status, .. } => match *status {
                MountStatus::NOENT => ErrorKind::NotFound,
                MountStatus::PERM | MountStatus::ACCES => ErrorKind::PermissionDenied,
                MountStatus::NOTDIR => ErrorKind::NotADirectory,
                _ => ErrorKind::Other,
            },
            other => other.status().map_or(ErrorKind::Other, kind_of),
        }
    }

    pub(crate) const fn refused(procedure: Procedure, status: Status) -> Self {
        Self::Status { procedure, status }
    }
}

/// What `std::fs` calls a status (RFC 1813 §2.6).
fn kind_of(status: Status) -> ErrorKind {
    match status {
        Status::NOENT => ErrorKind::NotFound,
        Status::PERM | Status::ACCES => ErrorKind::PermissionDenied,
        Status::EXIST => ErrorKind::AlreadyExists,
        Status::XDEV => ErrorKind::CrossesDevices,
        Status::NOTDIR => ErrorKind::NotADirectory,
        Status::ISDIR => ErrorKind::IsADirectory,
        Status::INVAL => ErrorKind::InvalidInput,
        Status::FBIG => ErrorKind::FileTooLarge,
        Status::NOSPC => ErrorKind::StorageFull,
        Status::ROFS => ErrorKind::ReadOnlyFilesystem,
        Status::MLINK => ErrorKind::TooManyLinks,
        Status::NAMETOOLONG => ErrorKind::InvalidFilename,
        Status::NOTEMPTY => ErrorKind::DirectoryNotEmpty,
        Status::DQUOT => ErrorKind::QuotaExceeded,
        Status::STALE | Status::BADHANDLE => ErrorKind::StaleNetworkFileHandle,
        Status::NOTSUPP => ErrorKind::Unsupported,
        Status::JUKEBOX => ErrorKind::ResourceBusy,
        _ => ErrorKind::Other,
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        match error {
            Error::Local(error) => Arc::try_unwrap(error).unwrap_or_else(|shared| shared.kind().into()),
            other => Self::new(kind, other),
        }
    }
}

impl From<io::Error> for Error {
    /// Takes an error of the client out again.
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => Self::Local(Arc::new(error)),
        }
    }
}

impl From<TransferError> for Error {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Status { procedure, status } => Self::Status { procedure, status },
            TransferError::Rejected { procedure, rejection } => {
                Self::Rejected { what: procedure.name(), rejection }
            }
            TransferError::Protocol { procedure, error } => {
                Self::Protocol { what: procedure.name(), source: error }
            }
            other => Self::Transfer(other),
        }
    }
}

/// Words why a service was not reached: also where something else answers.
fn not_reached(what: &str, address: SocketAddr, protocol: Protocol, source: &io::Error) -> String {
    let over = protocol_name(protocol);
    if source.kind() == ErrorKind::InvalidData {
        return format!("what answers at {address} over {over} is not {what}: {source}");
    }
    format!("cannot reach {what} at {address} over {over}: {source}")
}

/// Returns the name people use.
pub(crate) const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "UDP",
        Protocol::Tcp => "TCP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every status of RFC 1813 §2.6.
    #[test]
    fn every_status_has_the_kind_that_std_gives_the_same_error() {
        for (status, kind) in [
            (Status::PERM, ErrorKind::PermissionDenied),
            (Status::NOENT, ErrorKind::NotFound),
            (Status::IO, ErrorKind::Other),
            (Status::NXIO, ErrorKind::Other),
            (Status::ACCES, ErrorKind::PermissionDenied),
            (Status::EXIST, ErrorKind::AlreadyExists),
            (Status::XDEV, ErrorKind::CrossesDevices),
            (Status::NODEV, ErrorKind::Other),
            (Status::NOTDIR, ErrorKind::NotADirectory),
            (Status::ISDIR, ErrorKind::IsADirectory),
            (Status::INVAL, ErrorKind::InvalidInput),
            (Status::FBIG, ErrorKind::FileTooLarge),
            (Status::NOSPC, ErrorKind::StorageFull),
            (Status::ROFS, ErrorKind::ReadOnlyFilesystem),
            (Status::MLINK, ErrorKind::TooManyLinks),
            (Status::NAMETOOLONG, ErrorKind::InvalidFilename),
            (Status::NOTEMPTY, ErrorKind::DirectoryNotEmpty),
            (Status::DQUOT, ErrorKind::QuotaExceeded),
            (Status::STALE, ErrorKind::StaleNetworkFileHandle),
            (Status::REMOTE, ErrorKind::Other),
            (Status::BADHANDLE, ErrorKind::StaleNetworkFileHandle),
            (Status::NOT_SYNC, ErrorKind::Other),
            (Status::BAD_COOKIE, ErrorKind::Other),
            (Status::NOTSUPP, ErrorKind::Unsupported),
            (Status::TOOSMALL, ErrorKind::Other),
            (Status::SERVERFAULT, ErrorKind::Other),
            (Status::BADTYPE, ErrorKind::Other),
            (Status::JUKEBOX, ErrorKind::ResourceBusy),
        ] {
            let refused = Error::refused(Procedure::Write, status);
            let in_doubt = Error::Ambiguous { procedure: Procedure::Write, status };
            let moved = Error::from(TransferError::Status { procedure: Procedure::Write, status });
            for (error, kind) in [(refused, kind), (in_doubt, ErrorKind::Other), (moved, kind)] {
                assert_eq!(error.kind(), kind, "{error:?}");
                assert_eq!(error.is_outcome_unknown(), matches!(error, Error::Ambiguous { .. }));
                let through_io = io::Error::from(error);
                assert_eq!(through_io.kind(), kind, "{through_io:?}");
                assert_eq!(Error::from(through_io).status(), Some(status), "it is the client's error again");
            }
        }
    }

    #[test]
    fn what_is_no_status_has_a_kind_too() {
        let local = || Arc::new(io::Error::from(ErrorKind::BrokenPipe));
        let path = || "/x".to_owned();
        let mount = |status| Error::Mount { path: path(), status };
        let second = Duration::from_secs(1);
        for (error, kind) in [
            (Error::Silent { what: "READ", attempts: 3, elapsed: second }, ErrorKind::TimedOut),
            (Error::ConnectTimeout { host: "nas".to_owned(), elapsed: second }, ErrorKind::TimedOut),
            (Error::Stalled(second), ErrorKind::TimedOut),
            (Error::Resolve { host: "nas".to_owned(), source: local() }, ErrorKind::BrokenPipe),
            (Error::Local(local()), ErrorKind::BrokenPipe),
            (Error::Closed, ErrorKind::NotConnected),
            (Error::MountPoint { path: path() }, ErrorKind::ResourceBusy),
            (Error::OtherFileSystem { path: path() }, ErrorKind::CrossesDevices),
            (Error::Circle { name: path(), above: path() }, ErrorKind::InvalidData),
            (mount(MountStatus::NOENT), ErrorKind::NotFound),
            (mount(MountStatus::ACCES), ErrorKind::PermissionDenied),
            (mount(MountStatus::NOTDIR), ErrorKind::NotADirectory),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
            assert_eq!(io::Error::from(error).kind(), kind);
        }
    }
}
