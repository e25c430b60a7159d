//! Spreads a wide window over the round trip: a burst of it would overflow a queue, or a server's socket buffer.

use std::time::{Duration, Instant};

use super::tuning::PacingTuning;

/// How much faster than the rate calls leave at startup, and bytes that leave at once then, 10 datagrams: as RFC 9002 §7.7 and §7.2 have them.
/// What the path's queue holds is not known yet: a train of 64 KiB fills one of 50 packets.
const STARTUP_GAIN: f64 = 1.25;
const STARTUP_BURST: f64 = 14_720.0;

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

    /// The path seems to carry `rate` bytes per second, and startup is not over.
    pub(super) fn set_startup_rate(&mut self, now: Instant, rate: f64, block: u32) {
        self.set_rate(now, rate, block);
        self.rate = rate * STARTUP_GAIN;
        self.credit = self.credit.min(STARTUP_BURST);
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

    #[test]
    fn at_startup_trains_are_short() {
        let now = super::super::for_tests::epoch();
        let mut pacer = Pacer::new(PacingTuning::default(), now);
        pacer.set_startup_rate(now, 1e6, 1280);
        assert_eq!(burst(&mut pacer, now, 1280), 15_000, "one more than 14,720 bytes hold");
        let later = now + Duration::from_secs(1);
        pacer.set_startup_rate(later, 1e6, 1280);
        assert_eq!(burst(&mut pacer, later, 1280), 15_000, "credit is not saved");
        let wait = pacer.next(later).unwrap() - later;
        let expected = Duration::from_secs_f64((15_000.0 - STARTUP_BURST) / 1.25e6);
        assert!(wait >= expected && wait < expected + Duration::from_millis(1), "{wait:?}, {expected:?}");
    }

    /// A path of 1 MB/s, paced at twice that with bursts of 64 KiB.
    fn pacer(block: u32) -> (Pacer, Instant) {
        let now = super::super::for_tests::epoch();
        let tuning = PacingTuning { gain: 2.0, burst_bytes: 65_536.0, burst_seconds: 0.005 };
        let mut pacer = Pacer::new(tuning, now);
        pacer.set_rate(now, 1e6, block);
        (pacer, now)
    }

    /// Sends until nothing may leave any more, 1000 bytes at a time: how many bytes left.
    fn burst(pacer: &mut Pacer, now: Instant, block: u32) -> u32 {
        let mut left = 0;
        while pacer.next(now).is_none() {
            pacer.spend(now, 1000, block);
            left += 1000;
        }
        left
    }

    #[test]
    fn a_burst_is_64_kib_or_two_blocks_or_five_milliseconds() {
        // While there is any credit one more may leave.
        let later = Duration::from_secs(60);
        for (rate, block, bytes) in [(1e6, 1000, 66_000), (1e6, 50_000, 101_000), (1e7, 1000, 101_000)] {
            let (mut pacer, now) = pacer(block);
            pacer.set_rate(now, rate, block);
            // Credit that was saved for a minute is worth a burst.
            let left = burst(&mut pacer, now + later, block);
            assert_eq!(left, bytes, "{rate} B/s, {block} bytes");
        }
    }

    #[test]
    fn credit_grows_at_twice_the_rate() {
        let (mut pacer, now) = pacer(1000);
        burst(&mut pacer, now, 1000);
        let wait = pacer.next(now).unwrap() - now;
        // 464 bytes in debt: 0.232 ms, and a microsecond.
        assert_eq!(wait, Duration::from_micros(233));
        // 8000 bytes in 4 ms, but for the debt.
        let later = now + Duration::from_millis(4);
        assert_eq!(burst(&mut pacer, later, 1000), 8000);
        pacer.set_rate(later, 0.0, 1000);
        assert_eq!(pacer.next(later), None, "the rate is not known any more");
    }

    #[test]
    fn another_rate_counts_from_now_on() {
        let (mut pacer, now) = pacer(1000);
        burst(&mut pacer, now, 1000);
        pacer.spend(now, 9536, 1000);
        // 10,000 bytes in debt, of which 2000 are paid for in 1 ms at the old rate, and the rest in 4 ms at half of it.
        let later = now + Duration::from_millis(1);
        pacer.set_rate(later, 1e6 / 2.0, 1000);
        let wait = pacer.next(later).unwrap() - later;
        assert_eq!(wait, Duration::from_micros(8001));
    }
}
