//! Places on the link, as the server knows them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use linkemu::{Endpoint, Station};
use nfs_wire::portmap::Protocol;
use nfs_wireless_server::Peer;

/// Where the server is reached on the link.
pub(crate) const SERVER: Endpoint = Endpoint::host(0, nfs_wireless_server::NFS_PORT);

/// Where it is reached over TCP. linkemu's datagrams have no protocol number: what goes to this port is TCP.
pub(crate) const TCP_SERVER: Endpoint = Endpoint::host(0, nfs_wireless_server::NFS_PORT + 1);

/// The address under which the server knows a place on the link.
pub(crate) fn peer(from: Endpoint, protocol: Protocol) -> Peer {
    let (network, number) = match from.station {
        Station::Mobile(number) => (18, number),
        Station::Host(number) => (19, number),
    };
    let [high, low] = number.to_be_bytes();
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, network, high, low)), from.port);
    Peer { address, protocol }
}

/// The place on the link behind an address that [`peer`] made.
pub(crate) fn endpoint(address: SocketAddr) -> Endpoint {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, network, high, low] = ip.octets();
            let number = u16::from_be_bytes([high, low]);
            match network {
                18 => Endpoint::mobile(number, address.port()),
                _ => Endpoint::host(number, address.port()),
            }
        }
        IpAddr::V6(_) => SERVER,
    }
}
