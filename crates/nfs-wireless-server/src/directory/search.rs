//! Finding files by handles that an earlier server gave out.
//!
//! A node's number is made of what makes the file the same file, so a server that was started again knows it when it
//! sees it. It looks through the export once, from the root down and no further than it has to.

use std::collections::VecDeque;

use super::{host::Identity, table::ROOT};
use crate::vfs::NodeId;

/// How far the export has been looked through.
#[derive(Debug)]
pub(super) struct Search {
    /// Directories that were not looked into yet.
    ahead: VecDeque<NodeId>,
    /// Those of what is mounted within the export, which come last: there may be much, and it may be slow.
    beyond: VecDeque<NodeId>,
}

impl Search {
    pub(super) fn new(root: Identity) -> Self {
        let ahead = if root.is_unique() { VecDeque::from([ROOT]) } else { VecDeque::new() };
        Self { ahead, beyond: VecDeque::new() }
    }

    /// Takes the directory that is to be looked into next.
    pub(super) fn next(&mut self) -> Option<NodeId> {
        self.ahead.pop_front().or_else(|| self.beyond.pop_front())
    }

    /// Returns a directory that could not be looked into for the moment: it comes next.
    pub(super) fn put_back(&mut self, directory: NodeId) {
        self.ahead.push_front(directory);
    }

    /// Adds a directory that was found; what is mounted within the export comes last.
    pub(super) fn add(&mut self, directory: NodeId, is_mounted: bool) {
        let queue = if is_mounted { &mut self.beyond } else { &mut self.ahead };
        queue.push_back(directory);
    }
}
