//! What programs are told of files through `nfsw mount`: of servers that tell little, or what cannot be. Makes mounts, so it needs root
//! and /dev/fuse, as CI has.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::{DirEntryExt, FileExt, MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{Server, command, names, noise, until},
    liar::{self, Lie, Trial},
    lies::{add, bare, edit, page, results},
    mounted::{Mount, Other, age, resume, send, silence},
};
use nfs_wire::{
    Procedure,
    nfs3_types::nfs3::{GETATTR3resok, LOOKUP3resok, Nfs3Option, fattr3, ftype3, post_op_attr, post_op_fh3},
};
use rustix::{
    fs::{Access, AtFlags, CWD, Dir, accessat},
    io::Errno,
    process::Signal,
};

/// Files that a server has beside those of every [`Trial`].
const FILES: usize = 40;

/// A server with a lie, and files that tell their names.
fn trial(lie: fn(&liar::Call, &mut Vec<u8>)) -> Trial {
    let trial = Trial::new(Lie::Reply(lie));
    for number in 0..FILES {
        let path = trial.path(&format!("served/tree/file {number:02}"));
        fs::write(&path, content(number)).unwrap();
        age(&path);
    }
    trial
}

fn content(number: usize) -> Vec<u8> {
    format!("this is file {number}\n").repeat(100 + number).into_bytes()
}

fn mount(trial: &Trial) -> Mount {
    Mount::at(&trial.url("tree"), &[])
}

/// Lists, reads and looks again, as programs do: each file has its own bytes, attributes and type, whatever was listed before.
fn every_file_is_itself(trial: &Trial, mount: &Mount) {
    let open: Vec<File> =
        (0..FILES).map(|it| File::open(mount.path(&format!("file {it:02}"))).unwrap()).collect();
    for round in 0..3 {
        for program in [&["ls", "-lU"][..], &["ls", "-U"], &["find", "."]] {
            let output =
                Command::new(program[0]).args(&program[1..]).current_dir(&mount.path).output().unwrap();
            assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text.matches("file ").count(), FILES, "{program:?}: {text}");
            assert!(!text.contains(" 1970 "), "{text}");
        }
        for (number, open) in open.iter().enumerate() {
            let name = format!("file {number:02}");
            assert_eq!(fs::read(mount.path(&name)).unwrap(), content(number), "{name}, round {round}");
            let mut bytes = vec![0; content(number).len()];
            open.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, content(number), "{name}, open since the beginning, round {round}");
        }
        assert!(fs::metadata(mount.path("sub")).unwrap().is_dir());
        assert_eq!(fs::read(mount.path("sub/gamma")).unwrap(), b"gamma");
        assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new("alpha"));
        // The kernel asks again after a second.
        thread::sleep(Duration::from_millis(600));
    }
    // A type in a listing is right, or not told.
    for entry in Dir::read_from(File::open(&mount.path).unwrap()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap();
        let metadata = fs::symlink_metadata(mount.path(name)).unwrap();
        let is = rustix::fs::FileType::from_raw_mode(metadata.mode());
        let told = entry.file_type();
        assert!(told == is || told == rustix::fs::FileType::Unknown, "{name}: {told:?}, but {is:?}");
    }
    let found = Command::new("find").args([".", "-type", "f"]).current_dir(&mount.path).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&found.stdout).lines().count(),
        FILES + 3,
        "alpha, beta and sub/gamma"
    );
    assert_eq!(names(&mount.path), names(&trial.path("served/tree")));
}

#[test]
fn entries_of_which_some_have_no_handle_are_themselves() {
    let trial = trial(|call, reply| {
        page(call, reply, |page, _| {
            for (number, entry) in page.reply.entries.0.iter_mut().enumerate() {
                if number % 2 == 0 {
                    entry.name_handle = post_op_fh3::None;
                }
            }
        });
    });
    every_file_is_itself(&trial, &mount(&trial));
}

#[test]
fn entries_without_handles_are_themselves() {
    let trial = trial(|call, reply| bare(call, reply, true));
    every_file_is_itself(&trial, &mount(&trial));
}

#[test]
fn entries_without_attributes_are_themselves() {
    let trial = trial(|call, reply| {
        page(call, reply, |page, _| {
            for entry in &mut page.reply.entries.0 {
                entry.name_attributes = post_op_attr::None;
            }
        });
    });
    every_file_is_itself(&trial, &mount(&trial));
}

#[test]
fn a_server_that_lists_names_alone_has_its_whole_tree() {
    // NFS3ERR_NOTSUPP: nfsw asks by READDIR then.
    let trial = trial(|call, reply| results(call, reply, Procedure::Readdirplus, &[10_004, 0]));
    every_file_is_itself(&trial, &mount(&trial));
}

#[test]
fn names_that_no_program_can_use_are_left_out_and_told_once() {
    let trial = trial(|call, reply| {
        for name in [&b"a/b"[..], b"", b"zero\0byte", &[b'x'; 256]] {
            add(call, reply, name);
        }
    });
    let place = tempfile::tempdir().unwrap();
    let (view, said) = (place.path().join("view"), place.path().join("said"));
    fs::create_dir(&view).unwrap();
    let process = command(["mount", "--cache"])
        .arg(place.path().join("cache"))
        .arg(trial.url("tree"))
        .arg(&view)
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let mut mount = Other(process, view.clone());
    until("it is mounted", || fs::read_to_string(&said).unwrap().contains("is mounted at"));
    let listed: Vec<_> = (0..3).map(|_| names(&view)).collect();
    let is_told = |text: &str| text.contains("such names are left out");
    until("it is told", || is_told(&fs::read_to_string(&said).unwrap()));
    assert_eq!(fs::read(view.join("beta")).unwrap(), noise(1000));
    send(&mount.0, Signal::TERM);
    assert_eq!(mount.0.wait().unwrap().code(), Some(0));
    let text = fs::read_to_string(&said).unwrap();
    assert_eq!(text.lines().filter(|line| is_told(line)).count(), 1, "{text}");
    for listed in listed {
        assert_eq!(listed, names(&trial.path("served/tree")));
    }
}

/// Returns the numbers that a directory lists, by name.
fn listed_numbers(directory: &Path) -> BTreeMap<String, u64> {
    let entries = Dir::read_from(File::open(directory).unwrap()).unwrap();
    entries.map(|it| it.unwrap()).map(|it| (it.file_name().to_str().unwrap().to_owned(), it.ino())).collect()
}

#[test]
fn numbers_of_files_are_the_servers_in_every_mount_and_version_and_in_listings() {
    let server = Server::start();
    fs::create_dir_all(server.path("/d/sub")).unwrap();
    fs::write(server.path("/d/file"), "text").unwrap();
    fs::hard_link(server.path("/d/file"), server.path("/d/other")).unwrap();
    symlink("file", server.path("/d/link")).unwrap();
    let mut mount = Mount::of(&server, &[]);
    let stat = |mount: &Mount, name: &str| fs::symlink_metadata(mount.path(name)).unwrap().ino();
    let names = ["d/file", "d/other", "d/link", "d/sub", "d/.", "d/.."];
    for round in 0..2 {
        // Before anybody has asked for attributes, and after.
        for _ in 0..2 {
            let listed = listed_numbers(&mount.path("d"));
            for name in names {
                let number = stat(&mount, name);
                assert_eq!(listed[&name[2..]], number, "{name} is listed with its number, round {round}");
                let on_server = fs::symlink_metadata(server.path("/").join(name)).unwrap().ino();
                assert_eq!(number, on_server, "{name} has the number of the server, round {round}");
            }
        }
        for entry in fs::read_dir(mount.path("d")).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
        }
        assert_eq!(mount.end(Signal::TERM), Some(0));
        mount.again(&server.url("/"), &[]);
    }
    let before = stat(&mount, "d/file");
    assert_eq!(fs::read(mount.path("d/file")).unwrap(), b"text");
    fs::write(server.path("/d/file"), "another text").unwrap();
    assert_eq!(fs::read(mount.path("d/file")).unwrap(), b"another text");
    assert_eq!(stat(&mount, "d/file"), before, "another version of one file");
}

#[test]
fn programs_are_told_whether_they_may_execute_and_change() {
    let server = Server::start();
    for (name, mode) in [("plain", 0o644), ("script", 0o755), ("of_others", 0o601)] {
        fs::write(server.path("/").join(name), "#!/bin/sh\nexit 7\n").unwrap();
        fs::set_permissions(server.path("/").join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::create_dir(server.path("/directory")).unwrap();
    let mount = Mount::of(&server, &[]);
    let may = |name: &str, access| accessat(CWD, mount.path(name), access, AtFlags::empty());
    assert_eq!(may("plain", Access::EXEC_OK), Err(Errno::ACCESS));
    assert_eq!(may("plain", Access::READ_OK | Access::EXEC_OK), Err(Errno::ACCESS));
    assert_eq!(may("plain", Access::READ_OK), Ok(()));
    assert_eq!(may("plain", Access::EXISTS), Ok(()));
    assert_eq!(may("script", Access::EXEC_OK), Ok(()));
    assert_eq!(may("of_others", Access::EXEC_OK), Ok(()), "one bit is enough for root");
    assert_eq!(may("directory", Access::EXEC_OK), Ok(()));
    for name in ["plain", "script", "directory"] {
        assert_eq!(may(name, Access::WRITE_OK), Err(Errno::ROFS), "{name}");
    }
    assert_eq!(Command::new(mount.path("script")).status().unwrap().code(), Some(7));
}

#[test]
fn the_space_that_the_server_told_is_remembered() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let mut mount = Mount::of(&server, &[]);
    let told = rustix::fs::statvfs(&mount.path).unwrap();
    assert!(told.f_blocks > 0);
    assert_eq!(names(&mount.path), ["file"]);
    silence(&server);
    for _ in 0..3 {
        let begun = Instant::now();
        let remembered = rustix::fs::statvfs(&mount.path).unwrap();
        assert_eq!((remembered.f_blocks, remembered.f_files), (told.f_blocks, told.f_files));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    resume(&server);
    mount.end(Signal::TERM);
    // Without a server, as an earlier mount was told.
    mount.again(&server.url("/"), &["--offline"]);
    assert_eq!(rustix::fs::statvfs(&mount.path).map(|space| space.f_blocks).ok(), Some(told.f_blocks));
    mount.end(Signal::TERM);
    // Asked for by the mount itself, for those who ask in an outage.
    mount.again(&server.url("/"), &[]);
    thread::sleep(Duration::from_millis(2500));
    silence(&server);
    assert!(rustix::fs::statvfs(&mount.path).unwrap().f_blocks > 0);
    resume(&server);
}

#[test]
fn a_directory_that_is_replaced_is_never_an_error() {
    let server = Server::start();
    let directory = server.path("/d");
    let make = |number: usize| {
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(format!("file {number}")), "text").unwrap();
    };
    make(0);
    let mount = Mount::of(&server, &[]);
    assert_eq!(names(&mount.path("d")), ["file 0"]);
    for number in 1..4 {
        fs::remove_dir_all(&directory).unwrap();
        make(number);
        let begun = Instant::now();
        let expected = format!("file {number}");
        loop {
            // Never an error, also not while what was known before is shown.
            if names(&mount.path("d")) == [&expected[..]] {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "not within half a minute");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Waits until a program has begun to wait, sends it a signal, and returns how long it took to end, and how.
fn killed(program: &[&str], directory: &Path, signal: Signal) -> (Duration, std::process::ExitStatus) {
    // Where these tests run in the background, SIGINT may be ignored.
    let mut waiting = Command::new("env")
        .arg("--default-signal")
        .args(program)
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(700));
    assert!(waiting.try_wait().unwrap().is_none(), "{program:?} waits");
    let begun = Instant::now();
    send(&waiting, signal);
    let status = waiting.wait().unwrap();
    (begun.elapsed(), status)
}

/// Much more than it takes, for machines that run other tests meanwhile; `mount_numbers` measures it.
const SOON: Duration = Duration::from_millis(400);

#[test]
fn a_program_that_waits_for_a_busy_server_dies_at_once() {
    // Directories that are others with every reply: what is asked is answered at once, again and again, and nothing comes of it.
    let trial = Trial::new(Lie::Reply(|call, reply| {
        static COUNT: AtomicU64 = AtomicU64::new(1_000_000);
        let other = |attributes: &mut fattr3| {
            if attributes.type_ == ftype3::NF3DIR {
                attributes.fileid = COUNT.fetch_add(1, Ordering::Relaxed);
            }
        };
        let others = |attributes: &mut post_op_attr| {
            if let Nfs3Option::Some(attributes) = attributes {
                other(attributes);
            }
        };
        if call.is(Procedure::Getattr) {
            edit::<GETATTR3resok>(reply, |it| other(&mut it.obj_attributes));
        } else if call.is(Procedure::Lookup) {
            edit::<LOOKUP3resok>(reply, |it| {
                others(&mut it.obj_attributes);
                others(&mut it.dir_attributes);
            });
        } else {
            page(call, reply, |page, _| {
                others(&mut page.dir_attributes);
                page.reply.entries.0.iter_mut().for_each(|entry| others(&mut entry.name_attributes));
            });
        }
    }));
    let mount = Mount::at(&trial.url("tree"), &["--wait", "60s"]);
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        for program in [&["cat", "sub/gamma"], &["ls", "sub"]] {
            let mut waiting = Command::new("env")
                .arg("--default-signal")
                .args(program)
                .current_dir(&mount.path)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(300));
            let is_over = waiting.try_wait().unwrap().is_some();
            let begun = Instant::now();
            // One that is over, or about to be, is not there any more.
            let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&waiting), signal);
            waiting.wait().unwrap();
            println!("{program:?}, {signal:?}: over before: {is_over}; {:?}", begun.elapsed());
            assert!(begun.elapsed() < SOON, "{program:?}, {signal:?}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn signals_end_what_they_would_end_and_nothing_else() {
    let server = Server::start();
    fs::create_dir(server.path("/d")).unwrap();
    fs::write(server.path("/d/file"), "text").unwrap();
    let mount = Mount::of(&server, &["--wait", "60s"]);
    assert_eq!(names(&mount.path), ["d"]);
    silence(&server);
    for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP] {
        let (took, status) = killed(&["cat", "d/file"], &mount.path, signal);
        assert!(took < SOON && !status.success(), "{signal:?}: {took:?}, {status}");
    }
    // A program that does something before it ends: the call is interrupted.
    let handler = "$SIG{INT} = sub { exit 3 }; open(F, '<', 'd/file'); exit 4";
    let (took, status) = killed(&["perl", "-e", handler], &mount.path, Signal::INT);
    assert!(took < SOON && status.code() == Some(3), "{took:?}, {status}");
    // One that takes note of another signal waits on, and has its file.
    let noting = "$SIG{USR1} = sub {}; open(F, '<', 'd/file') or die \"$!\"; print <F>";
    let mut waiting = Command::new("perl")
        .args(["-e", noting])
        .current_dir(&mount.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(700));
    send(&waiting, Signal::USR1);
    thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_wait().unwrap().is_none(), "it waits");
    // Unless another signal ends it later, of which the kernel does not tell.
    resume(&server);
    let (mut text, mut said) = (String::new(), String::new());
    waiting.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    waiting.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(waiting.wait().unwrap().success() && text == "text", "{text}{said}");
}

#[test]
fn the_second_signal_ends_a_program_as_well() {
    let server = Server::start();
    fs::create_dir(server.path("/d")).unwrap();
    let mount = Mount::of(&server, &["--wait", "60s"]);
    assert_eq!(names(&mount.path), ["d"]);
    silence(&server);
    let program = "$SIG{USR1} = sub {}; $SIG{INT} = sub { exit 3 }; open(F, '<', 'd/file'); exit 4";
    let mut waiting = Command::new("env")
        .args(["--default-signal", "perl", "-e", program])
        .current_dir(&mount.path)
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(700));
    send(&waiting, Signal::USR1);
    thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_wait().unwrap().is_none(), "it waits");
    let begun = Instant::now();
    send(&waiting, Signal::INT);
    assert_eq!(waiting.wait().unwrap().code(), Some(3));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    resume(&server);
}
