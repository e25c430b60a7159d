//! Operations on names in directories.
//!
//! Those that change something may be sent more than once when replies are lost. A server with a duplicate request cache
//! answers again what it answered first; one without carries the call out again and reports the consequence. So
//! a refusal that an earlier attempt of ours would explain is settled by looking. What is made bears a mark for
//! that, a time of last access of its own; where a server refuses that, a look before the call takes its place.
//! docs/guarantees.md has the rules in one table.

use std::{sync::atomic::Ordering, time::Duration};

use nfs_proto::attr::{FileType, Metadata, SetAttributes, SetTime, Time, optional};
use nfs_wire::{
    FileHandle, Procedure, Status,
    nfs3_types::{
        nfs3::{
            CREATE3args, CREATE3resok, LINK3args, LINK3resok, LOOKUP3args, LOOKUP3resok, MKDIR3args,
            MKNOD3args, Nfs3Option, REMOVE3args, REMOVE3resok, RENAME3args, RENAME3resok, RMDIR3args,
            RMDIR3resok, SYMLINK3args, SYMLINK3resok, createhow3, createverf3, devicedata3, diropargs3,
            fattr3, filename3, mknoddata3, nfs_fh3, nfspath3, specdata3, symlinkdata3,
        },
        xdr_codec::Opaque,
    },
};

use super::{Client, CountedError, Entry, decode, packed};
use crate::{connect::all, error::Error, known::LookedUp, shown::shown};

/// Pauses before a call about a directory is made again that is busy: half a second in all.
pub(crate) const BUSY_PAUSES: [Duration; 6] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(60),
    Duration::from_millis(150),
    Duration::from_millis(250),
];

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
    /// Where the name is an export of its own, its root is found, as far as the server lists its exports.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let song = client.lookup(directory, b"song.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::Circle`] when the name leads back to the directory or to the export's root;
    /// [`Error::NotEntered`] when the directory is an export that the server refuses to mount.
    pub async fn lookup(&self, directory: FileHandle, name: &[u8]) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
        let arguments = LOOKUP3args { what: place(directory, name) };
        let mut pauses = BUSY_PAUSES.iter();
        let ask = async || {
            let found: LOOKUP3resok = self.call(Procedure::Lookup, &arguments).await?;
            self.entry(Procedure::Lookup, &found.object, &found.obj_attributes).await
        };
        let entry = loop {
            match ask().await {
                // Also where the name was given to another file before the attributes of this one were known.
                Err(error) if self.is_only_busy(directory, &error, &mut pauses).await => {}
                found => break found?,
            }
        };
        let entry = self.crossed(directory, name, entry).await?;
        let export = shown(self.export());
        let above = match entry.handle {
            handle if handle == directory => "the directory",
            handle if handle == self.root() => &export,
            _ => return Ok(entry),
        };
        if matches!(name, b"." | b"..") {
            return Ok(entry);
        }
        Err(Error::Circle { name: shown(name), above: above.to_owned() })
    }

    /// Whether a call about a directory is to be made again: the server says that a handle is stale, and knows the directory all the
    /// same. Some say so while names in it come and go (nfs-ganesha). Waits before it says yes.
    pub(crate) async fn is_only_busy(
        &self,
        directory: FileHandle,
        error: &Error,
        pauses: &mut std::slice::Iter<'_, Duration>,
    ) -> bool {
        if error.status() != Some(Status::STALE) {
            return false;
        }
        let Some(pause) = pauses.next() else { return false };
        if self.metadata(directory).await.is_err() {
            return false;
        }
        tokio::time::sleep(*pause).await;
        true
    }

    /// Whether the failure of a LOOKUP concerns the name alone: the server knows the directory, and that it is one.
    pub async fn is_of_name(&self, directory: FileHandle, error: &Error) -> bool {
        let may_be = error.is_stale() || matches!(error.status(), Some(Status::NOTDIR | Status::IO));
        may_be && self.metadata(directory).await.is_ok_and(|found| found.file_type == FileType::Directory)
    }

    /// Looks names up all at once, each in the directory that is expected to have it.
    pub async fn look_up_all(&self, places: Vec<(FileHandle, Vec<u8>)>) -> LookedUp {
        let found = all(places.iter().map(|(directory, name)| self.lookup(*directory, name))).await;
        LookedUp { found: places.into_iter().zip(found).collect(), ..LookedUp::default() }
    }

    /// Finds the file of an absolute path on the server, from the export's root down. Symbolic links on the way
    /// are not followed.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let song = client.resolve(b"/srv/music/song.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; `NOENT` when the path is not below the export.
    pub async fn resolve(&self, path: &[u8]) -> Result<Entry, Error> {
        let mut directory = self.root();
        let mut found = None;
        for name in components(self.below_export(path)?) {
            let entry = self.lookup(directory, name).await?;
            directory = entry.handle;
            found = Some(entry);
        }
        match found {
            Some(entry) => Ok(entry),
            None => Ok(Entry { handle: directory, metadata: self.metadata(directory).await? }),
        }
    }

    /// Returns what of an absolute path on the server lies below the export.
    fn below_export<'a>(&self, path: &'a [u8]) -> Result<&'a [u8], Error> {
        let export = self.export();
        let export = export.strip_suffix(b"/").unwrap_or(export);
        let below = |rest: &&[u8]| rest.first().is_none_or(|&byte| byte == b'/');
        let missing = Error::refused(Procedure::Lookup, Status::NOENT);
        path.strip_prefix(export).filter(below).ok_or(missing)
    }

    /// Makes a file, or opens it when it is there (CREATE UNCHECKED, RFC 1813 §3.3.8).
    ///
    /// A size among the attributes is set afterwards, if the file has another one ([`Client::set_attributes`]): a late copy of a CREATE that
    /// carries a size cuts the file again. Some servers return what is there if that is no regular file.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SetAttributes};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let made = client.create(directory, b"new", SetAttributes::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn create(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
        let how = createhow3::UNCHECKED(SetAttributes { size: None, ..attributes }.to_wire());
        let arguments = CREATE3args { where_: place(directory, name), how };
        let made: CREATE3resok = self.call(Procedure::Create, &arguments).await?;
        let mut entry =
            self.made(Procedure::Create, (directory, name), &made.obj, &made.obj_attributes).await?;
        let Metadata { file_type, ctime, size, .. } = entry.metadata;
        if file_type == FileType::Regular && attributes.size.is_some_and(|wanted| wanted != size) {
            let wanted = SetAttributes { size: attributes.size, ..SetAttributes::default() };
            self.set_size(entry.handle, wanted, ctime).await?;
            entry.metadata = self.metadata(entry.handle).await?;
        }
        Ok(entry)
    }

    /// Makes a file that must not be there yet (CREATE EXCLUSIVE, or GUARDED where that is not offered).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SetAttributes};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let made = client.create_new(directory, b"new", SetAttributes::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EXIST` when the name is taken; [`Error::Ambiguous`] when a repeated call finds a
    /// file that may be ours.
    pub async fn create_new(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
        // The server keeps the verifier with the file, so that a repeated CREATE finds its own work.
        let verifier = createverf3(crate::driver::random_bytes());
        let arguments = CREATE3args { where_: place(directory, name), how: createhow3::EXCLUSIVE(verifier) };
        match self.call::<CREATE3resok>(Procedure::Create, &arguments).await {
            Ok(made) => {
                let entry =
                    self.made(Procedure::Create, (directory, name), &made.obj, &made.obj_attributes).await?;
                // EXCLUSIVE carries no attributes, and the server may keep the verifier in the times (RFC 1813 §3.3.8).
                let now = Some(SetTime::ServerTime);
                let (atime, mtime) = (attributes.atime.or(now), attributes.mtime.or(now));
                match self.set_attributes(entry.handle, SetAttributes { atime, mtime, ..attributes }).await {
                    // As CREATE with attributes, which succeeds where they cannot be had.
                    Err(error) if is_refusal(&error) => {}
                    set => set?,
                }
                Ok(Entry { handle: entry.handle, metadata: self.metadata(entry.handle).await? })
            }
            Err(error) if error.status() == Some(Status::NOTSUPP) => {
                self.create_guarded(directory, name, attributes).await
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a file that must not be there yet, in one round trip (CREATE GUARDED). Its time of last access becomes one that tells it
    /// from what was there before.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SetAttributes};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let made = client.create_guarded(directory, b"new", SetAttributes::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::create_new`]; a server that does not keep times leaves more in doubt.
    pub async fn create_guarded(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
        let encode = |attributes: SetAttributes| {
            let how = createhow3::GUARDED(attributes.to_wire());
            packed(&CREATE3args { where_: place(directory, name), how })
        };
        self.make_new(Procedure::Create, (directory, name), FileType::Regular, attributes, encode).await
    }

    /// Makes a directory (MKDIR, RFC 1813 §3.3.9).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SetAttributes};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let made = client.mkdir(directory, b"new", SetAttributes::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::Ambiguous`] when a repeated call finds a directory that may be ours.
    pub async fn mkdir(
        &self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
        let encode = |attributes: SetAttributes| {
            packed(&MKDIR3args { where_: place(directory, name), attributes: attributes.to_wire() })
        };
        self.make_new(Procedure::Mkdir, (directory, name), FileType::Directory, attributes, encode).await
    }

    /// Makes a symbolic link (SYMLINK, RFC 1813 §3.3.10).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// client.symlink(directory, b"latest", b"2026-11-27").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn symlink(&self, directory: FileHandle, name: &[u8], target: &[u8]) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
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
                let entry = self.look(&counted, (directory, name)).await?;
                if entry.metadata.file_type == FileType::Symlink
                    && self.read_link(entry.handle).await? == target
                {
                    Ok(entry)
                } else {
                    Err(counted.error)
                }
            }
            Err(counted) => Err(counted.error),
        }
    }

    /// Makes a special file (MKNOD, RFC 1813 §3.3.11).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle, SpecialFile};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// client.make_node(directory, b"pipe", SpecialFile::Fifo, Default::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::Ambiguous`] when a repeated call finds a file that may be ours.
    pub async fn make_node(
        &self,
        directory: FileHandle,
        name: &[u8],
        kind: SpecialFile,
        attributes: SetAttributes,
    ) -> Result<Entry, Error> {
        let directory = self.inside(directory)?;
        let device = |dev_attributes, specdata1, specdata2| devicedata3 {
            dev_attributes,
            spec: specdata3 { specdata1, specdata2 },
        };
        let encode = |attributes: SetAttributes| {
            let attributes = attributes.to_wire();
            let what = match kind {
                SpecialFile::Fifo => mknoddata3::NF3FIFO(attributes),
                SpecialFile::Socket => mknoddata3::NF3SOCK(attributes),
                SpecialFile::CharacterDevice(major, minor) => {
                    mknoddata3::NF3CHR(device(attributes, major, minor))
                }
                SpecialFile::BlockDevice(major, minor) => {
                    mknoddata3::NF3BLK(device(attributes, major, minor))
                }
            };
            packed(&MKNOD3args { where_: place(directory, name), what })
        };
        let file_type = match kind {
            SpecialFile::Fifo => FileType::Fifo,
            SpecialFile::Socket => FileType::Socket,
            SpecialFile::CharacterDevice(..) => FileType::CharacterDevice,
            SpecialFile::BlockDevice(..) => FileType::BlockDevice,
        };
        self.make_new(Procedure::Mknod, (directory, name), file_type, attributes, encode).await
    }

    /// Makes another name for a file (LINK, RFC 1813 §3.3.15). A LOOKUP tells whether it has this one then.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let song = client.lookup(directory, b"song.ogg").await?;
    /// client.hard_link(song.handle, directory, b"again.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::NotLinked`] when the server says that it was done, and the name is not the file's.
    pub async fn hard_link(&self, file: FileHandle, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        self.hard_link_of((file, u32::MAX), directory, name).await
    }

    /// As [`Client::hard_link`], for a file that has so many names already: where the reply shows more, there is no LOOKUP.
    ///
    /// # Errors
    /// As [`Client::hard_link`].
    pub async fn hard_link_of(
        &self,
        (file, links): (FileHandle, u32),
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Error> {
        let linked = self.link(file, (directory, name)).await?;
        self.check_linked(linked, (file, links), (directory, name)).await
    }

    /// As [`Client::hard_link_of`], for a file that others may give the same name: then at most one of all succeeds.
    ///
    /// # Errors
    /// As [`Client::hard_link`]; [`Error::Ambiguous`] when a repeated call finds the link, which may be another's.
    pub async fn hard_link_first(
        &self,
        file: (FileHandle, u32),
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Error> {
        match self.link(file.0, (directory, name)).await? {
            Linked::Before(repeated) => Err(repeated.in_doubt()),
            linked => self.check_linked(linked, file, (directory, name)).await,
        }
    }

    pub(super) async fn link(
        &self,
        file: FileHandle,
        (directory, name): (FileHandle, &[u8]),
    ) -> Result<Linked, Error> {
        let directory = self.inside(directory)?;
        let arguments = LINK3args { file: file.to_fh3(), link: place(directory, name) };
        match self.call_counted::<LINK3resok>(Procedure::Link, &arguments).await {
            Ok((linked, _)) => Ok(Linked::Now(optional(&linked.file_attributes).map(|it| it.links))),
            Err(counted) if counted.may_be_done(Status::EXIST) => {
                let there = self.look(&counted, (directory, name)).await?;
                if self.is_same_file(&there, file).await? {
                    Ok(Linked::Before(counted))
                } else {
                    Err(counted.error)
                }
            }
            Err(counted) => Err(counted.error),
        }
    }

    /// Checks that a file that had so many names has one more.
    async fn check_linked(
        &self,
        linked: Linked,
        (file, links): (FileHandle, u32),
        (directory, name): (FileHandle, &[u8]),
    ) -> Result<(), Error> {
        match linked {
            Linked::Before(_) => return Ok(()),
            Linked::Now(now) if now.is_some_and(|now| now > links) => return Ok(()),
            Linked::Now(_) => {}
        }
        if self.find_file(file, (directory, name)).await? {
            return Ok(());
        }
        Err(Error::NotLinked { name: shown(name) })
    }

    /// Removes a name that is no directory (REMOVE, RFC 1813 §3.3.12).
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// client.remove(directory, b"song.ogg").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn remove(&self, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        let directory = self.inside(directory)?;
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
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// client.rmdir(directory, b"empty").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::MountPoint`] for an export of its own.
    pub async fn rmdir(&self, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        let directory = self.inside(directory)?;
        self.refuse_mount_point(directory, name)?;
        let arguments = RMDIR3args { object: place(directory, name) };
        match self.call_counted::<RMDIR3resok>(Procedure::Rmdir, &arguments).await {
            Ok(_) => Ok(()),
            Err(counted) if counted.may_be_done(Status::NOENT) => Ok(()),
            Err(counted) => Err(counted.error),
        }
    }

    /// Gives `file` another name or place (RENAME, RFC 1813 §3.3.14). A file of that name is replaced.
    ///
    /// `file` is what the old name stands for: it is recognised by it when a repeated call does not find the old name.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error, FileHandle};
    /// # async fn example(client: Client, directory: FileHandle) -> Result<(), Error> {
    /// let song = client.lookup(directory, b"song.ogg").await?;
    /// client.rename(song.handle, (directory, b"song.ogg"), (directory, b"first.ogg")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::Ambiguous`] when a repeated call does not find the old name and the server
    /// does not know `file` any more.
    pub async fn rename(
        &self,
        file: FileHandle,
        (from_directory, from): (FileHandle, &[u8]),
        (to_directory, to): (FileHandle, &[u8]),
    ) -> Result<(), Error> {
        let (from_directory, to_directory) = (self.inside(from_directory)?, self.inside(to_directory)?);
        self.refuse_mount_point(from_directory, from)?;
        self.refuse_mount_point(to_directory, to)?;
        let arguments = RENAME3args { from: place(from_directory, from), to: place(to_directory, to) };
        match self.call_counted::<RENAME3resok>(Procedure::Rename, &arguments).await {
            Ok(_) => Ok(()),
            Err(counted) if counted.may_be_done(Status::NOENT) => match self.lookup(to_directory, to).await {
                Ok(there) => match self.is_same_file(&there, file).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(counted.error),
                    Err(error) if error.status().is_some() => Err(counted.in_doubt()),
                    Err(error) => Err(error),
                },
                Err(error) if error.status().is_some() => Err(counted.error),
                Err(error) => Err(error),
            },
            Err(counted) => Err(counted.error),
        }
    }

    /// Makes something new under a name, by a call whose arguments `encode` makes of attributes.
    async fn make_new(
        &self,
        procedure: Procedure,
        place: (FileHandle, &[u8]),
        file_type: FileType,
        attributes: SetAttributes,
        encode: impl Fn(SetAttributes) -> Vec<u8>,
    ) -> Result<Entry, Error> {
        let marks = &self.inner.marks;
        if marks.load(Ordering::Relaxed) != Marks::REFUSED {
            let mark = Mark::on(attributes);
            let made = self.make_once(procedure, encode(mark.attributes)).await;
            // A mode is all that every server takes (unfs3 refuses more).
            let refused = |error: &Error| matches!(error.status(), Some(Status::INVAL | Status::NOTSUPP));
            match made {
                Err(counted) if refused(&counted.error) => {}
                made => {
                    let entry = self.settle(procedure, place, file_type, Some(&mark), made).await?;
                    if mark.is_on(&entry) {
                        marks.store(Marks::KEPT, Ordering::Relaxed);
                    }
                    return Ok(entry);
                }
            }
        }
        match self.lookup(place.0, place.1).await {
            Ok(_) => return Err(Error::refused(procedure, Status::EXIST)),
            Err(error) if error.status() == Some(Status::NOENT) => {}
            Err(error) => return Err(error),
        }
        let made = self.make_once(procedure, encode(attributes)).await;
        let entry = self.settle(procedure, place, file_type, None, made).await?;
        marks.store(Marks::REFUSED, Ordering::Relaxed);
        Ok(entry)
    }

    /// Makes one call of CREATE, MKDIR or MKNOD, whose results are alike (RFC 1813 §3.3.8, §3.3.9, §3.3.11).
    async fn make_once(
        &self,
        procedure: Procedure,
        arguments: Vec<u8>,
    ) -> Result<CREATE3resok, CountedError> {
        let (results, attempts) = self
            .call_raw_counted(procedure, arguments)
            .await
            .map_err(|error| CountedError { error, attempts: 1 })?;
        decode(procedure, &results).map_err(|error| CountedError { error, attempts })
    }

    /// Settles a call that was to make something new under a name, which nothing had if there was no mark.
    async fn settle(
        &self,
        procedure: Procedure,
        place: (FileHandle, &[u8]),
        file_type: FileType,
        mark: Option<&Mark>,
        made: Result<CREATE3resok, CountedError>,
    ) -> Result<Entry, Error> {
        let counted = match made {
            Ok(made) => return self.made(procedure, place, &made.obj, &made.obj_attributes).await,
            Err(counted) if counted.may_be_done(Status::EXIST) => counted,
            Err(counted) => return Err(counted.error),
        };
        let entry = self.look(&counted, place).await?;
        let keeps_marks = self.inner.marks.load(Ordering::Relaxed) == Marks::KEPT;
        match mark {
            // Ours would be of this type.
            _ if entry.metadata.file_type != file_type => Err(counted.error),
            Some(mark) if mark.is_on(&entry) => Ok(entry),
            // And it would bear our mark.
            Some(_) if keeps_marks => Err(counted.error),
            // Whose directory it is does not matter to anybody; whose file it is does.
            None if file_type == FileType::Directory => Ok(entry),
            Some(_) | None => Err(counted.in_doubt()),
        }
    }

    /// Looks what has a name that is said to be taken; in doubt if nothing has it any more.
    async fn look(
        &self,
        counted: &CountedError,
        (directory, name): (FileHandle, &[u8]),
    ) -> Result<Entry, Error> {
        let found = self.lookup(directory, name).await;
        found.map_err(|error| if error.status().is_some() { counted.in_doubt() } else { error })
    }

    /// Whether what was found is `file`: some servers give one file several handles.
    pub(super) async fn is_same_file(&self, found: &Entry, file: FileHandle) -> Result<bool, Error> {
        if found.handle == file {
            return Ok(true);
        }
        let ours = self.metadata(file).await?;
        Ok((found.metadata.fsid, found.metadata.fileid) == (ours.fsid, ours.fileid))
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

    pub(super) async fn entry(
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

/// What came of a LINK that was not refused.
pub(super) enum Linked {
    /// The server says that it was done, and how many names the file has now.
    Now(Option<u32>),
    /// A repeated call was refused, and found the link.
    Before(CountedError),
}

/// Returns the names of a path, one after the other.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// Whether a server or its file system does not take attributes.
fn is_refusal(error: &Error) -> bool {
    matches!(error.status(), Some(Status::PERM | Status::ACCES | Status::NOTSUPP | Status::INVAL))
}

/// What a server does with marks.
pub(super) struct Marks;

impl Marks {
    /// Nobody knows yet.
    pub(super) const UNKNOWN: u8 = 0;
    /// It gives what is made the time of last access that it is told.
    pub(super) const KEPT: u8 = 1;
    /// It makes nothing that is to have one.
    pub(super) const REFUSED: u8 = 2;
}

/// A time of last access that tells what we made from what was there before.
struct Mark {
    time: Time,
    /// What to make it with.
    attributes: SetAttributes,
}

impl Mark {
    fn on(attributes: SetAttributes) -> Self {
        let time = crate::driver::unlike_time();
        Self { time, attributes: SetAttributes { atime: Some(SetTime::To(time)), ..attributes } }
    }

    fn is_on(&self, entry: &Entry) -> bool {
        entry.metadata.atime == self.time
    }
}

pub(crate) fn place(directory: FileHandle, name: &[u8]) -> diropargs3<'_> {
    diropargs3 { dir: directory.to_fh3(), name: filename3(Opaque::borrowed(name)) }
}
