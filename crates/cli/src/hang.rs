//! Whether the command hangs in a system call: only a file system of this machine makes it do so.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::units;

/// How often it is looked whether the command hangs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a command seems to hang at least until it is ended for that: a busy machine may not get to it for a moment.
const LEAST_HUNG: Duration = Duration::from_secs(2);

/// For how long a command may hang before the user is told, as with a server.
pub(crate) const WORTH_A_LINE: Duration = Duration::from_secs(5);

/// For how long a command may hang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) started: Instant,
    /// `--timeout`
    pub(crate) timeout: Option<Duration>,
    /// `--deadline`
    pub(crate) deadline: Option<Duration>,
    /// Whether the user wants to know that it hangs.
    pub(crate) tells: bool,
}

/// How often the clock of a run has ticked. While the command hangs, it does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Says that the command does not hang: what awaits goes on.
    pub(crate) fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns why the run is to end, once it has hung in a system call for `--timeout`, or after `--deadline`.
pub(crate) async fn hung(limits: Limits, pulse: &Pulse) -> String {
    // Looks and not the clock count: a machine that was suspended has not hung for so long.
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first is at once.
    looks.tick().await;
    let look = || (pulse.0.load(Ordering::Relaxed), main_thread());
    let (mut last, mut count) = (look(), 0);
    loop {
        looks.tick().await;
        let now = look();
        count = if now == last && !OTHERS.load(Ordering::Relaxed) { count + 1 } else { 0 };
        last = now;
        let time = LOOK_EVERY * count;
        let reason =
            || format!("a file system of this machine has not responded for {}", units::duration(time));
        if time == WORTH_A_LINE && limits.tells {
            say(format!("{}, still waiting (Ctrl-C stops, --timeout limits the wait)", reason()));
        }
        if time < LEAST_HUNG {
            continue;
        }
        if limits.timeout.is_some_and(|timeout| time >= timeout) {
            return reason();
        }
        if limits.deadline.is_some_and(|deadline| limits.started.elapsed() >= deadline) {
            return format!("the deadline has passed, and {}", reason());
        }
    }
}

/// Whether the command waits for whoever reads what it writes, or writes what it reads.
static OTHERS: AtomicBool = AtomicBool::new(false);

/// Reads or writes a terminal or a pipe: the command does not hang meanwhile, however long others take at its other end.
pub(crate) fn while_others_take_their_time<T>(work: impl FnOnce() -> T) -> T {
    OTHERS.store(true, Ordering::Relaxed);
    let done = work();
    OTHERS.store(false, Ordering::Relaxed);
    done
}

/// What is said of a file system that makes the command wait.
pub(crate) const LOCAL: &str = "a file system of this machine does not respond";

/// Whether a thread of this process waits for a disk or a file system, as far as the system tells: its state is D (proc_pid_stat(5)), or it waits for the
/// program behind FUSE (proc_pid_wchan(5)).
pub(crate) fn waits_for_file_system() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).any(|thread| {
        let told = |file| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        // The name before the state may have parentheses, too.
        let is_in_disk_wait = told("stat").rsplit(") ").next().is_some_and(|rest| rest.starts_with('D'));
        is_in_disk_wait || told("wchan") == "request_wait_answer"
    })
}

/// Returns how long the main thread has run, and how often (Linux, Documentation/scheduler/sched-stats.rst): a command that works without ever
/// awaiting anything does not hang. Empty where the system does not tell.
fn main_thread() -> String {
    std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", process::id())).unwrap_or_default()
}

/// Writes a line for the user. Nothing may hold this up: neither whoever reads standard error nor a lock on it.
pub(crate) fn say(line: String) {
    thread::spawn(move || {
        let _ = rustix::io::write(rustix::stdio::stderr(), format!("nfsw: {line}\n").as_bytes());
    });
}
