//! The receiving half: bytes in order, SACK and D-SACK blocks, delayed acknowledgements, the receive window.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::segment::{MAX_SACK_BLOCKS, MSS};

/// Receive buffer in bytes: the constant in place of Linux' autotuning, whose most it is (`tcp_rmem`). Where the path holds less
/// autotuning ends above what the sender uses.
pub(crate) const RECEIVE_BUFFER: u64 = 6 << 20;

/// Delay of an acknowledgement (`TCP_ATO_MIN`); RFC 1122 §4.2.3.2 allows 500 ms.
const DELAY: Duration = Duration::from_millis(40);

/// Segments that are acknowledged at once when data begins to arrive (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;

/// What has arrived.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The next byte expected, and what the last acknowledgement said about it.
    next: u64,
    told: u64,
    /// The right edge of the window last told.
    edge: u64,
    /// In order, not read.
    ready: VecDeque<Bytes>,
    ready_bytes: u64,
    early: BTreeMap<u64, Bytes>,
    early_bytes: u64,
    /// Blocks of `early`, those that changed last first (RFC 2018 §4).
    blocks: Vec<(u64, u64)>,
    /// Bytes that came a second time (RFC 2883 §4).
    duplicate: Option<(u64, u64)>,
    is_due: bool,
    delayed: Option<Instant>,
    quick: u32,
    /// Calls go out shortly after data has come in: acknowledgements travel with them (`pingpong`).
    is_interactive: bool,
    heard: Option<Instant>,
}

impl Receiver {
    /// Starts with the first byte that is expected.
    pub(super) const fn new(next: u64) -> Self {
        Self {
            next,
            told: next,
            edge: next + RECEIVE_BUFFER,
            ready: VecDeque::new(),
            ready_bytes: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            blocks: Vec::new(),
            duplicate: None,
            is_due: false,
            delayed: None,
            quick: QUICK,
            is_interactive: false,
            heard: None,
        }
    }

    /// Takes data (RFC 9293 §3.10.7.4); `timeout` is our own retransmission timeout, after which a sender is in slow start.
    pub(super) fn handle_data(&mut self, now: Instant, start: u64, data: Bytes, timeout: Duration) {
        let end = start + data.len() as u64;
        if end <= self.next {
            (self.duplicate, self.is_due) = (Some((start, end)), true);
            return;
        }
        if end > self.edge {
            // Beyond the window: said, and dropped.
            self.is_due = true;
            return;
        }
        if self.heard.is_some_and(|heard| now.saturating_duration_since(heard) > timeout) {
            self.quick = QUICK;
        }
        self.heard = Some(now);
        if start > self.next {
            self.take_early(start, end, data);
            self.is_due = true;
            return;
        }
        if start < self.next {
            self.duplicate = Some((start, self.next));
        }
        let fills_gap = !self.early.is_empty();
        self.append(data.slice((self.next - start) as usize..));
        while let Some(entry) = self.early.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (start, data) = entry.remove_entry();
            self.early_bytes -= data.len() as u64;
            let known = (self.next - start).min(data.len() as u64);
            self.append(data.slice(known as usize..));
        }
        self.blocks.retain(|&(_, end)| end > self.next);
        let is_quick = self.quick > 0 && !self.is_interactive;
        self.quick = self.quick.saturating_sub(u32::from(is_quick));
        if fills_gap || is_quick || self.next - self.told > MSS || self.duplicate.is_some() {
            self.is_due = true;
        } else if self.delayed.is_none() {
            self.delayed = Some(now + DELAY);
        }
    }

    /// Reads what is next; `None` when nothing is there.
    pub(super) fn read(&mut self) -> Option<Bytes> {
        let data = self.ready.pop_front()?;
        self.ready_bytes -= data.len() as u64;
        // A window that was nearly closed and has opened is told at once (RFC 9293 §3.8.6.2.2).
        let (told, now) = (self.edge - self.next.min(self.edge), self.window());
        self.is_due |= told < RECEIVE_BUFFER / 4 && now >= 2 * told && now >= 2 * MSS;
        Some(data)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The next byte expected, and what was last said about it.
    pub(super) const fn expected(&self) -> u64 {
        self.next
    }

    pub(super) const fn told(&self) -> u64 {
        self.told
    }

    /// Whether a segment begins in the window, or in what has arrived lately.
    pub(super) const fn is_within(&self, sequence: u64) -> bool {
        self.next <= sequence && sequence <= self.edge
    }

    pub(super) const fn is_before(&self, sequence: u64) -> bool {
        sequence < self.next && self.next - sequence <= 2 * RECEIVE_BUFFER
    }

    /// Records that data of ours leaves now.
    pub(super) fn handle_sent(&mut self, now: Instant) {
        if self.heard.is_some_and(|heard| now.saturating_duration_since(heard) < DELAY) {
            self.is_interactive = true;
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.delayed.is_some_and(|at| at <= now) {
            self.is_due = true;
            self.is_interactive = false;
        }
    }

    /// An acknowledgement that waits for nothing.
    pub(super) const fn request(&mut self) {
        self.is_due = true;
    }

    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// What the next segment says: acknowledgement, window and blocks. It is said then.
    pub(super) fn tell(&mut self) -> (u64, u64, Vec<(u64, u64)>) {
        (self.told, self.is_due, self.delayed) = (self.next, false, None);
        self.edge = self.edge.max(self.next + self.window());
        let blocks = self.duplicate.take().into_iter().chain(self.blocks.iter().copied());
        (self.next, self.edge - self.next, blocks.take(MAX_SACK_BLOCKS).collect())
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        if self.is_due { None } else { self.delayed }
    }

    const fn window(&self) -> u64 {
        RECEIVE_BUFFER.saturating_sub(self.ready_bytes + self.early_bytes)
    }

    fn append(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.next += data.len() as u64;
            self.ready_bytes += data.len() as u64;
            self.ready.push_back(data);
        }
    }

    fn take_early(&mut self, start: u64, end: u64, data: Bytes) {
        let is_known = self.blocks.iter().any(|&(from, to)| from <= start && end <= to);
        if is_known {
            self.duplicate = Some((start, end));
        } else if self.early.get(&start).is_none_or(|known| known.len() < data.len()) {
            let length = data.len() as u64;
            let replaced = self.early.insert(start, data).map_or(0, |known| known.len() as u64);
            self.early_bytes = self.early_bytes + length - replaced;
        }
        let mut block = (start, end);
        self.blocks.retain(|&(from, to)| {
            let touches = from <= end && start <= to;
            if touches {
                block = (block.0.min(from), block.1.max(to));
            }
            !touches
        });
        self.blocks.insert(0, block);
    }
}

#[cfg(test)]
mod tests {
    use linkemu::virtual_epoch;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn data(length: u64) -> Bytes {
        vec![0; length as usize].into()
    }

    /// A receiver that has acknowledged its first segments at once.
    fn warm(epoch: Instant) -> Receiver {
        let mut receiver = Receiver::new(0);
        for number in 0..u64::from(QUICK) {
            receiver.handle_data(epoch, number * MSS, data(MSS), TIMEOUT);
            assert!(receiver.is_due(), "segment {number} of a beginning");
            receiver.tell();
        }
        receiver
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_single_one_after_40_ms() {
        let epoch = virtual_epoch();
        let mut receiver = warm(epoch);
        let from = u64::from(QUICK) * MSS;
        receiver.handle_data(epoch, from, data(MSS), TIMEOUT);
        assert_eq!((receiver.is_due(), receiver.poll_timeout()), (false, Some(epoch + DELAY)));
        receiver.handle_data(epoch, from + MSS, data(MSS), TIMEOUT);
        assert!(receiver.is_due());
        assert_eq!(receiver.tell().0, from + 2 * MSS);
        receiver.handle_data(epoch, from + 2 * MSS, data(MSS), TIMEOUT);
        receiver.handle_timeout(epoch + DELAY);
        assert!(receiver.is_due());
    }

    /// RFC 2018 §4, the third example: of eight segments 2, 4, 6 and 8 are lost.
    #[test]
    fn blocks_name_the_latest_first() {
        let (epoch, mut receiver) = (virtual_epoch(), Receiver::new(5000));
        let mut told = Vec::new();
        for start in [5000, 6000, 7000, 8000] {
            receiver.handle_data(epoch, start, data(500), TIMEOUT);
            let (ack, _, blocks) = receiver.tell();
            told.push((ack, blocks));
        }
        assert_eq!(
            told,
            [
                (5500, vec![]),
                (5500, vec![(6000, 6500)]),
                (5500, vec![(7000, 7500), (6000, 6500)]),
                (5500, vec![(8000, 8500), (7000, 7500), (6000, 6500)]),
            ]
        );
        // The fourth segment arrives after all, then the second.
        receiver.handle_data(epoch, 6500, data(500), TIMEOUT);
        assert_eq!(receiver.tell().2, [(6000, 7500), (8000, 8500)]);
        receiver.handle_data(epoch, 5500, data(500), TIMEOUT);
        let (ack, _, blocks) = receiver.tell();
        assert_eq!((ack, blocks), (7500, vec![(8000, 8500)]));
    }

    /// RFC 2883 §4.1: a segment that came twice is the first block, once.
    #[test]
    fn duplicates_are_told_once() {
        let (epoch, mut receiver) = (virtual_epoch(), Receiver::new(3000));
        receiver.handle_data(epoch, 3000, data(500), TIMEOUT);
        receiver.handle_data(epoch, 4000, data(500), TIMEOUT);
        receiver.handle_data(epoch, 3000, data(500), TIMEOUT);
        assert_eq!(receiver.tell().2, [(3000, 3500), (4000, 4500)]);
        assert_eq!(receiver.tell().2, [(4000, 4500)]);
        receiver.handle_data(epoch, 4000, data(500), TIMEOUT);
        assert_eq!(receiver.tell().2, [(4000, 4500), (4000, 4500)]);
    }

    #[test]
    fn a_full_buffer_closes_the_window_and_reading_opens_it() {
        let (epoch, mut receiver) = (virtual_epoch(), Receiver::new(0));
        let mut at = 0;
        while at < RECEIVE_BUFFER {
            let length = MSS.min(RECEIVE_BUFFER - at);
            receiver.handle_data(epoch, at, data(length), TIMEOUT);
            at += length;
        }
        assert_eq!(receiver.tell(), (RECEIVE_BUFFER, 0, vec![]));
        receiver.handle_data(epoch, at, data(1), TIMEOUT);
        assert_eq!(
            (receiver.is_due(), receiver.tell().0),
            (true, RECEIVE_BUFFER),
            "no byte beyond the window"
        );
        receiver.read();
        assert!(!receiver.is_due(), "no silly window");
        receiver.read();
        receiver.read();
        assert!(receiver.is_due());
        assert_eq!(receiver.tell().1, 3 * MSS);
    }
}
