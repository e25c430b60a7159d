//! A file system in memory, whose unstable writes are really volatile.

mod pages;
mod state;

use std::{
    ops::ControlFlow,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{fattr3, nfstime3, sattr3, stable_how},
};

use self::state::State;
use crate::vfs::{Detail, EndOfFile, Entry, Name, NewObject, NodeId, Owner, Space, Vfs};

/// Limits of a [`Memory`] file system. The default suits tests and demonstrations on one machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Most bytes of file contents held, copies kept for a crash included; more is `NFS3ERR_NOSPC`. Default 1 GiB.
    pub capacity_bytes: u64,
    /// Most files, directories and links; more is `NFS3ERR_NOSPC`. Default 1,000,000.
    pub max_files: u64,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { capacity_bytes: 1 << 30, max_files: 1_000_000 }
    }
}

/// A file system in memory.
///
/// Contents written UNSTABLE are lost by [`Vfs::crash`] unless they were committed: data and size go back.
/// Everything else (names, attributes, sizes set) is durable at once, as RFC 1813 §4.8 asks. Ownership is recorded
/// and modes are kept, but nobody is ever refused.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
}

impl Memory {
    /// Creates an empty file system.
    pub fn new(config: MemoryConfig) -> Self {
        Self { state: Mutex::new(State::new(config)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(MemoryConfig::default())
    }
}

impl Vfs for Memory {
    fn root(&self) -> NodeId {
        State::root()
    }

    fn attributes(&self, node: NodeId) -> Result<fattr3, Status> {
        self.lock().attributes(node)
    }

    fn set_attributes(&self, now: nfstime3, node: NodeId, changes: &sattr3) -> Result<(), Status> {
        self.lock().set_attributes(now, node, changes)
    }

    fn lookup(&self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        self.lock().lookup(directory, name)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId, Status> {
        self.lock().parent(directory)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>, Status> {
        self.lock().read_link(node)
    }

    fn read(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, Status> {
        self.lock().read(now, node, offset, count, buffer)
    }

    fn write(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<stable_how, Status> {
        self.lock().write(now, node, offset, data, stable)
    }

    fn commit(&self, node: NodeId, offset: u64, count: u32) -> Result<(), Status> {
        self.lock().commit(node, offset, count)
    }

    fn create(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        object: NewObject<'_>,
        attributes: &sattr3,
        owner: Owner,
    ) -> Result<NodeId, Status> {
        self.lock().create(now, directory, name, object, attributes, owner)
    }

    fn create_exclusive(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        verifier: [u8; 8],
        owner: Owner,
    ) -> Result<NodeId, Status> {
        self.lock().create_exclusive(now, directory, name, verifier, owner)
    }

    fn remove(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        self.lock().remove(now, directory, name)
    }

    fn remove_directory(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        self.lock().remove_directory(now, directory, name)
    }

    fn rename(&self, now: nfstime3, from: (NodeId, Name<'_>), to: (NodeId, Name<'_>)) -> Result<(), Status> {
        self.lock().rename(now, from, to)
    }

    fn link(&self, now: nfstime3, node: NodeId, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        self.lock().link(now, node, directory, name)
    }

    fn list(
        &self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Status> {
        self.lock().list(directory, after, detail, visit)
    }

    fn space(&self) -> Result<Space, Status> {
        self.lock().space()
    }

    fn crash(&self) {
        self.lock().crash();
    }
}

#[cfg(test)]
mod tests;
