//! What a run writes that was there before, by what it is: two names may lead to one directory (bind mounts) or to one file (hard links).

use std::{cell::RefCell, collections::HashMap};

use nfs_wireless_client::FileHandle;

use crate::error::{Error, Result};

/// What a directory or a file is, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Which {
    /// On this machine: the numbers of its file system and in it.
    Local((u64, u64)),
    /// On the server that is copied to.
    Remote(FileHandle),
}

/// The directories that a run has filled, and the files that it has written in place, with the names by which it came to them.
#[derive(Debug, Default)]
pub(super) struct Written {
    names: RefCell<HashMap<Which, String>>,
}

impl Written {
    /// Notes what is going to be written under this name; whether that is new.
    ///
    /// # Errors
    /// It was written under another name: of two sources one would be left.
    pub(super) fn claim(&self, which: Which, name: &str) -> Result<bool> {
        let mut names = self.names.borrow_mut();
        let Some(first) = names.get(&which) else {
            names.insert(which, name.to_owned());
            return Ok(true);
        };
        if first == name {
            return Ok(false);
        }
        Err(Error::other(format!("{name}: not copied, it is the same as {first}, which this run writes")))
    }

    /// Notes what this run has made under this name, which nothing had before.
    pub(super) fn note(&self, which: Which, name: &str) {
        self.names.borrow_mut().insert(which, name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_two_names_is_written_under_one() {
        let written = Written::default();
        let (one, other) = (Which::Local((1, 2)), Which::Local((2, 2)));
        for (which, name, is_first) in
            [(one, "a", true), (one, "a", true), (one, "b", false), (other, "b", true), (other, "a", false)]
        {
            assert_eq!(written.claim(which, name).is_ok(), is_first, "{which:?} {name}");
            assert!(!written.claim(which, name).unwrap_or_default(), "it is known by now");
        }
    }
}
