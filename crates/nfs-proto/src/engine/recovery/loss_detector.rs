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

    /// How long a call that must not run twice is given each time it was overtaken.
    pub(super) const fn caution(&self) -> Duration {
        self.tuning.caution
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
                (path.rtt.timeout(suspect) * (1 << doublings.min(16))).min(self.pto.longest_wait())
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

    /// The PTO is over: a probe is sent. Whether the oldest call itself is to be sent again, too.
    pub(super) fn on_probe(&mut self, now: Instant, path: &PathEstimator) -> bool {
        let timeout = path.rtt.timeout(Class::Read).max(path.rtt.timeout(Class::Write));
        self.pto.on_probe(now, path.rate(), timeout, path.arq.retransmits())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            for_tests::{MS, epoch},
            tuning::Tuning,
        },
        *,
    };

    /// The numbers that these examples are computed with.
    fn tuning() -> Tuning {
        let mut tuning = Tuning::default();
        tuning.loss.min_window = MS;
        tuning.loss.small_call_window = 6 * MS;
        tuning.loss.back_off_after = 4;
        tuning.loss.tail_loss_rtt = 200 * MS;
        tuning.rtt.min_variation = 10 * MS;
        tuning.rtt.initial_rto = 1000 * MS;
        tuning.probes.first_resend = 4000 * MS;
        tuning.probes.min_pto = 20 * MS;
        tuning
    }

    /// A detector, a path whose `min_rtt` is 80 ms, and the time. Each of these classes was answered so often after so many ms.
    fn detector(answered: &[(Class, u32)]) -> (LossDetector, PathEstimator, Instant) {
        let now = epoch();
        let detector = LossDetector::new(tuning().loss, tuning().probes, now);
        let mut path = PathEstimator::new(&tuning(), now);
        path.min_rtt.set(now, 80 * MS);
        for &(class, millis) in answered {
            // So often that hardly any variation is left.
            (0..100).for_each(|_| path.rtt.sample(class, millis * MS));
        }
        (detector, path, now)
    }

    const READS: &[(Class, u32)] = &[(Class::Read, 100)];

    #[test]
    fn the_reordering_window_is_an_eighth_of_min_rtt_and_doubles_when_it_was_too_short() {
        // RFC 8985 §6.2, step 4.
        let (mut detector, path, now) = detector(READS);
        let window = |detector: &LossDetector| {
            detector.reordering_window(now, &path, Class::Read, now - 90 * MS, 1, Class::Read)
        };
        assert_eq!(window(&detector), 10 * MS);
        detector.on_spurious();
        assert_eq!(window(&detector), 20 * MS);
        (0..10).for_each(|_| detector.on_spurious());
        let window = window(&detector);
        assert!(window > 99 * MS && window <= 100 * MS, "one smoothed RTT at most: {window:?}");
    }

    #[test]
    fn what_a_call_of_another_class_has_overtaken_is_given_the_rest_of_its_own_time() {
        let (detector, path, now) = detector(&[(Class::Read, 100), (Class::Control, 30)]);
        for (suspect, sent, window) in [
            // min_rtt of data is 80 ms: 20 ms are left, and the reordering window of 10 ms.
            (Class::Read, 60, 30 * MS),
            (Class::Read, 80, 10 * MS),
            (Class::Read, 500, 10 * MS),
            // The timeout of small calls is 40 ms: 15 ms are left.
            (Class::Control, 25, 25 * MS),
            (Class::Control, 40, 10 * MS),
        ] {
            let sent = now - sent * MS;
            let found = detector.reordering_window(now, &path, suspect, sent, 1, Class::Write);
            assert!(found <= window && found + MS > window, "{suspect:?}: {found:?}");
        }
    }

    #[test]
    fn evidence_of_another_class_gives_six_milliseconds_and_half_of_the_reply_interval_at_least() {
        let (mut detector, mut path, now) = detector(READS);
        path.min_rtt.set(now, 16 * MS);
        let sent = now - 500 * MS;
        let window = |detector: &LossDetector, evidence| {
            detector.reordering_window(now, &path, Class::Read, sent, 1, evidence)
        };
        assert_eq!(window(&detector, Class::Read), 2 * MS);
        assert_eq!(window(&detector, Class::Control), 6 * MS);
        // Replies that come 300 ms apart.
        for reply in 0..2 {
            detector.pto.on_reply(now + 300 * MS * reply, 1000, true, true, 1000 * MS, false);
        }
        assert_eq!(window(&detector, Class::Control), 150 * MS);
        assert_eq!(window(&detector, Class::Read), 2 * MS);
    }

    #[test]
    fn before_a_call_of_its_class_was_answered_a_suspect_is_given_as_long_as_it_has_been_out() {
        let (detector, path, now) = detector(READS);
        for (suspect, window) in
            [(Class::Write, 500 * MS), (Class::Control, 500 * MS), (Class::Read, 10 * MS)]
        {
            let found = detector.reordering_window(now, &path, suspect, now - 500 * MS, 1, Class::Read);
            assert_eq!(found, window, "{suspect:?}");
        }
    }

    #[test]
    fn from_the_fifth_loss_of_a_call_on_a_timeout_is_added_that_doubles() {
        let (detector, path, now) = detector(READS);
        let timeout = path.rtt.timeout(Class::Read);
        assert_eq!(timeout, 100 * MS + 10 * MS);
        let added = [1, 4, 5, 6, 7, 9, 10, 11, 40].map(|losses| {
            detector.reordering_window(now, &path, Class::Read, now, losses, Class::Read) - 10 * MS
        });
        let expected = [0, 0, 110, 220, 440, 1760, 3520, 4000, 4000].map(|millis| millis * MS);
        assert_eq!(added, expected);
    }

    #[test]
    fn a_small_call_that_is_alone_is_given_nine_eighths_of_its_rtt_and_ten_milliseconds() {
        for (class, rtt, due) in [(Class::Control, 80, 100 * MS), (Class::Read, 80, 320 * MS)] {
            let (mut detector, mut path, now) = detector(&[]);
            detector.pto.on_reply(now, 0, true, false, 1000 * MS, false);
            // One sample, so that the variation is half of it.
            path.rtt.sample(class, rtt * MS);
            detector.on_sent(now, &path, class, true);
            let found = detector.pto.next().unwrap() - now;
            let expected = if class == Class::Control { due } else { 240 * MS };
            assert_eq!(found, expected, "{class:?}");
        }
    }

    #[test]
    fn a_small_call_whose_rtt_is_not_known_or_over_a_link_that_retransmits_is_given_its_timeout() {
        let (mut detector_of_reads, path, now) = detector(READS);
        detector_of_reads.pto.on_reply(now, 0, true, false, 1000 * MS, false);
        detector_of_reads.on_sent(now, &path, Class::Control, true);
        assert_eq!(detector_of_reads.pto.next(), Some(now + 110 * MS), "the timeout of READs");

        let (mut detector, mut path, now) = detector(&[]);
        detector.pto.on_reply(now, 0, true, false, 1000 * MS, false);
        path.rtt.sample(Class::Control, 400 * MS);
        path.arq.resume(true);
        detector.on_sent(now, &path, Class::Control, true);
        assert_eq!(detector.pto.next(), Some(now + 1200 * MS), "400 ms, and four times 200 ms");
    }

    #[test]
    fn from_an_rtt_of_200_ms_on_a_tail_loss_probe_follows_a_small_call_after_an_eighth() {
        // RFC 8985 §7.2.
        for (class, rtt, due) in
            [(Class::Control, 200, 25 * MS), (Class::Control, 192, 202 * MS), (Class::Read, 200, 210 * MS)]
        {
            let (mut detector, path, now) = detector(&[(class, rtt)]);
            detector.pto.on_reply(now, 0, true, false, 1000 * MS, false);
            detector.on_sent(now, &path, class, true);
            let found = detector.pto.next().unwrap() - now;
            assert!(found <= due && found + MS > due, "{class:?}, {rtt} ms: {found:?}");
        }
    }

    #[test]
    fn the_oldest_call_is_sent_again_into_a_silence_of_two_timeouts_of_data() {
        for (answered, silence) in [
            (&[][..], 4000),
            (&[(Class::Control, 3000)], 6020),
            (&[(Class::Read, 3000)], 6020),
            (&[(Class::Write, 3000)], 6020),
            (&[(Class::Read, 3000), (Class::Write, 2500)], 6020),
            (&[(Class::Read, 2500), (Class::Write, 3000)], 6020),
        ] {
            for (silence, is_resent) in [(silence - 20, false), (silence, true)] {
                let (mut detector, path, now) = detector(answered);
                detector.on_sent(now, &path, Class::Read, true);
                assert_eq!(detector.on_probe(now + silence * MS, &path), is_resent, "{answered:?}");
            }
        }
    }
}
