//! What is known of one file or directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use bytes::Bytes;
use nfs_proto::attr::{FileType, Metadata};
use nfs_wire::FileHandle;

use crate::{
    data::{Front, Held, NOTHING},
    directory::{Directory, Edge, Name},
    handle::{SharedHandle, hash},
    ids::{CallId, NodeId},
};

/// Names an object, and of a file its version, for as long as the server knows its handle: caches that follow one another on the same
/// store give it other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The server's handle.
    pub handle: FileHandle,
    /// Made of size and times of a file; 0 for anything else.
    pub version: u64,
}

/// How what is known of an object relates to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether the server was asked so recently that it is not asked again.
    pub fresh: bool,
    /// When the question was asked whose answer is the newest.
    pub asked_at: Instant,
    /// Bytes of data held.
    pub held_bytes: u64,
    /// Size of the file in bytes.
    pub size_bytes: u64,
}

/// Attributes, and which question they answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) metadata: Metadata,
    /// The call that brought them; a later call brings later ones.
    pub(crate) call: CallId,
    /// When that call was begun: the server has answered since.
    pub(crate) asked_at: Instant,
    /// When its reply came.
    pub(crate) seen_at: Instant,
}

impl Known {
    /// Returns what is known after `before` was; `None` if that is newer.
    pub(crate) fn following(mut self, before: &Self) -> Option<Self> {
        // Of two calls at the same time the server may have run the later one first.
        let is_after = self.call < before.call && self.metadata.ctime > before.metadata.ctime;
        // A later call has told more.
        let is_before = self.asked_at < before.seen_at && self.metadata.ctime < before.metadata.ctime;
        if self.call < before.call && !is_after || is_before {
            return None;
        }
        if is_after {
            (self.call, self.asked_at) = (before.call, before.asked_at);
        }
        Some(self)
    }
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) handle: SharedHandle,
    /// The newest attributes; those of a version that is over stay what they were.
    pub(crate) known: Known,
    /// It is no longer what its handle leads to.
    pub(crate) over: bool,
    /// The call that showed that its handle led to another version before, or 0. What changed may have been replaced by renaming: names
    /// known from earlier calls must be asked for again.
    pub(crate) changed_by: CallId,
    /// How often a front was told of it and has not forgotten it.
    pub(crate) references: u64,
    /// How many operations and open files need it.
    pub(crate) open: u32,
    /// Larger for what was used later.
    pub(crate) used: u64,
    /// It stays when room is made, and so does what lies in it.
    pub(crate) pinned: bool,
    /// It stays, and what lies in it does not for that.
    pub(crate) hoarded: bool,
    pub(crate) front: Front,
    /// The name that a front knows it by, or else the one that it was found by last.
    pub(crate) entry: Option<Entry>,
    pub(crate) kind: Kind,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) directory: NodeId,
    pub(crate) name: Name,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Nothing where nothing is held of it, nor being fetched.
    File(Option<Box<Held>>),
    Directory(Box<Directory>),
    /// The link's target and the call that brought it.
    Link(Option<Box<(Bytes, CallId)>>),
    Other,
}

impl Object {
    pub(crate) fn new(handle: SharedHandle, known: Known) -> Self {
        let kind = match known.metadata.file_type {
            FileType::Regular => Kind::File(None),
            FileType::Directory => Kind::Directory(Box::default()),
            FileType::Symlink => Kind::Link(None),
            FileType::BlockDevice | FileType::CharacterDevice | FileType::Socket | FileType::Fifo => {
                Kind::Other
            }
        };
        Self {
            handle,
            known,
            over: false,
            changed_by: CallId(0),
            references: 0,
            open: 0,
            used: 0,
            pinned: false,
            hoarded: false,
            front: Front::default(),
            entry: None,
            kind,
        }
    }

    /// Whether a name is known to lead to it: its handle did when the name was learned.
    pub(crate) fn is_led_to(&self, edge: &Edge) -> bool {
        edge.source.call >= self.changed_by
    }

    /// Returns the directory that it was found in.
    pub(crate) fn parent(&self) -> Option<NodeId> {
        self.entry.as_ref().map(|entry| entry.directory)
    }

    /// Returns the server's handle.
    pub(crate) fn handle(&self) -> FileHandle {
        self.handle.get()
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        if let Kind::Directory(directory) = &self.kind { Some(directory) } else { None }
    }

    pub(crate) fn directory_mut(&mut self) -> Option<&mut Directory> {
        if let Kind::Directory(directory) = &mut self.kind { Some(directory) } else { None }
    }

    pub(crate) fn held(&self) -> Option<&Held> {
        if let Kind::File(held) = &self.kind { Some(held.as_deref().unwrap_or(&NOTHING)) } else { None }
    }

    pub(crate) fn held_mut(&mut self) -> Option<&mut Held> {
        if let Kind::File(held) = &mut self.kind { Some(held.get_or_insert_default()) } else { None }
    }

    /// Returns what is held of a file, or being fetched, if anything is.
    pub(crate) fn held_if_any(&mut self) -> Option<&mut Held> {
        if let Kind::File(held) = &mut self.kind { held.as_deref_mut() } else { None }
    }

    /// Whether nobody outside would miss it.
    pub(crate) const fn is_unused(&self) -> bool {
        self.references == 0 && self.open == 0 && (self.over || !self.pinned && !self.hoarded)
    }
}

/// Objects by node, and the node that a handle leads to now.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) by_node: BTreeMap<NodeId, Box<Object>>,
    /// The hash of its handle, and the node that the handle leads to now.
    by_hash: BTreeSet<(u64, NodeId)>,
    last: u64,
    uses: u64,
}

impl Objects {
    pub(crate) fn insert(&mut self, now: Instant, handle: FileHandle, known: Known) -> NodeId {
        self.last += 1;
        let node = NodeId(self.last);
        let mut object = Box::new(Object::new(handle.into(), known));
        if let Some(directory) = object.directory_mut() {
            directory.see(now, known.metadata);
        }
        self.by_node.insert(node, object);
        self.by_hash.insert((hash(&handle), node));
        self.touch(node);
        node
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&Object> {
        self.by_node.get(&node).map(|object| &**object)
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Object> {
        self.by_node.get_mut(&node).map(|object| &mut **object)
    }

    /// Returns what a handle leads to now.
    pub(crate) fn at(&self, handle: &FileHandle) -> Option<(NodeId, &Object)> {
        let hash = hash(handle);
        let nodes = self.by_hash.range((hash, NodeId(0))..=(hash, NodeId(u64::MAX)));
        let mut objects = nodes.filter_map(|&(_, node)| Some((node, self.get(node)?)));
        objects.find(|(_, object)| object.handle.is(handle))
    }

    /// Returns the node that a handle leads to now.
    pub(crate) fn node(&self, handle: &FileHandle) -> Option<NodeId> {
        self.at(handle).map(|(node, _)| node)
    }

    /// Returns a handle in the memory that others have it in.
    pub(crate) fn share(&self, handle: FileHandle) -> SharedHandle {
        self.at(&handle).map_or_else(|| handle.into(), |(_, object)| object.handle.clone())
    }

    /// Returns how often objects were used.
    pub(crate) const fn uses(&self) -> u64 {
        self.uses
    }

    pub(crate) fn touch(&mut self, node: NodeId) {
        self.uses += 1;
        if let Some(object) = self.by_node.get_mut(&node) {
            object.used = self.uses;
        }
    }

    /// Separates a node from its handle: what the handle leads to is no longer that.
    pub(crate) fn end(&mut self, node: NodeId) {
        if let Some(object) = self.by_node.get_mut(&node) {
            object.over = true;
            self.by_hash.remove(&(hash(&object.handle()), node));
        }
    }

    pub(crate) fn remove(&mut self, node: NodeId) -> Option<Box<Object>> {
        self.end(node);
        self.by_node.remove(&node)
    }
}
