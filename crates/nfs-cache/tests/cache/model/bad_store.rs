//! A store that fails now and then.

use bytes::Bytes;
use nfs_cache::{NodeId, Record, Store, StoreFull};
use rand_chacha::ChaCha8Rng;

use super::{below, disk::Disk};

/// Loses grains, and has no room for some.
#[derive(Debug)]
pub(crate) struct BadStore {
    pub(crate) store: Disk,
    pub(crate) random: ChaCha8Rng,
    pub(crate) is_bad: bool,
}

impl Store for BadStore {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        if self.is_bad && below(&mut self.random, 10) == 0 {
            return Err(StoreFull);
        }
        self.store.put(node, grain, data)
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        if self.is_bad && below(&mut self.random, 30) == 0 {
            return None;
        }
        self.store.get(node, grain)
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        self.store.remove(node, grain);
    }

    fn is_lasting(&self) -> bool {
        self.store.is_lasting()
    }

    fn recall(&mut self, node: NodeId, key: &[u8]) -> Option<Bytes> {
        self.store.recall(node, key)
    }

    fn grains(&self, node: NodeId) -> u64 {
        self.store.grains(node)
    }

    fn rename(&mut self, node: NodeId, key: &[u8]) {
        self.store.rename(node, key);
    }

    fn keep(&mut self, node: NodeId, record: &Record<'_>) {
        self.store.keep(node, record);
    }

    fn retire(&mut self, key: &[u8]) {
        self.store.retire(key);
    }

    fn release(&mut self, node: NodeId, key: &[u8], discard: bool) {
        self.store.release(node, key, discard);
    }

    fn spare(&mut self, bytes: u64) -> u64 {
        self.store.spare(bytes)
    }

    fn idle_bytes(&self) -> u64 {
        self.store.idle_bytes()
    }

    fn wanted_bytes(&self) -> u64 {
        u64::from(self.is_bad) * 1000
    }
}
