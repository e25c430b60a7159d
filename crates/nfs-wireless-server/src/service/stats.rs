//! What a service counts.

use crate::vfs::NodeId;

/// Counters of a [`Service`](crate::Service), since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls whose header could be read, retransmissions and faults included.
    pub calls: u64,
    /// Messages that are no calls.
    pub malformed: u64,
    /// Calls answered with an RPC rejection.
    pub rejected: u64,
    /// Retransmissions answered from the duplicate request cache.
    pub replayed: u64,
    /// Retransmissions dropped because the call was still being served.
    pub in_progress: u64,
    /// Calls dropped because too many were waiting for a thread.
    pub overflowed: u64,
    /// Calls from addresses that may be forged, whose replies are bounded.
    pub unvalidated: u64,
    /// Calls lost to a fault.
    pub dropped_calls: u64,
    /// Replies lost to a fault.
    pub dropped_replies: u64,
    /// NFS calls served, by procedure number.
    pub served: [u64; 22],
    /// Bytes of file data in READ replies.
    pub read_bytes: u64,
    /// What was read last ([`Vfs::path`](crate::Vfs::path) says where it is).
    pub last_read: Option<NodeId>,
    /// Bytes of file data in WRITE calls that succeeded.
    pub written_bytes: u64,
}
