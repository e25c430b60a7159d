//! How many round trips a copy takes besides those that move its bytes: on a long way little else counts. Makes networks, so it needs root.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path};

use crate::common::{Server, behind, noise, stderr};

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
    exchanges(&format!("exec $nfsw cp {from} {to}"), log)
}

/// As [`copy`], of whatever a script does, which has a cache of its own.
fn exchanges(script: &str, log: &Path) -> Vec<Exchange> {
    let mut options = vec!["--quiet", "--rpc-log", log.to_str().unwrap()];
    options.extend(LINK);
    let cache = tempfile::tempdir().unwrap();
    let output = behind(&options, script).env("XDG_CACHE_HOME", cache.path()).output().unwrap();
    assert!(output.status.success(), "{script}: {}", stderr(&output));
    let text = fs::read_to_string(log).unwrap();
    let messages: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let time = |word: &str| word.parse::<f64>().unwrap();
    let answer = |xid: &str| messages.iter().find(|message| message[2] == xid && message[3] == "reply");
    // Calls that were sent again under the same XID count once.
    let is_first =
        |message: &&Vec<&str>| message.windows(2).any(|it| it[0] == "attempt" && it[1].starts_with("1,"));
    let calls =
        messages.iter().filter(|message| message[3] == "call" && message[4] != "NULL").filter(is_first);
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
fn a_second_command_asks_all_at_once_and_believes_nothing_that_has_changed() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    for directory in ["/a/b/c", "/other/c"] {
        fs::create_dir_all(server.path(directory)).unwrap();
        fs::write(server.path(directory).join("file"), directory).unwrap();
    }
    let port = server.address().port();
    let copy = |to| format!("$nfsw cp \"nfs://$NFSW_HOST:{port}/a/b/c/file?mountport={port}\" {to}/");
    let (first, second, third) = (place.path().join("1"), place.path().join("2"), place.path().join("3"));
    for target in [&first, &second, &third] {
        fs::create_dir(target).unwrap();
    }
    // What was /a/b is another directory after the second copy.
    let script = [
        copy(first.display()),
        copy(second.display()),
        format!("mv {0}/a/b {0}/gone && mv {0}/other {0}/a/b", server.path("/").display()),
        copy(third.display()),
    ]
    .join(" && ");
    let mut exchanges = exchanges(&script, &place.path().join("log"));
    let read = |target: &Path| fs::read_to_string(target.join("file")).unwrap();
    assert_eq!([&first, &second, &third].map(|it| read(it)), ["/a/b/c", "/a/b/c", "/other/c"]);
    let mut copies = Vec::new();
    while let Some(end) = exchanges.iter().position(|it| it.procedure == "READ") {
        let mut rest = exchanges.split_off(end + 1);
        // What a copy asks beside its READ is not of the next one.
        rest.retain(|it| it.sent > exchanges[end].answered);
        copies.push(round_trips_before("READ", &exchanges));
        exchanges = rest;
    }
    // The list of exports, MNT and four LOOKUPs; then all of them together; then those below /a/b once more.
    assert_eq!(copies, [6, 1, 3]);
}

#[test]
fn many_names_in_a_directory_that_is_there_are_listed_and_not_looked_up_one_by_one() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    for directory in [&source, &server.path("/there")] {
        fs::create_dir(directory).unwrap();
    }
    for number in 0..40 {
        fs::write(source.join(number.to_string()), "new").unwrap();
    }
    fs::write(server.path("/there/7"), "old").unwrap();
    let (port, from) = (server.address().port(), source.display());
    let to = format!("\"nfs://$NFSW_HOST:{port}/there?mountport={port}\"");
    for (sources, options, replaced) in [(format!("{from}/*"), "", 1), (format!("{from}"), "-rT", 39)] {
        let log = place.path().join("log");
        let exchanges = exchanges(&format!("$nfsw cp {options} {sources} {to}"), &log);
        let count = |procedure| exchanges.iter().filter(|it| it.procedure == procedure).count();
        // The directory itself and the mark of an interrupted copy; and what is replaced, for its mode may be another when its copy begins
        // and when that gets its name, with the copy itself.
        assert!(count("LOOKUP") < 10 + 3 * replaced, "{options}: {} LOOKUPs", count("LOOKUP"));
        assert_eq!(fs::read_dir(server.path("/there")).unwrap().count(), 40);
        assert_eq!(fs::read(server.path("/there/7")).unwrap(), b"new");
        fs::remove_file(server.path("/there/8")).unwrap();
    }
}

#[test]
fn the_first_write_leaves_after_three_round_trips_and_a_new_name_follows_the_last() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("file");
    fs::write(&source, noise(200_000)).unwrap();
    let port = server.address().port();
    let to = format!("\"nfs://$NFSW_HOST:{port}/file?mountport={port}\"");
    let exchanges = copy(source.to_str().unwrap(), &to, &place.path().join("log"));
    assert!(fs::read(server.path("/file")).unwrap() == noise(200_000));
    // The list of exports, MNT, CREATE beside LOOKUP of the target and GETATTR of its directory.
    assert_eq!(round_trips_before("WRITE", &exchanges), 3);
    let end: Vec<&str> = exchanges.iter().rev().map(|it| &it.procedure[..]).take(2).collect();
    assert!(end == ["RENAME", "WRITE"] || end == ["RENAME", "COMMIT"], "{end:?}");
}

#[test]
fn what_is_made_ahead_on_a_long_path_takes_nobodys_place_and_is_left_nowhere() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("file");
    fs::write(&source, noise(1000)).unwrap();
    fs::create_dir_all(server.path("/deep/directory")).unwrap();
    std::os::unix::fs::symlink("deep", server.path("/link")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(server.path("/fifo")).status().unwrap();
    assert!(status.success());
    let private = fs::Permissions::from_mode(0o604);
    for (name, was) in [("/private", &b"was here before"[..]), ("/.begun.nfsw-part", b"left by somebody")] {
        fs::write(server.path(name), was).unwrap();
        fs::set_permissions(server.path(name), private.clone()).unwrap();
    }
    let port = server.address().port();
    let copies = ["new", "deep/new", "deep/directory", "link", "private", "begun", "fifo", "missing/new"];
    let script = format!(
        r#"for to in {}; do $nfsw cp {} "nfs://$NFSW_HOST:{port}/$to?mountport={port}" 2>&1 || echo "failed: $?" & done; wait"#,
        copies.join(" "),
        source.display()
    );
    let output = behind(&LINK, &script).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.matches("failed").count(), 2, "{printed}");
    assert!(printed.contains("/fifo: is a fifo") && printed.contains("/missing does not exist"), "{printed}");

    for copy in ["/new", "/deep/new", "/deep/directory/file", "/deep/file", "/private", "/begun"] {
        assert!(fs::read(server.path(copy)).unwrap() == noise(1000), "{copy}");
    }
    let mode = |name| fs::metadata(server.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("/private"), 0o604, "a file that is replaced keeps its mode");
    assert_eq!(mode("/begun"), fs::metadata(&source).unwrap().permissions().mode() & 0o777);
    let names = |directory| {
        let entries = fs::read_dir(server.path(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let there = [".begun.nfsw-part", "begun", "deep", "fifo", "link", "new", "private"];
    assert_eq!(names("/"), there.map(String::from).into());
    assert_eq!(names("/deep"), ["directory", "file", "new"].map(String::from).into());
    assert_eq!(names("/deep/directory"), ["file"].map(String::from).into());
}

#[test]
fn a_path_on_which_transfers_have_moved_to_tcp_is_used_over_tcp_at_once() {
    let server = Server::everywhere();
    let place = tempfile::tempdir().unwrap();
    fs::write(server.path("/file"), noise(200_000)).unwrap();
    let port = server.address().port();
    let copy = format!(
        "$nfsw cp -v \"nfs://$NFSW_HOST:{port}/file?mountport={port}\" {}",
        place.path().join("file").display()
    );
    // What the cache has of a copy over a fast link, which this one is too short to be.
    let mark = r#"sed -i 's/"fast":null/"fast":2e7/' "$XDG_CACHE_HOME/nfsw/paths.json""#;
    let script = format!("{copy} && echo again >&2 && {mark} && {copy}");
    let cache = tempfile::tempdir().unwrap();
    let output = behind(&["--quiet", "--rate", "100M", "--delay", "20ms"], &script)
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let (first, second) = said.split_once("again\n").unwrap();
    assert!(first.contains("over UDP") && !first.contains("over TCP"), "{said}");
    assert!(second.contains("over TCP: the link is fast (UDP moved 160.00 Mbit/s)"), "{said}");
    assert!(fs::read(place.path().join("file")).unwrap() == noise(200_000));
}
