//! The 22 procedures of NFSv3 (RFC 1813 §3.3), on top of a back end.

mod attr;
mod data;
mod dir;
mod name;

use nfs_wire::{
    DecodeError, Procedure, Reader, Status,
    call::decode,
    encode,
    nfs3_types::{
        nfs3::{
            Nfs3Option, fattr3, nfs_fh3, nfstime3, post_op_attr, post_op_fh3, pre_op_attr, wcc_attr, wcc_data,
        },
        xdr_codec::Pack,
    },
};

use crate::{
    address_validation::Grant,
    faults::Plan,
    handle::Handles,
    vfs::{Component, NodeId, Owner, Vfs},
};

/// One call in service: what a procedure may look at and change.
pub(crate) struct Call<'a> {
    pub(crate) backend: &'a dyn Vfs,
    /// Bytes of file data in the reply.
    pub(crate) read_bytes: &'a mut u64,
    /// What they are of.
    pub(crate) read: &'a mut Option<NodeId>,
    /// Bytes of file data in the call, if it succeeds.
    pub(crate) written_bytes: &'a mut u64,
    /// The reply, whose header is written; procedures append their results.
    pub(crate) reply: &'a mut Vec<u8>,
    pub(crate) now: nfstime3,
    pub(crate) handles: Handles,
    pub(crate) owner: Owner,
    pub(crate) limits: Limits,
    /// What the reply may carry to the caller's address.
    pub(crate) grant: Grant,
    pub(crate) write_verifier: [u8; 8],
    pub(crate) plan: Plan,
}

/// What one READ or WRITE may carry, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) transfer: u32,
    pub(crate) claimed_read: u32,
    pub(crate) claimed_write: u32,
}

impl Call<'_> {
    /// Runs a procedure and appends its results.
    pub(crate) fn serve(&mut self, procedure: Procedure, arguments: Reader<'_>) -> Result<(), DecodeError> {
        if let Some(status) = self.plan.fail {
            self.answer_blindly(procedure, status.code());
            return Ok(());
        }
        if self.plan.pretend {
            self.answer_blindly(procedure, 0);
            return Ok(());
        }
        match procedure {
            Procedure::Null => decode::<()>(arguments)?,
            Procedure::Getattr => self.getattr(&decode(arguments)?),
            Procedure::Setattr => self.setattr(&decode(arguments)?),
            Procedure::Lookup => self.lookup(&decode(arguments)?),
            Procedure::Access => self.access(&decode(arguments)?),
            Procedure::Readlink => self.readlink(&decode(arguments)?),
            Procedure::Read => self.read(&decode(arguments)?),
            Procedure::Write => self.write(&decode(arguments)?),
            Procedure::Create => self.create(&decode(arguments)?),
            Procedure::Mkdir => self.mkdir(&decode(arguments)?),
            Procedure::Symlink => self.symlink(&decode(arguments)?),
            Procedure::Mknod => self.mknod(&decode(arguments)?),
            Procedure::Remove => self.remove(&decode(arguments)?),
            Procedure::Rmdir => self.rmdir(&decode(arguments)?),
            Procedure::Rename => self.rename(&decode(arguments)?),
            Procedure::Link => self.link(&decode(arguments)?),
            Procedure::Readdir => self.readdir(&decode(arguments)?),
            Procedure::Readdirplus => self.readdirplus(&decode(arguments)?),
            Procedure::Fsstat => self.fsstat(&decode(arguments)?),
            Procedure::Fsinfo => self.fsinfo(&decode(arguments)?),
            Procedure::Pathconf => self.pathconf(&decode(arguments)?),
            Procedure::Commit => self.commit(&decode(arguments)?),
        }
        Ok(())
    }

    /// Appends results that are a status, and attributes that are all left out.
    fn answer_blindly(&mut self, procedure: Procedure, status: u32) {
        let absent_attributes = match procedure {
            Procedure::Null => return,
            Procedure::Getattr => 0,
            Procedure::Lookup
            | Procedure::Access
            | Procedure::Readlink
            | Procedure::Read
            | Procedure::Readdir
            | Procedure::Readdirplus
            | Procedure::Fsstat
            | Procedure::Fsinfo
            | Procedure::Pathconf => 1,
            Procedure::Setattr
            | Procedure::Write
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Commit => 2,
            Procedure::Link => 3,
            Procedure::Rename => 4,
        };
        encode(self.reply, &status);
        for _ in 0..absent_attributes {
            encode(self.reply, &false);
        }
    }

    fn ok(&mut self, results: &impl Pack) {
        encode(self.reply, &0_u32);
        encode(self.reply, results);
    }

    fn fail(&mut self, status: Status, results: &impl Pack) {
        encode(self.reply, &status.code());
        encode(self.reply, results);
    }

    fn node(&self, handle: &nfs_fh3) -> Result<NodeId, Status> {
        self.handles.node_of(self.backend, handle.data.as_ref())
    }

    fn writable(&self) -> Result<(), Status> {
        if self.backend.is_read_only() { Err(Status::ROFS) } else { Ok(()) }
    }

    fn look(&mut self, node: NodeId) -> Result<fattr3, Status> {
        self.backend.attributes(node).map(|attributes| present(self.handles, attributes))
    }

    fn after(&mut self, node: Result<NodeId, Status>) -> post_op_attr {
        match node.and_then(|node| self.look(node)) {
            Ok(attributes) => Nfs3Option::Some(attributes),
            Err(_) => Nfs3Option::None,
        }
    }

    fn before(&mut self, node: Result<NodeId, Status>) -> pre_op_attr {
        match node.and_then(|node| self.backend.attributes(node)) {
            Ok(attributes) => Nfs3Option::Some(wcc_attr {
                size: attributes.size,
                mtime: attributes.mtime,
                ctime: attributes.ctime,
            }),
            Err(_) => Nfs3Option::None,
        }
    }

    fn wcc(&mut self, before: pre_op_attr, node: Result<NodeId, Status>) -> wcc_data {
        wcc_data { before, after: self.after(node) }
    }

    fn handle(&self, node: NodeId) -> nfs_fh3 {
        self.handles.handle_of(self.backend, node).to_fh3()
    }

    fn some_handle(&self, node: NodeId) -> post_op_fh3 {
        Nfs3Option::Some(self.handle(node))
    }

    fn find(&mut self, directory: NodeId, name: &[u8]) -> Result<NodeId, Status> {
        match Component::parse(name)? {
            Component::Current => self.backend.parent(directory).map(|_| directory),
            Component::Parent => self.backend.parent(directory),
            Component::Entry(name) => self.backend.lookup(directory, name),
        }
    }
}

/// Makes the file system's number differ between two services over the same back end.
const fn present(handles: Handles, mut attributes: fattr3) -> fattr3 {
    attributes.fsid ^= handles.file_system;
    attributes
}

#[cfg(test)]
mod tests;
