//! Port lookup: portmap version 2 and rpcbind versions 3 and 4 (RFC 1833).

use std::net::{IpAddr, SocketAddr};

use nfs3_types::{
    portmap::{IPPROTO_TCP, IPPROTO_UDP, mapping},
    xdr_codec::Opaque,
};

use crate::{
    rpc::Program,
    xdr::{DecodeError, Reader, encode},
};

/// The well-known port of portmap and rpcbind.
pub const PORT: u16 = 111;

/// Longest string in an rpcbind message, in bytes; an address has about 50.
const MAX_STRING_BYTES: usize = 1024;

/// Procedure numbers, the same in versions 2 to 4 as far as we use them (RFC 1833 §2.2.1 and §3.2).
pub mod procedure {
    /// Do nothing.
    pub const NULL: u32 = 0;
    /// Register a service.
    pub const SET: u32 = 1;
    /// Withdraw a service.
    pub const UNSET: u32 = 2;
    /// Portmap GETPORT, rpcbind GETADDR.
    pub const GETPORT: u32 = 3;
    /// List everything registered.
    pub const DUMP: u32 = 4;
}

/// A transport, as the port mapper names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Protocol {
    /// Returns the IP protocol number, as portmap version 2 wants it.
    pub const fn number(self) -> u32 {
        match self {
            Self::Udp => IPPROTO_UDP,
            Self::Tcp => IPPROTO_TCP,
        }
    }

    /// Returns the rpcbind network identifier for addresses like `address` (RFC 5665 §4).
    pub const fn netid(self, address: IpAddr) -> &'static str {
        match (self, address) {
            (Self::Udp, IpAddr::V4(_)) => "udp",
            (Self::Udp, IpAddr::V6(_)) => "udp6",
            (Self::Tcp, IpAddr::V4(_)) => "tcp",
            (Self::Tcp, IpAddr::V6(_)) => "tcp6",
        }
    }
}

/// The argument of portmap version 2's procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Program and version that are looked for.
    pub program: Program,
    /// IP protocol number.
    pub protocol: u32,
    /// Port; zero in a question.
    pub port: u32,
}

impl Mapping {
    /// Appends the mapping to `buffer`.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        let Self { program, protocol, port } = *self;
        encode(buffer, &mapping { prog: program.number, vers: program.version, prot: protocol, port });
    }

    /// Reads a mapping that is all that is left of a call.
    ///
    /// # Errors
    /// [`DecodeError`] when it is malformed.
    pub fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let program = Program { number: reader.u32("program")?, version: reader.u32("version")? };
        let mapping = Self { program, protocol: reader.u32("protocol")?, port: reader.u32("port")? };
        reader.finish()?;
        Ok(mapping)
    }
}

/// Reads the result of GETPORT; `None` means that nothing is registered.
///
/// # Errors
/// [`DecodeError`] when it is no port.
pub fn decode_port(results: &[u8]) -> Result<Option<u16>, DecodeError> {
    let mut reader = Reader::new(results);
    let port = reader.u32("port")?;
    let port = u16::try_from(port).map_err(|_| DecodeError::Unknown { field: "port", value: port })?;
    Ok((port != 0).then_some(port))
}

/// The argument of rpcbind's procedures (RFC 1833 §2.1, `rpcb`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Program and version that are looked for.
    pub program: Program,
    /// Network identifier, such as `udp6`.
    pub netid: String,
    /// Universal address; in a question, the address the question is sent to.
    pub address: String,
}

impl Binding {
    /// Appends the binding to `buffer`; the owner is left empty.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        encode(buffer, &self.program.number);
        encode(buffer, &self.program.version);
        for text in [&self.netid[..], &self.address, ""] {
            encode(buffer, &Opaque::borrowed(text.as_bytes()));
        }
    }

    /// Reads a binding that is all that is left of a call.
    ///
    /// # Errors
    /// [`DecodeError`] when it is malformed.
    pub fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let program = Program { number: reader.u32("program")?, version: reader.u32("version")? };
        let mut string = |field| {
            let bytes = reader.opaque(field, MAX_STRING_BYTES)?;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        let (netid, address, _owner) = (string("netid")?, string("address")?, string("owner")?);
        reader.finish()?;
        Ok(Self { program, netid, address })
    }
}

/// Reads the result of GETADDR; `None` means that nothing is registered.
///
/// # Errors
/// [`DecodeError`] when it is no universal address.
pub fn decode_address(results: &[u8]) -> Result<Option<SocketAddr>, DecodeError> {
    let mut reader = Reader::new(results);
    let text = reader.opaque("universal address", MAX_STRING_BYTES)?;
    if text.is_empty() {
        return Ok(None);
    }
    let address = std::str::from_utf8(text).ok().and_then(parse_universal_address);
    address.map(Some).ok_or(DecodeError::Inconsistent { field: "universal address" })
}

/// Writes an address the way rpcbind does: the port as two more decimal bytes (RFC 5665 §5.2.3).
pub fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Reads an address written the way rpcbind does.
pub fn parse_universal_address(text: &str) -> Option<SocketAddr> {
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_survive_a_round_trip() {
        for text in ["127.0.0.1:2049", "[::1]:111", "[fe80::2:3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(parse_universal_address(&universal_address(address)), Some(address));
        }
        assert_eq!(parse_universal_address("127.0.0.1.8"), None);
        assert_eq!(parse_universal_address("127.0.0.1.8.256"), None);
    }

    #[test]
    fn an_unregistered_program_has_no_port() {
        assert_eq!(decode_port(&[0, 0, 0, 0]), Ok(None));
        assert_eq!(decode_port(&[0, 0, 8, 1]), Ok(Some(2049)));
        assert_eq!(decode_port(&[0, 0, 8, 1, 7, 7, 7, 7]), Ok(Some(2049)), "what follows is not looked at");
        assert!(decode_port(&[0, 1, 0, 0]).is_err());
        assert_eq!(decode_address(&[0, 0, 0, 0]), Ok(None));
        let mut bytes = Vec::new();
        encode(&mut bytes, &Opaque::borrowed(b"192.0.2.7.8.1"));
        assert_eq!(decode_address(&bytes), Ok(Some("192.0.2.7:2049".parse().unwrap())));
        bytes.clear();
        encode(&mut bytes, &Opaque::borrowed(b"192.0.2.7.8"));
        assert_eq!(decode_address(&bytes), Err(DecodeError::Inconsistent { field: "universal address" }));
    }

    #[test]
    fn transports_have_the_names_and_numbers_of_the_registries() {
        // RFC 5665 §4.2 and the protocol numbers of IANA.
        let (v4, v6) = ("192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap());
        for (protocol, number, netids) in
            [(Protocol::Tcp, 6, ["tcp", "tcp6"]), (Protocol::Udp, 17, ["udp", "udp6"])]
        {
            assert_eq!(protocol.number(), number);
            assert_eq!([protocol.netid(v4), protocol.netid(v6)], netids);
        }
    }

    #[test]
    fn bindings_and_mappings_survive_a_round_trip() {
        let binding = Binding { program: Program::NFS, netid: "udp6".into(), address: "::1.0.111".into() };
        let mut bytes = Vec::new();
        binding.encode(&mut bytes);
        assert_eq!(Binding::decode(Reader::new(&bytes)), Ok(binding));
        bytes.clear();
        let mapping = Mapping { program: Program::MOUNT, protocol: Protocol::Tcp.number(), port: 0 };
        mapping.encode(&mut bytes);
        assert_eq!(Mapping::decode(Reader::new(&bytes)), Ok(mapping));
    }
}
