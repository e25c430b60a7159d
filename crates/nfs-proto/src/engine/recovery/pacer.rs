//! Spreads a wide window over the round trip: a burst of it would overflow a queue, or a server's socket buffer.

use std::time::{Duration, Instant};

use super::tuning::PacingTuning;

/// Credit in bytes that grows with time; calls may leave while there is any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    tuning: PacingTuning,
    credit: f64,
    at: Instant,
    rate: f64,
}

impl Pacer {
    pub(super) const fn new(tuning: PacingTuning, now: Instant) -> Self {
        Self { tuning, credit: tuning.burst_bytes, at: now, rate: 0.0 }
    }

    /// The path carries `rate` bytes per second; 0 if that is not known, and then nothing is held back.
    pub(super) fn set_rate(&mut self, now: Instant, rate: f64, block: u32) {
        self.refill(now, block);
        self.rate = rate * self.tuning.gain;
    }

    /// A READ or WRITE leaves.
    pub(super) fn spend(&mut self, now: Instant, bytes: u32, block: u32) {
        self.refill(now, block);
        if self.rate > 0.0 {
            self.credit -= f64::from(bytes);
        }
    }

    /// Returns when the next READ or WRITE may leave, if not now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if self.rate <= 0.0 {
            return None;
        }
        let credit = self.credit + self.rate * now.saturating_duration_since(self.at).as_secs_f64();
        // A whole microsecond more, so that rounding does not make it too early.
        let wait = Duration::from_secs_f64((-credit / self.rate).max(0.0)) + Duration::from_micros(1);
        (credit < 0.0).then(|| now + wait)
    }

    fn refill(&mut self, now: Instant, block: u32) {
        let most =
            self.tuning.burst_bytes.max(2.0 * f64::from(block)).max(self.rate * self.tuning.burst_seconds);
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.credit = (self.credit + self.rate * passed).min(most);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_burst_waits_for_the_rate() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let mut pacer = Pacer::new(PacingTuning::default(), now);
        pacer.spend(now, 1 << 20, 8192);
        assert_eq!(pacer.next(now), None, "nothing is known of the path");
        pacer.set_rate(now, 1e6, 8192);
        pacer.spend(now, 64 << 10, 8192);
        assert_eq!(pacer.next(now), None, "a burst may leave");
        pacer.spend(now, 15_000, 8192);
        let wait = pacer.next(now).unwrap() - now;
        let debt = 65_536.0 + 15_000.0 - PacingTuning::default().burst_bytes;
        let expected = Duration::from_secs_f64(debt / (PacingTuning::default().gain * 1e6));
        assert!(wait >= expected && wait < expected + Duration::from_millis(1), "{wait:?}, {expected:?}");
        assert_eq!(pacer.next(now + wait), None);
    }
}
