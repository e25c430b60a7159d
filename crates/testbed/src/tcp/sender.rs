//! The sending half: what may be sent, and what timers do. What acknowledgements mean is in `acknowledgements.rs`.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    cubic::{Cubic, INITIAL_WINDOW},
    recovery::{Recovery, State},
    rtt::RttEstimator,
    scoreboard::{Rack, Scoreboard},
    segment::MSS,
};

/// Most bytes that are sent or wait to be (`tcp_wmem`).
const SEND_BUFFER: u64 = 4 << 20;

/// What a tail-loss probe waits beyond two RTTs (`TCP_TIMEOUT_MIN_US`).
const PROBE_SLACK: Duration = Duration::from_millis(2);

/// A connection whose peer acknowledges nothing for so long has ended: `TCP_USER_TIMEOUT` of the client.
pub(crate) const USER_TIMEOUT: Duration = Duration::from_secs(60);

/// What senders of TCP have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpStats {
    /// Segments with data.
    pub segments: u64,
    /// Of these, retransmissions.
    pub retransmissions: u64,
    /// Retransmission timeouts (RFC 6298 §5).
    pub timeouts: u64,
    /// Tail-loss probes (RFC 8985 §7).
    pub probes: u64,
    /// Windows that were given back, as nothing had been lost (RFC 4015).
    pub undone: u64,
}

impl TcpStats {
    /// Before anything was sent.
    pub(crate) const NONE: Self = Self { segments: 0, retransmissions: 0, timeouts: 0, probes: 0, undone: 0 };

    /// The sum of both.
    pub(crate) const fn plus(&self, other: &Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            retransmissions: self.retransmissions + other.retransmissions,
            timeouts: self.timeouts + other.timeouts,
            probes: self.probes + other.probes,
            undone: self.undone + other.undone,
        }
    }
}

/// What the one timer of a sender is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// RFC 6298 §5.
    Retransmission,
    /// RFC 8985 §7.2.
    TailLoss,
    /// RFC 8985 §6.2, step 5.
    Reordering,
    /// RFC 9293 §3.8.6.1.
    Persist,
}

/// A tail-loss probe whose outcome is open (RFC 8985 §7.4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) end: u64,
    pub(super) is_retransmission: bool,
}

/// A segment to send now.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) sequence: u64,
    pub(super) data: Bytes,
}

/// Sends a stream of bytes.
#[derive(Debug)]
pub(super) struct Sender {
    /// The first byte that is not acknowledged, the next to be sent, and the end of what was written.
    pub(super) acknowledged: u64,
    pub(super) next: u64,
    end: u64,
    /// What was written and is not acknowledged, with its sequence numbers.
    written: VecDeque<(u64, Bytes)>,
    /// The right edge of the peer's window.
    edge: u64,
    pub(super) board: Scoreboard,
    pub(super) rack: Rack,
    pub(super) rtt: RttEstimator,
    pub(super) cubic: Cubic,
    pub(super) recovery: Recovery,
    pub(super) timer: Option<(Timer, Instant)>,
    pub(super) probe: Option<Probe>,
    /// A segment goes out whatever the window is.
    forced: Option<Forced>,
    /// Whether the congestion window kept us from sending, in this round trip (`is_cwnd_limited`).
    is_limited: bool,
    most_outstanding: u32,
    limited_until: u64,
    last_sent: Option<Instant>,
    /// Since when the peer has acknowledged nothing although it should.
    pub(super) silent_since: Option<Instant>,
    pub(super) stats: TcpStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forced {
    /// New data if there is any, else the last segment.
    TailLossProbe,
    /// A segment without data and with an old sequence number, which is acknowledged.
    WindowProbe,
}

impl Sender {
    /// Starts with the sequence number of the first byte.
    pub(super) fn new(first: u64) -> Self {
        Self {
            acknowledged: first,
            next: first,
            end: first,
            written: VecDeque::new(),
            edge: first,
            board: Scoreboard::default(),
            rack: Rack::default(),
            rtt: RttEstimator::default(),
            cubic: Cubic::new(),
            recovery: Recovery::default(),
            timer: None,
            probe: None,
            forced: None,
            is_limited: false,
            most_outstanding: 0,
            limited_until: first,
            last_sent: None,
            silent_since: None,
            stats: TcpStats::default(),
        }
    }

    /// Returns how many bytes may be written: Linux keeps two congestion windows.
    pub(super) fn room(&self) -> u64 {
        let most = (2 * u64::from(self.cubic.window.max(INITIAL_WINDOW)) * MSS).min(SEND_BUFFER);
        most.saturating_sub(self.end - self.acknowledged)
    }

    /// Takes bytes to be sent, however many.
    pub(super) fn write(&mut self, data: Bytes) {
        if !data.is_empty() {
            let length = data.len() as u64;
            self.written.push_back((self.end, data));
            self.end += length;
        }
    }

    /// Takes the peer's window: its right edge never moves to the left.
    pub(super) fn handle_window(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
        if self.edge > self.next && matches!(self.timer, Some((Timer::Persist, _))) {
            self.timer = None;
            self.silent_since = None;
        }
    }

    /// Forgets what is acknowledged.
    pub(super) fn forget(&mut self, acknowledged: u64) {
        self.acknowledged = acknowledged;
        while self.written.front().is_some_and(|(start, data)| start + data.len() as u64 <= acknowledged) {
            self.written.pop_front();
        }
    }

    /// Returns the next segment to send, if one may be.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Output> {
        match self.forced.take() {
            Some(Forced::TailLossProbe) => return self.send_probe(now),
            Some(Forced::WindowProbe) => {
                return Some(Output { sequence: self.acknowledged.wrapping_sub(1), data: Bytes::new() });
            }
            None => {}
        }
        if self.board.outstanding() == 0
            && let Some(last) = self.last_sent
        {
            self.restart(now, last);
        }
        let has_room = self.board.in_flight() < self.cubic.window;
        if has_room
            && self.recovery.may_retransmit()
            && let Some((start, end)) = self.board.next_lost()
        {
            return Some(self.retransmit(now, start, end));
        }
        let output = if has_room { self.send_new(now) } else { None };
        if output.is_none() {
            self.validate_window(!has_room);
            self.hold_up(now);
        }
        output
    }

    /// Returns what the timer is set to.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.forced.is_some() { None } else { self.timer.map(|(_, at)| at) }
    }

    /// Whether the peer has been silent for too long.
    pub(super) fn is_given_up(&self, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| now.saturating_duration_since(since) >= USER_TIMEOUT)
    }

    /// Whether the congestion window is what limits us (`tcp_is_cwnd_limited`).
    pub(super) const fn is_window_limited(&self) -> bool {
        self.is_limited || (self.cubic.in_slow_start() && self.cubic.window < 2 * self.most_outstanding)
    }

    /// Whether new data waits and the peer has a window for it.
    pub(super) const fn has_new(&self) -> bool {
        self.next < self.end && self.next < self.edge
    }

    /// Fires the timer.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let Some((timer, at)) = self.timer.filter(|(_, at)| *at <= now) else { return };
        self.timer = None;
        match timer {
            Timer::Retransmission if self.board.outstanding() > 0 => {
                self.stats.timeouts += 1;
                self.handle_loss(now);
                self.rtt.back_off();
                self.timer = Some((Timer::Retransmission, now + self.rtt.timeout()));
            }
            Timer::TailLoss if self.board.outstanding() > 0 => {
                // One probe at a time.
                if self.probe.is_none() {
                    self.forced = Some(Forced::TailLossProbe);
                }
                self.arm_retransmission(now, Some(at));
            }
            Timer::Reordering if self.board.outstanding() > 0 => {
                self.arm_retransmission(now, Some(at));
                self.handle_reordering_timeout(now);
            }
            Timer::Persist if self.end > self.next => {
                self.forced = Some(Forced::WindowProbe);
                self.rtt.back_off();
                self.timer = Some((Timer::Persist, now + self.rtt.timeout()));
            }
            Timer::Retransmission | Timer::TailLoss | Timer::Reordering | Timer::Persist => {}
        }
    }

    /// Sets the timer after an acknowledgement: a tail-loss probe, or the retransmission timeout (`tcp_set_xmit_timer`).
    pub(super) fn arm(&mut self, now: Instant) {
        let before = self.timer;
        self.timer = None;
        if self.board.outstanding() == 0 {
            return;
        }
        if !self.arm_probe(now, true) {
            let was_other = before.filter(|(timer, _)| *timer != Timer::Retransmission);
            self.arm_retransmission(now, was_other.map(|(_, at)| at));
        }
    }

    /// RFC 8985 §7.2; whether there is to be a probe.
    fn arm_probe(&mut self, now: Instant, is_ack: bool) -> bool {
        if self.recovery.state != State::Open {
            return false;
        }
        let wait = match self.rtt.smoothed() {
            Some(smoothed) => {
                let single = self.board.outstanding() == 1;
                smoothed * 2 + if single { super::rtt::MIN_RTO } else { PROBE_SLACK }
            }
            None => self.rtt.timeout(),
        };
        let timeout = if is_ack { now + self.rtt.timeout() } else { self.head_timeout(now) };
        self.timer = Some((Timer::TailLoss, (now + wait).min(timeout)));
        true
    }

    /// Sets the retransmission timeout; where another timer was set it counts from when the oldest segment was sent.
    fn arm_retransmission(&mut self, now: Instant, other: Option<Instant>) {
        let at = if other.is_some() { self.head_timeout(now) } else { now + self.rtt.timeout() };
        self.timer = Some((Timer::Retransmission, at));
    }

    fn head_timeout(&self, now: Instant) -> Instant {
        let head = self.board.first().map_or(now, |sent| sent.at);
        (head + self.rtt.timeout()).max(now + Duration::from_millis(1))
    }

    /// New data, as far as the peer's window goes.
    fn send_new(&mut self, now: Instant) -> Option<Output> {
        let most = self.end.min(self.edge).saturating_sub(self.next).min(MSS);
        if most == 0 {
            return None;
        }
        let (start, end) = (self.next, self.next + most);
        if self.board.outstanding() == 0 {
            self.silent_since = Some(now);
        }
        self.board.push(now, start, end);
        self.next = end;
        self.last_sent = Some(now);
        self.stats.segments += 1;
        self.recovery.handle_sent();
        if !self.arm_probe(now, false) && self.timer.is_none() {
            self.arm_retransmission(now, None);
        }
        Some(Output { sequence: start, data: self.data(start, end) })
    }

    fn retransmit(&mut self, now: Instant, start: u64, end: u64) -> Output {
        self.recovery.handle_retransmitted(now);
        self.board.repeat(now, start);
        self.last_sent = Some(now);
        self.stats.segments += 1;
        self.stats.retransmissions += 1;
        if self.timer.is_none() {
            self.arm_retransmission(now, None);
        }
        Output { sequence: start, data: self.data(start, end) }
    }

    /// RFC 8985 §7.3.
    fn send_probe(&mut self, now: Instant) -> Option<Output> {
        let is_retransmission = !self.has_new();
        let output = if is_retransmission {
            let (start, end) = self.board.last().map(|sent| (sent.start, sent.end))?;
            Some(self.retransmit(now, start, end))
        } else {
            self.send_new(now)
        };
        self.stats.probes += 1;
        self.probe = Some(Probe { end: self.next, is_retransmission });
        self.arm_retransmission(now, None);
        output
    }

    /// Bytes from `start` to `end`.
    fn data(&self, start: u64, end: u64) -> Bytes {
        let from = self.written.partition_point(|(at, data)| at + data.len() as u64 <= start);
        let mut parts = self.written.iter().skip(from).take_while(|(at, _)| *at < end).map(|(at, data)| {
            let (low, high) = (start.saturating_sub(*at), (end - at).min(data.len() as u64));
            data.slice(low as usize..high as usize)
        });
        let Some(first) = parts.next() else { return Bytes::new() };
        if first.len() as u64 == end - start {
            return first;
        }
        let mut joined = first.to_vec();
        parts.for_each(|part| joined.extend_from_slice(&part));
        joined.into()
    }

    /// A new transfer over an old connection (RFC 2861).
    fn restart(&mut self, now: Instant, last: Instant) {
        let idle = now.saturating_duration_since(last);
        if self.has_new() {
            if idle > self.rtt.timeout() {
                self.cubic.restart(idle, self.rtt.timeout());
            }
            self.cubic.skip(idle);
            self.last_sent = None;
        }
    }

    /// Whether the window was used (RFC 7661, `tcp_cwnd_validate`).
    fn validate_window(&mut self, is_limited: bool) {
        let outstanding = self.board.outstanding();
        if self.acknowledged >= self.limited_until
            || is_limited
            || (!self.is_limited && outstanding > self.most_outstanding)
        {
            (self.is_limited, self.most_outstanding) = (is_limited, outstanding);
            self.limited_until = self.next;
        }
    }

    /// A closed window is asked for (RFC 9293 §3.8.6.1).
    fn hold_up(&mut self, now: Instant) {
        let is_closed = self.next < self.end && self.next >= self.edge;
        if is_closed && self.board.outstanding() == 0 && self.timer.is_none() {
            self.timer = Some((Timer::Persist, now + self.rtt.timeout()));
        }
    }
}
