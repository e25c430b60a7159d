//! Makes the calls that a cache asks for.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    sync::{Arc, OnceLock},
    time::Duration,
};

use fuser::ReplyStatfs;
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use nfs_cache::{CallId, Outcome, Transmit};
use nfs_wireless_client::{Client, Error};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::view::View;

/// How often waiting threads are looked at, whether they are to die.
const LOOK: Duration = Duration::from_millis(50);

/// How long a program that asks for free space waits for a silent server.
const SPACE_WAIT: Duration = Duration::from_secs(1);

/// Records that are written before other things are looked at again.
const KEPT_AT_ONCE: usize = 8;

/// Calls that are being made.
type Calls = FuturesUnordered<Abortable<BoxFuture<'static, (CallId, Outcome)>>>;

/// Makes calls for as long as it is polled; `told` is called when there are notices.
///
/// Until there is a client, the server cannot be asked.
pub(crate) async fn carry(view: &Arc<View>, server: &OnceLock<Client>, told: impl Fn()) -> Infallible {
    let mut calls = Calls::new();
    let mut handles: BTreeMap<CallId, AbortHandle> = BTreeMap::new();
    let mut space: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        let (next, is_waited_for, has_notices) = {
            let mut inner = view.lock();
            let now = std::time::Instant::now();
            if inner.cache.poll_timeout().is_some_and(|at| at <= now) {
                inner.cache.handle_timeout(now);
            }
            let client = server.get();
            if let Some(client) = client {
                inner.cache.set_read_block(client.status().read_block);
            }
            while let Some(call) = inner.cache.poll_cancel() {
                if let Some(handle) = handles.remove(&call) {
                    handle.abort();
                }
            }
            while let Some(Transmit { call, procedure, arguments }) = inner.cache.poll_transmit(now) {
                let client = client.cloned();
                let made = async move {
                    let Some(client) = client else { return (call, Outcome::NotAsked) };
                    (call, outcome(client.call_across(procedure, arguments).await))
                };
                let (handle, registration) = AbortHandle::new_pair();
                handles.insert(call, handle);
                calls.push(Abortable::new(made.boxed(), registration));
            }
            inner.answer();
            space.extend(inner.space.drain(..).map(|reply| tell_space(client.cloned(), reply).boxed()));
            inner.cache.keep(now, KEPT_AT_ONCE);
            let next = inner.cache.poll_timeout().into_iter().chain(inner.cache.next_keep()).min();
            (next, inner.is_waited_for(), !inner.notices.is_empty())
        };
        if has_notices {
            told();
        }
        let due = async {
            match next {
                Some(at) => sleep_until(Instant::from_std(at)).await,
                None => pending().await,
            }
        };
        let look = async {
            match is_waited_for {
                true => sleep(LOOK).await,
                false => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = view.bell.notified() => {}
            Some(ended) = calls.next() => {
                // An error: it was cancelled.
                if let Ok((call, outcome)) = ended {
                    handles.remove(&call);
                    view.lock().cache.handle_reply(std::time::Instant::now(), call, outcome);
                }
            }
            Some(()) = space.next() => {}
            () = due => {}
            () = look => view.lock().end_interrupted(),
        }
    }
}

/// Returns what became of a call. Only the server's own word says anything about files.
fn outcome(result: Result<bytes::Bytes, Error>) -> Outcome {
    match result {
        Ok(results) => Outcome::Results(results),
        Err(Error::Rejected { rejection, .. }) => Outcome::Rejected(rejection),
        Err(error) => {
            tracing::debug!(%error, "the server could not be asked");
            Outcome::NotAsked
        }
    }
}

/// Answers a question for the space of the file system; nobody knows while the server is silent.
async fn tell_space(client: Option<Client>, reply: ReplyStatfs) {
    const BLOCK: u64 = 4096;
    let asked = async {
        match client {
            Some(client) => client.fs_stat(client.root()).await.ok(),
            None => None,
        }
    };
    match timeout(SPACE_WAIT, asked).await {
        Ok(Some(it)) => reply.statfs(
            it.tbytes / BLOCK,
            it.fbytes / BLOCK,
            it.abytes / BLOCK,
            it.tfiles,
            it.ffiles,
            BLOCK as u32,
            255,
            BLOCK as u32,
        ),
        _ => reply.statfs(0, 0, 0, 0, 0, BLOCK as u32, 255, BLOCK as u32),
    }
}
