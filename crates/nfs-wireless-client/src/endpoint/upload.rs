//! An upload, over one connection at a time.

use std::sync::{Arc, Mutex};

use nfs_proto::{
    endpoint::{Carrier, Direction, UploadPlan, UploadStep},
    session::Transfer,
    transfer::Upload,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{Counted, Endpoint, Path, lock};
use crate::driver::{Ended, Observer, Source, Storage, Strand, Supply, Task, Underway, clock};

impl Endpoint {
    /// Runs an upload of `size` bytes.
    pub(crate) async fn upload(
        &self,
        upload: Upload,
        size: u64,
        source: Box<dyn Source>,
        observer: Option<Observer>,
    ) -> Ended {
        let _counted = Counted::begin(&self.connections, Direction::Up);
        let plan = UploadPlan::new(clock(), &mut self.connections.machine(), size);
        let plan = Arc::new(Mutex::new(plan));
        let accepted: Observer = {
            let (plan, connections) = (Arc::clone(&plan), Arc::clone(&self.connections));
            Arc::new(move |bytes| {
                lock(&plan).handle_accepted(clock(), &mut connections.machine(), bytes);
            })
        };
        let supply = Strand::new(Supply::new(source, observer), self.reactor.storage_pool());
        let mut task = Task {
            transfer: Transfer::Upload(Box::new(upload)),
            storage: Storage::Source(supply),
            accepted: Some(accepted),
            rate: None,
        };
        loop {
            let connection = lock(&plan).connection();
            let path = self.connections.path(connection);
            let underway = path.connection.start(task);
            match self.carry(&plan, &path, underway).await {
                Ok(taken) => task = taken,
                Err(result) => return result,
            }
        }
    }

    /// Stays with an upload on one connection until it has ended, or is to continue on another.
    async fn carry(
        &self,
        plan: &Mutex<UploadPlan>,
        path: &Path,
        mut underway: Underway<'_>,
    ) -> Result<Task, Ended> {
        let mut drained = None;
        loop {
            let step = {
                let snapshot = path.connection.snapshot();
                let carrier = Carrier {
                    last_heard: snapshot.last_heard,
                    min_rtt: snapshot.path_estimate.map(|estimate| estimate.min_rtt),
                    overflow: snapshot.stats.overflow,
                };
                lock(plan).poll(clock(), &mut self.connections.machine(), carrier)
            };
            if let Some(step) = step {
                tracing::debug!(?step, "an upload may move to another connection");
            }
            match step {
                Some(UploadStep::Ask(protocol)) => {
                    let answered = tokio::select! {
                        biased;
                        result = underway.done() => return Err(result),
                        connection = self.answering(protocol) => connection.is_some(),
                    };
                    lock(plan).handle_answer(clock(), &mut self.connections.machine(), answered);
                }
                Some(UploadStep::Hold) => drained = Some(underway.hold()),
                Some(UploadStep::Detach) => {
                    drained = None;
                    let task = underway.detach().await;
                    lock(plan).handle_detached(clock(), &self.connections.machine(), task.is_some());
                    if let Some(task) = task {
                        return Ok(task);
                    }
                }
                None => {
                    let next = lock(plan).poll_timeout(&self.connections.machine());
                    tokio::select! {
                        biased;
                        result = underway.done() => return Err(result),
                        () = is_drained(&mut drained) => lock(plan).handle_drained(),
                        () = sleep_until(next.map_or_else(Instant::now, Instant::from_std)) => {}
                    }
                }
            }
        }
    }
}

/// Waits until nothing is outstanding, if that is being waited for.
async fn is_drained(drained: &mut Option<oneshot::Receiver<()>>) {
    match drained {
        Some(receiver) => {
            let _ = receiver.await;
            *drained = None;
        }
        None => std::future::pending().await,
    }
}
