//! Names that are given or taken away only where nobody else loses a file by it.
//!
//! REMOVE and RENAME name what they act on, and take no condition (RFC 1813 §3.3.12, §3.3.14). Of the calls of NFSv3 only LINK, and
//! those that make something new, fail where a name is taken (RFC 1813 §3.3.15): that a name was free is told in one step, whatever
//! else is told by a LOOKUP right before the call. What changes between those two calls is lost.

use nfs_proto::attr::{Metadata, SetAttributes};
use nfs_wire::{FileHandle, Procedure, Status};

use super::{Client, Entry};
use crate::{error::Error, shown::shown};

/// Permission bits of a directory that reserves a name: nobody gives them to one of use.
const RESERVED_MODE: u32 = 0o1000;

/// Whether something reserves its name for a directory, as [`Client::reserve`] makes it. Whoever has made it may have ended early.
///
/// It is an empty directory with the permission bits 1000. One with entries may have these, too: RENAME does not replace that.
pub fn is_reservation(metadata: &Metadata) -> bool {
    metadata.is_dir() && metadata.mode & 0o7777 == RESERVED_MODE
}

impl Client {
    /// Removes a name if it stands for `file`, and tells whether it did (LOOKUP and REMOVE, RFC 1813 §3.3.3, §3.3.12).
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub async fn remove_if(
        &self,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<bool, Error> {
        Ok(self.find_file(file, (directory, name)).await? && self.remove_found((directory, name)).await?)
    }

    /// Whether a name stands for `file`.
    pub(super) async fn find_file(&self, file: FileHandle, at: (FileHandle, &[u8])) -> Result<bool, Error> {
        let Some(found) = self.find(at).await? else { return Ok(false) };
        match self.is_same_file(&found, file).await {
            // The file is gone, so the name is another's.
            Err(error) if error.is_stale() => Ok(false),
            is_same => is_same,
        }
    }

    /// Removes a name; false if somebody else was faster.
    async fn remove_found(&self, (directory, name): (FileHandle, &[u8])) -> Result<bool, Error> {
        match self.remove(directory, name).await {
            Err(error) if error.status() == Some(Status::NOENT) => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Gives `file` another name or place that nothing has, in one step (LINK, RFC 1813 §3.3.15), and then removes the old name
    /// ([`Client::leave_old_name`]). In between the file has both names, and keeps them if this fails.
    ///
    /// # Errors
    /// As [`Client::leave_old_name`]; `EXIST` when something has the name; [`Error::is_no_link`] where the server makes no hard link:
    /// then nothing was done.
    pub async fn rename_new(
        &self,
        file: FileHandle,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<(), Error> {
        // Both names are looked at afterwards.
        self.link(file, to).await?;
        Box::pin(self.leave_old_name(file, from, to)).await
    }

    /// Removes the old name of a file that has got a new one, if a look right before says that both are the file's.
    ///
    /// # Errors
    /// As [`Client::metadata`]; [`Error::NotLinked`] when the new name is not the file's: the old one stays; `NOENT` when somebody else has
    /// given the file another name meanwhile: the new one is removed again.
    pub async fn leave_old_name(
        &self,
        file: FileHandle,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<(), Error> {
        let (old, new) = tokio::join!(self.find_file(file, from), self.find_file(file, to));
        if !new? {
            return Err(Error::NotLinked { name: shown(to.1) });
        }
        if old? && self.remove_found(from).await? {
            return Ok(());
        }
        // Somebody else has moved the file or removed that name. If the file has more names than the new one, this is as if they had been
        // first; if not, as if they had been second.
        if self.metadata(file).await?.links > 1 && self.remove_if(file, to.0, to.1).await? {
            return Err(Error::refused(Procedure::Rename, Status::NOENT));
        }
        Ok(())
    }

    /// As [`Client::rename_new`], on every server; false if something has the name. Where no hard link is made, that is told by a
    /// LOOKUP right before the RENAME: what gets the name between the two is replaced.
    ///
    /// # Errors
    /// As [`Client::rename`].
    pub async fn rename_if_free(
        &self,
        file: FileHandle,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<bool, Error> {
        match self.rename_new(file, from, to).await {
            Ok(()) => Ok(true),
            Err(Error::Status { procedure: Procedure::Link, status: Status::EXIST }) => Ok(false),
            Err(error) if error.is_no_link() => match self.find(to).await? {
                Some(_) => Ok(false),
                None => self.rename(file, from, to).await.map(|()| true),
            },
            Err(error) => Err(error),
        }
    }

    /// Reserves a free name for a directory that is to get it ([`Client::rename_directory_if_free`]), in one step: MKDIR makes an empty
    /// directory, which [`is_reservation`] tells from others. One that is there is taken, too: whoever has made it has ended early, or only
    /// one of the two renames a directory that is not empty in its place. `None` if something else has the name.
    ///
    /// # Errors
    /// As [`Client::mkdir`].
    pub async fn reserve(&self, at: (FileHandle, &[u8])) -> Result<Option<Entry>, Error> {
        let mode = SetAttributes { mode: Some(RESERVED_MODE), ..SetAttributes::default() };
        match self.mkdir(at.0, at.1, mode).await {
            Err(
                Error::Status { status: Status::EXIST, .. } | Error::Ambiguous { status: Status::EXIST, .. },
            ) => Ok(self.find(at).await?.filter(|there| is_reservation(&there.metadata))),
            made => made.map(Some),
        }
    }

    /// Gives a directory a name that was reserved for it. If that fails, and it is known that it does, the name is free again.
    ///
    /// # Errors
    /// As [`Client::rename`].
    pub async fn rename_to_reserved(
        &self,
        directory: FileHandle,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        reserved: &Entry,
    ) -> Result<(), Error> {
        match self.rename(directory, from, to).await {
            // Whether RENAME was done is known.
            Err(error @ (Error::Status { .. } | Error::MountPoint { .. })) => {
                let is_ours = self.find_file(reserved.handle, to).await?;
                let is_removed = is_ours && self.rmdir(to.0, to.1).await.is_ok();
                // Some servers replace no directory, and not all of them say EXIST (go-nfs says IO).
                if is_removed && error.status().is_some() {
                    return self.rename(directory, from, to).await;
                }
                Err(error)
            }
            renamed => renamed,
        }
    }

    /// As [`Client::rename_if_free`] for a directory, which has no second name: MKDIR tells whether the new name is free, and the empty
    /// directory that it makes is replaced. What a call leaves there that ends in between, is replaced by the next one.
    ///
    /// # Errors
    /// As [`Client::rename`] and [`Client::mkdir`].
    pub async fn rename_directory_if_free(
        &self,
        directory: FileHandle,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<bool, Error> {
        match self.reserve(to).await? {
            Some(reserved) => self.rename_to_reserved(directory, from, to, &reserved).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Gives `file` another name or place if what has that may be replaced, and tells whether it did. What that is, a LOOKUP tells right
    /// before the RENAME: what gets the name between the two is replaced, but for a name that nothing had, which is given as by
    /// [`Client::rename_if_free`].
    ///
    /// # Errors
    /// As [`Client::rename`].
    pub async fn rename_if(
        &self,
        file: FileHandle,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        may_replace: impl FnOnce(&Entry) -> bool,
    ) -> Result<bool, Error> {
        match self.find(to).await? {
            None => self.rename_if_free(file, from, to).await,
            Some(there) if !may_replace(&there) => Ok(false),
            Some(there) => {
                let is_same = there.metadata.links > 1 && self.is_same_file(&there, file).await?;
                self.rename(file, from, to).await?;
                // RENAME does nothing where both names are the file's (RFC 1813 §3.3.14).
                if is_same && from != to {
                    self.remove_if(file, from.0, from.1).await?;
                }
                Ok(true)
            }
        }
    }

    async fn find(&self, (directory, name): (FileHandle, &[u8])) -> Result<Option<Entry>, Error> {
        match self.lookup(directory, name).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.status() == Some(Status::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
