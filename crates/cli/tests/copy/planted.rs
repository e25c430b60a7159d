//! What others have put into a shared directory under the names that nfsw uses there: nothing of it is taken, written into or followed.

use std::{
    fs::{self, File, Permissions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{self, NOBODY, Server, as_nobody, command, needs_root, noise, stderr};

const SIZE: usize = 300 << 10;

const PART: &str = ".file.nfsw-part";

/// What somebody puts there.
type Plant = fn(&Path);

fn planted_file(path: &Path) {
    fs::write(path, vec![b'p'; SIZE]).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
}

fn planted_fifo(path: &Path) {
    assert!(Command::new("mkfifo").args(["-m", "666"]).arg(path).status().unwrap().success());
}

const PLANTS: [(&str, Plant); 7] = [
    ("a file", planted_file),
    ("a file that only they may open", |path| {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }),
    ("a fifo that only they may open", |path| {
        assert!(Command::new("mkfifo").args(["-m", "600"]).arg(path).status().unwrap().success());
    }),
    ("a fifo", planted_fifo),
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a directory with something in it", |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("content"), "").unwrap();
    }),
    ("a link", |path| symlink(path.with_file_name("elsewhere"), path).unwrap()),
];

/// A directory in which all may make files, and nobody may remove those of others.
struct Shared(tempfile::TempDir);

impl Shared {
    fn new() -> Self {
        needs_root("acts for another user");
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o1777)).unwrap();
        planted_file(&place.path().join("elsewhere"));
        Self(place)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts something there as somebody.
    fn plant(&self, name: &str, plant: Plant, owner: u32) {
        let path = self.join(name);
        plant(&path);
        std::os::unix::fs::lchown(&path, Some(owner), Some(owner)).unwrap();
    }
}

#[test]
fn a_download_takes_nothing_that_others_have_put_there() {
    let server = Server::start();
    fs::write(server.path("file"), noise(SIZE)).unwrap();
    fs::set_permissions(server.path("file"), Permissions::from_mode(0o600)).unwrap();
    for is_root in [true, false] {
        let (user, other) = if is_root { (0, NOBODY) } else { (NOBODY, 0) };
        let state = tempfile::tempdir().unwrap();
        chown(state.path(), Some(user), Some(user)).unwrap();
        for (what, plant) in PLANTS {
            let journal = &common::journal_of(user, "file")[..];
            for names in [&[PART][..], &[journal], &[PART, journal]] {
                let shared = Shared::new();
                names.iter().for_each(|name| shared.plant(name, plant, other));
                let mut held = (what == "a file" && names.contains(&PART))
                    .then(|| File::open(shared.join(PART)).unwrap());
                let (source, target) = (server.url("/file"), shared.join("file"));
                let arguments = ["cp", &source, target.to_str().unwrap()];
                let mut run = if is_root { command(arguments) } else { as_nobody(arguments) };
                let output = run.env("XDG_STATE_HOME", state.path()).output().unwrap();
                let said = stderr(&output);
                let case = format!("{what} at {names:?}, root {is_root}: {said}");
                assert!(output.status.success(), "{case}");
                assert!(fs::read(&target).unwrap() == noise(SIZE), "{case}");
                let found = fs::symlink_metadata(&target).unwrap();
                assert_eq!((found.uid(), found.mode() & 0o777, found.nlink()), (user, 0o600, 1), "{case}");
                let mut bytes = Vec::new();
                if let Some(held) = &mut held {
                    held.seek(SeekFrom::Start(0)).unwrap();
                    held.read_to_end(&mut bytes).unwrap();
                    assert!(bytes == vec![b'p'; SIZE], "{case}: the planter reads what was copied");
                }
                assert!(fs::read(shared.join("elsewhere")).unwrap() == vec![b'p'; SIZE], "{case}");
            }
        }
    }
}

/// The usual name of the partial file is somebody else's: it gets one that the next run finds.
#[test]
fn killed_runs_leave_one_partial_file_beside_that_of_another_user_and_it_is_resumed() {
    let server = Server::start();
    fs::write(server.path("file"), noise(8 * SIZE)).unwrap();
    fs::set_permissions(server.path("file"), Permissions::from_mode(0o644)).unwrap();
    let state = tempfile::tempdir().unwrap();
    chown(state.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // Whether the source is another when it is copied again, and whether the usual name is free then.
    for (is_changed, is_freed) in [(false, false), (false, true), (true, false), (true, true)] {
        let shared = Shared::new();
        fs::remove_file(shared.join("elsewhere")).unwrap();
        shared.plant(PART, planted_file, 0);
        let journal = &common::journal_of(NOBODY, "file")[..];
        let ours = || {
            let mut ours = common::names(shared.0.path());
            ours.retain(|name| !["file", PART, journal].iter().any(|other| name == other));
            ours
        };
        let arguments =
            ["--json", &server.url("/file"), shared.join("file").to_str().unwrap()].map(str::to_owned);
        for kills in 1..=2 {
            let slowly = ["cp", "--bwlimit", "4Mbit"].map(str::to_owned);
            let mut run = as_nobody(slowly.iter().chain(&arguments));
            let mut run = run.env("XDG_STATE_HOME", state.path()).stdout(Stdio::null()).spawn().unwrap();
            let written = || {
                let size = |name| fs::metadata(shared.join(name)).map_or(0, |it| it.blocks() * 512);
                ours().iter().filter_map(|name| name.to_str()).map(size).sum::<u64>()
            };
            common::until("some of it is there", || written() >= kills * 2 * SIZE as u64);
            run.kill().unwrap();
            run.wait().unwrap();
            assert_eq!(ours().len(), 1, "{:?}", ours());
        }
        if is_freed {
            fs::remove_file(shared.join(PART)).unwrap();
        }
        if is_changed {
            fs::write(server.path("file"), noise(9 * SIZE)).unwrap();
        }
        let mut run = as_nobody(["cp"].map(str::to_owned).iter().chain(&arguments));
        let output = run.env("XDG_STATE_HOME", state.path()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let has_resumed = String::from_utf8_lossy(&output.stdout).contains(r#""event":"resumed""#);
        assert_eq!(has_resumed, !is_changed, "{is_freed}");
        assert!(fs::read(shared.join("file")).unwrap() == fs::read(server.path("file")).unwrap());
        let mut left = common::names(shared.0.path());
        left.retain(|name| name != "file");
        assert_eq!(left, if is_freed { vec![] } else { vec![PART] }, "{is_changed}");
        fs::write(server.path("file"), noise(8 * SIZE)).unwrap();
    }
}

#[test]
fn a_tree_is_made_in_no_directory_of_others() {
    let server = Server::start();
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/file"), noise(SIZE)).unwrap();
    for is_root in [true, false] {
        let (user, other) = if is_root { (0, NOBODY) } else { (NOBODY, 0) };
        for (what, plant) in PLANTS {
            let shared = Shared::new();
            shared.plant(".tree.nfsw-part", plant, other);
            let (source, target) = (server.url("/tree"), shared.join("tree"));
            let arguments = ["cp", "-r", &source, target.to_str().unwrap()];
            let output = if is_root { command(arguments) } else { as_nobody(arguments) }.output().unwrap();
            let case = format!("{what}, root {is_root}: {}", stderr(&output));
            assert!(output.status.success(), "{case}");
            assert_eq!(fs::metadata(&target).unwrap().uid(), user, "{case}");
            common::assert_same_tree(&server.path("tree"), &target, false);
        }
    }
}

/// A directory in which this user may make files, and which nobody else lists; and files that their owner may write and not read.
#[test]
fn what_may_be_written_and_not_read_is_written() {
    needs_root("acts for another user");
    let server = Server::start();
    fs::create_dir(server.path("tree")).unwrap();
    for name in ["tree/large", "tree/small"] {
        fs::write(server.path(name), &noise(SIZE)[..if name == "tree/large" { SIZE } else { 1000 }]).unwrap();
        fs::set_permissions(server.path(name), Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(server.path("tree"), Permissions::from_mode(0o755)).unwrap();
    let state = tempfile::tempdir().unwrap();
    chown(state.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let run = |words: &str, at: &Path| {
        let [inside, tree, file] = ["/tree/.", "/tree", "/tree/large"].map(|path| server.url(path));
        let words = words
            .replace("TREE/.", &inside)
            .replace("TREE", &tree)
            .replace("FILE", &file)
            .replace('@', at.to_str().unwrap());
        let output = as_nobody(words.split(' ')).env("XDG_STATE_HOME", state.path()).output().unwrap();
        assert!(output.status.success(), "{words}: {}", stderr(&output));
    };
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    let is_tree = |at: &Path| {
        let same =
            |name| fs::read(at.join(name)).unwrap() == fs::read(server.path("tree").join(name)).unwrap();
        ["large", "small"].map(same) == [true; 2] && common::names(at).len() == 2
    };
    for (directory_mode, owner) in [(0o1733, 0), (0o300, NOBODY)] {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let inside = place.path().join("in");
        fs::create_dir(&inside).unwrap();
        fs::set_permissions(&inside, Permissions::from_mode(directory_mode)).unwrap();
        chown(&inside, Some(owner), Some(owner)).unwrap();
        run("cp FILE @/in/large", place.path());
        run("cp FILE @/in/large", place.path());
        run("cp -p --verify FILE @/in/", place.path());
        run("cp -r TREE @/in/tree", place.path());
        assert!(is_tree(&inside.join("tree")));
        assert_eq!(common::names(&inside), ["large", "tree"]);
        if owner == NOBODY {
            run("cp -r TREE/. @/in", place.path());
            assert_eq!(mode(&inside), directory_mode);
            fs::remove_dir_all(inside.join("tree")).unwrap();
            assert!(is_tree(&inside));
            run("cp -rpT TREE @/in", place.path());
            assert_eq!(mode(&inside), 0o755);
        }
    }
    // What the second file has in the destination, what is done, and which mode it has then.
    for (words, is_same, last) in [
        ("sync TREE @", true, 0o644),
        ("sync --delete TREE @", true, 0o644),
        ("sync -c TREE @", true, 0o644),
        ("sync TREE @", false, 0o644),
        ("cp -r TREE/. @", false, 0o200),
        ("cp --inplace FILE @/large", false, 0o200),
        ("cp --inplace -p FILE @/large", false, 0o644),
    ] {
        let place = tempfile::tempdir().unwrap();
        let (at, large) = (place.path(), place.path().join("large"));
        for name in ["large", "small"] {
            let copied = Command::new("cp").arg("-p").arg(server.path("tree").join(name)).arg(at).status();
            assert!(copied.unwrap().success());
            chown(at.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        if !is_same {
            fs::write(&large, "old").unwrap();
            File::open(&large).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&large, Permissions::from_mode(0o200)).unwrap();
        run(words, at);
        assert!(is_tree(at) && mode(&large) == last, "{words}: {:o}", mode(&large));
    }
    // Nobody may read the copy, and it is compared all the same.
    let place = tempfile::tempdir().unwrap();
    chown(place.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(place.path().join("large"), "old").unwrap();
    chown(place.path().join("large"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(place.path().join("large"), Permissions::from_mode(0o200)).unwrap();
    run("cp --verify FILE @/large", place.path());
    assert_eq!(mode(&place.path().join("large")), 0o200);
}

/// The name that an upload has on a server until it is complete, which others see while it is under way.
fn name_on_a_server(state: &Path, name: &str) -> String {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let file = here.path().join(name);
    fs::write(&file, noise(SIZE)).unwrap();
    let arguments = ["cp", "--bwlimit", "1Mbit", file.to_str().unwrap(), &server.url("/")];
    let mut copy = command(arguments).env("XDG_STATE_HOME", state).stderr(Stdio::null()).spawn().unwrap();
    common::until("the upload has begun", || common::part(&server.path(name)).exists());
    copy.kill().unwrap();
    copy.wait().unwrap();
    common::part(&server.path(name)).file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn an_upload_writes_into_nothing_that_others_have_put_there() {
    let here = tempfile::tempdir().unwrap();
    let part = name_on_a_server(here.path(), "tree");
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("tree/file"), noise(SIZE)).unwrap();
    let source = here.path().join("tree");
    for (what, plant) in PLANTS {
        let shared = Shared::new();
        shared.plant(&part, plant, NOBODY);
        let server = Server::at(shared.0.path());
        let mut copy = command(["cp", "-r", source.to_str().unwrap(), &server.url("/tree")]);
        let output = copy.env("XDG_STATE_HOME", here.path()).output().unwrap();
        let case = format!("{what}: {}", stderr(&output));
        assert!(output.status.success(), "{case}");
        assert_eq!(fs::metadata(shared.join("tree")).unwrap().uid(), 0, "{case}");
        common::assert_same_tree(&source, &shared.join("tree"), false);
    }
}

#[test]
fn a_file_on_a_server_gets_another_temporary_name_where_others_have_taken_the_usual_one() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    let part = name_on_a_server(here.path(), "file");
    for size in [10, SIZE] {
        fs::write(&file, noise(size)).unwrap();
        for (what, plant) in PLANTS {
            let server = Server::of_nobody();
            fs::set_permissions(server.root.path(), Permissions::from_mode(0o1777)).unwrap();
            chown(server.root.path(), Some(0), Some(0)).unwrap();
            planted_file(&server.path("elsewhere"));
            plant(&server.path(&part));
            let mut copy = command(["cp", file.to_str().unwrap(), &server.url("/file")]);
            let output = copy.env("XDG_STATE_HOME", here.path()).output().unwrap();
            let case = format!("{what}, {size}: {}", stderr(&output));
            assert!(output.status.success(), "{case}");
            assert!(fs::read(server.path("file")).unwrap() == noise(size), "{case}");
            assert_eq!(fs::metadata(server.path("file")).unwrap().uid(), NOBODY, "{case}");
            assert!(fs::read(server.path("elsewhere")).unwrap() == vec![b'p'; SIZE], "{case}");
            assert_eq!(common::names(server.root.path()).len(), 3, "{case}");
        }
    }
}

#[test]
fn files_of_the_user_that_others_could_have_written_are_not_read() {
    needs_root("acts for another user");
    let server = Server::start();
    fs::write(server.path("file"), "x").unwrap();
    let config: Plant = |path| fs::write(path, "[defaults]\njobs = 3\n").unwrap();
    let too_open: Plant = |path| {
        fs::write(path, "[defaults]\njobs = 3\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    };
    let devices: [(&str, Plant); 2] =
        [("a fifo", planted_fifo), ("/dev/zero", |path| symlink("/dev/zero", path).unwrap())];
    for (what, plant, owner, is_used) in [
        ("its own", config, 0, true),
        ("that of somebody else", config, NOBODY, false),
        ("one that others may write", too_open, 0, false),
    ]
    .into_iter()
    .chain(devices.map(|(what, plant)| (what, plant, 0, false)))
    {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("nfsw");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        for name in ["config.toml", "paths.json", "servers.json"] {
            plant(&directory.join(name));
            std::os::unix::fs::lchown(directory.join(name), Some(owner), Some(owner)).unwrap();
        }
        let run = |variable: &str| {
            let mut run = command(["cat", &server.url("/file")]);
            run.env(variable, home.path()).output().unwrap()
        };
        let output = run("XDG_CONFIG_HOME");
        assert_eq!(output.status.success(), is_used, "{what}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), usize::from(!is_used), "{what}: {}", stderr(&output));
        // A cache is only a cache.
        let output = run("XDG_CACHE_HOME");
        assert!(output.status.success(), "{what}: {}", stderr(&output));
        let lines = stderr(&output).lines().count();
        assert_eq!(lines, usize::from(!is_used), "{what}: {}", stderr(&output));
    }
}

#[test]
fn streams_and_links_get_another_temporary_name_on_a_server_too() {
    let here = tempfile::tempdir().unwrap();
    let (file, link) = (here.path().join("stream"), here.path().join("link"));
    fs::write(&file, noise(SIZE)).unwrap();
    symlink("new", &link).unwrap();
    for (what, plant) in PLANTS {
        let server = Server::of_nobody();
        symlink("old", server.path("file")).unwrap();
        std::os::unix::fs::lchown(server.path("file"), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(server.root.path(), Permissions::from_mode(0o1777)).unwrap();
        chown(server.root.path(), Some(0), Some(0)).unwrap();
        planted_file(&server.path("elsewhere"));
        plant(&server.path(PART));
        let output = command(["cp", "-P", link.to_str().unwrap(), &server.url("/file")]).output().unwrap();
        assert!(output.status.success(), "{what}: {}", stderr(&output));
        assert_eq!(fs::read_link(server.path("file")).unwrap(), Path::new("new"), "{what}");
        fs::remove_file(server.path("file")).unwrap();
        let mut run = command(["cp", "-", &server.url("/file")]);
        let output = run.stdin(File::open(&file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{what}: {}", stderr(&output));
        assert!(fs::read(server.path("file")).unwrap() == noise(SIZE), "{what}");
        assert!(fs::read(server.path("elsewhere")).unwrap() == vec![b'p'; SIZE], "{what}");
        assert_eq!(common::names(server.root.path()).len(), 3, "{what}");
    }
}

#[test]
fn a_directory_with_the_mark_of_somebody_else_is_not_completed() {
    let server = Server::start();
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/file"), "x").unwrap();
    for (owner, code) in [(NOBODY, 1), (0, 0)] {
        let shared = Shared::new();
        shared.plant("tree", |path| fs::create_dir(path).unwrap(), owner);
        shared.plant("tree/.nfsw-incomplete", |path| fs::write(path, "").unwrap(), owner);
        let target = shared.join("tree");
        let output = command(["cp", "-r", &server.url("/tree"), target.to_str().unwrap()]).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{owner}: {said}");
        assert_eq!(target.join("file").exists(), code == 0, "{owner}: {said}");
        if code != 0 {
            assert!(said.contains(".nfsw-incomplete in it is not known to be made by this user"), "{said}");
            assert_eq!(common::names(&target), [".nfsw-incomplete"], "{said}");
        }
    }
}

#[test]
fn a_directory_on_a_server_with_the_mark_of_somebody_else_is_not_completed() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("README"), "of the tree").unwrap();
    let arguments = |target: &str| ["cp", "-r", tree.to_str().unwrap(), target].map(str::to_owned);
    // What this user's own mark looks like, without the seal.
    let own = format!("{}\n0123456789abcdef", tree.display());
    let marks = ["", own.as_str(), &format!("{own}\n{}", "0".repeat(64)), "/another\n0123456789abcdef"];
    for mark in marks {
        let shared = server.path("shared");
        fs::create_dir(&shared).unwrap();
        fs::write(shared.join("README"), "of all").unwrap();
        fs::write(shared.join(".nfsw-incomplete"), mark).unwrap();
        let output = command(arguments(&server.url("/shared"))).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{mark:?}: {said}");
        assert!(said.contains(".nfsw-incomplete in it is not known to be made by this user"), "{said}");
        assert_eq!(fs::read_to_string(shared.join("README")).unwrap(), "of all");
        assert_eq!(common::names(&shared), [".nfsw-incomplete", "README"], "{mark:?}: {said}");
        fs::remove_dir_all(&shared).unwrap();
    }
}

/// Whose a directory is, what others may do there, what they may do around it, and whether it is used.
const DIRECTORIES: [(u32, u32, u32, bool); 5] = [
    (0, 0o700, 0o755, true),
    (0, 0o700, 0o1777, true),
    (0, 0o700, 0o777, false),
    (0, 0o777, 0o755, false),
    (NOBODY, 0o700, 0o755, false),
];

/// Makes a directory in another one.
fn made(path: &Path, (owner, mode, around, _): (u32, u32, u32, bool)) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(around)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
}

#[test]
#[cfg(mount)]
fn caches_and_sockets_are_refused_where_others_could_have_put_them() {
    needs_root("acts for another user");
    for row in DIRECTORIES {
        let place = tempfile::tempdir().unwrap();
        let (cache, sockets) = (place.path().join("around/cache"), place.path().join("nfsw/mounts"));
        made(&cache, row);
        made(&sockets, row);
        for arguments in [&["cache", "ls", "--cache", cache.to_str().unwrap()][..], &["mount", "--status"]] {
            let output = command(arguments).env("XDG_RUNTIME_DIR", place.path()).output().unwrap();
            let said = stderr(&output);
            let case = format!("{row:?}, {arguments:?}: {said}");
            assert_eq!(output.status.code(), Some(if row.3 { 0 } else { 7 }), "{case}");
            assert_eq!(said.contains("belongs to somebody else, or others may write it"), !row.3, "{case}");
            assert!(row.3 || said.lines().count() == 1, "{case}");
        }
    }
}

#[test]
fn nothing_is_written_into_or_removed_from_a_directory_of_somebody_else() {
    let server = Server::start();
    fs::write(server.path("file"), "x").unwrap();
    for (owner, is_used) in [(0, true), (NOBODY, false)] {
        // As where root has the home of another user, who has put links there.
        for is_link in [false, true] {
            let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let cache = home.path().join("nfsw");
            let old = elsewhere.path().join("old");
            fs::write(&old, "").unwrap();
            let long_ago = std::time::SystemTime::UNIX_EPOCH;
            File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
            if is_link {
                symlink(elsewhere.path(), &cache).unwrap();
                fs::create_dir(elsewhere.path().join("completions")).unwrap();
                fs::rename(&old, elsewhere.path().join("completions/old")).unwrap();
            }
            for path in [home.path(), elsewhere.path()] {
                fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
                chown(path, Some(owner), Some(owner)).unwrap();
            }
            let mut run = command([""; 0]);
            run.env("XDG_CACHE_HOME", home.path()).env("NFSW_COMPLETE_LIST", server.url("/"));
            assert!(run.output().unwrap().status.success());
            let case = format!("{owner}, a link {is_link}");
            if is_link {
                assert_eq!(elsewhere.path().join("completions/old").exists(), !is_used, "{case}");
            } else {
                assert_eq!(cache.exists(), is_used, "{case}");
            }
        }
    }
}

#[test]
fn what_leads_from_the_home_of_somebody_else_is_not_followed() {
    needs_root("acts for another user");
    let server = Server::start();
    fs::write(server.path("file"), "x").unwrap();
    for place in [
        ".cache",
        ".cache/nfsw",
        ".cache/nfsw/completions",
        ".cache/nfsw/mount",
        ".local/state",
        ".local/state/nfsw",
        ".local/state/nfsw/mounts",
    ] {
        // This user's directory, with something that is old enough to go from a cache.
        let own = tempfile::tempdir().unwrap();
        let old = File::create(own.path().join("old")).unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let link = home.path().join(place);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(own.path(), &link).unwrap();
        let given = Command::new("chown").args(["-R", "-h", &NOBODY.to_string()]).arg(home.path()).status();
        assert!(given.unwrap().success());
        let run = |words: &[&str], asks: (&str, &str)| {
            let mut run = command(words);
            for variable in ["XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
                run.env_remove(variable);
            }
            run.env("HOME", home.path()).env(asks.0, asks.1).output().unwrap()
        };
        let url = server.url("/");
        run(&["--", "nfsw", "ls", &url], ("NFSW_COMPLETE", "fish"));
        run(&[], ("NFSW_COMPLETE_LIST", &url));
        let source = own.path().join("old");
        let copied = run(&["cp", source.to_str().unwrap(), &server.url("/copy")], ("NFSW_LOG", "off"));
        assert!(copied.status.success(), "{place}: {}", stderr(&copied));
        run(&["mount", "status"], ("NFSW_LOG", "off"));
        run(&["cache", "ls"], ("NFSW_LOG", "off"));
        assert_eq!(common::names(own.path()), ["old"], "{place}");
        assert_eq!(common::names(link.parent().unwrap()).len(), 1, "{place}");
    }
}
