//! What ends the process although the command may hang in a system call: signals, and the time for which it may hang.

use std::{process, sync::Arc, thread, time::Duration};

use nix::sys::signal::{SigSet, Signal};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, oneshot},
};

use crate::{
    exit::Exit,
    hang::{Limits, Pulse, hung, say},
    text::shell_quote,
    verdict,
};

/// Ends the process when the user or the system asks for it, or the run has hung for too long, even if the command hangs in a system
/// call.
#[derive(Debug)]
pub(crate) struct Interruption {
    /// Wakes the command, so that it ends by itself.
    bell: Arc<Notify>,
    /// The watch ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// How long a command may take to end by itself. Together with what follows that is less than 200
/// ms.
const GRACE: Duration = Duration::from_millis(120);

/// How long writing the last line may take.
const LAST_WORDS: Duration = Duration::from_millis(20);

impl Interruption {
    /// Watches on a thread of its own, and on no other: the system hands a signal to one thread, and a thread that waits for a file
    /// system which does not respond never handles it.
    pub(crate) fn watch(limits: Limits, pulse: Pulse) -> Self {
        let watched = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        // Threads that are made later inherit it; the programs that are run do not.
        let _ = watched.thread_block();
        let bell = Arc::new(Notify::new());
        let (stop, mut stopped) = oneshot::channel::<()>();
        let (watching, ready) = std::sync::mpsc::channel();
        let ringing = Arc::clone(&bell);
        thread::spawn(move || {
            let _ = watched.thread_unblock();
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let interrupted = interrupted();
                let _ = watching.send(());
                tokio::select! {
                    biased;
                    _ = &mut stopped => return,
                    reason = hung(limits, &pulse) => end(Exit::GaveUp, &format!("gave up: {reason}")),
                    () = interrupted => {}
                }
                ringing.notify_one();
                if tokio::time::timeout(GRACE, &mut stopped).await.is_err() {
                    end(Exit::Interrupted, "interrupted");
                }
            });
        });
        // An error means that there is no watch: then signals end the process as they always do.
        if ready.recv().is_err() {
            let _ = watched.thread_unblock();
        }
        Self { bell, _stop: stop }
    }

    /// Returns when the end was asked for.
    pub(crate) async fn told(&self) {
        self.bell.notified().await;
    }
}

/// Ends the process, whatever its other threads do.
fn end(exit: Exit, what: &str) -> ! {
    say(format!("{what}; {}", again()));
    thread::sleep(LAST_WORDS);
    verdict::say(exit);
    process::exit(exit.code().into());
}

/// Ends the process with this status after a time, if it has not ended by itself: also closing a file may wait for a file system.
pub(crate) fn end_within(time: Duration, exit: Exit) {
    thread::spawn(move || {
        thread::sleep(time);
        verdict::say(exit);
        process::exit(exit.code().into());
    });
}

/// Returns when the user or the system asks the process to end; signals count from this call on.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    let streams = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = streams else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// As [`interrupted`], and when the terminal is closed, unless the process was started to continue without it.
pub(crate) fn ended() -> impl Future<Output = ()> {
    let interrupted = interrupted();
    let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
    async move {
        let hung_up = async {
            match hangup {
                Some(Ok(mut hangup)) => drop(hangup.recv().await),
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = interrupted => {}
            () = hung_up => {}
        }
    }
}

/// Returns when a command that runs for `lifetime`, or for ever, is over, and how it ended; signals
/// count once this is awaited.
pub(crate) async fn end_of(lifetime: Option<Duration>) -> Exit {
    let aged = async {
        match lifetime {
            Some(lifetime) => tokio::time::sleep(lifetime).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = interrupted() => Exit::Interrupted,
        () = aged => Exit::Done,
    }
}

/// Returns what to do to resume: the command that was typed, for a shell, unless it is too long for
/// a message.
pub(crate) fn again() -> String {
    /// Leaves room for what is said before.
    const LONGEST: usize = 350;
    use std::os::unix::ffi::OsStrExt;
    let mut words = vec!["nfsw".to_owned()];
    words.extend(std::env::args_os().skip(1).map(|word| shell_quote(word.as_bytes())));
    let command = words.join(" ");
    if command.chars().count() > LONGEST {
        return "run the same command again".to_owned();
    }
    format!("run again: {command}")
}

/// Whether this process was started to go on when its terminal is closed, as by nohup(1) (proc_pid_status(5), Linux).
pub(crate) fn ignores_hangup() -> bool {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP != 0)
}
