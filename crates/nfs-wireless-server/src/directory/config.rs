//! Settings of the directory back end.

/// Settings of a [`Directory`](super::Directory). The default suits copying trees in and out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DirectoryConfig {
    /// Whether clients may change anything. Default: they may.
    pub access: Access,
    /// Whether names and attributes are flushed to the disk before a change is answered. Default: yes.
    pub metadata: Metadata,
    /// Most files whose handles stay valid at the same time; the one unused for longest goes stale. Default 262,144,
    /// about 60 MB when all are in use.
    pub max_nodes: usize,
    /// Most files kept open for READ and WRITE. Default 64, well below the usual limit of 1024 descriptors.
    pub max_open_files: usize,
}

/// Whether clients may change files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They may.
    ReadWrite,
    /// Changes are refused with `NFS3ERR_ROFS`.
    ReadOnly,
}

/// When names and attributes reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// Before the call that changes them is answered (RFC 1813 §4.8).
    Synced,
    /// When the host sees fit: faster, and enough where nothing outlives a power failure anyway.
    Cached,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self { access: Access::ReadWrite, metadata: Metadata::Synced, max_nodes: 262_144, max_open_files: 64 }
    }
}
