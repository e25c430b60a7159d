//! What nobody has used for long is dropped.

use std::{collections::VecDeque, time::Instant};

use super::Tree;
use crate::{ids::NodeId, object::Object, store::Store};

/// Looks in the time after which things are dropped: so exactly is it kept.
const LOOKS: u32 = 16;

/// How often objects had been used at some times: an object that was used before one of them has a smaller number.
#[derive(Debug)]
pub(super) struct Marks(VecDeque<(Instant, u64)>);

impl Marks {
    pub(crate) fn new(now: Instant) -> Self {
        Self(VecDeque::from([(now, 0)]))
    }
}

impl<S: Store> Tree<S> {
    /// Returns when to look next.
    pub(crate) fn expiry_at(&self) -> Option<Instant> {
        let (at, _) = self.marks.0.back()?;
        at.checked_add(self.config.idle / LOOKS)
    }

    /// Drops what has not been used for [`CacheConfig::idle`](crate::CacheConfig::idle), unless it is open or pinned.
    pub(crate) fn expire(&mut self) {
        if self.expiry_at().is_none_or(|at| at > self.freshness.now()) {
            return;
        }
        self.marks.0.push_back((self.freshness.now(), self.objects.uses()));
        let mut limit = None;
        while let Some(&(at, uses)) = self.marks.0.front()
            && self.freshness.now().saturating_duration_since(at) >= self.config.idle
        {
            limit = Some(uses);
            self.marks.0.pop_front();
        }
        let Some(limit) = limit else { return };
        let is_idle = |node: NodeId, object: &Object| {
            let is_kept = object.open > 0 || object.pinned || object.hoarded || node == NodeId::ROOT;
            !is_kept && object.used <= limit
        };
        let all = self.objects.by_node.iter();
        let idle: Vec<NodeId> =
            all.filter(|(node, object)| is_idle(**node, object)).map(|(&node, _)| node).collect();
        for node in idle {
            self.drop_data(node);
            if self.objects.get(node).is_some_and(|object| object.is_unused()) {
                self.put_away(node);
            }
        }
    }
}
