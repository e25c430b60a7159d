//! A download in pieces: which connection asks for which, and which are asked for again on another one.

use std::time::{Duration, Instant};

use super::TransportTuning;
use crate::transfer::{Range, RangeSet};

/// How often a piece is under way at most.
const COPIES: usize = 2;

/// What each range of a piece counts as at least, in bytes: it takes a call.
const LEAST_OF_RANGE: u64 = 4096;

/// One connection, as seen by one download.
#[derive(Clone, Debug)]
struct Connection {
    tuning: TransportTuning,
    round_trip: Duration,
    /// Bytes that arrived lately, each counting less with time.
    recent: f64,
    bytes: u64,
    /// When something arrived last, or was asked for after nothing was.
    heard: Instant,
    /// What its silences add up to, and what the present one has added.
    trouble: u32,
    silence: u32,
}

/// Names one attempt at a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(u32);

/// A piece on its way over a connection.
#[derive(Clone, Debug)]
struct Run {
    id: RunId,
    connection: usize,
    asked: RangeSet,
    /// Bytes of it that have not arrived, by this run or another one.
    missing: u64,
}

/// What is where. A plain machine: the time is an argument.
#[derive(Debug)]
pub(super) struct Pieces {
    tuning: TransportTuning,
    /// Not asked for.
    waiting: RangeSet,
    done: RangeSet,
    left: u64,
    connections: Vec<Connection>,
    runs: Vec<Run>,
    next_run: u32,
    again: u64,
    arrived: Instant,
}

impl Pieces {
    /// Starts with nothing asked for.
    pub(super) fn new(wanted: RangeSet, now: Instant, tuning: TransportTuning) -> Self {
        Self {
            tuning,
            left: wanted.bytes(),
            waiting: wanted,
            done: RangeSet::new(),
            connections: Vec::new(),
            runs: Vec::new(),
            next_run: 0,
            again: 0,
            arrived: now,
        }
    }

    /// Takes another connection into use; they are numbered in this order.
    pub(super) fn add_connection(&mut self, now: Instant, round_trip: Duration) {
        let tuning = self.tuning;
        let connection =
            Connection { tuning, round_trip, recent: 0.0, bytes: 0, heard: now, trouble: 0, silence: 0 };
        self.connections.push(connection);
    }

    /// Returns what a connection is to be asked for now, if anything.
    pub(super) fn next(&mut self, now: Instant, connection: usize) -> Option<(RunId, RangeSet)> {
        let pending = self.pending(connection);
        let ahead = self.ahead(now, connection);
        if pending >= ahead {
            return None;
        }
        let long = self.connections.get(connection)?.round_trip >= self.tuning.near;
        let piece = self.tuning.piece_bytes;
        let most = if long { piece.min(ahead / 2) } else { 4 * piece };
        let mut asked = self.waiting.take_several(most, LEAST_OF_RANGE);
        if asked.is_empty() {
            asked = self.slowest(now, connection)?;
        }
        let id = RunId(self.next_run);
        self.next_run += 1;
        if pending == 0 {
            self.connections[connection].heard = now;
        }
        let missing = asked.without(&self.done);
        self.runs.push(Run { id, connection, asked, missing: missing.bytes() });
        Some((id, missing))
    }

    /// Records bytes that arrived; returns how many of them are new.
    pub(super) fn handle_bytes(&mut self, now: Instant, id: RunId, range: Range) -> u64 {
        let arrived = self.done.gaps(range);
        let new = arrived.bytes();
        for run in &mut self.runs {
            run.missing -= arrived.iter().map(|range| run.asked.bytes_in(range)).sum::<u64>();
        }
        self.done.insert(range);
        self.left = self.left.saturating_sub(new);
        self.again += range.length() - new;
        if let Some(run) = self.runs.iter().find(|run| run.id == id) {
            let connection = &mut self.connections[run.connection];
            connection.look(now);
            connection.recent = connection.decayed(now) + range.length() as f64;
            connection.bytes += range.length();
            (connection.heard, connection.silence) = (now, 0);
        }
        if new > 0 {
            self.arrived = now;
        }
        new
    }

    /// Ends a run; what it has not brought is asked for again, unless another run brings it.
    pub(super) fn end(&mut self, id: RunId) {
        let Some(at) = self.runs.iter().position(|run| run.id == id) else { return };
        let Run { asked, .. } = self.runs.remove(at);
        for gap in asked.without(&self.done).iter() {
            if !self.runs.iter().any(|run| run.asked.gaps(gap).is_empty()) {
                self.waiting.insert(gap);
            }
        }
    }

    /// Returns the next run whose bytes another one has brought.
    pub(super) fn needless(&self) -> Option<RunId> {
        self.runs.iter().find(|run| run.missing == 0).map(|run| run.id)
    }

    /// Returns the oldest run over a connection.
    pub(super) fn run_over(&self, connection: usize) -> Option<RunId> {
        self.runs.iter().find(|run| run.connection == connection).map(|run| run.id)
    }

    /// Looks for connections that have fallen silent; returns how much trouble there was so far: one for each loss that was seen, three
    /// for one that took long.
    pub(super) fn trouble(&mut self, now: Instant) -> u32 {
        for connection in 0..self.connections.len() {
            if self.pending(connection) > 0 {
                self.connections[connection].look(now);
            }
        }
        self.connections.iter().map(|connection| connection.trouble).sum()
    }

    /// Returns the bytes that have not arrived.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Returns the bytes that arrived twice.
    pub(super) const fn twice(&self) -> u64 {
        self.again
    }

    /// Returns when something new arrived last.
    pub(super) const fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Bytes that a connection was asked for and that have not arrived.
    fn pending(&self, connection: usize) -> u64 {
        self.runs.iter().filter(|run| run.connection == connection).map(|run| run.missing).sum()
    }

    /// Returns how many bytes a connection may be asked for at once. Less than this keeps the first from widening its window; the others are asked for
    /// what they bring in about a second, for what they owe is in the way of all when the path is slow.
    fn ahead(&self, now: Instant, connection: usize) -> u64 {
        let Some(it) = self.connections.get(connection) else { return 0 };
        let piece = self.tuning.piece_bytes;
        if it.round_trip < self.tuning.near {
            return 16 * piece;
        }
        let most = (16 * piece / self.connections.len() as u64).max(4 * piece);
        match connection {
            0 if it.is_stuck(now) => 2 * piece,
            0 => most,
            _ => ((it.rate(now) * (self.tuning.stall + it.round_trip * 2).as_secs_f64()) as u64)
                .clamp(piece / 2, most),
        }
    }

    /// Returns the piece of another connection that is worth asking for on this one: the one that would arrive last.
    fn slowest(&self, now: Instant, connection: usize) -> Option<RangeSet> {
        let own = &self.connections[connection];
        if own.is_stuck(now) && self.pending(connection) > 0 {
            return None;
        }
        let rate = self
            .connections
            .iter()
            .map(|connection| connection.rate(now))
            .fold(own.rate(now), f64::max)
            .max(1.0);
        let mut worst: Option<(f64, &RangeSet)> = None;
        for (index, other) in self.connections.iter().enumerate().filter(|&(index, _)| index != connection) {
            let mut before = 0;
            for run in self.runs.iter().filter(|run| run.connection == index) {
                let missing = run.missing;
                before += missing;
                let copies = self.runs.iter().filter(|it| it.asked == run.asked).count();
                if missing == 0 || copies >= COPIES {
                    continue;
                }
                let there =
                    if other.is_stuck(now) { f64::MAX } else { before as f64 / other.rate(now).max(1.0) };
                let here = (own.round_trip + self.tuning.notice).as_secs_f64() + missing as f64 / rate;
                if here < there / 2.0 && worst.is_none_or(|(time, _)| there > time) {
                    worst = Some((there, &run.asked));
                }
            }
        }
        worst.map(|(_, asked)| asked.clone())
    }
}

impl Connection {
    /// What the rate is averaged over.
    fn span(&self) -> Duration {
        4 * self.tuning.notice.max(self.round_trip)
    }

    /// Records a silence.
    fn look(&mut self, now: Instant) {
        let silence = if self.bytes == 0 {
            // Before the first byte the server may simply be slow.
            0
        } else if self.is_silent(now, 3 * self.tuning.notice, 24) {
            // A timer of TCP has to end it.
            3
        } else {
            u32::from(self.is_silent(now, self.tuning.notice / 5, 9))
        };
        let more = silence.saturating_sub(self.silence);
        self.silence += more;
        self.trouble += more;
    }

    fn decayed(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.heard).as_secs_f64();
        self.recent * (-age / self.span().as_secs_f64()).exp()
    }

    /// Bytes per second.
    fn rate(&self, now: Instant) -> f64 {
        self.decayed(now) / self.span().as_secs_f64()
    }

    /// Whether nothing has come for so long and for so many eighths of a round trip.
    fn is_silent(&self, now: Instant, time: Duration, eighths: u32) -> bool {
        now.saturating_duration_since(self.heard) >= time.max(self.round_trip / 8 * eighths)
    }

    /// Whether it is better not to wait for it.
    fn is_stuck(&self, now: Instant) -> bool {
        self.is_silent(now, self.tuning.notice, 16)
    }
}

#[cfg(test)]
mod tests;
