//! Sockets, clock and files: the tokio layer that moves bytes between them and a [`Session`].
//!
//! The connections of a client are tasks of the caller's runtime, where storage and callbacks are called on threads of its blocking pool.
//! Or they share one thread with a runtime of its own, which calls storage itself: that is fastest, and a slow disk stalls this client.

mod datagram;
mod fragments;
mod pump;
mod reactor;
mod socket;
mod storage;
mod strand;
mod stream;
mod whole;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use nfs_proto::{
    attr::Time,
    engine::{PathEstimate, Stats},
    session::{APPLICATION_CALLS, ServerLimits, Session, SessionConfig, Transfer},
    transfer::Limits,
};
use nfs_wire::{
    FileHandle,
    rpc::{Program, Rejection},
};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

use self::pump::Pump;
pub(crate) use self::reactor::Reactor;
pub use self::storage::{Sink, Source};
pub(crate) use self::{
    storage::{Arrivals, Supply},
    strand::Strand,
};
use crate::{channel::Channel, error::Error};

/// Called with the number of further file bytes accepted; it is called where a [`Sink`] is, and may block as long as that.
pub type Observer = Arc<dyn Fn(u64) + Send + Sync>;

/// What a connection knows about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) stats: Stats,
    pub(crate) limits: Option<Limits>,
    /// What the server has announced.
    pub(crate) server_limits: Option<ServerLimits>,
    pub(crate) outstanding: usize,
    /// Transfers that the server has asked to come back later.
    pub(crate) put_off: usize,
    /// Something is to be heard: calls are outstanding, or there is no connection.
    pub(crate) waiting: bool,
    pub(crate) last_heard: Option<Instant>,
    pub(crate) path_estimate: Option<PathEstimate>,
    pub(crate) identifications_may_have_wrapped: bool,
}

/// Why a call got no reply.
#[derive(Debug)]
pub(crate) enum CallFailure {
    Expired {
        attempts: u32,
        elapsed: Duration,
    },
    Unreachable(Arc<std::io::Error>),
    /// The server answers with what is no reply, and why it is none.
    Broken(Arc<str>),
    Closed,
}

/// The results of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) results: Bytes,
    pub(crate) outcome: Result<(), Rejection>,
    pub(crate) attempts: u32,
    /// Since what was answered was sent.
    pub(crate) round_trip: Duration,
}

/// Where a transfer's bytes come from or go to.
pub(crate) enum Storage {
    Sink(Box<dyn Arrivals>),
    Source(Strand<Supply>),
}

/// A transfer, and who takes part in it.
pub(crate) struct Task {
    pub(crate) transfer: Transfer,
    pub(crate) storage: Storage,
    /// Told of bytes that an upload's server accepted; waits for nothing.
    pub(crate) accepted: Option<Observer>,
    /// Bytes per second that it moved where it comes from.
    pub(crate) rate: Option<f64>,
}

/// What a [`Connection`] asks of its driver.
pub(crate) enum Command {
    Call {
        token: u64,
        procedure: (Program, u32),
        timeout: Option<Duration>,
        arguments: Vec<u8>,
        answer: oneshot::Sender<Result<Answer, CallFailure>>,
    },
    Cancel {
        token: u64,
    },
    Start {
        token: u64,
        task: Task,
        done: oneshot::Sender<Ended>,
    },
    /// Let a transfer make no further calls, and say when none of its calls is outstanding.
    Hold {
        token: u64,
        drained: oneshot::Sender<()>,
    },
    /// Give a transfer back, if it waits for nothing that must not be made twice.
    Detach {
        token: u64,
        handed: oneshot::Sender<Task>,
    },
    Stop {
        token: u64,
    },
    /// The bytes that a WRITE waits for.
    Loaded {
        token: u64,
        bytes: std::io::Result<Vec<u8>>,
    },
    /// Whoever follows the progress of a transfer has heard of it.
    Told {
        token: u64,
    },
    /// From now on a refusal is an outage to be waited out.
    Persist,
    /// An export is mounted: READs and WRITEs obey the server's limits.
    Mounted {
        root: FileHandle,
        known: Option<ServerLimits>,
    },
    /// The way to the server has changed.
    Change(Change),
}

/// What became of the way to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A link or an address of this machine has changed.
    Link,
    /// The server is at this address now.
    Server(SocketAddr),
    /// There is none any more.
    End,
}

/// A handle on one connected UDP socket or TCP connection and the session it carries.
#[derive(Debug)]
pub(crate) struct Connection {
    commands: mpsc::UnboundedSender<Command>,
    next_token: AtomicU64,
    /// As many as the session takes calls.
    slots: Semaphore,
    snapshot: Arc<Mutex<Snapshot>>,
}

/// What a driver shares with the handle on it.
#[derive(Debug)]
struct Shared {
    snapshot: Arc<Mutex<Snapshot>>,
    /// For jobs that have something to tell; they do not keep the driver alive.
    commands: mpsc::WeakUnboundedSender<Command>,
}

/// A slot for one call among those of a connection.
pub(crate) struct Slot<'a> {
    connection: &'a Connection,
    timeout: Option<Duration>,
    _permit: SemaphorePermit<'a>,
}

impl Connection {
    /// Connects a UDP socket to `peer` and drives a session over it, through `channel` if there is one.
    pub(crate) async fn datagrams(
        reactor: &Reactor,
        peer: SocketAddr,
        reserved_port: bool,
        channel: Option<Arc<dyn Channel>>,
        config: impl FnOnce(usize) -> SessionConfig + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::spawn(reactor, move |commands, shared| async move {
            let (socket, receive_buffer) = socket::connect_udp(peer, reserved_port).await?;
            let session = Session::new(config(receive_buffer), peer, seed(), clock());
            Ok(datagram::run(socket, peer, channel, Pump::new(session, shared), commands))
        })
        .await
    }

    /// Makes a TCP connection to `peer` and drives a session over it.
    pub(crate) async fn stream(
        reactor: &Reactor,
        peer: SocketAddr,
        reserved_port: bool,
        config: SessionConfig,
    ) -> std::io::Result<Self> {
        Self::spawn(reactor, move |commands, shared| async move {
            let stream = socket::connect_tcp(peer, reserved_port, None).await?;
            let session = Session::new(config, peer, seed(), clock());
            Ok(stream::run(stream, peer, reserved_port, Pump::new(session, shared), commands))
        })
        .await
    }

    /// Runs `start` where drivers run, then the driver it returns.
    async fn spawn<Start, Started, Run>(reactor: &Reactor, start: Start) -> std::io::Result<Self>
    where
        Start: FnOnce(mpsc::UnboundedReceiver<Command>, Shared) -> Started + Send + 'static,
        Started: Future<Output = std::io::Result<Run>> + Send,
        Run: Future<Output = ()> + Send,
    {
        let (commands, receiver) = mpsc::unbounded_channel();
        let snapshot = Arc::new(Mutex::new(Snapshot::default()));
        let (connected, ready) = oneshot::channel();
        let shared = Shared { snapshot: Arc::clone(&snapshot), commands: commands.downgrade() };
        reactor.spawn(async move {
            let (result, run) = match start(receiver, shared).await {
                Ok(run) => (Ok(()), Some(run)),
                Err(error) => (Err(error), None),
            };
            // If nobody listens the connection was given up meanwhile, and there is nothing to drive.
            if connected.send(result).is_ok()
                && let Some(run) = run
            {
                run.await;
            }
        });
        match ready.await {
            Ok(result) => result?,
            Err(_) => return Err(std::io::Error::other("the runtime of the client has ended")),
        }
        let (next_token, slots) = (AtomicU64::new(0), Semaphore::new(APPLICATION_CALLS));
        Ok(Self { commands, next_token, slots, snapshot })
    }

    /// Makes a call when there is a slot for it. Dropping the future cancels it.
    pub(crate) async fn call(
        &self,
        procedure: (Program, u32),
        timeout: Option<Duration>,
        arguments: Vec<u8>,
    ) -> Result<Answer, CallFailure> {
        self.slot(timeout).await?.call(procedure, arguments).await
    }

    /// Waits for a slot for a call; the time that takes is part of the timeout. Who came first gets one first.
    pub(crate) async fn slot(&self, timeout: Option<Duration>) -> Result<Slot<'_>, CallFailure> {
        let slot = |permit, timeout| Slot { connection: self, timeout, _permit: permit };
        if let Ok(permit) = self.slots.try_acquire() {
            return Ok(slot(permit, timeout));
        }
        let (started, waiting) = (clock(), self.slots.acquire());
        let permit = match timeout {
            None => waiting.await,
            Some(elapsed) => tokio::time::timeout(elapsed, waiting)
                .await
                .map_err(|_| CallFailure::Expired { attempts: 0, elapsed })?,
        };
        let permit = permit.map_err(|_| CallFailure::Closed)?;
        let waited = clock().saturating_duration_since(started);
        Ok(slot(permit, timeout.map(|timeout| timeout.saturating_sub(waited))))
    }

    /// Starts a transfer. Dropping what is returned stops it.
    pub(crate) fn start(&self, task: Task) -> Underway<'_> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let (done, result) = oneshot::channel();
        // Without a driver the result is that it is gone.
        let _ = self.commands.send(Command::Start { token, task, done });
        let guard = OnDrop { commands: &self.commands, command: Some(Command::Stop { token }) };
        Underway { token, result, guard }
    }

    /// Treats refusals as outages from now on.
    pub(crate) fn persist(&self) {
        let _ = self.commands.send(Command::Persist);
    }

    /// Uses the connection for an export that is mounted: refusals are outages from now on, and the server's limits are asked for, unless
    /// `known` are those that another connection over the same transport has heard.
    pub(crate) fn mounted(&self, root: FileHandle, known: Option<ServerLimits>) {
        self.persist();
        let _ = self.commands.send(Command::Mounted { root, known });
    }

    /// Says that the way to the server has changed.
    pub(crate) fn change(&self, change: Change) {
        let _ = self.commands.send(Command::Change(change));
    }

    pub(crate) fn limits(&self) -> Option<Limits> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).limits
    }

    pub(crate) fn identifications_may_have_wrapped(&self) -> bool {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).identifications_may_have_wrapped
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Slot<'_> {
    /// Makes a call. Dropping the future cancels it, and then frees the slot.
    pub(crate) async fn call(
        self,
        procedure: (Program, u32),
        arguments: Vec<u8>,
    ) -> Result<Answer, CallFailure> {
        let Self { connection: Connection { commands, next_token, .. }, timeout, .. } = self;
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        let (answer, result) = oneshot::channel();
        let command = Command::Call { token, procedure, timeout, arguments, answer };
        commands.send(command).map_err(|_| CallFailure::Closed)?;
        let guard = OnDrop { commands, command: Some(Command::Cancel { token }) };
        let result = result.await;
        guard.disarm();
        result.unwrap_or(Err(CallFailure::Closed))
    }
}

/// How a transfer ended: an upload with what it has made.
pub(crate) type Ended = Result<Option<nfs_proto::transfer::Uploaded>, Error>;

/// A transfer on its way.
pub(crate) struct Underway<'a> {
    token: u64,
    result: oneshot::Receiver<Ended>,
    guard: OnDrop<'a>,
}

impl Underway<'_> {
    /// Waits for the end of the transfer; may be cancelled and called again.
    pub(crate) async fn done(&mut self) -> Ended {
        let result = (&mut self.result).await;
        self.guard.command = None;
        result.unwrap_or(Err(Error::Closed))
    }

    /// Lets the transfer make no further calls, until it is taken back. What is returned is ready when none of its calls is outstanding.
    pub(crate) fn hold(&self) -> oneshot::Receiver<()> {
        let (drained, done) = oneshot::channel();
        let _ = self.guard.commands.send(Command::Hold { token: self.token, drained });
        done
    }

    /// Takes the transfer back, to be started elsewhere. `None`: it goes on here, or has just ended.
    pub(crate) async fn detach(&mut self) -> Option<Task> {
        let (handed, task) = oneshot::channel();
        self.guard.commands.send(Command::Detach { token: self.token, handed }).ok()?;
        let task = task.await.ok()?;
        self.guard.command = None;
        Some(task)
    }
}

/// Sends a command when dropped before it is disarmed.
struct OnDrop<'a> {
    commands: &'a mpsc::UnboundedSender<Command>,
    command: Option<Command>,
}

impl OnDrop<'_> {
    fn disarm(mut self) {
        self.command = None;
    }
}

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        if let Some(command) = self.command.take() {
            let _ = self.commands.send(command);
        }
    }
}

/// Reads the clock that also runs in tokio's paused tests.
pub(crate) fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A seed that differs between processes and connections, for XIDs that nobody can guess.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((clock(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Returns bytes that differ between calls and processes.
pub(crate) fn random_bytes() -> [u8; 8] {
    seed().to_be_bytes()
}

/// Returns a time of today that differs between calls and processes, in microseconds, which most servers can keep.
#[expect(clippy::disallowed_methods, reason = "a driver may read the clock; this is the time of day")]
pub(crate) fn unlike_time() -> Time {
    let micros = u64::from_be_bytes(random_bytes()) % 1_000_000;
    Time { nanoseconds: micros as u32 * 1000, ..Time::from_system(SystemTime::now()) }
}
