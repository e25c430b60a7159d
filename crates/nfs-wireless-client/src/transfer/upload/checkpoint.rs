//! What a later run needs to go on with an upload.

use crate::{
    attr::{FileType, Metadata, Time},
    transfer::RangeSet,
};

/// The state of an upload into a temporary file, from which another [`Upload`](super::Upload) goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// File system of the temporary file.
    pub fsid: u64,
    /// The temporary file in it.
    pub fileid: u64,
    /// Time of last access that the file was made with, as the server gave it: nobody reads the file, so it tells it
    /// from a later one of the same number.
    pub made: Time,
    /// Bytes on stable storage.
    pub stable: RangeSet,
    /// Write verifier under which `unstable` was acknowledged.
    pub verifier: [u8; 8],
    /// Bytes that the server has for as long as its write verifier stays.
    pub unstable: RangeSet,
}

impl Checkpoint {
    pub(super) const fn of(file: &Metadata) -> Self {
        Self {
            fsid: file.fsid,
            fileid: file.fileid,
            made: file.atime,
            stable: RangeSet::new(),
            verifier: [0; 8],
            unstable: RangeSet::new(),
        }
    }

    /// Whether a file is the one this is about, and not cut since.
    pub(super) fn is_of(&self, file: &Metadata) -> bool {
        file.file_type == FileType::Regular
            && (file.fsid, file.fileid, file.atime) == (self.fsid, self.fileid, self.made)
            && file.size >= self.stable.end()
    }
}
