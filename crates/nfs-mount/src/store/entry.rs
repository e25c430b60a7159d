//! The two files of an object: its record and, of a version of a file, its data.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use nfs_files::{
    journal::{checksum, take, unseal},
    local::{make_private, open_regular},
};
use rustix::fs::OFlags;

/// What a record begins with; the last byte is the version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"nfswrec\x01";

/// Names an object's files: of the hash of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name([u8; 16]);

/// What a grain must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    length: u32,
    hash: [u8; 16],
}

/// The record of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies below the root, if that was known.
    pub path: Option<Vec<u8>>,
    /// It stays when room is made.
    pub pinned: bool,
    pub(crate) body: Bytes,
    pub(super) sums: BTreeMap<u64, Sum>,
}

impl Name {
    pub(super) fn of(key: &[u8]) -> Self {
        let (first, _) =
            blake3::hash(key).as_bytes().split_first_chunk().map_or(([0; 16], &[][..]), |it| (*it.0, it.1));
        Self(first)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut name = [0; 16];
        hex::decode_to_slice(text, &mut name).ok().map(|()| Self(name))
    }

    fn path(self, objects: &Path, suffix: &str) -> PathBuf {
        let hex = hex::encode(self.0);
        objects.join(&hex[..2]).join(hex + suffix)
    }

    pub(super) fn record(self, objects: &Path) -> PathBuf {
        self.path(objects, ".rec")
    }

    pub(super) fn data(self, objects: &Path) -> PathBuf {
        self.path(objects, ".data")
    }

    /// Removes both files.
    pub(super) fn delete(self, objects: &Path) {
        let _ = fs::remove_file(self.record(objects));
        let _ = fs::remove_file(self.data(objects));
    }
}

impl Sum {
    pub(super) fn of(data: &[u8]) -> Self {
        let hash = blake3::hash(data);
        Self { length: data.len() as u32, hash: hash.as_bytes()[..16].try_into().expect("16 of 32 bytes") }
    }

    pub(super) const fn length(&self) -> usize {
        self.length as usize
    }
}

impl Entry {
    /// Reads a record; `None` where there is none that is whole.
    pub(super) fn read(objects: &Path, name: Name) -> Option<Self> {
        let mut sealed = Vec::new();
        open_to_read(&name.record(objects)).ok()?.read_to_end(&mut sealed).ok()?;
        Self::decode(sealed.into())
    }

    /// Puts the record in the place of an older one.
    pub(super) fn write(&self, objects: &Path, name: Name) -> io::Result<()> {
        let [head, tail] = self.around();
        replace(&name.record(objects), &[&head, &self.body, &tail])
    }

    /// Bytes of data that belong to it.
    pub fn bytes(&self) -> u64 {
        self.sums.values().map(|sum| u64::from(sum.length)).sum()
    }

    /// Whether it lies at or below a path.
    pub fn is_below(&self, path: &[u8]) -> bool {
        self.path.as_ref().is_some_and(|own| is_below(own, path)) || path.is_empty()
    }

    /// Whether it stays when room is made: it says so itself, or one of the paths that the user wants kept does.
    pub fn is_pinned(&self, pins: &[Vec<u8>]) -> bool {
        self.pinned || self.path.as_ref().is_some_and(|own| pins.iter().any(|pin| is_below(own, pin)))
    }

    /// Reads the data and returns how many grains are not what they were.
    pub(super) fn damaged(&self, objects: &Path, name: Name) -> u64 {
        let file = open_to_read(&name.data(objects));
        let is_damaged = |&(&grain, sum): &(&u64, &Sum)| {
            let mut data = vec![0; sum.length()];
            let read = file.as_ref().is_ok_and(|file| file.read_exact_at(&mut data, offset(grain)).is_ok());
            !read || Sum::of(&data) != *sum
        };
        self.sums.iter().filter(is_damaged).count() as u64
    }

    /// What stands before the body and after it in the file of a record, sealed as [`seal`](nfs_files::journal::seal) does. The body of a
    /// large directory is not copied.
    pub(crate) fn around(&self) -> [Vec<u8>; 2] {
        let path = self.path.as_deref().unwrap_or_default();
        let mut head = MAGIC.to_vec();
        head.push(u8::from(self.pinned) | u8::from(self.path.is_some()) << 1);
        head.extend_from_slice(&(path.len() as u32).to_le_bytes());
        head.extend_from_slice(path);
        head.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        let mut tail = Vec::with_capacity(28 * self.sums.len() + 4);
        for (grain, sum) in &self.sums {
            tail.extend_from_slice(&grain.to_le_bytes());
            tail.extend_from_slice(&sum.length.to_le_bytes());
            tail.extend_from_slice(&sum.hash);
        }
        let end = checksum(&[&head, &self.body, &tail]);
        tail.extend_from_slice(&end);
        [head, tail]
    }

    pub(crate) fn decode(sealed: Bytes) -> Option<Self> {
        let mut rest = unseal(MAGIC, &sealed)?;
        let [flags] = take(&mut rest)?;
        let mut bytes = || {
            let length = u32::from_le_bytes(take(&mut rest)?) as usize;
            let (bytes, left) = rest.split_at_checked(length)?;
            rest = left;
            Some(bytes)
        };
        let (path, body) = (bytes()?.to_vec(), sealed.slice_ref(bytes()?));
        let mut sums = BTreeMap::new();
        while !rest.is_empty() {
            let grain = u64::from_le_bytes(take(&mut rest)?);
            let length = u32::from_le_bytes(take(&mut rest)?);
            if u64::from(length) > nfs_cache::GRAIN_BYTES || grain > u64::MAX / nfs_cache::GRAIN_BYTES {
                return None;
            }
            sums.insert(grain, Sum { length, hash: take(&mut rest)? });
        }
        Some(Self { path: (flags & 2 != 0).then_some(path), pinned: flags & 1 != 0, body, sums })
    }
}

/// Where a grain lies in the data.
pub(super) const fn offset(grain: u64) -> u64 {
    grain * nfs_cache::GRAIN_BYTES
}

/// Gives a file contents at once: whatever happens, it has the old ones or the new ones.
pub(super) fn replace(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let new = PathBuf::from([path.as_os_str(), ".new".as_ref()].into_iter().collect::<OsString>());
    let write = || {
        let mut file = in_made(&new, || options().truncate(true).open(&new))?;
        pieces.iter().try_for_each(|piece| file.write_all(piece))?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| _ = fs::remove_file(&new))
}

/// Opens a file for reading and writing, for the user alone, and makes it and the directory that it lies in.
pub(super) fn open(path: &Path) -> io::Result<File> {
    in_made(path, || options().open(path))
}

/// Renames a file, into a directory that is made if it is missing.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    in_made(to, || fs::rename(from, to))
}

/// Opens a file for reading alone.
///
/// # Errors
/// `InvalidInput` where it is no file; what opening it fails of.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    open_regular(rustix::fs::CWD, path.as_os_str().as_bytes(), OFlags::NOFOLLOW)
}

/// Does something with a path, whose directory is made if it is missing.
fn in_made<T>(path: &Path, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    act().or_else(|error| match path.parent() {
        Some(above) if error.kind() == io::ErrorKind::NotFound => make_private(above).and_then(|()| act()),
        _ => Err(error),
    })
}

fn options() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32);
    options
}

/// A file in the directory of objects.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: Name,
    pub(super) is_record: bool,
    pub(super) metadata: fs::Metadata,
}

/// Looks through the files of all objects.
pub(super) fn listed(objects: &Path) -> impl Iterator<Item = Listed> + use<> {
    let directories = fs::read_dir(objects).into_iter().flatten().flatten();
    let files =
        directories.flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten().flatten());
    files.filter_map(|file| {
        let path = file.file_name();
        let (name, suffix) = path.to_str()?.split_once('.')?;
        let name = Name::parse(name)?;
        let is_record = match suffix {
            "rec" => true,
            "data" => false,
            _ => return None,
        };
        Some(Listed { name, is_record, metadata: file.metadata().ok()? })
    })
}

/// Returns the records of all versions of files of which data is held, and when each was used last.
pub(super) fn files(objects: &Path) -> impl Iterator<Item = (Name, Entry, SystemTime)> + use<> {
    let objects = objects.to_owned();
    listed(&objects).filter(|file| file.is_record).filter_map(move |file| {
        let entry = Entry::read(&objects, file.name).filter(|entry| !entry.sums.is_empty())?;
        Some((file.name, entry, file.metadata.modified().ok()?))
    })
}

/// Whether a path is a directory, or lies below it.
pub fn is_below(path: &[u8], directory: &[u8]) -> bool {
    directory.is_empty()
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_files::journal::seal;

    fn entry() -> Entry {
        let sums = [0, 3, 4].map(|grain| (grain, Sum::of(&vec![grain as u8; 65_536 - grain as usize])));
        Entry {
            path: Some(b"a/b".to_vec()),
            pinned: true,
            body: Bytes::from_static(b"body"),
            sums: sums.into(),
        }
    }

    #[test]
    fn a_record_survives_its_file_and_damage_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let name = Name::of(b"key");
        for entry in [entry(), Entry::default()] {
            entry.write(place.path(), name).unwrap();
            assert_eq!(Entry::read(place.path(), name).as_ref(), Some(&entry));
        }
        let entry = entry();
        let [head, tail] = entry.around();
        let sealed = [&head, &entry.body[..], &tail].concat();
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 0x10;
            assert_eq!(Entry::decode(damaged.into()), None, "byte {at}");
            assert_eq!(Entry::decode(sealed[..at].to_vec().into()), None, "cut at {at}");
        }
        assert_eq!(Entry::read(place.path(), Name::of(b"other")), None);
        let hex = name.record(place.path()).file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(Name::parse(&hex), Some(name));
        assert_eq!(Name::parse(&hex[1..]), None);
    }

    #[test]
    fn a_hostile_record_has_no_grain_beyond_what_files_can_have() {
        for grain in [(u64::MAX, 1), (1, u32::MAX)] {
            let contents = [&[0; 9][..], &grain.0.to_le_bytes(), &grain.1.to_le_bytes(), &[0; 16]].concat();
            assert_eq!(Entry::decode(seal(MAGIC, &contents).into()), None);
        }
    }
}
