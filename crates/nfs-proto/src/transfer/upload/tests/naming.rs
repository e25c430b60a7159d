//! CREATE, SETATTR and RENAME, and what the server may have under either name before.

use nfs_wire::{nfs3_types::nfs3::nfstime3, rpc::Rejection};
use stable_how::FILE_SYNC;

use super::{
    super::{
        super::replies::{attributes, handle},
        *,
    },
    conversation::{
        Answer::{self, Done, File, Handle, NoHandle, Refused, Twice},
        Call::{self, Commit, Getattr, Guarded, Guarding, Lookup, Remove, Rename, Setattr, Unchecked, Write},
        Conversation, FILE, FILEID,
        Name::{Target, Temporary},
        Round, mode, ranges, resize, size, spec, temporary,
    },
};
use crate::attr::SetTime;

const UNSTABLE: stable_how = stable_how::UNSTABLE;
const MADE: Time = Time { seconds: 77, nanoseconds: 5 };

fn resumable(earlier: Option<Checkpoint>) -> Placement {
    Placement::Resumable { name: Temporary.bytes(), made: MADE, earlier: earlier.map(Box::new) }
}

fn marked(attributes: SetAttributes) -> SetAttributes {
    SetAttributes { atime: Some(SetTime::To(MADE)), ..attributes }
}

/// CREATE GUARDED of the temporary file.
const fn create() -> Call {
    let attributes =
        SetAttributes { mode: Some(0o644), uid: None, gid: None, size: None, atime: None, mtime: None };
    Guarded(Temporary, attributes)
}

#[test]
fn an_upload_without_failures_makes_these_calls() {
    let in_place = || spec(Placement::InPlace, 10);
    let existing = |size| spec(Placement::Existing(handle(FILE)), size);
    let made = |size| UploadSpec {
        made: Some((handle(FILE), Metadata::from(&attributes(FILEID, 0)))),
        ..spec(temporary(), size)
    };
    let owner = SetAttributes { uid: Some(4), gid: Some(5), ..SetAttributes::default() };
    let holes = |holes: &[(u64, u64)], it: UploadSpec| UploadSpec { holes: ranges(holes), ..it };
    let read_only = |it: UploadSpec| UploadSpec { mode: 0o444, ..it };
    let with = |attributes, it: UploadSpec| UploadSpec { attributes, ..it };
    let write = Write(0, 10, FILE_SYNC);
    let table: Vec<(&str, UploadSpec, Vec<Call>)> = vec![
        ("nothing to write", spec(temporary(), 0), vec![create(), Rename]),
        (
            "one block needs no COMMIT",
            spec(temporary(), 4096),
            vec![create(), Write(0, 4096, FILE_SYNC), Rename],
        ),
        (
            "the last block is stable at once, so that the COMMIT need not wait for it",
            spec(temporary(), 9000),
            vec![
                create(),
                Write(0, 4096, UNSTABLE),
                Write(4096, 8192, UNSTABLE),
                Write(8192, 9000, FILE_SYNC),
                Commit,
                Rename,
            ],
        ),
        (
            "attributes are set before the name",
            with(owner, spec(temporary(), 10)),
            vec![create(), write, Setattr(owner), Rename],
        ),
        (
            "the owner may write until the data is stable",
            read_only(spec(temporary(), 10)),
            vec![create(), write, Setattr(mode(0o444)), Rename],
        ),
        (
            "a mode among the attributes takes precedence",
            with(mode(0o400), read_only(spec(temporary(), 10))),
            vec![create(), write, Setattr(mode(0o400)), Rename],
        ),
        ("made ahead", made(10), vec![write, Rename]),
        (
            "the caller names it",
            UploadSpec { gets_name: false, ..with(owner, spec(temporary(), 10)) },
            vec![create(), write, Setattr(owner)],
        ),
        ("made ahead, and nothing to write", made(0), vec![Rename]),
        (
            "in place: SETATTR truncates what was longer",
            in_place(),
            vec![Unchecked(Target, mode(0o644)), write, resize(10)],
        ),
        (
            "in place, read-only",
            read_only(in_place()),
            vec![
                Unchecked(Target, mode(0o644)),
                write,
                Guarding(SetAttributes { mode: Some(0o444), ..size(10) }, 300),
            ],
        ),
        ("an existing file keeps its mode and size", read_only(existing(10)), vec![write]),
        ("an existing file gets attributes", with(owner, existing(10)), vec![write, Setattr(owner)]),
        ("an existing file, and nothing to write", existing(0), vec![]),
        (
            "a resumable file is made with a time of last access",
            spec(resumable(None), 10),
            vec![Guarded(Temporary, marked(mode(0o644))), write, Rename],
        ),
        (
            "holes are not written",
            holes(&[(3, 5)], spec(temporary(), 10)),
            vec![create(), Write(0, 3, FILE_SYNC), Write(5, 10, FILE_SYNC), Rename],
        ),
        (
            "SETATTR makes a hole at the end",
            holes(&[(3, 5), (8, 20)], spec(temporary(), 10)),
            vec![create(), Write(0, 3, FILE_SYNC), Write(5, 8, FILE_SYNC), resize(10), Rename],
        ),
        ("nothing but a hole", holes(&[(0, 10)], spec(temporary(), 10)), vec![create(), resize(10), Rename]),
        (
            "an existing file may have data where the source has holes",
            holes(&[(3, 5)], existing(10)),
            vec![write],
        ),
        (
            "a target in place may, too",
            holes(&[(3, 10)], in_place()),
            vec![Unchecked(Target, mode(0o644)), write, resize(10)],
        ),
    ];
    for (what, spec, calls) in table {
        println!("{what}");
        let size = spec.size;
        let mut conversation = Conversation::new(spec);
        let rounds: Vec<_> = calls.into_iter().map(|call| (call, Done)).collect();
        conversation.finish(&rounds);
        let upload = &conversation.upload;
        assert_eq!((upload.stable(), upload.resumed(), upload.rewritten()), (size, 0, 0));
        assert_eq!((upload.file(), upload.leftover()), (Some(handle(FILE)), None));
    }
}

/// Empty, and with bytes in it.
fn empty() -> Answer {
    File(FILE, attributes(FILEID, 0))
}
fn full() -> Answer {
    File(FILE, attributes(FILEID, 3))
}
fn twice(answer: Answer) -> Answer {
    Twice(Box::new(answer))
}

#[test]
fn a_file_of_the_temporary_name_is_removed_unless_an_earlier_attempt_may_have_made_it() {
    let exist = || Refused(Status::EXIST);
    let (look, clear) = (|found| (Lookup(Temporary), found), || (Remove(Temporary), Done));
    let done = || (create(), Done);
    let table = [
        (
            "another client's: there was one attempt",
            vec![(create(), exist()), look(empty()), clear(), done()],
        ),
        ("empty: the first attempt may have made it", vec![(create(), twice(exist())), look(empty())]),
        ("not empty: another client's", vec![(create(), twice(exist())), look(full()), clear(), done()]),
        ("of unknown size", vec![(create(), twice(exist())), look(Handle(FILE)), clear(), done()]),
        ("CREATE returned no handle", vec![(create(), NoHandle), look(empty())]),
        ("removed meanwhile", vec![(create(), exist()), look(Refused(Status::NOENT)), done()]),
    ];
    for (what, mut rounds) in table {
        println!("{what}");
        rounds.extend([(Write(0, 10, FILE_SYNC), Done), (Rename, Done)]);
        Conversation::new(spec(temporary(), 10)).finish(&rounds);
    }
}

#[test]
fn a_target_in_place_is_written_whatever_its_size() {
    for found in [empty(), full(), Handle(FILE)] {
        Conversation::new(spec(Placement::InPlace, 10)).finish(&[
            (Unchecked(Target, mode(0o644)), NoHandle),
            (Lookup(Target), found.clone()),
            (Write(0, 10, FILE_SYNC), Done),
            (resize(10), Done),
        ]);
        Conversation::new(spec(Placement::InPlace, 10)).finish(&[
            (Unchecked(Target, mode(0o644)), found),
            (Write(0, 10, FILE_SYNC), Done),
            (resize(10), Done),
        ]);
    }
}

#[test]
fn a_size_is_set_of_the_file_as_it_is_and_no_late_copy_sets_it_again() {
    let changed = |seconds| {
        let ctime = nfstime3 { seconds, nseconds: 0 };
        Answer::Told(fattr3 { ctime, ..attributes(FILEID, 20) })
    };
    let begun = || {
        let mut conversation = Conversation::new(spec(Placement::InPlace, 10));
        conversation
            .run(&[
                (Unchecked(Target, mode(0o644)), File(FILE, attributes(FILEID, 20))),
                (Write(0, 10, FILE_SYNC), changed(400)),
            ])
            .unwrap();
        conversation
    };
    let refused = || Refused(Status::NOT_SYNC);
    begun().finish(&[(Guarding(size(10), 400), Done)]);
    begun().finish(&[
        (Guarding(size(10), 400), refused()),
        (Getattr, changed(401)),
        (Guarding(size(10), 401), refused()),
        // The clock of a server may be set back.
        (Getattr, changed(399)),
        (Guarding(size(10), 399), Done),
    ]);
    // A server that refuses every guard.
    let broken = [(Guarding(size(10), 400), refused()), (Getattr, changed(400)), (Setattr(size(10)), Done)];
    begun().finish(&broken);
    // Others change the file all the time.
    let mut rounds = Vec::new();
    for second in 400..416 {
        rounds.extend([(Guarding(size(10), second), refused()), (Getattr, changed(second + 1))]);
    }
    rounds.push((Setattr(size(10)), Done));
    begun().finish(&rounds);
}

#[test]
fn a_lookup_replaces_guarded_where_the_server_has_no_guarded_create() {
    // The file that an UNCHECKED CREATE opens may have data, which must not show in holes or behind the end.
    let with_holes = || UploadSpec { holes: ranges(&[(3, 5)]), ..spec(temporary(), 10) };
    let (plain, refused) = (Unchecked(Temporary, mode(0o644)), |status| Refused(status));
    let notsupp = || (create(), refused(Status::NOTSUPP));
    let gone = |call| (call, refused(Status::NOENT));
    let sparse = || vec![(Write(0, 3, FILE_SYNC), Done), (Write(5, 10, FILE_SYNC), Done), (Rename, Done)];
    let whole = || vec![(Write(0, 10, FILE_SYNC), Done), (resize(10), Done), (Rename, Done)];
    let table = [
        ("no such file", vec![notsupp(), gone(Lookup(Temporary)), (plain, empty())], sparse()),
        (
            "another client's",
            vec![notsupp(), (Lookup(Temporary), empty()), (Remove(Temporary), Done), (plain, empty())],
            sparse(),
        ),
        (
            "empty, after two attempts",
            vec![(create(), twice(refused(Status::NOTSUPP))), (Lookup(Temporary), empty())],
            sparse(),
        ),
        (
            "made by another client meanwhile",
            vec![notsupp(), gone(Lookup(Temporary)), (plain, full())],
            whole(),
        ),
        ("of unknown size", vec![notsupp(), gone(Lookup(Temporary)), (plain, Handle(FILE))], whole()),
        (
            "CREATE finds a file, REMOVE does not",
            vec![
                (create(), refused(Status::EXIST)),
                (Lookup(Temporary), full()),
                gone(Remove(Temporary)),
                (plain, empty()),
            ],
            sparse(),
        ),
    ];
    for (what, mut rounds, rest) in table {
        println!("{what}");
        rounds.extend(rest);
        Conversation::new(with_holes()).finish(&rounds);
    }
    // A file that a GUARDED CREATE returns is new.
    for found in [full(), Handle(FILE)] {
        let mut rounds = vec![(create(), found)];
        rounds.extend(sparse());
        Conversation::new(with_holes()).finish(&rounds);
    }
}

#[test]
fn create_without_a_time_follows_where_the_server_refuses_one_with_it() {
    let with_mark = Guarded(Temporary, marked(mode(0o644)));
    for status in [Status::INVAL, Status::NOTSUPP] {
        Conversation::new(spec(resumable(None), 10)).finish(&[
            (with_mark, Refused(status)),
            (create(), Done),
            (Write(0, 10, FILE_SYNC), Done),
            (Rename, Done),
        ]);
    }
    let mut conversation = Conversation::new(spec(resumable(None), 10));
    conversation
        .run(&[
            (with_mark, Refused(Status::NOTSUPP)),
            (create(), Refused(Status::NOTSUPP)),
            (Lookup(Temporary), Refused(Status::NOENT)),
        ])
        .unwrap();
    let error = conversation.run(&[(Unchecked(Temporary, mode(0o644)), Refused(Status::NOTSUPP))]);
    let (procedure, status) = (Procedure::Create, Status::NOTSUPP);
    assert_eq!(
        error,
        Err(TransferError::Status { procedure, status }),
        "there is no other way to create a file"
    );
}

#[test]
fn an_upload_fails_when_create_finds_the_name_taken_four_times() {
    for (status, look) in [(Status::EXIST, 3), (Status::EXIST, 0)] {
        let mut conversation = Conversation::new(spec(temporary(), 10));
        for _ in 0..3 {
            let found = if look == 0 { Refused(Status::NOENT) } else { full() };
            conversation.run(&[(create(), Refused(status)), (Lookup(Temporary), found)]).unwrap();
            if look > 0 {
                conversation.run(&[(Remove(Temporary), Done)]).unwrap();
            }
        }
        let reason = "it finds the temporary name taken, again and again, though nothing has it";
        let error = TransferError::NoProgress { procedure: Procedure::Create, reason };
        assert_eq!(conversation.run(&[(create(), Refused(status))]), Err(error));
    }
}

#[test]
fn a_rename_that_finds_nothing_may_have_been_done_by_an_earlier_attempt() {
    let renamed = || vec![(Write(0, 10, FILE_SYNC), Done), (Rename, Refused(Status::NOENT))];
    let other = 9;
    let lost = TransferError::Status { procedure: Procedure::Rename, status: Status::NOENT };
    let look = |status| TransferError::Status { procedure: Procedure::Lookup, status };
    // What CREATE returned, what LOOKUP of the target finds, and the error.
    let table = [
        (empty(), full(), None),
        (Handle(FILE), Handle(FILE), None),
        (empty(), File(other, attributes(FILEID, 10)), None),
        (empty(), File(other, attributes(FILEID + 1, 10)), Some(lost)),
        (empty(), Handle(other), Some(lost)),
        (Handle(FILE), Handle(other), Some(lost)),
        (empty(), Refused(Status::NOENT), Some(look(Status::NOENT))),
        (empty(), Refused(Status::IO), Some(look(Status::IO))),
    ];
    for (created, found, error) in table {
        println!("{created:?}, then {found:?}");
        let mut conversation = Conversation::new(spec(temporary(), 10));
        conversation.run(&[(create(), created)]).unwrap();
        conversation.run(&renamed()).unwrap();
        let outcome = conversation.run(&[(Lookup(Target), found)]);
        assert_eq!(outcome.err(), error);
        assert_eq!(conversation.upload.is_done(), error.is_none());
        let leftover = error.map(|_| Temporary.bytes());
        assert_eq!(conversation.upload.leftover(), leftover.as_deref());
    }
}

/// Conversations that lead to each control call in turn.
fn control_calls() -> Vec<(UploadSpec, Vec<Round>, Call)> {
    let owned = || UploadSpec { attributes: mode(0o600), ..spec(temporary(), 10) };
    let dated = || {
        let mtime = Some(SetTime::To(MADE));
        let attributes = SetAttributes { mtime, ..SetAttributes::default() };
        UploadSpec { attributes, ..spec(Placement::Existing(handle(FILE)), 10) }
    };
    let date = dated().attributes;
    let taken = || vec![(create(), Refused(Status::EXIST)), (Lookup(Temporary), full())];
    let written = || vec![(create(), Done), (Write(0, 10, FILE_SYNC), Done)];
    let then = |mut rounds: Vec<_>, round| {
        rounds.push(round);
        rounds
    };
    vec![
        (owned(), vec![], create()),
        (owned(), taken()[..1].to_vec(), Lookup(Temporary)),
        (owned(), taken(), Remove(Temporary)),
        (owned(), written(), Setattr(mode(0o600))),
        (spec(temporary(), 10), written(), Rename),
        (spec(temporary(), 10), then(written(), (Rename, Refused(Status::NOENT))), Lookup(Target)),
        (dated(), vec![(Write(0, 10, FILE_SYNC), twice(Done)), (Setattr(date), Done)], Getattr),
    ]
}

#[test]
fn errors_name_the_procedure() {
    for (spec, rounds, call) in control_calls() {
        let reach = || {
            let mut conversation = Conversation::new(spec.clone());
            conversation.run(&rounds).unwrap();
            let (next, found) = conversation.call().unwrap();
            assert_eq!(found, call);
            (conversation, next)
        };
        let (mut conversation, next) = reach();
        let procedure = next.procedure;
        let error = TransferError::Status { procedure, status: Status::ROFS };
        assert_eq!(conversation.answer((next, call), &Refused(Status::ROFS)), Err(error));

        let (Conversation { mut upload, .. }, next) = reach();
        let effort = Effort { attempts: 1, elapsed: Duration::ZERO };
        let error = upload.handle_results(next.part, effort, &[], true).unwrap_err();
        let truncated = nfs_wire::DecodeError::Truncated { field: "status" };
        assert_eq!(error, TransferError::Protocol { procedure, error: truncated });

        for rejection in [Rejection::SystemError, Rejection::ProcedureUnavailable] {
            let (Conversation { mut upload, .. }, next) = reach();
            let error = TransferError::Rejected { procedure, rejection };
            assert_eq!(upload.handle_rejection(next.part, rejection), Err(error));
        }
    }
}

#[test]
fn the_temporary_name_is_a_leftover_from_create_to_rename() {
    for (spec, rounds, call) in control_calls() {
        let mut conversation = Conversation::new(spec.clone());
        conversation.run(&rounds).unwrap();
        let expected = (call != create() && call != Getattr).then(|| Temporary.bytes());
        assert_eq!(conversation.upload.leftover(), expected.as_deref(), "before {call:?}");
    }
    for (placement, leftover) in [(temporary(), true), (resumable(None), true), (Placement::InPlace, false)] {
        let mut conversation = Conversation::new(spec(placement, 10));
        assert_eq!((conversation.upload.file(), conversation.upload.leftover()), (None, None));
        let create = conversation.call().unwrap();
        conversation.answer(create, &Done).unwrap();
        let expected = leftover.then(|| Temporary.bytes());
        assert_eq!(conversation.upload.leftover(), expected.as_deref());
        assert_eq!(conversation.upload.file(), Some(handle(FILE)));
    }
}
