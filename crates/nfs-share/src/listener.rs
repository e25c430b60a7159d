//! The sharer's end of streams: each has a UDP socket of this machine, from which its datagrams reach the share as all others do.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use nfs_wireless_server::most_descriptors;
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
};

use crate::{lock, stream};

/// Streams, at most, and of those the ones from one address.
const MAX_STREAMS: usize = 256;
const MAX_OF_ONE: usize = 64;

/// Pause where the system has no descriptor for a further stream.
const PAUSE: Duration = Duration::from_millis(100);

/// Where streams come from, by the socket of this machine that stands for each.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<BTreeMap<SocketAddr, SocketAddr>>);

impl Peers {
    /// Returns where somebody really is who is heard from an address.
    pub(crate) fn origin(&self, address: SocketAddr) -> SocketAddr {
        self.all().get(&address).copied().unwrap_or(address)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, SocketAddr>> {
        lock(&self.0)
    }
}

/// Takes streams for the share at an address of this machine.
pub(crate) async fn accept_all(listener: TcpListener, share: SocketAddr, peers: Arc<Peers>) {
    let mut carried = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while carried.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                // Beyond the limit, it is closed.
                if let Ok(Some(taken)) = Taken::by(peer, share, &peers) {
                    carried.spawn(carry(stream, taken));
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The place of a stream among all, for as long as this lives.
struct Taken {
    peers: Arc<Peers>,
    socket: UdpSocket,
    local: SocketAddr,
}

impl Taken {
    /// Takes one; `None`, if there are too many already.
    fn by(peer: SocketAddr, share: SocketAddr, peers: &Arc<Peers>) -> io::Result<Option<Self>> {
        let mut all = peers.all();
        let of_one = all.values().filter(|it| it.ip() == peer.ip()).count();
        // A stream takes two descriptors, and members' files need most.
        let most = most_descriptors();
        if all.len() >= MAX_STREAMS.min(most / 8) || of_one >= MAX_OF_ONE.min(most / 16) {
            return Ok(None);
        }
        let mut near = share;
        near.set_ip(match share.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        });
        let mut from = near;
        from.set_port(0);
        let socket = std::net::UdpSocket::bind(from)?;
        socket.connect(near)?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let local = socket.local_addr()?;
        all.insert(local, peer);
        drop(all);
        Ok(Some(Self { peers: Arc::clone(peers), socket, local }))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.peers.all().remove(&self.local);
    }
}

/// Carries the datagrams of one stream until it ends.
async fn carry(stream: TcpStream, taken: Taken) -> io::Result<()> {
    let socket = &taken.socket;
    let (mut incoming, mut outgoing) = stream::split(stream)?;
    let there = async {
        loop {
            // What the share's queue has no room for is lost.
            let _ = socket.send(incoming.next().await?).await;
        }
    };
    let back = async {
        loop {
            socket.readable().await?;
            // Room for a datagram is taken for as long as it takes to hand it on.
            let mut datagram = vec![0; usize::from(u16::MAX)];
            match socket.try_recv(&mut datagram) {
                Ok(length) => outgoing.send(datagram.get(..length).unwrap_or_default()).await?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
    }
}
