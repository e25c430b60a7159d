//! A black hole (RFC 8899 §4.3): everything of one size is lost, while smaller datagrams arrive.

use std::time::Instant;

/// Losses of one size since something of it arrived. One fade or burst is one round: losses are of the same round if the later was sent before the
/// earlier was known.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlackHole {
    rounds: u32,
    found: Option<Instant>,
    lost: u32,
}

impl BlackHole {
    /// Nothing is lost.
    pub(super) const NONE: Self = Self { rounds: 0, found: None, lost: 0 };

    /// A datagram was lost that was sent at `sent`. Whether it makes so many rounds of losses in a row, with twice as many datagrams lost in all.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant, rounds: u32) -> bool {
        if self.found.is_none_or(|found| sent >= found) {
            self.rounds += 1;
            self.found = Some(now);
        }
        self.lost += 1;
        self.rounds >= rounds && self.lost >= 2 * rounds
    }

    /// Returns the losses since something arrived.
    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }
}
