//! Handles that NFS clients of the view are given: the server's own, and which version of the file is meant.
//!
//! | bytes | what |
//! |---|---|
//! | 2 | `nV`; `nH` where the server's handle has no room |
//! | 6 | hash of what is mounted and of the file's version |
//! | up to 56 | the server's handle; 16 bytes of its hash where it is longer |
//!
//! So handles survive the program as long as the file keeps its attributes. Of the long ones only those survive that are met again.

use std::collections::{BTreeMap, VecDeque};

use nfs_cache::Identity;
use nfs_wire::FileHandle;
use nfs_wireless_client::NfsStatus;

type Tag = [u8; 6];
type Hash = [u8; 16];

const WHOLE: [u8; 2] = *b"nV";
const HASHED: [u8; 2] = *b"nH";

/// Longest handle of a server that fits in as it is.
const MAX_WHOLE: usize = 64 - WHOLE.len() - size_of::<Tag>();

/// Most long handles remembered; the one met first goes.
const MAX_HASHED: usize = 100_000;

/// Makes handles, and takes them apart.
#[derive(Debug)]
pub(crate) struct Handles {
    /// What tells one mounted directory from others.
    pub(super) identity: u64,
    hashed: BTreeMap<Hash, FileHandle>,
    order: VecDeque<Hash>,
}

/// A handle taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The server's handle.
    pub(crate) server: FileHandle,
    tag: Tag,
}

impl Handles {
    /// Makes handles for files below a directory.
    pub(crate) fn new(root: &FileHandle, (file_system, file): (u64, u64)) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(root.as_bytes());
        hasher.update(&file_system.to_be_bytes());
        hasher.update(&file.to_be_bytes());
        let identity = u64::from_be_bytes(first(hasher.finalize().as_bytes()));
        let mut handles = Self { identity, hashed: BTreeMap::new(), order: VecDeque::new() };
        if root.as_bytes().len() > MAX_WHOLE {
            handles.remember(root);
        }
        handles
    }

    /// Makes the handle of what the cache names so.
    pub(crate) fn handle(&mut self, Identity { handle: server, version }: &Identity) -> FileHandle {
        let bytes = server.as_bytes();
        let tag = self.tag(*version);
        let handle = if bytes.len() <= MAX_WHOLE {
            [&WHOLE[..], &tag, bytes].concat()
        } else {
            let hash = self.remember(server);
            [&HASHED[..], &tag, &hash].concat()
        };
        FileHandle::try_from(&handle[..]).expect("as long as the parts, which are 64 bytes at most")
    }

    fn remember(&mut self, server: &FileHandle) -> Hash {
        let hash = first(blake3::hash(server.as_bytes()).as_bytes());
        if self.hashed.insert(hash, *server).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > MAX_HASHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.hashed.remove(&oldest);
        }
        hash
    }

    /// Takes a handle apart.
    ///
    /// # Errors
    /// BADHANDLE if it is none of ours, STALE if its file is not known any more.
    pub(crate) fn parts(&self, handle: &[u8]) -> Result<Parts, NfsStatus> {
        let (mark, rest) = handle.split_first_chunk::<2>().ok_or(NfsStatus::BADHANDLE)?;
        let (&tag, rest) = rest.split_first_chunk::<6>().ok_or(NfsStatus::BADHANDLE)?;
        let server = match *mark {
            WHOLE => FileHandle::try_from(rest).map_err(|_| NfsStatus::BADHANDLE)?,
            HASHED => {
                let hash = Hash::try_from(rest).map_err(|_| NfsStatus::BADHANDLE)?;
                *self.hashed.get(&hash).ok_or(NfsStatus::STALE)?
            }
            _ => return Err(NfsStatus::BADHANDLE),
        };
        Ok(Parts { server, tag })
    }

    /// Whether a handle means this version.
    pub(crate) fn is_of(&self, parts: &Parts, version: u64) -> bool {
        parts.tag == self.tag(version)
    }

    fn tag(&self, version: u64) -> Tag {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.identity.to_be_bytes());
        hasher.update(&version.to_be_bytes());
        first(hasher.finalize().as_bytes())
    }
}

fn first<const N: usize>(hash: &[u8; 32]) -> [u8; N] {
    *hash.first_chunk().expect("at most 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(length: usize) -> FileHandle {
        FileHandle::try_from(&vec![length as u8; length][..]).unwrap()
    }

    fn identity(length: usize, version: u64) -> Identity {
        Identity { handle: server(length), version }
    }

    #[test]
    fn a_handle_leads_to_the_servers_and_to_one_version_also_after_a_restart() {
        let root = (5, 2);
        let (old, new) = (1, 2);
        for length in [1, 28, 56] {
            let handle = Handles::new(&server(16), root).handle(&identity(length, old));
            let later = Handles::new(&server(16), root);
            let parts = later.parts(handle.as_bytes()).unwrap();
            assert_eq!(parts.server, server(length));
            assert!(later.is_of(&parts, old));
            assert!(!later.is_of(&parts, new));
            let other = Handles::new(&server(17), root);
            assert!(
                !other.is_of(&other.parts(handle.as_bytes()).unwrap(), old),
                "another directory is mounted"
            );
        }
    }

    #[test]
    fn long_handles_are_remembered_and_stale_after_a_restart_but_for_the_root() {
        let mut handles = Handles::new(&server(64), (5, 2));
        let handle = handles.handle(&identity(57, 1));
        assert_eq!(handles.parts(handle.as_bytes()).unwrap().server, server(57));
        let top = handles.handle(&identity(64, 0));
        let later = Handles::new(&server(64), (5, 2));
        assert_eq!(later.parts(handle.as_bytes()), Err(NfsStatus::STALE));
        assert_eq!(later.parts(top.as_bytes()).unwrap().server, server(64));
    }

    #[test]
    fn what_is_no_handle_of_ours_is_refused() {
        let handles = Handles::new(&server(16), (5, 2));
        for wrong in [&b""[..], b"n", b"nV", b"nV123456", b"nH1234567", b"xx12345678", &[0; 64]] {
            assert_eq!(handles.parts(wrong), Err(NfsStatus::BADHANDLE), "{wrong:?}");
        }
    }
}
