//! Runs that are killed and servers that are, with a real server.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    killing::{Job, MOST_AGAIN},
    nfsw, part,
    server::{Ganesha, Options},
};

const SIZE: usize = 8 << 20;

fn contents() -> Vec<u8> {
    (0..SIZE as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The URL of a file in the export.
fn url(server: &Ganesha, name: &str) -> String {
    let (nfs, mount) = server.ports();
    format!("nfs://127.0.0.1{}/{name}?nfsport={nfs}&mountport={mount}", server.export().display())
}

fn upload(state: &Path, transport: &str, rate: &str, source: &Path, url: &str) -> Child {
    copy(state, transport, rate, source, url.as_ref())
}

fn copy(state: &Path, transport: &str, rate: &str, from: &Path, to: &Path) -> Child {
    Command::new(nfsw::binary())
        .args(["cp", "--quiet", "--json", "--transport", transport, "--bwlimit", rate])
        .args([from, to])
        .env("XDG_STATE_HOME", state)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills copies both ways, so many times each.
fn kill(kills: u32) {
    let server = Ganesha::start(Options::default());
    let place = tempfile::tempdir().unwrap();
    let (source, back) = (place.path().join("source"), place.path().join("back"));
    fs::write(&source, contents()).unwrap();
    let copy = server.export().join("copy");
    let sizes = HashMap::from(["copy", "back"].map(|name| (name.into(), SIZE as u64)));
    for (number, transport) in ["udp", "tcp"].into_iter().enumerate() {
        let job = |from: &str, to: &str, source: &Path, target: &Path| Job {
            nfsw: nfsw::binary().to_owned(),
            state: place.path().join("state"),
            options: ["--transport", transport, "--bwlimit", "40Mbit"].map(String::from).into(),
            from: from.to_owned(),
            to: to.to_owned(),
            source: source.to_owned(),
            target: target.to_owned(),
            sizes: sizes.clone(),
            patience: Duration::from_millis(500),
            moved: Box::new(|| server.moved_bytes()),
        };
        let (here, there) = (|path: &Path| path.to_str().unwrap().to_owned(), url(&server, "copy"));
        let seed = 10 + number as u64;
        let up = job(&here(&source), &there, &source, &copy).run(kills, seed);
        let down = job(&there, &here(&back), &copy, &back).run(kills, seed);
        assert!(up.worst <= MOST_AGAIN && down.worst <= MOST_AGAIN, "over {transport}");
    }
}

#[test]
fn copies_survive_kills() {
    kill(4);
}

#[test]
#[ignore = "takes minutes"]
fn copies_survive_two_hundred_kills() {
    kill(50);
}

/// Restarts the server under copies both ways: what is said to be done is there, whatever becomes of the server.
fn restart(restarts: u32) {
    let mut server = Ganesha::start(Options::default());
    let place = tempfile::tempdir().unwrap();
    let (state, source) = (place.path().join("state"), place.path().join("source"));
    fs::write(&source, contents()).unwrap();
    fs::write(server.export().join("there"), contents()).unwrap();
    for number in 0..restarts {
        let transport = ["udp", "tcp"][number as usize % 2];
        let name = format!("copy-{number}");
        let part = || part(&server.export().join(&name));
        let mut copy = upload(&state, transport, "40Mbit", &source, &url(&server, &name));
        let back = place.path().join(format!("back-{number}"));
        let mut download = self::copy(
            &place.path().join("other"),
            transport,
            "40Mbit",
            url(&server, "there").as_ref(),
            &back,
        );
        wait_for(|| fs::metadata(part()).is_ok_and(|part| part.len() > SIZE as u64 / 4));
        server.crash_and_restart();
        assert!(copy.wait().unwrap().success() && download.wait().unwrap().success(), "over {transport}");
        assert!(fs::read(&back).unwrap() == contents(), "over {transport}");
        server.crash_and_restart();
        server.wait_until_ready();
        let copied = fs::read(server.export().join(&name)).unwrap();
        assert!(copied == contents(), "over {transport}");
    }
    println!("{} restarts, in and after {restarts} uploads: nothing lost", 2 * restarts);
}

#[test]
fn uploads_survive_restarts_of_the_server() {
    restart(2);
}

#[test]
#[ignore = "takes minutes"]
fn uploads_survive_fifty_restarts_of_the_server() {
    restart(50);
}

#[test]
fn an_upload_goes_on_after_run_and_server_were_killed() {
    let mut server = Ganesha::start(Options::default());
    let place = tempfile::tempdir().unwrap();
    let (state, source) = (place.path().join("state"), place.path().join("source"));
    fs::write(&source, contents()).unwrap();
    let target_path = server.export().join("copy");
    let mut copied = Vec::new();
    for restarts in [false, true] {
        let target = url(&server, "copy");
        let mut copy = upload(&state, "tcp", "40Mbit", &source, &target);
        wait_for(|| fs::metadata(part(&target_path)).is_ok_and(|part| part.len() > SIZE as u64 / 2));
        copy.kill().unwrap();
        copy.wait().unwrap();
        if restarts {
            server.crash_and_restart();
            server.wait_until_ready();
        }
        let output = upload(&state, "tcp", "1G", &source, &target).wait_with_output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        copied.push(summary["bytes"].as_u64().unwrap());
        assert!(fs::read(server.export().join("copy")).unwrap() == contents());
        fs::remove_file(server.export().join("copy")).unwrap();
    }
    assert!(copied[0] <= SIZE as u64 / 2 + (1 << 20), "a server that runs on has what it had: {copied:?}");
    assert_eq!(copied[1], SIZE as u64, "another write verifier proves nothing: {copied:?}");
}

#[test]
fn a_tree_resumes_without_the_files_that_are_complete() {
    const FILES: u64 = 60;
    const BYTES: u64 = 20_000;
    let server = Ganesha::start(Options::default());
    let place = tempfile::tempdir().unwrap();
    let (state, tree) = (place.path().join("state"), place.path().join("tree"));
    fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(number.to_string()), &contents()[..BYTES as usize]).unwrap();
    }
    let run = |options: &str, rate: &str, name: &str| {
        Command::new(nfsw::binary())
            .args(["cp", options, "--quiet", "--json", "--jobs", "4", "--bwlimit", rate])
            .args([tree.as_os_str(), url(&server, name).as_ref()])
            .env("XDG_STATE_HOME", &state)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for options in ["-r", "-rp"] {
        let copy = server.export().join(options);
        let mut killed = run(options, "8Mbit", options);
        wait_for(|| fs::read_dir(&copy).is_ok_and(|names| names.count() as u64 > FILES / 2));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let output = run(options, "1G", options).wait_with_output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        let copied = summary["bytes"].as_u64().unwrap();
        assert!(copied <= (FILES / 2 + 5) * BYTES, "{options}: {copied} bytes copied");
        let names = || fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(names().count() as u64, FILES);
        assert!(names().all(|path| fs::read(path).unwrap() == contents()[..BYTES as usize]));
    }
}
