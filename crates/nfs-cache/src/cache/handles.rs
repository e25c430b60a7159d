//! For fronts that name objects by handles of their own, which outlast them: servers.

use std::time::Instant;

use nfs_wire::FileHandle;

use super::{Asked, Cache, Operation, steps::Step};
use crate::{
    answers::{Answer, Failure},
    call::Question,
    data::Held,
    ids::{NodeId, OperationId},
    object::Object,
    store::Store,
};

impl<S: Store> Cache<S> {
    /// Finds what a handle of the server leads to now: [`Answer::Entry`]. It need not have been met before.
    pub fn find(&mut self, now: Instant, handle: FileHandle) -> OperationId {
        self.submit(now, Asked::Find(handle))
    }

    /// Asks for attributes that the server told after `since` was begun, or after now: [`Answer::Attributes`]. For fronts whose
    /// clients have no other way to say that they open a file. [`Failure::Stale`] means that there is another version now.
    pub fn confirm(&mut self, now: Instant, node: NodeId, since: Option<OperationId>) -> OperationId {
        self.submit_since(now, Asked::Confirm(node), since)
    }

    /// Opens a file as [`open`](Self::open) does, whatever name it has now, and without a question of its own if the server told its
    /// attributes since `since` was begun.
    pub fn open_handle(&mut self, now: Instant, file: NodeId, since: Option<OperationId>) -> OperationId {
        self.submit_since(now, Asked::Open { node: file, by: None }, since)
    }

    /// Returns the server's handle of a node.
    pub fn handle(&self, node: NodeId) -> Option<FileHandle> {
        self.tree.objects.get(node).map(Object::handle)
    }

    /// Whether a node is what its handle leads to now, as far as is known: not a version, or an object, that is over.
    pub fn is_current(&self, node: NodeId) -> bool {
        self.tree.objects.get(node).is_some_and(|object| !object.over)
    }

    /// Returns the directory and the name that a node was [`found`](Self::found) by.
    pub fn found_by(&self, node: NodeId) -> Option<(NodeId, &[u8])> {
        let entry = self.tree.objects.get(node)?.entry.as_ref()?;
        Some((entry.directory, &entry.name))
    }

    /// Returns the directory that a node was found in last, as far as that is known.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.tree.objects.get(node)?.parent()
    }

    pub(super) fn step_find(&mut self, id: OperationId, handle: FileHandle) -> Step {
        if let Some((node, object)) = self.tree.objects.at(&handle) {
            let metadata = object.known.metadata;
            self.tree.objects.touch(node);
            self.reference(node);
            return Some(Ok(Answer::Entry { node, metadata }));
        }
        let earliest = self.earliest_joined(id);
        self.ask(Some(id), Question::Getattr(handle), earliest);
        None
    }

    pub(super) fn step_confirm(&mut self, id: OperationId, node: NodeId) -> Step {
        let &Operation { begun, first, .. } = self.operations.get(&id)?;
        let Some(object) = self.tree.objects.get(node).filter(|object| !object.over) else {
            return Some(Err(Failure::Stale));
        };
        if self.tree.is_nameless(&object.known.metadata) {
            return Some(Err(Failure::Stale));
        }
        let (handle, metadata) = (object.handle(), object.known.metadata);
        let witness = object.held().and_then(Held::witness);
        let is_confirmed = object.known.call >= first && witness.is_none();
        if is_confirmed || self.takes_stale(id) {
            self.count_stale(!is_confirmed);
            // As for an open: what may be of another version with the same attributes is fetched again.
            if is_confirmed {
                self.tree.confirm_open(node, begun);
            }
            self.tree.objects.touch(node);
            return Some(Ok(Answer::Attributes(metadata)));
        }
        match witness {
            Some(witness) => self.fetch(Some(id), node, witness),
            None => _ = self.ask(Some(id), Question::Getattr(handle), first),
        }
        None
    }
}
