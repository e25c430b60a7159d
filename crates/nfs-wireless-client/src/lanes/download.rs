//! A download over one connection or several.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use nfs_wire::{FileHandle, portmap::Protocol};

use super::{
    Counted, Direction, Lane, Lanes, NEAR, TICK,
    choice::{Choice, Use, other},
    lock,
    pieces::{Pieces, RunId},
};
use crate::{
    attr::Metadata,
    config::Window,
    driver::{Observer, Sink, Storage, Task, clock},
    error::Error,
    session::Transfer,
    transfer::{Download, Range, RangeSet, TransferError},
};

/// TCP connections of one download at most.
const MOST_LANES: usize = 4;

/// A further connection is made when so much is left,
const WORTH_A_LANE: u64 = 2 << 20;

/// and for so much trouble: a first loss is what ends the slow start of every connection.
const TROUBLE: u32 = 3;

/// A connection gets so long to show what it is worth before the next one is made or asked.
const JOIN_INTERVAL: Duration = Duration::from_millis(500);

/// What the runs of a download share.
struct Shared {
    pieces: Pieces,
    /// Taken away at the end: late bytes go nowhere.
    sink: Option<Box<dyn Sink>>,
    observer: Option<Observer>,
    told: Told,
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

/// Takes the bytes of one run.
struct RunSink {
    shared: Arc<Mutex<Shared>>,
    run: RunId,
    protocol: Protocol,
    choice: Option<Arc<Mutex<Choice>>>,
}

impl Sink for RunSink {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let now = clock();
        let length = bytes.len() as u64;
        let mut shared = lock(&self.shared);
        let Some(sink) = &mut shared.sink else { return Ok(()) };
        sink.write_at(offset, bytes)?;
        let new = shared.pieces.handle_bytes(now, self.run, Range { start: offset, end: offset + length });
        if let Some(observer) = shared.observer.as_ref().filter(|_| new > 0) {
            observer(new);
        }
        drop(shared);
        if let Some(choice) = &self.choice {
            lock(choice).handle_bytes(now, self.protocol, length);
        }
        Ok(())
    }

    fn told(&mut self, attributes: Option<Metadata>) {
        let mut shared = lock(&self.shared);
        shared.told = match (&shared.told, attributes.filter(|_| self.protocol == Protocol::Udp)) {
            (Told::Nothing, Some(told)) => Told::Same(told),
            (Told::Same(before), Some(told)) if told.is_same_version(before) => Told::Same(told),
            _ => Told::Unclear,
        };
        if let Some(sink) = &mut shared.sink {
            sink.told(attributes);
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
        let shared = Arc::new(Mutex::new(Shared { pieces, sink: Some(sink), observer, told: Told::Nothing }));
        let mut lanes: Vec<Arc<Lane>> = Vec::new();
        let mut joining: Option<Joining<'_>> = None;
        let mut join_from = clock();
        let mut runs: Vec<Run<'_>> = Vec::new();
        let result = loop {
            let now = clock();
            let (left, trouble) = {
                let mut shared = lock(&shared);
                (shared.pieces.left(), shared.pieces.trouble(now))
            };
            if left == 0 {
                break Ok(());
            }
            // What moves well over TCP need not be compared with UDP.
            let quiet = trouble == 0 && lanes.first().is_some_and(|lane| lane.protocol == Protocol::Tcp);
            let uses = self.decide(Direction::Down, if quiet { 0 } else { left });
            if lanes.is_empty() {
                let lane = self.find(uses.current, 0).unwrap_or_else(|| Arc::clone(&self.first));
                add(&shared, &mut lanes, lane);
            }
            for (index, lane) in lanes.iter().enumerate() {
                if lane.protocol != uses.current && !uses.trial {
                    continue;
                }
                loop {
                    let Some((id, asked)) = lock(&shared).pieces.next(now, index) else { break };
                    let sink = RunSink {
                        shared: Arc::clone(&shared),
                        run: id,
                        protocol: lane.protocol,
                        choice: choice.clone(),
                    };
                    let task = Task {
                        transfer: Transfer::Download(Download::ranges(file, asked)),
                        storage: Storage::Sink(Box::new(sink)),
                        observer: None,
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
                    Ok(()) => lock(&shared).pieces.end(id),
                    Err(error) => {
                        let quiet = clock().saturating_duration_since(lock(&shared).pieces.arrived());
                        match error {
                            // Others may have brought more meanwhile.
                            Error::Stalled(limit) if quiet < limit => lock(&shared).pieces.end(id),
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
                            add(&shared, &mut lanes, lane);
                        }
                    }
                }
                () = tokio::time::sleep(TICK) => {}
            }
            let mut shared = lock(&shared);
            while let Some(id) = shared.pieces.needless() {
                shared.pieces.end(id);
                runs.retain(|run| run.id != id);
            }
        };
        let mut shared = lock(&shared);
        // The file is closed before anybody hears of it.
        drop(shared.sink.take());
        if lanes.len() > 1 {
            let twice = shared.pieces.twice();
            tracing::debug!(lanes = lanes.len(), twice, "downloaded over several connections");
        }
        let told = match shared.told {
            Told::Same(told) => Some(told),
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

fn add(shared: &Mutex<Shared>, lanes: &mut Vec<Arc<Lane>>, lane: Arc<Lane>) {
    lock(shared).pieces.add_lane(clock(), lane.round_trip);
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
