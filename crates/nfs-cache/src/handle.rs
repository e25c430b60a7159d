//! A server's handles, in as much memory as they need.

use std::{
    hash::{DefaultHasher, Hasher},
    sync::Arc,
};

use nfs_wire::FileHandle;

/// A handle that all share who know it: an object, and the names that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedHandle(Arc<[u8]>);

impl SharedHandle {
    /// Returns the handle.
    pub(crate) fn get(&self) -> FileHandle {
        FileHandle::try_from(&*self.0).expect("it was made of a handle")
    }

    pub(crate) fn is(&self, handle: &FileHandle) -> bool {
        *self.0 == *handle.as_bytes()
    }
}

impl From<FileHandle> for SharedHandle {
    fn from(handle: FileHandle) -> Self {
        Self(handle.as_bytes().into())
    }
}

/// Returns the same number for the same handle.
pub(crate) fn hash(handle: &FileHandle) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(handle.as_bytes());
    hasher.finish()
}
