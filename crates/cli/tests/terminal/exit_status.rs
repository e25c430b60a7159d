//! How runs end: status, one clear line, and nothing half-visible left behind.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, UdpSocket},
    os::unix::fs::FileExt,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use nfs_wireless_server::{Action, Calls, Faults, Memory, Rule, Service, ServiceConfig, When};

use crate::common::{self, Server, command, fails, names, nfsw, noise, ok, rest_of};
use rustix::process::{Pid, Signal, kill_process};

fn signal(process: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// Ports on which somebody listens who never answers.
fn silent() -> (UdpSocket, TcpListener, u16) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        if let Ok(udp) = UdpSocket::bind(("127.0.0.1", port)) {
            return (udp, tcp, port);
        }
    }
}

#[test]
fn a_missing_source_is_4() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let error = fails(4, ["cp", &server.url("/missing"), here.path().to_str().unwrap()]);
    assert!(error.contains(&server.name("/missing: no such file or directory")), "{error}");
    fails(4, ["cp", "/nonexistent/file", &server.url("/")]);
    fails(4, ["cat", &server.url("/missing")]);
    fails(4, ["ls", &server.url("/missing/deeper")]);
    assert_eq!(names(here.path()).len() + names(server.root.path()).len(), 0);
    // The others are copied all the same.
    fs::write(server.path("there"), b"x").unwrap();
    fails(4, ["cp", &server.url("/missing"), &server.url("/there"), here.path().to_str().unwrap()]);
    assert_eq!(names(here.path()), ["there"]);
}

#[test]
fn a_server_that_is_not_there_is_3() {
    let (udp, tcp, port) = silent();
    drop((udp, tcp));
    for transport in ["auto", "udp", "tcp"] {
        let started = Instant::now();
        let url = format!("nfs://127.0.0.1:{port}/x?mountport={port}");
        let error = fails(3, ["cp", "--transport", transport, &url, "/tmp"]);
        assert!(error.contains("cannot reach") && error.contains("refused"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10), "{transport}: {:?}", started.elapsed());
    }
    let error = fails(3, ["ls", "does-not-exist.invalid:/"]);
    assert!(error.contains("cannot find the host"), "{error}");
}

#[test]
fn a_server_that_does_not_respond_is_3_within_the_timeout() {
    let (_udp, _tcp, port) = silent();
    for transport in ["auto", "udp", "tcp"] {
        let started = Instant::now();
        let url = format!("nfs://127.0.0.1:{port}/x?mountport={port}");
        let error = fails(3, ["cp", "--transport", transport, "--timeout", "700ms", &url, "/tmp"]);
        assert!(error.contains("no answer"), "{error}");
        let elapsed = started.elapsed();
        assert!(elapsed > Duration::from_millis(600) && elapsed < Duration::from_secs(10), "{elapsed:?}");
    }
}

#[test]
fn a_limit_of_0_is_none() {
    let (_udp, _tcp, port) = silent();
    let url = format!("nfs://127.0.0.1:{port}/x?mountport={port}");
    let error = fails(5, ["df", "--timeout=0", "--deadline", "700ms", &url]);
    assert!(error.contains("the deadline has passed"), "{error}");
    let error = fails(3, ["ls", "--timeout", "700ms", "--deadline=0", &url]);
    assert!(error.contains("no progress") || error.contains("no answer"), "{error}");
    let server = Server::start();
    fs::write(server.path("file"), noise(100_000)).unwrap();
    ok(["cp", "--bwlimit=0", "--timeout=0", &server.url("/file"), "/dev/null"]);
}

#[test]
fn a_server_that_does_not_respond_is_named_with_its_port() {
    let (_udp, _tcp, port) = silent();
    let url = format!("nfs://127.0.0.1:{port}/");
    let here = tempfile::tempdir().unwrap();
    let here = here.path().to_str().unwrap();
    for line in [&["sync", "--timeout", "700ms", here, &url][..], &["df", "--timeout", "700ms", &url]] {
        let error = fails(3, line);
        assert!(!error.contains("2049") && error.contains(&port.to_string()), "{error}");
    }
}

#[test]
fn wrong_usage_is_2() {
    let server = Server::start();
    fails(2, ["cp", "a", "b"]);
    fails(2, ["cp", "nas:relative", "."]);
    fails(2, ["cp", "--json", &server.url("/x"), "-"]);
    for wrong in [&["cp"][..], &["frobnicate"], &["ls", "local"], &["cp", "--jobs", "0", "a", "b"]] {
        assert_eq!(nfsw(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn local_trouble_is_7() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("file"), noise(100_000)).unwrap();
    let missing = here.path().join("missing/file");
    let error = fails(7, ["cp", &server.url("/file"), missing.to_str().unwrap()]);
    assert!(error.contains("does not exist"), "{error}");
    let error = fails(7, ["cp", &server.url("/file"), "/proc/nfsw"]);
    assert!(error.contains("/proc/nfsw"), "{error}");
    let error = fails(7, ["cp", &server.url("/file"), "/dev/full"]);
    assert!(error.contains("no space left"), "{error}");
}

#[test]
fn a_read_only_export_is_1_and_says_so_once() {
    let server = Server::read_only();
    let here = tempfile::tempdir().unwrap();
    for number in 0..50 {
        fs::write(here.path().join(number.to_string()), b"x").unwrap();
    }
    let error = fails(1, ["cp", "-r", here.path().to_str().unwrap(), &server.url("/tree")]);
    assert!(error.contains("read-only"), "{error}");
    let mut all: Vec<String> =
        (0..50).map(|number| here.path().join(number.to_string()).display().to_string()).collect();
    all.insert(0, "cp".to_owned());
    all.push(server.url("/"));
    let error = fails(1, &all);
    assert!(error.contains("read-only"), "{error}");
    assert_eq!(names(server.root.path()).len(), 0);
}

#[test]
fn a_copy_that_differs_is_6() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let content = noise(1 << 20);
    fs::write(server.path("file"), &content).unwrap();
    let (url, target) = (server.url("/file"), here.path().to_str().unwrap());
    ok(["cp", "--verify", &url, target]);
    ok(["cp", "--verify", here.path().join("file").to_str().unwrap(), &server.url("/second")]);
    let part = here.path().join(".file.nfsw-part");
    let change = |path: &std::path::Path| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(&[!content[5000]], 5000).unwrap();
        file.set_modified(time).unwrap();
    };
    // A byte of the copy goes wrong, which nothing else shows; one of the source is seen by the time of its attributes.
    for (changed, code, said) in [
        (part.clone(), 6, "in bytes 0 to 1048575;"),
        (server.path("file"), 0, "changed since its copy was begun; copied again"),
    ] {
        fs::remove_file(here.path().join("file")).unwrap();
        let copy = command(["cp", "--verify", "--bwlimit", "8Mbit", &url, target])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(|| fs::metadata(&part).is_ok_and(|part| part.len() > 64 << 10));
        change(&changed);
        let output = copy.wait_with_output().unwrap();
        let error = common::stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said), "{error}");
    }
    assert!(fs::read(here.path().join("file")).unwrap() == fs::read(server.path("file")).unwrap());
    // Streams are compared with what went through.
    let mut copy =
        command(["cp", "--verify", "-", &server.url("/stream")]).stdin(Stdio::piped()).spawn().unwrap();
    copy.stdin.take().unwrap().write_all(&content).unwrap();
    assert!(copy.wait().unwrap().success());
    let output = nfsw(["cp", "--verify", &server.url("/stream"), "-"]);
    assert!(output.status.success() && output.stdout == content);
}

#[test]
fn a_server_that_stops_responding_is_5_and_the_part_is_kept() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("file"), noise(4 << 20)).unwrap();
    for transport in ["udp", "tcp"] {
        let (url, target) = (server.url("/file"), here.path().join("file"));
        let mut copy =
            command(["cp", "--bwlimit", "8Mbit", "--timeout", "1s", "--transport", transport, &url])
                .arg(&target)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
        let part = here.path().join(".file.nfsw-part");
        wait_for(|| fs::metadata(&part).is_ok_and(|part| part.len() > 0));
        signal(&server.process, Signal::STOP);
        let started = Instant::now();
        let status = copy.wait().unwrap();
        signal(&server.process, Signal::CONT);
        let error = rest_of(copy.stderr.take().unwrap());
        assert_eq!(status.code(), Some(5), "{error}");
        assert!(error.contains("no progress for") && error.contains("run again: nfsw cp"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_eq!(names(here.path()), [&common::journal("file")[..], ".file.nfsw-part"]);
        ok(["cp", &url, target.to_str().unwrap()]);
        assert_eq!(names(here.path()), ["file"]);
        fs::remove_file(target).unwrap();
    }
}

#[test]
fn a_slow_server_and_one_that_does_not_respond_are_told_apart() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let server =
        runtime.block_on(nfs_wireless_server::Server::bind("127.0.0.1:0".parse().unwrap(), service)).unwrap();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let address = server.local_addr();
    server.with_service(|service| {
        service.backend().write_file(Default::default(), b"/file", &noise(100_000)).unwrap();
        // It reads for ever, and answers everything else.
        let stuck = Calls::Procedure(nfs_wireless_client::Procedure::Read);
        let rule = Rule { calls: stuck, when: When::Always, action: Action::DropCall };
        service.set_faults(Faults::from(vec![rule]));
    });
    let silent = Server::start();
    fs::write(silent.path("file"), noise(4 << 20)).unwrap();
    let here = tempfile::tempdir().unwrap();
    let url = format!("nfs://{address}/file?mountport={}", address.port());
    let runs = ["udp", "tcp"].map(|transport| {
        let copy = |url: &str, name: &str| {
            command(["cp", "--timeout", "6500ms", "--bwlimit", "8Mbit", "--transport", transport, url])
                .arg(here.path().join(format!("{name}-{transport}")))
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        (copy(&url, "slow"), copy(&silent.url("/file"), "silent"))
    });
    thread::sleep(Duration::from_millis(800));
    signal(&silent.process, Signal::STOP);
    for (slow, silent) in runs {
        for (run, words) in [(slow, "server slow (RTT "), (silent, "link down for 5 s")] {
            let output = run.wait_with_output().unwrap();
            let said = common::stderr(&output);
            assert_eq!(output.status.code(), Some(5), "{said}");
            assert!(said.contains(words) && said.contains("run again: nfsw cp"), "{said}");
        }
    }
}

#[test]
fn an_interrupted_run_is_130_at_once() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("file"), noise(4 << 20)).unwrap();
    for (number, kind) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let target = here.path().join(format!("it's {number}"));
        let mut copy = command(["cp", "--bwlimit", "4Mbit", "--json", &server.url("/file")])
            .arg(&target)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(|| names(here.path()).len() > number);
        thread::sleep(Duration::from_millis(100));
        signal(&copy, kind);
        let started = Instant::now();
        let status = copy.wait().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(status.code(), Some(130));
        let error = rest_of(copy.stderr.take().unwrap());
        let quoted = format!("it'\\''s {number}'");
        assert!(error.contains("run again: nfsw cp --bwlimit") && error.contains(&quoted), "{error}");
        let last = BufReader::new(copy.stdout.take().unwrap()).lines().last().unwrap().unwrap();
        assert!(last.contains("\"outcome\":\"interrupted\",\"exit_code\":130"), "{last}");
        assert!(!target.exists());
    }
    // Standard input that never ends is no obstacle.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut copy =
        command(["cp", "-", &server.url("/in")]).stdin(reader).stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| names(server.root.path()).len() > 1);
    signal(&copy, Signal::INT);
    assert_eq!(copy.wait().unwrap().code(), Some(130));
    drop(writer);
}

#[test]
fn a_slow_pipe_is_not_a_server_that_does_not_respond() {
    let server = Server::start();
    let mut copy =
        command(["cp", "--timeout", "300ms", "-", &server.url("/in")]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = copy.stdin.take().unwrap();
    for _ in 0..2 {
        input.write_all(&noise(100_000)).unwrap();
        thread::sleep(Duration::from_millis(700));
    }
    drop(input);
    assert!(copy.wait().unwrap().success());
    assert_eq!(fs::metadata(server.path("in")).unwrap().len(), 200_000);
}

#[test]
fn a_deadline_ends_a_run() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("file"), noise(4 << 20)).unwrap();
    let started = Instant::now();
    let target = here.path().to_str().unwrap();
    let error = fails(5, ["cp", "--bwlimit", "4Mbit", "--deadline", "500ms", &server.url("/file"), target]);
    assert!(error.contains("deadline"), "{error}");
    // Nothing can have been answered so early, which says nothing about the server.
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().to_str().unwrap();
    let error = fails(5, ["cp", "--deadline", "1ms", &server.url("/file"), target]);
    assert!(error.contains("the deadline has passed"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(6));
}

#[test]
fn the_last_json_line_sums_up() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("file"), noise(100_000)).unwrap();
    let out = ok(["cp", "--json", &server.url("/file"), here.path().to_str().unwrap()]);
    let last = out.lines().last().unwrap();
    assert!(
        last.starts_with("{\"event\":\"summary\",\"schema_version\":1,\"bytes\":100000,\"seconds\":"),
        "{last}"
    );
    assert!(
        last.contains("\"transport\":\"tcp\"") && last.ends_with("\"outcome\":\"done\",\"exit_code\":0}"),
        "{last}"
    );
    for arguments in [&["cp", "--json"][..], &["ls", "--json", "h:relative"], &["cp", "--json", "a", "b"]] {
        let output = nfsw(arguments);
        let last = String::from_utf8(output.stdout).unwrap();
        assert!(last.trim_end().ends_with("\"outcome\":\"usage\",\"exit_code\":2}"), "{last}");
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "waited in vain");
        thread::sleep(Duration::from_millis(5));
    }
}
