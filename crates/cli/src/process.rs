//! The process that a command runs in: runtime, signals, clock and exit status.

use std::{sync::Arc, time::Instant};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use nfs_files::Context;

use crate::{
    args::{ConnectionArgs, OutputArgs},
    clock::Clock,
    descriptors,
    exit::{Exit, Failure},
    hang::{Limits, Pulse},
    links, local,
    progress::Observation,
    report::Reporter,
    servers::Servers,
    signals::{Interruption, again},
    summary::{Summary, transports},
    verdict,
};

/// A process that talks to servers.
#[derive(Debug)]
pub(crate) struct Process {
    arguments: ConnectionArgs,
    connections: Servers,
    reporter: Reporter,
    clock: Clock,
}

impl Process {
    /// Creates it from the options that all commands share.
    pub(crate) fn new(connection: &ConnectionArgs, output: &OutputArgs) -> Self {
        Self::with_rate_limit(connection, output, None)
    }

    /// As [`Process::new`], with an upper bound of the rate in bit/s.
    pub(crate) fn with_rate_limit(
        connection: &ConnectionArgs,
        output: &OutputArgs,
        rate_limit: Option<u64>,
    ) -> Self {
        let started = Instant::now();
        descriptors::raise_limit();
        // Read while there is one thread: reading it means setting it for a moment.
        local::umask();
        let reporter = Reporter::new(output, started);
        let activity = Arc::clone(reporter.activity());
        let ConnectionArgs { timeout, deadline, .. } = connection.or_default();
        Self {
            arguments: connection.clone(),
            connections: connection.servers(rate_limit, activity),
            reporter,
            clock: Clock { started, timeout, deadline },
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

    /// Returns the numbers of the run so far.
    pub(crate) fn summary(&self) -> Summary {
        Summary::of(&self.connections)
    }

    /// Runs a command until it is done, interrupted, or out of time, and reports how it ended.
    pub(crate) fn run(
        &self,
        command: impl AsyncFnOnce(Context<'_>, &Reporter) -> anyhow::Result<()>,
    ) -> Exit {
        let Self { arguments, connections, reporter, clock } = self;
        if let Err(text) = descriptors::check_limit() {
            return reporter.finish(Err(Failure::with(Exit::LocalIo, text)), &Summary::of(connections));
        }
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return reporter.finish(Err(error.into()), &Summary::of(connections)),
        };
        let Clock { started, timeout, deadline } = *clock;
        let limits = Limits { started, timeout, deadline, tells: reporter.tells() };
        let pulse = Pulse::default();
        let interruption = Interruption::watch(limits, pulse.clone());
        let result = runtime.block_on(async {
            // A file that may not grow is an error like any other, not the end of the process.
            let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
            tokio::select! {
                biased;
                () = interruption.told() => {
                    Err(Failure::with(Exit::Interrupted, format!("interrupted; {}", again())))
                }
                result = command(Context { servers: connections, events: reporter }, reporter) => result,
                error = clock.watch(connections, reporter, &pulse) => Err(error),
                never = links::watch(|| connections.link_event()) => match never {},
            }
        });
        connections.remember();
        transports(connections).into_iter().for_each(|line| reporter.detail(line));
        arguments.reduced_blocks(connections).iter().for_each(|line| reporter.warning_once(line));
        let elapsed = clock.started.elapsed();
        let moved = Observation::closing_line(reporter.activity(), connections.link_state(), elapsed);
        reporter.close(result.is_ok(), &moved);
        let exit = reporter.finish(result, &Summary::of(connections));
        // A read of standard input may still be waiting on its thread.
        runtime.shutdown_background();
        verdict::say(exit);
        exit
    }
}
