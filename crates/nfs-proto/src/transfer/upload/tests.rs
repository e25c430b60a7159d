mod checkpoints;
mod conversation;
mod data;
mod naming;

use nfs_wire::{
    Procedure::{Commit, Getattr, Setattr, Write},
    nfs3_types::{nfs3::ftype3, xdr_codec::Opaque},
};

use super::*;
use crate::{attr::SetTime, engine::Pace};

const LIMITS: Limits =
    Limits { read_block: 4096, write_block: 4096, pace: Pace { bytes: 0, spacing: Duration::ZERO } };

/// An upload of so many bytes into a file that exists, whose time is set afterwards, if any is given.
fn upload(size: u64, mtime: Option<SetTime>) -> Upload {
    let file = FileHandle::try_from(&nfs_fh3 { data: Opaque::owned(vec![7; 8]) }).unwrap();
    Upload::new(UploadSpec {
        directory: file,
        name: Vec::new(),
        placement: Placement::Existing(file),
        made: None,
        size,
        holes: RangeSet::new(),
        mode: 0o644,
        attributes: SetAttributes { mtime, ..SetAttributes::default() },
        gets_name: true,
    })
}

#[test]
fn a_late_copy_of_the_only_write_must_not_touch_a_time_that_was_set() {
    let first = |size, mtime| upload(size, mtime).next_call(LIMITS, &|_, _| true).unwrap().repeat;
    assert_eq!(first(4096, Some(SetTime::ServerTime)), Repeat::SameXid);
    assert_eq!(first(4096, None), Repeat::Idempotent);
    assert_eq!(first(8192, Some(SetTime::ServerTime)), Repeat::Idempotent, "not the only one");
}

/// Results of a call: the status and what follows it.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn a_time_that_a_late_copy_of_a_write_touched_is_set_again() {
    let asked = Time { seconds: 1000, nanoseconds: 0 };
    // Times are in seconds and billionths; SETATTR tells which one it left if it is given one.
    let procedures_of = |size, attempts, elapsed: u64, set: Option<(u32, u32)>, times: &[(u32, u32)]| {
        let told = |(seconds, nanoseconds): (u32, u32)| {
            let mut attributes = [0; 21];
            (attributes[0], attributes[17], attributes[18]) = (ftype3::NF3REG as u32, seconds, nanoseconds);
            attributes
        };
        let mut upload = upload(size, Some(SetTime::To(asked)));
        let mut times = times.iter();
        let mut procedures = Vec::new();
        while let Some(call) = upload.next_call(LIMITS, &|_, _| true) {
            procedures.push(call.procedure);
            assert!(procedures.len() < 20, "the calls have no end: {procedures:?}");
            let looks = call.procedure == Getattr;
            let delay = Duration::from_millis(if looks { elapsed.clamp(100, 1000) } else { 0 });
            assert_eq!(call.delay, delay, "late copies get the time that the reply took");
            let reply = match call.procedure {
                Write => {
                    let last = call.payload.unwrap().offset + 4096 == size;
                    let stable = if last { stable_how::FILE_SYNC } else { stable_how::UNSTABLE };
                    words(&[0, 0, 0, 4096, stable as u32, 0, 0])
                }
                Commit => words(&[0, 0, 0, 0, 0]),
                Setattr => match set {
                    Some(set) => words(&[&[0, 0, 1][..], &told(set)].concat()),
                    None => words(&[0, 0, 0]),
                },
                Getattr => {
                    let time = *times.next().expect("a look more than there should be");
                    words(&[&[0][..], &told(time)].concat())
                }
                other => panic!("{other:?} is not needed"),
            };
            let attempts = if call.procedure == Write { attempts } else { 1 };
            let effort = Effort { attempts, elapsed: Duration::from_millis(elapsed) };
            upload.handle_results(call.part, effort, &reply, true).unwrap();
        }
        assert!(upload.is_done());
        procedures
    };
    let procedures = |attempts, times: &[(u32, u32)]| procedures_of(4096, attempts, 30, None, times);
    assert_eq!(procedures(1, &[]), [Write, Setattr], "nothing can come late");
    assert_eq!(procedures(2, &[(1000, 0)]), [Write, Setattr, Getattr]);
    assert_eq!(procedures(2, &[(5000, 0), (1001, 0)]), [Write, Setattr, Getattr, Setattr, Getattr]);
    let most = [Write, Setattr, Getattr, Setattr, Getattr, Setattr, Getattr, Setattr];
    assert_eq!(procedures(2, &[(5000, 0); 3]), most, "a server that keeps no times ends it");
    let told = |set, times| procedures_of(4096, 2, 30, Some(set), times);
    assert_eq!(
        told((1000, 0), &[(1000, 7), (1000, 0)]),
        [Write, Setattr, Getattr, Setattr, Getattr],
        "a new file"
    );
    assert_eq!(told((1001, 0), &[(1001, 0)]), [Write, Setattr, Getattr], "a file system that rounds");
    assert_eq!(
        told((5000, 0), &[(1000, 0)]),
        [Write, Setattr, Getattr],
        "touched before the reply, but not now"
    );
    let outage = procedures_of(4096, 2, 60_000, None, &[(1000, 0)]);
    assert_eq!(outage, [Write, Setattr, Getattr], "after an outage");
    let after_commit = [Write, Write, Commit, Setattr, Getattr];
    assert_eq!(
        procedures_of(8192, 2, 700, None, &[(1000, 0)]),
        after_commit,
        "a COMMIT may overtake it as well"
    );
}
