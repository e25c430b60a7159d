//! What a directory of the host knows of its files, behind one lock, which nobody holds in a call of the host: that may wait for a file
//! system that does not respond, and others have nothing to do with it.

use super::{
    DirectoryConfig,
    host::{Found, Identity},
    listing::Listings,
    open_files::{Closed, OpenFiles},
    search::Search,
    table::{NameInDirectory, Table},
};
use crate::vfs::{Name, NodeId};

/// What is known of the files, and which are open.
#[derive(Debug)]
pub(super) struct State {
    pub(super) table: Table,
    pub(super) search: Search,
    pub(super) listings: Listings,
    pub(super) open_files: OpenFiles,
    /// Files that are being moved: they may be in either place.
    pub(super) moving: Vec<Identity>,
    /// Directories in which a name is being given or taken.
    pub(super) claimed: Vec<NodeId>,
    /// How many names have been taken from files.
    pub(super) unlinks: u64,
}

/// A name that is being taken from a file.
#[derive(Debug)]
#[must_use = "it ends when the host has answered"]
pub(super) struct Unlinking {
    place: NameInDirectory,
    node: Option<NodeId>,
    is_last: bool,
}

impl State {
    pub(super) fn new(config: &DirectoryConfig, identity: Identity) -> Self {
        Self {
            table: Table::new(identity, config.max_nodes),
            search: Search::new(identity),
            open_files: OpenFiles::new(config.max_open_files),
            listings: Listings::default(),
            moving: Vec::new(),
            claimed: Vec::new(),
            unlinks: 0,
        }
    }

    /// Begins to take a name from what has it; the file may have others.
    pub(super) fn begin_unlink(&mut self, place: NameInDirectory, before: &Found) -> Unlinking {
        let node = self.table.find(before.identity);
        let is_last = before.is_directory() || before.attributes.nlink <= 1;
        if let Some(node) = node.filter(|_| is_last) {
            self.table.release(node);
        }
        Unlinking { place, node, is_last }
    }

    /// Notes whether the host has taken the name.
    pub(super) fn end_unlink(&mut self, unlinking: Unlinking, is_done: bool) -> Closed {
        let Unlinking { place, node, is_last } = unlinking;
        self.unlinks += u64::from(is_done);
        match node {
            Some(node) if is_done && is_last => self.forget(node),
            Some(node) if is_done => {
                self.table.remove_place(node, &place);
                Closed::default()
            }
            Some(node) if is_last => {
                self.table.keep(node);
                Closed::default()
            }
            _ => Closed::default(),
        }
    }

    /// Forgets a file that is gone.
    pub(super) fn forget(&mut self, node: NodeId) -> Closed {
        self.table.forget(node);
        self.open_files.close(node)
    }
}

pub(super) fn place(directory: NodeId, name: Name<'_>) -> NameInDirectory {
    NameInDirectory { directory, name: name.as_bytes().to_vec() }
}
