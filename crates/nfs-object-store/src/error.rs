//! The client's errors as `object_store`'s.

use nfs_wireless_client::{Error, MountStatus, NfsStatus, Procedure, Rejection, TransferError};
use thiserror::Error as ThisError;

use crate::STORE;

/// Why an operation failed that the server did not refuse.
#[derive(Clone, Copy, Debug, ThisError)]
pub(crate) enum Refusal {
    /// The name is a directory's, a link's, or that of a device.
    #[error("it is no regular file")]
    NoObject,
    /// The path has no part.
    #[error("the root of the store is no object")]
    Root,
    /// The name is kept for unfinished writes.
    #[error("names that begin with {} are those of unfinished writes", crate::STAGING)]
    Reserved,
    /// The object is another one than when it was opened.
    #[error("it was changed, replaced or removed while it was read")]
    Changed,
    /// The upload was ended before.
    #[error("the upload is complete or aborted")]
    Ended,
    /// A part is missing.
    #[error("{missing} of {parts} parts were not written")]
    Incomplete {
        /// Parts that failed, were dropped or are still being written.
        missing: u64,
        /// Parts in all.
        parts: u64,
    },
    /// A range has more bytes than memory.
    #[error("the range does not fit into memory")]
    TooLong,
    /// A name of a listing leads to nothing.
    #[error("the server lists it, and does not find it")]
    NotFound,
    /// A directory has entries for ever.
    #[error("it has more entries than a result may have: list it as a stream")]
    TooMany,
    /// Directories lie in each other for ever.
    #[error("directories lie more than {} deep", crate::list::MAX_DEPTH)]
    TooDeep,
}

/// A path leads through what is no directory.
#[derive(Clone, Copy, Debug, ThisError)]
#[error("it is no directory")]
pub(crate) struct NotADirectory;

impl NotADirectory {
    pub(crate) fn at(self, path: &str) -> object_store::Error {
        generic(At { path: path.to_owned(), source: self })
    }
}

/// An error and where it was met.
#[derive(Debug, ThisError)]
#[error("{path}: {source}")]
struct At<E: std::error::Error + 'static> {
    path: String,
    source: E,
}

impl Refusal {
    pub(crate) fn at(self, path: impl ToString) -> object_store::Error {
        let (path, source) = (path.to_string(), Box::new(self));
        match self {
            Self::NoObject => object_store::Error::NotFound { path, source },
            Self::Changed => object_store::Error::Precondition { path, source },
            Self::Root
            | Self::Reserved
            | Self::Ended
            | Self::Incomplete { .. }
            | Self::TooLong
            | Self::NotFound
            | Self::TooMany
            | Self::TooDeep => generic(At { path, source: self }),
        }
    }
}

/// What the client's error is for whoever asked for `path`.
pub(crate) fn explain(error: Error, path: impl ToString) -> object_store::Error {
    use object_store::Error as Told;
    let path = path.to_string();
    // What may have been done is neither done nor refused, whatever its status says.
    if let Error::Ambiguous { .. } = error {
        return generic(At { path, source: error });
    }
    match (error.status(), &error) {
        (Some(NfsStatus::NOENT | NfsStatus::NOTDIR), _)
        | (_, Error::Mount { status: MountStatus::NOENT | MountStatus::NOTDIR, .. }) => {
            Told::NotFound { path, source: error.into() }
        }
        (Some(NfsStatus::EXIST), _) => Told::AlreadyExists { path, source: error.into() },
        (Some(NfsStatus::ACCES | NfsStatus::PERM | NfsStatus::ROFS), _)
        | (_, Error::Mount { status: MountStatus::ACCES | MountStatus::PERM, .. }) => {
            Told::PermissionDenied { path, source: error.into() }
        }
        (_, Error::Rejected { rejection: Rejection::Authentication(_), .. }) => {
            Told::Unauthenticated { path, source: error.into() }
        }
        (Some(NfsStatus::NOTSUPP), _)
        // go-nfs has no LINK, and takes its arguments for those of SYMLINK.
        | (_, Error::Status { procedure: Procedure::Link, status: NfsStatus::INVAL })
        | (_, Error::Rejected { rejection: Rejection::ProcedureUnavailable, .. }) => {
            Told::NotSupported { source: At { path, source: error }.into() }
        }
        _ => generic(At { path, source: error }),
    }
}

/// As [`explain`], for bytes of a file that was found: a file that is gone is another object now.
pub(crate) fn explain_read(error: Error, path: impl ToString) -> object_store::Error {
    let gone = error.is_stale()
        || matches!(&error, Error::Local(local) if local.get_ref().is_some_and(|it| it.is::<Refusal>()))
        || matches!(&error, Error::Transfer(TransferError::SourceShrank { .. }));
    if gone { Refusal::Changed.at(path) } else { explain(error, path) }
}

fn generic(source: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: STORE, source: Box::new(source) }
}
