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
                encode(buffer, &Nfs3Option::<nfstime3>::None);
            }
            Phase::Rename => {
                encode(buffer, &place(self.working_name()));
                encode(buffer, &place(&self.spec.name));
            }
            Phase::Confirm => encode(buffer, &self.file),
            Phase::Data | Phase::Done => {}
        }
    }
}
