//! What copies ask the server for, and what they make of answers that are errors.

use std::{
    os::unix::fs::{FileExt, FileTypeExt, chown},
    time::SystemTime,
};

use nfs_wireless_client::NfsStatus;

use super::*;
use crate::{error::Error, name::untagged, text::escape};

/// What the replies of a server far away are late by.
const FAR: Duration = Duration::from_millis(110);

/// What a reply is late by, before which a test changes what was asked for.
const MUCH_LATER: Duration = Duration::from_secs(2);

/// How long a test waits for what is to happen.
const PATIENCE: Duration = Duration::from_secs(30);

const FAR_AWAY: (Calls, When, Action) = (Calls::Any, When::Always, Action::DelayReply(FAR));

impl Trial {
    /// Calls of a procedure that were answered with success or served in vain.
    fn served(&self, procedure: Procedure) -> u64 {
        self.server.service(|service| service.stats().served[procedure.number() as usize])
    }

    /// Names in the root of the server.
    fn far_names(&self) -> Vec<String> {
        names(&self.server.path(""))
    }
}

const fn calls(procedure: Procedure) -> Calls {
    Calls::Procedure(procedure)
}

async fn wait_for(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("waited in vain");
}

fn status(result: &anyhow::Result<()>) -> Option<NfsStatus> {
    result.as_ref().unwrap_err().downcast_ref::<Error>().and_then(Error::status)
}

#[tokio::test]
async fn far_away_a_file_is_made_before_the_answer_to_what_has_its_name() {
    let trial = Trial::start();
    let ([from, to], [source, _]) = trial.ends(true, "file", "copy");
    fs::write(&source, b"content").unwrap();
    trial.faults(&[(calls(Procedure::Lookup), When::Always, Action::DropReply), FAR_AWAY]);
    let run = [&from[..], &to];
    tokio::select! {
        (result, counts) = trial.copy(&run) => panic!("without an answer: {result:?} {counts}"),
        () = wait_for(|| trial.served(Procedure::Create) == 1) => {}
    }
    let [part] = &trial.far_names()[..] else { panic!("not one name") };
    assert_eq!(untagged(part.as_bytes()), b".copy.nfsw-part");
}

#[tokio::test]
async fn what_was_made_ahead_is_filled_and_needs_no_other_call() {
    for size in [7, 300_000] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(true, "file", "copy");
        fs::write(&source, vec![7; size]).unwrap();
        trial.faults(&[FAR_AWAY]);
        trial.copy(&[&from, &to]).await.0.unwrap();
        assert_eq!(fs::read(&target).unwrap(), vec![7; size]);
        let made = [Procedure::Create, Procedure::Remove, Procedure::Setattr, Procedure::Rename];
        assert_eq!(made.map(|procedure| trial.served(procedure)), [1, 0, 0, 1], "{size} bytes");
    }
}

#[tokio::test]
async fn what_was_made_ahead_for_more_readers_than_the_target_has_is_not_written_into() {
    for (mode, is_upload) in [(0o600, true), (0o640, true), (0o600, false)] {
        let trial = Trial::start();
        // From this machine, or from the server.
        let ([local, to], [source, target]) = trial.ends(true, "file", "copy");
        let ([far, _], [far_source, _]) = trial.ends(false, "source", "unused");
        for path in [&source, &far_source] {
            fs::write(path, vec![7; 40_000]).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(mode)).unwrap();
        trial.faults(&[(calls(Procedure::Write), When::Always, Action::DropReply), FAR_AWAY]);
        let run = [if is_upload { &local[..] } else { &far }, &to];
        tokio::select! {
            (result, counts) = trial.copy(&run) => panic!("without an answer: {result:?} {counts}"),
            () = wait_for(|| trial.served(Procedure::Write) > 0) => {}
        }
        let names = trial.far_names();
        let part = names.iter().find(|name| name.starts_with(".copy.nfsw-part")).unwrap();
        let metadata = fs::metadata(trial.server.path(part)).unwrap();
        assert_eq!(metadata.mode() & 0o077, 0, "{mode:o} {is_upload}");
    }
}

#[tokio::test]
async fn what_another_client_copies_to_the_same_name_stays() {
    for size in [7, 300_000] {
        let (trial, others) = (Trial::start(), tempfile::tempdir().unwrap());
        let ([local, to], [source, target]) = trial.ends(true, "file", "copy");
        let ([far, _], [far_source, _]) = trial.ends(false, "file", "unused");
        [&source, &far_source].iter().for_each(|source| fs::write(source, vec![7; size]).unwrap());
        // One of the same user that began before, and one of another.
        let beside = [trial.state.path(), others.path()].map(|state| Tags::new(&StateHome::at(state)));
        let begun = beside.each_ref().map(|it| it.own().temporary(b"copy"));
        let begun = begun.map(|name| trial.server.path(std::str::from_utf8(&name).unwrap()));
        for from in [&local, &far] {
            begun.iter().for_each(|begun| fs::write(begun, b"half of it").unwrap());
            trial.copy(&[from, &to]).await.0.unwrap();
            assert_eq!(fs::read(&target).unwrap(), vec![7; size], "{from}");
            for begun in &begun {
                assert_eq!(fs::read(begun).unwrap(), b"half of it", "{from}");
            }
            assert_eq!(trial.far_names().len(), 4, "{from}");
            fs::remove_file(&target).unwrap();
        }
    }
}

#[tokio::test]
async fn what_a_run_beside_another_has_left_is_resumed_by_one_that_is_alone() {
    const SIZE: usize = 4 << 20;
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(true, "file", "copy");
    fs::write(&source, vec![7; SIZE]).unwrap();
    let beside = Tags::new(&StateHome::at(trial.state.path()));
    beside.own();
    trial.faults(&[(calls(Procedure::Rename), When::Always, Action::DropCall)]);
    assert!(trial.stop(&[&from, &to]).await);
    drop(beside);
    trial.faults(&[]);
    let written = || trial.server.service(|service| service.stats().written_bytes);
    let before = written();
    trial.copy(&[&from, &to]).await.0.unwrap();
    assert_eq!(fs::read(&target).unwrap(), vec![7; SIZE]);
    assert_eq!(trial.far_names(), ["copy"]);
    assert!(written() - before < SIZE as u64 / 2);
}

#[tokio::test]
async fn what_a_run_beside_another_has_left_of_small_files_is_removed_with_the_tree() {
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(true, "tree", "copy");
    plant(&source);
    let beside = Tags::new(&StateHome::at(trial.state.path()));
    beside.own();
    // All but what names the source in the mark of the tree.
    trial.faults(&[(calls(Procedure::Write), When::After(1), Action::DropCall)]);
    assert!(trial.stop(&["-r", &from, &to]).await);
    assert!(names(&target).len() > 1, "{:?}", names(&target));
    trial.faults(&[]);
    drop(beside);
    trial.copy(&["-r", &from, &to]).await.0.unwrap();
    assert_same(&source, &target, "");
}

#[tokio::test]
async fn what_runs_leave_between_making_a_link_and_naming_it_is_no_file_of_a_user() {
    let trial = Trial::start();
    let state = StateHome::at(trial.state.path());
    // Of a run beside another, which has a number of its own.
    let (beside, left) = (Tags::new(&state), Tags::new(&state));
    beside.own();
    let linked = [b".file.nfsw-link".to_vec(), left.own().linked(b"file")];
    let link = left.own().temporary(b"link");
    drop((beside, left));
    for is_upload in [true, false] {
        for (number, options) in [&["-r"][..], &["-r", "-u"], &["-r", "-n"]].into_iter().enumerate() {
            let to = format!("to{number}");
            let ([from, to], [source, target]) = trial.ends(is_upload, "from", &to);
            let _ = fs::remove_dir_all(&source);
            for (root, content) in [(&source, "source"), (&target, "target")] {
                fs::create_dir(root).unwrap();
                fs::write(root.join("file"), content).unwrap();
                // Large files are resumed, and links are not.
                fs::File::options().append(true).open(root.join("file")).unwrap().set_len(300_000).unwrap();
                for name in &linked {
                    let name = std::str::from_utf8(name).unwrap();
                    fs::hard_link(root.join("file"), root.join(name)).unwrap();
                }
            }
            let link = target.join(std::str::from_utf8(&link).unwrap());
            symlink("elsewhere", &link).unwrap();
            let (result, counts) = trial.copy(&[options, &["-T", &from, &to]].concat()).await;
            result.unwrap();
            assert_eq!(
                (&counts["failed"], &counts["skipped"]["partial"]),
                (&0.into(), &2.into()),
                "{counts}"
            );
            for name in &linked {
                let left = target.join(std::str::from_utf8(name).unwrap());
                let content = fs::read_to_string(&left).ok();
                assert!(!content.as_ref().is_some_and(|it| it.starts_with("source")), "{options:?} {left:?}");
                let is_own = is_upload && name == &linked[1];
                assert_eq!(content.is_none(), is_own, "{options:?} {left:?}");
            }
            assert_eq!(link.is_symlink(), !is_upload, "{options:?}");
        }
    }
}

#[tokio::test]
async fn a_copy_that_is_resumed_is_not_made_ahead() {
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(true, "file", "copy");
    fs::write(&source, vec![7; 4 << 20]).unwrap();
    trial.faults(&[(calls(Procedure::Rename), When::Always, Action::DropCall)]);
    assert!(trial.stop(&[&from, &to]).await);
    let [made, looked_up] = [Procedure::Create, Procedure::Lookup].map(|procedure| trial.served(procedure));
    // What would have been resumed is gone: then it is made when that is known.
    trial.far_names().iter().for_each(|part| fs::remove_file(trial.server.path(part)).unwrap());
    trial.faults(&[(calls(Procedure::Lookup), When::Always, Action::DropReply), FAR_AWAY]);
    let run = [&from[..], &to];
    tokio::select! {
        (result, counts) = trial.copy(&run) => panic!("without an answer: {result:?} {counts}"),
        () = wait_for(|| trial.served(Procedure::Lookup) > looked_up) => {}
    }
    tokio::time::sleep(FAR).await;
    assert_eq!(trial.served(Procedure::Create), made);
    trial.faults(&[]);
    trial.copy(&run).await.0.unwrap();
    assert_eq!(fs::read(&target).unwrap(), vec![7; 4 << 20]);
}

#[tokio::test]
async fn nothing_is_made_ahead_for_a_command_that_cannot_be_meant() {
    let trial = Trial::start();
    let ([from, to], [source, _]) = trial.ends(true, "file", "copy");
    fs::write(&source, b"content").unwrap();
    trial.faults(&[FAR_AWAY]);
    let missing = format!("{from} that is missing");
    let (result, _) = trial.copy(&[&from, &missing, &to]).await;
    assert_eq!(Exit::of(result.unwrap_err().as_ref()), Exit::Usage);
    assert_eq!(trial.far_names(), [""; 0]);
}

#[tokio::test]
async fn for_what_cannot_be_resumed_nothing_is_kept() {
    for (size, option) in [(128 << 10, "--sparse=auto"), (1 << 20, "--no-resume")] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(true, "file", "copy");
        fs::write(&source, vec![7; size]).unwrap();
        fs::remove_dir(trial.state.path()).unwrap();
        trial.faults(&[FAR_AWAY]);
        trial.copy(&[option, &from, &to]).await.0.unwrap();
        assert_eq!(fs::read(&target).unwrap(), vec![7; size]);
        assert_eq!(trial.kept(), [""; 0], "{option}");
    }
}

#[tokio::test]
async fn nothing_is_kept_of_an_upload_that_is_complete() {
    let trial = Trial::start();
    let ([from, to], [source, _]) = trial.ends(true, "file", "copy");
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    trial.copy(&[&from, &to]).await.0.unwrap();
    assert_eq!(trial.kept(), [""; 0]);
}

#[tokio::test]
async fn names_in_a_directory_that_was_made_are_not_looked_up() {
    let mut lookups = Vec::new();
    for files in [1, 9] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(true, "tree", "copy");
        fs::create_dir_all(source.join("sub")).unwrap();
        for number in 0..files {
            fs::write(source.join(format!("sub/{number}")), b"content").unwrap();
        }
        trial.copy(&["-r", &from, &to]).await.0.unwrap();
        assert_same(&source, &target, "");
        lookups.push(trial.served(Procedure::Lookup));
    }
    assert_eq!(lookups[0], lookups[1]);
}

#[tokio::test]
async fn small_files_do_not_wait_for_large_ones() {
    const SMALL: usize = 9;
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(true, "tree", "copy");
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    for number in 0..SMALL {
        fs::write(source.join(format!("small {number}")), vec![7; (1 << 20) - 1]).unwrap();
    }
    for number in 0..4 {
        fs::write(source.join(format!("large {number}")), vec![7; 1 << 20]).unwrap();
    }
    trial.faults(&[(calls(Procedure::Create), When::Always, Action::DropReply)]);
    let run = ["-rT", &from, &to];
    let begun = || names(&target);
    tokio::select! {
        (result, counts) = trial.copy(&run) => panic!("without an answer: {result:?} {counts}"),
        () = async {
            wait_for(|| begun().len() == SMALL + 2).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        } => {}
    }
    assert_eq!(begun().iter().filter(|name| name.starts_with(".large")).count(), 2, "{:?}", begun());
    assert_eq!(begun().len(), SMALL + 2);
}

#[tokio::test]
async fn a_directory_that_cannot_be_listed_is_a_failure() {
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(false, "tree", "copy");
    plant(&source);
    trial.faults(&[(calls(Procedure::Readdirplus), When::Nth(1), Action::Fail(Status::ACCES))]);
    let (result, counts) = trial.copy(&["-r", &from, &to]).await;
    result.unwrap();
    assert_eq!((&counts["done"], &counts["failed"]), (&0.into(), &1.into()), "{counts}");
    assert_eq!(names(&target), [std::str::from_utf8(MARKER).unwrap()]);
}

#[tokio::test]
async fn a_handle_that_was_forgotten_is_looked_up_again() {
    for (is_upload, procedure) in [
        (true, Procedure::Mkdir),
        (true, Procedure::Symlink),
        (true, Procedure::Create),
        (true, Procedure::Write),
        (false, Procedure::Readdirplus),
        (false, Procedure::Read),
    ] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "tree", "copy");
        plant(&source);
        trial.faults(&[(calls(procedure), When::Nth(1), Action::Fail(Status::STALE))]);
        let (result, counts) = trial.copy(&["-r", &from, &to]).await;
        result.unwrap();
        assert_eq!(counts["failed"], 0, "{procedure:?}");
        assert_same(&source, &target, &format!("{procedure:?}"));
    }
}

#[tokio::test]
async fn a_directory_that_may_not_be_made_is_the_servers_error() {
    let trial = Trial::start();
    let ([from, to], [source, _]) = trial.ends(true, "tree", "copy");
    plant(&source);
    trial.faults(&[(calls(Procedure::Mkdir), When::Always, Action::Fail(Status::ROFS))]);
    let (result, _) = trial.copy(&["-r", &from, &to]).await;
    assert_eq!(status(&result), Some(NfsStatus::ROFS));
}

/// Makes a file that belongs to somebody other than root, who copies it.
fn make_foreign(path: &Path, mode: u32) {
    fs::write(path, b"content").unwrap();
    // Unless run by root it is foreign already.
    let _ = chown(path, Some(1000), Some(1000));
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const AS_ROOT: [&str; 5] = ["-p", "--uid", "0", "--gid", "0"];

#[tokio::test]
async fn a_server_that_gives_nothing_away_gets_the_rest() {
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(true, "file", "copy");
    make_foreign(&source, 0o640);
    for refusal in [Status::PERM, Status::ACCES] {
        // The first one sets mode and times.
        trial.faults(&[(calls(Procedure::Setattr), When::After(1), Action::Fail(refusal))]);
        let (result, counts) = trial.copy(&[&AS_ROOT[..], &[&from, &to]].concat()).await;
        result.unwrap();
        assert_eq!((&counts["done"], &counts["failed"]), (&1.into(), &0.into()), "{refusal:?}");
        let [was, is] = [&source, &target].map(|path| fs::metadata(path).unwrap());
        assert_eq!((is.mode(), is.mtime(), is.mtime_nsec()), (was.mode(), was.mtime(), was.mtime_nsec()));
        fs::remove_file(&target).unwrap();
    }
    trial.faults(&[(calls(Procedure::Setattr), When::After(1), Action::Fail(Status::IO))]);
    let (_, counts) = trial.copy(&[&AS_ROOT[..], &[&from, &to]].concat()).await;
    assert_eq!(counts["failed"], 1, "any other refusal is a failure");
}

/// A program runs with the rights of its owner: it has them in a copy that is the owner's, and with nobody else's.
#[tokio::test]
async fn a_program_has_the_rights_of_its_owner_or_of_nobody() {
    const SET_ID: u32 = 0o6000;
    for mode in [0o4755, 0o2755] {
        for is_upload in [true, false] {
            let mut calls = Vec::new();
            // The server gives no file away.
            for is_foreign in [true, false] {
                let trial = Trial::start();
                let ([from, to], [source, target]) = trial.ends(is_upload, "program", "copy");
                make_foreign(&source, mode);
                if !is_foreign {
                    let made = fs::metadata(source.parent().unwrap()).unwrap();
                    let _ = chown(&source, Some(made.uid()), Some(made.gid()));
                    fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
                }
                trial.copy(&[&AS_ROOT[..], &[&from, &to]].concat()).await.0.unwrap();
                calls.push(trial.served(Procedure::Setattr));
                let [was, is] = [&source, &target].map(|path| fs::metadata(path).unwrap());
                let is_given = (was.uid(), was.gid()) == (is.uid(), is.gid());
                assert!(is_given || is.mode() & SET_ID == 0, "{mode:o}, upload: {is_upload}");
                // The server keeps no such bits.
                assert!(!is_given || is_upload || is.mode() & 0o7777 == mode, "{mode:o}");
            }
            // Mode and times, then the owner, which is refused, or the bits.
            assert_eq!(calls, if is_upload { [2, 2] } else { [0, 0] }, "{mode:o}");
        }
    }
}

#[tokio::test]
async fn a_special_file_is_not_replaced() {
    for is_upload in [true, false] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "tree/.", "copy");
        fs::create_dir(source.parent().unwrap().join("tree")).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(source.join("file"), b"content").unwrap();
        let made = std::process::Command::new("mkfifo").arg(target.join("file")).status().unwrap();
        assert!(made.success());
        let (result, counts) = trial.copy(&["-r", &from, &to]).await;
        result.unwrap();
        assert_eq!((&counts["done"], &counts["failed"]), (&0.into(), &1.into()), "{counts}");
        assert!(fs::metadata(target.join("file")).unwrap().file_type().is_fifo());
        assert_eq!(names(&target), ["file"]);
    }
}

/// The names in a directory, without what tells runs and users apart.
fn names_untagged(directory: &Path) -> Vec<String> {
    let all = names(directory).into_iter();
    all.map(|name| str::from_utf8(untagged(name.as_ref())).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_a_failed_download_leaves_is_what_can_be_resumed() {
    for (size, left) in [(1000, &[][..]), (1 << 20, &[".copy.nfsw-journal", ".copy.nfsw-part"])] {
        let trial = Trial::start();
        let ([from, to], [source, _]) = trial.ends(false, "file", "copy");
        fs::write(&source, vec![7; size]).unwrap();
        trial.faults(&[(calls(Procedure::Read), When::Always, Action::Fail(Status::IO))]);
        let (_, counts) = trial.copy(&[&from, &to]).await;
        assert_eq!(counts["failed"], 1);
        assert_eq!(names_untagged(trial.here.path()), left, "{size} bytes");
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_large_file_that_became_small() {
    // Interrupted before its first byte, and after some.
    for offset in [0, 1 << 20] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(false, "file", "copy");
        fs::write(&source, vec![7; 4 << 20]).unwrap();
        let calls = Calls::Reaching { procedure: Procedure::Read, offset };
        trial.faults(&[(calls, When::Always, Action::Fail(Status::IO))]);
        assert_eq!(trial.copy(&[&from, &to]).await.1["failed"], 1);
        assert_eq!(names_untagged(trial.here.path()), [".copy.nfsw-journal", ".copy.nfsw-part"]);
        trial.faults(&[]);
        fs::write(&source, b"content").unwrap();
        trial.copy(&[&from, &to]).await.0.unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"content");
        assert_eq!(names(trial.here.path()), ["copy"], "from {offset}");
    }
}

#[tokio::test]
async fn a_failed_copy_within_the_server_leaves_nothing() {
    let trial = Trial::start();
    fs::write(trial.server.path("file"), vec![7; 300_000]).unwrap();
    trial.faults(&[(calls(Procedure::Read), When::Always, Action::Fail(Status::IO))]);
    let (result, counts) = trial.copy(&[&trial.server.url("/file"), &trial.server.url("/copy")]).await;
    result.unwrap();
    assert_eq!(counts["failed"], 1);
    assert_eq!(trial.far_names(), ["file"]);
}

#[tokio::test]
async fn a_stream_fails_of_what_reading_fails_of() {
    for (when, error) in [(When::Nth(1), Status::IO), (When::Always, Status::STALE)] {
        let trial = Trial::start();
        fs::write(trial.server.path("file"), vec![7; 300_000]).unwrap();
        trial.faults(&[(calls(Procedure::Read), when, Action::Fail(error))]);
        let run = [&trial.server.url("/file")[..], "/dev/null"];
        let copied = tokio::time::timeout(PATIENCE, trial.copy(&run)).await;
        let (result, counts) = copied.expect("it ends");
        assert_eq!((status(&result), &counts["done"]), (Some(error), &0.into()), "{counts}");
    }
}

#[tokio::test]
async fn a_stream_of_a_file_that_shrinks_fails() {
    let trial = Trial::start();
    let file = trial.server.path("file");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    let run = ["--bwlimit", "16Mbit", &trial.server.url("/file"), "/dev/null"];
    let shrink = async {
        wait_for(|| trial.served(Procedure::Read) > 0).await;
        fs::File::options().write(true).open(&file).unwrap().set_len(1000).unwrap();
        std::future::pending::<()>().await;
    };
    let (result, counts) = tokio::select! {
        copied = trial.copy(&run) => copied,
        () = shrink => unreachable!(),
    };
    assert!(result.is_err(), "{counts}");
    assert_eq!(counts["done"], 0);
}

#[tokio::test]
async fn a_file_is_relayed_on_when_its_server_forgets_its_handles() {
    // In the middle, or after the last byte.
    for is_late in [false, true] {
        let (trial, other) = (Trial::start(), Trial::start());
        let content: Vec<u8> = (0..4_000_000_u32).map(|index| (index / 1000) as u8).collect();
        fs::write(trial.server.path("file"), &content).unwrap();
        let run = ["--bwlimit", "64Mbit", &trial.server.url("/file"), &other.server.url("/copy")];
        let forget = async {
            wait_for(|| other.served(Procedure::Create) > 0).await;
            if is_late {
                trial.faults(&[(calls(Procedure::Getattr), When::Nth(1), Action::Fail(Status::STALE))]);
            } else {
                wait_for(|| other.served(Procedure::Write) > 0).await;
                trial.server.service(nfs_wireless_server::Service::change_handles);
            }
            std::future::pending::<()>().await;
        };
        let (result, counts) = tokio::select! {
            copied = trial.copy(&run) => copied,
            () = forget => unreachable!(),
        };
        result.unwrap();
        assert_eq!(counts["failed"], 0, "late: {is_late}");
        assert!(fs::read(other.server.path("copy")).unwrap() == content);
    }
}

#[tokio::test]
async fn a_file_that_was_replaced_when_its_handle_was_forgotten_is_not_complete() {
    let (trial, other) = (Trial::start(), Trial::start());
    let source = trial.server.path("file");
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    let run = ["--bwlimit", "64Mbit", &trial.server.url("/file"), &other.server.url("/copy")];
    let replace = async {
        wait_for(|| other.served(Procedure::Create) > 0).await;
        trial.faults(&[(calls(Procedure::Getattr), When::Nth(1), Action::Fail(Status::STALE))]);
        fs::File::options().write(true).open(&source).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        std::future::pending::<()>().await;
    };
    let (result, counts) = tokio::select! {
        copied = trial.copy(&run) => copied,
        () = replace => unreachable!(),
    };
    result.unwrap();
    assert_eq!((&counts["done"], &counts["failed"]), (&0.into(), &1.into()));
    assert_eq!(names(&other.server.path("")), [""; 0]);
}

#[tokio::test]
async fn a_download_whose_source_is_overwritten_meanwhile_is_begun_again() {
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(false, "file", "copy");
    fs::write(&source, vec![1; 8 << 20]).unwrap();
    let run = ["--bwlimit", "64Mbit", &from, &to];
    let overwrite = async {
        wait_for(|| trial.served(Procedure::Read) > 0).await;
        let file = fs::File::options().write(true).open(&source).unwrap();
        file.write_all_at(&vec![2; 8 << 20], 0).unwrap();
        std::future::pending::<()>().await;
    };
    let (result, counts) = tokio::select! {
        copied = trial.copy(&run) => copied,
        () = overwrite => unreachable!(),
    };
    result.unwrap();
    assert_eq!((&counts["done"], &counts["failed"]), (&1.into(), &0.into()));
    assert!(fs::read(&target).unwrap() == vec![2; 8 << 20]);
}

#[tokio::test]
async fn a_source_that_changed_before_its_first_byte_was_read_is_copied_as_it_is() {
    for transport in ["udp", "tcp"] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(false, "file", "copy");
        fs::write(&source, vec![1; 300_000]).unwrap();
        trial.faults(&[(calls(Procedure::Lookup), When::Always, Action::DelayReply(MUCH_LATER))]);
        let run = ["-p", "--transport", transport, &from, &to];
        let change = async {
            wait_for(|| trial.served(Procedure::Lookup) > 0).await;
            let file = fs::File::options().write(true).open(&source).unwrap();
            file.write_all_at(&vec![2; 300_000], 0).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            std::future::pending::<()>().await;
        };
        let (result, _) = tokio::select! {
            copied = trial.copy(&run) => copied,
            () = change => unreachable!(),
        };
        result.unwrap();
        assert!(fs::read(&target).unwrap() == vec![2; 300_000], "over {transport}");
        assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
    }
}

#[tokio::test]
async fn a_source_that_is_removed_before_its_turn_is_missing() {
    let trial = Trial::start();
    let ([from, to], [source, _]) = trial.ends(true, "file", "copy");
    fs::write(&source, b"content").unwrap();
    trial.faults(&[(calls(Procedure::Lookup), When::Always, Action::DelayReply(MUCH_LATER))]);
    let run = [&from[..], &to];
    let remove = async {
        wait_for(|| trial.served(Procedure::Lookup) > 0).await;
        fs::remove_file(&source).unwrap();
        std::future::pending::<()>().await;
    };
    let exit = tokio::select! {
        exit = trial.exit(&run) => exit,
        () = remove => unreachable!(),
    };
    assert_eq!(exit, Exit::SourceMissing);
    assert_eq!(trial.far_names(), [""; 0]);
}

#[tokio::test]
async fn the_incomplete_copy_of_one_directory_does_not_take_in_another() {
    for is_upload in [true, false] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "tree", "copy");
        plant(&source);
        let marker = std::str::from_utf8(MARKER).unwrap();
        trial.faults(&[(
            calls(if is_upload { Procedure::Write } else { Procedure::Read }),
            When::Nth(2),
            Action::Fail(Status::IO),
        )]);
        trial.copy(&["-r", &from, &to]).await.0.unwrap();
        let mark = mark_of(is_upload, &source, &from);
        assert!(fs::read(target.join(marker)).unwrap().starts_with(&mark));
        let begun = names(&target);
        let above = source.parent().unwrap();
        let to_above = &to.replacen("/copy", "/", 1)[..];
        // Also of the same name, elsewhere; and where the copy goes by the name of the source.
        for (other, to) in [("other", &to[..]), ("elsewhere/tree", &to), ("copy", to_above)] {
            let other_source = above.join(other);
            fs::create_dir_all(&other_source).unwrap();
            fs::write(other_source.join("o"), b"o").unwrap();
            let from = from.replace("/tree", &format!("/{other}"));
            let (result, counts) = trial.copy(&["-r", &from, to]).await;
            if to == to_above {
                assert_eq!(counts["failed"], 1, "{counts}");
            } else {
                let said = format!("{:#}", result.unwrap_err());
                let path = escape(&mark[..mark.len() - 1]);
                assert!(
                    said.contains(&format!("copy: is the incomplete copy of {path}; complete")),
                    "{said}"
                );
            }
            assert_eq!(names(&target), begun);
        }
        // By whatever words the same source is named, it is completed.
        trial.copy(&["-r", &from.replace("/tree", "/tree/."), &to]).await.0.unwrap();
        assert_same(&source, &target, "");
        trial.copy(&["-r", &from.replace("/tree", "/other"), &to]).await.0.unwrap();
        assert!(target.join("other/o").exists());
    }
}

/// Each is compared with all others only where something has its name that may be one of them.
#[tokio::test]
async fn hundreds_of_names_that_differ_by_case_alone_cost_a_few_calls_each() {
    const COUNT: u64 = 256;
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(true, "from", "to");
    fs::create_dir(&source).unwrap();
    for number in 0..COUNT {
        let cased = |(bit, letter): (usize, char)| {
            if number >> bit & 1 == 1 { letter.to_ascii_uppercase() } else { letter }
        };
        let name: String = "abcdefgh".chars().enumerate().map(cased).collect();
        fs::write(source.join(&name), &name).unwrap();
    }
    for (run, copied) in [("into a new directory", COUNT), ("again", 0)] {
        let before = trial.served(Procedure::Lookup);
        let (result, counts) = trial.copy(&["-r", "-T", "-u", &from, &to]).await;
        result.unwrap();
        assert_eq!(counts["done"], copied, "{run}: {counts}");
        let lookups = trial.served(Procedure::Lookup) - before;
        assert!(lookups <= 5 * COUNT, "{run}: {lookups}");
    }
    assert_eq!(fs::read_to_string(target.join("aBcdEfgH")).unwrap(), "aBcdEfgH");
    assert_eq!(fs::read_dir(&target).unwrap().count() as u64, COUNT);
}
