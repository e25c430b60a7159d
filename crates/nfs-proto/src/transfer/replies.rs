//! Results as a server encodes them (RFC 1813 §3.3), for tests.

use nfs_wire::{
    FileHandle, Status, encode,
    nfs3_types::{
        nfs3::{Nfs3Option, fattr3, ftype3, nfstime3, post_op_attr, specdata3, wcc_data},
        xdr_codec::Pack,
    },
};

/// Successful results.
pub(super) fn success(results: &impl Pack) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    encode(&mut bytes, results);
    bytes
}

/// The results of a failure, without the attributes that may follow.
pub(super) fn failure(status: Status) -> Vec<u8> {
    status.code().to_be_bytes().to_vec()
}

/// Eight bytes.
pub(super) fn handle(byte: u8) -> FileHandle {
    FileHandle::try_from(&[byte; 8][..]).expect("eight bytes")
}

/// A regular file on file system 9.
pub(super) fn attributes(fileid: u64, size: u64) -> fattr3 {
    let time = |seconds| nfstime3 { seconds, nseconds: 0 };
    fattr3 {
        type_: ftype3::NF3REG,
        mode: 0o644,
        nlink: 1,
        uid: 2,
        gid: 3,
        size,
        used: 4096,
        rdev: specdata3 { specdata1: 0, specdata2: 0 },
        fsid: 9,
        fileid,
        atime: time(100),
        mtime: time(200),
        ctime: time(300),
    }
}

/// Attributes that a server may leave out.
pub(super) fn post_op(attributes: Option<fattr3>) -> post_op_attr {
    attributes.map_or(Nfs3Option::None, Nfs3Option::Some)
}

/// Attributes after a call, and none from before it.
pub(super) fn wcc(after: Option<fattr3>) -> wcc_data {
    wcc_data { before: Nfs3Option::None, after: post_op(after) }
}
