//! What a receiver is asked, and what of somebody else's files does not come.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    process::Stdio,
};

use crate::{
    Receiver, Shared, at,
    common::{program, stderr},
    photos,
    terminal::Terminal,
};

/// Copies in a terminal, and types an answer; returns the status and what was on the screen.
fn answer(receiver: &Receiver, arguments: &[&str], answer: &str) -> (Option<i32>, String) {
    let mut terminal = Terminal::start(100, program(), |command| {
        command.args(arguments).envs(at(receiver.0.path())).current_dir(receiver.0.path());
    });
    terminal.wait_for("Copy? [Y/n] ");
    terminal.write(answer);
    terminal.finish()
}

#[test]
fn what_comes_is_shown_on_a_terminal_before_anything_is_written() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    fs::write(photos.path().join(".profile"), "run me").unwrap();
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let source = format!("{}:/", shared.place(""));
    for refusal in ["n\n", "\x04"] {
        let (status, screen) = answer(&receiver, &["cp", "-r", &source, "got"], refusal);
        assert_eq!(status, Some(130), "{screen}");
        assert!(screen.contains("195 KiB  trip/file"), "{screen}");
        assert!(screen.contains("6 B  .profile (hidden)"), "{screen}");
        assert!(screen.contains("3 files, 391 KiB, 1 hidden."), "{screen}");
        assert!(screen.contains("nothing was copied"), "{screen}");
        assert!(!receiver.0.path().join("got").exists());
    }
    let (status, screen) = answer(&receiver, &["cp", "-rp", &source, "got"], "\n");
    assert_eq!(status, Some(0), "{screen}");
    assert_eq!(fs::read(receiver.0.path().join("got/.profile")).unwrap(), b"run me");
    // A sync says what it would delete, too; one that has nothing to do asks nothing.
    fs::write(receiver.0.path().join("got/own"), "").unwrap();
    fs::remove_file(receiver.0.path().join("got/trip/file")).unwrap();
    let (status, screen) = answer(&receiver, &["sync", "--delete", &source, "got"], "y\n");
    assert_eq!(status, Some(0), "{screen}");
    assert!(screen.contains("1 here would be deleted"), "{screen}");
    for options in [&["sync"][..], &["cp", "-r", "-T", "--yes"]] {
        let terminal = Terminal::start(100, program(), |command| {
            command.args(options).args([&source, "got"]).envs(at(receiver.0.path()));
            command.current_dir(receiver.0.path());
        });
        let (status, screen) = terminal.finish();
        assert_eq!((status, screen.contains("Copy?")), (Some(0), false), "{screen}");
    }
}

#[test]
fn what_the_sharer_changes_after_it_was_shown_does_not_come() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let source = format!("{}:/", shared.place(""));
    let got = receiver.0.path().join("got");
    let changed = |arguments: &[&str], change: &dyn Fn()| {
        let mut terminal = Terminal::start(100, program(), |command| {
            command.args(arguments).envs(at(receiver.0.path())).current_dir(receiver.0.path());
        });
        terminal.wait_for("Copy? [Y/n] ");
        change();
        terminal.write("y\n");
        terminal.finish()
    };
    let (status, screen) = changed(&["cp", "-rp", "-T", &source, "got"], &|| {
        fs::write(photos.path().join(".bashrc"), "run me").unwrap();
        fs::write(photos.path().join("trip/file"), vec![0; 300_000]).unwrap();
    });
    assert_eq!(status, Some(1), "{screen}");
    assert!(screen.contains("is not as it was shown before"), "{screen}");
    assert!(!got.join(".bashrc").exists() && !got.join("trip/file").exists());
    assert_eq!(fs::read(got.join("documents/file")).unwrap().len(), 200_000);
    // Neither is anything deleted that was not shown; and what only deletes is shown, too.
    receiver.ok(&["sync", &source, "got"]);
    fs::write(got.join("own"), "").unwrap();
    let (status, screen) = changed(&["sync", "--delete", &source, "got"], &|| {
        fs::remove_file(photos.path().join("documents/file")).unwrap();
    });
    assert_eq!(status, Some(1), "{screen}");
    assert!(screen.contains("1 here would be deleted"), "{screen}");
    assert!(screen.contains("2, and 1 were shown"), "{screen}");
    assert!(got.join("own").exists() && got.join("documents/file").exists());
}

#[test]
fn commands_that_begin_at_once_are_one_member() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let source = format!("{}:/trip", shared.place(""));
    let running: Vec<_> = (0..6)
        .map(|_| {
            receiver.command(&["ls", &source]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for process in running {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn no_link_that_leads_out_comes_and_nothing_that_runs_as_somebody_else() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let trip = photos.path().join("trip");
    for (name, target) in [
        ("beside", "file"),
        ("up", "../documents/file"),
        ("out", "../../file"),
        ("absolute", "/etc/passwd"),
        ("around", "up/../../x"),
    ] {
        symlink(target, trip.join(name)).unwrap();
    }
    fs::write(trip.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(trip.join("program"), Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(&trip, Permissions::from_mode(0o2755)).unwrap();
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let source = format!("{}:/", shared.place(""));
    for command in [&["cp", "-rpv"][..], &["sync", "-v"], &["sync", "-v"]] {
        let output = receiver.run(&[command, &[&source, "got"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        for name in ["out", "absolute", "around"] {
            let said = format!("trip/{name}: skipped: it is a link in a share that leads out");
            assert!(stderr(&output).contains(&said), "{}", stderr(&output));
        }
        let got = receiver.0.path().join("got");
        let mut names: Vec<_> =
            fs::read_dir(got.join("trip")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["beside", "file", "program", "up"]);
        for path in ["trip", "trip/program"] {
            assert_eq!(fs::metadata(got.join(path)).unwrap().permissions().mode() & 0o7777, 0o755, "{path}");
        }
        if command[0] == "cp" {
            fs::remove_dir_all(got).unwrap();
        }
    }
    // A part of a share is no other: what leads out of it leads out.
    let output = receiver.run(&["cp", "-rv", &format!("{source}trip"), "."]);
    assert!(stderr(&output).contains("trip/up: skipped"), "{}", stderr(&output));
    // Whoever follows links gets what the sharer has there, and nothing of this machine.
    receiver.ok(&["cp", "-rL", &format!("{source}trip/up"), "followed"]);
    assert_eq!(fs::read(receiver.0.path().join("followed")).unwrap().len(), 200_000);
}
