//! When something is deleted, and what never is.

use super::*;

/// Two trees, of which the target has more, and one file outside that a link in the target leads to.
fn uneven(way: Way) -> (Trial, Ends) {
    let trial = Trial::start();
    let ends = trial.ends(way, "");
    plant(&ends.source);
    write(&ends.target.join("extra/deep/file"), "extra", 1);
    write(&ends.target.join("sub/extra"), "extra", 1);
    write(&ends.target.join("one"), "extra", 1);
    let outside = ends.target.parent().unwrap().join("outside");
    write(&outside.join("file"), "outside", 1);
    symlink("../outside", ends.target.join("away")).unwrap();
    symlink(&outside, ends.target.join("extra/away")).unwrap();
    (trial, ends)
}

fn is_outside_whole(ends: &Ends) -> bool {
    names(&ends.target.parent().unwrap().join("outside")) == ["file"]
}

#[tokio::test]
async fn what_the_source_does_not_have_goes_when_asked_for_and_links_are_not_followed() {
    for way in WAYS {
        let (trial, ends) = uneven(way);
        assert!(trial.sync(&ends, &[]).await.is_clean());
        assert!(ends.target.join("extra/deep/file").exists() && ends.target.join("away/file").exists());
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert!(ran.is_clean(), "{way:?} {:?}", ran.result);
        // extra, deep, file, away; sub/extra; one; away
        assert_eq!(ran.count("deleted"), 7, "{way:?}");
        assert_same(&ends.source, &ends.target, "");
        assert!(is_outside_whole(&ends), "{way:?}");
        assert_eq!(fs::metadata(ends.target.join("sub")).unwrap().modified().unwrap(), time(5));
    }
}

#[tokio::test]
async fn what_has_another_kind_makes_room_when_asked_for() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        write(&ends.source.join("file"), "file", 1);
        write(&ends.source.join("dir/inner"), "inner", 1);
        write(&ends.source.join("other/inner"), "inner", 1);
        write(&ends.target.join("file/was/here"), "a directory", 1);
        write(&ends.target.join("dir"), "a file", 9);
        let outside = ends.target.parent().unwrap().join("outside");
        write(&outside.join("inner"), "outside", 1);
        symlink(&outside, ends.target.join("other")).unwrap();
        let ran = trial.sync(&ends, &[]).await;
        assert_eq!((ran.count("failed"), ran.count("done")), (3, 0), "{way:?}");
        assert_eq!(text(outside.join("inner")), "outside");
        let ran = trial.sync(&ends, &["--delete", "--max-delete", "4"]).await;
        assert_eq!((ran.count("failed"), ran.count("deleted"), ran.count("done")), (1, 0, 0), "{way:?}");
        let ran = trial.sync(&ends, &["--delete", "--max-delete", "5"]).await;
        assert!(ran.is_clean() && ran.count("deleted") == 5, "{way:?} {:?}", ran.counts);
        assert_same(&ends.source, &ends.target, "");
        assert_eq!(text(outside.join("inner")), "outside");
    }
}

#[tokio::test]
async fn nothing_goes_when_anything_failed_or_too_much_would_go() {
    for way in WAYS {
        let (trial, ends) = uneven(way);
        let refuses = async |options: &[&str]| {
            let ran = trial.sync(&ends, &[&["--delete"], options].concat()).await;
            assert!(!ran.is_clean() && ran.count("deleted") == 0, "{way:?} {options:?} {:?}", ran.counts);
            assert!(ends.target.join("extra/deep/file").exists() && ends.target.join("one").exists());
        };
        refuses(&["--max-delete", "6"]).await;
        write(&ends.target.join("sub/inner"), "newer", 1000);
        refuses(&[]).await;
        fs::remove_file(ends.target.join("sub/inner")).unwrap();
        // The source is itself a copy that is not complete.
        write(&ends.source.join("sub/.nfsw-incomplete"), "", 1);
        refuses(&[]).await;
        fs::remove_file(ends.source.join("sub/.nfsw-incomplete")).unwrap();
        // A server that refuses one listing.
        let rule = Rule {
            calls: Calls::Procedure(Procedure::Readdirplus),
            when: When::After(2),
            action: Action::Fail(Status::IO),
        };
        trial.server.service(|service| service.set_faults(Faults::from(vec![rule])));
        refuses(&[]).await;
        trial.server.service(|service| service.set_faults(Faults::from(Vec::new())));
        assert!(trial.sync(&ends, &["--delete", "--max-delete", "7"]).await.is_clean());
        assert_same(&ends.source, &ends.target, "");
    }
}

#[tokio::test]
async fn nothing_goes_when_the_source_is_missing_or_empty() {
    for way in WAYS {
        let (trial, ends) = uneven(way);
        fs::remove_dir_all(&ends.source).unwrap();
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert_eq!((ran.count("deleted"), ran.is_clean()), (0, false));
        fs::create_dir(&ends.source).unwrap();
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert_eq!((ran.count("deleted"), ran.is_clean()), (0, false));
        assert!(ends.target.join("one").exists());
        assert!(trial.sync(&ends, &["--delete", "--force"]).await.is_clean());
        assert_eq!(names(&ends.target), [""; 0]);
        assert!(is_outside_whole(&ends), "{way:?}");
    }
}

#[tokio::test]
async fn a_source_inside_the_target_stays_and_so_does_a_target_inside_the_source() {
    for way in [Way::Up, Way::Across] {
        let trial = Trial::start();
        let inner = Trial::ends(&trial, Way::Across, "from/inner/");
        plant(&inner.source);
        write(&trial.server.path("/from/other"), "other", 1);
        let root = trial.server.url("/from");
        // Through the server, or on this machine.
        let from = if way == Way::Up { inner.source.display().to_string() } else { inner.from.clone() };
        let ends = Ends { from, to: root.clone(), ..trial.ends(Way::Across, "from/inner/") };
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert!(!ran.is_clean() && ran.count("deleted") == 0, "{way:?} {:?}", ran.counts);
        assert!(inner.source.join("sub/inner").exists() && trial.server.path("/from/other").exists());
    }
    let trial = Trial::start();
    let ends = trial.ends(Way::Across, "");
    plant(&ends.source);
    let inside = Ends { to: trial.server.url("/from/sub"), ..trial.ends(Way::Across, "") };
    let ran = trial.sync(&inside, &["--delete"]).await;
    assert!(!ran.is_clean() && ran.count("deleted") == 0, "{:?}", ran.counts);
    let same = Ends { to: ends.from.clone(), ..trial.ends(Way::Across, "") };
    let ran = trial.sync(&same, &["--delete"]).await;
    assert!(!ran.is_clean() && ran.count("deleted") == 0);
    assert!(ends.source.join("sub/inner").exists());
}

#[tokio::test]
async fn a_source_inside_the_target_stays_where_it_is_seen_as_it_was_before() {
    for way in [Way::Up, Way::Down] {
        // Whoever looks at it again sees another time than whoever has looked before.
        let trial = Trial::of(Served::watched(|root, _| {
            let source = fs::File::open(root.join("to/inner/from")).unwrap();
            let changed = || source.metadata().map(|it| (it.ctime(), it.ctime_nsec())).unwrap();
            let before = changed();
            while changed() == before {
                source.set_modified(SystemTime::now()).unwrap();
            }
        }));
        let [source, target] = ["/to/inner/from", "/to"].map(|path| trial.server.path(path));
        plant(&source);
        write(&target.join("other"), "other", 1);
        let [here, there] = [source.display().to_string(), trial.server.url("/to/inner/from")];
        let [to_here, to_there] = [target.display().to_string(), trial.server.url("/to")];
        let (from, to) = if way == Way::Up { (here, to_there) } else { (there, to_here) };
        let ends = Ends { from, to, source, target };
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert!(!ran.is_clean() && ran.count("deleted") == 0, "{way:?} {:?}", ran.counts);
        assert!(ends.source.join("sub/inner").exists() && ends.target.join("other").exists());
    }
}

/// Something that is mounted, until the test ends.
struct Mounted(PathBuf);

impl Mounted {
    fn at(place: &Path, arguments: &[&str]) -> Self {
        let mounted = std::process::Command::new("mount").args(arguments).arg(place).status();
        assert!(mounted.unwrap().success(), "this test mounts a file system, so it needs root");
        Self(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["--lazy"]).arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_mounted_file_system_in_the_target_is_not_emptied() {
    // What the source has under the name that leads there.
    let names = ["nothing", "a file", "a directory"];
    for (way, is_bound, name) in [Way::Down, Way::Up]
        .into_iter()
        .flat_map(|way| [(way, false), (way, true)])
        .flat_map(|(way, is_bound)| names.map(|name| (way, is_bound, name)))
    {
        for mounted in ["extra", "extra/mounted", "extra/deep/mounted"] {
            let trial = Trial::start();
            let ends = trial.ends(way, "");
            plant(&ends.source);
            match name {
                "a file" => write(&ends.source.join("extra"), "a file", 1),
                "a directory" => fs::create_dir_all(ends.source.join(mounted)).unwrap(),
                _ => {}
            }
            let inside = ends.target.join(mounted);
            fs::create_dir_all(&inside).unwrap();
            // On the file system that the target is on.
            let elsewhere = ends.target.parent().unwrap().join("elsewhere");
            fs::create_dir(&elsewhere).unwrap();
            let arguments = [&["-t", "tmpfs", "none"][..], &["--bind", elsewhere.to_str().unwrap()]];
            let view = Mounted::at(&inside, arguments[usize::from(is_bound)]);
            write(&inside.join("below/file"), "elsewhere", 1);
            write(&inside.join("file"), "elsewhere", 1);
            let ran = trial.sync(&ends, &["--delete"]).await;
            let are_there = ["below/file", "file"].map(|name| inside.join(name).exists());
            drop(view);
            let what = (way, is_bound, name, mounted);
            assert!(are_there == [true; 2] && !ran.is_clean(), "{what:?} {:?}", ran.counts);
        }
    }
}

#[tokio::test]
async fn the_source_may_be_named_by_a_link_that_leads_to_it() {
    let trial = Trial::start();
    let mut ends = trial.ends(Way::Up, "");
    plant(&ends.source);
    assert!(trial.sync(&ends, &[]).await.is_clean());
    let link = ends.source.with_file_name("link");
    symlink(&ends.source, &link).unwrap();
    ends.from = link.to_str().unwrap().to_owned();
    write(&ends.target.join("surplus"), "of an earlier source", 1);
    let ran = trial.sync(&ends, &["--delete"]).await;
    assert!(ran.is_clean() && !ends.target.join("surplus").exists(), "{:?}", ran.counts);
}

#[tokio::test]
async fn one_file_system_ends_where_another_directory_is_bound() {
    for way in [Way::Down, Way::Across] {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        plant(&ends.source);
        let elsewhere = ends.source.parent().unwrap().join("elsewhere");
        write(&elsewhere.join("file"), "elsewhere", 1);
        let inside = ends.source.join("sub/bound");
        fs::create_dir(&inside).unwrap();
        let view = Mounted::at(&inside, &["--bind", elsewhere.to_str().unwrap()]);
        for options in [&["-x"][..], &[]] {
            assert!(trial.sync(&ends, options).await.is_clean(), "{way:?}");
            assert_eq!(ends.target.join("sub/bound/file").exists(), options.is_empty(), "{way:?}");
        }
        drop(view);
    }
}
