//! Holds grains and records in files.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;
use nfs_cache::{NodeId, Record, Store, StoreFull};
use rustix::io::Errno;

use super::{
    entry::{self, Entry, Name, Sum, offset, open, open_to_read},
    home::Root,
    idle::Idle,
    writer::{Job, Writer, Written},
};

/// Data files open at once.
const MOST_OPEN: usize = 64;

/// Grains that were just written and are still in memory, 4 MiB: twice what is fetched ahead of a reader.
const RECENT: usize = 64;

/// Bytes written after which the space left on the disk is looked at again.
const LOOK_BYTES: u64 = 8 << 20;

/// Space that is left to others: this part of the file system, but no more than `MOST_FREE_BYTES`.
const FREE_PART: u64 = 20;
const MOST_FREE_BYTES: u64 = 1 << 30;

/// What is dropped, at least, when the disk is full: not every grain is to drop something.
const MAKE_BYTES: u64 = 1 << 20;

/// A lasting store in the directory of a root.
#[derive(Debug)]
pub(crate) struct DiskStore {
    root: Root,
    nodes: BTreeMap<NodeId, Held>,
    names: BTreeMap<Name, NodeId>,
    idle: Idle,
    opened: VecDeque<NodeId>,
    writer: Writer,
    /// What is to be written, with the numbers of the latest jobs. It counts as held, and is read from here.
    unwritten: BTreeMap<(NodeId, u64), (u64, Bytes)>,
    next_job: u64,
    /// The last grain could not be written: it is waited for whether others can.
    is_failing: bool,
    /// What was written last: whoever waited for it reads it now.
    recent: VecDeque<(NodeId, u64, Bytes)>,
    /// Bytes written since the space was looked at; `None` before the first look.
    written: Option<u64>,
    wanted: u64,
    /// What the cache has done away with in a place where it is not deleted.
    gone: BTreeSet<Name>,
}

/// An object that is in use.
#[derive(Debug)]
struct Held {
    name: Name,
    path: Option<Vec<u8>>,
    file: Option<Arc<File>>,
    sums: BTreeMap<u64, Sum>,
}

impl DiskStore {
    /// Opens what is held of a root.
    pub(crate) fn new(root: Root) -> Self {
        // What stays whatever happens takes no room from others.
        let idle = if root.is_read_only { Idle::default() } else { Idle::look(&root.objects()) };
        Self {
            root,
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            idle,
            opened: VecDeque::new(),
            writer: Writer::start(),
            unwritten: BTreeMap::new(),
            next_job: 0,
            is_failing: false,
            recent: VecDeque::new(),
            written: None,
            wanted: 0,
            gone: BTreeSet::new(),
        }
    }

    /// Returns the data file of a node, open.
    fn file(&mut self, node: NodeId) -> Option<io::Result<&Arc<File>>> {
        let held = self.nodes.get(&node)?;
        if held.file.is_none() {
            let open = if self.root.is_read_only { open_to_read } else { open };
            let file = match open(&held.name.data(&self.root.objects())) {
                Ok(file) => Arc::new(file),
                Err(error) => return Some(Err(error)),
            };
            self.nodes.get_mut(&node)?.file = Some(file);
            self.opened.push_back(node);
            while self.opened.len() > MOST_OPEN {
                let closed = self.opened.pop_front().and_then(|node| self.nodes.get_mut(&node));
                if let Some(held) = closed {
                    held.file = None;
                }
            }
        }
        self.nodes.get(&node)?.file.as_ref().map(Ok)
    }

    /// Looks now and then whether the disk has room for more.
    fn has_space(&mut self, bytes: u64) -> bool {
        let written = self.written.map_or(LOOK_BYTES, |written| written + bytes);
        self.written = Some(written);
        if written < LOOK_BYTES && self.wanted == 0 {
            return true;
        }
        // Whoever cannot tell is believed to have room.
        let Ok(space) = rustix::fs::statvfs(self.root.path()) else { return true };
        let (block, all) = (space.f_frsize, space.f_blocks);
        let free = space.f_bavail * block;
        let kept = (all * block / FREE_PART).min(MOST_FREE_BYTES);
        self.wanted = if free < kept + bytes { (kept + bytes - free).max(MAKE_BYTES) } else { 0 };
        if self.wanted == 0 {
            self.written = Some(0);
        }
        self.wanted == 0
    }

    /// Removes both files of an object.
    fn delete(&mut self, name: Name) {
        if self.root.is_read_only {
            self.disown(name);
        } else {
            name.delete(&self.root.objects());
        }
    }

    /// Remembers that what stays on the disk is not to be used.
    fn disown(&mut self, name: Name) {
        if name.record(&self.root.objects()).exists() {
            self.gone.insert(name);
        }
    }

    /// Takes in what was written.
    fn take_written(&mut self) {
        for Written { number, node, grain, sum } in self.writer.take_written() {
            // Later bytes are to be written in this place, or it was given up.
            if self.unwritten.get(&(node, grain)).is_none_or(|(latest, _)| *latest != number) {
                continue;
            }
            let Some((_, data)) = self.unwritten.remove(&(node, grain)) else { continue };
            self.forget_recent(node, Some(grain));
            self.recent.push_back((node, grain, data));
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
            self.is_failing = sum.is_err();
            match (sum, self.nodes.get_mut(&node)) {
                (Ok(sum), Some(held)) => _ = held.sums.insert(grain, sum),
                (Ok(_), None) => {}
                (Err(error), _) => {
                    if matches!(Errno::from_io_error(&error), Some(Errno::NOSPC | Errno::DQUOT)) {
                        self.wanted = MAKE_BYTES;
                    }
                    tracing::debug!(%error, "the cache cannot be written to");
                }
            }
        }
    }

    /// Waits until all of a node is written.
    fn settle(&mut self, node: NodeId) {
        if self.waiting(node).next().is_some() {
            self.writer.settle();
        }
        self.take_written();
    }

    /// Returns the lengths of the grains of a node that wait to be written.
    fn waiting(&self, node: NodeId) -> impl Iterator<Item = u64> {
        self.unwritten.range((node, 0)..=(node, u64::MAX)).map(|(_, (_, data))| data.len() as u64)
    }

    /// Forgets what was written of a node last: one grain, or all.
    fn forget_recent(&mut self, node: NodeId, grain: Option<u64>) {
        self.recent.retain(|(of, at, _)| *of != node || grain.is_some_and(|grain| grain != *at));
    }

    fn close(&mut self, node: NodeId) -> Option<Held> {
        let held = self.nodes.remove(&node)?;
        self.unwritten.retain(|(of, _), _| *of != node);
        self.forget_recent(node, None);
        self.names.remove(&held.name);
        if held.file.is_some() {
            self.opened.retain(|opened| *opened != node);
        }
        Some(held)
    }
}

impl Store for DiskStore {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        let is_known = self.nodes.contains_key(&node);
        if !is_known || self.root.is_read_only || !self.has_space(data.len() as u64) {
            return Err(StoreFull);
        }
        let file = match self.file(node) {
            Some(Ok(file)) => Arc::clone(file),
            Some(Err(error)) => {
                tracing::debug!(%error, "the cache cannot be written to");
                return Err(StoreFull);
            }
            None => return Err(StoreFull),
        };
        // What it was is not there any more.
        self.nodes.get_mut(&node).ok_or(StoreFull)?.sums.remove(&grain);
        let number = self.next_job;
        self.next_job += 1;
        self.unwritten.insert((node, grain), (number, data.clone()));
        self.writer.write(Job { number, node, grain, file, data: data.clone() });
        let was_failing = self.is_failing;
        if was_failing {
            self.settle(node);
        }
        self.take_written();
        if was_failing && self.is_failing {
            self.forget_recent(node, Some(grain));
            return Err(StoreFull);
        }
        Ok(())
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        if let Some((_, data)) = self.unwritten.get(&(node, grain)) {
            return Some(data.clone());
        }
        if let Some((_, _, data)) = self.recent.iter().find(|(of, at, _)| (*of, *at) == (node, grain)) {
            return Some(data.clone());
        }
        self.take_written();
        let sum = *self.nodes.get(&node)?.sums.get(&grain)?;
        let mut data = vec![0; sum.length()];
        self.file(node)?.ok()?.read_exact_at(&mut data, offset(grain)).ok()?;
        // Whatever has become of it: the disk may have lost it, and a crash may have left a hole.
        if Sum::of(&data) != sum {
            tracing::debug!(grain, "data in the cache is damaged");
            return None;
        }
        Some(data.into())
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        self.take_written();
        self.unwritten.remove(&(node, grain));
        self.forget_recent(node, Some(grain));
        let is_last = self.waiting(node).next().is_none();
        let Some(held) = self.nodes.get_mut(&node) else { return };
        held.sums.remove(&grain);
        if held.sums.is_empty() && is_last {
            let name = held.name;
            if held.file.take().is_some() {
                self.opened.retain(|opened| *opened != node);
            }
            self.delete(name);
        } else if self.root.is_read_only {
            let name = held.name;
            self.disown(name);
        }
    }

    fn is_lasting(&self) -> bool {
        true
    }

    fn recall(&mut self, node: NodeId, key: &[u8]) -> Option<Bytes> {
        let name = Name::of(key);
        match self.names.get(&name) {
            Some(&other) if other != node => return None,
            Some(_) | None => {}
        }
        self.names.insert(name, node);
        self.idle.take(name);
        let objects = self.root.objects();
        let entry = Entry::read(&objects, name).filter(|_| !self.gone.contains(&name));
        if !self.root.is_read_only && entry.as_ref().is_some_and(|entry| !entry.sums.is_empty()) {
            // What is used stays longest.
            let used =
                File::open(name.record(&objects)).and_then(|file| file.set_modified(SystemTime::now()));
            let _ = used;
        }
        let Entry { path, body, sums, .. } = entry.clone().unwrap_or_default();
        self.nodes.insert(node, Held { name, path, file: None, sums });
        entry.map(|_| body)
    }

    fn grains(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |held| held.sums.len() as u64)
    }

    fn rename(&mut self, node: NodeId, key: &[u8]) {
        let (objects, name) = (self.root.objects(), Name::of(key));
        let Some(before) = self.nodes.get(&node).map(|held| held.name).filter(|before| *before != name)
        else {
            return;
        };
        // What was kept with this name before.
        self.idle.take(name);
        let is_free = !self.names.contains_key(&name);
        let renamed = is_free && {
            name.delete(&objects);
            let renamed = entry::rename(&before.data(&objects), &name.data(&objects));
            // Where nothing was written there is no file.
            renamed.is_ok() || renamed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if !renamed {
            // Nothing is held of it then: what is missing is fetched.
            before.delete(&objects);
            self.close(node);
            return;
        }
        let _ = fs::remove_file(before.record(&objects));
        self.names.remove(&before);
        self.names.insert(name, node);
        if let Some(held) = self.nodes.get_mut(&node) {
            held.name = name;
        }
    }

    fn keep(&mut self, node: NodeId, record: &Record<'_>) {
        // A record claims no more than there is.
        self.settle(node);
        let objects = self.root.objects();
        let Some(held) = self.nodes.get_mut(&node) else { return };
        if held.name != Name::of(record.key) || self.root.is_read_only {
            return;
        }
        held.path = record.path.map(<[u8]>::to_vec).or_else(|| held.path.take());
        let (path, sums) = (held.path.clone(), held.sums.clone());
        let entry = Entry { path, pinned: record.pinned, body: record.body.clone(), sums };
        // The older record claims no more than there is.
        if let Err(error) = entry.write(&objects, held.name) {
            tracing::debug!(%error, "the cache cannot be written to");
        }
    }

    fn retire(&mut self, key: &[u8]) {
        let name = Name::of(key);
        if self.root.is_read_only {
            self.disown(name);
        } else {
            let _ = fs::remove_file(name.record(&self.root.objects()));
        }
    }

    fn release(&mut self, node: NodeId, key: &[u8], discard: bool) {
        let name = Name::of(key);
        self.take_written();
        let waiting: u64 = self.waiting(node).sum();
        let written = |held: Held| held.sums.values().map(|sum| sum.length() as u64).sum::<u64>();
        let bytes = waiting + self.close(node).map_or(0, written);
        if self.names.contains_key(&name) {
            return;
        }
        if discard {
            self.idle.take(name);
            self.delete(name);
        } else if bytes > 0 && !self.root.is_read_only {
            self.idle.put(name, bytes);
        }
    }

    fn spare(&mut self, bytes: u64) -> u64 {
        let objects = self.root.objects();
        let pins = self.root.pins();
        let mut spared = 0;
        for (name, length) in self.idle.oldest() {
            if spared >= bytes {
                break;
            }
            if Entry::read(&objects, name).is_some_and(|entry| entry.is_pinned(&pins)) {
                continue;
            }
            self.idle.take(name);
            name.delete(&objects);
            spared += length;
        }
        spared
    }

    fn idle_bytes(&self) -> u64 {
        self.idle.bytes()
    }

    fn wanted_bytes(&self) -> u64 {
        self.wanted
    }
}

#[cfg(test)]
#[path = "disk/tests.rs"]
mod tests;
