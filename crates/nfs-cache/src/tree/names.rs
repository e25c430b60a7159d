//! Names: what leads to an object, and what names it beyond the life of a cache.

use std::{collections::BTreeSet, sync::Arc};

use super::Tree;
use crate::{
    directory::{Name, Target},
    ids::NodeId,
    object::{Entry, Identity, Object},
    record,
    store::Store,
};

/// Directories within directories, at most.
const DEPTH: usize = 1000;

impl<S: Store> Tree<S> {
    /// Returns what a path below the root leads to, its names joined by `/`, by what is known without asking the server.
    pub(crate) fn known_at(&mut self, path: &[u8]) -> Option<NodeId> {
        let mut node = NodeId::ROOT;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            self.recall_names(node, true);
            let edge = self.objects.get(node)?.directory()?.find(name)?;
            let handle = edge.target.handle()?;
            node = self.objects.node(&handle.get())?;
        }
        Some(node)
    }

    /// Returns what names the object of a node beyond the life of this cache.
    pub(crate) fn identity(&self, node: NodeId) -> Option<Identity> {
        let object = self.objects.get(node)?;
        Some(Identity { handle: object.handle(), version: origin(object) })
    }

    /// Returns the node of an object that an earlier cache, too, may have named so. Where nothing in memory has the handle, all that a
    /// lasting store keeps is looked through. `None` if it is not known, or has another version now.
    pub(crate) fn node_of(&mut self, identity: &Identity) -> Option<NodeId> {
        if self.objects.at(&identity.handle).is_none() && self.store.is_lasting() {
            let mut next = vec![NodeId::ROOT];
            let mut seen = BTreeSet::new();
            while let Some(directory) = next.pop()
                && self.objects.by_node.len() < self.config.objects
            {
                self.recall_names(directory, true);
                let Some(names) = self.objects.get(directory).and_then(Object::directory) else { continue };
                for edge in names.names.values() {
                    if let Target::Handle(handle, _) = &edge.target
                        && let Some((node, object)) = self.objects.at(&handle.get())
                        && object.directory().is_some()
                        && seen.insert(node)
                    {
                        next.push(node);
                    }
                }
                if self.objects.at(&identity.handle).is_some() {
                    break;
                }
            }
        }
        let (node, object) = self.objects.at(&identity.handle)?;
        (origin(object) == identity.version).then_some(node)
    }

    /// Records by which name a front was just told of a node. Returns whether an open asks where this one leads: a file
    /// keeps the name that it was found by first while a front knows it.
    pub(crate) fn found(&mut self, node: NodeId, directory: NodeId, name: &[u8]) -> bool {
        let Some(object) = self.objects.get(node).filter(|_| node != NodeId::ROOT) else { return true };
        match &object.entry {
            Some(entry) if entry.directory == directory && *entry.name == *name => true,
            Some(_) if object.references > 1 && object.held().is_some() => false,
            _ => {
                let names = self.objects.get(directory).and_then(Object::directory);
                let known = names.and_then(|directory| directory.names.get_key_value(name));
                let name = known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
                self.set_entry(node, Entry { directory, name });
                true
            }
        }
    }

    /// Records a name that leads to an object, if none is known that does. What a front knows a file by stays.
    pub(crate) fn adopt(&mut self, directory: NodeId, name: &Name, node: NodeId) {
        let is_free = |object: &Object| object.references == 0 || object.held().is_none();
        let may_have =
            |object: &Object| object.entry.is_none() || is_free(object) && self.entry(object).is_none();
        if node != NodeId::ROOT && self.objects.get(node).is_some_and(may_have) {
            self.set_entry(node, Entry { directory, name: Arc::clone(name) });
        }
    }

    fn set_entry(&mut self, node: NodeId, entry: Entry) {
        if let Some(object) = self.objects.get_mut(node) {
            object.entry = Some(entry);
        }
    }

    /// Returns the name that an object was found by, if that leads to it as far as is known, and the directory.
    fn entry<'a>(&'a self, object: &'a Object) -> Option<(&'a Name, &'a Object)> {
        let Entry { directory, name } = object.entry.as_ref()?;
        let directory = self.objects.get(*directory)?;
        let edge = directory.directory()?.names.get(name)?;
        (edge.target.handle() == Some(&object.handle)).then_some((name, directory))
    }

    /// Whether an object stays when room is made: it is hoarded or pinned, or a directory that it lies in is pinned.
    pub(super) fn is_pinned(&self, node: NodeId) -> bool {
        let is_hoarded = self.objects.get(node).is_some_and(|object| object.hoarded);
        is_hoarded || self.way_up(node).any(|(_, object)| object.pinned)
    }

    /// An object and the directories that it lies in.
    fn way_up(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &Object)> {
        let first = self.objects.get(node).map(|object| (node, object));
        let above = |&(_, object): &(NodeId, &Object)| {
            let parent = object.parent()?;
            self.objects.get(parent).map(|object| (parent, object))
        };
        std::iter::successors(first, above).take(DEPTH)
    }

    /// Returns where an object lies below the root, as far as that is known.
    pub(crate) fn path(&self, node: NodeId) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        for (node, object) in self.way_up(node) {
            if node == NodeId::ROOT {
                names.reverse();
                return Some(names.join(&b'/'));
            }
            names.push(self.entry(object)?.0);
        }
        None
    }
}

/// Names the version of an object in which it was met first.
fn origin(object: &Object) -> u64 {
    object.front.changes().origin.unwrap_or_else(|| record::version(&object.known.metadata))
}
