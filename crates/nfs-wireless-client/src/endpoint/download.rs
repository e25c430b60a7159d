//! A download over one connection or several.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use nfs_proto::{
    attr::Metadata,
    endpoint::{ConnectionId, Direction, DownloadPlan, DownloadStep, RunId},
    session::Transfer,
    transfer::{Download, Range, RangeSet, TransferError},
};
use nfs_wire::{FileHandle, portmap::Protocol};
use tokio::sync::{Notify, oneshot};

use super::{Connections, Counted, Endpoint, lock};
use crate::{
    driver::{Arrivals, Observer, Sink, Storage, Strand, Task, clock},
    error::Error,
};

/// A slow disk may owe so many bytes before no more are asked for; those asked for by then still come.
const MOST_UNSTORED: u64 = 4 << 20;

/// What the runs of a download share.
struct Shared {
    plan: Mutex<DownloadPlan>,
    told: Mutex<Told>,
    target: Strand<Target>,
    failed: OnceLock<Arc<io::Error>>,
    /// Bytes that have arrived and are not in the sink.
    unstored: AtomicU64,
    /// Rings when there are fewer of them, or the sink has failed.
    bell: Notify,
}

/// Where the bytes go, and who hears of them.
struct Target {
    sink: Box<dyn Sink>,
    observer: Option<Observer>,
}

/// What the replies told of the file's attributes.
enum Told {
    /// Nothing came yet.
    Nothing,
    /// All told the same version.
    Same(Metadata),
    /// One did not; or it came over TCP, where bytes may wait in the server's socket, and change in its cache, when attributes are long told.
    Unclear,
}

impl Target {
    fn tell(&self, new: u64) {
        if let Some(observer) = self.observer.as_ref().filter(|_| new > 0) {
            observer(new);
        }
    }
}

impl Shared {
    /// Whether the sink keeps up.
    fn keeps_up(&self) -> bool {
        self.unstored.load(Ordering::Acquire) <= MOST_UNSTORED
    }

    /// Waits until what has arrived is in the sink, and closes it.
    async fn close(&self) -> Result<(), Error> {
        while self.unstored.load(Ordering::Acquire) > 0 {
            self.bell.notified().await;
        }
        let (closed, result) = oneshot::channel();
        self.target.run(move |target| {
            let was_there = target.take().is_some();
            let _ = closed.send(was_there);
        });
        match (result.await, self.failed.get()) {
            (Ok(true), None) => Ok(()),
            (_, Some(error)) => Err(Error::Local(Arc::clone(error))),
            (Ok(false) | Err(_), None) => {
                let panicked = io::Error::other("the sink or the observer of a download has panicked");
                Err(Error::Local(Arc::new(panicked)))
            }
        }
    }
}

/// Counts bytes until they are in the sink, or never will be.
struct Unstored {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Unstored {
    fn drop(&mut self) {
        self.shared.unstored.fetch_sub(self.bytes, Ordering::AcqRel);
        self.shared.bell.notify_one();
    }
}

/// Takes the sink away from a download that is given up: no write begins afterwards.
struct Abandoned(Arc<Shared>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.target.abandon();
    }
}

/// Takes the bytes of one run.
struct RunSink {
    shared: Arc<Shared>,
    run: RunId,
    protocol: Protocol,
    connections: Arc<Connections>,
}

impl RunSink {
    /// Records bytes that arrived; returns how many of them are new.
    fn count(&self, now: Instant, range: Range) -> u64 {
        self.connections.machine().handle_bytes(now, Direction::Down, self.protocol, range.length());
        lock(&self.shared.plan).handle_bytes(now, self.run, range)
    }
}

impl Arrivals for RunSink {
    fn arrived(&mut self, now: Instant, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let range = Range { start: offset, end: offset + length };
        if self.shared.target.is_apart() {
            // Before they count: whoever finds that nothing is left must find that these are not stored yet.
            self.shared.unstored.fetch_add(length, Ordering::AcqRel);
            let unstored = Unstored { shared: Arc::clone(&self.shared), bytes: length };
            let new = self.count(now, range);
            let bytes = bytes.to_vec();
            self.shared.target.run(move |target| {
                let Unstored { shared, .. } = &unstored;
                let Some(target) = target.as_mut().filter(|_| shared.failed.get().is_none()) else { return };
                match target.sink.write_at(offset, &bytes) {
                    Ok(()) => target.tell(new),
                    Err(error) => drop(shared.failed.set(Arc::new(error))),
                }
            });
            return Ok(());
        }
        // What is counted is in the sink.
        let written = self.shared.target.with(|target| target.sink.write_at(offset, bytes));
        // Late bytes go nowhere.
        let Some(written) = written else { return Ok(()) };
        written?;
        let new = self.count(now, range);
        self.shared.target.with(|target| target.tell(new));
        Ok(())
    }

    fn told(&mut self, attributes: Option<Metadata>) {
        let mut told = lock(&self.shared.told);
        *told = match (&*told, attributes.filter(|_| self.protocol == Protocol::Udp)) {
            (Told::Nothing, Some(told)) => Told::Same(told),
            (Told::Same(before), Some(told)) if told.is_same_version(before) => Told::Same(told),
            _ => Told::Unclear,
        };
        drop(told);
        if self.shared.target.is_apart() {
            self.shared.target.run(move |target| {
                if let Some(target) = target {
                    target.sink.told(attributes);
                }
            });
        } else {
            self.shared.target.with(|target| target.sink.told(attributes));
        }
    }
}

/// A piece on its way.
struct Run {
    id: RunId,
    future: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// A connection that is being made or asked.
type Joining<'a> = Pin<Box<dyn Future<Output = Option<ConnectionId>> + Send + 'a>>;

impl Endpoint {
    /// Copies ranges of a file into `sink`. READs that another connection answers sooner are made again on it. Returns the
    /// attributes that the replies told, if all were of one version and came over UDP.
    pub(crate) async fn download(
        &self,
        file: &FileHandle,
        ranges: RangeSet,
        sink: Box<dyn Sink>,
        observer: Option<Observer>,
    ) -> Result<Option<Metadata>, Error> {
        let _counted = Counted::begin(&self.connections, Direction::Down);
        let end = ranges.end();
        let (plan, tick) = {
            let machine = self.connections.machine();
            (DownloadPlan::new(clock(), &machine, ranges), machine.tick())
        };
        let shared = Arc::new(Shared {
            plan: Mutex::new(plan),
            told: Mutex::new(Told::Nothing),
            target: Strand::new(Target { sink, observer }, self.reactor.storage_pool()),
            failed: OnceLock::new(),
            unstored: AtomicU64::new(0),
            bell: Notify::new(),
        });
        let _abandoned = Abandoned(Arc::clone(&shared));
        let mut reading =
            Reading { endpoint: self, file, shared: &shared, runs: Vec::new(), joining: Vec::new() };
        let result = reading.complete(tick).await;
        reading.runs.clear();
        // The file is closed before anybody hears of it.
        let result = result.and(shared.close().await);
        let (connections, twice) = lock(&shared.plan).connections_and_bytes_twice();
        if connections > 1 {
            tracing::debug!(connections, twice, "downloaded over several connections");
        }
        let told = match &*lock(&shared.told) {
            Told::Same(told) => Some(*told),
            Told::Nothing | Told::Unclear => None,
        };
        result.map(|()| told).map_err(|error| match error {
            Error::Transfer(TransferError::SourceShrank { found, .. }) => {
                TransferError::SourceShrank { expected: end, found }.into()
            }
            error => error,
        })
    }
}

/// The READs of a download, and the connections that they are made on.
struct Reading<'a> {
    endpoint: &'a Endpoint,
    file: &'a FileHandle,
    shared: &'a Arc<Shared>,
    runs: Vec<Run>,
    joining: Vec<(Protocol, Joining<'a>)>,
}

impl Reading<'_> {
    /// Does what the plan says, and looks at it every `tick`, until all has arrived.
    async fn complete(&mut self, tick: Duration) -> Result<(), Error> {
        loop {
            while let Some(step) = self.next_step() {
                self.apply(step);
            }
            if lock(&self.shared.plan).left() == 0 {
                return Ok(());
            }
            if let Some(error) = self.shared.failed.get() {
                return Err(Error::Local(Arc::clone(error)));
            }
            tokio::select! {
                biased;
                (id, result) = first_of(&mut self.runs) => self.handle_end(id, result)?,
                (protocol, connection) = joined(&mut self.joining) => {
                    let machine = &mut self.endpoint.connections.machine();
                    lock(&self.shared.plan).handle_join(clock(), machine, protocol, connection);
                }
                () = self.shared.bell.notified() => {}
                () = tokio::time::sleep(tick) => {}
            }
        }
    }

    fn next_step(&self) -> Option<DownloadStep> {
        let keeps_up = self.shared.keeps_up();
        lock(&self.shared.plan).poll(clock(), &mut self.endpoint.connections.machine(), keeps_up)
    }

    fn apply(&mut self, step: DownloadStep) {
        match step {
            DownloadStep::Read { connection, run, ranges } => {
                self.runs.push(self.run(connection, run, ranges));
            }
            DownloadStep::Cancel(id) => self.runs.retain(|run| run.id != id),
            DownloadStep::Join { protocol, number: 0, must_answer: true } => {
                self.joining.push((protocol, Box::pin(self.endpoint.answering(protocol))));
            }
            DownloadStep::Join { protocol, number, .. } => {
                self.joining.push((protocol, Box::pin(self.endpoint.connection(protocol, number))));
            }
        }
    }

    /// Begins to read ranges on a connection.
    fn run(&self, connection: ConnectionId, id: RunId, ranges: RangeSet) -> Run {
        let path = self.endpoint.connections.path(connection);
        let sink = RunSink {
            shared: Arc::clone(self.shared),
            run: id,
            protocol: path.protocol,
            connections: Arc::clone(&self.endpoint.connections),
        };
        let task = Task {
            transfer: Transfer::Download(Download::ranges(self.file, ranges)),
            storage: Storage::Sink(Box::new(sink)),
            accepted: None,
            rate: None,
        };
        Run { id, future: Box::pin(async move { path.connection.start(task).done().await.map(drop) }) }
    }

    /// A run has ended: what it leaves, if that is no failure, others read.
    fn handle_end(&self, id: RunId, result: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = result {
            let quiet = clock().saturating_duration_since(lock(&self.shared.plan).arrived());
            // Others may have brought more meanwhile.
            if !matches!(error, Error::Stalled(limit) if quiet < limit) {
                return Err(error);
            }
        }
        lock(&self.shared.plan).handle_end(id);
        Ok(())
    }
}

/// Waits for the end of a run, and takes it off the list.
async fn first_of(runs: &mut Vec<Run>) -> (RunId, Result<(), Error>) {
    poll_fn(|context| {
        for at in 0..runs.len() {
            if let Poll::Ready(result) = runs[at].future.as_mut().poll(context) {
                return Poll::Ready((runs.remove(at).id, result));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for a connection that is to join, and takes it off the list.
async fn joined(joining: &mut Vec<(Protocol, Joining<'_>)>) -> (Protocol, Option<ConnectionId>) {
    poll_fn(|context| {
        for at in 0..joining.len() {
            if let Poll::Ready(connection) = joining[at].1.as_mut().poll(context) {
                return Poll::Ready((joining.remove(at).0, connection));
            }
        }
        Poll::Pending
    })
    .await
}
