//! The arguments of an upload's calls.

use nfs_wire::{
    encode,
    nfs3_types::{
        nfs3::{Nfs3Option, createhow3, diropargs3, filename3, nfstime3},
        xdr_codec::Opaque,
    },
};

use super::{OWNER_WRITE, Phase, Placement, Upload};
use crate::attr::{SetAttributes, SetTime, Time};

/// Guards that may be refused before a size is set without one: others change the file all the time.
const MOST_REFUSED_GUARDS: u32 = 16;

impl Upload {
    /// The whole file: offset 0 and count 0 (RFC 1813 §3.3.21).
    pub(super) fn encode_commit(&self, buffer: &mut Vec<u8>) {
        encode(buffer, &self.file);
        encode(buffer, &0_u64);
        encode(buffer, &0_u32);
    }

    /// The time of last access by which a later upload knows the temporary file again.
    pub(super) const fn mark(&self) -> Option<Time> {
        match self.spec.placement {
            Placement::Resumable { made, .. } if !self.quirks.lacks_times_in_create => Some(made),
            _ => None,
        }
    }

    /// The time of last change without which SETATTR does not set a size: a copy of the call that comes late would cut what was written
    /// after it (RFC 1813 §3.3.2).
    pub(super) fn guard(&self) -> Option<Time> {
        let is_guarded =
            self.final_attributes().size.is_some() && self.quirks.refused_guards < MOST_REFUSED_GUARDS;
        self.latest.map(|it| it.ctime).filter(|_| is_guarded)
    }

    pub(super) fn encode_control(&self, buffer: &mut Vec<u8>) {
        let place =
            |name| diropargs3 { dir: self.directory.clone(), name: filename3(Opaque::borrowed(name)) };
        match self.phase {
            Phase::Create => {
                encode(buffer, &place(self.working_name()));
                let mut attributes =
                    SetAttributes { mode: Some(self.spec.mode | OWNER_WRITE), ..Default::default() };
                attributes.atime = self.mark().map(SetTime::To);
                let how = if self.is_guarded() {
                    createhow3::GUARDED(attributes.to_wire())
                } else {
                    createhow3::UNCHECKED(attributes.to_wire())
                };
                encode(buffer, &how);
            }
            Phase::Recover | Phase::Find { .. } | Phase::Clear => encode(buffer, &place(self.working_name())),
            Phase::Settle => self.encode_commit(buffer),
            Phase::LookAhead | Phase::Check => encode(buffer, &place(&self.spec.name)),
            Phase::Attributes => {
                encode(buffer, &self.file);
                encode(buffer, &self.final_attributes().to_wire());
                let guard = self.guard().map(|it| nfstime3 { seconds: it.seconds, nseconds: it.nanoseconds });
                encode(buffer, &guard.map_or(Nfs3Option::None, Nfs3Option::Some));
            }
            Phase::Rename => {
                encode(buffer, &place(self.working_name()));
                encode(buffer, &place(&self.spec.name));
            }
            Phase::Confirm | Phase::Latest => encode(buffer, &self.file),
            Phase::Data | Phase::Done => {}
        }
    }
}
