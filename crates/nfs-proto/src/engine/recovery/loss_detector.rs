//! Loss detection: what was overtaken for too long is lost (RACK, RFC 8985 §6.2), and what meets a fade is found by probes (PTO, RFC 9002 §6.2).

use std::time::{Duration, Instant};

use super::{
    Class,
    path_estimator::PathEstimator,
    probe_timeout::{ProbeTimeout, Sent},
    reordering_window::ReorderingWindow,
    tuning::{LossTuning, ProbeTuning},
};

/// Decides which calls are lost, and when to probe.
#[derive(Debug)]
pub(super) struct LossDetector {
    tuning: LossTuning,
    reordering: ReorderingWindow,
    pub(super) pto: ProbeTimeout,
}

impl LossDetector {
    pub(super) fn new(tuning: LossTuning, probes: ProbeTuning, now: Instant) -> Self {
        Self { tuning, reordering: ReorderingWindow::new(tuning), pto: ProbeTimeout::new(probes, now) }
    }

    /// A call was sent; `alone`: nothing else was outstanding.
    pub(super) fn on_sent(&mut self, now: Instant, path: &PathEstimator, class: Class, alone: bool) {
        let (timeout, link_retransmits) = (path.rtt.timeout(class), path.arq.retransmits());
        // Nothing follows a small call that could show its loss, and whoever waits for it waits for all of it.
        let lone = path.rtt.known(class).filter(|_| class == Class::Control && !link_retransmits);
        let timeout = lone.map_or(timeout, |rtt| timeout.min(rtt + rtt / 8 + path.rtt.min_variation()));
        let tail_loss_probe = lone.filter(|&rtt| rtt >= self.tuning.tail_loss_rtt).map(|rtt| rtt / 8);
        self.pto.on_sent(now, Sent { alone, timeout, tail_loss_probe }, link_retransmits);
    }

    /// Returns how long an overtaken call may still be answered before it is declared lost. `losses` counts how often it was overtaken,
    /// `evidence` is the class of the call that overtook it.
    pub(super) fn reordering_window(
        &self,
        now: Instant,
        path: &PathEstimator,
        suspect: Class,
        sent: Instant,
        losses: u32,
        evidence: Class,
    ) -> Duration {
        let back_off =
            losses.checked_sub(self.tuning.back_off_after + 1).map_or(Duration::ZERO, |doublings| {
                (path.rtt.timeout(suspect) * (1 << doublings.min(16))).min(self.tuning.max_back_off)
            });
        back_off + self.overtaken(now, path, suspect, sent, evidence)
    }

    fn overtaken(
        &self,
        now: Instant,
        path: &PathEstimator,
        suspect: Class,
        sent: Instant,
        evidence: Class,
    ) -> Duration {
        let smoothed = path.rtt.smoothed(suspect).unwrap_or_default();
        let is_weak = evidence != suspect;
        let window = self.reordering.get(path.min_rtt.get(), smoothed, is_weak);
        if !is_weak {
            return window;
        }
        // A small call overtakes data that is still on its way, and what changes something may take a disk's time.
        let usual = match suspect {
            Class::Control => path.rtt.timeout(suspect),
            Class::Read | Class::Write => path.min_rtt.get(),
        };
        let window = window + (sent + usual).saturating_duration_since(now);
        let window = window.max(self.pto.interval() / 2);
        // Before one was answered nobody knows how long such a call takes.
        let is_known = path.rtt.known(suspect).is_some();
        if is_known { window } else { window.max(now.saturating_duration_since(sent)) }
    }

    /// A retransmission was spurious: an earlier attempt is answered after all.
    pub(super) fn on_spurious(&mut self) {
        self.reordering.on_spurious();
    }

    /// The PTO is over: a probe is sent. Whether the oldest call itself is to be sent again, too. `more`: other calls want a tail-loss
    /// probe.
    pub(super) fn on_probe(&mut self, now: Instant, path: &PathEstimator, more: bool) -> bool {
        let timeout = match path.rtt.known(Class::Read).or_else(|| path.rtt.known(Class::Write)) {
            Some(_) => path.rtt.timeout(Class::Read).max(path.rtt.timeout(Class::Write)),
            None => self.tuning.first_block_timeout,
        };
        self.pto.on_probe(now, path.rate(), timeout, path.arq.retransmits(), more)
    }
}
