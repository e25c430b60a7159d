//! The sharer's end on a UDP socket, with a server for each member.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nfs_wireless_server::{CalledSocket, Detached, Service, ServiceConfig, Vfs};
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinHandle,
};

use crate::{
    compression::{Allowance, Compressor},
    ids::MemberId,
    listener::{Peers, accept_all},
    lock,
    session::Session,
    sharer::{Event, Member, Sharer, Transmit},
};

/// Receive and send buffer asked for, in bytes; the system may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Largest datagram, in bytes, and one more.
const DATAGRAM_BYTES: usize = 65_536;

/// Datagrams taken before timers are looked at.
const BATCH: usize = 32;

/// How often goodbye is said at the end, and the pause after each time: a fade takes 100 ms.
const GOODBYES: usize = 3;
const GOODBYE_PAUSE: Duration = Duration::from_millis(60);

/// Addresses of one member that replies may go to at once; the one heard of first goes first.
const MAX_ADDRESSES: usize = 64;

/// A share that is reachable. Dropping it stops it at once; [`end`](Self::end) says goodbye first.
#[derive(Debug)]
pub struct Share {
    inner: Arc<Inner>,
    address: SocketAddr,
    task: JoinHandle<()>,
    /// Takes streams, if the port was free for them, too.
    streams: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    socket: CalledSocket,
    sharer: Mutex<Sharer>,
    doors: Mutex<BTreeMap<MemberId, Arc<Door>>>,
    /// Rings when there is something to send, or the next deadline has changed.
    bell: Notify,
    events: UnboundedSender<Event>,
    peers: Arc<Peers>,
    compressor: Mutex<Compressor>,
}

/// What one member gets.
#[derive(Debug)]
struct Door {
    server: Detached,
    /// In which session calls came from an address last.
    sessions: Mutex<VecDeque<(SocketAddr, Arc<Session>)>>,
    sent_bytes: AtomicU64,
}

/// What a member has had so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Bytes of files that were read.
    pub read_bytes: u64,
    /// Where the file is that was read last, below what the member may read.
    pub last_read: Option<Vec<u8>>,
    /// Bytes that were sent.
    pub sent_bytes: u64,
}

impl Share {
    /// Makes a share reachable at an address; port 0 picks one. What happens is received from the channel.
    ///
    /// # Errors
    /// The error of the socket that cannot be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn bind(listen: SocketAddr, sharer: Sharer) -> io::Result<(Self, UnboundedReceiver<Event>)> {
        let socket = UdpSocket::bind(listen).await?;
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
        let address = socket.local_addr()?;
        let (events, receiver) = unbounded_channel();
        let (sharer, doors, bell) = (Mutex::new(sharer), Mutex::default(), Notify::new());
        let (socket, peers) = (CalledSocket::new(socket), Arc::<Peers>::default());
        let listener = TcpListener::bind(address).await.ok();
        let accept = |listener| tokio::spawn(accept_all(listener, address, Arc::clone(&peers)));
        let streams = listener.map(accept);
        let inner =
            Arc::new(Inner { socket, sharer, doors, bell, events, peers, compressor: Mutex::default() });
        let task = tokio::spawn(run(Arc::clone(&inner)));
        Ok((Self { inner, address, task, streams }, receiver))
    }

    /// Whether it is reachable over TCP, too, by those whose network lets no UDP through; otherwise another program has the port.
    pub const fn takes_streams(&self) -> bool {
        self.streams.is_some()
    }

    /// Returns the address it is bound to, with the port that was picked.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Makes a code for a new member, who reads `files` until then. Anything that changes them must be refused by them.
    pub fn invite(&self, until: Instant, files: impl Vfs + 'static) -> MemberId {
        let id = self.inner.sharer().invite(until);
        self.open(id, files);
        id
    }

    /// Takes back a member of an earlier run.
    pub fn restore(&self, member: Member, files: impl Vfs + 'static) {
        let id = member.id;
        self.inner.sharer().restore(member);
        self.open(id, files);
    }

    /// Lets a member read other files from now on.
    pub fn serve(&self, id: MemberId, files: impl Vfs + 'static) {
        self.open(id, files);
    }

    /// Lets a member read until another time; false, if there is none.
    pub fn extend(&self, id: MemberId, until: Instant) -> bool {
        let is_extended = self.inner.sharer().extend(id, until, clock());
        self.inner.bell.notify_one();
        is_extended
    }

    /// Ends what a member may; false, if there is none.
    pub fn stop(&self, id: MemberId) -> bool {
        let was_there = self.inner.sharer().end(id, clock());
        self.inner.bell.notify_one();
        was_there
    }

    /// Returns who may read now, or once the code was used.
    pub fn members(&self) -> Vec<Member> {
        self.inner.sharer().members().cloned().collect()
    }

    /// Returns a member, unless its time is over.
    pub fn member(&self, id: MemberId) -> Option<Member> {
        self.inner.sharer().members().find(|member| member.id == id).cloned()
    }

    /// Returns what tells until when a member may read; it tells `None` once that is over, for other servers of the same files.
    pub fn term(&self, id: MemberId) -> impl Fn() -> Option<Instant> + Send + Sync + 'static {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade()?.sharer().members().find(|member| member.id == id).map(|member| member.until)
    }

    /// Returns from where a member was heard last, and when.
    pub fn heard(&self, id: MemberId) -> Option<(Instant, SocketAddr)> {
        let (at, address) = self.inner.sharer().heard(id)?;
        Some((at, self.inner.peers.origin(address)))
    }

    /// Returns what a member has had so far.
    pub fn served(&self, id: MemberId) -> Served {
        let door = self.inner.doors().get(&id).cloned();
        door.map_or_else(Served::default, |door| {
            let (read_bytes, last_read) = door.server.with_service(|service| {
                let stats = service.stats();
                (stats.read_bytes, stats.last_read.and_then(|node| service.backend().path(node)))
            });
            Served { read_bytes, last_read, sent_bytes: door.sent_bytes.load(Ordering::Relaxed) }
        })
    }

    /// Says goodbye to all members, and ends. As nobody answers afterwards, it is said several times.
    pub async fn end(self) {
        let ids: Vec<_> = self.members().into_iter().map(|member| member.id).collect();
        let goodbyes: Vec<Transmit> = {
            let mut sharer = self.inner.sharer();
            ids.into_iter().for_each(|id| _ = sharer.end(id, clock()));
            std::iter::from_fn(|| sharer.poll_transmit()).collect()
        };
        for _ in 0..GOODBYES {
            for Transmit { address, bytes } in &goodbyes {
                let _ = self.inner.socket.send_to(bytes, *address).await;
            }
            tokio::time::sleep(GOODBYE_PAUSE).await;
        }
    }

    fn open(&self, id: MemberId, files: impl Vfs + 'static) {
        let config = ServiceConfig::default();
        let seed = u64::from_le_bytes(crate::random());
        let service = Service::new(config, files, seed, clock()).expect("a valid configuration");
        let server = Detached::new(service);
        let door = Arc::new(Door { server, sessions: Mutex::default(), sent_bytes: AtomicU64::new(0) });
        tokio::spawn(reply(Arc::downgrade(&door), Arc::clone(&self.inner)));
        self.inner.doors().insert(id, door);
        self.inner.bell.notify_one();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.task.abort();
        self.streams.iter().for_each(JoinHandle::abort);
        self.inner.doors().clear();
    }
}

impl Inner {
    fn sharer(&self) -> MutexGuard<'_, Sharer> {
        lock(&self.sharer)
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<Door>>> {
        lock(&self.doors)
    }

    /// Takes a datagram.
    fn take_in(&self, address: SocketAddr, datagram: &[u8], message: &mut Vec<u8>) {
        let Some(call) = self.sharer().handle_input(clock(), address, datagram, message) else { return };
        let Some(door) = self.doors().get(&call.member).cloned() else { return };
        door.note(address, call.session);
        if let Some(validated) = call.validated {
            door.server.with_service(|service| service.validate_address(validated));
        }
        door.server.handle(address, message);
    }

    /// Sends what the machine has to send, and tells what has happened.
    async fn send(&self) {
        loop {
            let (transmit, event) = {
                let mut sharer = self.sharer();
                (sharer.poll_transmit(), sharer.poll_event())
            };
            if transmit.is_none() && event.is_none() {
                return;
            }
            if let Some(Transmit { address, bytes }) = transmit {
                // A datagram that cannot be sent is a lost one.
                let _ = self.socket.send_to(&bytes, address).await;
            }
            if let Some(mut event) = event {
                match &mut event {
                    Event::Ended(id) => drop(self.doors().remove(id)),
                    Event::Joined(_, address) => *address = self.peers.origin(*address),
                    Event::Withdrawn(_) => {}
                }
                // Nobody needs to hear it.
                let _ = self.events.send(event);
            }
        }
    }
}

impl Door {
    fn note(&self, address: SocketAddr, session: Arc<Session>) {
        let mut sessions = lock(&self.sessions);
        if let Some((_, known)) = sessions.iter_mut().find(|(known, _)| *known == address) {
            *known = session;
            return;
        }
        if sessions.len() == MAX_ADDRESSES {
            sessions.pop_front();
        }
        sessions.push_back((address, session));
    }

    fn session(&self, address: SocketAddr) -> Option<Arc<Session>> {
        lock(&self.sessions)
            .iter()
            .find(|(known, _)| *known == address)
            .map(|(_, session)| Arc::clone(session))
    }
}

async fn run(inner: Arc<Inner>) {
    let (mut buffer, mut message) = (vec![0; DATAGRAM_BYTES], Vec::new());
    loop {
        inner.sharer().handle_timeout(clock());
        inner.send().await;
        let due = inner.sharer().poll_timeout();
        let alarm = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = alarm => {}
            () = inner.bell.notified() => {}
            received = inner.socket.recv_from(&mut buffer) => {
                // Errors here are those of earlier datagrams of ours, such as an unreachable port.
                let mut received = received.ok();
                let mut taken = 0;
                while let Some((length, address)) = received {
                    inner.take_in(address, buffer.get(..length).unwrap_or_default(), &mut message);
                    taken += 1;
                    received = if taken < BATCH { inner.socket.try_recv_from(&mut buffer).ok() } else { None };
                }
            }
        }
    }
}

/// Sends the replies of one member's server, until it is gone.
async fn reply(door: std::sync::Weak<Door>, inner: Arc<Inner>) {
    /// How often it is looked whether it is gone.
    const TICK: Duration = Duration::from_millis(200);
    let (mut datagram, mut allowance, mut sealed) = (Vec::new(), Allowance::default(), clock());
    while let Some(door) = door.upgrade() {
        let Ok(reply) = tokio::time::timeout(TICK, door.server.reply()).await else { continue };
        let Some(session) = door.session(reply.peer.address) else { continue };
        datagram.clear();
        let now = clock();
        allowance.rest(now - sealed);
        match allowance.is_left() {
            true => session.seal_compressed(&mut lock(&inner.compressor), &reply.bytes, &mut datagram),
            false => session.seal(&reply.bytes, &mut datagram),
        }
        sealed = clock();
        allowance.spend(sealed - now);
        door.sent_bytes.fetch_add(datagram.len() as u64, Ordering::Relaxed);
        let _ = inner.socket.send_to(&datagram, reply.peer.address).await;
    }
}

fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}
