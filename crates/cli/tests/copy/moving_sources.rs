//! Sources whose size is not their length, that grow, that change, and that are no files: what is copied of them, and what is said.

use std::{
    fs::{self, File, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use crate::common::{self, Server, command, noise, ok, stderr, until};

/// Bytes of the files that change while they are copied.
const SIZE: usize = 2 << 20;

/// A rate at which that takes some seconds.
const SLOW: [&str; 2] = ["--bwlimit", "1M"];

/// Files of the kernel, whose size is 0 or a page.
const OF_THE_KERNEL: [&str; 3] =
    ["/proc/sys/kernel/random/boot_id", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"];

#[test]
fn a_file_whose_size_is_not_its_length_is_read_to_its_end() {
    let server = Server::start();
    for source in OF_THE_KERNEL.into_iter().filter(|source| Path::new(source).exists()) {
        let expected = fs::read(source).unwrap();
        assert_ne!(fs::metadata(source).unwrap().len(), expected.len() as u64, "{source}");
        let copy = server.path("copy");
        for options in
            [&["cp"][..], &["cp", "--verify"], &["cp", "--inplace"], &["cp", "-p", "--transport", "tcp"]]
        {
            ok([options, &[source, &server.url("/copy")]].concat());
            assert_eq!(fs::read(&copy).unwrap(), expected, "{source} {options:?}");
        }
        // Another server has it, and says the same wrong size.
        let source = Path::new(source);
        let other = Server::at(source.parent().unwrap());
        let remote = other.url(&format!("/{}", source.file_name().unwrap().to_str().unwrap()));
        let here = tempfile::tempdir().unwrap();
        let target = here.path().join("copy").to_str().unwrap().to_owned();
        for options in [&["cp"][..], &["cp", "--verify"], &["cp", "--inplace"], &["cp", "--transport", "tcp"]]
        {
            ok([options, &[&remote, &target]].concat());
            assert_eq!(fs::read(&target).unwrap(), expected, "{remote} {options:?}");
            ok([options, &[&remote, &server.url("/relayed")]].concat());
            assert_eq!(fs::read(server.path("relayed")).unwrap(), expected, "{remote} {options:?}");
        }
        assert_eq!(ok(["cat", &remote]).as_bytes(), expected);
    }
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("empty"), "").unwrap();
    ok(["sync", tree.path().to_str().unwrap(), &server.url("/tree")]);
    assert_eq!(fs::read(server.path("tree/empty")).unwrap(), b"");
}

/// What happens to a source while it is copied.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// Lines are appended all the time.
    Append,
    /// Its beginning is overwritten, and something is appended.
    RewriteAndGrow,
    /// It is cut.
    Cut,
    /// A byte in the middle becomes another, and its time is put back.
    ChangeInSecret,
}

impl Event {
    fn happens_to(self, path: &Path) {
        let mut file = File::options().write(true).open(path).unwrap();
        match self {
            Self::Append => {
                file.seek(SeekFrom::End(0)).unwrap();
                for _ in 0..60 {
                    file.write_all(b"another line\n").unwrap();
                    thread::sleep(Duration::from_millis(50));
                }
            }
            Self::RewriteAndGrow => {
                file.write_all(b"another beginning").unwrap();
                file.seek(SeekFrom::End(0)).unwrap();
                file.write_all(b"and end").unwrap();
            }
            Self::Cut => {
                file.set_len(SIZE as u64 / 2).unwrap();
            }
            Self::ChangeInSecret => {
                let before = file.metadata().unwrap().modified().unwrap();
                file.seek(SeekFrom::Start(10_001)).unwrap();
                file.write_all(b"?").unwrap();
                file.set_modified(before).unwrap();
            }
        }
    }
}

/// Begins a copy.
fn begin(arguments: &[&str]) -> Child {
    let arguments = [&["cp"], &SLOW[..], arguments].concat();
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Copies a file from one place to another while something happens to it; returns what was said, and what the source was before.
fn copy_during(event: Event, path: &Path, arguments: &[&str]) -> (Output, Vec<u8>) {
    let before = noise(SIZE);
    fs::write(path, &before).unwrap();
    // Long ago, so that every change of it has another time.
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let copy = begin(arguments);
    thread::sleep(Duration::from_millis(700));
    event.happens_to(path);
    (copy.wait_with_output().unwrap(), before)
}

#[test]
fn a_copy_of_a_file_that_changes_is_what_it_was_or_what_it_is() {
    let (server, other) = (Server::start(), Server::start());
    let here = tempfile::tempdir().unwrap();
    let local = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    for transport in ["udp", "tcp"] {
        for event in [Event::Append, Event::RewriteAndGrow, Event::Cut, Event::ChangeInSecret] {
            for (way, source, target, copy, path) in [
                ("down", server.url("/log"), local("down"), here.path().join("down"), server.path("log")),
                ("up", local("log"), server.url("/up"), server.path("up"), here.path().join("log")),
                ("over", server.url("/log"), other.url("/over"), other.path("over"), server.path("log")),
            ] {
                if event == Event::ChangeInSecret && way != "up" {
                    continue;
                }
                let arguments = ["--transport", transport, &source, &target];
                let (output, before) = copy_during(event, &path, &arguments);
                let said = stderr(&output);
                assert!(output.status.success(), "{way} {transport} {event:?}: {said}");
                let expected = if event == Event::Append { before } else { fs::read(&path).unwrap() };
                assert!(fs::read(&copy).unwrap() == expected, "{way} {transport} {event:?}: {said}");
                let line = "grew while it was copied; the copy has the 2.0 MiB";
                let lines = usize::from(event == Event::Append);
                assert_eq!(said.matches(line).count(), lines, "{way} {transport} {event:?}: {said}");
                fs::remove_file(&copy).unwrap();
            }
        }
    }
}

#[test]
fn a_log_is_verified_as_far_as_it_was_copied() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let down = here.path().join("down");
    let arguments = ["--verify", &server.url("/log"), down.to_str().unwrap()];
    let (output, before) = copy_during(Event::Append, &server.path("log"), &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(&down).unwrap() == before);
    let (log, up) = (here.path().join("log"), server.url("/up"));
    let arguments = ["--verify", log.to_str().unwrap(), &up];
    let (output, before) = copy_during(Event::Append, &log, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(server.path("up")).unwrap() == before);
}

#[test]
fn what_changes_all_the_time_gets_no_name() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("database");
    fs::write(&source, noise(SIZE)).unwrap();
    let copy = begin(&[source.to_str().unwrap(), &server.url("/up")]);
    let writing = source.clone();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = thread::spawn(move || {
        let mut number = 0_u64;
        let file = File::options().write(true).open(writing).unwrap();
        while stopped.recv_timeout(Duration::from_millis(100)).is_err() {
            number += 1;
            std::os::unix::fs::FileExt::write_all_at(&file, &number.to_le_bytes(), 4096).unwrap();
        }
    });
    let output = copy.wait_with_output().unwrap();
    stop.send(()).unwrap();
    writer.join().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("changes faster than it can be copied"), "{said}");
    assert_eq!(common::names(server.root.path()), [""; 0], "{said}");
}

/// Something else has the name of what was listed, or nobody is to read it any more.
#[test]
fn what_is_read_has_its_own_rights_and_not_those_of_what_was_listed() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (local, far) = (here.path().join("tree"), server.path("tree"));
    let url = server.url("/tree");
    for (source, from, to, target) in [
        (&local, local.to_str().unwrap(), &server.url("/up")[..], server.path("up")),
        (&far, &url[..], here.path().join("down").to_str().unwrap(), here.path().join("down")),
    ] {
        for options in [&["-r"][..], &["-rp"]] {
            fs::create_dir(source).unwrap();
            fs::write(source.join("a"), noise(3_000_000)).unwrap();
            for name in ["chmod", "replaced"] {
                fs::write(source.join(name), "public").unwrap();
                fs::set_permissions(source.join(name), Permissions::from_mode(0o755)).unwrap();
            }
            let secret = source.join("../secret");
            fs::write(&secret, "SECRET").unwrap();
            fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
            let mut copy = command(["cp", "-q", "-j1", "--bwlimit", "16Mbit"]);
            let mut copy = copy.args(options).args([from, to]).spawn().unwrap();
            until("the first file is being copied", || {
                fs::read_dir(&target)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.file_name())
                    .any(|name| name.to_string_lossy().contains("nfsw-part"))
            });
            fs::rename(&secret, source.join("replaced")).unwrap();
            fs::write(source.join("chmod"), "SECRET").unwrap();
            fs::set_permissions(source.join("chmod"), Permissions::from_mode(0o600)).unwrap();
            assert!(copy.wait().unwrap().success());
            for name in ["chmod", "replaced"] {
                let copied = target.join(name);
                let mode = fs::metadata(&copied).unwrap().permissions().mode() & 0o777;
                assert_eq!(
                    (fs::read(&copied).unwrap(), mode),
                    (b"SECRET".to_vec(), 0o600),
                    "{from} {options:?} {name}"
                );
            }
            fs::remove_dir_all(source).unwrap();
            fs::remove_dir_all(&target).unwrap();
        }
    }
}

/// A directory of which not all is looked at at once.
#[test]
fn what_an_interrupted_copy_has_left_in_a_large_directory_is_told_by_the_file_beside_it() {
    const FILES: usize = 33_000;
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for number in 0..FILES {
        File::create(here.path().join(format!("f{number:05}"))).unwrap();
    }
    for name in [".lonely.nfsw-part", ".f00001.nfsw-part"] {
        fs::write(here.path().join(name), "x").unwrap();
    }
    let output =
        command(["sync", "--dry-run", here.path().to_str().unwrap(), &server.url("/copy")]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("would create .lonely.nfsw-part") && !said.contains(".f00001.nfsw-part"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("would create f")).count(), FILES);
}
