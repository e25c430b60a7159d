//! Finding files by handles that an earlier server gave out.
//!
//! A node's number is made of what makes the file the same file, so a server that was started again knows it when it
//! sees it. It looks through the export once, from the root down and no further than it has to.

use std::collections::VecDeque;

use nfs_wire::{Status, nfs3_types::nfs3::ftype3};
use rustix::fs::Dir;

use super::{
    host::{Identity, look_at, status},
    state::State,
    table::{Place, ROOT},
};
use crate::vfs::NodeId;

/// How far the export has been looked through.
#[derive(Debug)]
pub(super) struct Search {
    /// Directories that were not looked into yet.
    ahead: VecDeque<NodeId>,
    /// Those of what is mounted within the export, which come last: there may be much, and it may be slow.
    beyond: VecDeque<NodeId>,
}

/// Entries looked at before the client is asked to come again, so that others are served meanwhile.
const ENTRIES_PER_TURN: usize = 8192;

impl Search {
    pub(super) fn new(root: Identity) -> Self {
        let ahead = if root.is_unique() { VecDeque::from([ROOT]) } else { VecDeque::new() };
        Self { ahead, beyond: VecDeque::new() }
    }

    fn next(&mut self) -> Option<NodeId> {
        self.ahead.pop_front().or_else(|| self.beyond.pop_front())
    }
}

impl State {
    /// Looks for a node that nobody has asked about since the server was started.
    ///
    /// # Errors
    /// JUKEBOX when there is more to look through, STALE when there is not.
    pub(super) fn find_again(&mut self, node: NodeId) -> Result<(), Status> {
        let mut entries = 0;
        while let Some(directory) = self.search.next() {
            // A directory that has gone meanwhile, or is not for us, holds nothing that could be asked for.
            entries += self.look_into(directory).unwrap_or(1);
            if self.table.identity(node).is_some() {
                return Ok(());
            }
            if entries >= ENTRIES_PER_TURN {
                return Err(Status::JUKEBOX);
            }
        }
        Err(Status::STALE)
    }

    fn look_into(&mut self, directory: NodeId) -> Result<usize, Status> {
        // A directory that was forgotten again must not be searched for in turn.
        self.table.identity(directory).ok_or(Status::STALE)?;
        let inside = self.enter(directory)?;
        let mut count = 0;
        for entry in Dir::read_from(&inside).map_err(status)? {
            let entry = entry.map_err(status)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            count += 1;
            // What cannot be looked at, such as a mount whose program is gone, does not hide its neighbours. Numbers of files whose time of
            // birth is not told prove nothing.
            let Ok(found) = look_at(&inside, name) else { continue };
            if !found.identity.is_unique() {
                continue;
            }
            let node = self.table.enter(Place { directory, name: name.to_vec() }, found.identity);
            if found.attributes.type_ == ftype3::NF3DIR {
                let is_mounted = !found.identity.is_on_mount_of(self.table.root());
                let queue = if is_mounted { &mut self.search.beyond } else { &mut self.search.ahead };
                queue.push_back(node);
            }
        }
        Ok(count)
    }
}
