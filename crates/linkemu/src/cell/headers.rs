//! Header compression at both ends of the medium.

use super::{Cell, table::Table};
use crate::{
    Content, HeaderCodec, Stats,
    fragment::Frame,
    packet::{self, HEADER_BYTES},
};

/// Compresses a frame that is next to go on the air, once: what a queue drops is never compressed.
pub(super) fn compress(
    codec: &mut HeaderCodec,
    table: &mut Table,
    stats: &mut Stats,
    mtu_bytes: u32,
    frame: &mut Frame,
) {
    let Some(entry) = table.entry(frame.slot, frame.datagram) else {
        return;
    };
    if entry.on_the_link.iter().any(|&(index, _)| index == frame.index) {
        return;
    }
    if entry.packet.is_empty() {
        entry.packet = match entry.content {
            Content::UdpPayload => {
                packet::udp(entry.from, entry.to, entry.identification, &entry.payload).into()
            }
            Content::IpPacket => entry.payload.clone(),
        };
    }
    let packet = match entry.frames {
        1 => entry.packet.clone(),
        count => packet::fragment(&entry.packet, mtu_bytes, frame.index.into(), count.into()).into(),
    };
    let length = packet.len() as u32;
    let packed = codec.compress(packet);
    let packed_length = packed.len() as u32;
    if packed_length < length {
        stats.headers_compressed += 1;
        stats.header_bytes_saved += u64::from(length - packed_length);
    }
    frame.air_bytes = frame.bytes + packed_length - length;
    entry.on_the_link.push((frame.index, packed));
}

impl Cell {
    /// A frame has reached `end`: a datagram of one frame is from here on what was made of the packet on the link. False if
    /// nothing was.
    pub(super) fn decompress(&mut self, end: usize, frame: Frame) -> bool {
        let Some(codec) = self.codecs.get_mut(end) else {
            return true;
        };
        let Some(entry) = self.table.entry(frame.slot, frame.datagram) else {
            return true;
        };
        let Some(place) = entry.on_the_link.iter().position(|&(index, _)| index == frame.index) else {
            return true;
        };
        let (_, packet) = entry.on_the_link.swap_remove(place);
        let Ok(restored) = codec.decompress(packet) else {
            return false;
        };
        if entry.frames == 1 {
            let payload = match entry.content {
                Content::UdpPayload => restored.slice(HEADER_BYTES.min(restored.len())..),
                Content::IpPacket => restored,
            };
            debug_assert_eq!(payload, entry.payload, "a wrong packet was restored");
            entry.payload = payload;
        }
        true
    }
}
