//! References to files and birth times, as Linux has them: `O_PATH` and `statx`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, StatxTimestamp},
    io::Errno,
};

use super::{Found, Stat};

/// A mere reference to a file, which also a symbolic link can have.
#[derive(Debug)]
pub(in super::super) struct Reference(OwnedFd);

impl Reference {
    /// Refers to an open directory.
    pub(in super::super) fn to(directory: &OwnedFd) -> std::io::Result<Self> {
        directory.try_clone().map(Self)
    }

    /// Opens the entry of a directory, without following it if it is a symbolic link.
    ///
    /// The name has no slash and is not `..`, so that the result lies in the directory whatever the host does meanwhile.
    pub(in super::super) fn entry(&self, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// Returns the directory that this refers to, for calls on its entries.
    #[allow(clippy::unnecessary_wraps, reason = "other systems cannot always")]
    pub(in super::super) const fn directory(&self) -> Result<&OwnedFd, Errno> {
        Ok(&self.0)
    }

    pub(in super::super) fn look(&self) -> Result<Found, Errno> {
        look(&self.0)
    }

    /// Opens the directory for listing and flushing.
    pub(in super::super) fn reopen_directory(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, ".", flags, Mode::empty())
    }

    /// Looks at an entry of the directory, without following it if it is a symbolic link.
    pub(in super::super) fn look_at(&self, name: &[u8]) -> Result<Found, Errno> {
        look_at(&self.0, name)
    }

    pub(in super::super) fn read_link(&self) -> Result<Vec<u8>, Errno> {
        rustix::fs::readlinkat(&self.0, "", Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// Changes the mode of a file that is no symbolic link.
    ///
    /// The detour over `/proc` reaches exactly this file: by name, something else could lie there by now.
    pub(in super::super) fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        rustix::fs::chmodat(CWD, path, mode, AtFlags::empty())
    }
}

/// Looks at the entry of a directory, without following it if it is a symbolic link.
pub(in super::super) fn look_at(directory: impl AsFd, name: &[u8]) -> Result<Found, Errno> {
    statx(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Looks at an open file, whether it still has a name or not.
pub(in super::super) fn look(file: impl AsFd) -> Result<Found, Errno> {
    statx(file, b"", AtFlags::EMPTY_PATH)
}

/// `STATX_MNT_ID_UNIQUE` (statx(2)): the number of a mount that no later one gets. Before Linux 6.8 a later one may get the same, before
/// 5.8 there is none.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

fn statx(file: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Found, Errno> {
    let mount = StatxFlags::MNT_ID.union(UNIQUE_MOUNT);
    let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME | mount;
    let statx = rustix::fs::statx(file, name, flags, asked)?;
    let has_birth = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    let stat = Stat {
        device: (statx.stx_dev_major, statx.stx_dev_minor),
        special: (statx.stx_rdev_major, statx.stx_rdev_minor),
        inode: statx.stx_ino,
        mode: statx.stx_mode.into(),
        links: statx.stx_nlink,
        owner: (statx.stx_uid, statx.stx_gid),
        size: statx.stx_size,
        blocks: statx.stx_blocks,
        accessed: time(statx.stx_atime),
        modified: time(statx.stx_mtime),
        changed: time(statx.stx_ctime),
        born: has_birth.then(|| time(statx.stx_btime)),
        mount: if statx.stx_mask & mount.bits() == 0 { 0 } else { statx.stx_mnt_id },
    };
    Ok(stat.into())
}
