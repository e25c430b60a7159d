//! A socket in two halves: tokio tells when it can be read, and anybody writes to it at once.

use std::{
    io,
    net::{SocketAddr, UdpSocket as StdSocket},
};

use tokio::net::UdpSocket;

/// Socket buffers asked for, so that the emulated queue is the one that overflows.
#[cfg(all(target_os = "linux", not(portable_only)))]
const BUFFER_BYTES: usize = 4 << 20;

/// The sending half.
///
/// Not tokio's: a new tokio socket refuses to send until the reactor has looked at it once.
#[derive(Debug)]
pub(super) struct Outlet(StdSocket);

/// Both halves of a bound socket.
pub(super) fn open(socket: StdSocket) -> io::Result<(Outlet, UdpSocket)> {
    socket.set_nonblocking(true)?;
    enlarge_buffers(&socket);
    let inlet = UdpSocket::from_std(socket.try_clone()?)?;
    Ok((Outlet(socket), inlet))
}

impl Outlet {
    /// Sends now; false if the system does not take it.
    pub(super) fn send(&self, payload: &[u8], to: SocketAddr) -> bool {
        match self.0.send_to(payload, to) {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(%error, %to, "not sent");
                false
            }
        }
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[cfg(all(target_os = "linux", not(portable_only)))]
fn enlarge_buffers(socket: &StdSocket) {
    use rustix::net::sockopt;

    // The system may give less; overflow of its buffers then shows as loss that the link does not know of.
    let receive = sockopt::set_socket_recv_buffer_size(socket, BUFFER_BYTES);
    let send = sockopt::set_socket_send_buffer_size(socket, BUFFER_BYTES);
    if let Err(error) = receive.and(send) {
        tracing::debug!(%error, "socket buffers stay as they are");
    }
}

#[cfg(any(not(target_os = "linux"), portable_only))]
fn enlarge_buffers(_socket: &StdSocket) {}
