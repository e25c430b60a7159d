//! A TCP segment as a datagram of the emulated link.
//!
//! linkemu carries UDP payloads in IPv4 packets. A segment is a payload of such a length that the packet is as long as the one
//! that Linux sends: IP 20, TCP 20, timestamps with padding 12 (RFC 7323 §3.2), SACK blocks 4 + 8n (RFC 2018 §3), data.

use bytes::Bytes;

/// Data bytes of a full segment: an MTU of 1500 less IP, TCP and timestamps (RFC 7323 §3.2, RFC 6691 §2).
pub(crate) const MSS: u64 = 1448;

/// TCP header and timestamps less the UDP header that linkemu counts, in bytes.
const HEADER_BYTES: usize = 20 + 12 - 8;

/// The same of a SYN, whose options are MSS, SACK-permitted, timestamps and window scale: 20 bytes.
const SYN_HEADER_BYTES: usize = 20 + 20 - 8;

/// SACK blocks that fit beside timestamps (RFC 2018 §3).
pub(crate) const MAX_SACK_BLOCKS: usize = 3;

/// Window scale (RFC 7323 §2): windows up to 8 MiB, in steps of 128 bytes.
const WINDOW_SHIFT: u32 = 7;

const SYN: u8 = 1;
const ACK: u8 = 2;
const RST: u8 = 4;

/// A half-open range of sequence numbers, as on the wire.
pub(crate) type Block = (u32, u32);

/// A segment (RFC 9293 §3.1, as far as connections here need it: there is no FIN, no PSH and no urgent data).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Of the first byte of data, or of SYN.
    pub(crate) sequence: u32,
    /// The next sequence number expected; `None` without ACK.
    pub(crate) acknowledgment: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) rst: bool,
    /// Receive window, in bytes.
    pub(crate) window: u32,
    /// TSval and TSecr (RFC 7323 §3), in ms of the clock of whoever reads it.
    pub(crate) timestamp: u32,
    pub(crate) echo: u32,
    /// At most [`MAX_SACK_BLOCKS`]; the first may be a D-SACK (RFC 2883).
    pub(crate) blocks: Vec<Block>,
    pub(crate) data: Bytes,
}

impl Segment {
    /// The payload of the datagram that stands for it.
    pub(crate) fn encode(&self) -> Bytes {
        let header = if self.syn { SYN_HEADER_BYTES } else { HEADER_BYTES };
        let sack = if self.blocks.is_empty() { 0 } else { 4 + 8 * self.blocks.len() };
        let mut payload = Vec::with_capacity(header + sack + self.data.len());
        payload.extend_from_slice(&self.sequence.to_be_bytes());
        payload.extend_from_slice(&self.acknowledgment.unwrap_or(0).to_be_bytes());
        let flag = |set, bit| if set { bit } else { 0 };
        payload.push(flag(self.syn, SYN) | flag(self.acknowledgment.is_some(), ACK) | flag(self.rst, RST));
        payload.push(self.blocks.len() as u8);
        let window = (self.window >> WINDOW_SHIFT).min(u16::MAX.into()) as u16;
        payload.extend_from_slice(&window.to_be_bytes());
        payload.extend_from_slice(&self.timestamp.to_be_bytes());
        payload.extend_from_slice(&self.echo.to_be_bytes());
        payload.resize(header, 0);
        for (start, end) in &self.blocks {
            payload.extend_from_slice(&start.to_be_bytes());
            payload.extend_from_slice(&end.to_be_bytes());
        }
        payload.resize(header + sack, 0);
        payload.extend_from_slice(&self.data);
        payload.into()
    }

    /// Reads what [`Self::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(payload: &Bytes) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(*payload.get(at..)?.first_chunk()?));
        let (flags, blocks) = (*payload.get(8)?, usize::from(*payload.get(9)?));
        let header = if flags & SYN != 0 { SYN_HEADER_BYTES } else { HEADER_BYTES };
        let sack = if blocks == 0 { 0 } else { 4 + 8 * blocks };
        if blocks > MAX_SACK_BLOCKS || payload.len() < header + sack {
            return None;
        }
        let window = u16::from_be_bytes(*payload.get(10..)?.first_chunk()?);
        let blocks =
            (0..blocks).map(|index| Some((word(header + 8 * index)?, word(header + 8 * index + 4)?)));
        Some(Self {
            sequence: word(0)?,
            acknowledgment: (flags & ACK != 0).then_some(word(4)?),
            syn: flags & SYN != 0,
            rst: flags & RST != 0,
            window: u32::from(window) << WINDOW_SHIFT,
            timestamp: word(12)?,
            echo: word(16)?,
            blocks: blocks.collect::<Option<_>>()?,
            data: payload.slice(header + sack..),
        })
    }
}

/// The sequence number of 64 bits that is nearest to `near` and has these low 32 bits.
pub(super) const fn unwrap(near: u64, wire: u32) -> u64 {
    let distance = wire.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(distance as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of IP and UDP header that linkemu adds.
    const ADDED: usize = 28;

    #[test]
    fn packets_are_as_long_as_those_of_linux() {
        let full = Segment {
            acknowledgment: Some(1),
            data: Bytes::from(vec![7; MSS as usize]),
            ..Segment::default()
        };
        assert_eq!(full.encode().len() + ADDED, 1500);
        let ack = Segment { acknowledgment: Some(1), ..Segment::default() };
        assert_eq!(ack.encode().len() + ADDED, 52);
        let sack = Segment { blocks: vec![(1, 2), (3, 4)], ..ack };
        assert_eq!(sack.encode().len() + ADDED, 52 + 20);
        assert_eq!(Segment { syn: true, ..Segment::default() }.encode().len() + ADDED, 60);
    }

    #[test]
    fn what_is_decoded_is_what_was_encoded() {
        let segment = Segment {
            sequence: u32::MAX,
            acknowledgment: Some(77),
            syn: false,
            rst: true,
            window: 6 << 20,
            timestamp: 5,
            echo: 6,
            blocks: vec![(1, 2), (u32::MAX, 4), (9, 10)],
            data: Bytes::from_static(b"data"),
        };
        assert_eq!(Segment::decode(&segment.encode()), Some(segment.clone()));
        for length in 0..HEADER_BYTES + 28 {
            assert_eq!(Segment::decode(&segment.encode().slice(..length)), None, "{length} bytes");
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let near = (1_u64 << 33) + 5;
        assert_eq!(unwrap(near, 4), near - 1);
        assert_eq!(unwrap(near, u32::MAX), near - 6);
        assert_eq!(unwrap(u64::from(u32::MAX), 3), (1 << 32) + 3);
    }
}
