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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Gaps between replies, in ms.
    fn after(gaps: &[u32]) -> ReplyInterval {
        let mut interval = ReplyInterval::default();
        gaps.iter().for_each(|&gap| interval.sample(gap * MS));
        interval
    }

    #[test]
    fn interval_and_variation_are_smoothed_like_round_trips() {
        // RFC 6298 §2.2 and §2.3: the first sample R, its variation R/2; then 7/8 and 3/4 of what was known.
        for (gaps, mean, pto) in [
            (&[80][..], 80.0, 80.0 * 1.25 + 3.0 * 40.0),
            (&[80, 80], 80.0, 80.0 * 1.25 + 3.0 * 30.0),
            (&[80, 160], 90.0, 90.0 * 1.25 + 3.0 * 50.0),
            (&[80, 0], 70.0, 70.0 * 1.25 + 3.0 * 50.0),
            // A gap counts four times interval and variation at most: 480 ms, not 4 s.
            (&[80, 4000], (560.0 + 480.0) / 8.0, 130.0 * 1.25 + 3.0 * (120.0 + 400.0) / 4.0),
        ] {
            let interval = after(gaps);
            let expected = |millis: f64| Duration::from_secs_f64(millis / 1e3);
            assert_eq!(interval.mean(), expected(mean), "{gaps:?}");
            assert_eq!(interval.probe_timeout(), Some(expected(pto)), "{gaps:?}");
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_gap() {
        let interval = after(&[]);
        assert_eq!((interval.mean(), interval.probe_timeout()), (Duration::ZERO, None));
        assert!(!interval.is_exceeded_by(9000 * MS));
    }

    #[test]
    fn a_gap_of_one_and_a_half_intervals_and_two_variations_is_no_loss_episode_and_a_longer_one_is() {
        let interval = after(&[80, 160]);
        // 90 ms, and a variation of 50 ms.
        assert!(!interval.is_exceeded_by(235 * MS));
        assert!(interval.is_exceeded_by(236 * MS));
    }

    #[test]
    fn larger_blocks_come_at_longer_intervals_from_the_change_on() {
        let mut interval = after(&[80]);
        interval.handle_block_change(1000, 2000);
        assert_eq!(interval.mean(), 160 * MS);
        assert_eq!(interval.probe_timeout(), Some(440 * MS), "variation as well");
        interval.handle_block_change(2000, 3000);
        assert_eq!(interval.mean(), 240 * MS);
        interval.handle_block_change(3000, 3000);
        assert_eq!(interval.mean(), 240 * MS);
    }

    #[test]
    fn smaller_blocks_come_at_shorter_intervals_when_the_larger_ones_in_flight_have_come() {
        let mut interval = after(&[80]);
        interval.handle_block_change(2000, 1000);
        for bytes in [2000, 0, 500] {
            interval.handle_block(bytes);
            assert_eq!(interval.mean(), 80 * MS, "{bytes} bytes");
        }
        interval.handle_block(1000);
        assert_eq!(interval.mean(), 40 * MS);
        interval.handle_block(1000);
        assert_eq!(interval.mean(), 40 * MS, "once");
    }
}
