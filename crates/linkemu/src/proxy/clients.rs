//! Who is behind the proxy: a socket towards the servers for each client, a mobile for each client address.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, UdpSocket as StdSocket},
    time::{Duration, Instant},
};

use tokio::{net::UdpSocket, task::JoinHandle};

use super::{
    ProxyError,
    socket::{self, Outlet},
};
use crate::{Cell, Endpoint};

/// How often silent clients are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The clients of a proxy.
#[derive(Debug)]
pub(super) struct Clients {
    /// Of each forward: the server and our address towards it.
    servers: Vec<(SocketAddr, SocketAddr)>,
    most: usize,
    idle: Duration,
    clients: BTreeMap<SocketAddr, Client>,
    /// The client behind a port of a mobile.
    addresses: BTreeMap<(u16, u16), SocketAddr>,
    /// The mobile of a client address and the number of its clients.
    mobiles: BTreeMap<IpAddr, (u16, usize)>,
    /// Mobiles without a client.
    free: Vec<u16>,
    swept: Option<Instant>,
    pub(super) refused: u64,
    pub(super) strangers: u64,
}

#[derive(Debug)]
struct Client {
    mobile: u16,
    outlet: Outlet,
    reader: Option<JoinHandle<()>>,
    last_seen: Instant,
    /// Whether more than one datagram has come from it.
    has_returned: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

impl Clients {
    pub(super) fn new(servers: Vec<SocketAddr>, most: usize, idle: Duration) -> Result<Self, ProxyError> {
        let servers = servers
            .into_iter()
            .map(|address| match source_address(address) {
                Ok(ours) => Ok((address, ours)),
                Err(source) => Err(ProxyError::Route { address, source }),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            servers,
            most,
            idle,
            clients: BTreeMap::new(),
            addresses: BTreeMap::new(),
            mobiles: BTreeMap::new(),
            free: Vec::new(),
            swept: None,
            refused: 0,
            strangers: 0,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Makes sure that `client` has a socket and a mobile. `Some(Some(socket))` if the socket is new and wants a reader,
    /// `None` if the client is refused.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        forward: usize,
        client: SocketAddr,
        cell: &mut Cell,
    ) -> Option<Option<UdpSocket>> {
        if let Some(known) = self.clients.get_mut(&client) {
            (known.last_seen, known.has_returned) = (now, true);
            return Some(None);
        }
        let (_, ours) = *self.servers.get(forward)?;
        if self.clients.len() >= self.most {
            self.make_room();
        }
        let socket = if self.clients.len() < self.most { bind(ours, client.port()) } else { None };
        let mobile = socket.is_some().then(|| self.mobile(client.ip(), cell)).flatten();
        let (Some((outlet, inlet)), Some(mobile)) = (socket, mobile) else {
            self.refused += 1;
            return None;
        };

        tracing::debug!(%client, mobile, ours = ?outlet.local_address().ok(), "a new client");
        self.addresses.insert((mobile, client.port()), client);
        self.clients
            .insert(client, Client { mobile, outlet, reader: None, last_seen: now, has_returned: false });
        Some(Some(inlet))
    }

    /// The mobile of an address, counted once more.
    fn mobile(&mut self, address: IpAddr, cell: &mut Cell) -> Option<u16> {
        if let Some((mobile, clients)) = self.mobiles.get_mut(&address) {
            *clients += 1;
            return Some(*mobile);
        }
        let mobile = match self.free.pop() {
            Some(mobile) => mobile,
            None => cell.add_mobile().ok()?,
        };
        self.mobiles.insert(address, (mobile, 1));
        Some(mobile)
    }

    pub(super) fn keep_reader(&mut self, client: SocketAddr, reader: JoinHandle<()>) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.reader = Some(reader);
        }
    }

    /// The ends of the way from a client to the server of a forward.
    pub(super) fn up(&self, forward: usize, client: SocketAddr) -> Option<(Endpoint, Endpoint)> {
        let (server, _) = self.servers.get(forward)?;
        let from = Endpoint::mobile(self.clients.get(&client)?.mobile, client.port());
        Some((from, Endpoint::host(forward as u16, server.port())))
    }

    /// The ends of the way from `peer`, which sent to the socket of `client`.
    pub(super) fn down(
        &mut self,
        now: Instant,
        client: SocketAddr,
        peer: SocketAddr,
    ) -> Option<(Endpoint, Endpoint)> {
        let Some(forward) = self.servers.iter().position(|&(server, _)| server == peer) else {
            self.strangers += 1;
            return None;
        };
        let known = self.clients.get_mut(&client)?;
        known.last_seen = now;
        let to = Endpoint::mobile(known.mobile, client.port());
        Some((Endpoint::host(forward as u16, peer.port()), to))
    }

    /// Sends to a server from the socket of a client; false if that cannot be done now.
    pub(super) fn send(&self, from: Endpoint, forward: usize, payload: &[u8]) -> bool {
        let Some((server, _)) = self.servers.get(forward) else {
            return false;
        };
        let client = self.address(from).and_then(|address| self.clients.get(&address));
        client.is_some_and(|client| client.outlet.send(payload, *server))
    }

    /// The address of the client at a port of a mobile.
    pub(super) fn address(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        let crate::Station::Mobile(mobile) = endpoint.station else {
            return None;
        };
        self.addresses.get(&(mobile, endpoint.port)).copied()
    }

    /// Closes the sockets of clients that have been silent for long.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        let swept = *self.swept.get_or_insert(now);
        if now.saturating_duration_since(swept) < SWEEP {
            return;
        }
        self.swept = Some(now);
        let is_idle = |client: &Client| now.saturating_duration_since(client.last_seen) >= self.idle;
        let idle = self.clients.iter().filter(|(_, client)| is_idle(client));
        let idle: Vec<SocketAddr> = idle.map(|(address, _)| *address).collect();
        idle.into_iter().for_each(|address| self.forget(address));
    }

    /// Lets go of the client that has sent a single datagram, the longest ago. Who sends from a forged address does not see replies, and
    /// takes another address each time: clients that have come back keep their place.
    fn make_room(&mut self) {
        let strangers = self.clients.iter().filter(|(_, client)| !client.has_returned);
        let oldest = strangers.min_by_key(|(_, client)| client.last_seen).map(|(address, _)| *address);
        if let Some(address) = oldest {
            self.forget(address);
        }
    }

    fn forget(&mut self, address: SocketAddr) {
        let Some(client) = self.clients.remove(&address) else { return };
        self.addresses.remove(&(client.mobile, address.port()));
        if let Some((mobile, clients)) = self.mobiles.get_mut(&address.ip()) {
            *clients -= 1;
            if *clients == 0 {
                self.free.push(*mobile);
                self.mobiles.remove(&address.ip());
            }
        }
    }
}

/// Our address on the way to `server`, with its zone, if it has one. Connecting a UDP socket sends nothing.
fn source_address(server: SocketAddr) -> std::io::Result<SocketAddr> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = StdSocket::bind(any)?;
    socket.connect(server)?;
    socket.local_addr()
}

/// A socket with the port number of the client, or any if that is taken or not ours to have.
fn bind(mut ours: SocketAddr, port: u16) -> Option<(Outlet, UdpSocket)> {
    let mut bind = |port| {
        ours.set_port(port);
        StdSocket::bind(ours)
    };
    bind(port)
        .or_else(|_| bind(0))
        .and_then(socket::open)
        .inspect_err(|error| tracing::warn!(%error, "no socket for a new client"))
        .ok()
}
