//! Copies without a process of their own: each against a server in this one, and stopped where a
//! test wants it.

mod copy_calls;
mod copy_lists;
mod meanwhile;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_wireless_server::{
    Action, Calls, Faults, Rule, When,
    nfs_wire::{Procedure, Status},
    nfs3_types::nfs3,
};

use super::*;
use nfs_files::Context;

use crate::{
    args::OutputArgs,
    copy::Tags,
    local::{Directory, Marked, StateHome},
    name::MARKER,
    report::Reporter,
    served::{self, Served},
    servers::Servers,
};

/// A server, a directory on this machine and the state of runs.
struct Trial {
    server: Served,
    here: tempfile::TempDir,
    state: tempfile::TempDir,
}

/// What a run is asked for: over one transport, unless it names its own, without lines for people.
const OPTIONS: [&str; 3] = ["--transport", "tcp", "--quiet"];

impl Trial {
    fn start() -> Self {
        Self::of(Served::start())
    }

    fn of(server: Served) -> Self {
        let [here, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Self { server, here, state }
    }

    /// Returns the names of what is kept for later runs, but for what tells runs apart.
    fn kept(&self) -> Vec<String> {
        let mut kept = if self.state.path().exists() { names(self.state.path()) } else { Vec::new() };
        kept.retain(|name| name != "key" && !name.starts_with("run-"));
        kept
    }

    /// Copies; returns what came of it and what was counted.
    async fn copy(&self, arguments: &[&str]) -> (anyhow::Result<()>, serde_json::Value) {
        let (result, counts, _) = self.copy_over(arguments).await;
        (result, counts)
    }

    /// Copies; returns the exit status.
    async fn exit(&self, arguments: &[&str]) -> Exit {
        let (result, reporter, connections) = self.run(arguments).await;
        reporter.finish(result, &Summary::of(&connections))
    }

    /// As [`Trial::copy`]; also returns how many connections there are in the end.
    async fn copy_over(&self, arguments: &[&str]) -> (anyhow::Result<()>, serde_json::Value, usize) {
        let (result, reporter, connections) = self.run(arguments).await;
        (result, reporter.counts(), connections.clients().len())
    }

    async fn run(&self, arguments: &[&str]) -> (anyhow::Result<()>, Reporter, Servers) {
        let options = if arguments.contains(&OPTIONS[0]) { &OPTIONS[2..] } else { &OPTIONS };
        let arguments = served::cp(&[options, arguments].concat());
        let copy = Options { state: StateHome::at(self.state.path()), ..check(&arguments).unwrap() };
        let output = OutputArgs::default();
        let reporter = Reporter::new(&output, Instant::now()).with_verbosity(false, true).that_changes(false);
        let activity = Arc::clone(reporter.activity());
        let connections = arguments.connection.servers(arguments.bwlimit, activity);
        let result = copy::run(&copy, Context { servers: &connections, events: &reporter }).await;
        (result.map(drop).map_err(Into::into), reporter, connections)
    }

    /// From now on these things go wrong; of two that disagree the first.
    fn faults(&self, rules: &[(Calls, When, Action)]) {
        let rules = rules.iter().map(|&(calls, when, action)| Rule { calls, when, action });
        self.server.service(|service| service.set_faults(Faults::from(rules.collect::<Vec<_>>())));
    }

    /// Copies, and stops without a word as soon as the server leaves a call unanswered and nothing
    /// moves any more. Whether it was stopped.
    async fn stop(&self, arguments: &[&str]) -> bool {
        let mut copy = pin!(self.copy(arguments));
        let mut seen = (0, 0);
        loop {
            tokio::select! {
                (result, _) = &mut copy => {
                    result.unwrap();
                    return false;
                }
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    let before = std::mem::replace(&mut seen, self.server.service(|service| {
                        let stats = service.stats();
                        (stats.calls, stats.dropped_calls + stats.dropped_replies)
                    }));
                    if before == seen && seen.1 > 0 {
                        return true;
                    }
                }
            }
        }
    }

    /// From the n-th NFS call on the server does not answer, having carried out what it was asked
    /// for or not.
    fn fail_after(&self, calls: u64, action: Action) {
        self.faults(&[(Calls::Program(nfs3::PROGRAM), When::After(calls), action)]);
    }

    fn heal(&self) {
        self.faults(&[]);
    }

    /// Source and target of a copy of `from` to `to`, as they are named and as they are on this
    /// machine.
    fn ends(&self, is_upload: bool, from: &str, to: &str) -> ([String; 2], [PathBuf; 2]) {
        let (local, far) = if is_upload { (from, to) } else { (to, from) };
        let local = self.here.path().join(local);
        let [here, there] = [local.display().to_string(), self.server.url(&format!("/{far}"))];
        let far = self.server.path(far);
        if is_upload { ([here, there], [local, far]) } else { ([there, here], [far, local]) }
    }
}

/// Makes a small tree, with one of everything.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::write(root.join("file"), b"content").unwrap();
    fs::write(root.join("sub/inner"), vec![7; 40_000]).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    symlink("sub/inner", root.join("link")).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Expects two trees to be the same: names, kinds, bytes, targets of links.
fn assert_same(left: &Path, right: &Path, when: &str) {
    let (a, b) = (fs::symlink_metadata(left).unwrap(), fs::symlink_metadata(right).unwrap());
    assert_eq!(a.file_type(), b.file_type(), "{when}: {right:?}");
    if a.is_dir() {
        assert_eq!(names(left), names(right), "{when}: {right:?}");
        names(left).iter().for_each(|name| assert_same(&left.join(name), &right.join(name), when));
    } else if a.is_symlink() {
        assert_eq!(fs::read_link(left).unwrap(), fs::read_link(right).unwrap(), "{when}: {right:?}");
    } else {
        assert_eq!(fs::read(left).unwrap(), fs::read(right).unwrap(), "{when}: {right:?}");
    }
}

#[tokio::test]
async fn a_tree_is_copied_both_ways() {
    for is_upload in [true, false] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "tree", "copy");
        plant(&source);
        let (result, counts) = trial.copy(&["-r", "--verify", &from, &to]).await;
        result.unwrap();
        assert_eq!((&counts["done"], &counts["verified"]), (&4.into(), &3.into()), "{counts}");
        assert_same(&source, &target, "");
        // It is there now, so it goes into it.
        trial.copy(&["-r", &from, &to]).await.0.unwrap();
        assert_same(&source, &target.join("tree"), "");
        assert_eq!(trial.kept(), [""; 0]);
    }
}

/// A run that ends before or after any call at all is finished by the same command: between each
/// two steps that make, mark, name, fill and unmark the target.
#[tokio::test]
async fn a_tree_is_finished_after_an_end_at_any_call() {
    for is_upload in [true, false] {
        for action in [Action::DropCall, Action::DropReply] {
            let mut ends = 0;
            for calls in 0.. {
                let trial = Trial::start();
                let ([from, to], [source, target]) = trial.ends(is_upload, "tree", "copy");
                plant(&source);
                trial.fail_after(calls, action);
                let run = ["-r", &from, &to];
                if !trial.stop(&run).await {
                    break;
                }
                ends += 1;
                trial.heal();
                let when = format!("upload: {is_upload}, {action:?} after {calls} calls");
                let is_marked = target.join(std::str::from_utf8(MARKER).unwrap()).exists();
                let is_reserved =
                    fs::metadata(&target).is_ok_and(|it| it.permissions().mode() & 0o7777 == 0o1000);
                if target.exists() && !is_marked && !is_reserved {
                    // The last thing that the run did: what is there is complete.
                    assert_same(&source, &target, &when);
                    continue;
                }
                // The words are others, and what was kept is gone, every second time.
                let (run, state) = match calls % 4 {
                    0 => (run, None),
                    1 => (["-rp", &from, &to], None),
                    2 => (run, Some(())),
                    _ => (["-rT", &from, &to], Some(())),
                };
                if state.is_some() {
                    for kept in trial.kept() {
                        fs::remove_file(trial.state.path().join(kept)).unwrap();
                    }
                }
                trial.copy(&run).await.0.unwrap_or_else(|error| panic!("{when}: {error:#}"));
                assert_same(&source, &target, &when);
                let around = names(target.parent().unwrap());
                assert_eq!(around, ["copy"], "{when}: nothing else is left");
                assert_eq!(trial.kept(), [""; 0], "{when}");
            }
            // READDIRPLUS brings what a download needs; an upload makes each file in several calls.
            let least = if is_upload { 15 } else { 8 };
            assert!(ends > least, "upload: {is_upload}, {action:?}: only {ends} calls");
        }
    }
}

#[tokio::test]
async fn a_download_is_finished_after_an_end_at_any_step_of_its_marker() {
    for steps in 0..5 {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(false, "tree", "copy");
        plant(&source);
        let above = Directory::open(trial.here.path()).unwrap();
        if steps == 0 {
            // What a run that was to copy a file left.
            fs::write(trial.here.path().join(".copy.nfsw-part"), b"x").unwrap();
        }
        if steps > 0 {
            let made = Marked::make(&above, b"copy", 0o755).unwrap();
            assert_eq!(names(trial.here.path()), [".copy.nfsw-part"]);
            if steps > 1 {
                made.mark(&mark_of(false, &source, &from)).unwrap();
            }
            if steps > 2 {
                made.finish().unwrap();
                assert_eq!(names(trial.here.path()), ["copy"]);
            }
            if steps > 3 {
                // All is there but the last step.
                trial.copy(&["-rT", &from, &to]).await.0.unwrap();
                fs::write(target.join(std::str::from_utf8(MARKER).unwrap()), b"").unwrap();
            }
        }
        trial.copy(&["-r", &from, &to]).await.0.unwrap();
        assert_same(&source, &target, &format!("{steps} steps"));
        assert_eq!(names(trial.here.path()), ["copy"], "{steps} steps");
    }
}

/// The beginning of the mark of a source: its path, in the words `from` if it is on the server, and the end of the line.
fn mark_of(is_upload: bool, source: &Path, from: &str) -> Vec<u8> {
    let path = fs::canonicalize(source).unwrap().into_os_string().into_encoded_bytes();
    let far = from.split('?').next().unwrap().as_bytes().to_vec();
    [if is_upload { path } else { far }, b"\n".to_vec()].concat()
}

#[tokio::test]
async fn a_marked_directory_is_complete_however_it_is_named() {
    for is_upload in [true, false] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "tree", "into/tree");
        plant(&source);
        let into = target.parent().unwrap();
        fs::create_dir(into).unwrap();
        let above = Directory::open(into).unwrap();
        let made = Marked::make(&above, b"tree", 0o755).unwrap();
        made.mark(&mark_of(is_upload, &source, &from)).unwrap();
        made.finish().unwrap();
        let into = to.replacen("/into/tree", "/into", 1);
        trial.copy(&["-r", &from, &into]).await.0.unwrap();
        assert_same(&source, &target, "");
        // So it is one that exists.
        trial.copy(&["-r", &from, &to]).await.0.unwrap();
        assert_same(&source, &target.join("tree"), "");
    }
}

#[tokio::test]
async fn a_dry_run_leaves_attributes_and_marks_alone() {
    for is_upload in [true, false] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(is_upload, "tree", "copy");
        plant(&source);
        fs::create_dir_all(target.join("sub")).unwrap();
        let marker = target.join(std::str::from_utf8(MARKER).unwrap());
        fs::write(&marker, b"").unwrap();
        let state = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.permissions().mode(), found.mtime(), found.ctime(), found.ctime_nsec())
        };
        fs::set_permissions(&source, fs::Permissions::from_mode(0o750)).unwrap();
        let before = (state(&target), state(&target.join("sub")));
        trial.copy(&["-rpT", "--dry-run", &from, &to]).await.0.unwrap();
        assert!(marker.exists());
        assert_eq!((state(&target), state(&target.join("sub"))), before);
    }
}

#[tokio::test]
async fn a_tree_is_copied_while_the_server_forgets_its_handles() {
    const FILES: usize = 40;
    let trial = Trial::start();
    let ([from, to], [source, target]) = trial.ends(false, "tree", "copy");
    fs::create_dir(&source).unwrap();
    for number in 0..FILES {
        fs::write(source.join(format!("file {number}")), vec![number as u8; 5000]).unwrap();
    }
    let run = ["-r", "--bwlimit", "4Mbit", &from, &to];
    let mut copy = pin!(trial.copy_over(&run));
    let start = Instant::now();
    let mut has_forgotten = false;
    let (result, counts, context) = loop {
        tokio::select! {
            copied = &mut copy => break copied,
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                if !has_forgotten && target.exists() && names(&target).len() > 10 {
                    trial.server.service(nfs_wireless_server::Service::change_handles);
                    has_forgotten = true;
                }
            }
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not end");
    };
    result.unwrap();
    assert!(has_forgotten, "{counts}");
    assert_eq!(context, 1);
    assert_same(&source, &target, "");
}

#[tokio::test]
async fn a_file_without_progress_is_not_excused_by_others_that_have_it() {
    // Without resume the same bytes are copied again and again, which is no progress either.
    for option in ["--preserve", "--no-resume"] {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(false, "tree", "copy");
        fs::create_dir(&source).unwrap();
        // From 1 MiB on the server knows no handle of it any more, however often it is looked up.
        fs::write(source.join("broken"), vec![1; 3 << 20]).unwrap();
        fs::write(source.join("whole"), vec![2; 900_000]).unwrap();
        let calls = Calls::Reaching { procedure: Procedure::Read, offset: 1 << 20 };
        trial.faults(&[(calls, When::Always, Action::Fail(Status::STALE))]);
        let run = ["-r", option, "--bwlimit", "8Mbit", &from, &to];
        let copy = tokio::time::timeout(Duration::from_secs(30), trial.copy(&run));
        let (result, counts) = copy.await.expect("it ends");
        result.unwrap();
        assert_eq!((&counts["done"], &counts["failed"]), (&1.into(), &1.into()), "{counts}");
        assert_eq!(fs::read(target.join("whole")).unwrap(), vec![2; 900_000]);
        let served = trial.server.service(|service| service.stats().served);
        let lookups = served[Procedure::Lookup.number() as usize];
        assert!(lookups < 30, "{option}: {lookups} LOOKUPs");
    }
}
