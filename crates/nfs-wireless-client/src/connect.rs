//! From a host name and a path to a mounted export: addresses, ports, transports, MOUNT.

mod ahead;
mod exports;
mod first;
mod looking;
mod lookups;
mod search;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use nfs_proto::{
    config::RetryPolicy,
    endpoint::{Reason, other},
    session::SessionConfig,
};
use nfs_wire::{
    FileHandle,
    mount::Export,
    portmap::{self, Binding, Mapping, Protocol},
    rpc::{Program, Rejection},
};

use self::ahead::null_and_lookups;
use self::exports::{exports, list_and_mount, mnt, mount_among, umnt};
pub(crate) use self::lookups::Lookups;
pub(crate) use self::{
    exports::unlikely as unlikely_name,
    search::{Candidates, Root, all, listed_export, normal as normal_path},
};
use crate::{
    config::{ClientConfig, TransportChoice},
    driver::{Answer, CallFailure, Connection, Reactor, clock},
    endpoint::Path,
    error::Error,
};

/// Where NFS usually listens when no port mapper can be asked.
const NFS_PORT: u16 = 2049;

/// How long TCP is asked alone for what is not NFS itself: a server that answers within this time is not far.
const HEAD_START: Duration = Duration::from_millis(10);

/// How long the port mapper may take over one transport before the other joins in.
const SECOND_TRANSPORT_TIME: Duration = Duration::from_millis(400);

/// How long an answer may take beyond its round trips when another one is there already: then one datagram was lost, or nobody answers.
const ONE_DATAGRAM: Duration = Duration::from_millis(50);

/// So many round trips finding an export takes: two connections, and a call to the port mapper and two to MOUNT.
const MOUNT_ROUND_TRIPS: u32 = 5;

/// How long what is known of a server is relied on alone: a ping over a satellite, and once more for what is lost.
const KNOWN_TIME: Duration = Duration::from_secs(2);

/// How long an address is tried alone before the next one of the same host is, too: the Connection Attempt Delay of RFC 8305 §5.
const ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// How long it takes until addresses that have failed are tried again, while others are silent.
const ADDRESS_PAUSE: Duration = Duration::from_secs(1);

/// How long one address may take to answer when a server is looked for that was known.
const TIME_TO_ANSWER: Duration = Duration::from_secs(4);

/// How much later the next address of a name is asked (RFC 8305 §5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Addresses of a name that are asked, at most.
const MOST_ADDRESSES: usize = 16;

/// Looks for a server's services on behalf of a client.
#[derive(Debug)]
pub(crate) struct Finder<'a> {
    pub(crate) reactor: &'a Reactor,
    pub(crate) config: &'a ClientConfig,
    pub(crate) host: &'a str,
}

/// What was found for a path.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) reached: Reached,
    pub(crate) offer: Offer,
}

/// What the MOUNT service has for a path.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The service.
    pub(crate) mount: Found,
    /// What is exported; empty where the list cannot be had.
    pub(crate) listed: Vec<Export>,
    pub(crate) candidates: Candidates,
}

/// The NFS service, on the transport to begin with.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) path: Path,
    /// On the other one, if that was asked and has answered.
    pub(crate) other: Option<Path>,
    pub(crate) reason: Reason,
}

/// An attempt that may move between threads: what the compiler cannot see of an `AsyncFn`.
type Attempt<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl Finder<'_> {
    /// Finds what may hold `path` and connects to the NFS service: where the services are known to be, and if nobody answers there,
    /// anywhere.
    pub(crate) async fn mount(&self, path: &[u8]) -> Result<Mounted, Error> {
        if self.config.known.is_none() {
            return self.search(path).await;
        }
        let config = ClientConfig { known: None, ..self.config.clone() };
        let fresh = Finder { config: &config, ..*self };
        let mut known = Box::pin(self.search(path));
        match tokio::time::timeout(KNOWN_TIME, &mut known).await {
            Ok(Ok(mounted)) => Ok(mounted),
            Ok(Err(error @ Error::Mount { .. })) => Err(error),
            Ok(Err(_)) => fresh.search(path).await,
            Err(_) => or_again(fresh.search(path), known).await,
        }
    }

    /// As [`Self::mount`], at every address of the host.
    async fn search(&self, path: &[u8]) -> Result<Mounted, Error> {
        self.on_each_address(|address| {
            // It has 90 KiB, and unoptimised code copies a future several times for each that holds it: too much
            // for the stack of a thread.
            Box::pin(async move {
                let (offer, reached) = self.mount_and_reach(address, path).await?;
                Ok(Mounted { reached, offer })
            })
        })
        .await
    }

    /// Finds what may hold another path, at a MOUNT service that was found before.
    pub(crate) async fn mount_again(
        &self,
        found: Found,
        path: &[u8],
        listed: &[Export],
    ) -> Result<Candidates, Error> {
        let service = self.connect(found, Program::MOUNT).await?;
        mount_among(&service, found, path, listed).await
    }

    /// Asks both services side by side: on a long way every round trip counts. When one has answered, a fade is over that may have taken
    /// what was sent to the other, and the next try of that may be a while off: it is asked again.
    async fn mount_and_reach(&self, address: SocketAddr, path: &[u8]) -> Result<(Offer, Reached), Error> {
        let (mounting, reaching) = (self.mount_at(address, path), self.nfs(address));
        tokio::pin!(mounting, reaching);
        tokio::select! {
            mounted = &mut mounting => {
                let mounted = mounted?;
                let again = async {
                    tokio::time::sleep(ONE_DATAGRAM).await;
                    self.nfs(address).await
                };
                Ok((mounted, or_again(reaching, again).await?))
            }
            reached = &mut reaching => {
                let reached = reached?;
                let again = async {
                    let Path { round_trip, protocol, .. } = reached.path;
                    tokio::time::sleep(ONE_DATAGRAM + MOUNT_ROUND_TRIPS * round_trip).await;
                    self.mount_over(address, path, protocol).await
                };
                Ok((or_again(mounting, again).await?, reached))
            }
        }
    }

    /// Looks where the server is now: the address of its NFS service over `protocol`, and the handle of an export's root, which is `root`
    /// if that is anywhere. `before` is where it was.
    pub(crate) async fn find_again(
        &self,
        before: SocketAddr,
        protocol: Protocol,
        (export, root): (&[u8], FileHandle),
    ) -> Result<(SocketAddr, FileHandle), Error> {
        let mut addresses = self.addresses().await?;
        addresses.sort_by_key(|address| address.ip() != before.ip());
        self.find_at(&addresses, protocol, (export, root)).await
    }

    /// The same at these addresses. Each is asked a little later than the one before, and does not wait until that one has failed.
    pub(crate) async fn find_at(
        &self,
        addresses: &[SocketAddr],
        protocol: Protocol,
        (export, root): (&[u8], FileHandle),
    ) -> Result<(SocketAddr, FileHandle), Error> {
        let silent = || Error::ConnectTimeout { host: self.host.into(), elapsed: TIME_TO_ANSWER };
        let ask = async |address| {
            let found =
                async { tokio::try_join!(self.root_at(address, export), self.nfs_over(address, protocol)) };
            let found = tokio::time::timeout(TIME_TO_ANSWER, found).await.unwrap_or_else(|_| Err(silent()));
            found.map(|(root, path)| (path.address(), root))
        };
        let mut asked: Vec<_> = (0..)
            .zip(addresses.iter().take(MOST_ADDRESSES))
            .map(|(number, &address)| {
                Some(Box::pin(async move {
                    tokio::time::sleep(NEXT_ADDRESS * number).await;
                    ask(address).await
                }))
            })
            .collect();
        let mut best = Err(silent());
        poll_fn(|context| {
            for attempt in &mut asked {
                let Some(Poll::Ready(found)) = attempt.as_mut().map(|it| it.as_mut().poll(context)) else {
                    continue;
                };
                *attempt = None;
                match found {
                    Ok((_, its)) if its == root => {
                        best = found;
                        return Poll::Ready(());
                    }
                    found if best.is_err() => best = found,
                    _ => {}
                }
            }
            if asked.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        best
    }

    /// Lists what the server exports.
    pub(crate) async fn exports(&self) -> Result<Vec<Export>, Error> {
        self.on_each_address(|address| {
            Box::pin(self.first_transport(move |protocol| {
                Box::pin(async move {
                    let service = self.service(address, Program::MOUNT, protocol).await?;
                    service.blame(exports(&service.connection, service.found).await)
                })
            }))
        })
        .await
    }

    /// Connects to the NFS service without mounting anything.
    pub(crate) async fn nfs_only(&self) -> Result<Path, Error> {
        self.on_each_address(|address| Box::pin(async move { Ok(self.nfs(address).await?.path) })).await
    }

    /// Makes a further connection to the NFS service at an address.
    pub(crate) async fn further(&self, address: SocketAddr, protocol: Protocol) -> Result<Path, Error> {
        let found = Found { protocol, address };
        let connection = self.connect(found, Program::NFS).await?;
        let round_trip = nfs_null(&connection, found).await?;
        Ok(Path::new(connection, protocol, address, round_trip))
    }

    /// Asks at every address of the host, and also where its name leads meanwhile, as long as nobody answers.
    async fn on_each_address<'a, T>(
        &'a self,
        attempt: impl Fn(SocketAddr) -> Attempt<'a, T>,
    ) -> Result<T, Error> {
        let began = clock();
        let addresses = self.addresses().await?;
        let mut lookups = Lookups::new(self.host, began);
        let mut tried: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
        let mut searches = vec![Box::pin(self.search_among(addresses, &attempt))];
        loop {
            let found = poll_fn(|context| {
                let mut done = None;
                searches.retain_mut(|search| match search.as_mut().poll(context) {
                    Poll::Ready(found) => {
                        done = done.take().filter(Result::is_ok).or(Some(found));
                        false
                    }
                    Poll::Pending => true,
                });
                done.map_or(Poll::Pending, Poll::Ready)
            });
            tokio::select! {
                biased;
                // Where another one is asked, an address that nobody answers on is no result.
                found = found => match found {
                    Err(Error::Unreachable { .. }) if !searches.is_empty() => {}
                    found => return found,
                },
                mut addresses = lookups.next() => {
                    addresses.retain(|address| !tried.contains(&address.ip()));
                    if !addresses.is_empty() && tried.len() < MOST_ADDRESSES {
                        tracing::debug!(?addresses, "the name leads elsewhere");
                        tried.extend(addresses.iter().map(SocketAddr::ip));
                        searches.push(Box::pin(self.search_among(addresses, &attempt)));
                    }
                }
            }
        }
    }

    /// Makes attempts at these addresses, until one of them has an answer.
    async fn search_among<'a, T>(
        &'a self,
        addresses: Vec<SocketAddr>,
        attempt: &impl Fn(SocketAddr) -> Attempt<'a, T>,
    ) -> Result<T, Error> {
        let nowhere = self.unresolved(io::Error::other("the name has no address"));
        first_address(alternating(addresses), nowhere, attempt).await
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let found = tokio::net::lookup_host((self.host, 0)).await;
        Ok(found.map_err(|source| self.unresolved(source))?.collect())
    }

    fn unresolved(&self, source: io::Error) -> Error {
        Error::Resolve { host: self.host.into(), source: Arc::new(source) }
    }

    /// Tells the MOUNT service that an export is no longer used (UMNT, RFC 1813 §5.2.3).
    pub(crate) async fn unmount(&self, found: Found, export: &[u8]) -> Result<(), Error> {
        let service = self.connect(found, Program::MOUNT).await?;
        umnt(&service, found, export).await
    }

    /// Connects to a MOUNT service that was found before, for [`Self::mount_exactly`].
    pub(crate) async fn mount_service(&self, found: Found) -> Result<Connection, Error> {
        self.connect(found, Program::MOUNT).await
    }

    /// Mounts this path, whatever it is.
    pub(crate) async fn mount_exactly(
        &self,
        service: &Connection,
        found: Found,
        path: &[u8],
    ) -> Result<FileHandle, Error> {
        mnt(service, found, path).await
    }

    /// Mounts exactly this: what was chosen once is not chosen again.
    async fn root_at(&self, address: SocketAddr, export: &[u8]) -> Result<FileHandle, Error> {
        self.first_answer(|protocol| {
            Box::pin(async move {
                let service = self.service(address, Program::MOUNT, protocol).await?;
                service.blame(mnt(&service.connection, service.found, export).await)
            })
        })
        .await
    }

    async fn mount_at(&self, address: SocketAddr, path: &[u8]) -> Result<Offer, Error> {
        self.first_answer(|protocol| Box::pin(self.mount_over(address, path, protocol))).await
    }

    async fn mount_over(&self, address: SocketAddr, path: &[u8], protocol: Protocol) -> Result<Offer, Error> {
        let other = self.config.transport == TransportChoice::Auto && protocol == Protocol::Udp;
        let service = self.service(address, Program::MOUNT, protocol).await?;
        let known = self.config.known.as_ref().map(|known| &known.export[..]);
        let asked = list_and_mount(&service.connection, service.found, path, known, other).await;
        let (listed, candidates) = service.blame(asked)?;
        Ok(Offer { mount: service.found, listed, candidates })
    }

    /// Reaches the NFS service. Where the transport is open both are asked: UDP is taken when it answers, unless the server
    /// is near.
    async fn nfs(&self, address: SocketAddr) -> Result<Reached, Error> {
        let given = match self.config.transport {
            TransportChoice::Udp => Some(Protocol::Udp),
            TransportChoice::Tcp => Some(Protocol::Tcp),
            TransportChoice::Auto => None,
        };
        if let Some(protocol) = given {
            let path = self.nfs_over(address, protocol).await?;
            return Ok(Reached { path, other: None, reason: Reason::Given });
        }
        self.nfs_over_either(address).await
    }

    async fn nfs_over(&self, address: SocketAddr, protocol: Protocol) -> Result<Path, Error> {
        let service = self.service(address, Program::NFS, protocol).await?;
        let names = self.config.known.as_ref().map_or(&[][..], |known| &known.names);
        let (round_trip, looked_up) =
            service.blame(null_and_lookups(&service.connection, service.found, names).await)?;
        let Found { protocol, address } = service.found;
        let mut path = Path::new(service.connection, protocol, address, round_trip);
        path.looked_up = looked_up;
        Ok(path)
    }

    /// Finds a service over one transport and connects to it.
    async fn service(
        &self,
        address: SocketAddr,
        program: Program,
        protocol: Protocol,
    ) -> Result<Service, Error> {
        let (port, known) = match self.port(address, program, protocol).await? {
            Port::Known(port) => (port, None),
            Port::Usual(port, error) => (port, Some(error)),
        };
        let found = Found { protocol, address: at_port(address, port) };
        match self.connect(found, program).await {
            Ok(connection) => Ok(Service { found, connection, known }),
            Err(error) => Err(known.unwrap_or(error)),
        }
    }

    /// Asks over TCP, and over UDP, too, unless the answer comes soon.
    async fn first_transport<'a, T>(
        &'a self,
        attempt: impl Fn(Protocol) -> Attempt<'a, T>,
    ) -> Result<T, Error> {
        match self.config.transport {
            TransportChoice::Udp => attempt(Protocol::Udp).await,
            TransportChoice::Tcp => attempt(Protocol::Tcp).await,
            TransportChoice::Auto => {
                first_of(attempt(Protocol::Tcp), HEAD_START, attempt(Protocol::Udp)).await
            }
        }
    }

    /// As [`Self::first_transport`], where no is an answer, too.
    async fn first_answer<'a, T: Send + 'a>(
        &'a self,
        attempt: impl Fn(Protocol) -> Attempt<'a, T>,
    ) -> Result<T, Error> {
        let attempt = |protocol| -> Attempt<'a, Result<T, Error>> {
            let attempt = attempt(protocol);
            Box::pin(async {
                match attempt.await {
                    Err(
                        error @ (Error::Mount { .. }
                        | Error::SameDirectory { .. }
                        | Error::MountsAnything { .. }),
                    ) => Ok(Err(error)),
                    other => other.map(Ok),
                }
            })
        };
        self.first_transport(attempt).await?
    }

    /// Returns the port of a service: given, asked for, or usual.
    async fn port(&self, address: SocketAddr, program: Program, protocol: Protocol) -> Result<Port, Error> {
        let nfs = program == Program::NFS;
        let given = if nfs { self.config.nfs_port } else { self.config.mount_port };
        let known = || self.config.known.as_ref()?.port(program, protocol);
        if let Some(port) = given.or_else(known) {
            return Ok(Port::Known(port));
        }
        let ask = |over| self.ask_port_mapper(address, over, program, protocol);
        let asked = match self.config.transport {
            // The service is looked for over both; each asks over its own.
            TransportChoice::Auto => {
                first_of(ask(protocol), SECOND_TRANSPORT_TIME, ask(other(protocol))).await
            }
            TransportChoice::Udp => ask(Protocol::Udp).await,
            TransportChoice::Tcp => ask(Protocol::Tcp).await,
        };
        match asked {
            // Nobody to ask: the usual port for NFS; MOUNT may share a port that was given for NFS.
            Err(error @ Error::Unreachable { .. }) => {
                let usual = if nfs { Some(NFS_PORT) } else { self.config.nfs_port };
                match usual {
                    Some(port) => Ok(Port::Usual(port, error)),
                    None => Err(error),
                }
            }
            other => other.map(Port::Known),
        }
    }

    async fn ask_port_mapper(
        &self,
        address: SocketAddr,
        over: Protocol,
        program: Program,
        protocol: Protocol,
    ) -> Result<u16, Error> {
        let mapper = at_port(address, self.config.portmap_port);
        let found = Found { protocol: over, address: mapper };
        let connection = self.connect(found, Program::PORTMAP).await?;
        let missing = Error::NotRegistered { what: service_name(program), protocol };
        // Version 2 knows IPv4 only (RFC 1833 §3).
        if address.is_ipv4() {
            let mut arguments = Vec::new();
            Mapping { program, protocol: protocol.number(), port: 0 }.encode(&mut arguments);
            let answer =
                call(&connection, Program::PORTMAP, portmap::procedure::GETPORT, arguments, found).await?;
            match answer.outcome {
                Ok(()) => {
                    let port = portmap::decode_port(&answer.results);
                    let port = port.map_err(|source| Error::Protocol { what: "GETPORT", source })?;
                    return port.ok_or(missing);
                }
                Err(
                    Rejection::ProgramMismatch { .. }
                    | Rejection::VersionUnavailable
                    | Rejection::ProcedureUnavailable,
                ) => {}
                Err(rejection) => return Err(Error::Rejected { what: "GETPORT", rejection }),
            }
        }
        for version in [Program::RPCBIND4, Program::RPCBIND3] {
            let binding = Binding {
                program,
                netid: protocol.netid(address.ip()).into(),
                address: portmap::universal_address(mapper),
            };
            let mut arguments = Vec::new();
            binding.encode(&mut arguments);
            let answer = call(&connection, version, portmap::procedure::GETPORT, arguments, found).await?;
            match answer.outcome {
                Ok(()) => {
                    let found = portmap::decode_address(&answer.results);
                    let found = found.map_err(|source| Error::Protocol { what: "GETADDR", source })?;
                    return found.map(|address| address.port()).ok_or(missing);
                }
                Err(
                    Rejection::ProgramMismatch { .. }
                    | Rejection::VersionUnavailable
                    | Rejection::ProcedureUnavailable,
                ) => {}
                Err(rejection) => return Err(Error::Rejected { what: "GETADDR", rejection }),
            }
        }
        Err(missing)
    }

    async fn connect(
        &self,
        Found { protocol, address }: Found,
        program: Program,
    ) -> Result<Connection, Error> {
        // What is remembered is how the adaptive policy moves files.
        let adapts = protocol == Protocol::Udp && self.config.retry == RetryPolicy::Adaptive;
        let has_estimates = adapts && program.number == Program::NFS.number;
        let options = self.config.session(has_estimates.then_some(address));
        // The port mapper asks for no privilege, and reserved ports are few.
        let reserved = self.config.reserved_port && program.number != Program::PORTMAP.number;
        let result = match protocol {
            Protocol::Udp => {
                let session = move |buffer| SessionConfig::new(&options, address, Protocol::Udp, buffer);
                let channel = self.config.channel.clone();
                Connection::datagrams(self.reactor, address, reserved, channel, session).await
            }
            Protocol::Tcp => {
                let session = SessionConfig::new(&options, address, Protocol::Tcp, 0);
                Connection::stream(self.reactor, address, reserved, session).await
            }
        };
        let what = service_name(program);
        result.map_err(|source| Error::Unreachable { what, address, protocol, source: Arc::new(source) })
    }
}

/// A service on one transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddr,
}

/// A connection to a service.
struct Service {
    found: Found,
    connection: Connection,
    /// Why its port had to be guessed.
    known: Option<Error>,
}

impl Service {
    /// On a usual port where nobody is, the port mapper was what was missing.
    fn blame<T>(&self, asked: Result<T, Error>) -> Result<T, Error> {
        asked.map_err(|error| match (error, &self.known) {
            (Error::Unreachable { .. } | Error::NotRegistered { .. }, Some(known)) => known.clone(),
            (error, _) => error,
        })
    }
}

/// Where a service listens.
enum Port {
    /// Given, or told by the port mapper.
    Known(u16),
    /// Usual, as the port mapper could not be asked.
    Usual(u16, Error),
}

/// Calls NULL, and returns how long the answer took, without what a fade took before.
async fn nfs_null(connection: &Connection, found: Found) -> Result<Duration, Error> {
    let answer = call(connection, Program::NFS, 0, Vec::new(), found).await?;
    accepted(&answer, Program::NFS, service_name(Program::NFS), found)?;
    Ok(answer.round_trip)
}

/// Returns the same service address with another port; an IPv6 link-local address keeps its zone.
fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Orders the addresses of a host: as the system prefers them, but with the two families in turn (RFC 8305 §4), so that one of them that
/// leads nowhere costs one delay.
fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(preferred) = addresses.first().map(SocketAddr::is_ipv4) else { return addresses };
    let (mut firsts, mut seconds): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == preferred);
    let mut ordered = Vec::with_capacity(firsts.len() + seconds.len());
    while !firsts.is_empty() || !seconds.is_empty() {
        ordered.extend(firsts.pop_front());
        ordered.extend(seconds.pop_front());
    }
    ordered
}

/// Makes an attempt at one address after the other, until one has an answer. The next one begins when those before have failed, or after
/// [`ADDRESS_DELAY`] (RFC 8305 §5). While an address is silent, those that nobody answered on are tried again: a server may be starting. A server
/// may also serve one family of addresses alone, or let in those of one alone. Once all have failed, or the others are silent after a no, the failure
/// that says most counts; `nowhere` where there is none.
async fn first_address<'a, T>(
    addresses: Vec<SocketAddr>,
    nowhere: Error,
    attempt: impl Fn(SocketAddr) -> Attempt<'a, T>,
) -> Result<T, Error> {
    let mut worst = nowhere;
    let begin = |address| (address, attempt(address));
    let mut waiting = addresses.into_iter();
    let (mut under_way, mut failed) = (Vec::new(), Vec::new());
    loop {
        under_way.extend(waiting.next().map(begin));
        if under_way.is_empty() {
            return Err(worst);
        }
        let pause = if waiting.len() > 0 { ADDRESS_DELAY } else { ADDRESS_PAUSE };
        let Ok((address, result)) = tokio::time::timeout(pause, first_ended(&mut under_way)).await else {
            if waiting.len() == 0 {
                if says(&worst) > SAYS_NOTHING {
                    return Err(worst);
                }
                under_way.extend(failed.drain(..).map(begin));
            }
            continue;
        };
        match result {
            Ok(value) => return Ok(value),
            Err(error) => {
                if says(&error) == SAYS_NOTHING {
                    failed.push(address);
                }
                if says(&error) >= says(&worst) {
                    worst = error;
                }
            }
        }
    }
}

/// Nobody was there.
const SAYS_NOTHING: u8 = 0;

/// How much a failure says of a server, beside those of other addresses of the same server.
const fn says(error: &Error) -> u8 {
    match error {
        Error::Unreachable { .. } | Error::Resolve { .. } => SAYS_NOTHING,
        Error::NotRegistered { .. } => 1,
        _ => 2,
    }
}

/// Waits until one of several attempts has ended, and takes it out.
async fn first_ended<T>(under_way: &mut Vec<(SocketAddr, Attempt<'_, T>)>) -> (SocketAddr, Result<T, Error>) {
    poll_fn(|context| {
        for at in 0..under_way.len() {
            let (address, attempt) = &mut under_way[at];
            if let Poll::Ready(result) = attempt.as_mut().poll(context) {
                let address = *address;
                drop(under_way.swap_remove(at));
                return Poll::Ready((address, result));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for `first`, and for `again`, which counts if it succeeds.
async fn or_again<T>(
    first: impl Future<Output = Result<T, Error>>,
    again: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::pin!(first);
    tokio::select! {
        result = &mut first => result,
        Ok(value) = again => Ok(value),
    }
}

/// Waits for `first` alone for a while, then for whichever of the two succeeds; what `first` fails of counts.
async fn first_of<T>(
    first: impl Future<Output = Result<T, Error>>,
    head_start: Duration,
    second: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::pin!(first, second);
    let result = match tokio::time::timeout(head_start, &mut first).await {
        Ok(result) => result,
        Err(_) => tokio::select! {
            result = &mut first => result,
            result = &mut second => return if result.is_ok() { result } else { first.await },
        },
    };
    match result {
        Err(error) => second.await.map_err(|_| error),
        found => found,
    }
}

/// Whether an address is one of this machine's.
fn is_here(address: SocketAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address.ip())
}

/// Whether the call was run, and if not, whether the program is there at all.
fn accepted(answer: &Answer, program: Program, what: &'static str, found: Found) -> Result<(), Error> {
    match answer.outcome {
        Ok(()) => Ok(()),
        Err(
            Rejection::ProgramUnavailable | Rejection::ProgramMismatch { .. } | Rejection::VersionUnavailable,
        ) => Err(Error::NotRegistered { what: service_name(program), protocol: found.protocol }),
        Err(rejection) => Err(Error::Rejected { what, rejection }),
    }
}

async fn call(
    connection: &Connection,
    program: Program,
    procedure: u32,
    arguments: Vec<u8>,
    found: Found,
) -> Result<Answer, Error> {
    let Found { protocol, address } = found;
    let what = service_name(program);
    let answer = connection.call((program, procedure), None, arguments).await;
    answer.map_err(|failure| match failure {
        CallFailure::Expired { attempts, elapsed } => Error::Silent { what, attempts, elapsed },
        CallFailure::Unreachable(source) => Error::Unreachable { what, address, protocol, source },
        CallFailure::Broken(reason) => Error::Broken { address, reason },
        CallFailure::Closed => Error::Closed,
    })
}

const fn service_name(program: Program) -> &'static str {
    match program.number {
        100_003 => "the NFSv3 service",
        100_005 => "the MOUNT service",
        _ => "the port mapper",
    }
}

#[cfg(test)]
mod tests;
