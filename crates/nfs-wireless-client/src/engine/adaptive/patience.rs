//! Does this link lose frames or hold them? Learned from how silences end.

/// How much one silence counts.
const GAIN: f64 = 0.34;

/// Below this the link holds what meets a fade, as link-level retransmission does; sending again is useless.
const HOLDS_BELOW: f64 = 0.3;

/// 0: every silence ended with what had been sent before it; 1: with what was sent during it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    score: f64,
}

impl Default for Patience {
    /// Nothing is known.
    fn default() -> Self {
        Self { score: 0.5 }
    }
}

impl Patience {
    /// Starts from what was believed; the next silence that ends otherwise refutes it.
    pub(super) const fn resume(&mut self, holds: bool) {
        if holds {
            self.score = HOLDS_BELOW / 2.0;
        }
    }

    /// A silence ended; `held`: with the reply to the oldest call, sent before it.
    pub(super) fn learn(&mut self, held: bool) {
        let outcome = if held { 0.0 } else { 1.0 };
        self.score += GAIN * (outcome - self.score);
    }

    /// Whether the link holds what meets a fade.
    pub(super) fn holds(&self) -> bool {
        self.score < HOLDS_BELOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_held_silences_make_it_patient_and_one_loss_impatient_again() {
        let mut patience = Patience::default();
        assert!(!patience.holds());
        patience.learn(true);
        assert!(!patience.holds());
        patience.learn(true);
        assert!(patience.holds());
        patience.learn(false);
        assert!(!patience.holds());
    }
}
