//! What the path delivers: delivery rate samples and their maximum
//! (draft-cheng-iccrg-delivery-rate-estimation), and at startup the spacing of replies.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{Acked, tuning::PathTuning};

/// What had been delivered when a call was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Delivered {
    /// File bytes.
    pub(in crate::engine) bytes: u64,
    /// When the call was sent that had been acknowledged last.
    pub(in crate::engine) acked_sent: Instant,
}

/// Maximum of the delivery rate over the last rounds.
#[derive(Debug)]
pub(super) struct DeliveryRate {
    tuning: PathTuning,
    delivered: u64,
    /// When the call was sent that was acknowledged last, unless nothing was outstanding then.
    acked_sent: Option<Instant>,
    /// Highest sample of each of the last rounds, in bytes per second.
    rounds: VecDeque<f64>,
}

impl DeliveryRate {
    pub(super) fn new(tuning: PathTuning) -> Self {
        Self { tuning, delivered: 0, acked_sent: None, rounds: VecDeque::from([0.0]) }
    }

    /// Starts from a rate that an earlier connection measured.
    pub(super) fn resume(&mut self, rate: f64) {
        self.rounds = VecDeque::from([rate]);
    }

    /// Forgets all rates, but not what was delivered.
    pub(super) fn reset(&mut self) {
        self.resume(0.0);
    }

    /// Returns what has been delivered so far.
    pub(super) fn delivered(&self, now: Instant) -> Delivered {
        Delivered { bytes: self.delivered, acked_sent: self.acked_sent.unwrap_or(now) }
    }

    /// Returns the file bytes delivered so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.delivered
    }

    /// Takes an acknowledged block in: what was delivered since it was sent, in that time, is a sample. What the link retransmits comes as an
    /// aggregate, and counts for the time in which it was sent (draft-cheng-iccrg-delivery-rate-estimation §2.2).
    pub(super) fn handle_ack(&mut self, rtt: Duration, acked: &Acked, link_retransmits: bool) {
        let Acked { sent, before, waiting, .. } = *acked;
        let bytes = acked.delivered();
        self.delivered += u64::from(bytes);
        self.acked_sent = waiting.then_some(sent);
        let sending = sent.saturating_duration_since(before.acked_sent);
        let is_aggregated = link_retransmits && sending > rtt * 5 / 4;
        let interval = if is_aggregated { sending } else { rtt };
        let sample = (self.delivered - before.bytes) as f64 / interval.as_secs_f64();
        if let Some(highest) = self.rounds.back_mut() {
            *highest = highest.max(sample);
        }
    }

    /// Begins the next round.
    pub(super) fn end_round(&mut self) {
        self.rounds.push_back(0.0);
        if self.rounds.len() > self.tuning.rate_rounds {
            self.rounds.pop_front();
        }
    }

    /// Returns the rate in bytes per second.
    pub(super) fn max(&self) -> f64 {
        self.rounds.iter().copied().fold(0.0, f64::max)
    }
}

/// The spacing of replies to calls that were sent together (packet trains): it shows the rate of the bottleneck before a round
/// has shown what is delivered.
#[derive(Debug)]
pub(super) struct ReplySpacing {
    tuning: PathTuning,
    /// Bytes per second between the last replies.
    rates: VecDeque<f64>,
    /// Bytes since the first reply of this aggregate.
    aggregate: u64,
    /// When the last aggregate began, and when the call was sent that it answers.
    last: Option<(Instant, Instant)>,
}

impl ReplySpacing {
    pub(super) const fn new(tuning: PathTuning) -> Self {
        Self { tuning, rates: VecDeque::new(), aggregate: 0, last: None }
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.tuning);
    }

    /// Takes the reply to a call in that was sent at `sent`. Returns whether it begins an aggregate, so that the rate may have changed.
    /// No rate above `most` can be meant, in bytes per second.
    pub(super) fn handle_reply(&mut self, now: Instant, sent: Instant, bytes: u32, most: f64) -> bool {
        if let Some((last, last_sent)) = self.last {
            let gap = now.saturating_duration_since(last);
            self.aggregate += u64::from(bytes);
            if gap < self.tuning.aggregate {
                return false;
            }
            let bytes = std::mem::take(&mut self.aggregate);
            let rate = bytes as f64 / gap.as_secs_f64();
            if sent.saturating_duration_since(last_sent) * 2 <= gap && rate <= most {
                self.rates.push_back(rate);
                if self.rates.len() > self.tuning.spacings {
                    self.rates.pop_front();
                }
            }
        }
        self.last = Some((now, sent));
        true
    }

    /// Returns the rate of the bottleneck in bytes per second, once two spacings show it.
    pub(super) fn rate(&self) -> Option<f64> {
        let mut rates: Vec<f64> = self.rates.iter().copied().collect();
        rates.sort_unstable_by(f64::total_cmp);
        (rates.len() >= 2).then(|| rates[rates.len() / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::for_tests::{MS, acked, epoch},
        *,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn tuning() -> PathTuning {
        PathTuning { rate_rounds: 8, spacings: 5, aggregate: MS / 20, ..PathTuning::default() }
    }

    /// Whether `found` is this rate, but for rounding.
    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-6
    }

    #[test]
    fn a_sample_is_what_was_delivered_between_sending_and_reply_over_that_time() {
        let (now, mut rate) = (epoch(), DeliveryRate::new(tuning()));
        // Ten blocks that were sent together, the last of which is answered after 200 ms.
        for reply in 1..=10 {
            rate.handle_ack((100 + 10 * reply) * MS, &acked(now, 1000, 0), false);
        }
        assert_eq!(rate.bytes(), 10_000);
        assert!(is(rate.max(), 50_000.0), "{}", rate.max());
        // The eleventh was sent when 4000 bytes had been delivered.
        rate.handle_ack(100 * MS, &acked(now, 1000, 4000), false);
        assert!(is(rate.max(), 70_000.0));
    }

    #[test]
    fn the_rate_is_the_maximum_of_eight_rounds() {
        let (now, mut rate) = (epoch(), DeliveryRate::new(tuning()));
        rate.handle_ack(SECOND, &acked(now, 5000, 0), false);
        for _ in 1..8 {
            rate.end_round();
            rate.handle_ack(SECOND, &acked(now, 1000, rate.bytes()), false);
            assert!(is(rate.max(), 5000.0));
        }
        rate.end_round();
        assert!(is(rate.max(), 1000.0), "that was eight rounds ago");
    }

    #[test]
    fn what_the_link_retransmits_counts_for_the_time_in_which_it_was_sent() {
        // Sent 126 ms after what had been acknowledged last, answered after 100 ms.
        for (link_retransmits, apart, expected) in
            [(true, 126, 1000.0 / 0.126), (true, 125, 10_000.0), (true, 60, 10_000.0), (false, 126, 10_000.0)]
        {
            let (now, mut rate) = (epoch(), DeliveryRate::new(tuning()));
            let mut acked = acked(now + apart * MS, 1000, 0);
            acked.before.acked_sent = now;
            rate.handle_ack(100 * MS, &acked, link_retransmits);
            assert!(is(rate.max(), expected), "{link_retransmits}, {apart} ms: {}", rate.max());
        }
    }

    #[test]
    fn a_call_knows_when_that_was_sent_which_had_been_acknowledged_last_unless_nothing_was_in_flight() {
        let (now, mut rate) = (epoch(), DeliveryRate::new(tuning()));
        let later = now + 300 * MS;
        assert_eq!(rate.delivered(later).acked_sent, later);
        rate.handle_ack(100 * MS, &acked(now, 1000, 0), false);
        let Delivered { bytes, acked_sent } = rate.delivered(later);
        assert_eq!((bytes, acked_sent), (1000, now));
        rate.handle_ack(100 * MS, &Acked { waiting: false, ..acked(now, 1000, 0) }, false);
        let Delivered { bytes, acked_sent } = rate.delivered(later);
        assert_eq!((bytes, acked_sent), (2000, later));
    }

    #[test]
    fn a_congestion_event_forgets_the_rate_but_not_what_was_delivered() {
        let (now, mut rate) = (epoch(), DeliveryRate::new(tuning()));
        rate.handle_ack(SECOND, &acked(now, 5000, 0), false);
        rate.reset();
        assert_eq!((rate.max(), rate.bytes()), (0.0, 5000));
        rate.resume(7000.0);
        assert!(is(rate.max(), 7000.0));
    }

    mod spacing {
        use super::*;

        /// Replies with 1000 bytes each, at so many tenths of a millisecond; (reply, sent).
        fn after(replies: &[(u32, u32)]) -> (ReplySpacing, Vec<bool>) {
            let (now, mut spacing) = (epoch(), ReplySpacing::new(tuning()));
            let at = |tenths: u32| now + MS / 10 * tenths;
            let begins = replies
                .iter()
                .map(|&(reply, sent)| spacing.handle_reply(at(reply), at(sent), 1000, f64::INFINITY));
            let begins = begins.collect();
            (spacing, begins)
        }

        #[test]
        fn two_spacings_show_the_rate_and_of_more_the_median() {
            for (replies, expected) in [
                (&[(500, 0), (510, 0)][..], None),
                // 1000 bytes in 1 ms and in 2 ms: the higher of two.
                (&[(500, 0), (510, 0), (530, 0)], Some(1e6)),
                // In 1, 2 and 4 ms: the middle one.
                (&[(500, 0), (510, 0), (530, 0), (570, 0)], Some(5e5)),
                // Five count: in 4, 4, 4, 1 and 1 ms; then in 4, 4, 1, 1 and 1 ms.
                (&[(0, 0), (40, 0), (80, 0), (120, 0), (130, 0), (140, 0)], Some(2.5e5)),
                (&[(0, 0), (40, 0), (80, 0), (120, 0), (130, 0), (140, 0), (150, 0)], Some(1e6)),
            ] {
                let rate = after(replies).0.rate();
                assert!(
                    rate.zip(expected).map_or(rate == expected, |(a, b)| is(a, b)),
                    "{replies:?}: {rate:?}"
                );
            }
        }

        #[test]
        fn calls_that_were_sent_further_apart_than_half_of_the_spacing_say_nothing() {
            // 2 ms between replies; the calls were sent 1 ms apart, or 1.1 ms.
            assert!(after(&[(500, 0), (520, 10), (540, 20)]).0.rate().is_some());
            assert_eq!(after(&[(500, 0), (520, 11), (540, 22)]).0.rate(), None);
        }

        #[test]
        fn replies_that_come_together_are_one_aggregate() {
            let now = epoch();
            let mut spacing = ReplySpacing::new(tuning());
            let mut reply = |micros: u64| {
                spacing.handle_reply(now + Duration::from_micros(micros), now, 1000, f64::INFINITY)
            };
            // Three replies within 50 µs, and 1 ms later another one, and again.
            let begins = [0, 20, 49, 1000, 1050, 2000].map(&mut reply);
            assert_eq!(begins, [true, false, false, true, true, true]);
            // 3000 bytes in 1 ms, 1000 in 50 µs, 1000 in 950 µs.
            assert!(is(spacing.rate().unwrap(), 3e6), "{:?}", spacing.rate());
        }

        #[test]
        fn a_spacing_that_shows_more_than_there_can_be_says_nothing() {
            for (most, expected) in [(1e6, true), (0.99e6, false)] {
                let (now, mut spacing) = (epoch(), ReplySpacing::new(tuning()));
                for reply in 0..3 {
                    spacing.handle_reply(now + reply * MS, now, 1000, most);
                }
                assert_eq!(spacing.rate().is_some(), expected, "{most}");
            }
        }

        #[test]
        fn a_new_startup_begins_without_spacings() {
            let (mut spacing, _) = after(&[(500, 0), (510, 0), (520, 0)]);
            spacing.reset();
            assert_eq!(spacing.rate(), None);
        }
    }
}
