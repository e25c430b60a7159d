//! What is resumed depends on what source and target are, not on the words that name them.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{self, Server, assert_same_tree, command, names, noise, stderr};
use serde_json::Value;

const SIZE: u64 = 4 << 20;

/// Names of this host that a server on all its addresses is reached by, one after the other.
const HOSTS: [[&str; 2]; 3] = [["127.0.0.1", "localhost"], ["localhost", "[::1]"], ["[::1]", "127.0.0.1"]];

/// The same URL with another name of the server.
fn at(host: &str, url: &str) -> String {
    url.replacen("127.0.0.1", host, 1)
}

/// Names of what is kept for later runs, but for what tells runs apart.
fn kept(state: &Path) -> Vec<OsString> {
    let mut kept = names(&state.join("nfsw"));
    kept.retain(|name| name != "key" && !name.to_string_lossy().starts_with("run-"));
    kept
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Prepares a copy whose state is kept in `state`.
fn cp(state: &Path, arguments: &[&str]) -> Command {
    let mut command = command(["cp", "--json"]);
    command.args(arguments).env("XDG_STATE_HOME", state).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn slowly(state: &Path, arguments: &[&str]) -> Child {
    cp(state, &[&["--bwlimit", "16Mbit"], arguments].concat()).spawn().unwrap()
}

/// Starts a copy and kills it once `reached`.
fn killed(state: &Path, arguments: &[&str], reached: impl FnMut() -> bool) {
    let mut copy = slowly(state, arguments);
    wait_for(reached);
    copy.kill().unwrap();
    assert!(!copy.wait().unwrap().success(), "it was done before it could be killed");
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The events of a run that succeeded, by their name.
fn events(output: &Output, name: &str) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    let all = str::from_utf8(&output.stdout).unwrap().lines();
    all.map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|it| it["event"] == name).collect()
}

/// Bytes that a run found copied, and those it copied.
fn resumed(output: &Output) -> (u64, u64) {
    let had = events(output, "resumed").iter().map(|event| event["bytes"].as_u64().unwrap()).sum();
    (had, events(output, "summary")[0]["bytes"].as_u64().unwrap())
}

#[test]
fn a_file_is_resumed_by_whatever_name_of_its_server() {
    let (server, here, state) =
        (Server::everywhere(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (local, far) = (here.path().join("file"), server.path("file"));
    let url = server.url("/file");
    for [first, second] in HOSTS {
        for is_upload in [true, false] {
            let (source, target) = if is_upload { (&local, &far) } else { (&far, &local) };
            fs::write(source, noise(SIZE as usize)).unwrap();
            let run = |host| {
                let url = at(host, &url);
                if is_upload { [text(&local).to_owned(), url] } else { [url, text(&local).to_owned()] }
            };
            let [from, to] = run(first);
            let written = || {
                let blocks = std::os::unix::fs::MetadataExt::blocks;
                fs::metadata(common::part(target)).map_or(0, |part| blocks(&part) * 512)
            };
            killed(state.path(), &[&from, &to], || written() >= SIZE / 2);
            let [from, to] = run(second);
            let (had, copied) = resumed(&cp(state.path(), &[&from, &to]).output().unwrap());
            assert!(had >= SIZE / 4, "{from} {to}: {had} bytes resumed");
            assert_eq!(had + copied, SIZE, "{from} {to}");
            assert!(fs::read(target).unwrap() == noise(SIZE as usize));
            assert_eq!(names(target.parent().unwrap()), ["file"]);
            assert_eq!(kept(state.path()), [""; 0], "nothing is kept of what is complete");
            fs::remove_file(&local).unwrap();
            fs::remove_file(&far).unwrap();
        }
    }
}

#[test]
fn a_tree_is_resumed_by_whatever_name_of_its_server() {
    const FILES: usize = 60;
    let (server, here, state) =
        (Server::everywhere(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (local, far) = (here.path().join("tree"), server.path("tree"));
    let size = |name: &str| 40_000 + name[5..].parse::<u64>().unwrap();
    let url = server.url("/tree");
    for [first, second] in HOSTS {
        for is_upload in [true, false] {
            let (source, target) = if is_upload { (&local, &far) } else { (&far, &local) };
            fs::create_dir(source).unwrap();
            for number in 0..FILES {
                let name = format!("file {number:02}");
                fs::write(source.join(&name), noise(size(&name) as usize)).unwrap();
            }
            let run = |host| {
                let url = at(host, &url);
                if is_upload { [text(&local).to_owned(), url] } else { [url, text(&local).to_owned()] }
            };
            let [from, to] = run(first);
            let complete = || fs::read_dir(target).map_or(0, Iterator::count);
            killed(state.path(), &["-r", &from, &to], || complete() > FILES / 2);
            let [from, to] = run(second);
            let output = cp(state.path(), &["-r", &from, &to]).output().unwrap();
            let left_out = events(&output, "skipped");
            assert!(left_out.len() >= FILES / 8, "{from} {to}: {} files left out", left_out.len());
            let name =
                |event: &Value| event["target"].as_str().unwrap().rsplit_once('/').unwrap().1.to_owned();
            let had: u64 = left_out.iter().map(|event| size(&name(event))).sum();
            let (_, copied) = resumed(&output);
            assert_eq!(had + copied, (0..FILES).map(|number| 40_000 + number as u64).sum::<u64>());
            assert_same_tree(source, target, false);
            assert_eq!(kept(state.path()), [""; 0], "nothing is kept of what is complete");
            fs::remove_dir_all(&local).unwrap();
            fs::remove_dir_all(&far).unwrap();
        }
    }
}

/// A server in memory, its URL of a path, and how many bytes were written to it.
struct Memory(nfs_wireless_server::Server);

impl Memory {
    fn url(&self, path: &str) -> String {
        let address = self.0.local_addr();
        format!("nfs://{address}{path}?mountport={}", address.port())
    }

    fn written(&self) -> u64 {
        self.0.with_service(|service| service.stats().written_bytes)
    }

    fn holds(&self, path: &str, content: &[u8]) -> bool {
        let stored = self.0.with_service(|service| service.backend().read_file(path.as_bytes()));
        stored.is_ok_and(|stored| stored == content)
    }
}

#[test]
fn two_servers_with_the_same_handles_are_two() {
    let (here, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, other) = (Memory(common::embedded()), Memory(common::embedded()));
    let (source, content) = (here.path().join("file"), noise(SIZE as usize));
    fs::write(&source, &content).unwrap();
    // Side by side: the second is not taken for the first, and has no state of its own.
    let url = one.url("/file");
    let first = ["--bwlimit", "6Mbit", text(&source), &url];
    let mut first = cp(state.path(), &first).spawn().unwrap();
    wait_for(|| one.written() > SIZE / 16);
    let second = cp(state.path(), &[text(&source), &other.url("/file")]).output().unwrap();
    assert_eq!(resumed(&second), (0, SIZE), "{}", stderr(&second));
    assert!(
        stderr(&second).contains("cannot be resumed: another nfsw is copying there"),
        "{}",
        stderr(&second)
    );
    assert_eq!(first.try_wait().unwrap(), None, "both were running");
    assert!(first.wait().unwrap().success());
    assert!(one.holds("/file", &content) && other.holds("/file", &content));
    // One after the other: what the first has is not taken for what the second has.
    killed(state.path(), &[text(&source), &one.url("/copy")], || one.written() > SIZE + SIZE / 2);
    let second = cp(state.path(), &[text(&source), &other.url("/copy")]).output().unwrap();
    assert_eq!(resumed(&second), (0, SIZE));
    let first = cp(state.path(), &[text(&source), &one.url("/copy")]).output().unwrap();
    assert_eq!(resumed(&first), (0, SIZE));
    assert!(one.holds("/copy", &content) && other.holds("/copy", &content));
}

#[test]
fn a_server_that_changes_its_handles_costs_the_resume_and_nothing_else() {
    let (here, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Memory(common::embedded());
    let (source, content) = (here.path().join("file"), noise(SIZE as usize));
    fs::write(&source, &content).unwrap();
    killed(state.path(), &[text(&source), &server.url("/file")], || server.written() > SIZE / 2);
    server.0.with_service(|service| service.change_handles());
    let before = server.written();
    let output = cp(state.path(), &[text(&source), &server.url("/file")]).output().unwrap();
    assert_eq!(resumed(&output), (0, SIZE), "{}", stderr(&output));
    assert_eq!(server.written() - before, SIZE);
    assert!(server.holds("/file", &content));
    let listed = command(["ls", "-A", &server.url("/")]).output().unwrap();
    assert_eq!(str::from_utf8(&listed.stdout).unwrap(), "file\n");
}
