//! What attributes tell of an object: that it is as it was, has changed, or has another version.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use nfs_proto::attr::{FileType, Metadata};
use nfs_wire::FileHandle;

use super::Tree;
use crate::{
    data::{Doubt, Pages, grain_length},
    directory::Target,
    ids::{CallId, NodeId},
    object::{Kind, Known, Object},
    record,
    store::Store,
    version::{Change, change},
};

impl<S: Store> Tree<S> {
    /// Takes in attributes that a reply brought.
    pub(crate) fn observe(
        &mut self,
        handle: FileHandle,
        metadata: Metadata,
        (id, begun): (CallId, Instant),
        next: CallId,
    ) {
        self.freshness.observe(metadata.ctime);
        self.counts_links |= metadata.file_type == FileType::Regular && metadata.links > 0;
        let known = Known { metadata, call: id, asked_at: begun, seen_at: self.freshness.now() };
        let Some((node, object)) = self.objects.at(&handle) else {
            // A late reply does not bring back what the server has forgotten meanwhile: whoever needs the file asks again.
            if id >= self.gone_before {
                self.objects.insert(self.freshness.now(), handle, known);
            }
            return;
        };
        let before = object.known;
        let Some(known) = known.following(&before) else { return };
        let is_same_kind =
            before.metadata.file_type == metadata.file_type && before.metadata.fileid == metadata.fileid;
        let change = match change(&before.metadata, &metadata) {
            _ if !is_same_kind => Change::Bytes,
            Change::None if self.is_nameless(&before.metadata) == self.is_nameless(&metadata) => Change::None,
            kept @ (Change::Attributes | Change::Unexplained | Change::Growth)
                if !self.is_nameless(&metadata) =>
            {
                kept
            }
            _ => Change::Bytes,
        };
        let is_file = matches!(object.kind, Kind::File(_));
        if change != Change::None {
            self.freshness.observe_change(before.asked_at, metadata.ctime);
        }
        let is_new = match change {
            Change::None => false,
            Change::Bytes => !is_same_kind || is_file && !self.renew(node, metadata.size),
            Change::Attributes | Change::Unexplained | Change::Growth => {
                is_file && !self.doubt(node, &before, &metadata, change, next)
            }
        };
        if is_new && node != NodeId::ROOT {
            self.begin_version(node, known);
            return;
        }
        if let Some(object) = self.objects.get_mut(node) {
            object.known = known;
            match &mut object.kind {
                Kind::Link(target) if change != Change::None => *target = None,
                Kind::Directory(directory) => directory.see(self.freshness.now(), metadata),
                Kind::Link(_) | Kind::File(_) | Kind::Other => {}
            }
            if change != Change::None && is_file {
                self.rename_kept(node);
            }
            self.told(node, change != Change::None);
        }
    }

    /// A file has other bytes, of which a front has none yet: then it is the same node, and what is held of it goes. Returns false if a
    /// front has some, or this goes on and on, or it is shorter: a node never is, for a front may believe in the bytes that it had.
    fn renew(&mut self, node: NodeId, size: u64) -> bool {
        let most = self.config.fruitless_calls;
        let may_be = |object: &&mut Object| {
            let is_settled = object.held().is_some_and(|held| held.doubt.is_none());
            let is_early = !object.front.given && object.front.changes().renewals < most;
            is_settled && is_early && object.known.metadata.size <= size
        };
        let Some(object) = self.objects.get_mut(node).filter(may_be) else { return false };
        object.front.changes_mut().renewals += 1;
        self.retire(node);
        self.drop_data(node);
        self.altered(node);
        true
    }

    /// Tells a front that knows a file of its change.
    fn altered(&mut self, node: NodeId) {
        if self.objects.get(node).is_some_and(|object| object.references > 0) {
            self.altered.push(node);
        }
    }

    /// What is held of a file may still be what the file has: what was read stays readable, and a grain is compared before other bytes are
    /// read or the file is opened. Returns false if nothing can be compared although a front was given bytes.
    fn doubt(
        &mut self,
        node: NodeId,
        before: &Known,
        after: &Metadata,
        change: Change,
        next: CallId,
    ) -> bool {
        self.altered(node);
        self.recall_data(node);
        self.loose.retain(|(of, ..)| *of != node);
        let Some(object) = self.objects.get_mut(node) else { return false };
        let is_read = object.front.given && object.open > 0;
        let is_known = object.front.given || object.front.wanted;
        let changes = object.front.changes_mut();
        if is_known {
            changes.pages = Pages::Doubtful;
        }
        changes.origin.get_or_insert_with(|| record::version(&before.metadata));
        let Some(held) = object.held_mut() else { return false };
        let others_may_differ = change != Change::Attributes;
        for (&grain, fetch) in &mut held.fetches {
            fetch.doubt(grain_length(after.size, grain), next);
        }
        if held.fetches.values().any(|fetch| fetch.restarts > self.config.fruitless_calls) {
            return false;
        }
        if held.present.is_empty() {
            self.drop_if_empty(node);
            return !is_read;
        }
        let old = held.present.keys().map(|&grain| (grain, !held.unproven.contains_key(&grain)));
        let old = old.collect::<BTreeMap<u64, bool>>();
        // Until then it was what the file had.
        for &grain in old.keys() {
            held.unproven.entry(grain).or_insert(before.asked_at);
        }
        match &mut held.doubt {
            Some(doubt) => doubt.others_may_differ |= others_may_differ,
            None => held.doubt = Some(Box::new(Doubt { before: before.metadata, old, others_may_differ })),
        }
        true
    }

    /// Compares a grain that was fetched again with what was held, where that decides whether the file has other bytes now. Returns false
    /// if it has: then the node is over.
    pub(crate) fn settle_doubt(&mut self, node: NodeId, grain: u64, data: &[u8]) -> bool {
        let held = self.objects.get(node).and_then(Object::held);
        let Some(doubt) = held.and_then(|held| held.doubt.as_ref()) else { return true };
        if !doubt.old.contains_key(&grain) {
            return true;
        }
        let before = self.store.get(node, grain);
        let Some(held) = self.objects.get_mut(node).and_then(Object::held_mut) else { return true };
        let Some(doubt) = &mut held.doubt else { return true };
        match before {
            Some(before) if data.starts_with(&before) => {
                let doubt = held.doubt.take().expect("it was just there");
                for grain in
                    doubt.old.iter().filter(|(_, was_proven)| **was_proven && !doubt.others_may_differ)
                {
                    held.unproven.remove(grain.0);
                }
                true
            }
            Some(_) => false,
            // The store has lost it.
            None => {
                doubt.old.remove(&grain);
                let is_last = doubt.old.is_empty();
                self.drop_grain(node, grain);
                !is_last
            }
        }
    }

    /// A file has other bytes: what was known of it is over, and what its handle leads to is a new node.
    pub(crate) fn begin_version(&mut self, node: NodeId, known: Known) -> Option<NodeId> {
        let object = self.objects.get_mut(node)?;
        let handle = object.handle();
        let (pinned, hoarded, entry) = (object.pinned, object.hoarded, object.entry.clone());
        let shown_bytes = object.known.metadata.size;
        // It stays what it was before it was in doubt.
        if let Some(held) = object.held_if_any()
            && let Some(doubt) = held.doubt.take()
        {
            let later = held.present.keys().filter(|grain| !doubt.old.contains_key(grain));
            let later: Vec<u64> = later.copied().collect();
            let shown = &mut object.front.changes_mut().shown_bytes;
            *shown = shown_bytes.max(*shown);
            object.known.metadata = doubt.before;
            later.into_iter().for_each(|grain| self.drop_grain(node, grain));
            self.rename_kept(node);
        }
        let over = node;
        self.retire(over);
        self.objects.end(over);
        self.drop_if_unused(over);
        let node = self.objects.insert(self.freshness.now(), handle, known);
        let object = self.objects.get_mut(node)?;
        (object.changed_by, object.pinned, object.entry) = (known.call, pinned, entry);
        object.hoarded = hoarded;
        self.replaced.push((over, node));
        self.told(node, true);
        Some(node)
    }

    /// Whether a file has no name any more. Servers keep such files while somebody has them open; some servers count no links at all.
    pub(crate) fn is_nameless(&self, metadata: &Metadata) -> bool {
        self.counts_links && metadata.file_type == FileType::Regular && metadata.links == 0
    }

    /// The server does not know the handle that was asked about: names lead elsewhere now.
    pub(crate) fn end_unknown(&mut self, handle: &FileHandle, next: CallId) {
        if let Some((node, object)) = self.objects.at(handle)
            && node != NodeId::ROOT
        {
            let parent = object.parent();
            self.retire(node);
            self.objects.end(node);
            self.forget_handle(parent, handle);
            self.drop_if_unused(node);
            self.gone_before = next;
        }
    }

    /// What the store has kept with names of a directory is not to bring back what the server does not know any more.
    fn forget_handle(&mut self, directory: Option<NodeId>, gone: &FileHandle) {
        let Some(node) = directory else { return };
        let Some(directory) = self.objects.get_mut(node).and_then(Object::directory_mut) else { return };
        for edge in directory.names.values_mut() {
            if let Target::Handle(handle, fileid) = &edge.target
                && handle.is(gone)
            {
                edge.target = Target::Listed(*fileid);
            }
        }
        self.changed(node);
    }

    pub(crate) fn directory_of(&mut self, handle: &FileHandle) -> Option<&mut crate::directory::Directory> {
        let node = self.objects.node(handle)?;
        self.objects.get_mut(node)?.directory_mut()
    }

    /// Returns the attributes of a directory as what proves a name that this call told, if they do. What the call found may be older
    /// than the attributes that it brought: only those known before it count.
    pub(crate) fn proof(&self, directory: FileHandle, id: CallId, begun: Instant) -> Option<Arc<Metadata>> {
        let (_, object) = self.objects.at(&directory)?;
        let under = object.directory()?.seen_before(begun)?;
        let is_unchanged = under.is_same_version(&object.known.metadata) && object.known.call == id;
        (is_unchanged && self.freshness.proves(begun, object.known.metadata.ctime)).then(|| Arc::clone(under))
    }
}
