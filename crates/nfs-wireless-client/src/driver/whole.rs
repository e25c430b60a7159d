//! Datagrams in one piece: what the system knows of the route's MTU, how they are kept whole, and whether they arrived so.
//!
//! Where a system tells none of this, datagrams are sent as the system likes, and the path's MTU stays what is assumed.

use std::io;

use tokio::{io::Interest, net::UdpSocket};

/// Largest UDP payload over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// Datagrams taken from the socket with one system call. Their buffers stay in a processor's cache.
const BATCH: usize = 8;

/// What is known of the datagrams of a socket.
#[derive(Debug)]
pub(super) struct Whole {
    buffers: Vec<u8>,
    /// Whether datagrams that leave now must not be fragmented, if that is known.
    dont_fragment: Option<bool>,
    sees_fragments: bool,
}

impl Whole {
    /// Asks the system to tell what arrives in fragments.
    pub(super) fn new(socket: &UdpSocket) -> Self {
        let buffers = vec![0; BATCH * (MAX_DATAGRAM + 1)];
        Self { buffers, dont_fragment: None, sees_fragments: system::see_fragments(socket) }
    }

    /// Whether it will be told what arrives in fragments.
    pub(super) const fn sees_fragments(&self) -> bool {
        self.sees_fragments
    }

    /// Returns the MTU of the route to the peer, as far as the system knows it.
    pub(super) fn route_mtu(socket: &UdpSocket) -> Option<u32> {
        system::route_mtu(socket)
    }

    /// Sends a datagram.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        datagram: &[u8],
        dont_fragment: bool,
    ) -> io::Result<()> {
        if self.dont_fragment != Some(dont_fragment) {
            system::set_dont_fragment(socket, dont_fragment);
            self.dont_fragment = Some(dont_fragment);
        }
        socket.try_send(datagram).map(drop)
    }

    /// Receives what is there, up to a few datagrams, and shows each to `take` with the size of its largest fragment if it came in fragments.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        take: impl FnMut(&[u8], Option<u32>),
    ) -> io::Result<()> {
        socket.try_io(Interest::READABLE, || system::receive(socket, &mut self.buffers, take))
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::{
        array,
        io::{self, IoSliceMut},
        os::fd::AsRawFd,
    };

    use nix::{
        cmsg_space, libc,
        sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SetSockOpt, recvmmsg},
    };
    use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
    use tokio::net::UdpSocket;

    use super::{BATCH, MAX_DATAGRAM};

    mod options {
        use nix::{libc, setsockopt_impl, sys::socket::sockopt::SetBool};

        #[derive(Clone, Copy)]
        pub(super) struct ReceiveFragmentSize;
        setsockopt_impl!(ReceiveFragmentSize, libc::IPPROTO_IP, libc::IP_RECVFRAGSIZE, bool, SetBool);

        #[derive(Clone, Copy)]
        pub(super) struct ReceiveFragmentSizeV6;
        setsockopt_impl!(ReceiveFragmentSizeV6, libc::IPPROTO_IPV6, libc::IPV6_RECVFRAGSIZE, bool, SetBool);
    }

    pub(super) fn see_fragments(socket: &UdpSocket) -> bool {
        if is_ipv4(socket) {
            options::ReceiveFragmentSize.set(socket, &true).is_ok()
        } else {
            options::ReceiveFragmentSizeV6.set(socket, &true).is_ok()
        }
    }

    pub(super) fn route_mtu(socket: &UdpSocket) -> Option<u32> {
        if is_ipv4(socket) { sockopt::ip_mtu(socket) } else { sockopt::ipv6_mtu(socket) }.ok()
    }

    /// What must not be fragmented is not held to what ICMP messages claim: a probe finds out (RFC 8899 §3). What may be is never marked.
    pub(super) fn set_dont_fragment(socket: &UdpSocket, dont: bool) {
        let (v4, v6) = if dont {
            (Ipv4PathMtuDiscovery::PROBE, Ipv6PathMtuDiscovery::PROBE)
        } else {
            (Ipv4PathMtuDiscovery::DONT, Ipv6PathMtuDiscovery::DONT)
        };
        // Where it cannot be set, a datagram that is too long is lost, as is one that a router fragments in vain.
        let _ = if is_ipv4(socket) {
            sockopt::set_ip_mtu_discover(socket, v4)
        } else {
            sockopt::set_ipv6_mtu_discover(socket, v6)
        };
    }

    pub(super) fn receive(
        socket: &UdpSocket,
        buffers: &mut [u8],
        mut take: impl FnMut(&[u8], Option<u32>),
    ) -> io::Result<()> {
        let mut chunks = buffers.chunks_exact_mut(MAX_DATAGRAM + 1);
        let mut slices: [_; BATCH] = array::from_fn(|_| [IoSliceMut::new(chunks.next().unwrap_or_default())]);
        let mut headers = MultiHeaders::<()>::preallocate(BATCH, Some(cmsg_space!(libc::c_int)));
        let fd = socket.as_raw_fd();
        for message in recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)? {
            let fragment = message.cmsgs().ok().and_then(|mut it| it.find_map(|it| fragment_size(&it)));
            take(message.iovs().next().unwrap_or_default(), fragment);
        }
        Ok(())
    }

    fn fragment_size(message: &ControlMessageOwned) -> Option<u32> {
        let ControlMessageOwned::Unknown(unknown) = message else { return None };
        let kind = (unknown.cmsg_header.cmsg_level, unknown.cmsg_header.cmsg_type);
        let v4 = kind == (libc::IPPROTO_IP, libc::IP_RECVFRAGSIZE);
        let v6 = kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVFRAGSIZE);
        let bytes = unknown.data_bytes.first_chunk::<4>().filter(|_| v4 || v6)?;
        u32::try_from(i32::from_ne_bytes(*bytes)).ok()
    }

    fn is_ipv4(socket: &UdpSocket) -> bool {
        socket.local_addr().is_ok_and(|address| address.is_ipv4())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use rustix::net::{RecvFlags, recv};
    use tokio::net::UdpSocket;

    pub(super) const fn see_fragments(_socket: &UdpSocket) -> bool {
        false
    }

    pub(super) const fn route_mtu(_socket: &UdpSocket) -> Option<u32> {
        None
    }

    pub(super) const fn set_dont_fragment(_socket: &UdpSocket, _dont: bool) {}

    pub(super) fn receive(
        socket: &UdpSocket,
        buffers: &mut [u8],
        mut take: impl FnMut(&[u8], Option<u32>),
    ) -> io::Result<()> {
        let (_, length) = recv(socket, &mut buffers[..], RecvFlags::DONTWAIT)?;
        take(&buffers[..length], None);
        Ok(())
    }
}
