//! Directories and files of the destination that have two names: of two sources for one, one would be left.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{Server, command, needs_root, stderr};

/// A directory that is bound to another name.
struct Bound(PathBuf);

impl Bound {
    fn new(from: &Path, to: &Path) -> Self {
        needs_root("mounts");
        assert!(Command::new("mount").arg("--bind").args([from, to]).status().unwrap().success());
        Self(to.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn one_directory_under_two_names_is_filled_from_one_source() {
    let server = Server::start();
    write(&server.path("tree/x/f"), "of x");
    write(&server.path("tree/y/f"), "of y");
    write(&server.path("tree/y/g"), "of y");
    for arguments in [&["cp", "-rT", "-j1", "--verify"][..], &["cp", "-rT"], &["sync"], &["sync", "--delete"]]
    {
        let here = tempfile::tempdir().unwrap();
        let target = here.path().join("target");
        let [x, y] = ["x", "y"].map(|name| target.join(name));
        fs::create_dir_all(&x).unwrap();
        fs::create_dir(&y).unwrap();
        let bound = Bound::new(&x, &y);
        for round in 0..2 {
            let ends = [server.url("/tree"), target.to_str().unwrap().to_owned()];
            let output = command(arguments).args(ends).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{arguments:?} {round}: {said}");
            assert!(said.contains("not copied, it is the same as"), "{said}");
            let copied = fs::read_to_string(x.join("f")).unwrap();
            let refused = if copied == "of x" { "y" } else { "x" };
            assert!(said.contains(&format!("/{refused}: not copied")), "{copied}: {said}");
        }
        drop(bound);
    }
}

#[test]
fn one_file_under_two_names_is_written_in_place_from_one_source() {
    for size in [5, 700 << 10] {
        for is_upload in [true, false] {
            for jobs in ["-j1", "-j16"] {
                let server = Server::start();
                let here = tempfile::tempdir().unwrap();
                let (tree, target) = (server.path("tree"), here.path().join("target"));
                let (from, to) = if is_upload { (&target, &tree) } else { (&tree, &target) };
                write(&from.join("a"), &"a".repeat(size));
                write(&from.join("b"), &"b".repeat(size));
                write(&to.join("a"), "before");
                fs::hard_link(to.join("a"), to.join("b")).unwrap();
                let mut ends = [server.url("/tree"), target.to_str().unwrap().to_owned()];
                if is_upload {
                    ends.reverse();
                }
                let ran = command(["cp", "-rT", "--inplace", "--verify", jobs]).args(ends).output().unwrap();
                let (said, what) = (stderr(&ran), (size, is_upload, jobs));
                // Two that begin at once find each other's lock.
                let whys = [(1, "not copied, it is the same as"), (7, "another nfsw is writing this file")];
                let is_refused =
                    |(code, why): &(i32, &str)| ran.status.code() == Some(*code) && said.contains(why);
                assert!(whys.iter().any(is_refused), "{what:?}: {}: {said}", ran.status);
                let left = fs::read_to_string(to.join("a")).unwrap();
                assert!(["a", "b"].iter().any(|name| left == name.repeat(size)), "{what:?}: {said}");
            }
        }
    }
}
