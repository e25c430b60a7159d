//! A local directory that is the target of a copy.

use std::io::{self, Write};

use rustix::fs;

use super::{Directory, Named};
use crate::name::{MARKER, fresh, temporary};

/// A directory on its way to its name: it is made beside the target, gets the mark of an unfinished
/// copy, and takes its name with that, so that there is no moment at which it has its name and no
/// mark. A run that ends between two steps leaves what the next one begins with.
#[derive(Debug)]
pub struct Marked<'a> {
    above: &'a Directory,
    name: &'a [u8],
    temporary: Vec<u8>,
    made: Directory,
}

impl<'a> Marked<'a> {
    /// Makes the directory under its temporary name. What an earlier run has left there is removed; what cannot be removed keeps it, and
    /// the directory gets another.
    pub fn make(above: &'a Directory, name: &'a [u8], mode: u32) -> io::Result<Self> {
        let mut temporary = temporary(name);
        // Nobody else is to put anything into it before it is complete.
        let (mut made, mut is_new) = above.create_or_else(&temporary, mode)?;
        if !is_new {
            clear(above, &temporary);
            (made, is_new) = above.create_or_else(&temporary, mode)?;
        }
        if !is_new {
            temporary = fresh(name);
            (made, is_new) = above.create_or_else(&temporary, mode)?;
        }
        match made.filter(|_| is_new) {
            Some(made) => Ok(Self { above, name, temporary, made }),
            None => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Marks it as an unfinished copy of what has this name.
    pub fn mark(&self, source: &[u8]) -> io::Result<()> {
        super::part::create(&self.made, MARKER, 0o600)?.write_all(source)
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// `AlreadyExists` when something else has it, which stays.
    pub fn finish(self) -> io::Result<Directory> {
        let Self { above, name, temporary, made } = self;
        let opened = made.opened.renamed(name)?;
        // A rename replaces an empty directory.
        let named = match above.rename_new(&temporary, name)? {
            Named::Unknown if above.stat(name)?.is_some() => Named::Taken,
            Named::Unknown => {
                fs::renameat(above.fd()?, &temporary[..], above.fd()?, name)?;
                Named::Yes
            }
            named => named,
        };
        if named == Named::Taken {
            clear(above, &temporary);
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Directory { opened, path: above.join(name), ..made })
    }
}

/// Removes what has a temporary name, as far as that is possible: a directory with nothing but a mark in it, or something else.
fn clear(above: &Directory, temporary: &[u8]) {
    if let Ok(left) = above.enter(temporary) {
        let _ = left.remove(MARKER);
        let _ = above.remove_path(temporary, true, &[]);
    } else {
        let _ = above.remove(temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_directory_that_somebody_else_has_made_meanwhile_stays() {
        for is_there in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let above = Directory::open(place.path()).unwrap();
            let made = Marked::make(&above, b"new", 0o755).unwrap();
            made.mark(b"source").unwrap();
            let path = place.path().join("new");
            if is_there {
                std::fs::create_dir(&path).unwrap();
            }
            let theirs = std::fs::metadata(&path).ok().map(|it| it.ino());
            let finished = made.finish().map(|it| it.number().1).map_err(|error| error.kind());
            let found = std::fs::metadata(&path).unwrap().ino();
            match theirs {
                Some(theirs) => assert_eq!((found, finished), (theirs, Err(io::ErrorKind::AlreadyExists))),
                None => assert_eq!(finished, Ok(found)),
            }
            let names = above.entries().unwrap();
            assert_eq!(names.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), [b"new"], "{is_there}");
        }
    }
}
