//! Which XID stands for which attempt of which call.

use std::{collections::VecDeque, time::Instant};

use nfs_wire::rpc::Xid;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::{CallId, adaptive::Progress};

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
    /// How far deliveries had come then.
    pub(super) before: Progress,
    /// Whether a reply has been seen.
    pub(super) answered: bool,
    /// Whether the call was sent again in case it is lost: then needless resends say nothing about how late replies may be.
    pub(super) hedged: bool,
    /// Needless resends that a late reply to this attempt proves.
    pub(super) surplus: u32,
}

/// XIDs in the order of their first use; consecutive, so that they are an index.
#[derive(Debug)]
pub(super) struct Xids {
    attempts: VecDeque<Attempt>,
    first: u32,
}

impl Xids {
    /// Starts at a random XID.
    pub(super) fn new(seed: u64) -> Self {
        Self { attempts: VecDeque::new(), first: ChaCha8Rng::seed_from_u64(seed).next_u32() }
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
        Xid(self.first.wrapping_add(self.attempts.len() as u32 - 1))
    }

    /// Returns what an XID stands for.
    pub(super) fn find(&mut self, xid: Xid) -> Option<&mut Attempt> {
        self.attempts.get_mut(xid.0.wrapping_sub(self.first) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_attempts_are_kept_and_dead_ones_remembered_for_a_while() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let sent = Instant::now();
        let attempt = |generation| Attempt {
            call: CallId { slot: 0, generation },
            index: 0,
            sends: 1,
            number: 0,
            sent,
            before: Progress { bytes: 0, answered: sent },
            answered: false,
            hedged: false,
            surplus: 0,
        };
        let mut xids = Xids::new(3);
        let first = xids.assign(attempt(0), |_| true);
        for generation in 1..3000 {
            xids.assign(attempt(generation), |call| call.generation == 0);
        }
        assert!(xids.find(first).is_some(), "the oldest is live, so nothing is forgotten");
        let last = xids.assign(attempt(3000), |_| false);
        assert!(xids.find(first).is_none());
        assert!(xids.find(Xid(last.0.wrapping_sub(REMEMBERED as u32 - 2))).is_some());
        assert!(
            xids.find(Xid(last.0.wrapping_add(1))).is_none() && xids.find(Xid(first.0 ^ 1 << 31)).is_none()
        );
    }
}
