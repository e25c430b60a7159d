//! References to files on systems without `O_PATH`: a directory is open, anything else is a name in an open directory.
//!
//! Between two calls another file may take that name. Whoever needs the same file compares identities.

// The types of the fields of `stat` differ from system to system.
#![allow(clippy::unnecessary_cast, clippy::useless_conversion)]

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use super::{Found, Stat};

/// A mere reference to a file, which also a symbolic link can have.
#[derive(Debug)]
pub(in super::super) enum Reference {
    Directory(OwnedFd),
    /// What cannot be opened as a directory.
    Name(OwnedFd, Vec<u8>),
}

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Reference {
    /// Refers to an open directory.
    pub(in super::super) fn to(directory: &OwnedFd) -> std::io::Result<Self> {
        directory.try_clone().map(Self::Directory)
    }

    /// Refers to the entry of a directory, without following it if it is a symbolic link.
    ///
    /// The name has no slash and is not `..`, so that the result lies in the directory whatever the host does meanwhile.
    pub(in super::super) fn entry(&self, name: &[u8]) -> Result<Self, Errno> {
        let directory = self.directory()?;
        if let Ok(opened) = rustix::fs::openat(directory, name, OPEN_DIRECTORY, Mode::empty()) {
            return Ok(Self::Directory(opened));
        }
        look_at(directory, name)?;
        Ok(Self::Name(another(directory)?, name.to_vec()))
    }

    pub(in super::super) fn look(&self) -> Result<Found, Errno> {
        match self {
            Self::Directory(directory) => look(directory),
            Self::Name(directory, name) => look_at(directory, name),
        }
    }

    /// Opens the directory for listing and flushing.
    pub(in super::super) fn reopen_directory(&self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Directory(directory) => rustix::fs::openat(directory, ".", OPEN_DIRECTORY, Mode::empty()),
            Self::Name(directory, name) => {
                let opened = rustix::fs::openat(directory, &name[..], OPEN_DIRECTORY, Mode::empty());
                // Systems differ in what they say of a symbolic link here.
                opened.map_err(|error| match error {
                    Errno::LOOP | Errno::MLINK => Errno::NOTDIR,
                    other => other,
                })
            }
        }
    }

    /// Looks at an entry of the directory, without following it if it is a symbolic link.
    pub(in super::super) fn look_at(&self, name: &[u8]) -> Result<Found, Errno> {
        look_at(self.directory()?, name)
    }

    pub(in super::super) fn read_link(&self) -> Result<Vec<u8>, Errno> {
        let Self::Name(directory, name) = self else { return Err(Errno::INVAL) };
        rustix::fs::readlinkat(directory, &name[..], Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// Changes the mode of a file that is no symbolic link.
    pub(in super::super) fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        let (directory, name) = match self {
            Self::Directory(directory) => return rustix::fs::fchmod(directory, mode),
            Self::Name(directory, name) => (directory, &name[..]),
        };
        match rustix::fs::chmodat(directory, name, mode, AtFlags::SYMLINK_NOFOLLOW) {
            // A system that cannot do this without following links can through an open file, which a socket never is.
            Err(error @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(directory, name, flags, Mode::empty()) {
                    Ok(file) => rustix::fs::fchmod(file, mode),
                    Err(Errno::NXIO) if self.look()?.attributes.mode == mode.bits() as u32 => Ok(()),
                    Err(Errno::NXIO) => Err(error),
                    Err(other) => Err(other),
                }
            }
            other => other,
        }
    }

    /// Returns the directory that this refers to, for calls on its entries.
    pub(in super::super) fn directory(&self) -> Result<&OwnedFd, Errno> {
        match self {
            Self::Directory(directory) => Ok(directory),
            // Says why it could not be opened: it is none, or it is closed to us. A directory that took the place of a file is another one.
            Self::Name(..) => Err(self.reopen_directory().err().unwrap_or(Errno::NOENT)),
        }
    }
}

/// Looks at the entry of a directory, without following it if it is a symbolic link.
pub(in super::super) fn look_at(directory: impl AsFd, name: &[u8]) -> Result<Found, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| found(&stat))
}

/// Looks at an open file, whether it still has a name or not.
pub(in super::super) fn look(file: impl AsFd) -> Result<Found, Errno> {
    rustix::fs::fstat(file).map(|stat| found(&stat))
}

fn another(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(directory, 0)
}

fn found(stat: &rustix::fs::Stat) -> Found {
    Stat {
        device: numbers(stat.st_dev as _),
        special: numbers(stat.st_rdev as _),
        inode: stat.st_ino as u64,
        mode: stat.st_mode as u32,
        links: stat.st_nlink as u32,
        owner: (stat.st_uid as u32, stat.st_gid as u32),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        accessed: (stat.st_atime as i64, stat.st_atime_nsec as u32),
        modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        born: born(stat),
        // Cannot tell the number of a mount.
        mount: 0,
    }
    .into()
}

fn numbers(device: rustix::fs::Dev) -> (u32, u32) {
    (rustix::fs::major(device) as u32, rustix::fs::minor(device) as u32)
}

#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
fn born(stat: &rustix::fs::Stat) -> Option<(i64, u32)> {
    // FreeBSD says -1 where a file system does not keep it.
    (stat.st_birthtime as i64 > 0).then_some((stat.st_birthtime as i64, stat.st_birthtime_nsec as u32))
}

#[cfg(not(any(target_vendor = "apple", target_os = "freebsd")))]
const fn born(_: &rustix::fs::Stat) -> Option<(i64, u32)> {
    None
}
