//! What requests are answered from, and who sends them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Semaphore;

use crate::{
    members::{Member, Members},
    tree::Disk,
};

/// How often it is looked whether the time of a reader is over.
const TICK: Duration = Duration::from_millis(200);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) title: String,
    pub(crate) members: Members,
    pub(crate) disk: Disk,
    pub(crate) archives: Arc<Semaphore>,
    pub(crate) late: Semaphore,
}

/// Who sends the requests of one connection.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The address that was called.
    pub(crate) local: SocketAddr,
    /// The members whose files were asked for.
    readers: Mutex<Vec<Arc<Member>>>,
}

impl Caller {
    /// Someone whose connection came to this address.
    pub(crate) const fn new(local: SocketAddr) -> Self {
        Self { local, readers: Mutex::new(Vec::new()) }
    }

    /// Remembers for whom something is sent on this connection.
    pub(crate) fn note(&self, member: &Arc<Member>) {
        let mut readers = lock(&self.readers);
        if !readers.iter().any(|known| Arc::ptr_eq(known, member)) {
            readers.push(Arc::clone(member));
        }
    }

    /// Returns when the time of one of them is over.
    pub(crate) async fn is_over(&self) {
        while lock(&self.readers).iter().all(|member| member.may_read()) {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Locks something, also if somebody has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
