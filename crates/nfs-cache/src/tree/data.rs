//! What is held, and what is dropped where there is no room for it.

use std::time::Instant;

use bytes::Bytes;

use super::Tree;
use crate::{
    data::{Pages, grain_length},
    ids::{NodeId, OpenId},
    object::{Kind, Object},
    record,
    store::Store,
};

/// What is dropped at a limit: so much below it that not every insertion drops something.
const PART: u64 = 10;

/// Grains kept for operations that wait for them though the store had no room.
const LOOSE_GRAINS: usize = 64;

/// Grains remembered that were fetched so soon after a change that it proves nothing, and are fetched again once it does, while nobody
/// waits: who has read them, as kernels and NFS clients keep what they have read, may not ask again before the server does not respond.
/// 256 MiB: what a link of 1 Gbit/s carries in the time after a change that proves nothing.
const MOST_AGAIN: usize = 4096;

impl<S: Store> Tree<S> {
    /// Records that an open which began at `begun` was confirmed: what was fetched before, and may be of another version with the same
    /// attributes, is fetched again when it is read. Until that is there, it stays.
    pub(crate) fn confirm_open(&mut self, node: NodeId, begun: Instant) {
        self.loose.retain(|(of, ..)| *of != node);
        let Some(object) = self.objects.get(node) else { return };
        let Some(held) = object.held() else { return };
        let fetches: Vec<u64> = held
            .fetches
            .iter()
            .filter(|(_, fetch)| {
                fetch.begun < begun && !self.freshness.proves(fetch.begun, object.known.metadata.ctime)
            })
            .map(|(&grain, _)| grain)
            .collect();
        let Some(held) = self.objects.get_mut(node).and_then(Object::held_if_any) else { return };
        held.since = held.since.max(Some(begun));
        for grain in fetches {
            held.end_fetch(grain);
        }
    }

    /// Whether a front that opens a file may keep what it has read of it.
    pub(crate) fn takes_pages(&mut self, node: NodeId, open: OpenId) -> bool {
        let Some(object) = self.objects.get_mut(node) else { return true };
        let is_unproven = object.held().is_some_and(|held| !held.unproven.is_empty());
        let pages = object.front.changes().pages;
        let then = match pages {
            // Whatever is read through this open may be older than what the next one is to have.
            _ if is_unproven => Pages::Doubtful,
            Pages::Doubtful => Pages::Dropping(open),
            other => other,
        };
        if then != pages {
            object.front.changes_mut().pages = then;
        }
        pages == Pages::Good
    }

    /// Records that a front uses an open file: what it was told with it, it has done.
    pub(crate) fn was_used(&mut self, open: OpenId, node: NodeId) {
        let Some(object) = self.objects.get_mut(node) else { return };
        if object.front.changes().pages == Pages::Dropping(open) {
            object.front.changes_mut().pages = Pages::Good;
        }
    }

    /// Holds a grain, or keeps it for those who wait where there is no room.
    pub(crate) fn hold(&mut self, node: NodeId, grain: u64, data: Bytes, begun: Instant) {
        let length = data.len() as u64;
        self.recall_data(node);
        let before = self.present_bytes(node, grain);
        self.make_room(length.saturating_sub(before));
        // It may have made room itself.
        self.recall_data(node);
        let Some(object) = self.objects.get(node) else { return };
        let is_proven = self.freshness.proves(begun, object.known.metadata.ctime);
        let has_room =
            self.total_bytes() + length - self.present_bytes(node, grain) <= self.config.size_bytes;
        let is_held = has_room && self.store.put(node, grain, &data).is_ok();
        let Some(object) = self.objects.get_mut(node) else { return };
        if !is_proven {
            object.front.changes_mut().pages = Pages::Doubtful;
        }
        let Some(held) = object.held_mut() else { return };
        if is_held {
            self.held_bytes += length;
            self.held_bytes -= u64::from(held.present.insert(grain, data.len() as u32).unwrap_or(0));
            if is_proven {
                held.unproven.remove(&grain);
            } else {
                held.unproven.insert(grain, begun);
                self.fetch_again(node, grain);
            }
            self.changed(node);
        } else {
            self.loose.push_back((node, grain, data));
            while self.loose.len() > LOOSE_GRAINS {
                self.loose.pop_front();
            }
        }
    }

    /// Bytes of a grain that are held.
    fn present_bytes(&self, node: NodeId, grain: u64) -> u64 {
        let held = self.objects.get(node).and_then(Object::held);
        held.and_then(|held| held.present.get(&grain)).map_or(0, |&length| length.into())
    }

    /// Whether a grain is held.
    pub(crate) fn is_present(&self, node: NodeId, grain: u64) -> bool {
        let held = self.objects.get(node).and_then(Object::held);
        held.is_some_and(|held| held.present.contains_key(&grain))
    }

    /// Bytes of data in the store, also of what is not known to this cache yet.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.held_bytes + self.store.idle_bytes()
    }

    pub(crate) fn make_room(&mut self, bytes: u64) {
        let limit = self.config.size_bytes;
        let total = self.total_bytes() + bytes;
        let excess = if total <= limit { 0 } else { total - (limit - limit / PART) };
        let mut excess = excess.max(self.store.wanted_bytes());
        if excess == 0 {
            return;
        }
        // What no program has asked for since the beginning goes first.
        excess = excess.saturating_sub(self.store.spare(excess));
        let mut candidates: Vec<(bool, u64, NodeId)> = self
            .objects
            .by_node
            .iter()
            .filter(|(node, object)| {
                let has_data = object.held().is_some_and(|held| !held.present.is_empty());
                has_data && object.open == 0 && !self.is_pinned(**node)
            })
            .map(|(&node, object)| (object.front.wanted, object.used, node))
            .collect();
        // What was fetched before anybody asked, and nobody has asked since, goes first.
        candidates.sort_unstable();
        for (.., node) in candidates {
            if excess == 0 {
                break;
            }
            let before = self.held_bytes;
            self.drop_data(node);
            excess = excess.saturating_sub(before - self.held_bytes);
        }
    }

    /// Drops objects that nobody uses, those used longest ago first, where there are too many.
    pub(crate) fn drop_objects(&mut self) {
        let limit = self.config.objects;
        if self.objects.by_node.len() <= limit {
            return;
        }
        let unused = self.objects.by_node.iter().filter(|(_, object)| object.is_unused());
        let mut candidates: Vec<(u64, NodeId)> = unused.map(|(&node, object)| (object.used, node)).collect();
        candidates.sort_unstable();
        let excess = self.objects.by_node.len() - (limit - limit / PART as usize);
        for (_, node) in candidates.into_iter().take(excess) {
            self.put_away(node);
        }
    }

    /// Removes what nobody needs of a version that is over.
    pub(crate) fn drop_if_unused(&mut self, node: NodeId) {
        let Some(object) = self.objects.get(node) else { return };
        if !object.over || object.open > 0 {
            return;
        }
        let (is_unused, key) = (object.is_unused(), record::key(&object.handle(), &object.known.metadata));
        self.drop_data(node);
        if self.store.is_lasting() {
            self.store.release(node, &key, true);
        }
        if is_unused {
            self.objects.remove(node);
        }
    }

    /// Drops the data of a file.
    pub(super) fn drop_data(&mut self, node: NodeId) {
        let Some(held) = self.objects.get(node).and_then(Object::held) else { return };
        let grains: Vec<u64> = held.present.keys().copied().collect();
        for grain in grains {
            self.drop_grain(node, grain);
        }
        if let Some(held) = self.objects.get_mut(node).and_then(Object::held_if_any) {
            held.fetches.clear();
            held.again.clear();
        }
        self.loose.retain(|(of, ..)| *of != node);
        self.drop_if_empty(node);
    }

    /// Of a file of which nothing is held only name and attributes take memory.
    pub(crate) fn drop_if_empty(&mut self, node: NodeId) {
        let Some(object) = self.objects.get_mut(node) else { return };
        let Kind::File(file) = &mut object.kind else { return };
        if file.take_if(|held| held.is_empty()).is_some_and(|held| held.recalled) {
            self.store.release(node, &record::key(&object.handle(), &object.known.metadata), false);
            self.unkept.remove(node);
        }
    }

    pub(super) fn drop_grain(&mut self, node: NodeId, grain: u64) {
        let Some(held) = self.objects.get_mut(node).and_then(Object::held_if_any) else { return };
        held.unproven.remove(&grain);
        if let Some(length) = held.present.remove(&grain) {
            self.held_bytes -= u64::from(length);
            self.store.remove(node, grain);
            self.changed(node);
        }
    }

    /// Returns a grain that is held and was what the file had at `since` or later. What the store has lost is no longer held. The last
    /// grain of a file that has grown ends where the file did: `enough` bytes will do.
    pub(crate) fn grain(
        &mut self,
        node: NodeId,
        grain: u64,
        since: Option<Instant>,
        enough: u64,
    ) -> Option<Bytes> {
        let object = self.objects.get_mut(node)?;
        let length = grain_length(object.known.metadata.size, grain);
        if let Some(held) = object.held_if_any()
            && held.present.contains_key(&grain)
        {
            let unproven = held.unproven.get(&grain).copied();
            if unproven.is_some() && unproven < since {
                return self.loose(node, grain, enough.min(length));
            }
            match self.store.get(node, grain) {
                Some(data) if data.len() as u64 == length => return Some(data),
                Some(data) if unproven.is_some() && (data.len() as u64) < length => {
                    return Some(data).filter(|data| enough <= data.len() as u64);
                }
                _ => self.drop_grain(node, grain),
            }
        }
        self.loose(node, grain, enough.min(length))
    }

    /// Returns a grain that the store had no room for.
    fn loose(&self, node: NodeId, grain: u64, enough: u64) -> Option<Bytes> {
        let loose = self.loose.iter().find(|(of, at, _)| (*of, *at) == (node, grain));
        loose.map(|(_, _, data)| data.clone()).filter(|data| enough <= data.len() as u64)
    }

    /// Records that a grain is not proven to be of its version.
    fn fetch_again(&mut self, node: NodeId, grain: u64) {
        if self.again.len() < MOST_AGAIN
            && let Some(held) = self.objects.get_mut(node).and_then(Object::held_mut)
            && held.again.insert(grain)
        {
            self.again.push_back((node, grain));
        }
    }

    /// Returns when the next of them proves its version. They come in the order of what they are of, or nearly so.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        let &(node, _) = self.again.front()?;
        match self.objects.get(node).filter(|object| !object.over) {
            Some(object) => self.freshness.proves_from(object.known.metadata.ctime),
            None => Some(self.freshness.now()),
        }
    }

    /// Takes the next grain that is to be fetched again, if it is time; `Some(None)` if it is of no use any more.
    pub(crate) fn next_again(&mut self) -> Option<Option<(NodeId, u64)>> {
        self.again_at().filter(|&at| at <= self.freshness.now())?;
        let (node, grain) = self.again.pop_front()?;
        let object = self.objects.get_mut(node).filter(|object| !object.over);
        let is_needed = object.and_then(Object::held_mut).is_some_and(|held| held.again.remove(&grain));
        Some(is_needed.then_some((node, grain)))
    }
}
