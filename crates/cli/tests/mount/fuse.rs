//! `nfsw mount`, through the kernel. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    net::TcpListener,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{self, Server, assert_same_tree, fails, names, nfsw, noise, stderr},
    mounted::{Mount, Other, age, resume, send, silence, state},
};
use rustix::{io::Errno, process::Signal};

#[test]
fn a_tree_looks_as_on_the_server() {
    let server = Server::start();
    let tree = server.path("/tree");
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::create_dir_all(tree.join("deep/deeper")).unwrap();
    let (odd, long) = ("odd \u{1}\n name \u{fc}", "x".repeat(255));
    for (name, size) in
        [("nothing", 0), ("deep/small", 5), ("deep/deeper/large", 5 << 20), (odd, 70_000), (&long, 1)]
    {
        fs::write(tree.join(name), noise(size)).unwrap();
    }
    File::create(tree.join("sparse")).unwrap().set_len(40 << 20).unwrap();
    symlink("deep/small", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    fs::hard_link(tree.join("deep/small"), tree.join("other")).unwrap();
    let mount = Mount::of(&server, &[]);
    for _ in 0..2 {
        assert_same_tree(&tree, &mount.path("tree"), true);
    }
    assert_eq!(fs::read(mount.path("tree/link")).unwrap(), noise(5));
    let number = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
    assert_eq!(number("tree/other"), number("tree/deep/small"), "hard links");
    assert_eq!(fs::read(mount.path("tree/missing")).unwrap_err().kind(), ErrorKind::NotFound);
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-a").arg(mount.path("tree")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    assert_same_tree(&tree, &copy.path().join("tree"), true);
}

#[test]
fn a_large_directory_is_listed_whole_however_it_is_read() {
    let server = Server::start();
    let directory = server.path("/many");
    fs::create_dir(&directory).unwrap();
    for number in 0..2500 {
        fs::write(directory.join(format!("a file with the number {number}")), "x").unwrap();
    }
    let mount = Mount::of(&server, &[]);
    assert_eq!(names(&mount.path("many")), names(&directory));
    // Names alone, then names with attributes.
    for command in ["ls -U", "ls -lU", "ls -l", "find . -size 1"] {
        let output =
            Command::new("sh").args(["-c", command]).current_dir(mount.path("many")).output().unwrap();
        assert!(output.status.success(), "{command}: {}", stderr(&output));
        let lines =
            String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("number")).count();
        let expected = if command.starts_with("find") { lines } else { 2500 };
        assert_eq!(lines, expected, "{command}");
    }
}

#[test]
fn nothing_can_be_changed_through_it() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let mount = Mount::of(&server, &[]);
    let read_only = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    read_only(fs::write(mount.path("file"), "other").unwrap_err());
    read_only(fs::write(mount.path("new"), "other").unwrap_err());
    read_only(fs::remove_file(mount.path("file")).unwrap_err());
    read_only(fs::create_dir(mount.path("directory")).unwrap_err());
    assert_eq!(fs::read(server.path("/file")).unwrap(), b"text");
}

#[test]
fn what_was_read_is_served_while_the_server_does_not_respond_and_the_rest_fails_in_time() {
    let server = Server::start();
    let (held, other) = (noise(300_000), noise(50_000));
    fs::create_dir(server.path("/album")).unwrap();
    fs::write(server.path("/album/held"), &held).unwrap();
    fs::write(server.path("/album/other"), &other).unwrap();
    symlink("held", server.path("/album/link")).unwrap();
    let mount = Mount::of(&server, &["--wait", "2s"]);
    assert_eq!(names(&mount.path("album")), ["held", "link", "other"]);
    assert_eq!(fs::read(mount.path("album/link")).unwrap(), held);
    assert_eq!(state(&mount.path("album/held")), "fresh");
    assert_eq!(state(&mount.path("album/other")), "fresh, partial 0 %");
    silence(&server);
    let silenced = Instant::now();
    assert_eq!(fs::read(mount.path("album/held")).unwrap(), held);
    assert_eq!(fs::read(mount.path("album/link")).unwrap(), held);
    assert_eq!(names(&mount.path("album")), ["held", "link", "other"]);
    assert_eq!(fs::metadata(mount.path("album/other")).unwrap().len(), 50_000);
    assert_eq!(fs::metadata(mount.path("album/absent")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(silenced.elapsed() < Duration::from_secs(10), "{:?}", silenced.elapsed());
    assert!(state(&mount.path("album/held")).starts_with("stale since "));
    let begun = Instant::now();
    let error = fs::read(mount.path("album/other")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    // The silence counts from its beginning.
    assert!(silenced.elapsed() >= Duration::from_millis(1900), "{:?}", silenced.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    resume(&server);
    let begun = Instant::now();
    loop {
        match fs::read(mount.path("album/other")) {
            Ok(read) => break assert_eq!(read, other),
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
        }
    }
}

#[test]
fn an_open_file_keeps_its_version_and_the_next_open_has_the_new_one() {
    let server = Server::start();
    let (old, new) = (noise(1 << 20), vec![7; 1 << 20]);
    fs::write(server.path("/file"), &old).unwrap();
    age(&server.path("/file"));
    let mount = Mount::of(&server, &[]);
    let before = File::open(mount.path("file")).unwrap();
    let mut head = [0; 4096];
    before.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(head, old[..4096]);
    fs::write(server.path("/file"), &new).unwrap();
    let after = fs::read(mount.path("file")).unwrap();
    assert!(after == new, "the new version, whole");
    // Each piece that the first descriptor still gets is of the old version.
    let mut stale = 0;
    for offset in (0..old.len()).step_by(4096) {
        match before.read_exact_at(&mut head, offset as u64) {
            Ok(()) => assert_eq!(head, old[offset..offset + 4096], "at {offset}"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()), "at {offset}");
                stale += 1;
            }
        }
    }
    assert!(stale > 0, "all of the old version was held: the file is too small for this test");
    let mut again = Vec::new();
    File::open(mount.path("file")).unwrap().read_to_end(&mut again).unwrap();
    assert!(again == new);
}

#[test]
fn every_open_has_what_was_closed_before_on_the_server() {
    let server = Server::start();
    fs::write(server.path("/file"), "0").unwrap();
    let mount = Mount::of(&server, &[]);
    for number in 0..50 {
        let text = format!("{number}").repeat(1 + number % 7);
        fs::write(server.path("/file"), &text).unwrap();
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), text);
    }
}

#[test]
fn a_program_that_waits_can_be_killed() {
    let server = Server::start();
    fs::write(server.path("/file"), noise(1000)).unwrap();
    fs::create_dir(server.path("/directory")).unwrap();
    let mount = Mount::of(&server, &["--wait", "60s"]);
    assert_eq!(names(&mount.path), ["directory", "file"]);
    silence(&server);
    let cases = [
        ("cat", "file", Signal::KILL),
        ("ls", "directory", Signal::INT),
        ("cat", "directory/name", Signal::TERM),
    ];
    for (program, name, signal) in cases {
        // Where these tests run in the background, SIGINT may be ignored.
        let mut waiting = Command::new("env")
            .args(["--default-signal", program])
            .arg(mount.path(name))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(400));
        assert!(waiting.try_wait().unwrap().is_none(), "{program} {name} waits");
        let begun = Instant::now();
        send(&waiting, signal);
        waiting.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{program} {name}: {:?}", begun.elapsed());
    }
}

#[test]
fn it_ends_cleanly_on_signals_and_when_it_is_unmounted() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    // SIGHUP: the terminal was closed.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut mount = Mount::of(&server, &[]);
        assert_eq!(fs::read(mount.path("file")).unwrap(), b"text");
        assert_eq!(mount.end(signal), Some(0));
        assert_eq!(names(&mount.path), Vec::<&str>::new(), "what is below the mount");
    }
    let mut mount = Mount::of(&server, &[]);
    let output = nfsw([Path::new("umount"), &mount.path]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
    assert_eq!(names(&mount.path), Vec::<&str>::new());
    let text = fails(7, [Path::new("umount"), &mount.path]);
    assert!(text.contains("is no mount of nfsw"), "{text}");
}

#[test]
fn a_signal_takes_what_is_in_use_out_of_the_tree() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut mount = Mount::of(&server, &[]);
        let _used = File::open(mount.path("file")).unwrap();
        assert_eq!(mount.end(signal), Some(0));
        assert_eq!(names(&mount.path), Vec::<&str>::new(), "what is below the mount");
    }
}

#[test]
fn what_is_in_use_leaves_the_tree_at_once() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let mut mount = Mount::of(&server, &[]);
    let used = File::open(mount.path("file")).unwrap();
    let output = nfsw([Path::new("umount"), &mount.path]);
    assert!(output.status.success() && stderr(&output).contains("is in use"), "{}", stderr(&output));
    assert_eq!(names(&mount.path), Vec::<&str>::new());
    let mut text = [0; 4];
    used.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"text");
    drop(used);
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
}

#[test]
fn what_was_in_use_leaves_the_next_mount_there_alone() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    // The last program that uses the old one ends, or a signal ends it.
    for signal in [None, Some(Signal::TERM)] {
        let mut mount = Mount::of(&server, &[]);
        let used = File::open(mount.path("file")).unwrap();
        assert!(nfsw([Path::new("umount"), &mount.path]).status.success());
        let mut old = mount.replaced(&server.url("/"));
        match signal {
            Some(signal) => send(&old, signal),
            None => drop(used),
        }
        assert_eq!(old.wait().unwrap().code(), Some(0));
        assert_eq!(fs::read(mount.path("file")).unwrap(), b"text", "{signal:?}");
        let output = nfsw(["mount".as_ref(), "--status".as_ref(), mount.path.as_os_str()]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(mount.end(Signal::TERM), Some(0));
    }
}

#[test]
fn what_is_in_use_out_of_the_tree_is_not_idle() {
    let server = Server::start();
    fs::create_dir(server.path("/d")).unwrap();
    let mut mount = Mount::of(&server, &["--idle", "200ms"]);
    let mut user = Command::new("sleep").arg("100").current_dir(mount.path("d")).spawn().unwrap();
    assert!(nfsw([Path::new("umount"), &mount.path]).status.success());
    thread::sleep(Duration::from_secs(1));
    assert_eq!(mount.process.try_wait().unwrap(), None);
    user.kill().unwrap();
    user.wait().unwrap();
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_mount_whose_program_was_killed_is_replaced() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let mut mount = Mount::of(&server, &[]);
    mount.end(Signal::KILL);
    let error = fs::read(mount.path("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    mount.again(&server.url("/"), &[]);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"text");
    let text = fails(7, ["mount".as_ref(), server.url("/").as_ref(), mount.path.as_os_str()]);
    assert!(text.contains("is mounted already (nfsw umount "), "{text}");
}

#[test]
fn a_mount_that_shall_outlive_its_terminal_does() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let place = tempfile::tempdir().unwrap();
    let (view, said) = (place.path().join("view"), place.path().join("said"));
    fs::create_dir(&view).unwrap();
    let process = Command::new("nohup")
        .arg(env!("CARGO_BIN_EXE_nfsw"))
        .args(["mount", "--cache"])
        .arg(place.path().join("cache"))
        .arg(server.url("/"))
        .arg(&view)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let mut mount = Other(process, view.clone());
    common::until("it is mounted", || fs::read_to_string(&said).unwrap().contains("is mounted at"));
    send(&mount.0, Signal::HUP);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(fs::read(view.join("file")).unwrap(), b"text");
    send(&mount.0, Signal::TERM);
    assert_eq!(mount.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_link_to_the_mount_point_unmounts_it() {
    let server = Server::start();
    let mut mount = Mount::of(&server, &[]);
    let place = tempfile::tempdir().unwrap();
    let (link, second) = (place.path().join("link"), place.path().join("second"));
    symlink(&mount.path, &link).unwrap();
    symlink("link", &second).unwrap();
    let text = fails(7, ["mount".as_ref(), server.url("/").as_ref(), second.as_os_str()]);
    assert!(text.contains("is mounted already (nfsw umount "), "{text}");
    let output = nfsw([Path::new("umount"), &second]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
    assert_eq!(names(&link), Vec::<&str>::new());
}

#[test]
fn a_mount_whose_program_is_stopped_hangs_neither_mount_nor_umount() {
    let server = Server::start();
    let mut mount = Mount::of(&server, &[]);
    send(&mount.process, Signal::STOP);
    let begun = Instant::now();
    let text = fails(7, ["mount".as_ref(), server.url("/").as_ref(), mount.path.as_os_str()]);
    assert!(text.contains("is mounted already (nfsw umount "), "{text}");
    let inside = mount.path("directory");
    let text = fails(7, ["mount".as_ref(), server.url("/").as_ref(), inside.as_os_str()]);
    assert!(text.contains("its file system does not respond"), "{text}");
    let output = nfsw([Path::new("umount"), &mount.path]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(&mount.path), Vec::<&str>::new());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    send(&mount.process, Signal::CONT);
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
}

#[test]
fn it_says_in_time_why_it_cannot() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let place = tempfile::tempdir().unwrap();
    let (file, missing) = (place.path().join("file"), place.path().join("missing"));
    fs::write(&file, "").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!(
        "nfs://{0}/?mountport={1}",
        silent.local_addr().unwrap(),
        silent.local_addr().unwrap().port()
    );
    let here = place.path().to_owned();
    let cases = [
        (7, server.url("/"), &file, "is not a directory"),
        (7, server.url("/"), &missing, "does not exist; create it first: mkdir"),
        (4, server.url("/nowhere"), &here, "no such file or directory"),
        (2, server.url("/file"), &here, "is not a directory"),
        (3, "nfs://127.0.0.1:1/?mountport=1".to_owned(), &here, "cannot reach"),
        (3, silent, &here, "no answer from the server for 5 s"),
    ];
    for (code, target, directory, expected) in cases {
        let begun = Instant::now();
        let text = fails(code, ["mount".as_ref(), target.as_ref(), directory.as_os_str()]);
        assert!(text.contains(expected), "{target}: {text}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{target}: {:?}", begun.elapsed());
    }
}
