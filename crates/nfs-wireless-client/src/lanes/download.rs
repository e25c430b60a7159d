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
    config::Window,
    session::Transfer,
    transfer::{Download, Range, RangeSet, TransferError},
};
use nfs_wire::{FileHandle, portmap::Protocol};
use tokio::sync::{Notify, oneshot};

use super::{
    Counted, Direction, Lane, Lanes, NEAR, TICK,
    choice::{Choice, Use, other},
    lock,
    pieces::{Pieces, RunId},
};
use crate::{
    driver::{Arrivals, Observer, Sink, Storage, Strand, Task, clock},
    error::Error,
};

/// TCP connections of one download at most.
const MOST_LANES: usize = 4;

/// A further connection is made when so much is left,
const WORTH_A_LANE: u64 = 2 << 20;

/// and for so much trouble: a first loss is what ends the slow start of every connection.
const TROUBLE: u32 = 3;

/// A connection gets so long to show what it is worth before the next one is made or asked.
const JOIN_INTERVAL: Duration = Duration::from_millis(500);

/// A slow disk may owe so many bytes before no more are asked for; those asked for by then still come.
const MOST_UNSTORED: u64 = 4 << 20;

/// What the runs of a download share.
struct Shared {
    pieces: Mutex<Pieces>,
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
    choice: Option<Arc<Mutex<Choice>>>,
}

impl RunSink {
    /// Takes note of bytes that arrived; returns how many of them are new.
    fn count(&self, now: Instant, range: Range) -> u64 {
        if let Some(choice) = &self.choice {
            lock(choice).handle_bytes(now, self.protocol, range.length());
        }
        lock(&self.shared.pieces).handle_bytes(now, self.run, range)
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
struct Run<'a> {
    id: RunId,
    future: Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>,
}

/// A connection that is being made or asked.
type Joining<'a> = Pin<Box<dyn Future<Output = Option<Arc<Lane>>> + Send + 'a>>;

impl Lanes {
    /// Copies ranges of a file into `sink`. READs that another connection answers sooner are made again on it. Returns the
    /// attributes that the replies told, if all were of one version and came over UDP.
    pub(crate) async fn download(
        &self,
        file: &FileHandle,
        ranges: RangeSet,
        sink: Box<dyn Sink>,
        observer: Option<Observer>,
    ) -> Result<Option<Metadata>, Error> {
        let choice = self.choice(Direction::Down).cloned();
        let _counted = Counted::begin(choice.as_ref());
        let end = ranges.end();
        let pieces = Pieces::new(ranges, clock());
        let shared = Arc::new(Shared {
            pieces: Mutex::new(pieces),
            told: Mutex::new(Told::Nothing),
            target: Strand::new(Target { sink, observer }, self.reactor.storage_pool()),
            failed: OnceLock::new(),
            unstored: AtomicU64::new(0),
            bell: Notify::new(),
        });
        let _abandoned = Abandoned(Arc::clone(&shared));
        let mut lanes: Vec<Arc<Lane>> = Vec::new();
        let mut joining: Option<Joining<'_>> = None;
        let mut join_from = clock();
        let mut runs: Vec<Run<'_>> = Vec::new();
        let result = loop {
            let now = clock();
            let (left, trouble) = {
                let mut pieces = lock(&shared.pieces);
                (pieces.left(), pieces.trouble(now))
            };
            if left == 0 {
                break Ok(());
            }
            if let Some(error) = shared.failed.get() {
                break Err(Error::Local(Arc::clone(error)));
            }
            // What moves well over TCP need not be compared with UDP.
            let quiet = trouble == 0 && lanes.first().is_some_and(|lane| lane.protocol == Protocol::Tcp);
            let uses = self.decide(Direction::Down, if quiet { 0 } else { left });
            if lanes.is_empty() {
                let lane = self.find(uses.current, 0).unwrap_or_else(|| Arc::clone(&self.first));
                add(&shared.pieces, &mut lanes, lane);
            }
            for (index, lane) in lanes.iter().enumerate() {
                if lane.protocol != uses.current && !uses.trial {
                    continue;
                }
                while shared.keeps_up() {
                    let Some((id, asked)) = lock(&shared.pieces).next(now, index) else { break };
                    let sink = RunSink {
                        shared: Arc::clone(&shared),
                        run: id,
                        protocol: lane.protocol,
                        choice: choice.clone(),
                    };
                    let task = Task {
                        transfer: Transfer::Download(Download::ranges(file, asked)),
                        storage: Storage::Sink(Box::new(sink)),
                        accepted: None,
                        rate: None,
                    };
                    let lane = Arc::clone(lane);
                    let future = Box::pin(async move { lane.connection.start(task).done().await });
                    runs.push(Run { id, future });
                }
            }
            if joining.is_none() && join_from <= now {
                joining = self.next_lane(&lanes, uses, left, trouble);
            }
            tokio::select! {
                biased;
                (id, result) = first_of(&mut runs) => match result {
                    Ok(()) => lock(&shared.pieces).end(id),
                    Err(error) => {
                        let quiet = clock().saturating_duration_since(lock(&shared.pieces).arrived());
                        match error {
                            // Others may have brought more meanwhile.
                            Error::Stalled(limit) if quiet < limit => lock(&shared.pieces).end(id),
                            error => break Err(error),
                        }
                    }
                },
                lane = joined(&mut joining) => {
                    joining = None;
                    join_from = clock() + JOIN_INTERVAL;
                    if let Some(lane) = lane {
                        if lane.protocol != uses.current && let Some(choice) = &choice {
                            lock(choice).handle_answer(clock());
                        }
                        if !lanes.iter().any(|it| Arc::ptr_eq(it, &lane)) {
                            add(&shared.pieces, &mut lanes, lane);
                        }
                    }
                }
                () = shared.bell.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
            let mut pieces = lock(&shared.pieces);
            while let Some(id) = pieces.needless() {
                pieces.end(id);
                runs.retain(|run| run.id != id);
            }
        };
        drop(runs);
        // The file is closed before anybody hears of it.
        let result = result.and(shared.close().await);
        if lanes.len() > 1 {
            let twice = lock(&shared.pieces).twice();
            tracing::debug!(lanes = lanes.len(), twice, "downloaded over several connections");
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

    /// Begins to make, or to ask, the connection that would help, if one would.
    fn next_lane(&self, lanes: &[Arc<Lane>], uses: Use, left: u64, trouble: u32) -> Option<Joining<'_>> {
        let has = |protocol| lanes.iter().filter(|lane| lane.protocol == protocol).count();
        if has(uses.current) == 0 {
            return Some(Box::pin(self.lane(uses.current, 0)));
        }
        if uses.ask || (uses.trial && has(other(uses.current)) == 0) {
            return Some(Box::pin(self.answering(other(uses.current))));
        }
        let tcp = has(Protocol::Tcp);
        let wanted = (1 + (trouble / TROUBLE) as usize).min(MOST_LANES);
        let far = lanes.iter().any(|lane| lane.protocol == Protocol::Tcp && lane.round_trip >= NEAR);
        let free = self.config.rate_limit.is_none() && self.config.window == Window::Auto;
        let more = uses.current == Protocol::Tcp && tcp < wanted && far && free && left >= WORTH_A_LANE;
        more.then(|| -> Joining<'_> { Box::pin(self.lane(Protocol::Tcp, tcp)) })
    }
}

fn add(pieces: &Mutex<Pieces>, lanes: &mut Vec<Arc<Lane>>, lane: Arc<Lane>) {
    lock(pieces).add_lane(clock(), lane.round_trip);
    lanes.push(lane);
}

/// Waits for the end of a run, and takes it off the list.
async fn first_of(runs: &mut Vec<Run<'_>>) -> (RunId, Result<(), Error>) {
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

async fn joined(joining: &mut Option<Joining<'_>>) -> Option<Arc<Lane>> {
    match joining {
        Some(joining) => joining.await,
        None => std::future::pending().await,
    }
}
