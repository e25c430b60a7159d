//! What was fetched so soon after a change that it proves nothing is fetched again once it does, while nobody waits. Who has read it may
//! not ask for it again for long: NFS clients keep what they have read, and then it would be missing when the server does not respond.

use std::{collections::VecDeque, time::Instant};

use super::{
    Cache,
    prefetch::{Next, Piece},
};
use crate::{ids::NodeId, object::Object, store::Store};

/// Grains remembered, 256 MiB: what a link of 1 Gbit/s carries in the time after a change that proves nothing.
const MOST: usize = 4096;

/// Grains that are to be fetched again, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Again(VecDeque<(NodeId, u64)>);

impl<S: Store> Cache<S> {
    /// Takes note that a grain is not proven to be of its version.
    pub(super) fn fetch_again(&mut self, node: NodeId, grain: u64) {
        if self.again.0.len() < MOST
            && let Some(held) = self.objects.get_mut(node).and_then(Object::held_mut)
            && held.again.insert(grain)
        {
            self.again.0.push_back((node, grain));
        }
    }

    /// Returns when the next of them proves its version. They come in the order of what they are of, or nearly so.
    pub(super) fn again_at(&self) -> Option<Instant> {
        let &(node, _) = self.again.0.front()?;
        match self.objects.get(node).filter(|object| !object.over) {
            Some(object) => self.freshness.proves_from(object.known.metadata.ctime),
            None => Some(self.freshness.now()),
        }
    }

    pub(super) fn next_of_again(&mut self) -> Option<Next> {
        self.again_at().filter(|&at| at <= self.freshness.now())?;
        let (node, grain) = self.again.0.pop_front()?;
        let object = self.objects.get_mut(node).filter(|object| !object.over);
        if object.and_then(Object::held_mut).is_some_and(|held| held.again.remove(&grain)) {
            self.queue_again(Piece::again(node, grain));
        }
        Some(Next::Again)
    }
}
