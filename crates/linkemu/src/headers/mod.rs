//! Header compression for IP, UDP, RPC and NFS: what the Rx Hex did for Rx (Bachmann et al. 1993 §7), by the technique of
//! RFC 1144, made safe against bursts of loss.
//!
//! [`HeaderCodec`] is one end of a link. Both ends remember headers in numbered *slots*; a compressed header is its difference from
//! one of them (`delta.rs`). A slot is used only after the other end has acknowledged it, so that no loss can make the ends disagree.
//! `rpc.rs` is all that is known of RPC and NFS. `docs/header-compression.md` has the format and the reasons.

mod compressor;
mod decompressor;
mod delta;
mod rpc;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use self::{compressor::Compressor, decompressor::Decompressor, rpc::Call};

/// The fewest bytes of a compressed header.
pub(crate) const LEAST_HEADER_BYTES: u32 = 6;

const FULL: u8 = 0x50;
const COMPRESSED: u8 = 0x80;
const ANSWERS: u8 = 0x30;
/// The packet is to be remembered.
const REMEMBER: u8 = 0x08;
/// The highest bit of an answer's generation: the slot is of no use.
const REFUSED: u8 = 0x80;
/// Generations of a slot.
const GENERATIONS: u8 = 0x80;
/// Answers that one packet carries.
const MOST_ANSWERS: usize = 4;
/// Calls whose replies are awaited.
const CALLS: usize = 4096;

/// A packet cannot be restored: the other end remembers something else, or it was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header cannot be restored")]
pub struct HeaderError;

/// One end of a link that compresses headers: IPv4 packets in, packets of the link out, and back again.
///
/// The format and what it rests on are described in `docs/header-compression.md`. Bounded: 256 headers of at most 1020 bytes in either
/// direction, and 4096 calls.
///
/// ```
/// use bytes::Bytes;
/// use linkemu::HeaderCodec;
///
/// let (mut here, mut there) = (HeaderCodec::new(1500), HeaderCodec::new(1500));
/// // What is not an IPv4 packet with a UDP checksum passes unchanged.
/// let packet = Bytes::from_static(&[0x60, 0, 0, 0]);
/// let on_the_link = here.compress(packet.clone());
/// assert_eq!(there.decompress(on_the_link), Ok(packet));
/// ```
#[derive(Debug)]
pub struct HeaderCodec {
    mtu_bytes: usize,
    compressor: Compressor,
    decompressor: Decompressor,
    calls: Calls,
}

impl HeaderCodec {
    /// An end that remembers nothing, of a link that carries packets of at most `mtu_bytes`.
    pub fn new(mtu_bytes: u32) -> Self {
        Self {
            mtu_bytes: mtu_bytes as usize,
            compressor: Compressor::default(),
            decompressor: Decompressor::default(),
            calls: Calls::default(),
        }
    }

    /// Turns an IP packet into a packet of the link, with answers to what came the other way.
    ///
    /// Packets must reach [`HeaderCodec::decompress`] of the other end in this order.
    pub fn compress(&mut self, packet: Bytes) -> Bytes {
        let packed = self.compressor.compress(packet, &self.calls);
        let room = self.mtu_bytes.saturating_sub(packed.len() + 1) / 2;
        let count = self.decompressor.answers.len().min(room).min(MOST_ANSWERS);
        if count == 0 {
            return packed;
        }
        let mut out = BytesMut::with_capacity(packed.len() + 1 + 2 * count);
        out.put_u8(ANSWERS | count as u8);
        for (slot, answer) in self.decompressor.answers.drain(..count) {
            out.put_slice(&[slot, answer]);
        }
        out.put_slice(&packed);
        out.freeze()
    }

    /// Restores an IP packet.
    ///
    /// # Errors
    /// [`HeaderError`] if it cannot be restored, or is not what was compressed: drop it. The other end will hear of it.
    pub fn decompress(&mut self, mut packet: Bytes) -> Result<Bytes, HeaderError> {
        if let Some(&first) = packet.first()
            && first & 0xf0 == ANSWERS
        {
            let end = 1 + 2 * usize::from(first & 0x0f);
            if packet.len() <= end {
                return Err(HeaderError);
            }
            for answer in packet.split_to(end)[1..].as_chunks::<2>().0 {
                self.compressor.handle_answer(answer[0], answer[1]);
            }
        }
        let restored = self.decompressor.decompress(packet)?;
        self.compressor.handle_sign_of_life();
        if let Some(call) = compressor::shape(&restored, &self.calls).and_then(|shape| shape.call) {
            self.calls.insert(&restored, call);
        }
        Ok(restored)
    }
}

/// The calls that were received, so that replies find their context.
#[derive(Debug, Default)]
struct Calls {
    /// Ports, XID, and what was called; the oldest first.
    recent: VecDeque<([u8; 8], Call)>,
}

impl Calls {
    fn insert(&mut self, packet: &[u8], call: Call) {
        if self.recent.len() == CALLS {
            self.recent.pop_front();
        }
        self.recent.push_back((Self::key(&packet[20..24], &packet[rpc::XID..]), call));
    }

    fn find(&self, reply: &[u8], xid: u32) -> Option<Call> {
        let ports = [reply[22], reply[23], reply[20], reply[21]];
        let key = Self::key(&ports, &xid.to_be_bytes());
        // Most replies are to one of the last calls.
        self.recent.iter().rev().find(|(known, _)| *known == key).map(|&(_, call)| call)
    }

    fn key(ports: &[u8], xid: &[u8]) -> [u8; 8] {
        let mut key = [0; 8];
        key[..4].copy_from_slice(&ports[..4]);
        key[4..].copy_from_slice(&xid[..4]);
        key
    }
}

/// CRC-8 with the polynomial x⁸ + x² + x + 1, as RFC 5225 §5.3.1.1 uses it.
fn crc8(parts: &[&[u8]]) -> u8 {
    let mut crc = 0xff;
    for byte in parts.iter().copied().flatten() {
        crc = CRC8[usize::from(crc ^ byte)];
    }
    crc
}

/// CRC-16 with the polynomial x¹⁶ + x¹² + x⁵ + 1 (ITU-T X.25, as RFC 1662).
fn crc16(parts: &[&[u8]]) -> u16 {
    let mut crc = 0xffff_u16;
    for &byte in parts.iter().copied().flatten() {
        crc = crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)];
    }
    crc
}

const CRC8: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x80 == 0 { 0 } else { 0x07 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
