//! The clock of a run: `--timeout` and `--deadline`, the progress bar, and words about a link that
//! is down.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{Fuse, FusedFuture},
};

use crate::{
    exit::{Exit, Failure},
    hang::{LOCAL, Pulse, WORTH_A_LINE, waits_for_file_system},
    progress::Observation,
    report::Reporter,
    servers::Servers,
    signals::again,
    summary::{connected, transports},
    units,
};

/// When a run began, and when it is to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) started: Instant,
    /// `--timeout`: how long there may be no progress of the run.
    pub(crate) timeout: Option<Duration>,
    /// `--deadline`: how long the run may take.
    pub(crate) deadline: Option<Duration>,
}

/// How often the bar is drawn and the timeouts are checked.
const TICK: Duration = Duration::from_millis(100);

/// How often programs are told how far the run is.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The server is probed after a stall of this length, and again after as long: is it the link or the server?
const ASK_AFTER: Duration = Duration::from_secs(1);

impl Clock {
    /// Draws the bar, words trouble, and returns when a timeout or the deadline has passed.
    pub(crate) async fn watch(
        &self,
        connections: &Servers,
        reporter: &Reporter,
        pulse: &Pulse,
    ) -> anyhow::Error {
        let activity = reporter.activity();
        let mut observation = Observation::new(self.started);
        let mut told = false;
        let mut reported = self.started;
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
            pulse.tick();
            let now = Instant::now();
            if question.is_terminated()
                && observation.stalled(now) >= ASK_AFTER
                && now.duration_since(asked) >= ASK_AFTER
            {
                asked = now;
                question.set(connections.ask().fuse());
            }
            transports(connections).into_iter().for_each(|line| reporter.detail(line));
            let link = connections.link_state();
            observation.update(now, activity, link);
            if now.duration_since(reported) >= REPORT_EVERY {
                reported = now;
                // A reader who left is noticed at the next line that matters.
                let _ = reporter.progress(|| observation.event(now, activity, link));
            }
            let shown = reporter.show(|place| observation.line(now, activity, link, place));
            let trouble = observation.trouble(now, activity.mounted());
            if observation.stalled(now) < TICK {
                told = false;
            } else if !shown && !told && observation.stalled(now) >= WORTH_A_LINE {
                told = true;
                let trouble = match waits_for_file_system() {
                    true => LOCAL.to_owned(),
                    false => trouble.unwrap_or_default(),
                };
                reporter
                    .warning(format!("{trouble}, still trying (Ctrl-C stops, --timeout limits the wait)"));
            }
            if self.timeout.is_some_and(|timeout| observation.stalled(now) >= timeout) {
                let stalled = units::duration(observation.stalled(now));
                let reason = format!("no progress for {stalled}");
                if waits_for_file_system() {
                    let text = format!("gave up: {reason}, {LOCAL}; {}", again());
                    return Failure::with(Exit::GaveUp, text);
                }
                return if activity.mounted() {
                    gave_up(connections, &reason)
                } else {
                    unreachable(connections, &reason)
                };
            }
            if self.deadline.is_some_and(|deadline| now.duration_since(self.started) >= deadline) {
                // However far the run has come: a short deadline says nothing about the server.
                return gave_up(connections, "the deadline has passed");
            }
        }
    }
}

fn unreachable(connections: &Servers, reason: &str) -> anyhow::Error {
    let port = connections
        .awaited_port()
        .map_or_else(|| "its NFS port".to_owned(), |port| format!("UDP or TCP port {port}"));
    let advice = format!("is the host right, and is {port} open there?");
    Failure::with(Exit::Unreachable, format!("gave up: {reason}; no answer from any server ({advice})"))
}

fn gave_up(connections: &Servers, reason: &str) -> anyhow::Error {
    let servers = connected(connections);
    Failure::with(Exit::GaveUp, format!("gave up on {servers}: {reason}; {}", again()))
}
