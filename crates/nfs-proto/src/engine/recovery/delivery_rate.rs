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
        let Acked { bytes, sent, before, waiting, .. } = *acked;
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

    /// Whether this round has a higher rate than each of those before.
    pub(super) fn rises(&self) -> bool {
        let before = || self.rounds.iter().rev().skip(1);
        self.rounds.back().is_some_and(|latest| before().all(|rate| rate < latest))
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
    pub(super) fn handle_reply(&mut self, now: Instant, sent: Instant, bytes: u32) -> bool {
        if let Some((last, last_sent)) = self.last {
            let gap = now.saturating_duration_since(last);
            self.aggregate += u64::from(bytes);
            if gap < self.tuning.aggregate {
                return false;
            }
            let bytes = std::mem::take(&mut self.aggregate);
            if sent.saturating_duration_since(last_sent) * 2 <= gap {
                self.rates.push_back(bytes as f64 / gap.as_secs_f64());
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
