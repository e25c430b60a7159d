//! Where a path leads.

use std::{collections::VecDeque, io, sync::Arc};

use nfs_proto::attr::FileType;
use nfs_wire::{FileHandle, Procedure, Status};
use rustix::io::Errno;

use super::Fs;
use crate::{
    client::{Entry, components},
    error::Error,
};

/// Symbolic links that a path may lead through, as on Linux (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// What becomes of a symbolic link that a path ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// Its target is meant.
    Followed,
    /// It is meant.
    Itself,
}

/// Where a path leads.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory that has its last name, and that name, if it has one: the root has none, nor has what ends with `..`.
    at: Option<(FileHandle, Vec<u8>)>,
    /// What has that name.
    pub(super) entry: Option<Entry>,
}

impl Place {
    /// Returns what is there.
    pub(super) fn there(&self) -> Result<Entry, Error> {
        self.entry.ok_or_else(|| refused(Status::NOENT))
    }

    /// Returns the directory and the name, whatever is there.
    pub(super) fn place(&self) -> Result<(FileHandle, &[u8]), Error> {
        let (directory, name) = self.at.as_ref().ok_or_else(|| refused(Status::INVAL))?;
        Ok((*directory, name))
    }

    /// Returns the directory and the name, which nothing has.
    pub(super) fn free(&self) -> Result<(FileHandle, &[u8]), Error> {
        if self.entry.is_some() { Err(refused(Status::EXIST)) } else { self.place() }
    }

    /// Returns the directory, the name and what has it.
    pub(super) fn named(&self) -> Result<(FileHandle, &[u8], Entry), Error> {
        let entry = self.there()?;
        let (directory, name) = self.place()?;
        Ok((directory, name, entry))
    }
}

/// What a server says where a path leads nowhere.
pub(super) const fn refused(status: Status) -> Error {
    Error::refused(Procedure::Lookup, status)
}

impl Fs {
    /// Finds where a path leads. That its last name is missing is no error.
    pub(super) async fn find(&self, path: &[u8], last: Last) -> Result<Place, Error> {
        let path = if path.starts_with(b"/") { path.to_vec() } else { [&self.base, path].join(&b'/') };
        let mut rest = names(self.client.below_export(&path)?);
        // The directories from the export's root down.
        let mut above = vec![self.client.root()];
        let (mut at, mut entry, mut links) = (None, None, 0);
        while let Some(name) = rest.pop_front() {
            let directory = *above.last().expect("the root stays");
            (at, entry) = (None, None);
            if name == b".." {
                above.pop();
                if above.is_empty() {
                    return Err(refused(Status::NOENT));
                }
                continue;
            }
            let found = match self.client.lookup(directory, &name).await {
                Ok(found) => found,
                Err(error) if rest.is_empty() && error.status() == Some(Status::NOENT) => {
                    return Ok(Place { at: Some((directory, name)), entry: None });
                }
                Err(error) => return Err(error),
            };
            match found.metadata.file_type {
                FileType::Symlink if !rest.is_empty() || last == Last::Followed => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Error::Local(Arc::new(io::Error::from(Errno::LOOP))));
                    }
                    let target = self.client.read_link(found.handle).await?;
                    let names = if target.starts_with(b"/") {
                        above.truncate(1);
                        names(self.client.below_export(&target)?)
                    } else {
                        names(&target)
                    };
                    names.into_iter().rev().for_each(|name| rest.push_front(name));
                }
                FileType::Directory => {
                    above.push(found.handle);
                    (at, entry) = (Some((directory, name)), Some(found));
                }
                _ if !rest.is_empty() => return Err(refused(Status::NOTDIR)),
                _ => (at, entry) = (Some((directory, name)), Some(found)),
            }
        }
        if entry.is_none() {
            let handle = *above.last().expect("the root stays");
            entry = Some(Entry { handle, metadata: self.client.metadata(handle).await? });
        }
        Ok(Place { at, entry })
    }
}

fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    components(path).map(<[u8]>::to_vec).collect()
}
