//! `nfsw cp` against the embedded server.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::Write,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use crate::common::{self, Server, assert_same_tree, command, fails, names, nfsw, noise, ok, stderr};

/// A tree with everything that is hard to copy.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("deep/er/and/deep/er")).unwrap();
    fs::write(root.join("deep/er/and/deep/er/leaf"), b"leaf").unwrap();
    fs::write(root.join("large"), noise((3 << 20) + 17)).unwrap();
    for (number, size) in [0, 1, 4096, 1343, 1344, 1345, 70_000].into_iter().enumerate() {
        fs::write(root.join(format!("file {number}")), noise(size)).unwrap();
    }
    fs::write(root.join("n".repeat(255)), b"long").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"\xff\n\x1b[31m")), b"odd").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    symlink("large", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    fs::create_dir(root.join("locked")).unwrap();
    fs::write(root.join("locked/file"), b"read only").unwrap();
    fs::set_permissions(root.join("locked/file"), Permissions::from_mode(0o400)).unwrap();
    set_time(&root.join("deep"), 1_000_000_000);
    set_time(&root.join("file 1"), 1_234_567_890);
    fs::set_permissions(root.join("locked"), Permissions::from_mode(0o555)).unwrap();
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    File::open(path).unwrap().set_modified(time).unwrap();
}

fn unlock(root: &Path) {
    fs::set_permissions(root.join("locked"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn trees_survive_the_way_out_and_back_over_both_transports() {
    for transport in ["udp", "tcp"] {
        let server = Server::start();
        let here = tempfile::tempdir().unwrap();
        let (tree, back) = (here.path().join("tree"), here.path().join("back"));
        fs::create_dir(&tree).unwrap();
        plant(&tree);
        let (tree, there) = (tree.to_str().unwrap(), server.url("/there"));
        ok(["cp", "-rp", "--transport", transport, tree, &there]);
        assert_same_tree(Path::new(tree), &server.path("there"), true);
        ok(["cp", "-rp", "--transport", transport, &there, back.to_str().unwrap()]);
        assert_same_tree(Path::new(tree), &back, true);
        for root in [Path::new(tree), &server.path("there"), &back] {
            unlock(root);
        }
    }
}

#[test]
fn names_follow_the_rules_of_cp() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("a"), b"a").unwrap();
    fs::create_dir(server.path("dir")).unwrap();
    fs::write(server.path("dir/b"), b"b").unwrap();
    let local = |name: &str| here.path().join(name).to_str().unwrap().to_owned();

    ok(["cp", &server.url("/a"), &local("renamed")]);
    ok(["cp", &server.url("/a"), &local("")]);
    ok(["cp", "-r", &server.url("/dir"), &local("new")]);
    ok(["cp", "-r", &server.url("/dir/"), &local("new")]);
    ok(["cp", "-r", &server.url("/"), &local("root")]);
    ok(["cp", "-r", &format!("{}/.", local("new")), &server.url("/dir")]);
    for (path, content) in
        [("renamed", "a"), ("a", "a"), ("new/b", "b"), ("new/dir/b", "b"), ("root/dir/b", "b")]
    {
        assert_eq!(fs::read_to_string(here.path().join(path)).unwrap(), content, "{path}");
    }
    assert_eq!(fs::read_to_string(server.path("dir/dir/b")).unwrap(), "b");

    // A directory is told by the name that it was given.
    symlink("dir", server.path("link")).unwrap();
    let said = ok(["cp", "--dry-run", &local("renamed"), &server.url("/link")]);
    assert!(said.ends_with(&format!("/renamed -> {}\n", server.name("/link/renamed"))), "{said}");

    let error = fails(2, ["cp", &server.url("/a"), &server.url("/dir/b"), &local("renamed")]);
    assert!(error.contains("not a directory"), "{error}");
    let output = nfsw(["cp", &server.url("/a"), &server.url("/missing"), &local("renamed")]);
    assert_eq!(output.status.code(), Some(2), "one of several is missing: {}", stderr(&output));
    let error = fails(4, ["cp", &local("missing"), &server.url("/")]);
    assert!(error.contains("missing: "), "{error}");
    let error = fails(1, ["cp", &server.url("/dir"), &local("")]);
    assert!(error.contains("-r"), "{error}");
    let error = fails(1, ["cp", "-r", &server.url("/dir"), &local("renamed")]);
    assert!(error.contains("not a directory"), "{error}");
}

#[test]
fn modes_follow_the_umask_unless_kept() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("program"), b"x").unwrap();
    fs::set_permissions(server.path("program"), Permissions::from_mode(0o777)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let run = |arguments: &str| {
        let script = format!("umask 027; exec {} {arguments}", env!("CARGO_BIN_EXE_nfsw"));
        let status = Command::new("sh").args(["-c", &script]).current_dir(&here).status().unwrap();
        assert!(status.success());
    };
    run(&format!("cp '{}' plain", server.url("/program")));
    assert_eq!(mode(&here.path().join("plain")), 0o750);
    run(&format!("cp -p '{}' kept", server.url("/program")));
    assert_eq!(mode(&here.path().join("kept")), 0o777);
    run(&format!("cp kept '{}'", server.url("/plain")));
    assert_eq!(mode(&server.path("plain")), 0o750);
    fs::set_permissions(here.path().join("kept"), Permissions::from_mode(0o444)).unwrap();
    run(&format!("cp kept '{}'", server.url("/unwritable")));
    assert_eq!(mode(&server.path("unwritable")), 0o440);
    for (directory, plain) in [(0o777, 0o750), (0o755, 0o750), (0o711, 0o710), (0o555, 0o550)] {
        let (name, url) = (format!("directory {directory:o}"), server.url(&format!("/{directory:o}")));
        fs::create_dir(here.path().join(&name)).unwrap();
        fs::set_permissions(here.path().join(&name), Permissions::from_mode(directory)).unwrap();
        run(&format!("cp -r '{name}' '{url}'"));
        assert_eq!(mode(&server.path(&format!("{directory:o}"))), plain);
        run(&format!("cp -rp '{name}' '{}'", server.url(&format!("/kept {directory:o}"))));
        assert_eq!(mode(&server.path(&format!("kept {directory:o}"))), directory);
        run(&format!("cp -r '{}' 'back {directory:o}'", server.url(&format!("/kept {directory:o}"))));
        assert_eq!(mode(&here.path().join(format!("back {directory:o}"))), plain);
    }
    // What is replaced keeps its mode.
    fs::set_permissions(here.path().join("plain"), Permissions::from_mode(0o600)).unwrap();
    run(&format!("cp '{}' plain", server.url("/program")));
    assert_eq!(mode(&here.path().join("plain")), 0o600);
}

#[test]
fn patterns_are_matched_on_the_server() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.jpg", ".hidden.txt"] {
        fs::write(server.path(name), name).unwrap();
    }
    let target = here.path().to_str().unwrap();
    ok(["cp", &server.url("/[ab]*.txt"), target]);
    assert_eq!(names(here.path()), ["a.txt", "b.txt"]);
    let error = fails(4, ["cp", &server.url("/*.png"), target]);
    assert!(error.contains("nothing on the server matches"), "{error}");
    ok(["rm", &server.url("/*.txt")]);
    assert_eq!(names(server.root.path()), [".hidden.txt", "c.jpg"]);
}

#[test]
fn files_that_are_there_are_replaced_only_if_wanted() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let (source, target) = (server.path("file"), here.path().join("file"));
    let (url, local) = (server.url("/file"), target.to_str().unwrap());
    fs::write(&source, b"new").unwrap();
    fs::write(&target, b"old").unwrap();
    ok(["cp", "-n", &url, local]);
    assert_eq!(fs::read(&target).unwrap(), b"old");
    set_time(&source, 1_000_000_000);
    ok(["cp", "-u", &url, local]);
    assert_eq!(fs::read(&target).unwrap(), b"old", "the target is newer");
    // And the other way, inside a tree.
    fs::create_dir(server.path("tree")).unwrap();
    fs::write(server.path("tree/file"), b"there").unwrap();
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("tree/file"), b"here!").unwrap();
    ok(["cp", "-rn", here.path().join("tree").to_str().unwrap(), &server.url("/")]);
    assert_eq!(fs::read(server.path("tree/file")).unwrap(), b"there");
    ok(["cp", "-r", here.path().join("tree").to_str().unwrap(), &server.url("/")]);
    assert_eq!(fs::read(server.path("tree/file")).unwrap(), b"here!");
}

#[test]
fn an_update_replaces_only_what_is_older_whatever_its_size() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (far, near) = (server.path("tree"), here.path().join("tree"));
    for (source, target) in [(&far, &near), (&near, &far)] {
        for root in [source, target] {
            let _ = fs::remove_dir_all(root);
            fs::create_dir(root).unwrap();
        }
        // Name, seconds of the source, content and seconds of the target.
        let rows = [
            ("older", 500, "other", 499, true),
            ("older and longer", 500, "something longer", 499, true),
            ("newer", 500, "other", 501, false),
            ("newer and longer", 500, "something longer", 501, false),
            ("as new", 500, "other", 500, false),
            ("as new and longer", 500, "something longer", 500, false),
        ];
        for (name, source_time, content, target_time, _) in rows {
            fs::write(source.join(name), b"wants").unwrap();
            fs::write(target.join(name), content).unwrap();
            set_time(&source.join(name), source_time);
            set_time(&target.join(name), target_time);
        }
        fs::write(source.join("missing"), b"wants").unwrap();
        symlink("new", source.join("link")).unwrap();
        symlink("old", target.join("link")).unwrap();
        let url = server.url("/tree");
        let (from, to) = match source == &far {
            true => (format!("{}/*", url.split('?').next().unwrap()), near.to_str().unwrap().to_owned()),
            false => (format!("{}/.", near.to_str().unwrap()), url.clone()),
        };
        let from = if source == &far { format!("{from}?{}", url.split('?').nth(1).unwrap()) } else { from };
        let output = nfsw(["cp", "-ru", "--json", &from, &to]);
        assert!(output.status.success(), "{}", stderr(&output));
        for (name, _, content, _, replaced) in rows {
            let expected = if replaced { "wants" } else { content };
            assert_eq!(fs::read_to_string(target.join(name)).unwrap(), expected, "{name}");
        }
        assert_eq!(fs::read(target.join("missing")).unwrap(), b"wants");
        assert_eq!(fs::read_link(target.join("link")).unwrap(), Path::new("old"), "a newer link stays, too");
        let kept = stderr(&output);
        assert!(kept.contains("as new and longer: kept") && kept.matches("kept").count() == 1, "{kept}");
        let summary = String::from_utf8(output.stdout).unwrap();
        let summary: serde_json::Value = serde_json::from_str(summary.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&summary["counts"]["done"], &summary["counts"]["skipped"]["not_older"]),
            (&3.into(), &5.into())
        );
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), b"x").unwrap();
    let said = ok(["cp", "-r", "--dry-run", tree.to_str().unwrap(), &server.url("/")]);
    let file = format!("would copy {}/sub/file -> {}\n", tree.display(), server.name("/tree/sub/file"));
    assert!(said.contains(&file), "{said}");
    assert_eq!(names(server.root.path()).len(), 0);
    fs::write(server.path("file"), b"x").unwrap();
    ok(["cp", "--dry-run", &server.url("/file"), here.path().to_str().unwrap()]);
    assert_eq!(names(here.path()), ["tree"]);
}

#[test]
fn standard_input_and_output_carry_files() {
    let server = Server::start();
    let content = noise(6 << 20);
    for transport in ["udp", "tcp"] {
        let url = server.url("/stream");
        let mut writer =
            command(["cp", "--transport", transport, "-", &url]).stdin(Stdio::piped()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(&content).unwrap();
        assert!(writer.wait().unwrap().success());
        assert!(fs::read(server.path("stream")).unwrap() == content);
        assert!(nfsw(["cp", "--transport", transport, &url, "-"]).stdout == content);
        assert!(nfsw(["cat", "--transport", transport, &url]).stdout == content);
    }
    assert_eq!(names(server.root.path()), ["stream"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let server = Server::start();
    fs::write(server.path("large"), noise(4 << 20)).unwrap();
    let mut reader = command(["cat", &server.url("/large")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(reader.stdout.take());
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(stderr(&output), "");
}

#[test]
fn special_files_are_skipped_and_special_targets_written_in_place() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), b"x").unwrap();
    let fifo = tree.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let output = nfsw(["cp", "-r", tree.to_str().unwrap(), &server.url("/tree")]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("fifo: skipped, it is a fifo"), "{}", stderr(&output));
    assert_eq!(names(&server.path("tree")), ["file"]);

    ok(["cp", &server.url("/tree/file"), "/dev/null"]);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    ok(["cp", &server.url("/tree/file"), fifo.to_str().unwrap()]);
    assert_eq!(reader.wait_with_output().unwrap().stdout, b"x");
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(ok(["cp", &server.url("/tree/file"), "/dev/stdout"]), "x");
}

#[test]
fn a_special_file_that_is_named_is_an_error() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for fifo in [here.path().join("fifo"), server.path("fifo")] {
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    }
    fs::write(here.path().join("file"), b"x").unwrap();
    let local = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let (up, down) = ([local("fifo"), server.url("/copy")], [server.url("/fifo"), local("copy")]);
    for (options, are_named) in
        [(&["cp"][..], &[&down][..]), (&["cp", "-r"], &[&up, &down]), (&["cp", "-p", "--dry-run"], &[&down])]
    {
        for names in are_named {
            let error = fails(1, options.iter().copied().chain(names.iter().map(String::as_str)));
            assert!(error.contains("/fifo: is a fifo, which cannot be copied"), "{error}");
        }
    }
    // Beside it the rest is copied.
    let error = fails(1, ["cp", "-r", &local("fifo"), &local("file"), &server.url("/")]);
    assert!(error.contains("is a fifo"), "{error}");
    assert_eq!(names(server.root.path()), ["fifo", "file"]);
    let error = fails(1, ["cp", "/dev/null", &server.url("/null")]);
    assert!(error.contains("for standard input, use -"), "{error}");
}

#[test]
fn a_fifo_that_is_named_is_read_to_its_end() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let fifo = here.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for options in [&["cp"][..], &["cp", "-p"], &["cp", "--verify"]] {
        let writing = fifo.clone();
        let writer = std::thread::spawn(move || fs::write(writing, vec![b'x'; 300_000]).unwrap());
        ok([options, &[fifo.to_str().unwrap(), &server.url("/copy")]].concat());
        writer.join().unwrap();
        assert_eq!(fs::read(server.path("copy")).unwrap(), vec![b'x'; 300_000], "{options:?}");
    }
    let script = "\"$nfsw\" cp <(echo substituted) $target && echo piped | \"$nfsw\" cp /dev/stdin $target.in && \"$nfsw\" cp /dev/stdin $target.file <$file";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).env("nfsw", common::program()).env("target", server.name("/out"));
    let file = here.path().join("file");
    fs::write(&file, "redirected\n").unwrap();
    assert!(shell.env("file", &file).status().unwrap().success());
    for (name, expected) in [("out", "substituted\n"), ("out.in", "piped\n"), ("out.file", "redirected\n")] {
        assert_eq!(fs::read_to_string(server.path(name)).unwrap(), expected);
    }
}

#[test]
fn names_in_events_are_the_real_ones() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let odd = "gr\u{fc}n\n\\\u{1b}(1m";
    fs::write(tree.join(odd), b"x").unwrap();
    fs::write(tree.join(OsStr::from_bytes(b"\xff")), b"x").unwrap();
    let root = tree.to_str().unwrap();
    let run = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let printed = ok(arguments);
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let copied = run(&["cp", "-r", "--json", root, &server.url("/copy")]);
    let event = copied.iter().find(|it| it["source"] == format!("{root}/{odd}")).unwrap();
    assert_eq!(event["target"], server.name(&format!("/copy/{odd}")));
    assert_eq!(event.get("source_bytes"), None);
    let hex = |text: &[u8]| text.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let event = copied.iter().find(|it| it["event"] == "file" && it.get("source_bytes").is_some()).unwrap();
    assert_eq!(event["source"], format!("{root}/\u{fffd}"));
    assert_eq!(event["source_bytes"], hex(&[root.as_bytes(), b"/\xff"].concat()));
    assert_eq!(event["target_bytes"], hex(&[server.name("/copy/").as_bytes(), b"\xff"].concat()));
    let planned = run(&["cp", "-r", "--json", "--dry-run", root, &server.url("/other")]);
    assert!(planned.iter().any(|it| it["target"] == server.name(&format!("/other/{odd}"))));
    let removed = run(&["rm", "-r", "--json", &server.url("/copy")]);
    assert!(removed.iter().any(|it| it["path"] == format!("/copy/{odd}")));
    assert!(removed.iter().any(|it| it["path_bytes"] == hex(b"/copy/\xff")));
}

#[test]
fn links_are_copied_and_never_written_through() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir_all(server.path("tree/dir")).unwrap();
    fs::write(server.path("tree/dir/file"), b"from the server").unwrap();
    fs::write(server.path("tree/link"), b"from the server").unwrap();
    symlink("tree/link", server.path("named")).unwrap();
    // A tree is waiting whose entries lead out of it.
    fs::create_dir(here.path().join("tree")).unwrap();
    symlink(outside.path(), here.path().join("tree/dir")).unwrap();
    fs::write(outside.path().join("precious"), b"mine").unwrap();
    symlink(outside.path().join("precious"), here.path().join("tree/link")).unwrap();
    let error = fails(1, ["cp", "-r", &server.url("/tree"), here.path().to_str().unwrap()]);
    assert!(error.contains("not a directory"), "{error}");
    assert_eq!(names(outside.path()), ["precious"]);
    assert_eq!(fs::read(outside.path().join("precious")).unwrap(), b"mine");
    assert!(fs::symlink_metadata(here.path().join("tree/link")).unwrap().is_file());

    // One that is named is followed, as by cp and scp, unless a tree is copied; the last option counts.
    let local = here.path().join("named");
    for (options, is_link) in [
        ("", false),
        ("-r", true),
        ("-P", true),
        ("-rH", false),
        ("-rL", false),
        ("-LP", true),
        ("-PH", false),
    ] {
        let options = if options.is_empty() { &[][..] } else { &[options][..] };
        let named = ["cp"].iter().chain(options).copied();
        ok(named.clone().chain([&server.url("/named")[..], local.to_str().unwrap()]));
        assert_eq!(fs::symlink_metadata(&local).unwrap().is_symlink(), is_link, "{options:?}");
        fs::remove_file(&local).unwrap();
        symlink("tree/link", &local).unwrap();
        fs::write(here.path().join("tree/link"), b"from here").unwrap();
        ok(named.chain([local.to_str().unwrap(), &server.url("/copy")]));
        assert_eq!(fs::symlink_metadata(server.path("copy")).unwrap().is_symlink(), is_link, "{options:?}");
        fs::remove_file(&local).unwrap();
        fs::remove_file(server.path("copy")).unwrap();
    }
}

#[test]
fn links_in_a_tree_are_followed_if_wanted_but_not_in_circles() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for root in [server.path(""), here.path().to_owned()] {
        fs::create_dir_all(root.join("tree/dir")).unwrap();
        fs::write(root.join("outside"), b"outside").unwrap();
        symlink("../outside", root.join("tree/file")).unwrap();
        symlink("dir", root.join("tree/way")).unwrap();
        fs::write(root.join("tree/dir/inner"), b"inner").unwrap();
        symlink("nowhere", root.join("tree/dangling")).unwrap();
        symlink("..", root.join("tree/dir/loop")).unwrap();
    }
    let local = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    for (from, to, copy) in [
        (local("tree"), server.url("/copy"), server.path("copy")),
        (server.url("/tree"), local("copy"), here.path().join("copy")),
    ] {
        let output = nfsw(["cp", "-rL", &from, &to]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("loop: skipped: it leads to a directory above itself"), "{said}");
        assert!(said.contains("dangling: "), "{said}");
        assert_eq!(names(&copy), [".nfsw-incomplete", "dir", "file", "way"], "another run could go on there");
        assert_eq!(fs::read(copy.join("file")).unwrap(), b"outside");
        assert!(fs::symlink_metadata(copy.join("file")).unwrap().is_file());
        assert_eq!(names(&copy.join("way")), ["inner"]);
    }
}

#[test]
fn what_the_target_is_can_be_said() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let local = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(here.path().join("tree/sub")).unwrap();
    fs::write(here.path().join("tree/sub/file"), b"x").unwrap();
    for _ in 0..2 {
        // Into what exists, and as it.
        ok(["cp", "-rT", &local("tree"), &server.url("/out")]);
        assert_eq!(names(&server.path("out")), ["sub"]);
        ok(["cp", "-rT", &server.url("/out"), &local("back")]);
        assert_eq!(names(&here.path().join("back")), ["sub"]);
        // What is in it, in both directions.
        ok(["cp", "-r", &server.url("/out/."), &local("back")]);
        assert_eq!(names(&here.path().join("back")), ["sub"]);
        ok(["cp", "-r", &(local("tree") + "/."), &server.url("/out")]);
        assert_eq!(names(&server.path("out")), ["sub"]);
        ok(["cp", "-r", &server.url("/out/sub/."), &local("fresh")]);
        assert_eq!(names(&here.path().join("fresh")), ["file"]);
    }
    fs::create_dir(here.path().join("in")).unwrap();
    let output = command(["cp", "-rT", &server.url("/out"), "."])
        .current_dir(here.path().join("in"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(&here.path().join("in")), ["sub"]);
    let error = fails(1, ["cp", "-T", &local("tree/sub/file"), &server.url("/out")]);
    assert!(error.contains("is a directory"), "{error}");
    let error = fails(2, ["cp", "-rT", &local("tree"), &local("back"), &server.url("/out")]);
    assert!(error.contains("-T takes one SRC"), "{error}");
}

#[test]
fn a_server_is_copied_to_itself_and_to_another() {
    let (server, other) = (Server::start(), Server::start());
    let tree = server.path("tree");
    fs::create_dir(&tree).unwrap();
    plant(&tree);
    ok(["cp", "-rp", "--verify", &server.url("/tree"), &other.url("/copy")]);
    assert_same_tree(&tree, &other.path("copy"), true);
    ok(["cp", "-rp", &server.url("/tree"), &server.url("/second")]);
    assert_same_tree(&tree, &server.path("second"), true);
    let error = fails(1, ["cp", "-r", &server.url("/tree/deep"), &server.url("/tree/deep/er")]);
    assert!(error.contains("into itself"), "{error}");
    let error = fails(1, ["cp", &server.url("/tree/large"), &server.url("/tree/large")]);
    assert!(error.contains("same file"), "{error}");
    for root in [&tree, &other.path("copy"), &server.path("second")] {
        unlock(root);
    }
}

#[test]
fn no_file_is_written_in_the_place_of_itself() {
    let server = Server::start();
    fs::write(server.path("file"), b"content").unwrap();
    fs::hard_link(server.path("file"), server.path("other")).unwrap();
    symlink("file", server.path("link")).unwrap();
    let here = |name: &str| server.path(name).to_str().unwrap().to_owned();
    let there = |name: &str| server.url(name);
    for (source, target) in [
        (there("/file"), there("/file")),
        (there("/file"), there("/other")),
        (there("/file"), there("/link")),
        (there("/file"), there("/other").replace("127.0.0.1", "[::ffff:127.0.0.1]")),
        (here("file"), there("/file")),
        (here("other"), there("/file")),
        (here("link"), there("/other")),
        (there("/file"), here("file")),
        (there("/other"), here("link")),
        ("-".to_owned(), there("/file")),
        ("/dev/stdin".to_owned(), there("/other")),
    ] {
        let input = File::open(server.path("file")).unwrap();
        let output = command(["cp", "--inplace", &source, &target]).stdin(input).output().unwrap();
        let said = stderr(&output);
        assert_eq!(fs::read(server.path("file")).unwrap(), b"content", "{source} to {target}: {said}");
        assert!(output.status.code() == Some(1) && said.contains("are the same file"), "{said}");
    }
    // What is another file is written.
    fs::write(server.path("third"), b"content").unwrap();
    ok(["cp", "--inplace", &here("file"), &there("/third")]);
}

#[test]
fn a_directory_that_this_machine_serves_is_not_copied_into_itself() {
    for (from_here, target) in
        [(true, "tree/new"), (true, "tree/deep/er/new"), (false, "tree/new"), (false, "tree/deep/new")]
    {
        let server = Server::start();
        let path = server.path("tree");
        fs::create_dir_all(path.join("deep/er")).unwrap();
        fs::write(path.join("deep/file"), b"x").unwrap();
        let (local, remote) = (
            |name: &str| server.path(name).to_str().unwrap().to_owned(),
            |name: &str| server.url(&format!("/{name}")),
        );
        let (source, target) =
            if from_here { (local("tree"), remote(target)) } else { (remote("tree"), local(target)) };
        let error = fails(1, ["cp", "-r", &source, &target]);
        assert!(error.contains("into itself") && error.lines().count() == 1, "{source} to {target}: {error}");
        assert!(!path.join("new/new").exists() && !path.join("deep/new/deep/new").exists());
    }
    // What only has the number of a directory on a server is another one.
    let (server, other) = (Server::start(), Server::start());
    fs::create_dir(server.path("tree")).unwrap();
    ok(["cp", "-r", server.path("tree").to_str().unwrap(), &other.url("/copy")]);
}

/// Starts a copy of files slowly, one after the other, and tightens the mode of what is replaced, or makes it.
fn mode_after(arguments: [&str; 2], replaced: &Path) -> u32 {
    let slowly = ["cp", "-r", "--jobs", "1", "--bwlimit", "16Mbit", "--transport", "tcp"];
    let mut copy = command(slowly).args(arguments).spawn().unwrap();
    let directory = replaced.parent().unwrap();
    let has_begun = |name: &std::ffi::OsString| {
        let is_part = name.to_str().unwrap().starts_with(".a.nfsw-part");
        is_part && fs::metadata(directory.join(name)).is_ok_and(|it| it.len() > 0)
    };
    common::until("the copy begins", || names(directory).iter().any(has_begun));
    File::options().append(true).create(true).open(replaced).unwrap();
    fs::set_permissions(replaced, Permissions::from_mode(0o600)).unwrap();
    assert!(copy.wait().unwrap().success());
    fs::metadata(replaced).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_copy_is_readable_by_no_more_than_what_it_replaces_is_by_then() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for root in
        [server.path("tree"), here.path().join("tree"), server.path("there"), here.path().join("back")]
    {
        fs::create_dir(&root).unwrap();
        for name in ["a", "b"] {
            fs::write(root.join(name), noise(2 << 20)).unwrap();
        }
    }
    let (tree, back) = (here.path().join("tree"), here.path().join("back"));
    let other = Server::start();
    for name in ["a", "b"] {
        fs::write(other.path(name), noise(2 << 20)).unwrap();
    }
    let from_here = format!("{}/.", tree.to_str().unwrap());
    for (from, to, path) in [
        (&*from_here, &*server.url("/there"), server.path("there")),
        (&*server.url("/tree/."), back.to_str().unwrap(), back.clone()),
        (&*other.url("/."), &*server.url("/there"), server.path("there")),
    ] {
        // The one that is being copied, and the next one.
        for name in ["a", "b"] {
            fs::set_permissions(path.join(name), Permissions::from_mode(0o644)).unwrap();
            assert_eq!(mode_after([from, to], &path.join(name)), 0o600, "{from} {to} {name}");
        }
    }
}

#[test]
fn a_download_to_what_gets_a_narrower_mode_and_the_name_is_not_readable_by_more() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for name in ["a", "b"] {
        fs::write(server.path(name), noise(2 << 20)).unwrap();
    }
    let replaced = here.path().join("a");
    assert_eq!(mode_after([&server.url("/."), here.path().to_str().unwrap()], &replaced), 0o600);
    assert_eq!(fs::read(&replaced).unwrap(), noise(2 << 20));
}

#[test]
fn a_copy_in_another_group_gives_that_group_nothing_that_not_all_had() {
    common::needs_root("gives files to another group");
    let (server, here, source) = (Server::start(), tempfile::tempdir().unwrap(), Server::start());
    let own = fs::metadata(here.path()).unwrap().gid();
    let from_here = here.path().join("from");
    for path in [&from_here, &source.path("from")] {
        fs::write(path, "new").unwrap();
    }
    let (from_here, from_there) = (from_here.to_str().unwrap(), source.url("/from"));
    for (mode, group, expected) in [
        (0o640, own, 0o640),
        (0o640, common::NOBODY, 0o600),
        (0o664, common::NOBODY, 0o644),
        (0o604, common::NOBODY, 0o600),
        (0o644, common::NOBODY, 0o644),
    ] {
        for (from, to, path) in [
            (from_here, server.url("/to"), server.path("to")),
            (&from_there, here.path().join("to").to_str().unwrap().to_owned(), here.path().join("to")),
            (&from_there, server.url("/relayed"), server.path("relayed")),
        ] {
            let _ = fs::remove_file(&path);
            fs::write(&path, "old").unwrap();
            std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            ok(["cp", from, &to]);
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            assert_eq!((metadata.gid(), metadata.mode() & 0o777), (own, expected), "{from} {to} {mode:o}");
        }
    }
}

#[test]
fn what_stands_in_the_way_of_a_temporary_file_stays() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let copy = here.path().join("copy");
    fs::write(server.path("file"), b"x").unwrap();
    fs::create_dir(here.path().join(".copy.nfsw-part")).unwrap();
    ok(["cp", &server.url("/file"), copy.to_str().unwrap()]);
    assert_eq!(names(here.path()), [".copy.nfsw-part", "copy"]);
    assert_eq!(fs::read(copy).unwrap(), b"x");
}

#[test]
fn a_copy_that_goes_well_says_nothing() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let local = here.path().join("file");
    fs::write(server.path("file"), noise(300_000)).unwrap();
    for names in
        [[&server.url("/file"), local.to_str().unwrap()], [local.to_str().unwrap(), &server.url("/copy")]]
    {
        let output = nfsw(["cp"].iter().chain(&names));
        assert!(output.status.success() && output.stdout.is_empty());
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn files_may_be_written_in_place() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("file");
    fs::write(server.path("file"), b"new").unwrap();
    fs::write(&local, b"old and longer").unwrap();
    fs::hard_link(&local, here.path().join("other name")).unwrap();
    ok(["cp", "--inplace", &server.url("/file"), local.to_str().unwrap()]);
    assert_eq!(fs::read(here.path().join("other name")).unwrap(), b"new");
    fs::write(server.path("file"), b"something longer").unwrap();
    fs::hard_link(server.path("file"), server.path("other")).unwrap();
    ok(["cp", "--inplace", local.to_str().unwrap(), &server.url("/file")]);
    assert_eq!(fs::read(server.path("other")).unwrap(), b"new");
}

#[test]
fn the_rate_is_kept_below_the_limit() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(server.path("file"), noise(256 << 10)).unwrap();
    let (url, local) = (server.url("/file"), here.path().join("file"));
    let started = std::time::Instant::now();
    ok(["cp", "--bwlimit", "2Mbit", &url, local.to_str().unwrap()]);
    ok(["cp", "--bwlimit", "2Mbit", &url, &server.url("/copy")]);
    // Two times 256 KiB at 2 Mbit/s take 2.1 s, less what may go at once.
    let elapsed = started.elapsed();
    assert!(elapsed > Duration::from_millis(1200), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
}
