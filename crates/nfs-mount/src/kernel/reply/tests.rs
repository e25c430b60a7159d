use nfs_wire::nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::FromBytes;

use super::*;

fn metadata(type_: ftype3, mode: u32, fileid: u64) -> Metadata {
    let time = nfstime3 { seconds: 1_700_000_000, nseconds: 7 };
    Metadata::from(&fattr3 {
        type_,
        mode,
        nlink: 1,
        uid: 10,
        gid: 20,
        size: 1000,
        used: 4096,
        rdev: specdata3::default(),
        fsid: 5,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    })
}

fn attributes(fileid: u64) -> Attributes {
    Attributes { number: FileNumber::new(5, 5, fileid), metadata: metadata(ftype3::NF3REG, 0o640, fileid) }
}

fn complete(node: u64, fileid: u64) -> Complete {
    Complete::new(NodeId::from_number(node), attributes(fileid)).unwrap()
}

/// An answer, and the end where it arrives.
fn answer() -> (Answer, OwnedFd) {
    let (ours, kernel) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (Answer::new(Arc::new(ours), 4), kernel)
}

fn arrived(kernel: &OwnedFd) -> (i32, Vec<u8>) {
    let mut buffer = vec![0; 1 << 16];
    let length = rustix::io::read(kernel, &mut buffer).unwrap();
    let (header, body) = kernel::fuse_out_header::read_from_prefix(&buffer[..length]).unwrap();
    assert_eq!((header.unique, header.len as usize), (4, length));
    (header.error, body.to_vec())
}

#[test]
fn a_node_and_the_number_that_programs_see_are_two_things() {
    let (answer, kernel) = answer();
    assert!(answer.entry(&complete(9, 77)));
    let (error, body) = arrived(&kernel);
    let (entry, rest) = kernel::fuse_entry_out::read_from_prefix(&body).unwrap();
    assert_eq!((error, rest.len()), (0, 0));
    assert_eq!((entry.nodeid, entry.attr.ino, entry.entry_valid, entry.attr_valid), (9, 77, 1, 1));
    assert_eq!((entry.attr.mode, entry.attr.mtime, entry.attr.mtimensec), (0o100_640, 1_700_000_000, 7));
    assert_eq!(Complete::new(NodeId::from_number(0), attributes(1)), None);
}

#[test]
fn an_answer_is_given_once_and_what_is_dropped_is_an_error() {
    let (answer, kernel) = answer();
    drop(answer);
    assert_eq!(arrived(&kernel), (-Errno::IO.raw_os_error(), Vec::new()));
    let mut byte = [0];
    assert_eq!(rustix::io::read(&kernel, &mut byte), Ok(0), "nothing more");
}

#[test]
fn an_answer_that_is_not_wanted_is_not_given() {
    let (answer, kernel) = answer();
    answer.none();
    let mut byte = [0];
    assert_eq!(rustix::io::read(&kernel, &mut byte), Ok(0));
}

/// Takes a listing with attributes apart: node, number, next, type, name.
fn taken_apart(listing: &Listing) -> Vec<(u64, u64, u64, u32, Vec<u8>)> {
    let (mut rest, mut all) = (&listing.bytes[..], Vec::new());
    while !rest.is_empty() {
        let (head, tail) = kernel::fuse_direntplus::read_from_prefix(rest).unwrap();
        let (length, dirent) = (head.dirent.namelen as usize, head.dirent);
        let padded = (size_of::<kernel::fuse_direntplus>() + length).next_multiple_of(8);
        all.push((head.entry_out.nodeid, dirent.ino, dirent.off, dirent.typ, tail[..length].to_vec()));
        rest = &rest[padded..];
    }
    all
}

#[test]
fn a_bare_name_has_no_node_and_no_type_that_nobody_told() {
    let mut listing = Listing::new(true, 4096);
    let number = Some(FileNumber::new(5, 5, 33));
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    assert!(listing.add(1, Name::DOT, &Entry::Bare { number, file_type: Some(FileType::Directory) }));
    assert!(listing.add(2, name("known"), &Entry::Complete(complete(9, 77))));
    assert!(listing.add(3, name("bare"), &Entry::Bare { number, file_type: None }));
    assert!(listing.add(4, name("barer"), &Entry::Bare { number: None, file_type: None }));
    assert_eq!(
        taken_apart(&listing),
        [
            (0, 33, 1, 4, b".".to_vec()),
            (9, 77, 2, 8, b"known".to_vec()),
            (0, 33, 3, 0, b"bare".to_vec()),
            (0, UNKNOWN_NUMBER, 4, 0, b"barer".to_vec()),
        ]
    );
}

#[test]
fn a_listing_has_no_more_than_its_room() {
    for with_attributes in [false, true] {
        let mut listing = Listing::new(with_attributes, 512);
        let mut count = 0;
        while listing.add(count + 1, Name::new(b"name").unwrap(), &Entry::Complete(complete(9, 77))) {
            count += 1;
            assert!(listing.bytes.len() <= 512 && listing.bytes.len().is_multiple_of(8));
        }
        assert_eq!(count, if with_attributes { 3 } else { 16 });
        let mut listing = Listing::new(with_attributes, 20);
        assert!(!listing.add(1, Name::DOT, &Entry::Bare { number: None, file_type: None }));
        assert!(listing.is_empty());
    }
}

#[test]
fn names_that_no_program_can_use_are_none() {
    let long = [b'x'; 256];
    for name in [&b""[..], b"a/b", b"/", b"a\0b", &long] {
        assert_eq!(Name::new(name), None);
        assert!(!is_name(name));
    }
    assert!(!is_name(b".") && !is_name(b".."));
    assert!(is_name(&long[1..]) && is_name(b"...") && is_name(b"\xff\n"));
}

#[test]
fn numbers_are_the_servers_and_those_of_other_file_systems_are_apart() {
    assert_eq!(FileNumber::new(5, 5, 77).get(), 77);
    let other = FileNumber::new(5, 6, 77).get();
    assert_ne!(other, 77);
    assert_eq!(other, FileNumber::new(5, 6, 77).get(), "the same in every mount");
    assert_ne!(other, FileNumber::new(5, 7, 77).get());
    assert_ne!(other, FileNumber::new(5, 6, 78).get());
    assert_ne!(FileNumber::new(5, 5, 0).get(), 0, "programs leave out entries with the number 0");
}

#[test]
fn targets_that_programs_cannot_be_told_are_errors() {
    let long = [b'x'; 4096];
    for (target, expected) in [(&b""[..], Errno::IO), (b"a\0b", Errno::IO), (&long, Errno::NAMETOOLONG)] {
        let (answer, kernel) = answer();
        answer.target(target);
        assert_eq!(arrived(&kernel), (-expected.raw_os_error(), Vec::new()));
    }
    let (answer, kernel) = answer();
    answer.target(&long[1..]);
    assert_eq!(arrived(&kernel), (0, long[1..].to_vec()));
}

#[test]
fn a_size_that_the_kernel_would_refuse_is_the_largest_it_takes() {
    let mut it = attributes(1);
    it.metadata.size = u64::MAX;
    assert_eq!(it.encode().size, i64::MAX as u64);
}

#[test]
fn extended_attributes_tell_their_length_first() {
    let (answer, kernel) = answer();
    answer.xattr(b"fresh", 0);
    assert_eq!(arrived(&kernel).1[..4], 5u32.to_ne_bytes());
    for (room, expected) in [(4, (-Errno::RANGE.raw_os_error(), vec![])), (5, (0, b"fresh".to_vec()))] {
        let (answer, kernel) = self::answer();
        answer.xattr(b"fresh", room);
        assert_eq!(arrived(&kernel), expected);
    }
}
