//! Do blocks of several frames arrive at all?
//!
//! Some paths drop every IP fragment, and a receiver whose memory for incomplete datagrams is full does so for half a minute (Linux's
//! `ipfrag_high_thresh` and `ipfrag_time`). Small calls pass meanwhile, so that it looks like fade after fade. What is sent in fragments then only
//! keeps the memory full.

use std::time::{Duration, Instant};

/// Losses to one burst or fade are found together. So many such rounds in a row, with so many blocks lost in all, are none; one is enough where no such block
/// ever arrived.
const VAIN: [(u32, u32); 2] = [(2, 16), (3, 6)];
const VAIN_AT_FIRST: u32 = 4;

/// A row ends when one of so many arrives.
const RARE: u32 = 8;

/// One larger block is tried at once, as it may have been a long fade; after this time if it is lost, and then after twice as long each time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(32);

/// So many larger blocks that arrive in a row mean that all is as it was.
const TRUSTED: u32 = 64;

/// Counts what became of blocks that need fragments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fragments {
    /// Rounds of losses in a row, when the last was found, blocks lost in them, and those that arrived nevertheless.
    rounds: u32,
    found: Option<Instant>,
    lost: u32,
    arrived: u32,
    /// Blocks that arrived since they last did not.
    trusted: u32,
    barred: Option<Barred>,
    wait: Duration,
}

/// Only blocks of one frame arrive.
#[derive(Clone, Copy, Debug)]
struct Barred {
    since: Instant,
    next_trial: Instant,
}

impl Fragments {
    /// Whether blocks of several frames are of no use.
    pub(super) const fn are_barred(&self) -> bool {
        self.barred.is_some()
    }

    /// Whether the next block is to be a larger one, for trial.
    pub(super) fn wants_trial(&self, now: Instant) -> bool {
        self.barred.is_some_and(|barred| now >= barred.next_trial)
    }

    /// A block of several frames was sent: a trial. It need not end with an arrival or a loss, as its transfer may end before.
    pub(super) fn handle_sent(&mut self, now: Instant) {
        if let Some(barred) = &mut self.barred {
            barred.next_trial = now + self.wait;
        }
    }

    /// A block of several frames is there.
    pub(super) fn handle_arrival(&mut self) {
        self.barred = None;
        self.arrived += 1;
        self.trusted = self.trusted.saturating_add(1);
        if self.trusted == TRUSTED {
            self.wait = Duration::ZERO;
        }
        if self.arrived * RARE > self.lost {
            (self.rounds, self.lost, self.arrived) = (0, 0, 0);
        }
    }

    /// A block of several frames was lost that was sent at `sent`. Whether it is now clear that they do not arrive.
    pub(super) fn handle_loss(&mut self, now: Instant, sent: Instant) -> bool {
        match &mut self.barred {
            Some(barred) if sent < barred.since => return false,
            Some(_) => {}
            None => {
                if self.found.is_none_or(|found| sent >= found) {
                    self.rounds += 1;
                    self.found = Some(now);
                }
                self.lost += 1;
                let never = self.trusted == 0 && self.lost >= VAIN_AT_FIRST;
                let vain = VAIN.iter().any(|&(rounds, lost)| self.rounds >= rounds && self.lost >= lost);
                if !never && !vain {
                    return false;
                }
            }
        }
        self.barred = Some(Barred { since: now, next_trial: now + self.wait });
        self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
        (self.rounds, self.lost, self.arrived, self.trusted) = (0, 0, 0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_without_an_outcome_is_followed_by_another() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
        let now = Instant::now();
        let mut fragments = Fragments::default();
        assert!((1..VAIN_AT_FIRST).all(|_| !fragments.handle_loss(now, now)));
        assert!(fragments.handle_loss(now, now) && fragments.are_barred());
        assert!(fragments.wants_trial(now), "it may have been a long fade");
        fragments.handle_sent(now);
        assert!(!fragments.wants_trial(now + FIRST_WAIT / 2));
        assert!(fragments.wants_trial(now + FIRST_WAIT));
        fragments.handle_arrival();
        assert!(!fragments.are_barred());
    }
}
