//! What a sync makes of what is there: leftovers of interrupted runs, modes, and files that change meanwhile.

use std::{
    fs::{self, FileTimes, OpenOptions, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    process::Stdio,
    time::{Duration, SystemTime},
};

use crate::common::{
    self, NOBODY, Server, as_nobody, assert_same_tree, command, nfsw, noise, ok, rest_of, stderr, until,
};

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_an_interrupted_sync_has_left_is_resumed_and_not_deleted() {
    for up in [true, false] {
        let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
        let local = here.path().join("tree");
        let source = if up { local.clone() } else { server.path("tree") };
        fs::create_dir(&source).unwrap();
        for name in ["f1", "f2"] {
            fs::write(source.join(name), noise(2 << 20)).unwrap();
        }
        let (remote, local) = (server.url("/copy"), local.to_str().unwrap());
        let copy = here.path().join("copy");
        let remote_source = server.url("/tree");
        let ends = if up { [local, &remote] } else { [&remote_source, copy.to_str().unwrap()] };
        let target = if up { server.path("copy") } else { copy.clone() };
        // Numbers of runs that nothing else on this machine has.
        let state = here.path().join("state");
        let numbered = |options: &[&str], ends: [&str; 2]| {
            let mut command = command(options);
            command.args(ends).env("XDG_STATE_HOME", &state).stderr(Stdio::null());
            command
        };
        let again = || {
            let mut command = numbered(&["sync", "-v", "--delete", "--max-delete", "0"], ends);
            let output = command.stderr(Stdio::piped()).output().unwrap();
            assert!(output.status.success() && stderr(&output).contains(" 0 deleted"), "{}", stderr(&output));
        };
        let mut first = numbered(&["sync", "--bwlimit", "8Mbit"], ends).spawn().unwrap();
        let begun = || common::part(&target.join("f1"));
        until("a part of f1 is there", || fs::metadata(begun()).is_ok_and(|it| it.blocks() > 0));
        first.kill().unwrap();
        first.wait().unwrap();

        let planned = ok(["sync", "-n", "--delete"].iter().chain(&ends));
        assert!(planned.contains("delete 0;") && !planned.contains("would delete"), "{planned}");
        again();
        assert_same_tree(&source, &target, true);
        // One beside a file that is complete is of no use.
        fs::write(begun(), "stale").unwrap();
        ok(["sync", "--delete"].iter().chain(&ends));
        assert_same_tree(&source, &target, false);
    }
}

#[test]
fn what_another_run_may_be_writing_is_no_surplus() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let state = here.path().join("state");
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("tree/file"), noise(2 << 20)).unwrap();
    let start = |options: &[&str], source: &str, target: &str| {
        let ends = [here.path().join(source).into_os_string(), server.url(target).into()];
        command(options).args(ends).env("XDG_STATE_HOME", &state).spawn().unwrap()
    };
    let mut other = start(&["cp", "--quiet", "--bwlimit", "1Mbit"], "tree/file", "/other");
    let part = || common::part(&server.path("other"));
    until("it writes", || fs::metadata(part()).is_ok_and(|it| it.blocks() > 0));
    fs::create_dir(server.path("copy")).unwrap();
    let its_name = part().file_name().unwrap().to_str().unwrap().to_owned();
    let left = server.path("copy").join(its_name.replace("other", "file"));
    fs::write(&left, noise(100_000)).unwrap();
    for is_in_use in [true, false] {
        assert!(start(&["sync", "--quiet", "--delete"], "tree", "/copy").wait().unwrap().success());
        assert_eq!(left.exists(), is_in_use);
        other.kill().unwrap();
        other.wait().unwrap();
    }
    assert_same_tree(&here.path().join("tree"), &server.path("copy"), false);
}

#[test]
fn all_bits_of_a_mode_are_compared() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("f"), "x").unwrap();
    let (source, target) = (tree.to_str().unwrap(), server.url("/copy"));
    ok(["sync", source, &target]);
    set_mode(&server.path("copy/f"), 0o4644);
    set_mode(&tree.join("d"), 0o700);
    let planned = ok(["sync", "-n", source, &target]);
    assert!(planned.contains("would update f") && planned.contains("would update d/ (mode)"), "{planned}");
    assert!(planned.contains("would create 0 and update 2"), "{planned}");
    let output = nfsw(["sync", source, &target]);
    assert!(stderr(&output).contains("0 new and 2 changed"), "{}", stderr(&output));
    assert_same_tree(&tree, &server.path("copy"), true);

    // `nfsw serve` does not keep these bits, which is not a change of every run.
    set_mode(&tree.join("f"), 0o4711);
    for changed in [1, 0, 0] {
        let output = nfsw(["sync", source, &target]);
        let said = stderr(&output);
        let totals = format!("0 new and {changed} changed");
        assert!(output.status.success() && said.contains(&totals), "{said}");
        assert!(said.contains("set-user-ID and set-group-ID bits are not kept"), "{said}");
    }
}

#[test]
fn who_runs_a_copy_gets_the_rights_of_nobody_but_its_owner_there() {
    common::needs_root("gives files to another user");
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("tree")).unwrap();
    let (source, copy) = (server.path("tree/f"), here.path().join("f"));
    // Root gives the copy to the owner of its source; who may not do that keeps it without these bits.
    for (user, owner, mode, becomes) in [
        (0, 0, 0o4755, 0o4755),
        (0, NOBODY, 0o4755, 0o4755),
        (0, NOBODY, 0o2711, 0o2711),
        (NOBODY, 0, 0o4755, 0o755),
        (NOBODY, 0, 0o2711, 0o711),
    ] {
        chown(here.path(), Some(user), None).unwrap();
        for path in [&source, &copy] {
            let _ = fs::remove_file(path);
            fs::write(path, "x").unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        chown(&source, Some(owner), Some(owner)).unwrap();
        set_mode(&source, mode);
        chown(&copy, Some(user), Some(user)).unwrap();
        set_mode(&copy, 0o600);
        for changed in [1, 0] {
            let url = server.url("/tree");
            let arguments = ["sync", &url, here.path().to_str().unwrap()];
            let mut run = if user == 0 { command(arguments) } else { as_nobody(arguments) };
            let said = stderr(&run.output().unwrap());
            assert!(said.contains(&format!("0 new and {changed} changed")), "{said}");
            let is_said = said.contains("belong to an owner that is not kept");
            assert_eq!(is_said, changed == 1 && mode != becomes, "{said}");
        }
        let now = fs::metadata(&copy).unwrap();
        let its_owner = if user == 0 { owner } else { user };
        assert_eq!((now.uid(), now.mode() & 0o7777), (its_owner, becomes), "{owner} {mode:o}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_copied_gets_the_time_of_what_was_copied() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let file = here.path().join("file");
    fs::write(&file, noise(2 << 20)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(978_307_200);
    let open = || OpenOptions::new().append(true).open(&file).unwrap();
    open().set_times(FileTimes::new().set_modified(old)).unwrap();
    let mut copy = command(["cp", "-p", "--bwlimit", "8Mbit", file.to_str().unwrap(), &server.url("/copy")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = || common::part(&server.path("copy"));
    until("a part is there", || fs::metadata(begun()).is_ok_and(|it| it.blocks() > 0));
    let writing = OpenOptions::new().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&writing, b"other", 0).unwrap();
    let said = rest_of(copy.stderr.take().unwrap());
    assert!(copy.wait().unwrap().success() && said.contains("changed since its copy was begun"), "{said}");
    assert_same_tree(&file, &server.path("copy"), true);
}

#[test]
fn a_directory_that_its_owner_may_not_write_gets_what_is_new_and_keeps_its_mode() {
    let (server, here) = (Server::of_nobody(), tempfile::tempdir().unwrap());
    let [tree, back] = ["tree", "back"].map(|name| here.path().join(name));
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::create_dir(&back).unwrap();
    chown(&back, Some(NOBODY), None).unwrap();
    set_mode(here.path(), 0o755);
    let [tree_text, back_text] = [&tree, &back].map(|path| path.to_str().unwrap());
    for name in ["first", "second"] {
        set_mode(&tree.join("d"), 0o755);
        fs::write(tree.join("d").join(name), name).unwrap();
        set_mode(&tree.join("d"), 0o555);
        ok(["sync", tree_text, &server.url("/copy")]);
        assert_same_tree(&tree, &server.path("copy"), true);
        let output = as_nobody(["sync", &server.url("/copy"), back_text]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_same_tree(&tree.join("d"), &back.join("d"), true);
    }
    set_mode(&tree.join("d"), 0o755);
    fs::remove_file(tree.join("d/first")).unwrap();
    set_mode(&tree.join("d"), 0o555);
    ok(["sync", "--delete", tree_text, &server.url("/copy")]);
    assert_same_tree(&tree, &server.path("copy"), true);

    // Deleted with all that is in it, on both sides.
    fs::create_dir_all(tree.join("e/sub")).unwrap();
    fs::write(tree.join("e/sub/f"), "f").unwrap();
    set_mode(&tree.join("e/sub"), 0o555);
    set_mode(&tree.join("e"), 0o555);
    ok(["sync", tree_text, &server.url("/copy")]);
    assert!(as_nobody(["sync", &server.url("/copy"), back_text]).status().unwrap().success());
    fs::remove_dir_all(tree.join("e")).unwrap();
    ok(["sync", "--delete", tree_text, &server.url("/copy")]);
    assert!(as_nobody(["sync", "--delete", &server.url("/copy"), back_text]).status().unwrap().success());
    assert!(!server.path("copy/e").exists() && !back.join("e").exists());

    // One that stays keeps its mode, and one in which nothing is deleted is left alone.
    for copy in [server.path("copy"), back.clone()] {
        for name in ["e", "e/sub", "g"] {
            fs::create_dir(copy.join(name)).unwrap();
        }
        for name in ["e/sub/gone", "e/sub/kept", "g/kept"] {
            fs::write(copy.join(name), "").unwrap();
        }
        for name in ["e/sub", "e", "g"] {
            set_mode(&copy.join(name), 0o555);
            chown(copy.join(name), Some(NOBODY), None).unwrap();
        }
    }
    let changed = |path: &std::path::Path| {
        let found = fs::metadata(path).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let before = changed(&server.path("copy/g"));
    ok(["sync", "--delete", "--exclude", "kept", tree_text, &server.url("/copy")]);
    let options = ["sync", "--delete", "--exclude", "kept"];
    assert!(as_nobody(options.iter().chain(&[&*server.url("/copy"), back_text])).status().unwrap().success());
    assert_eq!(changed(&server.path("copy/g")), before);
    for copy in [server.path("copy"), back] {
        assert_eq!(common::names(&copy.join("e/sub")), ["kept"]);
        for name in ["e", "e/sub", "g"] {
            assert_eq!(fs::metadata(copy.join(name)).unwrap().mode() & 0o777, 0o555);
        }
    }
}

#[test]
fn for_a_file_that_cannot_be_read_nothing_is_deleted() {
    let (server, here) = (Server::of_nobody(), tempfile::tempdir().unwrap());
    set_mode(here.path(), 0o755);
    for [source, target] in
        [[server.path("tree"), here.path().join("copy")], [here.path().join("tree"), server.path("copy")]]
    {
        // A directory is in the way of it.
        fs::create_dir_all(target.join("f/inside")).unwrap();
        fs::write(target.join("other"), "").unwrap();
        for path in ["", "f", "f/inside", "other"] {
            chown(target.join(path), Some(NOBODY), None).unwrap();
        }
        fs::create_dir(&source).unwrap();
        fs::write(source.join("f"), "secret").unwrap();
        set_mode(&source.join("f"), 0o600);
        let shown = |path: &std::path::Path| match path.strip_prefix(server.root.path()) {
            Ok(path) => server.url(&format!("/{}", path.display())),
            Err(_) => path.to_str().unwrap().to_owned(),
        };
        for options in [&["sync", "--delete"][..], &["sync", "--delete", "--dry-run"]] {
            let output =
                as_nobody(options.iter().map(|&it| it.to_owned()).chain([shown(&source), shown(&target)]));
            let output = { output }.output().unwrap();
            let said = stderr(&output);
            assert!(!output.status.success() && said.contains("permission denied"), "{said}");
            assert!(said.contains("nothing is deleted"), "{said}");
        }
        assert!(target.join("f/inside").is_dir() && target.join("other").exists());
        // All of it is once the file can be read.
        set_mode(&source.join("f"), 0o644);
        let output = as_nobody(["sync", "--delete", &shown(&source), &shown(&target)]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(common::names(&target), ["f"]);
    }
}

#[test]
fn what_is_in_the_way_of_names_of_one_file_is_deleted_and_all_are_linked_before_the_rest_is() {
    for up in [true, false] {
        let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
        let ends = [here.path().join("tree"), server.path("tree")];
        let [source, target] = if up { &ends } else { &[ends[1].clone(), ends[0].clone()] };
        fs::create_dir_all(source.join("d")).unwrap();
        fs::write(source.join("first"), "first").unwrap();
        for name in ["second", "d/third"] {
            fs::hard_link(source.join("first"), source.join(name)).unwrap();
        }
        for path in ["first/inside", "d/third/inside", "extra"] {
            fs::create_dir_all(target.join(path)).unwrap();
        }
        let url = server.url("/tree");
        let local = ends[0].to_str().unwrap();
        let ends = if up { [local, &url] } else { [&url, local] };
        let planned = ok(["sync", "-n", "--delete"].iter().chain(&ends));
        assert!(planned.contains("delete 5;"), "{planned}");
        let output = nfsw(["sync", "-v", "--delete"].iter().chain(&ends));
        let said = stderr(&output);
        assert!(output.status.success() && said.contains("5 deleted"), "{said}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let at = |words: &str| lines.find(words).unwrap_or_else(|| panic!("{words}: {lines}"));
        assert!(at("deleted  d/third/") < lines.rfind("new      d/third").unwrap(), "{lines}");
        assert!(lines.rfind("(hard link)").unwrap() < at("deleted  extra/"), "{lines}");
        assert_same_tree(source, target, false);
        assert_eq!(fs::metadata(target.join("d/third")).unwrap().nlink(), 3);
    }
}

#[test]
fn what_is_excluded_or_cannot_be_listed_stays_in_the_way() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (source, target) = (here.path().join("tree"), server.path("tree"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("x"), "file").unwrap();
    fs::create_dir_all(target.join("x/inside")).unwrap();
    fs::write(target.join("x/inside/k.o"), "").unwrap();
    let ends = [source.to_str().unwrap(), &server.url("/tree")];
    for filter in ["--exclude=x/", "--exclude=*.o"] {
        let output = nfsw(["sync", "--delete", filter].iter().chain(&ends));
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains("x: is a directory"), "{said}");
        assert!(target.join("x/inside/k.o").exists(), "{said}");
    }
    ok(["sync", "--delete"].iter().chain(&ends));
    assert_same_tree(&source, &target, false);
}

#[test]
fn what_only_looks_like_a_leftover_is_not_passed_over_in_silence() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for name in ["f", ".f.nfsw-journal", "g"] {
        fs::write(here.path().join(name), name).unwrap();
    }
    fs::create_dir(here.path().join(".g.nfsw-part")).unwrap();
    let output = nfsw(["sync", here.path().to_str().unwrap(), &server.url("/copy")]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(".g.nfsw-part: skipped: the copy of a file beside it needs this name"), "{said}");
    assert!(said.contains(".f.nfsw-journal: skipped: it is left of an interrupted copy"), "{said}");
    assert!(said.contains("1 skipped (partial), 1 failed"), "{said}");
    assert_eq!(common::names(&server.path("copy")), [".nfsw-incomplete", "f", "g"]);
}

/// The first run is not harmed by a second one, which says why it does nothing; and no run deletes what another one is writing.
#[test]
fn of_two_syncs_into_one_local_directory_the_second_is_refused() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("tree")).unwrap();
    for number in 0..8 {
        fs::write(server.path(&format!("tree/{number}")), noise(300_000)).unwrap();
    }
    fs::write(server.path("other"), noise(3_000_000)).unwrap();
    let (source, target) = (server.url("/tree"), here.path().join("target"));
    let target_text = target.to_str().unwrap();
    for is_new in [true, false] {
        let mut first = command(["sync", "--bwlimit", "8Mbit", &source, target_text]).spawn().unwrap();
        let is_part = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".nfsw-part");
        until("the first one copies something", || {
            target.exists() && common::names(&target).iter().any(is_part)
        });
        let second = nfsw(["sync", &source, target_text]);
        assert_eq!(second.status.code(), Some(1), "{}", stderr(&second));
        assert!(
            stderr(&second).contains("another nfsw is copying into this directory"),
            "{}",
            stderr(&second)
        );
        assert!(first.wait().unwrap().success(), "{is_new}");
        assert_same_tree(&server.path("tree"), &target, is_new);
        fs::remove_file(target.join("3")).unwrap();
        fs::remove_file(target.join("4")).unwrap();
    }
    ok(["sync", &source, target_text]);
    let mut copy = command(["cp", "--bwlimit", "8Mbit", &server.url("/other"), target_text]).spawn().unwrap();
    until("it is being copied", || target.join(".other.nfsw-part").exists());
    fs::write(target.join("surplus"), "").unwrap();
    ok(["sync", "--delete", &source, target_text]);
    assert!(!target.join("surplus").exists() && target.join(".other.nfsw-part").exists());
    assert!(copy.wait().unwrap().success());
    assert!(target.join("other").exists());
    // What nobody is writing is surplus.
    fs::write(target.join(".other.nfsw-part"), "").unwrap();
    ok(["sync", "--delete", &source, target_text]);
    assert!(!target.join(".other.nfsw-part").exists() && !target.join("other").exists());
}
