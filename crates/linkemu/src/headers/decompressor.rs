//! The receiving side: what it was told to remember, and what it has to answer.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use super::{COMPRESSED, FULL, GENERATIONS, HeaderError, REFUSED, REMEMBER, crc8, crc16, delta};
use crate::packet::{self, HEADER_BYTES, UDP};

/// Packets in a row that a slot fails to restore before it is refused: one may have been damaged.
const FAILURES: u8 = 3;

/// Headers that the other end may refer to.
#[derive(Debug, Default)]
pub(super) struct Decompressor {
    slots: Vec<Option<Remembered>>,
    /// Slots and answers, the oldest first, one for each slot.
    pub(super) answers: VecDeque<(u8, u8)>,
}

#[derive(Debug)]
struct Remembered {
    generation: u8,
    /// The blank header.
    header: Vec<u8>,
    failures: u8,
}

impl Decompressor {
    pub(super) fn decompress(&mut self, packet: Bytes) -> Result<Bytes, HeaderError> {
        let first = *packet.first().ok_or(HeaderError)?;
        if first & COMPRESSED != 0 {
            return self.restore(&packet);
        }
        match first & 0xf0 {
            FULL => self.learn(&packet),
            0x40 if first == 0x45 && !packet::ip_sum_is_right(&packet) => Err(HeaderError),
            0x40 | 0x60 => Ok(packet),
            _ => Err(HeaderError),
        }
    }

    /// A packet with a full header, which is to be remembered.
    fn learn(&mut self, packet: &[u8]) -> Result<Bytes, HeaderError> {
        let fields = packet.get(..HEADER_BYTES).ok_or(HeaderError)?;
        let (generation, words, slot) = (fields[2], fields[3], fields[9]);
        let crc = u16::from_be_bytes([fields[10], fields[11]]);
        let length = usize::from(words) * 4;
        if !(HEADER_BYTES..=packet.len()).contains(&length) || generation >= GENERATIONS {
            return Err(HeaderError);
        }
        let mut restored = BytesMut::from(packet);
        restored[0] = 0x45;
        restored[9] = UDP;
        packet::set_lengths(&mut restored);
        if crc != crc16(&[&[slot, generation, words], &restored[..length]])
            || !packet::udp_sum_is_right(&restored)
        {
            return Err(HeaderError);
        }
        self.remember(slot, generation, delta::blank(&restored[..length]));
        Ok(restored.freeze())
    }

    fn restore(&mut self, packet: &[u8]) -> Result<Bytes, HeaderError> {
        let (fields, rest) = packet.split_first_chunk::<5>().ok_or(HeaderError)?;
        let &[flags, slot, high, low, crc] = fields;
        let Some(remembered) = self.slots.get_mut(usize::from(slot)).and_then(Option::as_mut) else {
            self.answer(slot, REFUSED);
            return Err(HeaderError);
        };
        let Some((restored, to_remember)) = remembered.restore(flags, [high, low], crc, rest, slot) else {
            remembered.failures += 1;
            if remembered.failures >= FAILURES {
                self.slots[usize::from(slot)] = None;
                self.answer(slot, REFUSED);
            }
            return Err(HeaderError);
        };
        remembered.failures = 0;
        if let Some((slot, generation, header)) = to_remember {
            self.remember(slot, generation, header);
        }
        Ok(restored)
    }

    fn remember(&mut self, slot: u8, generation: u8, header: Vec<u8>) {
        let number = usize::from(slot);
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, || None);
        }
        self.slots[number] = Some(Remembered { generation, header, failures: 0 });
        self.answer(slot, generation);
    }

    fn answer(&mut self, slot: u8, answer: u8) {
        match self.answers.iter_mut().find(|(known, _)| *known == slot) {
            Some(earlier) => earlier.1 = answer,
            None => self.answers.push_back((slot, answer)),
        }
    }
}

/// What a packet leaves in a slot: slot, generation, blank header.
type ToRemember = Option<(u8, u8, Vec<u8>)>;

impl Remembered {
    /// The packet, if CRC and UDP checksum agree that it is the one that was sent.
    fn restore(
        &self,
        flags: u8,
        checksum: [u8; 2],
        crc: u8,
        rest: &[u8],
        slot: u8,
    ) -> Option<(Bytes, ToRemember)> {
        let (remember, rest) = rest.split_at_checked(if flags & REMEMBER == 0 { 0 } else { 2 })?;
        let (header, data) = delta::decode(&self.header, flags, rest)?;
        let whole = header.len() + data.len();
        if whole > usize::from(u16::MAX) {
            return None;
        }
        let mut restored = BytesMut::with_capacity(whole);
        restored.put_slice(&header);
        restored.put_slice(data);
        restored[26..28].copy_from_slice(&checksum);
        packet::set_lengths(&mut restored);
        let right = crc == crc8(&[&[slot, self.generation], remember, &restored[..header.len()]])
            && packet::udp_sum_is_right(&restored);
        let to_remember = match *remember {
            [slot, generation] => Some((slot, generation % GENERATIONS, header)),
            _ => None,
        };
        right.then(|| (restored.freeze(), to_remember))
    }
}
