//! How long a call may still be overtaken, not lost, after something sent later was answered (RFC 8985 §6.2).

use std::time::Duration;

use super::tuning::LossTuning;

/// Beyond this the smoothed round-trip time bounds the window anyway, and no number overflows.
const MAX_DOUBLINGS: u32 = 16;

/// An eighth of the base round-trip time, doubled whenever it proved too short.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReorderingWindow {
    tuning: LossTuning,
    doublings: u32,
}

impl ReorderingWindow {
    pub(super) fn new(tuning: LossTuning) -> Self {
        Self { tuning, ..Self::default() }
    }

    /// An earlier attempt was answered after all.
    pub(super) fn on_spurious(&mut self) {
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
    }

    /// Returns the window. `weak`: the evidence is of another class than the suspect.
    pub(super) fn get(&self, base: Duration, smoothed: Duration, weak: bool) -> Duration {
        let margin = ((base / 8).max(self.tuning.min_window) * (1 << self.doublings))
            .min(smoothed.max(self.tuning.min_window));
        if weak { margin.max(self.tuning.small_call_window) } else { margin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_when_it_was_too_short_up_to_a_round_trip() {
        let ms = Duration::from_millis;
        let mut window = ReorderingWindow::default();
        assert_eq!(window.get(ms(40), ms(110), false), ms(5));
        assert_eq!(window.get(ms(40), ms(110), true), ms(6));
        window.on_spurious();
        assert_eq!(window.get(ms(40), ms(110), false), ms(10));
        for _ in 0..100 {
            window.on_spurious();
        }
        assert_eq!(window.get(ms(40), ms(110), false), ms(110));
    }
}
