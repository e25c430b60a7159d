//! Sockets: reserved ports, buffers, keep-alive.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use rustix::net::{self, sockopt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// What we ask for as receive buffer of a UDP socket; the kernel may grant less.
const UDP_RECEIVE_BUFFER: usize = 4 << 20;

/// How long one attempt to connect may take before a new one starts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Ports that servers with the `secure` option accept, leaving the well-known lowest ones alone.
const RESERVED_PORTS: std::ops::Range<u16> = 665..1024;

/// How many reserved ports are tried before any port will do.
const RESERVED_TRIES: u16 = 24;

/// Connects a UDP socket and returns it with the size of its receive buffer in bytes.
pub(super) async fn connect_udp(peer: SocketAddr, reserved: bool) -> io::Result<(UdpSocket, usize)> {
    let mut bound = None;
    for port in local_ports(reserved) {
        match std::net::UdpSocket::bind(local_address(peer, port)) {
            Ok(socket) => {
                bound = Some(socket);
                break;
            }
            Err(error) if port != 0 && try_another(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let socket = bound.ok_or(ErrorKind::AddrInUse)?;
    socket.set_nonblocking(true)?;
    // On Linux privileged processes may exceed the system's limit; the others get what there is.
    #[cfg(all(target_os = "linux", not(portable_only)))]
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, UDP_RECEIVE_BUFFER).is_ok();
    #[cfg(any(not(target_os = "linux"), portable_only))]
    let forced = false;
    if !forced {
        sockopt::set_socket_recv_buffer_size(&socket, UDP_RECEIVE_BUFFER)?;
    }
    let granted = sockopt::socket_recv_buffer_size(&socket)?;
    socket.connect(peer)?;
    Ok((UdpSocket::from_std(socket)?, granted))
}

/// Has a UDP socket send to `peer` from the address that the way there leads out of now; its port stays.
///
/// # Errors
/// When there is no way; then nothing changed, or nothing can be sent until this is called again.
pub(super) fn renew_udp(socket: &UdpSocket, peer: SocketAddr) -> io::Result<()> {
    let (local, source) = (socket.local_addr()?, source_towards(peer)?);
    if local.ip() == source && socket.peer_addr().is_ok_and(|connected| connected == peer) {
        return Ok(());
    }
    tracing::debug!(%local, %source, %peer, "another way to the server");
    net::connect_unspec(socket)?;
    // Without the address a port goes that the system chose. A server's duplicate request cache knows us by it.
    let _ = net::bind(socket, &local_address(peer, local.port()));
    Ok(net::connect(socket, &peer)?)
}

/// Returns the address that the way to `peer` leads out of.
///
/// # Errors
/// When there is no way.
pub(super) fn source_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let socket = std::net::UdpSocket::bind(local_address(peer, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// Whether this machine has an address, whatever its port.
pub(super) fn is_ours(mut address: SocketAddr) -> bool {
    address.set_port(0);
    std::net::UdpSocket::bind(address).is_ok()
}

/// Connects a TCP socket, from `local` port if given and possible.
pub(super) async fn connect_tcp(
    peer: SocketAddr,
    reserved: bool,
    local: Option<u16>,
) -> io::Result<TcpStream> {
    let attempt = async {
        for port in local.into_iter().chain(local_ports(reserved)) {
            let socket = if peer.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            if port != 0 {
                socket.set_reuseaddr(true)?;
                match socket.bind(local_address(peer, port)) {
                    Ok(()) => {}
                    Err(error) if try_another(&error) => continue,
                    Err(error) => return Err(error),
                }
            }
            match socket.connect(peer).await {
                Err(error) if port != 0 && try_another(&error) => {}
                other => return other,
            }
        }
        Err(ErrorKind::AddrInUse.into())
    };
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, attempt).await.map_err(|_| ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    // Linux otherwise repeats for up to 15 minutes what nobody acknowledges.
    #[cfg(all(target_os = "linux", not(portable_only)))]
    sockopt::set_tcp_user_timeout(&stream, super::stream::SILENCE_LIMIT.as_millis() as u32)?;
    Ok(stream)
}

/// Returns reserved ports to try, from a random place on, and at last 0: any port.
fn local_ports(reserved: bool) -> impl Iterator<Item = u16> {
    let count = RESERVED_PORTS.end - RESERVED_PORTS.start;
    let first = (super::seed() % u64::from(count)) as u16;
    let tries = if reserved { RESERVED_TRIES } else { 0 };
    (0..tries).map(move |step| RESERVED_PORTS.start + (first + step) % count).chain([0])
}

/// Whether another local port may do better.
fn try_another(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable | ErrorKind::PermissionDenied)
}

const fn local_address(peer: SocketAddr, port: u16) -> SocketAddr {
    let any =
        if peer.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    SocketAddr::new(any, port)
}
