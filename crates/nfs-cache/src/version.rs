//! What two looks at the attributes of one file say of its bytes.

use nfs_proto::attr::Metadata;

/// What has become of the bytes of a file between two looks at its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Size and times are the same.
    None,
    /// `ctime` is another one, and so is the mode, the owner or the number of links: most likely the bytes are the same.
    Attributes,
    /// `ctime` alone is another one: it has another name, or a program wrote into it and set `mtime` back.
    Unexplained,
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
        let why = |it: &Metadata| (it.mode, it.uid, it.gid, it.links);
        if why(before) == why(after) { Change::Unexplained } else { Change::Attributes }
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
        let with = |change: fn(&mut Metadata)| {
            let mut after = file(100, 10, 11);
            change(&mut after);
            after
        };
        let cases = [
            ("nothing", file(100, 10, 10), Change::None),
            ("chmod", with(|it| it.mode = 0o600), Change::Attributes),
            ("chown", with(|it| it.uid = 1), Change::Attributes),
            ("link", with(|it| it.links = 2), Change::Attributes),
            ("rename, or a write after which mtime was set back", file(100, 10, 11), Change::Unexplained),
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
