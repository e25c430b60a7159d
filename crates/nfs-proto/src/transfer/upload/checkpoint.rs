//! What a later run needs to go on with an upload.

use nfs_wire::nfs3_types::nfs3::LOOKUP3resok;

use super::{Phase, Placement, Stability, Upload};
use crate::{
    attr::{FileType, Metadata, SetTime, Time, optional},
    transfer::RangeSet,
};

/// The state of an upload into a temporary file, from which another [`Upload`] goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// File system of the temporary file.
    pub fsid: u64,
    /// The temporary file in it.
    pub fileid: u64,
    /// Time of last access that the file was made with, as the server gave it: nobody reads the file, so it tells it
    /// from a later one of the same number.
    pub made: Time,
    /// Its owner, as the server gave it.
    pub owner: u32,
    /// Its permissions when it was made.
    pub mode: u32,
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
            owner: file.uid,
            mode: file.mode & 0o7777,
            stable: RangeSet::new(),
            verifier: [0; 8],
            unstable: RangeSet::new(),
        }
    }

    /// Whether a file is the one this is about, not cut since, and nobody else could have written it, as far as its attributes tell.
    pub(super) fn is_of(&self, file: &Metadata) -> bool {
        let is_closed = file.mode & 0o002 == 0 || file.mode & 0o7777 == self.mode;
        self.is_this(file)
            && file.atime == self.made
            && file.size >= self.stable.end()
            && is_closed
            && file.links <= 1
    }

    fn is_this(&self, file: &Metadata) -> bool {
        file.file_type == FileType::Regular
            && (file.fsid, file.fileid, file.uid) == (self.fsid, self.fileid, self.owner)
    }
}

impl Upload {
    /// Looks whether what has the temporary name is the file of the earlier upload.
    pub(super) fn recover(&mut self, found: LOOKUP3resok) {
        let metadata = optional(&found.obj_attributes);
        let earlier = self.earlier().filter(|earlier| metadata.is_some_and(|it| earlier.is_of(&it)));
        let Some(unsettled) = earlier.map(|earlier| !earlier.unstable.is_empty()) else {
            self.phase = Phase::Clear;
            return;
        };
        (self.file, self.found, self.latest) = (found.object, metadata, metadata);
        self.phase = Phase::Settle;
        if !unsettled {
            self.take_up(None);
        }
    }

    /// Goes on from the earlier upload. A COMMIT that was answered with the verifier of its WRITEs has made them stable
    /// (RFC 1813 §4.8).
    pub(super) fn take_up(&mut self, verifier: Option<[u8; 8]>) {
        let Some(earlier) = self.earlier() else { return };
        let mut stable = earlier.stable.clone();
        if verifier == Some(earlier.verifier) {
            let size = self.found.map_or(0, |found| found.size);
            earlier.unstable.below(size).drain_into(&mut stable);
        }
        let mut stable = stable.below(self.spec.size);
        self.resumed = stable.bytes();
        self.spec.holes.iter().for_each(|hole| stable.insert(hole));
        self.todo = stable.missing(self.spec.size);
        self.stability = Stability::resume(stable);
        self.phase = Phase::Data;
        self.advance_from_data();
    }

    fn earlier(&self) -> Option<&Checkpoint> {
        match &self.spec.placement {
            Placement::Resumable { earlier, .. } => earlier.as_deref(),
            _ => None,
        }
    }

    /// Whether what has the target's name is the earlier upload's file: it got the name when it was complete.
    pub(super) fn is_complete(&self, found: &LOOKUP3resok) -> bool {
        let (Some(earlier), Some(found)) = (self.earlier(), optional(&found.obj_attributes)) else {
            return false;
        };
        let wanted = |time, found| matches!(time, Some(SetTime::To(time)) if time == found);
        let last = &self.spec.attributes;
        let kept = wanted(last.atime, found.atime) && wanted(last.mtime, found.mtime);
        earlier.is_this(&found) && found.size == self.spec.size && (found.atime == earlier.made || kept)
    }
}
