//! The connections of a client, and which calls take which: docs/transports.md.
//!
//! One connection is the first: calls that must not be run twice stay on it. Where the transport was left open there may be a
//! second one over the other transport, and for large downloads over TCP further ones.

mod bridged;
mod choice;
mod download;
mod pieces;
mod upload;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nfs_proto::{
    engine::Repeat,
    transfer::{Copies, Limits},
};
use nfs_wire::{FileHandle, Procedure, portmap::Protocol, rpc::Program};
use tokio::sync::watch;

pub use self::choice::Reason;
pub(crate) use self::choice::other;
use self::choice::{Choice, Use};
use crate::{
    config::{ClientConfig, TransportChoice},
    connect::{Finder, Reached},
    driver::{Answer, CallFailure, Change, Connection, Reactor, Snapshot, clock},
};

/// A call that may be made twice and is silent for so long, and for so many round trips, is made on the other transport too,
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_ROUND_TRIPS: u32 = 8;

/// if that has answered a NULL call and this one still has not answered so much later: a fade is over by then.
const GRACE: Duration = Duration::from_millis(1500);

/// A transport that refuses is not asked again for so long.
const REFUSED: Duration = Duration::from_secs(30);

/// How often transfers look whether another connection would do better.
const TICK: Duration = Duration::from_millis(50);

/// Servers below this round trip are near: there TCP costs least work, and fades are no matter of a link so short.
pub(crate) const NEAR: Duration = Duration::from_millis(1);

/// One connection.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) connection: Connection,
    pub(crate) protocol: Protocol,
    /// Where the server is.
    address: Mutex<SocketAddr>,
    pub(crate) round_trip: Duration,
}

impl Lane {
    pub(crate) const fn new(
        connection: Connection,
        protocol: Protocol,
        address: SocketAddr,
        round_trip: Duration,
    ) -> Self {
        Self { connection, protocol, address: Mutex::new(address), round_trip }
    }

    /// Returns where the server is.
    pub(crate) fn address(&self) -> SocketAddr {
        *lock(&self.address)
    }
}

/// Which way data goes.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Down,
    Up,
}

/// The connections beside the first. Each is made by a task of its own, which continues when whoever wanted it is not polled.
#[derive(Debug, Default)]
struct Further {
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// One attempt over each transport at a time; those who wait for it have receivers.
    making: Mutex<[Weak<watch::Sender<()>>; 2]>,
    refused: Mutex<[Option<Instant>; 2]>,
}

/// All connections of a client.
#[derive(Debug)]
pub(crate) struct Lanes {
    // Connections are dropped first: without commands their drivers end before a thread of their own does.
    first: Arc<Lane>,
    further: Arc<Further>,
    reason: Reason,
    /// For READs and WRITEs, unless the transport was given.
    choices: Option<[Arc<Mutex<Choice>>; 2]>,
    /// Procedures that only the other transport answers, by their bits.
    moved: AtomicU32,
    pub(crate) config: ClientConfig,
    /// The root of the export.
    root: FileHandle,
    pub(crate) reactor: Reactor,
}

impl Lanes {
    pub(crate) fn new(reached: Reached, root: FileHandle, config: ClientConfig, reactor: Reactor) -> Self {
        let Reached { lane, other, reason } = reached;
        lane.connection.mounted(root, None);
        let open = config.transport == TransportChoice::Auto;
        let choice = || {
            let choice = Choice::new(clock(), lane.protocol, reason, lane.round_trip);
            Arc::new(Mutex::new(choice))
        };
        let choices = open.then(|| [choice(), choice()]);
        if let Some(other) = &other {
            other.connection.mounted(root, None);
        }
        Self {
            first: Arc::new(lane),
            further: Arc::new(Further {
                lanes: Mutex::new(other.into_iter().map(Arc::new).collect()),
                ..Further::default()
            }),
            reason,
            choices,
            moved: AtomicU32::new(0),
            config,
            root,
            reactor,
        }
    }

    /// Returns the first connection.
    pub(crate) fn first(&self) -> &Lane {
        &self.first
    }

    /// Returns what READs, or WRITEs, take, and why.
    pub(crate) fn verdicts(&self) -> [(Protocol, Reason); 2] {
        match &self.choices {
            Some(choices) => choices.each_ref().map(|choice| lock(choice).verdict()),
            None => [(self.first.protocol, self.reason); 2],
        }
    }

    /// Returns the bytes per READ and WRITE in use now.
    pub(crate) fn limits(&self) -> Limits {
        let [down, up] = self.verdicts().map(|(protocol, _)| {
            let lane = self.find(protocol, 0).unwrap_or_else(|| Arc::clone(&self.first));
            lane.connection.limits().unwrap_or_default()
        });
        Limits { read_block: down.read_block, write_block: up.write_block, ..Limits::default() }
    }

    /// Whether fragments of different datagrams may have been put together on any of them.
    pub(crate) fn identifications_may_have_wrapped(&self) -> bool {
        let further = lock(&self.further.lanes);
        let mut all = std::iter::once(&self.first).chain(&*further);
        all.any(|lane| lane.connection.identifications_may_have_wrapped())
    }

    /// Returns what the connections know about themselves, all together.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut all = self.first.connection.snapshot();
        for lane in lock(&self.further.lanes).iter() {
            let Snapshot { stats, outstanding, put_off, last_heard, path_estimate, .. } =
                lane.connection.snapshot();
            all.stats.add(&stats);
            all.outstanding += outstanding;
            all.put_off += put_off;
            all.waiting |= outstanding > 0;
            all.last_heard = all.last_heard.max(last_heard);
            all.path_estimate = all.path_estimate.or(path_estimate);
        }
        all
    }

    /// Returns where the server is, over each transport that there is a connection of; the first one's before the other's.
    pub(crate) fn addresses(&self) -> Vec<(Protocol, SocketAddr)> {
        let first = (self.first.protocol, self.first.address());
        let second = self.find(other(first.0), 0).map(|lane| (lane.protocol, lane.address()));
        std::iter::once(first).chain(second).collect()
    }

    /// Says to every connection that the way to the server has changed.
    pub(crate) fn change(&self, change: Change) {
        self.first.connection.change(change);
        lock(&self.further.lanes).iter().for_each(|lane| lane.connection.change(change));
    }

    /// Goes to another address with the connections over a transport.
    pub(crate) fn move_to(&self, protocol: Protocol, address: SocketAddr) {
        let further = lock(&self.further.lanes);
        let lanes = std::iter::once(&self.first).chain(&*further);
        for lane in lanes.filter(|lane| lane.protocol == protocol) {
            *lock(&lane.address) = address;
            lane.connection.change(Change::Server(address));
        }
    }

    /// Makes a call. Dropping the future cancels it.
    ///
    /// On TCP nothing is sent again while its connection lives. But a call that may be made twice goes out once more over the
    /// other transport if that answers and this one does not.
    pub(crate) async fn call(
        &self,
        procedure: Procedure,
        timeout: Option<Duration>,
        arguments: Vec<u8>,
    ) -> Result<Answer, CallFailure> {
        let number = (Program::NFS, procedure.number());
        let may_move = self.choices.is_some() && Copies::of_nfs(procedure).repeat == Repeat::Idempotent;
        if !may_move || procedure == Procedure::Null {
            return self.first.connection.call(number, timeout, arguments).await;
        }
        let bit = 1 << procedure.number();
        let elsewhere = other(self.first.protocol);
        let moved = self.moved.load(Ordering::Relaxed) & bit != 0;
        let lane = self.find(elsewhere, 0).filter(|_| moved).unwrap_or_else(|| Arc::clone(&self.first));
        // Whoever waits for a place is not yet waiting for the server.
        let call = lane.connection.place(timeout).await?.call(number, arguments.clone());
        tokio::pin!(call);
        let patience = PATIENCE.max(lane.round_trip * PATIENCE_ROUND_TRIPS);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = tokio::time::sleep(patience) => {}
        }
        let again = async {
            let lane = self.answering(other(lane.protocol)).await?;
            tokio::time::sleep(GRACE).await;
            lane.connection.call(number, timeout, arguments).await.ok()
        };
        tokio::select! {
            biased;
            answer = &mut call => answer,
            Some(answer) = again => {
                // Of two calls that find this out side by side the second must not undo it.
                if lane.protocol == elsewhere {
                    self.moved.fetch_and(!bit, Ordering::Relaxed);
                } else {
                    self.moved.fetch_or(bit, Ordering::Relaxed);
                }
                tracing::debug!(what = procedure.name(), "moved to the other transport");
                Ok(answer)
            }
        }
    }

    /// Returns a connection over a transport once it has answered a NULL call, made now.
    async fn answering(&self, protocol: Protocol) -> Option<Arc<Lane>> {
        let Some(lane) = self.find(protocol, 0) else { return self.lane(protocol, 0).await };
        let answer = lane.connection.call((Program::NFS, Procedure::Null.number()), None, Vec::new()).await;
        answer.is_ok().then_some(lane)
    }

    /// Returns the connection over a transport with this number, if there is one.
    fn find(&self, protocol: Protocol, number: usize) -> Option<Arc<Lane>> {
        let further = lock(&self.further.lanes);
        let mut all = std::iter::once(&self.first).chain(&*further).filter(|lane| lane.protocol == protocol);
        all.nth(number).cloned()
    }

    /// Returns the connection over a transport with this number, and makes it if it is the next one; it has answered a NULL call
    /// then. `None`: the server refuses.
    async fn lane(&self, protocol: Protocol, number: usize) -> Option<Arc<Lane>> {
        loop {
            let mut attempt = {
                let mut making = lock(&self.further.making);
                if let Some(lane) = self.find(protocol, number) {
                    return Some(lane);
                }
                let at = index(protocol);
                if lock(&self.further.refused)[at].is_some_and(|since| clock() < since + REFUSED) {
                    return None;
                }
                match making[at].upgrade() {
                    Some(attempt) => attempt.subscribe(),
                    None => {
                        let (attempt, waiting) = watch::channel(());
                        let attempt = Arc::new(attempt);
                        making[at] = Arc::downgrade(&attempt);
                        self.make(protocol, attempt);
                        waiting
                    }
                }
            };
            // It fails when the attempt has ended.
            let _ = attempt.changed().await;
        }
    }

    /// Begins to make a connection; ends when nobody waits for `attempt` any more.
    fn make(&self, protocol: Protocol, attempt: Arc<watch::Sender<()>>) {
        // Where nobody has been asked for the port it is the same on both transports.
        let (address, root, config) = (self.first.address(), self.root, self.config.clone());
        let known = self.find(protocol, 0).and_then(|it| it.connection.snapshot().server_limits);
        let (further, reactor) = (Arc::clone(&self.further), self.reactor.clone());
        self.reactor.spawn(async move {
            let finder = Finder { reactor: &reactor, config: &config, host: "" };
            let made = tokio::select! {
                made = finder.further(address, protocol) => made,
                () = attempt.closed() => return,
            };
            match made {
                Ok(lane) => {
                    lane.connection.mounted(root, known);
                    lock(&further.lanes).push(Arc::new(lane));
                }
                Err(error) => {
                    tracing::debug!(%error, ?protocol, "no further connection");
                    lock(&further.refused)[index(protocol)] = Some(clock());
                }
            }
        });
    }

    /// Decides which transport the data of a transfer is to take.
    fn decide(&self, direction: Direction, left: u64) -> Use {
        match self.choice(direction) {
            Some(choice) => lock(choice).decide(clock(), left),
            None => Use { current: self.first.protocol, trial: false, ask: false },
        }
    }

    fn choice(&self, direction: Direction) -> Option<&Arc<Mutex<Choice>>> {
        let [down, up] = self.choices.as_ref()?;
        Some(match direction {
            Direction::Down => down,
            Direction::Up => up,
        })
    }
}

fn index(protocol: Protocol) -> usize {
    usize::from(protocol == Protocol::Tcp)
}

/// A transfer that a [`Choice`] counts.
struct Counted(Option<Arc<Mutex<Choice>>>);

impl Counted {
    fn begin(choice: Option<&Arc<Mutex<Choice>>>) -> Self {
        if let Some(choice) = choice {
            lock(choice).begin(clock());
        }
        Self(choice.cloned())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(choice) = &self.0 {
            lock(choice).end(clock());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
