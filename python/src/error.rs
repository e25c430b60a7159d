//! What goes wrong, as exceptions of Python.

use std::io;

use nfs_files::ErrorKind as Kind;
use nfs_wireless_client::{self as client, NfsStatus as Status, TransferError};
use pyo3::{
    create_exception,
    exceptions::{PyOSError, PyValueError},
    prelude::*,
};

create_exception!(nfsw, Error, PyOSError, "What has no number of its own among the errors of the system.");
create_exception!(
    nfsw,
    CopyError,
    Error,
    "Several files could not be copied: `errors` has their exceptions, `counts` what was done."
);

/// An error that can be kept, and raised where there is an interpreter.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    kind: &'static str,
    errno: Option<i32>,
    message: String,
    name: Option<String>,
}

impl Fault {
    /// Returns the error of a client, about the file of this name.
    pub(crate) fn of_client(error: &client::Error, name: &str) -> Self {
        let errno = errno(error);
        let kind = word(nfs_files::error::kind_of(error));
        let kind = if matches!(error, client::Error::Url(_)) { "usage" } else { kind };
        Self { kind, errno, message: error.to_string(), name: Some(name.to_owned()) }
    }

    /// Returns the error of a client that came as one of the system.
    pub(crate) fn of_io(error: io::Error, name: &str) -> Self {
        Self::of_client(&client::Error::from(error), name)
    }

    /// Returns the error of a copy, whose words name the file.
    pub(crate) fn of_files(error: &nfs_files::Error) -> Self {
        let local = error.local().and_then(io::Error::raw_os_error);
        let errno = error.client().map_or(local, errno);
        let errno = match error.kind() {
            Kind::SourceMissing => errno.or(Some(libc::ENOENT)),
            Kind::NoSpace => errno.or(Some(libc::ENOSPC)),
            _ => errno,
        };
        Self { kind: word(error.kind()), errno, message: error.to_string(), name: None }
    }

    /// Returns an error about what was asked for.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: "usage", errno: None, message: message.into(), name: None }
    }

    /// Returns an error with this number.
    pub(crate) fn of_number(errno: i32, message: &str, name: &str) -> Self {
        let (message, name) = (message.to_owned(), Some(name.to_owned()));
        Self { kind: "local_io", errno: Some(errno), message, name }
    }

    /// Returns what it says.
    pub(crate) fn words(&self) -> &str {
        &self.message
    }

    /// Returns what is raised: an `OSError`, of which Python makes the subclass for its number, with the attribute `kind`.
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        let Self { kind, errno, message, name } = self;
        let error = match (errno, name) {
            _ if *kind == "usage" => PyValueError::new_err(message.clone()),
            (Some(errno), Some(name)) => PyOSError::new_err((*errno, message.clone(), name.clone())),
            (Some(errno), None) => PyOSError::new_err((*errno, message.clone())),
            (None, Some(name)) => Error::new_err((libc::EIO, message.clone(), name.clone())),
            (None, None) => Error::new_err((libc::EIO, message.clone())),
        };
        // An exception that takes no attribute is one all the same.
        let _ = error.value(py).setattr("kind", kind);
        error
    }
}

/// Returns the number that the system has for an error.
fn errno(error: &client::Error) -> Option<i32> {
    use client::Error as E;
    let number = |source: &io::Error| source.raw_os_error();
    match error {
        E::Local(source) => number(source),
        E::Unreachable { source, .. } => number(source).or(Some(libc::EHOSTUNREACH)),
        E::Resolve { .. } => Some(libc::EHOSTUNREACH),
        E::NotRegistered { .. } => Some(libc::ECONNREFUSED),
        E::Transfer(TransferError::Status { status, .. }) => of_status(*status),
        _ => match error.status() {
            Some(status) => of_status(status),
            None => of_kind(error.kind()),
        },
    }
}

/// Returns the number of an NFSv3 status: most have that of 4.2BSD (RFC 1813 §2.6).
const fn of_status(status: Status) -> Option<i32> {
    Some(match status {
        Status::PERM => libc::EPERM,
        Status::NOENT => libc::ENOENT,
        Status::NXIO => libc::ENXIO,
        Status::ACCES => libc::EACCES,
        Status::EXIST => libc::EEXIST,
        Status::XDEV => libc::EXDEV,
        Status::NODEV => libc::ENODEV,
        Status::NOTDIR => libc::ENOTDIR,
        Status::ISDIR => libc::EISDIR,
        Status::INVAL => libc::EINVAL,
        Status::FBIG => libc::EFBIG,
        Status::NOSPC => libc::ENOSPC,
        Status::ROFS => libc::EROFS,
        Status::MLINK => libc::EMLINK,
        Status::NAMETOOLONG => libc::ENAMETOOLONG,
        Status::NOTEMPTY => libc::ENOTEMPTY,
        Status::DQUOT => libc::EDQUOT,
        Status::STALE | Status::BADHANDLE => libc::ESTALE,
        Status::NOTSUPP => libc::EOPNOTSUPP,
        Status::JUKEBOX => libc::EBUSY,
        _ => libc::EIO,
    })
}

/// Returns the number of what is no status.
const fn of_kind(kind: io::ErrorKind) -> Option<i32> {
    use io::ErrorKind as K;
    Some(match kind {
        K::NotFound => libc::ENOENT,
        K::PermissionDenied => libc::EACCES,
        K::NotADirectory => libc::ENOTDIR,
        K::TimedOut => libc::ETIMEDOUT,
        K::InvalidInput => libc::EINVAL,
        K::ResourceBusy => libc::EBUSY,
        K::CrossesDevices => libc::EXDEV,
        K::NotConnected => libc::ENOTCONN,
        _ => return None,
    })
}

/// Returns the word of docs/json.md for a kind of error.
const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Usage => "usage",
        Kind::SourceMissing => "source_missing",
        Kind::HostNotFound => "host_not_found",
        Kind::Unreachable => "unreachable",
        Kind::NotRegistered => "not_registered",
        Kind::MountRefused => "mount_refused",
        Kind::AmbiguousExport => "ambiguous_export",
        Kind::NfsStatus => "nfs_status",
        Kind::UnknownOutcome => "unknown_outcome",
        Kind::Rejected => "rejected",
        Kind::BrokenReply => "broken_reply",
        Kind::NoAnswer => "no_answer",
        Kind::AnotherServer => "another_server",
        Kind::SourceChanged => "source_changed",
        Kind::LocalIo | Kind::OutputClosed => "local_io",
        Kind::NoSpace => "no_space",
        Kind::Mismatch => "verify_mismatch",
        Kind::Other => "some_failed",
    }
}
