//! What a sync does with the names in a local directory.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
};

use rustix::{
    fs::{self, AtFlags, Dir, Stat},
    io::Errno,
};

use super::{Directory, Times};
use crate::name::{fresh, linked};

impl Directory {
    /// Returns what is in the directory, without `.` and `..`.
    pub(crate) fn entries(&self) -> io::Result<Vec<(Vec<u8>, Stat)>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if let Some(stat) = self.stat(&name)? {
                entries.push((name, stat));
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    /// Enters a directory below this one, through no link.
    pub(crate) fn enter_path(&self, path: &[u8]) -> io::Result<Self> {
        path.split(|&byte| byte == b'/').try_fold(self.clone(), |directory, name| directory.enter(name))
    }

    /// Removes a file, a link or an empty directory of a path below this one, through no link; if it is there.
    pub(crate) fn remove_path(&self, path: &[u8], is_directory: bool) -> io::Result<()> {
        let entered;
        let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(end) => {
                entered = self.enter_path(&path[..end])?;
                (&entered, &path[end + 1..])
            }
            None => (self, path),
        };
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match fs::unlinkat(&directory.fd, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file of another directory a name in this one; false where the file system has no such links.
    pub(crate) fn hard_link(
        &self,
        name: &[u8],
        (there, file): (&Self, &[u8]),
        replace: bool,
    ) -> io::Result<bool> {
        let mut linked = linked(name);
        if replace && self.remove(&linked).is_err() {
            linked = fresh(name);
        }
        let first = if replace { &linked[..] } else { name };
        match fs::linkat(&there.fd, file, &self.fd, first, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if replace {
            fs::renameat(&self.fd, first, &self.fd, name)?;
        }
        Ok(true)
    }

    /// Sets mode and times of a file, which is no link; false where the file system does not keep them.
    pub(crate) fn set_file(&self, name: &[u8], mode: Option<u32>, times: Option<Times>) -> io::Result<bool> {
        let file: File = self.read(name)?;
        let set = mode.map_or(Ok(()), |mode| file.set_permissions(Permissions::from_mode(mode)));
        let set = set.and_then(|()| match times {
            Some(times) => Ok(fs::futimens(&file, &times.to_timestamps())?),
            None => Ok(()),
        });
        match set {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
            {
                Ok(false)
            }
            set => set.map(|()| true),
        }
    }

    /// Reads where a link in this directory points to.
    pub(crate) fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(&self.fd, name, Vec::new())?.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_removed_through_a_link() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("file"), b"x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        symlink(outside.path(), inside.path().join("link")).unwrap();
        std::fs::create_dir(inside.path().join("dir")).unwrap();
        symlink(outside.path(), inside.path().join("dir/link")).unwrap();
        let directory = Directory::open(inside.path()).unwrap();
        for path in [&b"link/file"[..], b"dir/link/file"] {
            assert!(directory.remove_path(path, false).is_err());
        }
        assert!(directory.remove_path(b"link", true).is_err(), "a link is no directory");
        directory.remove_path(b"dir/link", false).unwrap();
        directory.remove_path(b"dir", true).unwrap();
        directory.remove_path(b"link", false).unwrap();
        directory.remove_path(b"link", false).unwrap();
        assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"x");
        assert!(directory.entries().unwrap().is_empty());
    }

    #[test]
    fn a_hard_link_replaces_a_file() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), b"a").unwrap();
        std::fs::write(place.path().join("b"), b"b").unwrap();
        let directory = Directory::open(place.path()).unwrap();
        assert!(directory.hard_link(b"b", (&directory, b"a"), true).unwrap());
        assert!(directory.hard_link(b"c", (&directory, b"a"), false).unwrap());
        let entries = directory.entries().unwrap();
        assert_eq!(entries.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert!(entries.iter().all(|(_, stat)| stat.st_nlink == 3));
    }
}
