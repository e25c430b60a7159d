//! No retransmission: what the channel loses is lost.

use super::{Data, End, Outcome, Signal, Transmission};
use crate::{queue::Feed, units::Nanos};

/// Sends every frame once.
#[derive(Debug, Default)]
pub(super) struct Plain {
    next_sequence: u64,
}

impl End for Plain {
    fn ready(&self, _now: Nanos, backlog: bool) -> bool {
        backlog
    }

    fn next(&mut self, now: Nanos, feed: &mut Feed<'_>) -> Option<Transmission> {
        let mut frame = feed.pop()?;
        frame.first_air = now;
        frame.attempts = 1;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Some(Transmission {
            signal: Signal::Data(Data { frame, sequence, serial: sequence, floor: sequence, poll: false }),
            answer: 0,
        })
    }

    fn receive(&mut self, _now: Nanos, signal: Signal, outcome: &mut Outcome) -> Option<Transmission> {
        if let Signal::Data(data) = signal {
            outcome.up.push(data.frame);
        }
        None
    }

    fn handle_timeout(&mut self, _now: Nanos, _outcome: &mut Outcome) {}

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn idle(&self) -> bool {
        true
    }

    fn has(&self, _sequence: u64) -> bool {
        false
    }
}
