//! The file commands against the embedded server.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Stdio,
};

use crate::common::{self, Server, command, fails, first_line, names, nfsw, ok, until};

#[test]
fn ls_lists_like_ls() {
    let server = Server::start();
    fs::write(server.path("b"), b"12345").unwrap();
    fs::write(server.path(".hidden"), b"").unwrap();
    fs::create_dir(server.path("a")).unwrap();
    fs::write(server.path("a/inner"), b"").unwrap();
    symlink("b", server.path("link")).unwrap();
    symlink("a", server.path("way")).unwrap();
    let url = |path: &str| server.url(path);
    assert_eq!(ok(["ls", &url("/")]), "a\nb\nlink\nway\n");
    assert_eq!(ok(["ls", "-A", &url("/")]), ".hidden\na\nb\nlink\nway\n");
    assert_eq!(ok(["ls", "-a", &url("/a")]), ".\n..\ninner\n");
    assert_eq!(ok(["ls", "-rS", &url("/[ab]")]).lines().next(), Some(&*server.name("/b")));
    assert_eq!(ok(["ls", &url("/way")]), "inner\n", "a link to a directory stands for it");
    assert_eq!(ok(["ls", &url("/way/inner")]), server.name("/way/inner\n"), "links on the way are followed");
    assert_eq!(ok(["ls", "-d", &url("/a")]), server.name("/a\n"));
    let long = ok(["ls", "-l", &url("/")]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with("total "), "{long}");
    assert!(lines[1].starts_with("drwx") && lines[1].ends_with(" a"), "{long}");
    assert!(lines[2].starts_with("-rw") && lines[2].contains(" 5 "), "{long}");
    assert!(lines[3].starts_with("lrwx") && lines[3].ends_with("link -> b"), "{long}");
    let all = ok(["ls", "-R", &url("/")]);
    assert!(all.contains(&server.name("/a:\ninner\n")), "{all}");
}

#[test]
fn names_come_out_as_they_are_for_programs() {
    let server = Server::start();
    fs::write(server.path("").join(OsStr::from_bytes(b"\xff\x1b[31m")), b"").unwrap();
    assert_eq!(nfsw(["ls", &server.url("/")]).stdout, b"\xff\x1b[31m\n");
    let json = ok(["ls", "--json", &server.url("/")]);
    assert!(json.contains("\"path_bytes\":\"2fff1b5b33316d\""), "{json}");
}

#[test]
fn stat_tells_size_mode_and_link() {
    let server = Server::start();
    fs::write(server.path("file"), b"12345").unwrap();
    fs::set_permissions(server.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", server.path("link")).unwrap();
    let text = ok(["stat", &server.url("/file")]);
    assert!(text.contains("Size: 5 ") && text.contains("0640/-rw-r-----"), "{text}");
    let text = ok(["stat", &server.url("/link")]);
    assert!(text.contains(&server.name("/link -> file")) && text.contains("symlink"), "{text}");
    let text = ok(["stat", "-L", &server.url("/link")]);
    assert!(text.contains("Size: 5 "), "{text}");
}

#[test]
fn nothing_is_removed_or_moved_by_the_name_dot() {
    let server = Server::start();
    fs::create_dir_all(server.path("dir/inner")).unwrap();
    fs::write(server.path("dir/inner/file"), b"").unwrap();
    for name in ["/dir/.", "/dir/./", "/dir/inner/..", "/dir/inner/../"] {
        for command in [&["rm", "-r"][..], &["rm", "-rf"]] {
            let error = fails(1, command.iter().copied().chain([&server.url(name)[..]]));
            assert!(error.contains("name the directory itself"), "{name}: {error}");
        }
        let error = fails(1, ["mv", &server.url(name), &server.url("/other")]);
        assert!(error.contains("name the directory itself"), "{name}: {error}");
    }
    assert!(server.path("dir/inner/file").exists());
    ok(["rm", "-r", &server.url("/dir/./inner/")]);
    assert_eq!(names(&server.path("dir")).len(), 0);
}

#[test]
fn no_path_leads_through_a_file() {
    let server = Server::start();
    fs::write(server.path("file"), b"").unwrap();
    fs::write(server.path("beside"), b"").unwrap();
    for path in ["/file/beside", "/file/../beside"] {
        let error = fails(4, ["stat", &server.url(path)]);
        assert!(error.contains("/file is not a directory"), "{path}: {error}");
    }
}

#[test]
fn directories_are_made_and_trees_removed() {
    let server = Server::start();
    let url = |path: &str| server.url(path);
    let error = fails(1, ["mkdir", &url("/a/b/c")]);
    assert!(error.contains("-p"), "{error}");
    ok(["mkdir", "-p", &url("/a/b/c")]);
    ok(["mkdir", "-p", &url("/a/b/c")]);
    ok(["mkdir", "-m", "700", &url("/private")]);
    assert_eq!(fs::metadata(server.path("private")).unwrap().mode() & 0o777, 0o700);
    fails(1, ["mkdir", &url("/a")]);
    for number in 0..40 {
        fs::write(server.path(&format!("a/b/{number}")), b"").unwrap();
    }
    symlink("/", server.path("a/root")).unwrap();
    let error = fails(1, ["rm", &url("/a")]);
    assert!(error.contains("-r"), "{error}");
    ok(["rm", "-r", &url("/a")]);
    assert_eq!(names(server.root.path()), ["private"]);
    fails(4, ["rm", &url("/a")]);
    ok(["rm", "-f", &url("/a")]);
    fails(2, ["rm", "-r", &url("/")]);
}

#[test]
fn files_are_moved_and_linked() {
    let server = Server::start();
    let url = |path: &str| server.url(path);
    fs::write(server.path("a"), b"a").unwrap();
    fs::create_dir(server.path("dir")).unwrap();
    ok(["mv", &url("/a"), &url("/b")]);
    ok(["mv", &url("/b"), &url("/dir")]);
    assert_eq!(fs::read(server.path("dir/b")).unwrap(), b"a");
    ok(["ln", &url("/dir/b"), &url("/second")]);
    assert_eq!(fs::metadata(server.path("second")).unwrap().nlink(), 2);
    ok(["ln", "-s", "dir/b", &url("/symbolic")]);
    assert_eq!(fs::read_link(server.path("symbolic")).unwrap(), Path::new("dir/b"));
    fs::write(server.path("kept"), b"kept").unwrap();
    ok(["mv", "-n", &url("/second"), &url("/kept")]);
    assert_eq!(fs::read(server.path("kept")).unwrap(), b"kept");
    fails(4, ["mv", &url("/missing"), &url("/x")]);
    let error = fails(1, ["mv", &url("/dir"), &url("/dir/inner")]);
    assert!(error.contains("into itself"), "{error}");
    let other = Server::start();
    let error = fails(2, ["mv", &url("/kept"), &other.url("/kept")]);
    assert!(error.contains("nfsw cp"), "{error}");
}

#[test]
fn no_file_is_lost_by_a_move() {
    let server = Server::start();
    let url = |path: &str| server.url(path);
    let write = |path: &str| fs::write(server.path(path), path).unwrap();
    let read = |path: &str| fs::read_to_string(server.path(path)).unwrap();
    for path in ["logs/a", "logs/b", "all", "empty"] {
        fs::create_dir_all(server.path(path)).unwrap();
    }
    ["one", "two", "logs/a/app.log", "logs/b/app.log"].iter().for_each(|path| write(path));

    // A slash says that a directory is meant.
    let error = fails(2, ["mv", &url("/one"), &url("/archive/")]);
    assert!(error.contains("archive does not exist; create it first: nfsw mkdir "), "{error}");
    let error = fails(2, ["mv", &url("/one"), &url("/two/")]);
    assert!(error.contains("two: is not a directory"), "{error}");
    fails(1, ["mv", &url("/one/"), &url("/three")]);
    assert_eq!((read("one"), read("two")), ("one".to_owned(), "two".to_owned()));
    ok(["mv", &url("/empty"), &url("/renamed/")]);
    assert!(server.path("renamed").is_dir());

    // Two of the same name cannot go into one directory.
    let error = fails(1, ["mv", &url("/logs/*/app.log"), &url("/all")]);
    assert!(error.contains("logs/b/app.log: not moved, an earlier source has the same name"), "{error}");
    assert_eq!(
        (read("all/app.log"), read("logs/b/app.log")),
        ("logs/a/app.log".into(), "logs/b/app.log".into())
    );

    // One that is missing makes the last name no new name for the other.
    let error = common::stderr(&nfsw(["mv", &url("/nowhere"), &url("/one"), &url("/new")]));
    assert!(error.contains("not a directory, and there are several files to move"), "{error}");
    assert!(server.path("one").exists());

    // Two names of one file stay: RENAME does nothing.
    fs::hard_link(server.path("one"), server.path("other")).unwrap();
    symlink("all", server.path("link")).unwrap();
    for (from, to) in [("/one", "/other"), ("/one", "/one"), ("/all/app.log", "/link/app.log")] {
        let error = fails(1, ["mv", &url(from), &url(to)]);
        assert!(error.contains("are the same file"), "{from}: {error}");
    }
    assert!(server.path("one").exists() && server.path("other").exists());
}

#[test]
fn a_name_with_a_slash_at_its_end_is_removed_only_if_it_is_a_directory() {
    let server = Server::start();
    fs::create_dir(server.path("dir")).unwrap();
    fs::write(server.path("file"), b"").unwrap();
    symlink("dir", server.path("link")).unwrap();
    for path in ["/file/", "/link/"] {
        let error = fails(1, ["rm", "-r", &server.url(path)]);
        assert!(error.contains("is not a directory"), "{error}");
    }
    ok(["rm", "-r", &server.url("/*/")]);
    assert_eq!(names(server.root.path()), ["file", "link"]);
    fails(4, ["rm", "-r", &server.url("/*/")]);
}

#[test]
fn what_is_copied_to_a_server_is_not_too_deep_to_be_removed() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir_all(here.path().join("d/".repeat(520))).unwrap();
    let error = fails(1, ["cp", "-rq", here.path().to_str().unwrap(), &server.url("/copy")]);
    assert!(error.contains("directories within directories, more than 512 deep"), "{error}");
    ok(["rm", "-r", &server.url("/copy")]);
    assert!(names(server.root.path()).is_empty());
}

#[test]
fn permissions_are_changed_below_a_directory() {
    let server = Server::start();
    fs::create_dir(server.path("dir")).unwrap();
    fs::write(server.path("dir/file"), b"").unwrap();
    let mode = |path: &str| fs::metadata(server.path(path)).unwrap().mode() & 0o777;
    ok(["chmod", "600", &server.url("/dir/file")]);
    assert_eq!(mode("dir/file"), 0o600);
    ok(["chmod", "-R", "u=rwX,go=", &server.url("/dir")]);
    assert_eq!((mode("dir"), mode("dir/file")), (0o700, 0o600));
    ok(["chmod", "-R", "a+rX", &server.url("/dir")]);
    assert_eq!((mode("dir"), mode("dir/file")), (0o755, 0o644));
    let mode = |path: &str| fs::metadata(server.path(path)).unwrap().mode() & 0o7777;
    assert!(ok(["chmod", "-v", "2775", &server.url("/dir")]).ends_with("/dir: 2775\n"));
    assert_eq!(mode("dir"), 0o2775);
    let error = fails(1, ["chmod", "u+s", &server.url("/dir/file")]);
    assert!(error.contains("/dir/file: the server has set mode 0644, not 4644"), "{error}");
    assert_eq!(mode("dir/file"), 0o644);
}

#[test]
fn a_directory_that_the_server_may_not_read_is_refused() {
    const NOBODY: u32 = 65_534;
    let root = tempfile::tempdir().unwrap();
    let closed = root.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("file"), b"").unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let mut serve = command(["serve", "--listen", "127.0.0.1:0"]);
    serve.arg(root.path()).stdout(Stdio::piped());
    // Nothing is closed to root.
    if rustix::process::geteuid().is_root() {
        serve.uid(NOBODY).gid(NOBODY);
    }
    let mut process = serve.spawn().unwrap();
    let line = first_line(&mut process);
    let port = line.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap();
    let url = |path: &str| format!("nfs://127.0.0.1:{port}{path}?mountport={port}");
    let listed = nfsw(["ls", &url("/closed")]);
    let read = nfsw(["cat", &url("/closed/file")]);
    process.kill().unwrap();
    process.wait().unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    for output in [listed, read] {
        let said = common::stderr(&output);
        assert!(output.status.code() == Some(1) && said.contains("permission denied"), "{said}");
    }
}

#[test]
fn space_exports_and_round_trips_are_shown() {
    let server = Server::start();
    let table = ok(["df", "-h", &server.url("/")]);
    assert!(table.starts_with("Target") && table.contains(&server.name("/")), "{table}");
    assert!(ok(["exports", &server.url("/")]).starts_with("/  (everyone)\n"));
    let pings = ok(["ping", "-c", "3", "-i", "10ms", &server.url("/")]);
    for line in ["udp: 3 calls, 3 answered, 0 % lost", "tcp: 3 calls, 3 answered, 0 % lost"] {
        assert!(pings.contains(line), "{pings}");
    }
    assert!(!ok(["ping", "-c", "1", "--transport", "udp", &server.url("/")]).contains("tcp"));
}

#[test]
fn a_server_ends_when_its_time_is_up() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().to_str().unwrap();
    let said = ok(["serve", path, "--listen", "127.0.0.1:0", "--for", "50ms"]);
    assert!(said.contains("try: nfsw ls"), "{said}");
    let output = nfsw(["serve", path, "--listen", "0.0.0.0:0", "--for", "50ms"]);
    assert!(common::stderr(&output).contains("whoever reaches"));
    fails(7, ["serve", "/nonexistent", "--listen", "127.0.0.1:0"]);
}

#[test]
fn pages_are_printed_and_the_demonstration_works() {
    assert!(ok(["completions", "bash"]).contains("_nfsw"));
    for command in [&["cp"][..], &["link", "exec"]] {
        let page = ok([&["man"], command].concat());
        assert!(page.starts_with(".ie") && page.contains(".TH") && page.contains(".SH EXAMPLES"), "{page}");
    }
    fails(2, ["man", "link", "away"]);
    assert!(ok(["--help"]).contains("nfsw demo"));
    assert!(ok(["demo"]).contains("All of it worked"));
}

#[test]
fn a_file_removed_on_the_host_frees_its_room_while_it_is_served() {
    let server = Server::start();
    fs::write(server.path("file"), "x").unwrap();
    fs::write(server.path("other"), "").unwrap();
    ok(["cat", &server.url("/file")]);
    fs::remove_file(server.path("file")).unwrap();
    let open = format!("/proc/{}/fd", server.process.id());
    until("the file is closed", || {
        // Also while others are used.
        ok(["cat", &server.url("/other")]);
        let links = fs::read_dir(&open).unwrap().filter_map(|it| fs::read_link(it.unwrap().path()).ok());
        !links.into_iter().any(|link| link.as_os_str().as_bytes().ends_with(b"file (deleted)"))
    });
}

#[test]
fn a_mode_that_forbids_reading_can_be_set() {
    let server = Server::of_nobody();
    fs::write(server.path("file"), "x").unwrap();
    std::os::unix::fs::chown(server.path("file"), Some(common::NOBODY), None).unwrap();
    // The server cannot open it either.
    fs::set_permissions(server.path("file"), fs::Permissions::from_mode(0o0)).unwrap();
    for mode in ["200", "000", "200", "400"] {
        ok(["chmod", mode, &server.url("/file")]);
        let set = fs::metadata(server.path("file")).unwrap().permissions().mode() & 0o777;
        assert_eq!(format!("{set:03o}"), mode);
    }
}

#[test]
fn what_is_no_directory_is_not_taken_for_one_that_is_there() {
    let server = Server::start();
    fs::write(server.path("file"), "x").unwrap();
    fs::create_dir(server.path("directory")).unwrap();
    symlink("directory", server.path("link")).unwrap();
    for path in ["/file", "/file/below"] {
        let error = fails(1, ["mkdir", "-p", &server.url(path)]);
        assert!(error.contains("/file: is there already, and is no directory"), "{error}");
    }
    for path in ["/directory", "/link", "/link/below/it"] {
        ok(["mkdir", "-p", &server.url(path)]);
    }
    assert!(server.path("directory/below/it").is_dir());
}

#[test]
fn a_directory_that_cannot_be_listed_does_not_end_a_tree() {
    let server = Server::of_nobody();
    let owned = |path: &str| {
        std::os::unix::fs::chown(server.path(path), Some(common::NOBODY), Some(common::NOBODY)).unwrap();
    };
    fs::create_dir(server.path("tree")).unwrap();
    owned("tree");
    for name in ["a", "m", "z"] {
        let (directory, file) = (format!("tree/{name}"), format!("tree/{name}/file"));
        fs::create_dir(server.path(&directory)).unwrap();
        fs::write(server.path(&file), "").unwrap();
        if name == "m" {
            fs::set_permissions(server.path(&directory), fs::Permissions::from_mode(0o700)).unwrap();
        } else {
            owned(&file);
            owned(&directory);
        }
    }
    let output = nfsw(["chmod", "-R", "u=rwX,go=", &server.url("/tree")]);
    assert_eq!(output.status.code(), Some(1), "{}", common::stderr(&output));
    for name in ["a", "z"] {
        let found = fs::metadata(server.path(&format!("tree/{name}/file"))).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600, "{name}: {}", common::stderr(&output));
    }
    let output = nfsw(["rm", "-r", &server.url("/tree")]);
    assert_eq!(output.status.code(), Some(1), "{}", common::stderr(&output));
    assert_eq!(names(&server.path("tree")), ["m"], "{}", common::stderr(&output));
}
