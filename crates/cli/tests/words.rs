//! What is said of mistakes that everybody makes once: in the words of the command line, with what to type instead.

mod common;

use std::{process::Stdio, thread, time::Duration};

use common::{Server, command, stderr};
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
