//! How many bytes one WRITE moves over a stream: what the path takes in a moment.
//!
//! Until a WRITE is answered nobody knows how much of it arrived: nothing can be shown, a silence means nothing, and over a new
//! connection all of it is sent again.

use std::time::{Duration, Instant};

/// Seconds that a WRITE takes.
const MOMENT: f64 = 0.5;

/// The smallest such block, in bytes; block sizes are multiples of this.
const SMALLEST: u32 = 16 << 10;

/// Rates are measured over this time at least.
const SPAN: Duration = Duration::from_secs(1);

/// What a stream accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteSize {
    /// Bytes per second.
    rate: Option<f64>,
    since: Instant,
    bytes: u64,
}

impl WriteSize {
    pub(super) const fn new(now: Instant) -> Self {
        Self { rate: None, since: now, bytes: 0 }
    }

    /// A transfer begins after there was none.
    pub(super) const fn begin(&mut self, now: Instant) {
        (self.since, self.bytes) = (now, 0);
    }

    /// What the path moves, in bytes per second, as far as others know.
    pub(super) const fn expect_rate(&mut self, rate: f64) {
        self.rate = Some(rate);
    }

    /// So many bytes were accepted.
    pub(super) fn handle_accepted(&mut self, now: Instant, bytes: u64) {
        self.bytes += bytes;
        let time = now.saturating_duration_since(self.since);
        if time >= SPAN {
            self.rate = Some(self.bytes as f64 / time.as_secs_f64());
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Returns the bytes per WRITE at most.
    pub(super) fn bytes(&self) -> u32 {
        self.rate.map_or(u32::MAX, |rate| ((rate * MOMENT) as u32 / SMALLEST).max(1) * SMALLEST)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_a_moment_of_the_path() {
        let start = Instant::now();
        let mut size = WriteSize::new(start);
        assert_eq!(size.bytes(), u32::MAX, "nothing is known yet");
        size.expect_rate(115_000.0);
        assert_eq!(size.bytes(), 48 << 10);
        for tenth in 1..=20 {
            size.handle_accepted(start + Duration::from_millis(100) * tenth, 1 << 20);
        }
        assert_eq!(size.bytes(), (10 << 20) / 2 / SMALLEST * SMALLEST);
        size.begin(start + Duration::from_secs(60));
        assert_eq!(size.bytes(), (10 << 20) / 2 / SMALLEST * SMALLEST, "an idle minute is no slow one");
        size.handle_accepted(start + Duration::from_secs(70), 1000);
        assert_eq!(size.bytes(), SMALLEST);
    }

    #[test]
    fn a_rate_is_that_of_the_time_that_it_took() {
        let start = Instant::now();
        let mut size = WriteSize::new(start);
        size.handle_accepted(start + Duration::from_secs(4), 1 << 20);
        assert_eq!(size.bytes(), 128 << 10, "half of 256 KiB a second");
    }
}
