//! How a file is opened.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use nfs_proto::attr::{FileType, SetAttributes};
use nfs_wire::Status;

use super::{
    FILE_MODE, Fs,
    find::{self, Last},
};
use crate::{client::Entry, error::Error, file::File};

/// How often a path is looked at that something else gets before the file is made.
const ATTEMPTS: u32 = 4;

/// How a file is opened: as `tokio::fs::OpenOptions`.
///
/// ```no_run
/// use nfs_wireless_client::{Fs, OpenOptions};
/// use tokio::io::AsyncWriteExt;
///
/// # async fn example(nas: Fs) -> Result<(), Box<dyn std::error::Error>> {
/// let mut log = OpenOptions::new().append(true).create(true).open(&nas, "log").await?;
/// log.write_all(b"a line\n").await?;
/// log.flush().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Option<u32>,
}

impl OpenOptions {
    /// Begins with all options off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it can be read.
    pub const fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// Whether it can be written.
    pub const fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Whether writing begins at the end that it has when it is opened. NFSv3 has no append of its own: two programs that append to one file
    /// write over each other.
    pub const fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Whether it is empty then.
    pub const fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Whether it is made if it is not there.
    pub const fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Whether it must not be there yet.
    pub const fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Sets the permission bits of a file that is made. Default: 0644.
    pub const fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Fs::open`]; `InvalidInput` where the options contradict each other, as for `std::fs::OpenOptions`.
    pub async fn open(&self, fs: &Fs, path: impl AsRef<[u8]>) -> Result<File, Error> {
        self.check()?;
        let path = path.as_ref();
        let mut attempt = 1;
        loop {
            match self.try_open(fs, path).await? {
                Some(file) => return Ok(file),
                // Somebody else makes and removes it, again and again.
                None if attempt == ATTEMPTS => return Err(find::refused(Status::EXIST)),
                None => attempt += 1,
            }
        }
    }

    /// Opens a file; `None` if somebody made a directory or a link under its name, between a look at it and the call that was to make it.
    async fn try_open(&self, fs: &Fs, path: &[u8]) -> Result<Option<File>, Error> {
        let makes = self.create || self.create_new;
        let follows = !(self.create_new || (makes && find::ends_as_directory(path)));
        let found = fs.find(path, if follows { Last::Followed } else { Last::Name }).await?;
        if makes && found.is_directory() {
            let is_there = self.create_new && !found.has_name();
            return Err(find::refused(if is_there { Status::EXIST } else { Status::ISDIR }));
        }
        let attributes =
            SetAttributes { mode: Some(self.mode.unwrap_or(FILE_MODE)), ..SetAttributes::default() };
        let writes = self.write || self.append;
        let entry = match found.entry()? {
            Some(_) if self.create_new => return Err(find::refused(Status::EXIST)),
            Some(Entry { metadata, .. }) if writes && metadata.file_type == FileType::Directory => {
                return Err(find::refused(Status::ISDIR));
            }
            Some(mut entry) => {
                if self.truncate && entry.metadata.size > 0 {
                    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
                    fs.client.set_size(entry.handle, empty, entry.metadata.ctime).await?;
                    entry.metadata.size = 0;
                }
                entry
            }
            None if self.create_new => {
                let (directory, name) = found.free_for(FileType::Regular)?;
                fs.client.create_new(directory, name, attributes).await?
            }
            None if self.create => {
                let (directory, name) = found.free_for(FileType::Regular)?;
                // Somebody else may have made it by now, and written.
                let attributes = SetAttributes { size: self.truncate.then_some(0), ..attributes };
                match fs.client.create(directory, name, attributes).await {
                    Err(error) if matches!(error.status(), Some(Status::EXIST | Status::ISDIR)) => {
                        return Ok(None);
                    }
                    Ok(Entry { metadata, .. }) if metadata.is_dir() || metadata.is_symlink() => {
                        return Ok(None);
                    }
                    made => made?,
                }
            }
            None => return Err(find::refused(Status::NOENT)),
        };
        let mut file = File::with_access(fs.client.clone(), entry.handle, self.read, writes);
        if self.append {
            file.append_at(entry.metadata.size);
        }
        Ok(Some(file))
    }

    fn check(&self) -> Result<(), Error> {
        let writes = self.write || self.append;
        let makes = self.create || self.create_new || self.truncate;
        // As std: what is not written is not made.
        let is_sound =
            if writes { !(self.append && self.truncate && !self.create_new) } else { self.read && !makes };
        let why = "these options do not go together";
        if is_sound {
            Ok(())
        } else {
            Err(Error::Local(Arc::new(io::Error::new(ErrorKind::InvalidInput, why))))
        }
    }
}
