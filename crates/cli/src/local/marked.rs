//! A local directory that is the target of a copy.

use std::{
    fs::File,
    io::{self, Write},
};

use rustix::fs::{self, FileType, Mode, OFlags};

use super::Directory;
use crate::name::{MARKER, temporary};

/// A directory on its way to its name: it is made beside the target, gets the mark of an unfinished
/// copy, and takes its name with that, so that there is no moment at which it has its name and no
/// mark. A run that ends between two steps leaves what the next one begins with.
#[derive(Debug)]
pub(crate) struct Marked<'a> {
    above: &'a Directory,
    name: &'a [u8],
    made: Directory,
}

impl<'a> Marked<'a> {
    /// Makes the directory under its temporary name, or takes what an earlier run has left there.
    pub(crate) fn make(above: &'a Directory, name: &'a [u8], mode: u32) -> io::Result<Self> {
        let temporary = temporary(name);
        let is_directory = |mode| FileType::from_raw_mode(mode) == FileType::Directory;
        if above.stat(&temporary)?.is_some_and(|found| !is_directory(found.st_mode)) {
            above.remove(&temporary)?;
        }
        let (made, _) = above.create(&temporary, mode)?;
        Ok(Self { above, name, made })
    }

    /// Marks it as an unfinished copy of what has this name.
    pub(crate) fn mark(&self, source: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mark = fs::openat(&self.made.fd, MARKER, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(mark).write_all(source)
    }

    /// Gives it its name.
    pub(crate) fn finish(self) -> io::Result<Directory> {
        let Self { above, name, made } = self;
        fs::renameat(&above.fd, temporary(name), &above.fd, name)?;
        Ok(Directory { path: above.join(name), ..made })
    }
}
