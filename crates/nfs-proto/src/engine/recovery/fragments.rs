//! Do blocks of several frames arrive at all?
//!
//! Some paths drop every IP fragment, and a receiver whose memory for incomplete datagrams is full does so for half a minute (Linux's
//! `ipfrag_high_thresh` and `ipfrag_time`). Small calls pass meanwhile, so that it looks like fade after fade, and what is sent in fragments
//! keeps the memory full.

use std::time::{Duration, Instant};

use super::{black_hole::BlackHole, tuning::MtuTuning};

/// For so long blocks are of one frame then, as incomplete datagrams are kept for that time (Linux's `ipfrag_time`), and twice as long each time
/// that no block has arrived since.
const FIRST_LIFETIME: Duration = Duration::from_secs(30);
const MAX_LIFETIME: Duration = Duration::from_secs(600);

/// What became of blocks that need fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragments {
    tuning: MtuTuning,
    hole: BlackHole,
    /// Blocks that arrived since the row of losses began.
    arrived: u32,
    /// Whether one ever arrived since fragments were dropped last.
    is_proven: bool,
    /// Fragments were dropped at the first of these, and blocks are of one frame until the second.
    dropped: Option<(Instant, Instant)>,
    lifetime: Duration,
}

impl Fragments {
    pub(super) const fn new(tuning: MtuTuning) -> Self {
        Self {
            tuning,
            hole: BlackHole::NONE,
            arrived: 0,
            is_proven: false,
            dropped: None,
            lifetime: FIRST_LIFETIME,
        }
    }

    /// Whether blocks of several frames are of no use now.
    pub(super) fn are_dropped(&self, now: Instant) -> bool {
        self.dropped.is_some_and(|(_, until)| now < until)
    }

    /// A block of several frames arrived.
    pub(super) fn handle_arrival(&mut self) {
        self.is_proven = true;
        self.lifetime = FIRST_LIFETIME;
        self.arrived += 1;
        if self.arrived * self.tuning.rare_fragments > self.hole.lost() {
            (self.hole, self.arrived) = (BlackHole::NONE, 0);
        }
    }

    /// A block of several frames was lost that was sent at `sent`. Whether it is clear now that they do not arrive.
    pub(super) fn handle_loss(&mut self, now: Instant, sent: Instant) -> bool {
        // What never arrived is given up sooner.
        let rounds = self.tuning.black_hole_rounds - u32::from(!self.is_proven);
        if self.dropped.is_some_and(|(since, _)| sent < since) || !self.hole.on_loss(now, sent, rounds) {
            return false;
        }
        let lifetime = self.lifetime;
        *self = Self {
            dropped: Some((now, now + lifetime)),
            lifetime: (lifetime * 2).min(MAX_LIFETIME),
            ..Self::new(self.tuning)
        };
        true
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
mod tests {
    use super::*;

    const FADE: Duration = Duration::from_millis(100);

    /// Two rounds of two losses each, a second apart. Whether fragments are dropped now.
    fn lose_four(fragments: &mut Fragments, now: Instant) -> bool {
        let later = now + Duration::from_secs(1);
        [now, now, later, later].map(|sent| fragments.handle_loss(sent + FADE, sent))
            == [false, false, false, true]
    }

    #[test]
    fn fragments_that_never_arrive_are_tried_again_ever_more_seldom() {
        let mut now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        for seconds in [30, 60, 120, 240, 480, 600, 600] {
            assert!(lose_four(&mut fragments, now));
            now += Duration::from_secs(1) + FADE;
            assert!(fragments.are_dropped(now + Duration::from_secs(seconds - 1)));
            now += Duration::from_secs(seconds);
            assert!(!fragments.are_dropped(now), "{seconds} s");
        }
        fragments.handle_arrival();
        assert!((0..10).all(|_| !fragments.handle_loss(now + FADE, now)), "one fade");
    }

    #[test]
    fn one_fade_is_no_sign_however_much_it_takes() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        assert!((0..100).all(|_| !fragments.handle_loss(now + FADE, now)));
    }

    #[test]
    fn a_block_that_slips_through_does_not_hide_that_nearly_all_are_dropped() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        fragments.handle_arrival();
        let mut dropped = false;
        for round in 0..4 {
            let now = now + Duration::from_secs(round);
            for _ in 0..10 {
                dropped |= fragments.handle_loss(now + FADE, now);
            }
            if dropped {
                break;
            }
            if round > 0 {
                fragments.handle_arrival();
            }
        }
        assert!(dropped);
    }

    #[test]
    fn what_has_arrived_once_is_given_three_rounds_and_six_losses() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        fragments.handle_arrival();
        let at = |second| now + Duration::from_secs(second);
        let lost = [1, 1, 2, 2, 3, 3].map(|second| fragments.handle_loss(at(second) + FADE, at(second)));
        assert_eq!(lost, [false, false, false, false, false, true]);
    }

    #[test]
    fn one_arrival_for_each_eight_lost_ends_the_count() {
        let now = Instant::now();
        let at = |second| now + Duration::from_secs(second);
        for (lost, goes_on) in [(7, false), (8, true)] {
            let mut fragments = Fragments::new(MtuTuning::default());
            fragments.handle_arrival();
            for _ in 0..lost {
                assert!(!fragments.handle_loss(at(1) + FADE, at(1)), "one fade");
            }
            fragments.handle_arrival();
            // With what was lost before, two rounds more are three.
            let rounds = [2, 2, 3, 3].map(|second| fragments.handle_loss(at(second) + FADE, at(second)));
            assert_eq!(rounds[2], goes_on, "{lost} lost before");
            // Two arrivals make up for sixteen.
            let mut fragments = Fragments::new(MtuTuning::default());
            (0..lost + 8).for_each(|_| assert!(!fragments.handle_loss(at(1) + FADE, at(1))));
            fragments.handle_arrival();
            fragments.handle_arrival();
            let rounds = [2, 2, 3, 3].map(|second| fragments.handle_loss(at(second) + FADE, at(second)));
            assert_eq!(rounds[2], goes_on, "{lost} and 8 lost before");
        }
    }

    #[test]
    fn losses_of_what_was_sent_before_fragments_were_given_up_say_nothing_new() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        assert!(lose_four(&mut fragments, now));
        let dropped = now + Duration::from_secs(1) + FADE;
        let late = dropped - Duration::from_millis(1);
        assert!((0..9).all(|_| !fragments.handle_loss(dropped + FADE, late)));
        let after = dropped + Duration::from_secs(31);
        assert_eq!([dropped, after].map(|sent| fragments.handle_loss(sent + FADE, sent)), [false; 2]);
        assert!(!fragments.are_dropped(after), "30 s are over");
        assert_eq!([after; 2].map(|sent| fragments.handle_loss(sent + FADE, sent)), [false, true]);
    }
}
