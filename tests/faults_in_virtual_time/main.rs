//! The client's session against the embedded server, with every fault the server can be told to have, and behind a network
//! that cuts, delays, repeats and damages.
//!
//! Client and server are the machines that the programs run; only the wire between them and the clock are made up here.

mod cuts;
mod holes;
mod mangled;
mod rates;
mod trouble;
mod world;

use std::time::Duration;

use nfs_proto::transfer::{Checkpoint, Limits, Placement, Range, TransferError};
use nfs_wire::{
    Procedure, Status,
    nfs3_types::nfs3::{Nfs3Option, nfstime3, sattr3, set_atime, set_mtime},
    rpc::Rejection,
};
use nfs_wireless_server::{Action, Calls, Faults, Rule, ServiceConfig, When, vfs::Name};
use proptest::prelude::*;
use world::{World, contents, resumable, rule, temporary};

/// Copies in and out with these faults and compares.
fn survives(faults: Faults) -> World {
    survives_with(ServiceConfig::default(), faults, 4096)
}

fn survives_with(config: ServiceConfig, faults: Faults, block: u32) -> World {
    let data = contents(100_001);
    let mut world = World::with(config, faults, block);
    world.upload(&data, temporary()).unwrap();
    assert!(world.file() == data, "what arrived at the server differs");
    assert_eq!(world.list().unwrap(), [b"file"], "no temporary file is left");
    world.download(data.len()).unwrap();
    assert!(world.sink == data, "what came back differs");
    world
}

#[test]
fn a_clean_server_gets_every_byte_once() {
    let world = survives(Faults::default());
    assert_eq!(world.session.stats().resends.total(), 0);
    assert_eq!(world.progress, 100_001);
}

#[test]
fn an_empty_file_is_made_and_read() {
    let mut world = World::new(Faults::default());
    world.upload(b"", temporary()).unwrap();
    assert_eq!(world.file(), b"");
    world.download(0).unwrap();
}

#[test]
fn lost_calls_and_replies_are_repaired() {
    for action in [Action::DropCall, Action::DropReply] {
        let world = survives(Faults::from(vec![rule(Calls::Program(100_003), When::Chance(0.2), action)]));
        assert!(world.session.stats().resends.timeout > 5);
    }
}

#[test]
fn lost_replies_without_a_reply_cache_are_repaired() {
    let mut config = ServiceConfig::default();
    config.reply_cache = None;
    let chance = rule(Calls::Program(100_003), When::Chance(0.3), Action::DropReply);
    survives_with(config.clone(), Faults::from(vec![chance]), 4096);
    // The rename's own reply is lost, and the server does not remember that it did it.
    let rename = rule(Calls::Procedure(Procedure::Rename), When::First(1), Action::DropReply);
    survives_with(config, Faults::from(vec![rename]), 4096);
}

#[test]
fn delayed_reordered_and_duplicated_replies_are_harmless() {
    let actions =
        [Action::DelayReply(Duration::from_millis(900)), Action::ReorderReply, Action::DuplicateReply];
    for action in actions {
        survives(Faults::from(vec![rule(Calls::Program(100_003), When::Chance(0.3), action)]));
    }
}

#[test]
fn a_spurious_resend_is_counted() {
    let slow = Action::DelayReply(Duration::from_millis(900));
    let calls = Calls::Procedure(Procedure::Read);
    let mut world = World::new(Faults::from(vec![rule(calls, When::First(1), slow)]));
    world.upload(&contents(4096), temporary()).unwrap();
    world.download(4096).unwrap();
    // The delayed reply is still to come.
    world.run(|world| world.session.stats().stray_replies == 1);
    assert_eq!(world.session.stats().resends.timeout, 1);
    assert_eq!(world.session.stats().spurious_resends, 1);
}

#[test]
fn short_reads_and_writes_go_on_where_the_server_stopped() {
    let shorten = |procedure| rule(Calls::Procedure(procedure), When::Chance(0.5), Action::Shorten(1000));
    let world = survives(Faults::from(vec![shorten(Procedure::Read), shorten(Procedure::Write)]));
    assert!(world.session.stats().calls > 60);
}

#[test]
fn jukebox_is_waited_for() {
    for procedure in
        [Procedure::Create, Procedure::Write, Procedure::Commit, Procedure::Rename, Procedure::Read]
    {
        let world = survives(Faults::jukebox(procedure, 3));
        assert_eq!(world.session.stats().postponed, 3, "{procedure}");
    }
}

#[test]
fn a_changed_verifier_makes_unstable_data_be_written_again() {
    let calls = Calls::Procedure(Procedure::Write);
    let world = survives(Faults::from(vec![rule(calls, When::Nth(20), Action::ChangeVerifier)]));
    assert!(world.session.stats().calls > 25 + 19);
    // At the COMMIT, when nothing is left to be written.
    let calls = Calls::Procedure(Procedure::Commit);
    survives(Faults::from(vec![rule(calls, When::Nth(1), Action::ChangeVerifier)]));
}

#[test]
fn a_crash_that_loses_uncommitted_data_loses_nothing_of_the_upload() {
    for procedure in [Procedure::Write, Procedure::Commit] {
        for nth in [1, 2, 5, 24] {
            let crash = rule(Calls::Procedure(procedure), When::Nth(nth), Action::Crash);
            survives(Faults::from(vec![crash]));
        }
    }
    let crashes = rule(Calls::Procedure(Procedure::Write), When::Chance(0.02), Action::Crash);
    survives(Faults::from(vec![crashes]));
}

#[test]
fn a_server_without_commit_is_enough() {
    survives(Faults::no_commit());
    let only_commit = Rule::always(Procedure::Commit, Action::Reject(Rejection::ProcedureUnavailable));
    let world = survives(Faults::from(vec![only_commit]));
    assert!(world.session.stats().calls > 50, "everything is written again, stably");
}

#[test]
fn a_server_that_ignores_large_calls_is_asked_for_less() {
    let world = survives_with(ServiceConfig::default(), Faults::silent_above(8192), 32 << 10);
    let Limits { read_block, write_block, .. } = world.session.limits();
    assert_eq!((read_block, write_block), (8192, 8192));
}

#[test]
fn a_server_that_rejects_large_calls_is_asked_for_less() {
    let larger = |procedure, rejection| {
        rule(Calls::Larger { procedure, bytes: 8192 }, When::Always, Action::Reject(rejection))
    };
    let faults = Faults::from(vec![
        larger(Procedure::Read, Rejection::SystemError),
        larger(Procedure::Write, Rejection::GarbageArguments),
    ]);
    let world = survives_with(ServiceConfig::default(), faults, 32 << 10);
    let Limits { read_block, write_block, .. } = world.session.limits();
    assert_eq!((read_block, write_block), (8192, 8192));
}

#[test]
fn uploads_do_without_what_a_server_refuses_in_create() {
    let guarded = || rule(Calls::GuardedCreate, When::Always, Action::Fail(Status::NOTSUPP));
    let timed = || rule(Calls::TimedCreate, When::Always, Action::Fail(Status::INVAL));
    for rules in [vec![guarded()], vec![timed()], vec![timed(), guarded()]] {
        for leftover in [false, true] {
            let mut world = World::new(Faults::from(rules.clone()));
            if leftover {
                let time = nfstime3 { seconds: 1, nseconds: 0 };
                world.service.backend().write_file(time, b"/.file.part", &contents(50_000)).unwrap();
            }
            let data = contents(30_000);
            let checkpoint = world.interrupted_upload(&data, 10_000);
            world.upload(&data, resumable(Some(checkpoint))).unwrap();
            assert!(world.progress < 30_000, "it is resumed all the same");
            assert!(world.file() == data);
            assert_eq!(world.list().unwrap(), [b"file"]);
        }
    }
}

#[test]
fn a_name_that_is_taken_and_is_not_ends_the_upload() {
    // As nfs3_server, but for ever.
    let mut world = World::new(Faults::from(vec![
        Rule::always(Procedure::Create, Action::Fail(Status::EXIST)),
        Rule::always(Procedure::Remove, Action::Fail(Status::NOENT)),
    ]));
    let time = nfstime3 { seconds: 1, nseconds: 0 };
    world.service.backend().write_file(time, b"/.file.part", b"somebody's leftover").unwrap();
    let error = world.upload(&contents(30_000), temporary()).unwrap_err();
    assert!(matches!(error, TransferError::NoProgress { procedure: Procedure::Create, .. }), "{error:?}");
    assert!(world.session.stats().calls < 20);
}

#[test]
fn odd_handles_work() {
    let mut config = ServiceConfig::default();
    config.handle_bytes = 25;
    survives_with(config, Faults::default(), 4096);
}

#[test]
fn errors_in_the_middle_end_the_transfer_with_their_status() {
    for status in [Status::NOSPC, Status::STALE, Status::IO] {
        let mut world = World::new(Faults::fail_at(Procedure::Write, 50_000, status));
        let error = world.upload(&contents(100_000), temporary()).unwrap_err();
        assert_eq!(error, TransferError::Status { procedure: Procedure::Write, status });
        assert!(world.service.backend().read_file(b"/file").is_err(), "the target never appears");
        assert_eq!(world.session.outstanding(), 0, "nothing is left behind");
    }
    let mut world = World::new(Faults::fail_at(Procedure::Read, 50_000, Status::IO));
    world.upload(&contents(100_000), temporary()).unwrap();
    let error = world.download(100_000).unwrap_err();
    assert_eq!(error, TransferError::Status { procedure: Procedure::Read, status: Status::IO });
}

#[test]
fn a_file_that_shrank_is_noticed() {
    // A short READ first would leave it to a READ behind the end to find that out, and not where the end is.
    let mut config = ServiceConfig::default();
    config.validates_addresses = false;
    let mut world = World::with(config, Faults::default(), 4096);
    world.upload(&contents(10_000), temporary()).unwrap();
    let error = world.download(20_000).unwrap_err();
    assert_eq!(error, TransferError::SourceShrank { expected: 20_000, found: 10_000 });
}

#[test]
fn an_existing_target_is_replaced_and_a_leftover_cleared() {
    let mut world = World::new(Faults::default());
    let time = nfstime3 { seconds: 1, nseconds: 0 };
    world.service.backend().write_file(time, b"/file", &contents(500_000)).unwrap();
    world.service.backend().write_file(time, b"/.file.part", b"somebody's leftover").unwrap();
    let data = contents(30_000);
    world.upload(&data, temporary()).unwrap();
    assert!(world.file() == data);
    assert_eq!(world.list().unwrap(), [b"file"]);
}

#[test]
fn an_interrupted_upload_goes_on_where_it_was() {
    let mut world = World::new(Faults::default());
    let data = contents(500_000);
    let checkpoint = world.interrupted_upload(&data, 300_000);
    let had = checkpoint.stable.bytes() + checkpoint.unstable.bytes();
    assert!(had >= 300_000 && checkpoint.stable.is_empty(), "{checkpoint:?}");
    world.upload(&data, resumable(Some(checkpoint.clone()))).unwrap();
    assert_eq!(world.progress, 500_000 - had, "what the server has is not sent again");
    world.upload(&data, resumable(Some(checkpoint))).unwrap();
    assert_eq!(world.progress, 0, "nor is a file that got its name just before the end");
    world.service.crash();
    assert!(world.file() == data, "and is stable with the rest");
    assert_eq!(world.list().unwrap(), [b"file"]);
}

#[test]
fn what_a_server_forgot_since_is_sent_again() {
    let mut world = World::new(Faults::default());
    let data = contents(500_000);
    let mut checkpoint = world.interrupted_upload(&data, 300_000);
    // The first 100,000 bytes had been committed, so that the restart costs the others only.
    let (file, time) = (b"/.file.part", nfstime3 { seconds: 1, nseconds: 0 });
    world.service.backend().write_file(time, file, &data[..100_000]).unwrap();
    checkpoint.stable.insert(Range { start: 0, end: 100_000 });
    world.service.crash();
    world.upload(&data, resumable(Some(checkpoint))).unwrap();
    assert_eq!(world.progress, 400_000);
    assert!(world.file() == data);
}

#[test]
fn a_temporary_file_that_is_another_is_not_resumed() {
    let data = contents(500_000);
    let time = nfstime3 { seconds: 1, nseconds: 0 };
    let replace: [fn(&mut World); 4] = [
        // Removed.
        |world| {
            let root = world.service.backend().root();
            let name = Name::new(b".file.part").unwrap();
            world.service.backend().remove(nfstime3::default(), root, name).unwrap();
        },
        // Cut.
        |world| {
            let cut = sattr3 { size: Nfs3Option::Some(5000), ..no_changes() };
            let node = world.service.backend().resolve(b"/.file.part").unwrap();
            world.service.backend().set_attributes(nfstime3::default(), node, &cut).unwrap();
        },
        // Made anew under the same number.
        |world| {
            let other = nfstime3 { seconds: 1_000_000_001, nseconds: 0 };
            let touched = sattr3 { atime: set_atime::SET_TO_CLIENT_TIME(other), ..no_changes() };
            let node = world.service.backend().resolve(b"/.file.part").unwrap();
            world.service.backend().set_attributes(nfstime3::default(), node, &touched).unwrap();
        },
        // Renamed.
        |world| {
            let root = world.service.backend().root();
            let name = Name::new(b".file.part").unwrap();
            let time = nfstime3::default();
            world.service.backend().rename(time, (root, name), (root, Name::new(b"moved").unwrap())).unwrap();
        },
    ];
    for (number, replace) in replace.into_iter().enumerate() {
        let mut world = World::new(Faults::default());
        let mut checkpoint = world.interrupted_upload(&data, 300_000);
        let node = world.service.backend().resolve(b"/.file.part").unwrap();
        world.service.backend().commit(node, 0, 0).unwrap();
        checkpoint.stable = std::mem::take(&mut checkpoint.unstable);
        replace(&mut world);
        world.service.backend().write_file(time, b"/bystander", b"").unwrap();
        world.upload(&data, resumable(Some(checkpoint))).unwrap();
        assert_eq!(world.progress, 500_000, "case {number}: everything is sent again");
        assert!(world.file() == data, "case {number}");
    }
}

#[test]
fn writing_in_place_cuts_what_was_longer() {
    let mut world = World::new(Faults::default());
    let time = nfstime3 { seconds: 1, nseconds: 0 };
    world.service.backend().write_file(time, b"/file", &contents(500_000)).unwrap();
    let data = contents(30_000);
    world.upload(&data, Placement::InPlace).unwrap();
    assert!(world.file() == data);
}

#[test]
fn listings_fall_back_to_readdir_and_notice_circles() {
    let fill = |world: &mut World| {
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        for index in 0..300 {
            let path = format!("/entry-{index:03}");
            world.service.backend().write_file(time, path.as_bytes(), b"").unwrap();
        }
    };
    for faults in [Faults::default(), Faults::no_readdirplus()] {
        let mut world = World::new(faults);
        fill(&mut world);
        let mut names = world.list().unwrap();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 300);
    }
    let stuck = |procedure| Rule::always(procedure, Action::StickCookie);
    let mut world = World::new(Faults::from(vec![stuck(Procedure::Readdirplus), stuck(Procedure::Readdir)]));
    fill(&mut world);
    assert!(matches!(world.list(), Err(TransferError::NoProgress { .. })));
}

fn no_changes() -> sattr3 {
    sattr3 {
        mode: Nfs3Option::None,
        uid: Nfs3Option::None,
        gid: Nfs3Option::None,
        size: Nfs3Option::None,
        atime: set_atime::DONT_CHANGE,
        mtime: set_mtime::DONT_CHANGE,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Uploads that are interrupted again and again while the server restarts are right in the end, and what was committed
    /// is never sent twice.
    #[test]
    fn any_number_of_interruptions_and_restarts_is_survived(
        steps in prop::collection::vec((1_u64..80_000, any::<bool>()), 1..8),
    ) {
        let data = contents(300_000);
        let mut world = World::new(Faults::default());
        let mut earlier: Option<Checkpoint> = None;
        for (bytes, crashes) in steps {
            let left = 300_000 - earlier.as_ref().map_or(0, |it| it.stable.bytes() + it.unstable.bytes());
            if left <= bytes + 40_000 {
                break;
            }
            let upload = world.new_upload(&data, resumable(earlier.take()));
            (world.outcome, world.progress) = (None, 0);
            let id = world.session.start(world.now, upload);
            world.run(|world| world.progress >= bytes);
            earlier = world.session.upload(id).unwrap().checkpoint();
            world.session.stop(world.now, id);
            if crashes {
                world.service.crash();
            }
        }
        let stable = earlier.as_ref().map_or(0, |it| it.stable.bytes());
        world.upload(&data, resumable(earlier)).unwrap();
        prop_assert!(world.progress <= 300_000 - stable);
        world.service.crash();
        prop_assert!(world.file() == data);
        prop_assert_eq!(world.list().unwrap(), [b"file"]);
    }

    /// Any mixture of faults that a server recovers from: the bytes are right in the end.
    #[test]
    fn any_mixture_of_faults_is_survived(
        loss in 0.0..0.3, reorder in 0.0..0.3, duplicate in 0.0..0.3, short in 0.0..0.3, crash in 0.0..0.02,
        cache: bool,
    ) {
        let mut config = ServiceConfig::default();
        if !cache {
            config.reply_cache = None;
        }
        let nfs = Calls::Program(100_003);
        survives_with(config, Faults::from(vec![
            rule(nfs, When::Chance(loss / 2.0), Action::DropCall),
            rule(nfs, When::Chance(loss / 2.0), Action::DropReply),
            rule(nfs, When::Chance(reorder), Action::ReorderReply),
            rule(nfs, When::Chance(duplicate), Action::DuplicateReply),
            rule(Calls::Procedure(Procedure::Read), When::Chance(short), Action::Shorten(700)),
            rule(Calls::Procedure(Procedure::Write), When::Chance(short), Action::Shorten(700)),
            rule(Calls::Procedure(Procedure::Write), When::Chance(crash), Action::Crash),
        ]), 4096);
    }
}
