//! IPv4 packets with a UDP datagram (RFC 791 §3.1, RFC 768), for whoever needs the bytes that a link really carries.

use crate::{
    Endpoint, Station,
    fragment::{IP_HEADER_BYTES, MAX_PAYLOAD_BYTES, UDP_HEADER_BYTES, fragment_bytes},
};

/// Bytes of both headers.
pub(crate) const HEADER_BYTES: usize = (IP_HEADER_BYTES + UDP_HEADER_BYTES) as usize;
/// IP's number of UDP.
pub(crate) const UDP: u8 = 17;

/// Mobile n is 10.0.0.0 + n + 1, host n is 10.128.0.0 + n + 1.
fn address(station: Station) -> [u8; 4] {
    let (network, number) = match station {
        Station::Mobile(number) => (0x0a00_0000_u32, number),
        Station::Host(number) => (0x0a80_0000, number),
    };
    (network + u32::from(number) + 1).to_be_bytes()
}

/// A packet with a UDP datagram, both checksums right; too long a payload is cut.
pub(crate) fn udp(from: Endpoint, to: Endpoint, identification: u16, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD_BYTES)];
    let mut packet = Vec::with_capacity(payload.len() + HEADER_BYTES);
    packet.extend_from_slice(&[0x45, 0, 0, 0]);
    packet.extend_from_slice(&identification.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 64, UDP, 0, 0]);
    packet.extend_from_slice(&address(from.station));
    packet.extend_from_slice(&address(to.station));
    packet.extend_from_slice(&from.port.to_be_bytes());
    packet.extend_from_slice(&to.port.to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(payload);
    set_lengths(&mut packet);
    let sum = match !udp_sum(&packet) {
        // A sum of zero is sent as all ones.
        0 => 0xffff,
        sum => sum,
    };
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Sets what follows from the length of a packet without IP options: both lengths and the checksum of the IP header.
pub(crate) fn set_lengths(packet: &mut [u8]) {
    let length = packet.len() as u16 - IP_HEADER_BYTES as u16;
    packet[24..26].copy_from_slice(&length.to_be_bytes());
    set_ip_length(packet);
}

fn set_ip_length(packet: &mut [u8]) {
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    let sum = !fold(sum(&packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Fragment `index` of `count` of a packet without IP options (RFC 791 §3.2).
pub(crate) fn fragment(whole: &[u8], mtu_bytes: u32, index: u32, count: u32) -> Vec<u8> {
    let (header, datagram) = whole.split_at(IP_HEADER_BYTES as usize);
    let each = fragment_bytes(mtu_bytes) as usize;
    let start = each * index as usize;
    let last = index + 1 == count;
    let mut packet = header.to_vec();
    packet.extend_from_slice(if last { &datagram[start..] } else { &datagram[start..start + each] });
    let more = if last { 0 } else { 0x2000 };
    packet[6..8].copy_from_slice(&(more | (start / 8) as u16).to_be_bytes());
    set_ip_length(&mut packet);
    packet
}

/// Whether the checksum of an IPv4 header without options is right.
pub(crate) fn ip_sum_is_right(packet: &[u8]) -> bool {
    packet.get(..20).is_some_and(|header| fold(sum(header)) == 0xffff)
}

/// Whether a packet with [`HEADER_BYTES`] or more has a UDP checksum, and it is right.
pub(crate) fn udp_sum_is_right(packet: &[u8]) -> bool {
    packet[26..28] != [0, 0] && udp_sum(packet) == 0xffff
}

/// The sum over pseudo header and datagram.
fn udp_sum(packet: &[u8]) -> u16 {
    let length = packet.len() as u64 - u64::from(IP_HEADER_BYTES);
    fold(sum(&packet[12..20]) + u64::from(UDP) + length + sum(&packet[20..]))
}

fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum::<u64>()
        + rest.first().map_or(0, |&last| u64::from(last) << 8)
}

/// The one's complement sum of RFC 1071.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_make_the_datagram() {
        let payload: Vec<u8> = (0..4224_u32).map(|byte| byte as u8).collect();
        let whole = udp(Endpoint::mobile(0, 700), Endpoint::host(0, 2049), 7, &payload);
        let fragments: Vec<_> = (0..3).map(|index| fragment(&whole, 1500, index, 3)).collect();
        assert!(fragments.iter().all(|packet| ip_sum_is_right(packet)));
        let lengths: Vec<_> = fragments.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1500, 1500, 1292]);
        let joined: Vec<u8> = fragments.iter().flat_map(|packet| packet[20..].to_vec()).collect();
        assert_eq!(joined, whole[20..]);
        assert_eq!([fragments[0][6..8].to_vec(), fragments[2][6..8].to_vec()], [[0x20, 0], [1, 0x72]]);
    }

    #[test]
    fn checksums_verify_and_a_flipped_bit_does_not() {
        let mut packet = udp(Endpoint::mobile(0, 700), Endpoint::host(0, 2049), 7, b"odd");
        assert_eq!(&packet[12..20], [10, 0, 0, 1, 10, 128, 0, 1]);
        assert!(ip_sum_is_right(&packet) && udp_sum_is_right(&packet));
        packet[29] ^= 4;
        assert!(ip_sum_is_right(&packet) && !udp_sum_is_right(&packet));
        packet[8] ^= 1;
        assert!(!ip_sum_is_right(&packet));
    }
}
