//! Which transport READs or WRITEs take: measured, with hysteresis.

use std::{
    fmt,
    time::{Duration, Instant},
};

use nfs_wire::portmap::Protocol;

use super::TransportTuning;

/// Why a transport is in use.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// It was asked for.
    Given,
    /// The server does not answer on the other one, or not yet.
    OnlyOne,
    /// The server is so near that TCP costs less work: the round trip.
    Near(Duration),
    /// It answered, and UDP loses least to fades: the round trip.
    Far(Duration),
    /// The other one moved nothing for so long, and this one does.
    Stalled(Duration),
    /// Of what was sent over UDP, the server's receive buffer had no room for this share.
    Overflow(f64),
    /// UDP moved so many bytes per second, and TCP not much less in a test.
    Fast(f64),
    /// TCP moved fewer bytes per second than this one had before.
    Slower(f64, f64),
    /// Both were tried side by side: bytes per second of this one and of the other.
    Faster(f64, f64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: &Duration| time.as_secs_f64() * 1e3;
        let megabits = |rate: &f64| rate * 8.0 / 1e6;
        match self {
            Self::Given => f.write_str("as asked for"),
            Self::OnlyOne => f.write_str("the other transport has not answered"),
            Self::Near(time) => {
                write!(f, "the server is near ({:.2} ms), where TCP costs least", milliseconds(time))
            }
            Self::Far(time) => {
                write!(f, "the server is {:.1} ms away, and UDP loses least on bad links", milliseconds(time))
            }
            Self::Stalled(time) => {
                write!(
                    f,
                    "the other transport moved nothing for {:.1} s while this one did",
                    time.as_secs_f64()
                )
            }
            Self::Overflow(share) => write!(
                f,
                "the link holds WRITEs and delivers them all at once, and over UDP the server loses {:.0} % of them",
                share * 100.0
            ),
            Self::Fast(rate) => {
                write!(f, "the link is fast (UDP moved {:.2} Mbit/s), where TCP costs least", megabits(rate))
            }
            Self::Slower(tcp, udp) => write!(
                f,
                "TCP moved only {:.2} Mbit/s, this one {:.2} Mbit/s before it",
                megabits(tcp),
                megabits(udp)
            ),
            Self::Faster(this, other) => write!(
                f,
                "side by side this one moved {:.2} Mbit/s, the other one {:.2} Mbit/s",
                megabits(this),
                megabits(other)
            ),
        }
    }
}

/// What data calls are to use now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The transport.
    pub current: Protocol,
    /// Whether the other one is to be tried as well.
    pub trial: bool,
    /// Whether the other one is to be connected and asked with a NULL call.
    pub ask: bool,
}

/// A plain machine for one direction of one client: the time is an argument.
#[derive(Debug)]
pub(super) struct Choice {
    tuning: TransportTuning,
    current: Protocol,
    reason: Reason,
    round_trip: Duration,
    users: u32,
    /// Bytes of each transport: UDP, TCP.
    bytes: [u64; 2],
    /// When the current transport moved something last, or began to be waited for.
    moved: Instant,
    /// Bytes sent over UDP for which the server's receive buffer had no room.
    overflow: u64,
    alone: Alone,
    /// How often TCP has failed a test on a fast link, and when the next one may be.
    failed: (u32, Instant),
    window: Window,
    /// How many times as long as the first pause the next one is.
    pauses: u32,
    trial: Option<Trial>,
    asked: Option<Instant>,
    /// Whether it was a stall that made us ask.
    stalling: bool,
    answered: Option<Instant>,
    /// The longest time between two moves lately, and the usual one: large blocks on slow links come seldom.
    gap: Duration,
    usual_gap: Duration,
    /// Time of outages since the current one has been measured.
    outages: Duration,
}

/// Since when the current transport is measured alone, and what was counted then.
#[derive(Clone, Copy, Debug)]
struct Alone {
    since: Instant,
    bytes: u64,
    overflow: u64,
}

/// When the current measurement of a rate began, and what the current transport had moved then.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    started: Instant,
    bytes: [u64; 2],
    /// Bytes per second of the current transport before; none if it had stalled.
    before: Option<f64>,
    silent_since: Instant,
}

impl Choice {
    pub(super) const fn new(
        now: Instant,
        current: Protocol,
        reason: Reason,
        round_trip: Duration,
        tuning: TransportTuning,
    ) -> Self {
        Self {
            tuning,
            current,
            reason,
            round_trip,
            users: 0,
            bytes: [0; 2],
            moved: now,
            overflow: 0,
            alone: Alone { since: now, bytes: 0, overflow: 0 },
            failed: (0, now),
            window: Window { since: now, bytes: 0 },
            pauses: 1,
            trial: None,
            asked: None,
            stalling: false,
            answered: None,
            gap: Duration::ZERO,
            usual_gap: Duration::ZERO,
            outages: Duration::ZERO,
        }
    }

    /// A transfer begins.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.users == 0 {
            self.start_over(now);
        }
        self.users += 1;
    }

    /// A transfer has ended. If that is thanks to the other transport alone, nobody need wait for more.
    pub(super) fn end(&mut self, now: Instant) {
        self.users -= 1;
        if self.users == 0
            && let Some(trial) = self.trial.filter(|trial| trial.before.is_none())
            && self.bytes[index(self.current)] == trial.bytes[index(self.current)]
        {
            self.compare(now, trial);
        }
    }

    /// File bytes arrived, or were accepted.
    pub(super) fn handle_bytes(&mut self, now: Instant, over: Protocol, bytes: u64) {
        self.bytes[index(over)] += bytes;
        if over == self.current {
            let gap = now.saturating_duration_since(self.moved);
            self.gap = gap.max(self.gap - self.gap / 16);
            self.outages += self.outage(now);
            self.usual_gap = (self.usual_gap * 7 + gap) / 8;
            self.moved = now;
            if self.trial.is_none() && self.stalling {
                (self.asked, self.answered) = (None, None);
            }
        }
    }

    /// A round trip of the path was measured. What was known before may have met a fade that the link repaired.
    pub(super) fn handle_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = self.round_trip.min(round_trip);
    }

    /// So many bytes sent over UDP have found the server's receive buffer full, in all.
    pub(super) const fn handle_overflow(&mut self, bytes: u64) {
        self.overflow = bytes;
    }

    /// The other transport answered a call that was made when [`Use::ask`] said so.
    pub(super) fn handle_answer(&mut self, now: Instant) {
        self.answered = self.asked.map(|_| now);
    }

    /// Decides; `left` is the number of bytes that the caller still wants moved.
    pub(super) fn decide(&mut self, now: Instant, left: u64) -> Use {
        self.judge(now);
        self.end_window(now);
        let silent = now.saturating_duration_since(self.moved);
        let stalled = silent >= self.stalled_after();
        let (overflow, is_due) = (self.overflow_share(), self.is_due(now, left));
        let fast = self.fast_rate(now, left).filter(|_| !stalled);
        if self.trial.is_none() && (stalled || overflow > 0.0 || is_due || fast.is_some()) {
            let grace = if stalled { self.tuning.grace } else { Duration::ZERO };
            if self.asked.is_none() || stalled && !self.stalling {
                (self.asked, self.answered, self.stalling) = (Some(now), None, stalled);
            } else if self.answered.is_some_and(|since| since + grace <= now) {
                if overflow > self.tuning.overflow && self.would_gain(now, left, overflow) {
                    self.turn(now, Reason::Overflow(overflow));
                } else if let Some(rate) = fast {
                    self.turn(now, Reason::Fast(rate));
                } else if stalled || is_due {
                    let before = (!stalled).then(|| self.alone_rate(now));
                    self.trial =
                        Some(Trial { started: now, bytes: self.bytes, before, silent_since: self.moved });
                }
            }
        }
        let ask = self.asked.is_some() && self.answered.is_none() && self.trial.is_none();
        Use { current: self.current, trial: self.trial.is_some(), ask }
    }

    /// Returns after what silence the current transport may be broken. A WRITE counts when all of it is accepted: a TCP that the client has just
    /// turned to has its slow start besides.
    fn stalled_after(&self) -> Duration {
        let is_starting = self.current == Protocol::Tcp
            && matches!(self.reason, Reason::Overflow(_))
            && self.bytes[index(Protocol::Tcp)] == self.alone.bytes;
        let start = if is_starting { self.tuning.slow_start(self.round_trip) } else { Duration::ZERO };
        start + self.tuning.stalled_after(self.round_trip).max(self.gap * 2)
    }

    /// Returns the transport in use, and why.
    pub(super) const fn verdict(&self) -> (Protocol, Reason) {
        (self.current, self.reason)
    }

    fn is_due(&self, now: Instant, left: u64) -> bool {
        let rate = self.alone_rate(now);
        let trial = self.tuning.trial(self.round_trip, rate);
        self.alone_time(now) >= trial * self.tuning.first_pause * self.pauses
            && left as f64 > rate * (trial * self.tuning.trial_worth).as_secs_f64()
    }

    /// Returns for which share of what was sent over UDP alone the server's receive buffer had no room. TCP has flow control, and loses none of it.
    fn overflow_share(&self) -> f64 {
        let lost = self.overflow.saturating_sub(self.alone.overflow) as f64;
        let moved = self.moved_alone();
        if self.current == Protocol::Udp && lost > 0.0 { lost / (lost + moved) } else { 0.0 }
    }

    /// Whether a transport that does not lose this share saves more time than TCP's slow start takes.
    fn would_gain(&self, now: Instant, left: u64, share: f64) -> bool {
        let time = now.saturating_duration_since(self.alone.since).as_secs_f64();
        share * left as f64 * time
            > self.moved_alone() * self.tuning.slow_start(self.round_trip).as_secs_f64()
    }

    /// Returns how many bytes per second UDP moves, if that is a reason to test TCP.
    fn fast_rate(&self, now: Instant, left: u64) -> Option<f64> {
        if self.current == Protocol::Tcp || now < self.failed.1 {
            return None;
        }
        let rate = self.window_rate(now).filter(|&rate| self.tuning.is_fast(self.round_trip, rate))?;
        let is_worth_it = left as f64 >= rate * self.tuning.test_worth(self.round_trip).as_secs_f64();
        (is_worth_it && self.bytes[index(Protocol::Udp)] >= self.tuning.fast_bytes()).then_some(rate)
    }

    /// Goes back to UDP where TCP moves much less, and starts to measure the next rate.
    fn end_window(&mut self, now: Instant) {
        if now.saturating_duration_since(self.window.since) < self.tuning.test(self.round_trip) {
            return;
        }
        if let Reason::Fast(udp) = self.reason
            && self.trial.is_none()
            && let Some(tcp) = self.window_rate(now).filter(|&tcp| tcp * self.tuning.advantage < udp)
        {
            // It may have been a busy machine, or a link that does not suit TCP: those who have to wait lose less and less by asking again.
            let (count, _) = self.failed;
            self.failed = (count + 1, now + self.tuning.test_pause(self.round_trip, count));
            self.turn(now, Reason::Slower(tcp, udp));
        }
        self.window = self.new_window(now);
    }

    const fn new_window(&self, now: Instant) -> Window {
        Window { since: now, bytes: self.bytes[index(self.current)] }
    }

    /// Returns how many bytes per second the current transport moves, once that can be said.
    fn window_rate(&self, now: Instant) -> Option<f64> {
        let time = now.saturating_duration_since(self.window.since);
        let bytes = (self.bytes[index(self.current)] - self.window.bytes) as f64;
        (time >= self.tuning.tick()).then(|| bytes / time.as_secs_f64())
    }

    fn alone_rate(&self, now: Instant) -> f64 {
        self.moved_alone() / self.alone_time(now).as_secs_f64().max(1e-3)
    }

    /// Returns how many bytes the current transport has moved since it is measured alone.
    fn moved_alone(&self) -> f64 {
        (self.bytes[index(self.current)] - self.alone.bytes) as f64
    }

    /// Returns for how long the current transport has been measured alone, but for outages.
    fn alone_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.alone.since).saturating_sub(self.outages + self.outage(now))
    }

    /// Returns how long the present silence has lasted, if it is an outage.
    fn outage(&self, now: Instant) -> Duration {
        let silent = now.saturating_duration_since(self.moved);
        if silent >= self.tuning.outage().max(self.usual_gap * 4) { silent } else { Duration::ZERO }
    }

    fn turn(&mut self, now: Instant, reason: Reason) {
        (self.current, self.reason) = (other(self.current), reason);
        self.start_over(now);
    }

    /// Ends a trial that has lasted long enough, if anything moved.
    fn judge(&mut self, now: Instant) {
        let Some(trial) = self.trial else { return };
        let time = now.saturating_duration_since(trial.started);
        let long_enough = self.tuning.trial(self.round_trip, trial.before.unwrap_or(0.0));
        if time >= long_enough && self.bytes != trial.bytes {
            self.compare(now, trial);
        }
    }

    fn compare(&mut self, now: Instant, trial: Trial) {
        let time = now.saturating_duration_since(trial.started).max(Duration::from_millis(1));
        let moved = [self.bytes[0] - trial.bytes[0], self.bytes[1] - trial.bytes[1]];
        let other = other(self.current);
        let rate = |over| moved[index(over)] as f64 / time.as_secs_f64();
        let (this, that) = (rate(self.current).max(trial.before.unwrap_or(0.0)), rate(other));
        if that > this * self.tuning.advantage {
            let stalled = this == 0.0;
            let reason = if stalled {
                Reason::Stalled(now.saturating_duration_since(trial.silent_since))
            } else {
                Reason::Faster(that, this)
            };
            self.turn(now, reason);
        }
        self.pauses = (self.pauses * 2).min(16);
        self.start_over(now);
    }

    const fn start_over(&mut self, now: Instant) {
        self.moved = now;
        self.alone = Alone { since: now, bytes: self.bytes[index(self.current)], overflow: self.overflow };
        self.window = self.new_window(now);
        self.outages = Duration::ZERO;
        (self.trial, self.asked, self.answered) = (None, None, None);
    }
}

/// Returns the other transport.
pub const fn other(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::Udp => Protocol::Tcp,
        Protocol::Tcp => Protocol::Udp,
    }
}

pub(super) const fn index(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Udp => 0,
        Protocol::Tcp => 1,
    }
}

#[cfg(test)]
mod tests;
