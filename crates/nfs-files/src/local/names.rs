//! What a sync does with the names in a local directory.

use std::{io, os::fd::OwnedFd};

#[cfg(linux)]
use rustix::fs::{FileType, OFlags};
use rustix::{
    fs::{self, AtFlags, Dir, Mode, RawMode, Stat},
    io::Errno,
};

use super::{Acl, Directory, Named, Times, give, number, set_mode, set_times};
use crate::name::{fresh, linked};

/// Whether a file got the mode and the times of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjusted {
    /// It has them.
    Yes,
    /// The file system does not keep them.
    NotKept,
    /// Who runs this may not give it away.
    OwnerKept,
    /// It is not what it was, or its name is another file's: nothing was set.
    Another,
}

impl Directory {
    /// Returns what is in the directory, without `.` and `..`.
    pub fn entries(&self) -> io::Result<Vec<(Vec<u8>, Stat)>> {
        let mut entries = Vec::new();
        // One that may be entered and not be listed is open as a mere place.
        let may_list = |error| if error == Errno::BADF { Errno::ACCESS } else { error };
        for entry in Dir::read_from(self.fd()?).map_err(may_list)? {
            let name = entry.map_err(may_list)?.file_name().to_bytes().to_vec();
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

    /// Enters a directory below this one, through no link and only through directories with these numbers; if one of them is another one
    /// or gone, returns how many were entered before.
    pub fn enter_path(&self, path: &[u8], numbers: &[(u64, u64)]) -> io::Result<Result<Self, usize>> {
        let mut directory = self.clone();
        for (index, name) in path.split(|&byte| byte == b'/').enumerate() {
            let entered = directory.enter(name).map(Some).or_else(|error| {
                let error_number = Errno::from_io_error(&error);
                let is_another = matches!(error_number, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
                if is_another { Ok(None) } else { Err(error) }
            })?;
            let is_the_one = |it: &Self| numbers.get(index).is_none_or(|&number| it.number() == number);
            match entered.filter(is_the_one) {
                Some(entered) => directory = entered,
                None => return Ok(Err(index)),
            }
        }
        Ok(Ok(directory))
    }

    /// Removes a file, a link or an empty directory of a path below this one, if it is there; what leads to it is as for
    /// [`Directory::enter_path`].
    pub fn remove_path(
        &self,
        path: &[u8],
        is_directory: bool,
        numbers: &[(u64, u64)],
    ) -> io::Result<Result<(), usize>> {
        let entered;
        let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(end) => {
                entered = match self.enter_path(&path[..end], numbers)? {
                    Ok(entered) => entered,
                    Err(index) => return Ok(Err(index)),
                };
                (&entered, &path[end + 1..])
            }
            None => (self, path),
        };
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match fs::unlinkat(directory.fd()?, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(Ok(())),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives what has a temporary name another, if nothing has that and that can be told in one step.
    #[cfg(linux)]
    pub(super) fn rename_new(&self, temporary: &[u8], name: &[u8]) -> io::Result<Named> {
        let fd = self.fd()?;
        match fs::renameat_with(&fd, temporary, &fd, name, fs::RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Named::Yes),
            Err(Errno::EXIST) => Ok(Named::Taken),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::NOTTY) => {
                Ok(Named::Unknown)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cannot tell in one step whether something has a name.
    #[cfg(not(linux))]
    pub(super) const fn rename_new(&self, _: &[u8], _: &[u8]) -> io::Result<Named> {
        Ok(Named::Unknown)
    }

    /// As [`Directory::rename_new`], also where only a second name can tell.
    pub(super) fn rename_if_free(&self, temporary: &[u8], name: &[u8]) -> io::Result<Named> {
        let named = self.rename_new(temporary, name)?;
        if named != Named::Unknown {
            return Ok(named);
        }
        let fd = self.fd()?;
        match fs::linkat(&fd, temporary, &fd, name, AtFlags::empty()) {
            Ok(()) => self.remove(temporary).map(|()| Named::Yes),
            Err(Errno::EXIST) => Ok(Named::Taken),
            Err(_) => Ok(Named::Unknown),
        }
    }

    /// Gives a file of another directory, which has these numbers, a name in this one, where something is there or not; unknown where the
    /// file system has no such links, or where the file is another one now.
    pub fn hard_link(
        &self,
        name: &[u8],
        (there, file, numbers): (&Self, &[u8], (u64, u64)),
        is_there: bool,
        may_replace: impl Fn(&Stat) -> bool,
    ) -> io::Result<Named> {
        let mut linked = linked(name);
        let (from, to) = (there.fd()?, self.fd()?);
        let link = |linked: &[u8]| fs::linkat(&from, file, &to, linked, AtFlags::empty());
        let mut made = link(&linked);
        if let Err(Errno::EXIST) = made {
            if self.remove(&linked).is_err() {
                linked = fresh(name);
            }
            made = link(&linked);
        }
        match made {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Ok(Named::Unknown);
            }
            Err(error) => return Err(error.into()),
        }
        let is_the_one = self.stat(&linked)?.is_some_and(|found| number(&found) == numbers);
        let named = match is_there {
            _ if !is_the_one => Ok(Named::Unknown),
            true => {
                let is_named = self.rename_if(&linked, name, may_replace);
                is_named.map(|is_named| if is_named { Named::Yes } else { Named::Taken })
            }
            false => self.rename_if_free(&linked, name),
        };
        // A rename of one name of a file to another does nothing (rename(2)).
        self.remove(&linked)?;
        named
    }

    /// Gives a file, which is no link, to an owner (user and group), and sets its mode and times, if it is the one that was looked at.
    pub fn set_file(
        &self,
        name: &[u8],
        is_the_one: impl FnOnce(&Stat) -> bool,
        owner: Option<(u32, u32)>,
        mode: Option<u32>,
        times: Option<Times>,
    ) -> io::Result<Adjusted> {
        let file = self.open_to_set(name)?;
        let found = file.map(|file| fs::fstat(&file).map(|stat| (file, stat))).transpose()?;
        let Some((file, before)) = found.filter(|(_, stat)| is_the_one(stat)) else {
            return Ok(Adjusted::Another);
        };
        if let Some((uid, gid)) = owner {
            // Neither owner is to have what only the other one may.
            let was = Mode::from_raw_mode(before.st_mode);
            let both = mode.map_or(Mode::RUSR, |mode| Mode::from_raw_mode(mode as RawMode));
            let _ = set_mode(&file, was & both & (Mode::RWXU | Mode::RWXG | Mode::RWXO));
            give(&file, uid, gid);
            let now = fs::fstat(&file)?;
            if now.st_uid == before.st_uid && now.st_gid == before.st_gid {
                set_mode(&file, was)?;
                return Ok(Adjusted::OwnerKept);
            }
        }
        let set = mode.map_or(Ok(()), |mode| {
            // The group's bits of a mode would give others in a list what it keeps from them.
            let _ = Acl::remove(&file);
            set_mode(&file, Mode::from_raw_mode(mode as RawMode))
        });
        let set = set.and_then(|()| times.map_or(Ok(()), |times| set_times(&file, times)));
        match set {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
            {
                Ok(Adjusted::NotKept)
            }
            set => set.map(|()| Adjusted::Yes),
        }
    }

    /// Opens a regular file for its attributes to be set; `None` if there is none. Its owner may do that, and may not always read it.
    fn open_to_set(&self, name: &[u8]) -> io::Result<Option<OwnedFd>> {
        match self.read_if(name, |_| true)? {
            None => self.refer_to(name),
            file => Ok(file.map(OwnedFd::from)),
        }
    }

    /// Opens a regular file as a mere place.
    #[cfg(linux)]
    fn refer_to(&self, name: &[u8]) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(self.fd()?, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(None),
            file => file?,
        };
        let is_file = FileType::from_raw_mode(fs::fstat(&file)?.st_mode) == FileType::RegularFile;
        Ok(Some(file).filter(|_| is_file))
    }

    /// Cannot open what may not be read.
    #[cfg(not(linux))]
    fn refer_to(&self, _: &[u8]) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Reads where a link in this directory points to.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(self.fd()?, name, Vec::new())?.into_bytes())
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
        let remove = |path: &[u8], is_directory| directory.remove_path(path, is_directory, &[]);
        assert_eq!(remove(b"link/file", false).unwrap(), Err(0));
        assert_eq!(remove(b"dir/link/file", false).unwrap(), Err(1));
        assert!(remove(b"link", true).is_err(), "a link is no directory");
        for (path, is_directory) in
            [(&b"dir/link"[..], false), (b"dir", true), (b"link", false), (b"link", false)]
        {
            assert_eq!(remove(path, is_directory).unwrap(), Ok(()));
        }
        assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"x");
        assert!(directory.entries().unwrap().is_empty());
    }

    #[test]
    fn nothing_is_removed_from_another_directory() {
        let place = tempfile::tempdir().unwrap();
        let path = |path: &str| place.path().join(path);
        std::fs::create_dir_all(path("a/b")).unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let numbers: Vec<_> = [&b"a"[..], b"a/b"]
            .map(|path| directory.enter_path(path, &[]).unwrap().unwrap().number())
            .to_vec();
        let remove = |is_directory| {
            let name: &[u8] = if is_directory { b"a/b/dir" } else { b"a/b/file" };
            directory.remove_path(name, is_directory, &numbers).unwrap()
        };
        for (moved, entered) in [("a/b", 1), ("a", 0)] {
            for is_directory in [false, true] {
                std::fs::write(path("a/b/file"), b"x").unwrap();
                std::fs::create_dir_all(path("a/b/dir")).unwrap();
                std::fs::rename(path(moved), path("moved")).unwrap();
                assert_eq!(remove(is_directory), Err(entered));
                std::fs::create_dir_all(path("a/b/dir")).unwrap();
                std::fs::write(path("a/b/file"), b"another").unwrap();
                assert_eq!(remove(is_directory), Err(entered));
                assert!(path("a/b/file").exists() && path("a/b/dir").exists());
                std::fs::remove_dir_all(path(moved)).unwrap();
                std::fs::rename(path("moved"), path(moved)).unwrap();
            }
        }
        assert_eq!((remove(false), remove(true)), (Ok(()), Ok(())));
        assert!(!path("a/b/file").exists() && !path("a/b/dir").exists());
    }

    #[test]
    fn a_hard_link_replaces_a_file() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), b"a").unwrap();
        std::fs::write(place.path().join("b"), b"b").unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let link = |name: &[u8], is_there, may_replace: bool| {
            let numbers = number(&directory.stat(b"a").unwrap().unwrap());
            directory.hard_link(name, (&directory, b"a", numbers), is_there, |_| may_replace).unwrap()
        };
        assert_eq!([link(b"b", true, false), link(b"b", false, true)], [Named::Taken; 2]);
        assert_eq!(std::fs::read(place.path().join("b")).unwrap(), b"b");
        assert_eq!([link(b"b", true, true), link(b"c", false, false)], [Named::Yes; 2]);
        let entries = directory.entries().unwrap();
        assert_eq!(entries.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert!(entries.iter().all(|(_, stat)| stat.st_nlink == 3));
        // Somebody else has made the link meanwhile.
        assert_eq!(link(b"b", true, true), Named::Yes);
        assert_eq!(directory.entries().unwrap().len(), 3);
    }

    #[test]
    fn a_file_that_was_replaced_gets_no_further_name() {
        for is_there in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let path = |name: &str| place.path().join(name);
            std::fs::write(path("a"), "copied").unwrap();
            let directory = Directory::open(place.path()).unwrap();
            let numbers = number(&directory.stat(b"a").unwrap().unwrap());
            std::fs::write(path("other"), "another's").unwrap();
            std::fs::rename(path("other"), path("a")).unwrap();
            if is_there {
                std::fs::write(path("b"), "old").unwrap();
            }
            let named = directory.hard_link(b"b", (&directory, b"a", numbers), is_there, |_| true).unwrap();
            assert_eq!(named, Named::Unknown);
            let expected = [&b"a"[..], b"b"];
            let found = directory.entries().unwrap();
            let found: Vec<_> = found.iter().map(|(name, _)| &name[..]).collect();
            assert_eq!(found, expected[..1 + usize::from(is_there)]);
            assert_eq!(std::fs::read(path("b")).ok(), is_there.then(|| b"old".to_vec()));
        }
    }
}
