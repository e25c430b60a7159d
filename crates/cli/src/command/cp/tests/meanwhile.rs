//! What others do to the target while a copy runs.

use std::{ffi::OsStr, fs::Permissions, os::unix::ffi::OsStrExt, sync::mpsc, time::SystemTime};

use super::*;
use crate::served::Call;

/// A directory of the target that is moved away once one below it was made, or a file of one below it is read.
#[derive(Clone, Copy, Debug)]
struct Move {
    moved: &'static str,
    is_replaced: bool,
}

const MOVES: [Move; 6] = [
    Move { moved: "to", is_replaced: false },
    Move { moved: "to", is_replaced: true },
    Move { moved: "to/a", is_replaced: false },
    Move { moved: "to/a", is_replaced: true },
    Move { moved: "to/a/deep", is_replaced: false },
    Move { moved: "to/a/deep", is_replaced: true },
];

impl Move {
    fn carry_out(self, root: &Path) {
        fs::rename(root.join(self.moved), root.join("moved")).unwrap();
        if self.is_replaced {
            fs::create_dir(root.join(self.moved)).unwrap();
        }
    }
}

fn plant_deep(source: &Path) {
    fs::create_dir_all(source.join("a/deep")).unwrap();
    for name in ["a/deep/file", "a/deep/other", "top"] {
        fs::write(source.join(name), name).unwrap();
    }
}

#[tokio::test]
async fn a_directory_on_a_server_that_is_moved_meanwhile_is_told() {
    for (options, is_there) in [(&["-r", "-T"][..], true), (&["-rp", "-T"], false)] {
        for moves in MOVES {
            let mut is_moved = false;
            let trial = Trial::of(Served::watched(move |root, call| {
                if matches!(call, Call::Made(name) if name.starts_with(b".file.nfsw-part"))
                    && !std::mem::replace(&mut is_moved, true)
                {
                    moves.carry_out(root);
                }
            }));
            let ([from, to], [source, target]) = trial.ends(true, "from", "to");
            plant_deep(&source);
            if is_there {
                fs::create_dir(&target).unwrap();
            }
            let (result, counts) = trial.copy(&[options, &[&from, &to]].concat()).await;
            let is_told = result.is_err() || counts["failed"].as_u64().unwrap() > 0;
            assert!(is_told, "{options:?} {moves:?} {counts}");
        }
    }
}

/// An empty directory, at any moment.
#[tokio::test]
async fn a_directory_that_gets_the_name_of_the_copy_meanwhile_stays() {
    let mut is_made_once = false;
    for at in 1..40 {
        let (mut events, made) = (0, Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let told = Arc::clone(&made);
        let trial = Trial::of(Served::watched(move |root, _| {
            events += 1;
            if events == at && fs::create_dir(root.join("to")).is_ok() {
                fs::set_permissions(root.join("to"), Permissions::from_mode(0o711)).unwrap();
                told.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }));
        let ([from, to], [source, target]) = trial.ends(true, "from", "to");
        plant_deep(&source);
        let (result, counts) = trial.copy(&["-r", &from, &to]).await;
        let is_theirs = fs::metadata(&target).unwrap().permissions().mode() & 0o7777 == 0o711;
        let is_made = made.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(is_theirs, is_made, "{at}: {result:?} {counts}");
        if is_theirs {
            // It goes into it, or the run fails.
            let is_inside = target.join("from/a/deep/file").exists();
            let is_told = result.is_err() || counts["failed"].as_u64().unwrap() > 0;
            assert_ne!(is_inside, is_told, "{at}: {result:?} {counts}");
            is_made_once |= !is_inside;
        } else {
            result.unwrap();
            assert_same(&source, &target, &at.to_string());
        }
    }
    assert!(is_made_once, "it came in between");
}

#[tokio::test]
async fn a_directory_here_that_is_moved_meanwhile_is_told() {
    // A tree into a new directory, or one file into one that is there.
    for (moves, is_file) in
        MOVES.map(|moves| (moves, false)).into_iter().chain([(MOVES[0], true), (MOVES[1], true)])
    {
        let (path, root) = mpsc::channel::<PathBuf>();
        let mut root = None.or(Some(root));
        let trial = Trial::of(Served::watched(move |_, call| {
            if call == Call::Read
                && let Some(there) = root.take_if(|_| true)
            {
                moves.carry_out(&there.recv().unwrap());
            }
        }));
        let ([from, to], [source, target]) = trial.ends(false, "from", "to");
        fs::create_dir_all(source.join("a/deep")).unwrap();
        fs::write(source.join("a/deep/file"), "file").unwrap();
        path.send(target.parent().unwrap().to_owned()).unwrap();
        let file = from.replace("/from", "/from/a/deep/file");
        if is_file {
            fs::create_dir(&target).unwrap();
        }
        let arguments = if is_file { vec![&file[..], &to] } else { vec!["-r", &from, &to] };
        let (result, counts) = trial.copy(&arguments).await;
        let is_told = result.is_err() || counts["failed"].as_u64().unwrap() > 0;
        assert!(is_told, "{moves:?} {is_file} {counts}");
    }
}

#[tokio::test]
async fn nothing_is_told_where_nothing_moves() {
    let trial = Trial::start();
    for is_upload in [true, false] {
        let ([from, to], [source, target]) = trial.ends(is_upload, "from", "to");
        let _ = fs::remove_dir_all(&source);
        plant_deep(&source);
        let link = target.with_file_name("link");
        symlink("to", &link).unwrap();
        let whole: &[&str] = &["-r", "-T", &from, &to];
        let contents = [from.replace("/from", "/from/."), to.replace("/to", "/link")];
        for arguments in [whole, whole, &["-r", &contents[0], &contents[1]]] {
            let (result, counts) = trial.copy(arguments).await;
            result.unwrap();
            assert_eq!(counts["failed"], 0, "{counts}");
        }
    }
}

/// Where the copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    Across,
}

/// How a file gets a name that something else got meanwhile.
#[derive(Clone, Copy, Debug)]
struct Taken {
    options: &'static [&'static str],
    source: &'static str,
    way: Way,
    has_links: bool,
    /// Something older had the name before.
    was_there: bool,
    /// When that is.
    at: At,
}

/// What the server is asked for when something else gets the name.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The name is looked up.
    LookUp,
    /// It was looked up so often, and what it stood for then is told.
    LookedUp(usize),
    /// The temporary file was made.
    Made,
    /// The source is read.
    Read,
}

impl Taken {
    /// A server on which something gets the name of the copy meanwhile, as soon as its path is known.
    fn server(self) -> (Served, mpsc::Sender<PathBuf>) {
        self.server_that(|target| fs::write(target, "another").unwrap())
    }

    /// As [`Taken::server`], where this becomes of what has the name.
    fn server_that(self, mut change: impl FnMut(&Path) + Send + 'static) -> (Served, mpsc::Sender<PathBuf>) {
        let (path, target) = mpsc::channel::<PathBuf>();
        let mut looks = 0;
        let server = Served::watched(move |_, call| {
            looks += usize::from(call == Call::LookedUp(b"to"));
            let is_now = match (self.at, call) {
                (At::LookUp, Call::LookUp(b"to")) => true,
                (At::LookedUp(count), Call::LookedUp(b"to")) => looks == count,
                (At::Made, Call::Made(name)) => name.starts_with(b".to.nfsw-part"),
                (At::Read, Call::Read | Call::ReadLink) => true,
                _ => false,
            };
            if is_now && let Ok(target) = target.try_recv() {
                change(&target);
            }
        });
        (server, path)
    }

    /// Makes the source, and what has the name of the copy; returns both ends.
    fn plant(self, trial: &Trial) -> ([String; 2], [PathBuf; 2]) {
        let (mut named, mut paths) = trial.ends(self.way != Way::Down, self.source, "to");
        if self.way == Way::Across {
            let path = format!("/{}", self.source);
            (named[0], paths[0]) = (trial.server.url(&path), trial.server.path(&path));
        }
        let [source, target] = &paths;
        match self.source {
            "link" => symlink("elsewhere", source).unwrap(),
            "large" => fs::write(source, vec![7; 300_000]).unwrap(),
            _ => fs::write(source, "content").unwrap(),
        }
        if self.was_there {
            fs::write(target, "old").unwrap();
            let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            fs::File::options().write(true).open(target).unwrap().set_modified(old).unwrap();
        }
        if !self.has_links {
            let no_links = (Calls::Procedure(Procedure::Link), When::Always, Action::Fail(Status::NOTSUPP));
            trial.faults(&[no_links]);
        }
        (named, paths)
    }

    async fn copy(self, trial: &Trial, [from, to]: &[String; 2]) -> serde_json::Value {
        let recursive: &[&str] = if self.source == "link" { &["-r"] } else { &[] };
        let (result, counts) = trial.copy(&[self.options, recursive, &["-T", from, to]].concat()).await;
        assert!(result.is_ok() && counts["failed"] == 0, "{self:?} {result:?} {counts}");
        counts
    }
}

const TAKEN: [Taken; 26] = {
    const NEW: Taken = Taken {
        options: &["-n"],
        source: "file",
        way: Way::Up,
        has_links: true,
        was_there: false,
        at: At::Made,
    };
    const OLD: Taken = Taken { options: &["-u"], was_there: true, ..NEW };
    const LINK: Taken = Taken { source: "link", at: At::LookUp, ..NEW };
    const DOWN: Taken = Taken { way: Way::Down, at: At::Read, ..NEW };
    const IN_PLACE: Taken = Taken { options: &["-u", "--inplace"], at: At::LookedUp(1), ..OLD };
    [
        NEW,
        Taken { has_links: false, ..NEW },
        Taken { options: &["-u"], ..NEW },
        OLD,
        LINK,
        Taken { options: &["-u"], has_links: false, ..LINK },
        Taken { at: At::Made, was_there: true, options: &["-u"], ..LINK },
        Taken { way: Way::Across, ..LINK },
        Taken { way: Way::Across, at: At::Made, was_there: true, options: &["-u"], ..LINK },
        Taken { source: "link", ..DOWN },
        Taken { source: "link", options: &["-u"], was_there: true, ..DOWN },
        Taken { options: &["-n", "--inplace"], at: At::LookUp, ..NEW },
        IN_PLACE,
        // Between the look and the first byte.
        Taken { at: At::LookedUp(2), ..IN_PLACE },
        Taken { way: Way::Across, ..IN_PLACE },
        Taken { way: Way::Across, at: At::LookedUp(2), ..IN_PLACE },
        Taken { source: "large", ..NEW },
        Taken { source: "large", has_links: false, ..NEW },
        DOWN,
        Taken { options: &["-u"], ..DOWN },
        Taken { options: &["-u"], was_there: true, ..DOWN },
        Taken { source: "large", ..DOWN },
        Taken { options: &["-n", "--no-resume"], source: "large", ..DOWN },
        Taken { options: &["-u"], source: "large", was_there: true, ..DOWN },
        Taken { way: Way::Across, at: At::Read, ..NEW },
        Taken { way: Way::Across, at: At::Read, ..OLD },
    ]
};

#[tokio::test]
async fn what_gets_the_name_meanwhile_stays_where_nothing_or_only_older_is_replaced() {
    for taken in TAKEN {
        let (server, path) = taken.server();
        let trial = Trial::of(server);
        let (named, [_, target]) = taken.plant(&trial);
        path.send(target.clone()).unwrap();
        let counts = taken.copy(&trial, &named).await;
        let there = fs::read(&target).ok();
        assert_eq!(there.as_deref(), Some(&b"another"[..]), "{taken:?} {counts}");
        assert_eq!(counts["done"], 0, "{taken:?} {counts}");
        let skipped: u64 =
            counts["skipped"].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum();
        assert_eq!(skipped, 1, "{taken:?} {counts}");
        let beside = names(target.parent().unwrap());
        assert!(beside.iter().all(|name| !name.contains("nfsw")), "{taken:?} {beside:?}");
    }
}

type Change = fn(&Path);

/// What becomes of something older while its copy is under way, which leaves it older.
const CHANGES: [(&str, Change); 3] = [
    ("its mode", |path| fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap()),
    ("its time", |path| {
        let older = SystemTime::UNIX_EPOCH + Duration::from_secs(999_999_999);
        fs::File::options().write(true).open(path).unwrap().set_modified(older).unwrap();
    }),
    ("another file", |path| {
        let (beside, old) = (path.with_file_name("beside"), SystemTime::UNIX_EPOCH + Duration::from_secs(9));
        fs::write(&beside, "another old one").unwrap();
        fs::File::options().write(true).open(&beside).unwrap().set_modified(old).unwrap();
        fs::rename(beside, path).unwrap();
    }),
];

#[tokio::test]
async fn what_changes_meanwhile_and_is_older_still_is_replaced() {
    let old = TAKEN.into_iter().filter(|taken| taken.was_there && taken.options.contains(&"-u"));
    for taken in old {
        for (what, change) in CHANGES {
            let (server, path) = taken.server_that(change);
            let trial = Trial::of(server);
            let (named, [source, target]) = taken.plant(&trial);
            path.send(target.clone()).unwrap();
            let counts = taken.copy(&trial, &named).await;
            assert_eq!(counts["done"], 1, "{taken:?} {what} {counts}");
            assert!(fs::read(&source).ok() == fs::read(&target).ok(), "{taken:?} {what}");
            let beside = names(target.parent().unwrap());
            assert!(beside.iter().all(|name| !name.contains("nfsw")), "{taken:?} {what} {beside:?}");
        }
    }
}

#[tokio::test]
async fn a_name_is_given_where_nothing_or_something_older_has_it() {
    for taken in TAKEN {
        let trial = Trial::start();
        let (named, [source, target]) = taken.plant(&trial);
        let counts = taken.copy(&trial, &named).await;
        assert_eq!(counts["done"], 1, "{taken:?} {counts}");
        let kind = |path: &Path| fs::symlink_metadata(path).unwrap().file_type();
        assert_eq!(kind(&source), kind(&target), "{taken:?}");
        assert_eq!(fs::read(&source).ok(), fs::read(&target).ok(), "{taken:?}");
        let beside = names(target.parent().unwrap());
        assert!(beside.iter().all(|name| !name.contains("nfsw")), "{taken:?} {beside:?}");
    }
}

#[tokio::test]
async fn what_becomes_newer_after_it_was_listed_stays() {
    for options in [&["-u"][..], &["-u", "--inplace"]] {
        let trial = Trial::of(Served::watched(|root, call| {
            if matches!(call, Call::Listed(_)) {
                fs::write(root.join("to/file"), "newer").unwrap();
            }
        }));
        let ([from, to], [source, target]) = trial.ends(true, "from", "to");
        for (root, content, seconds) in [(&source, "source", 2), (&target, "old", 1)] {
            fs::create_dir(root).unwrap();
            fs::write(root.join("file"), content).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds * 1_000_000_000 / 2);
            fs::File::options().write(true).open(root.join("file")).unwrap().set_modified(time).unwrap();
        }
        let (result, counts) = trial.copy(&[options, &["-r", "-T", &from, &to]].concat()).await;
        result.unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "newer", "{options:?} {counts}");
        assert_eq!((&counts["failed"], &counts["done"]), (&0.into(), &0.into()), "{options:?} {counts}");
    }
}

/// Whoever may change names in the directory puts a file of somebody else in the place of the unfinished copy.
#[tokio::test]
async fn what_is_put_in_the_place_of_an_unfinished_copy_is_neither_it_nor_touched() {
    for (options, was_there) in [(&[][..], true), (&["-u"], true), (&["-n"], false)] {
        let trial = Trial::of(Served::watched(|root, call| {
            if let Call::Made(name) = call
                && name.starts_with(b".to.nfsw-part")
            {
                let part = root.join(OsStr::from_bytes(name));
                fs::rename(&part, root.join("moved")).unwrap();
                fs::hard_link(root.join("private"), part).unwrap();
            }
        }));
        let private = trial.server.path("private");
        fs::write(&private, "of somebody else").unwrap();
        fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
        let ([from, to], [source, target]) = trial.ends(true, "from", "to");
        fs::write(&source, vec![7; 300_000]).unwrap();
        if was_there {
            fs::write(&target, "old").unwrap();
            let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            fs::File::options().write(true).open(&target).unwrap().set_modified(long_ago).unwrap();
        }
        let (result, counts) = trial.copy(&[options, &[&from, &to]].concat()).await;
        let is_told = result.is_err() || counts["failed"].as_u64().unwrap() > 0;
        assert!(is_told, "{options:?} {counts}");
        assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600, "{options:?}");
        let left = was_there.then(|| "old".to_owned());
        assert_eq!(fs::read_to_string(&target).ok(), left, "{options:?}");
    }
}

/// Gives something a time of change that it did not have.
fn touch(path: &Path) {
    let before = fs::metadata(path).unwrap();
    let changed = |it: &fs::Metadata| (it.ctime(), it.ctime_nsec());
    let file = fs::File::open(path).unwrap();
    loop {
        file.set_modified(SystemTime::now()).unwrap();
        if changed(&file.metadata().unwrap()) != changed(&before) {
            break;
        }
    }
}

/// The same server by another of its addresses.
fn by_another_address(url: &str) -> String {
    url.replace("127.0.0.1", "[::ffff:127.0.0.1]")
}

#[tokio::test]
async fn a_file_that_changes_all_the_time_is_not_written_in_the_place_of_itself() {
    for way in ["up", "down", "across"] {
        let trial = Trial::of(Served::watched(|root, _| touch(&root.join("file"))));
        let file = trial.server.path("/file");
        fs::write(&file, "content").unwrap();
        let (here, there) = (file.to_str().unwrap().to_owned(), trial.server.url("/file"));
        let other = by_another_address(&there);
        let [from, to] = match way {
            "up" => [&here, &there],
            "down" => [&there, &here],
            _ => [&there, &other],
        };
        let (result, counts) = trial.copy(&["--inplace", from, to]).await;
        assert_eq!(fs::read_to_string(&file).unwrap(), "content", "{way} {result:?} {counts}");
        let is_refused = result.is_err() || counts["failed"] == 1;
        assert!(is_refused && counts["done"] == 0, "{way} {result:?} {counts}");
    }
}

#[tokio::test]
async fn a_tree_is_not_copied_into_itself_by_another_address_or_on_this_machine() {
    for way in ["up", "down", "across"] {
        for changes in [false, true] {
            let trial = Trial::of(Served::watched(move |root, _| {
                if changes {
                    touch(&root.join("tree"));
                }
            }));
            let tree = trial.server.path("/tree");
            fs::create_dir_all(tree.join("deep")).unwrap();
            fs::write(tree.join("deep/file"), "file").unwrap();
            let (here, there) = (tree.to_str().unwrap().to_owned(), trial.server.url("/tree"));
            let [here_new, there_new] = [format!("{here}/new"), trial.server.url("/tree/new")];
            let other_new = by_another_address(&there_new);
            let [from, to] = match way {
                "up" => [&here, &there_new],
                "down" => [&there, &here_new],
                _ => [&there, &other_new],
            };
            let (result, counts) = trial.copy(&["-r", from, to]).await;
            let is_refused = result.is_err() || counts["failed"] == 1;
            assert!(is_refused && counts["done"] == 0, "{way} {changes} {result:?} {counts}");
            assert!(!tree.join("new/new").exists() && !tree.join("new/deep").exists(), "{way} {changes}");
        }
    }
}

/// What a file that is written in place has after the first attempt is this run's own.
#[tokio::test]
async fn a_copy_in_place_that_is_begun_again_is_completed() {
    for (options, was_there) in [(["-n", "--inplace"], false), (["-u", "--inplace"], true)] {
        for way in [Way::Up, Way::Down, Way::Across] {
            let mut reads = 0;
            let trial = Trial::of(Served::watched(move |root, call| {
                if call == Call::Read && reads == 0 {
                    reads += 1;
                    fs::write(root.join("file"), "a longer version").unwrap();
                }
            }));
            let at = At::Read;
            let taken = Taken { options: &[], source: "file", way, has_links: true, was_there, at };
            let (mut named, [mut source, target]) = taken.plant(&trial);
            if way == Way::Up {
                // Its size is not its length.
                (named[0], source) = ("/proc/version".to_owned(), PathBuf::from("/proc/version"));
            }
            let [from, to] = &named;
            let (result, counts) = trial.copy(&[&options[..], &["-T", from, to]].concat()).await;
            result.unwrap();
            assert_eq!(counts["done"], 1, "{options:?} {way:?} {counts}");
            assert_eq!(fs::read(&source).unwrap(), fs::read(&target).unwrap(), "{options:?} {way:?}");
        }
    }
}

/// The name may be another's by then: that file is not opened.
#[tokio::test]
async fn what_gets_the_name_of_a_copy_in_place_that_is_begun_again_is_not_written() {
    for (options, was_there) in [
        (&["-n", "--inplace"][..], false),
        (&["-u", "--inplace"], true),
        (&["--inplace"], false),
        (&["--inplace"], true),
    ] {
        for way in [Way::Up, Way::Down, Way::Across] {
            let (path, targets) = mpsc::channel::<PathBuf>();
            let trial = Trial::of(Served::watched(move |root, call| {
                let is_now = match call {
                    Call::Read => true,
                    // It was made or emptied.
                    Call::SetAttributes | Call::Write => way == Way::Up,
                    _ => false,
                };
                if is_now && let Ok(target) = targets.try_recv() {
                    fs::write(root.join("file"), "a longer version").unwrap();
                    let witness = target.with_file_name("witness");
                    fs::write(&witness, "another").unwrap();
                    fs::remove_file(&target).unwrap();
                    fs::hard_link(&witness, &target).unwrap();
                }
            }));
            let taken = Taken { options: &[], source: "file", way, has_links: true, was_there, at: At::Read };
            let (mut named, [_, target]) = taken.plant(&trial);
            if way == Way::Up {
                // Its size is not its length: it is begun again.
                named[0] = "/proc/version".to_owned();
            }
            path.send(target.clone()).unwrap();
            let [from, to] = &named;
            let (result, counts) = trial.copy(&[options, &["-T", from, to]].concat()).await;
            let witness = fs::read_to_string(target.with_file_name("witness"));
            assert_eq!(witness.unwrap(), "another", "{options:?} {way:?} {was_there} {counts}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "another", "{options:?} {way:?} {counts}");
            let skipped = &counts["skipped"];
            let is_told = result.is_err()
                || counts["failed"] == 1
                || skipped["exists"] == 1
                || skipped["not_older"] == 1;
            assert!(is_told && counts["done"] == 0, "{options:?} {way:?} {was_there} {result:?} {counts}");
        }
    }
}

/// Who narrows a file while it is written in place, keeps that.
#[tokio::test]
async fn a_copy_in_place_keeps_the_mode_of_what_was_there() {
    let chmod = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for way in [Way::Up, Way::Down, Way::Across] {
        for (was_there, mode) in [(true, 0o644), (true, 0o666), (false, 0o644), (false, 0o444)] {
            let (path, targets) = mpsc::channel::<PathBuf>();
            let trial = Trial::of(Served::watched(move |_, call| {
                let is_now = match call {
                    Call::Read => true,
                    Call::Write => way == Way::Up,
                    _ => false,
                };
                if is_now && let Ok(target) = targets.try_recv() {
                    chmod(&target, 0o600);
                }
            }));
            let taken = Taken { options: &[], source: "file", way, has_links: true, was_there, at: At::Read };
            let (named, [source, target]) = taken.plant(&trial);
            chmod(&source, mode);
            if was_there {
                chmod(&target, mode);
            }
            path.send(target.clone()).unwrap();
            let [from, to] = &named;
            let (result, counts) = trial.copy(&["--inplace", "-T", from, to]).await;
            let when = format!("{way:?} {was_there} {mode:o} {result:?} {counts}");
            assert_eq!(counts["done"], 1, "{when}");
            assert_eq!(fs::read(&target).unwrap(), fs::read(&source).unwrap(), "{when}");
            assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600, "{when}");
        }
    }
}

/// To replace one name of a file changes the others.
#[tokio::test]
async fn names_of_one_older_file_are_all_replaced() {
    for is_upload in [true, false] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "from", "to");
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        let all: Vec<_> = (0..40).map(|number| format!("file {number}")).collect();
        fs::write(target.join(&all[0]), "old").unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(target.join(&all[0])).unwrap().set_modified(old).unwrap();
        for name in &all {
            fs::write(source.join(name), name).unwrap();
            let _ = fs::hard_link(target.join(&all[0]), target.join(name));
        }
        let (result, counts) = trial.copy(&["-ru", "-T", &from, &to]).await;
        result.unwrap();
        assert_eq!(counts["done"], all.len(), "{counts}");
        assert!(all.iter().all(|name| fs::read(target.join(name)).unwrap() == name.as_bytes()));
    }
}
