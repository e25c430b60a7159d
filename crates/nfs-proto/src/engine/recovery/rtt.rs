//! Round-trip time per class of calls (RFC 6298 §2, without Karn's rule: samples are exact).

use std::time::Duration;

use super::{Class, tuning::RttTuning};

/// Smoothed round-trip time and its variation, for each class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RttEstimator {
    tuning: RttTuning,
    classes: [Option<Estimate>; 3],
    last: Option<Class>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    smoothed: Duration,
    variation: Duration,
}

impl RttEstimator {
    pub(super) fn new(tuning: RttTuning) -> Self {
        Self { tuning, ..Self::default() }
    }

    /// Takes a sample in.
    pub(super) fn sample(&mut self, class: Class, rtt: Duration) {
        let estimate = &mut self.classes[class as usize];
        *estimate = Some(match *estimate {
            None => Estimate { smoothed: rtt, variation: rtt / 2 },
            Some(Estimate { smoothed, variation }) => Estimate {
                smoothed: (smoothed * 7 + rtt) / 8,
                variation: (variation * 3 + rtt.abs_diff(smoothed)) / 4,
            },
        });
        self.last = Some(class);
    }

    /// Returns the smoothed time of a class, or of the class that was sampled last.
    pub(super) fn smoothed(&self, class: Class) -> Option<Duration> {
        self.estimate(class).map(|it| it.smoothed)
    }

    /// Returns the smoothed time of a class that has been sampled.
    pub(super) fn known(&self, class: Class) -> Option<Duration> {
        self.classes[class as usize].map(|it| it.smoothed)
    }

    /// Returns how long a reply of this class may take before its absence means something.
    pub(super) fn timeout(&self, class: Class) -> Duration {
        self.estimate(class).map_or(self.tuning.initial_rto, |it| {
            it.smoothed + (4 * it.variation).max(self.tuning.min_variation)
        })
    }

    /// Returns the smallest allowance over the smoothed time.
    pub(super) const fn min_variation(&self) -> Duration {
        self.tuning.min_variation
    }

    fn estimate(&self, class: Class) -> Option<Estimate> {
        self.classes[class as usize].or_else(|| self.classes[self.last? as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn timeouts_follow_the_samples_of_their_class() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.timeout(Class::Read), RttTuning::default().initial_rto);
        rtt.sample(Class::Read, 100 * MS);
        assert_eq!(rtt.timeout(Class::Read), 300 * MS);
        assert_eq!(rtt.timeout(Class::Control), 300 * MS, "a class without samples borrows");
        for _ in 0..100 {
            rtt.sample(Class::Read, 100 * MS);
        }
        let settled = rtt.timeout(Class::Read);
        assert!(settled >= 109 * MS && settled <= 110 * MS, "{settled:?}");
        rtt.sample(Class::Control, 5 * MS);
        assert_eq!(rtt.timeout(Class::Control), 15 * MS);
    }

    #[test]
    fn the_second_sample_counts_an_eighth_and_its_distance_a_quarter() {
        // RFC 6298 §2.3.
        let mut rtt = RttEstimator::default();
        rtt.sample(Class::Read, 100 * MS);
        rtt.sample(Class::Read, 200 * MS);
        assert_eq!(rtt.smoothed(Class::Read), Some(Duration::from_micros(112_500)));
        assert_eq!(rtt.timeout(Class::Read), Duration::from_micros(112_500 + 4 * 62_500));
    }
}
