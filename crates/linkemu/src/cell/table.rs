//! The datagrams that have a frame under way.

use bytes::Bytes;

use crate::{Content, Endpoint, Fate, units::Nanos};

/// Datagrams under way, in places that are used again.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    next: u64,
}

/// One datagram under way.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) datagram: u64,
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    pub(super) content: Content,
    pub(super) payload: Bytes,
    /// Its frames, those whose fate is open, and those that arrived.
    pub(super) frames: u16,
    pub(super) open: u16,
    pub(super) arrived: u16,
    pub(super) identification: u16,
    /// The IP packet, and its fragments as they cross the medium, where headers are compressed.
    pub(super) packet: Bytes,
    pub(super) on_the_link: Vec<(u16, Bytes)>,
    pub(super) offered: Nanos,
    pub(super) first_air: Nanos,
    pub(super) transmissions: u32,
    pub(super) fate: Option<(Fate, Nanos)>,
}

impl Table {
    /// The number of the next datagram.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        }
    }

    pub(super) fn entry(&mut self, slot: u32, datagram: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(slot as usize)?.as_mut()?;
        (entry.datagram == datagram).then_some(entry)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(entry)
    }

    /// Empties the table, oldest place first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Entry> {
        self.free.clear();
        std::mem::take(&mut self.entries).into_iter().flatten()
    }
}
