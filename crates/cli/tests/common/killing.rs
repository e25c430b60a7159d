//! Runs of `nfsw cp` that are killed at random times, until they are done, and somebody who watches.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::part;

/// Bytes that one kill may make be copied again.
pub(crate) const MOST_AGAIN: u64 = 2 << 20;

/// Bytes that may be on their way when a run is killed.
const UNDER_WAY: u64 = 1 << 20;

/// Copies of one file or tree, one way.
pub(crate) struct Job<'a> {
    /// The program.
    pub(crate) nfsw: PathBuf,
    /// Where the program keeps its state.
    pub(crate) state: PathBuf,
    /// Arguments after `cp`, before the source.
    pub(crate) options: Vec<String>,
    /// Source and destination as the program is told.
    pub(crate) from: String,
    pub(crate) to: String,
    /// Source and destination as they are on this machine.
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// Sizes of the files, in bytes, by their names, which differ all over the tree.
    pub(crate) sizes: HashMap<OsString, u64>,
    /// A run is killed within this time, if it is not done before.
    pub(crate) patience: Duration,
    /// Bytes of file data that the server has read and written so far, by its own count.
    pub(crate) moved: Box<dyn Fn() -> u64 + Sync + 'a>,
}

/// What one run did.
#[derive(Debug, Default)]
struct Run {
    finished: bool,
    /// Bytes that it found copied, if it got as far as to say so.
    resumed: Option<u64>,
    /// Files that it copied.
    copied: Vec<OsString>,
    /// Bytes that the server read and wrote for it.
    moved: u64,
    /// Bytes of calls that it sent again before the answer came, if it was not killed.
    resent: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) kills: u32,
    pub(crate) copies: u32,
    /// The most bytes that a kill made be copied again.
    pub(crate) worst: u64,
    /// Bytes that all kills together made be copied again.
    pub(crate) again: u64,
}

impl Job<'_> {
    /// Copies again and again, until so many runs were killed and the last copy is complete.
    pub(crate) fn run(&self, kills: u32, seed: u64) -> Report {
        let mut report = Report::default();
        let mut random = Random(seed | 1);
        while report.kills < kills {
            self.copy_once(kills, &mut random, &mut report);
            report.copies += 1;
        }
        println!(
            "{} -> {}, seed {seed}: {} kills in {} copies, {} bytes copied again, {} for one kill at most",
            self.from, self.to, report.kills, report.copies, report.again, report.worst
        );
        report
    }

    fn copy_once(&self, kills: u32, random: &mut Random, report: &mut Report) {
        remove(&self.target);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(&done));
            // Also when a check fails: the scope waits for the watcher.
            let ended = Ended(&done);
            let (mut parts, mut complete) = (0_u64, HashSet::new());
            loop {
                let may_be_killed = report.kills < kills;
                let run = self.run_once(may_be_killed.then(|| random.below(self.patience)));
                // A run that was killed before it found anything has changed nothing.
                if run.finished || run.resumed.is_some() || !run.copied.is_empty() {
                    let twice = run.copied.iter().filter(|name| complete.contains(*name));
                    let again = twice.map(|name| self.sizes[name]).sum::<u64>()
                        + parts.saturating_sub(run.resumed.unwrap_or(0));
                    report.again += again;
                    report.worst = report.worst.max(again);
                }
                let kept = self.bytes_of(&complete) + run.resumed.unwrap_or(parts);
                (parts, complete) = self.left();
                self.check_moved(&run, kept, self.bytes_of(&complete) + parts);
                if run.finished {
                    break;
                }
                report.kills += 1;
            }
            drop(ended);
            watcher.join().expect("nothing was ever half visible");
        });
        assert_same(&self.source, &self.target);
    }

    /// Expects the server to have moved what is new, and not what a run says it has resumed.
    ///
    /// A quarter more is for what the link loses, and the server moves twice; what it answers so late that it is asked for twice, the run
    /// has counted.
    fn check_moved(&self, run: &Run, kept: u64, there: u64) {
        let new = there.saturating_sub(kept);
        let most = new + new / 4 + run.resent + UNDER_WAY;
        assert!(run.moved <= most, "{} bytes moved, {kept} kept, {there} there: {run:?}", run.moved);
        assert!(!run.finished || run.moved >= new, "only {} bytes moved, {new} are new", run.moved);
    }

    fn bytes_of(&self, names: &HashSet<OsString>) -> u64 {
        names.iter().map(|name| self.sizes.get(name).copied().unwrap_or(0)).sum()
    }

    /// What the server has moved when nothing is on its way any more.
    fn settled(&self) -> u64 {
        let mut moved = (self.moved)();
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = (self.moved)();
            if now == moved {
                return now;
            }
            moved = now;
        }
    }

    /// Runs the program, and kills it after a time if there is one.
    fn run_once(&self, kill_after: Option<Duration>) -> Run {
        let log = self.state.with_extension("log");
        let before = self.settled();
        let mut run = Command::new(&self.nfsw)
            .arg("cp")
            .args(["--json", "--quiet"])
            .args(&self.options)
            .args([&self.from, &self.to])
            .env("XDG_STATE_HOME", &self.state)
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = run.try_wait().unwrap() {
                assert!(status.success(), "{status}: {}", fs::read_to_string(&log).unwrap());
                break status;
            }
            if kill_after.is_some_and(|after| start.elapsed() >= after) {
                run.kill().unwrap();
                // It may have come to its end in this very moment.
                break run.wait().unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        };
        let moved = self.settled() - before;
        let mut run = Run { finished: status.success(), moved, ..Run::default() };
        for line in fs::read_to_string(&log).unwrap().lines() {
            let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            match event["event"].as_str() {
                Some("resumed") => *run.resumed.get_or_insert(0) += event["bytes"].as_u64().unwrap(),
                Some("file") => {
                    let name = Path::new(event["target"].as_str().unwrap()).file_name().unwrap();
                    run.copied.push(name.to_owned());
                }
                Some("summary") => {
                    let number = |key: &str| event[key].as_u64().unwrap_or(0);
                    run.resent = number("spurious_resends") * number("block_size");
                }
                _ => {}
            }
        }
        run
    }

    /// What a killed run has left: bytes in unfinished files, and the names of complete ones.
    fn left(&self) -> (u64, HashSet<OsString>) {
        let (mut parts, mut complete) = (0_u64, HashSet::new());
        for path in [self.target.clone(), part(&self.target)] {
            each_file(&path, &mut |path| {
                let name = path.file_name().unwrap();
                if name.to_string_lossy().contains(".nfsw-part") {
                    // Blocks, for there may be holes.
                    let metadata = fs::metadata(path).ok();
                    parts += metadata.map_or(0, |metadata| metadata.len().min(metadata.blocks() * 512));
                } else {
                    complete.insert(name.to_owned());
                }
            });
        }
        (parts, complete)
    }

    /// Looks at the target again and again: what has its name has all its bytes.
    fn watch(&self, done: &AtomicBool) {
        while !done.load(Ordering::Relaxed) {
            each_file(&self.target, &mut |path| {
                let name = path.file_name().unwrap();
                if let (false, Ok(metadata)) = (name.as_bytes().starts_with(b"."), fs::metadata(path)) {
                    assert_eq!(metadata.len(), self.sizes[name], "{path:?} is half visible");
                }
            });
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Ends a watch.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `found` for a file, or for all files in a tree.
fn each_file(path: &Path, found: &mut dyn FnMut(&Path)) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| each_file(&entry.path(), found)),
        Err(_) if path.exists() => found(path),
        // Not there, or not any more.
        Err(_) => {}
    }
}

fn remove(path: &Path) {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    assert!(removed.is_ok() || !path.exists());
}

/// Expects two files, or all files of two trees, to be the same, and no other files there.
fn assert_same(source: &Path, target: &Path) {
    let mut count = (0, 0);
    each_file(source, &mut |path| {
        let copy = target.join(path.strip_prefix(source).unwrap());
        // Joining nothing would make a directory of a file's path.
        let copy = if path == source { target } else { &copy };
        assert!(fs::read(path).unwrap() == fs::read(copy).unwrap(), "{copy:?} differs");
        count.0 += 1;
    });
    each_file(target, &mut |_| count.1 += 1);
    assert_eq!(count.0, count.1, "files are left over");
}

/// Numbers that look random: xorshift (Marsaglia 2003).
struct Random(u64);

impl Random {
    /// A time below `most`, in steps of a microsecond.
    fn below(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % most.as_micros() as u64)
    }
}
