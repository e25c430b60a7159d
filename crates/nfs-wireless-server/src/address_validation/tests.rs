use std::net::SocketAddr;

use nfs_wire::{
    Status,
    nfs3_types::{
        nfs3::{
            GETATTR3args, LOOKUP3args, Nfs3Option, READ3args, READ3resok, READDIRPLUS3args,
            READDIRPLUS3resok, READLINK3args, READLINK3resok, cookieverf3, nfs_fh3, nfstime3, stable_how,
        },
        xdr_codec::{Opaque, Pack, Void},
    },
    portmap::Protocol,
    reply::decode,
};
use proptest::prelude::*;

use super::*;
use crate::{
    Memory, Service, ServiceConfig,
    testing::{Bench, SEED, at, write_arguments},
    vfs::NewObject,
};

const BLOCK: u32 = 8192;
const FILE_BYTES: usize = 200_000;

fn contents() -> Vec<u8> {
    (0..FILE_BYTES).map(|index| (index / 3) as u8).collect()
}

/// A server with a file, a long link and a directory of 40 long names; and who comes over UDP from an address of its own.
fn bench() -> Bench {
    let mut bench = Bench::memory();
    let now = nfstime3::default();
    let backend = bench.service.backend();
    backend.write_file(now, b"file", &contents()).unwrap();
    backend.make(now, b"link", NewObject::Symlink(&[b'x'; 4000])).unwrap();
    for number in 0..40 {
        backend.write_file(now, format!("dir/{number:0>200}").as_bytes(), b"").unwrap();
    }
    come_from(&mut bench, 1);
    bench
}

fn come_from(bench: &mut Bench, host: u8) {
    bench.peer.protocol = Protocol::Udp;
    bench.peer.address = SocketAddr::from(([192, 0, 2, host], 700));
}

fn read_arguments(file: &nfs_fh3, offset: u64) -> READ3args {
    READ3args { file: file.clone(), offset, count: BLOCK }
}

fn is_validated(bench: &Bench) -> bool {
    bench.service.addresses.validated.get(bench.peer.address.ip()).is_some()
}

/// Reads the whole file as a client does that has one call under way; returns the calls it took.
fn read_whole(bench: &mut Bench, file: &nfs_fh3) -> u64 {
    let (mut got, mut calls) = (Vec::new(), 0);
    loop {
        let (data, end) = bench.read(file, got.len() as u64, BLOCK).unwrap();
        assert!(!data.is_empty(), "a READ moves something");
        got.extend_from_slice(&data);
        calls += 1;
        if end {
            assert!(got == contents(), "the file arrives");
            return calls;
        }
    }
}

const BLOCKS: u64 = (FILE_BYTES as u64).div_ceil(BLOCK as u64);

#[test]
fn a_forged_read_after_a_real_mount_brings_three_times_its_bytes() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    read_whole(&mut bench, &file);
    come_from(&mut bench, 66);
    // As short as it can be: no credential.
    let mut call = Vec::new();
    nfs_wire::rpc::encode_call_header(&mut call, nfs_wire::rpc::Xid(9), Program::NFS, 6, &[0; 8]);
    call.extend_from_slice(&{
        let mut arguments = Vec::new();
        nfs_wire::encode(&mut arguments, &READ3args { file, offset: 0, count: 32 << 10 });
        arguments
    });
    assert_eq!(call.len(), 76);
    let reply = &bench.exchange(&call)[0];
    assert!(reply.bytes.len() <= 3 * 76, "{} bytes", reply.bytes.len());
}

#[test]
fn a_client_that_reads_on_is_validated_wherever_its_handles_are_from() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    let calls = read_whole(&mut bench, &file);
    assert!((BLOCKS + 3..=BLOCKS + 7).contains(&calls), "{calls} calls for {BLOCKS} blocks");
    assert_eq!(read_whole(&mut bench, &file), BLOCKS, "once is enough");
    // It roams: the handle was issued to another address.
    come_from(&mut bench, 2);
    let calls = read_whole(&mut bench, &file);
    assert!((BLOCKS + 3..=BLOCKS + 7).contains(&calls), "{calls} calls for {BLOCKS} blocks");
    // The server restarts, and knows its handles and no address.
    bench.service.crash();
    assert!(read_whole(&mut bench, &file) > BLOCKS);
}

#[test]
fn a_window_of_reads_is_validated_in_a_round_trip() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    let mut lengths = Vec::new();
    for offset in (0..8).map(|block| block * u64::from(BLOCK)) {
        let (data, end) = bench.read(&file, offset, BLOCK).unwrap();
        assert!(!end && data.len() < 2000);
        lengths.push((offset, data.len()));
    }
    let mut distinct: Vec<_> = lengths.iter().map(|(_, length)| length).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), lengths.len(), "no length comes twice, which would look like a limit");
    for (offset, length) in lengths {
        let next = offset + length as u64;
        bench.read(&file, next, BLOCK - length as u32).unwrap();
    }
    assert!(is_validated(&bench));
    assert_eq!(bench.read(&file, 0, BLOCK).unwrap().0.len(), BLOCK as usize);
}

#[test]
fn a_retransmitted_read_is_answered_with_the_same_part() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    bench.read(&file, 50_000, BLOCK).unwrap();
    let (first, _) = bench.read(&file, 0, BLOCK).unwrap();
    for _ in 0..3 {
        assert_eq!(bench.read(&file, 0, BLOCK).unwrap().0, first);
    }
    read_whole(&mut bench, &file);
    assert!(is_validated(&bench));
}

#[test]
fn who_does_not_see_the_replies_is_not_validated_by_guesses() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    come_from(&mut bench, 66);
    let (mut sent, mut got) = (0, 0);
    for guess in 0..20_000_u64 {
        // A READ that is answered in part, and where that part may have ended, as far as calls of this size allow.
        for offset in [0, 1 + guess % 150, 40_000 + guess % 2, 40_000 + guess % 140] {
            let call = bench.message(6, &read_arguments(&file, offset));
            sent += call.len();
            got += bench.exchange(&call).iter().map(|reply| reply.bytes.len()).sum::<usize>();
        }
        assert!(!is_validated(&bench), "after {guess} guesses");
    }
    assert!(got <= 3 * sent, "{got} bytes for {sent}");
}

fn list(bench: &mut Bench, dir: &nfs_fh3) -> (usize, u32) {
    let (mut cookie, mut cookieverf, mut names, mut pages) = (0, cookieverf3::default(), 0, 0);
    loop {
        let arguments =
            READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: 65_536, maxcount: 32_768 };
        let results = bench.raw(Procedure::Readdirplus.number(), &arguments).unwrap();
        let page = decode::<READDIRPLUS3resok<'_>>(&results).unwrap().unwrap();
        pages += 1;
        cookieverf = page.cookieverf;
        names += page.reply.entries.0.len();
        cookie = page.reply.entries.0.last().unwrap().cookie;
        if page.reply.eof {
            return (names, pages);
        }
    }
}

#[test]
fn a_listing_is_validated_by_its_second_page() {
    let mut bench = bench();
    let root = bench.root();
    let dir = bench.lookup(&root, b"dir").unwrap();
    come_from(&mut bench, 2);
    assert_eq!(list(&mut bench, &dir), (42, 2));
    assert!(is_validated(&bench));
    assert_eq!(list(&mut bench, &dir), (42, 1));
    // A made-up verifier shows nothing.
    come_from(&mut bench, 3);
    let arguments = READDIRPLUS3args {
        dir,
        cookie: 5,
        cookieverf: cookieverf3([0; 8]),
        dircount: 65_536,
        maxcount: 32_768,
    };
    let refused = bench.raw(Procedure::Readdirplus.number(), &arguments).unwrap();
    assert_eq!(decode::<READDIRPLUS3resok<'_>>(&refused).unwrap().unwrap_err(), Status::BAD_COOKIE);
    assert!(!is_validated(&bench));
}

#[test]
fn a_long_link_is_read_when_it_has_been_asked_for_often_enough() {
    let mut bench = bench();
    let root = bench.root();
    let symlink = bench.lookup(&root, b"link").unwrap();
    come_from(&mut bench, 2);
    let mut waits = 0;
    let target = loop {
        let arguments = READLINK3args { symlink: symlink.clone() };
        let results = bench.raw(Procedure::Readlink.number(), &arguments).unwrap();
        match decode::<READLINK3resok<'_>>(&results).unwrap() {
            Ok(results) => break results.data.0.to_vec(),
            Err(status) => assert_eq!(status, Status::JUKEBOX),
        }
        waits += 1;
    };
    assert_eq!(target, [b'x'; 4000]);
    assert!((5..40).contains(&waits), "{waits} calls");
    assert!(!is_validated(&bench), "who called is not known for that");
}

#[test]
fn what_is_needed_to_get_anywhere_is_answered_whole_from_the_first_call_on() {
    for handle_bytes in [crate::MIN_HANDLE_BYTES, crate::MAX_HANDLE_BYTES] {
        let config = ServiceConfig { handle_bytes, ..ServiceConfig::default() };
        let mut bench = Bench::with(config, Memory::default());
        let mut host = 0;
        let mut elsewhere = |bench: &mut Bench| {
            host += 1;
            come_from(bench, host);
        };
        elsewhere(&mut bench);
        bench.program = Program::MOUNT;
        for path in [&b"/"[..], b"/missing"] {
            bench.raw(1, &Opaque::borrowed(path)).unwrap();
        }
        bench.raw(5, &Void).unwrap();
        bench.program = Program::NFS;
        bench.raw(0, &Void).unwrap();
        elsewhere(&mut bench);
        let root = bench.root();
        let object = GETATTR3args { object: root.clone() };
        // GETATTR, FSSTAT, FSINFO and PATHCONF take a handle and nothing else.
        for procedure in [1, 18, 19, 20] {
            elsewhere(&mut bench);
            let results = bench.raw(procedure, &object).unwrap();
            assert_eq!(results[..4], [0; 4], "procedure {procedure}");
        }
        elsewhere(&mut bench);
        let file = bench.create(&root, b"f");
        elsewhere(&mut bench);
        bench.mkdir(&root, b"d").unwrap();
        elsewhere(&mut bench);
        let what = at(&root, b"f");
        let found = bench.raw(Procedure::Lookup.number(), &LOOKUP3args { what }).unwrap();
        assert_eq!(found[..4], [0; 4]);
        elsewhere(&mut bench);
        bench.write(&file, 0, b"x", stable_how::FILE_SYNC).unwrap();
        elsewhere(&mut bench);
        assert_eq!(bench.read(&file, 0, BLOCK).unwrap(), (b"x".to_vec(), true), "what is short is not cut");
    }
}

#[test]
fn a_connection_validates_and_a_service_may_believe_everybody() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    bench.peer.protocol = Protocol::Tcp;
    bench.getattr(&root).unwrap();
    bench.peer.protocol = Protocol::Udp;
    assert_eq!(read_whole(&mut bench, &file), BLOCKS);
    let config = ServiceConfig { validates_addresses: false, ..ServiceConfig::default() };
    let mut memory = Memory::default();
    let backend: &mut dyn crate::Vfs = &mut memory;
    backend.write_file(nfstime3::default(), b"file", &contents()).unwrap();
    bench.service = Service::new(config, memory, SEED, bench.now).unwrap();
    come_from(&mut bench, 2);
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    assert_eq!(read_whole(&mut bench, &file), BLOCKS);
}

#[test]
fn addresses_without_end_take_no_memory_without_end() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    for number in 0..10_000_u32 {
        let [_, a, b, c] = number.to_be_bytes();
        bench.peer.address = SocketAddr::from(([10, a, b, c], 700));
        bench.peer.protocol = if number % 2 == 0 { Protocol::Udp } else { Protocol::Tcp };
        for block in 0..2 * MAX_SHORT_READS as u64 * u64::from(number % 100 == 0) {
            bench.read(&file, block * 200, BLOCK).unwrap();
        }
        bench.getattr(&root).unwrap();
    }
    let addresses = &bench.service.addresses;
    assert_eq!(addresses.validated.entries.len(), MAX_VALIDATED);
    assert_eq!(addresses.candidates.entries.len(), MAX_CANDIDATES);
    assert_eq!(addresses.candidates.order.len(), MAX_CANDIDATES);
    let short = |candidate: &Candidate| candidate.short_reads.len();
    assert!(addresses.candidates.entries.values().map(short).all(|short| short <= MAX_SHORT_READS));
}

#[test]
fn short_reads_that_were_given_up_make_room() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    come_from(&mut bench, 2);
    for block in 0..(MAX_SHORT_READS + MAX_SKIPPED) as u64 {
        bench.read(&file, 1_000_000 * (block + 1), BLOCK).unwrap();
    }
    read_whole(&mut bench, &file);
    assert!(is_validated(&bench));
}

#[derive(Clone, Debug)]
enum Step {
    Mount,
    List(u64),
    Export,
    Link,
    Read(u64),
    Write,
}

fn step() -> impl Strategy<Value = (u8, bool, Step)> {
    let step = prop_oneof![
        Just(Step::Mount),
        (0_u64..5).prop_map(Step::List),
        Just(Step::Export),
        Just(Step::Link),
        (0_u64..5).prop_map(|block| Step::Read(block * 3000)),
        Just(Step::Write),
    ];
    (0_u8..3, any::<bool>(), step)
}

proptest! {
    #[test]
    fn no_address_gets_more_than_three_times_its_bytes(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut bench = bench();
        let root = bench.root();
        let [file, dir, symlink] = [&b"file"[..], b"dir", b"link"].map(|name| bench.lookup(&root, name).unwrap());
        let mut sent = [0; 3];
        let mut got = [0; 3];
        let mut last = bench.message(0, &Void);
        for (host, again, step) in steps {
            come_from(&mut bench, 10 + host);
            let packed = |bench: &mut Bench, program, procedure, arguments: &dyn Fn(&mut Bench) -> Vec<u8>| {
                bench.program = program;
                let mut message = bench.message(procedure, &Void);
                message.extend_from_slice(&arguments(bench));
                message
            };
            fn bytes(arguments: &impl Pack) -> Vec<u8> {
                let mut bytes = Vec::new();
                nfs_wire::encode(&mut bytes, arguments);
                bytes
            }
            let message = match step {
                _ if again => last.clone(),
                Step::Mount => packed(&mut bench, Program::MOUNT, 1, &|_| bytes(&Opaque::borrowed(b"/"))),
                Step::Export => packed(&mut bench, Program::MOUNT, 5, &|_| vec![]),
                Step::List(cookie) => packed(&mut bench, Program::NFS, 17, &|_| bytes(&READDIRPLUS3args {
                    dir: dir.clone(), cookie, cookieverf: cookieverf3::default(), dircount: 1 << 20, maxcount: 1 << 20,
                })),
                Step::Link => packed(&mut bench, Program::NFS, 5, &|_| bytes(&READLINK3args { symlink: symlink.clone() })),
                Step::Read(offset) => packed(&mut bench, Program::NFS, 6, &|_| bytes(&read_arguments(&file, offset))),
                Step::Write => packed(&mut bench, Program::NFS, 7, &|_| {
                    bytes(&write_arguments(&file, 0, b"data", stable_how::UNSTABLE))
                }),
            };
            sent[usize::from(host)] += message.len();
            got[usize::from(host)] += bench.exchange(&message).iter().map(|it| it.bytes.len()).sum::<usize>();
            last = message;
            prop_assert!(!is_validated(&bench));
            for (sent, got) in sent.iter().zip(&got) {
                prop_assert!(*got <= 3 * sent, "{} bytes for {}", got, sent);
            }
        }
    }
}

#[test]
fn the_head_of_a_read_is_as_long_as_assumed() {
    let mut bench = bench();
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    let call = bench.message(6, &READ3args { file, offset: 0, count: 101 });
    let reply = &bench.exchange(&call)[0].bytes;
    let results = decode::<READ3resok<'_>>(&reply[24..]).unwrap().unwrap();
    assert!(matches!(results.file_attributes, Nfs3Option::Some(_)));
    assert_eq!(results.data.len(), 101, "three bytes of padding");
    assert_eq!(reply.len(), READ_HEAD_BYTES + 101);
}
