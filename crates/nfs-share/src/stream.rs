//! Datagrams over TCP, for networks that let no UDP through: each behind its length, two bytes, big-endian. They are the same as over UDP, and what is
//! lost of them is sent again by the same rules. At either end a UDP socket of the loopback stands for the stream.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

/// Bytes of a datagram's length.
const LENGTH_BYTES: usize = size_of::<u16>();

/// Bytes of a stream that are taken at once.
const BATCH_BYTES: usize = 8 << 10;

/// A stream that brings nothing for so long is closed. Its end at the receiver's makes another one for the next datagram.
const IDLE: Duration = Duration::from_secs(300);

/// A stream of which nothing that was sent is acknowledged for so long is closed at either end: the way that it took is gone, as after a change of
/// the network or where a gateway has forgotten it. The next datagram makes another one.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// The half of a stream that brings datagrams.
pub(crate) struct Incoming {
    from: BufReader<OwnedReadHalf>,
    datagram: Vec<u8>,
}

/// The half of a stream that takes them.
pub(crate) struct Outgoing {
    to: OwnedWriteHalf,
    framed: Vec<u8>,
}

/// Takes a stream for datagrams.
pub(crate) fn split(stream: TcpStream) -> io::Result<(Incoming, Outgoing)> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED.as_millis() as u32)?;
    let (from, to) = stream.into_split();
    let incoming = Incoming { from: BufReader::with_capacity(BATCH_BYTES, from), datagram: Vec::new() };
    Ok((incoming, Outgoing { to, framed: Vec::new() }))
}

impl Incoming {
    /// Waits for a datagram.
    ///
    /// # Errors
    /// The stream has ended or was idle for too long.
    pub(crate) async fn next(&mut self) -> io::Result<&[u8]> {
        let length = timeout(IDLE, self.from.read_u16()).await??;
        self.datagram.clear();
        // It grows with what comes, and not with what was announced.
        let mut rest = (&mut self.from).take(length.into());
        timeout(IDLE, rest.read_to_end(&mut self.datagram)).await??;
        if self.datagram.len() < length.into() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&self.datagram)
    }
}

impl Outgoing {
    /// Sends a datagram; one that is too long is lost.
    pub(crate) async fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let Ok(length) = u16::try_from(datagram.len()) else { return Ok(()) };
        self.framed.clear();
        self.framed.reserve(LENGTH_BYTES + datagram.len());
        self.framed.extend_from_slice(&length.to_be_bytes());
        self.framed.extend_from_slice(datagram);
        self.to.write_all(&self.framed).await
    }
}
