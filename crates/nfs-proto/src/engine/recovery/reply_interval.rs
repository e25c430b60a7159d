//! The time between replies while they flow: what a gap in them is measured by.

use std::time::Duration;

/// Smoothed time between replies and its variation (gains of RFC 6298 §2), for the present block size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyInterval {
    estimate: Option<(Duration, Duration)>,
    /// The block that this is the interval of, and the one asked for now, in bytes.
    block: u32,
    wanted: u32,
}

impl ReplyInterval {
    /// Takes the gap before a reply in.
    pub(super) fn sample(&mut self, gap: Duration) {
        self.estimate = Some(match self.estimate {
            None => (gap, gap / 2),
            Some((interval, variation)) => {
                let gap = gap.min(4 * (interval + variation));
                ((interval * 7 + gap) / 8, (variation * 3 + gap.abs_diff(interval)) / 4)
            }
        });
    }

    /// Replies with blocks of another size come at another interval: with larger ones from the next on, with smaller ones when the larger
    /// ones in flight have come.
    pub(super) fn handle_block_change(&mut self, from: u32, to: u32) {
        if self.block == 0 {
            self.block = from;
        }
        self.wanted = to;
        if to > self.block {
            self.scale(to);
        }
    }

    /// A reply brought a block of so many bytes.
    pub(super) fn handle_block(&mut self, bytes: u32) {
        if bytes < self.block && bytes == self.wanted {
            self.scale(bytes);
        }
    }

    /// Returns the smoothed interval; zero before any sample.
    pub(super) fn mean(&self) -> Duration {
        self.estimate.map_or(Duration::ZERO, |(interval, _)| interval)
    }

    /// Returns how long a gap may last before a probe is due, once there is a sample.
    pub(super) fn probe_timeout(&self) -> Option<Duration> {
        self.estimate.map(|(interval, variation)| interval + interval / 4 + 3 * variation)
    }

    /// Whether a gap between replies is a loss episode.
    pub(super) fn is_exceeded_by(&self, gap: Duration) -> bool {
        self.estimate.is_some_and(|(interval, variation)| gap > interval + interval / 2 + 2 * variation)
    }

    fn scale(&mut self, block: u32) {
        let ratio = f64::from(block) / f64::from(self.block);
        self.estimate =
            self.estimate.map(|(interval, variation)| (interval.mul_f64(ratio), variation.mul_f64(ratio)));
        self.block = block;
    }
}
