//! Names and destinations that could be taken for something else.

use std::fs;

use crate::common::{self, Server, fails, names, nfsw, ok, stderr};

/// Writes a name as it stands in a URL, so that it is no pattern.
fn escaped(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'*' | b'?' | b'[' | b'%' | b'\\' => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        })
        .collect()
}

#[test]
fn what_is_escaped_in_a_url_is_a_name_and_no_pattern() {
    let server = Server::start();
    let ours = ["*", "q?", "[k]", "a*b", "a\\*", "%2A", "[", "x]"];
    let others = ["keep", "qq", "k", "a-b", "a\\-", "x"];
    for name in ours.iter().chain(&others) {
        fs::write(server.path(name), name).unwrap();
    }
    for name in ours {
        let url = server.url(&format!("/{}", escaped(name)));
        assert_eq!(ok(["cat", &url]), name);
        // What nfsw prints names the same file.
        let shown = ok(["ls", "-d", &url]);
        assert_eq!(ok(["cat", shown.trim_end()]), name, "{shown}");
        ok(["rm", &url]);
        assert!(!server.path(name).exists(), "{name}");
    }
    let mut left = others;
    left.sort_unstable();
    assert_eq!(names(&server.path("/")), left);
    // Beside an escaped part, another one may be a pattern.
    fs::write(server.path("[1] a"), "").unwrap();
    fs::write(server.path("1 b"), "").unwrap();
    ok(["rm", &server.url("/%5B1]*")]);
    assert!(!server.path("[1] a").exists() && server.path("1 b").exists());
}

#[test]
fn an_escaped_bracket_belongs_to_the_class() {
    let server = Server::start();
    for name in ["]", "x", "\\]", "["] {
        fs::write(server.path(name), "").unwrap();
    }
    assert_eq!(ok(["ls", "-d", &server.url("/[%5D]")]), format!("{}\n", server.name("/]")));
    ok(["rm", &server.url("/[x%5D]")]);
    assert_eq!(names(&server.path("/")), ["[", "\\]"]);
}

#[test]
fn what_a_backslash_escapes_is_a_name_and_no_pattern() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (config, port) = (here.path().join("nfsw"), server.address().port());
    fs::create_dir(&config).unwrap();
    let host = format!("[host.nas]\nname = '127.0.0.1'\nnfs-port = {port}\nmount-port = {port}\n");
    fs::write(config.join("config.toml"), host).unwrap();
    let run = |arguments: &[&str]| {
        let output = common::command(arguments).env("XDG_CONFIG_HOME", here.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    };
    let others = ["a-b", "a\\-b", "k"];
    for (name, escaped) in
        [("a*b", r"nas:/a\*b"), (r"a\*b", r"nas:/a\\\*b"), ("q?", r"nas:/q\?"), ("[k]", r"nas:/\[k\]")]
    {
        for name in others.iter().chain([&name, &"q-"]) {
            fs::write(server.path(name), name).unwrap();
        }
        let copies = tempfile::tempdir().unwrap();
        run(&["cp", escaped, copies.path().to_str().unwrap()]);
        assert_eq!(names(copies.path()), [name], "{escaped}");
        run(&["rm", escaped]);
        assert_eq!(names(&server.path("/")), ["a-b", "a\\-b", "k", "q-"], "{escaped}");
    }
}

#[test]
fn a_dry_run_names_what_a_real_run_names() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("a *");
    fs::create_dir_all(tree.join("50 %/?")).unwrap();
    fs::write(tree.join("50 %/?/[x]"), "").unwrap();
    let targets = |options: &[&str]| -> Vec<serde_json::Value> {
        let line = ["cp", "-r", "--json", tree.to_str().unwrap(), &server.url("/")];
        let events = ok(line.iter().chain(options));
        let events = events.lines().map(|line| serde_json::from_str(line).unwrap());
        events.map(|mut event: serde_json::Value| event["target"].take()).filter(|it| !it.is_null()).collect()
    };
    let planned = targets(&["--dry-run"]);
    assert_eq!(planned, targets(&[]));
    assert_eq!(planned.last().unwrap(), &server.name("/a %2A/50 %25/%3F/%5Bx]"));
}

#[test]
fn a_directory_to_sync_is_no_pattern() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    for (directory, text) in [("[k]", "right"), ("k", "wrong")] {
        fs::create_dir(server.path(directory)).unwrap();
        fs::write(server.path(directory).join("f"), text).unwrap();
    }
    let copy = here.path().join("copy");
    let (source, copy_text) = (server.url("/[k]"), copy.to_str().unwrap());
    ok(["sync", &source, copy_text]);
    assert_eq!(fs::read(copy.join("f")).unwrap(), b"right");
    fs::write(copy.join("g"), "new").unwrap();
    ok(["sync", copy_text, &source]);
    assert!(server.path("[k]/g").exists() && !server.path("k/g").exists());
}

#[test]
fn a_file_does_not_become_the_directory_that_is_missing() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let file = here.path().join("file");
    fs::write(&file, "bytes").unwrap();
    let file = file.to_str().unwrap();
    for end in ["/", "/."] {
        let said = fails(2, ["cp", file, &server.url(&format!("/new{end}"))]);
        assert!(said.contains("/new does not exist; create it first: nfsw mkdir "), "{said}");
    }
    assert!(names(&server.path("/")).is_empty());
    fs::write(server.path("there"), "precious").unwrap();
    let said = fails(2, ["cp", file, &server.url("/there/")]);
    assert!(said.contains("/there: is not a directory"), "{said}");
    assert_eq!(fs::read(server.path("there")).unwrap(), b"precious");

    let local = format!("{}/new/", here.path().display());
    let said = fails(2, ["cp", &server.url("/there"), &local]);
    assert!(said.contains("does not exist; create it first: mkdir "), "{said}");
    fs::create_dir(&local).unwrap();
    ok(["cp", &server.url("/there"), &local]);
    ok(["cp", "-r", &local, &server.url("/tree/")]);
    assert!(server.path("tree/there").exists());
}

#[test]
fn closed_standard_input_is_not_an_empty_file() {
    let server = Server::start();
    fs::write(server.path("file"), "precious").unwrap();
    let program = common::program();
    let copy = |input: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("\"$nfsw\" cp - \"$url\" {input}")]).env("nfsw", &program);
        shell.env("url", server.url("/file")).output().unwrap()
    };
    // Behind `nohup` it is open, but for writing only.
    for input in ["<&-", "0>/dev/null", "0>/dev/full"] {
        let closed = copy(input);
        assert_eq!(closed.status.code(), Some(2), "{input}: {}", stderr(&closed));
        assert!(
            stderr(&closed).contains("standard input is closed or cannot be read"),
            "{}",
            stderr(&closed)
        );
        assert_eq!(fs::read(server.path("file")).unwrap(), b"precious");
    }
    let empty = copy("</dev/null");
    assert!(empty.status.success(), "{}", stderr(&empty));
    assert_eq!(fs::read(server.path("file")).unwrap(), b"");
}

#[test]
fn what_a_list_of_files_names_is_there_or_reported() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (tree, list) = (here.path().join("tree"), here.path().join("list"));
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("f1"), "1").unwrap();
    fs::write(tree.join("sub/f2"), "2").unwrap();
    let [tree, list_text] = [&tree, &list].map(|path| path.to_str().unwrap());
    fs::write(&list, "f1\nnone\n").unwrap();
    for command in [&["sync"][..], &["cp", "-r"]] {
        let target = server.url(&format!("/{}", command[0]));
        let options = [command, &["--files-from", list_text, tree, &target]].concat();
        let output = nfsw(options);
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("tree/none: listed in --files-from, but not there"));
    }
    for copy in ["sync/f1", "cp/f1"] {
        assert!(server.path(copy).exists(), "{copy}");
    }
    fs::write(&list, "# all\n\n; of it\n.\n").unwrap();
    ok(["sync", "--files-from", list_text, tree, &server.url("/b")]);
    assert_eq!(names(&server.path("b")), ["f1", "sub"]);
    assert!(server.path("b/sub/f2").exists());
    // What another option leaves out is not missing.
    fs::write(&list, "f1\nsub/f2\n").unwrap();
    ok(["sync", "--files-from", list_text, "--exclude", "sub", tree, &server.url("/c")]);
    assert_eq!(names(&server.path("c")), ["f1"]);
    // Where there is no source, that is all there is to say.
    let none = here.path().join("none");
    for source in [none.to_str().unwrap(), &server.url("/none")] {
        let target = if source.starts_with("nfs:") { tree.to_owned() } else { server.url("/d") };
        let said = fails(4, ["cp", "-r", "--files-from", list_text, source, &target]);
        assert!(said.contains("none: no such file or directory"), "{said}");
    }
    fs::write(&list, "f2\n").unwrap();
    let said = fails(4, ["cp", "-q", "--files-from", list_text, &format!("{tree}/f1"), &server.url("/e")]);
    assert!(said.contains("f1/f2: listed in --files-from, but not there"), "{said}");
}

#[test]
fn what_a_list_of_files_names_may_be_behind_a_link() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let list = here.path().join("list");
    for tree in [here.path().join("tree"), server.path("tree")] {
        fs::create_dir_all(tree.join("real")).unwrap();
        for name in ["f", "g"] {
            fs::write(tree.join("real").join(name), name).unwrap();
        }
        for (link, target) in [("lnk", "real"), ("up", ".."), ("nowhere", "none"), ("other", "real")] {
            std::os::unix::fs::symlink(target, tree.join(link)).unwrap();
        }
    }
    let (local, remote) = (here.path().join("tree"), server.url("/tree"));
    let [local, list_text] = [&local, &list].map(|path| path.to_str().unwrap());
    for (number, options) in [&["sync"][..], &["cp", "-r"], &["cp", "-rL"]].into_iter().enumerate() {
        let copy = format!("copy{number}");
        let download = here.path().join(&copy);
        for (source, target, copy) in [
            (local, &*server.url(&format!("/{copy}")), server.path(&copy)),
            (&*remote, download.to_str().unwrap(), download.clone()),
        ] {
            fs::write(&list, "lnk/f\nother\n").unwrap();
            ok(options.iter().chain(&["--files-from", list_text, source, target]));
            assert!(fs::symlink_metadata(copy.join("lnk")).unwrap().is_dir());
            assert_eq!(names(&copy.join("lnk")), ["f"]);
            assert_eq!(copy.join("other").is_symlink(), options.last() != Some(&"-rL"));
            fs::write(&list, "nowhere/f\n").unwrap();
            let output = nfsw(options.iter().chain(&["-q", "--files-from", list_text, source, target]));
            let said = stderr(&output);
            assert!(!output.status.success() && said.lines().count() == 1, "{said}");
            assert!(said.contains("nowhere: no such file or directory"), "{said}");
        }
    }
}

#[test]
fn what_a_list_of_files_names_is_not_found_outside_of_the_source() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let list = here.path().join("list");
    let mut cases = Vec::new();
    for root in [here.path().to_owned(), server.path("")] {
        fs::create_dir_all(root.join("tree/real/deep")).unwrap();
        fs::create_dir_all(root.join("tree-beside")).unwrap();
        for file in ["tree/real/f", "tree/real/deep/f", "tree-beside/f"] {
            fs::write(root.join(file), file).unwrap();
        }
    }
    let absolute = here.path().join("tree/real").to_str().unwrap().to_owned();
    for (link, target, is_inside) in [
        ("inside", "real", true),
        ("real/around", "../../tree/real/deep", true),
        ("beside", "../tree-beside", false),
        ("real/deep/up", "../../../tree-beside", false),
        ("through", "beside", false),
        ("above", "..", false),
    ] {
        for root in [here.path().to_owned(), server.path("")] {
            std::os::unix::fs::symlink(target, root.join("tree").join(link)).unwrap();
        }
        cases.push((link, is_inside));
    }
    std::os::unix::fs::symlink(absolute, here.path().join("tree/absolute")).unwrap();
    let (local, list_text) = (here.path().join("tree"), list.to_str().unwrap());
    let sources = [local.to_str().unwrap().to_owned(), server.url("/tree")];
    for (source, (link, is_inside)) in sources
        .iter()
        .flat_map(|source| cases.iter().chain([&("absolute", true)]).map(move |case| (source, *case)))
    {
        if link == "absolute" && source != &sources[0] {
            continue;
        }
        for options in [&["sync"][..], &["cp", "-rT"]] {
            let copy = tempfile::tempdir().unwrap();
            let (target, made) = if source == &sources[0] {
                (server.url("/copy"), server.path("copy"))
            } else {
                let made = copy.path().join("copy");
                (made.to_str().unwrap().to_owned(), made)
            };
            fs::write(&list, format!("{link}/f\n")).unwrap();
            let arguments = [options, &["--files-from", list_text, source, &target]].concat();
            let output = nfsw(&arguments);
            let said = stderr(&output);
            assert_eq!(output.status.success(), is_inside, "{link}: {said}");
            assert_eq!(made.join(link).join("f").exists(), is_inside, "{link}: {said}");
            let is_said =
                said.contains(&format!("/{link}: not followed, it leads out of SRC (-L follows it)"));
            assert_eq!(is_said, !is_inside, "{link}: {said}");
            let _ = fs::remove_dir_all(&made);
            if !is_inside && link != "above" {
                ok([options, &["-L", "--files-from", list_text, source, &target]].concat());
                assert_eq!(fs::read(made.join(link).join("f")).unwrap(), b"tree-beside/f");
                fs::remove_dir_all(&made).unwrap();
            }
        }
    }
}

#[test]
fn a_link_to_a_directory_with_a_slash_is_the_directory() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("dir")).unwrap();
    fs::write(server.path("dir/f"), "f").unwrap();
    std::os::unix::fs::symlink("dir", server.path("lnk")).unwrap();
    for (source, made) in [("/lnk", ""), ("/lnk/", "lnk/f"), ("/lnk/.", "f")] {
        for exists in [true, false] {
            let copy = here.path().join("copy");
            if exists {
                fs::create_dir(&copy).unwrap();
            }
            ok(["cp", "-r", &server.url(source), copy.to_str().unwrap()]);
            if made.is_empty() {
                let link = if exists { copy.join("lnk") } else { copy.clone() };
                assert!(link.is_symlink(), "{source} {exists}");
            } else {
                let made = if exists { made } else { "f" };
                assert_eq!(fs::read_to_string(copy.join(made)).unwrap(), "f", "{source} {exists}");
            }
            if exists {
                fs::remove_dir_all(&copy)
            } else {
                fs::remove_file(&copy).or_else(|_| fs::remove_dir_all(&copy))
            }
            .unwrap();
        }
    }
}
