//! One frame at a time until it is acknowledged: the machine behind stop-and-wait and RTS-CTS.
//!
//! An exchange is `[RTS, CTS,] DATA, ACK`. An attempt fails when an expected answer stays away; the next one starts no
//! earlier than the retry pause after that. Every failed attempt counts against the retry limit, an unanswered RTS too.

use super::{Data, End, Outcome, Parameters, Signal, Transmission, receiver::OneByOne};
use crate::{queue::Feed, units::Nanos};

/// When a frame is preceded by RTS and CTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    Always,
    AfterFailure,
    Never,
}

/// One end that sends a frame, waits, and repeats.
#[derive(Debug)]
pub(super) struct Exchange {
    parameters: Parameters,
    reservation: Reservation,
    /// The frame under way and the failed attempts for it.
    current: Option<(Data, u32)>,
    phase: Phase,
    next_sequence: u64,
    receiver: OneByOne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Free to send, now.
    Ready,
    /// An RTS was sent; without a CTS by then it failed.
    AwaitCts(Nanos),
    /// The frame was sent; without an acknowledgement by then it failed.
    AwaitAck(Nanos),
    /// Pausing after a failure.
    Pause(Nanos),
}

impl Exchange {
    pub(super) fn new(parameters: Parameters, reservation: Reservation) -> Self {
        Self {
            parameters,
            reservation,
            current: None,
            phase: Phase::Ready,
            next_sequence: 0,
            receiver: OneByOne::default(),
        }
    }

    fn data(&mut self, now: Nanos) -> Option<Transmission> {
        let (data, _) = self.current.as_mut()?;
        data.frame.attempts += 1;
        data.frame.first_air = data.frame.first_air.min(now);
        self.phase = Phase::AwaitAck(Nanos::MAX);
        Some(Transmission { signal: Signal::Data(*data), answer: self.parameters.ack })
    }
}

impl End for Exchange {
    fn ready(&self, now: Nanos, backlog: bool) -> bool {
        match self.phase {
            Phase::Ready => self.current.is_some() || backlog,
            Phase::Pause(until) => now >= until,
            Phase::AwaitCts(_) | Phase::AwaitAck(_) => false,
        }
    }

    fn next(&mut self, now: Nanos, feed: &mut Feed<'_>) -> Option<Transmission> {
        if self.current.is_none() {
            let data = Data {
                frame: feed.pop()?,
                sequence: self.next_sequence,
                serial: self.next_sequence,
                floor: self.next_sequence,
                poll: false,
            };
            self.next_sequence += 1;
            self.current = Some((data, 0));
        }
        let failed = self.current.is_some_and(|(_, failures)| failures > 0);
        let reserve = match self.reservation {
            Reservation::Always => true,
            Reservation::AfterFailure => failed,
            Reservation::Never => false,
        };
        if !reserve {
            return self.data(now);
        }
        self.phase = Phase::AwaitCts(Nanos::MAX);
        Some(Transmission { signal: Signal::Rts, answer: self.parameters.cts })
    }

    fn await_answer(&mut self, deadline: Nanos) {
        match &mut self.phase {
            Phase::AwaitCts(until) | Phase::AwaitAck(until) => *until = deadline,
            Phase::Ready | Phase::Pause(_) => {}
        }
    }

    fn receive(&mut self, now: Nanos, signal: Signal, outcome: &mut Outcome) -> Option<Transmission> {
        let answer = |signal| Some(Transmission { signal, answer: 0 });
        match signal {
            Signal::Data(data) => {
                self.receiver.accept(data, outcome);
                answer(Signal::Ack { sequence: data.sequence })
            }
            Signal::Rts => answer(Signal::Cts),
            Signal::Cts if matches!(self.phase, Phase::AwaitCts(_)) => self.data(now),
            Signal::Ack { sequence } => {
                if self.current.is_some_and(|(data, _)| data.sequence == sequence) {
                    self.current = None;
                    self.phase = Phase::Ready;
                }
                None
            }
            Signal::Cts | Signal::BlockAckRequest { .. } | Signal::BlockAck(_) => None,
        }
    }

    fn handle_timeout(&mut self, now: Nanos, outcome: &mut Outcome) {
        let (Phase::AwaitCts(deadline) | Phase::AwaitAck(deadline)) = self.phase else {
            return;
        };
        if now < deadline {
            return;
        }
        outcome.failures += 1;
        self.phase = Phase::Pause(deadline + self.parameters.retry);
        let Some((data, failures)) = &mut self.current else {
            return;
        };
        *failures += 1;
        if *failures > self.parameters.retry_limit {
            outcome.given_up.push(*data);
            self.current = None;
            self.phase = Phase::Ready;
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Ready => None,
            Phase::AwaitCts(at) | Phase::AwaitAck(at) | Phase::Pause(at) => Some(at),
        }
    }

    fn idle(&self) -> bool {
        self.current.is_none()
    }

    fn has(&self, sequence: u64) -> bool {
        self.receiver.has(sequence)
    }
}
