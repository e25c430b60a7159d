//! What is known of a server's tree and held of its files, in memory and in the store.

mod data;
mod idle;
mod keep;
mod names;
mod versions;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_proto::attr::{FileType, Metadata};
use nfs_wire::FileHandle;

use self::{idle::Marks, keep::Unkept};
use crate::{
    config::CacheConfig,
    freshness::Freshness,
    ids::{CallId, NodeId},
    object::{Known, Objects},
    record::{self, KeptDirectory, Subject},
    store::Store,
};

/// Objects by node, the data that is held of them, and what of it the store has yet to be given. It asks the server nothing.
#[derive(Debug)]
pub(crate) struct Tree<S> {
    config: Arc<CacheConfig>,
    store: S,
    pub(crate) objects: Objects,
    pub(crate) freshness: Freshness,
    /// The server was seen to tell how many names a file has.
    counts_links: bool,
    /// Calls before this one may tell of files that the server did not know later.
    gone_before: CallId,
    /// Grains that the store had no room for, for the operations that wait for them.
    loose: VecDeque<(NodeId, u64, Bytes)>,
    held_bytes: u64,
    unkept: Unkept,
    /// Grains that are to be fetched again once that proves of which version they are, the oldest first.
    again: VecDeque<(NodeId, u64)>,
    marks: Marks,
    /// Files that a front knows and that have changed.
    pub(crate) altered: Vec<NodeId>,
    /// Files that have another version: the node that is over, and the new one.
    pub(crate) replaced: Vec<(NodeId, NodeId)>,
}

impl<S: Store> Tree<S> {
    /// Begins with the directory `root`, whose attributes were just told.
    pub(crate) fn new(
        config: Arc<CacheConfig>,
        now: Instant,
        root: FileHandle,
        metadata: Metadata,
        store: S,
    ) -> Self {
        let mut objects = Objects::default();
        let known = Known { metadata, call: CallId::FIRST, asked_at: now, seen_at: now };
        let node = objects.insert(now, root, known);
        if let Some(object) = objects.get_mut(node) {
            object.references = 1;
        }
        let mut freshness = Freshness::new(Arc::clone(&config), now);
        freshness.observe(metadata.ctime);
        Self {
            config,
            store,
            objects,
            freshness,
            counts_links: false,
            gone_before: CallId(0),
            loose: VecDeque::new(),
            held_bytes: 0,
            unkept: Unkept::default(),
            again: VecDeque::new(),
            marks: Marks::new(now),
            altered: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Begins with what a lasting store has kept of the directory `root`; `None` if there is nothing. `since_1970` is what a clock of
    /// this machine shows.
    pub(crate) fn kept(
        config: Arc<CacheConfig>,
        now: Instant,
        since_1970: Duration,
        root: FileHandle,
        mut store: S,
    ) -> Option<Self> {
        let key = record::root_key(&root);
        let Subject { handle, metadata, asked } =
            store.recall(NodeId::ROOT, &key).and_then(|body| Some(KeptDirectory::decode(&body)?.subject))?;
        if handle != root || metadata.file_type != FileType::Directory {
            return None;
        }
        let mut tree = Self::new(config, now, root, metadata, store);
        tree.freshness.set_wall_clock(now, since_1970);
        let known = tree.freshness.kept(metadata, asked);
        if let Some(object) = tree.objects.get_mut(NodeId::ROOT) {
            object.known = known;
        }
        tree.freshness.reset_server_clock();
        Some(tree)
    }

    /// Returns the time.
    pub(crate) const fn now(&self) -> Instant {
        self.freshness.now()
    }
}
