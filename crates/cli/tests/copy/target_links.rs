//! Symbolic links at the target: the same in both directions, and as cp(1) of GNU coreutils does
//! where that is safe.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{self, Server, assert_same_tree, fails, nfsw, ok, stderr};

/// Makes what is copied.
fn make_sources(root: &Path) {
    fs::create_dir_all(root.join("tree/sub")).unwrap();
    fs::write(root.join("file"), "new").unwrap();
    fs::write(root.join("tree/inner"), "new, too").unwrap();
    symlink("file", root.join("link")).unwrap();
}

/// Makes where it is copied to.
fn make_targets(root: &Path) {
    fs::create_dir_all(root.join("directory/below")).unwrap();
    fs::write(root.join("plain"), "old").unwrap();
    fs::write(root.join("directory/below/plain"), "old").unwrap();
    for (name, leads_to) in [
        ("to-file", "plain"),
        ("to-file-below", "directory/below/plain"),
        ("to-link", "to-file-below"),
        ("up-and-down", "directory/below/../../plain"),
        ("to-directory", "directory"),
        ("to-nothing", "nothing"),
        ("to-itself", "to-itself"),
    ] {
        symlink(leads_to, root.join(name)).unwrap();
    }
}

/// What is run: options, those that cp does not know, the source and the target.
const RUNS: &[(&[&str], &[&str], &str, &str)] = &[
    (&[], &[], "file", "to-file"),
    (&[], &[], "file", "to-file-below"),
    (&[], &[], "file", "to-link"),
    (&[], &[], "file", "up-and-down"),
    (&[], &[], "file", "to-directory"),
    (&[], &[], "file", "to-nothing"),
    (&[], &[], "file", "to-itself"),
    (&[], &["--inplace"], "file", "to-file"),
    (&[], &["--inplace"], "file", "to-link"),
    (&[], &["--inplace"], "file", "to-nothing"),
    (&[], &["--inplace"], "file", "to-directory"),
    (&["-n"], &[], "file", "to-nothing"),
    (&["-p"], &[], "file", "to-file"),
    (&["-T"], &[], "file", "to-file"),
    (&["-T"], &[], "file", "to-directory"),
    (&["-T"], &[], "file", "to-nothing"),
    (&["-r"], &[], "file", "to-file"),
    (&["-r"], &[], "file", "to-nothing"),
    (&["-r"], &[], "tree", "to-directory"),
    (&["-r"], &[], "tree", "to-file"),
    (&["-r"], &[], "tree", "to-nothing"),
    (&["-r"], &[], "tree", "to-itself"),
    (&["-r"], &[], "tree/.", "to-directory"),
    (&["-rT"], &[], "tree", "to-directory"),
    (&["-rT"], &[], "tree", "to-file"),
    (&["-rT"], &[], "tree", "to-nothing"),
    (&[], &[], "link", "to-file"),
    (&[], &[], "link", "to-nothing"),
    (&["-P"], &[], "link", "to-file"),
    (&["-P"], &[], "link", "to-nothing"),
    (&["-P"], &[], "link", "to-itself"),
    (&["-P"], &[], "link", "to-directory"),
    (&["-PT"], &[], "link", "to-directory"),
    (&["-r"], &[], "link", "to-link"),
];

#[test]
fn a_link_that_is_named_as_the_target_is_what_it_is_to_cp() {
    for &(options, own, source, target) in RUNS {
        let example = tempfile::tempdir().unwrap();
        make_sources(&example.path().join("from"));
        make_targets(&example.path().join("to"));
        let cp = Command::new("cp")
            .args(options)
            .arg(example.path().join("from").join(source))
            .arg(example.path().join("to").join(target))
            .stderr(Stdio::null())
            .status()
            .unwrap();
        for is_upload in [true, false] {
            let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
            let (from, to) =
                if is_upload { (here.path(), server.root.path()) } else { (server.root.path(), here.path()) };
            make_sources(from);
            make_targets(to);
            let local = |name: &str| format!("{}/{name}", here.path().display());
            let far = |name: &str| server.url(&format!("/{name}"));
            let ends = if is_upload { [local(source), far(target)] } else { [far(source), local(target)] };
            let output = nfsw([&["cp"], options, own, &[&ends[0][..], &ends[1]]].concat());
            let run = format!("{options:?} {own:?} {source} {target}, upload: {is_upload}");
            assert_eq!(output.status.success(), cp.success(), "{run}: {}", stderr(&output));
            assert_eq!(
                stderr(&output).lines().count(),
                usize::from(!cp.success()),
                "{run}: {}",
                stderr(&output)
            );
            println!("{run}: {}", stderr(&output).trim_end());
            assert_same_tree(&example.path().join("to"), to, false);
        }
    }
}

#[test]
fn a_link_in_a_directory_that_is_copied_into_is_never_followed() {
    for is_upload in [true, false] {
        let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
        let (from, to) =
            if is_upload { (here.path(), server.root.path()) } else { (server.root.path(), here.path()) };
        make_sources(from);
        fs::create_dir_all(to.join("into/tree")).unwrap();
        fs::create_dir(to.join("elsewhere")).unwrap();
        fs::write(to.join("precious"), "precious").unwrap();
        let plant = |target: &str, name: &str| {
            let name = to.join(name);
            let _ = fs::remove_file(&name);
            symlink(target, name).unwrap();
        };
        let local = |name: &str| format!("{}/{name}", here.path().display());
        let far = |name: &str| server.url(&format!("/{name}"));
        let ends =
            |name: &str| if is_upload { [local(name), far("into")] } else { [far(name), local("into")] };
        // Nobody has named the link in it: it is replaced, whether it leads somewhere or not.
        for leads_to in ["../precious", "../nothing", "../elsewhere"] {
            plant(leads_to, "into/file");
            let [file, into] = ends("file");
            let error = fails(1, ["cp", "--inplace", &file, &into]);
            assert!(error.contains("--inplace does not write through"), "{error}");
            ok(["cp", &file, &into]);
            assert_eq!(fs::read_link(to.join("into/file")).ok(), None);
            assert_eq!(fs::read(to.join("into/file")).unwrap(), b"new");
        }
        plant("../../precious", "into/tree/inner");
        let [tree, into] = ends("tree");
        ok(["cp", "-r", &tree, &into]);
        assert_eq!(fs::read_link(to.join("into/tree/inner")).ok(), None);
        // A directory does not replace it, and does not go through it.
        fs::remove_dir(to.join("into/tree/sub")).unwrap();
        plant("../../elsewhere", "into/tree/sub");
        let error = fails(1, ["cp", "-r", &tree, &into]);
        assert!(error.contains("is not a directory"), "{error}");
        assert_eq!(fs::read(to.join("precious")).unwrap(), b"precious");
        assert!(common::names(&to.join("elsewhere")).is_empty());
    }
}

/// Scripts in a directory, in which `nfsw` is the program and `file` the source, and what its file `out` has then.
const DESCRIPTORS: [(&str, &str); 6] = [
    ("{ echo a; nfsw cp -q $file /dev/stdout; echo b; } >out", "a\nnew\nb\n"),
    ("echo z >out; { echo a; nfsw cp -q $file /dev/stdout; echo b; } >>out", "z\na\nnew\nb\n"),
    ("{ echo a >&5; nfsw cp -q $file /dev/fd/5; echo b >&5; } 5>out", "a\nnew\nb\n"),
    ("{ echo a; nfsw cp -q -n $file /proc/self/fd/1; echo b; } >out", "a\nnew\nb\n"),
    ("ln -s /dev/stdout link; { echo a; nfsw cp -q $file link; echo b; } >out", "a\nnew\nb\n"),
    ("{ nfsw cp -q $file /dev/stdout | cat; echo b; } >out", "new\nb\n"),
];

#[test]
fn a_descriptor_as_target_is_written_where_it_stands() {
    let server = Server::start();
    fs::write(server.path("/file"), "new\n").unwrap();
    for (script, expected) in DESCRIPTORS {
        let place = tempfile::tempdir().unwrap();
        let program = common::program();
        let url = server.url("/file");
        let script = format!("set -e; nfsw() {{ \"$program\" \"$@\"; }}; {script}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("program", program)
            .env("file", url)
            .env("XDG_STATE_HOME", place.path().join("state"))
            .env("XDG_CACHE_HOME", place.path().join("cache"))
            .current_dir(place.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", stderr(&output));
        assert_eq!(fs::read_to_string(place.path().join("out")).unwrap(), expected, "{script}");
    }
}

#[test]
fn what_exists_and_is_no_file_is_not_written_where_nothing_is_replaced() {
    use std::{io::Read, os::unix::fs::OpenOptionsExt};

    let server = Server::start();
    fs::write(server.path("/file"), "new").unwrap();
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // A reader and a writer, so that nobody waits for one.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut reader = fs::File::options().read(true).write(true).custom_flags(flags).open(&fifo).unwrap();
    for (option, expected) in [("-n", ""), ("-u", ""), ("-q", "new")] {
        ok(["cp", option, &server.url("/file"), fifo.to_str().unwrap()]);
        let mut got = [0; 16];
        let count = reader.read(&mut got).unwrap_or(0);
        assert_eq!(&got[..count], expected.as_bytes(), "{option}");
    }
}
