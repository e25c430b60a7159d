//! Destinations that take less than others: names for one that are two elsewhere, no modes, no times, or not all of them.

use std::{
    fs::{self, File},
    io::{Read, Seek},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    common::{self, Server, command, names, noise, ok, stderr},
    odd::{Mounted, Odd},
};

/// Pairs of names that some file system takes for one.
const PAIRS: [(&str, &str); 4] =
    [("README", "readme"), ("café", "cafe\u{301}"), ("Straße.txt", "straße.TXT"), ("sub/a", "SUB/b")];

fn write(place: &Path, name: &str, content: &[u8]) {
    let path = place.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Runs `nfsw` and expects that something was not copied; returns what was said.
fn some_fail(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    said
}

#[test]
fn two_sources_that_would_become_one_file_are_told_and_the_first_stays() {
    let server = Server::start();
    for has_no_flags in [false, true] {
        for (number, (first, second)) in PAIRS.into_iter().enumerate() {
            for size in [10, 300 << 10] {
                let tree = format!("tree{number}-{size}-{has_no_flags}");
                let [one, other] = [noise(size), noise(size / 2)];
                write(&server.path(&tree), first, &one);
                write(&server.path(&tree), second, &other);
                write(&server.path(&tree), "another", b"x");
                for words in [&["cp", "-r"][..], &["cp", "-r", "--inplace"], &["sync"], &["sync", "--delete"]]
                {
                    let place = Mounted::new(Odd { folds: true, has_no_flags, ..Odd::default() });
                    let (source, target) = (server.url(&format!("/{tree}")), place.text("copy"));
                    for run in 0..2 {
                        let again = if run == 1 && words[0] == "cp" { vec!["-T"] } else { Vec::new() };
                        let arguments = [words, &again, &[&source, &target]].concat();
                        let said = some_fail(&arguments);
                        let both =
                            [first, second].iter().all(|name| said.contains(name.split('/').next().unwrap()));
                        assert!(
                            both && said.contains("takes this name for that of"),
                            "{arguments:?}: {said}"
                        );
                        let found = fs::read(place.join("copy").join(first)).ok();
                        let found = found.or_else(|| fs::read(place.join("copy").join(second)).ok()).unwrap();
                        assert!(found == one || found == other, "{arguments:?}: the bytes of neither");
                        assert_eq!(fs::read(place.join("copy/another")).unwrap(), b"x");
                    }
                }
            }
        }
    }
}

#[test]
fn a_server_that_takes_two_names_for_one_is_told_from_others() {
    let here = tempfile::tempdir().unwrap();
    for (number, (first, second)) in PAIRS.into_iter().enumerate() {
        let tree = here.path().join(number.to_string());
        write(&tree, first, &noise(300 << 10));
        write(&tree, second, b"small");
        for words in [&["cp", "-r"][..], &["sync", "--delete"]] {
            let place = Mounted::new(Odd { folds: true, ..Odd::default() });
            let server = Server::at(place.path());
            for run in 0..2 {
                let again = if run == 1 && words[0] == "cp" { vec!["-T"] } else { Vec::new() };
                let target = server.url("/copy");
                let arguments = [words, &again, &[tree.to_str().unwrap(), &target]].concat();
                let said = some_fail(&arguments);
                assert!(said.contains("takes this name for that of"), "{arguments:?}: {said}");
                let found = fs::read(place.join("copy").join(first)).ok();
                let found = found.or_else(|| fs::read(place.join("copy").join(second)).ok()).unwrap();
                assert!(
                    found == noise(300 << 10) || found == b"small",
                    "{arguments:?}: the bytes of neither"
                );
            }
        }
    }
}

#[test]
fn names_that_are_one_for_another_reason_are_told_too() {
    let server = Server::start();
    write(&server.path("tree"), "long-name-1", b"first");
    write(&server.path("tree"), "long-name-2", b"second");
    for has_no_flags in [false, true] {
        let place = Mounted::new(Odd { ignores_digits: true, has_no_flags, ..Odd::default() });
        let said = some_fail(&["cp", "-r", "--jobs", "1", &server.url("/tree"), &place.text("copy")]);
        assert!(said.contains("long-name-1") && said.contains("long-name-2"), "{said}");
        let found = fs::read(place.join("copy/long-name-1")).unwrap();
        assert!(found == b"first" || found == b"second", "the bytes of neither");
    }
}

#[test]
fn what_a_run_has_copied_is_in_the_way_of_nothing_and_no_link_replaces_it() {
    let server = Server::start();
    // A file and a directory; and a file, and another one with two names.
    write(&server.path("kinds"), "README", b"file");
    write(&server.path("kinds"), "readme/below", b"below");
    write(&server.path("links"), "0", b"first");
    fs::hard_link(server.path("links/0"), server.path("links/B")).unwrap();
    write(&server.path("links"), "b", b"second");
    for (tree, name, content) in [("kinds", "README", b"file".as_slice()), ("links", "b", b"second")] {
        for delete in [&[][..], &["--delete"]] {
            let place = Mounted::new(Odd { folds: true, ..Odd::default() });
            let (source, target) = (server.url(&format!("/{tree}")), place.text("copy"));
            for run in 0..3 {
                let said = some_fail(&[&["sync"], delete, &[&source, &target]].concat());
                assert!(said.contains("takes this name for that of"), "{tree}, run {run}: {said}");
                let found = fs::read(place.join("copy").join(name));
                // Whichever came first is there.
                let is_first = found.as_ref().is_ok_and(|found| found == content)
                    || tree == "kinds" && place.join("copy/readme/below").exists();
                assert!(is_first, "{tree}, run {run}: {said}");
            }
        }
    }
}

#[test]
fn several_sources_that_go_into_one_directory_do_not_replace_one_another() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for (source, only) in [("a", "one"), ("b", "other")] {
        for place in [server.root.path(), here.path()] {
            write(&place.join(source), "sub/file", source.as_bytes());
            write(&place.join(source), &format!("sub/{only}"), only.as_bytes());
        }
    }
    fs::create_dir(server.path("up")).unwrap();
    fs::create_dir(here.path().join("down")).unwrap();
    let local = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    for (sources, target, copy) in [
        ([server.url("/a/."), server.url("/b/.")], local("down"), here.path().join("down")),
        ([local("a/."), local("b/.")], server.url("/up"), server.path("up")),
    ] {
        let said = some_fail(&["cp", "-r", &sources[0], &sources[1], &target]);
        assert!(said.contains("sub/file: not copied") && said.lines().count() == 1, "{said}");
        let found = fs::read(copy.join("sub/file")).unwrap();
        assert!(found == b"a" || found == b"b");
        assert_eq!(names(&copy.join("sub")), ["file", "one", "other"]);
        // Who says which is to be kept has said it.
        ok(["cp", "-r", "-n", &sources[0], &sources[1], &target]);
        assert_eq!(fs::read(copy.join("sub/file")).unwrap(), found);
    }
}

#[test]
fn a_signal_ends_a_copy_to_a_file_system_that_does_not_respond() {
    let server = Server::start();
    write(server.root.path(), "file", &noise(300 << 10));
    for (signal, words) in [("-TERM", &["cp"][..]), ("-INT", &["cp", "--inplace"])] {
        let place = Mounted::new(Odd { hangs: true, ..Odd::default() });
        let (source, target) = (server.url("/file"), place.text("copy"));
        let mut copy = command([words, &[&source, &target]].concat()).stderr(Stdio::null()).spawn().unwrap();
        place.wait_until_it_hangs();
        let begun = Instant::now();
        assert!(Command::new("kill").args([signal, &copy.id().to_string()]).status().unwrap().success());
        while copy.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(10));
        }
        let elapsed = begun.elapsed();
        place.go_on();
        assert_eq!(copy.wait().unwrap().code(), Some(130), "{words:?}");
        assert!(elapsed < Duration::from_secs(20), "{words:?}: {elapsed:?}");
    }
}

/// What waits for a server waits for a file system of this machine too: not silently, and not for longer than it may.
#[test]
fn a_file_system_that_does_not_respond_is_given_up_after_the_timeout() {
    let server = Server::start();
    write(server.root.path(), "file", &noise(300 << 10));
    for options in [&["--timeout", "6s"][..], &["--timeout", "6s", "--inplace"], &["--deadline", "6s", "-q"]]
    {
        let place = Mounted::new(Odd { hangs: true, ..Odd::default() });
        let (source, target) = (server.url("/file"), place.text("copy"));
        let words = [&["cp", &source, &target], options].concat();
        // Not a pipe: the process that hangs would hold its end open.
        let mut lines = tempfile::tempfile().unwrap();
        let mut copy = command(words).stderr(lines.try_clone().unwrap()).spawn().unwrap();
        place.wait_until_it_hangs();
        // The command ends before it is answered.
        let status = copy.wait().unwrap();
        place.go_on();
        let mut said = String::new();
        lines.rewind().unwrap();
        lines.read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(5), "{options:?}: {said}");
        let gave_up = said.lines().last().unwrap_or_default();
        assert!(gave_up.starts_with("nfsw: gave up") && gave_up.contains("; run again: nfsw cp "), "{said}");
        // It is not the server's fault.
        assert!(
            gave_up.contains("a file system of this machine") || options.contains(&"--deadline"),
            "{said}"
        );
        let is_told =
            said.contains("still waiting (Ctrl-C stops") || said.contains("still trying (Ctrl-C stops");
        assert_eq!(is_told, !options.contains(&"-q"), "{said}");
    }
}

/// Files of other machines, and those on a disk that fails, say only then that something is lost.
#[test]
fn what_fails_when_a_file_is_closed_or_flushed_gets_no_name() {
    let server = Server::start();
    write(server.root.path(), "small", b"x");
    write(server.root.path(), "large", &noise(64 << 20));
    use rustix::io::Errno;
    for (error, words) in
        [(Errno::IO, "input/output error"), (Errno::NOSPC, "no space left"), (Errno::DQUOT, "quota")]
    {
        let error = error.raw_os_error();
        for (fails, name, options) in [
            ([Some(error), None], "small", &["cp"][..]),
            ([Some(error), None], "small", &["cp", "--inplace"]),
            ([None, Some(error)], "large", &["cp"]),
        ] {
            let place = Mounted::new(Odd { fails, ..Odd::default() });
            // A rate at which more waits to be flushed than may be before the end.
            let limit = ["--bwlimit", "24M", &server.url(&format!("/{name}")), &place.text("copy")];
            let output = command([options, &limit].concat()).output().unwrap();
            let said = stderr(&output).to_lowercase();
            assert_eq!(output.status.code(), Some(7), "{name} {words}: {said}");
            assert!(said.contains(words) && said.lines().count() == 1, "{words}: {said}");
            assert!(options.len() > 1 || !place.join("copy").exists(), "{words}: {said}");
        }
    }
}

/// What a command prints goes to such a disk, too.
#[test]
fn what_fails_when_standard_output_is_closed_is_told() {
    let server = Server::start();
    write(server.root.path(), "file", b"x");
    let place =
        Mounted::new(Odd { fails: [Some(rustix::io::Errno::NOSPC.raw_os_error()), None], ..Odd::default() });
    for words in [&["ls"][..], &["ls", "--json"], &["df"], &["cat"]] {
        let output = File::create(place.join("listing")).unwrap();
        let url = server.url(if words[0] == "cat" { "/file" } else { "/" });
        let output = command([words, &[&url]].concat()).stdout(output).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{words:?}: {said}");
        assert!(
            said.starts_with("nfsw: standard output: no space left") && said.lines().count() == 1,
            "{said}"
        );
    }
    // What changes something has done so.
    let output = File::create(place.join("listing")).unwrap();
    let words = ["mkdir", "-v", &server.url("/new")];
    let output = command(words).stdout(output).output().unwrap();
    let said = stderr(&output);
    assert!(server.path("new").is_dir() && said.contains("standard output: no space left"), "{said}");
}

#[test]
fn of_two_files_with_one_name_there_only_the_first_is_moved() {
    let place = Mounted::new(Odd { folds: true, ..Odd::default() });
    let server = Server::at(&place.join(""));
    for (one, other) in PAIRS.into_iter().filter(|(one, _)| !one.contains('/')) {
        for (directory, name) in [("a", one), ("b", other)] {
            write(&place.join(directory), name, directory.as_bytes());
        }
        let _ = fs::remove_dir_all(place.join("all"));
        fs::create_dir(place.join("all")).unwrap();
        let url = |path: &str| server.url(&format!("/{path}"));
        let said = some_fail(&["mv", &url(&format!("a/{one}")), &url(&format!("b/{other}")), &url("all")]);
        assert!(said.contains("the server takes its name for that of"), "{said}");
        assert_eq!(fs::read(place.join("all").join(one)).unwrap(), b"a");
        assert_eq!(fs::read(place.join("b").join(other)).unwrap(), b"b");
    }
}

#[test]
fn sync_deletes_no_file_that_has_its_name_in_another_case() {
    let server = Server::start();
    write(&server.path("tree"), "readme", b"same");
    let place = Mounted::new(Odd { folds: true, ..Odd::default() });
    fs::create_dir(place.join("copy")).unwrap();
    fs::write(place.join("copy/README"), b"old!").unwrap();
    fs::write(place.join("copy/surplus"), b"").unwrap();
    for _ in 0..2 {
        ok(["sync", "--delete", "--force", &server.url("/tree"), &place.text("copy")]);
        assert_eq!(fs::read(place.join("copy/readme")).unwrap(), b"same");
        assert_eq!(names(&place.join("copy")).len(), 1);
    }
}

#[test]
fn sync_deletes_no_directory_whose_name_has_another_case_now() {
    for (new, is_file_new) in [("photos", false), ("photos", true), ("PHOTOS", true)] {
        let server = Server::start();
        write(&server.path("tree/Photos/2024"), "p1", b"1");
        write(&server.path("tree/Photos/2024"), "p2", b"2");
        let place = Mounted::new(Odd { folds: true, ..Odd::default() });
        let arguments = ["sync", "--delete", "--force", &server.url("/tree"), &place.text("copy")];
        ok(arguments);
        fs::rename(server.path("tree/Photos"), server.path(&format!("tree/{new}"))).unwrap();
        if is_file_new {
            write(&server.path(&format!("tree/{new}")), "p3", b"3");
        }
        for _ in 0..2 {
            let _ = command(arguments).output().unwrap();
            assert_eq!(fs::read(place.join("copy/Photos/2024/p1")).unwrap(), b"1");
            assert_eq!(fs::read(place.join("copy/Photos/2024/p2")).unwrap(), b"2");
            assert_eq!(place.join("copy/Photos/p3").exists(), is_file_new);
        }
    }
}

/// What is unchanged is found under its name, and listed under another one.
#[test]
fn sync_deletes_nothing_that_is_listed_under_another_name() {
    let folds = Odd { folds: true, ..Odd::default() };
    let lists_no_colon = Odd { lists_no_colon: true, ..Odd::default() };
    for (odd, [name, now]) in [(folds, ["STRAẞE", "strasse"]), (lists_no_colon, ["a:b", "a:b"])] {
        let server = Server::start();
        write(&server.path("tree").join(name), "file", b"content");
        write(&server.path("tree"), name.split_at(1).0, b"content");
        let place = Mounted::new(odd);
        let arguments = ["sync", "--delete", &server.url("/tree"), &place.text("copy")];
        ok(["sync", &server.url("/tree"), &place.text("copy")]);
        if name != now {
            fs::rename(server.path("tree").join(name), server.path("tree").join(now)).unwrap();
        }
        fs::write(place.join("copy/surplus"), b"").unwrap();
        for option in [None, Some("--dry-run")] {
            let output = command(arguments.into_iter().chain(option)).output().unwrap();
            let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() != said.contains("nothing is deleted"), "{said}");
            assert!(!said.contains("would delete copy/S"), "{said}");
            assert_eq!(fs::read(place.join("copy").join(now).join("file")).unwrap(), b"content", "{said}");
        }
    }
}

#[test]
fn an_interrupted_tree_is_resumed_where_all_files_have_one_mode() {
    let server = Server::start();
    for number in 0..20 {
        write(&server.path("tree"), &number.to_string(), &[number; 200_000]);
    }
    let place = Mounted::new(Odd { all_have: Some(0o777), ..Odd::default() });
    let (state, target) = (tempfile::tempdir().unwrap(), place.text("copy"));
    let copy = |options: &[&str]| {
        let mut copy = command([&["cp", "-r"][..], options, &[&server.url("/tree"), &target]].concat());
        copy.env("XDG_STATE_HOME", state.path());
        copy
    };
    let mut killed = copy(&["--bwlimit", "8Mbit"]).spawn().unwrap();
    common::until("it copies", || fs::read_dir(place.join("copy")).is_ok_and(|names| names.count() > 4));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let output = copy(&[]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    common::assert_same_tree(&server.path("tree"), &place.join("copy"), false);
}

#[test]
fn of_two_names_in_two_shards_that_would_become_one_file_the_second_is_refused() {
    let server = Server::start();
    for number in 0..8 {
        write(&server.path("tree"), &format!("FILE{number}"), b"upper");
        write(&server.path("tree"), &format!("file{number}"), b"lower");
    }
    for words in [&["cp", "-rT"][..], &["sync"]] {
        let place = Mounted::new(Odd { folds: true, ..Odd::default() });
        let (source, target) = (server.url("/tree"), place.text("copy"));
        let shard =
            |shard| command([words, &["--shard", shard, &source, &target]].concat()).output().unwrap();
        let (first, second) = (shard("1/2"), shard("2/2"));
        let said = stderr(&first) + &stderr(&second);
        let refused = said.matches("the destination takes this name for that of").count();
        assert_eq!(refused + fs::read_dir(place.join("copy")).unwrap().count(), 16, "{said}");
        assert_eq!(second.status.code(), Some(1), "{said}");
        // What a shard has copied stays its own when it runs again.
        let again = shard("1/2");
        assert_eq!(again.status.code(), first.status.code(), "{}", stderr(&again));
    }
}

#[test]
fn names_that_differ_by_case_are_two_where_they_are_two() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    for (first, second) in PAIRS {
        write(&server.path("tree"), first, first.as_bytes());
        write(&server.path("tree"), second, second.as_bytes());
    }
    let down = here.path().join("down");
    ok(["cp", "-rp", &server.url("/tree"), down.to_str().unwrap()]);
    ok(["cp", "-rp", down.to_str().unwrap(), &server.url("/up")]);
    ok(["sync", "--delete", down.to_str().unwrap(), &server.url("/up")]);
    common::assert_same_tree(&server.path("tree"), &server.path("up"), false);
}

#[test]
fn what_nobody_asked_for_is_no_reason_to_fail() {
    let server = Server::start();
    write(&server.path("tree"), "sub/file", &noise(300 << 10));
    write(&server.path("tree"), "small", b"x");
    for (words, warnings) in [(&["cp", "-r"][..], 0), (&["cp", "-rp"], 1), (&["sync"], 1)] {
        let place = Mounted::new(Odd { refuses_attributes: true, has_no_flags: true, ..Odd::default() });
        let (source, copy) = (server.url("/tree"), place.text("copy"));
        let output = command([words, &[&source, &copy]].concat()).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        assert_eq!(said.matches("does not keep modes or times").count(), warnings, "{words:?}: {said}");
        common::assert_same_tree(&server.path("tree"), &place.join("copy"), false);
        // A server that has its files there refuses the same.
        let other = Server::at(place.path());
        ok([words, &[&copy, &server.url("/back")]].concat());
        let here = tempfile::tempdir().unwrap();
        common::assert_same_tree(&server.path("tree"), &server.path("back"), false);
        let local = here.path().join("tree").to_str().unwrap().to_owned();
        ok(["cp", "-r", &server.url("/tree"), &local]);
        for (source, up) in [(&local, "up"), (&server.url("/tree"), "relayed")] {
            let target = other.url(&format!("/{up}"));
            let output = command([words, &[source, &target]].concat()).output().unwrap();
            assert!(output.status.success(), "{words:?} to {up}: {}", stderr(&output));
            common::assert_same_tree(&server.path("tree"), &place.join(up), false);
        }
        fs::remove_dir_all(server.path("back")).unwrap();
    }
}

#[test]
fn times_that_a_destination_cannot_hold_do_not_make_each_sync_copy_again() {
    let seconds = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let server = Server::start();
    for (name, time) in [("2040", 2_209_000_000), ("odd", 1_700_000_001), ("plain", 1_700_000_000)] {
        write(&server.path("tree"), name, name.as_bytes());
        let file = File::options().write(true).open(server.path("tree").join(name)).unwrap();
        file.set_modified(seconds(time) + Duration::from_millis(5)).unwrap();
    }
    for times in
        [(seconds(2_147_483_647), Duration::from_secs(1)), (seconds(4_354_819_198), Duration::from_secs(2))]
    {
        let place = Mounted::new(Odd { times: Some(times), ..Odd::default() });
        for run in 0..3 {
            let output = command(["sync", &server.url("/tree"), &place.text("copy")]).output().unwrap();
            let said = stderr(&output);
            assert!(output.status.success(), "{said}");
            assert!(run == 0 || said.contains("0 new and 0 changed"), "{times:?}, run {run}: {said}");
        }
        // What has changed is copied all the same.
        write(&server.path("tree"), "2040", b"new!");
        ok(["sync", "--force", &server.url("/tree"), &place.text("copy")]);
        assert_eq!(fs::read(place.join("copy/2040")).unwrap(), b"new!");
        write(&server.path("tree"), "2040", b"2040");
        let file = File::options().write(true).open(server.path("tree/2040")).unwrap();
        file.set_modified(seconds(2_209_000_000)).unwrap();
    }
}
