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
            arq: LinkArq::new(tuning.path),
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
        let missing =
            f64::from(block.saturating_sub(acked.bytes)) / self.bottleneck_rate().max(f64::from(block));
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
        let additional = f64::from(to.saturating_sub(from)) / self.bottleneck_rate().max(1.0);
        self.min_rtt.lengthen(Duration::from_secs_f64(additional));
    }
}
