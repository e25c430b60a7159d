//! What the kernel is told of files, and of failures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use nfs_cache::{Failure, NodeId};
use nfs_wireless_client::{self as client, Metadata, Time};
use rustix::fs::makedev;

/// Preferred size of reads: what the kernel asks for at once.
const READ_BYTES: u32 = 128 << 10;

/// Returns the attributes of a node as the kernel wants them.
///
/// The number of the file is that of the node, so that a file which changed on the server has a new one, as if it had been replaced.
pub(super) fn attributes(node: NodeId, metadata: &Metadata) -> FileAttr {
    let mtime = time(metadata.mtime);
    FileAttr {
        ino: INodeNo(node.number()),
        size: metadata.size,
        blocks: metadata.used.div_ceil(512),
        atime: time(metadata.atime),
        mtime,
        ctime: time(metadata.ctime),
        crtime: mtime,
        kind: kind(metadata.file_type),
        perm: (metadata.mode & 0o7777) as u16,
        nlink: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        // The kernel takes 32 bits: 12 for the major number, 20 for the minor one.
        rdev: makedev(metadata.device.0, metadata.device.1) as u32,
        blksize: READ_BYTES,
        flags: 0,
    }
}

/// Returns the attributes of something of which only number and kind are known.
pub(super) const fn unknown(number: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: READ_BYTES,
        flags: 0,
    }
}

/// Returns a kind of file as the kernel names it.
pub(super) const fn kind(kind: client::FileType) -> FileType {
    match kind {
        client::FileType::Regular => FileType::RegularFile,
        client::FileType::Directory => FileType::Directory,
        client::FileType::Symlink => FileType::Symlink,
        client::FileType::BlockDevice => FileType::BlockDevice,
        client::FileType::CharacterDevice => FileType::CharDevice,
        client::FileType::Socket => FileType::Socket,
        client::FileType::Fifo => FileType::NamedPipe,
    }
}

fn time(time: Time) -> SystemTime {
    UNIX_EPOCH + Duration::new(time.seconds.into(), time.nanoseconds.min(999_999_999))
}

/// Returns the error number of a failure.
pub(super) fn errno(failure: &Failure) -> Errno {
    match failure {
        Failure::Status(status) => of_status(status.code()),
        Failure::Stale => Errno::ESTALE,
        Failure::WrongKind => Errno::EINVAL,
        // `Unreachable` and others that say nothing of the file.
        _ => Errno::EIO,
    }
}

/// Returns the error number of an NFSv3 status: most have the number of 4.2BSD, which is Linux' for the oldest ones only (RFC 1813 §2.6).
fn of_status(code: u32) -> Errno {
    match code {
        1 => Errno::EPERM,
        2 => Errno::ENOENT,
        6 => Errno::ENXIO,
        13 => Errno::EACCES,
        19 => Errno::ENODEV,
        20 => Errno::ENOTDIR,
        21 => Errno::EISDIR,
        22 => Errno::EINVAL,
        27 => Errno::EFBIG,
        30 => Errno::EROFS,
        63 => Errno::ENAMETOOLONG,
        70 => Errno::ESTALE,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_numbers_that_programs_know() {
        assert_eq!(
            errno(&Failure::Status(client::NfsStatus::NOENT)).code(),
            rustix::io::Errno::NOENT.raw_os_error()
        );
        assert_eq!(
            errno(&Failure::Status(client::NfsStatus::NAMETOOLONG)).code(),
            rustix::io::Errno::NAMETOOLONG.raw_os_error()
        );
        assert_eq!(errno(&Failure::Unreachable).code(), rustix::io::Errno::IO.raw_os_error());
        assert_eq!(errno(&Failure::Stale).code(), rustix::io::Errno::STALE.raw_os_error());
    }
}
