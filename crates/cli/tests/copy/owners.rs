//! Who may do what with what was there before: `nfsw sync` gives it to the owner of its source, and nobody more than the source does.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

use crate::common::{NOBODY, Server, as_user, command, needs_root, noise, ok, stderr, until};

const USERS: u32 = 100;
const DAEMON: u32 = 1;

fn set(path: &Path, (uid, gid): (u32, u32), mode: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn seen(path: &Path) -> ((u32, u32), u32) {
    let metadata = fs::metadata(path).unwrap();
    ((metadata.uid(), metadata.gid()), metadata.mode() & 0o7777)
}

/// A file, a directory, and a file with two names.
const NAMES: [&str; 3] = ["file", "directory", "one"];

fn make(tree: &Path) {
    fs::create_dir_all(tree.join("directory")).unwrap();
    for name in ["file", "one"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("one"), tree.join("other")).unwrap();
}

#[test]
fn what_has_the_right_contents_is_given_to_the_owner_of_its_source() {
    needs_root("files of others");
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (tree, copy) = (server.path("tree"), here.path().join("copy"));
    make(&tree);
    let sync = || ok(["sync", "-v", &server.url("/tree"), copy.to_str().unwrap()]);
    for (owner, modes) in [
        ((NOBODY, USERS), [0o640, 0o750, 0o640]),
        // The group of before is not to have what the new one may.
        ((0, DAEMON), [0o660, 0o770, 0o660]),
        ((0, DAEMON), [0o600, 0o700, 0o600]),
        ((NOBODY, USERS), [0o4755, 0o2755, 0o755]),
    ] {
        for (name, mode) in NAMES.iter().zip(modes) {
            set(&tree.join(name), owner, mode);
        }
        sync();
        for name in NAMES.into_iter().chain(["other"]) {
            assert_eq!(seen(&copy.join(name)), seen(&tree.join(name)), "{name}, {owner:?}");
        }
        assert_eq!(seen(&copy.join("one")).0, owner);
        assert!(!sync().contains("changed"), "nothing is left to do");
    }
}

/// As with `root_squash`.
#[test]
fn a_server_that_lets_nobody_give_files_away_is_asked_once() {
    needs_root("files of others");
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    make(&tree);
    for name in NAMES {
        set(&tree.join(name), (NOBODY, USERS), if name == "directory" { 0o750 } else { 0o640 });
    }
    let sync = || command(["sync", "-v", tree.to_str().unwrap(), &server.url("/copy")]).output().unwrap();
    assert!(sync().status.success());
    for _ in 0..2 {
        let again = sync();
        let said = String::from_utf8_lossy(&again.stdout).into_owned() + &stderr(&again);
        assert!(again.status.success() && said.contains("0 changed"), "{said}");
        for name in NAMES {
            assert_eq!(seen(&server.path("copy").join(name)).1, seen(&tree.join(name)).1, "{name}");
        }
    }
}

#[test]
fn a_directory_is_closed_before_more_is_in_it() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (below, copy) = (server.path("tree/private"), here.path().join("copy"));
    fs::create_dir_all(&below).unwrap();
    fs::write(below.join("old"), "x").unwrap();
    fs::set_permissions(&below, fs::Permissions::from_mode(0o755)).unwrap();
    let (from, to) = (server.url("/tree"), copy.to_str().unwrap());
    ok(["sync", &from, to]);
    assert_eq!(seen(&copy.join("private")).1, 0o755);
    fs::set_permissions(&below, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(below.join("small"), "secret").unwrap();
    fs::write(below.join("large"), noise(4 << 20)).unwrap();
    let mut run = command(["sync", "-q", "--bwlimit", "1M", &from, to]).spawn().unwrap();
    until("the first file is there", || copy.join("private/small").exists());
    assert_eq!(seen(&copy.join("private")).1, 0o700);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(seen(&copy.join("private")).1, 0o700);
}

/// A directory of somebody else who lets a group write, as in a tree that several people share.
#[test]
fn what_is_private_goes_into_no_open_directory_of_somebody_else() {
    needs_root("directories of others");
    let (server, here) = (Server::of_nobody(), tempfile::tempdir().unwrap());
    let (tree, copy) = (here.path().join("tree"), server.path(""));
    for top in [&tree, &copy] {
        for name in ["private", "shared", "mine"] {
            fs::create_dir_all(top.join(name)).unwrap();
            set(&top.join(name), (DAEMON, NOBODY), 0o775);
        }
        set(top, (DAEMON, NOBODY), 0o775);
    }
    for (name, mode) in [("private", 0o700), ("shared", 0o750), ("mine", 0o700)] {
        set(&tree.join(name), (NOBODY, NOBODY), mode);
        fs::write(tree.join(name).join("file"), "x").unwrap();
        set(&tree.join(name).join("file"), (NOBODY, NOBODY), 0o644);
    }
    set(here.path(), (0, 0), 0o755);
    set(&copy.join("mine"), (NOBODY, NOBODY), 0o775);
    let of_tree = Server::at(&tree);
    let up = [tree.to_str().unwrap(), &server.url("/")];
    let down = [&of_tree.url("/"), copy.to_str().unwrap()];
    for [from, to] in [up, down] {
        let output = as_user(NOBODY, ["sync", "-q", from, to]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("/private: others can read what is in it"), "{said}");
        assert!(!copy.join("private/file").exists());
        assert_eq!(seen(&copy.join("mine")).1, 0o700);
        for name in ["shared", "mine"] {
            fs::remove_file(copy.join(name).join("file")).unwrap();
        }
        set(&copy.join("mine"), (NOBODY, NOBODY), 0o775);
    }
}

#[test]
fn of_sources_that_go_into_one_directory_the_order_decides_and_not_the_time_they_take() {
    let server = Server::start();
    for (source, seconds) in [("a", 2_000_000_000), ("b", 1_000_000_000)] {
        for directory in ["x", "y", "z"].map(|name| server.path(source).join(name)) {
            fs::create_dir_all(&directory).unwrap();
            for name in 0..60 {
                let path = directory.join(name.to_string());
                fs::write(&path, source).unwrap();
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
                fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            }
        }
    }
    // The newer of two, and the first of two.
    for (options, first, second) in
        [("-rn", "a", "b"), ("-rn", "b", "a"), ("-rup", "a", "b"), ("-rup", "b", "a")]
    {
        let here = tempfile::tempdir().unwrap();
        let [from, other] = [first, second].map(|source| server.url(&format!("/{source}/.")));
        ok(["cp", "-q", options, &from, &other, here.path().to_str().unwrap()]);
        let expected = if options == "-rn" { first } else { "a" };
        for directory in ["x", "y", "z"] {
            for name in 0..60 {
                let path = here.path().join(directory).join(name.to_string());
                assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{options} {}", path.display());
            }
        }
    }
}

#[test]
fn directories_that_are_too_deep_are_not_looked_through_for_what_is_to_be_deleted() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/file"), "x").unwrap();
    let deep = here.path().join("d/".repeat(600));
    fs::create_dir_all(deep).unwrap();
    fs::write(here.path().join("surplus"), "x").unwrap();
    let output =
        command(["sync", "--delete", &server.url("/tree"), here.path().to_str().unwrap()]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("more than 512 deep"), "{said}");
    assert!(here.path().join("file").exists() && here.path().join("surplus").exists());
}
