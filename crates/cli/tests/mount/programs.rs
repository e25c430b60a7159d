//! Programs that people use, on a mounted tree: each says what it says of the same tree on a disk. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    thread,
};

use crate::{
    common::{Server, assert_same_tree, noise, stderr},
    mounted::{Mount, silence},
};

/// What is said in the tree and in the mount alike.
const SAME: [&str; 7] = [
    "git status --porcelain",
    "git log --stat --format=%H",
    "git diff",
    "find . -type f -printf '%p %s %m %T@\\n' | sort",
    "du -a --apparent-size . | sort -k 2",
    "grep -rc 'line 7' . | sort",
    "ls -lR --time-style=full-iso",
];

/// Makes a repository with a change, a new file and a deletion. Its directories are old: rsync takes times of directories within one
/// second for the same, and a copy that it makes at once would keep the time at which it was made.
fn repository(root: &Path) {
    for directory in 0..6 {
        let path = root.join(format!("source/part {directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..20 {
            let lines = (0..file * 9).map(|line| format!("line {line} of {file}\n")).collect::<String>();
            fs::write(path.join(format!("file{file}.txt")), lines).unwrap();
        }
    }
    fs::write(root.join("film"), noise(3 << 20)).unwrap();
    let script = "git init -q && git add . && git -c user.name=n -c user.email=n@example.org commit -qm first
        echo more >>'source/part 1/file3.txt'; echo new >new; rm 'source/part 2/file4.txt'
        find . -type d -exec touch -d '2020-01-01 12:34:56.789' {} +";
    let output = Command::new("sh").args(["-ec", script]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Runs a script in a directory and returns what it printed.
fn said(script: &str, directory: &Path) -> String {
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-ec", script])
        .current_dir(directory)
        // The tree is another user's to git where that is so; in a mount nothing can be written.
        .envs([("GIT_OPTIONAL_LOCKS", "0"), ("GIT_CONFIG_COUNT", "1"), ("LC_ALL", "C"), ("TZ", "UTC")])
        .envs([("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Copies the mounted tree by rsync, and compares.
fn synchronise(tree: &Path, view: &Path) {
    let copy = tempfile::tempdir().unwrap();
    let line =
        format!("rsync -a . '{0}' && rsync -ac --dry-run --itemize-changes . '{0}'", copy.path().display());
    assert_eq!(said(&line, view), "", "a second run finds nothing to do");
    assert_same_tree(tree, copy.path(), true);
}

/// Reads pieces of any length at any offset, as fsx does, by several descriptors.
fn exercise(path: &Path, expected: &[u8], mut state: u64) {
    let mut next = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut files: Vec<_> = (0..3).map(|_| File::open(path).unwrap()).collect();
    let mut buffer = vec![0; 300_000];
    for _ in 0..400 {
        if next(20) == 0 {
            files[next(3)] = File::open(path).unwrap();
        }
        let offset = next(expected.len() + 5000);
        let longest = 300_000 >> next(12);
        let wanted = &mut buffer[..1 + next(longest)];
        let mut length = 0;
        while length < wanted.len() {
            match files[next(3)].read_at(&mut wanted[length..], (offset + length) as u64).unwrap() {
                0 => break,
                read => length += read,
            }
        }
        let from = offset.min(expected.len());
        let to = (offset + wanted.len()).min(expected.len());
        assert!(wanted[..length] == expected[from..to], "{offset} + {}", wanted.len());
    }
}

#[test]
fn programs_say_of_a_mounted_tree_what_they_say_of_the_tree_alone_at_once_and_without_the_server() {
    let server = Server::start();
    let tree = server.path("/");
    repository(&tree);
    let expected = SAME.map(|script| said(script, &tree));
    assert!(expected[0].lines().count() == 3 && expected[4].lines().count() > 130, "{expected:?}");
    let film = noise(3 << 20);
    let check = |view: &Path, number: usize| {
        assert_eq!(said(SAME[number], view), expected[number], "{}", SAME[number])
    };
    let alone = Mount::of(&server, &[]);
    for number in 0..SAME.len() {
        check(&alone.path, number);
    }
    synchronise(&tree, &alone.path);
    exercise(&alone.path("film"), &film, 1);

    // A mount that holds nothing yet.
    let together = Mount::of(&server, &[]);
    thread::scope(|scope| {
        for number in 0..SAME.len() {
            let view = &together.path;
            scope.spawn(move || check(view, number));
        }
        scope.spawn(|| synchronise(&tree, &together.path));
        for seed in 2..5 {
            let (path, film) = (together.path("film"), &film);
            scope.spawn(move || exercise(&path, film, seed));
        }
    });

    silence(&server);
    for number in 0..SAME.len() {
        check(&together.path, number);
    }
    synchronise(&tree, &together.path);
    exercise(&together.path("film"), &film, 5);
}
