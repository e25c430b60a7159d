//! Standard output that nobody reads, or that is full: what was to be done is done, and the status speaks of that.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Output, Stdio},
};

use crate::common::{Server, assert_same_tree, command, names, ok, stderr};

const FILES: usize = 100;

const SAID: &str = "standard output was closed";

/// Runs `nfsw` with a standard output whose reader has gone.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

/// Expects that a command which prints a lot went on, and said once that nobody listens.
fn goes_on(arguments: &[&str]) {
    let output = unread(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    assert_eq!(said.matches(SAID).count(), 1, "{arguments:?}: {said}");
}

/// Command lines that print a page.
const PAGES: [&[&str]; 9] = [
    &["--help"],
    &["--version"],
    &["help", "sync"],
    &["curve", "--help"],
    &["cp", "-h"],
    &["ls", "--help-connection"],
    &["link", "presets"],
    &["man", "cp"],
    &["completions", "bash"],
];

fn plant(root: &Path) {
    for number in 0..FILES {
        let directory = root.join(format!("dir {}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file {number}")), format!("{number}")).unwrap();
    }
}

#[test]
fn copies_go_on_when_nobody_reads_what_they_print() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (tree, back) = (here.path().join("tree"), here.path().join("back"));
    plant(&tree);
    let (tree, back) = (tree.to_str().unwrap(), back.to_str().unwrap());
    for option in ["-v", "--json"] {
        goes_on(&["cp", "-r", option, tree, &server.url("/out")]);
        assert_same_tree(Path::new(tree), &server.path("out"), false);
        goes_on(&["cp", "-r", option, &server.url("/out"), back]);
        assert_same_tree(Path::new(tree), Path::new(back), false);
        goes_on(&["cp", "-r", option, &server.url("/out"), &server.url("/second")]);
        assert_same_tree(Path::new(tree), &server.path("second"), false);
        fs::remove_dir_all(back).unwrap();
        fs::remove_dir_all(server.path("out")).unwrap();
        fs::remove_dir_all(server.path("second")).unwrap();
    }
}

#[test]
fn a_closed_standard_output_does_not_hide_what_failed() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    plant(&tree);
    fs::create_dir_all(server.path("out/dir 0/file 0")).unwrap();
    let (tree, out) = (tree.to_str().unwrap(), server.url("/out"));
    let output = unread(&["cp", "-rv", &format!("{tree}/."), &out]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains(SAID) && stderr(&output).contains("is a directory"));
    assert!(server.path("out/dir 1/file 1").exists() && server.path("out/dir 6/file 6").exists());
    let output = unread(&["rm", "-v", &server.url("/out/dir 1/file 1"), &server.url("/missing")]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

#[test]
fn names_and_modes_are_changed_when_nobody_reads_which() {
    let server = Server::start();
    plant(&server.path("tree"));
    goes_on(&["chmod", "-Rv", "700", &server.url("/tree")]);
    for number in 0..FILES {
        let file = server.path(&format!("tree/dir {}/file {number}", number % 7));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o700, "{number}");
    }
    let targets = ["/a", "/b", "/c"].map(|path| server.url(path));
    goes_on(&[&["mkdir", "-v"][..], &targets.each_ref().map(String::as_str)].concat());
    goes_on(&["mv", "-v", &targets[0], &targets[1], &server.url("/c")]);
    assert_eq!(names(&server.path("c")), ["a", "b"]);
    goes_on(&["ln", "-sv", "a", &server.url("/c/link")]);
    assert_eq!(names(&server.path("c")), ["a", "b", "link"]);
    goes_on(&["rm", "-rv", &server.url("/tree"), &server.url("/c")]);
    assert_eq!(names(server.root.path()).len(), 0);
}

#[test]
fn what_only_prints_ends_quietly_with_its_reader() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    plant(&server.path("tree"));
    let (tree, file) = (server.url("/tree"), server.url("/tree/dir 0/file 0"));
    let target = here.path().join("x");
    for arguments in [
        &["ls", "-lR", &tree][..],
        &["ls", "--json", &tree],
        &["stat", &file],
        &["cat", &file],
        &["cp", &file, "-"],
        &["df", &tree],
        &["exports", &tree],
        &["ping", "-c", "2", "-i", "1ms", &tree],
        &["cp", "-r", "--dry-run", &tree, target.to_str().unwrap()],
    ]
    .into_iter()
    .chain(PAGES)
    {
        let output = unread(arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_full_standard_output_stops_no_work_but_is_an_error() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    plant(&tree);
    let full = |arguments: &[&str]| {
        let output = File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{arguments:?}: {}", stderr(&output));
        let told = stderr(&output).matches("standard output: no space left on device").count();
        assert_eq!(told, 1, "{arguments:?}: {}", stderr(&output));
    };
    full(&["cp", "-rv", tree.to_str().unwrap(), &server.url("/out")]);
    assert_same_tree(&tree, &server.path("out"), false);
    full(&["ls", &server.url("/out")]);
    PAGES.into_iter().for_each(full);
    full(&["rm", "-rv", &server.url("/out")]);
    assert!(!server.path("out").exists());
}

#[test]
fn what_is_changed_is_named_if_wanted() {
    let server = Server::start();
    fs::write(server.path("file"), b"x").unwrap();
    let (url, name) = (|path| server.url(path), |path| server.name(path));
    assert_eq!(ok(["mkdir", "-v", &url("/dir")]), format!("created {}\n", name("/dir")));
    assert_eq!(
        ok(["mv", "-v", &url("/file"), &url("/dir")]),
        format!("{} -> {}\n", name("/file"), name("/dir/file"))
    );
    assert_eq!(ok(["ln", "-v", &url("/dir/file"), &url("/two")]), format!("created {}\n", name("/two")));
    assert_eq!(ok(["chmod", "-v", "600", &url("/two")]), format!("{}: 0600\n", name("/two")));
    let removed = format!("removed {}\nremoved {}\n", name("/dir/file"), name("/dir"));
    assert_eq!(ok(["rm", "-rv", &url("/dir")]), removed);
    assert_eq!(ok(["rm", &url("/two")]), "");
}
