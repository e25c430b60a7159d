//! The link on real sockets: a UDP proxy, without privileges.
//!
//! Clients send to an address of the proxy instead of the server's; whatever they send and whatever comes back crosses
//! one emulated link. Each client keeps a socket of its own towards the server, with the client's port number if that is
//! free on the other side, so that a server that knows clients by address and port still knows them apart. Clients with
//! the same IP address are one mobile. All forwarded ports share the link.
//!
//! ```no_run
//! use linkemu::{Preset, proxy::{Forward, Proxy, ProxyConfig}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), linkemu::proxy::ProxyError> {
//! let mut config = ProxyConfig::new(Preset::named("wifi-edge")?.config(), 1);
//! config.forwards.push(Forward {
//!     listen: "127.0.0.1:5353".parse().expect("an address"),
//!     to: "192.0.2.1:53".parse().expect("an address"),
//! });
//! let proxy = Proxy::bind(config).await?;
//! proxy.run().await;
//! # Ok(())
//! # }
//! ```

mod clients;
mod socket;

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket as StdSocket},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    net::UdpSocket,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use self::{clients::Clients, socket::Outlet};
use crate::{
    Cell, ConfigError, Delivery, Endpoint, Lateness, LinkConfig, Observer, Snapshot, Station,
    realtime::{self, Alarm, BATCH, BATCHES, clock},
};

/// What a proxy does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// The ports to forward. All share the link.
    pub forwards: Vec<Forward>,
    /// The link.
    pub link: LinkConfig,
    /// The seed of the link.
    pub seed: u64,
    /// Clients (address and port) at the same time. Default 1024; datagrams of more are dropped and counted.
    pub most_clients: usize,
    /// A client that is silent for so long loses its socket. Default 10 minutes.
    pub idle: Duration,
}

/// A port of the proxy and the server behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where clients send to. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Where the server is.
    pub to: SocketAddr,
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The link cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No port to forward.
    #[error("forwards is empty, but must name at least one port")]
    NoForward,
    /// The listening address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// There is no way to the server.
    #[error("no route to {address}")]
    Route {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The system has no timer to offer.
    #[error("cannot create a timer")]
    Timer(#[source] io::Error),
}

/// What a proxy has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyStats {
    /// The link.
    pub link: Snapshot,
    /// Clients that have a socket towards a server.
    pub clients: usize,
    /// Datagrams of clients beyond the bound.
    pub refused: u64,
    /// Datagrams from addresses that are no server of ours.
    pub strangers: u64,
    /// Datagrams that a socket did not take: they crossed the link and were lost behind it.
    pub unsent: u64,
    /// How much later than computed datagrams left.
    pub lateness: Lateness,
    /// Why observers have stopped, for those that have: a full disk, say. The link goes on.
    pub problems: Vec<String>,
}

/// A link on real sockets.
pub struct Proxy {
    cell: Cell,
    listeners: Vec<Outlet>,
    readers: Vec<JoinHandle<()>>,
    clients: Clients,
    inputs: mpsc::Receiver<Batch>,
    input: mpsc::Sender<Batch>,
    commands: mpsc::Receiver<Command>,
    command: mpsc::Sender<Command>,
    alarm: Alarm,
    unsent: u64,
    lateness: Lateness,
}

/// Talks to a running proxy.
#[derive(Clone, Debug)]
pub struct ProxyHandle {
    commands: mpsc::Sender<Command>,
}

#[derive(Debug)]
enum Command {
    Stats(oneshot::Sender<ProxyStats>),
    Stop,
}

/// Where a datagram came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The listener of this forward.
    Listener(usize),
    /// The socket of this client.
    Client(SocketAddr),
}

/// Datagrams read from one socket at once.
#[derive(Debug)]
struct Batch {
    source: Source,
    datagrams: Vec<(SocketAddr, Bytes)>,
}

impl ProxyConfig {
    /// A proxy for `link` that forwards nothing yet.
    pub fn new(link: LinkConfig, seed: u64) -> Self {
        Self { forwards: Vec::new(), link, seed, most_clients: 1024, idle: Duration::from_secs(600) }
    }
}

impl Proxy {
    /// Opens the listening sockets.
    ///
    /// # Errors
    /// [`ProxyError`] saying which address or field is at fault.
    pub async fn bind(config: ProxyConfig) -> Result<Self, ProxyError> {
        if config.forwards.is_empty() {
            return Err(ProxyError::NoForward);
        }
        let cell = Cell::new(config.link, config.seed, clock())?;
        let (input, inputs) = mpsc::channel(BATCHES);
        let (command, commands) = mpsc::channel(16);
        let mut listeners = Vec::new();
        let mut readers = Vec::new();
        for (index, forward) in config.forwards.iter().enumerate() {
            let address = forward.listen;
            let opened = StdSocket::bind(address).and_then(socket::open);
            let (outlet, inlet) = opened.map_err(|source| ProxyError::Listen { address, source })?;
            readers.push(tokio::spawn(read(inlet, Source::Listener(index), input.clone())));
            listeners.push(outlet);
        }
        let servers = config.forwards.iter().map(|forward| forward.to).collect();
        Ok(Self {
            cell,
            listeners,
            readers,
            clients: Clients::new(servers, config.most_clients, config.idle)?,
            inputs,
            input,
            commands,
            command,
            alarm: Alarm::new().map_err(ProxyError::Timer)?,
            unsent: 0,
            lateness: Lateness::default(),
        })
    }

    /// Tells `observer`, too, of every datagram and frame.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.cell.observe(observer);
    }

    /// The listening addresses, in the order of the forwards.
    ///
    /// # Errors
    /// What the system says about a socket that it gave.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(Outlet::local_address).collect()
    }

    /// A handle for another task.
    pub fn handle(&self) -> ProxyHandle {
        ProxyHandle { commands: self.command.clone() }
    }

    /// Forwards until [`ProxyHandle::stop`], then closes the records. Dropping the future stops it at once.
    pub async fn run(mut self) -> ProxyStats {
        loop {
            let now = clock();
            self.cell.handle_timeout(now);
            while let Some(delivery) = self.cell.poll_transmit(now) {
                self.transmit(delivery);
            }
            self.clients.forget_idle(now);
            let deadline = self.cell.poll_timeout();
            tokio::select! {
                biased;
                Some(command) = self.commands.recv() => match command {
                    Command::Stats(answer) => {
                        let stats = self.stats();
                        // Whoever asked may have gone.
                        let _ = answer.send(stats);
                    }
                    Command::Stop => {
                        self.cell.close_records();
                        return self.stats();
                    }
                },
                () = self.alarm.wait(deadline) => {}
                Some(batch) = self.inputs.recv() => self.handle_batch(batch),
            }
        }
    }

    fn stats(&mut self) -> ProxyStats {
        ProxyStats {
            link: self.cell.snapshot(),
            clients: self.clients.count(),
            refused: self.clients.refused,
            strangers: self.clients.strangers,
            unsent: self.unsent,
            lateness: self.lateness.clone(),
            problems: self.cell.observer_problems(),
        }
    }

    fn handle_batch(&mut self, batch: Batch) {
        for (peer, payload) in batch.datagrams {
            let now = clock();
            let route = match batch.source {
                Source::Listener(forward) => self.up(now, forward, peer),
                Source::Client(client) => self.clients.down(now, client, peer),
            };
            let Some((from, to)) = route else {
                continue;
            };
            tracing::trace!(%from, %to, bytes = payload.len(), "offered");
            self.cell.handle_input(now, from, to, payload);
            while let Some(delivery) = self.cell.poll_transmit(now) {
                self.transmit(delivery);
            }
        }
    }

    /// From a client to the server of `forward`: a new client gets a socket and a mobile.
    fn up(&mut self, now: Instant, forward: usize, client: SocketAddr) -> Option<(Endpoint, Endpoint)> {
        if let Some(new) = self.clients.admit(now, forward, client, &mut self.cell)? {
            let reader = tokio::spawn(read(new, Source::Client(client), self.input.clone()));
            self.clients.keep_reader(client, reader);
        }
        self.clients.up(forward, client)
    }

    fn transmit(&mut self, delivery: Delivery) {
        let sent = match delivery.to.station {
            Station::Host(forward) => {
                self.clients.send(delivery.from, usize::from(forward), &delivery.payload)
            }
            Station::Mobile(_) => {
                let client = self.clients.address(delivery.to);
                let Station::Host(forward) = delivery.from.station else {
                    return;
                };
                let listener = self.listeners.get(usize::from(forward));
                match (client, listener) {
                    (Some(client), Some(listener)) => listener.send(&delivery.payload, client),
                    _ => false,
                }
            }
        };
        self.unsent += u64::from(!sent);
        self.lateness.record(clock().saturating_duration_since(delivery.at));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.abort();
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("cell", &self.cell)
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

impl ProxyHandle {
    /// What the proxy has done so far; `None` if it has ended.
    pub async fn stats(&self) -> Option<ProxyStats> {
        let (answer, stats) = oneshot::channel();
        self.commands.send(Command::Stats(answer)).await.ok()?;
        stats.await.ok()
    }

    /// Ends [`Proxy::run`].
    pub async fn stop(&self) {
        // A proxy that has ended needs no stopping.
        let _ = self.commands.send(Command::Stop).await;
    }
}

impl ProxyStats {
    /// The counters as one JSON object.
    pub fn to_json(&self) -> String {
        let own = format!(
            "\"clients\":{},\"refused\":{},\"strangers\":{},\"unsent\":{}",
            self.clients, self.refused, self.strangers, self.unsent,
        );
        realtime::to_json(&self.link, &own, &self.lateness)
    }
}

/// Reads a socket until the proxy is gone.
async fn read(socket: UdpSocket, source: Source, input: mpsc::Sender<Batch>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        let mut datagrams = Vec::new();
        while datagrams.len() < BATCH {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, peer)) => datagrams.push((peer, BytesMut::from(&buffer[..length]).freeze())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    // An ICMP error that belongs to an earlier datagram.
                    tracing::debug!(%error, "a socket reports an error");
                    break;
                }
            }
        }
        if !datagrams.is_empty() && input.send(Batch { source, datagrams }).await.is_err() {
            return;
        }
    }
}
