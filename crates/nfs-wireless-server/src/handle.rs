//! File handles: what the service writes into them, and which ones it takes back.

use nfs_wire::{FileHandle, Status};

use crate::vfs::{NodeId, Vfs};

/// Shortest handle, in bytes: mark, instance and node.
pub const MIN_HANDLE_BYTES: u8 = 20;

/// Longest handle, in bytes (RFC 1813 §2.4).
pub const MAX_HANDLE_BYTES: u8 = 64;

/// First bytes of every handle, which tell a handle of another server from one of an earlier instance.
const MARK: [u8; 4] = *b"nfsw";

/// Makes handles: mark, instance, node, and zeros up to the length wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handles {
    /// The back end's own number, or one that every service draws, to which handles of an earlier one are stale.
    pub(crate) instance: u64,
    /// What makes file system numbers differ between servers.
    pub(crate) file_system: u64,
    pub(crate) length: u8,
    /// All are stale, for good.
    pub(crate) are_revoked: bool,
}

impl Handles {
    /// Returns the handle of a node: the back end's own, where it makes them.
    pub(crate) fn handle_of(self, backend: &dyn Vfs, node: NodeId) -> FileHandle {
        backend.handle_of(node).unwrap_or_else(|| self.handle(node))
    }

    /// Finds what a handle leads to.
    pub(crate) fn node_of(self, backend: &dyn Vfs, handle: &[u8]) -> Result<NodeId, Status> {
        if self.are_revoked {
            return Err(Status::STALE);
        }
        backend.node_of(handle).unwrap_or_else(|| self.node(handle))
    }

    fn handle(self, node: NodeId) -> FileHandle {
        let mut bytes = Vec::with_capacity(MAX_HANDLE_BYTES.into());
        bytes.extend_from_slice(&MARK);
        bytes.extend_from_slice(&self.instance.to_be_bytes());
        bytes.extend_from_slice(&node.0.to_be_bytes());
        bytes.resize(self.length.into(), 0);
        FileHandle::try_from(&bytes[..]).expect("the length was checked by the configuration")
    }

    /// Finds the node: BADHANDLE when no server of ours made the handle, STALE when another instance did.
    fn node(self, handle: &[u8]) -> Result<NodeId, Status> {
        let node = handle
            .strip_prefix(&MARK)
            .filter(|_| handle.len() == usize::from(self.length))
            .and_then(|rest| rest.split_first_chunk::<8>())
            .and_then(|(instance, rest)| Some((*instance, rest.split_first_chunk::<8>()?)));
        match node {
            Some((instance, (node, padding))) if padding.iter().all(|&byte| byte == 0) => {
                if u64::from_be_bytes(instance) == self.instance {
                    Ok(NodeId(u64::from_be_bytes(*node)))
                } else {
                    Err(Status::STALE)
                }
            }
            _ => Err(Status::BADHANDLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_handle_is_bad_and_an_old_one_stale() {
        let ours = Handles { instance: 7, file_system: 7, length: 25, are_revoked: false };
        let handle = ours.handle(NodeId(9));
        assert_eq!(handle.as_bytes().len(), 25);
        assert_eq!(ours.node(handle.as_bytes()), Ok(NodeId(9)));
        let later = Handles { instance: 8, ..ours };
        assert_eq!(later.node(handle.as_bytes()), Err(Status::STALE));
        for wrong in [&[1; 25][..], &handle.as_bytes()[..24], b"nfsw", b""] {
            assert_eq!(ours.node(wrong), Err(Status::BADHANDLE));
        }
        let mut padded = handle.as_bytes().to_vec();
        padded[24] = 1;
        assert_eq!(ours.node(&padded), Err(Status::BADHANDLE));
    }
}
