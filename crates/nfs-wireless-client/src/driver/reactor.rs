//! The I/O thread of a client.

use std::{io, pin::Pin, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
    task::{LocalSet, spawn_local},
};

use crate::error::Error;

/// A thread with a current-thread runtime; it ends when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Reactor {
    handle: Handle,
    jobs: mpsc::UnboundedSender<Job>,
}

/// Makes a task on the thread, where it stays.
type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

impl Reactor {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Local`] where the system does not give one.
    pub(crate) fn start() -> Result<Self, Error> {
        Self::spawn_thread().map_err(|error| Error::Local(Arc::new(error)))
    }

    fn spawn_thread() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (jobs, mut waiting) = mpsc::unbounded_channel::<Job>();
        thread::Builder::new().name("nfs-io".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                while let Some(job) = waiting.recv().await {
                    spawn_local(job());
                }
            });
        })?;
        Ok(Self { handle, jobs })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Runs a task that cannot move between threads, and waits for what it returns; dropping the
    /// future ends the task. Whoever waits may be moved between threads.
    ///
    /// # Errors
    /// Those of the task; [`Error::Local`] when the thread has ended.
    pub(crate) async fn run<T: Send + 'static, Task: Future<Output = Result<T, Error>> + 'static>(
        &self,
        task: impl FnOnce(Self) -> Task + Send + 'static,
    ) -> Result<T, Error> {
        let (mut answer, answered) = oneshot::channel();
        let reactor = self.clone();
        self.spawn_local(move || async move {
            let value = tokio::select! {
                biased;
                () = answer.closed() => return,
                value = task(reactor) => value,
            };
            let _ = answer.send(value);
        });
        let ended = |_| Error::Local(Arc::new(io::Error::other("the I/O thread has ended")));
        answered.await.map_err(ended)?
    }

    /// Runs a task that cannot move between threads.
    pub(crate) fn spawn_local<Task: Future<Output = ()> + 'static>(
        &self,
        task: impl FnOnce() -> Task + Send + 'static,
    ) {
        let _ = self.jobs.send(Box::new(|| Box::pin(task())));
    }
}
