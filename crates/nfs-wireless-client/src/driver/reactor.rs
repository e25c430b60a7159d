//! Where a client's drivers run: on the caller's runtime, or on a thread of the client's own.

use std::{io, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::error::Error;

/// Runs tasks. A thread of its own ends, and all tasks on it, when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Reactor {
    handle: Handle,
    thread: Option<Arc<OwnThread>>,
}

/// Ends a thread when dropped.
#[derive(Debug)]
struct OwnThread {
    _alive: oneshot::Sender<()>,
}

impl Reactor {
    /// Takes the runtime of the caller, or starts a thread with one of its own.
    ///
    /// # Errors
    /// [`Error::Local`] where the system gives no thread, or nothing to wait for sockets with.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) async fn start(own_thread: bool) -> Result<Self, Error> {
        if own_thread {
            Self::start_thread().await.map_err(|error| Error::Local(Arc::new(error)))
        } else {
            Ok(Self { handle: Handle::current(), thread: None })
        }
    }

    async fn start_thread() -> io::Result<Self> {
        let (alive, ended) = oneshot::channel::<()>();
        let (started, starting) = oneshot::channel();
        // A runtime may be dropped only where blocking is allowed: not here, when there is no thread for it.
        let run = move || match Builder::new_current_thread().enable_io().enable_time().build() {
            Err(error) => drop(started.send(Err(error))),
            Ok(runtime) => {
                let _ = started.send(Ok(runtime.handle().clone()));
                // An error is what it waits for: the other end was dropped.
                let _ = runtime.block_on(ended);
            }
        };
        thread::Builder::new().name("nfs-io".into()).spawn(run)?;
        let handle = starting.await.map_err(|_| io::Error::other("the thread of the client has ended"))??;
        Ok(Self { handle, thread: Some(Arc::new(OwnThread { _alive: alive })) })
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Returns what storage is called on so that no task waits for it; `None` on a thread of our own, which may wait.
    pub(crate) fn storage_pool(&self) -> Option<Handle> {
        self.thread.is_none().then(|| self.handle.clone())
    }
}
