//! Where the bytes lie.

use std::collections::BTreeMap;

use bytes::Bytes;
use thiserror::Error;

use crate::object::NodeId;

/// There is no room for a grain; it is served without being held.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("no room in the cache's store")]
pub struct StoreFull;

/// Holds grains: whole pieces of [`GRAIN_BYTES`](crate::GRAIN_BYTES) of files, the last one of a file maybe shorter.
///
/// The cache decides which are held, and of which version: a node has one version for as long as it lives. A store that finds a grain
/// damaged says that it does not have it.
pub trait Store {
    /// Holds a grain, which replaces an older one.
    ///
    /// # Errors
    /// [`StoreFull`] when there is no room; then it is not held.
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull>;

    /// Returns a grain exactly as it was put, or nothing.
    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes>;

    /// Drops a grain.
    fn remove(&mut self, node: NodeId, grain: u64);
}

/// Holds grains in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    grains: BTreeMap<(NodeId, u64), Bytes>,
}

impl Store for MemoryStore {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        self.grains.insert((node, grain), data.clone());
        Ok(())
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        self.grains.get(&(node, grain)).cloned()
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        self.grains.remove(&(node, grain));
    }
}
