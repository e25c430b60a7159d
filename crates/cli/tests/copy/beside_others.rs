//! Runs beside those of others: of this user, and of other users in a directory that they share.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::common::{
    self, NOBODY, Server, as_user, command, journal_of, names, needs_root, noise, part, stderr, until,
};

const SIZE: usize = 4 << 20;

/// What a run is asked for, so that it is slow enough to be interrupted.
const SLOWLY: [&str; 3] = ["cp", "--bwlimit", "16Mbit"];

/// Another user, who is not root either.
const OTHER: u32 = 1234;

/// Who copies, with a state directory of their own.
struct User {
    id: u32,
    state: tempfile::TempDir,
}

impl User {
    fn new(id: u32) -> Self {
        let state = tempfile::tempdir().unwrap();
        if id != 0 {
            needs_root("acts for another user");
            chown(state.path(), Some(id), Some(id)).unwrap();
        }
        Self { id, state }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = if self.id == 0 { command(arguments) } else { as_user(self.id, arguments) };
        command.env("XDG_STATE_HOME", self.state.path());
        command
    }

    fn begins(&self, arguments: &[&str]) -> Child {
        self.command(&[&SLOWLY, arguments].concat()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Copies until some of it is there, and is killed.
    fn is_killed(&self, arguments: &[&str], is_there: impl Fn() -> bool) {
        let mut copy = self.begins(arguments);
        until("some of it is there", is_there);
        copy.kill().unwrap();
        assert!(!copy.wait().unwrap().success(), "it was done before it could be killed");
    }

    /// Copies, and whether that resumed what an earlier run has left.
    fn resumes(&self, arguments: &[&str]) -> bool {
        let output = self.command(&[&["cp", "--json"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stderr(&output).contains("cannot be resumed"), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).contains(r#""event":"resumed""#)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes of a file that is being written.
fn bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |it| it.blocks() * 512)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A directory for all users.
fn shared(mode: u32) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    set_mode(place.path(), mode);
    place
}

#[test]
fn an_upload_is_resumed_while_another_run_has_the_number_of_the_killed_one() {
    let (server, here, user) = (Server::start(), tempfile::tempdir().unwrap(), User::new(0));
    let [file, other] = ["file", "other"].map(|name| here.path().join(name));
    fs::write(&file, noise(SIZE)).unwrap();
    fs::write(&other, noise(4 * SIZE)).unwrap();
    let [to, elsewhere] = ["/copy", "/elsewhere"].map(|path| server.url(path));
    user.is_killed(&[text(&file), &to], || bytes(&part(&server.path("copy"))) >= SIZE as u64 / 2);
    let left = part(&server.path("copy"));
    let mut unrelated = user.begins(&[text(&other), &elsewhere]);
    until("the other has begun", || part(&server.path("elsewhere")).exists());
    let tag = |path: &Path| text(path).rsplit('-').next().unwrap().to_owned();
    assert_eq!(tag(&left), tag(&part(&server.path("elsewhere"))), "the test is about runs with one number");
    assert!(user.resumes(&[text(&file), &to]));
    assert!(fs::read(server.path("copy")).unwrap() == noise(SIZE));
    assert!(!left.exists());
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

#[test]
fn a_download_is_resumed_while_another_run_has_the_number_of_the_killed_one() {
    let (server, user) = (Server::start(), User::new(NOBODY));
    let place = shared(0o1777);
    for name in ["file", "other"] {
        fs::write(server.path(name), noise(if name == "file" { SIZE } else { 4 * SIZE })).unwrap();
    }
    // The usual names are those of somebody else.
    for name in [".file.nfsw-part", ".other.nfsw-part"] {
        fs::write(place.path().join(name), "another").unwrap();
    }
    let spare = |name: &str| -> Option<PathBuf> {
        let begins = format!(".{name}.nfsw-part-");
        let all = names(place.path());
        let found = all.iter().find(|it| it.to_str().unwrap().starts_with(&begins));
        found.map(|it| place.path().join(it))
    };
    let [from, other] = ["/file", "/other"].map(|path| server.url(path));
    let [to, elsewhere] = ["file", "other"].map(|name| place.path().join(name));
    user.is_killed(&[&from, text(&to)], || spare("file").is_some_and(|it| bytes(&it) >= SIZE as u64 / 2));
    let mut unrelated = user.begins(&[&other, text(&elsewhere)]);
    until("the other has begun", || spare("other").is_some());
    assert!(user.resumes(&[&from, text(&to)]));
    assert!(fs::read(&to).unwrap() == noise(SIZE));
    assert_eq!(spare("file"), None);
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

#[test]
fn in_a_shared_directory_the_runs_of_each_user_are_resumed() {
    let server = Server::start();
    fs::write(server.path("file"), noise(SIZE)).unwrap();
    set_mode(&server.path("file"), 0o644);
    let users = [NOBODY, OTHER].map(User::new);
    let url = server.url("/file");
    for shared_mode in [0o777, 0o1777] {
        let place = shared(shared_mode);
        let to = place.path().join("file");
        let parts_of = |user: &User| -> u64 {
            let all = fs::read_dir(place.path()).unwrap().flatten();
            let parts = all.filter(|it| it.file_name().to_str().unwrap().contains("nfsw-part"));
            let metadata = parts.filter_map(|it| it.metadata().ok());
            metadata.filter(|it| it.uid() == user.id).map(|it| it.blocks() * 512).sum()
        };
        let half = |user| parts_of(user) >= SIZE as u64 / 2;
        let [one, other] = &users;
        // One is under way while the other is killed and resumed, and has its own partial file and journal after that.
        let mut copy = one.begins(&["--bwlimit", "8Mbit", &url, text(&to)]);
        until("the first has begun", || parts_of(one) > 1 << 20);
        other.is_killed(&[&url, text(&to)], || half(other));
        copy.kill().unwrap();
        copy.wait().unwrap();
        assert_eq!(names(place.path()).len(), 4, "{:?}", names(place.path()));
        assert!(other.resumes(&[&url, text(&to)]), "{shared_mode:o}");
        assert_eq!(names(place.path()).len(), 3, "{:?}", names(place.path()));
        // Nor does a copy without a journal.
        let output = other.command(&["cp", "--no-resume", &url, text(&to)]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(names(place.path()).len(), 3, "{:?}", names(place.path()));
        // What has the name now may be replaced only where the directory lets them.
        if shared_mode == 0o1777 {
            fs::remove_file(&to).unwrap();
        }
        assert!(one.resumes(&[&url, text(&to)]), "{shared_mode:o}");
        assert_eq!(names(place.path()), ["file"]);
        assert!(fs::read(&to).unwrap() == noise(SIZE));
    }
}

#[test]
fn a_journal_that_cannot_be_kept_is_told() {
    let (server, user) = (Server::start(), User::new(NOBODY));
    fs::write(server.path("file"), noise(SIZE / 4)).unwrap();
    let place = shared(0o1777);
    let journal = place.path().join(journal_of(NOBODY, "file"));
    fs::write(&journal, "planted").unwrap();
    let output =
        user.command(&["cp", &server.url("/file"), text(&place.path().join("file"))]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("cannot be resumed") && said.contains(text(&journal)), "{said}");
    assert_eq!(fs::read(&journal).unwrap(), b"planted");
}

#[test]
fn what_is_resumed_is_readable_by_no_more_than_what_it_replaces() {
    let (server, here, user) = (Server::start(), tempfile::tempdir().unwrap(), User::new(0));
    let [far, near] = [server.path("file"), here.path().join("file")];
    let url = server.url("/file");
    for (from, to, source, target) in [(&url[..], text(&near), &far, &near), (text(&near), &url, &near, &far)]
    {
        fs::write(source, noise(SIZE)).unwrap();
        set_mode(source, 0o644);
        let _ = fs::remove_file(target);
        user.is_killed(&[from, to], || bytes(&part(target)) >= SIZE as u64 / 2);
        assert_eq!(mode(&part(target)), 0o644);
        fs::write(target, "for this user alone").unwrap();
        set_mode(target, 0o600);
        let (left, had) = (part(target), bytes(&part(target)));
        let mut copy = user.begins(&[from, to]);
        until("it goes on", || bytes(&left) > had || !left.exists());
        let found = mode(&left);
        let output: Output = {
            copy.kill().unwrap();
            copy.wait_with_output().unwrap()
        };
        assert_eq!(found, 0o600, "{}", stderr(&output));
        assert!(user.resumes(&[from, to]));
        assert_eq!(mode(target), 0o600);
        assert!(fs::read(target).unwrap() == noise(SIZE));
        fs::remove_file(source).unwrap();
        fs::rename(target, source).unwrap();
    }
}

#[test]
fn a_second_copy_in_place_to_one_name_on_a_server_is_refused() {
    let (server, other, here) = (Server::start(), Server::start(), tempfile::tempdir().unwrap());
    let user = User::new(0);
    let file = here.path().join("file");
    fs::write(&file, noise(SIZE)).unwrap();
    fs::write(other.path("file"), noise(SIZE)).unwrap();
    let (to, from_other) = (server.url("/copy"), other.url("/file"));
    for (first, second) in [
        ([text(&file), &to], [text(&file), &to]),
        ([text(&file), &to], [&from_other, &to]),
        ([&from_other, &to], [text(&file), &to]),
    ] {
        let mut copy = user.begins(&["--inplace", first[0], first[1]]);
        until("the first has begun", || bytes(&server.path("copy")) > 1 << 19);
        let output = user.command(&["cp", "--inplace", second[0], second[1]]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("another nfsw is copying to this file"), "{}", stderr(&output));
        assert!(copy.wait().unwrap().success());
        assert!(fs::read(server.path("copy")).unwrap() == noise(SIZE));
        fs::remove_file(server.path("copy")).unwrap();
    }
    // Nothing is in the way of a later one, also after a kill, and nothing stays in the state directory.
    let mut copy = user.begins(&["--inplace", text(&file), &to]);
    until("it has begun", || bytes(&server.path("copy")) > 1 << 19);
    copy.kill().unwrap();
    copy.wait().unwrap();
    let copies = |arguments: &[&str]| {
        let output = user.command(arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let is_upload = |name: &std::ffi::OsString| name.to_str().unwrap().starts_with("upload-");
        assert!(!names(&user.state.path().join("nfsw")).iter().any(is_upload));
        assert!(fs::read(server.path("copy")).unwrap() == noise(SIZE));
        assert_eq!(names(server.root.path()), ["copy"]);
    };
    copies(&["cp", "--inplace", text(&file), &to]);
    fs::remove_file(server.path("copy")).unwrap();
    // What an interrupted copy has left goes.
    user.is_killed(&[text(&file), &to], || bytes(&part(&server.path("copy"))) >= SIZE as u64 / 2);
    copies(&["cp", "--inplace", text(&file), &to]);
}

/// Opening a file that its owner has leased waits for them, or fails (fcntl(2)).
#[cfg(target_os = "linux")]
#[test]
fn a_leased_file_under_the_name_of_a_journal_is_in_nobodys_way() {
    let (server, user) = (Server::start(), User::new(NOBODY));
    fs::write(server.path("file"), noise(SIZE / 4)).unwrap();
    for arguments in [&["cp", "--inplace"][..], &["cp"], &["cp", "--no-resume"]] {
        let place = shared(0o1777);
        let journal = place.path().join(journal_of(NOBODY, "file"));
        fs::write(&journal, "planted").unwrap();
        set_mode(&journal, 0o666);
        let script = "import fcntl, sys, time; file = open(sys.argv[1], 'r+'); \
                      fcntl.fcntl(file, fcntl.F_SETSIG, 23); fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK); \
                      print('leased', flush=True); time.sleep(60)";
        let script = format!("import signal; signal.signal(23, signal.SIG_IGN); {script}");
        let mut holder = Command::new("python3")
            .args(["-c", &script])
            .arg(&journal)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(common::first_line(&mut holder), "leased\n");
        let target = place.path().join("file");
        let begun = std::time::Instant::now();
        let output =
            user.command(&[arguments, &[&server.url("/file"), text(&target)]].concat()).output().unwrap();
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        assert!(begun.elapsed().as_secs() < 20, "{arguments:?}");
        assert!(fs::read(&target).unwrap() == noise(SIZE / 4));
    }
}

#[test]
fn what_may_not_be_read_is_said_to_be_so() {
    let (server, user) = (Server::start(), User::new(NOBODY));
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/file"), noise(SIZE / 4)).unwrap();
    set_mode(&server.path("tree/file"), 0o644);
    // A directory that may be written and not be listed.
    let place = shared(0o755);
    let inside = place.path().join("in");
    fs::create_dir(&inside).unwrap();
    set_mode(&inside, 0o1733);
    let output = user.command(&["sync", "--delete", &server.url("/tree"), text(&inside)]).output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("permission denied"), "{said}");
    assert!(!said.contains("descriptor"), "{said}");
    // A file that may be written and not be read.
    let place = shared(0o777);
    let target = place.path().join("file");
    fs::write(&target, "old").unwrap();
    chown(&target, Some(NOBODY), Some(NOBODY)).unwrap();
    set_mode(&target, 0o200);
    let arguments = ["cp", "--inplace", "--verify", &server.url("/tree/file"), text(&target)];
    let output = user.command(&arguments).output().unwrap();
    assert!(
        !output.status.success() && stderr(&output).contains("cannot be compared"),
        "{}",
        stderr(&output)
    );
}
