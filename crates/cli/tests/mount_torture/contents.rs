//! Bytes: what an open costs, which version it shows, and what ends a descriptor.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nfs_wire::Procedure;
use rustix::io::Errno;

use crate::{
    blocks::{BLOCK, Label, contents},
    common::noise,
    faults::Faults,
    mounted::Mount,
    program::{Program, meanwhile},
    server::Server,
    tree::Tree,
    worker::Worker,
};

const MIB: usize = 1 << 20;

/// Issue 40.2. "Five opens of 2 MiB cost 194 READs", of a file which changed a week ago: 32 of 64 KiB, and one more at most.
#[test]
fn five_opens_and_reads_of_a_file_cost_its_bytes_once() {
    let server = Server::new(Faults::default());
    server.edit(|tree| {
        tree.create_old("file", noise(2 * MIB));
        tree.age("");
    });
    let mount = Mount::at(&server.url("/"), &["--transport", "tcp"]);
    for _ in 0..5 {
        assert!(fs::read(mount.path("file")).unwrap() == noise(2 * MIB));
    }
    let reads = server.calls(Procedure::Read);
    assert!(reads <= 33, "{reads} READs");
}

/// Issue 40.2. "Read a file, open it again, lose the link: EIO and `partial 0 %`." Whether it changed a week ago or just now.
#[test]
fn a_file_that_was_read_and_opened_again_is_readable_without_the_server() {
    for is_old in [true, false] {
        let server = Server::new(Faults::default());
        server.edit(|tree| {
            tree.create("file", noise(MIB));
            is_old.then(|| ["file", ""].map(|path| tree.age(path)));
        });
        let mount = Mount::at(&server.url("/"), &["--wait", "1s"]);
        for pause in [0, 100, 700] {
            assert!(fs::read(mount.path("file")).unwrap() == noise(MIB));
            thread::sleep(Duration::from_millis(pause));
            drop(File::open(mount.path("file")).unwrap());
        }
        server.silence(true);
        for turn in ["first", "second"] {
            let read = fs::read(mount.path("file"));
            assert!(
                read.is_ok_and(|read| read == noise(MIB)),
                "the {turn} read in an outage; the file {}: {}",
                if is_old { "is old" } else { "is new" },
                crate::mounted::state(&mount.path("file")),
            );
        }
    }
}

/// Issue 40.3. "Two versions of one size in one tick, six processes open at once: 267 of 2,922 opens show the old bytes."
fn openers(processes: usize) {
    for tick in [1, 2].map(Duration::from_secs) {
        let server = Server::new(Faults::default());
        let version = |version| contents(Label { file: 1, version }, 0..64);
        server.edit(|tree| {
            tree.clock.tick = tick;
            tree.create("file", version(0));
        });
        let mount = Mount::at(&server.url("/"), &[]);
        let open = format!("open {}", mount.path("file").display());
        let mut workers: Vec<_> = (0..processes).map(|_| Worker::start()).collect();
        let (begun, mut opens, mut old) = (Instant::now(), 0, 0);
        for number in 1_u64.. {
            if begun.elapsed() > Duration::from_secs(4) {
                break;
            }
            server.edit(|tree| tree.rewrite("file", |bytes| *bytes = version(number)));
            workers.iter_mut().for_each(|worker| {
                worker.ask(&open);
                worker.ask("read");
            });
            for worker in &mut workers {
                worker.answer().words.unwrap();
                let words = worker.answer().words.unwrap();
                opens += 1;
                old += u32::from(words[1] != format!("1:{number}"));
            }
        }
        println!("{processes} at once, tick {tick:?}: {old} of {opens} opens show old bytes");
        assert_eq!(old, 0, "of {opens} opens by {processes} processes, tick {tick:?}");
        assert!(opens > 100, "only {opens} opens");
    }
}

#[test]
fn one_opener_sees_the_newest_of_versions_in_one_tick() {
    openers(1);
}

#[test]
fn six_openers_at_once_see_the_newest_of_versions_in_one_tick() {
    openers(6);
}

/// A change that keeps the bytes that were there.
type Change = (&'static str, fn(&mut Tree));

const KEEPS_BYTES: [Change; 6] = [
    ("chmod", |tree| tree.change("file", |node| node.mode = 0o600)),
    ("chown", |tree| tree.change("file", |node| node.owner = 1000)),
    ("hard link", |tree| tree.link("file", "other name")),
    ("rename", |tree| {
        tree.rename("file", "other name");
        tree.link("other name", "file");
    }),
    ("append", |tree| tree.append("file", &[7; 100])),
    ("touch of the ctime alone", |tree| tree.change("file", |_| {})),
];

/// Issue 40.4. "chmod, chown, a hard link, a rename, and an append end every open descriptor and empty the cache. A change that keeps
/// the bytes that were read is not another version." READs are counted: the cache stays.
#[test]
fn a_descriptor_reads_on_after_a_change_that_keeps_its_bytes() {
    let mut wrong = Vec::new();
    for (what, change) in KEEPS_BYTES {
        let server = Server::new(Faults::default());
        server.edit(|tree| tree.create_old("file", noise(4 * MIB)));
        let mount = Mount::at(&server.url("/"), &["--transport", "tcp"]);
        assert!(fs::read(mount.path("file")).unwrap() == noise(4 * MIB));
        server.edit(|tree| tree.create_old("half", noise(4 * MIB)));
        let (whole, half) = (File::open(mount.path("file")).unwrap(), mount.path("file"));
        let before = server.calls(Procedure::Read);
        server.edit(change);
        // Another program notices it.
        fs::metadata(&half).unwrap();
        let again = fs::read(&half);
        let mut bytes = vec![0; 4 * MIB];
        if let Err(error) = whole.read_exact_at(&mut bytes, 0) {
            wrong.push(format!("{what}: the descriptor: {error}"));
        } else if bytes != noise(4 * MIB) {
            wrong.push(format!("{what}: the descriptor shows other bytes"));
        }
        if !again.is_ok_and(|again| again.starts_with(&bytes)) {
            wrong.push(format!("{what}: the next open shows other bytes"));
        }
        let reads = server.calls(Procedure::Read) - before;
        // What was appended is read, and the piece that it is in. A file that has grown, or of which nothing tells what its change was, is read
        // again by the next open, for other bytes may have changed, too.
        let most = if matches!(what, "append" | "touch of the ctime alone") { 2 + 64 } else { 2 };
        if reads > most {
            wrong.push(format!("{what}: {reads} READs, though nothing that was read has changed"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Issue 40.4. The same with a descriptor that has read a half: the rest comes from the server.
#[test]
fn a_descriptor_fetches_the_rest_after_a_change_that_keeps_its_bytes() {
    let mut wrong = Vec::new();
    for (what, change) in KEEPS_BYTES {
        let server = Server::new(Faults::default());
        server.edit(|tree| tree.create_old("file", noise(8 * MIB)));
        let mount = Mount::at(&server.url("/"), &[]);
        let file = File::open(mount.path("file")).unwrap();
        let mut bytes = vec![0; 4 * MIB];
        file.read_exact_at(&mut bytes, 0).unwrap();
        server.edit(change);
        drop(File::open(mount.path("file")).unwrap());
        match file.read_exact_at(&mut bytes, 4 * MIB as u64) {
            Ok(()) if bytes == noise(8 * MIB)[4 * MIB..] => {}
            Ok(()) => wrong.push(format!("{what}: other bytes")),
            Err(error) => wrong.push(format!("{what}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Issue 40.4. "`tail -f` never shows a new line and never ends."
#[test]
fn tail_f_shows_lines_that_are_appended() {
    let server = Server::new(Faults::default());
    server.edit(|tree| tree.create("log", b"line 0\n".to_vec()));
    let mount = Mount::at(&server.url("/"), &[]);
    let mut tail = Program::start("tail -n +1 -s 0.2 -f log", &mount.path);
    let (send, lines) = mpsc::channel();
    let said = BufReader::new(tail.process.stdout.take().unwrap());
    thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    for number in 0..6 {
        let line = lines.recv_timeout(Duration::from_secs(15));
        assert_eq!(line.as_deref(), Ok(&*format!("line {number}")), "within 15 s");
        server.edit(|tree| tree.append("log", format!("line {}\n", number + 1).as_bytes()));
    }
}

/// Issue 40.4. "Copying a growing log fails always."
#[test]
fn a_log_can_be_copied_while_it_grows() {
    let server = Server::new(Faults::default());
    server.edit(|tree| tree.create("log", noise(3 * MIB)));
    let mount = Mount::at(&server.url("/"), &[]);
    let place = tempfile::tempdir().unwrap();
    let grow = |_| {
        server.edit(|tree| tree.append("log", &[7; 100]));
        thread::sleep(Duration::from_millis(3));
    };
    let copies = meanwhile(grow, || {
        [0; 5].map(|_| {
            let copy = place.path().join("copy");
            let output = Command::new("cp").arg(mount.path("log")).arg(&copy).output().unwrap();
            thread::sleep(Duration::from_millis(200));
            (String::from_utf8_lossy(&output.stderr).into_owned(), fs::read(&copy).unwrap_or_default())
        })
    });
    for (said, copy) in copies {
        assert!(said.is_empty(), "{said}");
        let (head, tail) = copy.split_at(3 * MIB);
        assert!(head == noise(3 * MIB) && tail.iter().all(|&byte| byte == 7), "{} bytes", copy.len());
    }
}

/// What may have changed bytes ends a descriptor, or it reads on in the old version: it never mixes two.
#[test]
fn a_descriptor_never_shows_two_versions_whatever_the_clock_says() {
    const BLOCKS: u64 = 2 * MIB as u64 / BLOCK as u64;
    for (tick, back) in [(1, 0), (1_000_000_000, 0), (2_000_000_000, 0), (1, 3600)] {
        let server = Server::new(Faults::default());
        let version = |version| contents(Label { file: 1, version }, 0..BLOCKS);
        server.edit(|tree| {
            tree.clock.tick = Duration::from_nanos(tick);
            tree.create("file", version(0));
        });
        let mount = Mount::at(&server.url("/"), &[]);
        let (mut worker, mut other) = (Worker::start(), Worker::start());
        let open = format!("open {}", mount.path("file").display());
        server.edit(|tree| tree.clock.behind = Duration::from_secs(back));
        for number in 1..12_u64 {
            worker.run(&open).words.unwrap();
            let head = worker.run(&format!("pread 0 {}", 64 << 10)).words.unwrap();
            assert_eq!(head[1], format!("1:{}", number - 1), "an open sees the newest, tick {tick} ns");
            server.edit(|tree| tree.rewrite("file", |bytes| *bytes = version(number)));
            // The next opener, which the program that reads does not know of, brings the new version in.
            other.run(&open).words.unwrap();
            let seen = other.run("read").words.unwrap();
            assert_eq!(seen[1], format!("1:{number}"), "an open sees the newest, tick {tick} ns");
            match worker.run(&format!("pread {} {}", 64 << 10, 2 * MIB)).words {
                // Within a tick nothing tells them apart (docs/mount.md, Limits).
                Ok(rest) => assert!(tick > 1 || rest[1..] == head[1..], "{head:?}, then {rest:?}"),
                Err(error) => assert!(error.starts_with("116 "), "{error}"),
            }
        }
    }
}

/// Handles that are given to other files, as by servers without generations, never show one file as the other.
#[test]
fn a_handle_that_is_given_to_another_file_shows_that_file_at_the_next_open() {
    let server = Server::new(Faults::default());
    server.edit(|tree| {
        tree.reuses = true;
        tree.create("0", vec![0; 1000]);
    });
    let mount = Mount::at(&server.url("/"), &[]);
    for number in 1..20_u8 {
        let before = (number - 1).to_string();
        assert!(fs::read(mount.path(&before)).unwrap() == [number - 1; 1000]);
        server.edit(|tree| {
            tree.remove(&before);
            tree.create(&number.to_string(), vec![number; 1000]);
        });
    }
}

/// What is read beyond the end of a file that has shrunk does not make it as long as that.
#[test]
fn a_file_that_shrank_before_it_was_read_has_no_size_that_it_never_had() {
    let server = Server::new(Faults::default());
    server.edit(|tree| tree.create("file", noise(MIB)));
    let mount = Mount::at(&server.url("/"), &[]);
    let file = File::open(mount.path("file")).unwrap();
    server.edit(|tree| tree.rewrite("file", |bytes| bytes.truncate(1000)));
    let mut bytes = [0; 4096];
    let error = file.read_at(&mut bytes, 600 << 10).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()));
    for told in [file.metadata(), fs::metadata(mount.path("file"))] {
        let size = told.unwrap().len();
        assert!([MIB as u64, 1000].contains(&size), "{size} bytes");
    }
    assert_eq!(fs::read(mount.path("file")).unwrap(), noise(MIB)[..1000]);
}

/// A file that is another one whenever anybody has looked its name up can be opened: what the kernel has found was there then.
#[test]
fn a_file_that_is_replaced_all_the_time_can_be_opened() {
    let server = Server::new(Faults { replaced: Some("file"), ..Faults::default() });
    server.edit(|tree| tree.create("file", contents(Label { file: 1, version: 0 }, 0..64)));
    let mount = Mount::at(&server.url("/"), &["--transport", "tcp"]);
    for _ in 0..50 {
        File::open(mount.path("file")).unwrap();
    }
}
