//! `--json`: every line of every command is in the schema (the program checks that itself where debug assertions are on, as here).

use std::fs;

use crate::common::{Server, nfsw, noise, ok, stderr};
use serde_json::Value;

/// Runs a command with `--json` and returns its events.
fn events(code: i32, arguments: &[&str]) -> Vec<Value> {
    let output = nfsw([arguments[0], "--json"].iter().chain(&arguments[1..]));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["schema_version"]), (&"summary".into(), &1.into()), "{arguments:?}");
    assert_eq!(last["exit_code"], code);
    events
}

fn has(events: &[Value], kind: &str) -> bool {
    events.iter().any(|event| event["event"] == kind)
}

#[test]
fn every_command_speaks_json() {
    let server = Server::start();
    let url = |path: &str| server.url(path);
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), "x").unwrap();
    std::os::unix::fs::symlink("file", tree.join("sub/link")).unwrap();
    let tree = tree.to_str().unwrap();
    for (code, arguments, kinds) in [
        (0, &["mkdir", &url("/made")][..], &["directory"][..]),
        (0, &["cp", "-rp", "--verify", tree, &url("/made/copy")], &["directory", "file", "link"]),
        (0, &["cp", "-r", "--dry-run", tree, &url("/made/copy")], &["file"]),
        (0, &["cp", "-rn", &format!("{tree}/."), &url("/made/copy")], &["skipped"]),
        (0, &["sync", tree, &url("/made/copy")], &["skipped", "totals"]),
        (
            0,
            &["sync", "--delete", "--force", &format!("{tree}/sub"), &url("/made/copy")],
            &["file", "deleted"],
        ),
        (0, &["ls", "-R", &url("/")], &["entry"]),
        (0, &["stat", &url("/made/copy/link")], &["stat"]),
        (0, &["df", &url("/")], &["space"]),
        (0, &["chmod", "600", &url("/made/copy/file")], &["mode"]),
        (0, &["ln", &url("/made/copy/file"), &url("/made/two")], &["link"]),
        (0, &["mv", &url("/made/two"), &url("/made/three")], &["moved"]),
        (1, &["mv", "-n", &url("/made/three"), &url("/made/copy/file")], &["error"]),
        (0, &["mv", "-n", &url("/made/three"), &url("/made/copy/link")], &["skipped"]),
        (0, &["rm", "-r", &url("/made")], &["removed"]),
        (0, &["exports", &url("/")], &["export"]),
        (0, &["ping", "-c", "2", "-i", "10ms", &url("/")], &["ping", "transport"]),
        (0, &["doctor", "--write-test", &url("/")], &["server", "service", "mount", "limits", "test"]),
        (0, &["serve", "--for", "100ms", "--listen", "127.0.0.1:0", tree], &["serving"]),
        (7, &["serve", "--listen", "127.0.0.1:0", &format!("{tree}/none")], &["error"]),
        (0, &["config", "check"], &["config"]),
        (0, &["config", "path"], &["config"]),
        (2, &["cp", "--no-such-option", "a", "b"], &["error"]),
        (4, &["ls", &url("/none")], &["error"]),
    ] {
        let events = events(code, arguments);
        for kind in kinds {
            assert!(has(&events, kind), "{arguments:?}: {kind} is not in {events:?}");
        }
    }
}

#[test]
fn times_are_exact_and_errors_have_a_kind() {
    let server = Server::start();
    fs::write(server.path("/file"), "x").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 123_456_789);
    fs::File::options().write(true).open(server.path("/file")).unwrap().set_modified(time).unwrap();
    let listed = events(0, &["stat", &server.url("/file")]);
    assert_eq!(listed[0]["mtime"], "2023-11-14T22:13:20.123456789Z");
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 500_000_000);
    fs::File::options().write(true).open(server.path("/file")).unwrap().set_modified(time).unwrap();
    assert_eq!(events(0, &["stat", &server.url("/file")])[0]["mtime"], "2023-11-14T22:13:20.500000000Z");
    let pinged = events(0, &["ping", "-c", "1", &server.url("/")]);
    assert!(pinged[0]["rtt_ns"].as_u64().is_some_and(|rtt| rtt > 1000), "{pinged:?}");
    let kind = |code, arguments: &[&str]| {
        let events = events(code, arguments);
        let error = events.iter().find(|event| event["event"] == "error").unwrap();
        error["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(4, &["ls", &server.url("/none")]), "source_missing");
    for taken in [&["mkdir", &server.url("/file")][..], &["ln", "-s", "x", &server.url("/file")]] {
        assert_eq!(kind(1, taken), "nfs_status", "{taken:?}");
    }
    assert_eq!(kind(3, &["ls", "no-such-host.invalid:/x"]), "host_not_found");
    assert_eq!(kind(2, &["cp", "here", "there"]), "usage");
    assert_eq!(kind(3, &["ls", "nfs://127.0.0.1:1/?mountport=1"]), "unreachable");
}

#[test]
fn a_copy_tells_its_progress_once_a_second() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, noise(300_000)).unwrap();
    let told = events(0, &["cp", "--bwlimit", "100K", file.to_str().unwrap(), &server.url("/")]);
    let progress: Vec<_> = told.iter().filter(|event| event["event"] == "progress").collect();
    assert!((1..=5).contains(&progress.len()), "{progress:?}");
    let bytes = |event: &Value| event["bytes"].as_u64().unwrap();
    assert!(progress.is_sorted_by_key(|event| bytes(event)), "{progress:?}");
    assert!(progress.iter().all(|event| event["expected_bytes"] == 300_000), "{progress:?}");
}

#[test]
fn the_program_has_the_description_with_it() {
    let page = ok(["man", "json"]);
    assert_eq!(page, fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap());
}

#[test]
fn messages_to_programs_are_whole() {
    let server = Server::start();
    let path = format!("/{}/end", ["directory"; 100].join("/"));
    let events = events(4, &["ls", &server.url(&path)]);
    let error = events.iter().find(|event| event["event"] == "error").unwrap();
    assert!(error["message"].as_str().unwrap().contains(&path), "{error}");
    let told = self::events(2, &["cp", "--json"]);
    assert_eq!(told[0]["message"], "the following required arguments were not provided: <SRC>..., <DST>");
}
