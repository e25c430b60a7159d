//! Whose a connection on this machine is.
//!
//! What a call says of its user is a claim that every program can make. The kernel knows whose the connection is that it came over. It is asked
//! for exactly this one, each time: others may have the same port (`SO_REUSEADDR`), and have it a moment later.
//!
//! Whose a datagram is it cannot tell: a socket may be closed when it is asked for, and open again when the answer comes. So nobody is served over
//! UDP.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP, TCP_CLOSE, TCP_LISTEN, TCP_TIME_WAIT},
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags},
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use nfs_wireless_server::{Peer, Protocol};

/// Bytes of the kernel's messages that are taken at a time (`NLMSG_GOODSIZE` is at most that).
const RECEIVE_BYTES: usize = 32 << 10;

/// The owners of sockets that are connected to a server.
#[derive(Debug)]
pub(super) struct Owners {
    /// The server's own address.
    server: SocketAddr,
    kernel: Option<Kernel>,
}

/// A socket, as the kernel describes it.
#[derive(Clone, Copy, Debug)]
struct Described {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    uid: u32,
    /// Zero where no program has it any more; then the owner is none either.
    inode: u64,
}

/// A conversation with the kernel about sockets (sock_diag(7)).
#[derive(Debug)]
struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Owners {
    pub(super) const fn new(server: SocketAddr) -> Self {
        Self { server, kernel: None }
    }

    /// Whether a peer is connected by a socket on this machine of somebody who `is_reader`.
    pub(super) fn are(&mut self, peer: Peer, is_reader: impl Fn(u32) -> bool) -> bool {
        if peer.protocol != Protocol::Tcp {
            return false;
        }
        let found = match self.ask(peer.address) {
            Ok(Some(found)) => vec![found],
            answer => {
                if answer.is_err() {
                    // It may have more to say about what it was asked.
                    self.kernel = None;
                }
                // There may be no sock_diag.
                tables()
            }
        };
        are(&found, peer.address, self.server, is_reader)
    }

    fn ask(&mut self, peer: SocketAddr) -> io::Result<Option<Described>> {
        if self.kernel.is_none() {
            self.kernel = Some(Kernel::new()?);
        }
        match &mut self.kernel {
            Some(kernel) => kernel.connection(peer, self.server),
            None => Ok(None),
        }
    }
}

/// Whether all sockets that may be a peer's connection to the server are those of readers.
fn are(found: &[Described], peer: SocketAddr, server: SocketAddr, is_reader: impl Fn(u32) -> bool) -> bool {
    let is_same = |one: SocketAddr, other: SocketAddr| {
        one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
    };
    let matches = |it: &&Described| {
        let is_over = [TCP_TIME_WAIT, TCP_CLOSE, TCP_LISTEN].contains(&it.state);
        is_same(it.local, peer) && is_same(it.remote, server) && !is_over
    };
    let mut candidates = found.iter().filter(matches).peekable();
    candidates.peek().is_some() && candidates.all(|it| it.inode != 0 && is_reader(it.uid))
}

impl Kernel {
    fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        // The kernel answers before `send` returns.
        socket.set_non_blocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the connection from one address to another, if there is one.
    fn connection(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Described>> {
        let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
        let id = SocketId {
            source_port: local.port(),
            destination_port: remote.port(),
            source_address: local.ip(),
            destination_address: remote.ip(),
            interface_id: 0,
            // Whatever socket it is.
            cookie: [0xff; 8],
        };
        self.request(family, id)
    }

    fn request(&mut self, family: u8, socket_id: SocketId) -> io::Result<Option<Described>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST, self.sequence);
        let (extensions, states) = (ExtensionFlags::empty(), StateFlags::all());
        let request = InetRequest { family, protocol: IPPROTO_TCP, extensions, states, socket_id };
        let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        self.answer()
    }

    /// Takes the answer to the last request.
    fn answer(&self) -> io::Result<Option<Described>> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            let length = self.socket.recv(&mut &mut buffer[..], 0)?;
            let mut rest = buffer.get(..length).unwrap_or_default();
            while !rest.is_empty() {
                let message =
                    NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(io::Error::other)?;
                // Messages begin at multiples of four bytes.
                let taken = (message.header.length as usize).next_multiple_of(4).max(4);
                rest = rest.get(taken..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                        return Ok(Some(Described::from(&*response)));
                    }
                    NetlinkPayload::Done(_) => return Ok(None),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }
}

impl From<&InetResponse> for Described {
    fn from(response: &InetResponse) -> Self {
        let header = &response.header;
        let id = &header.socket_id;
        Self {
            local: SocketAddr::new(id.source_address, id.source_port),
            remote: SocketAddr::new(id.destination_address, id.destination_port),
            state: header.state,
            uid: header.uid,
            inode: header.inode.into(),
        }
    }
}

/// Returns all connections that the tables of the kernel show (proc_pid_net(5)).
fn tables() -> Vec<Described> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    // There may be no IPv6.
    let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    texts.iter().flat_map(|text| text.lines()).filter_map(described).collect()
}

/// Reads a line of such a table.
fn described(line: &str) -> Option<Described> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    Some(Described {
        local: socket_address(fields.get(1)?)?,
        remote: socket_address(fields.get(2)?)?,
        state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
        uid: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Parses an address as the kernel writes it: words of the machine's byte order in hexadecimal digits.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match (<[u8; 4]>::try_from(&bytes[..]), <[u8; 16]>::try_from(&bytes[..])) {
        (Ok(bytes), _) => IpAddr::V4(Ipv4Addr::from(bytes)),
        (_, Ok(bytes)) => IpAddr::V6(Ipv6Addr::from(bytes)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    /// Whether both the kernel's answers and its tables say so.
    fn say(owners: &mut Owners, peer: Peer) -> bool {
        let uid = rustix::process::geteuid().as_raw();
        let said = owners.are(peer, |owner| owner == uid);
        assert_eq!(are(&tables(), peer.address, owners.server, |owner| owner == uid), said, "{peer:?}");
        assert!(!owners.are(peer, |owner| owner != uid), "{peer:?}");
        said
    }

    #[test]
    fn our_own_sockets_are_ours_and_those_that_are_gone_are_nobodys() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(listen).unwrap();
            let server = listener.local_addr().unwrap();
            let stream = TcpStream::connect(server).unwrap();
            let address = stream.local_addr().unwrap();
            let peer = Peer { address, protocol: Protocol::Tcp };
            let mut owners = Owners::new(server);
            assert!(say(&mut owners, peer), "{listen}");
            let elsewhere = SocketAddr::new(server.ip(), server.port() ^ 1);
            assert!(!say(&mut Owners::new(elsewhere), peer), "it is connected to another server");
            drop(stream);
            assert!(!say(&mut owners, peer), "{listen}");
            assert!(!say(&mut owners, Peer { address: server, protocol: Protocol::Tcp }), "it only listens");

            let socket = UdpSocket::bind(listen).unwrap();
            socket.connect(server).unwrap();
            let peer = Peer { address: socket.local_addr().unwrap(), protocol: Protocol::Udp };
            assert!(!owners.are(peer, |_| true), "whose a datagram is nobody knows");
        }
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "   1: 0100007F:D2B0 0100007F:0801 01 00000000:00000000 00:00000000 00000000  1000        0 48615 1 0000000000000000";
        let it = described(line).unwrap();
        assert_eq!(it.local, "127.0.0.1:53936".parse().unwrap());
        assert_eq!(it.remote, "127.0.0.1:2049".parse().unwrap());
        assert_eq!((it.state, it.uid, it.inode), (1, 1000, 48_615));
        assert!(described("  sl  local_address rem_address   st").is_none());
    }

    #[test]
    fn what_is_not_certain_is_refused() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let server = address("127.0.0.1:2049");
        let it = |local, remote, state, uid, inode| Described {
            local: address(local),
            remote: address(remote),
            state,
            uid,
            inode,
        };
        let ours = it("127.0.0.1:700", "127.0.0.1:2049", 1, 1000, 5);
        // All sockets there are, and whether those of user 1000 may read.
        let rows = [
            (vec![ours], true),
            (vec![it("[::ffff:127.0.0.1]:700", "[::ffff:127.0.0.1]:2049", 1, 1000, 5)], true),
            (vec![it("127.0.0.1:700", "127.0.0.1:2050", 1, 1000, 5)], false),
            (vec![it("0.0.0.0:700", "0.0.0.0:0", 10, 1000, 5)], false),
            (vec![it("127.0.0.1:700", "127.0.0.1:2049", 6, 1000, 0)], false),
            (vec![it("127.0.0.1:700", "127.0.0.1:2049", 4, 1000, 0)], false),
            (vec![it("127.0.0.1:700", "127.0.0.1:2049", 4, 1000, 5)], true),
            (vec![ours, it("127.0.0.1:700", "127.0.0.1:2049", 1, 1001, 6)], false),
            (vec![], false),
        ];
        for (found, allowed) in rows {
            let peer = address("127.0.0.1:700");
            assert_eq!(are(&found, peer, server, |uid| uid == 1000), allowed, "{found:?}");
        }
    }
}
