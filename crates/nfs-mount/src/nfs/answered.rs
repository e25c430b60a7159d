//! A back end for one call, whose answer is known.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use nfs_wire::{
    FileHandle,
    nfs3_types::nfs3::{fattr3, nfstime3, sattr3, stable_how},
};
use nfs_wireless_client::NfsStatus;
use nfs_wireless_server::{
    Vfs,
    vfs::{Detail, EndOfFile, Entry, FIRST_COOKIE, Name, NewObject, NodeId, Owner, Space},
};

/// What the server crate needs to put a reply together.
#[derive(Debug)]
pub(super) struct Answered {
    /// Tells what is mounted from other things.
    pub(super) identity: u64,
    /// What the handle in the call leads to; a call that is refused whatever it leads to needs nothing.
    pub(super) object: Result<Option<Known>, NfsStatus>,
    pub(super) body: Body,
}

/// An object with its handle and attributes.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) handle: FileHandle,
    pub(super) attributes: fattr3,
}

/// The answer beside the object's attributes.
#[derive(Debug)]
pub(super) enum Body {
    Nothing,
    Failed(NfsStatus),
    /// What a name leads to.
    Found(Known),
    Target(Bytes),
    Data(Vec<Bytes>),
    Listing {
        rows: Arc<[Row]>,
        /// The directory above, where it is known.
        parent: Option<Known>,
    },
    Space(Space),
}

/// An entry of a listing.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cookie: u64,
    pub(super) name: Vec<u8>,
    pub(super) fileid: u64,
    pub(super) known: Option<Known>,
}

const OBJECT: NodeId = NodeId(0);
const FOUND: NodeId = NodeId(1);
/// Rows of a listing are numbered from here on.
const FIRST_ROW: u64 = 2;

/// The cookie of a name: the same for as long as it is there, whatever else is.
pub(super) fn cookie(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let number = u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("32 bytes"));
    // Clients of 32 bits and signed ones have trouble with the highest bits.
    (number >> 2).max(FIRST_COOKIE)
}

impl Answered {
    pub(super) const fn new(identity: u64, object: Result<Option<Known>, NfsStatus>, body: Body) -> Self {
        Self { identity, object, body }
    }

    fn known(&self, node: NodeId) -> Option<&Known> {
        match (node, &self.body) {
            (OBJECT, _) => self.object.as_ref().ok()?.as_ref(),
            (FOUND, Body::Found(known) | Body::Listing { parent: Some(known), .. }) => Some(known),
            (NodeId(row), Body::Listing { rows, .. }) => {
                rows.get(usize::try_from(row.checked_sub(FIRST_ROW)?).ok()?)?.known.as_ref()
            }
            _ => None,
        }
    }

    /// Why there is no answer of the kind that a procedure asks for.
    const fn missing(&self) -> NfsStatus {
        if let Body::Failed(status) = self.body { status } else { NfsStatus::IO }
    }
}

impl Vfs for Answered {
    fn root(&self) -> NodeId {
        OBJECT
    }

    fn instance(&self) -> Option<u64> {
        Some(self.identity)
    }

    fn handle_of(&self, node: NodeId) -> Option<FileHandle> {
        self.known(node).map(|known| known.handle)
    }

    fn node_of(&self, _: &[u8]) -> Option<Result<NodeId, NfsStatus>> {
        Some(self.object.as_ref().map(|_| OBJECT).map_err(|&status| status))
    }

    fn attributes(&self, node: NodeId) -> Result<fattr3, NfsStatus> {
        match self.known(node) {
            Some(known) => Ok(known.attributes.clone()),
            None => Err(self.object.as_ref().err().copied().unwrap_or(NfsStatus::STALE)),
        }
    }

    fn lookup(&self, _: NodeId, _: Name<'_>) -> Result<NodeId, NfsStatus> {
        match (&self.body, &self.object) {
            (Body::Found(_), _) => Ok(FOUND),
            (Body::Failed(status), _) | (_, Err(status)) => Err(*status),
            _ => Err(NfsStatus::NOENT),
        }
    }

    fn parent(&self, _: NodeId) -> Result<NodeId, NfsStatus> {
        match self.body {
            Body::Found(_) | Body::Listing { parent: Some(_), .. } => Ok(FOUND),
            Body::Failed(status) => Err(status),
            _ => Ok(OBJECT),
        }
    }

    fn read_link(&self, _: NodeId) -> Result<Vec<u8>, NfsStatus> {
        match &self.body {
            Body::Target(target) => Ok(target.to_vec()),
            _ => Err(self.missing()),
        }
    }

    fn read(
        &self,
        _: nfstime3,
        node: NodeId,
        offset: u64,
        _: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, NfsStatus> {
        let Body::Data(pieces) = &self.body else { return Err(self.missing()) };
        let mut end = offset;
        for piece in pieces {
            buffer.extend_from_slice(piece);
            end += piece.len() as u64;
        }
        let is_whole = end >= self.attributes(node)?.size;
        Ok(if is_whole { EndOfFile::Reached } else { EndOfFile::NotReached })
    }

    fn list(
        &self,
        _: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, NfsStatus> {
        let Body::Listing { rows, .. } = &self.body else { return Err(self.missing()) };
        let first = rows.partition_point(|row| row.cookie <= after);
        for (number, row) in (FIRST_ROW..).zip(rows.iter()).skip(first) {
            let known = row.known.as_ref().filter(|_| detail == Detail::Attributes);
            let flow = visit(Entry {
                name: &row.name,
                file_id: row.fileid,
                cookie: row.cookie,
                node: known.map(|known| (NodeId(number), known.attributes.clone())),
            });
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn space(&self) -> Result<Space, NfsStatus> {
        match self.body {
            Body::Space(space) => Ok(space),
            _ => Err(self.missing()),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn set_attributes(&self, _: nfstime3, _: NodeId, _: &sattr3) -> Result<(), NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn write(
        &self,
        _: nfstime3,
        _: NodeId,
        _: u64,
        _: &[u8],
        _: stable_how,
    ) -> Result<stable_how, NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn commit(&self, _: NodeId, _: u64, _: u32) -> Result<(), NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn create(
        &self,
        _: nfstime3,
        _: NodeId,
        _: Name<'_>,
        _: NewObject<'_>,
        _: &sattr3,
        _: Owner,
    ) -> Result<NodeId, NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn create_exclusive(
        &self,
        _: nfstime3,
        _: NodeId,
        _: Name<'_>,
        _: [u8; 8],
        _: Owner,
    ) -> Result<NodeId, NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn remove(&self, _: nfstime3, _: NodeId, _: Name<'_>) -> Result<(), NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn remove_directory(&self, _: nfstime3, _: NodeId, _: Name<'_>) -> Result<(), NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn rename(&self, _: nfstime3, _: (NodeId, Name<'_>), _: (NodeId, Name<'_>)) -> Result<(), NfsStatus> {
        Err(NfsStatus::ROFS)
    }

    fn link(&self, _: nfstime3, _: NodeId, _: NodeId, _: Name<'_>) -> Result<(), NfsStatus> {
        Err(NfsStatus::ROFS)
    }
}
