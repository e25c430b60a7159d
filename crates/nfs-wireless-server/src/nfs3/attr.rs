//! Attributes of files and of the file system.

use nfs_wire::{
    Status,
    nfs3_types::{
        nfs3::{
            ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ,
            ACCESS3args, ACCESS3resfail, ACCESS3resok, FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK,
            FSF3_SYMLINK, FSINFO3args, FSINFO3resfail, FSINFO3resok, FSSTAT3args, FSSTAT3resfail,
            FSSTAT3resok, GETATTR3args, GETATTR3resok, Nfs3Option, PATHCONF3args, PATHCONF3resfail,
            PATHCONF3resok, SETATTR3args, SETATTR3resfail, SETATTR3resok, ftype3, nfstime3,
        },
        xdr_codec::Void,
    },
};

use super::Call;
use crate::vfs::MAX_NAME_BYTES;

/// Most names of one file that PATHCONF promises, as on ext4.
const MAX_LINKS: u32 = 65_000;

impl Call<'_> {
    /// GETATTR (RFC 1813 §3.3.1).
    pub(super) fn getattr(&mut self, arguments: &GETATTR3args) {
        let node = self.node(&arguments.object);
        match node.and_then(|node| self.look(node)) {
            Ok(obj_attributes) => self.ok(&GETATTR3resok { obj_attributes }),
            Err(status) => self.fail(status, &Void),
        }
    }

    /// SETATTR (RFC 1813 §3.3.2).
    pub(super) fn setattr(&mut self, arguments: &SETATTR3args) {
        let node = self.node(&arguments.object);
        let before = self.before(node);
        let done = node.and_then(|node| {
            self.writable()?;
            if let Nfs3Option::Some(ctime) = arguments.guard
                && self.backend.attributes(node)?.ctime != ctime
            {
                return Err(Status::NOT_SYNC);
            }
            self.backend.set_attributes(self.now, node, &arguments.new_attributes)
        });
        let obj_wcc = self.wcc(before, node);
        match done {
            Ok(()) => self.ok(&SETATTR3resok { obj_wcc }),
            Err(status) => self.fail(status, &SETATTR3resfail { obj_wcc }),
        }
    }

    /// ACCESS (RFC 1813 §3.3.4): whatever the kind of file allows, for everyone.
    pub(super) fn access(&mut self, arguments: &ACCESS3args) {
        let node = self.node(&arguments.object);
        match node.and_then(|node| self.look(node)) {
            Ok(attributes) => {
                let kind = match attributes.type_ {
                    ftype3::NF3DIR => ACCESS3_LOOKUP | ACCESS3_DELETE,
                    ftype3::NF3REG => ACCESS3_EXECUTE,
                    ftype3::NF3LNK | ftype3::NF3BLK | ftype3::NF3CHR | ftype3::NF3SOCK | ftype3::NF3FIFO => 0,
                };
                let mut allowed = kind | ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND;
                if self.writable().is_err() {
                    allowed &= !(ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE);
                }
                self.ok(&ACCESS3resok {
                    obj_attributes: Nfs3Option::Some(attributes),
                    access: arguments.access & allowed,
                });
            }
            Err(status) => self.fail(status, &ACCESS3resfail::default()),
        }
    }

    /// FSSTAT (RFC 1813 §3.3.18).
    pub(super) fn fsstat(&mut self, arguments: &FSSTAT3args) {
        let node = self.node(&arguments.fsroot);
        let space = node.and_then(|node| {
            self.backend.attributes(node)?;
            self.backend.space()
        });
        let obj_attributes = self.after(node);
        match space {
            Ok(space) => self.ok(&FSSTAT3resok {
                obj_attributes,
                tbytes: space.total_bytes,
                fbytes: space.free_bytes,
                abytes: space.available_bytes,
                tfiles: space.total_files,
                ffiles: space.free_files,
                afiles: space.free_files,
                invarsec: 0,
            }),
            Err(status) => self.fail(status, &FSSTAT3resfail { obj_attributes }),
        }
    }

    /// FSINFO (RFC 1813 §3.3.19).
    pub(super) fn fsinfo(&mut self, arguments: &FSINFO3args) {
        const MULTIPLE_BYTES: u32 = 512;
        let node = self.node(&arguments.fsroot);
        match node.and_then(|node| self.look(node)) {
            Ok(attributes) => self.ok(&FSINFO3resok {
                obj_attributes: Nfs3Option::Some(attributes),
                rtmax: self.limits.claimed_read,
                rtpref: self.limits.claimed_read,
                rtmult: MULTIPLE_BYTES,
                wtmax: self.limits.claimed_write,
                wtpref: self.limits.claimed_write,
                wtmult: MULTIPLE_BYTES,
                dtpref: self.limits.transfer,
                maxfilesize: i64::MAX as u64,
                time_delta: nfstime3 { seconds: 0, nseconds: 1 },
                properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
            }),
            Err(status) => self.fail(status, &FSINFO3resfail::default()),
        }
    }

    /// PATHCONF (RFC 1813 §3.3.20).
    pub(super) fn pathconf(&mut self, arguments: &PATHCONF3args) {
        let node = self.node(&arguments.object);
        match node.and_then(|node| self.look(node)) {
            Ok(attributes) => self.ok(&PATHCONF3resok {
                obj_attributes: Nfs3Option::Some(attributes),
                linkmax: MAX_LINKS,
                name_max: MAX_NAME_BYTES as u32,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
            Err(status) => self.fail(status, &PATHCONF3resfail { obj_attributes: Nfs3Option::None }),
        }
    }
}
