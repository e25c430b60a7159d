//! What an earlier client found out about a server, so that the next one asks the right questions first.

use nfs_wire::{FileHandle, portmap::Protocol, rpc::Program};

use crate::{Entry, Error};

/// Where an earlier client found what it needed on a server, for [`ClientConfig::known`](crate::ClientConfig::known).
///
/// Nothing of it is believed: it saves the round trips of finding out whom and what to ask. What is wrong costs time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownServer {
    /// Port of the NFS service.
    pub nfs_port: u16,
    /// Transport and port of the MOUNT service.
    pub mount: (Protocol, u16),
    /// Path of the export that was mounted.
    pub export: Vec<u8>,
    /// The names of the path that will be looked up, from the export's root down, each in the directory whose handle is remembered. LOOKUPs
    /// and FSINFO are sent with the first call to the NFS service. [`Client::take_looked_up`](crate::Client::take_looked_up) has the replies.
    pub names: Vec<(FileHandle, Vec<u8>)>,
}

impl KnownServer {
    /// Remembers these ports and this export.
    pub const fn new(nfs_port: u16, mount: (Protocol, u16), export: Vec<u8>) -> Self {
        Self { nfs_port, mount, export, names: Vec::new() }
    }

    pub(crate) fn port(&self, program: Program, protocol: Protocol) -> Option<u16> {
        let (mount_protocol, mount_port) = self.mount;
        match program {
            Program::NFS => Some(self.nfs_port),
            Program::MOUNT if mount_protocol == protocol => Some(mount_port),
            _ => None,
        }
    }
}

/// Names that are looked up before it is certain that they will be needed, all at once.
///
/// NFS has no call that follows a path: each name takes a round trip, because the next LOOKUP needs the handle that the one before
/// returns (RFC 1813 §3.3.3). Whoever remembers the handles of the directories of a path can send all LOOKUPs at once, and walk with
/// their replies: where a name leads to another directory than it did, the walk asks again from there on.
#[derive(Debug, Default)]
pub struct LookedUp {
    pub(crate) found: Vec<(NameInDirectory, Result<Entry, Error>)>,
    /// Refused before the export was mounted: directories that are gone, as others of them were answered.
    pub(crate) refused: Vec<NameInDirectory>,
}

/// A name in a directory.
type NameInDirectory = (FileHandle, Vec<u8>);

impl LookedUp {
    /// Returns whether the server has answered for a name in a directory, so that asking again before its turn comes is in vain.
    pub fn was_answered(&self, directory: FileHandle, name: &[u8]) -> bool {
        let mut answered = self.found.iter().map(|(place, _)| place).chain(&self.refused);
        answered.any(|(place, known)| *place == directory && known == name)
    }

    /// Adds the replies to other names.
    pub fn add(&mut self, other: Self) {
        self.found.extend(other.found);
        self.refused.extend(other.refused);
    }

    /// Returns what [`Client::lookup`](crate::Client::lookup) said of a name in a directory, once; `None` if it was not asked, or refused while
    /// the client connected.
    pub fn take(&mut self, directory: FileHandle, name: &[u8]) -> Option<Result<Entry, Error>> {
        let at = self.found.iter().position(|((place, known), _)| *place == directory && known == name)?;
        Some(self.found.swap_remove(at).1)
    }
}
