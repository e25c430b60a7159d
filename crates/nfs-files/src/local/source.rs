//! What is copied from this machine: opened below what the user named, and through no link.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    ops::Deref,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags, Stat},
    io::Errno,
};

use super::{Acl, Directory, OPEN_DIRECTORY, regular};

/// A local source. Links in the path that the user typed are the user's; below it others may put a link in the place of a directory at
/// any moment, so what is there is found from a descriptor of what was named, and never through a link.
#[derive(Clone, Debug)]
pub struct SourcePath {
    /// For messages.
    path: PathBuf,
    /// What the user named, and the path from there; `None` for what the user named itself.
    below: Option<(Arc<Directory>, PathBuf)>,
    /// Whether a link stands for what it leads to.
    follow: bool,
}

impl SourcePath {
    /// What the user named, or a link that the user wants to be followed.
    pub const fn named(path: PathBuf, follow: bool) -> Self {
        Self { path, below: None, follow }
    }

    /// Returns what a link below what the user named leads to, if that is there, too; it keeps the link's name.
    pub fn within(&self) -> io::Result<Option<Self>> {
        let Some((root, _)) = &self.below else { return Ok(None) };
        let (top, there) = (root.path().canonicalize()?, self.path.canonicalize()?);
        let below = there.strip_prefix(top).ok().filter(|below| below.file_name().is_some());
        let below = below.map(|below| (Arc::clone(root), below.to_owned()));
        Ok(below.map(|below| Self { path: self.path.clone(), below: Some(below), follow: false }))
    }

    /// Returns what it is; a link is looked at itself unless it is to be followed.
    pub fn stat(&self, follow: bool) -> io::Result<Stat> {
        match &self.below {
            None if follow => Ok(fs::stat(&self.path)?),
            None => Ok(fs::lstat(&self.path)?),
            Some((root, path)) => {
                let (directory, name) = above(root, path)?;
                Ok(fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
            }
        }
    }

    /// Returns its access list, if it has one: that of what a link leads to.
    pub fn list(&self) -> Option<Acl> {
        match &self.below {
            None => Acl::at_path(&self.path),
            Some((root, path)) => {
                let (directory, name) = above(root, path).ok()?;
                Acl::at(&directory, name.as_bytes())
            }
        }
    }

    /// Opens a regular file; a fifo put in its place is refused and not waited for. Only what the user named may be a link. Who has leased
    /// the file (fcntl(2)) is waited for, until the system takes that back.
    ///
    /// # Errors
    /// `ResourceBusy` when that lasts longer.
    pub async fn open(&self, follow: bool) -> io::Result<File> {
        let begun = Instant::now();
        loop {
            match self.open_with(OFlags::NONBLOCK, follow) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                opened => return regular(opened?),
            }
            if begun.elapsed() > longest_lease() {
                let text = "another program has leased it and keeps it; try again when it is closed";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            tokio::time::sleep(LEASE_CHECK).await;
        }
    }

    /// Opens what is read to its end, whatever it is: of a fifo this waits for who writes into it.
    pub fn open_stream(&self, follow: bool) -> io::Result<File> {
        Ok(File::from(self.open_with(OFlags::empty(), follow)?))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `InvalidInput` when it is not the one with this number any more.
    pub fn enter(&self, number: u64) -> io::Result<SourceDirectory> {
        let fd = self.open_with(OPEN_DIRECTORY, self.follow)?;
        let directory = Arc::new(Directory::of(fd, self.path.clone()));
        if directory.number().1 != number {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "was replaced by another directory meanwhile",
            ));
        }
        let (root, path) = match &self.below {
            None => (Arc::clone(&directory), PathBuf::new()),
            Some((root, path)) => (Arc::clone(root), path.clone()),
        };
        Ok(SourceDirectory { directory, root, path })
    }

    /// Reads where a link points to.
    pub fn read_link(&self) -> io::Result<Vec<u8>> {
        match &self.below {
            None => Ok(fs::readlink(&self.path, Vec::new())?.into_bytes()),
            Some((root, path)) => {
                let (directory, name) = above(root, path)?;
                Ok(fs::readlinkat(&directory, name, Vec::new())?.into_bytes())
            }
        }
    }

    fn open_with(&self, flags: OFlags, follow: bool) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        match &self.below {
            None => {
                let links = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
                Ok(fs::open(&self.path, flags | links, Mode::empty())?)
            }
            Some((root, path)) => open_beneath(root, path, flags).map_err(|error| match error {
                Errno::LOOP => io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "is a symbolic link now, or is behind one, which is not followed",
                ),
                error => error.into(),
            }),
        }
    }
}

impl Deref for SourcePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// A source directory that is open.
#[derive(Debug)]
pub struct SourceDirectory {
    directory: Arc<Directory>,
    root: Arc<Directory>,
    path: PathBuf,
}

impl SourceDirectory {
    /// Returns what it is now.
    pub fn stat(&self) -> io::Result<Stat> {
        self.directory.own_stat()
    }

    /// Returns the names in it, in no order, without `.` and `..`.
    pub fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(self.directory.fd()?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns what has a name in it, and what that is; a link stands for itself.
    pub fn child(&self, name: &[u8]) -> (SourcePath, io::Result<Option<Stat>>) {
        let below = Some((Arc::clone(&self.root), self.path.join(OsStr::from_bytes(name))));
        let path = SourcePath { path: self.directory.join(name), below, follow: false };
        (path, self.directory.stat(name))
    }

    /// Returns its own access list, if it has one.
    pub fn own_list(&self) -> Option<Acl> {
        Acl::of(&*self.directory.fd().ok()?)
    }

    /// Returns the access list of what has a name in it.
    pub fn list(&self, name: &[u8]) -> Option<Acl> {
        self.directory.list(name)
    }
}

/// How often it is looked whether a lease has ended.
const LEASE_CHECK: Duration = Duration::from_millis(20);

/// How long a lease may last once somebody wants the file, with time to spare (proc(5)).
fn longest_lease() -> Duration {
    const DEFAULT: u64 = 45;
    let told = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    let seconds = told.ok().and_then(|told| told.trim().parse().ok()).unwrap_or(DEFAULT);
    Duration::from_secs(seconds) + Duration::from_secs(5)
}

/// Opens the directory that a path below another one ends in; returns the last name, too.
fn above<'a>(root: &Directory, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = match parent {
        Some(parent) => open_beneath(root, parent, OPEN_DIRECTORY)?,
        None => root.fd()?.try_clone()?,
    };
    Ok((directory, name))
}

/// Opens a path below a directory, through no link.
fn open_beneath(root: &Directory, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    #[cfg(linux)]
    {
        use rustix::fs::ResolveFlags;

        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match fs::openat2(descriptor(root)?, path, flags, Mode::empty(), resolve) {
            // Linux before 5.6, or a sandbox that does not know the call; or something is being renamed, or the path is long.
            Err(
                Errno::NOSYS | Errno::PERM | Errno::AGAIN | Errno::INVAL | Errno::TOOBIG | Errno::NAMETOOLONG,
            ) => {}
            opened => return opened,
        }
    }
    walk(root, path, flags)
}

fn descriptor(root: &Directory) -> rustix::io::Result<Arc<OwnedFd>> {
    root.fd().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))
}

/// As [`open_beneath`], one name after the other.
fn walk(root: &Directory, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut directory: Option<OwnedFd> = None;
    let root = descriptor(root)?;
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { OPEN_DIRECTORY } else { flags };
        let from = directory.as_ref().unwrap_or(&root);
        directory = Some(fs::openat(from, name, flags | OFlags::NOFOLLOW, Mode::empty())?);
    }
    directory.ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[tokio::test]
    async fn nothing_is_found_through_a_link_below_what_was_named() {
        let [outside, inside] = [0; 2].map(|_| tempfile::tempdir().unwrap());
        std::fs::create_dir(inside.path().join("directory")).unwrap();
        std::fs::create_dir(inside.path().join("directory/deep")).unwrap();
        for place in [outside.path(), &inside.path().join("directory"), &inside.path().join("directory/deep")]
        {
            std::fs::write(place.join("file"), place.as_os_str().as_bytes()).unwrap();
            symlink("target", place.join("link")).unwrap();
        }
        let number = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let named = SourcePath::named(inside.path().to_owned(), true);
        let root = named.enter(number(inside.path())).unwrap();
        let (directory, _) = root.child(b"directory");
        let entered = directory.enter(number(&directory)).unwrap();
        let (deep, _) = entered.child(b"deep");
        let entered_deep = deep.enter(number(&deep)).unwrap();
        let [(file, _), (link, _)] = [&b"file"[..], b"link"].map(|name| entered.child(name));
        let [(deep_file, _), (deep_link, _)] = [&b"file"[..], b"link"].map(|name| entered_deep.child(name));
        for file in [&file, &deep_file] {
            file.open(false).await.unwrap();
            file.stat(false).unwrap();
        }
        for link in [&link, &deep_link] {
            assert_eq!(link.read_link().unwrap(), b"target");
            assert!(link.open(true).await.is_err(), "a link is not followed");
        }
        std::fs::rename(&*directory, inside.path().join("aside")).unwrap();
        symlink(outside.path(), &*directory).unwrap();
        for swapped in [&file, &deep_file] {
            assert!(swapped.open(true).await.is_err() && swapped.open_stream(true).is_err());
            assert!(swapped.stat(true).is_err() && swapped.read_link().is_err());
            let (root, path) = swapped.below.as_ref().unwrap();
            assert!(walk(root, path, OFlags::RDONLY).is_err());
        }
        assert!(directory.enter(number(outside.path())).is_err());
        assert!(deep.enter(number(outside.path())).is_err());
        // A directory that was entered stays what it was.
        let (_, found) = entered.child(b"file");
        assert!(found.unwrap().is_some());
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_entered() {
        let place = tempfile::tempdir().unwrap();
        let number = std::fs::metadata(place.path()).unwrap().ino();
        let link = place.path().join("link");
        symlink(place.path(), &link).unwrap();
        for (path, follow, is_entered) in [
            (place.path(), true, true),
            (place.path(), false, true),
            (&link, true, true),
            (&link, false, false),
        ] {
            let path = SourcePath::named(path.to_owned(), follow);
            assert_eq!(path.enter(number).is_ok(), is_entered, "{path:?}");
            assert!(path.enter(number + 1).is_err());
        }
    }
}
