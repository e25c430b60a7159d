//! Round-trip times and the retransmission timeout (RFC 6298), with the bounds of Linux.

use std::time::Duration;

/// Linux' lower bound of the variation term (`TCP_RTO_MIN`): the timeout is at least 200 ms above the smoothed RTT. RFC 6298 §2.4
/// would have 1 s for the whole.
pub(super) const MIN_RTO: Duration = Duration::from_millis(200);

/// `TCP_RTO_MAX` of Linux; RFC 6298 §2.5 allows any bound from 60 s on.
const MAX_RTO: Duration = Duration::from_secs(120);

/// Before the first sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// Smoothed RTT, its variation, and the timeout with its back-off.
#[derive(Debug, Default)]
pub(super) struct RttEstimator {
    smoothed: Option<Duration>,
    /// Four times the mean deviation, its maximum in this round trip, and the term of the timeout.
    deviation: Duration,
    most: Duration,
    variation: Duration,
    /// The round trip ends when this sequence number is acknowledged.
    round: u64,
    minimum: Option<Duration>,
    doublings: u32,
}

impl RttEstimator {
    /// Takes a sample (RFC 6298 §2.2, §2.3). As in Linux a sample below the smoothed RTT widens the variation by an eighth of
    /// the usual, and the variation falls once a round trip only.
    pub(super) fn sample(&mut self, rtt: Duration, acknowledged: u64, next: u64) {
        self.doublings = 0;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.deviation = rtt * 2;
            self.variation = self.deviation.max(MIN_RTO);
            self.most = self.variation;
            self.round = next;
            return;
        };
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
        let apart = rtt.abs_diff(smoothed);
        let quarter = self.deviation / 4;
        if apart >= quarter {
            let more = apart - quarter;
            self.deviation += if rtt < smoothed { more / 8 } else { more };
        } else {
            self.deviation -= quarter - apart;
        }
        if self.deviation > self.most {
            self.most = self.deviation;
            self.variation = self.variation.max(self.most);
        }
        if acknowledged > self.round {
            if self.most < self.variation {
                self.variation -= (self.variation - self.most) / 4;
            }
            self.round = next;
            self.most = MIN_RTO;
        }
    }

    /// Records the RTT of one segment, for the minimum.
    pub(super) fn saw(&mut self, rtt: Duration) {
        self.minimum = Some(self.minimum.map_or(rtt, |minimum| minimum.min(rtt)));
    }

    /// Doubles the timeout (RFC 6298 §5.5).
    pub(super) const fn back_off(&mut self) {
        self.doublings = if self.doublings < 16 { self.doublings + 1 } else { 16 };
    }

    /// The retransmission timeout.
    pub(super) fn timeout(&self) -> Duration {
        let base = self.smoothed.map_or(INITIAL_RTO, |smoothed| smoothed + self.variation);
        (base * (1 << self.doublings)).min(MAX_RTO)
    }

    /// The smoothed RTT, once there is a sample.
    pub(super) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The least RTT. Linux takes that of the last 300 s, `tcp_min_rtt_wlen`; copies are shorter.
    pub(super) fn minimum(&self) -> Duration {
        self.minimum.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_timeout_is_a_second_before_a_sample_and_doubles_up_to_two_minutes() {
        let mut rtt = RttEstimator::default();
        let mut timeouts = Vec::new();
        for _ in 0..9 {
            timeouts.push(rtt.timeout().as_secs());
            rtt.back_off();
        }
        assert_eq!(timeouts, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    }

    #[test]
    fn a_steady_path_times_out_200_ms_above_its_rtt() {
        let mut rtt = RttEstimator::default();
        for round in 0..100 {
            rtt.sample(ms(50), round + 1, round + 1);
        }
        assert_eq!(rtt.timeout(), ms(250));
        rtt.back_off();
        assert_eq!(rtt.timeout(), ms(500));
        rtt.sample(ms(50), 200, 200);
        assert_eq!(rtt.timeout(), ms(250), "a sample ends the back-off");
    }

    #[test]
    fn a_queue_that_builds_up_raises_the_timeout_at_once() {
        let mut rtt = RttEstimator::default();
        rtt.sample(ms(10), 1, 1);
        rtt.sample(ms(610), 2, 2);
        assert!(rtt.timeout() > ms(610), "{:?}", rtt.timeout());
    }
}
