//! Sources whose size is not their length, that grow, that change, and that are no files: what is copied of them, and what is said.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::Path,
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use crate::common::{self, Server, command, noise, ok, stderr};

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
