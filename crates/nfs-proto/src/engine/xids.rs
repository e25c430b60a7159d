//! Which XID stands for which attempt of which call.
//!
//! Attempts are counted, and an XID is the number of its attempt, enciphered: whoever has not seen the next XID cannot guess it, and
//! a forged reply is accepted with a probability of the attempts remembered / 2³².

mod cipher;

use std::{collections::VecDeque, time::Instant};

use nfs_wire::rpc::Xid;

use self::cipher::Cipher;

use super::{CallId, recovery::Delivered};

/// Attempts that are remembered after their call has ended, to tell late replies from strangers'.
const REMEMBERED: usize = 1024;

/// Most attempts remembered at all; the oldest is forgotten for more, and its reply is a stranger's.
const MAX_ATTEMPTS: usize = 1 << 15;

/// One XID on its way. A call that keeps its XID has one of these for all its attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The call; it may have ended, and its slot be another call's.
    pub(super) call: CallId,
    /// How many attempts of the call had XIDs of their own before this one.
    pub(super) index: u32,
    /// How often this XID was sent.
    pub(super) sends: u32,
    /// Number of the first transmission with this XID: a reply proves that no later one was needed to bring it.
    pub(super) number: u64,
    /// When it was sent last.
    pub(super) sent: Instant,
    /// What had been delivered then.
    pub(super) before: Delivered,
    /// Whether a reply has been seen.
    pub(super) answered: bool,
    /// Whether the call was sent again in case it is lost: then spurious resends say nothing about how late replies may be.
    pub(super) hedged: bool,
    /// Spurious resends that a late reply to this attempt proves.
    pub(super) surplus: u32,
}

/// Attempts in the order of their first use.
#[derive(Debug)]
pub(super) struct Xids {
    attempts: VecDeque<Attempt>,
    /// Number of the oldest one.
    first: u32,
    cipher: Cipher,
}

impl Xids {
    /// Numbers attempts from 0; the seed is the key that makes XIDs of the numbers.
    pub(super) fn new(seed: u64) -> Self {
        Self { attempts: VecDeque::new(), first: 0, cipher: Cipher::new(seed) }
    }

    /// Gives an attempt its XID. `is_live` says whether a call is still outstanding.
    pub(super) fn assign(&mut self, attempt: Attempt, is_live: impl Fn(CallId) -> bool) -> Xid {
        while self.attempts.len() >= REMEMBERED {
            let full = self.attempts.len() >= MAX_ATTEMPTS;
            match self.attempts.front() {
                Some(oldest) if full || !is_live(oldest.call) => {
                    self.attempts.pop_front();
                    self.first = self.first.wrapping_add(1);
                }
                _ => break,
            }
        }
        self.attempts.push_back(attempt);
        Xid(self.cipher.encipher(self.first.wrapping_add(self.attempts.len() as u32 - 1)))
    }

    /// Returns what an XID stands for.
    pub(super) fn find(&mut self, xid: Xid) -> Option<&mut Attempt> {
        let number = self.cipher.decipher(xid.0);
        self.attempts.get_mut(number.wrapping_sub(self.first) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(generation: u32) -> Attempt {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let sent = Instant::now();
        Attempt {
            call: CallId { slot: 0, generation },
            index: 0,
            sends: 1,
            number: 0,
            sent,
            before: Delivered { bytes: 0, acked_sent: sent },
            answered: false,
            hedged: false,
            surplus: 0,
        }
    }

    #[test]
    fn live_attempts_are_kept_and_dead_ones_remembered_for_a_while() {
        let mut xids = Xids::new(3);
        let first = xids.assign(attempt(0), |_| true);
        let all: Vec<Xid> =
            (1..3000).map(|number| xids.assign(attempt(number), |call| call.generation == 0)).collect();
        assert!(xids.find(first).is_some(), "the oldest is live, so nothing is forgotten");
        xids.assign(attempt(3000), |_| false);
        assert!(xids.find(first).is_none());
        let remembered = |xid: &&Xid| xids.find(**xid).is_some();
        assert_eq!(all.iter().filter(remembered).count(), REMEMBERED - 1);
    }

    #[test]
    fn an_xid_does_not_tell_the_next_one() {
        // Whoever has seen 1,000 XIDs guesses that the next one lies as far from the last as any two neighbours before: never once.
        let mut xids = Xids::new(7);
        let seen: Vec<u32> = (0..1001).map(|number| xids.assign(attempt(number), |_| true).0).collect();
        let steps: Vec<u32> = seen.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        let mut distinct = steps.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), steps.len());
        let other = Xids::new(8).assign(attempt(0), |_| true);
        assert_ne!(other.0, seen[0], "nor do those of another connection");
    }

    #[test]
    fn forged_replies_are_accepted_as_often_as_chance_has_it() {
        // 1,024 attempts of 2³²: two million random XIDs hit 0.5 of them on average, more than 10 once in 10¹¹ runs.
        let mut xids = Xids::new(11);
        for number in 0..1024 {
            xids.assign(attempt(number), |_| true);
        }
        let hits = (0..2_000_000_u32).filter(|n| xids.find(Xid(n.wrapping_mul(0x9e37_79b9))).is_some());
        assert!(hits.count() <= 10);
    }
}
