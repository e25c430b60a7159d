//! Shares that are shown and changed while they run.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Output,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Receiver, Shared, at,
    common::{command, needs_root, stderr, until},
    mounts::Used,
    photos,
};

/// Runs `nfsw share` beside the shares that keep their state there.
fn control(state: &Path, arguments: &[&str]) -> Output {
    command(["share"]).args(arguments).envs(at(state)).output().unwrap()
}

fn ok(state: &Path, arguments: &[&str]) -> String {
    let output = control(state, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn fails(state: &Path, code: i32, arguments: &[&str]) -> String {
    let output = control(state, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    stderr(&output)
}

/// The code in what was said about a person.
fn place(said: &str) -> String {
    let typed = said.lines().find_map(|line| line.trim().strip_prefix("nfsw ls -l ")?.strip_suffix(":/"));
    typed.unwrap_or_else(|| panic!("no code: {said}")).to_owned()
}

#[test]
fn a_share_that_does_not_respond_is_not_taken_for_none() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let send = |signal| kill_process(Pid::from_child(&shared.process), signal).unwrap();
    send(Signal::STOP);
    let [list, extend] = [&["--list"][..], &["--extend", "1h"]].map(|it| control(state.path(), it));
    send(Signal::CONT);
    for output in [list, extend] {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("does not respond") && !said.contains("nothing is shared"), "{said}");
    }
}

#[test]
fn people_are_let_in_stopped_and_let_in_again_while_it_runs() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    let state = state.path();
    let options = ["--to", "sophia=trip", "--to", "boss=documents"];
    let mut shared = Shared::start(photos.path(), state, &options);
    let [sophia, boss, carol] = [(); 3].map(|()| Receiver::new());
    let list = |receiver: &Receiver, place: &str| receiver.run(&["ls", &format!("{place}:/")]);
    let (of_sophia, of_boss) = (shared.place(" for sophia"), shared.place(" for boss"));
    assert!(list(&sophia, &of_sophia).status.success() && list(&boss, &of_boss).status.success());
    let of_carol = place(&ok(state, &["--allow", "carol=trip", "--for", "1h"]));
    assert!(list(&carol, &of_carol).status.success());
    let listed = ok(state, &["--list"]);
    let lines: Vec<&str> = listed.lines().skip(1).collect();
    for (line, (number, name, below)) in
        lines.iter().zip([("1", "sophia", "trip"), ("2", "boss", "documents"), ("3", "carol", "trip")])
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..4], [number, name, below, "until"], "{listed}");
        assert!(line.contains(" at 127.0.0.1, heard "), "{listed}");
    }
    ok(state, &["--stop", "2"]);
    let refused = list(&boss, &of_boss);
    assert!(stderr(&refused).contains("the share has ended"), "{}", stderr(&refused));
    assert!(list(&sophia, &of_sophia).status.success());
    assert!(fails(state, 2, &["--stop", "nobody"]).contains("nobody has this name or number"));
    assert!(fails(state, 2, &["--allow", "eve=../x"]).contains("with a path below DIR"));
    // Whoever was stopped stays so when it is started again, and who was let in later is there.
    shared.signal(Signal::KILL);
    let mut again = Shared::start(photos.path(), state, &options);
    assert!(again.said().contains("boss was stopped"), "{}", again.said());
    assert!(list(&carol, &of_carol).status.success());
    let refused = list(&boss, &of_boss);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    // A name alone is the person that was meant before, with what was meant.
    let of_boss = place(&ok(state, &["--allow", "boss", "--for", "1h"]));
    assert_eq!(list(&boss, &of_boss).stdout, b"file\n");
    ok(state, &["--stop", "boss"]);
    let of_boss = place(&ok(state, &["--allow", "boss=", "--for", "1h"]));
    assert_eq!(list(&boss, &of_boss).stdout, b"documents\ntrip\n");
    // Others are not asked, and what is left of it goes with it.
    assert_eq!(again.signal(Signal::INT), 130);
    assert!(fails(state, 4, &["--extend", "1h"]).contains("nothing is shared"));
    assert_eq!(fs::read_dir(state.join("nfsw/sharing")).unwrap().count(), 0);
}

#[test]
fn several_shares_are_told_apart_and_their_sockets_are_this_users() {
    let (one, two, state) = (photos(), photos(), tempfile::tempdir().unwrap());
    let state = state.path();
    let _first = Shared::start(one.path(), state, &["--name", "first"]);
    let second = Shared::start(two.path(), state, &["--for", "20m"]);
    let text = fails(state, 2, &["--extend", "1h"]);
    assert!(text.contains("several shares run") && text.contains("first"), "{text}");
    let path = two.path().to_str().unwrap();
    let until = |of: &str| {
        let listed = ok(state, &["--list", of]);
        listed.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    let before = until(path);
    assert!(ok(state, &["--extend", "2h", path]).contains("shared until"));
    assert_ne!(until(path), before);
    let receiver = Receiver::new();
    receiver.ok(&["ls", &format!("{}:/", second.place(""))]);
    assert!(ok(state, &["--list", path]).contains("heard "));
    assert!(ok(state, &["--list", "first"]).contains("not used yet"));
    assert!(fails(state, 4, &["--stop", "1", "/nowhere"]).contains("is not shared"));
    for entry in fs::read_dir(state.join("nfsw/sharing")).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::metadata(state.join("nfsw/sharing")).unwrap().mode() & 0o077, 0);
}

#[test]
fn a_mount_ends_when_its_person_is_stopped() {
    needs_root("mounts");
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let options = ["--to", "sophia", "--to", "boss"];
    let shared = Shared::start(photos.path(), state.path(), &options);
    let boss = Receiver::new();
    let (used, stays) =
        (Used::of(&receiver, &shared.place(" for sophia")), Used::of(&boss, &shared.place(" for boss")));
    ok(state.path(), &["--stop", "sophia"]);
    used.is_over();
    assert!(stays.tries().iter().all(|(_, result)| result.is_ok()), "{:?}", stays.tries());
}

#[test]
fn a_share_that_nobody_uses_ends() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let begun = Instant::now();
    let mut shared = Shared::start(photos.path(), state.path(), &["--idle", "6s"]);
    let place = shared.place("");
    // It is used for longer than that.
    while begun.elapsed() < Duration::from_secs(8) {
        receiver.ok(&["ls", &format!("{place}:/")]);
    }
    let used = Instant::now();
    assert_eq!(shared.process.wait().unwrap().code(), Some(0));
    assert!(used.elapsed() > Duration::from_secs(4), "{:?}", used.elapsed());
    until("it says why", || shared.said().contains("nobody has read anything for 6 s"));
}
