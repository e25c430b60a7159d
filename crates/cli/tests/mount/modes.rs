//! `nfsw mount --background`, `--status`, `--idle` and `--hoard`, through the kernel. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    thread,
    time::Duration,
};

use crate::{
    common::{self, Server, command, names, noise, until},
    mounted::{self, Mount, age, silence, state},
};
use rustix::process::Signal;
use serde_json::Value;

/// The state of the mount at a path, if there is one.
fn status(path: &Path, runtime: &Path) -> Option<Value> {
    let output = command([Path::new("mount"), "--status".as_ref(), path, "--json".as_ref()])
        .env("XDG_RUNTIME_DIR", runtime)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.into_iter().find(|event| event["event"] == "mounted")
}

fn held(path: &Path) -> bool {
    state(path) == "fresh"
}

#[test]
fn a_mount_in_the_background_works_when_the_command_returns_and_tells_its_state() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let place = tempfile::tempdir().unwrap();
    let (view, runtime) = (place.path().join("view"), place.path().join("run"));
    fs::create_dir(&view).unwrap();
    fs::create_dir(&runtime).unwrap();
    let run = |arguments: &[&Path]| {
        command(arguments)
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("XDG_STATE_HOME", place.path().join("state"))
            .current_dir(place.path())
            .output()
            .unwrap()
    };
    let url = server.url("/");
    let options = ["mount", "--background", "--cache", "cache"].map(Path::new);
    let output = run(&[&options[..], &[url.as_ref(), Path::new("view")]].concat());
    let said = common::stderr(&output);
    assert!(output.status.success() && said.contains("is mounted at"), "{said}");
    assert_eq!(fs::read(view.join("file")).unwrap(), b"text");
    let told = status(&view, &runtime).unwrap();
    assert_eq!((&told["link"], &told["directory"]), (&"up".into(), &view.to_str().unwrap().into()));
    assert!(told["operations"].as_u64().unwrap() > 0 && told["held_bytes"] == 4, "{told}");
    let all = run(&["mount", "--status"].map(Path::new));
    let words = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(words.contains("link up") && words.contains("4 B cached"), "{words}");
    let output = run(&[Path::new("umount"), &view]);
    assert!(output.status.success(), "{}", common::stderr(&output));
    until("its end", || status(&view, &runtime).is_none());
    assert_eq!(names(&view), Vec::<&str>::new());
    assert!(!names(&place.path().join("cache")).is_empty(), "relative to where it was started");

    // What prevents it is said by the command.
    let output = run(&[&options[..], &[server.url("/nowhere").as_ref(), Path::new("view")]].concat());
    let said = common::stderr(&output);
    assert!(output.status.code() == Some(4) && said.contains("no such file or directory"), "{said}");
}

#[test]
fn programs_are_told_of_a_mount_its_link_and_its_end() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let place = tempfile::tempdir().unwrap();
    let (view, cache) = (place.path().join("view"), place.path().join("cache"));
    fs::create_dir(&view).unwrap();
    let mount = |options: &[&str], url: &str| {
        let mut command = command(["mount", "--json", "--cache", cache.to_str().unwrap()]);
        command.args(options).arg(url).arg(&view);
        command.env("XDG_RUNTIME_DIR", place.path()).env("XDG_STATE_HOME", place.path());
        command
    };
    let parsed = |line: String| serde_json::from_str::<Value>(&line).unwrap();
    let of_output = |output: &[u8]| -> Vec<Value> {
        String::from_utf8_lossy(output).lines().map(|line| parsed(line.to_owned())).collect()
    };
    let kinds = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    };
    let unmount = || {
        let output = command([Path::new("umount"), Path::new("--json"), &view]).output().unwrap();
        assert!(output.status.success(), "{}", common::stderr(&output));
        let events = of_output(&output.stdout);
        assert_eq!(kinds(&events), ["unmounted", "summary"]);
        assert_eq!(
            (&events[0]["directory"], &events[0]["in_use"]),
            (&view.to_str().unwrap().into(), &false.into())
        );
    };

    let mut process =
        mount(&[], &server.url("/")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(|line| parsed(line.unwrap()));
    let first = lines.next().unwrap();
    assert_eq!((&first["event"], &first["link"]), (&"mounted".into(), &"up".into()));
    silence(&server);
    let _ = fs::read(view.join("file"));
    let second = lines.next().unwrap();
    assert_eq!((&second["event"], &second["link"]), (&"mounted".into(), &"down".into()));
    unmount();
    let rest: Vec<Value> = lines.collect();
    let rest_kinds = kinds(&rest);
    assert!(rest_kinds.ends_with(&["unmounted".to_owned(), "summary".to_owned()]), "{rest:?}");
    assert_eq!(process.wait().unwrap().code(), Some(0));
    mounted::resume(&server);

    // In the background: when the command returns, its events are all there.
    let output = mount(&["--background"], &server.url("/")).output().unwrap();
    assert!(output.status.success(), "{}", common::stderr(&output));
    let events = of_output(&output.stdout);
    assert_eq!(kinds(&events), ["mounted", "summary"]);
    assert_ne!(events[0]["pid"], process.id());
    unmount();

    let output = mount(&["--background"], &server.url("/nowhere")).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let events = of_output(&output.stdout);
    assert_eq!(kinds(&events), ["error", "summary"]);
    assert_eq!(events[0]["kind"], "source_missing");
    let output = command([Path::new("umount"), Path::new("--json"), &view]).output().unwrap();
    assert_eq!(
        (output.status.code(), kinds(&of_output(&output.stdout))),
        (Some(7), vec!["error".into(), "summary".into()])
    );
}

#[test]
fn what_nobody_uses_is_unmounted_when_asked_for() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let mut mount = Mount::of(&server, &["--idle", "700ms"]);
    let open = fs::File::open(mount.path("file")).unwrap();
    thread::sleep(Duration::from_secs(2));
    assert!(mount.process.try_wait().unwrap().is_none(), "a file is open");
    drop(open);
    until("its end", || mount.process.try_wait().unwrap().is_some());
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
    assert_eq!(names(&mount.path), Vec::<&str>::new());
}

#[test]
fn what_is_hoarded_is_fetched_unasked_and_once_and_stays() {
    let server = Server::start();
    fs::create_dir_all(server.path("/album/cd")).unwrap();
    let hoarded = ["album/a", "album/cd/b"];
    for name in hoarded.iter().chain(&["other", "another", "third"]) {
        fs::write(server.path("/").join(name), noise(1 << 20)).unwrap();
        age(&server.path("/").join(name));
    }
    let options = ["--hoard", "album", "--cache-size", "4M"];
    let mut mount = Mount::of(&server, &options);
    until("what is hoarded is held", || hoarded.iter().all(|name| held(&mount.path(name))));
    for name in ["other", "another", "third"] {
        assert!(fs::read(mount.path(name)).unwrap() == noise(1 << 20));
        assert!(held(&mount.path(name)), "{name} is held though it lies beside what is hoarded");
    }
    assert!(hoarded.iter().all(|name| held(&mount.path(name))));
    assert_eq!(mount.end(Signal::TERM), Some(0));

    let runtime = tempfile::tempdir().unwrap();
    mount.again_with(&server.url("/"), &options, &[("XDG_RUNTIME_DIR", runtime.path())]);
    until("what is hoarded is held", || hoarded.iter().all(|name| held(&mount.path(name))));
    let told = status(&mount.path, runtime.path()).unwrap();
    assert_eq!(told["prefetched_bytes"], 0, "it was on the disk: {told}");
    silence(&server);
    for name in hoarded {
        assert!(fs::read(mount.path(name)).unwrap() == noise(1 << 20));
    }
}
