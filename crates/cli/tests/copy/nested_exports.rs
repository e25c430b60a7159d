//! Exports within an export: whatever walks through a tree goes on in them as the users of the server do, or says that it does not and
//! leaves alone what is there.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
    time::{Instant, SystemTime},
};

use crate::common::{nfsw, stderr};
use nfs_wireless_server::{
    Directory, DirectoryConfig, Faults, InnerExport, Metadata, Mountable, Server, Service, ServiceConfig,
};

/// What a server says of its inner exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They are on the list, and can be mounted.
    Listed,
    /// They can be mounted, and there is no list.
    Unlisted,
    /// They are on the list, and are refused.
    Refused,
    /// They are refused, and there is no list.
    UnlistedRefused,
}

use Kind::{Listed, Refused, Unlisted, UnlistedRefused};

impl Kind {
    const ALL: [Self; 4] = [Listed, Unlisted, Refused, UnlistedRefused];

    fn is_entered(self) -> bool {
        matches!(self, Listed | Unlisted)
    }
}

/// A server that exports `/srv`, and two file systems that are mounted on `top/n1` and `top/sub/n2` in it.
struct Trial {
    place: tempfile::TempDir,
    server: Server,
}

/// What is on the server, at the paths by which its own users see it.
const SEEN: [&str; 5] = ["plain", "n1/x", "n1/deep/y", "sub/beside", "sub/n2/x"];

impl Trial {
    fn new(kind: Kind) -> Self {
        Self::with(kind, |_| {})
    }

    /// As [`Trial::new`], after a change to what is stored.
    fn with(kind: Kind, change: impl FnOnce(&Path)) -> Self {
        let place = tempfile::tempdir().unwrap();
        let served = place.path().join("served");
        for directory in ["top/n1", "top/sub/n2", "mounted/n1/deep", "mounted/n2"] {
            fs::create_dir_all(served.join(directory)).unwrap();
        }
        for file in ["top/plain", "top/sub/beside", "mounted/n1/x", "mounted/n1/deep/y", "mounted/n2/x"] {
            fs::write(served.join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("n1/deep", served.join("top/link")).unwrap();
        change(&served);
        let mut config = DirectoryConfig::default();
        config.metadata = Metadata::Cached;
        let directory = Directory::open(&served, config).unwrap();
        let mut config = ServiceConfig::default();
        config.export = b"/srv".to_vec();
        let mut service = Service::new(config, directory, 1, Instant::now()).unwrap();
        let mut faults = Faults::default();
        faults.hides_exports = matches!(kind, Unlisted | UnlistedRefused);
        faults.inner_exports = [("/srv/top/n1", "mounted/n1"), ("/srv/top/sub/n2", "mounted/n2")]
            .map(|(path, stored)| InnerExport {
                path: path.into(),
                stored: stored.into(),
                is_refused: !kind.is_entered(),
                ..InnerExport::default()
            })
            .to_vec();
        service.set_faults(faults);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Server::bind("127.0.0.1:0".parse().unwrap(), service)).unwrap();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self { place, server }
    }

    /// Lets MNT take another path for `/srv/top` and what is in it, which is not on the list.
    fn add_alias(&self, kind: Kind, alias: &str) {
        self.server.with_service(|service| {
            let mut faults = Faults::default();
            let paths = |top: &str| {
                [("", "top"), ("/n1", "mounted/n1"), ("/sub/n2", "mounted/n2")]
                    .map(|(below, stored)| (format!("{top}{below}"), stored))
            };
            let known = paths("/srv/top").into_iter().skip(1).map(|it| (it, false));
            let unlisted = paths(alias).into_iter().map(|it| (it, true));
            faults.inner_exports = known
                .chain(unlisted)
                .map(|((path, stored), is_unlisted)| InnerExport {
                    is_refused: !kind.is_entered() && stored != "top",
                    path: path.into_bytes(),
                    stored: stored.into(),
                    is_unlisted,
                })
                .collect();
            service.set_faults(faults);
        });
    }

    fn url(&self, path: &str) -> String {
        let port = self.server.local_addr().port();
        format!("nfs://127.0.0.1:{port}/srv{path}?mountport={port}")
    }

    /// Runs a line of words, where `{PATH}` stands for that path below `/srv` and `@` for a local directory.
    fn run(&self, line: &str) -> (bool, String, String) {
        let local = self.place.path().to_str().unwrap();
        let words = line.split(' ').map(|word| match word.strip_prefix('{') {
            Some(path) => self.url(path.trim_end_matches('}')),
            None => word.replace('@', local).replace("ALIAS", &self.url("").replace("/srv?", "/alias?")),
        });
        let output = nfsw(words);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), printed, stderr(&output))
    }

    fn make(&self, path: &str) {
        let path = self.place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "local").unwrap();
        // Older than what the server has.
        fs::File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }

    /// The files below a local directory.
    fn files(&self, directory: &str) -> BTreeSet<String> {
        fn add(all: &mut BTreeSet<String>, root: &Path, directory: &Path) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if fs::symlink_metadata(&path).unwrap().is_dir() {
                    add(all, root, &path);
                } else if path.is_file() && !path.is_symlink() {
                    all.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let (mut all, root) = (BTreeSet::new(), self.place.path().join(directory));
        add(&mut all, &root, &root);
        all
    }

    /// Nothing was written below what is mounted, and the mount points are there.
    fn check_covered(&self) {
        for covered in ["served/top/n1", "served/top/sub/n2"] {
            assert_eq!(self.files(covered), BTreeSet::new(), "{covered}");
            assert!(self.place.path().join(covered).is_dir(), "{covered}");
        }
    }
}

/// A refusal is told once for each mount point, and names it.
fn check_told(kind: Kind, said: &str) {
    for name in ["n1", "n2"] {
        let lines = said.lines().filter(|line| line.contains(&format!("/{name}: is an export of its own")));
        assert_eq!(lines.count(), 1, "{kind:?}, {name}: {said}");
    }
}

#[test]
fn a_copy_goes_on_in_inner_exports_or_says_that_it_does_not() {
    for kind in Kind::ALL {
        for command in ["cp -q -r {/top} @/down", "sync -q {/top} @/down", "cp -r --verify {/top} @/down"] {
            let trial = Trial::new(kind);
            let (is_done, _, said) = trial.run(command);
            let wanted = SEEN
                .iter()
                .filter(|path| kind.is_entered() || !path.contains("n1/") && !path.contains("n2/"));
            let wanted: BTreeSet<String> = wanted.map(|path| (*path).to_owned()).collect();
            let mut copied = trial.files("down");
            copied.remove(".nfsw-incomplete");
            assert_eq!(copied, wanted, "{kind:?} {command}: {said}");
            assert_eq!(is_done, kind.is_entered(), "{kind:?} {command}: {said}");
            if !is_done {
                check_told(kind, &said);
            }
        }
    }
}

#[test]
fn one_file_system_ends_at_inner_exports_whether_they_can_be_entered_or_not() {
    for kind in Kind::ALL {
        for command in ["cp -q -r -x {/top} @/local", "sync -q --one-file-system --delete {/top} @/local"] {
            let trial = Trial::new(kind);
            if command.starts_with("sync") {
                trial.make("local/n1/mine");
                trial.make("local/more");
            }
            let (is_done, _, said) = trial.run(command);
            assert!(is_done, "{kind:?} {command}: {said}");
            let mut wanted = vec!["plain", "sub/beside"];
            if command.starts_with("sync") {
                wanted.push("n1/mine");
            }
            let wanted: BTreeSet<_> = wanted.into_iter().map(str::to_owned).collect();
            assert_eq!(trial.files("local"), wanted, "{kind:?} {command}: {said}");
        }
    }
}

#[test]
fn a_sync_deletes_nothing_that_is_in_an_inner_export() {
    for kind in Kind::ALL {
        let trial = Trial::new(kind);
        for path in SEEN {
            trial.make(&format!("local/{path}"));
        }
        let (is_done, _, said) = trial.run("sync --delete {/top} @/local");
        let left = trial.files("local");
        assert!(SEEN.iter().all(|path| left.contains(*path)), "{kind:?}: {left:?} {said}");
        assert_eq!(is_done, kind.is_entered(), "{kind:?}: {said}");
        // What the server does not have goes all the same, where everything could be listed.
        trial.make("local/n1/more");
        trial.run("sync --delete {/top} @/local");
        assert_eq!(trial.files("local").contains("n1/more"), !kind.is_entered(), "{kind:?}");
    }
}

#[test]
fn a_path_that_is_not_on_the_list_leads_into_inner_exports_too() {
    for kind in [Listed, Refused] {
        let trial = Trial::new(kind);
        trial.add_alias(kind, "/alias");
        for path in SEEN {
            trial.make(&format!("local/{path}"));
        }
        let (is_done, _, said) = trial.run("sync -q --delete ALIAS @/local");
        let left = trial.files("local");
        assert!(SEEN.iter().all(|path| left.contains(*path)), "{kind:?}: {left:?} {said}");
        assert_eq!(is_done, kind.is_entered(), "{kind:?}: {said}");
        let (is_done, _, said) = trial.run("cp -q -r ALIAS @/down");
        assert_eq!(is_done, kind.is_entered(), "{kind:?}: {said}");
        let down = trial.files("down");
        assert!(SEEN.iter().all(|path| down.contains(*path)) || !is_done, "{kind:?}: {down:?} {said}");
        trial.make("up/n1/new");
        let (is_done, _, said) = trial.run("cp -q -r @/up/. ALIAS");
        assert_eq!(is_done, kind.is_entered(), "{kind:?}: {said}");
        assert_eq!(trial.files("served/mounted/n1").contains("new"), kind.is_entered(), "{kind:?}: {said}");
        trial.check_covered();
    }
}

#[test]
fn what_lies_below_a_mount_point_is_not_what_is_there() {
    for kind in [Listed, Refused, Unlisted] {
        let trial = Trial::with(kind, |served| fs::write(served.join("top/n1/below"), "below").unwrap());
        for path in SEEN {
            trial.make(&format!("local/{path}"));
        }
        let (is_done, _, said) = trial.run("sync --delete {/top} @/local");
        let left = trial.files("local");
        assert!(SEEN.iter().all(|path| left.contains(*path)), "{kind:?}: {left:?} {said}");
        assert!(!left.contains("n1/below"), "{kind:?}");
        assert_eq!(is_done, kind.is_entered(), "{kind:?}: {said}");
        trial.make("up/n1/new");
        let (is_done, _, said) = trial.run("cp -q -rT @/up {/top}");
        assert_eq!(trial.files("served/top/n1"), BTreeSet::from(["below".to_owned()]), "{kind:?}: {said}");
        assert_eq!(is_done, kind.is_entered(), "{kind:?}: {said}");
    }
}

#[test]
fn single_files_land_in_the_inner_export_or_nowhere() {
    for kind in Kind::ALL {
        for command in [
            "cp @/up/n1/new {/top/n1/new}",
            "cp @/up/n1/new {/top/n1/}",
            "cp @/up/n1/new {/top/n1}",
            "cp @/up/n1/new {/top/link/new}",
            "cp -r @/up/n1/. {/top/n1}",
            "sync --files-from @/list @/up {/top}",
        ] {
            let trial = Trial::new(kind);
            trial.make("up/n1/new");
            fs::write(trial.place.path().join("list"), "n1/new\n").unwrap();
            let (is_done, _, said) = trial.run(command);
            trial.check_covered();
            let there = trial.files("served/mounted/n1");
            let is_there = there.iter().any(|path| path == "new" || path == "deep/new");
            assert_eq!(is_there, is_done, "{kind:?} {command}: {there:?} {said}");
            // Where two directories have a path, and nothing tells which one is meant, it is not guessed.
            let is_refused = said.contains("it is unknown which files are meant") && kind == Unlisted;
            assert!(is_done == kind.is_entered() || is_refused, "{kind:?} {command}: {said}");
        }
    }
}

#[test]
fn an_upload_lands_in_the_inner_export() {
    for kind in Kind::ALL {
        for command in ["cp -q -rT @/up {/top}", "sync -q @/up {/top}", "cp -q -r @/up/. {/top/}"] {
            let trial = Trial::new(kind);
            trial.make("up/n1/new");
            trial.make("up/n1/further/new");
            trial.make("up/sub/n2/new");
            trial.make("up/also");
            let (is_done, _, said) = trial.run(command);
            trial.check_covered();
            let there = trial.files("served");
            assert!(there.contains("top/also"), "{kind:?}: {there:?} {said}");
            for path in ["mounted/n1/new", "mounted/n1/further/new", "mounted/n2/new"] {
                assert_eq!(there.contains(path), kind.is_entered(), "{kind:?} {command} {path}: {said}");
            }
            assert_eq!(is_done, kind.is_entered(), "{kind:?} {command}: {said}");
        }
    }
}

#[test]
fn a_sync_to_a_server_deletes_no_file_system() {
    for kind in Kind::ALL {
        let trial = Trial::new(kind);
        trial.make("up/plain");
        let (is_done, _, said) = trial.run("sync --delete @/up {/top}");
        trial.check_covered();
        let there = trial.files("served/mounted");
        assert!(["n1/x", "n1/deep/y", "n2/x"].iter().all(|path| there.contains(*path)), "{kind:?}: {said}");
        assert!(!is_done, "{kind:?}: {said}");
    }
}

#[test]
fn listings_patterns_and_links_lead_into_inner_exports() {
    for kind in [Listed, Unlisted] {
        let trial = Trial::new(kind);
        for (command, wanted) in [
            ("ls -R {/top}", "deep\nx\n"),
            ("ls -R {/top}", "/srv/top/n1/deep:\ny\n"),
            ("ls {/top/n1}", "deep\nx\n"),
            ("ls -R {/top/sub}", "/n2:\nx\n"),
            ("cat {/top/n1/deep/y}", "mounted/n1/deep/y"),
        ] {
            let (is_done, printed, said) = trial.run(command);
            if kind == Unlisted && !command.contains("-R") {
                // Two directories have this path, and nothing tells which one is meant.
                assert!(
                    !is_done && said.contains("it is unknown which files are meant"),
                    "{command}: {said}"
                );
                continue;
            }
            assert!(is_done && printed.contains(wanted), "{kind:?} {command}: {printed} {said}");
        }
    }
    let trial = Trial::new(Listed);
    for (command, wanted) in [
        ("cat {/top/link/y}", "mounted/n1/deep/y"),
        ("cat {/top/*/x}", "mounted/n1/x"),
        ("cat {/top/*/deep/*}", "mounted/n1/deep/y"),
        ("cat {/top/sub/../n1/x}", "mounted/n1/x"),
        ("cat {/top/sub/n[12]/x}", "mounted/n2/x"),
        ("stat --json {/top/n1}", "\"/srv/top/n1\""),
    ] {
        let (is_done, printed, said) = trial.run(command);
        assert!(is_done && printed.contains(wanted), "{command}: {printed} {said}");
    }
    for kind in [Refused, UnlistedRefused] {
        let (is_done, printed, said) = Trial::new(kind).run("ls -R {/top}");
        assert!(!is_done && printed.contains("beside"), "{kind:?}: {printed} {said}");
        check_told(kind, &said);
    }
}

#[test]
fn commands_that_change_go_on_in_inner_exports() {
    let trial = Trial::new(Listed);
    let (is_done, _, said) = trial.run("mkdir -p {/top/n1/new/er}");
    assert!(is_done && trial.place.path().join("served/mounted/n1/new/er").is_dir(), "{said}");
    let mode = |path: &str| fs::metadata(trial.place.path().join(path)).unwrap().permissions().mode() & 0o777;
    let (is_done, _, said) = trial.run("chmod -R 700 {/top}");
    assert!(is_done, "{said}");
    assert_eq!((mode("served/mounted/n1"), mode("served/mounted/n1/deep/y")), (0o700, 0o700));
    let (is_done, _, said) = trial.run("mv {/top/n1} {/top/other}");
    assert!(!is_done, "{said}");
    trial.check_covered();
    let (is_done, _, said) = trial.run("rm -r {/top}");
    trial.check_covered();
    assert_eq!(trial.files("served"), BTreeSet::new());
    assert!(!is_done && said.contains("/top/n1: is an export of its own"), "{said}");
}

#[test]
fn commands_that_change_leave_a_refused_export_alone() {
    for kind in [Refused, UnlistedRefused] {
        for command in [
            "rm -r {/top}",
            "chmod -R 700 {/top}",
            "chmod -R 700 {/top/n1}",
            "rm -r {/top/n1}",
            "mkdir -p {/top/n1/new}",
            "mkdir {/top/n1/new}",
            "mv {/top/n1} {/top/other}",
            "mv {/top/plain} {/top/n1/plain}",
            "ls {/top/n1}",
            "ls {/top/*/}",
            "cat {/top/n1/x}",
        ] {
            let trial = Trial::new(kind);
            let mode = || {
                let covered = trial.place.path().join("served/top/n1");
                fs::metadata(covered).unwrap().permissions().mode()
            };
            let before = mode();
            let (is_done, _, said) = trial.run(command);
            trial.check_covered();
            assert!(!is_done, "{kind:?} {command}: {said}");
            assert_eq!(mode(), before, "{kind:?} {command}");
        }
    }
}

#[test]
fn an_empty_directory_is_empty_on_servers_without_inner_exports() {
    for mountable in [Mountable::Directories, Mountable::Export, Mountable::Anything] {
        for hides_exports in [false, true] {
            let trial = Trial::new(Listed);
            let mut faults = Faults::default();
            (faults.mountable, faults.hides_exports) = (mountable, hides_exports);
            if mountable == Mountable::Anything && hides_exports {
                continue;
            }
            trial.server.with_service(|service| service.set_faults(faults));
            let (is_done, _, said) = trial.run("cp -r {/top} @/down");
            assert!(is_done, "{mountable:?} {hides_exports}: {said}");
            assert!(trial.place.path().join("down/n1").is_dir());
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_mount_goes_on_in_inner_exports_or_refuses_to() {
    for (kind, path) in [(Listed, "/top"), (Listed, ""), (Unlisted, "/top"), (Unlisted, "")] {
        let trial = Trial::new(kind);
        let mut view = crate::mounted::Mount::at(&trial.url(path), &[]);
        for _ in 0..2 {
            let top = if path.is_empty() { view.path("top") } else { view.path.clone() };
            for file in ["n1/x", "n1/deep/y", "sub/n2/x"] {
                assert_eq!(
                    fs::read_to_string(top.join(file)).unwrap(),
                    format!("mounted/{}", file.replace("sub/", ""))
                );
            }
            let names = |path: &str| {
                let entries = fs::read_dir(top.join(path)).unwrap();
                entries
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect::<BTreeSet<_>>()
            };
            assert_eq!(names("n1"), BTreeSet::from(["deep", "x"].map(String::from)));
            assert_eq!(names("sub/n2"), BTreeSet::from(["x".to_owned()]));
            assert_eq!(fs::read_to_string(top.join("link/y")).unwrap(), "mounted/n1/deep/y");
            // With what it has kept, too.
            view.end(rustix::process::Signal::TERM);
            view.again(&trial.url(path), &[]);
        }
        view.end(rustix::process::Signal::TERM);
    }
    for kind in [Refused, UnlistedRefused] {
        let trial = Trial::new(kind);
        let mut view = crate::mounted::Mount::at(&trial.url("/top"), &[]);
        assert_eq!(fs::read_to_string(view.path("plain")).unwrap(), "top/plain");
        for inner in ["n1", "sub/n2"] {
            let error =
                fs::read_dir(view.path(inner)).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
            let kind_of = |error: std::io::Error| (kind, inner, error.kind());
            let denied = (kind, inner, std::io::ErrorKind::PermissionDenied);
            assert_eq!(kind_of(error.unwrap_err()), denied);
            assert_eq!(kind_of(fs::read(view.path(inner).join("x")).unwrap_err()), denied);
        }
        view.end(rustix::process::Signal::TERM);
    }
}
