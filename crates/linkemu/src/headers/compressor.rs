//! The sending side: which remembered header a packet is compared with, and which one is to be remembered next.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    COMPRESSED, Calls, FULL, GENERATIONS, REFUSED, REMEMBER, crc8, crc16, delta,
    rpc::{self, Shape},
};
use crate::packet::{self, HEADER_BYTES, UDP};

/// Longest header that a full packet can announce: 255 words.
const LONGEST_HEADER: usize = 255 * 4;
/// A compressed header of more bytes than this makes it worth while to remember a newer one.
const SHORT: usize = 7;
/// Packets between headers that are remembered only to keep others short.
const RENEWAL: u64 = 8;
/// Packets into a silence after which the other end may not understand us.
const UNHEARD: u32 = 4;

/// Headers that the other end was told to remember.
#[derive(Debug, Default)]
pub(super) struct Compressor {
    slots: Vec<Slot>,
    /// Packets compressed so far.
    packets: u64,
    /// Packets since something was heard from the other end.
    unheard: u32,
}

#[derive(Debug)]
struct Slot {
    state: State,
    generation: u8,
    context: u64,
    family: u64,
    /// The blank header.
    header: Vec<u8>,
    /// The packet that carried it, and the last that was compared with it.
    written: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Sent,
    Acknowledged,
}

/// The shape of an IPv4 packet without options or fragments, with a UDP datagram; `None` for anything else.
pub(super) fn shape(packet: &[u8], calls: &Calls) -> Option<Shape> {
    let header = packet.get(..HEADER_BYTES)?;
    let whole = packet.len() == usize::from(u16::from_be_bytes([header[2], header[3]]))
        && packet.len() == 20 + usize::from(u16::from_be_bytes([header[24], header[25]]));
    let fragment = (u16::from(header[6]) << 8 | u16::from(header[7])) & 0x3fff != 0;
    (header[0] == 0x45 && header[9] == UDP && whole && !fragment)
        .then(|| rpc::shape(packet, |xid| calls.find(packet, xid)))
        .filter(|shape| shape.length <= LONGEST_HEADER)
}

impl Compressor {
    pub(super) fn compress(&mut self, packet: Bytes, calls: &Calls) -> Bytes {
        self.packets += 1;
        let Some(shape) = shape(&packet, calls) else {
            return packet;
        };
        if !packet::ip_sum_is_right(&packet) || !packet::udp_sum_is_right(&packet) {
            return packet;
        }
        self.unheard = self.unheard.saturating_add(1);
        let image = delta::blank(&packet[..shape.length]);
        let lost = self.unheard >= UNHEARD && self.unheard.is_power_of_two();
        let short = if lost { None } else { self.compare(&packet, &shape, &image) };
        match short {
            Some(packed) => packed,
            None if lost || self.is_due(&shape, 1, 0) => self.full(&packet, &shape, image),
            None => packet,
        }
    }

    /// The other end has said something about a slot.
    pub(super) fn handle_answer(&mut self, number: u8, answer: u8) {
        let Some(slot) = self.slots.get_mut(usize::from(number)) else {
            return;
        };
        if answer & REFUSED != 0 {
            slot.state = State::Free;
        } else if slot.generation == answer && slot.state == State::Sent {
            slot.state = State::Acknowledged;
            let (context, written) = (slot.context, slot.written);
            // This header serves better than those before it.
            for older in &mut self.slots {
                if older.context == context && older.written < written {
                    older.state = State::Free;
                }
            }
        }
    }

    /// The other end is there, and was understood.
    pub(super) fn handle_sign_of_life(&mut self) {
        self.unheard = 0;
    }

    /// The compressed packet, if there is something to compare it with and it gets shorter.
    fn compare(&mut self, packet: &Bytes, shape: &Shape, image: &[u8]) -> Option<Bytes> {
        let base = self.base(shape)?;
        let slot = &mut self.slots[base];
        slot.used = self.packets;
        let own = slot.context == shape.context;
        let mut difference = Vec::with_capacity(16);
        let mut flags = delta::encode(&slot.header, image, &mut difference);
        let generation = slot.generation;
        // No newer header makes an XID shorter that is given.
        let given = if flags & delta::GIVEN_XID == 0 { 0 } else { 4 };
        let long = 5 + difference.len() - given > SHORT;
        let due = if own { long && self.is_due(shape, RENEWAL, RENEWAL) } else { self.is_due(shape, 1, 0) };
        if 5 + 2 * usize::from(due) + difference.len() >= shape.length {
            return None;
        }
        let remember = if due {
            flags |= REMEMBER;
            let number = self.remember(shape, image.to_vec(), base);
            &[number as u8, self.slots[number].generation][..]
        } else {
            &[]
        };
        let crc = crc8(&[&[base as u8, generation], remember, &packet[..shape.length]]);
        let mut out = BytesMut::with_capacity(packet.len());
        out.put_slice(&[COMPRESSED | flags, base as u8, packet[26], packet[27], crc]);
        out.put_slice(remember);
        out.put_slice(&difference);
        out.put_slice(&packet[shape.length..]);
        Some(out.freeze())
    }

    fn full(&mut self, packet: &Bytes, shape: &Shape, image: Vec<u8>) -> Bytes {
        let number = self.remember(shape, image, usize::MAX);
        let (slot, generation) = (number as u8, self.slots[number].generation);
        let words = (shape.length / 4) as u8;
        let crc = crc16(&[&[slot, generation, words], &packet[..shape.length]]);
        let mut out = BytesMut::from(&packet[..]);
        out[0] = FULL | (out[0] & 0x0f);
        out[2..4].copy_from_slice(&[generation, words]);
        out[9] = slot;
        out[10..12].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }

    /// The newest acknowledged header of this context, or else of its family.
    fn base(&self, shape: &Shape) -> Option<usize> {
        let usable = |slot: &Slot| {
            slot.state == State::Acknowledged
                && slot.family == shape.family
                && slot.header.len() == shape.length
        };
        let (number, _) = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| usable(slot))
            .max_by_key(|(_, slot)| (slot.context == shape.context, slot.written))?;
        Some(number)
    }

    /// Whether another header of this context should be remembered: the more of them wait for an answer, the further apart.
    fn is_due(&self, shape: &Shape, spacing: u64, least: u64) -> bool {
        let waiting =
            self.slots.iter().filter(|slot| slot.context == shape.context && slot.state != State::Free);
        let (count, last) = waiting.fold((0, 0), |(count, last), slot| {
            (count + u64::from(slot.state == State::Sent), slot.written.max(last))
        });
        last == 0 || self.packets - last >= least + spacing * count
    }

    /// Puts a header into the slot that is missed least, but not into `spared`.
    fn remember(&mut self, shape: &Shape, header: Vec<u8>, spared: usize) -> usize {
        let free = self.slots.iter().position(|slot| slot.state == State::Free);
        let number = match free {
            Some(number) => number,
            None if self.slots.len() < 256 => {
                self.slots.push(Slot {
                    state: State::Free,
                    generation: 0,
                    context: 0,
                    family: 0,
                    header: Vec::new(),
                    written: 0,
                    used: 0,
                });
                self.slots.len() - 1
            }
            None => {
                let others = self.slots.iter().enumerate().filter(|&(number, _)| number != spared);
                others.min_by_key(|(_, slot)| slot.used.max(slot.written)).map_or(0, |(number, _)| number)
            }
        };
        let slot = &mut self.slots[number];
        *slot = Slot {
            state: State::Sent,
            generation: (slot.generation + 1) % GENERATIONS,
            context: shape.context,
            family: shape.family,
            header,
            written: self.packets,
            used: self.packets,
        };
        number
    }
}
