//! Datagrams in one piece: what the system knows of the route's MTU, how they are kept whole, whether they arrived so, and how many of them one
//! system call moves.
//!
//! Where a system tells none of this, datagrams are sent as the system likes, and the path's MTU stays what is assumed.

use std::io;

use rustix::io::Errno;
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
    /// Whether the system cuts what it is given into datagrams of one size (Linux's `UDP_SEGMENT`).
    segments: bool,
}

impl Whole {
    /// Asks the system to tell what arrives in fragments, and to join what arrives together.
    pub(super) fn new(socket: &UdpSocket) -> Self {
        let buffers = vec![0; BATCH * (MAX_DATAGRAM + 1)];
        let (sees_fragments, segments) = (system::see_fragments(socket), system::SEGMENTS);
        system::join_arrivals(socket);
        Self { buffers, dont_fragment: None, sees_fragments, segments }
    }

    /// Returns how many bytes of datagrams of one size [`Self::send`] may be given at once.
    pub(super) const fn max_batch(&self) -> usize {
        if self.segments { MAX_DATAGRAM } else { 0 }
    }

    /// Whether it will be told what arrives in fragments.
    pub(super) const fn sees_fragments(&self) -> bool {
        self.sees_fragments
    }

    /// Returns the MTU of the route to the peer, as far as the system knows it.
    pub(super) fn route_mtu(socket: &UdpSocket) -> Option<u32> {
        system::route_mtu(socket)
    }

    /// Sends the datagrams that `bytes` are, all of `segment` bytes but the last, which may be shorter, or the first of them. Returns the bytes that were
    /// sent.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        bytes: &[u8],
        segment: usize,
        dont_fragment: bool,
    ) -> io::Result<usize> {
        if self.dont_fragment != Some(dont_fragment) {
            system::set_dont_fragment(socket, dont_fragment);
            self.dont_fragment = Some(dont_fragment);
        }
        if bytes.len() > segment && self.segments {
            match socket.try_io(Interest::WRITABLE, || system::send_segments(socket, bytes, segment)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Ok(sent) => return Ok(sent),
                // One of them alone says so again.
                Err(error) if is_too_long(&error) => {}
                Err(error) => {
                    tracing::debug!(%error, "datagrams leave one at a time");
                    self.segments = false;
                }
            }
        }
        socket.try_send(bytes.get(..segment).unwrap_or(bytes))
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

/// Whether a datagram was longer than a link on the way carries, and must not be fragmented.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}

#[cfg(all(target_os = "linux", not(portable_only)))]
mod system {
    use std::{
        array,
        io::{self, IoSlice, IoSliceMut},
        os::fd::AsRawFd,
    };

    use nix::{
        cmsg_space, libc,
        sys::socket::{
            ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SetSockOpt, recvmmsg, sendmsg,
            sockopt::UdpGroSegment,
        },
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

    pub(super) const SEGMENTS: bool = true;

    /// Datagrams of a batch at most (Linux's `UDP_MAX_SEGMENTS` before 6.9).
    const MAX_SEGMENTS: usize = 64;

    pub(super) fn join_arrivals(socket: &UdpSocket) {
        // Before Linux 5.0 each datagram arrives by itself.
        let _ = UdpGroSegment.set(socket, &true);
    }

    pub(super) fn send_segments(socket: &UdpSocket, bytes: &[u8], segment: usize) -> io::Result<usize> {
        let bytes = bytes.get(..MAX_SEGMENTS * segment).unwrap_or(bytes);
        let size = u16::try_from(segment).map_err(io::Error::other)?;
        let control = [ControlMessage::UdpGsoSegments(&size)];
        let flags = MsgFlags::MSG_DONTWAIT;
        Ok(sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], &control, flags, None)?)
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
        let mut headers = MultiHeaders::<()>::preallocate(BATCH, Some(cmsg_space!(libc::c_int, libc::c_int)));
        let fd = socket.as_raw_fd();
        for message in recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)? {
            let bytes = message.iovs().next().unwrap_or_default();
            let (mut fragment, mut segment) = (None, bytes.len());
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::UdpGroSegments(size) = control {
                    segment = size as usize;
                } else {
                    fragment = fragment.or_else(|| fragment_size(&control));
                }
            }
            for datagram in bytes.chunks(segment.max(1)) {
                take(datagram, fragment);
            }
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

#[cfg(any(not(target_os = "linux"), portable_only))]
mod system {
    use std::io;

    use rustix::net::{RecvFlags, recv};
    use tokio::net::UdpSocket;

    pub(super) const SEGMENTS: bool = false;

    pub(super) const fn join_arrivals(_socket: &UdpSocket) {}

    pub(super) fn send_segments(_socket: &UdpSocket, _bytes: &[u8], _segment: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    async fn pair() -> (UdpSocket, UdpSocket) {
        let here = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let there = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        here.connect(there.local_addr().unwrap()).await.unwrap();
        there.connect(here.local_addr().unwrap()).await.unwrap();
        (here, there)
    }

    async fn receive(whole: &mut Whole, socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
        let mut datagrams = vec![];
        while datagrams.len() < count {
            socket.readable().await.unwrap();
            let _ = whole.receive(socket, |datagram, fragment| {
                assert_eq!(fragment, None);
                datagrams.push(datagram.to_vec());
            });
        }
        datagrams
    }

    /// 100 equal datagrams and a shorter one.
    fn batch() -> (Vec<u8>, Vec<Vec<u8>>) {
        let bytes: Vec<u8> = (0..100 * 300 + 7).map(|index| (index / 300 + index) as u8).collect();
        let datagrams = bytes.chunks(300).map(<[u8]>::to_vec).collect();
        (bytes, datagrams)
    }

    #[tokio::test]
    async fn a_batch_arrives_as_the_datagrams_that_it_is_made_of() {
        let (here, there) = pair().await;
        let (bytes, datagrams) = batch();
        for segments in [system::SEGMENTS, false] {
            let (mut from, mut to) = (Whole::new(&here), Whole::new(&there));
            from.segments = segments;
            let (mut left, mut calls) = (&bytes[..], 0);
            while !left.is_empty() {
                here.writable().await.unwrap();
                left = &left[from.send(&here, left, 300, true).unwrap()..];
                calls += 1;
            }
            assert_eq!(calls, if segments { 2 } else { 101 }, "64 datagrams a system call, or one");
            assert_eq!(receive(&mut to, &there, 101).await, datagrams);
        }
    }

    #[tokio::test]
    async fn what_is_too_long_for_one_system_call_leaves_one_at_a_time() {
        let (here, there) = pair().await;
        let (mut from, mut to) = (Whole::new(&here), Whole::new(&there));
        let bytes = vec![7; 70_000];
        here.writable().await.unwrap();
        assert_eq!(from.send(&here, &bytes, 35_000, true).unwrap(), 35_000);
        assert_eq!(receive(&mut to, &there, 1).await, [vec![7; 35_000]]);
    }
}
