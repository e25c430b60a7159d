//! Servers that lie and servers that are broken: each misbehaviour is a test of its own.
//!
//! `Trial::run` is what all of them ask for: the run ends by itself, without a panic, within 64 MiB of data, with messages that
//! cannot harm a terminal, and nothing is written outside the destination. The tables add what the user is told, or that the
//! copy is right all the same.

/// A table of misbehaviours: name, command, what the server does, what must come of it.
macro_rules! misbehaviours {
    ($($name:ident: $command:expr, $lie:expr, $must:expr;)*) => {
        $(#[test]
        fn $name() {
            check($command, $lie, $must);
        })*
    };
}

#[path = "../common/mod.rs"]
mod common;
mod liar;
mod lies;

mod attributes;
mod doctor;
mod links;
mod listings;
mod messages;
mod mounting;
mod names;
mod paths;
mod reads;
mod rpc;
mod streams;
mod uploads;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    sync::Mutex,
};

use common::{assert_same_tree, nfsw, stderr};
use liar::{
    HEADER,
    Lie::{self, Reply, Wire},
    Outcome, Trial,
};
use lies::{
    add, attributes, bare, commit, edit, endless, message, named, page, plain_page, read, rename, results,
    write,
};
use nfs_wire::{
    FileHandle, Procedure as P, Reader,
    nfs3_types::nfs3::{
        CREATE3resok, FSINFO3resok, FSSTAT3resok, LOOKUP3resok, Nfs3Option, cookieverf3, filename3, ftype3,
        nfstime3, post_op_attr, post_op_fh3, stable_how, writeverf3,
    },
    record::mark,
    rpc::Program,
};

/// What is copied, or looked at.
const TREE: &[&str] = &["cp", "-r", "--transport", "udp", "--timeout", "1s", "{tree}", "copy"];
const TREE_TCP: &[&str] = &["cp", "-r", "--transport", "tcp", "--timeout", "1s", "{tree}", "copy"];
const TREE_KEPT: &[&str] = &["cp", "-rp", "--transport", "udp", "--timeout", "1s", "{tree}", "copy"];
const FILE: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "copy"];
const FILE_TCP: &[&str] = &["cp", "--transport", "tcp", "--timeout", "1s", "{tree/alpha}", "copy"];
const UPLOAD: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "../served/tree/alpha", "{up}"];
const LIST: &[&str] = &["ls", "-l", "--transport", "udp", "--timeout", "1s", "{tree}"];
const LIST_TCP: &[&str] = &["ls", "--transport", "tcp", "--timeout", "1s", "{tree}"];
const TREE_ENDLESS: &[&str] = &["cp", "-r", "--transport", "tcp", "--max-entries", "30000", "{tree}", "copy"];
const LIST_ENDLESS: &[&str] = &["ls", "-l", "--transport", "tcp", "--max-entries", "100000", "{tree}"];
const CAT: &[&str] = &["cat", "--transport", "udp", "--timeout", "1s", "{tree/alpha}"];
const CAT_TCP: &[&str] = &["cat", "--transport", "tcp", "--timeout", "1s", "{tree/alpha}"];
const TO_STANDARD: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "-"];
const RELAY: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "{up}"];
const CAT_LINK: &[&str] = &["cat", "--timeout", "1s", "{tree/link}"];

// These end by themselves: a server that talks nonsense is no outage.
const FILE_PATIENT: &[&str] = &["cp", "--transport", "tcp", "{tree/alpha}", "copy"];
const TREE_PATIENT: &[&str] = &["cp", "-r", "--transport", "tcp", "{tree}", "copy"];
const UPLOAD_PATIENT: &[&str] = &["cp", "--transport", "tcp", "../served/tree/alpha", "{up}"];
const LIST_PATIENT: &[&str] = &["ls", "--transport", "tcp", "{tree}"];
const NO_NFS: &str = "answers over TCP with what is not NFS";

/// What must come of it.
enum Must {
    /// Exit status 0, and the copy (if it was one) is the source.
    BeRight,
    /// This exit status, and these words on standard error, or none at all; what is at the destination under its name is whole.
    Say(i32, &'static str),
    /// This exit status and these words; everything but `beta` is copied.
    LeaveOut(i32, &'static str),
}

use Must::{BeRight, LeaveOut, Say};

fn check(command: &[&str], lie: Lie, must: Must) {
    let trial = Trial::new(lie);
    let Outcome { code, stderr, .. } = trial.run(command);
    let copy = trial.path("here/copy");
    let source = if command.contains(&"{tree}") { "served/tree" } else { "served/tree/alpha" };
    let (expected, words) = match must {
        BeRight => (0, ""),
        Say(code, words) | LeaveOut(code, words) => (code, words),
    };
    assert_eq!(code, Some(expected), "{stderr}");
    assert!(stderr.contains(words), "{words:?} is not in {stderr:?}");
    if matches!(must, Say(_, "")) {
        assert_eq!(stderr, "", "what is said is expected by its words");
    }
    assert!(stderr.lines().count() <= 30, "not a flood: {stderr}");
    match must {
        BeRight if command[0] == "cp" && command.last() == Some(&"copy") => {
            assert_same_tree(&trial.path(source), &copy, false);
        }
        BeRight if command[0] == "cp" => {
            assert_same_tree(&trial.path(source), &trial.path("served/up"), false);
        }
        BeRight => {}
        Say(..) => {
            for name in
                ["alpha", "beta"].map(|name| copy.join(name)).into_iter().filter(|name| name.is_file())
            {
                assert_same_tree(&trial.path("served/tree").join(name.file_name().unwrap()), &name, false);
            }
            assert!(!trial.path("served/up").exists());
        }
        LeaveOut(..) => {
            assert!(!copy.join("beta").exists());
            // Not all is copied: the next run goes on there.
            fs::remove_file(copy.join(".nfsw-incomplete")).unwrap();
            fs::remove_file(trial.path("served/tree/beta")).unwrap();
            assert_same_tree(&trial.path(source), &copy, false);
        }
    }
}

/// Finds the first event of a name in what a run printed.
fn event(stdout: &[u8], name: &str) -> Option<serde_json::Value> {
    let text = str::from_utf8(stdout).unwrap();
    let mut events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events.find(|event| event["event"] == name)
}

fn mount(call: &liar::Call, procedure: u32, reply: &mut Vec<u8>, words: &[u32]) {
    if is_mount(call, procedure) {
        reply.truncate(HEADER);
        reply.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    }
}

fn is_mount(call: &liar::Call, procedure: u32) -> bool {
    call.program == Program::MOUNT && call.procedure == procedure
}

/// Answers READLINK with this target.
fn link_to(reply: &mut Vec<u8>, target: &[u8]) {
    reply.truncate(HEADER);
    reply.extend_from_slice(&[0; 8]);
    reply.extend_from_slice(&(target.len() as u32).to_be_bytes());
    reply.extend_from_slice(target);
    reply.resize(reply.len().next_multiple_of(4), 0);
}

/// A reply whose last bytes are others.
fn lie_about(reply: &[u8]) -> Vec<u8> {
    let mut lie = reply.to_vec();
    lie.iter_mut().skip(HEADER + 100).for_each(|byte| *byte ^= 0xff);
    lie
}

const HONEST: Lie = Reply(|_, _| {});

#[test]
fn an_honest_server_is_believed() {
    for command in [TREE, TREE_TCP, FILE, FILE_TCP, UPLOAD, LIST, LIST_TCP] {
        check(command, HONEST, BeRight);
    }
}

#[test]
fn our_own_server_listens_on_the_loopback_or_warns() {
    let here = tempfile::tempdir().unwrap();
    let directory = here.path().to_str().unwrap();
    let serve = |options: &[&str]| {
        let output = nfsw([&["serve", "--for", "10ms", directory][..], options].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        assert_eq!(serve(&["--listen", address]), "");
    }
    let warning = serve(&["--listen", "0.0.0.0:0"]);
    assert!(warning.contains("may read and change everything in"), "{warning}");
    let warning = serve(&["--listen", "0.0.0.0:0", "--read-only"]);
    assert!(warning.contains("may read everything in"), "{warning}");
    let help = nfsw(["serve", "--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("127.0.0.1:20490]"));
}
