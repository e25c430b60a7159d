//! Whose a connection on this machine is.
//!
//! What a call says of its user is a claim that every program can make. The kernel knows whose the socket is that it came from.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use nfs_wireless_server::{Peer, Protocol};

/// How long an owner is remembered: sockets of one owner follow those of another at the same port.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Most of them; then all are looked up again.
const MAX_REMEMBERED: usize = 1024;

/// State of a TCP connection that is over (`TCP_TIME_WAIT`).
const TIME_WAIT: &str = "06";

/// Owners of sockets.
#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<Peer, (Option<u32>, Instant)>);

impl Owners {
    /// Returns the user whose socket a peer on this machine is, if the kernel knows it.
    pub(super) fn of(&mut self, peer: Peer, now: Instant) -> Option<u32> {
        if let Some(&(owner, at)) = self.0.get(&peer)
            && now.saturating_duration_since(at) < REMEMBERED
        {
            return owner;
        }
        if self.0.len() >= MAX_REMEMBERED {
            self.0.clear();
        }
        let owner = look(peer).ok().flatten();
        self.0.insert(peer, (owner, now));
        owner
    }
}

fn look(peer: Peer) -> io::Result<Option<u32>> {
    let tables = match peer.protocol {
        Protocol::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
        Protocol::Udp => ["/proc/net/udp", "/proc/net/udp6"],
    };
    for table in tables {
        // There may be no IPv6.
        let text = fs::read_to_string(table).unwrap_or_default();
        if let Some(owner) = text.lines().find_map(|line| owner(line, peer.address)) {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// Returns the owner of a line's socket if it is at an address (proc_pid_net(5)).
fn owner(line: &str, address: SocketAddr) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace();
    let local = socket_address(fields.nth(1)?)?;
    let state = fields.nth(1)?;
    let is_there = local.port() == address.port()
        && (local.ip().to_canonical() == address.ip().to_canonical() || local.ip().is_unspecified());
    if !is_there || state == TIME_WAIT {
        return None;
    }
    fields.nth(3)?.parse().ok()
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

    #[test]
    fn our_own_sockets_are_ours_and_those_that_are_gone_are_nobodys() {
        let uid = rustix::process::geteuid().as_raw();
        let now = Instant::now();
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(listen).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = Peer { address: stream.local_addr().unwrap(), protocol: Protocol::Tcp };
            let mut owners = Owners::default();
            assert_eq!(owners.of(peer, now), Some(uid), "{listen}");
            drop((stream, listener));
            assert_eq!(owners.of(peer, now), Some(uid), "remembered for a moment");
            assert_eq!(owners.of(peer, now + REMEMBERED), None, "{listen}");
            let socket = UdpSocket::bind(listen).unwrap();
            let peer = Peer { address: socket.local_addr().unwrap(), protocol: Protocol::Udp };
            assert_eq!(owners.of(peer, now), Some(uid), "{listen}");
        }
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "   1: 0100007F:D2B0 0100007F:0801 01 00000000:00000000 00:00000000 00000000  1000        0 48615 1 0000000000000000";
        assert_eq!(owner(line, "127.0.0.1:53936".parse().unwrap()), Some(1000));
        assert_eq!(owner(line, "127.0.0.1:53937".parse().unwrap()), None);
        assert_eq!(owner(line, "127.0.0.2:53936".parse().unwrap()), None);
        let over = line.replace(" 01 ", " 06 ");
        assert_eq!(owner(&over, "127.0.0.1:53936".parse().unwrap()), None);
        assert_eq!(owner("  sl  local_address rem_address   st", "127.0.0.1:1".parse().unwrap()), None);
    }
}
