//! Names: servers that leave out what they may leave out, directories that change, and what is said of files that are not opened.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    faults::{Entries, Faults},
    mounted::Mount,
    program::{meanwhile, run},
    server::{Server, within},
    tree::Tree,
};

/// Faults of listings, all of which are legal.
fn listings() -> [(&'static str, Faults); 6] {
    let entries = |entries| Faults { entries, ..Faults::default() };
    [
        ("whole", Faults::default()),
        ("some entries without handle", entries(Entries::SomeWithoutHandles)),
        ("some entries with neither handle nor attributes", entries(Entries::SomeBare)),
        ("entries without attributes", entries(Entries::WithoutAttributes)),
        ("no READDIRPLUS", Faults { no_readdirplus: true, ..Faults::default() }),
        ("no post-op attributes", Faults { no_post_op: true, ..Faults::default() }),
    ]
}

/// Contents of a file, by its number.
fn bytes(number: usize) -> Vec<u8> {
    format!("this is file {number}\n").repeat(300 + number).into_bytes()
}

/// An entry is whole: what nobody knows is not shown as nothing.
fn assert_whole(path: &Path, size: u64) {
    let known = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    assert!(
        known.mode() & 0o7777 != 0 && known.mtime() > 1_000_000_000,
        "{path:?} looks like nothing: {known:?}"
    );
    assert_eq!(known.len(), size, "{path:?}");
}

/// Issue 40.1. "After `ls -l` 18 of 40 files read as empty; an open descriptor of one file shows the bytes of another."
#[test]
fn after_ls_l_no_file_looks_empty_and_an_open_descriptor_shows_its_own_bytes() {
    for (what, faults) in listings() {
        let server = Server::new(faults);
        server.edit(|tree| {
            tree.mkdir("d");
            (0..40).for_each(|number| tree.create_old(&format!("d/{number}"), bytes(number)));
        });
        let mount = Mount::at(&server.url("/"), &[]);
        let path = |number: usize| mount.path(&format!("d/{number}"));
        let open: Vec<_> =
            (0..40).step_by(8).map(|number| (number, File::open(path(number)).unwrap())).collect();
        run("ls -l", &mount.path("d"));
        let check = || {
            for number in 0..40 {
                assert_whole(&path(number), bytes(number).len() as u64);
                assert!(
                    fs::read(path(number)).unwrap() == bytes(number),
                    "{what}: {number} shows others' bytes"
                );
            }
            for (number, file) in &open {
                let mut read = vec![0; bytes(*number).len()];
                file.read_exact_at(&mut read, 0).unwrap_or_else(|error| panic!("{what}, {number}: {error}"));
                assert!(read == bytes(*number), "{what}: the descriptor of {number} shows others' bytes");
            }
        };
        check();
        // The kernel keeps attributes for a second.
        thread::sleep(Duration::from_millis(1200));
        run("ls -l", &mount.path("d"));
        check();
    }
}

/// A tree of every type, three deep.
fn types(tree: &mut Tree) {
    tree.mkdir("a");
    tree.mkdir("a/b");
    for directory in ["", "a/", "a/b/"] {
        for number in 0..5 {
            tree.create_old(&format!("{directory}file{number}"), bytes(number));
        }
        tree.symlink(&format!("{directory}link"), "file0");
    }
}

/// Issue 40.1. "On servers without READDIRPLUS, or without post-op attributes, `find` sees the root and one regular file."
#[test]
fn find_sees_all_names_with_the_right_types() {
    let mut expected = vec!["d ", "d a", "d a/b"].into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    for directory in ["", "a/", "a/b/"] {
        expected.extend((0..5).map(|number| format!("f {directory}file{number}")));
        expected.insert(format!("l {directory}link"));
    }
    for (what, faults) in listings() {
        let server = Server::new(faults);
        server.edit(types);
        let mount = Mount::at(&server.url("/"), &[]);
        // Twice, for the kernel may ask for names with attributes or without.
        for _ in 0..2 {
            let said = run(r"find . -printf '%y %P\n'", &mount.path);
            let found: BTreeSet<_> = said.lines().map(str::to_owned).collect();
            assert_eq!(found, expected, "{what}");
            assert_eq!(run("ls -lR | grep -c '^-.*file'", &mount.path).trim(), "15", "{what}");
        }
    }
}

/// Issue 40.1. "A nested mount point lists as `---------- 0 Jan 1 1970` and entering it gives ENOTDIR." The root inside has the
/// fileid of the root outside, as it is with two ext4.
#[test]
fn a_file_system_inside_the_export_can_be_listed_and_entered() {
    let server = Server::new(Faults::default());
    server.edit(|tree| {
        tree.mkdir("d");
        tree.create_old("d/outer", bytes(1));
        tree.nest("d/nested", 5);
        tree.create_old("d/nested/inner", bytes(2));
    });
    let mount = Mount::at(&server.url("/"), &[]);
    for _ in 0..2 {
        let said = run("ls -l d", &mount.path);
        let line = said.lines().find(|line| line.ends_with("nested")).expect("it is listed");
        assert!(line.starts_with("drwx"), "{line}");
        assert!(run("cd d/nested && cat inner", &mount.path).as_bytes() == bytes(2));
        // A directory that looks like one above it is no loop.
        assert_eq!(run("find . | sort", &mount.path), ".\n./d\n./d/nested\n./d/nested/inner\n./d/outer\n");
    }
}

/// Runs something while a thread changes the server's tree, as often a second.
fn while_changing<T>(
    server: &Server,
    every: Duration,
    mut change: impl FnMut(&mut Tree, usize) + Send,
    body: impl FnOnce() -> T,
) -> T {
    let work = |number| {
        server.edit(|tree| change(tree, number));
        thread::sleep(every);
    };
    meanwhile(work, body)
}

/// Issue 40.1. "Under churn on an ordinary server entries of mode 0, size 0, year 1970 appear once in 500 to 1,700 operations."
#[test]
fn no_entry_looks_like_nothing_while_files_are_replaced() {
    let server = Server::new(Faults::default());
    server.edit(|tree| {
        tree.mkdir("d");
        (0..40).for_each(|number| tree.create(&format!("d/{number}"), bytes(7)));
    });
    let mount = Mount::at(&server.url("/"), &[]);
    let begun = Instant::now();
    let (mut looks, mut nothing) = (0, Vec::new());
    while_changing(
        &server,
        Duration::from_millis(1),
        |tree, number| tree.replace(&format!("d/{}", number * 7 % 40), bytes(7)),
        || {
            meanwhile(
                |number| drop(fs::read(mount.path(&format!("d/{}", number % 40)))),
                || {
                    while begun.elapsed() < Duration::from_secs(6) {
                        for entry in fs::read_dir(mount.path("d")).unwrap() {
                            let Ok(entry) = entry else { continue };
                            // Temporary names may be gone, and a replaced file may be.
                            let Ok(known) = entry.metadata() else { continue };
                            looks += 1;
                            if known.mode() & 0o777 != 0o644
                                || known.mtime() < 1_000_000_000
                                || known.len() != bytes(7).len() as u64
                            {
                                nothing.push(format!(
                                    "{:?}: {:o} {}",
                                    entry.file_name(),
                                    known.mode(),
                                    known.len()
                                ));
                            }
                        }
                    }
                },
            )
        },
    );
    assert!(nothing.is_empty(), "{} of {looks} entries look like nothing: {}", nothing.len(), nothing[0]);
    assert!(looks > 1000, "only {looks} entries were looked at");
}

/// Issue 40.9. "A second `ls` in a busy directory ends in ESTALE (6 of 6 at 500 changes a second) though LOOKUP finds the
/// directory." Names that stay are all there, once.
#[test]
fn every_ls_of_a_directory_with_500_changes_a_second_is_complete() {
    for strict_cookies in [false, true] {
        busy(strict_cookies);
    }
}

/// A directory whose cookies outlast a change, or do not, as on servers whose verifier is a time; then it has 20 changes a second.
fn busy(strict_cookies: bool) {
    let server = Server::new(Faults { strict_cookies, ..Faults::default() });
    let stay: BTreeSet<_> = (0..1500).map(|number| format!("stays-{number}")).collect();
    server.edit(|tree| {
        tree.mkdir("d");
        stay.iter().for_each(|name| tree.create_old(&format!("d/{name}"), bytes(1)));
    });
    let change = |tree: &mut Tree, number: usize| match number % 2 {
        0 => tree.create(&format!("d/goes-{}", number / 2), bytes(1)),
        _ => tree.remove(&format!("d/goes-{}", number / 2)),
    };
    let mounts: Vec<_> = (0..6).map(|_| Mount::at(&server.url("/"), &[])).collect();
    // What the kernel keeps is asked for again after a second, and what the mount keeps after three.
    let every = Duration::from_micros(if strict_cookies { 50_000 } else { 1900 });
    let pauses = [0, 20, 1200, 1200, 3200].map(Duration::from_millis);
    while_changing(&server, every, change, || {
        for (turn, pause) in pauses.into_iter().enumerate() {
            thread::sleep(pause);
            for mount in &mounts {
                let said = run("ls -U d", &mount.path);
                let staying: Vec<_> = said.lines().filter(|name| name.starts_with("stays")).collect();
                assert_eq!(staying.len(), 1500, "listing {turn}");
                assert!(staying.iter().all(|name| stay.contains(*name)), "listing {turn}");
            }
        }
    });
}

/// The same where the directory itself is replaced by another one, a hundred times a second.
#[test]
fn every_ls_of_a_directory_that_is_replaced_all_the_time_is_complete() {
    let server = Server::new(Faults::default());
    let fill = |tree: &mut Tree, path: &str| {
        tree.mkdir(path);
        (0..20).for_each(|number| tree.create(&format!("{path}/{number}"), bytes(1)));
    };
    server.edit(|tree| fill(tree, "d"));
    let mount = Mount::at(&server.url("/"), &[]);
    let replace = |tree: &mut Tree, _| {
        fill(tree, "new");
        tree.rename("new", "d");
    };
    while_changing(&server, Duration::from_millis(10), replace, || {
        for _ in 0..100 {
            assert_eq!(run("ls d | wc -l", &mount.path).trim(), "20");
            thread::sleep(Duration::from_millis(30));
        }
    });
}

/// Issue 40.9. "A listing of a replaced directory gives ESTALE for 2 s." What is cached may be shown for some seconds more; a
/// name that is new is looked up at once.
#[test]
fn a_directory_that_was_replaced_is_listed_and_searched_at_once() {
    for before in ["ls d", "stat d", "cat d/old"] {
        let server = Server::new(Faults::default());
        server.edit(|tree| {
            tree.mkdir("d");
            tree.create("d/old", bytes(1));
        });
        let mount = Mount::at(&server.url("/"), &[]);
        run(before, &mount.path);
        server.edit(|tree| {
            tree.remove("d/old");
            tree.remove("d");
            tree.mkdir("d");
            tree.create("d/new", bytes(1));
        });
        assert!(run("cat d/new", &mount.path).as_bytes() == bytes(1), "after {before}");
        within(Duration::from_secs(10), "it shows what is there", || {
            let said = run("ls d", &mount.path);
            assert!(before == "ls d" || said == "new\n", "after {before}: {said}");
            said == "new\n"
        });
    }
}

/// Issue 40.10. "A name that is not in the cache is always looked up", though the listing is complete; a coarse clock hides the
/// change of the directory.
#[test]
fn a_name_that_is_created_after_a_complete_listing_is_found() {
    for tick in [Duration::from_nanos(1), Duration::from_secs(1), Duration::from_secs(2)] {
        let server = Server::new(Faults::default());
        server.edit(|tree| {
            tree.clock.tick = tick;
            tree.mkdir("d");
            tree.create("d/old", bytes(1));
        });
        let mount = Mount::at(&server.url("/"), &[]);
        for number in 0..20 {
            let (name, created) = (format!("d/new{number}"), mount.path(&format!("d/new{number}")));
            run("ls -l d", &mount.path);
            if number % 2 == 0 {
                assert!(fs::metadata(&created).is_err());
            }
            server.edit(|tree| tree.create(&name, bytes(number)));
            let read = fs::read(&created).unwrap_or_else(|error| panic!("tick {tick:?}, {name}: {error}"));
            assert!(read == bytes(number));
        }
    }
}

/// Issue 40.9. "One hostile name makes the whole listing EIO."
#[test]
fn one_impossible_name_hides_no_other() {
    for name in [&b"a/b"[..], b"..", b".", b"", b"a\0b", b"/", b"../../etc/passwd"] {
        let server = Server::new(Faults { hostile: Some(name), ..Faults::default() });
        server.edit(types);
        let mount = Mount::at(&server.url("/"), &[]);
        let said = run("ls", &mount.path);
        assert_eq!(
            said,
            "a\nfile0\nfile1\nfile2\nfile3\nfile4\nlink\n",
            "{:?}",
            name.escape_ascii().to_string()
        );
    }
}

/// Issue 40.8. "The server's fileid is the right number wherever the view is one file system."
#[test]
fn inode_numbers_are_the_servers_and_the_same_in_a_second_mount() {
    let server = Server::new(Faults::default());
    server.edit(types);
    let mut mount = Mount::at(&server.url("/"), &[]);
    let paths = ["", "a", "a/b", "file0", "a/file1", "a/b/file2", "a/link"];
    let here = |mount: &Mount| paths.map(|path| fs::symlink_metadata(mount.path(path)).unwrap().ino());
    let there = paths.map(|path| server.edit(|tree| tree.attributes(tree.find(path)).unwrap().fileid));
    assert_eq!(here(&mount), there);
    assert_eq!(run("find . -printf '%i %P\\n'", &mount.path), run("find . -printf '%i %P\\n'", &mount.path));
    // A version more is the same file.
    server.edit(|tree| tree.rewrite("file0", |bytes| bytes.reverse()));
    fs::read(mount.path("file0")).unwrap();
    assert_eq!(here(&mount), there, "after a change");
    mount.end(rustix::process::Signal::TERM);
    mount.again(&server.url("/"), &[]);
    assert_eq!(here(&mount), there, "in a second mount");
    let other = Mount::at(&server.url("/"), &[]);
    assert_eq!(here(&other), there, "in a mount with a cache of its own");
}

/// Issue 40.9. "`access(X_OK)` is always yes."
#[test]
fn what_is_not_executable_is_said_not_to_be() {
    let server = Server::new(Faults::default());
    server.edit(|tree| {
        tree.create_old("text", bytes(1));
        tree.create_old("program", bytes(2));
        tree.change("program", |node| node.mode = 0o755);
    });
    let mount = Mount::at(&server.url("/"), &[]);
    let said = run("for file in text program; do test -x $file && echo $file; done; true", &mount.path);
    assert_eq!(said, "program\n");
}

/// Issue 40.9. "`df` shows 0 bytes offline."
#[test]
fn df_shows_the_size_of_the_file_system_without_the_server_too() {
    let server = Server::new(Faults::default());
    server.edit(types);
    let mut mount = Mount::at(&server.url("/"), &["--wait", "1s"]);
    let sizes = "df --output=size,used,avail . | tail -1";
    let before = run(sizes, &mount.path);
    assert!(before.trim().starts_with("1073741824"), "{before}");
    server.silence(true);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(run(sizes, &mount.path), before, "in an outage");
    server.silence(false);
    within(Duration::from_secs(10), "it responds", || fs::read(mount.path("file3")).is_ok());
    mount.end(rustix::process::Signal::TERM);
    mount.again(&server.url("/"), &["--offline"]);
    assert_eq!(run(sizes, &mount.path), before, "with --offline");
}
