//! What the host says about its files, in the words of NFS.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, sattr3, set_atime, set_mtime, specdata3},
};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps,
        UTIME_NOW, UTIME_OMIT,
    },
    io::Errno,
};

use crate::reply_cache::fnv1a;

/// What makes a file the same file: a number used again belongs to a file with another time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    born: Option<(i64, u32)>,
}

impl Identity {
    /// Returns a number that is the same for the same file whenever it is asked for.
    pub(super) fn number(self) -> u64 {
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
        fnv1a(&bytes)
    }

    /// Whether nothing else ever has this identity: the host tells when files were made.
    pub(super) const fn is_unique(self) -> bool {
        self.born.is_some()
    }

    /// Whether two files are on one file system.
    pub(super) fn is_beside(self, other: Self) -> bool {
        self.device == other.device
    }
}

/// A file as the host describes it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) identity: Identity,
    pub(super) attributes: fattr3,
}

/// Looks at the entry of a directory, without following it if it is a symbolic link.
pub(super) fn look_at(directory: impl AsFd, name: &[u8]) -> Result<Found, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(directory, name, flags).map(|statx| found(&statx))
}

/// Looks at an open file, whether it still has a name or not.
pub(super) fn look(file: impl AsFd) -> Result<Found, Errno> {
    statx(file, b"", AtFlags::EMPTY_PATH).map(|statx| found(&statx))
}

fn statx(file: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(file, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// Opens the entry of a directory as a mere reference, without following it if it is a symbolic link.
///
/// The name has no slash and is not `..`, so that the result lies in the directory whatever the host does meanwhile.
pub(super) fn open_entry(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Opens a directory, of which there is a reference, for listing and flushing.
pub(super) fn reopen_directory(reference: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(reference, ".", flags, Mode::empty())
}

/// Changes the mode of a file of which there is a reference; it must not be a symbolic link.
///
/// The detour over `/proc` reaches exactly this file: by name, something else could lie there by now.
pub(super) fn set_mode(reference: impl AsFd, mode: Mode) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", reference.as_fd().as_raw_fd());
    rustix::fs::chmodat(CWD, path, mode, AtFlags::empty())
}

/// Changes the times of a file, not following it if it is a symbolic link; the root has no place.
pub(super) fn set_times(
    reference: &OwnedFd,
    place: Option<&(OwnedFd, Vec<u8>)>,
    changes: &sattr3,
) -> Result<(), Errno> {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let client = |time: nfstime3| Timespec { tv_sec: time.seconds.into(), tv_nsec: time.nseconds.into() };
    let times = Timestamps {
        last_access: match changes.atime {
            set_atime::DONT_CHANGE => omit,
            set_atime::SET_TO_SERVER_TIME => now,
            set_atime::SET_TO_CLIENT_TIME(time) => client(time),
        },
        last_modification: match changes.mtime {
            set_mtime::DONT_CHANGE => omit,
            set_mtime::SET_TO_SERVER_TIME => now,
            set_mtime::SET_TO_CLIENT_TIME(time) => client(time),
        },
    };
    if times.last_access.tv_nsec == UTIME_OMIT && times.last_modification.tv_nsec == UTIME_OMIT {
        return Ok(());
    }
    match place {
        Some((directory, name)) => {
            rustix::fs::utimensat(directory, &name[..], &times, AtFlags::SYMLINK_NOFOLLOW)
        }
        None => rustix::fs::futimens(reference, &times),
    }
}

/// The times in which the verifier of an EXCLUSIVE create is kept until the client sets them, as Linux does.
pub(super) fn verifier_times(verifier: [u8; 8]) -> (u32, u32) {
    // 31 bits each: file systems with signed times keep them.
    let number = u64::from_be_bytes(verifier);
    ((number >> 32) as u32 & 0x7fff_ffff, number as u32 & 0x7fff_ffff)
}

fn found(statx: &Statx) -> Found {
    let mode = u32::from(statx.stx_mode);
    let type_ = match FileType::from_raw_mode(mode) {
        FileType::Directory => ftype3::NF3DIR,
        FileType::Symlink => ftype3::NF3LNK,
        FileType::Fifo => ftype3::NF3FIFO,
        FileType::Socket => ftype3::NF3SOCK,
        FileType::CharacterDevice => ftype3::NF3CHR,
        FileType::BlockDevice => ftype3::NF3BLK,
        FileType::RegularFile | FileType::Unknown => ftype3::NF3REG,
    };
    let has_birth = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec);
    Found {
        identity: Identity {
            device: (statx.stx_dev_major, statx.stx_dev_minor),
            inode: statx.stx_ino,
            born: has_birth.then_some(born),
        },
        attributes: fattr3 {
            type_,
            mode: mode & 0o7777,
            nlink: statx.stx_nlink,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            size: statx.stx_size,
            used: statx.stx_blocks.saturating_mul(512),
            rdev: specdata3 { specdata1: statx.stx_rdev_major, specdata2: statx.stx_rdev_minor },
            fsid: u64::from(statx.stx_dev_major) << 32 | u64::from(statx.stx_dev_minor),
            fileid: statx.stx_ino,
            atime: time(statx.stx_atime),
            mtime: time(statx.stx_mtime),
            ctime: time(statx.stx_ctime),
        },
    }
}

/// Times before 1970 and after 2106 do not exist in NFSv3; the nearest one that does is shown.
fn time(time: StatxTimestamp) -> nfstime3 {
    match u32::try_from(time.tv_sec) {
        Ok(seconds) => nfstime3 { seconds, nseconds: time.tv_nsec },
        Err(_) if time.tv_sec < 0 => nfstime3::default(),
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

/// Opens a directory of the host by any path.
pub(super) fn open_root(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
