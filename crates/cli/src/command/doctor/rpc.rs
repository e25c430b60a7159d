//! Calls that are made by hand, one after the other: what a server answers, and not what a client makes of it.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use nfs_wire::{
    Reader,
    portmap::Protocol,
    record::mark,
    rpc::{Program, Rejection, ReplyHeader, Xid, encode_call_header},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream, UdpSocket},
    time::{Instant, timeout, timeout_at},
};

/// Largest reply that is taken, in bytes: a long list of exports, or the data of a large READ.
const MAX_REPLY_BYTES: usize = 4 << 20;

/// Ports that only the superuser may use, as far as they are tried (from the top, as other clients do).
const PRIVILEGED_PORTS: std::ops::Range<u16> = 600..1024;

/// Why a call brought no results.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing came in time.
    Silent,
    /// The port is closed.
    Refused,
    /// The connection was closed instead of an answer.
    Closed,
    /// The network or this machine does not allow it.
    Io(io::Error),
    /// What came is no reply.
    Nonsense,
    /// The server did not run it.
    Rejected(Rejection),
}

impl Trouble {
    /// Returns a few words for a table.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Silent => "silent".to_owned(),
            Self::Refused => "refused".to_owned(),
            Self::Closed => "closes the connection".to_owned(),
            Self::Io(error) => crate::error::io_text(error),
            Self::Nonsense => "answers nonsense".to_owned(),
            Self::Rejected(Rejection::ProgramUnavailable | Rejection::VersionUnavailable) => {
                "not offered".to_owned()
            }
            Self::Rejected(Rejection::ProgramMismatch { low, high }) => {
                format!("only versions {low} to {high}")
            }
            Self::Rejected(Rejection::ProcedureUnavailable) => "not offered".to_owned(),
            Self::Rejected(Rejection::Authentication(status)) => format!("credential refused ({status})"),
            Self::Rejected(other) => other.to_string(),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Closed,
            ErrorKind::TimedOut => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

/// A way to one service.
#[derive(Debug)]
pub(super) struct Caller {
    wire: Wire,
    wait: Duration,
    xid: u32,
    credential: Vec<u8>,
    /// The last call, to be sent again as it was.
    last: Vec<u8>,
    /// How long the last answer took.
    pub(super) round_trip: Duration,
}

#[derive(Debug)]
enum Wire {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Caller {
    /// Opens a way from a port that anybody may use, or from one that only the superuser may.
    ///
    /// # Errors
    /// [`Trouble`]; over UDP only what this machine refuses.
    pub(super) async fn reach(
        address: SocketAddr,
        protocol: Protocol,
        wait: Duration,
        is_privileged: bool,
        credential: &[u8],
    ) -> Result<Self, Trouble> {
        let ports: Box<dyn Iterator<Item = u16> + Send> =
            if is_privileged { Box::new(PRIVILEGED_PORTS.rev()) } else { Box::new(std::iter::once(0)) };
        let mut wire = Err(Trouble::Io(ErrorKind::AddrInUse.into()));
        for port in ports {
            wire = Self::open(address, protocol, wait, port).await;
            if !matches!(&wire, Err(Trouble::Io(error)) if error.kind() == ErrorKind::AddrInUse) {
                break;
            }
        }
        // Not the same in every run: a server may remember what it answered.
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let xid = clock.subsec_nanos() ^ std::process::id().rotate_left(16);
        let credential = credential.to_vec();
        Ok(Self { wire: wire?, wait, xid, credential, last: Vec::new(), round_trip: Duration::ZERO })
    }

    async fn open(
        address: SocketAddr,
        protocol: Protocol,
        wait: Duration,
        port: u16,
    ) -> Result<Wire, Trouble> {
        let here = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        match protocol {
            Protocol::Udp => {
                let socket = UdpSocket::bind(here).await?;
                socket.connect(address).await?;
                Ok(Wire::Udp(socket))
            }
            Protocol::Tcp => {
                let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                socket.bind(here)?;
                let connected = timeout(wait, socket.connect(address)).await;
                let stream = connected.map_err(|_| Trouble::Silent)??;
                let _ = stream.set_nodelay(true);
                Ok(Wire::Tcp(stream))
            }
        }
    }

    /// Acts as somebody else from now on.
    pub(super) fn set_credential(&mut self, credential: &[u8]) {
        self.credential = credential.to_vec();
    }

    /// Makes a call and returns its results, encoded. Over UDP it is sent once more when half of the time is over.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) async fn call(
        &mut self,
        program: Program,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Trouble> {
        self.xid = self.xid.wrapping_add(1);
        self.last.clear();
        encode_call_header(&mut self.last, Xid(self.xid), program, procedure, &self.credential);
        self.last.extend_from_slice(arguments);
        self.exchange(2).await
    }

    /// Sends the last call again, as it was: with its XID, from the same port.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) async fn repeat(&mut self) -> Result<Vec<u8>, Trouble> {
        self.exchange(1).await
    }

    async fn exchange(&mut self, attempts: u32) -> Result<Vec<u8>, Trouble> {
        let Self { wire, last, xid, wait, .. } = self;
        let start = Instant::now();
        let reply = match wire {
            Wire::Udp(socket) => {
                let mut reply = Err(Trouble::Silent);
                for attempt in 1..=attempts {
                    socket.send(last).await?;
                    reply = datagram(socket, *xid, start + *wait * attempt / attempts).await;
                    if !matches!(reply, Err(Trouble::Silent)) {
                        break;
                    }
                }
                reply
            }
            Wire::Tcp(stream) => {
                let sent = [&mark(last.len())[..], &last[..]].concat();
                timeout_at(start + *wait, async {
                    stream.write_all(&sent).await?;
                    loop {
                        let message = record(stream).await?;
                        if message.starts_with(&xid.to_be_bytes()) {
                            return results(&message);
                        }
                    }
                })
                .await
                .map_err(|_| Trouble::Silent)?
            }
        };
        self.round_trip = start.elapsed();
        reply
    }
}

/// Waits for the reply to a call.
async fn datagram(socket: &UdpSocket, xid: u32, until: Instant) -> Result<Vec<u8>, Trouble> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let received = timeout_at(until, socket.recv(&mut buffer)).await.map_err(|_| Trouble::Silent)?;
        let message = &buffer[..received?];
        if message.starts_with(&xid.to_be_bytes()) {
            return results(message);
        }
    }
}

/// Reads a record (RFC 5531 §11).
async fn record(stream: &mut TcpStream) -> Result<Vec<u8>, Trouble> {
    const LAST: u32 = 1 << 31;
    let mut message = Vec::new();
    loop {
        let head = stream.read_u32().await?;
        let length = (head & !LAST) as usize;
        if message.len() + length > MAX_REPLY_BYTES {
            return Err(Trouble::Nonsense);
        }
        // What is claimed is not allocated before it has come.
        let read = (&mut *stream).take(length as u64).read_to_end(&mut message).await?;
        if read < length {
            return Err(Trouble::Closed);
        }
        if head & LAST != 0 {
            return Ok(message);
        }
    }
}

fn results(message: &[u8]) -> Result<Vec<u8>, Trouble> {
    let mut reader = Reader::new(message);
    match ReplyHeader::decode(&mut reader) {
        Ok(ReplyHeader { outcome: Ok(()), .. }) => Ok(reader.rest().to_vec()),
        Ok(ReplyHeader { outcome: Err(rejection), .. }) => Err(Trouble::Rejected(rejection)),
        Err(_) => Err(Trouble::Nonsense),
    }
}
