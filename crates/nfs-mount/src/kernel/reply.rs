//! What may be said to the kernel.

use std::{io::IoSlice, num::NonZeroU64, os::fd::OwnedFd, sync::Arc, time::Duration};

use bytes::Bytes;
use nfs_cache::NodeId;
use nfs_wireless_client::{FileType, Metadata};
use polyfuse_kernel as kernel;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::notify::{Forgotten, forget};

/// How long the kernel may use names and attributes without asking: an upcall costs microseconds, and the cache behind it knows
/// what is still true.
pub(crate) const LIFETIME: Duration = Duration::from_secs(1);

/// Preferred size of reads: what the kernel asks for at once.
const READ_BYTES: u32 = 128 << 10;

/// Longest name that a program can use (NAME_MAX).
const MAX_NAME: usize = 255;

/// Longest target of a link that the kernel takes (PATH_MAX, with its zero byte).
const MAX_TARGET: usize = 4095;

/// Largest size of a file that the kernel takes.
const MAX_SIZE: u64 = i64::MAX as u64;

/// The number of a file whose number nobody told, in listings; it is libfuse's. Programs leave out entries with the number 0.
pub(crate) const UNKNOWN_NUMBER: u64 = 0xffff_ffff;

/// The number of a file that programs see (`st_ino`, `d_ino`): the server's, so that it is the same in every mount and for every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileNumber(NonZeroU64);

impl FileNumber {
    /// Returns the number of a file in a view whose root is in file system `root`: where another file system is mounted on the server,
    /// its numbers are mixed with which it is, for they are those of other files here.
    pub(crate) fn new(root: u64, file_system: u64, file: u64) -> Self {
        let number = if file_system == root { file } else { mix(mix(file_system).wrapping_add(file)) };
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX))
    }

    const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Mixes a number so that those near to each other are far apart; no two come to the same (SplitMix64, Steele et al. 2014).
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Attributes that the server has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) number: FileNumber,
    pub(crate) metadata: Metadata,
}

impl Attributes {
    fn encode(&self) -> kernel::fuse_attr {
        let it = &self.metadata;
        let nanoseconds = |time: nfs_wireless_client::Time| time.nanoseconds.min(999_999_999);
        kernel::fuse_attr {
            ino: self.number.get(),
            size: it.size.min(MAX_SIZE),
            blocks: it.used.div_ceil(512),
            atime: it.atime.seconds.into(),
            mtime: it.mtime.seconds.into(),
            ctime: it.ctime.seconds.into(),
            atimensec: nanoseconds(it.atime),
            mtimensec: nanoseconds(it.mtime),
            ctimensec: nanoseconds(it.ctime),
            mode: type_bits(it.file_type) | it.mode & 0o7777,
            nlink: it.links,
            uid: it.uid,
            gid: it.gid,
            // The kernel takes 32 bits: 12 for the major number, 20 for the minor one.
            rdev: rustix::fs::makedev(it.device.0, it.device.1) as u32,
            blksize: READ_BYTES,
            padding: 0,
        }
    }
}

/// A kind of file, as the bits of its mode.
const fn type_bits(file_type: FileType) -> u32 {
    use rustix::fs::FileType as Kind;
    let kind = match file_type {
        FileType::Regular => Kind::RegularFile,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::CharacterDevice => Kind::CharacterDevice,
        FileType::Socket => Kind::Socket,
        FileType::Fifo => Kind::Fifo,
    };
    kind.as_raw_mode()
}

/// An object of which the kernel may make a node: it has a number, and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    node: NonZeroU64,
    attributes: Attributes,
}

impl Complete {
    /// Returns what the kernel may know of a node; `None` for the node 0, which is none.
    pub(crate) fn new(node: NodeId, attributes: Attributes) -> Option<Self> {
        Some(Self { node: NonZeroU64::new(node.number())?, attributes })
    }

    fn encode(&self) -> kernel::fuse_entry_out {
        kernel::fuse_entry_out {
            nodeid: self.node.get(),
            generation: 0,
            entry_valid: LIFETIME.as_secs(),
            attr_valid: LIFETIME.as_secs(),
            entry_valid_nsec: LIFETIME.subsec_nanos(),
            attr_valid_nsec: LIFETIME.subsec_nanos(),
            attr: self.attributes.encode(),
        }
    }
}

/// What is known of a name in a directory. There is nothing between the two: the kernel looks a bare name up when somebody needs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Complete(Complete),
    /// A name, with what the server told of its number and type.
    Bare {
        number: Option<FileNumber>,
        file_type: Option<FileType>,
    },
}

/// A name that programs can use. What a server tells need not be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a>(&'a [u8]);

/// The two names that every directory has are ours, not the server's.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// Whether the server may call a file so.
pub(crate) fn is_name(name: &[u8]) -> bool {
    Name::new(name).is_some() && !DOTS.contains(&name)
}

impl<'a> Name<'a> {
    pub(crate) const DOT: Name<'static> = Name(b".");
    pub(crate) const DOT_DOT: Name<'static> = Name(b"..");

    pub(crate) fn new(name: &'a [u8]) -> Option<Self> {
        let fits = !name.is_empty() && name.len() <= MAX_NAME;
        (fits && !name.iter().any(|&byte| byte == b'/' || byte == 0)).then_some(Self(name))
    }
}

/// A part of a directory, on its way to the kernel.
#[derive(Debug)]
pub(crate) struct Listing {
    with_attributes: bool,
    room: usize,
    bytes: Vec<u8>,
}

impl Listing {
    /// Begins a part of at most so many bytes, as the kernel asks for it.
    pub(crate) const fn new(with_attributes: bool, room: u32) -> Self {
        Self { with_attributes, room: room as usize, bytes: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the kernel makes nodes of complete entries.
    pub(crate) const fn with_attributes(&self) -> bool {
        self.with_attributes
    }

    /// Adds an entry, after which a reader goes on at `next`. Returns whether it has found room.
    pub(crate) fn add(&mut self, next: u64, name: Name<'_>, entry: &Entry) -> bool {
        let (number, file_type) = match *entry {
            Entry::Complete(Complete { attributes, .. }) => {
                (Some(attributes.number), Some(attributes.metadata.file_type))
            }
            Entry::Bare { number, file_type } => (number, file_type),
        };
        let head = kernel::fuse_dirent {
            ino: number.map_or(UNKNOWN_NUMBER, FileNumber::get),
            off: next,
            namelen: name.0.len() as u32,
            // The type is in the highest bits of a mode; 0 is DT_UNKNOWN.
            typ: file_type.map_or(0, type_bits) >> 12,
            name: [],
        };
        // Without a node the kernel takes no more than name, number and type.
        let node = match entry {
            Entry::Complete(complete) => complete.encode(),
            Entry::Bare { .. } => kernel::fuse_entry_out::default(),
        };
        let node = if self.with_attributes { node.as_bytes() } else { &[] };
        let length = (node.len() + head.as_bytes().len() + name.0.len()).next_multiple_of(8);
        let end = self.bytes.len() + length;
        if end > self.room {
            return false;
        }
        for part in [node, head.as_bytes(), name.0] {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.resize(end, 0);
        true
    }
}

/// The room on the server's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) total_files: u64,
    pub(crate) free_files: u64,
}

impl From<[u64; 5]> for Space {
    fn from([total_bytes, free_bytes, available_bytes, total_files, free_files]: [u64; 5]) -> Self {
        Self { total_bytes, free_bytes, available_bytes, total_files, free_files }
    }
}

impl From<Space> for [u64; 5] {
    fn from(it: Space) -> Self {
        [it.total_bytes, it.free_bytes, it.available_bytes, it.total_files, it.free_files]
    }
}

/// The right to answer a request, once. One that is dropped answers EIO: no program waits for ever.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Where it goes; `None` once it is gone.
    device: Option<Arc<OwnedFd>>,
    unique: u64,
}

impl Answer {
    pub(super) const fn new(device: Arc<OwnedFd>, unique: u64) -> Self {
        Self { device: Some(device), unique }
    }

    /// Answers with an error.
    pub(crate) fn fail(self, error: Errno) {
        self.send(Some(error), &[]);
    }

    /// Says that it is done.
    pub(crate) fn done(self) {
        self.send(None, &[]);
    }

    /// Records that the request wants no answer.
    pub(crate) fn none(mut self) {
        self.device = None;
    }

    /// Answers a lookup. Returns whether the kernel has taken the node.
    pub(crate) fn entry(self, entry: &Complete) -> bool {
        self.send(None, &[entry.encode().as_bytes()])
    }

    pub(crate) fn attributes(self, attributes: &Attributes) {
        let out = kernel::fuse_attr_out {
            attr_valid: LIFETIME.as_secs(),
            attr_valid_nsec: LIFETIME.subsec_nanos(),
            dummy: 0,
            attr: attributes.encode(),
        };
        self.send(None, &[out.as_bytes()]);
    }

    /// Makes the kernel forget the attributes of the file that is asked about, before the answer.
    pub(crate) fn forget_attributes(&self, node: NodeId) {
        if let Some(device) = &self.device {
            forget(&**device, node, Forgotten::Attributes);
        }
    }

    /// Says that a file or directory is open, and whether the pages that the kernel has of it are still its own. Returns whether the
    /// kernel will close it.
    pub(crate) fn opened(self, handle: u64, keep_cache: bool) -> bool {
        let open_flags = if keep_cache { kernel::FOPEN_KEEP_CACHE } else { 0 };
        let out = kernel::fuse_open_out { fh: handle, open_flags, padding: 0 };
        self.send(None, &[out.as_bytes()])
    }

    pub(crate) fn data(self, pieces: &[Bytes]) {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        self.send(None, &pieces);
    }

    /// Says where a link leads to, if that is something that programs can be told.
    pub(crate) fn target(self, target: &[u8]) {
        if target.len() > MAX_TARGET {
            self.fail(Errno::NAMETOOLONG);
        } else if target.is_empty() || target.contains(&0) {
            self.fail(Errno::IO);
        } else {
            self.send(None, &[target]);
        }
    }

    pub(crate) fn listing(self, listing: &Listing) {
        self.send(None, &[&listing.bytes]);
    }

    pub(crate) fn space(self, space: &Space) {
        const BLOCK: u32 = 4096;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        let out = kernel::fuse_statfs_out {
            st: kernel::fuse_kstatfs {
                blocks: blocks(space.total_bytes),
                bfree: blocks(space.free_bytes),
                bavail: blocks(space.available_bytes),
                files: space.total_files,
                ffree: space.free_files,
                bsize: BLOCK,
                namelen: MAX_NAME as u32,
                frsize: BLOCK,
                ..Default::default()
            },
        };
        self.send(None, &[out.as_bytes()]);
    }

    /// Answers with an extended attribute, or all names of them, for somebody who has so much room; with its length where that is 0.
    pub(crate) fn xattr(self, value: &[u8], room: u32) {
        let size = value.len() as u32;
        if room == 0 {
            let out = kernel::fuse_getxattr_out { size, padding: 0 };
            self.send(None, &[out.as_bytes()]);
        } else if size > room {
            self.fail(Errno::RANGE);
        } else {
            self.send(None, &[value]);
        }
    }

    pub(super) fn init(self, out: &kernel::fuse_init_out) -> bool {
        self.send(None, &[out.as_bytes()])
    }

    fn send(mut self, error: Option<Errno>, parts: &[&[u8]]) -> bool {
        self.device.take().is_some_and(|device| write(&device, self.unique, error, parts))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            write(&device, self.unique, Some(Errno::IO), &[]);
        }
    }
}

/// Writes an answer. Returns whether the kernel has taken it: it does not know those any more whose connection was ended.
fn write(device: &OwnedFd, unique: u64, error: Option<Errno>, parts: &[&[u8]]) -> bool {
    let length = size_of::<kernel::fuse_out_header>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = kernel::fuse_out_header {
        len: length as u32,
        error: error.map_or(0, |error| -error.raw_os_error()),
        unique,
    };
    let slices: Vec<IoSlice<'_>> =
        [header.as_bytes()].iter().chain(parts).map(|part| IoSlice::new(part)).collect();
    match rustix::io::writev(device, &slices) {
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(%error, "the kernel does not take an answer");
            false
        }
    }
}

#[cfg(test)]
mod tests;
