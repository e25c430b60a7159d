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
use tokio::{net::UdpSocket, sync::mpsc, task::JoinHandle};

use self::{clients::Clients, socket::Outlet};
use crate::{
    Cell, ConfigError, Delivery, Endpoint, Lateness, LinkConfig, Observer, Snapshot, Station,
    realtime::{self, BATCH, Batch, Ends, Remote, Running, clock},
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
    link: Running<Sockets>,
}

/// Talks to a running proxy.
#[derive(Clone, Debug)]
pub struct ProxyHandle {
    remote: Remote<Sockets>,
}

/// The sockets of a proxy, and who is behind them.
#[derive(Debug)]
struct Sockets {
    listeners: Vec<Outlet>,
    readers: Vec<JoinHandle<()>>,
    clients: Clients,
    input: mpsc::Sender<Batch<Self>>,
}

/// Where a datagram came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The listener of this forward.
    Listener(usize),
    /// The socket of this client.
    Client(SocketAddr),
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
        let ends = |input| Sockets::open(&config.forwards, config.most_clients, config.idle, input);
        Ok(Self { link: Running::new(cell, ProxyError::Timer, ends)? })
    }

    /// Tells `observer`, too, of every datagram and frame.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.link.cell.observe(observer);
    }

    /// The listening addresses, in the order of the forwards.
    ///
    /// # Errors
    /// What the system says about a socket that it gave.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.link.ends.listeners.iter().map(Outlet::local_address).collect()
    }

    /// A handle for another task.
    pub fn handle(&self) -> ProxyHandle {
        ProxyHandle { remote: self.link.remote() }
    }

    /// Forwards until [`ProxyHandle::stop`], then closes the records. Dropping the future stops it at once.
    pub async fn run(mut self) -> ProxyStats {
        self.link.run().await;
        stats(&mut self.link)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("cell", &self.link.cell)
            .field("listeners", &self.link.ends.listeners)
            .finish_non_exhaustive()
    }
}

impl ProxyHandle {
    /// What the proxy has done so far; `None` if it has ended.
    pub async fn stats(&self) -> Option<ProxyStats> {
        self.remote.ask(stats).await
    }

    /// Ends [`Proxy::run`]. A proxy that has ended needs no stopping.
    pub async fn stop(&self) {
        self.remote.stop().await;
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

impl Sockets {
    fn open(
        forwards: &[Forward],
        most_clients: usize,
        idle: Duration,
        input: mpsc::Sender<Batch<Self>>,
    ) -> Result<Self, ProxyError> {
        let mut listeners = Vec::new();
        let mut readers = Vec::new();
        for (index, forward) in forwards.iter().enumerate() {
            let address = forward.listen;
            let opened = StdSocket::bind(address).and_then(socket::open);
            let (outlet, inlet) = opened.map_err(|source| ProxyError::Listen { address, source })?;
            readers.push(tokio::spawn(read(inlet, Source::Listener(index), input.clone())));
            listeners.push(outlet);
        }
        let servers = forwards.iter().map(|forward| forward.to).collect();
        Ok(Self { listeners, readers, clients: Clients::new(servers, most_clients, idle)?, input })
    }

    /// From a client to the server of `forward`: a new client gets a socket and a mobile.
    fn up(
        &mut self,
        now: Instant,
        cell: &mut Cell,
        forward: usize,
        client: SocketAddr,
    ) -> Option<(Endpoint, Endpoint)> {
        if let Some(new) = self.clients.admit(now, forward, client, cell)? {
            let reader = tokio::spawn(read(new, Source::Client(client), self.input.clone()));
            self.clients.keep_reader(client, reader);
        }
        self.clients.up(forward, client)
    }
}

impl Ends for Sockets {
    type Source = Source;
    type Datagram = (SocketAddr, Bytes);

    fn offer(&mut self, now: Instant, cell: &mut Cell, source: Source, (peer, payload): Self::Datagram) {
        let route = match source {
            Source::Listener(forward) => self.up(now, cell, forward, peer),
            Source::Client(client) => self.clients.down(now, client, peer),
        };
        let Some((from, to)) = route else {
            return;
        };
        tracing::trace!(%from, %to, bytes = payload.len(), "offered");
        cell.handle_input(now, from, to, payload);
    }

    fn deliver(&mut self, delivery: &Delivery) -> bool {
        match (delivery.from.station, delivery.to.station) {
            (_, Station::Host(forward)) => {
                self.clients.send(delivery.from, usize::from(forward), &delivery.payload)
            }
            (Station::Host(forward), Station::Mobile(_)) => {
                let client = self.clients.address(delivery.to);
                let listener = self.listeners.get(usize::from(forward));
                match (client, listener) {
                    (Some(client), Some(listener)) => listener.send(&delivery.payload, client),
                    _ => false,
                }
            }
            (Station::Mobile(_), Station::Mobile(_)) => false,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.clients.forget_idle(now);
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.abort();
        }
    }
}

fn stats(link: &mut Running<Sockets>) -> ProxyStats {
    let clients = &link.ends.clients;
    ProxyStats {
        link: link.cell.snapshot(),
        clients: clients.count(),
        refused: clients.refused,
        strangers: clients.strangers,
        unsent: link.unsent,
        lateness: link.lateness.clone(),
        problems: link.cell.observer_problems(),
    }
}

/// Reads a socket until the proxy is gone.
async fn read(socket: UdpSocket, source: Source, input: mpsc::Sender<Batch<Sockets>>) {
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
        if !datagrams.is_empty() && input.send((source, datagrams)).await.is_err() {
            return;
        }
    }
}
