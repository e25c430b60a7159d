//! How many calls a server gets that answers, or not, and lets nothing move on.

use std::time::{Duration, Instant};

use nfs_proto::{
    config::RetryPolicy,
    transfer::{Limits, TransferError},
};
use nfs_wire::{Procedure, Status, rpc::Rejection};
use nfs_wireless_server::{Action, Calls, Faults, Rule, ServiceConfig, When};

use crate::world::{World, contents, resumable, rule, temporary};

/// Calls a second without progress, after the first second.
const MOST_CALLS: usize = 50;

/// How long each server is watched.
const TIME: Duration = Duration::from_secs(40);

/// File bytes; enough for many blocks in flight.
const SIZE: usize = 4 << 20;

const POLICIES: [RetryPolicy; 2] = [RetryPolicy::Adaptive, RetryPolicy::hybrid()];

/// Returns the most calls in any second that begins a second after the last progress or later, and whether the transfer has ended.
fn busiest_second(world: &mut World, begin: Instant) -> (usize, bool) {
    world.run(|world| world.outcome.is_some() || world.now >= begin + TIME);
    let ended = world.outcome.is_some();
    let quiet = world.moved_at.unwrap_or(begin).max(begin) + Duration::from_secs(1);
    let late: Vec<Instant> = world.sent_at.iter().copied().filter(|&at| at >= quiet).collect();
    let within = |from: &Instant| {
        late.iter().filter(|&at| (*from..*from + Duration::from_secs(1)).contains(at)).count()
    };
    (late.iter().map(within).max().unwrap_or(0), ended)
}

/// A world whose server has a file of [`SIZE`] bytes, and these faults from now on.
fn world(policy: RetryPolicy, faults: Faults, block: u32) -> World {
    let mut world = World::with_policy(ServiceConfig::default(), Faults::default(), block, policy);
    world.upload(&contents(SIZE), temporary()).unwrap();
    world.service.set_faults(faults);
    world.sent_at.clear();
    world
}

/// Watches a transfer that never gets anywhere.
fn check(name: &str, faults: &Faults, procedure: Procedure) {
    for policy in POLICIES {
        for block in [1280, 32 << 10] {
            let mut world = world(policy, faults.clone(), block);
            let transfer = match procedure {
                Procedure::Read => world.new_download(SIZE),
                _ => world.new_upload(&contents(SIZE), resumable(None)),
            };
            (world.outcome, world.progress, world.moved_at) = (None, 0, None);
            let begin = world.now;
            world.session.start(begin, transfer);
            let (calls, ended) = busiest_second(&mut world, begin);
            let what = format!("{name}, {policy:?}, blocks of {block}");
            assert!(calls <= MOST_CALLS, "{what}: {calls} calls in one second");
            assert!(!ended, "{what}: {:?}", world.outcome);
        }
    }
}

#[test]
fn a_server_that_lets_nothing_move_gets_few_calls() {
    use Procedure::{Commit, Create, Read, Rename, Write};
    let actions = [
        ("not run", Action::DropCall),
        ("not answered", Action::DropReply),
        ("postponed", Action::Fail(Status::JUKEBOX)),
        ("refused", Action::Reject(Rejection::Authentication(1))),
    ];
    let calls = [(Create, 0), (Write, 0), (Write, 20), (Commit, 0), (Rename, 0), (Read, 0), (Read, 20)];
    for (procedure, after) in calls {
        for (name, action) in actions {
            let faults = Faults::from(vec![rule(Calls::Procedure(procedure), When::After(after), action)]);
            check(&format!("{procedure} {name} after the first {after}"), &faults, procedure);
        }
    }
}

#[test]
fn a_credential_that_is_refused_for_a_while_is_waited_for() {
    let refused = Action::Reject(Rejection::Authentication(1));
    let refuse = |seconds: u64| {
        let mut world = world(RetryPolicy::Adaptive, Faults::default(), 32 << 10);
        let data = contents(SIZE);
        let transfer = world.new_upload(&data, resumable(None));
        (world.outcome, world.progress) = (None, 0);
        world.session.start(world.now, transfer);
        world.run(|world| world.progress > SIZE as u64 / 2);
        world.service.set_faults(Faults::from(vec![rule(Calls::Any, When::Always, refused)]));
        let end = world.now + Duration::from_secs(seconds);
        world.run(|world| world.now >= end || world.outcome.is_some());
        world.service.set_faults(Faults::default());
        world.run(|world| world.outcome.is_some());
        let outcome = world.outcome.take().unwrap();
        assert!(outcome.is_err() || world.file() == data);
        outcome
    };
    assert_eq!(refuse(40), Ok(()));
    let outcome = refuse(100);
    assert!(matches!(outcome, Err(TransferError::Rejected { .. })), "{outcome:?}");
}

#[test]
fn a_server_that_says_nothing_about_its_limits_is_used_with_care() {
    let fsinfo = |action| Faults::from(vec![Rule::always(Procedure::Fsinfo, action)]);
    let actions =
        [Action::DropCall, Action::Fail(Status::IO), Action::Reject(Rejection::ProcedureUnavailable)];
    for action in actions {
        let mut world = World::with(ServiceConfig::default(), fsinfo(action), 1 << 20);
        world.mount();
        let data = contents(500_000);
        let begin = world.now;
        world.upload(&data, temporary()).unwrap();
        assert!(world.file() == data, "{action:?}");
        assert_eq!(world.largest_write, 32 << 10, "{action:?}");
        assert!(world.now < begin + Duration::from_secs(7), "{action:?}");
    }
}

#[test]
fn verifiers_that_always_change_end_an_upload_that_is_not_stable() {
    use Procedure::{Commit, Write};
    let always = |procedure, action| Rule::always(procedure, action);
    // WRITEs that are to be stable are, here: the third round ends it.
    for procedure in [Write, Commit] {
        let mut world = world(
            RetryPolicy::Adaptive,
            Faults::from(vec![always(procedure, Action::ChangeVerifier)]),
            32 << 10,
        );
        let data = contents(SIZE);
        world.upload(&data, resumable(None)).unwrap();
        world.service.crash();
        assert!(world.file() == data);
        assert!(world.progress <= 4 * SIZE as u64, "{procedure}: {} bytes were written", world.progress);
    }
}

#[test]
fn limits_are_asked_for_and_obeyed() {
    // As FreeBSD: more is an I/O error.
    let larger =
        |procedure, bytes| rule(Calls::Larger { procedure, bytes }, When::Always, Action::Fail(Status::IO));
    let mut faults = Faults::from(vec![larger(Procedure::Read, 10_000), larger(Procedure::Write, 7000)]);
    (faults.claimed_read_bytes, faults.claimed_write_bytes) = (Some(10_000), Some(7000));
    let mut world = World::with(ServiceConfig::default(), faults, 32 << 10);
    world.mount();
    let data = contents(500_000);
    world.upload(&data, temporary()).unwrap();
    assert!(world.file() == data);
    let Limits { read_block, write_block, .. } = world.session.limits();
    assert_eq!((read_block, write_block), (10_000, 7000));
    assert_eq!(world.largest_write, 7000, "not even the first one is larger");
    world.download(data.len()).unwrap();
    assert!(world.sink == data);
}
