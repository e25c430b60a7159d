//! `--exclude` and `--include` beside rsync, which must choose the same files.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::common::{self, Server, nfsw};
use serde_json::Value;

const NAMES: [&str; 12] = ["a", "b", "x.o", "y.c", "a.o", "ab", "{x,y}.c", r"x\.o", ".h", "a b", "[a]", "z"];

const PIECES: [&str; 20] = [
    "a",
    "b",
    "x",
    ".",
    "o",
    "*",
    "**",
    "?",
    "/",
    "[ab]",
    "[!a]",
    "[[:alpha:]]",
    "{",
    "}",
    ",",
    r"\",
    "***",
    ".o",
    "/",
    "*",
];

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn fill(directory: &Path, depth: usize, random: &mut Random) {
    for name in NAMES {
        let path = directory.join(name);
        match random.below(10) {
            0..3 if depth > 0 => {
                fs::create_dir(&path).unwrap();
                fill(&path, depth - 1, random);
            }
            3..8 => fs::write(path, "x").unwrap(),
            _ => {}
        }
    }
}

/// What rsync would copy.
fn rsync(filters: &[String], source: &Path, target: &Path) -> BTreeSet<String> {
    let mut command = Command::new("rsync");
    command.args(["-rn", "--out-format=%n"]).args(filters);
    let output = command.arg(source.join("")).arg(target).output().expect("rsync is installed");
    assert!(output.status.success(), "{filters:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter(|line| *line != "./");
    names.map(|line| line.trim_end_matches('/').replace(r"\#134", r"\")).collect()
}

/// What nfsw would.
fn planned(filters: &[String], source: &Path, server: &Server) -> BTreeSet<String> {
    let ends = [source.to_str().unwrap().to_owned(), server.url("/copy")];
    let output = nfsw(["sync", "-n", "--json"].map(str::to_owned).iter().chain(filters).chain(&ends));
    assert!(output.status.success(), "{filters:?}: {}", common::stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let targets = events.filter(|event| event["dry_run"] == true).filter_map(|event| {
        let target = event["target"].as_str()?.split_once("/copy/")?.1.trim_end_matches('/');
        Some(target.replace("%5B", "["))
    });
    targets.collect()
}

#[test]
fn patterns_choose_what_they_choose_for_rsync() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let mut random = Random(4);
    let (source, empty) = (here.path().join("source"), here.path().join("empty"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&empty).unwrap();
    fill(&source, 3, &mut random);
    let mut compared = 0;
    while compared < 150 {
        let mut filters = Vec::new();
        for _ in 0..=random.below(2) {
            let pattern: String = (0..=random.below(5)).map(|_| random.one(&PIECES)).collect();
            filters.push(format!("{}={pattern}", random.one(&["--exclude", "--exclude", "--include"])));
        }
        if random.below(5) == 0 {
            filters.push("--exclude=*".to_owned());
        }
        // What can match nothing is refused, and a backslash before a slash is nobody's pattern.
        let is_refused =
            |filter: &String| filter.split_once('=').unwrap().1.trim_matches(['/', '*']).is_empty();
        if filters
            .iter()
            .any(|filter| is_refused(filter) && filter != "--exclude=*" || filter.contains(r"\/"))
        {
            continue;
        }
        assert_eq!(planned(&filters, &source, &server), rsync(&filters, &source, &empty), "{filters:?}");
        compared += 1;
    }
}

#[test]
fn rules_of_rsync_are_refused_with_what_to_write_instead() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("tree")).unwrap();
    let rules = here.path().join("rules");
    fs::write(&rules, "# comment\n*.o\n- /cache/\n").unwrap();
    let target = here.path().join("copy");
    let ends = [&*server.url("/tree"), target.to_str().unwrap()];
    let from = format!("--exclude-from={}", rules.display());
    for (option, hint) in [
        (&*from, "line 3: - /cache/: is a rule of rsync; this file has the syntax of .gitignore: /cache/"),
        ("--exclude=- *.o", "give --exclude or --include *.o"),
        ("--include=+ *.o", "give --exclude or --include *.o"),
    ] {
        let output = nfsw(["sync", option].iter().chain(&ends));
        assert_eq!(output.status.code(), Some(2));
        let error = common::stderr(&output);
        assert!(error.contains(hint), "{error}");
    }
}
