//! What the host says about its files, in the words of NFS.

#[cfg(all(target_os = "linux", not(portable_only)))]
mod linux;
#[cfg(any(not(target_os = "linux"), portable_only))]
mod portable;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, sattr3, set_atime, set_mtime, specdata3},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT},
    io::Errno,
};

#[cfg(all(target_os = "linux", not(portable_only)))]
pub(super) use self::linux::{Reference, look, look_at};
#[cfg(any(not(target_os = "linux"), portable_only))]
pub(super) use self::portable::{Reference, look, look_at};
use crate::reply_cache::fnv1a;

/// What makes a file the same file: a number used again belongs to a file with another time of birth. What is bound to a directory
/// ("mount --bind") shows files of another place, or of its own file system once more: they are other files there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    born: Option<(i64, u32)>,
    /// The mount that it was seen on; 0 where the host does not tell.
    mount: u64,
}

impl Identity {
    /// Returns a number that is the same for the same file whenever it is asked for, in an export with this root; on a mount within that
    /// as long as it is mounted.
    pub(super) fn number(self, root: Self) -> u64 {
        let (seconds, nanoseconds) = self.born.unwrap_or_default();
        let mut bytes = [0; 28];
        let parts = [
            &self.device.0.to_be_bytes()[..],
            &self.device.1.to_be_bytes(),
            &self.inode.to_be_bytes(),
            &seconds.to_be_bytes(),
            &nanoseconds.to_be_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        fnv1a(&bytes) ^ self.mark(root)
    }

    /// Returns the number of the file system for clients, to which each mount within the export is another one. That of the root's mount
    /// is the host's.
    pub(super) fn file_system(self, root: Self) -> u64 {
        (u64::from(self.device.0) << 32 | u64::from(self.device.1)) ^ self.mark(root)
    }

    /// Returns what tells a mount within the export from that of the root.
    fn mark(self, root: Self) -> u64 {
        if self.mount == root.mount { 0 } else { fnv1a(&self.mount.to_be_bytes()) }
    }

    /// Whether nothing else ever has this identity: the host tells when files were made.
    pub(super) const fn is_unique(self) -> bool {
        self.born.is_some()
    }

    /// Whether two files are on one mount, as far as the host tells mounts.
    pub(super) fn is_on_mount_of(self, other: Self) -> bool {
        (self.device, self.mount) == (other.device, other.mount)
    }
}

/// A file as the host describes it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) identity: Identity,
    /// Without the number of the file system ([`Found::shown`]).
    pub(super) attributes: fattr3,
}

impl Found {
    /// Returns the attributes for clients of an export with this root.
    pub(super) fn shown(self, root: Identity) -> fattr3 {
        fattr3 { fsid: self.identity.file_system(root), ..self.attributes }
    }
}

impl Reference {
    /// Changes the times of a file, not following it if it is a symbolic link; the root has no place.
    pub(super) fn set_times(&self, place: Option<&(Self, Vec<u8>)>, changes: &sattr3) -> Result<(), Errno> {
        let Some(times) = times(changes) else { return Ok(()) };
        match place {
            Some((directory, name)) => {
                let directory = directory.directory()?;
                rustix::fs::utimensat(directory, &name[..], &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            None => rustix::fs::futimens(self.directory()?, &times),
        }
    }
}

/// Returns the times that a client asks for, unless it asks for none.
fn times(changes: &sattr3) -> Option<Timestamps> {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let client = |time: nfstime3| Timespec { tv_sec: time.seconds.into(), tv_nsec: time.nseconds.into() };
    let last_access = match changes.atime {
        set_atime::DONT_CHANGE => omit,
        set_atime::SET_TO_SERVER_TIME => now,
        set_atime::SET_TO_CLIENT_TIME(time) => client(time),
    };
    let last_modification = match changes.mtime {
        set_mtime::DONT_CHANGE => omit,
        set_mtime::SET_TO_SERVER_TIME => now,
        set_mtime::SET_TO_CLIENT_TIME(time) => client(time),
    };
    let changes = last_access.tv_nsec != UTIME_OMIT || last_modification.tv_nsec != UTIME_OMIT;
    changes.then_some(Timestamps { last_access, last_modification })
}

/// The times in which the verifier of an EXCLUSIVE create is kept until the client sets them, as Linux does.
pub(super) fn verifier_times(verifier: [u8; 8]) -> (u32, u32) {
    // 31 bits each: file systems with signed times keep them.
    let number = u64::from_be_bytes(verifier);
    ((number >> 32) as u32 & 0x7fff_ffff, number as u32 & 0x7fff_ffff)
}

/// What a host says of a file, in whatever call: the numbers of stat(2).
struct Stat {
    device: (u32, u32),
    special: (u32, u32),
    inode: u64,
    mode: u32,
    links: u32,
    owner: (u32, u32),
    size: u64,
    blocks: u64,
    accessed: (i64, u32),
    modified: (i64, u32),
    changed: (i64, u32),
    born: Option<(i64, u32)>,
    mount: u64,
}

impl From<Stat> for Found {
    fn from(stat: Stat) -> Self {
        let type_ = match FileType::from_raw_mode(stat.mode as _) {
            FileType::Directory => ftype3::NF3DIR,
            FileType::Symlink => ftype3::NF3LNK,
            FileType::Fifo => ftype3::NF3FIFO,
            FileType::Socket => ftype3::NF3SOCK,
            FileType::CharacterDevice => ftype3::NF3CHR,
            FileType::BlockDevice => ftype3::NF3BLK,
            FileType::RegularFile | FileType::Unknown => ftype3::NF3REG,
        };
        Self {
            identity: Identity { device: stat.device, inode: stat.inode, born: stat.born, mount: stat.mount },
            attributes: fattr3 {
                type_,
                mode: stat.mode & 0o7777,
                nlink: stat.links,
                uid: stat.owner.0,
                gid: stat.owner.1,
                size: stat.size,
                used: stat.blocks.saturating_mul(512),
                rdev: specdata3 { specdata1: stat.special.0, specdata2: stat.special.1 },
                fsid: 0,
                fileid: stat.inode,
                atime: time(stat.accessed),
                mtime: time(stat.modified),
                ctime: time(stat.changed),
            },
        }
    }
}

/// Times before 1970 and after 2106 do not exist in NFSv3; the nearest one that does is shown.
fn time((seconds, nseconds): (i64, u32)) -> nfstime3 {
    match u32::try_from(seconds) {
        Ok(seconds) => nfstime3 { seconds, nseconds },
        Err(_) if seconds < 0 => nfstime3::default(),
        Err(_) => nfstime3 { seconds: u32::MAX, nseconds: 0 },
    }
}

/// Says a host error as an NFS status (RFC 1813 §2.6).
pub(super) fn status(errno: Errno) -> Status {
    match errno {
        Errno::PERM => Status::PERM,
        Errno::NOENT => Status::NOENT,
        Errno::NXIO => Status::NXIO,
        Errno::ACCESS => Status::ACCES,
        Errno::EXIST => Status::EXIST,
        Errno::XDEV => Status::XDEV,
        Errno::NODEV => Status::NODEV,
        Errno::NOTDIR => Status::NOTDIR,
        Errno::ISDIR => Status::ISDIR,
        Errno::INVAL | Errno::LOOP => Status::INVAL,
        Errno::FBIG => Status::FBIG,
        Errno::NOSPC => Status::NOSPC,
        Errno::ROFS => Status::ROFS,
        Errno::MLINK => Status::MLINK,
        Errno::NAMETOOLONG => Status::NAMETOOLONG,
        Errno::NOTEMPTY => Status::NOTEMPTY,
        Errno::DQUOT => Status::DQUOT,
        Errno::STALE => Status::STALE,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NOTSUPP,
        // The host has run out of memory or file descriptors for the moment.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Status::JUKEBOX,
        _ => Status::IO,
    }
}

/// Runs a system call again while signals interrupt it.
pub(super) fn retry<T>(call: impl FnMut() -> Result<T, Errno>) -> Result<T, Status> {
    rustix::io::retry_on_intr(call).map_err(status)
}

/// Waits until a file or directory is on the disk.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn sync(file: impl AsFd) -> Result<(), Status> {
    retry(|| rustix::fs::fsync(&file))
}

/// Waits until the bytes of a file are on the disk, and what is needed to read them.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn sync_data(file: impl AsFd) -> Result<(), Status> {
    retry(|| rustix::fs::fdatasync(&file))
}

/// Waits until a file or directory is on the disk; `fsync` would leave it in the disk's cache (fsync(2) of macOS).
#[cfg(target_vendor = "apple")]
pub(super) fn sync(file: impl AsFd) -> Result<(), Status> {
    match retry(|| rustix::fs::fcntl_fullfsync(&file)) {
        // Directories and some file systems have only the weaker call.
        Err(Status::NOTSUPP | Status::INVAL) => retry(|| rustix::fs::fsync(&file)),
        done => done,
    }
}

/// As [`sync`]: the system has no call for the bytes alone.
#[cfg(target_vendor = "apple")]
pub(super) fn sync_data(file: impl AsFd) -> Result<(), Status> {
    sync(file)
}

/// Makes a named pipe or a socket.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn make_special(
    directory: &OwnedFd,
    name: &[u8],
    kind: FileType,
    mode: Mode,
) -> Result<(), Status> {
    retry(|| rustix::fs::mknodat(directory, name, kind, mode, 0))
}

/// Refuses: the system has no call that makes them inside an open directory.
#[cfg(target_vendor = "apple")]
pub(super) const fn make_special(_: &OwnedFd, _: &[u8], _: FileType, _: Mode) -> Result<(), Status> {
    Err(Status::NOTSUPP)
}

/// Opens a directory of the host by any path.
pub(super) fn open_root(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
