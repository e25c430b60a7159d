//! Where the bytes lie.

use std::collections::BTreeMap;

use bytes::Bytes;
use thiserror::Error;

use crate::ids::NodeId;

/// There is no room for a grain; it is served without being held.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("no room in the cache's store")]
pub struct StoreFull;

/// What a lasting store keeps of an object beside its grains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Names it: two versions of a file have different keys.
    pub key: &'a [u8],
    /// What the cache wants back from [`Store::recall`].
    pub body: Bytes,
    /// Where the object lies below the root, its names joined by `/`, as far as that is known.
    pub path: Option<&'a [u8]>,
    /// It stays when room is made.
    pub pinned: bool,
}

/// Holds grains: whole pieces of [`GRAIN_BYTES`](crate::GRAIN_BYTES) of files, the last one of a file maybe shorter.
///
/// The cache decides which are held, and of which version: a node has one version for as long as it lives. A store that finds a grain
/// damaged says that it does not have it.
///
/// A *lasting* store also keeps records, and grains, when the cache ends, for a later cache of the same root. It may lose some of
/// both at any time; what it returns is what was put or kept.
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

    /// Whether it keeps anything for a later cache. The methods below are only called if so.
    fn is_lasting(&self) -> bool {
        false
    }

    /// Records that a node is the object with this key, and returns what was kept of that last. Called before any other method with
    /// the node. While another node has the key, of an earlier version with the same times, nothing is held of this one.
    fn recall(&mut self, _node: NodeId, _key: &[u8]) -> Option<Bytes> {
        None
    }

    /// Returns how many grains of a node were kept: a record that claims more is not believed.
    fn grains(&self, _node: NodeId) -> u64 {
        0
    }

    /// Records that a node has another key now: its attributes have changed, its bytes have not, or only behind their old end. What was
    /// kept with the new key before is of no use.
    fn rename(&mut self, _node: NodeId, _key: &[u8]) {}

    /// Keeps a record in the place of an older one with the same key, together with the grains held of that node.
    fn keep(&mut self, _node: NodeId, _record: &Record<'_>) {}

    /// Keeps nothing of an object for a later cache any more. Its grains stay for this one.
    fn retire(&mut self, _key: &[u8]) {}

    /// Forgets a node. What is kept with this key stays, or goes if `discard` says so.
    fn release(&mut self, _node: NodeId, _key: &[u8], _discard: bool) {}

    /// Drops what is kept and was not recalled, what was used longest ago first, until that has freed so many bytes; returns how many.
    fn spare(&mut self, _bytes: u64) -> u64 {
        0
    }

    /// Returns how many bytes of grains are kept that were not recalled.
    fn idle_bytes(&self) -> u64 {
        0
    }

    /// Returns how many bytes should be dropped before it has room again, whatever the limit of the cache.
    fn wanted_bytes(&self) -> u64 {
        0
    }
}

/// Holds grains in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    grains: BTreeMap<(NodeId, u64), Bytes>,
}

impl Store for MemoryStore {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        // A copy: the grain may be a part of a longer reply, all of which would stay.
        self.grains.insert((node, grain), Bytes::copy_from_slice(data));
        Ok(())
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        self.grains.get(&(node, grain)).cloned()
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        self.grains.remove(&(node, grain));
    }
}
