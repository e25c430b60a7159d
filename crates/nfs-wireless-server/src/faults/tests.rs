use nfs_wire::{
    nfs3_types::{
        nfs3::{
            COMMIT3args, COMMIT3resok, FSINFO3args, FSINFO3resok, GETATTR3args, READDIR3args, READDIR3resok,
            READDIRPLUS3args, READDIRPLUS3resok, RENAME3args, RENAME3resok, cookieverf3, createhow3,
            createverf3, nfs_fh3, sattr3, stable_how,
        },
        xdr_codec::Void,
    },
    reply::decode,
    rpc::{Rejection, Xid},
};

use super::*;
use crate::{
    Transmit,
    testing::{Bench, at},
};

fn strikes(when: When, count: usize, seed: u64) -> Vec<bool> {
    let rule = Rule { calls: Calls::Any, when, action: Action::DropCall };
    let mut state = FaultState::new(Faults::from(vec![rule]), seed);
    let shape = CallShape::new(rpc::Program::MOUNT, 0, Reader::new(&[]));
    (0..count).map(|_| state.plan(&shape).drop_call).collect()
}

#[test]
fn rules_count_the_calls_they_are_about() {
    assert_eq!(strikes(When::Nth(2), 3, 1), [false, true, false]);
    assert_eq!(strikes(When::First(2), 3, 1), [true, true, false]);
    assert_eq!(strikes(When::After(2), 3, 1), [false, false, true]);
    assert_eq!(strikes(When::Always, 2, 1), [true, true]);
}

#[test]
fn chance_is_repeatable_and_near_its_probability() {
    const DRAWS: usize = 100_000;
    let struck = strikes(When::Chance(0.3), DRAWS, 7);
    assert_eq!(struck, strikes(When::Chance(0.3), DRAWS, 7), "seed 7");
    let rate = struck.iter().filter(|struck| **struck).count() as f64 / DRAWS as f64;
    let standard_error = (0.3_f64 * 0.7 / DRAWS as f64).sqrt();
    assert!((rate - 0.3).abs() < 4.0 * standard_error, "seed 7: {rate}");
}

#[test]
fn a_new_rule_does_not_shift_the_draws_of_another() {
    let rule = |procedure| Rule {
        calls: Calls::Procedure(procedure),
        when: When::Chance(0.5),
        action: Action::DropCall,
    };
    let draws = |rules: Vec<Rule>| {
        let mut state = FaultState::new(Faults::from(rules), 3);
        let shape = CallShape::new(rpc::Program::NFS, Procedure::Getattr.number(), Reader::new(&[]));
        (0..64).map(|_| state.plan(&shape).drop_call).collect::<Vec<_>>()
    };
    let alone = draws(vec![rule(Procedure::Getattr)]);
    let accompanied = draws(vec![rule(Procedure::Getattr), rule(Procedure::Read)]);
    assert_eq!(alone, accompanied);
}

/// A bench with a file of 10,000 bytes, and faults.
fn faulty(faults: Faults) -> (Bench, nfs_fh3, nfs_fh3) {
    let mut bench = Bench::memory();
    let root = bench.root();
    let file = bench.create(&root, b"file");
    bench.write(&file, 0, &[7; 10_000], stable_how::FILE_SYNC).unwrap();
    bench.service.set_faults(faults);
    (bench, root, file)
}

fn strike(procedure: Procedure, when: When, action: Action) -> Faults {
    Faults::from(vec![Rule { calls: Calls::Procedure(procedure), when, action }])
}

fn getattr_message(bench: &mut Bench, object: &nfs_fh3) -> Vec<u8> {
    let object = object.clone();
    bench.message(Procedure::Getattr.number(), &GETATTR3args { object })
}

fn xids(replies: &[Transmit]) -> Vec<Xid> {
    replies
        .iter()
        .map(|reply| {
            let mut reader = Reader::new(&reply.bytes);
            rpc::ReplyHeader::decode(&mut reader).unwrap().xid
        })
        .collect()
}

#[test]
fn a_dropped_call_is_not_served_and_a_dropped_reply_is() {
    let faults = strike(Procedure::Rename, When::Nth(1), Action::DropCall);
    let (mut bench, root, _) = faulty(faults);
    let arguments = RENAME3args { from: at(&root, b"file"), to: at(&root, b"new") };
    let message = bench.message(Procedure::Rename.number(), &arguments);
    assert_eq!(bench.exchange(&message), []);
    bench.lookup(&root, b"file").unwrap();
    bench.service.set_faults(strike(Procedure::Rename, When::Nth(1), Action::DropReply));
    let message = bench.message(Procedure::Rename.number(), &arguments);
    assert_eq!(bench.exchange(&message), []);
    // The retransmission is answered from the duplicate request cache.
    let replies = bench.exchange(&message);
    let results = bench.results(&replies[0]).unwrap();
    decode::<RENAME3resok>(&results).unwrap().unwrap();
    let stats = bench.service.stats();
    assert_eq!((stats.dropped_calls, stats.dropped_replies, stats.replayed), (1, 1, 1));
}

#[test]
fn a_delayed_reply_comes_later() {
    let delay = Duration::from_millis(30);
    let faults = strike(Procedure::Getattr, When::Nth(1), Action::DelayReply(delay));
    let (mut bench, root, _) = faulty(faults);
    let message = getattr_message(&mut bench, &root);
    assert_eq!(bench.exchange(&message), []);
    assert_eq!(bench.service.poll_timeout(), Some(bench.now + delay));
    assert_eq!(bench.pass(delay).len(), 1);
    assert_eq!(bench.service.poll_timeout(), None);
}

#[test]
fn a_reordered_reply_comes_after_the_next_or_after_a_while() {
    let faults = strike(Procedure::Getattr, When::First(1), Action::ReorderReply);
    let (mut bench, root, _) = faulty(faults.clone());
    let first = getattr_message(&mut bench, &root);
    let second = getattr_message(&mut bench, &root);
    assert_eq!(bench.exchange(&first), []);
    let replies = bench.exchange(&second);
    assert_eq!(xids(&replies), [Xid(bench.xid), Xid(bench.xid - 1)]);
    assert_eq!(bench.pass(REORDER_TIME), [], "not sent twice");
    bench.service.set_faults(faults);
    assert_eq!(bench.exchange(&first), []);
    assert_eq!(bench.pass(REORDER_TIME).len(), 1);
}

#[test]
fn a_duplicated_reply_comes_twice() {
    let faults = strike(Procedure::Getattr, When::Nth(1), Action::DuplicateReply);
    let (mut bench, root, _) = faulty(faults);
    let message = getattr_message(&mut bench, &root);
    let replies = bench.exchange(&message);
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[0], replies[1]);
}

#[test]
fn short_reads_and_writes_stop_early() {
    let (mut bench, _, file) = faulty(Faults::from(vec![
        Rule::always(Procedure::Read, Action::Shorten(1000)),
        Rule::always(Procedure::Write, Action::Shorten(3)),
    ]));
    let (data, eof) = bench.read(&file, 0, 8192).unwrap();
    assert_eq!((data.len(), eof), (1000, false));
    let written = bench.write(&file, 0, b"abcdef", stable_how::UNSTABLE).unwrap();
    assert_eq!(written.count, 3);
    assert_eq!(bench.read(&file, 0, 4).unwrap().0, b"abc\x07");
}

#[test]
fn jukebox_comes_so_many_times_and_is_not_cached() {
    let (mut bench, root, _) = faulty(Faults::jukebox(Procedure::Create, 2));
    for _ in 0..2 {
        let how = createhow3::GUARDED(sattr3::default());
        assert_eq!(bench.create_how(&root, b"new", how), Err(Status::JUKEBOX));
        // The next call is the same message.
        bench.xid -= 1;
    }
    bench.create(&root, b"new");
}

#[test]
fn the_write_verifier_changes_now_or_after_some_writes() {
    let (mut bench, _, file) = faulty(strike(Procedure::Write, When::Nth(3), Action::ChangeVerifier));
    let verifiers: Vec<_> =
        (0..4).map(|_| bench.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap().verf).collect();
    assert_eq!(verifiers[0], verifiers[1]);
    assert_ne!(verifiers[1], verifiers[2]);
    assert_eq!(verifiers[2], verifiers[3]);
    assert_eq!(bench.read(&file, 0, 1).unwrap().0, b"x", "nothing was lost");
    bench.service.change_write_verifier();
    let now = bench.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap().verf;
    assert_ne!(now, verifiers[3]);
}

#[test]
fn a_crash_in_between_loses_what_was_not_committed() {
    let (mut bench, _, file) = faulty(strike(Procedure::Write, When::Nth(2), Action::Crash));
    let first = bench.write(&file, 0, b"lost", stable_how::UNSTABLE).unwrap();
    let second = bench.write(&file, 4, b"kept", stable_how::UNSTABLE).unwrap();
    assert_ne!(first.verf, second.verf);
    assert_eq!(bench.read(&file, 0, 8).unwrap().0, b"\x07\x07\x07\x07kept");
}

#[test]
fn a_server_may_lack_readdirplus_commit_and_exclusive_create() {
    let (mut bench, root, file) = faulty(Faults::no_readdirplus());
    let arguments = READDIRPLUS3args {
        dir: root.clone(),
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 512,
        maxcount: 4096,
    };
    let results = bench.raw(Procedure::Readdirplus.number(), &arguments).unwrap();
    let error = decode::<READDIRPLUS3resok<'_>>(&results).unwrap().unwrap_err();
    assert_eq!(error, Status::NOTSUPP);

    bench.service.set_faults(Faults::no_commit());
    let written = bench.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap();
    assert_eq!(written.committed, stable_how::FILE_SYNC);
    let arguments = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    assert_eq!(bench.raw(Procedure::Commit.number(), &arguments), Err(Rejection::ProcedureUnavailable));
    bench.service.crash();
    assert_eq!(bench.read(&file, 0, 1).unwrap().0, b"x");

    bench.service.set_faults(Faults::no_exclusive_create());
    let how = createhow3::EXCLUSIVE(createverf3([1; 8]));
    assert_eq!(bench.create_how(&root, b"new", how), Err(Status::NOTSUPP));
    bench.create(&root, b"new");
    bench.service.set_faults(Faults::default());
    let _: COMMIT3resok = bench.call(Procedure::Commit, &arguments).unwrap();
}

#[test]
fn fsinfo_may_claim_anything() {
    let (mut bench, fsroot, _) = faulty(Faults {
        claimed_read_bytes: Some(0),
        claimed_write_bytes: Some(u32::MAX),
        ..Faults::default()
    });
    let info: FSINFO3resok = bench.call(Procedure::Fsinfo, &FSINFO3args { fsroot }).unwrap();
    assert_eq!((info.rtmax, info.rtpref, info.wtmax, info.wtpref), (0, 0, u32::MAX, u32::MAX));
}

#[test]
fn large_transfers_may_meet_silence() {
    let (mut bench, _, file) = faulty(Faults::silent_above(4096));
    assert_eq!(bench.read(&file, 0, 4096).unwrap().0.len(), 4096);
    let arguments = nfs3_types::nfs3::READ3args { file: file.clone(), offset: 0, count: 4097 };
    let message = bench.message(Procedure::Read.number(), &arguments);
    assert_eq!(bench.exchange(&message), []);
    let arguments = crate::testing::write_arguments(&file, 0, &[0; 5000], stable_how::UNSTABLE);
    let message = bench.message(Procedure::Write.number(), &arguments);
    assert_eq!(bench.exchange(&message), []);
}

#[test]
fn errors_strike_at_an_offset() {
    for status in [Status::NOSPC, Status::STALE, Status::IO] {
        let (mut bench, _, file) = faulty(Faults::fail_at(Procedure::Write, 5000, status));
        bench.write(&file, 4000, &[0; 1000], stable_how::UNSTABLE).unwrap();
        for (offset, length) in [(4000, 1001), (5000, 1), (9000, 10)] {
            let data = vec![0; length];
            let error = bench.write(&file, offset, &data, stable_how::UNSTABLE).unwrap_err();
            assert_eq!(error, status);
        }
        bench.read(&file, 5000, 1).unwrap();
        bench.service.set_faults(Faults::fail_at(Procedure::Read, 5000, status));
        assert_eq!(bench.read(&file, 5000, 1).unwrap_err(), status);
    }
}

#[test]
fn a_stuck_cookie_never_advances() {
    let faults = Faults::from(vec![Rule::always(Procedure::Readdir, Action::StickCookie)]);
    let (mut bench, root, _) = faulty(faults);
    let arguments = READDIR3args { dir: root, cookie: 0, cookieverf: cookieverf3::default(), count: 4096 };
    let results = bench.raw(Procedure::Readdir.number(), &arguments).unwrap();
    let page = decode::<READDIR3resok<'_>>(&results).unwrap().unwrap();
    assert!(!page.reply.eof);
    assert_eq!(page.reply.entries.0.len(), 3);
    assert!(page.reply.entries.0.iter().all(|entry| entry.cookie == 0));
}

#[test]
fn every_procedure_can_fail_with_results_that_decode() {
    for procedure in Procedure::ALL.into_iter().skip(1) {
        let (mut bench, _, _) = faulty(strike(procedure, When::Always, Action::Fail(Status::IO)));
        let results = bench.raw(procedure.number(), &Void).unwrap();
        assert_eq!(results[..4], [0, 0, 0, 5]);
        assert!(results.len() <= 4 + 4 * 4 && results[4..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn faults_can_strike_mount_and_portmap() {
    let (mut bench, _, _) = faulty(Faults::from(vec![Rule {
        calls: Calls::Program(rpc::Program::MOUNT.number),
        when: When::Always,
        action: Action::DropCall,
    }]));
    bench.program = rpc::Program::MOUNT;
    let message = bench.message(0, &Void);
    assert_eq!(bench.exchange(&message), []);
    bench.program = rpc::Program::PORTMAP;
    assert_eq!(bench.raw(0, &Void), Ok(vec![]));
}
