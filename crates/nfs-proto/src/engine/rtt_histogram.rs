//! Round-trip times as a histogram, for people to read.

use std::time::Duration;

/// Buckets per factor of two; neighbours differ by 9 %.
const STEPS: usize = 8;
const BUCKETS: usize = 36 * STEPS;

/// Counts round-trip times from 1 µs to 19 hours in logarithmic buckets.
#[derive(Clone)]
pub struct RttHistogram {
    counts: [u32; BUCKETS],
    total: u64,
    sum_micros: u64,
}

impl RttHistogram {
    /// Counts one sample.
    pub fn record(&mut self, rtt: Duration) {
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        let octave = micros.ilog2() as usize;
        let fraction = ((u128::from(micros) << 3 >> octave) & 7) as usize;
        let index = (octave * STEPS + fraction).min(BUCKETS - 1);
        self.counts[index] = self.counts[index].saturating_add(1);
        self.total += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    /// Counts another histogram's samples as well.
    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.total += other.total;
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
    }

    /// Returns the mean of the samples that were recorded after `before` was copied.
    pub fn mean_since(&self, before: &Self) -> Option<Duration> {
        let count = self.total - before.total;
        (count > 0).then(|| Duration::from_micros((self.sum_micros - before.sum_micros) / count))
    }

    /// Returns the number of samples.
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// Returns the upper edge of the bucket that holds the given share (0 to 1) of all samples.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        if self.total == 0 {
            return None;
        }
        let rank = ((share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                let (octave, fraction) = (index / STEPS, (index % STEPS + 1) as u64);
                let micros = (1_u64 << octave) + (fraction << octave >> 3);
                return Some(Duration::from_micros(micros));
            }
        }
        None
    }
}

impl Default for RttHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0, sum_micros: 0 }
    }
}

impl std::fmt::Debug for RttHistogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quantiles = [0.5, 0.95, 0.99].map(|share| self.quantile(share));
        formatter
            .debug_struct("RttHistogram")
            .field("total", &self.total)
            .field("p50_95_99", &quantiles)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_bucket_of_the_truth() {
        let mut histogram = RttHistogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for millis in 1..=1000 {
            histogram.record(Duration::from_millis(millis));
        }
        for (share, truth) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            let got = histogram.quantile(share).unwrap().as_secs_f64();
            assert!((truth..truth * 1.13).contains(&got), "{share}: {got} s, {truth} s expected");
        }
    }

    #[test]
    fn the_shortest_and_the_longest_time_have_a_bucket() {
        let mut histogram = RttHistogram::default();
        histogram.record(Duration::ZERO);
        histogram.record(Duration::MAX);
        assert_eq!(histogram.count(), 2);
        assert!(histogram.quantile(0.1).unwrap() < Duration::from_micros(3));
    }

    #[test]
    fn the_mean_is_of_the_samples_since_a_copy_was_made() {
        let mut histogram = RttHistogram::default();
        histogram.record(Duration::from_secs(9));
        let before = histogram.clone();
        assert_eq!(histogram.mean_since(&before), None);
        for millis in [10, 20, 60] {
            histogram.record(Duration::from_millis(millis));
        }
        assert_eq!(histogram.mean_since(&before), Some(Duration::from_millis(30)));
    }
}
