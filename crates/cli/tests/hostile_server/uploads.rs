//! Handles, WRITE, COMMIT, and uploads that are resumed.

use super::*;

misbehaviours! {
    a_handle_of_65_bytes: FILE, Reply(|c, r| results(c, r, P::Lookup, &[0, 65])), Say(1, "broken");
    a_handle_of_4_gib: FILE, Reply(|c, r| results(c, r, P::Lookup, &[0, u32::MAX])), Say(1, "broken");
    a_handle_of_no_bytes: FILE, Reply(|c, r| results(c, r, P::Lookup, &[0, 0, 0, 0])), Say(1, "file handle contradicts the rest of the message");
    more_written_than_sent: UPLOAD, Reply(|c, r| write(c, r, |it| it.count = u32::MAX)), Say(1, "WRITE");
    nothing_written_for_ever: UPLOAD, Reply(|c, r| write(c, r, |it| it.count = 0)), Say(1, "WRITE");
    writes_stable_in_a_way_nobody_knows: UPLOAD, Reply(|c, r| results(c, r, P::Write, &[0, 0, 0, 4096, 9, 0, 0])), Say(1, "WRITE");
    another_write_verifier_every_time: UPLOAD, Reply(|c, r| write(c, r, |it| {
        (it.verf, it.committed) = (writeverf3(c.before.to_be_bytes()), stable_how::UNSTABLE);
    })), Say(1, "no progress");
    a_commit_that_never_covers_the_writes: UPLOAD, Reply(|c, r| {
        write(c, r, |it| it.committed = stable_how::UNSTABLE);
        commit(c, r, |it| it.verf = writeverf3((1000 + c.before).to_be_bytes()));
    }), Say(1, "no progress");
    a_new_file_without_a_handle: UPLOAD, Reply(|c, r| if c.is(P::Create) {
        edit::<CREATE3resok>(r, |it| (it.obj, it.obj_attributes) = (post_op_fh3::None, post_op_attr::None));
    }), BeRight;
}

/// Interrupts an upload of 2 MiB after a second or so, and runs it again; returns what the second run said.
fn interrupted_upload(lie: Lie) -> (Trial, Vec<u8>, String) {
    const RUN: &[&str] = &["cp", "--transport", "tcp"];
    let trial = Trial::new(lie);
    fs::write(trial.path("here/large"), common::noise(2 << 20)).unwrap();
    let first = [RUN, &["--bwlimit", "8Mbit", "--deadline", "900ms", "large", "{up}"]].concat();
    let Outcome { code, stderr, .. } = trial.run(&first);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(common::part(&trial.path("served/up")).exists());
    // However far a run gets that ends at once, it costs nothing.
    let Outcome { stdout, .. } =
        trial.run(&[RUN, &["--json", "--deadline", "1us", "large", "{up}"]].concat());
    assert_eq!(
        (event(&stdout, "resumed"), event(&stdout, "file")),
        (None, None),
        "the server was not asked yet"
    );
    let Outcome { code, stdout, stderr } = trial.run(&[RUN, &["--json", "large", "{up}"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    assert_same_tree(&trial.path("here/large"), &trial.path("served/up"), false);
    (trial, stdout, stderr)
}

#[test]
fn an_upload_is_resumed_with_what_the_server_confirms() {
    let (_, stdout, stderr) = interrupted_upload(HONEST);
    let had = event(&stdout, "resumed").unwrap()["bytes"].as_u64().unwrap();
    let summary = event(&stdout, "summary").unwrap();
    assert!(had > 0 && had + summary["bytes"].as_u64().unwrap() == 2 << 20, "{had}: {summary}");
    assert_eq!(summary["counts"]["resumed"], 1);
    assert!(!stderr.contains("from the beginning"), "{stderr}");
}

/// As a server does whose file ids change when it is started again.
#[test]
fn an_upload_that_the_server_does_not_know_again_is_not_called_resumed() {
    let (_, stdout, stderr) = interrupted_upload(Reply(|c, r| {
        if c.is(P::Lookup) {
            edit::<LOOKUP3resok>(r, |it| {
                if let Nfs3Option::Some(attributes) = &mut it.obj_attributes {
                    attributes.fileid ^= 1 << 40
                }
            });
        }
    }));
    let summary = event(&stdout, "summary").unwrap();
    assert_eq!((event(&stdout, "resumed"), &summary["bytes"]), (None, &(2 << 20).into()), "{summary}");
    assert_eq!(summary["counts"]["resumed"], 0);
    assert!(stderr.contains("the server does not have what an earlier run sent"), "{stderr}");
}

/// A server that announces less than it takes: what it announces counts, and is said where the user asked for more.
#[test]
fn a_block_size_is_exact_up_to_the_servers_limits() {
    let trial = Trial::new(Reply(|call, reply| {
        if call.is(P::Fsinfo) {
            edit::<FSINFO3resok>(reply, |it| (it.rtmax, it.wtmax) = (20_000, 10_000));
        }
        if call.is(P::Write) {
            let mut arguments = Reader::new(&call.arguments);
            FileHandle::decode(&mut arguments).unwrap();
            arguments.u64("offset").unwrap();
            let count = arguments.u32("count").unwrap();
            assert!(count <= 10_000, "a WRITE of {count} bytes");
        }
    }));
    fs::write(trial.path("here/large"), common::noise(1 << 20)).unwrap();
    for transport in ["udp", "tcp"] {
        let run = |size| trial.run(&["cp", "--transport", transport, "--block-size", size, "large", "{up}"]);
        let outcome = run("64K");
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let said =
            "takes less than --block-size at once: at most 20000 bytes per READ and 10000 bytes per WRITE";
        assert!(outcome.stderr.contains(said), "{transport}: {}", outcome.stderr);
        let outcome = run("8K");
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{transport}");
        assert_same_tree(&trial.path("here/large"), &trial.path("served/up"), false);
    }
}

/// The procedure whose replies get lost, in `a_tree_resumes_after_an_end_at_any_step_of_its_marker`.
static LOST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(u32::MAX);

#[test]
fn a_tree_resumes_after_an_end_at_any_step_of_its_marker() {
    use std::sync::atomic::Ordering::Relaxed;
    const RUN: &[&str] = &["cp", "-r", "--transport", "tcp"];
    const NOBODY: u32 = u32::MAX;
    for procedure in [P::Mkdir, P::Create, P::Rename, P::Write, P::Remove] {
        let trial = Trial::new(Wire(|call, reply, line| {
            if call.program != Program::NFS || call.procedure != LOST.load(Relaxed) {
                line.send(reply);
            }
        }));
        LOST.store(procedure.number(), Relaxed);
        let first = trial.run(&[RUN, &["--timeout", "700ms", "../served/tree", "{up}"]].concat());
        assert_eq!(first.code, Some(5), "{procedure}: {}", first.stderr);
        LOST.store(NOBODY, Relaxed);
        let marker = trial.path("served/up/.nfsw-incomplete");
        // A name that is reserved alone is that of no directory.
        let is_named =
            fs::metadata(trial.path("served/up")).is_ok_and(|it| it.permissions().mode() & 0o7777 != 0o1000);
        assert_eq!(is_named, marker.exists() || procedure == P::Remove, "{procedure}");
        if procedure != P::Remove {
            // What is known of the first run is gone, and the target is written in another way.
            let state = trial.path("here/.state/nfsw");
            let lists = common::names(&state).into_iter().filter(|name| name != "key");
            lists.for_each(|name| fs::remove_file(state.join(name)).unwrap());
            let again = trial.run(&[RUN, &["../served/tree/", "{up/}"]].concat());
            assert_eq!(again.code, Some(0), "{procedure}: {}", again.stderr);
        }
        assert_same_tree(&trial.path("served/tree"), &trial.path("served/up"), false);
        assert_eq!(common::names(&trial.path("served")), ["tree", "up"], "{procedure}");
        // It is complete, and a directory like any other.
        let nested = trial.run(&[RUN, &["../served/tree", "{up}"]].concat());
        assert_eq!(nested.code, Some(0), "{procedure}: {}", nested.stderr);
        assert_same_tree(&trial.path("served/tree"), &trial.path("served/up/tree"), false);
    }
}
