//! From paths to files and back.

use std::time::SystemTime;

use nfs_wireless_client::{Entry, Error, FileHandle, FileType, Metadata, NfsStatus, SetAttributes};
use object_store::{
    ObjectMeta, Result,
    path::{Path, PathPart},
};

use crate::{
    NfsObjectStore,
    error::{NotADirectory, Refusal, explain},
};

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct NameInDirectory {
    pub(crate) directory: FileHandle,
    pub(crate) name: Vec<u8>,
}

impl NameInDirectory {
    /// The name as the client takes it.
    pub(crate) fn name(&self) -> (FileHandle, &[u8]) {
        (self.directory, &self.name)
    }
}

impl NfsObjectStore {
    /// Finds the file of an object.
    pub(crate) async fn object(&self, location: &Path) -> Result<(NameInDirectory, Entry)> {
        let explain = |error| explain(error, location);
        let place = self.place(location).await?;
        let entry = self.client.lookup(place.directory, &place.name).await.map_err(explain)?;
        match entry.metadata.file_type {
            FileType::Regular => Ok((place, entry)),
            _ => Err(Refusal::NoObject.at(location)),
        }
    }

    /// Finds the directory that an object lies in.
    async fn place(&self, location: &Path) -> Result<NameInDirectory> {
        let (directories, name) = split(location, Refusal::NoObject)?;
        let mut directory = self.root;
        for part in directories {
            let found = self.client.lookup(directory, part.as_ref().as_bytes()).await;
            directory = found.map_err(|error| explain(error, location))?.handle;
        }
        Ok(NameInDirectory { directory, name })
    }

    /// As [`Self::place`], and makes the directories that are not there.
    pub(crate) async fn make_place(&self, location: &Path) -> Result<NameInDirectory> {
        let (directories, name) = split(location, Refusal::Reserved)?;
        let mut directory = self.root;
        for part in directories {
            let entry = self.make_directory(directory, part.as_ref().as_bytes()).await;
            let entry = entry.map_err(|error| explain(error, location))?;
            if entry.metadata.file_type != FileType::Directory {
                return Err(NotADirectory.at(part.as_ref()));
            }
            directory = entry.handle;
        }
        Ok(NameInDirectory { directory, name })
    }

    /// Finds a directory, or makes it, whoever else does.
    async fn make_directory(&self, parent: FileHandle, name: &[u8]) -> Result<Entry, Error> {
        match self.client.lookup(parent, name).await {
            Err(error) if error.status() == Some(NfsStatus::NOENT) => {}
            found => return found,
        }
        let mode = SetAttributes { mode: Some(self.directory_mode), ..SetAttributes::default() };
        match self.client.mkdir(parent, name, mode).await {
            Err(error) if error.status() == Some(NfsStatus::EXIST) => self.client.lookup(parent, name).await,
            made => made,
        }
    }

    /// Finds the directory of a prefix, if there is one.
    pub(crate) async fn prefix(&self, prefix: &Path) -> Result<Option<FileHandle>> {
        let mut directory = self.root;
        for part in prefix.parts() {
            match self.client.lookup(directory, part.as_ref().as_bytes()).await {
                Ok(entry) if entry.metadata.file_type == FileType::Directory => directory = entry.handle,
                Ok(_) => return Ok(None),
                Err(error) if matches!(error.status(), Some(NfsStatus::NOENT | NfsStatus::NOTDIR)) => {
                    return Ok(None);
                }
                Err(error) => return Err(explain(error, prefix)),
            }
        }
        Ok(Some(directory))
    }
}

/// The directories of a path, and the name of its file.
fn split(location: &Path, reserved: Refusal) -> Result<(Vec<PathPart<'_>>, Vec<u8>)> {
    let mut parts: Vec<_> = location.parts().collect();
    let name = parts.pop().ok_or_else(|| Refusal::Root.at(location))?;
    let name = name.as_ref().as_bytes().to_vec();
    if is_staging(&name) {
        return Err(reserved.at(location));
    }
    Ok((parts, name))
}

/// Whether a name is that of an unfinished write.
pub(crate) fn is_staging(name: &[u8]) -> bool {
    name.starts_with(crate::STAGING.as_bytes())
}

/// What there is to say about an object.
pub(crate) fn describe(location: Path, metadata: &Metadata) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: SystemTime::from(metadata.mtime).into(),
        size: metadata.size,
        e_tag: Some(metadata.version_tag()),
        version: None,
    }
}
