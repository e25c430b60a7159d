//! Programs that run in a mount.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{common::stderr, mounted::Mount};

/// Runs a script in a directory, which must succeed without a complaint, and returns what it printed.
pub(crate) fn run(script: &str, directory: &Path) -> String {
    let mut command = Command::new("sh");
    let output = command.args(["-ec", script]).current_dir(directory).env("LC_ALL", "C").output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{script}: {}: {}",
        output.status,
        stderr(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program that may wait for ever. It is not waited for when this is dropped: the end of the mount ends it.
pub(crate) struct Program {
    pub(crate) process: Child,
    begun: Instant,
}

impl Program {
    /// Starts it in a directory.
    pub(crate) fn start(script: &str, directory: &Path) -> Self {
        // Where these tests run in the background, SIGINT may be ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal", "-C"]).arg(directory).args(script.split(' ')).env("LC_ALL", "C");
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { process, begun: Instant::now() }
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits until it ends, at most for so long since it was started; and how long it has taken.
    pub(crate) fn ends_within(&mut self, longest: Duration) -> (bool, Duration) {
        while !self.is_over() && self.begun.elapsed() < longest {
            thread::sleep(Duration::from_millis(2));
        }
        (self.is_over(), self.begun.elapsed())
    }

    /// What it said, after it has ended.
    pub(crate) fn said(mut self) -> Output {
        let read = |from: Option<&mut dyn std::io::Read>| {
            let mut bytes = Vec::new();
            from.map(|from| from.read_to_end(&mut bytes));
            bytes
        };
        let (stdout, stderr) = (
            self.process.stdout.take().map_or_else(Vec::new, |mut it| read(Some(&mut it))),
            self.process.stderr.take().map_or_else(Vec::new, |mut it| read(Some(&mut it))),
        );
        Output { status: self.process.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

/// Memory of a mount in KiB.
pub(crate) fn resident(mount: &Mount) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mount.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Does a piece of work again and again, with its number, in a thread, while something else runs.
pub(crate) fn meanwhile<T>(mut work: impl FnMut(usize) + Send, body: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| (0..).take_while(|_| !over.load(Ordering::Relaxed)).for_each(&mut work));
        let result = catch_unwind(AssertUnwindSafe(body));
        over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
