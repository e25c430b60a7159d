//! Servers that end and come back under a copy: the same one, one that has forgotten its handles, and another one.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{self, Server, assert_same_tree, command, embedded, noise, stderr};
use nfs_wireless_client::{NfsStatus, Procedure};
use nfs_wireless_server::{Action, Calls, Faults, Rule, When};

const SIZE: usize = 6 << 20;

/// Starts a copy that takes about a second.
fn copy(transport: &str, state: &Path, from: &str, to: &str) -> Child {
    command(["cp", "-r", "--bwlimit", "24Mbit", "--max-block", "16384", "--transport", transport])
        .args([from, to])
        .env("XDG_STATE_HOME", state)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for(target: &Path, bytes: u64) {
    let start = Instant::now();
    while fs::metadata(common::part(target)).map_or(0, |part| part.len()) < bytes {
        assert!(start.elapsed() < Duration::from_secs(60), "{target:?} does not grow");
        thread::sleep(Duration::from_millis(2));
    }
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("many")).unwrap();
    fs::write(root.join("large"), noise(SIZE)).unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("many/{number}")), noise(number * 97)).unwrap();
    }
}

/// A file on its way from a server, and a tree on its way there.
struct Copies {
    source: PathBuf,
    back: PathBuf,
    down: Child,
    up: Child,
}

impl Copies {
    /// Starts both in `place`, and returns when a quarter of either large file has arrived.
    fn under_way(transport: &str, server: &Server, place: &Path) -> Self {
        let (source, back) = (place.join("source"), place.join("back"));
        tree(&source);
        let down = copy(transport, &place.join("down"), &server.url("/down"), back.to_str().unwrap());
        let up = copy(transport, &place.join("up"), source.to_str().unwrap(), &server.url("/up"));
        wait_for(&back, SIZE as u64 / 4);
        wait_for(&server.path("/up/large"), SIZE as u64 / 4);
        Self { source, back, down, up }
    }
}

#[test]
fn copies_go_on_when_nfsw_serve_is_killed_and_started_again() {
    for transport in ["udp", "tcp"] {
        let place = tempfile::tempdir().unwrap();
        let mut server = Server::start();
        fs::write(server.path("/down"), noise(SIZE)).unwrap();
        let Copies { source, back, down, up } = Copies::under_way(transport, &server, place.path());
        server.restart();
        for copy in [down, up] {
            let output = copy.wait_with_output().unwrap();
            assert!(output.status.success(), "over {transport}: {}", stderr(&output));
            assert_eq!(stderr(&output), "", "over {transport}");
        }
        assert_same_tree(&server.path("/down"), &back, false);
        assert_same_tree(&source, &server.path("/up"), false);
    }
}

#[test]
fn another_server_at_the_same_address_is_told_from_the_one_that_was_there() {
    for transport in ["udp", "tcp"] {
        let place = tempfile::tempdir().unwrap();
        let mut server = Server::start();
        let other = tempfile::tempdir().unwrap();
        let different: Vec<u8> = noise(SIZE).into_iter().map(|byte| !byte).collect();
        fs::write(server.path("/down"), noise(SIZE)).unwrap();
        fs::write(other.path().join("down"), &different).unwrap();
        let Copies { back, down, up, .. } = Copies::under_way(transport, &server, place.path());
        fs::create_dir_all(other.path().join("up/many")).unwrap();
        server.replace(other.path());
        let output = down.wait_with_output().unwrap();
        let text = stderr(&output);
        assert!(output.status.success() && text.contains("changed since its copy was begun"), "{text}");
        assert!(fs::read(&back).unwrap() == different, "nothing of the first server's file is in the copy");
        let output = up.wait_with_output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "over {transport}: {text}");
        assert!(text.contains("another directory now") || text.contains("stale"), "{text}");
    }
}

/// A server in memory, with a file and a directory, on a thread of its own.
fn in_memory() -> (nfs_wireless_server::Server, String) {
    let server = embedded();
    let now = nfs_wire::nfs3_types::nfs3::nfstime3 { seconds: 5, nseconds: 0 };
    server.with_service(|service| service.backend().write_file(now, b"down", &noise(SIZE)).unwrap());
    let address = server.local_addr();
    (server, format!("nfs://{address}/NAME?mountport={}", address.port()))
}

/// Waits until the server has so many bytes of the file `up`.
fn wait_for_upload(server: &nfs_wireless_server::Server, bytes: usize) {
    let start = Instant::now();
    let has = |name: &[u8]| {
        server.with_service(|service| service.backend().read_file(name).is_ok_and(|it| it.len() >= bytes))
    };
    let address = server.local_addr();
    let url = format!("nfs://{address}/?mountport={}", address.port());
    let is_there = || {
        let listed = common::ok(["ls", "-A", &url]);
        let mut names = listed.lines().map(str::trim);
        names.any(|name| (name == "up" || name.starts_with(".up.nfsw-part")) && has(name.as_bytes()))
    };
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(60), "the upload makes no progress");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn copies_go_on_when_the_server_has_forgotten_its_handles() {
    for transport in ["udp", "tcp"] {
        let (server, url) = in_memory();
        let place = tempfile::tempdir().unwrap();
        let (source, back) = (place.path().join("source"), place.path().join("back"));
        tree(&source);
        let (down_state, up_state) = (place.path().join("down"), place.path().join("up"));
        let down = copy(transport, &down_state, &url.replace("NAME", "down"), back.to_str().unwrap());
        let up =
            copy(transport, &up_state, source.join("large").to_str().unwrap(), &url.replace("NAME", "up"));
        for part in 1..=2 {
            // Both have got somewhere since: without that the second time is an error.
            wait_for(&back, SIZE as u64 * part / 4);
            wait_for_upload(&server, SIZE * part as usize / 4);
            server.with_service(|service| service.change_handles());
        }
        for copy in [down, up] {
            let output = copy.wait_with_output().unwrap();
            assert!(output.status.success(), "over {transport}: {}", stderr(&output));
            assert!(!stderr(&output).contains("changed"), "over {transport}: {}", stderr(&output));
        }
        assert!(fs::read(&back).unwrap() == noise(SIZE));
        let stored = server.with_service(|service| service.backend().read_file(b"up").unwrap());
        assert!(stored == noise(SIZE), "over {transport}");
    }
}

#[test]
fn a_stream_resumes_when_the_server_has_forgotten_its_handles() {
    for command in [&["cat"][..], &["cp"]] {
        let (server, url) = in_memory();
        let mut nfsw = common::command(command.iter().copied().chain([&*url.replace("NAME", "down")]));
        if command == ["cp"] {
            nfsw.arg("-");
        }
        let mut nfsw = nfsw.stdout(Stdio::piped()).spawn().unwrap();
        // It gets no further than the pipe and what it reads ahead.
        let (mut out, mut first) = (nfsw.stdout.take().unwrap(), vec![0; 100_000]);
        out.read_exact(&mut first).unwrap();
        server.with_service(|service| service.change_handles());
        out.read_to_end(&mut first).unwrap();
        assert!(nfsw.wait().unwrap().success());
        assert!(first == noise(SIZE));
        // Another file in its place is not gone on with.
        let mut nfsw = common::command([command[0], &url.replace("NAME", "down")]);
        if command == ["cp"] {
            nfsw.arg("-");
        }
        let mut nfsw = nfsw.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut out, mut first) = (nfsw.stdout.take().unwrap(), vec![0; 100_000]);
        out.read_exact(&mut first).unwrap();
        let now = nfs_wire::nfs3_types::nfs3::nfstime3 { seconds: 9, nseconds: 0 };
        server.with_service(|service| {
            service.change_handles();
            service.backend().write_file(now, b"down", &vec![1; SIZE]).unwrap();
        });
        out.read_to_end(&mut first).unwrap();
        let output = nfsw.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("stale"), "{}", stderr(&output));
        assert!(first == noise(SIZE)[..first.len()]);
    }
}

#[test]
fn trees_are_copied_by_a_server_that_forgets_every_handle_once() {
    use Procedure::{Create, Lookup, Mkdir, Read, Readdirplus, Setattr, Symlink, Write};
    for procedure in [Create, Lookup, Mkdir, Read, Readdirplus, Setattr, Symlink, Write] {
        let (server, url) = in_memory();
        let place = tempfile::tempdir().unwrap();
        let (source, back) = (place.path().join("source"), place.path().join("back"));
        fs::create_dir_all(source.join("one/two")).unwrap();
        fs::create_dir(source.join("one/three")).unwrap();
        for file in ["one/a", "one/two/b", "one/three/c"] {
            fs::write(source.join(file), noise(200_000)).unwrap();
        }
        std::os::unix::fs::symlink("a", source.join("one/link")).unwrap();
        fs::set_permissions(source.join("one/two"), fs::Permissions::from_mode(0o500)).unwrap();
        let forgetful = |nth| {
            let (calls, action) = (Calls::Procedure(procedure), Action::Fail(NfsStatus::STALE));
            let rules = Faults::from(vec![Rule { calls, when: When::Nth(nth), action }]);
            server.with_service(|service| service.set_faults(rules));
        };
        // The first LOOKUPs are those of the path that was named, whose handles are as new as can be.
        let nth = if procedure == Lookup { 3 } else { 2 };
        let run = |from: &str, to: &str| {
            let copied = common::nfsw(["cp", "-rp", "-j", "1", "--transport", "udp", from, to]);
            assert!(copied.status.success(), "{procedure}: {}", stderr(&copied));
        };
        forgetful(nth);
        run(source.to_str().unwrap(), &url.replace("NAME", "up"));
        // And into what is there.
        forgetful(nth);
        run(&format!("{}/one", source.display()), &url.replace("NAME", "up"));
        forgetful(nth);
        run(&url.replace("NAME", "up"), back.to_str().unwrap());
        assert_same_tree(&source, &back, true);
    }
}

#[test]
fn a_handle_that_stays_bad_is_looked_up_again_once() {
    for (status, procedure) in [(NfsStatus::BADHANDLE, Procedure::Read), (NfsStatus::STALE, Procedure::Write)]
    {
        for (when, ends_well) in [(When::Nth(20), true), (When::After(20), false)] {
            let (server, url) = in_memory();
            let rule = Rule { calls: Calls::Procedure(procedure), when, action: Action::Fail(status) };
            server.with_service(|service| service.set_faults(Faults::from(vec![rule])));
            let place = tempfile::tempdir().unwrap();
            let (source, back) = (place.path().join("source"), place.path().join("back"));
            fs::write(&source, noise(SIZE)).unwrap();
            let (from, to) = match procedure {
                Procedure::Read => (url.replace("NAME", "down"), back.to_str().unwrap().to_owned()),
                _ => (source.to_str().unwrap().to_owned(), url.replace("NAME", "up")),
            };
            let output = copy("udp", &place.path().join("state"), &from, &to).wait_with_output().unwrap();
            let text = stderr(&output);
            assert_eq!(output.status.success(), ends_well, "{status} to {procedure}, {when:?}: {text}");
            if ends_well && procedure == Procedure::Read {
                assert!(fs::read(&back).unwrap() == noise(SIZE));
            }
            if !ends_well {
                let last = text.lines().last().unwrap_or_default();
                assert!(last.contains("handle") || last.contains("stale"), "{text}");
            }
        }
    }
}
