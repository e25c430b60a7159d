//! WRITE and COMMIT: when data is stable, and which data is written again.

use nfs_wire::{DecodeError, rpc::Rejection};
use stable_how::{DATA_SYNC, FILE_SYNC, UNSTABLE};

use super::{
    super::{
        super::replies::{attributes, handle},
        *,
    },
    LIMITS,
    conversation::{
        Answer::{Committed, Done, Refused, Told, Twice, Written},
        Call::{self, Commit, Getattr, Guarded, Rename, Setattr, Write},
        Conversation, FILE, FILEID, Name, mode, spec, temporary,
    },
};
use crate::{attr::SetTime, engine::Pace};

const BLOCK: u64 = 4096;

/// An upload of so many blocks into a file that exists, so that WRITE is the first call.
fn existing(blocks: u64) -> Conversation {
    Conversation::new(spec(Placement::Existing(handle(FILE)), blocks * BLOCK))
}

/// As [`existing`], where a time is set afterwards.
fn dated(blocks: u64, mtime: SetTime) -> (Conversation, Call) {
    let attributes = SetAttributes { mtime: Some(mtime), ..SetAttributes::default() };
    let spec = spec(Placement::Existing(handle(FILE)), blocks * BLOCK);
    (Conversation::new(UploadSpec { attributes, ..spec }), Setattr(attributes))
}

/// WRITE of a whole block.
const fn write(block: u64, stable: stable_how) -> Call {
    Write(block * BLOCK, (block + 1) * BLOCK, stable)
}

/// The whole block is accepted as UNSTABLE, with this write verifier.
const fn unstable(verifier: u8) -> super::conversation::Answer {
    Written(BLOCK as u32, UNSTABLE, verifier)
}

#[test]
fn a_commit_leaves_as_soon_as_it_covers_all_that_is_not_stable() {
    let mut conversation = existing(3);
    assert_eq!(conversation.upload.next_call(LIMITS, &|_, _| false), None, "no room in the window");
    let calls: Vec<_> = (0..3).map(|_| conversation.call().unwrap()).collect();
    let expected = [(0, write(0, UNSTABLE)), (1, write(1, UNSTABLE)), (2, write(2, FILE_SYNC))];
    assert_eq!(calls.iter().map(|(next, call)| (next.part, *call)).collect::<Vec<_>>(), expected);
    assert_eq!(conversation.call(), None, "all are in flight");
    let accepted = Step::Written { asked: 4096, accepted: 4096 };
    assert_eq!(conversation.answer(calls[1], &Done), Ok(accepted));
    assert_eq!(conversation.call(), None, "the first one is not answered");
    conversation.answer(calls[0], &Done).unwrap();
    let commit = conversation.call().unwrap();
    assert_eq!(commit.1, Commit);
    assert_eq!((conversation.call(), conversation.upload.stable()), (None, 0));
    conversation.answer(commit, &Done).unwrap();
    assert_eq!((conversation.call(), conversation.upload.stable()), (None, 2 * BLOCK));
    assert!(!conversation.upload.is_done());
    conversation.answer(calls[2], &Done).unwrap();
    assert_eq!((conversation.upload.stable(), conversation.upload.is_done()), (3 * BLOCK, true));
}

#[test]
fn every_16_mib_a_commit_is_sent_alongside() {
    const MIB: u64 = 1 << 20;
    let mut conversation = Conversation::new(spec(Placement::Existing(handle(FILE)), 40 * MIB));
    conversation.limits.write_block = 1 << 20;
    let writes = |from: u64, to: u64| {
        (from..to).map(|it| (Write(it * MIB, (it + 1) * MIB, UNSTABLE), Done)).collect::<Vec<_>>()
    };
    conversation.run(&writes(0, 16)).unwrap();
    let commit = conversation.call().unwrap();
    assert_eq!(commit.1, Commit);
    conversation.run(&writes(16, 39)).unwrap();
    assert_eq!(conversation.upload.stable(), 0);
    conversation.answer(commit, &Done).unwrap();
    assert_eq!(conversation.upload.stable(), 16 * MIB, "it covers the WRITEs answered before it was sent");
    conversation.finish(&[(Commit, Done), (Write(39 * MIB, 40 * MIB, FILE_SYNC), Done)]);
}

#[test]
fn the_rest_of_a_short_write_is_written_again() {
    for committed in [DATA_SYNC, FILE_SYNC] {
        let mut conversation = existing(2);
        conversation.finish(&[
            (write(0, UNSTABLE), Written(1000, committed, 1)),
            (Write(1000, 1000 + BLOCK, UNSTABLE), Written(4096, committed, 1)),
            (Write(1000 + BLOCK, 2 * BLOCK, FILE_SYNC), Written(0, committed, 1)),
            (Write(1000 + BLOCK, 2 * BLOCK, FILE_SYNC), Written(3096, committed, 1)),
        ]);
        assert_eq!(conversation.upload.rewritten(), 0, "the server has lost nothing");
    }
}

#[test]
fn an_upload_fails_when_writes_make_no_progress() {
    let procedure = Procedure::Write;
    let no_progress = |reason| TransferError::NoProgress { procedure, reason };
    let table = [
        (Written(4097, UNSTABLE, 1), no_progress("WRITE claims more bytes than it was given")),
        (Refused(Status::NOSPC), TransferError::Status { procedure, status: Status::NOSPC }),
    ];
    for (answer, error) in table {
        assert_eq!(existing(2).run(&[(write(0, UNSTABLE), answer)]), Err(error));
    }
    let mut conversation = existing(100);
    for number in 0..8 {
        let bytes = |from| Write(from, from + BLOCK, UNSTABLE);
        conversation.run(&[(bytes(number), Written(0, UNSTABLE, 1))]).unwrap();
        // WRITEs that accept bytes in between do not reset the count.
        conversation.run(&[(bytes(number), Written(1, UNSTABLE, 1))]).unwrap();
    }
    let ninth = conversation.run(&[(Write(8, 8 + BLOCK, UNSTABLE), Written(0, UNSTABLE, 1))]);
    assert_eq!(ninth, Err(no_progress("WRITE accepts no bytes")));
}

#[test]
fn errors_name_the_procedure() {
    for procedure in [Procedure::Write, Procedure::Commit] {
        let reach = || {
            let mut conversation = existing(2);
            if procedure == Procedure::Commit {
                conversation.run(&[(write(0, UNSTABLE), Done), (write(1, FILE_SYNC), Done)]).unwrap();
            }
            let (next, call) = conversation.call().unwrap();
            assert_eq!(next.procedure, procedure);
            (conversation, next, call)
        };
        let (mut conversation, next, call) = reach();
        let error = TransferError::Status { procedure, status: Status::IO };
        assert_eq!(conversation.answer((next, call), &Refused(Status::IO)), Err(error));
        let (Conversation { mut upload, .. }, next, _) = reach();
        let effort = Effort { attempts: 1, elapsed: Duration::ZERO };
        let error = upload.handle_results(next.part, effort, &[], true);
        let truncated = DecodeError::Truncated { field: "status" };
        assert_eq!(error, Err(TransferError::Protocol { procedure, error: truncated }));
        let (Conversation { mut upload, .. }, next, _) = reach();
        let rejection = Rejection::SystemError;
        let error = TransferError::Rejected { procedure, rejection };
        assert_eq!(upload.handle_rejection(next.part, rejection), Err(error));
    }
    let Conversation { mut upload, .. } = existing(2);
    let part = upload.next_call(LIMITS, &|_, _| true).unwrap().part;
    let (procedure, rejection) = (Procedure::Write, Rejection::ProcedureUnavailable);
    let error = TransferError::Rejected { procedure, rejection };
    assert_eq!(upload.handle_rejection(part, rejection), Err(error));
}

#[test]
fn unstable_data_is_written_again_after_a_server_restart() {
    // The verifier of a WRITE has changed.
    let mut conversation = existing(3);
    conversation.finish(&[
        (write(0, UNSTABLE), unstable(1)),
        (write(1, UNSTABLE), unstable(2)),
        (write(0, UNSTABLE), unstable(2)),
        (write(2, FILE_SYNC), Written(4096, FILE_SYNC, 2)),
        (Commit, Committed(2)),
    ]);
    assert_eq!(conversation.upload.rewritten(), BLOCK);
    // The verifier of a COMMIT has changed.
    let mut conversation = existing(3);
    conversation.finish(&[
        (write(0, UNSTABLE), unstable(1)),
        (write(1, UNSTABLE), unstable(1)),
        (write(2, FILE_SYNC), Written(4096, FILE_SYNC, 1)),
        (Commit, Committed(2)),
        (write(0, UNSTABLE), unstable(2)),
        (write(1, FILE_SYNC), Written(4096, FILE_SYNC, 2)),
        (Commit, Committed(2)),
    ]);
    assert_eq!(conversation.upload.rewritten(), 2 * BLOCK);
}

#[test]
fn a_late_reply_from_before_a_restart_proves_nothing() {
    let mut conversation = existing(4);
    let calls: Vec<_> = (0..3).map(|_| conversation.call().unwrap()).collect();
    for (call, verifier) in [(0, 1), (1, 2), (2, 1)] {
        conversation.answer(calls[call], &unstable(verifier)).unwrap();
    }
    assert_eq!(conversation.upload.rewritten(), 2 * BLOCK);
    conversation.finish(&[
        (write(0, UNSTABLE), unstable(2)),
        (write(2, UNSTABLE), unstable(2)),
        (write(3, FILE_SYNC), Written(4096, FILE_SYNC, 2)),
        (Commit, Committed(2)),
    ]);
}

#[test]
fn writes_are_stable_once_a_verifier_has_changed_twice_without_a_commit_that_counts() {
    let mut conversation = existing(5);
    conversation.finish(&[
        (write(0, UNSTABLE), unstable(1)),
        (write(1, UNSTABLE), unstable(2)),
        (write(0, UNSTABLE), unstable(3)),
        (write(1, FILE_SYNC), Written(4096, FILE_SYNC, 4)),
        (write(2, FILE_SYNC), Written(4096, FILE_SYNC, 5)),
        (write(3, FILE_SYNC), Written(4096, FILE_SYNC, 6)),
        (write(4, FILE_SYNC), Written(4096, FILE_SYNC, 7)),
        (Commit, Committed(3)),
    ]);
}

#[test]
fn an_upload_fails_when_the_verifier_changes_five_times() {
    let reason = "its write verifier changes all the time, so that nothing becomes stable";
    let mut conversation = existing(100);
    conversation.run(&[(write(0, UNSTABLE), unstable(1)), (write(1, UNSTABLE), unstable(2))]).unwrap();
    conversation.run(&[(write(0, UNSTABLE), unstable(3))]).unwrap();
    conversation.run(&[(write(1, FILE_SYNC), unstable(4)), (write(0, FILE_SYNC), unstable(5))]).unwrap();
    let error = TransferError::NoProgress { procedure: Procedure::Write, reason };
    assert_eq!(conversation.run(&[(write(1, FILE_SYNC), unstable(6))]), Err(error));

    let mut conversation = existing(2);
    conversation.run(&[(write(0, UNSTABLE), unstable(1)), (write(1, FILE_SYNC), Done)]).unwrap();
    conversation.run(&[(Commit, Committed(2)), (write(0, FILE_SYNC), unstable(3))]).unwrap();
    conversation.run(&[(Commit, Committed(4)), (write(0, FILE_SYNC), unstable(5))]).unwrap();
    let error = TransferError::NoProgress { procedure: Procedure::Commit, reason };
    assert_eq!(conversation.run(&[(Commit, Committed(6))]), Err(error));
}

#[test]
fn every_write_is_stable_where_the_server_has_no_commit() {
    let mut conversation = existing(4);
    conversation.run(&[(write(0, UNSTABLE), Done), (write(1, UNSTABLE), Done)]).unwrap();
    let late = conversation.call().unwrap();
    conversation.run(&[(write(3, FILE_SYNC), Done)]).unwrap();
    conversation.answer(late, &Done).unwrap();
    let (commit, _) = conversation.call().unwrap();
    conversation.upload.handle_rejection(commit.part, Rejection::ProcedureUnavailable).unwrap();
    assert_eq!((conversation.upload.rewritten(), conversation.upload.stable()), (3 * BLOCK, BLOCK));
    conversation.finish(&[
        (write(0, FILE_SYNC), Done),
        (write(1, FILE_SYNC), Done),
        (write(2, FILE_SYNC), Done),
    ]);
}

#[test]
fn an_upload_fails_where_the_server_has_no_commit_and_makes_no_write_stable() {
    let mut conversation = existing(2);
    conversation.run(&[(write(0, UNSTABLE), Done), (write(1, FILE_SYNC), Done)]).unwrap();
    let (commit, _) = conversation.call().unwrap();
    conversation.upload.handle_rejection(commit.part, Rejection::ProcedureUnavailable).unwrap();
    let reason = "there is no COMMIT, and WRITE makes nothing stable";
    let error = TransferError::NoProgress { procedure: Procedure::Write, reason };
    assert_eq!(conversation.run(&[(write(0, FILE_SYNC), unstable(1))]), Err(error));
}

#[test]
fn an_unstable_write_in_flight_is_written_again_where_the_server_has_no_commit() {
    let mut conversation = Conversation::new(spec(Placement::Existing(handle(FILE)), 40 << 20));
    conversation.limits.write_block = 16 << 20;
    let block = |number: u64, stable| (Write(number << 24, ((number + 1) << 24).min(40 << 20), stable), Done);
    let late = conversation.call().unwrap();
    assert_eq!(late.1, block(0, UNSTABLE).0);
    conversation.run(&[block(1, UNSTABLE)]).unwrap();
    let (commit, _) = conversation.call().unwrap();
    conversation.upload.handle_rejection(commit.part, Rejection::ProcedureUnavailable).unwrap();
    conversation.answer(late, &Done).unwrap();
    conversation.finish(&[block(0, FILE_SYNC), block(1, FILE_SYNC), block(2, FILE_SYNC)]);
}

#[test]
fn calls_that_are_taken_back_or_put_off_are_made_again() {
    type Undo = fn(&mut Upload, u32);
    for undo in [Upload::take_back as Undo, Upload::put_off] {
        let mut conversation = existing(2);
        let (first, last) = (conversation.call().unwrap(), conversation.call().unwrap());
        undo(&mut conversation.upload, first.0.part);
        // The blocks are smaller now, and the part is free again.
        conversation.limits.write_block = 2048;
        let halves = [conversation.call().unwrap(), conversation.call().unwrap()];
        assert_eq!(halves.map(|(next, _)| next.part), [first.0.part, 2]);
        assert_eq!(halves.map(|(_, call)| call), [Write(0, 2048, UNSTABLE), Write(2048, 4096, FILE_SYNC)]);
        for call in [halves[1], last, halves[0]] {
            conversation.answer(call, &Done).unwrap();
        }
        let (commit, _) = conversation.call().unwrap();
        undo(&mut conversation.upload, commit.part);
        conversation.finish(&[(Commit, Done)]);
    }
}

#[test]
fn getattr_checks_the_time_where_a_late_copy_of_a_write_may_have_changed_it() {
    type Undo = Option<fn(&mut Upload, u32)>;
    let asked = SetTime::To(Time { seconds: 200, nanoseconds: 0 });
    // Which time is set, what becomes of the first WRITE, the attempts of the others, and the delay
    // of GETATTR in milliseconds.
    let table: [(SetTime, Undo, u32, Option<u64>); 6] = [
        (asked, None, 1, None),
        (asked, None, 2, Some(300)),
        (SetTime::ServerTime, None, 2, None),
        (asked, Some(Upload::put_off), 1, None),
        (asked, Some(Upload::take_back), 1, Some(100)),
        (asked, Some(Upload::take_back), 2, Some(300)),
    ];
    for (number, (mtime, undo, attempts, wait)) in table.into_iter().enumerate() {
        for found in [Told(attributes(FILEID, 2 * BLOCK)), Refused(Status::STALE)] {
            let (mut conversation, set) = dated(2, mtime);
            conversation.elapsed = Duration::from_millis(300);
            if let Some(undo) = undo {
                let (next, _) = conversation.call().unwrap();
                undo(&mut conversation.upload, next.part);
            }
            let done = if attempts == 2 { Twice(Box::new(Done)) } else { Done };
            conversation.run(&[(write(0, UNSTABLE), done.clone())]).unwrap();
            // A faster reply does not shorten the wait.
            conversation.elapsed = Duration::from_millis(30);
            conversation.run(&[(write(1, FILE_SYNC), done)]).unwrap();
            let (commit, _) = conversation.call().unwrap();
            // A late copy of a COMMIT changes nothing.
            conversation.upload.take_back(commit.part);
            conversation.run(&[(Commit, Done), (set, Done)]).unwrap();
            let look = conversation.call();
            assert_eq!(look.map(|(next, _)| next.delay), wait.map(Duration::from_millis), "row {number}");
            if let Some(look) = look {
                assert_eq!(look.1, Getattr);
                conversation.answer(look, &found).unwrap();
            }
            assert!(conversation.upload.is_done());
        }
    }
}

#[test]
fn a_time_is_checked_and_set_again_after_the_rename() {
    let asked = Time { seconds: 200, nanoseconds: 0 };
    let date = SetAttributes { mtime: Some(SetTime::To(asked)), ..SetAttributes::default() };
    let mut conversation = Conversation::new(UploadSpec { attributes: date, ..spec(temporary(), BLOCK) });
    let changed = |seconds| {
        let mut found = attributes(FILEID, BLOCK);
        found.mtime.seconds = seconds;
        Told(found)
    };
    conversation
        .run(&[
            (Guarded(Name::Temporary, mode(0o644)), Done),
            (write(0, FILE_SYNC), Twice(Box::new(Done))),
            // File systems may round times to whole seconds.
            (Setattr(date), changed(199)),
            (Rename, Done),
        ])
        .unwrap();
    assert_eq!(conversation.upload.leftover(), None);
    conversation.finish(&[(Getattr, changed(200)), (Setattr(date), changed(199)), (Getattr, changed(199))]);
}

#[test]
fn the_attributes_with_the_latest_ctime_are_kept() {
    let told = |ctime: u32, size| {
        let mut attributes = attributes(FILEID, size);
        attributes.ctime.seconds = ctime;
        attributes
    };
    let (mut conversation, set) = dated(4, SetTime::ServerTime);
    assert_eq!(conversation.upload.metadata(), None);
    // Replies may be reordered, have no attributes, or have the same time.
    let answers = [
        (Told(told(400, 1)), (400, 1)),
        (Told(told(350, 2)), (400, 1)),
        (unstable(1), (400, 1)),
        (Told(told(400, 4)), (400, 4)),
    ];
    for (number, (answer, (ctime, size))) in answers.into_iter().enumerate() {
        let stable = if number == 3 { FILE_SYNC } else { UNSTABLE };
        conversation.run(&[(write(number as u64, stable), answer)]).unwrap();
        assert_eq!(conversation.upload.metadata(), Some(Metadata::from(&told(ctime, size))), "{number}");
    }
    conversation.finish(&[(Commit, Done), (set, Told(told(500, 5)))]);
    assert_eq!(conversation.upload.metadata(), Some(Metadata::from(&told(500, 5))));
}

#[test]
fn the_last_two_windows_are_stable_at_once_where_pacing_leaves_the_server_time() {
    let paced = |(mut conversation, set): (Conversation, Option<Call>)| {
        conversation.limits.pace = Pace { bytes: 2 * BLOCK, spacing: Duration::from_millis(10) };
        (conversation, set)
    };
    // After the fifth block less than two windows remain.
    let (mut conversation, _) = paced((existing(8), None));
    let mut rounds: Vec<_> = (0..4).map(|it| (write(it, UNSTABLE), Done)).collect();
    rounds.extend([(write(4, FILE_SYNC), Done), (Commit, Done)]);
    rounds.extend((5..8).map(|it| (write(it, FILE_SYNC), Done)));
    conversation.finish(&rounds);
    // A late copy of such a WRITE could change a time that is set right after it.
    let (conversation, set) = dated(8, SetTime::ServerTime);
    let (mut conversation, set) = paced((conversation, Some(set)));
    let mut rounds: Vec<_> = (0..7).map(|it| (write(it, UNSTABLE), Done)).collect();
    rounds.extend([(write(7, FILE_SYNC), Done), (Commit, Done), (set.unwrap(), Done)]);
    conversation.finish(&rounds);
}

#[test]
fn stable_writes_are_sampled_where_the_window_has_eight_blocks() {
    const BLOCKS: u64 = 300;
    // Which blocks are stable at once, where a stable WRITE takes so many milliseconds longer than others.
    let stable = |milliseconds, dates: bool| {
        let (mut conversation, set) =
            if dates { dated(BLOCKS, SetTime::ServerTime) } else { (existing(BLOCKS), Commit) };
        conversation.limits.pace = Pace { bytes: 8 * BLOCK, spacing: Duration::from_millis(2) };
        let mut stable = Vec::new();
        let mut calls = 0;
        while let Some((next, call)) = conversation.call() {
            calls += 1;
            assert!(calls < 2 * BLOCKS, "the calls have no end");
            let is_stable = matches!(call, Write(_, _, FILE_SYNC));
            if let Write(offset, ..) = call
                && is_stable
            {
                stable.push(offset / BLOCK);
            }
            assert!(matches!(call, Write(..) | Commit) || call == set);
            conversation.elapsed = Duration::from_millis(50 + if is_stable { milliseconds } else { 0 });
            conversation.answer((next, call), &Done).unwrap();
        }
        assert!(conversation.upload.is_done());
        stable
    };
    let samples = [47, 95, 143];
    let end = |from| samples.into_iter().chain(from..BLOCKS).collect::<Vec<_>>();
    // Less than two windows remain after the first of the last 16 blocks.
    assert_eq!(stable(2, false), end(BLOCKS - 16));
    assert_eq!(stable(3, false), end(BLOCKS - 1), "a COMMIT takes less time");
    assert_eq!(stable(2, true), [BLOCKS - 1], "a time is to be set");
}
