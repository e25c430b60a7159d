//! Destinations that take less than others: names for one that are two elsewhere, no modes, no times, or not all of them.

#![cfg(all(target_os = "linux", not(portable_only)))]

mod common;
#[path = "common/odd.rs"]
mod odd;

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use common::{Server, command, names, noise, ok, stderr};
use odd::{Mounted, Odd};

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
