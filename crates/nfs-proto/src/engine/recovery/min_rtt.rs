//! Lowest round-trip time of blocks: what the path takes without queues (BBR's `RTprop`).

use std::time::{Duration, Instant};

use super::tuning::PathTuning;

/// The lowest round-trip time seen with the present block size.
#[derive(Debug)]
pub(super) struct MinRtt {
    tuning: PathTuning,
    value: Option<Duration>,
    /// What of it larger blocks have added since it was measured.
    added: Duration,
    seen: Instant,
    /// Lowest in this round.
    round: Option<Duration>,
    /// Number of samples in this round, and their sum.
    samples: (u32, Duration),
    /// Smoothed over the rounds: by how much the mean exceeds the lowest.
    jitter: Duration,
    latest: Duration,
}

impl MinRtt {
    pub(super) const fn new(tuning: PathTuning, now: Instant) -> Self {
        Self {
            tuning,
            value: None,
            added: Duration::ZERO,
            seen: now,
            round: None,
            samples: (0, Duration::ZERO),
            jitter: Duration::ZERO,
            latest: Duration::ZERO,
        }
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
        self.samples = (self.samples.0 + 1, self.samples.1 + rtt);
    }

    /// Takes a value that was measured on an empty path, or by an earlier connection.
    pub(super) const fn set(&mut self, now: Instant, rtt: Duration) {
        (self.value, self.added, self.seen) = (Some(rtt), Duration::ZERO, now);
    }

    /// Begins the next round; what a fade of seconds adds to one counts as `most`.
    pub(super) fn end_round(&mut self, most: Duration) {
        let (count, sum) = std::mem::take(&mut self.samples);
        if let Some(least) = self.round.take() {
            self.jitter = (self.jitter * 7 + (sum / count).saturating_sub(least).min(most)) / 8;
        }
    }

    /// Returns how much longer than the shortest round trips of a round all of them take on average: what a queue that stands does not explain.
    pub(super) const fn jitter(&self) -> Duration {
        self.jitter
    }

    /// Larger blocks take so much longer.
    pub(super) fn lengthen(&mut self, additional: Duration) {
        self.value = self.value.map(|value| value + additional);
        self.added += additional;
    }

    /// Smaller blocks take so much less, of what larger ones have added. The rest they show themselves, where no queue stands.
    pub(super) fn shorten(&mut self, less: Duration) {
        let less = less.min(self.added);
        self.value = self.value.map(|value| value.saturating_sub(less));
        self.added -= less;
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

#[cfg(test)]
mod tests {
    use super::{
        super::for_tests::{MS, epoch},
        *,
    };

    fn tuning() -> PathTuning {
        PathTuning {
            min_rtt_lifetime: Duration::from_secs(10),
            min_rtt_round_trips: 128,
            ..PathTuning::default()
        }
    }

    #[test]
    fn the_lowest_sample_counts_and_what_the_others_had_more_has_queued() {
        let now = epoch();
        let mut min_rtt = MinRtt::new(tuning(), now);
        assert_eq!(
            (min_rtt.get(), min_rtt.queueing(), min_rtt.latest()),
            (Duration::ZERO, Duration::ZERO, Duration::ZERO)
        );
        for (rtt, least, queueing, in_round) in
            [(60, 60, 0, 0), (90, 60, 30, 0), (50, 50, 0, 0), (70, 50, 20, 0)]
        {
            min_rtt.sample(now, rtt * MS);
            assert_eq!(
                (min_rtt.get(), min_rtt.queueing(), min_rtt.latest()),
                (least * MS, queueing * MS, rtt * MS)
            );
            assert_eq!(min_rtt.queueing_in_round(), in_round * MS);
        }
        min_rtt.end_round(Duration::MAX);
        assert_eq!(min_rtt.queueing_in_round(), Duration::ZERO, "no reply came");
        for (rtt, in_round) in [(90, 40), (80, 30), (85, 30)] {
            min_rtt.sample(now, rtt * MS);
            assert_eq!(min_rtt.queueing_in_round(), in_round * MS);
        }
    }

    #[test]
    fn jitter_is_what_the_mean_of_a_round_has_more_than_its_lowest_smoothed_by_an_eighth() {
        let now = epoch();
        let mut min_rtt = MinRtt::new(tuning(), now);
        // In microseconds: 8 ms more than the lowest, then 4 ms, none, no reply, and a fade of seconds.
        let rounds: [(&[u32], u64); 6] = [
            (&[50, 66, 50, 66], 1000),
            (&[66, 58], (7 * 1000 + 4000) / 8),
            (&[90, 90, 90], 7 * 1375 / 8),
            (&[], 1203),
            (&[90], 7 * 1203 / 8),
            (&[90, 4090], (7 * 1052 + 20_000) / 8),
        ];
        for (samples, jitter) in rounds {
            let before = min_rtt.jitter();
            for &rtt in samples {
                min_rtt.sample(now, rtt * MS);
                assert_eq!(min_rtt.jitter(), before, "the round has not ended");
            }
            min_rtt.end_round(20 * MS);
            let found = min_rtt.jitter().as_micros();
            assert!(found.abs_diff(jitter.into()) <= 1, "{samples:?}: {found} µs");
        }
        min_rtt.reset(now);
        assert_eq!(min_rtt.jitter(), Duration::ZERO);
    }

    #[test]
    fn it_is_believed_for_ten_seconds_or_128_round_trips() {
        for (rtt, seconds) in [(50, 10.0), (78, 10.0), (100, 12.8)] {
            let seen = epoch();
            let mut min_rtt = MinRtt::new(tuning(), seen);
            min_rtt.sample(seen, rtt * MS);
            let until = seen + Duration::from_secs_f64(seconds);
            min_rtt.sample(until, (rtt + 1) * MS);
            assert!(!min_rtt.has_expired(until), "{rtt} ms");
            assert!(min_rtt.has_expired(until + MS), "{rtt} ms");
            min_rtt.sample(until, rtt * MS);
            assert!(!min_rtt.has_expired(until + MS), "it was seen again");
        }
    }

    #[test]
    fn a_value_from_an_empty_path_replaces_a_lower_one() {
        let now = epoch();
        let mut min_rtt = MinRtt::new(tuning(), now);
        min_rtt.sample(now, 50 * MS);
        min_rtt.set(now + 11_000 * MS, 80 * MS);
        assert_eq!(min_rtt.get(), 80 * MS);
        assert!(!min_rtt.has_expired(now + 20_000 * MS));
    }

    #[test]
    fn larger_blocks_lengthen_what_is_known_and_only_that() {
        let now = epoch();
        let mut min_rtt = MinRtt::new(tuning(), now);
        min_rtt.lengthen(5 * MS);
        assert_eq!(min_rtt.get(), Duration::ZERO);
        min_rtt.sample(now, 50 * MS);
        min_rtt.lengthen(5 * MS);
        assert_eq!(min_rtt.get(), 55 * MS);
        min_rtt.reset(now);
        assert_eq!((min_rtt.get(), min_rtt.latest()), (Duration::ZERO, Duration::ZERO));
    }
}
