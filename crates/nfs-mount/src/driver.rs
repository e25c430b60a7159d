//! Makes the calls that a cache asks for.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::{self, Debug, Formatter},
    future::pending,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use nfs_cache::{CallId, Outcome, Transmit};
use nfs_wireless_client::{Client, Error};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::{
    kernel::Space,
    view::{Inner, View},
};

/// How often waiting threads are looked at, whether they are to die; however busy we are otherwise.
const LOOK: Duration = Duration::from_millis(50);

/// How long after the beginning the space of the file system is asked for, for those who ask in an outage.
const SPACE_AFTER: Duration = Duration::from_secs(1);

/// How long a program that asks for free space waits for a silent server.
const SPACE_WAIT: Duration = Duration::from_secs(1);

/// Records that are written before other things are looked at again.
const KEPT_AT_ONCE: usize = 8;

/// Calls that are being made.
type Calls = FuturesUnordered<Abortable<BoxFuture<'static, (CallId, Outcome)>>>;

/// What is under way: it goes on where it was when it is driven again.
#[derive(Default)]
pub(crate) struct Driver {
    calls: Calls,
    handles: BTreeMap<CallId, AbortHandle>,
    /// Asked for by one call, however many programs ask.
    space: Option<BoxFuture<'static, Option<Space>>>,
}

impl Debug for Driver {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

/// What is to be waited for.
struct Next {
    due: Option<std::time::Instant>,
    /// Whether programs wait.
    is_waited_for: bool,
    has_events: bool,
}

/// Makes calls for as long as it is polled; `told` is called when there are events.
///
/// Until there is a client, the server cannot be asked.
pub(crate) async fn drive(
    driver: &mut Driver,
    view: &Arc<View>,
    server: &OnceLock<Client>,
    told: impl Fn(),
) -> Infallible {
    let (mut has_begun, mut beginning) = (false, pin!(sleep(SPACE_AFTER)));
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = None;
    loop {
        if let Some(client) = server.get().filter(|_| ended.is_none()) {
            ended = Some(client.channel_ended().boxed());
        }
        let Next { due, is_waited_for, has_events } = driver.step(&mut view.lock(), server.get(), has_begun);
        if has_events {
            told();
        }
        let due = async {
            match due {
                Some(at) => sleep_until(Instant::from_std(at)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            // Before all else: it is due seldom, and others may be ready all the time.
            _ = look.tick(), if is_waited_for => view.end_interrupted(),
            () = view.bell.notified() => {}
            Some(ended) = driver.calls.next() => {
                // An error: it was cancelled.
                if let Ok((call, outcome)) = ended {
                    driver.handles.remove(&call);
                    view.lock().cache.handle_reply(std::time::Instant::now(), call, outcome);
                }
            }
            end = if_any(&mut ended) => {
                ended = Some(pending().boxed());
                view.end(end);
            }
            told = if_any(&mut driver.space) => {
                view.lock().space.answer(told);
                driver.space = None;
            }
            () = &mut beginning, if !has_begun => has_begun = true,
            () = due => {}
        }
    }
}

/// Waits for what was begun, if anything was.
async fn if_any<T>(begun: &mut Option<BoxFuture<'_, T>>) -> T {
    match begun {
        Some(begun) => begun.await,
        None => pending().await,
    }
}

impl Driver {
    /// Does what is due: timeouts, new and cancelled calls, answers, records.
    fn step(&mut self, inner: &mut Inner, client: Option<&Client>, has_begun: bool) -> Next {
        let now = std::time::Instant::now();
        if inner.cache.poll_timeout().is_some_and(|at| at <= now) {
            inner.cache.handle_timeout(now);
        }
        if let Some(client) = client {
            inner.cache.set_read_block(client.read_block());
        }
        while let Some(call) = inner.cache.poll_cancel() {
            if let Some(handle) = self.handles.remove(&call) {
                handle.abort();
            }
        }
        while let Some(transmit) = inner.cache.poll_transmit(now) {
            self.call(transmit, client.cloned());
        }
        inner.answer();
        if self.space.is_none() && inner.space.is_open(has_begun) {
            self.space = Some(ask_space(client.cloned()).boxed());
        }
        inner.cache.keep(now, KEPT_AT_ONCE);
        Next {
            due: inner.cache.poll_timeout().into_iter().chain(inner.cache.next_keep()).min(),
            is_waited_for: inner.is_waited_for(),
            has_events: !inner.events.is_empty(),
        }
    }

    fn call(&mut self, Transmit { call, procedure, arguments }: Transmit, client: Option<Client>) {
        let made = async move {
            let Some(client) = client else { return (call, Outcome::NotAsked) };
            (call, outcome(client.call_across(procedure, arguments).await))
        };
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(call, handle);
        self.calls.push(Abortable::new(made.boxed(), registration));
    }
}

/// Returns what became of a call. Only the server's own word says anything about files.
fn outcome(result: Result<Bytes, Error>) -> Outcome {
    match result {
        Ok(results) => Outcome::Results(results),
        Err(Error::Rejected { rejection, .. }) => Outcome::Rejected(rejection),
        Err(error) => {
            tracing::debug!(%error, "the server could not be asked");
            Outcome::NotAsked
        }
    }
}

/// Asks for the space of the file system; nobody knows while the server is silent.
async fn ask_space(client: Option<Client>) -> Option<Space> {
    let client = client?;
    let told = timeout(SPACE_WAIT, client.fs_stat(client.root())).await.ok()?.ok()?;
    Some(Space {
        total_bytes: told.tbytes,
        free_bytes: told.fbytes,
        available_bytes: told.abytes,
        total_files: told.tfiles,
        free_files: told.ffiles,
    })
}
