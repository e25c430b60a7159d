//! What a lasting store is given to keep, and what comes back from it.
//!
//! A record of a directory has its names, and the attributes of what they lead to; one of a file says which grains are held. Records
//! are read when somebody asks for the names of a directory or the data of a file, so that a cache of any size is there at once. What
//! comes back has [`CallId::KEPT`]: it is older than whatever the server said since, and stale until the server is asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_proto::attr::FileType;
use nfs_wire::FileHandle;

use super::Tree;
use crate::{
    data::{Pages, grain_length},
    directory::{Directory, Edge, Name, Source, Target},
    handle::SharedHandle,
    ids::{CallId, NodeId},
    object::{Entry, Kind, Object},
    record::{self, KeptChild, KeptDirectory, KeptFile, KeptName, Subject},
    store::{Record, Store},
};

/// How long after a change its record is written: a burst of changes is written once.
const SOON: Duration = Duration::from_secs(1);

/// How long after the server has confirmed what is kept.
const LATER: Duration = Duration::from_secs(60);

/// Names of a directory for which its record waits another [`SOON`].
const MANY_NAMES: usize = 10_000;

/// Objects whose records differ from what is known, and when these are to be written.
#[derive(Debug, Default)]
pub(super) struct Unkept {
    due: BTreeMap<NodeId, Instant>,
    order: BTreeSet<(Instant, NodeId)>,
}

impl Unkept {
    fn add(&mut self, node: NodeId, at: Instant) {
        match self.due.get(&node) {
            Some(&due) if due <= at => return,
            Some(&due) => _ = self.order.remove(&(due, node)),
            None => {}
        }
        self.due.insert(node, at);
        self.order.insert((at, node));
    }

    pub(super) fn remove(&mut self, node: NodeId) -> bool {
        let Some(due) = self.due.remove(&node) else { return false };
        self.order.remove(&(due, node))
    }

    fn first(&self) -> Option<(Instant, NodeId)> {
        self.order.first().copied()
    }
}

impl<S: Store> Tree<S> {
    /// Returns when [`Tree::keep`] is to be called next.
    pub(crate) fn next_keep(&self) -> Option<Instant> {
        self.unkept.first().map(|(at, _)| at)
    }

    /// Gives the store records that are due, so many at most.
    pub(crate) fn keep(&mut self, most: usize) {
        for _ in 0..most {
            match self.unkept.first() {
                Some((at, node)) if at <= self.freshness.now() => self.keep_object(node),
                Some(_) | None => break,
            }
        }
    }

    /// Gives the store all records that it does not have.
    pub(crate) fn keep_all(&mut self) {
        while let Some((_, node)) = self.unkept.first() {
            self.keep_object(node);
        }
    }

    /// Records that the record of an object is to be written after a change.
    pub(crate) fn changed(&mut self, node: NodeId) {
        self.unkept_after(node, SOON);
    }

    /// Records that the server has confirmed what the record of an object says.
    pub(super) fn confirmed(&mut self, node: NodeId) {
        self.unkept_after(node, LATER);
    }

    fn unkept_after(&mut self, node: NodeId, pause: Duration) {
        if !self.store.is_lasting() {
            return;
        }
        let names = self.objects.get(node).and_then(Object::directory).map_or(0, |it| it.names.len());
        self.unkept.add(node, self.freshness.now() + pause + SOON * (names / MANY_NAMES) as u32);
    }

    /// Records that the attributes of an object were told: its directory's record has them.
    pub(crate) fn told(&mut self, node: NodeId, is_change: bool) {
        let Some(object) = self.objects.get(node) else { return };
        let is_listed = object.directory().is_some_and(Directory::is_worth_keeping);
        for node in [is_listed.then_some(node), object.parent()].into_iter().flatten() {
            if is_change { self.changed(node) } else { self.confirmed(node) }
        }
    }

    fn keep_object(&mut self, node: NodeId) {
        self.unkept.remove(node);
        let Some(object) = self.objects.get(node) else { return };
        if object.over {
            return;
        }
        match object.kind {
            Kind::Directory(_) => self.keep_directory(node),
            Kind::File(_) => self.keep_file(node),
            Kind::Link(_) | Kind::Other => {}
        }
    }

    fn keep_directory(&mut self, node: NodeId) {
        // What was not asked for since the start stays in it, and so does what was forgotten.
        self.recall_names(node, true);
        let Some(object) = self.objects.get(node) else { return };
        let Some(directory) = object.directory().filter(|it| it.is_worth_keeping()) else { return };
        let own = object.known.metadata;
        let holds = |source: &Source| source.holds(&own);
        let name = |(name, edge): (&Name, &Edge)| {
            let child = |handle: &SharedHandle| {
                let (_, child) = self.objects.at(&handle.get())?;
                let link = match &child.kind {
                    Kind::Link(Some(known)) => Some(known.0.to_vec()),
                    _ => None,
                };
                let metadata = child.known.metadata;
                let asked = self.freshness.wall_at(child.known.asked_at);
                Some(KeptChild { metadata, asked, doubted: !child.is_led_to(edge), link })
            };
            let child = edge.target.handle().and_then(child);
            KeptName {
                name: Arc::clone(name),
                target: edge.target.clone(),
                proven: holds(&edge.source),
                child,
            }
        };
        // What a listing did not have is not there; nobody needs to be told twice.
        let is_needed = |(_, edge): &(&Name, &Edge)| {
            let is_told = |complete: &Arc<Source>| complete.call > edge.source.call;
            edge.target != Target::Absent || !directory.complete.as_ref().is_some_and(is_told)
        };
        let (handle, asked) = (object.handle(), self.freshness.wall_at(object.known.asked_at));
        let subject = Subject { handle, metadata: own, asked };
        let needed = || directory.names.iter().filter(is_needed);
        let complete = directory.complete.as_deref().map(holds);
        let bytes = |(name, edge): (&Name, &Edge)| {
            name.len() + edge.target.handle().map_or(0, |handle| handle.get().as_bytes().len())
        };
        let room = (needed().count(), needed().map(bytes).sum());
        let body = KeptDirectory::encode(&subject, complete, room, needed().map(name)).into();
        let (key, path) = (record::key(&handle, &own), self.path(node));
        let pinned = self.is_pinned(node);
        self.store.keep(node, &Record { key: &key, body, path: path.as_deref(), pinned });
    }

    fn keep_file(&mut self, node: NodeId) {
        self.recall_data(node);
        let Some(object) = self.objects.get(node) else { return };
        let Some(held) = object.held() else { return };
        if held.present.is_empty() {
            return;
        }
        let mut runs: Vec<(u64, u64, bool)> = Vec::new();
        for &grain in held.present.keys() {
            let proven = !held.unproven.contains_key(&grain);
            match runs.last_mut() {
                Some((_, end, is)) if *end == grain && *is == proven => *end += 1,
                _ => runs.push((grain, grain + 1, proven)),
            }
        }
        let metadata = object.known.metadata;
        let asked = self.freshness.wall_at(object.known.asked_at);
        let kept = KeptFile { subject: Subject { handle: object.handle(), metadata, asked }, runs };
        let (key, body, path) =
            (record::key(&kept.subject.handle, &metadata), kept.encode().into(), self.path(node));
        let pinned = self.is_pinned(node);
        self.store.keep(node, &Record { key: &key, body, path: path.as_deref(), pinned });
    }

    /// Takes in what the store has kept of a directory, where nothing later is known; again for what was forgotten since, if `all` is
    /// needed.
    pub(crate) fn recall_names(&mut self, node: NodeId, all: bool) {
        if !self.store.is_lasting() {
            return;
        }
        let Some(object) = self.objects.get_mut(node) else { return };
        let (handle, key, is_over) =
            (object.handle(), record::key(&object.handle(), &object.known.metadata), object.over);
        let Some(directory) = object.directory_mut() else { return };
        let was_recalled = std::mem::replace(&mut directory.recalled, true);
        if is_over || was_recalled && !(all && directory.lacks) {
            return;
        }
        directory.lacks = false;
        let Some(body) = self.store.recall(node, &key) else { return };
        let Some(kept) = KeptDirectory::decode(&body).filter(|kept| kept.subject.handle == handle) else {
            return;
        };
        let under = Arc::new(kept.subject.metadata);
        let asked_at = self.freshness.instant_of(kept.subject.asked);
        let (call, seen_at) = (CallId::KEPT, self.freshness.started());
        let source = |proven: bool| {
            let proven = proven.then(|| Arc::clone(&under));
            Arc::new(Source { call, asked_at, seen_at, proven })
        };
        let sources = [source(false), source(true)];
        let Some(directory) = self.objects.get_mut(node).and_then(Object::directory_mut) else { return };
        // All names that are known of a listing are later than these.
        if directory.complete.is_none() {
            let edge = |KeptName { name, target, proven, .. }| {
                let source = Arc::clone(&sources[usize::from(proven)]);
                (name, Edge { target, source })
            };
            // Of a name that comes twice the last one stays. A map that is made of all at once has no empty places.
            let known = std::mem::take(&mut directory.names);
            directory.names = kept.names.clone().map(edge).chain(known).collect();
        }
        let handle_of = |target: &Target| target.handle().map(SharedHandle::get);
        for KeptName { name, target, child, .. } in kept.names {
            let names = self.objects.get(node).and_then(Object::directory);
            let known = names.and_then(|directory| directory.names.get_key_value(&name));
            if let (Some(handle), Some(child), Some((name, edge))) = (handle_of(&target), child, known)
                && handle_of(&edge.target) == Some(handle)
            {
                let entry = Entry { directory: node, name: Arc::clone(name) };
                self.recall_child(entry, handle, child);
            }
        }
        if let Some(directory) = self.objects.get_mut(node).and_then(Object::directory_mut)
            && directory.complete.is_none()
        {
            directory.complete = kept.complete.map(source);
        }
    }

    fn recall_child(&mut self, entry: Entry, handle: FileHandle, child: KeptChild) {
        let KeptChild { metadata, asked, doubted, link } = child;
        self.counts_links |= metadata.file_type == FileType::Regular && metadata.links > 0;
        let known = self.freshness.kept(metadata, asked);
        let node = match self.objects.at(&handle) {
            Some((node, _)) => node,
            None => self.objects.insert(self.freshness.now(), handle, known),
        };
        let Some(object) = self.objects.get_mut(node) else { return };
        // Asked for again before the name is believed.
        if doubted || !object.known.metadata.is_same_version(&metadata) {
            object.changed_by = object.changed_by.max(CallId::FIRST);
        } else if let (Kind::Link(target @ None), Some(link)) = (&mut object.kind, link) {
            *target = Some(Box::new((Bytes::from(link), CallId::KEPT)));
        }
        if node != NodeId::ROOT {
            object.entry.get_or_insert(entry);
        }
    }

    /// Takes in which grains of a file the store has kept.
    pub(crate) fn recall_data(&mut self, node: NodeId) {
        if !self.store.is_lasting() {
            return;
        }
        let Some(object) = self.objects.get_mut(node) else { return };
        let (handle, metadata) = (object.handle(), object.known.metadata);
        let Some(held) = object.held_mut() else { return };
        if std::mem::replace(&mut held.recalled, true) {
            return;
        }
        let Some(body) = self.store.recall(node, &record::key(&handle, &metadata)) else { return };
        let Some(kept) = KeptFile::decode(&body) else { return };
        if kept.subject.handle != handle || !kept.subject.metadata.is_same_version(&metadata) {
            return;
        }
        // Whoever wrote the record: it has no more grains than there are.
        let mut left = self.store.grains(node);
        // Before any open of this cache.
        let started = self.freshness.started();
        let before = started.checked_sub(Duration::from_nanos(1)).unwrap_or(started);
        let Some(object) = self.objects.get_mut(node) else { return };
        if kept.runs.iter().any(|(.., proven)| !proven) {
            object.front.changes_mut().pages = Pages::Doubtful;
        }
        let Some(held) = object.held_mut() else { return };
        for (start, end, proven) in kept.runs {
            let end = end.min(start.saturating_add(left));
            left -= end - start;
            for grain in start..end {
                let length = grain_length(metadata.size, grain) as u32;
                self.held_bytes += u64::from(length);
                self.held_bytes -= u64::from(held.present.insert(grain, length).unwrap_or(0));
                if !proven {
                    held.unproven.insert(grain, before);
                }
            }
        }
    }

    /// Forgets an object, which the store keeps if it lasts: it comes back with the record of its directory.
    pub(super) fn put_away(&mut self, node: NodeId) {
        if !self.store.is_lasting() {
            self.drop_data(node);
            self.objects.remove(node);
            return;
        }
        let parent = self.objects.get(node).and_then(Object::parent);
        for node in [Some(node), parent].into_iter().flatten() {
            if self.unkept.due.contains_key(&node) {
                self.keep_object(node);
            }
        }
        if let Some(directory) =
            parent.and_then(|parent| self.objects.get_mut(parent)).and_then(Object::directory_mut)
        {
            directory.lacks = true;
        }
        if let Some(object) = self.objects.remove(node) {
            let lengths = object.held().into_iter().flat_map(|held| held.present.values());
            self.held_bytes -= lengths.map(|&length| u64::from(length)).sum::<u64>();
            let key = record::key(&object.handle(), &object.known.metadata);
            self.store.release(node, &key, object.over);
            self.loose.retain(|(of, ..)| *of != node);
        }
    }

    /// The attributes of a file have changed, and its data is still its own: the store keeps it under another key.
    pub(super) fn rename_kept(&mut self, node: NodeId) {
        if self.store.is_lasting()
            && let Some(object) = self.objects.get(node)
            && object.held().is_some_and(|held| held.recalled)
        {
            self.store.rename(node, &record::key(&object.handle(), &object.known.metadata));
            self.changed(node);
        }
    }

    /// Nothing of an object that is over is kept.
    pub(super) fn retire(&mut self, node: NodeId) {
        self.unkept.remove(node);
        if self.store.is_lasting()
            && let Some(object) = self.objects.get(node)
        {
            self.store.retire(&record::key(&object.handle(), &object.known.metadata));
        }
    }
}

#[cfg(test)]
mod tests {
    use nfs_proto::attr::Metadata;
    use nfs_wire::nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3};

    use super::*;
    use crate::store::StoreFull;

    /// Has a record, and some grains of what it claims.
    struct Claims {
        body: Bytes,
        grains: u64,
    }

    impl Store for Claims {
        fn put(&mut self, _: NodeId, _: u64, _: &Bytes) -> Result<(), StoreFull> {
            Err(StoreFull)
        }

        fn get(&mut self, _: NodeId, _: u64) -> Option<Bytes> {
            None
        }

        fn remove(&mut self, _: NodeId, _: u64) {}

        fn is_lasting(&self) -> bool {
            true
        }

        fn recall(&mut self, _: NodeId, _: &[u8]) -> Option<Bytes> {
            Some(self.body.clone())
        }

        fn grains(&self, _: NodeId) -> u64 {
            self.grains
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an arbitrary beginning of virtual time")]
    fn a_record_has_no_more_grains_than_the_store() {
        let handle = |byte| FileHandle::try_from(&[byte; 8][..]).unwrap();
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        let (mode, nlink, uid, gid, used, fsid, fileid) = (0o644, 1, 0, 0, 0, 1, 1);
        let (atime, mtime, ctime) = (time, time, time);
        let of = |type_, size| {
            Metadata::from(&fattr3 {
                type_,
                mode,
                nlink,
                uid,
                gid,
                size,
                used,
                rdev: specdata3::default(),
                fsid,
                fileid,
                atime,
                mtime,
                ctime,
            })
        };
        let now = Instant::now();
        // A record of a hundred bytes may speak of 2^48 grains.
        let metadata = of(ftype3::NF3REG, u64::MAX);
        let all = u64::MAX.div_ceil(crate::GRAIN_BYTES);
        for (runs, grains, expected) in [
            (vec![(0, all, false)], 3, vec![0, 1, 2]),
            (vec![(1, 3, true), (7, all, true)], 3, vec![1, 2, 7]),
            (vec![(0, 1, true), (5, 6, true)], 9, vec![0, 5]),
            (vec![(0, all, true)], 0, vec![]),
        ] {
            let body = KeptFile { subject: Subject { handle: handle(2), metadata, asked: 1 }, runs }.encode();
            let store = Claims { body: body.into(), grains };
            let root = of(ftype3::NF3DIR, 0);
            let mut tree = Tree::new(Arc::default(), now, handle(1), root, store);
            let known = tree.freshness.kept(metadata, 1);
            let node = tree.objects.insert(now, handle(2), known);
            tree.recall_data(node);
            let held = tree.objects.get(node).and_then(Object::held).unwrap();
            assert_eq!(held.present.keys().copied().collect::<Vec<_>>(), expected);
        }
    }
}
