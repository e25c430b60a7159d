//! Names: looking them up, making, moving and removing them.

use nfs_wire::{
    Status,
    nfs3_types::{
        nfs3::{
            CREATE3args, CREATE3resfail, CREATE3resok, LINK3args, LINK3resfail, LINK3resok, LOOKUP3args,
            LOOKUP3resfail, LOOKUP3resok, MKDIR3args, MKNOD3args, READLINK3args, READLINK3resfail,
            READLINK3resok, REMOVE3args, REMOVE3resfail, REMOVE3resok, RENAME3args, RENAME3resfail,
            RENAME3resok, RMDIR3args, SYMLINK3args, createhow3, diropargs3, ftype3, mknoddata3, nfspath3,
            sattr3,
        },
        xdr_codec::Opaque,
    },
};

use super::Call;
use crate::vfs::{Component, Name, NewObject, NodeId};

impl Call<'_> {
    /// LOOKUP (RFC 1813 §3.3.3).
    pub(super) fn lookup(&mut self, arguments: &LOOKUP3args<'_>) {
        let directory = self.node(&arguments.what.dir);
        let found = directory.and_then(|directory| self.find(directory, arguments.what.name.as_ref()));
        let dir_attributes = self.after(directory);
        match found {
            Ok(node) => {
                let obj_attributes = self.after(Ok(node));
                self.ok(&LOOKUP3resok { object: self.handle(node), obj_attributes, dir_attributes });
            }
            Err(status) => self.fail(status, &LOOKUP3resfail { dir_attributes }),
        }
    }

    /// READLINK (RFC 1813 §3.3.5).
    pub(super) fn readlink(&mut self, arguments: &READLINK3args) {
        /// Size of the reply beside the target: header, status, attributes, length, padding.
        const HEAD_BYTES: usize = 24 + 4 + 88 + 4 + 3;
        let node = self.node(&arguments.symlink);
        let target = node.and_then(|node| self.backend.read_link(node));
        // Where it is too long for an address that may be forged, the same call, made again, earns room for more.
        let most = self.grant.reply_bytes.saturating_sub(HEAD_BYTES);
        let target = target.and_then(|it| if it.len() > most { Err(Status::JUKEBOX) } else { Ok(it) });
        let symlink_attributes = self.after(node);
        match target {
            Ok(target) => {
                self.ok(&READLINK3resok { symlink_attributes, data: nfspath3(Opaque::owned(target)) })
            }
            Err(status) => self.fail(status, &READLINK3resfail { symlink_attributes }),
        }
    }

    /// CREATE (RFC 1813 §3.3.8). UNCHECKED on an existing file sets its size, if one is given, and nothing else.
    pub(super) fn create(&mut self, arguments: &CREATE3args<'_>) {
        self.make(&arguments.where_, |call, directory, name| match &arguments.how {
            createhow3::GUARDED(attributes) => {
                call.backend.create(call.now, directory, name, NewObject::File, attributes, call.owner)
            }
            createhow3::EXCLUSIVE(verifier) => {
                call.backend.create_exclusive(call.now, directory, name, verifier.0, call.owner)
            }
            createhow3::UNCHECKED(attributes) => match call.backend.lookup(directory, name) {
                Ok(node) => {
                    if call.backend.attributes(node)?.type_ != ftype3::NF3REG {
                        return Err(Status::EXIST);
                    }
                    if attributes.size.is_some() {
                        let changes = sattr3 { size: attributes.size, ..sattr3::default() };
                        call.backend.set_attributes(call.now, node, &changes)?;
                    }
                    Ok(node)
                }
                Err(Status::NOENT) => {
                    call.backend.create(call.now, directory, name, NewObject::File, attributes, call.owner)
                }
                Err(status) => Err(status),
            },
        });
    }

    /// MKDIR (RFC 1813 §3.3.9).
    pub(super) fn mkdir(&mut self, arguments: &MKDIR3args<'_>) {
        self.make_object(&arguments.where_, NewObject::Directory, &arguments.attributes);
    }

    /// SYMLINK (RFC 1813 §3.3.10).
    pub(super) fn symlink(&mut self, arguments: &SYMLINK3args<'_>) {
        let target = NewObject::Symlink(arguments.symlink.symlink_data.as_ref());
        self.make_object(&arguments.where_, target, &arguments.symlink.symlink_attributes);
    }

    /// MKNOD (RFC 1813 §3.3.11).
    pub(super) fn mknod(&mut self, arguments: &MKNOD3args<'_>) {
        let (object, attributes) = match &arguments.what {
            mknoddata3::NF3CHR(device) => (
                NewObject::CharacterDevice(device.spec.specdata1, device.spec.specdata2),
                &device.dev_attributes,
            ),
            mknoddata3::NF3BLK(device) => {
                (NewObject::BlockDevice(device.spec.specdata1, device.spec.specdata2), &device.dev_attributes)
            }
            mknoddata3::NF3SOCK(attributes) => (NewObject::Socket, attributes),
            mknoddata3::NF3FIFO(attributes) => (NewObject::Fifo, attributes),
            mknoddata3::default => {
                return self.make(&arguments.where_, |_, _, _| Err(Status::BADTYPE));
            }
        };
        self.make_object(&arguments.where_, object, attributes);
    }

    fn make_object(&mut self, place: &diropargs3<'_>, object: NewObject<'_>, attributes: &sattr3) {
        self.make(place, |call, directory, name| {
            call.backend.create(call.now, directory, name, object, attributes, call.owner)
        });
    }

    /// Makes an entry and answers; the results of CREATE, MKDIR, SYMLINK and MKNOD are laid out alike.
    fn make(
        &mut self,
        place: &diropargs3<'_>,
        make: impl FnOnce(&mut Self, NodeId, Name<'_>) -> Result<NodeId, Status>,
    ) {
        let directory = self.node(&place.dir);
        let before = self.before(directory);
        let made = directory.and_then(|directory| {
            self.writable()?;
            match Component::parse(place.name.as_ref())? {
                Component::Current | Component::Parent => Err(Status::EXIST),
                Component::Entry(name) => make(self, directory, name),
            }
        });
        let dir_wcc = self.wcc(before, directory);
        match made {
            Ok(node) => {
                let obj_attributes = self.after(Ok(node));
                self.ok(&CREATE3resok { obj: self.some_handle(node), obj_attributes, dir_wcc });
            }
            Err(status) => self.fail(status, &CREATE3resfail { dir_wcc }),
        }
    }

    /// REMOVE (RFC 1813 §3.3.12).
    pub(super) fn remove(&mut self, arguments: &REMOVE3args<'_>) {
        self.unmake(&arguments.object, |call, directory, component| match component {
            Component::Current | Component::Parent => Err(Status::INVAL),
            Component::Entry(name) => call.backend.remove(call.now, directory, name),
        });
    }

    /// RMDIR (RFC 1813 §3.3.13): `.` is INVAL and `..` is EXIST.
    pub(super) fn rmdir(&mut self, arguments: &RMDIR3args<'_>) {
        self.unmake(&arguments.object, |call, directory, component| match component {
            Component::Current => Err(Status::INVAL),
            Component::Parent => Err(Status::EXIST),
            Component::Entry(name) => call.backend.remove_directory(call.now, directory, name),
        });
    }

    /// Removes an entry and answers; the results of REMOVE and RMDIR are laid out alike.
    fn unmake(
        &mut self,
        place: &diropargs3<'_>,
        unmake: impl FnOnce(&mut Self, NodeId, Component<'_>) -> Result<(), Status>,
    ) {
        let directory = self.node(&place.dir);
        let before = self.before(directory);
        let done = directory.and_then(|directory| {
            self.writable()?;
            unmake(self, directory, Component::parse(place.name.as_ref())?)
        });
        let dir_wcc = self.wcc(before, directory);
        match done {
            Ok(()) => self.ok(&REMOVE3resok { dir_wcc }),
            Err(status) => self.fail(status, &REMOVE3resfail { dir_wcc }),
        }
    }

    /// RENAME (RFC 1813 §3.3.14).
    pub(super) fn rename(&mut self, arguments: &RENAME3args<'_, '_>) {
        let (from, to) = (self.node(&arguments.from.dir), self.node(&arguments.to.dir));
        let (from_before, to_before) = (self.before(from), self.before(to));
        let done = from.and_then(|from| {
            self.writable()?;
            let names = (
                Component::parse(arguments.from.name.as_ref())?,
                Component::parse(arguments.to.name.as_ref())?,
            );
            let (Component::Entry(from_name), Component::Entry(to_name)) = names else {
                return Err(Status::INVAL);
            };
            self.backend.rename(self.now, (from, from_name), (to?, to_name))
        });
        let fromdir_wcc = self.wcc(from_before, from);
        let todir_wcc = self.wcc(to_before, to);
        match done {
            Ok(()) => self.ok(&RENAME3resok { fromdir_wcc, todir_wcc }),
            Err(status) => self.fail(status, &RENAME3resfail { fromdir_wcc, todir_wcc }),
        }
    }

    /// LINK (RFC 1813 §3.3.15).
    pub(super) fn link(&mut self, arguments: &LINK3args<'_>) {
        let node = self.node(&arguments.file);
        let directory = self.node(&arguments.link.dir);
        let before = self.before(directory);
        let done = node.and_then(|node| {
            self.writable()?;
            match Component::parse(arguments.link.name.as_ref())? {
                Component::Current | Component::Parent => Err(Status::EXIST),
                Component::Entry(name) => self.backend.link(self.now, node, directory?, name),
            }
        });
        let file_attributes = self.after(node);
        let linkdir_wcc = self.wcc(before, directory);
        match done {
            Ok(()) => self.ok(&LINK3resok { file_attributes, linkdir_wcc }),
            Err(status) => self.fail(status, &LINK3resfail { file_attributes, linkdir_wcc }),
        }
    }
}
