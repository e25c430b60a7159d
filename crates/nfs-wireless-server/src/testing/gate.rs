//! A back end whose calls wait for the test, as calls wait for a slow disk.

use std::{
    ops::ControlFlow,
    sync::{Arc, Condvar, Mutex},
    thread::{self, ThreadId},
};

use nfs_wire::{
    Procedure, Status,
    nfs3_types::nfs3::{fattr3, nfstime3, sattr3, stable_how},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    Memory, Vfs,
    vfs::{Detail, EndOfFile, Entry, Name, NewObject, NodeId, Owner, Space},
};

/// Files in memory; COMMIT and REMOVE wait until the gate opens, FSSTAT panics.
#[derive(Debug)]
pub(crate) struct Gated {
    memory: Memory,
    arrived: UnboundedSender<Procedure>,
    gate: Arc<Gate>,
}

/// The test's end.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    threads: Mutex<Vec<ThreadId>>,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Returns how many threads have made calls that wait.
    pub(crate) fn threads(&self) -> usize {
        self.threads.lock().unwrap().len()
    }

    fn pass(&self) {
        let mut threads = self.threads.lock().unwrap();
        if !threads.contains(&thread::current().id()) {
            threads.push(thread::current().id());
        }
        drop(threads);
        drop(self.opened.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
    }
}

impl Gated {
    /// Returns the back end, its gate, and what tells of every call that arrives there.
    pub(crate) fn new(memory: Memory) -> (Self, Arc<Gate>, UnboundedReceiver<Procedure>) {
        let (arrived, arrivals) = unbounded_channel();
        let gate = Arc::new(Gate::default());
        (Self { memory, arrived, gate: Arc::clone(&gate) }, gate, arrivals)
    }

    fn pass(&self, procedure: Procedure) {
        let _ = self.arrived.send(procedure);
        assert_ne!(procedure, Procedure::Fsstat, "the panic that was wanted");
        self.gate.pass();
    }
}

impl Vfs for Gated {
    fn may_block(&self) -> bool {
        true
    }

    fn root(&self) -> NodeId {
        self.memory.root()
    }

    fn attributes(&self, node: NodeId) -> Result<fattr3, Status> {
        self.memory.attributes(node)
    }

    fn set_attributes(&self, now: nfstime3, node: NodeId, changes: &sattr3) -> Result<(), Status> {
        self.memory.set_attributes(now, node, changes)
    }

    fn lookup(&self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status> {
        self.memory.lookup(directory, name)
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId, Status> {
        self.memory.parent(directory)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>, Status> {
        self.memory.read_link(node)
    }

    fn read(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, Status> {
        self.memory.read(now, node, offset, count, buffer)
    }

    fn write(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<stable_how, Status> {
        self.memory.write(now, node, offset, data, stable)
    }

    fn commit(&self, node: NodeId, offset: u64, count: u32) -> Result<(), Status> {
        self.pass(Procedure::Commit);
        self.memory.commit(node, offset, count)
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
        self.memory.create(now, directory, name, object, attributes, owner)
    }

    fn create_exclusive(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        verifier: [u8; 8],
        owner: Owner,
    ) -> Result<NodeId, Status> {
        self.memory.create_exclusive(now, directory, name, verifier, owner)
    }

    fn remove(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        self.pass(Procedure::Remove);
        self.memory.remove(now, directory, name)
    }

    fn remove_directory(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        self.memory.remove_directory(now, directory, name)
    }

    fn rename(&self, now: nfstime3, from: (NodeId, Name<'_>), to: (NodeId, Name<'_>)) -> Result<(), Status> {
        self.memory.rename(now, from, to)
    }

    fn link(&self, now: nfstime3, node: NodeId, directory: NodeId, name: Name<'_>) -> Result<(), Status> {
        self.memory.link(now, node, directory, name)
    }

    fn list(
        &self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Status> {
        self.memory.list(directory, after, detail, visit)
    }

    fn space(&self) -> Result<Space, Status> {
        self.pass(Procedure::Fsstat);
        self.memory.space()
    }

    fn crash(&self) {
        self.memory.crash();
    }
}
