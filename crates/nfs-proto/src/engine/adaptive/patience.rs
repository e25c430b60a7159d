//! Does this link lose frames or hold them? Learned from how silences end, and from losses.

use std::time::Instant;

/// How much one silence counts, or one loss.
const GAIN: f64 = 0.34;

/// Below this the link holds what meets a fade, as link-level retransmission does; sending again is useless.
const HOLDS_BELOW: f64 = 0.3;

/// Where it starts: nothing is known, and one fade that was held is enough.
const UNKNOWN: f64 = 0.4;

/// 0: every silence ended with what had been sent before it; 1: with what was sent during it, or something was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    score: f64,
    /// When a silence ended with what had been sent before it. It was held if nothing is lost until what is sent now is answered: where a
    /// queue overflows, the first of a window arrives, and others do not.
    unproven: Option<Instant>,
    /// When the last probe was answered that the link had held. What was sent until then met a queue that the fade had filled.
    held_until: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { score: UNKNOWN, unproven: None, held_until: None }
    }
}

impl Patience {
    /// Starts from what was believed; the next silence that ends otherwise refutes it, or the next loss.
    pub(super) const fn resume(&mut self, holds: bool) {
        if holds {
            self.score = HOLDS_BELOW / 2.0;
        }
    }

    /// A silence ended; `held`: with the reply to the oldest call, sent before it.
    pub(super) fn handle_silence(&mut self, now: Instant, held: bool) {
        if held {
            self.unproven.get_or_insert(now);
        } else {
            self.learn(false);
        }
    }

    /// What was sent at `sent` is answered, so that what was sent before it is answered, too, or lost.
    pub(super) fn handle_reply(&mut self, sent: Instant) {
        if self.unproven.is_some_and(|ended| sent >= ended) {
            self.unproven = None;
            self.learn(true);
        }
    }

    /// A probe is answered that had waited in a silence for much longer than replies take: whatever else was lost, the link holds.
    pub(super) fn handle_held_probe(&mut self, now: Instant) {
        self.held_until = Some(now);
        self.learn(true);
    }

    /// A call is lost that was sent at `sent`. Whether that was a queue that a fade had filled.
    pub(super) fn handle_loss(&mut self, sent: Instant) -> bool {
        let queued = self.held_until.is_some_and(|until| sent <= until);
        if !queued {
            self.unproven = None;
            self.learn(false);
        }
        queued
    }

    /// What had been taken for lost is answered: that is taken back. `held`: a fade was in between, so that the link has held it while
    /// others passed; else it was overtaken inside the server.
    pub(super) fn handle_false_alarm(&mut self, held: bool) {
        self.score = ((self.score - GAIN) / (1.0 - GAIN)).max(0.0);
        if held {
            self.learn(true);
        }
    }

    fn learn(&mut self, held: bool) {
        let outcome = if held { 0.0 } else { 1.0 };
        self.score += GAIN * (outcome - self.score);
    }

    /// Whether the link holds what meets a fade.
    pub(super) fn holds(&self) -> bool {
        self.score < HOLDS_BELOW
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A silence that ends, after which everything is answered.
    fn held(patience: &mut Patience, now: Instant) {
        patience.handle_silence(now, true);
        assert!(!patience.holds(), "what else was in flight is not known yet");
        patience.handle_reply(now - MS);
        assert!(!patience.holds(), "that was in flight then");
        patience.handle_reply(now);
    }

    #[test]
    fn one_held_silence_makes_it_patient_and_one_loss_impatient_again() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        assert!(!patience.holds());
        held(&mut patience, now);
        assert!(patience.holds());
        patience.handle_silence(now, false);
        assert!(!patience.holds());
        held(&mut patience, now);
        assert!(!patience.holds());
        held(&mut patience, now);
        assert!(patience.holds());
    }

    #[test]
    fn a_silence_is_not_held_where_the_rest_of_the_window_is_lost() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        for _ in 0..10 {
            patience.handle_silence(now, true);
            patience.handle_loss(now);
            patience.handle_reply(now + MS);
        }
        assert!(!patience.holds());
    }

    #[test]
    fn what_is_answered_after_all_was_held() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        patience.handle_loss(now);
        patience.handle_false_alarm(true);
        assert!(patience.holds());
    }

    #[test]
    fn a_full_queue_after_a_fade_that_held_the_probes_is_no_loss_of_the_link() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        patience.handle_held_probe(now);
        assert!(patience.holds());
        assert!(patience.handle_loss(now));
        assert!(patience.holds());
        assert!(!patience.handle_loss(now + MS));
        assert!(!patience.holds());
    }

    #[test]
    fn calls_that_servers_answer_out_of_order_make_nobody_patient() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        for calls in 1..10 {
            for _ in 0..calls {
                patience.handle_loss(now);
            }
            for _ in 0..calls {
                patience.handle_false_alarm(false);
            }
            assert!(!patience.holds());
        }
    }
}
