//! Commands that remove or change, against servers that mount something else than was asked for: what was not named stays as it was.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Instant,
};

use crate::common::{nfsw, stderr};
use nfs_wire::{Procedure, Status, mount::procedure, rpc::Rejection};
use nfs_wireless_server::{
    Action, Calls, Directory, DirectoryConfig, Faults, Metadata, Mountable, Rule, Server, Service,
    ServiceConfig, When,
};

/// A server of a tree in which the same names are found at the root and further down.
struct Trial {
    place: tempfile::TempDir,
    server: Server,
}

/// Files by path, with mode and contents.
type Files = BTreeMap<PathBuf, (u32, Vec<u8>)>;

impl Trial {
    fn new(export: &str, faults: Faults) -> Self {
        let place = tempfile::tempdir().unwrap();
        let served = place.path().join("served");
        for directory in ["mount/sub/deep", "sub/deep", "deep"] {
            fs::create_dir_all(served.join(directory)).unwrap();
        }
        for directory in ["", "mount", "mount/sub", "mount/sub/deep", "sub", "sub/deep", "deep"] {
            for name in ["x", "z"] {
                fs::write(served.join(directory).join(name), format!("{name} of {directory}")).unwrap();
            }
        }
        fs::create_dir_all(place.path().join("source/deep")).unwrap();
        fs::write(place.path().join("source/x"), "another x").unwrap();
        fs::write(place.path().join("source/deep/x"), "another deep x").unwrap();
        let mut config = DirectoryConfig::default();
        config.metadata = Metadata::Cached;
        let directory = Directory::open(&served, config).unwrap();
        let mut config = ServiceConfig::default();
        config.export = export.into();
        let mut service = Service::new(config, directory, 1, Instant::now()).unwrap();
        service.set_faults(faults);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Server::bind("127.0.0.1:0".parse().unwrap(), service)).unwrap();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        Self { place, server }
    }

    /// Runs a line of words as an ordinary user.
    fn run_as_nobody(&self, line: &str) -> (Option<i32>, String) {
        let program = self.place.path().join("nfsw");
        // By another process: children of this one, made meanwhile, would hold the copy open for writing, and nobody could run it.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_nfsw")).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(self.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        // Whoever is not root runs this as who they are.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(65_534).gid(65_534);
        }
        let output = command.args(self.words(line)).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), stderr(&output))
    }

    /// Runs a line of words, where `{PATH}` stands for that path on the server and `SOURCE` for a local directory.
    fn run(&self, line: &str) -> (Option<i32>, String) {
        let output = self.output(line);
        (output.status.code(), stderr(&output))
    }

    fn output(&self, line: &str) -> Output {
        nfsw(self.words(line))
    }

    fn words(&self, line: &str) -> impl Iterator<Item = String> {
        let port = self.server.local_addr().port();
        line.split(' ').map(move |word| match word.strip_prefix('{') {
            Some(path) => {
                format!("nfs://127.0.0.1:{port}{}?mountport={port}", path.trim_end_matches('}'))
            }
            None => word.replace("SOURCE", self.place.path().join("source").to_str().unwrap()),
        })
    }

    fn files(&self) -> Files {
        fn add(files: &mut Files, root: &Path, directory: &Path) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::metadata(&path).unwrap();
                let bytes = if metadata.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
                let mode = metadata.permissions().mode();
                files.insert(path.strip_prefix(root).unwrap().to_owned(), (mode, bytes));
                if metadata.is_dir() {
                    add(files, root, &path);
                }
            }
        }
        let (mut files, root) = (Files::new(), self.place.path().join("served"));
        add(&mut files, &root, &root);
        files
    }
}

/// Everything that removes or changes, in the directory `AT`.
const COMMANDS: &[&str] = &[
    "rm -rv {AT/*}",
    "rm -r {AT/deep}",
    "rm {AT/x}",
    "rm -r {AT/deep/../deep}",
    "mv {AT/x} {AT/y}",
    "mv {AT/x} {AT/z} {AT/deep}",
    "chmod -R 700 {AT/deep}",
    "chmod 600 {AT/x} {AT/z}",
    "cp -r SOURCE/x SOURCE/deep {AT}",
    "cp SOURCE/x {AT/x}",
    "cp --inplace SOURCE/x {AT/x}",
    "cp {AT/z} {AT/x}",
    "ln {AT/x} {AT/y}",
    "ln -s x {AT/y}",
    "mkdir -p {AT/new/er}",
    "mkdir {AT/new}",
];

/// Runs every command in the directory `at`, which is `inside` of what is served. It must succeed and change something there, or, without
/// an `inside`, fail with `words` and change nothing.
fn check(export: &str, faults: &Faults, at: &str, outcome: Result<&str, (i32, &str)>) {
    for command in COMMANDS {
        let trial = Trial::new(export, faults.clone());
        let before = trial.files();
        let (code, said) = trial.run(&command.replace("AT", at));
        let after = trial.files();
        let changed: Vec<&PathBuf> = before
            .iter()
            .filter(|(path, file)| after.get(*path) != Some(*file))
            .chain(after.iter().filter(|(path, _)| !before.contains_key(*path)))
            .map(|(path, _)| path)
            .collect();
        match outcome {
            Ok(inside) => {
                assert_eq!(code, Some(0), "{command}: {said}");
                assert!(!changed.is_empty(), "{command} has done nothing");
                let outside: Vec<_> = changed.iter().filter(|path| !path.starts_with(inside)).collect();
                assert!(outside.is_empty(), "{command} has changed {outside:?}");
            }
            Err((expected, words)) => {
                assert!(changed.is_empty(), "{command} has changed {changed:?}");
                assert_eq!(code, Some(expected), "{command}: {said}");
                assert!(said.contains(words), "{command}: {words:?} is not in {said:?}");
            }
        }
    }
}

fn list_is_refused(rejection: Rejection) -> Rule {
    Rule { calls: Calls::Mount(procedure::EXPORT), when: When::Always, action: Action::Reject(rejection) }
}

/// Servers that do not tell what they export.
fn without_a_list(mountable: Mountable) -> Vec<Faults> {
    let mut all = vec![Faults::default()];
    all[0].hides_exports = true;
    for rejection in [
        Rejection::ProcedureUnavailable,
        Rejection::ProgramUnavailable,
        Rejection::VersionUnavailable,
        Rejection::ProgramMismatch { low: 1, high: 1 },
        Rejection::SystemError,
        Rejection::GarbageArguments,
    ] {
        all.push(Faults::from(vec![list_is_refused(rejection)]));
    }
    all.iter_mut().for_each(|faults| faults.mountable = mountable);
    all
}

#[test]
fn a_server_that_mounts_any_path_as_its_root_is_told_names() {
    check("/", &Faults::mounts_anything(), "/mount/sub", Ok("mount/sub"));
    check("/", &Faults::mounts_anything(), "/sub", Ok("sub"));
}

#[test]
fn a_server_that_mounts_any_path_but_the_root_is_refused() {
    let mut faults = Faults::mounts_anything();
    faults.mountable = Mountable::AnythingButRoot;
    check("/", &faults, "/mount/sub", Err((3, "the server mounts any path, ")));
}

#[test]
fn what_the_list_names_is_right_whatever_else_is_mounted() {
    let mut faults = Faults::default();
    faults.mountable = Mountable::Anything;
    check("/srv/export", &faults, "/srv/export/mount/sub", Ok("mount/sub"));
    // The root of what is exported is not `/`, by the list.
    check("/srv/export", &faults, "/mount/sub", Err((3, "the same directory for / and /srv/export;")));
}

#[test]
fn directories_that_can_be_mounted_are_no_roots() {
    for faults in without_a_list(Mountable::Directories) {
        check("/", &faults, "/mount/sub", Ok("mount/sub"));
    }
    check("/", &Faults::default(), "/mount/sub", Ok("mount/sub"));
}

#[test]
fn an_export_that_is_not_on_a_list_is_found() {
    for faults in without_a_list(Mountable::Export) {
        let trial = Trial::new("/srv/export", faults);
        let (code, said) = trial.run("rm {/srv/export/mount/sub/x}");
        assert_eq!((code, &said[..]), (Some(0), ""));
        assert!(!trial.files().contains_key(Path::new("mount/sub/x")));
        let (code, said) = trial.run("ls {/srv/other}");
        assert_eq!(code, Some(3));
        assert!(said.contains("refuses to mount /srv/other: permission denied"), "{said}");
    }
}

#[test]
fn exports_are_listed_as_the_directories_that_they_are() {
    let trial = Trial::new("/srv/export", Faults::default());
    for path in ["{/}", "{/srv}"] {
        let listed = trial.output(&format!("ls {path}"));
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "/srv/export\n", "{}", stderr(&listed));
    }
    let listed = trial.output("ls -R {/}");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("/srv/export/mount:\nsub\n"), "{listed:?}");
    // What is no directory above an export stays an error.
    assert_eq!(trial.run("ls {/sr}").0, Some(3));
}

#[test]
fn what_is_not_there_is_not_found_at_the_root() {
    let trial = Trial::new("/", Faults::mounts_anything());
    let before = trial.files();
    for command in ["rm -rv {/none/*}", "rm -r {/none/sub}", "chmod -R 700 {/none}", "mv {/none/x} {/y}"] {
        let (code, said) = trial.run(command);
        assert_eq!(code, Some(4), "{command}: {said}");
    }
    assert!(trial.files() == before);
}

#[test]
fn a_refusal_that_the_port_may_explain_says_so() {
    // A server that refuses a port does so from the first call on that is about a file.
    let rule = |calls, action| {
        let all = [calls, Calls::Procedure(Procedure::Fsinfo)];
        Faults::from(all.map(|calls| Rule { calls, when: When::Always, action }).to_vec())
    };
    let mut export_alone = Faults::default();
    (export_alone.mountable, export_alone.hides_exports) = (Mountable::Export, true);
    let too_weak = Action::Reject(Rejection::Authentication(5));
    for (faults, code) in [
        (export_alone, 3),
        (rule(Calls::Mount(procedure::MNT), too_weak), 3),
        (rule(Calls::Procedure(Procedure::Lookup), too_weak), 1),
        (rule(Calls::Procedure(Procedure::Lookup), Action::Fail(Status::PERM)), 1),
    ] {
        let trial = Trial::new("/srv", faults.clone());
        let path = if faults.hides_exports { "{/other}" } else { "{/srv/sub}" };
        let (found, said) = trial.run_as_nobody(&format!("ls {path}"));
        assert_eq!(found, Some(code), "{said}");
        for words in ["ports below 1024", "'insecure'", "setcap cap_net_bind_service=+ep"] {
            assert!(said.contains(words), "{words:?} is not in {said:?}");
        }
        // Root calls from such a port, so that this explains nothing.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            let (_, said) = trial.run(&format!("ls {path}"));
            assert!(!said.contains("1024"), "{said}");
        }
    }
}
