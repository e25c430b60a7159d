//! How many round trips a copy takes besides those that move its bytes: on a long way little else counts. Makes networks, so it needs root.

mod common;

use std::{fs, path::Path};

use common::{Server, behind, noise, stderr};

/// Long enough that a call which did not wait for a reply is sent before it arrives, on a busy machine, too.
const LINK: [&str; 4] = ["--rate", "100M", "--delay", "250ms"];

/// A call that was answered, without NULL.
struct Exchange {
    procedure: String,
    sent: f64,
    answered: f64,
}

/// Copies over the link, and returns the exchanges over UDP in the order of the calls.
fn copy(from: &str, to: &str, log: &Path) -> Vec<Exchange> {
    let script = format!("exec $nfsw cp {from} {to}");
    let mut options = vec!["--quiet", "--rpc-log", log.to_str().unwrap()];
    options.extend(LINK);
    let output = behind(&options, &script).output().unwrap();
    assert!(output.status.success(), "{script}: {}", stderr(&output));
    let text = fs::read_to_string(log).unwrap();
    let messages: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let time = |word: &str| word.parse::<f64>().unwrap();
    let answer = |xid: &str| messages.iter().find(|message| message[2] == xid && message[3] == "reply");
    let calls = messages.iter().filter(|message| message[3] == "call" && message[4] != "NULL");
    let mut exchanges: Vec<Exchange> = calls
        .filter_map(|call| {
            let procedure = call[4..].join(" ").split(" attempt").next().unwrap().to_owned();
            Some(Exchange { procedure, sent: time(call[0]), answered: time(answer(call[2])?[1]) })
        })
        .filter(|it| it.procedure != "MOUNT procedure 0")
        .collect();
    exchanges.sort_by(|a, b| a.sent.total_cmp(&b.sent));
    exchanges
}

/// How many replies, each to a call that was made after the one before, came before the first call of a procedure.
fn round_trips_before(procedure: &str, exchanges: &[Exchange]) -> usize {
    let first = exchanges.iter().find(|it| it.procedure == procedure);
    let mut sent = first.unwrap_or_else(|| panic!("{procedure} was not called")).sent;
    let mut count = 0;
    let last_before = |time| {
        exchanges.iter().filter(|it| it.answered <= time).max_by(|a, b| a.answered.total_cmp(&b.answered))
    };
    while let Some(before) = last_before(sent) {
        (sent, count) = (before.sent, count + 1);
    }
    count
}

#[test]
fn the_first_read_leaves_after_three_round_trips_and_nothing_follows_the_last() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    // Large enough to be looked at again at its end, were it not for what the replies to READ tell.
    fs::write(server.path("/file"), noise(200_000)).unwrap();
    let port = server.address().port();
    let target = place.path().join("file");
    let from = format!("\"nfs://$NFSW_HOST:{port}/file?mountport={port}\"");
    let exchanges = copy(&from, target.to_str().unwrap(), &place.path().join("log"));
    assert!(fs::read(&target).unwrap() == noise(200_000));
    // The list of exports, MNT, LOOKUP.
    assert_eq!(round_trips_before("READ", &exchanges), 3);
    assert!(exchanges.iter().all(|it| it.procedure != "GETATTR"), "the replies to READ have told");
}

#[test]
fn the_first_write_leaves_after_four_round_trips_and_a_new_name_follows_the_last() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("file");
    fs::write(&source, noise(200_000)).unwrap();
    let port = server.address().port();
    let to = format!("\"nfs://$NFSW_HOST:{port}/file?mountport={port}\"");
    let exchanges = copy(source.to_str().unwrap(), &to, &place.path().join("log"));
    assert!(fs::read(server.path("/file")).unwrap() == noise(200_000));
    // The list of exports, MNT, LOOKUP of the target beside GETATTR of its directory, CREATE.
    assert_eq!(round_trips_before("WRITE", &exchanges), 4);
    let end: Vec<&str> = exchanges.iter().rev().map(|it| &it.procedure[..]).take(2).collect();
    assert!(end == ["RENAME", "WRITE"] || end == ["RENAME", "COMMIT"], "{end:?}");
}
