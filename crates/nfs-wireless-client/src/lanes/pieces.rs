//! A download in pieces: which lane asks for which, and which are asked for again on another one.

use std::time::{Duration, Instant};

use crate::transfer::{Range, RangeSet};

/// Bytes of a piece where the way is long enough for several connections.
const SMALL_PIECE: u64 = 256 << 10;

/// Bytes of a piece on short ways, and the longest READ.
const LARGE_PIECE: u64 = 1 << 20;

/// Round trips from here on are long: below, one connection fills the path, and large READs cost least.
pub(super) const LONG_WAY: Duration = Duration::from_millis(1);

/// Bytes that a lane is asked for at once: at least, until its rate is known, and at most.
const LEAST_AHEAD: u64 = 512 << 10;
const FIRST_AHEAD: u64 = 1 << 20;
const MOST_AHEAD: u64 = 4 << 20;

/// What a lane is asked for ahead, beyond a round trip of its rate: what it takes to notice and to ask.
const AHEAD: Duration = Duration::from_millis(100);

/// A rate is averaged over so many round trips, and this long at least.
const RATE_ROUND_TRIPS: u32 = 4;
const RATE_TIME: Duration = Duration::from_millis(400);

/// A lane that is asked and silent for so many round trips, and this long at least, has lost something.
const HOLE_ROUND_TRIPS: u32 = 2;
const HOLE: Duration = Duration::from_millis(100);

/// A piece is asked for again where that is expected to take less than this share of the time it still takes where it is.
const SHARE: f64 = 0.5;

/// How often a piece is under way at most.
const COPIES: usize = 2;

/// One connection, as seen by one download.
#[derive(Clone, Debug)]
struct Lane {
    round_trip: Duration,
    /// Bytes that arrived lately, each counting less with time.
    recent: f64,
    bytes: u64,
    /// When something arrived last, or was asked for after nothing was.
    heard: Instant,
    holes: u32,
    in_hole: bool,
}

/// Names one attempt at a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunId(u32);

/// A piece on its way over a lane.
#[derive(Clone, Copy, Debug)]
struct Run {
    id: RunId,
    lane: usize,
    asked: Range,
}

/// What is where. A plain machine: the time is an argument.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Not asked for.
    waiting: RangeSet,
    done: RangeSet,
    wanted: u64,
    lanes: Vec<Lane>,
    runs: Vec<Run>,
    next_run: u32,
    again: u64,
    arrived: Instant,
}

impl Pieces {
    /// Starts with nothing asked for.
    pub(super) fn new(wanted: RangeSet, now: Instant) -> Self {
        Self {
            wanted: wanted.bytes(),
            waiting: wanted,
            done: RangeSet::new(),
            lanes: Vec::new(),
            runs: Vec::new(),
            next_run: 0,
            again: 0,
            arrived: now,
        }
    }

    /// Takes another lane into use; they are numbered in this order.
    pub(super) fn add_lane(&mut self, now: Instant, round_trip: Duration) {
        let lane = Lane { round_trip, recent: 0.0, bytes: 0, heard: now, holes: 0, in_hole: false };
        self.lanes.push(lane);
    }

    /// Returns what a lane is to be asked for now, if anything.
    pub(super) fn next(&mut self, now: Instant, lane: usize) -> Option<(RunId, RangeSet)> {
        let pending = self.pending(lane);
        if pending >= self.ahead(now, lane) {
            return None;
        }
        let long = self.lanes.get(lane)?.round_trip >= LONG_WAY;
        let most = if long { SMALL_PIECE } else { LARGE_PIECE };
        let asked = match self.waiting.take(most) {
            Some(range) => range,
            None => self.slowest(now, lane)?,
        };
        let id = RunId(self.next_run);
        self.next_run += 1;
        if pending == 0 {
            self.lanes[lane].heard = now;
        }
        self.runs.push(Run { id, lane, asked });
        Some((id, self.done.gaps(asked)))
    }

    /// Takes note of bytes that arrived; returns how many of them are new.
    pub(super) fn handle_bytes(&mut self, now: Instant, id: RunId, range: Range) -> u64 {
        let before = self.done.bytes();
        self.done.insert(range);
        let new = self.done.bytes() - before;
        self.again += range.length() - new;
        if let Some(run) = self.runs.iter().find(|run| run.id == id) {
            let lane = &mut self.lanes[run.lane];
            lane.recent = lane.decayed(now) + range.length() as f64;
            lane.bytes += range.length();
            (lane.heard, lane.in_hole) = (now, false);
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
        for gap in self.done.gaps(asked).iter() {
            if !self.runs.iter().any(|run| run.asked.start <= gap.start && gap.end <= run.asked.end) {
                self.waiting.insert(gap);
            }
        }
    }

    /// Returns the next run whose bytes another one has brought.
    pub(super) fn needless(&self) -> Option<RunId> {
        self.runs.iter().find(|run| self.done.gaps(run.asked).is_empty()).map(|run| run.id)
    }

    /// Looks for lanes that have fallen silent; returns how often a lane has so far.
    pub(super) fn holes(&mut self, now: Instant) -> u32 {
        for lane in 0..self.lanes.len() {
            if self.pending(lane) > 0 && self.lanes[lane].is_silent(now) && !self.lanes[lane].in_hole {
                // Before the first byte the server may simply be slow.
                let lane = &mut self.lanes[lane];
                (lane.in_hole, lane.holes) = (true, lane.holes + u32::from(lane.bytes > 0));
            }
        }
        self.lanes.iter().map(|lane| lane.holes).sum()
    }

    /// Returns the bytes that have not arrived.
    pub(super) fn left(&self) -> u64 {
        self.wanted - self.done.bytes()
    }

    /// Returns the bytes that arrived twice.
    pub(super) const fn twice(&self) -> u64 {
        self.again
    }

    /// Returns when something new arrived last.
    pub(super) const fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Bytes that a lane was asked for and that have not arrived.
    fn pending(&self, lane: usize) -> u64 {
        self.runs.iter().filter(|run| run.lane == lane).map(|run| self.done.gaps(run.asked).bytes()).sum()
    }

    fn ahead(&self, now: Instant, lane: usize) -> u64 {
        let Some(it) = self.lanes.get(lane) else { return 0 };
        if it.round_trip < LONG_WAY {
            return MOST_AHEAD;
        }
        let most = (MOST_AHEAD / self.lanes.len() as u64).max(FIRST_AHEAD);
        let needed = 2.0 * it.rate(now) * (it.round_trip + AHEAD).as_secs_f64();
        let least = if it.in_hole { LEAST_AHEAD } else { FIRST_AHEAD };
        (needed as u64).clamp(least, most)
    }

    /// Returns the piece of another lane that is worth asking for on this one: the one that would arrive last.
    fn slowest(&self, now: Instant, lane: usize) -> Option<Range> {
        let own = &self.lanes[lane];
        if own.is_silent(now) && self.pending(lane) > 0 {
            return None;
        }
        let rate = self.lanes.iter().map(|lane| lane.rate(now)).fold(own.rate(now), f64::max).max(1.0);
        let mut worst: Option<(f64, Range)> = None;
        for (index, other) in self.lanes.iter().enumerate().filter(|&(index, _)| index != lane) {
            let mut before = 0;
            for run in self.runs.iter().filter(|run| run.lane == index) {
                let missing = self.done.gaps(run.asked).bytes();
                before += missing;
                let copies = self.runs.iter().filter(|it| it.asked == run.asked).count();
                if missing == 0 || copies >= COPIES {
                    continue;
                }
                let there = if other.is_silent(now) { f64::MAX } else { before as f64 / other.rate(now).max(1.0) };
                let here = (own.round_trip + AHEAD).as_secs_f64() + missing as f64 / rate;
                if here < there * SHARE && worst.is_none_or(|(time, _)| there > time) {
                    worst = Some((there, run.asked));
                }
            }
        }
        worst.map(|(_, range)| range)
    }
}

impl Lane {
    fn span(&self) -> Duration {
        RATE_TIME.max(self.round_trip * RATE_ROUND_TRIPS)
    }

    fn decayed(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.heard).as_secs_f64();
        self.recent * (-age / self.span().as_secs_f64()).exp()
    }

    /// Bytes per second.
    fn rate(&self, now: Instant) -> f64 {
        self.decayed(now) / self.span().as_secs_f64()
    }

    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) >= HOLE.max(self.round_trip * HOLE_ROUND_TRIPS)
    }
}
