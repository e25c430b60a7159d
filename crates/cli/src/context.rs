//! What every command that talks to servers runs in: connections, output, timeouts and signals.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::{ConnectionArgs, OutputArgs},
    exit::{Exit, Failure},
    local,
    progress::{Activity, Observation},
    report::Reporter,
    session::Session,
    text::shell_quote,
    units,
};

/// The surroundings of a command.
#[derive(Debug)]
pub(crate) struct Context {
    /// Connections to servers.
    pub(crate) session: Session,
    /// Everything that is printed.
    pub(crate) reporter: Reporter,
    /// Counters of what was done.
    pub(crate) activity: Arc<Activity>,
    timeout: Option<Duration>,
    deadline: Option<Duration>,
    started: Instant,
}

/// How often the bar is drawn and the timeouts are checked.
const TICK: Duration = Duration::from_millis(100);

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
            session: Session::new(connection.clone(), rate_limit, Arc::clone(&activity)),
            reporter: Reporter::new(output, started),
            activity,
            timeout: connection.timeout,
            deadline: connection.deadline,
            started,
        }
    }

    /// Sets how much is said beyond errors.
    pub(crate) fn with_verbosity(self, verbose: bool, quiet: bool) -> Self {
        Self { reporter: self.reporter.with_verbosity(verbose, quiet), ..self }
    }

    /// Runs a command until it is done, interrupted, or out of time, and reports how it ended.
    pub(crate) fn run(&self, command: impl AsyncFnOnce(&Self) -> anyhow::Result<()>) -> Exit {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return self.reporter.finish(Err(error.into()), &self.session.summary()),
        };
        let result = runtime.block_on(async {
            tokio::select! {
                biased;
                () = interrupted() => {
                    Err(Failure::with(Exit::Interrupted, format!("interrupted; run again: {}", command_line())))
                }
                result = command(self) => result,
                error = self.watch() => Err(error),
            }
        });
        self.session.remember();
        let closing =
            || Observation::closing_line(&self.activity, self.session.link_state(), self.started.elapsed());
        self.reporter.end_progress(result.is_ok().then(closing));
        let exit = self.reporter.finish(result, &self.session.summary());
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
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let link = self.session.link_state();
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
                format!("gave up: {reason}; no server answered ({advice})"),
            );
        }
        let servers = self.session.describe();
        Failure::with(Exit::GaveUp, format!("gave up on {servers}: {reason}; run again: {}", command_line()))
    }
}

/// Returns when the user or the system asks the process to end.
pub(crate) async fn interrupted() {
    let streams = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = streams else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Returns the command that was typed, for a shell.
fn command_line() -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut words = vec!["nfsw".to_owned()];
    words.extend(std::env::args_os().skip(1).map(|word| shell_quote(word.as_bytes())));
    words.join(" ")
}
