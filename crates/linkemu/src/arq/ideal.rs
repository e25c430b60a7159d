//! Hold and release: the emulation of link-level retransmission of Dube et al. 1997 §5.3.
//!
//! The receiving end is an oracle: a frame that the channel took away is held and passed up when the channel is good
//! again. Nothing is sent twice, so a transfer can end before the channel has offered enough good time for it.

use std::collections::VecDeque;

use super::{End, Outcome, Signal, Transmission, none::Plain};
use crate::{fragment::Frame, queue::Feed, units::Nanos};

/// Sends every frame once and loses none.
#[derive(Debug, Default)]
pub(super) struct Ideal {
    sender: Plain,
    /// Frames that met a bad period and the time of its end, in the order sent; times never decrease.
    held: VecDeque<(Nanos, Frame)>,
}

impl Ideal {
    fn release(&mut self, now: Nanos, outcome: &mut Outcome) {
        while self.held.front().is_some_and(|&(at, _)| at <= now) {
            outcome.up.extend(self.held.pop_front().map(|(_, frame)| frame));
        }
    }
}

impl End for Ideal {
    fn ready(&self, now: Nanos, backlog: bool) -> bool {
        self.sender.ready(now, backlog)
    }

    fn next(&mut self, now: Nanos, feed: &mut Feed<'_>) -> Option<Transmission> {
        self.sender.next(now, feed)
    }

    fn receive(&mut self, now: Nanos, signal: Signal, outcome: &mut Outcome) -> Option<Transmission> {
        self.release(now, outcome);
        self.sender.receive(now, signal, outcome)
    }

    fn rescue(&mut self, signal: &Signal, good_again: Nanos) -> bool {
        if let Signal::Data(data) = signal {
            let after = self.held.back().map_or(0, |&(at, _)| at);
            self.held.push_back((good_again.max(after), data.frame));
        }
        true
    }

    fn handle_timeout(&mut self, now: Nanos, outcome: &mut Outcome) {
        self.release(now, outcome);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.held.front().map(|&(at, _)| at)
    }

    fn idle(&self) -> bool {
        true
    }

    fn has(&self, _sequence: u64) -> bool {
        false
    }
}
