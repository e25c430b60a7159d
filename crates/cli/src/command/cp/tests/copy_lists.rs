//! What a run knows of the files that an earlier one has copied, and when it may leave them out.

use super::*;

/// Makes a directory with two files of these contents.
fn make_pair(root: &Path, content: &str) {
    fs::create_dir_all(root).unwrap();
    for name in ["a", "b"] {
        fs::write(root.join(name), content).unwrap();
    }
}

/// Two files in a directory, how the command names what is in it, and an empty directory to copy them to.
fn pair_to_copy(is_upload: bool) -> (Trial, impl Fn(&str) -> String, String, [PathBuf; 2]) {
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(is_upload, "from", "to");
    make_pair(&source, "content");
    fs::create_dir(&target).unwrap();
    let named = move |name: &str| from.replacen("/from", &format!("/from/{name}"), 1);
    (trial, named, to, [source, target])
}

/// Files that were copied, and those that were left out as they had been.
fn copied(counts: &serde_json::Value) -> (u64, u64) {
    (counts["done"].as_u64().unwrap(), counts["skipped"]["complete"].as_u64().unwrap())
}

#[tokio::test]
async fn of_several_files_those_that_are_complete_are_not_copied_again() {
    for is_upload in [true, false] {
        let (trial, named, to, [source, target]) = pair_to_copy(is_upload);
        let run = [&named("a")[..], &named("b"), &named("c"), &to];
        fs::write(source.join("c"), "content").unwrap();
        fs::create_dir(target.join("c")).unwrap();
        let (_, counts) = trial.copy(&run).await;
        assert_eq!((copied(&counts), &counts["failed"]), ((2, 0), &1.into()));
        assert_eq!(copied(&trial.copy(&run).await.1), (0, 2), "upload: {is_upload}");
        // Not what has changed, nor what is copied alone, nor anything once all is complete.
        fs::write(source.join("b"), "other").unwrap();
        assert_eq!(copied(&trial.copy(&run).await.1), (1, 1));
        assert_eq!(copied(&trial.copy(&[run[0], &to]).await.1), (1, 0));
        fs::remove_dir(target.join("c")).unwrap();
        assert_eq!(copied(&trial.copy(&run).await.1), (2, 1));
        assert_eq!(trial.kept(), [""; 0]);
        assert_eq!(copied(&trial.copy(&run).await.1), (3, 0));
    }
}

#[tokio::test]
async fn a_complete_file_that_turns_out_different_is_copied_again() {
    for is_upload in [true, false] {
        let (trial, named, to, [_, target]) = pair_to_copy(is_upload);
        let run = ["--verify", &named("a"), &named("b"), &named("missing"), &to];
        assert_eq!(copied(&trial.copy(&run).await.1), (2, 0));
        tamper_with(&target.join("b"));
        if is_upload {
            let (_, counts) = trial.copy(&run).await;
            assert_eq!((copied(&counts), &counts["failed"]), ((0, 1), &2.into()), "{counts}");
        }
        // On this machine that it was changed is seen before.
        assert_eq!(copied(&trial.copy(&run).await.1), (1, 1), "upload: {is_upload}");
        assert_eq!(fs::read(target.join("b")).unwrap(), b"content");
    }
}

/// Changes a byte of a file, and none of the attributes that a copy is known by.
fn tamper_with(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut content = fs::read(path).unwrap();
    content[0] = b'?';
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[tokio::test]
async fn bytes_that_were_changed_in_secret_are_copied_again_on_this_machine() {
    for is_upload in [true, false] {
        let (trial, named, to, [_, target]) = pair_to_copy(is_upload);
        let run = [&named("a")[..], &named("b"), &named("missing"), &to];
        assert_eq!(copied(&trial.copy(&run).await.1), (2, 0));
        let changed = || fs::metadata(target.join("b")).map(|it| (it.ctime(), it.ctime_nsec())).unwrap();
        let before = changed();
        while changed() == before {
            tamper_with(&target.join("b"));
        }
        let is_again = u64::from(!is_upload);
        assert_eq!(copied(&trial.copy(&run).await.1), (is_again, 2 - is_again), "upload: {is_upload}");
        assert_eq!(fs::read(target.join("b")).unwrap() == b"content", !is_upload);
    }
}

#[tokio::test]
async fn a_list_outlasts_copies_of_something_else_to_the_same_place() {
    let trial = Trial::start();
    let ([one, to], [source, target]) = trial.ends(true, "one/.", "to");
    let ([other, _], [other_source, _]) = trial.ends(true, "other/.", "to");
    make_pair(&trial.here.path().join("one"), "content");
    symlink("nowhere", source.join("link")).unwrap();
    fs::create_dir_all(trial.here.path().join("other")).unwrap();
    fs::write(other_source.join("c"), "content").unwrap();
    fs::create_dir(&target).unwrap();
    assert_eq!(copied(&trial.copy(&["-rL", &one, &to]).await.1), (2, 0));
    assert_eq!(copied(&trial.copy(&["-rL", &other, &to]).await.1), (1, 0));
    assert_eq!(copied(&trial.copy(&["-rL", &one, &to]).await.1), (0, 2));
}

#[tokio::test]
async fn after_what_ends_a_run_no_other_failure_is_told() {
    let (trial, named, to, [source, target]) = pair_to_copy(true);
    let run = ["--verify", &named("a"), &named("b"), &named("missing"), &to];
    assert_eq!(copied(&trial.copy(&run).await.1), (2, 0));
    // One is different, which takes long to find out; the other is to be copied, which cannot be.
    tamper_with(&target.join("a"));
    fs::write(source.join("b"), "other").unwrap();
    let late = Action::DelayReply(Duration::from_millis(300));
    trial.faults(&[
        (Calls::Procedure(Procedure::Read), When::Always, late),
        (Calls::Procedure(Procedure::Create), When::Always, Action::Fail(Status::ROFS)),
    ]);
    let (result, counts) = trial.copy(&run).await;
    assert!(format!("{:#}", result.unwrap_err()).contains("read-only"));
    assert_eq!(counts["failed"], 1, "that one is missing");
}
