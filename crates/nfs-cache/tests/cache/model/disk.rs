//! A lasting store that is cut and damaged while no cache has it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use bytes::Bytes;
use nfs_cache::{MemoryStore, NodeId, Record, Store, StoreFull};
use rand_chacha::{ChaCha8Rng, rand_core::Rng};

use super::below;

type Key = Vec<u8>;

/// A record, and what the grains were when it was kept.
type Kept = (Bytes, BTreeMap<u64, Bytes>);

/// What outlasts a cache.
#[derive(Debug, Default)]
pub(crate) struct Platter {
    grains: BTreeMap<(Key, u64), Bytes>,
    /// All records that were kept with a key; the last one counts.
    records: BTreeMap<Key, Vec<Kept>>,
    pinned: BTreeSet<Key>,
}

/// A store on a platter; without one it does not last.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    platter: Option<Rc<RefCell<Platter>>>,
    memory: MemoryStore,
    nodes: BTreeMap<NodeId, Key>,
    sums: BTreeMap<NodeId, BTreeMap<u64, Bytes>>,
}

impl Platter {
    /// Loses and damages some of what was written, as crashes, bad disks and people do.
    pub(crate) fn damage(&mut self, random: &mut ChaCha8Rng) {
        for records in self.records.values_mut() {
            while below(random, 4) == 0 {
                records.pop();
            }
        }
        self.records.retain(|_, records| !records.is_empty());
        for data in self.grains.values_mut() {
            let mut damaged = data.to_vec();
            let at = random.next_u64() as usize % damaged.len().max(1);
            match below(random, 20) {
                0 => damaged.fill(0),
                1 => damaged.truncate(at),
                2 if !damaged.is_empty() => damaged[at] ^= 1 << below(random, 8),
                3 => damaged.clear(),
                _ => continue,
            }
            *data = damaged.into();
        }
    }
}

impl Disk {
    pub(crate) fn on(platter: &Rc<RefCell<Platter>>) -> Self {
        Self { platter: Some(Rc::clone(platter)), ..Self::default() }
    }

    fn delete(platter: &mut Platter, key: &Key) {
        platter.records.remove(key);
        platter.grains.retain(|(of, _), _| of != key);
    }

    fn idle(&self) -> Vec<(Key, u64)> {
        let Some(platter) = &self.platter else { return Vec::new() };
        let platter = platter.borrow();
        let idle = platter.records.iter().filter(|(key, _)| self.nodes.values().all(|it| it != *key));
        let bytes = |records: &Vec<Kept>| {
            records.last().map_or(0, |(_, sums)| sums.values().map(|data| data.len() as u64).sum())
        };
        idle.map(|(key, records)| (key.clone(), bytes(records))).filter(|(_, bytes)| *bytes > 0).collect()
    }
}

impl Store for Disk {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        let Some(platter) = &self.platter else { return self.memory.put(node, grain, data) };
        let key = self.nodes.get(&node).ok_or(StoreFull)?;
        platter.borrow_mut().grains.insert((key.clone(), grain), data.clone());
        self.sums.entry(node).or_default().insert(grain, data.clone());
        Ok(())
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        let Some(platter) = &self.platter else { return self.memory.get(node, grain) };
        let key = self.nodes.get(&node)?;
        let data = platter.borrow().grains.get(&(key.clone(), grain)).cloned()?;
        (self.sums.get(&node)?.get(&grain)? == &data).then_some(data)
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        let Some(platter) = &self.platter else { return self.memory.remove(node, grain) };
        let sums = self.sums.entry(node).or_default();
        sums.remove(&grain);
        if let Some(key) = self.nodes.get(&node).filter(|_| sums.is_empty()) {
            Self::delete(&mut platter.borrow_mut(), key);
        }
    }

    fn is_lasting(&self) -> bool {
        self.platter.is_some()
    }

    fn recall(&mut self, node: NodeId, key: &[u8]) -> Option<Bytes> {
        let platter = self.platter.as_ref()?.borrow();
        // Another node has the grains of this key: an earlier one with the same times.
        if self.nodes.iter().any(|(of, it)| *of != node && it == key) {
            return None;
        }
        self.nodes.insert(node, key.to_vec());
        let (body, sums) = platter.records.get(key)?.last()?;
        self.sums.insert(node, sums.clone());
        Some(body.clone())
    }

    fn grains(&self, node: NodeId) -> u64 {
        self.sums.get(&node).map_or(0, |sums| sums.len() as u64)
    }

    fn rename(&mut self, node: NodeId, key: &[u8]) {
        let Some(platter) = &self.platter else { return };
        let Some(before) = self.nodes.remove(&node).filter(|before| before != key) else { return };
        let platter = &mut platter.borrow_mut();
        if self.nodes.values().any(|it| it == key) {
            self.sums.remove(&node);
            return Self::delete(platter, &before);
        }
        Self::delete(platter, &key.to_vec());
        platter.records.remove(&before);
        let grains = std::mem::take(&mut platter.grains);
        let renamed = |((of, grain), data)| ((if of == before { key.to_vec() } else { of }, grain), data);
        platter.grains = grains.into_iter().map(renamed).collect();
        self.nodes.insert(node, key.to_vec());
    }

    fn keep(&mut self, node: NodeId, record: &Record<'_>) {
        let Some(platter) = &self.platter else { return };
        if self.nodes.get(&node).is_none_or(|key| key != record.key) {
            return;
        }
        let sums = self.sums.get(&node).cloned().unwrap_or_default();
        let mut platter = platter.borrow_mut();
        match record.pinned {
            true => _ = platter.pinned.insert(record.key.to_vec()),
            false => _ = platter.pinned.remove(record.key),
        }
        platter.records.entry(record.key.to_vec()).or_default().push((record.body.clone(), sums));
    }

    fn retire(&mut self, key: &[u8]) {
        if let Some(platter) = &self.platter {
            platter.borrow_mut().records.remove(key);
        }
    }

    fn release(&mut self, node: NodeId, key: &[u8], discard: bool) {
        self.sums.remove(&node);
        self.nodes.remove(&node);
        let is_used = self.nodes.values().any(|it| it == key);
        if let Some(platter) = self.platter.as_ref().filter(|_| discard && !is_used) {
            Self::delete(&mut platter.borrow_mut(), &key.to_vec());
        }
    }

    fn spare(&mut self, bytes: u64) -> u64 {
        let mut spared = 0;
        for (key, length) in self.idle() {
            let platter = self.platter.as_ref().expect("it is idle");
            if spared >= bytes {
                break;
            }
            if platter.borrow().pinned.contains(&key) {
                continue;
            }
            spared += length;
            Self::delete(&mut platter.borrow_mut(), &key);
        }
        spared
    }

    fn idle_bytes(&self) -> u64 {
        self.idle().iter().map(|(_, bytes)| bytes).sum()
    }
}
