//! Syncs without a process of their own, each with a server in this one.

mod changed;
mod deletions;
mod kept;
mod model;
mod moved;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nfs_wireless_server::{
    Action, Calls, Faults, Rule, When,
    nfs_wire::{Procedure, Status},
    nfs3_types::nfs3,
};
use serde_json::Value;

use super::*;
use nfs_files::Context;

use crate::{
    args::OutputArgs,
    local::StateHome,
    report::Reporter,
    served::{self, Call, Served},
};

/// A server, a directory on this machine and the state of runs.
struct Trial {
    server: Served,
    here: tempfile::TempDir,
    state: tempfile::TempDir,
}

/// Where the two directories of a sync are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    Across,
}

const WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Across];

/// Source and target of a sync, as they are named and as they are on this machine.
struct Ends {
    from: String,
    to: String,
    source: PathBuf,
    target: PathBuf,
}

/// What came of a run.
struct Ran {
    result: anyhow::Result<()>,
    counts: Value,
}

impl Ran {
    fn is_clean(&self) -> bool {
        self.result.is_ok() && self.counts["failed"] == 0 && self.kept() == 0
    }

    fn count(&self, name: &str) -> u64 {
        self.counts[name].as_u64().unwrap()
    }

    /// Files that are newer in the destination, which fails the run.
    fn kept(&self) -> u64 {
        self.counts["skipped"]["newer"].as_u64().unwrap()
    }
}

impl Trial {
    fn start() -> Self {
        Self::of(Served::start())
    }

    fn of(server: Served) -> Self {
        let [here, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Self { server, here, state }
    }

    fn ends(&self, way: Way, below: &str) -> Ends {
        let here = |name: &str| {
            let path = self.here.path().join(format!("{below}{name}"));
            (path.display().to_string(), path)
        };
        let there = |name: &str| {
            let path = format!("/{below}{name}");
            (self.server.url(&path), self.server.path(&path))
        };
        let (from, source) = if way == Way::Up { here("from") } else { there("from") };
        let (to, target) = if way == Way::Down { here("to") } else { there("to") };
        Ends { from, to, source, target }
    }

    async fn sync(&self, ends: &Ends, options: &[&str]) -> Ran {
        let named = [&ends.from[..], &ends.to, "--transport", "tcp", "--quiet"];
        let arguments = served::sync(&[&named, options].concat());
        let state = StateHome::at(self.state.path());
        let output = OutputArgs::default();
        let reporter = Reporter::new(&output, Instant::now()).with_verbosity(false, true).that_changes(false);
        let activity = Arc::clone(reporter.activity());
        let connections = arguments.connection.servers(None, activity);
        let result = match check(&arguments) {
            Ok(copy) => {
                let context = Context { servers: &connections, events: &reporter };
                copy::run(&Options { state, ..copy }, context).await.map(drop).map_err(Into::into)
            }
            Err(error) => Err(error),
        };
        Ran { result, counts: reporter.counts() }
    }

    /// Runs until the server does not answer any more, from the n-th NFS call on; whether it came to that.
    async fn stop(&self, ends: &Ends, options: &[&str], calls: u64, action: Action) -> bool {
        let rule = Rule { calls: Calls::Program(nfs3::PROGRAM), when: When::After(calls), action };
        let state = || {
            self.server.service(|service| {
                let stats = service.stats();
                (stats.calls, stats.dropped_calls + stats.dropped_replies)
            })
        };
        let (_, lost) = state();
        self.server.service(|service| service.set_faults(Faults::from(vec![rule])));
        let mut run = pin!(self.sync(ends, options));
        let mut seen = (0, 0);
        let was_stopped = loop {
            tokio::select! {
                _ = &mut run => break false,
                () = tokio::time::sleep(Duration::from_millis(5)) => {
                    let before = std::mem::replace(&mut seen, state());
                    if before == seen && seen.1 > lost {
                        break true;
                    }
                }
            }
        };
        self.server.service(|service| service.set_faults(Faults::from(Vec::new())));
        was_stopped
    }

    /// NFS calls served so far, by procedure.
    fn served(&self) -> [u64; 22] {
        self.server.service(|service| service.stats().served)
    }
}

const CHANGING: [Procedure; 10] = [
    Procedure::Setattr,
    Procedure::Write,
    Procedure::Create,
    Procedure::Mkdir,
    Procedure::Symlink,
    Procedure::Mknod,
    Procedure::Remove,
    Procedure::Rmdir,
    Procedure::Rename,
    Procedure::Link,
];

fn changes(served: &[u64; 22]) -> u64 {
    CHANGING.iter().map(|procedure| served[procedure.number() as usize]).sum()
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::new(1_000_000_000 + seconds, 123_456_789)
}

fn write(path: &Path, content: impl AsRef<[u8]>, seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(time(seconds)).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// Symbolic links of [`plant`].
const LINKS: u64 = 1;

/// Makes a small tree, with one of everything.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    write(&root.join("file"), "content", 1);
    write(&root.join("sub/inner"), vec![7; 40_000], 2);
    write(&root.join("sub/nothing"), "", 3);
    symlink("sub/inner", root.join("link")).unwrap();
    fs::hard_link(root.join("file"), root.join("sub/again")).unwrap();
    fs::hard_link(root.join("file"), root.join("again")).unwrap();
    let holes = fs::File::create(root.join("holes")).unwrap();
    holes.set_len(3 << 20).unwrap();
    holes.set_modified(time(4)).unwrap();
    fs::set_permissions(root.join("sub/nothing"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("sub"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::File::open(root.join("sub")).unwrap().set_modified(time(5)).unwrap();
}

/// Expects two trees to be the same, attributes included.
fn assert_same(left: &Path, right: &Path, when: &str) {
    let (a, b) = (fs::symlink_metadata(left).unwrap(), fs::symlink_metadata(right).unwrap());
    assert_eq!(a.file_type(), b.file_type(), "{when}: {right:?}");
    if a.is_dir() {
        assert_eq!(names(left), names(right), "{when}: {right:?}");
        names(left).iter().for_each(|name| assert_same(&left.join(name), &right.join(name), when));
    } else if a.is_symlink() {
        assert_eq!(fs::read_link(left).unwrap(), fs::read_link(right).unwrap(), "{when}: {right:?}");
    } else {
        assert!(fs::read(left).unwrap() == fs::read(right).unwrap(), "{when}: {right:?}");
        assert_eq!((a.mode(), a.modified().unwrap()), (b.mode(), b.modified().unwrap()), "{when}: {right:?}");
    }
}

#[tokio::test]
async fn the_target_becomes_the_source_and_never_holds_it() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        plant(&ends.source);
        for spelling in ["", "/", "/."] {
            let named = |end: &str| match end.split_once('?') {
                Some((path, query)) => format!("{path}{spelling}?{query}"),
                None => format!("{end}{spelling}"),
            };
            let named = Ends { from: named(&ends.from), to: named(&ends.to), ..trial.ends(way, "") };
            let to = if spelling.is_empty() { &ends.to } else { &named.to };
            let ran = trial.sync(&Ends { to: to.clone(), ..named }, &[]).await;
            assert!(ran.is_clean(), "{way:?} {:?}", ran.result);
            assert_same(&ends.source, &ends.target, &format!("{way:?} {spelling:?}"));
        }
        let found = |name: &str| fs::metadata(ends.target.join(name)).unwrap();
        assert_eq!(found("sub").mode() & 0o777, 0o750);
        assert_eq!(found("sub").modified().unwrap(), time(5));
        assert_eq!((found("file").nlink(), found("again").ino()), (3, found("sub/again").ino()), "{way:?}");
        if way != Way::Across {
            assert!(found("holes").blocks() * 512 < 1 << 20, "{way:?}");
        }
    }
}

#[tokio::test]
async fn a_second_run_lists_the_directories_and_asks_for_nothing_else() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        for directory in 0..30 {
            for file in 0..10 {
                write(&ends.source.join(format!("d{directory}/f{file}")), "content", file);
            }
        }
        plant(&ends.source.join("plant"));
        assert!(trial.sync(&ends, &["--delete"]).await.is_clean());
        let before = trial.served();
        let ran = trial.sync(&ends, &["--delete"]).await;
        let after = trial.served();
        assert!(ran.is_clean() && ran.count("done") == 0, "{:?}", ran.counts);
        let mut calls = [0; 22];
        calls
            .iter_mut()
            .zip(after.iter().zip(before))
            .for_each(|(calls, (after, before))| *calls = after - before);
        let mut called = |procedure: Procedure| std::mem::take(&mut calls[procedure.number() as usize]);
        // d0 to d29, the root, and three in the plant.
        let directories = 34 * if way == Way::Across { 2 } else { 1 };
        assert_eq!(called(Procedure::Readdirplus), directories, "{way:?}");
        // A link may lead elsewhere whatever its length and time are.
        let links = LINKS * if way == Way::Across { 2 } else { 1 };
        assert_eq!(called(Procedure::Readlink), links, "{way:?}");
        // SRC and DST are looked for, and SRC is looked at again before anything is deleted.
        let found = called(Procedure::Lookup) + called(Procedure::Getattr) + called(Procedure::Fsinfo);
        assert!(found + called(Procedure::Null) < 15, "{way:?}: {found}");
        assert_eq!(calls, [0; 22], "{way:?}");
    }
}

#[tokio::test]
async fn what_has_changed_is_found_by_what_was_asked_for() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        for (name, here, there, age) in [
            ("same", "content", "content", (5, 5)),
            ("size", "content", "other", (5, 5)),
            ("time", "content", "CONTENT", (5, 4)),
            ("newer", "content", "CONTENT", (5, 6)),
            ("bytes", "content", "CONTENT", (5, 5)),
            ("touched", "content", "content", (5, 7)),
        ] {
            write(&ends.source.join(name), here, age.0);
            write(&ends.target.join(name), there, age.1);
        }
        let found = |name: &str| text(ends.target.join(name));
        let ran = trial.sync(&ends, &["--size-only"]).await;
        assert_eq!((ran.count("done"), ran.count("failed")), (1, 0), "{way:?}");
        assert_eq!((&found("size")[..], &found("time")[..]), ("content", "CONTENT"));
        let ran = trial.sync(&ends, &[]).await;
        // Two are newer, of which one has the same bytes.
        assert_eq!((ran.count("done"), ran.kept(), ran.count("failed")), (1, 2, 0), "{way:?}");
        assert_eq!((&found("time")[..], &found("newer")[..]), ("content", "CONTENT"));
        let ran = trial.sync(&ends, &["--checksum"]).await;
        assert_eq!((ran.count("done"), ran.kept(), ran.count("failed")), (2, 1, 0), "{way:?}");
        assert_eq!((&found("bytes")[..], &found("newer")[..]), ("content", "CONTENT"));
        assert_eq!(fs::metadata(ends.target.join("touched")).unwrap().modified().unwrap(), time(5));
        assert_eq!(trial.sync(&ends, &["--force"]).await.count("done"), 1);
        assert_same(&ends.source, &ends.target, "");
        // A mode alone is no reason to copy.
        fs::set_permissions(ends.source.join("same"), fs::Permissions::from_mode(0o751)).unwrap();
        let written = trial.served()[Procedure::Write.number() as usize];
        assert_eq!(trial.sync(&ends, &[]).await.count("done"), 1);
        assert_eq!(trial.served()[Procedure::Write.number() as usize], written);
        assert_same(&ends.source, &ends.target, "");
    }
}

#[tokio::test]
async fn what_exists_may_be_left_alone() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        for (name, age) in [("older", (5, 4)), ("newer", (5, 6))] {
            write(&ends.source.join(name), "content", age.0);
            write(&ends.target.join(name), "OTHER", age.1);
        }
        write(&ends.source.join("missing"), "content", 1);
        // A further name of a file, a directory in the place of a file, and a file in that of a directory.
        fs::hard_link(ends.source.join("missing"), ends.source.join("name")).unwrap();
        write(&ends.target.join("name"), "OTHER", 0);
        write(&ends.source.join("file"), "content", 1);
        write(&ends.target.join("file/inner"), "OTHER", 1);
        write(&ends.source.join("directory/inner"), "content", 1);
        write(&ends.target.join("directory"), "OTHER", 1);
        let found = |name: &str| text(ends.target.join(name));
        let ran = trial.sync(&ends, &["--ignore-existing", "--delete"]).await;
        assert_eq!((ran.count("done"), ran.count("deleted")), (1, 0), "{way:?}: {:?}", ran.counts);
        assert_eq!(ran.counts["skipped"]["exists"], 3, "{way:?}: {:?}", ran.counts);
        assert_eq!(found("missing"), "content");
        for kept in ["older", "newer", "name", "file/inner", "directory"] {
            assert_eq!(found(kept), "OTHER", "{way:?}: {kept}");
        }
        let ran = trial.sync(&ends, &["--update", "--delete"]).await;
        assert!(ran.is_clean(), "{way:?}: {:?} {:?}", ran.result, ran.counts);
        assert_eq!(ran.counts["skipped"]["not_older"], 1, "{way:?}: {:?}", ran.counts);
        assert_eq!(
            (&found("older")[..], &found("newer")[..], &found("name")[..]),
            ("content", "OTHER", "content")
        );
        assert_eq!((&found("file")[..], &found("directory/inner")[..]), ("content", "content"));
    }
}

#[tokio::test]
async fn a_link_leads_where_it_does_in_the_source_whatever_its_length_and_time_are() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        for (directory, target) in [(&ends.source, "rel-2"), (&ends.target, "rel-1")] {
            fs::create_dir_all(directory).unwrap();
            let link = directory.join("current");
            symlink(target, &link).unwrap();
            let status = std::process::Command::new("touch").args(["-h", "-d", "@5"]).arg(&link).status();
            assert!(status.unwrap().success());
        }
        let ran = trial.sync(&ends, &[]).await;
        assert!(ran.is_clean() && ran.count("done") == 1, "{way:?}: {:?}", ran.counts);
        assert_eq!(fs::read_link(ends.target.join("current")).unwrap(), Path::new("rel-2"));
    }
}

/// Names of one file become names of its copy, and of nothing else.
#[tokio::test]
async fn a_further_name_of_a_file_that_is_left_alone_is_a_file_of_its_own() {
    for (way, option) in
        WAYS.into_iter().flat_map(|way| ["--ignore-existing", "--update"].map(|it| (way, it)))
    {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        write(&ends.source.join("a"), "v1aaa", 5);
        fs::hard_link(ends.source.join("a"), ends.source.join("b")).unwrap();
        write(&ends.target.join("a"), "v2bbb", 6);
        let ran = trial.sync(&ends, &[option]).await;
        assert!(ran.result.is_ok() && ran.count("failed") == 0, "{way:?} {option}: {:?}", ran.counts);
        let found = ["a", "b"].map(|name| text(ends.target.join(name)));
        assert_eq!(found, ["v2bbb", "v1aaa"], "{way:?} {option}");
    }
}

/// What is under way when something else gets the names of a link and of a hard link.
#[tokio::test]
async fn names_that_something_gets_meanwhile_stay_as_it_is_asked_for() {
    for way in WAYS {
        for (option, was_there) in [("--ignore-existing", false), ("--update", false), ("--update", true)] {
            let (path, paths) = std::sync::mpsc::channel::<[PathBuf; 2]>();
            let (mut target, mut listed) = (None, 0);
            let trial = Trial::of(Served::watched(move |_, call| {
                target = target.take().or_else(|| paths.try_recv().ok());
                let Some([link, name]) = &target else { return };
                listed += usize::from(matches!(call, Call::Listed(_)));
                let is_listed = listed == if way == Way::Across { 2 } else { 1 };
                let is_now = match call {
                    Call::Listed(_) => [is_listed && way != Way::Down; 2],
                    Call::ReadLink => [true, false],
                    Call::Link(_) => [false, true],
                    Call::Read => [false, way == Way::Down],
                    _ => [false; 2],
                };
                for (path, is_now) in [(link, is_now[0]), (name, is_now[1])] {
                    if is_now && !fs::read(path).is_ok_and(|there| there == b"another") {
                        fs::write(path, "another").unwrap();
                    }
                }
            }));
            let ends = trial.ends(way, "");
            write(&ends.source.join("a"), "content", 5);
            fs::hard_link(ends.source.join("a"), ends.source.join("b")).unwrap();
            symlink("elsewhere", ends.source.join("link")).unwrap();
            fs::create_dir_all(&ends.target).unwrap();
            let [link, name] = ["link", "b"].map(|name| ends.target.join(name));
            if was_there {
                [&link, &name].into_iter().for_each(|path| write(path, "old", 1));
            }
            path.send([link.clone(), name.clone()]).unwrap();
            let ran = trial.sync(&ends, &[option]).await;
            let when = format!("{way:?} {option} {was_there} {:?} {}", ran.result, ran.counts);
            assert_eq!([text(ends.target.join("a")), text(name)], ["content", "another"], "{when}");
            assert_eq!(fs::read(&link).unwrap(), b"another", "{when}");
            assert!(ran.is_clean() && ran.count("done") == 1, "{when}");
            let reason = if option == "--update" { "not_older" } else { "exists" };
            assert_eq!(ran.counts["skipped"][reason], 2, "{when}");
            assert_eq!(names(&ends.target), ["a", "b", "link"], "{when}");
        }
    }
}

/// To replace one name of a file changes the others.
#[tokio::test]
async fn an_update_replaces_all_names_of_an_older_file() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        for (directory, content, age) in [(&ends.source, "content", 5), (&ends.target, "old", 1)] {
            write(&directory.join("a"), content, age);
            for name in ["b", "c"] {
                fs::hard_link(directory.join("a"), directory.join(name)).unwrap();
            }
        }
        let ran = trial.sync(&ends, &["--update"]).await;
        assert!(ran.is_clean() && ran.count("done") == 3, "{way:?} {:?} {}", ran.result, ran.counts);
        assert_eq!(["a", "b", "c"].map(|name| text(ends.target.join(name))), ["content"; 3], "{way:?}");
        assert_eq!(names(&ends.target), ["a", "b", "c"]);
    }
}

/// What one name of a file gets, the others get.
#[tokio::test]
async fn a_second_run_changes_nothing_where_names_of_one_file_stand_for_two_of_the_source() {
    for way in WAYS {
        for (modes, ages) in [([0o644, 0o600], [1, 1]), ([0o600, 0o644], [1, 1]), ([0o644, 0o644], [1, 2])] {
            let trial = Trial::start();
            let ends = trial.ends(way, "");
            for (name, mode, age) in [("a", modes[0], ages[0]), ("b", modes[1], ages[1])] {
                write(&ends.source.join(name), "content", age);
                fs::set_permissions(ends.source.join(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            write(&ends.target.join("a"), "content", 1);
            fs::hard_link(ends.target.join("a"), ends.target.join("b")).unwrap();
            assert!(trial.sync(&ends, &["--checksum"]).await.is_clean(), "{way:?}");
            assert_same(&ends.source, &ends.target, "once");
            let again = trial.sync(&ends, &["--checksum"]).await;
            assert!(again.is_clean() && again.count("done") == 0, "{way:?} {modes:?} {:?}", again.counts);
            assert_same(&ends.source, &ends.target, "again");
        }
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        plant(&ends.source);
        write(&ends.target.join("sub/extra/file"), "extra", 1);
        write(&ends.target.join("file"), "before", 1);
        write(&ends.target.join("link/is/here"), "a directory", 1);
        let before = changes(&trial.served());
        let state = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.mode(), found.ctime(), found.ctime_nsec())
        };
        let seen = [state(&ends.target), state(&ends.target.join("sub"))];
        let ran = trial.sync(&ends, &["--delete", "--dry-run"]).await;
        assert!(ran.is_clean(), "{way:?} {:?}", ran.counts);
        assert_eq!(changes(&trial.served()), before);
        assert_eq!([state(&ends.target), state(&ends.target.join("sub"))], seen);
        assert_eq!(names(&ends.target), ["file", "link", "sub"]);
    }
}

#[tokio::test]
async fn filters_leave_files_out_and_protect_them() {
    for way in WAYS {
        let trial = Trial::start();
        let ends = trial.ends(way, "");
        for name in ["a.c", "a.o", "build/x", "sub/b.o", "sub/keep.o", "sub/deep/c.log", "top", "sub/top"] {
            write(&ends.source.join(name), name, 1);
        }
        write(&ends.source.join("sub/.gitignore"), "*.log\n", 1);
        write(&ends.target.join("old.o"), "protected", 1);
        write(&ends.target.join("gone/old.o"), "protected with its directory", 1);
        write(&ends.target.join("gone/old.c"), "not", 1);
        let options = [
            "--include",
            "keep.o",
            "--exclude",
            "*.o",
            "--exclude",
            "build/",
            "--exclude",
            "/top",
            "--gitignore",
        ];
        let ran = trial.sync(&ends, &[&options[..], &["--delete"]].concat()).await;
        assert!(ran.is_clean(), "{way:?} {:?}", ran.counts);
        assert_eq!(names(&ends.target), ["a.c", "gone", "old.o", "sub"], "{way:?}");
        assert_eq!(names(&ends.target.join("gone")), ["old.o"]);
        assert_eq!(names(&ends.target.join("sub")), [".gitignore", "deep", "keep.o", "top"]);
        assert_eq!(names(&ends.target.join("sub/deep")), [""; 0]);
    }
}

#[tokio::test]
async fn a_list_says_what_is_taken_and_what_it_names_must_exist() {
    let trial = Trial::start();
    let ends = trial.ends(Way::Up, "");
    plant(&ends.source);
    let list = trial.here.path().join("list");
    fs::write(&list, "file\n./sub/empty/\n").unwrap();
    let run = ["--files-from", list.to_str().unwrap()];
    assert!(trial.sync(&ends, &run).await.is_clean());
    assert_eq!(
        (names(&ends.target), names(&ends.target.join("sub"))),
        (vec!["file".into(), "sub".into()], vec!["empty".into()])
    );
    fs::write(&list, "file\nmissing\n").unwrap();
    let ran = trial.sync(&ends, &run).await;
    assert_eq!(ran.count("failed"), 1);
    let refused = trial.sync(&ends, &[&run[..], &["--delete"]].concat()).await;
    assert_eq!(Exit::of(refused.result.unwrap_err().as_ref()), Exit::Usage);
}

#[tokio::test]
async fn what_cannot_be_a_sync_is_refused() {
    let trial = Trial::start();
    let ends = trial.ends(Way::Up, "");
    plant(&ends.source);
    let refused = async |from: &str, to: &str| {
        let ends = Ends { from: from.to_owned(), to: to.to_owned(), ..trial.ends(Way::Up, "") };
        let error = trial.sync(&ends, &[]).await.result.unwrap_err();
        (Exit::of(error.as_ref()), error.to_string())
    };
    let (exit, text) = refused(&ends.from, "/elsewhere").await;
    assert!(exit == Exit::Usage && text.contains("both on this machine"), "{text}");
    assert_eq!(refused("-", &ends.to).await.0, Exit::Usage);
    let (exit, text) = refused(&format!("{}/file", ends.from), &ends.to).await;
    assert!(exit == Exit::SomeFailed && text.contains("is not a directory"), "{text}");
    assert!(!ends.target.exists());
}
