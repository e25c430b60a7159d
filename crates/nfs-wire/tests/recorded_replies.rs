//! Replies of real servers, byte for byte, some of which keep to no RFC.

use nfs_wire::{
    Reader,
    mount::{decode_exports, decode_mount},
    nfs3_types::nfs3::FSSTAT3resok,
    reply::decode,
    rpc::{Rejection, ReplyHeader},
};

/// go-nfs 0.0.4 to EXPORT, and to any procedure that it does not have: PROG_MISMATCH without versions.
const GO_NFS_EXPORT: &str = "00000001 00000001 00000000 00000000 00000000 00000002";

/// go-nfs to MNT of any path.
const GO_NFS_MNT: &str =
    "00000001 00000001 00000000 00000000 00000000 00000000 00000000 00000010 b022f7f4 bb794141
    82a239bb 648553b1 00000001 00000000";

/// go-nfs to FSSTAT: four bytes more than there are fields.
const GO_NFS_FSSTAT: &str = "00000001 00000001 00000000 00000000 00000000 00000000 00000000 00000001 00000002 800001c0
    00000002 00000000 00000000 00000000 00001000 00000000 00001000 00000000 00000000 00000000 00000000 00000000
    0099c050 6b03e073 1f114167 6b03e073 1f114167 6b03e073 1f114167 40000000 00000000 40000000 00000000 40000000
    00000000 40000000 00000000 40000000 00000000 40000000 00000000 00000000 00000000";

/// Linux 6.1 to EXPORT: `/srv/disk` for `*`.
const LINUX_EXPORT: &str =
    "00000001 00000001 00000000 00000000 00000000 00000000 00000001 00000009 2f737276 2f646973
    6b000000 00000001 00000001 2a000000 00000000 00000000";

/// Linux 6.1 to MNT.
const LINUX_MNT: &str =
    "00000001 00000001 00000000 00000000 00000000 00000000 00000000 00000008 01000100 01000000
    00000001 00000001";

/// Linux 6.1 to version 9 of NFS.
const LINUX_VERSION_9: &str = "00000001 00000001 00000000 00000000 00000000 00000002 00000003 00000003";

/// Splits a reply into its outcome and its results.
fn reply(words: &str) -> (Result<(), Rejection>, Vec<u8>) {
    let words = words.split_whitespace().map(|word| u32::from_str_radix(word, 16).unwrap());
    let bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    let mut reader = Reader::new(&bytes);
    let header = ReplyHeader::decode(&mut reader).unwrap();
    (header.outcome, reader.rest().to_vec())
}

#[test]
fn rejections_are_read_with_versions_and_without() {
    assert_eq!(reply(GO_NFS_EXPORT).0, Err(Rejection::VersionUnavailable));
    assert_eq!(reply(LINUX_VERSION_9).0, Err(Rejection::ProgramMismatch { low: 3, high: 3 }));
}

#[test]
fn mounts_and_exports_are_read() {
    for (words, handle_bytes, flavors) in [(GO_NFS_MNT, 16, [0]), (LINUX_MNT, 8, [1])] {
        let (outcome, results) = reply(words);
        let mount = decode_mount(&results).unwrap().unwrap();
        assert_eq!((outcome, mount.handle.as_bytes().len()), (Ok(()), handle_bytes));
        assert_eq!(mount.auth_flavors, flavors);
    }
    let exports = decode_exports(&reply(LINUX_EXPORT).1).unwrap();
    assert_eq!(
        (&exports[0].directory[..], &exports[0].groups[..]),
        (&b"/srv/disk"[..], &[b"*".to_vec()][..])
    );
}

#[test]
fn what_follows_results_is_not_looked_at() {
    let (_, results) = reply(GO_NFS_FSSTAT);
    let found: FSSTAT3resok = decode(&results).unwrap().unwrap();
    assert_eq!((found.tbytes, found.afiles, found.invarsec), (1 << 62, 1 << 62, 0));
}
