//! A black hole (RFC 8899 §4.3): everything of one size is lost, while smaller datagrams arrive.

use std::time::Instant;

/// So many rounds of losses in a row, with so many datagrams lost in all, are one. What never arrived is given up sooner.
const ROUNDS_AND_LOSSES: (u32, u32) = (3, 6);
const AT_FIRST: (u32, u32) = (2, 4);

/// Losses of one size since something of it arrived. One fade or burst is one round: losses are of the same round if the later was sent before the
/// earlier was known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlackHole {
    rounds: u32,
    found: Option<Instant>,
    lost: u32,
}

impl BlackHole {
    /// A datagram was lost that was sent at `sent`; `arrived`: some of its size did arrive before. Whether that makes a black hole.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant, arrived: bool) -> bool {
        if self.found.is_none_or(|found| sent >= found) {
            self.rounds += 1;
            self.found = Some(now);
        }
        self.lost += 1;
        let (rounds, lost) = if arrived { ROUNDS_AND_LOSSES } else { AT_FIRST };
        self.rounds >= rounds && self.lost >= lost
    }

    /// Returns the losses since something arrived.
    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }
}
