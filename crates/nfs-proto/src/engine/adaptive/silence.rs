//! Silence: when it begins to mean something, and when to ask into it.
//!
//! Replies come at a pace. When they stop for longer than that pace explains, small probes find the end of the fade
//! within about one round trip.

use std::time::{Duration, Instant};

/// Shortest time that a timer is set for (kGranularity, RFC 9002 §6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Shortest time between probes.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// The same where no block was ever delivered and the rate is not known: a block of somebody else may take 0.3 s, and a queue hold 50 probes.
const BLIND_INTERVAL: Duration = Duration::from_millis(15);

/// Shortest silence that means something, however quick the pace.
const MIN_THRESHOLD: Duration = Duration::from_millis(20);

/// Longest time between probes in the first [`URGENT`] of a silence.
const URGENT_INTERVAL: Duration = Duration::from_millis(80);
const URGENT: Duration = Duration::from_millis(2500);

/// How long a silence is asked into as often again when the link below has changed: it may not be ready yet.
const ROUSED: Duration = Duration::from_secs(2);

/// Longest time between probes while silences this long have been seen to end, up to [`USUAL`].
const USUAL_INTERVAL: Duration = Duration::from_millis(25);
const USUAL: Duration = Duration::from_secs(6);

/// Longest time between probes.
const MAX_INTERVAL: Duration = Duration::from_millis(1250);

/// Longest time between probes before anything was heard at all, in the first [`URGENT`] and then: long, for perhaps nobody is there.
const FIRST_INTERVAL: Duration = Duration::from_millis(150);
const UNHEARD_INTERVAL: Duration = Duration::from_secs(30);

/// First probe before anything is known of the pace.
const FIRST_PROBE: Duration = Duration::from_millis(100);

/// Silence after which the oldest call itself is sent again; doubles up to the maximum (RFC 6298 §2.1, §5.5).
const FIRST_RESEND: Duration = Duration::from_secs(4);
const MAX_RESEND: Duration = Duration::from_secs(64);

/// Bytes that could have been delivered between two probes: three times what call and reply of NULL are on the air, so that
/// probes take a third of a slow link at most.
pub(super) const PROBE_BYTES: f64 = 3.0 * 150.0;

/// What is answered after so many times the usual timeout did not queue: the link held it.
const STOPPED: u32 = 4;

/// On a link that holds frames nothing is asked before four times the longest of the last silences, between these two, and seldom: what is asked
/// is held, too, and all of it takes room in queues when the fade is over. Nor is the oldest call sent again before so many times as long as elsewhere.
const MIN_PATIENT_PROBE: Duration = Duration::from_millis(120);
const PATIENT_PROBE: Duration = Duration::from_millis(490);
const PATIENT_RESEND: u32 = 4;

/// The pace of replies, and the silence since the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// Smoothed time between replies, and its mean deviation.
    pace: Option<(Duration, Duration)>,
    /// The block that this is the pace of, and the one asked for now, in bytes.
    block: u32,
    wanted: u32,
    /// The beginning of the silence: the last reply, or the first call after there was none in flight.
    since: Instant,
    /// Whether something has been heard since the pipe was empty.
    flowing: bool,
    /// The last reply.
    heard: Option<Instant>,
    next: Option<Instant>,
    /// The next probe only keeps a call company; when the first one is due that asks into a silence.
    company: Option<Instant>,
    /// The first probe sent into this silence, the last one, and how many.
    asked: Option<Instant>,
    asked_last: Instant,
    probes: u32,
    /// How long replies took at most when the last silence began to be asked into, and when that ended.
    usual: Duration,
    ended: Option<Instant>,
    /// When the last hole in the stream of replies ended, and how long it was.
    hole: Option<(Instant, Duration)>,
    /// The longest of the last silences that were asked into.
    longest: Duration,
    /// Smoothed length of the silences that were asked into, beyond the pace.
    fade: Duration,
    /// Length of this silence at which the oldest call is sent again.
    resend_after: Duration,
    /// When somebody said during this silence that the link below has changed.
    roused: Option<Instant>,
}

/// A silence that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// How long it lasted beyond the usual pace.
    pub(super) excess: Duration,
    /// Whether it was asked into.
    pub(super) asked: bool,
    /// Whether it lasted twice the usual pace: no mere unevenness.
    pub(super) long: bool,
    /// How many probes were sent into it, and when the last one was.
    pub(super) probes: (u32, Instant),
}

impl Silence {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            pace: None,
            block: 0,
            wanted: 0,
            since: now,
            flowing: false,
            heard: None,
            next: None,
            company: None,
            asked: None,
            asked_last: now,
            probes: 0,
            usual: Duration::ZERO,
            ended: None,
            hole: None,
            longest: Duration::ZERO,
            fade: Duration::ZERO,
            resend_after: FIRST_RESEND,
            roused: None,
        }
    }

    /// The link below has changed: what was learned in this silence about how long to wait does not count any more.
    pub(super) fn handle_link_event(&mut self, now: Instant) {
        if self.next.is_some() {
            self.next = Some(now);
            self.roused = Some(now);
            self.resend_after = FIRST_RESEND;
        }
    }

    /// A call was sent; `alone`: nothing else was in flight. `timeout` is how long its reply may take, `company` when a probe is to follow
    /// that nothing need be silent for.
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        alone: bool,
        timeout: Duration,
        company: Option<Duration>,
        patient: bool,
    ) {
        if alone || self.next.is_none() {
            self.since = now;
            self.flowing = false;
            self.asked = None;
            self.probes = 0;
            self.roused = None;
            self.resend_after = FIRST_RESEND;
            let due = now + self.threshold(timeout, patient).max(GRANULARITY);
            self.company = company.map(|_| due);
            self.next = Some(company.map_or(due, |company| now + company.max(GRANULARITY)));
        }
    }

    /// A reply is there: was there a hole in the stream before it?
    pub(super) fn look_back(&mut self, now: Instant) {
        let gap = now.saturating_duration_since(self.since);
        let usual = self.pace.map_or(gap, |(pace, deviation)| pace + pace / 2 + 2 * deviation);
        if if self.flowing { gap > usual } else { self.asked.is_some() } {
            self.hole = Some((now, gap));
        }
    }

    /// A reply was heard that brought a block of `bytes`, if any; `at_a_pace`: it is neither smaller than what is asked for now nor
    /// a probe's; `waiting`: others are outstanding. Returns what the silence before it was.
    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        bytes: u32,
        at_a_pace: bool,
        waiting: bool,
        timeout: Duration,
        patient: bool,
    ) -> Ended {
        let gap = now.saturating_duration_since(self.since);
        if bytes < self.block && bytes == self.wanted {
            self.scale_pace(bytes);
        }
        if self.flowing && at_a_pace {
            self.pace = Some(match self.pace {
                None => (gap, gap / 2),
                Some((pace, deviation)) => {
                    let gap = gap.min(4 * (pace + deviation));
                    ((pace * 7 + gap) / 8, (deviation * 3 + gap.abs_diff(pace)) / 4)
                }
            });
        }
        let pace = self.pace.map_or(Duration::ZERO, |(pace, _)| pace);
        let ended = Ended {
            excess: gap.saturating_sub(pace),
            asked: self.asked.is_some(),
            long: gap > 2 * pace,
            probes: (std::mem::take(&mut self.probes), self.asked_last),
        };
        if ended.asked {
            self.ended = Some(now);
            self.longest = gap.max(self.longest * 7 / 8);
            self.fade = if self.fade.is_zero() { ended.excess } else { (self.fade * 7 + ended.excess) / 8 };
        }
        self.since = now;
        self.heard = Some(now);
        self.flowing = true;
        self.asked = None;
        self.roused = None;
        self.resend_after = FIRST_RESEND;
        let due = waiting.then(|| now + self.threshold(timeout, patient));
        self.company = self.company.and(due);
        if self.company.is_none() {
            self.next = due;
        }
        ended
    }

    /// Replies with blocks of another size come at another pace: with larger ones from the next on, with smaller ones when
    /// the larger ones in flight are there.
    pub(super) fn handle_block_change(&mut self, from: u32, to: u32) {
        if self.block == 0 {
            self.block = from;
        }
        self.wanted = to;
        if to > self.block {
            self.scale_pace(to);
        }
    }

    fn scale_pace(&mut self, block: u32) {
        let ratio = f64::from(block) / f64::from(self.block);
        self.pace = self.pace.map(|(pace, deviation)| (pace.mul_f64(ratio), deviation.mul_f64(ratio)));
        self.block = block;
    }

    /// Nothing is outstanding any more.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }

    /// A probe goes out now; `rate` is the path's, in bytes per second, `timeout` how long replies may take; `more`: another call is to be
    /// kept company. Returns whether it is time to send the oldest call again, too: perhaps somebody answers calls and no probes.
    pub(super) fn handle_probe(
        &mut self,
        now: Instant,
        rate: f64,
        timeout: Duration,
        patient: bool,
        more: bool,
    ) -> bool {
        if let Some(due) = self.company.take() {
            self.company = more.then_some(due);
            self.next = Some(if more { now } else { due }.max(now + MIN_INTERVAL));
            return false;
        }
        if self.asked.is_none() {
            (self.asked, self.usual) = (Some(now), timeout);
        }
        self.asked_last = now;
        self.probes += 1;
        let silence = now.saturating_duration_since(self.since);
        let usual = silence < (2 * self.longest).min(USUAL);
        let roused = self.roused.is_some_and(|at| now.saturating_duration_since(at) < ROUSED);
        let interval = match silence {
            _ if roused => (silence / 8).min(URGENT_INTERVAL),
            _ if self.heard.is_none() && silence < URGENT => (silence / 2).min(FIRST_INTERVAL),
            _ if self.heard.is_none() => (silence / 8).min(UNHEARD_INTERVAL),
            _ if patient => (silence / 4).min(MAX_INTERVAL),
            _ if usual => (silence / 20).min(USUAL_INTERVAL),
            _ if silence < Duration::from_millis(200) => silence / 10,
            _ if silence < URGENT => (silence / 8).min(URGENT_INTERVAL),
            _ => (silence / 8).min(MAX_INTERVAL),
        };
        let share =
            if rate > 0.0 { Duration::from_secs_f64((PROBE_BYTES / rate).min(60.0)) } else { BLIND_INTERVAL };
        let enough = self.resend_after.max(2 * timeout);
        let resend = silence >= if patient { PATIENT_RESEND * enough } else { enough };
        if resend {
            self.resend_after = (2 * self.resend_after).min(MAX_RESEND);
        }
        self.next = Some(now + interval.max(MIN_INTERVAL).max(share).max(self.pace() / 4));
        resend
    }

    /// Whether nothing has been heard at all.
    pub(super) const fn is_unheard(&self) -> bool {
        self.heard.is_none()
    }

    /// Whether the next probe only keeps a call company.
    pub(super) const fn keeps_company(&self) -> bool {
        self.company.is_some()
    }

    /// Returns when the next probe is due.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns when the silence began.
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// Returns the smoothed length of the silences that were asked into.
    pub(super) const fn mean_fade(&self) -> Duration {
        self.fade
    }

    /// Returns the smoothed time between replies.
    pub(super) fn pace(&self) -> Duration {
        self.pace.map_or(Duration::ZERO, |(pace, _)| pace)
    }

    /// Whether a hole in the stream of replies ended within `span` before `now`.
    pub(super) fn explains(&self, now: Instant, span: Duration) -> bool {
        self.hole.is_some_and(|(ended, _)| now.saturating_duration_since(ended) <= span)
    }

    /// A call is answered that was sent at `sent`. If it had waited in a silence for [`STOPPED`] times as long as replies usually take at most,
    /// returns that time.
    pub(super) fn stopped(&self, now: Instant, sent: Instant) -> Option<Duration> {
        let ended = if self.asked.is_some() { now } else { self.ended? };
        let most = STOPPED * self.usual;
        (ended.saturating_duration_since(sent) > most).then_some(most)
    }

    /// Whether a hole ended since `sent` that was longer than `pause`, and long enough to mean something.
    pub(super) fn has_met(&self, sent: Instant, pause: Duration) -> bool {
        self.hole.is_some_and(|(ended, gap)| ended > sent && gap > pause.max(MIN_THRESHOLD))
    }

    fn threshold(&self, timeout: Duration, patient: bool) -> Duration {
        let threshold = match (self.pace, self.heard) {
            (_, None) => FIRST_PROBE,
            (Some((pace, deviation)), Some(_)) if self.flowing => {
                timeout.min((pace + pace / 4 + 3 * deviation).max(MIN_THRESHOLD))
            }
            (_, Some(_)) => timeout,
        };
        match self.longest {
            _ if !patient => threshold,
            Duration::ZERO => threshold.max(PATIENT_PROBE),
            longest => threshold.max((4 * longest).clamp(MIN_PATIENT_PROBE, PATIENT_PROBE)),
        }
    }
}
