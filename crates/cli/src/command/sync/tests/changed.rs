//! What others do to files of the target while a sync gives them names, modes and times.

use std::sync::mpsc;

use super::*;

/// What becomes of a file of the target meanwhile.
#[derive(Clone, Copy, Debug)]
struct Meanwhile {
    way: Way,
    options: &'static [&'static str],
    /// Whether that is while it is read, or after it was listed.
    is_read: bool,
    /// The seconds of its new time; its source has 5.
    seconds: u64,
}

/// Gives a file other bytes, another mode and another time: the same file, or another one that gets its name.
fn change(target: &Path, seconds: u64, in_place: bool) {
    let path = if in_place { target.to_owned() } else { target.with_file_name("other") };
    let length = fs::metadata(target).unwrap().len();
    let file = fs::File::options().write(true).create(true).truncate(false).open(&path).unwrap();
    file.set_len(length).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"another", 0).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    file.set_modified(time(seconds)).unwrap();
    fs::rename(path, target).unwrap();
}

#[tokio::test]
async fn links_keep_times_and_owners() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test gives files to others: run it as root, as CI does"
    );
    for (way, owner) in WAYS.into_iter().flat_map(|way| [0, 1234].map(|owner| (way, owner))) {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        fs::create_dir(&ends.source).unwrap();
        symlink("elsewhere", ends.source.join("link")).unwrap();
        std::os::unix::fs::lchown(ends.source.join("link"), Some(owner), Some(owner)).unwrap();
        fs::create_dir(&ends.target).unwrap();
        let times = |root: &Path| fs::symlink_metadata(root.join("link")).unwrap().modified().unwrap();
        let asked = || trial.served()[Procedure::Setattr.number() as usize];
        let before = asked();
        let ran = trial.sync(&ends, &[]).await;
        assert!(ran.is_clean(), "{way:?} {:?}", ran.counts);
        assert_eq!(times(&ends.source), times(&ends.target), "{way:?}");
        if way == Way::Down {
            let found = fs::symlink_metadata(ends.target.join("link")).unwrap();
            assert_eq!((found.uid(), found.gid()), (owner, owner));
        } else {
            // This server gives nothing to others: it is asked for the times of the link, and for its owner.
            assert_eq!(asked() - before, 1 + u64::from(owner != 0), "{way:?} {owner}");
        }
    }
}

#[tokio::test]
async fn mode_and_time_are_those_of_what_was_compared() {
    const CHECKED: &[&str] = &["--checksum"];
    for Meanwhile { way, options, is_read, seconds } in [
        Meanwhile { way: Way::Down, options: CHECKED, is_read: true, seconds: 9 },
        Meanwhile { way: Way::Down, options: CHECKED, is_read: true, seconds: 3 },
        Meanwhile { way: Way::Up, options: CHECKED, is_read: true, seconds: 9 },
        Meanwhile { way: Way::Up, options: CHECKED, is_read: true, seconds: 3 },
        Meanwhile { way: Way::Up, options: &[], is_read: false, seconds: 9 },
        Meanwhile { way: Way::Up, options: &[], is_read: false, seconds: 3 },
    ] {
        let (path, target) = mpsc::channel::<PathBuf>();
        let (mut reads, mut change_it) = (0, Some(target));
        let trial = Trial::of(Served::watched(move |_, call| {
            reads += usize::from(call == Call::Read);
            // The first bytes were read by then.
            let is_now = if is_read { reads == 3 } else { matches!(call, Call::Listed(_)) };
            if let Some(target) = change_it.take_if(|_| is_now) {
                change(&target.recv().unwrap(), seconds, way == Way::Up);
            }
        }));
        let ends = trial.ends(way, "");
        let [source, target] = [&ends.source, &ends.target].map(|root| root.join("file"));
        write(&source, vec![7; 3 << 20], 5);
        write(&target, vec![7; 3 << 20], if is_read { 4 } else { 5 });
        fs::set_permissions(&source, fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        path.send(target.clone()).unwrap();
        let ran = trial.sync(&ends, options).await;
        let what = (way, options, seconds, &ran.counts);
        let found = fs::metadata(&target).unwrap();
        let is_another = fs::read(&target).unwrap().starts_with(b"another");
        let is_kept = (found.mode() & 0o777, found.modified().unwrap()) == (0o600, time(seconds));
        if seconds == 9 {
            assert!(is_another && is_kept && ran.kept() == 1, "{what:?} {:o}", found.mode());
        } else {
            assert!(!is_another && ran.is_clean() && ran.count("done") == 1, "{what:?}");
            assert_same(&source, &target, "");
        }
    }
}
