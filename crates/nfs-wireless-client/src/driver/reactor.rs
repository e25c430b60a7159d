//! The I/O thread of a client.

use std::{io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A thread with a current-thread runtime; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reactor {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
}

impl Reactor {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name("nfs-io".into()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, stop: Some(stop) })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}
