use nfs_wire::nfs3_types::{
    nfs3::{
        LOOKUP3args, READ3args, READDIR3args, READDIRPLUS3args, SETATTR3args, cookieverf3, sattr3, stable_how,
    },
    xdr_codec::{Opaque, Pack},
};
use proptest::prelude::*;

use super::*;

fn messages(bench: &mut Bench) -> Vec<Vec<u8>> {
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let mut messages = Vec::new();
    let mut add =
        |bench: &mut Bench, procedure: Procedure, arguments: &dyn Fn(&mut Bench, u32) -> Vec<u8>| {
            messages.push(arguments(bench, procedure.number()));
        };
    fn packed<T: Pack>(arguments: T) -> impl Fn(&mut Bench, u32) -> Vec<u8> {
        move |bench, procedure| bench.message(procedure, &arguments)
    }
    let what = at(&root, b"file");
    add(bench, Procedure::Lookup, &packed(LOOKUP3args { what }));
    let object = at(&root, b"other");
    add(bench, Procedure::Remove, &packed(REMOVE3args { object }));
    let write = write_arguments(&file, 0, b"data!", stable_how::UNSTABLE);
    add(bench, Procedure::Write, &packed(write));
    let read = READ3args { file: file.clone(), offset: 0, count: 8192 };
    add(bench, Procedure::Read, &packed(read));
    let setattr = SETATTR3args {
        object: file,
        new_attributes: sattr3::default(),
        guard: nfs_wire::nfs3_types::nfs3::Nfs3Option::None,
    };
    add(bench, Procedure::Setattr, &packed(setattr));
    let readdir =
        READDIR3args { dir: root.clone(), cookie: 0, cookieverf: cookieverf3::default(), count: 4096 };
    add(bench, Procedure::Readdir, &packed(readdir));
    let readdirplus = READDIRPLUS3args {
        dir: root,
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 512,
        maxcount: 4096,
    };
    add(bench, Procedure::Readdirplus, &packed(readdirplus));
    bench.program = Program::MOUNT;
    messages.push(bench.message(1, &Opaque::borrowed(b"/")));
    bench.program = Program::RPCBIND4;
    messages.push(bench.message(4, &Void));
    messages
}

/// Size of the largest reply that says no more than that something is wrong: a rejection of an accepted call with
/// two version numbers, or a status and two sets of attributes.
const ERROR_REPLY_BYTES: usize = 24 + 4 + 2 * (24 + 88) + 8;

#[test]
fn a_call_cut_anywhere_is_dropped_or_answered_with_garbage_args() {
    let mut bench = Bench::memory();
    for message in messages(&mut bench) {
        bench.xid = u32::from_be_bytes(message[..4].try_into().unwrap());
        for cut in 0..message.len() {
            match bench.service.handle_input(bench.now, bench.peer, &message[..cut]) {
                Err(_) => assert_eq!(bench.replies(), []),
                Ok(()) => {
                    let replies = bench.replies();
                    assert_eq!(bench.results(&replies[0]), Err(Rejection::GarbageArguments));
                }
            }
        }
        let mut longer = message.clone();
        longer.extend_from_slice(&[0; 4]);
        let replies = bench.exchange(&longer);
        assert_eq!(bench.results(&replies[0]), Err(Rejection::GarbageArguments));
    }
}

#[test]
fn a_hostile_length_takes_no_more_memory_than_a_transfer() {
    let mut bench = Bench::memory();
    for message in messages(&mut bench) {
        // Every word in turn claims to be four gigabytes long.
        for word in (24..message.len()).step_by(4) {
            let mut hostile = message.clone();
            hostile[word..word + 4].copy_from_slice(&[0xff; 4]);
            if bench.service.handle_input(bench.now, bench.peer, &hostile).is_ok() {
                for reply in bench.replies() {
                    let limit = bench.service.config().tcp_transfer_bytes as usize + 1024;
                    assert!(reply.bytes.capacity() <= limit);
                }
            }
        }
    }
}

#[test]
fn who_may_have_forged_an_address_gets_at_most_three_times_what_it_sent() {
    let export = [b"/".to_vec(), vec![b'x'; 500]].concat();
    let config = ServiceConfig { export, ..ServiceConfig::default() };
    let mut bench = Bench::with(config, Memory::default());
    // Other people's mounts are what DUMP lists.
    for host in 0..200 {
        bench.program = Program::MOUNT;
        bench.peer.address = SocketAddr::from(([192, 0, 2, host], 700));
        bench.raw(1, &Opaque::owned([b"/".to_vec(), vec![b'x'; 500]].concat())).unwrap();
    }
    let mut refused = 0;
    for program in [Program::NFS, Program::MOUNT, Program::PORTMAP, Program::RPCBIND3, Program::RPCBIND4] {
        for procedure in 0..=23 {
            for arguments in [&[][..], &[0; 4], &[0; 16], &[0; 64], &[0xff; 64]] {
                let message = {
                    let mut message = Vec::new();
                    bench.xid += 1;
                    encode_call_header(&mut message, Xid(bench.xid), program, procedure, &[0; 8]);
                    [&message, arguments].concat()
                };
                // One address a call: nothing is owed to any of them.
                let [.., high, low] = bench.xid.to_be_bytes();
                bench.peer =
                    Peer { address: SocketAddr::from(([10, 0, high, low], 700)), protocol: Protocol::Udp };
                for reply in bench.exchange(&message) {
                    let (sent, got) = (message.len(), reply.bytes.len());
                    assert!(got <= 3 * sent, "{program:?} {procedure}: {got} bytes for {sent}");
                    refused += u32::from(bench.results(&reply) == Err(Rejection::SystemError));
                }
                bench.peer.protocol = Protocol::Tcp;
                for reply in bench.exchange(&message) {
                    assert_ne!(
                        bench.results(&reply),
                        Err(Rejection::SystemError),
                        "a connection cannot be forged"
                    );
                }
            }
        }
    }
    assert!(refused >= 4, "DUMP and EXPORT are longer than that, not {refused}");
}

proptest! {
    #[test]
    fn random_bytes_are_no_call(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bench = Bench::memory();
        let taken = bench.service.handle_input(bench.now, bench.peer, &bytes);
        let replies = bench.replies();
        prop_assert!(taken.is_ok() || replies.is_empty());
        for reply in replies {
            prop_assert!(reply.bytes.len() <= ERROR_REPLY_BYTES);
        }
    }

    #[test]
    fn random_arguments_neither_panic_nor_amplify(
        program in prop::sample::select(vec![
            Program::NFS, Program::MOUNT, Program::PORTMAP, Program::RPCBIND3, Program::RPCBIND4,
        ]),
        procedure in 0_u32..23,
        arguments in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut bench = Bench::memory();
        bench.program = program;
        let mut message = bench.message(procedure, &Void);
        message.extend_from_slice(&arguments);
        for reply in bench.exchange(&message) {
            // Lists of what a port mapper knows are asked for without arguments.
            prop_assert!(arguments.is_empty() || reply.bytes.len() <= ERROR_REPLY_BYTES);
        }
    }

    #[test]
    fn calls_with_bytes_changed_never_panic(
        which in 0_usize..9,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bench = Bench::memory();
        let mut message = messages(&mut bench).swap_remove(which);
        for (index, byte) in changes {
            let index = index.index(message.len());
            message[index] = byte;
        }
        if bench.service.handle_input(bench.now, bench.peer, &message).is_ok() {
            prop_assert_eq!(bench.replies().len(), 1);
        } else {
            prop_assert!(bench.replies().is_empty());
        }
    }
}
