//! Access lists of files (acl(5)). Where a file has one, the group's bits in its mode are the most that anybody in the list may have, and not
//! what the group may do.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// The permissions that a file gives to more than its owner, its group and all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<u8>);

#[cfg(linux)]
mod system {
    use rustix::{
        buffer::{SpareCapacity, spare_capacity},
        fs,
        io::Errno,
    };

    use super::{Acl, AsFd, File, OwnedFd, Path, io};
    use crate::local::path_of;

    const NAME: &str = "system.posix_acl_access";
    const DEFAULT: &str = "system.posix_acl_default";

    /// Bytes of a list: the most that Linux has of any attribute.
    const MOST_BYTES: usize = 64 << 10;

    /// Takes a list as the system hands it out; `None` where there is none, as far as can be told.
    fn read(get: impl FnOnce(SpareCapacity<'_, u8>) -> rustix::io::Result<usize>) -> Option<Acl> {
        let mut bytes = Vec::with_capacity(MOST_BYTES);
        get(spare_capacity(&mut bytes)).ok()?;
        Some(Acl(bytes))
    }

    fn remove(file: impl AsFd, name: &str) -> io::Result<()> {
        match fs::fremovexattr(file, name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    impl Acl {
        /// Returns the list of what a path leads to; a link at its end is followed. `None` where its mode says all.
        pub fn at_path(path: &Path) -> Option<Self> {
            read(|bytes| fs::getxattr(path, NAME, bytes))
        }

        /// As [`Acl::at_path`], of what has a name in a directory; of a link itself.
        pub fn at(directory: &OwnedFd, name: &[u8]) -> Option<Self> {
            let path = [path_of(directory).as_bytes(), name].join(&b'/');
            read(|bytes| fs::lgetxattr(&path[..], NAME, bytes))
        }

        /// Returns the list from which new files in a directory get theirs.
        pub fn default_of(directory: &OwnedFd) -> Option<Self> {
            read(|bytes| fs::getxattr(&path_of(directory)[..], DEFAULT, bytes))
        }

        /// As [`Acl::at_path`], of an open file or directory.
        pub fn of(file: impl AsFd) -> Option<Self> {
            read(|bytes| fs::fgetxattr(file, NAME, bytes))
        }

        /// Gives the list to an open file, whose mode follows from it then.
        pub fn give(&self, file: &File) -> io::Result<()> {
            Ok(fs::fsetxattr(file, NAME, &self.0, fs::XattrFlags::empty())?)
        }

        /// Takes from an open file the list that its directory has given it.
        pub fn remove(file: impl AsFd) -> io::Result<()> {
            remove(file, NAME)
        }

        /// Takes from an open directory the list that it gives to what is made in it.
        pub fn remove_default(directory: impl AsFd) -> io::Result<()> {
            remove(directory, DEFAULT)
        }
    }
}

/// Systems whose lists are not known here.
#[cfg(not(linux))]
impl Acl {
    /// There is none.
    pub const fn at_path(_: &Path) -> Option<Self> {
        None
    }

    /// There is none.
    pub const fn at(_: &OwnedFd, _: &[u8]) -> Option<Self> {
        None
    }

    /// There is none.
    pub const fn default_of(_: &OwnedFd) -> Option<Self> {
        None
    }

    /// There is none.
    pub fn of(_: impl AsFd) -> Option<Self> {
        None
    }

    /// Does nothing.
    pub const fn give(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing.
    pub fn remove(_: impl AsFd) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing.
    pub fn remove_default(_: impl AsFd) -> io::Result<()> {
        Ok(())
    }
}

impl Acl {
    /// Returns which of these permissions a copy may have that has no list: its group those that the file's group has, and nobody more than the
    /// list gives to a user or a group by name, who may be of the copy's group or one of all others.
    pub fn of_group(&self, mode: u32) -> u32 {
        let (group, named) = self.least();
        mode & (!0o077 | (group & named) << 3 | named)
    }

    /// As [`Acl::of_group`] of a copy in another group: who is of the file's own is one of all others there.
    pub fn of_all(&self, mode: u32) -> u32 {
        let (group, named) = self.least();
        let all = group & named;
        mode & (!0o077 | all << 3 | all)
    }

    /// Returns the mode of a file with this list, at most.
    pub fn mode(&self) -> u32 {
        let of = |tag| self.entries().find(|(it, _)| *it == tag).map(|(_, may)| may);
        let group = of(MASK).or_else(|| of(GROUP_OBJ)).unwrap_or(0);
        of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    /// Returns what the group may, and what all who are named may.
    fn least(&self) -> (u32, u32) {
        let of = |tags: &'static [u16]| {
            self.entries().filter(move |(tag, _)| tags.contains(tag)).map(|(_, may)| may)
        };
        let mask = of(&[MASK]).next().unwrap_or(0o7);
        let named = of(&[USER, GROUP]).fold(0o7, |all, may| all & may & mask);
        (of(&[GROUP_OBJ]).next().unwrap_or(0) & mask, named)
    }

    /// Returns the tag and the permissions of each entry.
    fn entries(&self) -> impl Iterator<Item = (u16, u32)> {
        let entries = self.0.get(VERSION_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
        entries.map(|entry| {
            let half = |at| u16::from_le_bytes([entry[at], entry[at + 1]]);
            (half(0), u32::from(half(2) & 0o7))
        })
    }
}

// The form of the attribute, `linux/posix_acl_xattr.h`: a version, then entries of a tag, permissions and a number, little-endian.
const VERSION_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of these entries, all about user or group 1234.
    fn list(entries: &[(u16, u16)]) -> Acl {
        let entries = entries.iter().flat_map(|(tag, may)| {
            [&tag.to_le_bytes()[..], &may.to_le_bytes(), &1234_u32.to_le_bytes()].concat()
        });
        Acl([2, 0, 0, 0].into_iter().chain(entries).collect())
    }

    #[test]
    fn the_mode_of_a_file_with_a_list_is_not_what_its_group_may_do() {
        let named = [(USER_OBJ, 6), (USER, 6), (GROUP_OBJ, 0), (MASK, 6), (OTHER, 4)];
        assert_eq!(list(&named).of_group(0o664), 0o604);
        assert_eq!(list(&named).mode(), 0o664);
        assert_eq!(list(&named).of_all(0o664), 0o600);
        // A user who may less than all others, and one whom only the mask keeps out.
        for may in [(0, 4), (6, 0)] {
            let kept_out =
                [(USER_OBJ, 6), (USER, may.0), (GROUP_OBJ, 4), (GROUP, 4), (MASK, may.1), (OTHER, 4)];
            assert_eq!(list(&kept_out).of_group(0o644), 0o600);
            assert_eq!(list(&kept_out).of_all(0o644), 0o600);
        }
        for broken in [&[][..], &[2], &[2, 0, 0, 0, 1, 0, 6]] {
            assert_eq!(
                Acl(broken.to_vec()).of_group(0o664),
                0o604,
                "nothing is given to whom the list does not name"
            );
        }
    }
}
