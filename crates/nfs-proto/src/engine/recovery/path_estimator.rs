//! What is known of the path to the server.

use std::time::{Duration, Instant};

use super::{
    Acked, PathEstimate,
    delivery_rate::{DeliveryRate, ReplySpacing},
    link_arq::LinkArq,
    min_rtt::MinRtt,
    rtt::RttEstimator,
    tuning::Tuning,
};

/// Round-trip times, rates, and whether the link retransmits.
#[derive(Debug)]
pub(super) struct PathEstimator {
    pub(super) rtt: RttEstimator,
    pub(super) min_rtt: MinRtt,
    pub(super) delivery: DeliveryRate,
    pub(super) spacing: ReplySpacing,
    /// Whether the rate is still looked for.
    pub(super) is_startup: bool,
    pub(super) arq: LinkArq,
}

impl PathEstimator {
    pub(super) fn new(tuning: &Tuning, now: Instant) -> Self {
        Self {
            rtt: RttEstimator::new(tuning.rtt),
            min_rtt: MinRtt::new(tuning.path, now),
            delivery: DeliveryRate::new(tuning.path),
            spacing: ReplySpacing::new(tuning.path),
            is_startup: true,
            arq: LinkArq::new(),
        }
    }

    /// Starts from the estimate of an earlier connection.
    pub(super) fn resume(&mut self, now: Instant, prior: &PathEstimate) {
        self.delivery.resume(prior.rate);
        self.min_rtt.set(now, prior.min_rtt);
        self.is_startup = false;
        self.arq.resume(prior.retransmits);
    }

    /// Forgets rates and `min_rtt`: they belong to another path.
    pub(super) fn reset(&mut self, now: Instant) {
        self.delivery.reset();
        self.min_rtt.reset(now);
        self.start_again();
    }

    /// Looks for the rate as at the start.
    pub(super) fn start_again(&mut self) {
        self.is_startup = true;
        self.spacing.reset();
    }

    /// Takes the RTT of an acknowledged block in; one smaller than the present size would have taken longer as such a block.
    pub(super) fn sample_min_rtt(&mut self, now: Instant, rtt: Duration, acked: &Acked, block: u32) {
        let missing = f64::from(block.saturating_sub(acked.delivered()))
            / self.bottleneck_rate().max(f64::from(block.max(1)));
        self.min_rtt.sample(now, rtt + Duration::from_secs_f64(missing));
    }

    /// Returns the delivered rate in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.delivery.max()
    }

    /// Returns what the bottleneck carries in bytes per second, at startup more than was delivered; 0 before anything is known.
    pub(super) fn bottleneck_rate(&self) -> f64 {
        match self.spacing.rate() {
            _ if !self.is_startup => self.rate(),
            Some(spacing) => self.rate().max(spacing),
            None => 0.0,
        }
    }

    /// Returns the highest rate there is a sign of, in bytes per second; 0 before anything is known.
    pub(super) fn highest_rate(&self) -> f64 {
        let is_known = self.bottleneck_rate() > 0.0;
        if is_known { self.rate().max(self.spacing.rate().unwrap_or_default()) } else { 0.0 }
    }

    /// Returns the bandwidth-delay product in bytes.
    pub(super) fn bdp(&self) -> f64 {
        self.rate() * self.min_rtt.get().as_secs_f64()
    }

    /// Returns the time in which the path carries a block.
    pub(super) fn time_of(&self, bytes: u32) -> Duration {
        let bytes = f64::from(bytes.max(1));
        Duration::from_secs_f64(bytes / self.rate().max(bytes))
    }

    /// Blocks have another size from now on.
    pub(super) fn handle_block_change(&mut self, from: u32, to: u32) {
        let time = Duration::from_secs_f64(f64::from(to.abs_diff(from)) / self.bottleneck_rate().max(1.0));
        if to > from {
            self.min_rtt.lengthen(time);
        } else {
            self.min_rtt.shorten(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::for_tests::{MS, acked, epoch},
        *,
    };

    fn prior(retransmits: bool) -> PathEstimate {
        PathEstimate {
            rate: 1e6,
            is_app_limited: false,
            min_rtt: 50 * MS,
            fades_per_second: 0.0,
            mean_fade: Duration::ZERO,
            retransmits,
            block: 1000,
            in_flight: 0,
            fast: None,
        }
    }

    /// A path of 1 MB/s and 50 ms, known from an earlier connection.
    fn known() -> (PathEstimator, Instant) {
        let now = epoch();
        let mut path = PathEstimator::new(&Tuning::default(), now);
        path.resume(now, &prior(false));
        (path, now)
    }

    /// Replies that left the bottleneck 1 ms apart, with 2000 bytes each.
    fn spaced(path: &mut PathEstimator, now: Instant) {
        for reply in 0..3 {
            path.spacing.handle_reply(now + reply * MS, now, 2000, f64::INFINITY);
        }
    }

    #[test]
    fn an_earlier_estimate_ends_startup() {
        let now = epoch();
        for retransmits in [true, false] {
            let mut path = PathEstimator::new(&Tuning::default(), now);
            assert!(path.is_startup);
            path.resume(now, &prior(retransmits));
            assert!(!path.is_startup);
            assert_eq!((path.rate(), path.min_rtt.get(), path.bdp()), (1e6, 50 * MS, 50_000.0));
            assert_eq!(path.arq.retransmits(), retransmits);
        }
    }

    #[test]
    fn another_path_is_looked_for_from_the_start() {
        let (mut path, now) = known();
        spaced(&mut path, now);
        path.reset(now);
        assert!(path.is_startup);
        assert_eq!((path.rate(), path.min_rtt.get(), path.spacing.rate()), (0.0, Duration::ZERO, None));
    }

    #[test]
    fn the_bottleneck_is_unknown_until_startup_has_spacings_and_is_the_rate_afterwards() {
        let now = epoch();
        let mut path = PathEstimator::new(&Tuning::default(), now);
        path.delivery.handle_ack(50 * MS, &acked(now, 1000, 0), false);
        assert_eq!((path.bottleneck_rate(), path.highest_rate()), (0.0, 0.0), "20,000 may be far too low");
        spaced(&mut path, now);
        assert_eq!((path.bottleneck_rate(), path.highest_rate()), (2e6, 2e6));
        path.delivery.handle_ack(MS, &acked(now, 3000, 1000), false);
        assert_eq!((path.bottleneck_rate(), path.highest_rate()), (3e6, 3e6), "more was delivered");
        let (mut path, now) = known();
        assert_eq!((path.bottleneck_rate(), path.highest_rate()), (1e6, 1e6));
        spaced(&mut path, now);
        assert_eq!((path.bottleneck_rate(), path.highest_rate()), (1e6, 2e6), "pacing may follow spacings");
        path.delivery.reset();
        assert_eq!((path.bottleneck_rate(), path.highest_rate()), (0.0, 0.0), "forgotten");
    }

    #[test]
    fn a_block_takes_its_bytes_over_the_rate_and_a_second_at_most() {
        let (mut path, _) = known();
        assert_eq!([0, 1, 1000].map(|bytes| path.time_of(bytes)), [MS / 1000, MS / 1000, MS]);
        path.delivery.resume(100.0);
        assert_eq!([50, 100, 1000].map(|bytes| path.time_of(bytes)), [500 * MS, 1000 * MS, 1000 * MS]);
    }

    #[test]
    fn the_rtt_of_a_smaller_block_counts_as_that_of_one_of_the_present_size() {
        let (mut path, now) = known();
        // 3000 bytes more would have taken 3 ms more.
        path.sample_min_rtt(now, 40 * MS, &acked(now, 1000, 0), 4000);
        assert_eq!(path.min_rtt.get(), 43 * MS);
        path.sample_min_rtt(now, 42 * MS, &acked(now, 4000, 0), 1000);
        assert_eq!(path.min_rtt.get(), 42 * MS, "a larger one did take so long");
        let mut path = PathEstimator::new(&Tuning::default(), now);
        path.sample_min_rtt(now, 40 * MS, &acked(now, 1000, 0), 0);
        assert_eq!(path.min_rtt.get(), 40 * MS, "no block was chosen yet");
    }

    #[test]
    fn larger_blocks_lengthen_min_rtt_by_what_they_take_and_smaller_ones_take_that_back() {
        let (mut path, now) = known();
        for _ in 0..100 {
            path.handle_block_change(1000, 5000);
            assert_eq!(path.min_rtt.get(), 54 * MS);
            path.handle_block_change(5000, 1000);
            assert_eq!(path.min_rtt.get(), 50 * MS);
        }
        path.handle_block_change(1000, 5000);
        path.min_rtt.set(now, 52 * MS);
        path.handle_block_change(5000, 1000);
        assert_eq!(path.min_rtt.get(), 52 * MS, "what was measured may not be the blocks' time");
    }
}
