//! What a front learns.

use std::sync::Arc;

use bytes::Bytes;
use nfs_proto::{attr::Metadata, transfer::TransferError};
use nfs_wire::Status;
use thiserror::Error;

use crate::ids::{NodeId, OpenId, OperationId};

/// Something that a front should learn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An operation has ended.
    Done {
        /// The operation.
        operation: OperationId,
        /// What came of it.
        result: Result<Answer, Failure>,
    },
    /// The attributes of a file that the front knows have changed, though it is the same version as far as is known: what the front has
    /// kept of them is out of date. Comes before answers that were made with the new ones.
    Altered {
        /// The file.
        node: NodeId,
    },
    /// The server does not respond: what is held is served.
    Disconnected,
    /// The server responds.
    Connected,
    /// Where the server was is another one, which is not asked for anything.
    AnotherServer,
    /// [`Cache::end`](crate::Cache::end): nothing is shown any more. Comes before operations fail for it.
    Ended,
    /// The server's listing of a directory makes no sense; whoever asked for it gets this failure.
    Unlisted {
        /// Where the directory is below the one that the cache shows.
        path: Vec<u8>,
        /// What is wrong.
        failure: Failure,
    },
    /// The beginning of a file that was read, or whose directory was listed, is held: see [`CacheConfig::told_heads`](crate::CacheConfig::told_heads).
    Head {
        /// Where the file is below the directory that the cache shows.
        path: Vec<u8>,
        /// Its attributes.
        metadata: Metadata,
        /// Its first [`GRAIN_BYTES`](crate::GRAIN_BYTES), or all of it.
        data: Bytes,
    },
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// What a name leads to. The front has a reference to the node now.
    Entry {
        /// The object in its present version.
        node: NodeId,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Attributes.
    Attributes(Metadata),
    /// All names of a directory but `.` and `..`, in the order of their bytes.
    Listing(Arc<Vec<ListEntry>>),
    /// The target of a link.
    Target(Bytes),
    /// A file is open.
    Opened {
        /// To read and to release it.
        open: OpenId,
        /// Whether pages that the front has of this node are still those of the file.
        keep_cache: bool,
    },
    /// Bytes of a file, one piece after the other.
    Data(Vec<Bytes>),
}

/// A name in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The name as the server gave it.
    pub name: Arc<[u8]>,
    /// The number of the file; 0 where the server told it with no reply that is remembered.
    pub fileid: u64,
    /// The object where its attributes are known: [`Cache::known`](crate::Cache::known). The front has no reference to it.
    pub node: Option<NodeId>,
}

/// Why an operation failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The server said so.
    #[error("{0}")]
    Status(Status),
    /// The version of the file is over, or the file is.
    #[error("the file has changed or is gone")]
    Stale,
    /// It is not held, and the server did not respond in time.
    #[error("the server does not respond, and this is not in the cache")]
    Unreachable,
    /// It is not held, and another server is where the server was.
    #[error("another server is there, and this is not in the cache")]
    AnotherServer,
    /// The node is of another kind, or unknown.
    #[error("not possible with this kind of file")]
    WrongKind,
    /// The server's answers make no sense.
    #[error("the server's answers make no sense")]
    Protocol,
    /// A listing failed.
    #[error(transparent)]
    Listing(TransferError),
}

/// Counters, and what is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Operations begun.
    pub operations: u64,
    /// Operations that were answered without a call.
    pub without_calls: u64,
    /// Calls made.
    pub calls: u64,
    /// Operations answered with what could not be confirmed.
    pub stale_answers: u64,
    /// Bytes of file data held.
    pub held_bytes: u64,
    /// Bytes of file data that were fetched before anybody asked.
    pub prefetched_bytes: u64,
    /// Objects known.
    pub objects: usize,
}
