//! The receiver's end on UDP sockets: a channel for clients.

use std::{
    collections::BTreeSet,
    fmt,
    future::pending,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use nfs_wireless_client::Channel;
use tokio::{net::UdpSocket, sync::Notify, task::JoinSet};

use crate::{
    code::Code,
    compression::Decompressor,
    datagram::{Refusal, is_lost},
    join::{Join, Joined, Membership},
    lock,
    noise::{Identity, PublicKey},
    session::{Control, OVERHEAD_BYTES, Opened, Session},
    tunnel::Tunnel,
};

/// How long after its end a share may still say that it was extended: what is on the way arrives within that, or is said again.
const GRACE: Duration = Duration::from_millis(500);

/// How long a lost session is asked for again before the next datagram is a reason to do so once more.
const RETURN_TIME: Duration = Duration::from_secs(10);

/// How long a session is not taken for lost after something came in it.
const LOST_TIME: Duration = Duration::from_millis(100);

/// How long the addresses that are known are asked alone, before others are looked for.
const HEAD_START: Duration = Duration::from_millis(300);

/// How long datagrams that nobody answers are sent alone, before a stream is tried, too. Fades are shorter.
const STREAM_TIME: Duration = Duration::from_secs(2);

/// Addresses at which one share is asked, at most: anybody may say that it is at more.
const MOST_ADDRESSES: usize = 32;

/// Addresses that are remembered as tried, at most.
const MOST_TRIED: usize = 4096;

/// Addresses to which streams are made, at most, and how much later each is begun than the one before: what accepts may still be silent.
const MAX_STREAMS: usize = 4;
const NEXT_STREAM: Duration = Duration::from_millis(250);

/// Pause until a share that was not found is looked for again.
const SEEK_PAUSE: Duration = Duration::from_secs(5);

/// What keeps what leads back to a share.
type Keep = Box<dyn Fn(&Joined, Reached) + Send + Sync>;

/// What finds the addresses of a share.
type Seek = Box<dyn Fn(Greeting) -> Seeking + Send + Sync>;
type Seeking = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// What looks up the addresses of a name.
type Resolve = Box<dyn Fn() -> Seeking + Send + Sync>;

/// Where a share may be.
struct Places {
    /// Of one share: which of them answers is found out.
    addresses: Vec<SocketAddr>,
    /// Instead of them, for a name: that may take long.
    resolve: Option<Resolve>,
    seek: Option<Seek>,
    /// A code is shown at what `seek` has found, and not at `addresses`.
    is_sought: bool,
}

/// What a receiver has to show.
#[derive(Clone, Debug)]
pub enum Greeting {
    /// A code that was not used yet, or by these keys alone, and whose answer was lost.
    Code(Code, Identity),
    /// What was kept of an earlier session; and the code that led to it, for a sharer that was killed before it could keep that it was used.
    Known(Membership, Option<Code>),
}

/// A channel to a share, for [`ClientConfig::channel`](nfs_wireless_client::ClientConfig::channel).
///
/// A session that the sharer does not know any more, as it was started again, is replaced by another one while calls wait.
#[derive(Clone)]
pub struct ShareChannel(Arc<Inner>);

struct Inner {
    places: Places,
    label: String,
    /// One at a time joins.
    joining: tokio::sync::Mutex<()>,
    /// Rings when the end has come, or its time is another one.
    bell: Notify,
    state: Mutex<State>,
    decompressor: Mutex<Decompressor>,
    joined: Keep,
}

/// What a share has said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// What it is called: text of a stranger.
    pub title: String,
    /// Its key, which nobody else has.
    pub sharer: PublicKey,
}

/// Where a share has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Its address.
    pub address: SocketAddr,
    /// It has answered over a stream, as datagrams did not get through.
    pub by_stream: bool,
}

struct State {
    greeting: Greeting,
    /// The address that has answered; that of the tunnel, if it was a stream.
    answered: Option<SocketAddr>,
    tunnel: Option<Tunnel>,
    /// A stream is made at once, and not only when datagrams are not answered.
    stream_at_once: bool,
    session: Option<Arc<Session>>,
    met: Option<Met>,
    until: Option<Instant>,
    /// When a datagram of the session was opened last.
    heard: Option<Instant>,
    end: Option<Arc<io::Error>>,
    /// The code was refused: it is not shown again, which would be another guess.
    refused: bool,
    /// A session is being asked for in place of one that was lost.
    is_returning: bool,
}

impl fmt::Debug for ShareChannel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ShareChannel").field("addresses", &self.0.places.addresses).finish_non_exhaustive()
    }
}

impl ShareChannel {
    /// Prepares a channel to the share at one of these addresses, which is shown `label`. All of them are asked, each a little later than the
    /// one before (RFC 8305 §5), and the first to answer is used. `joined` is called with each session and where the share is, so that what
    /// leads back to it can be kept.
    pub fn new(
        addresses: impl IntoIterator<Item = SocketAddr>,
        greeting: Greeting,
        label: &str,
        joined: impl Fn(&Joined, Reached) + Send + Sync + 'static,
    ) -> Self {
        let addresses = addresses.into_iter().collect();
        let places = Places { addresses, resolve: None, seek: None, is_sought: false };
        Self::with(places, greeting, label, Box::new(joined))
    }

    /// As [`new`](Self::new), at the addresses that `resolve` tells when they are needed, for a share that may move: who was let in before looks for
    /// it wherever `seek` says that it may be, too.
    pub fn followed<R, F>(
        resolve: impl Fn() -> R + Send + Sync + 'static,
        seek: impl Fn(Greeting) -> F + Send + Sync + 'static,
        greeting: Greeting,
        label: &str,
        joined: impl Fn(&Joined, Reached) + Send + Sync + 'static,
    ) -> Self
    where
        R: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let resolve: Resolve = Box::new(move || Box::pin(resolve()));
        let (resolve, seek) = (Some(resolve), Some(boxed(seek)));
        let places = Places { addresses: Vec::new(), resolve, seek, is_sought: false };
        Self::with(places, greeting, label, Box::new(joined))
    }

    /// As [`new`](Self::new), for a share that `seek` finds. `addresses` are where it was earlier, and only asked with what was kept of it.
    ///
    /// A code is shown only at what `seek` has returned, and who answers there may guess once. Who comes back asks wherever the share may be,
    /// and goes on until it answers: nobody else can. That `seek` finds nothing is an error only if there is nobody to ask.
    pub fn sought<F>(
        seek: impl Fn(Greeting) -> F + Send + Sync + 'static,
        addresses: impl IntoIterator<Item = SocketAddr>,
        greeting: Greeting,
        label: &str,
        joined: impl Fn(&Joined, Reached) + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let (addresses, seek) = (addresses.into_iter().collect(), Some(boxed(seek)));
        let places = Places { addresses, resolve: None, seek, is_sought: true };
        Self::with(places, greeting, label, Box::new(joined))
    }

    fn with(places: Places, greeting: Greeting, label: &str, joined: Keep) -> Self {
        let state = State {
            greeting,
            answered: None,
            tunnel: None,
            stream_at_once: false,
            session: None,
            met: None,
            until: None,
            heard: None,
            end: None,
            refused: false,
            is_returning: false,
        };
        Self(Arc::new(Inner {
            places,
            label: label.to_owned(),
            joining: tokio::sync::Mutex::default(),
            bell: Notify::new(),
            state: Mutex::new(state),
            decompressor: Mutex::default(),
            joined,
        }))
    }

    /// Makes a stream at once, beside the datagrams that are sent: the last time it was reached by one ([`Reached::by_stream`]).
    #[must_use]
    pub fn with_stream_at_once(self) -> Self {
        self.0.state().stream_at_once = true;
        self
    }

    /// Returns what the share has said of itself, once the channel was open.
    pub fn met(&self) -> Option<Met> {
        self.0.state().met.clone()
    }

    /// Asks for a session in place of one that was lost, unless that is done already.
    fn return_to_share(&self) {
        let Some(returning) = Returning::begin(&self.0) else { return };
        // What ends the share is found out by it; whatever else fails is tried again by the next datagram.
        tokio::spawn(async move { drop(returning.join().await) });
    }
}

/// An attempt to get another session, which may end with the runtime of the client that began it.
struct Returning(Arc<Inner>);

impl Returning {
    /// `None`, if there is one already.
    fn begin(inner: &Arc<Inner>) -> Option<Self> {
        let is_returning = std::mem::replace(&mut inner.state().is_returning, true);
        (!is_returning).then(|| Self(Arc::clone(inner)))
    }

    async fn join(self) -> io::Result<()> {
        tokio::time::timeout(RETURN_TIME, self.0.join()).await?
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.state().is_returning = false;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether a datagram of the session was opened a moment ago: what says that it is lost is forged.
    fn is_heard(&self) -> bool {
        self.state().heard.is_some_and(|heard| clock() < heard + LOST_TIME)
    }

    /// Becomes a member, or comes back as one.
    async fn join(&self) -> io::Result<()> {
        let (greeting, answered) = {
            let state = self.state();
            (state.greeting.clone(), state.answered)
        };
        let mut shown = match &greeting {
            Greeting::Code(code, _) => Some(code.clone()),
            Greeting::Known(_, code) => code.clone(),
        };
        let (mut result, mut answered) = self.ask(&greeting, answered).await?;
        if let (Err(Refusal::Unknown), Greeting::Known(membership, Some(code))) = (&result, greeting) {
            // The code is shown once more, and no further time: that is a guess.
            shown = None;
            let again = Greeting::Code(code, membership.identity.clone());
            let sharer = membership.sharer;
            self.state().greeting = Greeting::Known(membership, None);
            (result, answered) = self.ask(&again, Some(answered)).await?;
            // Another share with the same code is not the one that is known.
            let is_known = |joined: Joined| match joined.membership.sharer == sharer {
                true => Ok(joined),
                false => Err(Refusal::Unknown),
            };
            result = result.map_err(|_| Refusal::Unknown).and_then(is_known);
        }
        let joined = result.map_err(|refusal| self.note_refusal(refusal))?;
        let tunnel = self.state().tunnel.as_ref().map(|tunnel| (tunnel.local, tunnel.remote));
        let reached = match tunnel.filter(|(local, _)| *local == answered) {
            Some((_, remote)) => Reached { address: remote, by_stream: true },
            None => Reached { address: answered, by_stream: false },
        };
        (self.joined)(&joined, reached);
        let mut state = self.state();
        if let Some(tunnel) = &state.tunnel {
            tunnel.set_session(joined.session.id());
        }
        state.met = Some(Met { title: joined.title, sharer: joined.membership.sharer });
        state.greeting = Greeting::Known(joined.membership, shown);
        state.until = clock().checked_add(joined.remaining);
        state.session = Some(Arc::new(joined.session));
        state.answered = Some(answered);
        drop(state);
        self.bell.notify_waiters();
        Ok(())
    }

    /// Sends what an attempt has to send until there is a result, and returns it with who has answered. `answered` has before.
    async fn ask(
        &self,
        greeting: &Greeting,
        answered: Option<SocketAddr>,
    ) -> io::Result<(Result<Joined, Refusal>, SocketAddr)> {
        let Places { addresses, resolve, seek, is_sought } = &self.places;
        let addresses = match (answered, greeting, resolve, seek) {
            (Some(answered), ..) => vec![answered],
            (None, _, Some(resolve), _) => resolve().await?,
            (None, Greeting::Known(..), ..) if !addresses.is_empty() => addresses.clone(),
            (None, _, _, Some(seek)) if *is_sought => seek(greeting.clone()).await?,
            (None, ..) => addresses.clone(),
        };
        let mut join = match greeting {
            Greeting::Code(code, identity) => {
                let join = Join::with_code(code.clone(), identity.clone(), &self.label, clock());
                if *is_sought { join.with_one_offer() } else { join }
            }
            Greeting::Known(membership, _) => Join::as_member(membership, clock())
                .ok_or_else(|| io::Error::other("what was kept of this share holds no keys"))?,
        };
        let (mut streams, mut tunnels) = (JoinSet::new(), Vec::new());
        self.begin_streams(&addresses, &mut streams);
        let mut elsewhere = pin!(self.elsewhere(greeting, HEAD_START));
        let mut sockets = Sockets::open(addresses).await?;
        if let Some(tunnel) = &self.state().tunnel {
            sockets.greet_through(tunnel);
        }
        let (mut buffer, mut sent, mut answered) = (vec![0; 2048], 0, None);
        loop {
            if let (Some(result), Some(answered)) = (join.poll_result(), answered) {
                let through = tunnels.iter().position(|tunnel: &Tunnel| tunnel.local == answered);
                if let Some(at) = through {
                    self.state().tunnel = Some(tunnels.swap_remove(at));
                }
                return Ok((result, answered));
            }
            if let Some(datagram) = join.poll_transmit(clock()) {
                sent += 1;
                sockets.send(datagram, sent).await;
            }
            let due = join.poll_timeout().unwrap_or_else(clock);
            tokio::select! {
                received = sockets.receive(&mut buffer) => {
                    if let Some((length, from)) = received {
                        answered = Some(from);
                        join.handle_input(clock(), buffer.get(..length).unwrap_or_default());
                    }
                }
                found = &mut elsewhere => {
                    let new = sockets.new_of(&found);
                    if streams.len() < MOST_ADDRESSES {
                        self.begin_streams(&new, &mut streams);
                    }
                    // Streams that are there are asked on.
                    sockets.add(new.into_iter().chain(tunnels.iter().map(|it| it.local)).collect()).await?;
                    // It may move again, and others may say that they are it.
                    elsewhere.set(self.elsewhere(greeting, SEEK_PAUSE));
                }
                Some(Ok(tunnel)) = streams.join_next() => {
                    sockets.add(vec![tunnel.local]).await?;
                    sockets.greet_through(&tunnel);
                    tunnels.push(tunnel);
                }
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    }

    /// Returns where else a share may be that has let somebody in before; it is looked for `after` so long.
    async fn elsewhere(&self, greeting: &Greeting, after: Duration) -> Vec<SocketAddr> {
        let (Some(seek), Greeting::Known(..)) = (&self.places.seek, greeting) else { return pending().await };
        tokio::time::sleep(after).await;
        loop {
            if let Ok(found) = seek(greeting.clone()).await {
                return found;
            }
            tokio::time::sleep(SEEK_PAUSE).await;
        }
    }

    /// Prepares streams to these addresses, for the case that nobody answers datagrams.
    fn begin_streams(&self, addresses: &[SocketAddr], streams: &mut JoinSet<Tunnel>) {
        // One that is there connects again by itself.
        let (known, first) = {
            let state = self.state();
            let first = if state.stream_at_once { Duration::ZERO } else { STREAM_TIME };
            (state.tunnel.as_ref().map(|tunnel| tunnel.local), first)
        };
        let wanted = addresses.iter().copied().filter(|&address| Some(address) != known);
        for (number, address) in (0..).zip(wanted.take(MAX_STREAMS)) {
            streams.spawn(async move {
                tokio::time::sleep(first + NEXT_STREAM * number).await;
                loop {
                    if let Some(tunnel) = Tunnel::to(address).await {
                        return tunnel;
                    }
                    tokio::time::sleep(STREAM_TIME).await;
                }
            });
        }
    }

    /// Returns where the share has answered.
    fn answered(&self) -> io::Result<SocketAddr> {
        self.state().answered.ok_or_else(|| io::Error::other("the share has no address"))
    }

    fn note_end(&self, end: io::Error) {
        self.state().end.get_or_insert_with(|| Arc::new(end));
        self.bell.notify_waiters();
    }

    /// Who has a session keeps it: only the end is signed.
    fn note_refusal(&self, refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::WrongCode => {
                self.state().refused = true;
                wrong_code()
            }
            Refusal::Unknown => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the share does not know this machine; ask for a new code",
            ),
            Refusal::Ended => {
                self.note_end(ended());
                ended()
            }
        }
    }
}

/// Sockets by which one share is asked at all its addresses.
struct Sockets {
    addresses: Vec<SocketAddr>,
    /// How many of them were known before others were looked for.
    known: usize,
    /// Those that were found, and where it was asked.
    tried: BTreeSet<SocketAddr>,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// # Errors
    /// When no socket can be had.
    async fn open(addresses: Vec<SocketAddr>) -> io::Result<Self> {
        let known = addresses.len();
        let mut sockets = Self { addresses: Vec::new(), known, tried: BTreeSet::new(), v4: None, v6: None };
        sockets.add(addresses).await?;
        Ok(sockets)
    }

    /// Returns those of these addresses at which it was not asked yet, as many as it may be asked at; others that were found are given up for them. When
    /// it was asked at all of them, they are all new.
    fn new_of(&mut self, found: &[SocketAddr]) -> Vec<SocketAddr> {
        if found.iter().all(|it| self.tried.contains(it)) || self.tried.len() > MOST_TRIED {
            self.tried.clear();
        }
        let is_new = |it: &&SocketAddr| !self.tried.contains(it) && !self.addresses.contains(it);
        let room = MOST_ADDRESSES.saturating_sub(self.known);
        let new: Vec<SocketAddr> = found.iter().filter(is_new).take(room).copied().collect();
        if self.addresses.len() + new.len() > MOST_ADDRESSES {
            self.addresses.truncate(self.known);
        }
        self.tried.extend(&new);
        new
    }

    /// Asks at further addresses, too.
    ///
    /// # Errors
    /// When no socket can be had.
    async fn add(&mut self, addresses: Vec<SocketAddr>) -> io::Result<()> {
        let mut last = None;
        for address in addresses.into_iter().filter(|it| !self.addresses.contains(it)).collect::<Vec<_>>() {
            let (socket, any) = match address {
                SocketAddr::V4(_) => (&mut self.v4, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
                SocketAddr::V6(_) => (&mut self.v6, Ipv6Addr::UNSPECIFIED.into()),
            };
            if socket.is_none() {
                match UdpSocket::bind((any, 0)).await {
                    Ok(bound) => *socket = Some(bound),
                    Err(error) => last = Some(error),
                }
            }
            self.addresses.push(address);
        }
        match last {
            Some(error) if self.v4.is_none() && self.v6.is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets a tunnel know who greets.
    fn greet_through(&self, tunnel: &Tunnel) {
        if let Some(Ok(local)) = self.v4.as_ref().map(UdpSocket::local_addr) {
            tunnel.set_greeter(local.port());
        }
    }

    /// Sends a datagram to the first `count` addresses.
    async fn send(&self, datagram: &[u8], count: usize) {
        for address in self.addresses.iter().take(count) {
            if let Some(socket) = if address.is_ipv4() { &self.v4 } else { &self.v6 } {
                // A network that is down may come back.
                let _ = socket.send_to(datagram, address).await;
            }
        }
    }

    /// Receives a datagram from one of the addresses; `None` where the system tells an error, or it came from elsewhere.
    async fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let is_ready = async |socket: &Option<UdpSocket>| match socket {
            Some(socket) => socket.readable().await,
            None => pending().await,
        };
        let ready = tokio::select! {
            _ = is_ready(&self.v4) => &self.v4,
            _ = is_ready(&self.v6) => &self.v6,
        };
        let received = ready.as_ref()?.try_recv_from(buffer).ok()?;
        self.addresses.contains(&received.1).then_some(received)
    }
}

fn boxed<F>(seek: impl Fn(Greeting) -> F + Send + Sync + 'static) -> Seek
where
    F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
{
    Box::new(move |greeting| Box::pin(seek(greeting)))
}

fn wrong_code() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the code is wrong, was used already, or was withdrawn after wrong guesses; ask for a new one",
    )
}

/// The share is over: files of it are as gone as if they had been removed.
fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, "the share has ended")
}

impl Channel for ShareChannel {
    fn open(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>> {
        Box::pin(async {
            let _one = self.0.joining.lock().await;
            if self.0.state().refused {
                return Err(wrong_code());
            }
            if self.0.state().session.is_none() {
                self.0.join().await?;
            }
            self.0.answered()
        })
    }

    fn find(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>> {
        Box::pin(async {
            let returning = Returning::begin(&self.0).ok_or(io::ErrorKind::ResourceBusy)?;
            returning.join().await?;
            self.0.answered()
        })
    }

    fn overhead_bytes(&self) -> u32 {
        OVERHEAD_BYTES as u32
    }

    fn seal(&self, message: &[u8], datagram: &mut Vec<u8>) {
        let session = self.0.state().session.clone();
        if let Some(session) = session {
            session.seal(message, datagram);
        }
    }

    fn open_datagram(&self, datagram: &[u8], message: &mut Vec<u8>) -> bool {
        let Some(session) = self.0.state().session.clone() else { return false };
        let opened = session.open(datagram, message);
        if opened.is_some() {
            self.0.state().heard = Some(clock());
        }
        match opened {
            Some(Opened::Message) => return true,
            Some(Opened::Compressed) => return lock(&self.0.decompressor).decompress_in_place(message),
            Some(Opened::Control(Control::Goodbye)) => self.0.note_end(ended()),
            Some(Opened::Control(Control::Remaining(time))) => {
                self.0.state().until = clock().checked_add(time);
                self.0.bell.notify_waiters();
            }
            None if is_lost(datagram, session.id()) && !self.0.is_heard() => self.return_to_share(),
            None => {}
        }
        false
    }

    fn end(&self) -> Option<Arc<io::Error>> {
        let mut state = self.0.state();
        if state.end.is_none() && state.until.is_some_and(|until| until + GRACE <= clock()) {
            state.end = Some(Arc::new(ended()));
        }
        state.end.clone()
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = Arc<io::Error>> + Send + '_>> {
        Box::pin(async {
            loop {
                let rung = self.0.bell.notified();
                if let Some(end) = self.end() {
                    return end;
                }
                let until = self.0.state().until;
                let is_over = async {
                    match until {
                        Some(until) => tokio::time::sleep_until((until + GRACE).into()).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    () = rung => {}
                    () = is_over => {}
                }
            }
        })
    }
}

fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}
