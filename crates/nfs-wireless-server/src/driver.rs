//! The service on real sockets: UDP and TCP on one port, and the only file that knows sockets and clocks.

mod called;
mod detached;
mod stream;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use nfs_wire::{nfs3_types::nfs3::nfstime3, portmap::Protocol};
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, UdpSocket},
    runtime::Handle,
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::{JoinHandle, JoinSet},
};

pub use self::{called::CalledSocket, detached::Detached};
use crate::service::{Done, Peer, Service, Transmit, Work};

/// A running server. Dropping it stops the server at once; [`shutdown`](Self::shutdown) sends what is ready first.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What the tasks of one server share.
#[derive(Debug)]
struct Shared {
    /// Where calls of the back end are made, if they may wait.
    runtime: Handle,
    state: Mutex<State>,
    /// Who makes calls of the back end, if that is not this driver.
    elsewhere: Option<UnboundedSender<Work>>,
    /// Rings when a datagram waits to be sent or the next deadline has changed.
    bell: Notify,
}

#[derive(Debug)]
struct State {
    service: Service,
    /// What the service's time is kept for at present.
    deadline: Option<Instant>,
    datagrams: Datagrams,
    streams: BTreeMap<SocketAddr, Slot>,
}

/// Reply datagrams that wait for the socket.
#[derive(Debug, Default)]
struct Datagrams {
    queue: VecDeque<Transmit>,
    bytes: usize,
}

impl Datagrams {
    /// Takes one in, or loses it where there are too many.
    fn push(&mut self, transmit: Transmit) -> bool {
        let bytes = self.bytes + transmit.bytes.len();
        let has_room = self.queue.len() < MAX_DATAGRAMS && bytes <= MAX_DATAGRAM_BYTES;
        if has_room {
            self.bytes = bytes;
            self.queue.push_back(transmit);
        }
        has_room
    }

    fn pop(&mut self) -> Option<Transmit> {
        let transmit = self.queue.pop_front()?;
        self.bytes -= transmit.bytes.len();
        Some(transmit)
    }
}

/// The slot of one connection.
#[derive(Debug)]
struct Slot {
    outbox: Arc<Outbox>,
    last_call: Option<Instant>,
    opened: Instant,
}

/// Replies for one connection.
#[derive(Debug, Default)]
struct Outbox {
    replies: Mutex<VecDeque<Vec<u8>>>,
    bell: Notify,
    /// Rings when another connection has taken the place of this one.
    replaced: Notify,
}

/// Most reply datagrams that wait for the socket; further ones are lost, as a datagram may be.
const MAX_DATAGRAMS: usize = 4096;

/// Most bytes of them: what a socket buffer holds, and as much again.
const MAX_DATAGRAM_BYTES: usize = 2 * SOCKET_BUFFER_BYTES;

/// Bytes that all connections together may hold; there are as many of them as that allows: 33 with transfers of 1 MiB.
const MAX_HELD_BYTES: usize = 40 << 20;

/// Most connections at once, however small the transfers.
const MAX_STREAMS: usize = 64;

/// Time for a first call, after which a connection without one is the first to make room.
const FIRST_CALL_TIME: Duration = Duration::from_secs(2);

/// How often the back end may let go of what it keeps.
const REST_TIME: Duration = Duration::from_secs(1);

/// Receive and send buffer asked for on the UDP socket, in bytes; the system may grant less. Default buffers lose
/// bursts of WRITEs.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Largest datagram, in bytes, and one more.
const DATAGRAM_BYTES: usize = 65_536;

/// Most datagrams taken before the replies are sent.
const DATAGRAM_BATCH: usize = 32;

impl Server {
    /// Starts serving on `listen`, UDP and TCP; port 0 picks a port that is free for both.
    ///
    /// The tasks run on the caller's runtime. Calls of a back end that [may wait](crate::Vfs::may_block) are made on
    /// its threads for blocking work, at most [`Timing::threads`](crate::Timing::threads) at once. Anyone who can reach the address can read and change everything, so that the
    /// caller should warn before it listens on more than loopback.
    ///
    /// # Errors
    /// The error of the socket that cannot be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn bind(listen: SocketAddr, mut service: Service) -> io::Result<Self> {
        if service.backend().may_block() {
            service.defer_calls();
        }
        Self::start(listen, service, None).await
    }

    /// Starts serving as [`bind`](Self::bind) does, but leaves calls of the back end to the caller, who makes them whenever
    /// their answers are known ([`Work::run_on`]) and hands in what came of them ([`done`](Self::done)). At most
    /// [`Timing::threads`](crate::Timing::threads) are out at once.
    ///
    /// # Errors
    /// The error of the socket that cannot be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn bind_deferred(
        listen: SocketAddr,
        mut service: Service,
    ) -> io::Result<(Self, UnboundedReceiver<Work>)> {
        let (sender, works) = unbounded_channel();
        service.defer_calls_for_long();
        Ok((Self::start(listen, service, Some(sender)).await?, works))
    }

    /// Takes what has come of a call that was left to the caller.
    pub fn done(&self, done: Done) {
        self.shared.done(done);
    }

    async fn start(
        listen: SocketAddr,
        mut service: Service,
        elsewhere: Option<UnboundedSender<Work>>,
    ) -> io::Result<Self> {
        let (tcp, udp) = bind_both(listen).await?;
        let address = tcp.local_addr()?;
        service.set_address(address);
        service.set_wall_clock(clock(), time_of_day());
        let shared = Arc::new(Shared {
            runtime: Handle::current(),
            elsewhere,
            state: Mutex::new(State::new(service)),
            bell: Notify::new(),
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(Arc::clone(&shared), tcp, udp, stopped));
        Ok(Self { shared, address, stop, task })
    }

    /// Stops the server: replies that are ready are still sent, connections are closed.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        // The task ends by itself or was aborted; both are the end of the server.
        let _ = (&mut self.task).await;
    }

    /// Gives access to the service, to flip faults or to look into the back end while it runs.
    pub fn with_service<T>(&self, access: impl FnOnce(&mut Service) -> T) -> T {
        self.shared.with_service(access)
    }

    /// Returns the address the server is bound to, with the port it was given.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A back end that panicked has lost one call; the others can go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands one message to the service; `Err` means that it was no call.
    fn call(self: &Arc<Self>, peer: Peer, message: &[u8]) -> Result<(), nfs_wire::DecodeError> {
        let mut state = self.lock();
        let now = clock();
        let result = state.service.handle_input(now, peer, message);
        if result.is_ok()
            && peer.protocol == Protocol::Tcp
            && let Some(slot) = state.streams.get_mut(&peer.address)
        {
            slot.last_call = Some(now);
        }
        self.pump(&mut state);
        result
    }

    fn with_service<T>(self: &Arc<Self>, access: impl FnOnce(&mut Service) -> T) -> T {
        let mut state = self.lock();
        let result = access(&mut state.service);
        self.pump(&mut state);
        result
    }

    /// Lets the service act on the time and returns when to do so again.
    fn tick(self: &Arc<Self>) -> Option<Instant> {
        let mut state = self.lock();
        state.service.handle_timeout(clock());
        state.deadline = state.service.poll_timeout();
        self.pump(&mut state);
        state.deadline
    }

    /// Makes a call of the back end, however long it takes, and the calls that have waited for that.
    fn work(self: &Arc<Self>, work: Work) {
        let mut next = Some(work);
        while let Some(work) = next {
            next = self.take_done(work.run(), |service| service.poll_work());
        }
    }

    fn done(self: &Arc<Self>, done: Done) {
        self.take_done(done, |_| ());
    }

    /// Takes what has come of a call. This thread makes the call that it `takes`: for another thread than those that are at work
    /// now, there would be one more each time.
    fn take_done<T>(self: &Arc<Self>, done: Done, takes: impl FnOnce(&mut Service) -> T) -> T {
        let peer = done.peer();
        let mut state = self.lock();
        state.service.handle_done(clock(), done);
        let taken = takes(&mut state.service);
        self.pump(&mut state);
        // There is room for another call, also where the reply was lost to a fault.
        if let Some(slot) = state.streams.get(&peer.address) {
            slot.outbox.bell.notify_one();
        }
        taken
    }

    /// Moves calls to where they are made, and replies to where they are sent from.
    fn pump(self: &Arc<Self>, state: &mut State) {
        let now = clock();
        while let Some(work) = state.service.poll_work() {
            if let Some(elsewhere) = &self.elsewhere {
                // Nobody makes calls any more: the server is about to be stopped.
                let _ = elsewhere.send(work);
                continue;
            }
            let shared = Arc::clone(self);
            self.runtime.spawn_blocking(move || shared.work(work));
        }
        while let Some(transmit) = state.service.poll_transmit(now) {
            match transmit.peer.protocol {
                Protocol::Udp => {
                    if state.datagrams.push(transmit) {
                        self.bell.notify_one();
                    }
                }
                Protocol::Tcp => {
                    if let Some(slot) = state.streams.get(&transmit.peer.address) {
                        slot.outbox.push(transmit.bytes);
                    }
                }
            }
        }
        let deadline = state.service.poll_timeout();
        if state.deadline != deadline {
            state.deadline = deadline;
            self.bell.notify_one();
        }
    }
}

impl State {
    fn new(service: Service) -> Self {
        Self { service, deadline: None, datagrams: Datagrams::default(), streams: BTreeMap::new() }
    }

    /// How many connections there may be.
    fn connections(&self) -> usize {
        let held = stream::held_bytes(self.service.config().tcp_transfer_bytes);
        (MAX_HELD_BYTES / held).clamp(2, MAX_STREAMS)
    }

    /// How many of them have a slot. The others had to make room and are not closed yet: until one is, nobody else is let
    /// in.
    fn slots(&self) -> usize {
        let connections = self.connections();
        connections - connections.div_ceil(4)
    }

    /// Gives a connection a slot. Where all are taken, whoever has the most of them makes room (by the address, whatever the
    /// port), first with one that made no call although it had the time, then with that which has been quiet for longest.
    fn admit(&mut self, address: SocketAddr) -> Arc<Outbox> {
        while self.streams.len() >= self.slots() {
            let count = |peer: &SocketAddr| self.streams.keys().filter(|it| it.ip() == peer.ip()).count();
            let now = clock();
            let order = |(peer, slot): &(&SocketAddr, &Slot)| {
                let is_silent = slot.last_call.is_none() && now - slot.opened > FIRST_CALL_TIME;
                (Reverse(count(peer)), !is_silent, slot.last_call.unwrap_or(slot.opened))
            };
            let Some(address) = self.streams.iter().min_by_key(order).map(|(address, _)| *address) else {
                break;
            };
            if let Some(slot) = self.streams.remove(&address) {
                slot.outbox.replaced.notify_one();
            }
        }
        let outbox = Arc::new(Outbox::default());
        let slot = Slot { outbox: Arc::clone(&outbox), last_call: None, opened: clock() };
        self.streams.insert(address, slot);
        outbox
    }

    /// Takes the slot of a connection back, unless it has passed to another one: a peer that was reset comes back from the
    /// same port.
    fn leave(&mut self, address: SocketAddr, outbox: &Arc<Outbox>) {
        if self.streams.get(&address).is_some_and(|slot| Arc::ptr_eq(&slot.outbox, outbox)) {
            self.streams.remove(&address);
        }
    }
}

impl Outbox {
    fn push(&self, reply: Vec<u8>) {
        self.lock().push_back(reply);
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn bind_both(listen: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    /// Tries to find a port that is free for both.
    const ATTEMPTS: u32 = 16;
    let mut attempt = 1;
    loop {
        let tcp = TcpListener::bind(listen).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Ok(udp) => {
                // Smaller buffers only lose more datagrams under load.
                let _ = sockopt::set_socket_recv_buffer_size(&udp, SOCKET_BUFFER_BYTES);
                let _ = sockopt::set_socket_send_buffer_size(&udp, SOCKET_BUFFER_BYTES);
                return Ok((tcp, udp));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && listen.port() == 0 => {
                if attempt == ATTEMPTS {
                    return Err(error);
                }
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn run(shared: Arc<Shared>, tcp: TcpListener, udp: UdpSocket, stopped: watch::Receiver<bool>) {
    let most = shared.lock().connections();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_datagrams(Arc::clone(&shared), CalledSocket::new(udp), stopped.clone()));
    let mut stop = pin!(stop(stopped.clone()));
    // Ends with this.
    let mut resting = JoinSet::new();
    if let Some(it) = shared.lock().service.rest() {
        resting.spawn(rest(it));
    }
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = tcp.accept(), if tasks.len() <= most => match accepted {
                Ok((stream, address)) => {
                    let connection = stream::Connection::open(Arc::clone(&shared), address);
                    tasks.spawn(stream::serve(connection, stream, stopped.clone()));
                }
                // Out of file descriptors: let some connections end first.
                Err(_) => tokio::time::sleep(RETRY_TIME).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    drop(tcp);
    while tasks.join_next().await.is_some() {}
}

/// Lets the back end go of what it keeps, again and again.
async fn rest(rest: impl Fn() + Clone + Send + 'static) {
    loop {
        tokio::time::sleep(REST_TIME).await;
        let _ = tokio::task::spawn_blocking(rest.clone()).await;
    }
}

/// Waits for the server to be stopped, or dropped.
async fn stop(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Time until something that could not be had is tried again.
const RETRY_TIME: Duration = Duration::from_millis(10);

/// Receives and sends datagrams, and keeps the service's time.
async fn serve_datagrams(shared: Arc<Shared>, socket: CalledSocket, stopped: watch::Receiver<bool>) {
    let mut buffer = vec![0; DATAGRAM_BYTES];
    let mut stop = pin!(stop(stopped));
    loop {
        let due = shared.tick();
        send_datagrams(&shared, &socket).await;
        let alarm = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut stop => break,
            () = alarm => {}
            () = shared.bell.notified() => {}
            received = socket.recv_from(&mut buffer) => {
                // Errors here are those of earlier datagrams of ours, such as an unreachable port.
                let mut received = received.ok();
                let mut taken = 0;
                while let Some((length, address)) = received {
                    let peer = Peer { address, protocol: Protocol::Udp };
                    // What is no call is dropped without a word.
                    let _ = shared.call(peer, buffer.get(..length).unwrap_or_default());
                    taken += 1;
                    received = match taken {
                        DATAGRAM_BATCH => None,
                        _ => socket.try_recv_from(&mut buffer).ok(),
                    };
                }
            }
        }
    }
    send_datagrams(&shared, &socket).await;
}

async fn send_datagrams(shared: &Shared, socket: &CalledSocket) {
    loop {
        let Some(transmit) = shared.lock().datagrams.pop() else {
            return;
        };
        // A datagram that cannot be sent is a lost one.
        let _ = socket.send_to(&transmit.bytes, transmit.peer.address).await;
    }
}

fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[expect(clippy::disallowed_methods, reason = "the driver is where time comes from")]
fn time_of_day() -> nfstime3 {
    nfstime3::try_from(SystemTime::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
