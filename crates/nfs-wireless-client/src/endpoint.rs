//! The connections of a client: carries out what the machines of [`nfs_proto::endpoint`] decide. docs/transports.md.
//!
//! The first connection carries calls that must not be run twice. Where the transport was left open there may be a
//! second one over the other transport, and for large downloads over TCP further ones.

mod download;
mod upload;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use nfs_proto::{
    config::Window,
    endpoint::{
        self, ConnectionId, Direction, EndpointConfig, Failover, ListingPlan, ListingStep, Reason, Route,
        TransportTuning, other,
    },
    engine::PathEstimate,
    transfer::Limits,
};
use nfs_wire::{FileHandle, Procedure, portmap::Protocol, rpc::Program};
use tokio::sync::watch;

use crate::{
    config::{ClientConfig, TransportChoice},
    connect::{Finder, Reached},
    driver::{Answer, CallFailure, Change, Connection, Reactor, Snapshot, clock},
    known::LookedUp,
};

/// A connection, and where it leads.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) connection: Connection,
    pub(crate) protocol: Protocol,
    /// Where the server is.
    address: Mutex<SocketAddr>,
    pub(crate) round_trip: Duration,
    /// What was looked up while it was made.
    pub(crate) looked_up: LookedUp,
    /// When each procedure was answered last, and its round trip.
    answered: Mutex<BTreeMap<u32, (Instant, Duration)>>,
}

impl Path {
    pub(crate) fn new(
        connection: Connection,
        protocol: Protocol,
        address: SocketAddr,
        round_trip: Duration,
    ) -> Self {
        let (address, looked_up) = (Mutex::new(address), LookedUp::default());
        Self { connection, protocol, address, round_trip, looked_up, answered: Mutex::default() }
    }

    /// Returns where the server is.
    pub(crate) fn address(&self) -> SocketAddr {
        *lock(&self.address)
    }
}

/// The machine, and the connections that it knows by their numbers.
#[derive(Debug)]
struct Connections {
    machine: Mutex<endpoint::Endpoint>,
    paths: Mutex<Vec<Arc<Path>>>,
    /// One attempt over each transport at a time; those who wait for it have receivers.
    making: Mutex<[Weak<watch::Sender<()>>; 2]>,
}

impl Connections {
    fn machine(&self) -> MutexGuard<'_, endpoint::Endpoint> {
        lock(&self.machine)
    }

    fn path(&self, id: ConnectionId) -> Arc<Path> {
        Arc::clone(&lock(&self.paths)[id.0])
    }

    fn all(&self) -> Vec<Arc<Path>> {
        lock(&self.paths).clone()
    }

    fn add(&self, path: Path) {
        let mut machine = self.machine();
        machine.add(path.protocol, path.round_trip);
        lock(&self.paths).push(Arc::new(path));
    }
}

/// All connections of a client.
#[derive(Debug)]
pub(crate) struct Endpoint {
    // Connections are dropped first: without commands their drivers end before a thread of their own does.
    first: Arc<Path>,
    connections: Arc<Connections>,
    pub(crate) config: ClientConfig,
    /// The root of the export.
    root: FileHandle,
    pub(crate) reactor: Reactor,
}

impl Endpoint {
    pub(crate) fn new(reached: Reached, root: FileHandle, config: ClientConfig, reactor: Reactor) -> Self {
        let Reached { path, other, reason } = reached;
        let decisions = EndpointConfig {
            either_transport: config.transport == TransportChoice::Auto,
            several_connections: config.rate_limit.is_none() && config.window == Window::Auto,
            tuning: TransportTuning::DEFAULT,
        };
        let machine = endpoint::Endpoint::new(decisions, clock(), path.protocol, path.round_trip, reason);
        let first = Arc::new(path);
        let connections = Connections {
            machine: Mutex::new(machine),
            paths: Mutex::new(vec![Arc::clone(&first)]),
            making: Mutex::default(),
        };
        other.into_iter().for_each(|other| connections.add(other));
        connections.all().iter().for_each(|path| path.connection.mounted(root, None));
        Self { first, connections: Arc::new(connections), config, root, reactor }
    }

    /// Returns the first connection.
    pub(crate) fn first(&self) -> &Path {
        &self.first
    }

    /// Returns what READs, or WRITEs, take, and why.
    pub(crate) fn verdicts(&self) -> [(Protocol, Reason); 2] {
        let machine = self.connections.machine();
        [Direction::Down, Direction::Up].map(|direction| machine.verdict(direction))
    }

    /// Returns the bytes per READ and WRITE in use now.
    pub(crate) fn limits(&self) -> Limits {
        let [down, up] = self.verdicts().map(|(protocol, _)| {
            let path = self.find(protocol).unwrap_or_else(|| Arc::clone(&self.first));
            path.connection.limits().unwrap_or_default()
        });
        Limits { read_block: down.read_block, write_block: up.write_block, ..Limits::default() }
    }

    /// Whether fragments of different datagrams may have been put together on any of them.
    pub(crate) fn identifications_may_have_wrapped(&self) -> bool {
        self.connections.all().iter().any(|path| path.connection.identifications_may_have_wrapped())
    }

    /// Returns what the connections know about themselves, all together.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut all = self.first.connection.snapshot();
        for path in &self.connections.all()[1..] {
            let Snapshot { stats, outstanding, put_off, last_heard, path_estimate, .. } =
                path.connection.snapshot();
            all.stats.add(&stats);
            all.outstanding += outstanding;
            all.put_off += put_off;
            all.waiting |= outstanding > 0;
            all.last_heard = all.last_heard.max(last_heard);
            all.path_estimate = all.path_estimate.or(path_estimate);
        }
        if let Some(estimate) = &mut all.path_estimate {
            estimate.fast = self.fast_rate(estimate);
        }
        all
    }

    /// Returns the rate of UDP at which READs or WRITEs have moved to TCP and stayed there, or would next time; none if TCP has failed.
    fn fast_rate(&self, estimate: &PathEstimate) -> Option<f64> {
        let reasons = self.verdicts().map(|(_, reason)| reason);
        if reasons.iter().any(|reason| matches!(reason, Reason::Slower(..))) {
            return None;
        }
        let moved = reasons.into_iter().find_map(|reason| match reason {
            Reason::Fast(rate) => Some(rate),
            _ => None,
        });
        moved.or_else(|| TransportTuning::DEFAULT.is_better_over_tcp(estimate).then_some(estimate.rate))
    }

    /// Returns where the server is, over each transport that there is a connection of; the first one's before the other's.
    pub(crate) fn addresses(&self) -> Vec<(Protocol, SocketAddr)> {
        let first = (self.first.protocol, self.first.address());
        let second = self.find(other(first.0)).map(|path| (path.protocol, path.address()));
        std::iter::once(first).chain(second).collect()
    }

    /// Says to every connection that the way to the server has changed.
    pub(crate) fn change(&self, change: Change) {
        self.connections.all().iter().for_each(|path| path.connection.change(change));
    }

    /// Goes to another address with the connections over a transport.
    pub(crate) fn move_to(&self, protocol: Protocol, address: SocketAddr) {
        let moved = |path: &Path| path.protocol == protocol && path.address() != address;
        for path in self.connections.all().iter().filter(|path| moved(path)) {
            *lock(&path.address) = address;
            path.connection.change(Change::Server(address));
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
        let route = self.connections.machine().route(procedure);
        self.call_by(route, procedure, timeout, |_| arguments.clone()).await.map(|(answer, _)| answer)
    }

    /// Starts a listing; [`Endpoint::call_page`] brings its pages.
    pub(crate) fn listing_plan(&self) -> ListingPlan {
        ListingPlan::new(&self.connections.machine())
    }

    /// Makes the call for the next page of a listing, whose arguments depend on the size of the page.
    pub(crate) async fn call_page(
        &self,
        plan: &mut ListingPlan,
        procedure: Procedure,
        timeout: Option<Duration>,
        arguments: impl Fn(u32) -> Vec<u8>,
    ) -> Result<Answer, CallFailure> {
        let route = loop {
            let step = plan.poll(clock(), &self.connections.machine(), procedure);
            match step {
                ListingStep::Call(route) => break route,
                ListingStep::Connect(protocol, limit) => self.connect_meanwhile(protocol, limit),
            }
        };
        let started = clock();
        let sized = |protocol| arguments(plan.page_bytes(protocol));
        let (answer, over) = self.call_by(route, procedure, timeout, sized).await?;
        if over != route.connection {
            plan.handle_failover();
        }
        plan.handle_page(&self.connections.machine(), over, clock().saturating_duration_since(started));
        Ok(answer)
    }

    /// Makes a call with the arguments that suit the transport it takes; returns which connection answered.
    async fn call_by(
        &self,
        route: Route,
        procedure: Procedure,
        timeout: Option<Duration>,
        arguments: impl Fn(Protocol) -> Vec<u8>,
    ) -> Result<(Answer, ConnectionId), CallFailure> {
        let number = (Program::NFS, procedure.number());
        let Route { connection, failover } = route;
        let path = self.connections.path(connection);
        let first = arguments(path.protocol);
        let Some(Failover { after, grace }) = failover else {
            return path.connection.call(number, timeout, first).await.map(|answer| (answer, connection));
        };
        // Whoever waits for a place is not yet waiting for the server.
        let call = path.connection.slot(timeout).await?.call(number, first);
        let began = clock();
        let call = async {
            let answer = call.await?;
            lock(&path.answered).insert(procedure.number(), (clock(), answer.round_trip));
            Ok((answer, connection))
        };
        tokio::pin!(call);
        let again = async {
            // Calls of the same kind that are answered show that this one waits in a queue, and how long that takes.
            let mut due = began + after;
            loop {
                tokio::time::sleep_until(due.into()).await;
                let answered = lock(&path.answered).get(&procedure.number()).copied();
                match answered.map(|(at, round_trip)| at.max(began) + after.max(2 * round_trip)) {
                    Some(later) if later > due => due = later,
                    _ => break,
                }
            }
            let other = self.answering(other(path.protocol)).await?;
            tokio::time::sleep(grace).await;
            let again = self.connections.path(other);
            let answer = again.connection.call(number, timeout, arguments(again.protocol)).await.ok()?;
            Some((answer, other))
        };
        tokio::select! {
            biased;
            answer = &mut call => answer,
            Some(answer) = again => {
                self.connections.machine().handle_failover(procedure, path.protocol);
                tracing::debug!(what = procedure.name(), "moved to the other transport");
                Ok(answer)
            }
        }
    }

    /// Returns a connection over a transport once it has answered a NULL call, made now.
    async fn answering(&self, protocol: Protocol) -> Option<ConnectionId> {
        let known = self.connections.machine().find(protocol, 0);
        let Some(id) = known else { return self.connection(protocol, 0).await };
        let path = self.connections.path(id);
        let answer = path.connection.call((Program::NFS, Procedure::Null.number()), None, Vec::new()).await;
        answer.is_ok().then_some(id)
    }

    /// Returns the first connection over a transport, if there is one.
    fn find(&self, protocol: Protocol) -> Option<Arc<Path>> {
        let id = self.connections.machine().find(protocol, 0)?;
        Some(self.connections.path(id))
    }

    /// Returns the connection over a transport with this number, and makes it if it is the next one; it has answered a NULL call
    /// then. `None`: the server refuses.
    async fn connection(&self, protocol: Protocol, number: usize) -> Option<ConnectionId> {
        loop {
            match self.attempt(protocol, number) {
                Attempt::Made(id) => return Some(id),
                Attempt::Refused => return None,
                // It fails when the attempt has ended.
                Attempt::Underway(mut attempt) => _ = attempt.changed().await,
            }
        }
    }

    /// Has the first connection over a transport made while other things go on; after `limit` it counts as refused.
    fn connect_meanwhile(&self, protocol: Protocol, limit: Duration) {
        let Attempt::Underway(mut attempt) = self.attempt(protocol, 0) else { return };
        let connections = Arc::clone(&self.connections);
        self.reactor.spawn(async move {
            if tokio::time::timeout(limit, attempt.changed()).await.is_err() {
                connections.machine().handle_refused(clock(), protocol);
            }
        });
    }

    /// Returns the connection over a transport with this number, or begins to make it.
    fn attempt(&self, protocol: Protocol, number: usize) -> Attempt {
        let mut making = lock(&self.connections.making);
        let machine = self.connections.machine();
        if let Some(id) = machine.find(protocol, number) {
            return Attempt::Made(id);
        }
        if !machine.may_connect(clock(), protocol) {
            return Attempt::Refused;
        }
        drop(machine);
        let making = &mut making[usize::from(protocol == Protocol::Tcp)];
        if let Some(attempt) = making.upgrade() {
            return Attempt::Underway(attempt.subscribe());
        }
        let (attempt, waiting) = watch::channel(());
        let attempt = Arc::new(attempt);
        *making = Arc::downgrade(&attempt);
        self.make(protocol, attempt);
        Attempt::Underway(waiting)
    }

    /// Begins to make a connection, in a task that continues when whoever wanted it is not polled; it ends when nobody waits for
    /// `attempt` any more.
    fn make(&self, protocol: Protocol, attempt: Arc<watch::Sender<()>>) {
        // Where nobody has been asked for the port it is the same on both transports.
        let (address, root, config) = (self.first.address(), self.root, self.config.clone());
        let known = self.find(protocol).and_then(|it| it.connection.snapshot().server_limits);
        let (connections, reactor) = (Arc::clone(&self.connections), self.reactor.clone());
        self.reactor.spawn(async move {
            let finder = Finder { reactor: &reactor, config: &config, host: "" };
            let made = tokio::select! {
                made = finder.further(address, protocol) => made,
                () = attempt.closed() => return,
            };
            match made {
                Ok(path) => {
                    path.connection.mounted(root, known);
                    connections.add(path);
                }
                Err(error) => {
                    tracing::debug!(%error, ?protocol, "no further connection");
                    connections.machine().handle_refused(clock(), protocol);
                }
            }
        });
    }
}

/// What became of the wish for a connection.
enum Attempt {
    Made(ConnectionId),
    Refused,
    /// It is being made, until all receivers are dropped.
    Underway(watch::Receiver<()>),
}

/// A transfer that the endpoint counts.
struct Counted {
    connections: Arc<Connections>,
    direction: Direction,
}

impl Counted {
    fn begin(connections: &Arc<Connections>, direction: Direction) -> Self {
        connections.machine().begin(clock(), direction);
        Self { connections: Arc::clone(connections), direction }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.machine().end(clock(), self.direction);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
