//! What lies on the disk and was not asked for since the mount began.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::SystemTime,
};

use super::entry::{Name, listed};

/// Versions of files whose data is held, and which of them are in use. A thread looks through the directory, so that a mount is there
/// at once, however much it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<Name, (SystemTime, u64)>,
    bytes: u64,
    /// What was asked for before it was seen.
    taken: BTreeSet<Name>,
    is_complete: bool,
}

impl Idle {
    /// Begins to look through a directory.
    pub(super) fn look(objects: &Path) -> Self {
        let idle = Self::default();
        let (own, objects, begun) = (idle.clone(), objects.to_owned(), SystemTime::now());
        let look = move || own.look_through(&objects, begun);
        // Without the thread old data is not found, and stays.
        let _ = thread::Builder::new().name("nfsw-cache".to_owned()).spawn(look);
        idle
    }

    fn look_through(&self, objects: &Path, begun: SystemTime) {
        let mut records = BTreeMap::new();
        let mut data = Vec::new();
        for file in listed(objects) {
            let Ok(modified) = file.metadata.modified() else { continue };
            if file.is_record {
                records.insert(file.name, modified);
            } else {
                data.push((file.name, file.metadata.blocks() * 512, modified));
            }
        }
        for (name, bytes, modified) in data {
            let mut inner = self.lock();
            if inner.taken.contains(&name) {
                continue;
            }
            match records.get(&name) {
                Some(&used) => inner.add(name, used, bytes),
                // The record of what has changed goes first; a crash left the data.
                None if modified < begun => name.delete(objects),
                None => {}
            }
        }
        let mut inner = self.lock();
        inner.is_complete = true;
        inner.taken.clear();
    }

    /// Takes out what is in use from now on.
    pub(super) fn take(&self, name: Name) {
        let mut inner = self.lock();
        if let Some((_, bytes)) = inner.files.remove(&name) {
            inner.bytes -= bytes;
        } else if !inner.is_complete {
            inner.taken.insert(name);
        }
    }

    /// Puts in what is no longer in use.
    pub(super) fn put(&self, name: Name, bytes: u64) {
        self.lock().add(name, SystemTime::now(), bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns all of it, what was used longest ago first.
    pub(super) fn oldest(&self) -> Vec<(Name, u64)> {
        let mut all: Vec<_> =
            self.lock().files.iter().map(|(&name, &(used, bytes))| (used, name, bytes)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, name, bytes)| (name, bytes)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the directory was looked through.
    #[cfg(test)]
    pub(super) fn is_complete(&self) -> bool {
        self.lock().is_complete
    }
}

impl Inner {
    fn add(&mut self, name: Name, used: SystemTime, bytes: u64) {
        if let Some((_, before)) = self.files.insert(name, (used, bytes)) {
            self.bytes -= before;
        }
        self.bytes += bytes;
    }
}
