//! File attributes in our own words (RFC 1813 §2.6).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nfs_wire::nfs3_types::nfs3::{Nfs3Option, fattr3, ftype3, nfstime3, sattr3, set_atime, set_mtime};

/// What kind of file a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    BlockDevice,
    /// Character device.
    CharacterDevice,
    /// Socket.
    Socket,
    /// Named pipe.
    Fifo,
}

/// A time on the server: seconds and nanoseconds since 1970 (`nfstime3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; NFSv3 cannot say more than 32 bits.
    pub seconds: u32,
    /// Nanoseconds; below 10⁹ on an honest server.
    pub nanoseconds: u32,
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Kind of file.
    pub file_type: FileType,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Device numbers (major, minor) of a device file.
    pub device: (u32, u32),
    /// Identifies the file system on the server.
    pub fsid: u64,
    /// Identifies the file within its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
}

/// Attributes to set; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes; the file is cut or extended with zeros.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last change.
    pub mtime: Option<SetTime>,
}

/// How a time is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// To the server's clock.
    ServerTime,
    /// To this time.
    To(Time),
}

impl SetAttributes {
    /// Whether nothing would be set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a file has these attributes; `None` if there is nothing to compare.
    pub fn are_those_of(&self, metadata: &Metadata) -> Option<bool> {
        let time = |wanted| match wanted {
            Some(SetTime::To(time)) => Some(time),
            Some(SetTime::ServerTime) | None => None,
        };
        let compared = [
            self.mode.map(|mode| mode & 0o7777 == metadata.mode),
            self.uid.map(|uid| uid == metadata.uid),
            self.gid.map(|gid| gid == metadata.gid),
            self.size.map(|size| size == metadata.size),
            time(self.atime).map(|time| time == metadata.atime),
            time(self.mtime).map(|time| time == metadata.mtime),
        ];
        compared.into_iter().flatten().reduce(|all, one| all && one)
    }

    /// Returns them as a call carries them (`sattr3`).
    pub fn to_wire(self) -> sattr3 {
        let time = |Time { seconds, nanoseconds }| nfstime3 { seconds, nseconds: nanoseconds };
        sattr3 {
            mode: self.mode.map_or(Nfs3Option::None, Nfs3Option::Some),
            uid: self.uid.map_or(Nfs3Option::None, Nfs3Option::Some),
            gid: self.gid.map_or(Nfs3Option::None, Nfs3Option::Some),
            size: self.size.map_or(Nfs3Option::None, Nfs3Option::Some),
            atime: match self.atime {
                None => set_atime::DONT_CHANGE,
                Some(SetTime::ServerTime) => set_atime::SET_TO_SERVER_TIME,
                Some(SetTime::To(at)) => set_atime::SET_TO_CLIENT_TIME(time(at)),
            },
            mtime: match self.mtime {
                None => set_mtime::DONT_CHANGE,
                Some(SetTime::ServerTime) => set_mtime::SET_TO_SERVER_TIME,
                Some(SetTime::To(at)) => set_mtime::SET_TO_CLIENT_TIME(time(at)),
            },
        }
    }
}

impl Metadata {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type == FileType::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type == FileType::Symlink
    }

    /// Returns a name for these bytes of this file, of hexadecimal digits, dots and dashes: another one after any change, also of
    /// attributes, as far as the server's clock ticks between two changes. Fit for an HTTP entity tag.
    pub fn version_tag(&self) -> String {
        let Self { fileid, size, mtime, ctime, .. } = self;
        format!(
            "{fileid:x}-{size:x}-{:x}.{:x}-{:x}.{:x}",
            mtime.seconds, mtime.nanoseconds, ctime.seconds, ctime.nanoseconds
        )
    }

    /// Whether two looks were at the same version of the same file.
    pub fn is_same_version(&self, other: &Self) -> bool {
        let version = |it: &Self| (it.fileid, it.size, it.mtime, it.ctime);
        version(self) == version(other)
    }
}

impl From<&fattr3> for Metadata {
    fn from(wire: &fattr3) -> Self {
        let time = |time: nfstime3| Time { seconds: time.seconds, nanoseconds: time.nseconds };
        Self {
            file_type: match wire.type_ {
                ftype3::NF3REG => FileType::Regular,
                ftype3::NF3DIR => FileType::Directory,
                ftype3::NF3BLK => FileType::BlockDevice,
                ftype3::NF3CHR => FileType::CharacterDevice,
                ftype3::NF3LNK => FileType::Symlink,
                ftype3::NF3SOCK => FileType::Socket,
                ftype3::NF3FIFO => FileType::Fifo,
            },
            mode: wire.mode & 0o7777,
            links: wire.nlink,
            uid: wire.uid,
            gid: wire.gid,
            size: wire.size,
            used: wire.used,
            device: (wire.rdev.specdata1, wire.rdev.specdata2),
            fsid: wire.fsid,
            fileid: wire.fileid,
            atime: time(wire.atime),
            mtime: time(wire.mtime),
            ctime: time(wire.ctime),
        }
    }
}

/// Takes the attributes out of a `post_op_attr`.
pub fn optional(wire: &Nfs3Option<fattr3>) -> Option<Metadata> {
    match wire {
        Nfs3Option::Some(attributes) => Some(attributes.into()),
        Nfs3Option::None => None,
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        UNIX_EPOCH + Duration::from_secs(time.seconds.into()) + Duration::from_nanos(time.nanoseconds.into())
    }
}

impl Time {
    /// Converts a local time; times before 1970 or after 2106 become the nearest that NFSv3 can say.
    pub fn from_system(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Err(_) => Self::default(),
            Ok(since) => match u32::try_from(since.as_secs()) {
                Ok(seconds) => Self { seconds, nanoseconds: since.subsec_nanos() },
                Err(_) => Self { seconds: u32::MAX, nanoseconds: 0 },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_round_trip_and_saturate() {
        let time = Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 };
        assert_eq!(Time::from_system(time.into()), time);
        assert_eq!(Time::from_system(UNIX_EPOCH - Duration::from_secs(1)), Time::default());
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(Time::from_system(far), Time { seconds: u32::MAX, nanoseconds: 0 });
    }
}
