//! The medium: whose turn it is, how long it takes, and what the channel leaves of it.

use std::{collections::VecDeque, time::Duration};

use super::{Cell, Event, headers};
use crate::{
    ArqKind, Duplex, Fate, Rate,
    arq::{Signal, Transmission},
    units::{Nanos, nanos},
};

/// One direction of a full-duplex medium, or all of a half-duplex one.
#[derive(Debug, Default)]
pub(super) struct Air {
    flight: Option<Flight>,
    /// Kept free for an answer until then.
    reserved_until: Nanos,
    /// The station that sent last.
    turn: usize,
    /// Answers that wait for the air; they go before frames. At most one per end that sends.
    answers: VecDeque<(usize, Transmission)>,
    /// Signals that have left and not arrived.
    propagating: VecDeque<(Nanos, usize, Signal)>,
}

/// A transmission.
#[derive(Debug)]
struct Flight {
    /// The end that sends.
    end: usize,
    signal: Signal,
    answer: Nanos,
    start: Nanos,
    finish: Nanos,
}

impl Cell {
    /// Gives the air to whoever wants it.
    pub(super) fn grant_all(&mut self) {
        for air in 0..self.airs.len() {
            self.grant(air);
        }
    }

    fn grant(&mut self, air: usize) {
        if self.airs[air].flight.is_some() || self.now < self.airs[air].reserved_until {
            return;
        }
        if let Some((end, transmission)) = self.airs[air].answers.pop_front() {
            self.begin(air, end, transmission);
            return;
        }
        let (first, count) = match (self.config.duplex, air) {
            (Duplex::Half, _) => (0, self.queues.len()),
            (Duplex::Full, 0) => (0, 1),
            (Duplex::Full, _) => (1, self.queues.len() - 1),
        };
        for step in 1..=count {
            let turn = (self.airs[air].turn + step) % count;
            let queue = &mut self.queues[first + turn];
            let Some(position) = queue.choose(self.now, &self.ends) else {
                continue;
            };
            let end = queue.end(position);
            if let (Some(codec), Some(frame)) = (self.codecs.get_mut(end), queue.head(position)) {
                headers::compress(codec, &mut self.table, &mut self.stats, self.config.mtu_bytes, frame);
            }
            let next = self.ends[end].next(self.now, &mut queue.feed(position));
            if let Some(transmission) = next {
                self.airs[air].turn = turn;
                self.begin(air, end, transmission);
                return;
            }
        }
    }

    fn begin(&mut self, air: usize, end: usize, transmission: Transmission) {
        let Transmission { signal, answer } = transmission;
        let start = self.now;
        let finish = match &signal {
            Signal::Data(data) => {
                let origin = self.origin.unwrap_or(start);
                let bits = u64::from(data.frame.air_bytes) * u64::from(self.config.bits_per_byte);
                origin + self.rate(end).finish(start - origin, bits)
            }
            control => start + self.parameters.control(control),
        };
        let length = Duration::from_nanos(finish - start);
        match &signal {
            Signal::Data(data) => {
                self.stats.transmissions += 1;
                self.stats.repeats += u64::from(data.frame.attempts > 1);
                self.stats.air_data += length;
            }
            _ => {
                self.stats.control += 1;
                self.stats.air_control += length;
            }
        }
        if answer > 0 {
            let deadline = finish + answer + self.answer_delay(answer);
            self.ends[end].await_answer(deadline);
            self.arm(end);
        }
        self.airs[air].flight = Some(Flight { end, signal, answer, start, finish });
        self.schedule(finish, Event::Air(air as u32));
    }

    /// A transmission or a reservation ends.
    pub(super) fn air_free(&mut self, air: usize) {
        let Some(flight) = self.airs[air].flight.take_if(|flight| flight.finish <= self.now) else {
            return;
        };
        let (expected, half) = (flight.answer, self.config.duplex == Duplex::Half);
        let answer = self.land(air, flight);
        if let Some((end, transmission)) = answer {
            self.begin(air, end, transmission);
        } else if half && expected > 0 {
            self.airs[air].reserved_until = self.now + expected;
            self.schedule(self.now + expected, Event::Air(air as u32));
        }
    }

    /// A transmission has ended: what the channel left of it goes to the other end. Returns what a half-duplex medium
    /// carries next, before anybody's turn.
    fn land(&mut self, air: usize, flight: Flight) -> Option<(usize, Transmission)> {
        let Flight { end, signal, start, finish, .. } = flight;
        let peer = end ^ 1;
        let origin = self.origin.unwrap_or(start);
        let bits = match &signal {
            Signal::Data(data) => u64::from(data.frame.air_bytes) * u64::from(self.config.bits_per_byte),
            _ => self.rate(end).mean().bits_in(finish - start),
        };
        let number = self.channel_of(end);
        let (channel, draws) = &mut self.channels[number];
        let verdict = draws.judge(channel, start - origin, finish - origin, bits);
        if !verdict.lost {
            if self.config.duplex == Duplex::Full && !self.config.delay.is_zero() {
                let at = self.now + nanos(self.config.delay);
                self.airs[air].propagating.push_back((at, peer, signal));
                self.schedule(at, Event::Propagated(air as u32));
                return None;
            }
            return self.arrive(peer, signal);
        }
        let good_again = if verdict.met_bad {
            origin.saturating_add(draws.good_again(channel, start - origin, finish - origin))
        } else {
            finish
        };
        match (&signal, self.config.arq.kind) {
            (Signal::Data(_), ArqKind::Ideal) => {
                self.stats.frames_held += 1;
                // Propagation, if there is any, still takes its time.
                let delay = match self.config.duplex {
                    Duplex::Half => 0,
                    Duplex::Full => nanos(self.config.delay),
                };
                self.ends[peer].rescue(&signal, good_again.saturating_add(delay));
                self.run_timer(peer);
            }
            (Signal::Data(data), ArqKind::None) => {
                self.stats.frames_lost += 1;
                self.frame_over(data.frame, Fate::Channel);
            }
            (Signal::Data(_), _) => self.stats.frames_lost += 1,
            _ => self.stats.control_lost += 1,
        }
        None
    }

    /// A signal has crossed a full-duplex medium.
    pub(super) fn propagated(&mut self, air: usize) {
        while self.airs[air].propagating.front().is_some_and(|&(at, ..)| at <= self.now) {
            if let Some((_, end, signal)) = self.airs[air].propagating.pop_front() {
                self.arrive(end, signal);
            }
        }
    }

    /// A signal reaches an end. On a half-duplex medium the answer goes on the air at once; on a full-duplex one it
    /// goes next on the air of its own direction.
    fn arrive(&mut self, end: usize, signal: Signal) -> Option<(usize, Transmission)> {
        let mut outcome = std::mem::take(&mut self.outcome);
        let answer = self.ends[end].receive(self.now, signal, &mut outcome);
        self.apply(end, outcome);
        self.arm(end);
        let transmission = answer?;
        match self.config.duplex {
            Duplex::Half => Some((end, transmission)),
            Duplex::Full => {
                self.airs[end % 2].answers.push_back((end, transmission));
                None
            }
        }
    }

    pub(super) fn end_timeout(&mut self, end: usize) {
        // A timer that was set again leaves its old event behind.
        if self.armed[end] <= self.now {
            self.armed[end] = Nanos::MAX;
            self.run_timer(end);
        }
    }

    fn run_timer(&mut self, end: usize) {
        let mut outcome = std::mem::take(&mut self.outcome);
        self.ends[end].handle_timeout(self.now, &mut outcome);
        self.apply(end, outcome);
        self.arm(end);
    }

    /// Passes on what an end found out, and keeps the buffers for the next time.
    fn apply(&mut self, end: usize, mut outcome: crate::arq::Outcome) {
        if !outcome.is_empty() {
            self.stats.duplicates += outcome.duplicates;
            if outcome.failures > 0 {
                self.stats.failed_attempts += outcome.failures;
                let (queue, position) = if end.is_multiple_of(2) { (0, end / 2) } else { (end / 2 + 1, 0) };
                self.queues[queue].mark(self.now, position);
            }
            for data in outcome.given_up.drain(..) {
                // The frame may have arrived, and only its acknowledgements been lost.
                if !self.ends[end ^ 1].has(data.sequence) {
                    self.frame_over(data.frame, Fate::RetryLimit);
                }
            }
            for index in 0..outcome.up.len() {
                self.pass_up(end, outcome.up[index]);
            }
            outcome.up.clear();
            outcome.duplicates = 0;
            outcome.failures = 0;
        }
        self.outcome = outcome;
    }

    /// Sees to it that the timer of an end is among the events.
    fn arm(&mut self, end: usize) {
        let Some(at) = self.ends[end].poll_timeout() else {
            return;
        };
        if at != Nanos::MAX && at > self.now && at != self.armed[end] {
            self.armed[end] = at;
            self.schedule(at, Event::End(end as u32));
        }
    }

    /// What an answer may need beyond its own air time: nothing on a half-duplex medium, which is kept free for it; on a
    /// full-duplex one two propagations, the frame in its way, and the answers of other mobiles.
    fn answer_delay(&self, answer: Nanos) -> Nanos {
        match self.config.duplex {
            Duplex::Half => 0,
            Duplex::Full => {
                2 * nanos(self.config.delay) + self.config.full_frame_nanos() + answer * self.mobiles() as u64
            }
        }
    }

    fn rate(&self, end: usize) -> &Rate {
        match (&self.config.uplink_rate, self.config.duplex) {
            (Some(rate), Duplex::Full) if end % 2 == 1 => rate,
            _ => &self.config.rate,
        }
    }
}
