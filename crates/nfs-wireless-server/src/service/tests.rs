mod hostile;
mod progress;

use std::num::NonZeroUsize;

use nfs_wire::{
    nfs3_types::{
        nfs3::{COMMIT3args, COMMIT3resok, GETATTR3args, REMOVE3args, nfs_fh3, stable_how},
        xdr_codec::Void,
    },
    rpc::encode_call_header,
};

use super::{waiting::MOST_CALLS, *};
use crate::{
    Memory, ReplyCacheConfig, Timing,
    testing::{Bench, SEED, at, epoch, peer, write_arguments},
};

fn rejection_of(program: Program, procedure: u32) -> Result<Vec<u8>, Rejection> {
    let mut bench = Bench::memory();
    bench.program = program;
    bench.raw(procedure, &Void)
}

#[test]
fn unknown_programs_versions_and_procedures_are_told_apart() {
    let program = |number, version| Program { number, version };
    assert_eq!(rejection_of(program(100_227, 3), 0), Err(Rejection::ProgramUnavailable));
    for (number, low, high) in [(100_003, 3, 3), (100_005, 3, 3), (100_000, 2, 4)] {
        for version in [low - 1, high + 1, u32::MAX] {
            assert_eq!(
                rejection_of(program(number, version), 0),
                Err(Rejection::ProgramMismatch { low, high })
            );
        }
        assert_eq!(rejection_of(program(number, high), 99), Err(Rejection::ProcedureUnavailable));
        assert_eq!(rejection_of(program(number, high), 0), Ok(vec![]));
    }
}

#[test]
fn an_unknown_credential_or_rpc_version_is_denied() {
    let mut bench = Bench::memory();
    let gss = [0, 0, 0, 6, 0, 0, 0, 0];
    let mut message = Vec::new();
    encode_call_header(&mut message, Xid(bench.xid), Program::NFS, 0, &gss);
    let replies = bench.exchange(&message);
    assert_eq!(bench.results(&replies[0]), Err(Rejection::Authentication(2)));
    message[11] = 3;
    let replies = bench.exchange(&message);
    assert_eq!(bench.results(&replies[0]), Err(Rejection::RpcMismatch { low: 2, high: 2 }));
}

#[test]
fn two_seeds_are_two_instances() {
    let mut one = Bench::memory();
    let root = one.root();
    let other = Service::new(ServiceConfig::default(), Memory::default(), SEED + 1, one.now);
    one.service = other.unwrap();
    assert_eq!(one.getattr(&root).unwrap_err(), Status::STALE);
    let again = Service::new(ServiceConfig::default(), Memory::default(), SEED, one.now);
    one.service = again.unwrap();
    one.getattr(&root).unwrap();
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = || {
        let mut bench = Bench::memory();
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let written = bench.write(&file, 0, b"data", stable_how::UNSTABLE).unwrap();
        (root, file, written.verf)
    };
    assert_eq!(run(), run());
}

#[test]
fn time_of_day_follows_the_machine_s_time() {
    let mut bench = Bench::memory();
    let root = bench.root();
    let seconds = bench.service.config().start_time.seconds;
    bench.pass(Duration::from_millis(90_500));
    let file = bench.create(&root, b"file");
    let expected = nfstime3 { seconds: seconds + 90, nseconds: 500_000_000 };
    assert_eq!(bench.getattr(&file).unwrap().mtime, expected);
}

fn remove_message(bench: &mut Bench, dir: &nfs_fh3, name: &[u8]) -> Vec<u8> {
    let object = at(dir, name);
    bench.message(Procedure::Remove.number(), &REMOVE3args { object })
}

#[test]
fn a_retransmission_is_answered_again_and_not_run_again() {
    let mut bench = Bench::memory();
    let root = bench.root();
    bench.create(&root, b"file");
    let message = remove_message(&mut bench, &root, b"file");
    let first = bench.exchange(&message);
    assert_eq!(bench.exchange(&message), first);
    assert_eq!(bench.service.stats().replayed, 1);
    // From another port it is another call.
    bench.peer.address.set_port(701);
    let other = bench.exchange(&message);
    assert_ne!(other[0].bytes, first[0].bytes);
}

#[test]
fn without_a_reply_cache_a_retransmission_is_run_again() {
    let config = ServiceConfig { reply_cache: None, ..ServiceConfig::default() };
    let mut bench = Bench::with(config, Memory::default());
    let root = bench.root();
    bench.create(&root, b"file");
    let message = remove_message(&mut bench, &root, b"file");
    let first = bench.exchange(&message);
    assert_ne!(bench.exchange(&message), first);
}

fn slow(threads: usize) -> ServiceConfig {
    ServiceConfig {
        timing: Timing {
            threads: NonZeroUsize::new(threads).unwrap(),
            read_time: Duration::from_millis(1),
            write_time: Duration::from_millis(10),
            commit_time: Duration::from_millis(100),
        },
        ..ServiceConfig::default()
    }
}

fn write_message(bench: &mut Bench, file: &nfs_fh3, stable: stable_how) -> Vec<u8> {
    let arguments = write_arguments(file, 0, b"data", stable);
    bench.message(Procedure::Write.number(), &arguments)
}

#[test]
fn replies_become_available_after_the_service_time() {
    let mut bench = Bench::with(slow(8), Memory::default());
    let root = bench.root();
    let file = bench.create(&root, b"file");
    for (stable, milliseconds) in [(stable_how::UNSTABLE, 10), (stable_how::FILE_SYNC, 110)] {
        let message = write_message(&mut bench, &file, stable);
        assert_eq!(bench.exchange(&message), []);
        let due = bench.service.poll_timeout().unwrap();
        assert_eq!(due - bench.now, Duration::from_millis(milliseconds));
        assert_eq!(bench.pass(Duration::from_millis(milliseconds) / 2), []);
        assert_eq!(bench.pass(Duration::from_millis(milliseconds) / 2).len(), 1);
        assert_eq!(bench.service.poll_timeout(), None);
    }
}

#[test]
fn at_most_as_many_calls_are_served_at_once_as_there_are_threads() {
    let mut bench = Bench::with(slow(2), Memory::default());
    let root = bench.root();
    let file = bench.create(&root, b"file");
    for _ in 0..5 {
        let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
        assert_eq!(bench.exchange(&message), []);
    }
    let counts: Vec<_> = (0..4).map(|_| bench.pass(Duration::from_millis(10)).len()).collect();
    assert_eq!(counts, [2, 2, 1, 0]);
}

#[test]
fn a_late_driver_changes_no_service_time() {
    let mut bench = Bench::with(slow(1), Memory::default());
    let root = bench.root();
    let file = bench.create(&root, b"file");
    for _ in 0..3 {
        let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
        bench.exchange(&message);
    }
    assert_eq!(bench.pass(Duration::from_millis(35)).len(), 3);
    assert_eq!(bench.service.poll_timeout(), None, "nothing is due");
}

#[test]
fn a_retransmission_of_a_call_in_service_is_dropped() {
    let mut bench = Bench::with(slow(1), Memory::default());
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
    bench.exchange(&message);
    bench.exchange(&message);
    assert_eq!(bench.service.stats().in_progress, 1);
    assert_eq!(bench.pass(Duration::from_secs(1)).len(), 1);
}

#[test]
fn a_retransmission_of_a_deferred_call_takes_no_further_thread() {
    let mut bench = Bench::memory();
    let object = bench.root();
    bench.service.defer_calls();
    let message = bench.message(Procedure::Getattr.number(), &GETATTR3args { object });
    for _ in 0..3 {
        assert_eq!(bench.exchange(&message), []);
    }
    let work = bench.service.poll_work().expect("the call is to be made");
    assert!(bench.service.poll_work().is_none());
    bench.service.handle_done(bench.now, work.run());
    assert_eq!(bench.pass(Duration::ZERO).len(), 1);
    // The reply may be lost.
    bench.exchange(&message);
    assert!(bench.service.poll_work().is_some());
}

#[test]
fn too_many_waiting_datagrams_are_dropped_and_may_come_again() {
    let mut bench = Bench::with(slow(1), Memory::default());
    bench.peer = peer(Protocol::Udp);
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let mut last = Vec::new();
    for _ in 0..MOST_CALLS + 2 {
        last = write_message(&mut bench, &file, stable_how::UNSTABLE);
        bench.exchange(&last);
    }
    assert_eq!(bench.service.stats().overflowed, 1);
    assert!(bench.service.is_congested());
    assert_eq!(bench.pass(Duration::from_secs(60)).len(), MOST_CALLS + 1);
    bench.exchange(&last);
    assert_eq!(bench.pass(Duration::from_secs(1)).len(), 1);
}

/// Somebody who asks for more than there is time for delays himself.
#[test]
fn the_calls_of_one_address_take_turns_with_those_of_others() {
    let mut bench = Bench::with(slow(1), Memory::default());
    bench.peer = peer(Protocol::Udp);
    let root = bench.root();
    let file = bench.create(&root, b"file");
    bench.service.defer_calls();
    let greedy = bench.peer;
    for _ in 0..MOST_CALLS + 100 {
        let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
        bench.exchange(&message);
    }
    assert_eq!(bench.service.stats().overflowed, 99);
    bench.peer.address.set_ip([192, 0, 2, 99].into());
    let modest = bench.peer;
    for _ in 0..2 {
        let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
        bench.exchange(&message);
    }
    let mut peers = Vec::new();
    while let Some(work) = bench.service.poll_work() {
        let done = work.run();
        bench.service.handle_done(bench.now, done);
        peers.extend(bench.pass(Duration::from_secs(1)).iter().map(|reply| reply.peer));
    }
    // One was under way.
    assert_eq!(peers[..5], [greedy, greedy, modest, greedy, modest]);
    assert_eq!((peers.len(), bench.service.stats().overflowed), (MOST_CALLS + 1, 101));
}

fn commit(bench: &mut Bench, file: &nfs_fh3) -> COMMIT3resok {
    let arguments = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    bench.call(Procedure::Commit, &arguments).unwrap()
}

#[test]
fn a_crash_loses_what_was_not_committed_and_changes_the_verifier() {
    let mut bench = Bench::memory();
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let written = bench.write(&file, 0, b"kept", stable_how::UNSTABLE).unwrap();
    assert_eq!(commit(&mut bench, &file).verf, written.verf);
    bench.write(&file, 4, b"lost", stable_how::UNSTABLE).unwrap();
    bench.service.crash();
    assert_eq!(bench.read(&file, 0, 99).unwrap().0, b"kept");
    assert_eq!(bench.getattr(&file).unwrap().size, 4);
    assert_ne!(commit(&mut bench, &file).verf, written.verf);
}

#[test]
fn a_crash_takes_calls_replies_and_the_reply_cache_with_it() {
    let mut bench = Bench::with(slow(1), Memory::default());
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let removal = remove_message(&mut bench, &root, b"file");
    let done = bench.exchange(&removal);
    for _ in 0..3 {
        let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
        bench.exchange(&message);
    }
    bench.service.crash();
    assert_eq!(bench.service.poll_timeout(), None);
    assert_eq!(bench.pass(Duration::from_secs(1)), []);
    assert_ne!(bench.exchange(&removal), done, "run again: NOENT");
}

#[test]
fn an_earlier_time_counts_as_the_latest_seen() {
    let mut bench = Bench::with(slow(1), Memory::default());
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let later = bench.now + Duration::from_secs(1);
    bench.service.handle_timeout(later);
    let message = write_message(&mut bench, &file, stable_how::UNSTABLE);
    bench.exchange(&message);
    let due = bench.service.poll_timeout().unwrap();
    assert_eq!(due - later, Duration::from_millis(10));
}

#[test]
fn a_setting_out_of_range_is_refused() {
    let config = ServiceConfig { udp_transfer_bytes: 65_536, ..ServiceConfig::default() };
    let error = Service::new(config, Memory::default(), SEED, epoch()).unwrap_err();
    assert_eq!(error.to_string(), "udp_transfer_bytes is 65536, not between 512 and 64512");
    let config = ServiceConfig {
        reply_cache: Some(ReplyCacheConfig { max_replies: 0, max_bytes: 0 }),
        ..ServiceConfig::default()
    };
    assert!(Service::new(config, Memory::default(), SEED, epoch()).is_err());
}
