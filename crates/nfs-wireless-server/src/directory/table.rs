//! Which file of the host a node is, and where it was last seen.

use std::collections::{BTreeMap, VecDeque};

use super::host::Identity;
use crate::vfs::NodeId;

/// The nodes given out and not forgotten.
///
/// The table is bounded: when it is full, the node unused for longest that is nobody's parent is forgotten, and its
/// handle is stale.
#[derive(Debug)]
pub(super) struct Table {
    root: Identity,
    records: BTreeMap<NodeId, Record>,
    nodes: BTreeMap<Identity, NodeId>,
    /// Nodes that may be forgotten, the longest unused first.
    idle: BTreeMap<u64, NodeId>,
    /// Numbers of files that are gone: the host may use an inode again within one tick of its clock.
    retired: VecDeque<NodeId>,
    last_use: u64,
    max_nodes: usize,
}

/// One node.
#[derive(Debug)]
struct Record {
    identity: Identity,
    /// Names the file was seen under, the latest last; the root has none.
    places: Vec<NameInDirectory>,
    used: u64,
    /// How many places of other nodes are in this one.
    children: usize,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameInDirectory {
    pub(super) directory: NodeId,
    pub(super) name: Vec<u8>,
}

pub(super) const ROOT: NodeId = NodeId(1);

/// Most numbers of files remembered that are gone: more than can be removed within one tick.
const MAX_RETIRED: usize = 1024;

/// Most names remembered of a file with several.
const MAX_PLACES: usize = 4;

/// Deepest path followed; a longer one can only be a circle, made by moving directories about while we looked.
const MAX_DEPTH: usize = 4096;

impl Table {
    pub(super) fn new(root: Identity, max_nodes: usize) -> Self {
        let record = Record {
            identity: root,
            places: Vec::new(),
            used: 0,
            // Never forgotten: it counts as its own child.
            children: 1,
        };
        Self {
            root,
            records: BTreeMap::from([(ROOT, record)]),
            nodes: BTreeMap::from([(root, ROOT)]),
            idle: BTreeMap::new(),
            retired: VecDeque::new(),
            last_use: 0,
            max_nodes,
        }
    }

    /// Returns the node of a file just seen in a place.
    pub(super) fn enter(&mut self, place: NameInDirectory, identity: Identity) -> NodeId {
        let node = match self.nodes.get(&identity) {
            Some(&ROOT) => return ROOT,
            Some(&node) => node,
            None => {
                let node = self.number(identity);
                self.nodes.insert(identity, node);
                let record = Record { identity, places: Vec::new(), used: 0, children: 0 };
                self.records.insert(node, record);
                node
            }
        };
        self.add_place(node, place);
        self.touch(node);
        self.shrink(node);
        node
    }

    /// Returns the number of a file: its own, unless that is taken, or was until a moment ago.
    fn number(&self, identity: Identity) -> NodeId {
        let mut node = NodeId(identity.number(self.root));
        while node <= ROOT || self.records.contains_key(&node) || self.retired.contains(&node) {
            node.0 = node.0.wrapping_add(1);
        }
        node
    }

    /// Returns the nodes from below the root down to this one, or `None` when it is not known (any more).
    pub(super) fn path(&mut self, node: NodeId) -> Option<Vec<NodeId>> {
        self.touch(node);
        let mut path = Vec::new();
        let mut step = node;
        while step != ROOT {
            if path.len() == MAX_DEPTH {
                return None;
            }
            path.push(step);
            step = self.place(step)?.directory;
        }
        path.reverse();
        Some(path)
    }

    pub(super) fn place(&self, node: NodeId) -> Option<&NameInDirectory> {
        self.records.get(&node)?.places.last()
    }

    /// Returns the identity of the root.
    pub(super) const fn root(&self) -> Identity {
        self.root
    }

    pub(super) fn identity(&self, node: NodeId) -> Option<Identity> {
        self.records.get(&node).map(|record| record.identity)
    }

    pub(super) fn find(&self, identity: Identity) -> Option<NodeId> {
        self.nodes.get(&identity).copied()
    }

    /// Notes that a file was seen in a place.
    pub(super) fn add_place(&mut self, node: NodeId, place: NameInDirectory) {
        if node == ROOT || self.place(node) == Some(&place) {
            return;
        }
        self.remove_place(node, &place);
        let oldest = match self.records.get_mut(&node) {
            Some(record) => {
                let full = record.places.len() == MAX_PLACES;
                full.then(|| record.places.remove(0))
            }
            None => return,
        };
        if let Some(oldest) = oldest {
            self.count_child(oldest.directory, -1);
        }
        self.count_child(place.directory, 1);
        if let Some(record) = self.records.get_mut(&node) {
            record.places.push(place);
        }
    }

    /// Notes that a file is not in a place any more.
    pub(super) fn remove_place(&mut self, node: NodeId, place: &NameInDirectory) {
        let Some(record) = self.records.get_mut(&node) else {
            return;
        };
        if let Some(index) = record.places.iter().position(|other| other == place) {
            record.places.remove(index);
            self.count_child(place.directory, -1);
        }
    }

    /// Forgets a node of a file that is gone and leaves its handle stale.
    pub(super) fn forget(&mut self, node: NodeId) {
        if node == ROOT {
            return;
        }
        self.drop_record(node);
        self.retired.truncate(MAX_RETIRED - 1);
        self.retired.push_front(node);
    }

    fn drop_record(&mut self, node: NodeId) {
        if let Some(record) = self.records.remove(&node) {
            self.idle.remove(&record.used);
            if self.nodes.get(&record.identity) == Some(&node) {
                self.nodes.remove(&record.identity);
            }
            for place in record.places {
                self.count_child(place.directory, -1);
            }
        }
    }

    fn count_child(&mut self, directory: NodeId, change: isize) {
        if let Some(record) = self.records.get_mut(&directory) {
            record.children = record.children.saturating_add_signed(change);
            if record.children == 0 {
                self.idle.insert(record.used, directory);
            } else {
                self.idle.remove(&record.used);
            }
        }
    }

    fn touch(&mut self, node: NodeId) {
        if let Some(record) = self.records.get_mut(&node) {
            self.idle.remove(&record.used);
            self.last_use += 1;
            record.used = self.last_use;
            if record.children == 0 {
                self.idle.insert(record.used, node);
            }
        }
    }

    fn shrink(&mut self, spared: NodeId) {
        while self.records.len() > self.max_nodes {
            let oldest = self.idle.values().copied().find(|node| *node != spared);
            match oldest {
                Some(node) => self.drop_record(node),
                None => return,
            }
        }
    }
}
