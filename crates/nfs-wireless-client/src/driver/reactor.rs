//! The I/O thread of a client.

use std::{io, pin::Pin, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::mpsc,
    task::{LocalSet, spawn_local},
};

/// A thread with a current-thread runtime; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reactor {
    handle: Handle,
    jobs: mpsc::UnboundedSender<Job>,
}

/// Makes a task on the thread, where it stays.
type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

impl Reactor {
    pub(crate) fn start() -> io::Result<Self> {
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

    /// Runs a task that cannot move between threads.
    pub(crate) fn spawn_local<Task: Future<Output = ()> + 'static>(
        &self,
        task: impl FnOnce() -> Task + Send + 'static,
    ) {
        let _ = self.jobs.send(Box::new(|| Box::pin(task())));
    }
}
