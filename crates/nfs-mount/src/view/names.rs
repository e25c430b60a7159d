//! By which names the kernel knows files. It opens a node and does not say by which name: a file that it has found by a second one gets a
//! second node, so that every open can ask where its own name leads.

use std::collections::BTreeMap;

use nfs_cache::NodeId;

use super::{Inner, View};

/// Where the numbers of second nodes begin: the cache counts its own from 1.
const FIRST: u64 = 1 << 63;

/// Files that the kernel knows by more than one name: hard links, and those that were renamed on the server.
#[derive(Debug, Default)]
pub(super) struct OtherNames {
    by_node: BTreeMap<NodeId, OtherName>,
    nodes: BTreeMap<(NodeId, Entry), NodeId>,
    last: u64,
}

/// A name in a directory.
pub(super) type Entry = (NodeId, Box<[u8]>);

#[derive(Debug)]
struct OtherName {
    /// The node of the cache.
    node: NodeId,
    entry: Entry,
    /// How often the kernel was told of it and has not forgotten it.
    references: u64,
}

impl OtherNames {
    /// Returns the node of a file under a name, of which the kernel is told.
    fn reference(&mut self, node: NodeId, entry: Entry) -> NodeId {
        let last = &mut self.last;
        let other = *self.nodes.entry((node, entry.clone())).or_insert_with(|| {
            *last += 1;
            NodeId::from_number(FIRST + *last)
        });
        let name = OtherName { node, entry, references: 0 };
        self.by_node.entry(other).or_insert(name).references += 1;
        other
    }

    /// Returns the node of the cache.
    pub(super) fn meant(&self, node: NodeId) -> NodeId {
        self.by_node.get(&node).map_or(node, |other| other.node)
    }

    fn forget(&mut self, node: NodeId, times: u64) {
        let Some(other) = self.by_node.get_mut(&node) else { return };
        other.references = other.references.saturating_sub(times);
        if other.references == 0
            && let Some(OtherName { node, entry, .. }) = self.by_node.remove(&node)
        {
            self.nodes.remove(&(node, entry));
        }
    }
}

impl Inner {
    /// Returns the node by which the kernel is to know what it has found by a name.
    pub(super) fn told(&mut self, node: NodeId, directory: NodeId, name: &[u8]) -> NodeId {
        if self.cache.found(node, directory, name) {
            node
        } else {
            self.other_names.reference(node, (directory, name.into()))
        }
    }

    /// Returns the nodes by which the kernel may know one of the cache's.
    pub(super) fn nodes_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let first = (node, (NodeId::from_number(0), Box::default()));
        let others = self.other_names.nodes.range(first..).take_while(move |((of, _), _)| *of == node);
        std::iter::once(node).chain(others.map(|(_, &other)| other))
    }

    /// Returns the name by which the kernel knows a node.
    pub(super) fn entry(&self, node: NodeId) -> Option<Entry> {
        match self.other_names.by_node.get(&node) {
            Some(other) => Some(other.entry.clone()),
            None => self.cache.found_by(node).map(|(directory, name)| (directory, name.into())),
        }
    }

    /// Records that the kernel has forgotten a node that it was told of `times` times.
    pub(crate) fn forget(&mut self, node: NodeId, times: u64) {
        self.cache.forget(self.other_names.meant(node), times);
        self.other_names.forget(node, times);
    }
}

impl View {
    /// Returns the node of the cache that the kernel's stands for.
    pub(crate) fn meant(&self, node: NodeId) -> NodeId {
        if node.number() < FIRST { node } else { self.lock().other_names.meant(node) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_node_until_it_is_forgotten_as_often_as_it_was_told() {
        let [file, directory] = [5, 2].map(NodeId::from_number);
        let mut names = OtherNames::default();
        let of = |name: &str| (directory, name.as_bytes().into());
        let a = names.reference(file, of("a"));
        let b = names.reference(file, of("b"));
        assert_eq!(names.reference(file, of("a")), a);
        assert!(a != b && a.number() > FIRST && b.number() > FIRST);
        assert_eq!([a, b, file].map(|node| names.meant(node)), [file; 3]);
        names.forget(a, 1);
        assert_eq!(names.meant(a), file);
        names.forget(a, 1);
        assert_eq!(names.meant(a), a, "it stands for nothing");
        assert_ne!(names.reference(file, of("a")), a, "no number is used twice");
        names.forget(b, u64::MAX);
        assert_eq!((names.by_node.len(), names.nodes.len()), (1, 1));
    }
}
