//! A TUN device: made, addressed and up. It is gone when its descriptor is closed.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::OwnedFd,
};

use rtnetlink::{
    Handle, LinkUnspec, RouteMessageBuilder,
    packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    ioctl::{Opcode, Updater, ioctl},
    net::{self, AddressFamily, SocketFlags, SocketType},
};

/// Packets that may wait until the link reads them, so that the emulated queue is the one that overflows.
const WAITING: u32 = 10_000;
/// The smallest MTU of IPv6 (RFC 8200 §5).
const IPV6_MTU_BYTES: u32 = 1280;

/// Links that have addresses: 198.18.0.0/15 in networks of four addresses.
const NUMBERS: u32 = 1 << 15;

/// What the kernel gives to routes that come with an address of IPv6 (`IP6_RT_PRIO_ADDRCONF` in include/net/ip6_route.h).
const IPV6_METRIC: u32 = 256;

/// A device in the network namespace of the thread that made it.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) descriptor: OwnedFd,
    pub(super) name: String,
}

/// Both ends of a link, by its number among those of this host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    number: u16,
}

/// One end, and whether packets to anywhere leave through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Mobile,
    Host,
}

impl Device {
    /// Makes the host's end of a link, with a number that no link had for a while: hosts go on for minutes with TCP connections over
    /// a link that has ended, and would talk into one with the same addresses.
    pub(super) fn make_host() -> io::Result<Self> {
        let first = std::process::id() % NUMBERS;
        let mut made = Err(Errno::BUSY.into());
        for number in (first..NUMBERS).chain(0..first) {
            made = Self::make(&format!("nfsw{number}"));
            if !matches!(&made, Err(error) if error.raw_os_error() == Some(libc::EBUSY)) {
                break;
            }
        }
        made
    }

    /// Makes a device.
    pub(super) fn make(name: &str) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let ifr_name = interface_name(name).ok_or(Errno::NAMETOOLONG)?;
        // Whole IP packets, without a header of the device's own.
        let ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        let mut request = libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags } };
        #[expect(unsafe_code, reason = "no crate in use has a safe TUNSETIFF")]
        // SAFETY: TUNSETIFF reads and writes an `ifreq` (netdevice(7)).
        unsafe {
            ioctl(&descriptor, Updater::<{ libc::TUNSETIFF as Opcode }, _>::new(&mut request))?;
        }
        let name: Vec<u8> =
            request.ifr_name.into_iter().map(|byte| byte as u8).take_while(|&byte| byte != 0).collect();
        Ok(Self { descriptor, name: String::from_utf8_lossy(&name).into_owned() })
    }

    /// Gives the device its addresses and brings it up. Returns whether it has IPv6.
    pub(super) async fn configure(&self, ends: Ends, side: Side, mtu_bytes: u32) -> io::Result<bool> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let done = self.configure_with(&handle, ends, side, mtu_bytes).await;
        connection.abort();
        done
    }

    /// Lets TCP connections over the device control congestion by the algorithm of this name, in place of the system's own.
    ///
    /// # Errors
    /// The kernel has no such algorithm.
    pub(super) async fn control(
        &self,
        ends: Ends,
        side: Side,
        ipv6: bool,
        algorithm: &str,
    ) -> io::Result<()> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let done = self.control_with(&handle, ends, side, ipv6, algorithm).await;
        connection.abort();
        done
    }

    async fn control_with(
        &self,
        handle: &Handle,
        ends: Ends,
        side: Side,
        ipv6: bool,
        algorithm: &str,
    ) -> io::Result<()> {
        let index = index(&self.name)?;
        for mut route in ends.routes(side, index, ipv6) {
            route.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(algorithm.to_owned())]));
            handle.route().add(route).replace().execute().await.map_err(io_error)?;
        }
        Ok(())
    }

    async fn configure_with(
        &self,
        handle: &Handle,
        ends: Ends,
        side: Side,
        mtu_bytes: u32,
    ) -> io::Result<bool> {
        let index = index(&self.name)?;
        let up = LinkUnspec::new_with_index(index).mtu(mtu_bytes).txqueuelen(WAITING).up().build();
        handle.link().set(up).execute().await.map_err(io_error)?;
        if side == Side::Mobile {
            let loopback = LinkUnspec::new_with_name("lo").up().build();
            handle.link().set(loopback).execute().await.map_err(io_error)?;
        }
        let addresses = handle.address();
        addresses.add(index, ends.ipv4(side).into(), 30).execute().await.map_err(io_error)?;
        if side == Side::Mobile {
            let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(ends.ipv4(Side::Host)).build();
            handle.route().add(route).execute().await.map_err(io_error)?;
        }
        if mtu_bytes < IPV6_MTU_BYTES {
            return Ok(false);
        }
        // IPv6 may be switched off, which is no failure.
        if let Err(error) = addresses.add(index, ends.ipv6(side).into(), 64).execute().await {
            tracing::debug!(%error, device = self.name, "no IPv6");
            return Ok(false);
        }
        if side == Side::Mobile {
            let route = RouteMessageBuilder::<Ipv6Addr>::new().gateway(ends.ipv6(Side::Host)).build();
            handle.route().add(route).execute().await.map_err(io_error)?;
        }
        Ok(true)
    }
}

impl Ends {
    /// The ends of the link whose device on the host has this name; none if the range of addresses is used up.
    pub(super) fn of(host: &Device) -> Option<Self> {
        let digits = host.name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        digits.parse().ok().filter(|&number| u32::from(number) < NUMBERS).map(|number| Self { number })
    }

    /// An address of the range for tests of networks, which nobody routes (198.18.0.0/15, RFC 2544 §C.2.2).
    pub(super) fn ipv4(self, side: Side) -> Ipv4Addr {
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * u32::from(self.number);
        (base + side.number()).into()
    }

    /// The routes of the kernel and of `configure` at one end, as they are without metrics.
    fn routes(self, side: Side, index: u32, ipv6: bool) -> Vec<RouteMessage> {
        let (v4, v6) = (self.ipv4(Side::Host), self.ipv6(Side::Host));
        let network = Ipv4Addr::from(u32::from(v4) & !3);
        let direct = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network, 30)
            .pref_source(self.ipv4(side))
            .output_interface(index)
            .protocol(RouteProtocol::Kernel)
            .scope(RouteScope::Link);
        let mut routes = vec![direct.build()];
        if side == Side::Mobile {
            routes.push(RouteMessageBuilder::<Ipv4Addr>::new().gateway(v4).build());
        }
        if ipv6 {
            let prefix = Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX));
            let direct = RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(prefix, 64)
                .output_interface(index)
                .protocol(RouteProtocol::Kernel)
                .priority(IPV6_METRIC);
            routes.push(direct.build());
            if side == Side::Mobile {
                routes.push(RouteMessageBuilder::<Ipv6Addr>::new().gateway(v6).build());
            }
        }
        routes
    }

    /// A unique local address (RFC 4193 §3); the global ID spells "nfsw".
    pub(super) fn ipv6(self, side: Side) -> Ipv6Addr {
        Ipv6Addr::new(0xfd6e, 0x6673, 0x7700, self.number, 0, 0, 0, side.number() as u16)
    }
}

impl Side {
    fn number(self) -> u32 {
        match self {
            Self::Host => 1,
            Self::Mobile => 2,
        }
    }
}

/// The index of a device in the network of this thread.
pub(super) fn index(name: &str) -> io::Result<u32> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(net::netdevice::name_to_index(&socket, name)?)
}

/// A name as the kernel wants it, its end included.
fn interface_name(name: &str) -> Option<[libc::c_char; libc::IFNAMSIZ]> {
    let mut bytes = [0; libc::IFNAMSIZ];
    let place = bytes.get_mut(..name.len()).filter(|_| name.len() < libc::IFNAMSIZ)?;
    for (place, byte) in place.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Some(bytes)
}

fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_addresses_that_do_not_meet() {
        let ends = |number| Ends { number };
        assert_eq!(ends(0).ipv4(Side::Host).to_string(), "198.18.0.1");
        assert_eq!(ends(0).ipv4(Side::Mobile).to_string(), "198.18.0.2");
        assert_eq!(ends(64).ipv4(Side::Host).to_string(), "198.18.1.1");
        assert_eq!(ends((1 << 15) - 1).ipv4(Side::Mobile).to_string(), "198.19.255.254");
        assert_eq!(ends(10).ipv6(Side::Mobile).to_string(), "fd6e:6673:7700:a::2");
    }
}
