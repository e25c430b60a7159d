//! What requests are answered from, and who sends them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::{
    members::{Member, Members, lock},
    tree::Disk,
};

/// How often it is looked whether the time of a reader is over.
const TICK: Duration = Duration::from_millis(200);

/// How long a browser may take nothing of a response.
pub(crate) const STALLED: Duration = Duration::from_secs(120);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) title: String,
    pub(crate) members: Members,
    pub(crate) disk: Disk,
    pub(crate) archives: Arc<Semaphore>,
    /// Long pages: each is in memory until it was taken.
    pub(crate) pages: Arc<Semaphore>,
    pub(crate) late: Semaphore,
}

/// Who sends the requests of one connection.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The address that was called.
    pub(crate) local: SocketAddr,
    /// The members whose files were asked for.
    readers: Mutex<Vec<Arc<Member>>>,
    /// When something was taken last of the response that is being sent.
    taken: Mutex<Option<Instant>>,
}

/// A response that is being sent.
#[derive(Debug)]
pub(crate) struct Sending(Arc<Caller>);

impl Sending {
    /// Something of it was taken.
    pub(crate) fn note(&self) {
        *lock(&self.0.taken) = Some(Instant::now());
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        *lock(&self.0.taken) = None;
    }
}

impl Caller {
    /// Someone whose connection came to this address.
    pub(crate) const fn new(local: SocketAddr) -> Self {
        Self { local, readers: Mutex::new(Vec::new()), taken: Mutex::new(None) }
    }

    /// Begins a response.
    pub(crate) fn send(self: &Arc<Self>) -> Sending {
        let sending = Sending(Arc::clone(self));
        sending.note();
        sending
    }

    /// Remembers for whom something is sent on this connection.
    pub(crate) fn note(&self, member: &Arc<Member>) {
        let mut readers = lock(&self.readers);
        if !readers.iter().any(|known| Arc::ptr_eq(known, member)) {
            readers.push(Arc::clone(member));
        }
    }

    /// Returns when the time of one of them is over, or a response is not taken.
    pub(crate) async fn is_over(&self) {
        let is_stalled = || lock(&self.taken).is_some_and(|taken| taken.elapsed() >= STALLED);
        while !is_stalled() && lock(&self.readers).iter().all(|member| member.may_read()) {
            tokio::time::sleep(TICK).await;
        }
    }
}
