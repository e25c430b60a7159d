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
