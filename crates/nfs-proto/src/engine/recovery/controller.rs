//! Congestion control: how many bytes may be in flight. The window is what the path holds, and a little more.
//!
//! The rate is what was *delivered* between the sending of a call and its reply; bytes in flight divided by the round-trip
//! time would run away with the queue that they themselves make.

use std::time::{Duration, Instant};

use super::{Acked, Class, path_estimator::PathEstimator, tuning::WindowTuning};

/// The congestion window, in bytes.
#[derive(Debug)]
pub(super) struct Controller {
    tuning: WindowTuning,
    window: u64,
    /// The round ends with the reply to a call sent after this much was delivered.
    round_end: u64,
    /// Bytes lost in this round.
    lost: u64,
    /// Whether the last block acknowledged was a READ's.
    reads: bool,
    /// Rate and min_rtt are an earlier connection's.
    unconfirmed: bool,
    /// Rounds of startup in a row in which the rate did not grow.
    stale_rounds: u32,
    best_rate: f64,
    /// Most that was in flight in this round.
    used: u64,
    /// Whether something had to wait for the window in this round. If not, the application limits the rate, and it says nothing of the path
    /// (draft-cheng-iccrg-delivery-rate-estimation §3).
    is_window_limited: bool,
    /// When the last congestion event was, in delivered bytes.
    congestion_at: Option<u64>,
    /// ProbeRTT ends with the reply to a call sent after this.
    probe_rtt: Option<Instant>,
    rounds_since_congestion: u32,
    /// Rounds in a row in which more than an eighth was lost.
    lossy_rounds: u32,
    /// Rounds in a row in which anything was lost while much queued.
    losing_rounds: u32,
    /// Part of the allowance that may queue: less of it where a queue is shorter.
    queue_share: f64,
    /// Up to which that grows again at its usual pace: a queue that has overflowed has not become longer since.
    queue_limit: f64,
    heavy: HeavyLoss,
}

/// Losses and replies of the last rounds, small calls' included, to tell a full queue from a burst.
#[derive(Clone, Copy, Debug, Default)]
struct HeavyLoss {
    losses: u32,
    replies: u32,
    /// Rounds in a row that were heavy.
    rounds: u32,
    round_end: u64,
}

impl Controller {
    pub(super) const fn new(tuning: WindowTuning) -> Self {
        Self {
            tuning,
            window: 0,
            round_end: 0,
            lost: 0,
            reads: false,
            unconfirmed: false,
            stale_rounds: 0,
            best_rate: 0.0,
            used: 0,
            is_window_limited: false,
            congestion_at: None,
            probe_rtt: None,
            rounds_since_congestion: u32::MAX,
            lossy_rounds: 0,
            losing_rounds: 0,
            queue_share: 1.0,
            queue_limit: 1.0,
            heavy: HeavyLoss { losses: 0, replies: 0, rounds: 0, round_end: 0 },
        }
    }

    /// Starts from an earlier connection's rate and min_rtt, carefully: half of what they allow until a reply confirms them, nothing of it
    /// if that refutes them.
    pub(super) fn resume(&mut self, path: &PathEstimator, block: u32) {
        self.best_rate = path.rate();
        self.unconfirmed = true;
        self.window = self.target(path, path.rate(), block);
    }

    /// So much is in flight now.
    pub(super) fn on_sent(&mut self, bytes_in_flight: u64) {
        self.used = self.used.max(bytes_in_flight);
    }

    /// Something had to wait for the window.
    pub(super) const fn on_window_limited(&mut self) {
        self.is_window_limited = true;
    }

    /// A READ or WRITE was acknowledged.
    pub(super) fn on_ack(&mut self, now: Instant, path: &mut PathEstimator, acked: &Acked, block: u32) {
        let rtt = now.saturating_duration_since(acked.sent).max(Duration::from_micros(1));
        if std::mem::take(&mut self.unconfirmed) && rtt > path.min_rtt.get() * 4 {
            path.reset(now);
            *self = Self::new(self.tuning);
        }
        self.reads = acked.class == Class::Read;
        path.sample_min_rtt(now, rtt, acked, block);
        if self.probe_rtt.is_some_and(|since| acked.sent >= since) {
            path.min_rtt.set(now, rtt);
            self.probe_rtt = None;
        }
        path.delivery.handle_ack(rtt, acked, path.arq.retransmits());
        if path.is_startup {
            self.grow(now, path, acked, block);
        }
        if acked.before.bytes >= self.round_end {
            self.end_round(now, path, block);
        }
    }

    /// Anything was answered that was sent when so much had been delivered.
    pub(super) fn on_reply(&mut self, path: &PathEstimator, delivered: u64) {
        let heavy = &mut self.heavy;
        heavy.replies += 1;
        if delivered >= heavy.round_end && heavy.replies >= self.tuning.loss_round {
            let is_heavy = heavy.losses * 4 > heavy.replies;
            *heavy = HeavyLoss {
                losses: 0,
                replies: 0,
                rounds: if is_heavy { heavy.rounds + 1 } else { 0 },
                round_end: path.delivery.bytes().max(delivered),
            };
        }
    }

    /// A call was lost while blocks had so many bytes.
    pub(super) fn on_loss(&mut self, block: u32) {
        self.lost += u64::from(block);
        self.heavy.losses += 1;
    }

    /// Whether so much is lost, round after round, that it means a full queue whatever else explains it.
    pub(super) const fn loses_heavily(&self) -> bool {
        self.heavy.rounds >= self.tuning.heavy_rounds
    }

    /// A queue is full: something was lost of what was sent when so much had been delivered. That is acted on once for all that was in
    /// flight together (RFC 9002 §7.3.1).
    pub(super) fn on_congestion_event(&mut self, path: &mut PathEstimator, delivered: u64, block: u32) {
        if self.had_congestion_since(delivered) {
            return;
        }
        self.congestion_at = Some(path.delivery.bytes());
        path.is_startup = false;
        self.rounds_since_congestion = 0;
        self.window = (self.window * 7 / 10).max(self.tuning.min_blocks * u64::from(block));
        path.delivery.reset();
    }

    /// What was lost was no sign of too much in flight: startup begins again.
    pub(super) fn start_again(&mut self, path: &mut PathEstimator) {
        (self.stale_rounds, self.best_rate, self.heavy) = (0, 0.0, HeavyLoss::default());
        path.start_again();
    }

    /// Blocks have another size from now on.
    pub(super) fn handle_block_change(&mut self, from: u32, to: u32) {
        self.window = (self.window + u64::from(to)).saturating_sub(from.into());
    }

    /// Returns the window in bytes.
    pub(super) fn window(&self, path: &PathEstimator, block: u32) -> u64 {
        if self.probe_rtt.is_some() {
            let reduced = (self.tuning.probe_rtt_gain * path.bdp()) as u64;
            return if self.is_narrow(block) { block.into() } else { reduced.max(block.into()) };
        }
        let block = u64::from(block);
        let least =
            if path.delivery.bytes() == 0 { self.tuning.initial_blocks } else { self.tuning.min_blocks };
        let window = if self.unconfirmed { self.window / 2 } else { self.window };
        let is_rounded = block > self.tuning.large_block
            && path.bdp() >= self.tuning.rounded_from * block as f64
            && self.rounds_since_congestion >= self.tuning.shared_rounds;
        let window = if is_rounded { window + block / 2 } else { window };
        window.max(least * block)
    }

    /// Whether there was a congestion event after so much had been delivered. What was sent after the last reply before that is another one: where a
    /// whole window is lost, that is worse than one full queue.
    pub(super) fn had_congestion_since(&self, delivered: u64) -> bool {
        self.congestion_at.is_some_and(|at| delivered < at)
    }

    /// Whether the last reply had queued for longer than the window allows.
    pub(super) fn is_queueing(&self, path: &PathEstimator, block: u32) -> bool {
        let rate = path.rate();
        let queueing = path.min_rtt.queueing().saturating_sub(path.min_rtt.jitter());
        queueing.as_secs_f64() * rate > self.allowance(path, rate, block, 1.0)
    }

    /// At startup the spacing of replies to calls that were sent together tells the rate before a round has.
    fn grow(&mut self, now: Instant, path: &mut PathEstimator, acked: &Acked, block: u32) {
        self.window =
            self.window.max(self.tuning.initial_blocks * u64::from(block)) + u64::from(acked.delivered());
        if acked.is_short() {
            return;
        }
        let most = self.highest_spacing(now, path, acked);
        if path.spacing.handle_reply(now, acked.sent, acked.bytes, most)
            && let Some(rate) = path.spacing.rate()
        {
            // No more than half of what may queue: the queue may be shorter, and nothing has been lost yet that would tell.
            self.window = self.filled(path, rate, block, 0.5);
        }
    }

    /// Returns the highest rate that the spacing of replies can show. Behind a queue a reply waits for what is delivered before it. A link that
    /// retransmits in order holds replies without a queue and lets them go together, as fast as the way back carries them.
    fn highest_spacing(&self, now: Instant, path: &PathEstimator, acked: &Acked) -> f64 {
        let min_rtt = path.min_rtt.get();
        let expected = min_rtt + self.tuning.allowance.max(min_rtt / 8);
        let late = now.saturating_duration_since(acked.sent).saturating_sub(expected);
        let delivered = path.delivery.bytes().saturating_sub(acked.before.bytes);
        // Losses and other flows take their part of the queue.
        2.0 * delivered as f64 / late.as_secs_f64()
    }

    fn end_round(&mut self, now: Instant, path: &mut PathEstimator, block: u32) {
        // What is in flight is more than arrives, whatever queues.
        let lost = std::mem::take(&mut self.lost);
        let is_lossy = lost * 8 > path.delivery.bytes() - self.round_end;
        self.round_end = path.delivery.bytes();
        self.adapt_queue(path, (lost, is_lossy), block);
        let rate = path.rate();
        let queueing = path.min_rtt.queueing_in_round().as_secs_f64();
        let target = self.target(path, rate, block);
        let allowance = self.allowance(path, rate, block, self.queue_share) / rate.max(1.0);
        let is_path_limited = lost > 0 || queueing > allowance;
        let is_app_limited = !std::mem::take(&mut self.is_window_limited) && !is_path_limited;
        if path.is_startup {
            if rate > self.best_rate * self.tuning.startup_growth {
                self.stale_rounds = 0;
            } else if !is_app_limited {
                self.stale_rounds += 1;
            }
            self.best_rate = self.best_rate.max(rate);
            if queueing > allowance || self.stale_rounds >= 3 {
                path.is_startup = false;
                self.window = target;
            }
        } else {
            let is_used = self.used * 10 >= self.window * 7 || self.used + u64::from(block) > self.window;
            if 4.0 * queueing < allowance && is_used && !is_lossy && self.probe_rtt.is_none() {
                // Nothing queues, so the window is what limits the rate.
                self.window = target.max(self.window + self.window / 4);
            } else if target < self.window || is_used {
                self.window = u64::midpoint(self.window, target);
            }
        }
        self.rounds_since_congestion = self.rounds_since_congestion.saturating_add(1);
        if path.min_rtt.has_expired(now) && self.probe_rtt.is_none() {
            // What is in flight now, and what leaves until it has arrived, still queues; but what an outage has added to the last round trip is over.
            let queued = Duration::from_secs_f64((self.window as f64 / rate.max(1.0)).min(60.0));
            let drain = path.min_rtt.latest().min(path.min_rtt.get() + queued);
            let drained = if self.is_narrow(block) { now } else { now + drain };
            self.probe_rtt = Some(drained);
        }
        self.used = 0;
        path.min_rtt.end_round(self.tuning.allowance);
        if !is_app_limited {
            path.delivery.end_round();
        }
    }

    /// A round has lost so many bytes, and perhaps more than an eighth: less may queue where the queue is shorter than the allowance.
    fn adapt_queue(&mut self, path: &PathEstimator, (lost, is_lossy): (u64, bool), block: u32) {
        self.lossy_rounds = if is_lossy { self.lossy_rounds + 1 } else { 0 };
        // A fade is over sooner, or lets nothing pass.
        if self.lossy_rounds >= self.tuning.heavy_rounds {
            // With less, the allowance is min_rtt / 8 in any case.
            self.queue_share = (self.queue_share / 2.0).max(1.0 / 64.0);
        } else if lost == 0 {
            self.queue_limit = (self.queue_limit * self.tuning.queue_limit_growth).min(1.0);
            self.queue_share = (self.queue_share * self.tuning.queue_growth).min(self.queue_limit);
        }
        // Fades are not as regular as a queue that is a little too short, nor does as much queue then.
        let rate = path.rate();
        let allowance = self.allowance(path, rate, block, self.queue_share);
        let is_overflow = lost > 0 && 2.0 * rate * path.min_rtt.queueing_in_round().as_secs_f64() > allowance;
        self.losing_rounds = if is_overflow { self.losing_rounds + 1 } else { 0 };
        if self.losing_rounds >= 2 * self.tuning.heavy_rounds {
            self.losing_rounds = 0;
            self.queue_limit =
                (self.queue_share * self.tuning.queue_limit).max(self.tuning.least_queue_limit);
            self.queue_share = self.queue_share.min(self.queue_limit);
        }
    }

    /// Whether the path holds so little that one block at a time costs next to nothing for a while.
    fn is_narrow(&self, block: u32) -> bool {
        self.window <= self.tuning.narrow_blocks * u64::from(block)
    }

    /// Returns the bytes that may queue, where only a share of the usual time may.
    pub(super) fn allowance(&self, path: &PathEstimator, rate: f64, block: u32, share: f64) -> f64 {
        let min_rtt = path.min_rtt.get();
        let is_wired = min_rtt < self.tuning.wired_rtt;
        let usual =
            if is_wired { self.tuning.wired_rtt / 2 } else { (8 * min_rtt).min(self.tuning.allowance) };
        let delay = usual.mul_f64(share).max(min_rtt / 8);
        let reads = if self.reads && is_wired {
            (rate * self.tuning.allowance.as_secs_f64()).min(self.tuning.wired_reads * f64::from(block))
        } else {
            0.0
        };
        f64::from(block).max(rate * delay.as_secs_f64()).max(share * reads)
    }

    /// Returns what the path holds, and what may queue.
    fn target(&self, path: &PathEstimator, rate: f64, block: u32) -> u64 {
        self.filled(path, rate, block, self.queue_share)
    }

    /// The same where only a share of the usual time may queue.
    fn filled(&self, path: &PathEstimator, rate: f64, block: u32, share: f64) -> u64 {
        let round_trip = path.min_rtt.get() + path.min_rtt.jitter();
        (rate * round_trip.as_secs_f64() + self.allowance(path, rate, block, share)) as u64
    }
}

#[cfg(test)]
mod tests;
