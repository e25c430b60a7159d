//! The receiver's end of streams to a share: a UDP socket of the loopback, behind which every client has a stream of its own.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    net::{TcpStream, UdpSocket},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use crate::{ids::SessionId, lock, stream};

/// Datagrams that wait for a stream, at most: a queue that is full loses, as that of a link does.
const MAX_WAITING: usize = 128;

/// Clients, at most.
const MAX_CLIENTS: usize = 64;

/// How long a share may take to accept a stream.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Streams to one address. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Where datagrams for the share go to.
    pub(crate) local: SocketAddr,
    /// Where the share is.
    pub(crate) remote: SocketAddr,
    ours: Arc<Mutex<Ours>>,
    _end: oneshot::Sender<()>,
}

/// What tells clients of this process from whoever else of this machine sends something to the socket.
#[derive(Debug)]
struct Ours {
    /// The port that greets the share.
    greeter: u16,
    /// The session of all others: nobody can guess its name.
    session: SessionId,
}

impl Ours {
    fn takes(&self, client: SocketAddr, datagram: &[u8]) -> bool {
        match SessionId::of(datagram) {
            Some(SessionId::NONE) => client.port() == self.greeter,
            Some(session) => session == self.session,
            None => false,
        }
    }
}

impl Tunnel {
    /// Makes one to an address that accepts streams; `None`, if it does not. A thread of its own carries: the runtime of the client that needs it
    /// first may end before those of others.
    pub(crate) async fn to(remote: SocketAddr) -> Option<Self> {
        timeout(CONNECT_TIME, TcpStream::connect(remote)).await.ok()?.ok()?;
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        socket.set_nonblocking(true).ok()?;
        let local = socket.local_addr().ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let (end, ended) = oneshot::channel::<()>();
        let ours = Arc::new(Mutex::new(Ours { greeter: 0, session: SessionId::NONE }));
        let known = Arc::clone(&ours);
        let carry = async move {
            tokio::select! {
                _ = ended => {}
                () = carry_all(remote, socket, &known) => {}
            }
        };
        let thread = std::thread::Builder::new().name("nfsw-tunnel".to_owned());
        thread.spawn(move || runtime.block_on(carry)).ok()?;
        Some(Self { local, remote, ours, _end: end })
    }

    /// Takes greetings from this port of the loopback, and no other.
    pub(crate) fn set_greeter(&self, port: u16) {
        lock(&self.ours).greeter = port;
    }

    /// Takes new clients that use this session.
    pub(crate) fn set_session(&self, session: SessionId) {
        lock(&self.ours).session = session;
    }
}

async fn carry_all(remote: SocketAddr, socket: std::net::UdpSocket, ours: &Mutex<Ours>) {
    let Ok(socket) = UdpSocket::from_std(socket) else { return };
    let socket = Arc::new(socket);
    let (mut streams, mut carried) = (BTreeMap::<_, mpsc::Sender<Vec<u8>>>::new(), JoinSet::new());
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        // Errors here are those of earlier datagrams, to clients that have ended.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let datagram = buffer.get(..length).unwrap_or_default();
        while carried.try_join_next().is_some() {}
        streams.retain(|_, waiting| !waiting.is_closed());
        let is_welcome = streams.contains_key(&client)
            || streams.len() < MAX_CLIENTS && lock(ours).takes(client, datagram);
        if !is_welcome {
            continue;
        }
        let waiting = streams.entry(client).or_insert_with(|| {
            let (sender, waiting) = mpsc::channel(MAX_WAITING);
            carried.spawn(carry(remote, waiting, Arc::clone(&socket), client));
            sender
        });
        let _ = waiting.try_send(datagram.to_vec());
    }
}

/// Carries the datagrams of one client until its stream ends.
async fn carry(
    remote: SocketAddr,
    mut waiting: mpsc::Receiver<Vec<u8>>,
    socket: Arc<UdpSocket>,
    client: SocketAddr,
) -> io::Result<()> {
    let stream = timeout(CONNECT_TIME, TcpStream::connect(remote)).await??;
    let (mut incoming, mut outgoing) = stream::split(stream)?;
    let there = async {
        while let Some(datagram) = waiting.recv().await {
            outgoing.send(&datagram).await?;
        }
        Ok(())
    };
    let back = async {
        loop {
            // A client that is gone hears nothing.
            let _ = socket.send_to(incoming.next().await?, client).await;
        }
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
    }
}
