//! A UDP socket whose replies leave from the address that was called.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{io::Interest, net::UdpSocket};

/// Peers of which it is remembered what they have called; the one heard of first is forgotten first.
const MAX_PEERS: usize = 4096;

/// A UDP socket whose replies leave from the address that the peer has called: a machine may have several, and clients take replies
/// from that one only. Where the system does not tell which it was (on other systems than Linux), it chooses.
#[derive(Debug)]
pub struct CalledSocket {
    socket: UdpSocket,
    called: Mutex<Called>,
}

/// Which address of this machine each peer has called last.
#[derive(Debug, Default)]
struct Called {
    addresses: BTreeMap<SocketAddr, IpAddr>,
    order: VecDeque<SocketAddr>,
}

impl CalledSocket {
    /// Takes a socket that is bound.
    pub fn new(socket: UdpSocket) -> Self {
        // A socket that has one address answers from it anyway.
        if socket.local_addr().is_ok_and(|address| address.ip().is_unspecified()) {
            system::tell_called(&socket);
        }
        Self { socket, called: Mutex::default() }
    }

    /// Receives a datagram; returns its bytes, and who has sent it.
    ///
    /// # Errors
    /// Those of the system, which may be about an earlier datagram.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received =
            self.socket.async_io(Interest::READABLE, || system::receive(&self.socket, buffer)).await;
        received.map(|received| self.note(received))
    }

    /// As [`Self::recv_from`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock`, if there is none; those of the system.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.socket.try_io(Interest::READABLE, || system::receive(&self.socket, buffer));
        received.map(|received| self.note(received))
    }

    /// Sends a datagram, from the address that this peer has called last.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn send_to(&self, bytes: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let called = self.called().addresses.get(&peer).copied();
        self.socket.async_io(Interest::WRITABLE, || system::send(&self.socket, bytes, peer, called)).await
    }

    fn note(&self, (length, peer, address): (usize, SocketAddr, Option<IpAddr>)) -> (usize, SocketAddr) {
        if let Some(address) = address {
            let mut called = self.called();
            if called.addresses.insert(peer, address).is_none() {
                called.order.push_back(peer);
            }
            if called.order.len() > MAX_PEERS
                && let Some(first) = called.order.pop_front()
            {
                called.addresses.remove(&first);
            }
        }
        (length, peer)
    }

    fn called(&self) -> MutexGuard<'_, Called> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(target_os = "linux", not(portable_only)))]
mod system {
    use std::{
        io::{self, IoSlice, IoSliceMut},
        net::{IpAddr, SocketAddr},
        os::fd::AsRawFd,
    };

    use nix::{
        cmsg_space, libc,
        sys::socket::{
            ControlMessage, ControlMessageOwned, MsgFlags, SetSockOpt, SockaddrStorage, recvmsg, sendmsg,
            sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo},
        },
    };
    use tokio::net::UdpSocket;

    /// Asks the system which address was called (ip(7), RFC 3542 §6.1).
    pub(super) fn tell_called(socket: &UdpSocket) {
        let _ = match socket.local_addr() {
            Ok(SocketAddr::V4(_)) => Ipv4PacketInfo.set(socket, &true),
            _ => Ipv6RecvPacketInfo.set(socket, &true),
        };
    }

    pub(super) fn receive(
        socket: &UdpSocket,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
        let mut slices = [IoSliceMut::new(buffer)];
        let mut space = cmsg_space!(libc::in_pktinfo, libc::in6_pktinfo);
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
        let called = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()))
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
            _ => None,
        });
        let peer = message.address.and_then(|peer| match (peer.as_sockaddr_in(), peer.as_sockaddr_in6()) {
            (Some(v4), _) => Some(SocketAddr::V4((*v4).into())),
            (_, Some(v6)) => Some(SocketAddr::V6((*v6).into())),
            _ => None,
        });
        let peer = peer.ok_or_else(|| io::Error::other("a datagram of nobody"))?;
        Ok((message.bytes, peer, called))
    }

    pub(super) fn send(
        socket: &UdpSocket,
        bytes: &[u8],
        peer: SocketAddr,
        called: Option<IpAddr>,
    ) -> io::Result<usize> {
        let (fd, slices, flags) = (socket.as_raw_fd(), [IoSlice::new(bytes)], MsgFlags::MSG_DONTWAIT);
        let to = SockaddrStorage::from(peer);
        let sent = match called {
            Some(IpAddr::V4(address)) => {
                let address = libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: address };
                sendmsg(fd, &slices, &[ControlMessage::Ipv4PacketInfo(&info)], flags, Some(&to))
            }
            Some(IpAddr::V6(address)) => {
                let address = libc::in6_addr { s6_addr: address.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                sendmsg(fd, &slices, &[ControlMessage::Ipv6PacketInfo(&info)], flags, Some(&to))
            }
            None => sendmsg(fd, &slices, &[], flags, Some(&to)),
        };
        Ok(sent?)
    }
}

#[cfg(not(all(target_os = "linux", not(portable_only))))]
mod system {
    use std::{
        io,
        net::{IpAddr, SocketAddr},
    };

    use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
    use tokio::net::UdpSocket;

    pub(super) fn tell_called(_: &UdpSocket) {}

    pub(super) fn receive(
        socket: &UdpSocket,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
        let (length, _, peer) = recvfrom(socket, buffer, RecvFlags::DONTWAIT)?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        let peer = peer.ok_or_else(|| io::Error::other("a datagram of nobody"))?;
        Ok((length, peer, None))
    }

    pub(super) fn send(
        socket: &UdpSocket,
        bytes: &[u8],
        peer: SocketAddr,
        _: Option<IpAddr>,
    ) -> io::Result<usize> {
        Ok(sendto(socket, bytes, SendFlags::DONTWAIT, &peer)?)
    }
}
