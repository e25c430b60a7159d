//! Operations on names in directories.
//!
//! Those that change something may be sent more than once when replies are lost. A server with a reply cache
//! answers again what it answered first; one without carries the call out again and reports the consequence. So
//! a refusal that an earlier attempt of ours would explain is settled by looking.

use nfs_wire::{
    FileHandle, Procedure, Status,
    nfs3_types::{
        nfs3::{
            CREATE3args, CREATE3resok, LINK3args, LINK3resok, LOOKUP3args, LOOKUP3resok, MKDIR3args,
            MKDIR3resok, MKNOD3args, MKNOD3resok, Nfs3Option, REMOVE3args, REMOVE3resok, RENAME3args,
            RENAME3resok, RMDIR3args, RMDIR3resok, SYMLINK3args, SYMLINK3resok, createhow3, createverf3,
            devicedata3, diropargs3, fattr3, filename3, mknoddata3, nfs_fh3, nfspath3, specdata3,
            symlinkdata3,
        },
        xdr_codec::Opaque,
    },
};

use super::{Client, CountedError, Entry};
use crate::{
    attr::{FileType, SetAttributes, optional},
    error::Error,
};

/// A file that is neither regular nor a directory nor a link (RFC 1813 §3.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device with its major and minor number.
    CharacterDevice(u32, u32),
    /// Block device with its major and minor number.
    BlockDevice(u32, u32),
}

impl Client {
    /// Finds a name in a directory (LOOKUP, RFC 1813 §3.3.3). A symbolic link is found itself, not its target.
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn lookup(&self, directory: FileHandle, name: &[u8]) -> Result<Entry, Error> {
        let arguments = LOOKUP3args { what: place(directory, name) };
        let found: LOOKUP3resok = self.call(Procedure::Lookup, &arguments).await?;
        self.entry(Procedure::Lookup, &found.object, &found.obj_attributes).await
    }

    /// Finds the file of an absolute path on the server, from the export's root down. Symbolic links on the way
    /// are not followed.
    ///
    /// # Errors
    /// As [`Client::metadata`]; `NOENT` when the path is not below the export.
    pub async fn resolve(&self, path: &[u8]) -> Result<Entry, Error> {
        let export = self.export();
        let export = export.strip_suffix(b"/").unwrap_or(export);
        let missing = Error::refused(Procedure::Lookup, Status::NOENT);
        let below = |rest: &&[u8]| rest.first().is_none_or(|&byte| byte == b'/');
        let rest = path.strip_prefix(export).filter(below).ok_or(missing)?;
        let mut directory = self.root();
        let mut found = None;
        for name in rest.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let entry = self.lookup(directory, name).await?;
            directory = entry.handle;
            found = Some(entry);
        }
        match found {
            Some(entry) => Ok(entry),
            None => Ok(Entry { handle: directory, metadata: self.metadata(directory).await? }),
        }
    }

    /// Makes a file, or opens it when it is there (CREATE UNCHECKED, RFC 1813 §3.3.8).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn create(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let how = createhow3::UNCHECKED(attributes.to_wire());
        let arguments = CREATE3args { where_: place(directory, name), how };
        let made: CREATE3resok = self.call(Procedure::Create, &arguments).await?;
        self.made(Procedure::Create, (directory, name), &made.obj, &made.obj_attributes).await
    }

    /// Makes a file that must not be there yet (CREATE EXCLUSIVE, or GUARDED where that is not offered).
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EXIST` when the name is taken.
    pub async fn create_new(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        // The server keeps the verifier with the file, so that a repeated CREATE finds its own work.
        let verifier = createverf3(crate::driver::random_bytes());
        let arguments = CREATE3args { where_: place(directory, name), how: createhow3::EXCLUSIVE(verifier) };
        match self.call::<CREATE3resok>(Procedure::Create, &arguments).await {
            Ok(made) => {
                let entry =
                    self.made(Procedure::Create, (directory, name), &made.obj, &made.obj_attributes).await?;
                // EXCLUSIVE carries no attributes (RFC 1813 §3.3.8).
                self.set_attributes(entry.handle, attributes).await?;
                Ok(Entry { handle: entry.handle, metadata: self.metadata(entry.handle).await? })
            }
            Err(error) if error.status() == Some(Status::NOTSUPP) => {
                let how = createhow3::GUARDED(attributes.to_wire());
                let arguments = CREATE3args { where_: place(directory, name), how };
                match self.call_counted::<CREATE3resok>(Procedure::Create, &arguments).await {
                    Ok((made, _)) => {
                        self.made(Procedure::Create, (directory, name), &made.obj, &made.obj_attributes).await
                    }
                    Err(counted) => Err(doubtful(Procedure::Create, Status::EXIST, counted)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a directory (MKDIR, RFC 1813 §3.3.9).
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::Ambiguous`] when a repeated call finds a directory that may be ours.
    pub async fn mkdir(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let arguments = MKDIR3args { where_: place(directory, name), attributes: attributes.to_wire() };
        match self.call_counted::<MKDIR3resok>(Procedure::Mkdir, &arguments).await {
            Ok((made, _)) => {
                self.made(Procedure::Mkdir, (directory, name), &made.obj, &made.obj_attributes).await
            }
            Err(counted) if counted.may_be_done(Status::EXIST) => match self.lookup(directory, name).await {
                // A directory of somebody else's would be used or refused in the same way: an empty one is as
                // good as ours.
                Ok(entry) if entry.metadata.file_type == FileType::Directory && entry.metadata.links <= 2 => {
                    Ok(entry)
                }
                _ => Err(doubtful(Procedure::Mkdir, Status::EXIST, counted)),
            },
            Err(counted) => Err(counted.error),
        }
    }

    /// Makes a symbolic link (SYMLINK, RFC 1813 §3.3.10).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn symlink(&self, directory: FileHandle, name: &[u8], target: &[u8]) -> Result<Entry, Error> {
        let attributes = SetAttributes { mode: Some(0o777), ..Default::default() };
        let arguments = SYMLINK3args {
            where_: place(directory, name),
            symlink: symlinkdata3 {
                symlink_attributes: attributes.to_wire(),
                symlink_data: nfspath3(Opaque::borrowed(target)),
            },
        };
        match self.call_counted::<SYMLINK3resok>(Procedure::Symlink, &arguments).await {
            Ok((made, _)) => {
                self.made(Procedure::Symlink, (directory, name), &made.obj, &made.obj_attributes).await
            }
            Err(counted) if counted.may_be_done(Status::EXIST) => {
                let entry = self.lookup(directory, name).await?;
                match self.read_link(entry.handle).await {
                    Ok(found) if found == target => Ok(entry),
                    _ => Err(counted.error),
                }
            }
            Err(counted) => Err(counted.error),
        }
    }

    /// Makes a special file (MKNOD, RFC 1813 §3.3.11).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn make_node(
        &self,
        directory: FileHandle,
        name: &[u8],
        kind: SpecialFile,
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let attributes = attributes.to_wire();
        let device = |dev_attributes, specdata1, specdata2| devicedata3 {
            dev_attributes,
            spec: specdata3 { specdata1, specdata2 },
        };
        let what = match kind {
            SpecialFile::Fifo => mknoddata3::NF3FIFO(attributes),
            SpecialFile::Socket => mknoddata3::NF3SOCK(attributes),
            SpecialFile::CharacterDevice(major, minor) => {
                mknoddata3::NF3CHR(device(attributes, major, minor))
            }
            SpecialFile::BlockDevice(major, minor) => mknoddata3::NF3BLK(device(attributes, major, minor)),
        };
        let arguments = MKNOD3args { where_: place(directory, name), what };
        match self.call_counted::<MKNOD3resok>(Procedure::Mknod, &arguments).await {
            Ok((made, _)) => {
                self.made(Procedure::Mknod, (directory, name), &made.obj, &made.obj_attributes).await
            }
            Err(counted) => Err(doubtful(Procedure::Mknod, Status::EXIST, counted)),
        }
    }

    /// Makes another name for a file (LINK, RFC 1813 §3.3.15).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn hard_link(&self, file: FileHandle, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        let arguments = LINK3args { file: file.to_fh3(), link: place(directory, name) };
        match self.call_counted::<LINK3resok>(Procedure::Link, &arguments).await {
            Ok(_) => Ok(()),
            Err(counted) if counted.may_be_done(Status::EXIST) => {
                let (there, ours) = (self.lookup(directory, name).await?, self.metadata(file).await?);
                let same = (there.metadata.fsid, there.metadata.fileid) == (ours.fsid, ours.fileid);
                if same { Ok(()) } else { Err(counted.error) }
            }
            Err(counted) => Err(counted.error),
        }
    }

    /// Removes a name that is no directory (REMOVE, RFC 1813 §3.3.12).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn remove(&self, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        let arguments = REMOVE3args { object: place(directory, name) };
        match self.call_counted::<REMOVE3resok>(Procedure::Remove, &arguments).await {
            Ok(_) => Ok(()),
            // The name is gone, as was wished.
            Err(counted) if counted.may_be_done(Status::NOENT) => Ok(()),
            Err(counted) => Err(counted.error),
        }
    }

    /// Removes an empty directory (RMDIR, RFC 1813 §3.3.13).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn rmdir(&self, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        let arguments = RMDIR3args { object: place(directory, name) };
        match self.call_counted::<RMDIR3resok>(Procedure::Rmdir, &arguments).await {
            Ok(_) => Ok(()),
            Err(counted) if counted.may_be_done(Status::NOENT) => Ok(()),
            Err(counted) => Err(counted.error),
        }
    }

    /// Gives a file another name or place (RENAME, RFC 1813 §3.3.14). A file of that name is replaced.
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::Ambiguous`] when a repeated call does not find the old name and the new
    /// one may or may not be its file.
    pub async fn rename(
        &self,
        (from_directory, from): (FileHandle, &[u8]),
        (to_directory, to): (FileHandle, &[u8]),
    ) -> Result<(), Error> {
        let arguments = RENAME3args { from: place(from_directory, from), to: place(to_directory, to) };
        match self.call_counted::<RENAME3resok>(Procedure::Rename, &arguments).await {
            Ok(_) => Ok(()),
            Err(counted) if counted.may_be_done(Status::NOENT) => match self.lookup(to_directory, to).await {
                Ok(_) => Err(doubtful(Procedure::Rename, Status::NOENT, counted)),
                Err(_) => Err(counted.error),
            },
            Err(counted) => Err(counted.error),
        }
    }

    /// Completes what a procedure that makes something returned: handle and attributes are optional there.
    async fn made(
        &self,
        procedure: Procedure,
        (directory, name): (FileHandle, &[u8]),
        handle: &Nfs3Option<nfs_fh3>,
        attributes: &Nfs3Option<fattr3>,
    ) -> Result<Entry, Error> {
        match handle {
            Nfs3Option::Some(handle) => self.entry(procedure, handle, attributes).await,
            Nfs3Option::None => self.lookup(directory, name).await,
        }
    }

    async fn entry(
        &self,
        procedure: Procedure,
        handle: &nfs_fh3,
        attributes: &Nfs3Option<fattr3>,
    ) -> Result<Entry, Error> {
        let handle = FileHandle::try_from(handle).map_err(|_| Error::Protocol {
            what: procedure.name(),
            source: nfs_wire::DecodeError::Inconsistent { field: "file handle" },
        })?;
        let metadata = match optional(attributes) {
            Some(metadata) => metadata,
            None => self.metadata(handle).await?,
        };
        Ok(Entry { handle, metadata })
    }
}

impl CountedError {
    /// Whether an earlier attempt of ours would explain the refusal.
    fn may_be_done(&self, status: Status) -> bool {
        self.attempts > 1 && self.error.status() == Some(status)
    }
}

/// Says so when an earlier attempt of ours would explain the refusal.
fn doubtful(procedure: Procedure, status: Status, counted: CountedError) -> Error {
    if counted.may_be_done(status) { Error::Ambiguous { procedure, status } } else { counted.error }
}

fn place(directory: FileHandle, name: &[u8]) -> diropargs3<'_> {
    diropargs3 { dir: directory.to_fh3(), name: filename3(Opaque::borrowed(name)) }
}
