//! What every command that talks to servers runs in: connections, output, timeouts and signals.

use std::{
    pin::pin,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{Fuse, FusedFuture},
};
use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, oneshot},
};

use crate::{
    args::{ConnectionArgs, OutputArgs},
    connections::Connections,
    exit::{Exit, Failure},
    links, local,
    progress::{Activity, Observation},
    report::Reporter,
    text::shell_quote,
    units,
};

/// The surroundings of a command.
#[derive(Debug)]
pub(crate) struct Context {
    /// Connections to servers.
    pub(crate) connections: Connections,
    /// Everything that is printed.
    pub(crate) reporter: Reporter,
    /// Counters of what was done.
    pub(crate) activity: Arc<Activity>,
    /// Entries read of one directory, at most: a server may list for ever.
    pub(crate) max_entries: u64,
    timeout: Option<Duration>,
    deadline: Option<Duration>,
    started: Instant,
}

/// How often the bar is drawn and the timeouts are checked.
const TICK: Duration = Duration::from_millis(100);

/// A stall is asked into after this time, and again after as long: is it the link or the server?
const ASK_AFTER: Duration = Duration::from_secs(1);

/// After this long without an answer a user without a progress bar is told once.
const WORTH_A_LINE: Duration = Duration::from_secs(5);

impl Context {
    /// Creates the surroundings from the options that all commands share.
    pub(crate) fn new(connection: &ConnectionArgs, output: &OutputArgs) -> Self {
        Self::with_rate_limit(connection, output, None)
    }

    /// As [`Context::new`], with an upper bound of the rate in bit/s.
    pub(crate) fn with_rate_limit(
        connection: &ConnectionArgs,
        output: &OutputArgs,
        rate_limit: Option<u64>,
    ) -> Self {
        let started = Instant::now();
        // Read while there is one thread: reading it means setting it for a moment.
        local::umask();
        let activity = Arc::<Activity>::default();
        Self {
            connections: Connections::new(connection.clone(), rate_limit, Arc::clone(&activity)),
            reporter: Reporter::new(output, started),
            activity,
            max_entries: connection.max_entries,
            timeout: connection.timeout,
            deadline: connection.deadline,
            started,
        }
    }

    /// Sets how much is said beyond errors.
    pub(crate) fn with_verbosity(self, verbose: bool, quiet: bool) -> Self {
        Self { reporter: self.reporter.with_verbosity(verbose, quiet), ..self }
    }

    /// Says that the command does more than to print; `names` says whether it names what it does.
    pub(crate) fn that_changes(self, names: bool) -> Self {
        Self { reporter: self.reporter.that_changes(names), ..self }
    }

    /// Runs a command until it is done, interrupted, or out of time, and reports how it ended.
    pub(crate) fn run(&self, command: impl AsyncFnOnce(&Self) -> anyhow::Result<()>) -> Exit {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return self.reporter.finish(Err(error.into()), &self.connections.summary()),
        };
        let interruption = Interruption::watch();
        let result = runtime.block_on(async {
            // A file that may not grow is an error like any other, not the end of the process.
            let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
            tokio::select! {
                biased;
                () = interruption.told() => {
                    Err(Failure::with(Exit::Interrupted, format!("interrupted; {}", again())))
                }
                result = command(self) => result,
                error = self.watch() => Err(error),
                never = links::watch(|| self.connections.link_event()) => match never {},
            }
        });
        self.connections.remember();
        self.connections.transports().into_iter().for_each(|line| self.reporter.detail(line));
        self.connections.reduced_blocks().iter().for_each(|line| self.reporter.warning_once(line));
        let closing = || {
            Observation::closing_line(&self.activity, self.connections.link_state(), self.started.elapsed())
        };
        self.reporter.end_progress(result.is_ok().then(closing));
        let exit = self.reporter.finish(result, &self.connections.summary());
        // A read of standard input may still be waiting on its thread.
        runtime.shutdown_background();
        exit
    }

    /// Draws the bar, words trouble, and returns when a timeout or the deadline has passed.
    async fn watch(&self) -> anyhow::Error {
        let mut observation = Observation::new(self.started);
        let mut told = false;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut question = pin!(Fuse::terminated());
        let mut asked = self.started;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                answer = &mut question => {
                    let answer: Option<Duration> = answer;
                    answer.into_iter().for_each(|round_trip| observation.answered_after(round_trip));
                    continue;
                }
            }
            let now = Instant::now();
            if question.is_terminated()
                && observation.stalled(now) >= ASK_AFTER
                && now.duration_since(asked) >= ASK_AFTER
            {
                asked = now;
                question.set(self.connections.ask().fuse());
            }
            self.connections.transports().into_iter().for_each(|line| self.reporter.detail(line));
            let link = self.connections.link_state();
            observation.update(now, &self.activity, link);
            let shown = self.reporter.show(|| observation.line(now, &self.activity, link));
            let trouble = observation.trouble(now, self.activity.mounted());
            if observation.stalled(now) < TICK {
                told = false;
            } else if !shown && !told && observation.stalled(now) >= WORTH_A_LINE {
                told = true;
                self.reporter.warning(format!(
                    "{}, still trying (Ctrl-C stops, --timeout limits the wait)",
                    trouble.unwrap_or_default()
                ));
            }
            if self.timeout.is_some_and(|timeout| observation.stalled(now) >= timeout) {
                let stalled = units::duration(observation.stalled(now));
                return self.give_up(&format!("no progress for {stalled}"));
            }
            if self.deadline.is_some_and(|deadline| now.duration_since(self.started) >= deadline) {
                return self.give_up("the deadline has passed");
            }
        }
    }

    fn give_up(&self, reason: &str) -> anyhow::Error {
        if !self.activity.mounted() {
            let advice = "is the host right, and is UDP or TCP port 2049 open there?";
            return Failure::with(
                Exit::Unreachable,
                format!("gave up: {reason}; no answer from any server ({advice})"),
            );
        }
        let servers = self.connections.describe();
        Failure::with(Exit::GaveUp, format!("gave up on {servers}: {reason}; {}", again()))
    }
}

/// Ends the process when the user or the system asks for it, even if the command hangs in a system call.
#[derive(Debug)]
struct Interruption {
    /// Wakes the command, so that it ends by itself.
    bell: Arc<Notify>,
    /// The watch ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// How long a command may take to end by itself. Together with what follows that is less than 200 ms.
const GRACE: Duration = Duration::from_millis(120);

/// How long writing the last line may take.
const LAST_WORDS: Duration = Duration::from_millis(20);

impl Interruption {
    /// Watches on a thread of its own.
    fn watch() -> Self {
        let bell = Arc::new(Notify::new());
        let (stop, mut stopped) = oneshot::channel::<()>();
        let (watching, ready) = std::sync::mpsc::channel();
        let ringing = Arc::clone(&bell);
        thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let interrupted = interrupted();
                let _ = watching.send(());
                tokio::select! {
                    biased;
                    _ = &mut stopped => return,
                    () = interrupted => {}
                }
                ringing.notify_one();
                if tokio::time::timeout(GRACE, &mut stopped).await.is_ok() {
                    return;
                }
                // Nothing may hold this up: neither whoever reads standard error nor a lock on it.
                thread::spawn(|| {
                    let line = format!("nfsw: interrupted; {}\n", again());
                    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
                });
                thread::sleep(LAST_WORDS);
                std::process::exit(Exit::Interrupted.code().into());
            });
        });
        // An error means that there is no watch: then signals end the process as they always do.
        let _ = ready.recv();
        Self { bell, _stop: stop }
    }

    /// Returns when the end was asked for.
    async fn told(&self) {
        self.bell.notified().await;
    }
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

/// Returns when a command that runs for `lifetime`, or for ever, is over, and how it ended; signals count once this is awaited.
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

/// Returns what to do to go on: the command that was typed, for a shell, unless it is too long for a message.
fn again() -> String {
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
