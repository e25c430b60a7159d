//! The listener, its connections and their limits.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nfs_wireless_server::{Vfs, most_descriptors};
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    answer::answer,
    members::{Members, Used, lock},
    secret::Secret,
    site::{Caller, Site},
    tree::Disk,
};

/// Connections at once, and those of one address: browsers have six, and several people may be behind one. With few descriptors they are fewer.
const MAX_CONNECTIONS: usize = 256;
const MAX_OF_ONE: usize = 64;

/// Long pages that are sent at once: each is in memory.
const MAX_PAGES: usize = 8;

/// How long the headers of a request may take to arrive, and a connection to be idle.
const HEADER_TIME: Duration = Duration::from_secs(15);

/// Headers of a request, and bytes in them.
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 << 10;

/// What the system holds of a response that its reader does not take, in bytes; it counts its own needs, too.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// Archives that are made at once: each takes a processor.
const MAX_ARCHIVES: usize = 4;

/// Wrong secrets whose answers wait.
const MAX_LATE: usize = 32;

/// How long the end waits for connections to be cut.
const END_TIME: Duration = Duration::from_millis(500);

/// After an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// An HTTP server for members. Dropping it stops it at once.
#[derive(Debug)]
pub struct Front {
    site: Arc<Site>,
    address: SocketAddr,
    has_ended: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Front {
    /// Listens on an address; port 0 picks one. The title is shown to whoever comes.
    ///
    /// # Errors
    /// The error of the socket that cannot be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn bind(listen: SocketAddr, title: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let site = Arc::new(Site {
            title: title.to_owned(),
            members: Members::default(),
            disk: Disk::default(),
            archives: Arc::new(Semaphore::new(MAX_ARCHIVES)),
            pages: Arc::new(Semaphore::new(MAX_PAGES)),
            late: Semaphore::new(MAX_LATE),
        });
        let (has_ended, ends) = watch::channel(false);
        let task = tokio::spawn(listen_on(listener, Arc::clone(&site), ends));
        Ok(Self { site, address, has_ended, task })
    }

    /// Returns the address it is bound to, with the port that was picked.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Admits whoever knows a secret to files, for as long as `term` tells a time that is to come. It is asked for each request and
    /// every 0.2 s during a response, so that it may be prolonged and withdrawn; once it has told `None`, the member is over.
    pub fn admit(
        &self,
        secret: &Secret,
        files: impl Vfs + 'static,
        term: impl Fn() -> Option<Instant> + Send + Sync + 'static,
    ) {
        self.site.members.admit(secret, Arc::new(files), Box::new(term));
    }

    /// Returns what the member with a secret has had so far.
    pub fn used(&self, secret: &Secret) -> Used {
        self.site.members.used(secret)
    }

    /// Cuts all connections, and ends.
    pub async fn end(mut self) {
        let _ = self.has_ended.send(true);
        let _ = tokio::time::timeout(END_TIME, &mut self.task).await;
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connections of each address.
type Counts = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

/// One of them.
struct Slot(Counts, IpAddr);

impl Slot {
    fn take(counts: &Counts, address: IpAddr) -> Option<Self> {
        let mut slots = lock(counts);
        // A connection takes two descriptors, and files need most.
        let most = most_descriptors();
        let is_full = slots.values().sum::<usize>() >= MAX_CONNECTIONS.min(most / 8);
        let count = slots.entry(address).or_insert(0);
        if is_full || *count >= MAX_OF_ONE.min(most / 16) {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(counts), address))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = lock(&self.0);
        if let Some(count) = slots.get_mut(&self.1) {
            *count -= 1;
        }
        slots.retain(|_, count| *count > 0);
    }
}

async fn listen_on(listener: TcpListener, site: Arc<Site>, mut ends: watch::Receiver<bool>) {
    let (counts, mut connections) = (Counts::default(), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            _ = ends.wait_for(|has_ended| *has_ended) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Beyond the limit, it is closed.
                if let Some(slot) = Slot::take(&counts, peer.ip().to_canonical()) {
                    connections.spawn(connection(stream, slot, Arc::clone(&site), ends.clone()));
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Answers the requests of a connection until it ends, or is cut.
async fn connection(stream: TcpStream, _place: Slot, site: Arc<Site>, mut ends: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
    let (Ok(local), Ok(socket)) = (stream.local_addr(), stream.as_fd().try_clone_to_owned()) else { return };
    let caller = Arc::new(Caller::new(local));
    let service = service_fn(|request: Request<Incoming>| {
        let (site, caller) = (Arc::clone(&site), Arc::clone(&caller));
        async move { Ok::<_, Infallible>(answer(&site, &caller, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let is_cut = tokio::select! {
        _ = serving => false,
        () = caller.is_over() => true,
        _ = ends.wait_for(|has_ended| *has_ended) => true,
    };
    if is_cut {
        reset(&socket);
    }
}

/// Makes the system forget what it has not sent yet, when the socket is closed.
fn reset(socket: &OwnedFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
