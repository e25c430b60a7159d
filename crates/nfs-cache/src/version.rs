//! What two looks at the attributes of one file say of its bytes.

use nfs_proto::attr::Metadata;

/// What has become of the bytes of a file between two looks at its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Size and times are the same.
    None,
    /// `ctime` alone is another one: mode, owner, a link, a name, or a program that wrote and set `mtime` back. Most likely the bytes
    /// are the same.
    Attributes,
    /// The file is longer: most likely something was appended.
    Growth,
    /// The bytes may be other ones.
    Bytes,
}

/// Compares two looks at the same file: `before` and `after`.
pub(crate) fn change(before: &Metadata, after: &Metadata) -> Change {
    if before.is_same_version(after) {
        Change::None
    } else if after.size > before.size {
        Change::Growth
    } else if after.size == before.size && after.mtime == before.mtime {
        Change::Attributes
    } else {
        Change::Bytes
    }
}

#[cfg(test)]
mod tests {
    use nfs_proto::attr::Time;
    use nfs_wire::nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3};

    use super::*;

    fn file(size: u64, mtime: u32, ctime: u32) -> Metadata {
        let time = |seconds| nfstime3 { seconds, nseconds: 0 };
        let shown = Metadata::from(&fattr3 {
            type_: ftype3::NF3REG,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: size,
            rdev: specdata3 { specdata1: 0, specdata2: 0 },
            fsid: 1,
            fileid: 2,
            atime: time(1),
            mtime: time(mtime),
            ctime: time(ctime),
        });
        assert_eq!(shown.mtime, Time { seconds: mtime, nanoseconds: 0 });
        shown
    }

    #[test]
    fn only_what_may_have_changed_bytes_is_another_version() {
        let before = file(100, 10, 10);
        let cases = [
            ("nothing", file(100, 10, 10), Change::None),
            ("chmod, chown, link, rename", file(100, 10, 11), Change::Attributes),
            ("append", file(101, 11, 11), Change::Growth),
            ("append within a tick of the server's clock", file(101, 10, 10), Change::Growth),
            ("write or touch", file(100, 11, 11), Change::Bytes),
            ("write, by a clock that was set back", file(100, 9, 9), Change::Bytes),
            ("truncate", file(99, 11, 11), Change::Bytes),
            ("truncate within a tick", file(99, 10, 10), Change::Bytes),
        ];
        for (what, after, expected) in cases {
            assert_eq!(change(&before, &after), expected, "{what}");
        }
    }
}
