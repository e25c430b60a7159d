//! The cache directory, and what is held of each directory that was mounted.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use nfs_files::{
    journal::{seal, take, unseal},
    local::{Own, check_private, make_private, read_private},
    servers::path_cache::cache,
    url::{Remote, Target},
};
use nfs_wireless_client::FileHandle;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::entry::{Entry, files, open, open_to_read, replace};

/// Numbers that tell the room on a file system.
const SPACE_NUMBERS: usize = 5;

/// What the description of a root begins with; the last byte is the version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"nfswrot\x01";

/// Targets that are remembered for one root.
const MOST_TARGETS: usize = 16;

/// Bytes of a file about a root, at most: it has some targets, or the paths that the user wants kept.
const MAX_BYTES: u64 = 16 << 20;

/// The directory of all that is held.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

/// What is held of one directory of one server.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// The server's handle of it.
    pub(crate) handle: FileHandle,
    /// The server's numbers of the file system and of the directory.
    pub(crate) numbers: (u64, u64),
    /// How users have named it, the last one first.
    pub targets: Vec<Vec<u8>>,
    /// When it was mounted last.
    pub used: SystemTime,
    /// While this is there, no other process changes it.
    lock: Option<File>,
    /// Nothing in it is changed, as that is not possible or not allowed.
    pub(crate) is_read_only: bool,
}

impl Home {
    /// The one at a path, or else the user's: `$XDG_CACHE_HOME/nfsw/mount`.
    ///
    /// # Errors
    /// When nothing says where the user's is, or others may change what is in it.
    pub fn new(path: Option<&Path>) -> io::Result<Self> {
        let own = match path {
            // A mount in the background leaves the working directory.
            Some(path) => Own::within(std::path::absolute(path)?, ""),
            None => cache("mount")
                .ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is an absolute path"))?,
        };
        own.check()?;
        Ok(Self(own.path()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Checks that nobody else could have put anything into it, or may; there may be nothing.
    ///
    /// # Errors
    /// `PermissionDenied` where somebody else could; what looking at it fails of.
    pub fn check(&self) -> io::Result<()> {
        match check_private(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            checked => checked,
        }
    }

    /// Returns all roots, those mounted last first.
    pub fn roots(&self) -> Vec<Root> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut roots: Vec<Root> = entries.filter_map(|entry| Root::read(entry.path())).collect();
        roots.sort_by_key(|root| std::cmp::Reverse(root.used));
        roots
    }

    /// Drops all that is held of shares that were mounted last before then, unless it is in use.
    pub fn forget_shares(&self, before: SystemTime) {
        for mut root in self.roots() {
            let is_of_share = root.remotes().iter().any(Remote::is_in_share);
            if is_of_share && root.used <= before && root.lock().is_ok() {
                // What cannot be deleted goes another time.
                let _ = root.drop_below(b"");
            }
        }
    }

    /// Returns the root that a target led to last.
    ///
    /// # Errors
    /// Where none is found, and what could not be read may have been it.
    pub fn find(&self, target: &[u8]) -> Result<Option<Root>, (PathBuf, io::Error)> {
        let there = |path: PathBuf, result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err((path, error)),
            _ => Ok(()),
        };
        there(self.0.clone(), self.check())?;
        let found = self.roots().into_iter().find(|root| root.targets.iter().any(|it| it == target));
        if found.is_some() {
            return Ok(found);
        }
        there(self.0.clone(), fs::read_dir(&self.0).map(drop))?;
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let file = entry.path().join("root");
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                there(file.clone(), File::open(&file).map(drop))?;
            }
        }
        Ok(None)
    }

    /// Opens what is held of a root, for this process alone, and remembers how the user has named it.
    ///
    /// # Errors
    /// `WouldBlock` while another process has it; or what making it fails of.
    pub(crate) fn open(&self, handle: FileHandle, numbers: (u64, u64), target: &[u8]) -> io::Result<Root> {
        let key = [&numbers.0.to_le_bytes()[..], &numbers.1.to_le_bytes(), handle.as_bytes()].concat();
        let path = self.0.join(&blake3::hash(&key).to_hex()[..32]);
        make_private(&path.join("objects"))?;
        self.check()?;
        check_private(&path)?;
        let before = Root::read(path.clone()).map(|root| root.targets).unwrap_or_default();
        let mut root = Root {
            path,
            handle,
            numbers,
            targets: vec![target.to_vec()],
            used: SystemTime::now(),
            lock: None,
            is_read_only: false,
        };
        root.lock()?;
        root.targets.extend(before.into_iter().filter(|it| it != target));
        root.targets.truncate(MOST_TARGETS);
        root.write()?;
        Ok(root)
    }
}

impl Root {
    fn read(path: PathBuf) -> Option<Self> {
        let file = path.join("root");
        let sealed = read_private(&file, MAX_BYTES).ok()?;
        let used = fs::metadata(&file).ok()?.modified().ok()?;
        Self::decode(path, used, &sealed)
    }

    /// Reads the description of the root at a path; `None` unless all of it makes sense.
    pub(crate) fn decode(path: PathBuf, used: SystemTime, sealed: &[u8]) -> Option<Self> {
        let mut rest = unseal(MAGIC, sealed)?;
        let numbers = (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_le_bytes(take(&mut rest)?) as usize;
            let (piece, left) = rest.split_at_checked(length)?;
            pieces.push(piece.to_vec());
            rest = left;
        }
        let (handle, targets) = pieces.split_first()?;
        let handle = FileHandle::try_from(&handle[..]).ok()?;
        Some(Self { path, handle, numbers, targets: targets.to_vec(), used, lock: None, is_read_only: false })
    }

    fn write(&self) -> io::Result<()> {
        replace(&self.path.join("root"), &[&self.encode()])
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = [self.numbers.0.to_le_bytes(), self.numbers.1.to_le_bytes()].concat();
        for piece in std::iter::once(self.handle.as_bytes()).chain(self.targets.iter().map(|it| &it[..])) {
            out.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            out.extend_from_slice(piece);
        }
        seal(MAGIC, &out)
    }

    /// Keeps other processes from changing it.
    ///
    /// # Errors
    /// `WouldBlock` while another process has it.
    pub fn lock(&mut self) -> io::Result<()> {
        let file = open(&self.path.join("lock"))?;
        // Some file systems have no locks: that is no reason to hold nothing.
        if let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.lock = Some(file);
        Ok(())
    }

    /// Opens it for reads alone, beside others who only read. Where nobody can have made a lock, nobody changes it either.
    ///
    /// # Errors
    /// `WouldBlock` while another process may change it.
    pub(crate) fn open_read_only(mut self) -> io::Result<Self> {
        self.is_read_only = true;
        self.lock = open_to_read(&self.path.join("lock")).ok();
        match &self.lock {
            Some(file) if flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            _ => Ok(self),
        }
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the files of objects lie.
    pub(crate) fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    /// Returns the paths below it that the user wants kept.
    pub fn pins(&self) -> Vec<Vec<u8>> {
        pins(&self.path)
    }

    /// Changes them. A mount takes note within seconds.
    ///
    /// # Errors
    /// What writing fails of.
    pub fn set_pins(&self, pins: &[Vec<u8>]) -> io::Result<()> {
        let text: Vec<u8> = pins.iter().flat_map(|pin| [&pin[..], &[0]].concat()).collect();
        replace(&self.path.join("pins"), &[&seal(MAGIC, &text)])
    }

    /// Takes the mark of being pinned from what lies at or below a path.
    pub fn unmark(&self, path: &[u8]) {
        let objects = self.objects();
        for (name, mut entry, _) in files(&objects) {
            if entry.pinned && entry.is_below(path) {
                entry.pinned = false;
                let _ = entry.write(&objects, name);
            }
        }
    }

    /// Returns the records of all versions of files of which data is held, and when each was used last.
    pub fn entries(&self) -> impl Iterator<Item = (Entry, SystemTime)> {
        files(&self.objects()).map(|(_, entry, used)| (entry, used))
    }

    /// How users have named it, as far as that is understood.
    pub fn remotes(&self) -> Vec<Remote> {
        let parse = |target: &Vec<u8>| Target::parse_remote(OsStr::from_bytes(target)).ok();
        self.targets.iter().filter_map(parse).collect()
    }

    /// Whether another process has it.
    pub fn is_in_use(&self) -> bool {
        // Opening it would make it.
        let file = open_to_read(&self.path.join("lock"));
        file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    /// Drops the data of what lies at or below a path, and everything if that is the root; returns how many files and bytes.
    ///
    /// # Errors
    /// What deleting fails of.
    pub fn drop_below(&self, path: &[u8]) -> io::Result<(u64, u64)> {
        let objects = self.objects();
        let mut dropped = (0, 0);
        for (name, entry, _) in files(&objects) {
            if entry.is_below(path) {
                dropped = (dropped.0 + 1, dropped.1 + entry.bytes());
                name.delete(&objects);
            }
        }
        if path.is_empty() {
            fs::remove_dir_all(&self.path)?;
        }
        Ok(dropped)
    }

    /// Reads all data; returns each file with how many of its grains are damaged.
    pub fn verify(&self) -> impl Iterator<Item = (Entry, u64)> {
        let objects = self.objects();
        files(&objects).map(move |(name, entry, _)| {
            let damaged = entry.damaged(&objects, name);
            (entry, damaged)
        })
    }
}

/// Returns the paths that the user wants kept below the root that is held at `place`.
pub(crate) fn pins(place: &Path) -> Vec<Vec<u8>> {
    let sealed = read_private(&place.join("pins"), MAX_BYTES).unwrap_or_default();
    let text = unseal(MAGIC, &sealed).unwrap_or_default();
    let pins = text.split_inclusive(|&byte| byte == 0).filter_map(|pin| pin.strip_suffix(&[0]));
    pins.map(<[u8]>::to_vec).collect()
}

/// Returns what was kept of the room on the file system of the root that is held at `place`: see [`keep_space`].
pub(crate) fn space(place: &Path) -> Option<[u64; SPACE_NUMBERS]> {
    let sealed = read_private(&place.join("space"), MAX_BYTES).ok()?;
    let (numbers, rest) = unseal(MAGIC, &sealed)?.as_chunks();
    let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
    numbers.try_into().ok().filter(|_| rest.is_empty())
}

/// Keeps the room on the file system of a root: total, free and available bytes, total and free files.
///
/// # Errors
/// What writing fails of.
pub(crate) fn keep_space(place: &Path, numbers: [u64; SPACE_NUMBERS]) -> io::Result<()> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    replace(&place.join("space"), &[&seal(MAGIC, &bytes)])
}
