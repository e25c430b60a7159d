//! What `nfsw mount` holds on the disk of this machine, for later mounts of the same directory of the same server.
//!
//! Every directory that was ever mounted has a [`Root`] in the cache directory, named by the identity of its server's root, so that
//! another server at the same address has another one. In it lie records and data of objects, which `DiskStore` reads and writes
//! for an [`nfs_cache::Cache`].
//!
//! The format is not that of partial files, though both store ranges of sparse files. A partial file will be completed and renamed, so
//! what its journal claims is flushed first. What is held is only read again and never flushed: it has a hash for each grain, and data
//! that does not match counts as missing.

mod disk;
pub(crate) mod entry;
pub(crate) mod home;
mod idle;
mod writer;

use bytes::Bytes;
use nfs_cache::{MemoryStore, NodeId, Record, Store, StoreFull};

pub(crate) use self::{
    disk::DiskStore,
    home::{keep_space, pins, space},
};
pub use self::{
    entry::{Entry, is_below},
    home::{Home, Root},
};

/// Where the bytes of a mount lie.
#[derive(Debug)]
pub(crate) enum Holder {
    /// They end with the mount.
    Memory(MemoryStore),
    Disk(Box<DiskStore>),
}

macro_rules! either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => $call,
            Self::Disk($store) => $call,
        }
    };
}

impl Store for Holder {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        either!(self, store => store.put(node, grain, data))
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        either!(self, store => store.get(node, grain))
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        either!(self, store => store.remove(node, grain));
    }

    fn is_lasting(&self) -> bool {
        either!(self, store => store.is_lasting())
    }

    fn recall(&mut self, node: NodeId, key: &[u8]) -> Option<Bytes> {
        either!(self, store => store.recall(node, key))
    }

    fn grains(&self, node: NodeId) -> u64 {
        either!(self, store => store.grains(node))
    }

    fn rename(&mut self, node: NodeId, key: &[u8]) {
        either!(self, store => store.rename(node, key));
    }

    fn keep(&mut self, node: NodeId, record: &Record<'_>) {
        either!(self, store => store.keep(node, record));
    }

    fn retire(&mut self, key: &[u8]) {
        either!(self, store => store.retire(key));
    }

    fn release(&mut self, node: NodeId, key: &[u8], discard: bool) {
        either!(self, store => store.release(node, key, discard));
    }

    fn spare(&mut self, bytes: u64) -> u64 {
        either!(self, store => store.spare(bytes))
    }

    fn idle_bytes(&self) -> u64 {
        either!(self, store => store.idle_bytes())
    }

    fn wanted_bytes(&self) -> u64 {
        either!(self, store => store.wanted_bytes())
    }
}
