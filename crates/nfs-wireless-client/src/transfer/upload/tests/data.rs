//! WRITE and COMMIT: what counts as stable, and what is written again.

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
        Call::{self, Commit, Getattr, Setattr, Write},
        Conversation, FILE, FILEID, spec,
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

/// All of it is accepted, as unstable, with this write verifier.
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
    assert_eq!(conversation.call(), None, "the first one is not acknowledged");
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
    assert_eq!(conversation.upload.stable(), 16 * MIB, "it covers what was acknowledged before it");
    conversation.finish(&[(Commit, Done), (Write(39 * MIB, 40 * MIB, FILE_SYNC), Done)]);
}

#[test]
fn what_a_write_leaves_is_written_again() {
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
fn writes_that_get_nowhere_end_it() {
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
        // Bytes in between change nothing.
        conversation.run(&[(bytes(number), Written(1, UNSTABLE, 1))]).unwrap();
    }
    let ninth = conversation.run(&[(Write(8, 8 + BLOCK, UNSTABLE), Written(0, UNSTABLE, 1))]);
    assert_eq!(ninth, Err(no_progress("WRITE accepts no bytes")));
}

#[test]
fn broken_replies_and_rejections_name_the_call() {
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
fn what_a_server_loses_as_it_restarts_is_written_again() {
    // A WRITE tells.
    let mut conversation = existing(3);
    conversation.finish(&[
        (write(0, UNSTABLE), unstable(1)),
        (write(1, UNSTABLE), unstable(2)),
        (write(0, UNSTABLE), unstable(2)),
        (write(2, FILE_SYNC), Written(4096, FILE_SYNC, 2)),
        (Commit, Committed(2)),
    ]);
    assert_eq!(conversation.upload.rewritten(), BLOCK);
    // COMMIT tells.
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
fn a_reply_from_before_a_restart_counts_for_nothing() {
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
fn a_server_that_makes_nothing_stable_is_given_up() {
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
fn without_commit_every_write_is_stable() {
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
fn calls_that_are_taken_back_or_put_off_are_made_again() {
    type Undo = fn(&mut Upload, u32);
    for undo in [Upload::take_back as Undo, Upload::put_off] {
        let mut conversation = existing(2);
        let (first, last) = (conversation.call().unwrap(), conversation.call().unwrap());
        undo(&mut conversation.upload, first.0.part);
        // Blocks have become smaller; the name is used again.
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
fn a_time_is_looked_at_where_a_copy_of_a_write_may_still_be_run() {
    type Undo = Option<fn(&mut Upload, u32)>;
    let asked = SetTime::To(Time { seconds: 200, nanoseconds: 0 });
    // Which time is set, what is undone, how often a WRITE was sent, and how long the look at the time waits.
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
            conversation.run(&[(write(0, UNSTABLE), done)]).unwrap();
            // What was quicker than another one changes nothing.
            conversation.elapsed = Duration::from_millis(30);
            let (commit, _) = {
                conversation
                    .run(&[(write(1, FILE_SYNC), if attempts == 2 { Twice(Box::new(Done)) } else { Done })])
                    .unwrap();
                conversation.call().unwrap()
            };
            // Another COMMIT harms nothing.
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
fn the_latest_attributes_that_the_server_told_are_known() {
    let told = |ctime: u32, size| {
        let mut attributes = attributes(FILEID, size);
        attributes.ctime.seconds = ctime;
        attributes
    };
    let (mut conversation, set) = dated(4, SetTime::ServerTime);
    assert_eq!(conversation.upload.metadata(), None);
    // Replies may overtake each other, and some bear no attributes. Two may bear the same time.
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
fn where_writes_are_far_apart_the_end_is_stable_at_once() {
    let paced = |(mut conversation, set): (Conversation, Option<Call>)| {
        conversation.limits.pace = Pace { bytes: 2 * BLOCK, spacing: Duration::from_millis(10) };
        (conversation, set)
    };
    // Two windows, less than which is left behind the fifth block.
    let (mut conversation, _) = paced((existing(8), None));
    let mut rounds: Vec<_> = (0..4).map(|it| (write(it, UNSTABLE), Done)).collect();
    rounds.extend([(write(4, FILE_SYNC), Done), (Commit, Done)]);
    rounds.extend((5..8).map(|it| (write(it, FILE_SYNC), Done)));
    conversation.finish(&rounds);
    // A time that is set right behind such WRITEs could be touched by a late copy of one.
    let (conversation, set) = dated(8, SetTime::ServerTime);
    let (mut conversation, set) = paced((conversation, Some(set)));
    let mut rounds: Vec<_> = (0..7).map(|it| (write(it, UNSTABLE), Done)).collect();
    rounds.extend([(write(7, FILE_SYNC), Done), (Commit, Done), (set.unwrap(), Done)]);
    conversation.finish(&rounds);
}

#[test]
fn the_time_to_make_a_write_stable_is_measured_on_long_paths() {
    const BLOCKS: u64 = 300;
    // How many blocks at the end are stable at once, and which are before, where a stable WRITE takes so many milliseconds longer.
    let stable = |milliseconds, dates: bool| {
        let (mut conversation, set) =
            if dates { dated(BLOCKS, SetTime::ServerTime) } else { (existing(BLOCKS), Commit) };
        conversation.limits.pace = Pace { bytes: 8 * BLOCK, spacing: Duration::from_millis(2) };
        let mut stable = Vec::new();
        while let Some((next, call)) = conversation.call() {
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
    // Twice what leaves in a round trip, less one block: that much is left behind the first of them.
    assert_eq!(stable(2, false), end(BLOCKS - 16));
    assert_eq!(stable(3, false), end(BLOCKS - 1), "COMMIT is quicker");
    assert_eq!(stable(2, true), [BLOCKS - 1], "a time is set, which late copies could touch");
}
