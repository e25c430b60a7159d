//! Several runs that divide a tree: `--shard K/N`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal};

use crate::common::{self, Server, as_nobody, command, fails, nfsw, noise, ok, stderr, until};

/// Numbers without a pattern (Marsaglia 2003, xorshift64).
struct Random(u64);

impl Random {
    /// Those of this test, or of `NFSW_SEED`; the seed is told if the test fails.
    fn new(seed: u64) -> Self {
        let seed = std::env::var("NFSW_SEED").map_or(seed, |seed| seed.parse().unwrap());
        eprintln!("NFSW_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Makes a tree with files of all sizes, links, names of a file, empty directories and a fifo.
fn plant(top: &Path, random: &mut Random, entries: usize) {
    let mut directories = vec![top.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    fs::create_dir(top).unwrap();
    let bytes = noise(1 << 20);
    for number in 0..entries {
        let above = directories[random.below(directories.len() as u64) as usize].clone();
        let path = above.join(format!("n{number}"));
        match random.below(20) {
            0..3 => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            3 => symlink(format!("target {number}"), path).unwrap(),
            4..7 if !files.is_empty() => {
                let first = &files[random.below(files.len() as u64) as usize];
                fs::hard_link(first, path).unwrap();
            }
            7 => {
                fs::write(&path, &bytes[..random.below(1 << 20) as usize]).unwrap();
                files.push(path);
            }
            _ => {
                fs::write(&path, &bytes[..random.below(9000) as usize]).unwrap();
                files.push(path);
            }
        }
    }
    assert!(Command::new("mkfifo").arg(top.join("fifo")).status().unwrap().success());
    for directory in directories.iter().rev() {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000 + random.below(1000));
        fs::File::open(directory).unwrap().set_modified(time).unwrap();
    }
}

/// Begins a part of a run.
fn begin(state: &Path, run: &[&str], number: usize, count: usize) -> Child {
    let shard = format!("{number}/{count}");
    let mut part = command([run, &["--shard", &shard, "--json", "--quiet"]].concat());
    // Numbers of runs are not taken by those of other tests.
    part.env("XDG_STATE_HOME", state);
    part.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(process: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(process), signal).unwrap();
}

/// Waits for a part of a run; returns what it says it has done: for each event, how often.
fn end(part: Child) -> BTreeMap<String, u64> {
    let output = part.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    count(&text)
}

fn count(events: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        *counts.entry(event["event"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    for event in ["summary", "totals", "progress"] {
        counts.remove(event);
    }
    counts
}

/// Expects that a sync of everything finds nothing to do.
fn assert_complete(state: &Path, source: &str, target: &str) {
    let run = command(["sync", "--json", source, target]).env("XDG_STATE_HOME", state).output().unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let counts = count(&String::from_utf8(run.stdout).unwrap());
    for event in ["file", "link", "directory", "resumed", "error"] {
        assert_eq!(counts.get(event), None, "{counts:?}");
    }
    let planned = ok(["sync", "-n", "--delete", source, target]);
    assert!(planned.contains("delete 0;"), "{planned}");
}

/// Expects the same below two directories, but for fifos and for what a run that was killed has left.
fn assert_same_contents(source: &Path, target: &Path) {
    let (wanted, found) = (contents(source), contents(target));
    let differs = |path: &&PathBuf| wanted.get(*path) != found.get(*path);
    let different: BTreeSet<_> = wanted.keys().chain(found.keys()).filter(differs).collect();
    assert!(different.is_empty(), "{different:?}");
}

/// Bytes or target, mode, and the time of all but links.
type Content = (Vec<u8>, u32, Option<(i64, i64)>);

/// Returns what is below a directory.
fn contents(top: &Path) -> BTreeMap<PathBuf, Content> {
    let mut all = BTreeMap::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let found = fs::symlink_metadata(&path).unwrap();
            if path.ends_with("fifo") || path.to_str().unwrap().contains(".nfsw-part") {
                continue;
            }
            let bytes = if found.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if found.is_file() {
                fs::read(&path).unwrap()
            } else {
                directories.push(path.clone());
                Vec::new()
            };
            let time = (!found.is_symlink()).then(|| (found.mtime(), found.mtime_nsec()));
            all.insert(path.strip_prefix(top).unwrap().to_owned(), (bytes, found.mode(), time));
        }
    }
    all
}

/// Returns the paths below a directory that are names of one file, for each file with several.
fn several_names(top: &Path) -> BTreeSet<Vec<PathBuf>> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let (path, found) = (entry.path(), entry.metadata().unwrap());
            if found.is_dir() {
                directories.push(path);
            } else {
                files.entry(found.ino()).or_default().push(path.strip_prefix(top).unwrap().to_owned());
            }
        }
    }
    files.values_mut().for_each(|names| names.sort());
    files.into_values().filter(|names| names.len() > 1).collect()
}

/// A tree, and where four processes copy it.
struct Divided {
    /// It serves one of both.
    _server: Server,
    here: tempfile::TempDir,
    source: PathBuf,
    target: PathBuf,
    /// What the command is told.
    ends: [String; 2],
}

impl Divided {
    fn plant(up: bool, random: &mut Random) -> Self {
        let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
        let local = |name: &str| here.path().join(name);
        let shown = |name: &str| local(name).to_str().unwrap().to_owned();
        let (source, target, ends) = match up {
            true => (local("tree"), server.path("copy"), [shown("tree"), server.url("/copy")]),
            false => (server.path("tree"), local("copy"), [server.url("/tree"), shown("copy")]),
        };
        plant(&source, random, 300);
        Self { _server: server, here, source, target, ends }
    }

    /// The command for all of it.
    fn whole<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        [options, &[&*self.ends[0], &*self.ends[1]]].concat()
    }

    /// Copies it in four parts, of which one is killed and run again; expects all of it.
    fn copy(&self, options: &[&str], random: &mut Random) {
        let run = self.whole(options);
        let mut parts: Vec<_> = (1..=4).map(|number| begin(self.here.path(), &run, number, 4)).collect();
        let (victim, entries) = (random.below(4) as usize, random.below(150) as usize);
        until("some of it is there", || walk(&self.target) > entries);
        let mut killed = parts.remove(victim);
        killed.kill().unwrap();
        killed.wait_with_output().unwrap();
        parts.push(begin(self.here.path(), &run, victim + 1, 4));
        for part in parts {
            end(part);
        }
        assert_same_contents(&self.source, &self.target);
    }

    /// Expects all of it, and nothing else.
    fn assert_whole(&self) {
        assert_same_contents(&self.source, &self.target);
        let left = Command::new("find").arg(&self.target).args(["-name", "*nfsw*"]).output().unwrap();
        assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
    }
}

#[test]
fn four_runs_at_once_are_one_run_although_one_is_killed() {
    let mut random = Random::new(45);
    for up in [true, false] {
        let divided = Divided::plant(up, &mut random);
        divided.copy(&["sync"], &mut random);
        assert_eq!(several_names(&divided.source), several_names(&divided.target));
        assert_complete(divided.here.path(), &divided.ends[0], &divided.ends[1]);
        divided.assert_whole();
    }
}

#[test]
fn a_copy_by_four_is_whole_although_one_is_killed() {
    let mut random = Random::new(46);
    for up in [true, false] {
        let divided = Divided::plant(up, &mut random);
        fs::remove_file(divided.source.join("fifo")).unwrap();
        let options = ["cp", "-rp", "-T"];
        divided.copy(&options, &mut random);
        let whole = divided.whole(&options);
        let whole = command(&whole).env("XDG_STATE_HOME", divided.here.path()).output().unwrap();
        assert!(whole.status.success(), "{}", stderr(&whole));
        divided.assert_whole();
    }
}

/// Counts what is in a directory and below.
fn walk(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries.flatten().map(|entry| 1 + walk(&entry.path())).sum()
}

#[test]
fn every_event_of_a_run_is_one_of_exactly_one_shard() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    plant(&tree, &mut Random::new(7), 200);
    let (tree, copy) = (tree.to_str().unwrap(), server.url("/copy"));
    fs::create_dir(server.path("into")).unwrap();
    let into = server.url("/into");
    let lines = |text: String| -> Vec<String> {
        let told = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let told = told
            .filter(|event| !["summary", "totals", "progress"].contains(&event["event"].as_str().unwrap()));
        // Which name of a file is the first is nobody's matter.
        let fields = ["event", "source", "target", "reason", "message"];
        let mut told: Vec<_> =
            told.map(|event| fields.map(|field| event[field].to_string()).join(" ")).collect();
        told.sort();
        told
    };
    let archive = ["cp", "-a", tree, &into];
    let runs = [&["sync", tree, &copy][..], &archive, &["cp", "-a", "-T", tree, &copy]];
    for (run, dry_run) in runs.into_iter().zip(["-n", "--dry-run", "--dry-run"]) {
        let say = |more: &[&str]| lines(ok([run, &["--json", dry_run], more].concat()));
        let one = say(&[]);
        assert!(one.len() > 150, "{}", one.len());
        for count in [1, 3] {
            let shards = (1..=count).map(|number| say(&["--shard", &format!("{number}/{count}")]));
            let mut all: Vec<_> = shards.flatten().collect();
            all.sort();
            assert_eq!(all, one, "{run:?} {count}");
        }
    }
    // And so it is when it is done, one after the other.
    let mut sums = BTreeMap::<_, u64>::new();
    for number in 1..=3 {
        end(begin(here.path(), &archive, number, 3))
            .into_iter()
            .for_each(|(event, count)| *sums.entry(event).or_default() += count);
    }
    let target = server.path("into/tree");
    assert_same_tree_without_fifo(Path::new(tree), &target);
    fs::remove_dir_all(&target).unwrap();
    let one = count(&ok([&archive[..], &["--json", "--quiet"]].concat()));
    assert_eq!(sums, one);
}

fn assert_same_tree_without_fifo(source: &Path, target: &Path) {
    assert_same_contents(source, target);
    let times = [source, target].map(|path| fs::metadata(path).unwrap().modified().unwrap());
    assert_eq!(times[0], times[1]);
}

/// Returns the number of the shard, of `count`, that copies a file.
fn shard_of(file: &str, run: &[&str], count: usize) -> usize {
    let name = format!("/{file}");
    let copies = |number: &usize| {
        let shard = format!("{number}/{count}");
        let events = ok([run, &["--dry-run", "--json", "--shard", &shard]].concat());
        events.lines().any(|line| line.contains("\"event\":\"file\"") && line.contains(&name))
    };
    (1..=count).find(copies).expect("one of them copies it")
}

#[test]
fn shards_leave_the_partial_files_of_others_and_resume_their_own() {
    for up in [true, false] {
        let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
        let local = here.path().join("tree");
        let source = if up { local.clone() } else { server.path("tree") };
        fs::create_dir_all(source.join("d")).unwrap();
        fs::write(source.join("d/big"), noise(4 << 20)).unwrap();
        (0..40).for_each(|number| fs::write(source.join(format!("d/{number}")), "small").unwrap());
        let copy = here.path().join("copy");
        let remote = server.url(if up { "/copy" } else { "/tree" });
        let ends = if up { [local.to_str().unwrap(), &remote] } else { [&remote, copy.to_str().unwrap()] };
        let target = if up { server.path("copy") } else { copy.clone() };
        let run = [&["sync"], &ends[..]].concat();
        let slow = shard_of("big", &run, 2);
        let mut slowly = begin(here.path(), &[&run[..], &["--bwlimit", "8Mbit"]].concat(), slow, 2);
        let part = || common::part(&target.join("d/big"));
        until("a part is there", || fs::metadata(part()).is_ok_and(|it| it.blocks() > 1024));
        // However slow the other one is.
        signal(&slowly, Signal::STOP);
        end(begin(here.path(), &run, 3 - slow, 2));
        assert!(part().exists(), "the other one has removed it");
        slowly.kill().unwrap();
        slowly.wait().unwrap();
        let counts = end(begin(here.path(), &run, slow, 2));
        assert_eq!(counts.get("resumed"), Some(&1), "{counts:?}");
        assert_same_contents(&source, &target);
        assert_complete(here.path(), ends[0], ends[1]);
    }
}

#[test]
fn a_directory_that_another_shard_closes_to_its_owner_is_opened_again() {
    let (server, here) = (Server::of_nobody(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/big"), noise(2 << 20)).unwrap();
    (0..20).for_each(|number| fs::write(tree.join(format!("d/{number}")), "small").unwrap());
    for path in [tree.join("d"), tree.clone()] {
        fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
    }
    fs::set_permissions(here.path(), Permissions::from_mode(0o755)).unwrap();
    let (source, target) = (tree.to_str().unwrap(), server.url("/copy"));
    let run = ["sync", source, &target];
    let slow = shard_of("big", &run, 2);
    let shards = |number: usize| [&run[..], &["--shard", if number == 1 { "1/2" } else { "2/2" }]].concat();
    let slowly = as_nobody([&shards(slow)[..], &["--bwlimit", "8Mbit"]].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("a part is there", || common::part(&server.path("copy/d/big")).exists());
    signal(&slowly, Signal::STOP);
    let output = as_nobody(shards(3 - slow)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let mode = || fs::metadata(server.path("copy/d")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o555, "which is in the way of the slow one");
    signal(&slowly, Signal::CONT);
    let output = slowly.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_same_contents(&tree, &server.path("copy"));
    assert_complete(here.path(), source, &target);
}

#[test]
fn what_shards_cannot_do_is_said() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    let (tree, copy) = (tree.to_str().unwrap(), server.url("/copy"));
    let said = fails(2, ["sync", "--delete", "--shard", "1/4", tree, &copy]);
    assert!(said.contains("a last run with --delete and without --shard"), "{said}");
    let said = fails(2, ["cp", "-r", "--shard", "1/4", tree, &copy]);
    assert!(said.contains("does not exist; create it first: nfsw mkdir"), "{said}");
    let said = fails(2, ["cp", "--shard", "1/4", "-", &copy]);
    assert!(said.contains("--shard divides the files of a tree"), "{said}");
    for shard in ["0/4", "5/4", "1", "1/0", "x/4"] {
        let output = nfsw(["sync", "--shard", shard, tree, &copy]);
        assert_eq!(output.status.code(), Some(2), "{shard}");
        assert!(stderr(&output).contains("K from 1 to N"), "{}", stderr(&output));
    }
    assert!(!server.path("copy").exists());
    // All of it is one shard.
    ok(["sync", "--shard", "1/1", tree, &copy]);
    assert_complete(here.path(), tree, &copy);
}
