//! An upload, and what a server answers to each of its calls.

use nfs_wire::{
    Reader, call,
    nfs3_types::nfs3::{
        COMMIT3args, CREATE3args, CREATE3resok, GETATTR3args, GETATTR3resok, LOOKUP3args, REMOVE3args,
        REMOVE3resok, RENAME3args, RENAME3resok, SETATTR3args, SETATTR3resok, WRITE3args, createhow3,
        diropargs3, sattr3, set_atime, set_mtime, writeverf3,
    },
};

use super::{
    super::{
        super::{
            replies::{attributes, failure, handle, post_op, success, wcc},
            twice::Copies,
        },
        *,
    },
    LIMITS,
};
use crate::attr::SetTime;

/// File handles of the directory and of the file in it.
pub(super) const DIRECTORY: u8 = 7;
pub(super) const FILE: u8 = 8;
/// The file's number.
pub(super) const FILEID: u64 = 5;

/// A name in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Target,
    Temporary,
}

impl Name {
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Target => b"target".to_vec(),
            Self::Temporary => b".temporary".to_vec(),
        }
    }
}

/// A call as the server decodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Lookup(Name),
    Guarded(Name, SetAttributes),
    Unchecked(Name, SetAttributes),
    Remove(Name),
    /// From the temporary name to the target's.
    Rename,
    /// Offsets of the first byte and after the last one.
    Write(u64, u64, stable_how),
    /// Of the whole file.
    Commit,
    Setattr(SetAttributes),
    /// With a guard of so many seconds.
    Guarding(SetAttributes, u32),
    Getattr,
}

/// What the server answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Success; files are empty, and the write verifier is 1.
    Done,
    /// Success, with the handle and the attributes of a file.
    File(u8, fattr3),
    /// As `File`, without its attributes.
    Handle(u8),
    /// As `File`, with neither handle nor attributes.
    NoHandle,
    /// Success of a WRITE: bytes accepted, their stability, and the write verifier.
    Written(u32, stable_how, u8),
    /// Success, with these attributes of the file.
    Told(fattr3),
    /// Success of a COMMIT, with this write verifier.
    Committed(u8),
    Refused(Status),
    /// The reply comes after the second attempt.
    Twice(Box<Self>),
}
use Answer::{Committed, Done, File, Handle, NoHandle, Refused, Told, Twice, Written};

/// A call, and the answer to it.
pub(super) type Round = (Call, Answer);

/// An upload of so many bytes to the target.
pub(super) fn spec(placement: Placement, size: u64) -> UploadSpec {
    UploadSpec {
        directory: handle(DIRECTORY),
        name: Name::Target.bytes(),
        placement,
        made: None,
        size,
        holes: RangeSet::new(),
        mode: 0o644,
        attributes: SetAttributes::default(),
        gets_name: true,
    }
}

pub(super) fn temporary() -> Placement {
    Placement::Temporary(Name::Temporary.bytes())
}

/// A range set.
pub(super) fn ranges(ranges: &[(u64, u64)]) -> RangeSet {
    let mut set = RangeSet::new();
    ranges.iter().for_each(|&(start, end)| set.insert(Range { start, end }));
    set
}

/// Attributes with a mode and nothing else.
pub(super) fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// Attributes with a size and nothing else.
pub(super) fn size(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

/// SETATTR of a size alone, if the file is as servers say here.
pub(super) fn resize(to: u64) -> Call {
    Call::Guarding(size(to), attributes(FILEID, 0).ctime.seconds)
}

#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) upload: Upload,
    pub(super) limits: Limits,
    /// From a call to its reply.
    pub(super) elapsed: Duration,
}

impl Conversation {
    pub(super) fn new(spec: UploadSpec) -> Self {
        Self { upload: Upload::new(spec), limits: LIMITS, elapsed: Duration::from_millis(30) }
    }

    /// Makes the next call.
    pub(super) fn call(&mut self) -> Option<(NextCall, Call)> {
        let block = self.limits.write_block;
        let has_room = |class, bytes| {
            assert_eq!((class, bytes), (Class::Write, block));
            true
        };
        let next = self.upload.next_call(self.limits, &has_room)?;
        let mut arguments = Vec::new();
        self.upload.encode(&next, &mut arguments);
        let call = decode_call(&next, arguments);
        if next.procedure == Procedure::Write {
            let Call::Write(offset, end, _) = call else { unreachable!("decoded as a WRITE") };
            let length = u32::try_from(end - offset).unwrap();
            let expected = NextCall {
                part: next.part,
                procedure: Procedure::Write,
                class: Class::Write,
                repeat: next.repeat,
                payload: Some(Payload { offset, length }),
                bytes: length,
                delay: Duration::ZERO,
            };
            assert_eq!(next, expected);
        } else {
            let repeat = Copies::of_nfs(next.procedure).repeat;
            // The source is asked once more before the copy gets its name.
            let payload = (next.procedure == Procedure::Rename)
                .then_some(Payload { offset: self.upload.spec.size, length: 0 });
            let expected = NextCall { repeat, payload, ..NextCall::control(next.part, next.procedure) };
            assert_eq!(NextCall { delay: Duration::ZERO, ..next }, expected);
            assert!(next.delay.is_zero() || call == Call::Getattr);
        }
        if next.part == CONTROL {
            assert_eq!(self.upload.next_call(self.limits, &|_, _| true), None, "one control call at a time");
        }
        Some((next, call))
    }

    /// Delivers the reply to a call.
    pub(super) fn answer(
        &mut self,
        (next, call): (NextCall, Call),
        answer: &Answer,
    ) -> Result<Step, TransferError> {
        let (attempts, answer) = match answer {
            Twice(answer) => (2, &**answer),
            answer => (1, answer),
        };
        let effort = Effort { attempts, elapsed: self.elapsed };
        let results = results(call, answer);
        let early = self.upload.handle_results(next.part, effort, &results, false);
        assert_eq!(early, Ok(Step::NeedMore), "replies are decoded when they are complete");
        let step = self.upload.handle_results(next.part, effort, &results, true)?;
        match call {
            Call::Write(..) => assert!(matches!(step, Step::Written { asked, .. } if asked == next.bytes)),
            _ => assert_eq!(step, Step::Done),
        }
        Ok(step)
    }

    /// Expects these calls, one after the other, and delivers the reply to each.
    ///
    /// # Errors
    /// What ends the transfer, at the last of them.
    pub(super) fn run(&mut self, rounds: &[Round]) -> Result<(), TransferError> {
        for (number, (expected, answer)) in rounds.iter().enumerate() {
            assert!(!self.upload.is_done(), "before round {number}");
            let (next, call) = self.call().unwrap_or_else(|| panic!("no call in round {number}"));
            assert_eq!(call, *expected, "round {number}");
            if let Err(error) = self.answer((next, call), answer) {
                assert_eq!(number, rounds.len() - 1, "{error}");
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`Self::run`], to the end of the upload.
    pub(super) fn finish(&mut self, rounds: &[Round]) {
        self.run(rounds).unwrap();
        assert!(self.upload.is_done(), "{:?} is still to be called", self.call());
        assert_eq!(self.call(), None);
    }
}

fn name(place: &diropargs3<'_>) -> Name {
    assert_eq!(place.dir, handle(DIRECTORY).to_fh3());
    let name = place.name.as_ref();
    [Name::Target, Name::Temporary].into_iter().find(|it| it.bytes() == name).expect("a name that was given")
}

fn set_attributes(wire: &sattr3) -> SetAttributes {
    let word = |option: &Nfs3Option<u32>| match option {
        Nfs3Option::Some(value) => Some(*value),
        Nfs3Option::None => None,
    };
    SetAttributes {
        mode: word(&wire.mode),
        uid: word(&wire.uid),
        gid: word(&wire.gid),
        size: match wire.size {
            Nfs3Option::Some(size) => Some(size),
            Nfs3Option::None => None,
        },
        atime: match wire.atime {
            set_atime::DONT_CHANGE => None,
            set_atime::SET_TO_SERVER_TIME => Some(SetTime::ServerTime),
            set_atime::SET_TO_CLIENT_TIME(it) => {
                Some(SetTime::To(Time { seconds: it.seconds, nanoseconds: it.nseconds }))
            }
        },
        mtime: match wire.mtime {
            set_mtime::DONT_CHANGE => None,
            set_mtime::SET_TO_SERVER_TIME => Some(SetTime::ServerTime),
            set_mtime::SET_TO_CLIENT_TIME(it) => {
                Some(SetTime::To(Time { seconds: it.seconds, nanoseconds: it.nseconds }))
            }
        },
    }
}

fn decode_call(next: &NextCall, mut arguments: Vec<u8>) -> Call {
    let file = handle(FILE).to_fh3();
    if let Some(Payload { length, .. }) = next.payload {
        arguments.resize(arguments.len() + length.next_multiple_of(4) as usize, 0);
    }
    let reader = Reader::new(&arguments);
    match next.procedure {
        Procedure::Lookup => {
            let LOOKUP3args { what } = call::decode(reader).unwrap();
            Call::Lookup(name(&what))
        }
        Procedure::Create => {
            let CREATE3args { where_, how } = call::decode(reader).unwrap();
            match how {
                createhow3::GUARDED(attributes) => Call::Guarded(name(&where_), set_attributes(&attributes)),
                createhow3::UNCHECKED(attributes) => {
                    Call::Unchecked(name(&where_), set_attributes(&attributes))
                }
                createhow3::EXCLUSIVE(_) => panic!("EXCLUSIVE takes no attributes"),
            }
        }
        Procedure::Remove => {
            let REMOVE3args { object } = call::decode(reader).unwrap();
            Call::Remove(name(&object))
        }
        Procedure::Rename => {
            let RENAME3args { from, to } = call::decode(reader).unwrap();
            assert_eq!((name(&from), name(&to)), (Name::Temporary, Name::Target));
            Call::Rename
        }
        Procedure::Write => {
            let WRITE3args { file: to, offset, count, stable, .. } = call::decode(reader).unwrap();
            assert_eq!(to, file);
            Call::Write(offset, offset + u64::from(count), stable)
        }
        Procedure::Commit => {
            let COMMIT3args { file: of, offset, count } = call::decode(reader).unwrap();
            assert_eq!((of, offset, count), (file, 0, 0), "the whole file (RFC 1813 §3.3.21)");
            Call::Commit
        }
        Procedure::Setattr => {
            let SETATTR3args { object, new_attributes, guard } = call::decode(reader).unwrap();
            assert_eq!(object, file);
            let attributes = set_attributes(&new_attributes);
            match guard {
                Nfs3Option::Some(guard) => Call::Guarding(attributes, guard.seconds),
                Nfs3Option::None => Call::Setattr(attributes),
            }
        }
        Procedure::Getattr => {
            let GETATTR3args { object } = call::decode(reader).unwrap();
            assert_eq!(object, file);
            Call::Getattr
        }
        other => panic!("{other} is not needed"),
    }
}

fn results(call: Call, answer: &Answer) -> Vec<u8> {
    let (file, attributes) = match answer {
        Refused(status) => return failure(*status),
        Done | Written(..) | Committed(_) => (Some(FILE), Some(attributes(FILEID, 0))),
        File(file, attributes) => (Some(*file), Some(attributes.clone())),
        Told(attributes) => (Some(FILE), Some(attributes.clone())),
        Handle(file) => (Some(*file), None),
        NoHandle => (None, None),
        Twice(_) => panic!("at most two attempts"),
    };
    let verf = |verifier| writeverf3([verifier; 8]);
    match (call, answer) {
        (Call::Lookup(_), _) => success(&LOOKUP3resok {
            object: handle(file.expect("LOOKUP finds a handle")).to_fh3(),
            obj_attributes: post_op(attributes),
            dir_attributes: post_op(None),
        }),
        (Call::Guarded(..) | Call::Unchecked(..), _) => success(&CREATE3resok {
            obj: file.map_or(Nfs3Option::None, |file| Nfs3Option::Some(handle(file).to_fh3())),
            obj_attributes: post_op(attributes),
            dir_wcc: wcc(None),
        }),
        (Call::Remove(_), _) => success(&REMOVE3resok { dir_wcc: wcc(None) }),
        (Call::Rename, _) => success(&RENAME3resok { fromdir_wcc: wcc(None), todir_wcc: wcc(None) }),
        (Call::Write(..), &Written(count, committed, verifier)) => {
            success(&WRITE3resok { file_wcc: wcc(None), count, committed, verf: verf(verifier) })
        }
        (Call::Write(start, end, committed), _) => {
            let (count, file_wcc) = (u32::try_from(end - start).unwrap(), wcc(attributes));
            success(&WRITE3resok { file_wcc, count, committed, verf: verf(1) })
        }
        (Call::Commit, &Committed(verifier)) => {
            success(&COMMIT3resok { file_wcc: wcc(None), verf: verf(verifier) })
        }
        (Call::Commit, _) => success(&COMMIT3resok { file_wcc: wcc(None), verf: verf(1) }),
        (Call::Setattr(_) | Call::Guarding(..), _) => success(&SETATTR3resok { obj_wcc: wcc(attributes) }),
        (Call::Getattr, _) => {
            success(&GETATTR3resok { obj_attributes: attributes.expect("GETATTR finds attributes") })
        }
    }
}
