//! What a later upload resumes from, and when it restarts from the beginning.

use nfs_wire::{nfs3_types::nfs3::ftype3, rpc::Rejection};
use stable_how::{FILE_SYNC, UNSTABLE};

use super::{
    super::{
        super::replies::{attributes, handle},
        *,
    },
    conversation::{
        Answer::{self, Committed, Done, File, Handle, Refused, Written},
        Call::{self, Commit, Guarded, Lookup, Remove, Rename, Unchecked, Write},
        Conversation, FILE, FILEID,
        Name::{Target, Temporary},
        Round, mode, ranges, resize, spec, temporary,
    },
};
use crate::attr::SetTime;

const SIZE: u64 = 16_384;

/// Time of last access that a new temporary file is made with.
const MADE: Time = Time { seconds: 77, nanoseconds: 0 };

fn resumable(earlier: Option<Checkpoint>) -> UploadSpec {
    let (name, earlier) = (Temporary.bytes(), earlier.map(Box::new));
    spec(Placement::Resumable { name, made: MADE, earlier }, SIZE)
}

/// The checkpoint of an earlier upload: one block is stable, one is not.
fn earlier() -> Checkpoint {
    Checkpoint {
        fsid: 9,
        fileid: FILEID,
        made: Time { seconds: 100, nanoseconds: 0 },
        owner: 2,
        mode: 0o644,
        stable: ranges(&[(0, 4096)]),
        verifier: [1; 8],
        unstable: ranges(&[(4096, 8192)]),
    }
}

fn file(size: u64) -> Answer {
    File(FILE, attributes(FILEID, size))
}

/// CREATE of another temporary file.
fn create() -> Call {
    Guarded(Temporary, SetAttributes { atime: Some(SetTime::To(MADE)), ..mode(0o644) })
}

/// WRITEs of all from an offset, and what follows.
fn rest(from: u64) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut offset = from;
    while offset < SIZE {
        let end = SIZE.min(offset + 4096);
        rounds.push((Write(offset, end, if end == SIZE { FILE_SYNC } else { UNSTABLE }), Done));
        offset = end;
    }
    if rounds.len() > 1 {
        rounds.push((Commit, Done));
    }
    rounds.push((Rename, Done));
    rounds
}

#[test]
fn an_upload_resumes_after_the_data_that_the_server_still_has() {
    let settled = || Checkpoint { unstable: RangeSet::new(), ..earlier() };
    let all = || Checkpoint { unstable: ranges(&[(4096, SIZE)]), ..earlier() };
    let look = |size| (Lookup(Temporary), file(size));
    // The checkpoint, the calls that look what of it the server has, and the bytes resumed.
    let table = [
        (earlier(), vec![look(8192), (Commit, Committed(1))], 8192),
        (earlier(), vec![look(SIZE), (Commit, Committed(1))], 8192),
        (earlier(), vec![look(8192), (Commit, Committed(2))], 4096),
        (earlier(), vec![look(6000), (Commit, Committed(1))], 6000),
        (earlier(), vec![look(4096), (Commit, Committed(1))], 4096),
        (settled(), vec![look(8192)], 4096),
        (all(), vec![look(SIZE), (Commit, Committed(1))], SIZE),
    ];
    for (number, (earlier, rounds, resumed)) in table.into_iter().enumerate() {
        println!("row {number}");
        let mut conversation = Conversation::new(resumable(Some(earlier)));
        assert_eq!((conversation.upload.file(), conversation.upload.leftover()), (None, None));
        let (last, before) = rounds.split_last().unwrap();
        conversation.run(before).unwrap();
        assert_eq!(conversation.upload.resumed(), 0, "not known yet");
        conversation.run(std::slice::from_ref(last)).unwrap();
        let upload = &conversation.upload;
        assert_eq!((upload.resumed(), upload.stable(), upload.rewritten()), (resumed, resumed, 0));
        assert_eq!(upload.file(), Some(handle(FILE)));
        assert_eq!(upload.leftover(), Some(&Temporary.bytes()[..]));
        let File(_, found) = &rounds[0].1 else { panic!("LOOKUP finds a file") };
        assert_eq!(upload.metadata(), Some(Metadata::from(found)));
        conversation.finish(&rest(resumed));
    }
}

#[test]
fn holes_do_not_count_as_resumed() {
    let holes = ranges(&[(2048, 3072), (8192, SIZE)]);
    let stable = ranges(&[(0, 2048), (3072, 4096)]);
    let spec = || UploadSpec {
        holes: holes.clone(),
        ..resumable(Some(Checkpoint { stable: stable.clone(), ..earlier() }))
    };
    let mut conversation = Conversation::new(spec());
    conversation.run(&[(Lookup(Temporary), file(8192)), (Commit, Committed(2))]).unwrap();
    assert_eq!((conversation.upload.resumed(), conversation.upload.stable()), (3072, 4096 + 8192));
    assert_eq!(conversation.upload.checkpoint().unwrap().stable, stable);
    conversation.finish(&[(Write(4096, 8192, FILE_SYNC), Done), (resize(SIZE), Done), (Rename, Done)]);
}

#[test]
fn unstable_data_is_written_again_where_the_server_has_no_commit() {
    let mut conversation = Conversation::new(resumable(Some(earlier())));
    conversation.run(&[(Lookup(Temporary), file(8192))]).unwrap();
    let (commit, _) = conversation.call().unwrap();
    conversation.upload.handle_rejection(commit.part, Rejection::ProcedureUnavailable).unwrap();
    assert_eq!(conversation.upload.resumed(), 4096);
    let mut rounds: Vec<_> = (1..4).map(|it| (Write(it * 4096, (it + 1) * 4096, FILE_SYNC), Done)).collect();
    rounds.push((Rename, Done));
    conversation.finish(&rounds);
}

#[test]
fn another_file_of_the_temporary_name_is_removed() {
    let change = |change: fn(&mut fattr3)| {
        let mut attributes = attributes(FILEID, 8192);
        change(&mut attributes);
        File(FILE, attributes)
    };
    let found = [
        change(|it| it.type_ = ftype3::NF3DIR),
        change(|it| it.fsid += 1),
        change(|it| it.fileid += 1),
        change(|it| it.atime.seconds += 1),
        change(|it| it.atime.nseconds += 1),
        change(|it| it.size = 4095),
        change(|it| it.uid += 1),
        change(|it| it.nlink = 2),
        change(|it| it.mode = 0o646),
        Handle(FILE),
    ];
    for found in found {
        println!("{found:?}");
        let mut conversation = Conversation::new(resumable(Some(earlier())));
        conversation.run(&[(Lookup(Temporary), found), (Remove(Temporary), Done), (create(), Done)]).unwrap();
        assert_eq!((conversation.upload.resumed(), conversation.upload.stable()), (0, 0));
        conversation.finish(&rest(0));
    }
}

#[test]
fn an_upload_is_done_when_the_earlier_one_has_renamed_its_file() {
    let time = |seconds| Some(SetTime::To(Time { seconds, nanoseconds: 0 }));
    let dated = |atime, mtime| SetAttributes { atime, mtime, ..SetAttributes::default() };
    let change = |change: fn(&mut fattr3)| {
        let mut attributes = attributes(FILEID, SIZE);
        change(&mut attributes);
        File(FILE, attributes)
    };
    let read = || change(|it| it.atime.seconds = 101);
    let plain = SetAttributes::default;
    // The times to set, what LOOKUP of the target finds, and whether that is the earlier upload's file.
    let table = [
        (plain(), change(|_| {}), true),
        (plain(), read(), false),
        (dated(time(101), time(200)), read(), true),
        (dated(time(102), time(200)), read(), false),
        (dated(time(101), time(201)), read(), false),
        (dated(time(101), None), read(), false),
        (dated(None, time(200)), read(), false),
        (dated(Some(SetTime::ServerTime), time(200)), read(), false),
        (plain(), change(|it| it.type_ = ftype3::NF3LNK), false),
        (plain(), change(|it| it.fsid += 1), false),
        (plain(), change(|it| it.fileid += 1), false),
        (plain(), change(|it| it.size += 1), false),
        (plain(), change(|it| it.uid += 1), false),
        (plain(), Handle(FILE), false),
        (plain(), Refused(Status::NOENT), false),
    ];
    for (number, (attributes, found, is_complete)) in table.into_iter().enumerate() {
        let spec = UploadSpec { attributes, ..resumable(Some(earlier())) };
        let mut conversation = Conversation::new(spec);
        conversation.run(&[(Lookup(Temporary), Refused(Status::NOENT)), (Lookup(Target), found)]).unwrap();
        assert_eq!(conversation.upload.is_done(), is_complete, "row {number}");
        assert_eq!(conversation.upload.leftover(), None);
        assert_eq!(conversation.call().map(|(_, call)| call), (!is_complete).then(create), "row {number}");
    }
}

#[test]
fn errors_name_the_procedure() {
    let look = || (Lookup(Temporary), Refused(Status::NOENT));
    let table = [
        (vec![], Lookup(Temporary), Procedure::Lookup),
        (vec![look()], Lookup(Target), Procedure::Lookup),
        (vec![(Lookup(Temporary), file(8192))], Commit, Procedure::Commit),
    ];
    for (rounds, call, procedure) in table {
        let mut conversation = Conversation::new(resumable(Some(earlier())));
        conversation.run(&rounds).unwrap();
        let error = TransferError::Status { procedure, status: Status::IO };
        assert_eq!(conversation.run(&[(call, Refused(Status::IO))]), Err(error));

        for rejection in [Rejection::SystemError, Rejection::ProcedureUnavailable] {
            if (call, rejection) == (Commit, Rejection::ProcedureUnavailable) {
                continue;
            }
            let mut conversation = Conversation::new(resumable(Some(earlier())));
            conversation.run(&rounds).unwrap();
            let (next, _) = conversation.call().unwrap();
            let error = TransferError::Rejected { procedure, rejection };
            assert_eq!(conversation.upload.handle_rejection(next.part, rejection), Err(error));
        }
    }
}

#[test]
fn a_checkpoint_has_the_stable_and_the_unstable_ranges_and_the_verifier() {
    let spec = UploadSpec { holes: ranges(&[(12_288, SIZE)]), ..resumable(None) };
    let mut conversation = Conversation::new(spec);
    assert_eq!(conversation.upload.checkpoint(), None, "there is no file yet");
    conversation.run(&[(create(), file(0))]).unwrap();
    let nothing =
        Checkpoint { stable: RangeSet::new(), verifier: [0; 8], unstable: RangeSet::new(), ..earlier() };
    assert_eq!(conversation.upload.checkpoint(), Some(nothing));
    conversation
        .run(&[
            (Write(0, 4096, UNSTABLE), Written(4096, FILE_SYNC, 1)),
            (Write(4096, 8192, UNSTABLE), Written(4096, UNSTABLE, 1)),
        ])
        .unwrap();
    assert_eq!(conversation.upload.checkpoint(), Some(earlier()));
    // A later upload resumes from it.
    let mut later = Conversation::new(resumable(conversation.upload.checkpoint()));
    later.run(&[(Lookup(Temporary), file(8192)), (Commit, Committed(1))]).unwrap();
    later.finish(&rest(8192));
}

#[test]
fn there_is_no_checkpoint_of_a_file_that_cannot_be_identified() {
    // Another placement.
    let mut conversation = Conversation::new(spec(temporary(), SIZE));
    conversation.run(&[(Guarded(Temporary, mode(0o644)), file(0))]).unwrap();
    assert_eq!(conversation.upload.checkpoint(), None);
    // No attributes.
    let mut conversation = Conversation::new(resumable(None));
    conversation.run(&[(create(), Handle(FILE))]).unwrap();
    assert_eq!(conversation.upload.checkpoint(), None);
    // The file that an UNCHECKED CREATE returns may be older, unless it is empty.
    for (found, has_checkpoint) in [(file(0), true), (file(1), false)] {
        let mut conversation = Conversation::new(resumable(None));
        let plain = mode(0o644);
        conversation
            .run(&[
                (create(), Refused(Status::NOTSUPP)),
                (Guarded(Temporary, plain), Refused(Status::NOTSUPP)),
                (Lookup(Temporary), Refused(Status::NOENT)),
                (Unchecked(Temporary, plain), found),
            ])
            .unwrap();
        assert_eq!(conversation.upload.checkpoint().is_some(), has_checkpoint);
    }
}
