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

/// Leases a file for so many seconds: opening it waits for who has leased it, or fails (fcntl(2)).
#[cfg(target_os = "linux")]
fn lease(path: &Path, seconds: f32) -> Child {
    let script = "import fcntl, signal, sys, time; signal.signal(23, signal.SIG_IGN); file = open(sys.argv[1], 'r+'); \
                  fcntl.fcntl(file, fcntl.F_SETSIG, 23); fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK); \
                  print('leased', flush=True); time.sleep(float(sys.argv[2]))";
    let mut holder = Command::new("python3");
    holder.args(["-c", script]).arg(path).arg(seconds.to_string());
    let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(common::first_line(&mut holder), "leased\n");
    holder
}

/// A file server beside it, say, which gives a file back to whoever else wants it.
#[cfg(target_os = "linux")]
#[test]
fn a_leased_source_is_waited_for() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/superfluous"), "old").unwrap();
    let file = here.path().join("file");
    fs::write(&file, noise(SIZE / 4)).unwrap();
    fs::write(here.path().join("other"), "new").unwrap();
    let mut holder = lease(&file, 2.0);
    let output = command(["sync", "--delete", text(here.path()), &server.url("/tree")]).output().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(&server.path("tree")), ["file", "other"]);
    assert!(fs::read(server.path("tree/file")).unwrap() == noise(SIZE / 4));
}

/// About nobody by number.
#[cfg(target_os = "linux")]
const ALL: u32 = u32::MAX;

/// Entries of an access list by which a user may read and write, and the group nothing: tags, permissions and numbers (acl(5)).
#[cfg(target_os = "linux")]
const NAMED: [(u16, u16, u32); 5] = [(1, 6, ALL), (2, 6, 1234), (4, 0, ALL), (16, 6, ALL), (32, 0, ALL)];

#[cfg(target_os = "linux")]
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entries = entries
        .iter()
        .flat_map(|(tag, may, id)| [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
    [2, 0, 0, 0].into_iter().chain(entries).collect()
}

#[cfg(target_os = "linux")]
fn set_acl(path: &Path, which: &str, list: &[u8]) {
    let name = format!("system.posix_acl_{which}");
    rustix::fs::setxattr(path, name, list, rustix::fs::XattrFlags::empty()).unwrap();
}

fn permissions(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

/// The group of a file with an access list may do less than the group's bits of its mode say (acl(5)).
#[cfg(target_os = "linux")]
#[test]
fn an_access_list_gives_a_group_nothing_and_is_kept_where_it_can_be() {
    let of = |path: &Path| {
        let mut bytes = [0; 1000];
        let length = rustix::fs::getxattr(path, "system.posix_acl_access", &mut bytes).ok()?;
        Some(bytes[..length].to_vec())
    };
    let (mode, named) = (permissions, acl(&NAMED));
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (kept, narrowed, plain) =
        (here.path().join("kept"), here.path().join("narrowed"), here.path().join("plain"));
    let open = here.path().join("open");
    for path in [&kept, &narrowed] {
        fs::write(path, "old").unwrap();
        set_acl(path, "access", &named);
        assert_eq!(mode(path), 0o660);
    }
    // In another group than the copy gets, so that the list is about others.
    chown(&narrowed, None, Some(4321)).unwrap();
    fs::write(&plain, "old").unwrap();
    // What is made in the directory gets a list, and what is replaced has none.
    let default = acl(&[(1, 7, ALL), (2, 7, 1234), (4, 5, ALL), (16, 7, ALL), (32, 0, ALL)]);
    set_acl(here.path(), "default", &default);
    for name in ["kept", "narrowed", "plain", "open"] {
        fs::write(server.path(name), noise(SIZE)).unwrap();
        set_mode(&server.path(name), 0o666);
        let target = here.path().join(name);
        let output = command(["cp", &server.url(&format!("/{name}")), text(&target)]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(fs::read(&target).unwrap() == noise(SIZE));
    }
    assert_eq!((of(&kept), mode(&kept)), (Some(named), 0o660));
    assert_eq!((of(&narrowed), mode(&narrowed)), (None, 0o600));
    assert_eq!((of(&plain), mode(&plain)), (None, 0o644));
    // The list of the directory lets no others read what is new.
    assert_eq!(mode(&open) & 0o007, 0, "{:o}", mode(&open));
    // With -p a copy has the permissions of its source, and not those of a list as well.
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/file"), "x").unwrap();
    for (name, wanted) in [("tree", 0o750), ("tree/file", 0o640)] {
        set_mode(&server.path(name), wanted);
    }
    for options in [&["cp", "-rpT"][..], &["cp", "-rpT", "--inplace"], &["sync"]] {
        let tree = here.path().join("tree");
        let copy = || {
            let output = command([options, &[&server.url("/tree"), text(&tree)]].concat()).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            assert_eq!((of(&tree), mode(&tree)), (None, 0o750), "{options:?}");
            assert_eq!((of(&tree.join("file")), mode(&tree.join("file"))), (None, 0o640), "{options:?}");
        };
        copy();
        // Nor do others in a list get what its mask has kept from them.
        set_acl(
            &tree.join("file"),
            "access",
            &acl(&[(1, 6, ALL), (2, 6, 1234), (4, 0, ALL), (16, 0, ALL), (32, 0, ALL)]),
        );
        copy();
        fs::write(tree.join("made"), "x").unwrap();
        assert_eq!(of(&tree.join("made")), None, "what is made in it later has no list of the one above");
        fs::remove_dir_all(&tree).unwrap();
    }
}

/// A server has modes alone: what only the list gives to some is given to nobody there, and what it keeps from some is kept from all.
#[cfg(target_os = "linux")]
#[test]
fn an_access_list_is_no_mode_of_a_copy_on_a_server() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("directory")).unwrap();
    let kept_out = acl(&[(1, 6, ALL), (2, 0, 1234), (4, 4, ALL), (16, 4, ALL), (32, 4, ALL)]);
    for (name, list) in [("file", acl(&NAMED)), ("kept_out", kept_out)] {
        fs::write(tree.join(name), noise(SIZE)).unwrap();
        set_acl(&tree.join(name), "access", &list);
    }
    fs::hard_link(tree.join("file"), tree.join("linked")).unwrap();
    let directory = acl(&[(1, 7, ALL), (2, 7, 1234), (4, 0, ALL), (16, 7, ALL), (32, 0, ALL)]);
    set_acl(&tree.join("directory"), "access", &directory);
    for arguments in
        [&["cp", "-rT"][..], &["cp", "-aT"], &["cp", "-rT", "--inplace"], &["sync"], &["sync"], &["sync"]]
    {
        let target = server.path(arguments[0]);
        if arguments[0] == "cp" {
            let _ = fs::remove_dir_all(&target);
        }
        let output =
            command([arguments, &[text(&tree), &server.url(&format!("/{}", arguments[0]))]].concat())
                .output()
                .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        for (name, mode) in [("file", 0o600), ("linked", 0o600), ("kept_out", 0o600), ("directory", 0o700)] {
            assert_eq!(permissions(&target.join(name)), mode, "{arguments:?} {name}");
        }
    }
    // Nothing of it is done again.
    let output = command(["sync", "-v", text(&tree), &server.url("/sync")]).output().unwrap();
    assert!(
        output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("file"),
        "{output:?}"
    );
}

/// The group's bits of a mode are what an access list gives at most (acl(5)).
#[cfg(target_os = "linux")]
#[test]
fn a_masked_access_list_of_what_is_there_is_opened_by_no_mode() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir_all(server.path("tree/directory")).unwrap();
    fs::write(server.path("tree/directory/file"), "x").unwrap();
    set_mode(&server.path("tree/directory"), 0o770);
    set_mode(&server.path("tree/directory/file"), 0o660);
    for arguments in [&["sync"][..], &["cp", "-rpT"]] {
        let copy = here.path().join(arguments[0]);
        fs::create_dir_all(copy.join("directory")).unwrap();
        common::write_old(&copy.join("directory/file"), "x");
        for (name, mode) in [("directory", 0o700), ("directory/file", 0o600)] {
            set_acl(&copy.join(name), "access", &acl(&NAMED));
            set_mode(&copy.join(name), mode);
        }
        common::ok([arguments, &[&server.url("/tree"), text(&copy)]].concat());
        for (name, mode) in [("directory", 0o770), ("directory/file", 0o660)] {
            let list = rustix::fs::getxattr(copy.join(name), "system.posix_acl_access", &mut [0; 1000][..]);
            assert_eq!((permissions(&copy.join(name)), list.ok()), (mode, None), "{arguments:?} {name}");
        }
    }
}

/// Whatever becomes of a source between its listing and its turn.
#[test]
fn a_source_that_is_closed_meanwhile_gives_no_open_copy() {
    let (server, other, here) = (Server::start(), Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("tree")).unwrap();
    for tree in [here.path(), &server.path("tree")] {
        fs::write(tree.join("a"), noise(SIZE)).unwrap();
    }
    let sources = [
        (text(here.path()).to_owned(), here.path().join("zz")),
        (server.url("/tree"), server.path("tree/zz")),
    ];
    for (options, (source, file)) in
        [(&["--inplace"][..], &sources[0]), (&[], &sources[0]), (&[], &sources[1])]
    {
        fs::write(file, "public").unwrap();
        set_mode(file, 0o644);
        let directory = file.with_file_name("zzz");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), "x").unwrap();
        set_mode(&directory, 0o755);
        let _ = fs::remove_dir_all(other.path("copy"));
        let target = other.url("/copy");
        let slowly = [&["cp", "-rT", "-j1", "--bwlimit", "16Mbit"][..], options, &[source, &target]].concat();
        let mut copying = command(slowly).spawn().unwrap();
        until("it copies the first file", || {
            fs::read_dir(other.path("copy")).is_ok_and(|names| names.count() > 0)
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        fs::write(file, "secret").unwrap();
        set_mode(file, 0o600);
        set_mode(&directory, 0o700);
        assert!(copying.wait().unwrap().success());
        assert_eq!(permissions(&other.path("copy/zzz")), 0o700, "{source} {options:?}");
        let copy = other.path("copy/zz");
        assert_eq!(
            (fs::read_to_string(&copy).unwrap(), permissions(&copy)),
            ("secret".to_owned(), 0o600),
            "{source} {options:?}"
        );
    }
}

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
        let mut holder = lease(&journal, 60.0);
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
