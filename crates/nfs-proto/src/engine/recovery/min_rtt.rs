//! Lowest round-trip time of blocks: what the path takes without queues (BBR's `RTprop`).

use std::time::{Duration, Instant};

use super::tuning::PathTuning;

/// The lowest round-trip time seen with the present block size.
#[derive(Debug)]
pub(super) struct MinRtt {
    tuning: PathTuning,
    value: Option<Duration>,
    seen: Instant,
    /// Lowest in this round.
    round: Option<Duration>,
    latest: Duration,
}

impl MinRtt {
    pub(super) const fn new(tuning: PathTuning, now: Instant) -> Self {
        Self { tuning, value: None, seen: now, round: None, latest: Duration::ZERO }
    }

    /// Forgets everything.
    pub(super) const fn reset(&mut self, now: Instant) {
        *self = Self::new(self.tuning, now);
    }

    /// Takes a sample in.
    pub(super) fn sample(&mut self, now: Instant, rtt: Duration) {
        self.latest = rtt;
        if self.value.is_none_or(|least| rtt <= least) {
            self.set(now, rtt);
        }
        self.round = Some(self.round.map_or(rtt, |least| least.min(rtt)));
    }

    /// Takes a value that was measured on an empty path, or by an earlier connection.
    pub(super) const fn set(&mut self, now: Instant, rtt: Duration) {
        (self.value, self.seen) = (Some(rtt), now);
    }

    /// Begins the next round.
    pub(super) const fn end_round(&mut self) {
        self.round = None;
    }

    /// Larger blocks take so much longer. Smaller ones show a shorter time themselves.
    pub(super) fn lengthen(&mut self, additional: Duration) {
        self.value = self.value.map(|value| value + additional);
    }

    /// Returns the minimum, as far as it is known.
    pub(super) fn get(&self) -> Duration {
        self.value.unwrap_or_default()
    }

    /// Returns how long the last reply had queued.
    pub(super) fn queueing(&self) -> Duration {
        self.latest.saturating_sub(self.get())
    }

    /// Returns how long every reply of this round had queued, at least.
    pub(super) fn queueing_in_round(&self) -> Duration {
        self.round.unwrap_or_default().saturating_sub(self.get())
    }

    /// Returns the last sample.
    pub(super) const fn latest(&self) -> Duration {
        self.latest
    }

    /// Whether it was seen too long ago to be believed.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) > self.lifetime()
    }

    fn lifetime(&self) -> Duration {
        self.tuning.min_rtt_lifetime.max(self.tuning.min_rtt_round_trips * self.get())
    }
}
