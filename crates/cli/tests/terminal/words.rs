//! What is said of mistakes that everybody makes once: in the words of the command line, with what to type instead.

use std::{process::Stdio, thread, time::Duration};

use crate::common::{Server, command, fails, nfsw, ok, stderr};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_mistake_is_told_in_the_words_of_the_command_line() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::write(server.path(&format!("/{name}")), name).unwrap();
    }
    let [a, b, there] = ["/a", "/b", "/logs"].map(|path| server.url(path));
    for (arguments, words) in [
        (&["cp", "--block-size", "3", &a, "."][..], "--block-size <BYTES>': must be at least 512"),
        (&["cp", "--block-size", "1000", &a, "."], "--block-size <BYTES>': must be a multiple of 512"),
        (&["cp", "127.0.0.1:20777/", "."], "nfs://127.0.0.1:20777/"),
        (&["cp", &a, &b, "logs/"], "logs/ does not exist; create it first: mkdir logs/"),
        (&["cp", &a, &b, &there], "does not exist; create it first: nfsw mkdir "),
        (&["sync", "here", "there"], "nfsw syncs with NFS servers only: use rsync -a"),
        (&["cp", "--bwlimit", "1x", &a, "."], "KiB a second (500)"),
        (&["cp", "--bwlimit", "-1", &a, "."], "KiB a second (500)"),
        (&["ls", "--timeout", "x", &a], "expected a time in seconds (30), or with a unit"),
        (&["ls", "--timeout", "-1", &a], "expected a time in seconds (30), or with a unit"),
        (&["ping", "127.0.0.1:20777"], "a port goes into a URL: nfs://127.0.0.1:20777/"),
        (&["doctor", "[::1]:20777"], "a port goes into a URL: nfs://[::1]:20777/"),
    ] {
        let output = command(arguments.iter()).current_dir(place.path()).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
    let output =
        command(["cp", "-v", "--bwlimit", "2M", &a, "copy"]).current_dir(place.path()).output().unwrap();
    assert!(stderr(&output).contains("at most 2.0 MiB/s (16.8 Mbit/s)"), "{}", stderr(&output));
}

#[test]
fn habits_from_other_programs_are_obeyed_or_answered() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("tree/below")).unwrap();
    std::fs::write(place.path().join("tree/below/a"), "a").unwrap();
    std::fs::write(server.path("/a"), "a").unwrap();
    let (a, there) = (server.url("/a"), server.url("/there"));
    let run = |line: &[&str]| command(line).current_dir(place.path()).output().unwrap();
    for (line, words) in [
        (&["cp", "-e", "ssh", &a, "b"][..], "cp -e: nfsw talks to the NFS service itself, without ssh."),
        (&["cp", "-P", "22", &a, "b"], "the port is part of the name of a server: nfs://HOST:PORT/PATH"),
        (
            &["cp", "-P22", &a, "b"],
            "cp -P22: -P copies links as links, as for cp. The port is part of the name",
        ),
        (
            &["cp", "-4", &a, "b"],
            "cp -4: not available: an address in the place of HOST selects IPv4 or IPv6",
        ),
        (&["cp", "-l", "8000", &a, "b"], "--bwlimit"),
        (&["cp", "-i", &a, "b"], "-n leaves files that exist alone"),
        (&["sync", "--backup", "tree", &there], "nfsw keeps no earlier versions"),
        (&["rsync", "tree", &there], "rsync is not a command of nfsw. nfsw sync SRC DST"),
    ] {
        let output = run(line);
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains(words), "{line:?}: {said}");
        assert!(said.starts_with("nfsw: ") && said.lines().count() == 1, "{said}");
        let events = String::from_utf8(run(&[line, &["--json"]].concat()).stdout).unwrap();
        let told = events
            .lines()
            .any(|event| event.contains(r#""event":"error","kind":"usage""#) && event.contains(words));
        assert!(told, "{events}");
    }
    let output = run(&["cp", "-avzP", "tree", &there]);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("nothing is compressed: NFS"), "{output:?}");
    assert_eq!(std::fs::read(server.path("/there/below/a")).unwrap(), b"a");
    for name in ["-x", "-0", "plain"] {
        std::fs::write(place.path().join(name), name).unwrap();
    }
    let output = run(&["cp", "-C", "--", "plain", "-x", "-0", &there]);
    assert!(output.status.success() && !stderr(&output).contains("-z"), "{output:?}");
    assert_eq!(std::fs::read(server.path("/there/-x")).unwrap(), b"-x");
    let output = run(&["cp", "--", "-0", &server.url("/digit")]);
    assert!(output.status.success() && server.path("/digit").exists(), "{output:?}");
    let output = run(&["sync", "-avzhP", "--delete-after", "tree", &there]);
    assert!(output.status.success(), "{output:?}");
    for name in ["cp", "sync"] {
        let output = run(&[name, "-h"]);
        assert!(
            output.status.success() && String::from_utf8(output.stdout).unwrap().contains("Usage: nfsw"),
            "{name}"
        );
    }
}

#[test]
fn the_port_is_part_of_every_name() {
    let server = Server::start();
    let name = format!("nfs://{}", server.address());
    let said = fails(4, ["ls", &server.url("/a%25")]);
    assert!(said.starts_with(&format!("nfsw: {name}/a%25: no such file")), "{said}");
    // The command that is suggested works as it stands.
    let place = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::write(place.path().join(name), name).unwrap();
    }
    let copy = |target: &str| command(["cp", "a", "b", target]).current_dir(place.path()).output().unwrap();
    let said = stderr(&copy(&server.url("/it's logs")));
    let (_, suggested) = said.trim().split_once("create it first: nfsw ").expect(&said);
    let shell = format!("{} {suggested}", env!("CARGO_BIN_EXE_nfsw"));
    assert!(std::process::Command::new("sh").args(["-c", &shell]).status().unwrap().success(), "{said}");
    assert!(copy(&server.url("/it's logs")).status.success());
}

/// A tree of `count` files, and a directory where each of them would be put there is one that it cannot replace.
fn refused(server: &Server, count: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for number in 0..count {
        std::fs::write(place.path().join(format!("{number}")), "x").unwrap();
        std::fs::create_dir_all(server.path(&format!("/to/{number}/kept"))).unwrap();
    }
    place
}

#[test]
fn a_cause_is_told_once_with_the_number_of_files() {
    const FILES: usize = 300;
    let server = Server::start();
    let place = refused(&server, FILES);
    let source = format!("{}/.", place.path().display());
    let copy = |options: &[&str]| {
        let output =
            command(["cp", "-r", &source, &server.url("/to")].iter().chain(options)).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        (stderr(&output), String::from_utf8(output.stdout).unwrap())
    };
    let (said, _) = copy(&[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[1].starts_with(&format!("nfsw: {} more files: ", FILES - 1)), "{said}");
    assert!(lines[1].ends_with("(-v names them)"), "{said}");
    let (said, _) = copy(&["-v"]);
    assert_eq!(said.matches("is a directory").count(), FILES, "{said}");
    let (_, events) = copy(&["--json"]);
    let errors = events.lines().filter(|line| line.contains(r#""event":"error""#));
    assert!(errors.clone().all(|line| line.contains(r#""kind":"some_failed""#)), "{events}");
    assert_eq!(errors.count(), FILES);
}

#[test]
fn two_of_a_kind_are_both_named() {
    let server = Server::start();
    let place = refused(&server, 2);
    let output = nfsw(["cp", "-r", &format!("{}/.", place.path().display()), &server.url("/to")]);
    let said = stderr(&output);
    assert!(said.contains("/to/0: ") && said.contains("/to/1: ") && said.lines().count() == 2, "{said}");
}

#[test]
fn a_long_name_is_cut_in_its_middle() {
    let server = Server::start();
    let path = format!("/{}/end", ["directory"; 100].join("/"));
    let said = fails(4, ["ls", &server.url(&path)]);
    assert!(said.contains("...") && said.contains("/end: no such file"), "{said}");
    assert!(said.split(' ').all(|word| word.chars().count() <= 200), "{said}");
}

#[test]
fn what_is_no_port_mapper_is_called_so() {
    // Not the port of port mappers, which may be taken: any service that is sought is told apart in the same way.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in other.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut client, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let url = format!("nfs://{address}/?mountport={}", address.port());
    let said = fails(3, ["ls", "--transport", "tcp", &url]);
    assert!(said.contains(&format!("what answers at {address} over TCP is not the ")), "{said}");
    let events = nfsw(["ls", "--json", "--transport", "tcp", &url]);
    assert!(String::from_utf8(events.stdout).unwrap().contains(r#""kind":"broken_reply""#));
}

#[test]
fn help_says_what_the_command_is_for_and_tuning_has_a_help_of_its_own() {
    let short = ok(["ls", "--help"]);
    assert!(short.lines().count() < 50 && !short.contains("--timeo "), "{short}");
    let tuning = ok(["ls", "--help-connection"]);
    let manual = ok(["man", "ls"]).replace("\\-", "-");
    for option in ["--timeo ", "--block-size ", "--window ", "--uid ", "--max-entries "] {
        assert!(tuning.contains(option), "{option}: {tuning}");
        // Its name, and in the next line what it does.
        let heading = format!("\\fB{}\\fR", option.trim_end());
        let mut lines = manual.lines().skip_while(|line| !line.starts_with(&heading));
        let explained = lines.nth(1).unwrap_or_else(|| panic!("{option}: {manual}"));
        assert!(explained.split(' ').count() > 3, "{option}: {explained}");
    }
    assert!(manual.contains("\\fBnfsw ls\\fR [OPTIONS] <TARGET>..."), "{manual}");
    assert!(short.contains("--help-connection"));
}

#[test]
fn presets_are_listed_for_programs_too() {
    let listed = ok(["link", "presets", "--json"]);
    let names = listed.lines().filter(|line| line.starts_with("{") && line.contains(r#""name":"#));
    assert_eq!(names.count(), listed.lines().count());
    assert!(listed.contains(r#""name":"paper-1997""#), "{listed}");
}

#[test]
fn an_interrupted_ping_prints_its_statistics() {
    let server = Server::start();
    let mut ping =
        command(["ping", "--count", "1000", "--interval", "100ms", "--transport", "tcp", &server.url("/")]);
    let ping = ping.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&ping), Signal::INT).unwrap();
    let output = ping.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("tcp: ") && last.contains("answered") && last.contains("min / mean / max"),
        "{said}"
    );
}

#[test]
fn a_log_has_what_was_done_and_said_with_the_time() {
    let server = Server::start();
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("tree")).unwrap();
    for name in ["tree/a", "tree/b"] {
        std::fs::write(place.path().join(name), name).unwrap();
    }
    std::fs::create_dir_all(server.path("/there/b/kept")).unwrap();
    let (there, synced) = (server.url("/there"), server.url("/synced"));
    let run = |line: &[&str]| command(line).current_dir(place.path()).output().unwrap();
    let output = run(&["cp", "-rq", "--log-file", "log", "tree/.", &there]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    assert!(run(&["sync", "--log-file", "log", "tree", &synced]).status.success());
    let log = std::fs::read_to_string(place.path().join("log")).unwrap();
    let told: Vec<&str> = log
        .lines()
        .map(|line| {
            let (time, rest) = line.split_once(" [").expect(line);
            assert!(time.len() == 25 && time.as_bytes()[10] == b'T', "{line}");
            rest.split_once("] ").expect(line).1
        })
        .collect();
    let place_of = |words: &str| {
        told.iter().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {log}"))
    };
    let order = [
        "cp -rq --log-file log tree/. ",
        "/there/b: is a directory, which a file cannot replace",
        "2 files: 1 copied, 1 failed; 6 B in ",
        "exit status 1",
        "sync --log-file log tree ",
        "3 new and 0 changed (12 B), 0 deleted, 0 unchanged; 12 B in ",
        "exit status 0",
    ];
    let places = order.map(place_of);
    assert!(places.is_sorted(), "{places:?}: {log}");
    assert!(told.iter().any(|line| line.starts_with("tree/./a -> ")), "{log}");
    let said = stderr(&run(&["cp", "--log-file", "none/log", "tree/a", &there]));
    assert!(said.contains("none/log: no such file"), "{said}");
}
