//! A bounded queue before the medium and the choice of what goes next.

use std::collections::VecDeque;

use crate::{
    LinkConfig, Scheduler,
    arq::End,
    fragment::Frame,
    units::{Nanos, nanos},
};

/// The frames of one station that are not on the air yet, and the ends that send them.
///
/// Bounded in packets and bytes; a frame that does not fit is refused (drop tail). Frames that an end has taken for
/// retransmission no longer count.
#[derive(Debug)]
pub(crate) struct Queue {
    scheduler: Scheduler,
    /// One lane in all, or one per end.
    lanes: Vec<VecDeque<Frame>>,
    /// Numbers of the ends of this station.
    ends: Vec<u32>,
    most_packets: usize,
    most_bytes: u64,
    packets: usize,
    bytes: u64,
    /// The end that sent last, as an index of `ends`.
    turn: usize,
    /// The datagram that sent last.
    datagram: u64,
    /// Until when each end is passed over.
    marked: Vec<Nanos>,
    bad_mark: Nanos,
}

/// Access to the frames of one end.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    queue: &'a mut Queue,
    position: usize,
}

impl Queue {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self {
            scheduler: config.queue.scheduler,
            lanes: vec![VecDeque::new()],
            ends: Vec::new(),
            most_packets: config.queue_packets() as usize,
            most_bytes: config.queue.bytes.unwrap_or(u64::MAX),
            packets: 0,
            bytes: 0,
            turn: 0,
            datagram: u64::MAX,
            marked: Vec::new(),
            bad_mark: nanos(config.queue.bad_mark),
        }
    }

    /// Adds an end that sends for this station.
    pub(crate) fn add_end(&mut self, end: u32) {
        self.ends.push(end);
        self.marked.push(0);
        if self.scheduler != Scheduler::Fifo && self.ends.len() > self.lanes.len() {
            self.lanes.push(VecDeque::new());
        }
    }

    /// Takes a frame; false if it does not fit. `position` is that of its end in this station.
    pub(crate) fn push(&mut self, frame: Frame, position: usize) -> bool {
        if self.packets >= self.most_packets || self.bytes + u64::from(frame.bytes) > self.most_bytes {
            return false;
        }
        self.packets += 1;
        self.bytes += u64::from(frame.bytes);
        let lane = if self.lanes.len() == 1 { 0 } else { position };
        self.lanes[lane].push_back(frame);
        true
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The end of this station at `position`.
    pub(crate) fn end(&self, position: usize) -> usize {
        self.ends[position] as usize
    }

    /// The next frame of the end at `position`.
    pub(crate) fn head(&mut self, position: usize) -> Option<&mut Frame> {
        let (end, lane) = (self.ends[position], if self.lanes.len() == 1 { 0 } else { position });
        self.lanes[lane].front_mut().filter(|frame| frame.end == end)
    }

    pub(crate) fn feed(&mut self, position: usize) -> Feed<'_> {
        Feed { queue: self, position }
    }

    /// An attempt of the end at `position` failed.
    pub(crate) fn mark(&mut self, now: Nanos, position: usize) {
        self.marked[position] = now + self.bad_mark;
    }

    /// The position of the end that sends now, if any is ready.
    pub(crate) fn choose(&mut self, now: Nanos, ends: &[Box<dyn End>]) -> Option<usize> {
        let chosen = match self.scheduler {
            Scheduler::Fifo => self.choose_fifo(now, ends),
            Scheduler::RoundRobinFrame => self.next_ready(now, ends, |_| true),
            Scheduler::RoundRobinDatagram => self.choose_datagram(now, ends),
            Scheduler::ChannelState => {
                let marked = std::mem::take(&mut self.marked);
                let chosen = self
                    .next_ready(now, ends, |position| marked[position] <= now)
                    .or_else(|| self.next_ready(now, ends, |_| true));
                self.marked = marked;
                chosen
            }
        }?;
        self.turn = chosen;
        Some(chosen)
    }

    /// The frame at the head holds up all others: while an end waits for the fate of a frame, no other end sends.
    fn choose_fifo(&self, now: Nanos, ends: &[Box<dyn End>]) -> Option<usize> {
        let head = self.lanes[0].front().map(|frame| frame.end);
        let busy = self.ends.get(self.turn).filter(|&&end| !ends[end as usize].idle());
        let end = busy.copied().or(head)?;
        if !ends[end as usize].ready(now, head == Some(end)) {
            return None;
        }
        if self.ends.get(self.turn) == Some(&end) {
            return Some(self.turn);
        }
        // The ends of a station are numbered in the order of their positions.
        self.ends.binary_search(&end).ok()
    }

    /// Stays with a datagram until its last frame has been sent, unless its end must wait.
    fn choose_datagram(&self, now: Nanos, ends: &[Box<dyn End>]) -> Option<usize> {
        let lane = self.lanes.get(self.turn)?;
        let same = lane.front().is_some_and(|frame| frame.datagram == self.datagram);
        if same && ends[self.end(self.turn)].ready(now, true) {
            return Some(self.turn);
        }
        self.next_ready(now, ends, |_| true)
    }

    fn next_ready(
        &self,
        now: Nanos,
        ends: &[Box<dyn End>],
        allowed: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let count = self.ends.len();
        (1..=count).map(|step| (self.turn + step) % count).find(|&position| {
            allowed(position) && ends[self.end(position)].ready(now, !self.lanes[position].is_empty())
        })
    }
}

impl Feed<'_> {
    /// The next frame for this end.
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        if !self.has_more() {
            return None;
        }
        let lane = self.lane();
        let frame = self.queue.lanes[lane].pop_front()?;
        self.queue.packets -= 1;
        self.queue.bytes -= u64::from(frame.bytes);
        self.queue.datagram = frame.datagram;
        Some(frame)
    }

    /// Whether another frame could be popped now.
    pub(crate) fn has_more(&self) -> bool {
        let end = self.queue.ends[self.position];
        self.queue.lanes[self.lane()].front().is_some_and(|frame| frame.end == end)
    }

    fn lane(&self) -> usize {
        if self.queue.lanes.len() == 1 { 0 } else { self.position }
    }
}
