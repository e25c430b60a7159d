//! A read-only view of an NFSv3 server that survives the link: names, attributes and data, served while it cannot be reached.
//!
//! [`Cache`] is a machine without sockets, clocks and threads. A front (FUSE, a server for loopback mounts, a test) gives it
//! operations; it says which calls it wants made, and completes operations as replies come in or deadlines pass.
//!
//! # What is promised
//!
//! - *Three answers.* The server's word changes what is known: present, or absent. That it could not be asked changes nothing.
//! - *Close-to-open.* While the server answers, who opens a file gets what its name led to at that moment, in the version that it
//!   had then, or a later one (Howard et al. 1988). That costs one round trip: of a file that is not held, the first READ goes with
//!   the question.
//! - *One open, one version.* The bytes of two versions are never mixed: when the file has changed on the server, a read of what
//!   is not held fails as stale, and the next open has the new version, under another [`NodeId`].
//! - *Names* that are not opened are at most [`CacheConfig::longest_ttl`] old while the server answers.
//! - *Every operation ends*, at the latest after [`CacheConfig::wait`].
//!
//! # What is not
//!
//! NFSv3 knows versions by their size and times. Two versions of the same size whose changes lie within one tick of the server's clock
//! cannot be told apart while the file stays open. A later open reads such data again: what was fetched less than
//! [`CacheConfig::racy`] after the file changed proves nothing.

#![forbid(unsafe_code)]

mod answers;
mod cache;
mod call;
mod calls;
mod config;
mod data;
mod directory;
mod freshness;
mod handle;
mod heads;
mod ids;
mod object;
mod path;
mod rate;
mod reachability;
mod record;
mod server_clock;
mod store;
mod tree;
mod version;

pub use self::{
    answers::{Answer, Event, Failure, ListEntry, Stats},
    cache::{Cache, Wanted},
    call::{Outcome, Transmit},
    config::CacheConfig,
    data::GRAIN_BYTES,
    ids::{CallId, NodeId, OpenId, OperationId},
    object::{Identity, State},
    store::{MemoryStore, Record, Store, StoreFull},
};
