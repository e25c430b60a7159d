//! Spreads file bytes over time.

use std::time::{Duration, Instant};

/// How late a pause may end without the rate suffering: timers of drivers are only good to a millisecond or two.
const PACING_SLACK: Duration = Duration::from_millis(5);

/// Keeps READs and WRITEs to a rate.
#[derive(Debug)]
pub(super) struct Pacer {
    /// In bit/s of file bytes.
    pub(super) rate: u64,
    /// When the next block may leave.
    pub(super) next: Instant,
    /// A block waits for that.
    pub(super) paused: bool,
}

impl Pacer {
    pub(super) fn spend(&mut self, now: Instant, bytes: u32) {
        // A timer that fires late must not cost rate.
        let earliest = now.checked_sub(PACING_SLACK).unwrap_or(now);
        self.next = self.next.max(earliest) + self.time(bytes);
    }

    /// So many bytes that were paid for were not moved.
    pub(super) fn refund(&mut self, bytes: u32) {
        self.next = self.next.checked_sub(self.time(bytes)).unwrap_or(self.next);
    }

    fn time(&self, bytes: u32) -> Duration {
        Duration::from_nanos(u64::from(bytes) * 8 * 1_000_000_000 / self.rate)
    }

    /// Whether READs and WRITEs have to wait; if so, for [`Pacer::next`].
    pub(super) fn pauses(&mut self, now: Instant) -> bool {
        self.paused = self.next > now;
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// 1000 bytes take 100 ms.
    fn pacer() -> (Pacer, Instant) {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let start = Instant::now() + Duration::from_secs(60);
        (Pacer { rate: 80_000, next: start, paused: false }, start)
    }

    #[test]
    fn a_block_keeps_the_next_one_waiting_for_as_long_as_it_takes_at_the_rate() {
        let (mut pacer, start) = pacer();
        assert!(!pacer.pauses(start));
        pacer.spend(start, 1000);
        assert!(pacer.pauses(start) && pacer.pauses(start + 99 * MS));
        assert!(pacer.paused);
        assert!(!pacer.pauses(start + 100 * MS));
        assert!(!pacer.paused);
        pacer.spend(start + 100 * MS, 500);
        assert_eq!(pacer.next, start + 150 * MS);
    }

    #[test]
    fn a_timer_that_is_a_few_milliseconds_late_costs_no_rate_and_an_idle_time_earns_none() {
        for (late, next) in [(3, 200), (5, 200), (6, 201), (1000, 1195)] {
            let (mut pacer, start) = pacer();
            pacer.spend(start, 1000);
            pacer.spend(start + 100 * MS + late * MS, 1000);
            assert_eq!(pacer.next, start + next * MS, "{late} ms late");
        }
    }

    #[test]
    fn what_was_not_moved_is_paid_back() {
        let (mut pacer, start) = pacer();
        pacer.spend(start, 1000);
        pacer.refund(0);
        assert_eq!(pacer.next, start + 100 * MS);
        pacer.refund(600);
        assert_eq!(pacer.next, start + 40 * MS);
    }

    #[test]
    fn the_slowest_and_the_fastest_rate_are_kept() {
        let (mut pacer, start) = pacer();
        pacer.rate = 1000;
        pacer.spend(start, 1 << 20);
        assert_eq!(pacer.next, start + 8_388_608 * MS);
        let (mut pacer, start) = self::pacer();
        pacer.rate = 8_000_000_000;
        pacer.spend(start, 1 << 20);
        assert_eq!(pacer.next, start + Duration::from_nanos(1 << 20));
    }
}
