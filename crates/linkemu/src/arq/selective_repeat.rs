//! Selective repeat with block acknowledgements, in the manner of IEEE 802.11-2020 §10.25.
//!
//! Frames flow one after the other. The last one that can be sent, and every 64th, polls the receiver, which answers
//! with a block acknowledgement at once. The answer names what arrived of everything sent before the poll; the rest is
//! sent again without a pause, since the answer proves that the channel is good. Without an answer the sender pauses and
//! asks with a short request, so that a fade costs one request per pause. A silent poll counts as a failed attempt of
//! every frame that waits for an answer.

use std::collections::VecDeque;

use super::{BlockAck, Data, End, Outcome, Parameters, Signal, Transmission};
use crate::{fragment::Frame, queue::Feed, units::Nanos};

/// One end that keeps a window of frames under way.
#[derive(Debug)]
pub(super) struct SelectiveRepeat {
    parameters: Parameters,
    /// Frames sent and not settled, oldest first; the first has sequence number `floor`.
    window: VecDeque<Waiting>,
    floor: u64,
    /// Frames in the window that must be sent again.
    resends: u32,
    next_serial: u64,
    since_poll: u32,
    /// Unanswered polls: serial number and deadline.
    polls: VecDeque<(u64, Nanos)>,
    recovery: Recovery,
    /// The receiver waits for a frame that was given up, and must be told.
    behind: bool,
    receiver: Reorder,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    frame: Frame,
    failures: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On its way, sent with this serial number.
    Sent(u64),
    /// Reported missing.
    Missing,
    /// Arrived, or given up.
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    /// Nothing to recover.
    None,
    /// Pausing after a silent poll.
    Pause(Nanos),
    /// A request was sent and is in `polls`.
    Asked,
}

/// Frames that arrived ahead of a missing one.
#[derive(Debug, Default)]
struct Reorder {
    /// The sequence number that comes next.
    next: u64,
    /// Frames from `next` on.
    ahead: VecDeque<Option<Frame>>,
}

impl SelectiveRepeat {
    pub(super) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            window: VecDeque::new(),
            floor: 0,
            resends: 0,
            next_serial: 0,
            since_poll: 0,
            polls: VecDeque::new(),
            recovery: Recovery::None,
            behind: false,
            receiver: Reorder::default(),
        }
    }

    fn has_room(&self) -> bool {
        self.window.len() < self.parameters.window_frames as usize
    }

    fn poll(&mut self, serial: u64) -> Nanos {
        self.since_poll = 0;
        self.polls.push_back((serial, Nanos::MAX));
        self.parameters.block_ack
    }

    /// The frame to send: the oldest missing one, else a new one.
    fn pick(&mut self, feed: &mut Feed<'_>) -> Option<usize> {
        if self.resends > 0 {
            self.resends -= 1;
            return self.window.iter().position(|waiting| waiting.state == State::Missing);
        }
        if !self.has_room() {
            return None;
        }
        let frame = feed.pop()?;
        self.window.push_back(Waiting { frame, failures: 0, state: State::Missing });
        Some(self.window.len() - 1)
    }

    /// A failed attempt of the frame at `index`: it is sent again, or given up.
    fn fail(&mut self, index: usize, outcome: &mut Outcome) {
        let sequence = self.floor + index as u64;
        let Some(waiting) = self.window.get_mut(index) else {
            return;
        };
        waiting.failures += 1;
        if waiting.failures <= self.parameters.retry_limit {
            return;
        }
        if waiting.state == State::Missing {
            self.resends -= 1;
        }
        waiting.state = State::Settled;
        outcome.given_up.push(Data { frame: waiting.frame, sequence, serial: 0, floor: 0, poll: false });
    }

    fn advance(&mut self) {
        while self.window.front().is_some_and(|waiting| waiting.state == State::Settled) {
            self.window.pop_front();
            self.floor += 1;
        }
    }

    fn settle(&mut self, report: &BlockAck, outcome: &mut Outcome) {
        for index in 0..self.window.len() {
            let sequence = self.floor + index as u64;
            let arrived = sequence < report.floor || report.has(sequence);
            let waiting = &mut self.window[index];
            match waiting.state {
                State::Settled => {}
                State::Missing if arrived => {
                    waiting.state = State::Settled;
                    self.resends -= 1;
                }
                State::Sent(_) if arrived => waiting.state = State::Settled,
                State::Sent(serial) if serial <= report.serial => {
                    waiting.state = State::Missing;
                    self.resends += 1;
                    self.fail(index, outcome);
                }
                State::Sent(_) | State::Missing => {}
            }
        }
        self.advance();
    }

    /// Whether frames are under way that no poll, sent or due with the next frame, will ask about.
    fn unpolled(&self) -> bool {
        self.polls.is_empty() && !self.window.is_empty()
    }

    fn request(&mut self) -> Transmission {
        let (serial, floor) = (self.next_serial, self.floor);
        self.next_serial += 1;
        self.recovery = Recovery::Asked;
        self.behind = false;
        Transmission { signal: Signal::BlockAckRequest { serial, floor }, answer: self.poll(serial) }
    }
}

impl BlockAck {
    fn has(&self, sequence: u64) -> bool {
        let Some(offset) = sequence.checked_sub(self.floor) else {
            return true;
        };
        let word = self.arrived.get((offset / 64) as usize);
        word.is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }
}

impl End for SelectiveRepeat {
    fn ready(&self, now: Nanos, backlog: bool) -> bool {
        match self.recovery {
            Recovery::Pause(until) => now >= until,
            Recovery::Asked => false,
            Recovery::None => {
                self.resends > 0 || (backlog && self.has_room()) || self.behind || self.unpolled()
            }
        }
    }

    fn next(&mut self, now: Nanos, feed: &mut Feed<'_>) -> Option<Transmission> {
        if self.recovery != Recovery::None {
            return Some(self.request());
        }
        let Some(index) = self.pick(feed) else {
            return (self.behind || self.unpolled()).then(|| self.request());
        };
        let serial = self.next_serial;
        self.next_serial += 1;
        self.behind = false;
        self.since_poll += 1;
        let (sequence, floor) = (self.floor + index as u64, self.floor);
        let waiting = &mut self.window[index];
        waiting.state = State::Sent(serial);
        waiting.frame.attempts += 1;
        waiting.frame.first_air = waiting.frame.first_air.min(now);
        let frame = waiting.frame;
        let more = self.resends > 0 || (self.has_room() && feed.has_more());
        let poll = !more || self.since_poll >= self.parameters.block_frames;
        let answer = if poll { self.poll(serial) } else { 0 };
        Some(Transmission { signal: Signal::Data(Data { frame, sequence, serial, floor, poll }), answer })
    }

    fn await_answer(&mut self, deadline: Nanos) {
        if let Some((_, until)) = self.polls.back_mut() {
            *until = deadline;
        }
    }

    fn receive(&mut self, _now: Nanos, signal: Signal, outcome: &mut Outcome) -> Option<Transmission> {
        let (serial, poll) = match signal {
            Signal::Data(data) => {
                self.receiver.advance(data.floor, outcome);
                self.receiver.accept(data, outcome);
                (data.serial, data.poll)
            }
            Signal::BlockAckRequest { serial, floor } => {
                self.receiver.advance(floor, outcome);
                (serial, true)
            }
            Signal::BlockAck(report) => {
                self.polls.retain(|&(serial, _)| serial > report.serial);
                self.recovery = Recovery::None;
                self.settle(&report, outcome);
                self.behind = report.floor < self.floor;
                return None;
            }
            Signal::Ack { .. } | Signal::Rts | Signal::Cts => return None,
        };
        poll.then(|| Transmission { signal: Signal::BlockAck(self.receiver.report(serial)), answer: 0 })
    }

    fn handle_timeout(&mut self, now: Nanos, outcome: &mut Outcome) {
        let Some(&(serial, deadline)) = self.polls.front() else {
            return;
        };
        if now < deadline {
            return;
        }
        outcome.failures += 1;
        // Later polls are of the same silence.
        self.polls.clear();
        self.recovery = Recovery::Pause(deadline + self.parameters.retry);
        for index in 0..self.window.len() {
            if matches!(self.window[index].state, State::Sent(sent) if sent <= serial) {
                self.fail(index, outcome);
            }
        }
        self.advance();
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        match self.recovery {
            Recovery::Pause(until) => Some(until),
            Recovery::None | Recovery::Asked => self.polls.front().map(|&(_, deadline)| deadline),
        }
    }

    fn idle(&self) -> bool {
        self.window.is_empty() && self.recovery == Recovery::None && !self.behind
    }

    fn has(&self, sequence: u64) -> bool {
        self.receiver.has(sequence)
    }
}

impl Reorder {
    fn has(&self, sequence: u64) -> bool {
        let Some(offset) = sequence.checked_sub(self.next) else {
            return true;
        };
        self.ahead.get(offset as usize).is_some_and(Option::is_some)
    }

    fn accept(&mut self, data: Data, outcome: &mut Outcome) {
        if self.has(data.sequence) {
            outcome.duplicates += 1;
            return;
        }
        let offset = (data.sequence - self.next) as usize;
        if offset == 0 && self.ahead.is_empty() {
            self.next += 1;
            outcome.up.push(data.frame);
            return;
        }
        if self.ahead.len() <= offset {
            self.ahead.resize(offset + 1, None);
        }
        self.ahead[offset] = Some(data.frame);
        self.flush(outcome);
    }

    /// Passes up what is next in order.
    fn flush(&mut self, outcome: &mut Outcome) {
        while let Some(&Some(frame)) = self.ahead.front() {
            self.ahead.pop_front();
            self.next += 1;
            outcome.up.push(frame);
        }
    }

    /// Stops waiting for frames before `floor`: what arrived of them goes up, in order.
    fn advance(&mut self, floor: u64, outcome: &mut Outcome) {
        while self.next < floor {
            outcome.up.extend(self.ahead.pop_front().flatten());
            self.next += 1;
        }
        self.flush(outcome);
    }

    fn report(&self, serial: u64) -> BlockAck {
        let mut arrived = vec![0_u64; self.ahead.len().div_ceil(64)];
        for (offset, slot) in self.ahead.iter().enumerate() {
            if slot.is_some() {
                arrived[offset / 64] |= 1 << (offset % 64);
            }
        }
        BlockAck { serial, floor: self.next, arrived }
    }
}
