//! A local file that is being written.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
};

use rustix::fs::{self, FlockOperation, Mode, OFlags, RawMode};

use super::{Directory, Times, give};
use crate::name::{MAX_NAME_BYTES, temporary};

/// A file on its way to its name: it is written beside the target and takes its place when complete. Dropped
/// before, it stays, so that an interrupted run leaves what it had.
#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    directory: Directory,
    name: Vec<u8>,
    /// `None` when written in place.
    temporary: Option<Vec<u8>>,
}

impl Part {
    /// Opens or creates the file under its temporary name, with what an earlier run has left in it.
    ///
    /// # Errors
    /// `WouldBlock` when another run is writing it; `InvalidFilename` before anything is written if it could never get its name.
    pub(crate) fn beside(directory: &Directory, name: &[u8], mode: u32) -> io::Result<Self> {
        if name.len() > MAX_NAME_BYTES {
            return Err(rustix::io::Errno::NAMETOOLONG.into());
        }
        let temporary = temporary(name);
        let file = match open(directory, &temporary, mode) {
            // It had its final mode already when its run was killed, and that does not let us write.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                directory.remove(&temporary).map_err(|_| error)?;
                open(directory, &temporary, mode)?
            }
            other => other?,
        };
        Ok(Self { file, directory: directory.try_clone()?, name: name.to_vec(), temporary: Some(temporary) })
    }

    /// Opens the target itself, which is no link.
    ///
    /// # Errors
    /// `WouldBlock` when another run is writing it.
    pub(crate) fn in_place(directory: &Directory, name: &[u8], mode: u32) -> io::Result<Self> {
        let file = open(directory, name, mode)?;
        Ok(Self { file, directory: directory.try_clone()?, name: name.to_vec(), temporary: None })
    }

    /// Forgets what is in the file.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if self.size()? > 0 { self.file.set_len(0) } else { Ok(()) }
    }

    /// Returns the size of the file, in bytes.
    pub(crate) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns the bytes that the file takes on the disk.
    pub(crate) fn used(&self) -> io::Result<u64> {
        /// Bytes of what `st_blocks` counts (stat(2)).
        const BLOCK_BYTES: u64 = 512;
        Ok(self.file.metadata()?.blocks() * BLOCK_BYTES)
    }

    /// Returns the path under which it is until it is complete.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(self.temporary.as_ref().unwrap_or(&self.name))
    }

    /// Returns what tells the file from others that had or will have its name.
    pub(crate) fn number(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    /// Returns another handle of the file, for whoever fills it.
    pub(crate) fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Sets permissions, whatever the umask.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(&self.file, Mode::from_raw_mode(mode as RawMode))?)
    }

    /// Gives the file to somebody, if we may.
    pub(crate) fn set_owner(&self, uid: u32, gid: u32) {
        give(self.file.as_fd(), uid, gid);
    }

    /// Sets the times.
    pub(crate) fn set_times(&self, times: Times) -> io::Result<()> {
        Ok(fs::futimens(&self.file, &times.to_timestamps())?)
    }

    /// Gives the file its name if nothing has that; false where something has, or where that cannot be told in one step.
    ///
    /// # Errors
    /// As [`Part::finish`].
    #[cfg(linux)]
    pub(crate) fn finish_new(&self) -> io::Result<bool> {
        use rustix::{fs::RenameFlags, io::Errno};

        let Some(temporary) = &self.temporary else { return Ok(false) };
        if !is_at(&self.file, &self.directory, temporary)? {
            return Err(removed());
        }
        let (directory, flags) = (&self.directory.fd, RenameFlags::NOREPLACE);
        match fs::renameat_with(directory, &temporary[..], directory, &self.name[..], flags) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::NOTTY) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cannot tell in one step whether something has the name.
    #[cfg(not(linux))]
    pub(crate) const fn finish_new(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// `NotFound` when somebody removed or replaced the temporary file.
    pub(crate) fn finish(self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            if !is_at(&self.file, &self.directory, temporary)? {
                return Err(removed());
            }
            let directory = &self.directory.fd;
            fs::renameat(directory, &temporary[..], directory, &self.name[..])?;
        }
        Ok(())
    }

    /// Removes the file when it was temporary: it will not become complete.
    pub(crate) fn discard(self) {
        if let Some(temporary) = &self.temporary {
            let _ = self.directory.remove(temporary);
        }
    }
}

/// Returns the error for a temporary file that is not there any more.
pub(crate) fn removed() -> io::Error {
    let text = "its temporary file was removed or replaced meanwhile; run it again";
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Opens and locks a file for writing, creating it if need be; never through a link.
pub(super) fn open(directory: &Directory, name: &[u8], mode: u32) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NOCTTY | OFlags::NONBLOCK;
    loop {
        let file = File::from(fs::openat(&directory.fd, name, flags, Mode::from_raw_mode(mode as RawMode))?);
        // Some file systems have no locks: that is no reason not to write.
        if let Err(rustix::io::Errno::WOULDBLOCK) = fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another nfsw is writing this file"));
        }
        // Another run may have given the file its name between the two calls: then it is complete, and not ours.
        if !is_at(&file, directory, name)? {
            continue;
        }
        return Ok(file);
    }
}

/// Whether a name still stands for an open file.
fn is_at(file: &File, directory: &Directory, name: &[u8]) -> io::Result<bool> {
    let metadata = file.metadata()?;
    // The types of the fields differ from system to system.
    #[allow(clippy::unnecessary_cast)]
    let number = |found: fs::Stat| (found.st_dev as u64, found.st_ino as u64);
    Ok(directory.stat(name)?.map(number) == Some((metadata.dev(), metadata.ino())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_appears_only_when_finished() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let part = Part::beside(&directory, b"a", 0o644).unwrap();
        part.writer().unwrap().write_all(b"content").unwrap();
        assert!(!place.path().join("a").exists());
        let error = Part::beside(&directory, b"a", 0o644).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        part.finish().unwrap();
        assert_eq!(std::fs::read(place.path().join("a")).unwrap(), b"content");
    }

    #[test]
    fn a_part_that_was_replaced_does_not_get_the_name() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let part = Part::beside(&directory, b"a", 0o644).unwrap();
        std::fs::rename(place.path().join(".a.nfsw-part"), place.path().join("b")).unwrap();
        std::fs::write(place.path().join(".a.nfsw-part"), b"other").unwrap();
        assert_eq!(part.finish().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!place.path().join("a").exists());
    }

    #[test]
    fn a_part_is_kept_unless_discarded() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        drop(Part::beside(&directory, b"a", 0o644).unwrap());
        assert!(place.path().join(".a.nfsw-part").exists());
        Part::beside(&directory, b"a", 0o644).unwrap().discard();
        assert!(!place.path().join(".a.nfsw-part").exists());
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp/elsewhere", place.path().join(".a.nfsw-part")).unwrap();
        let directory = Directory::open(place.path()).unwrap();
        assert!(Part::beside(&directory, b"a", 0o644).is_err());
        assert!(Part::in_place(&directory, b".a.nfsw-part", 0o644).is_err());
    }
}
