//! Do blocks of several frames arrive at all?
//!
//! Some paths drop every IP fragment, and a receiver whose memory for incomplete datagrams is full does so for half a minute (Linux's
//! `ipfrag_high_thresh` and `ipfrag_time`). Small calls pass meanwhile, so that it looks like fade after fade, and what is sent in fragments
//! keeps the memory full.

use std::time::{Duration, Instant};

use super::{black_hole::BlackHole, block_policy::BLOCKS, tuning::MtuTuning};

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
    dropped: Option<Dropped>,
    lifetime: Duration,
}

/// Fragmented blocks did not arrive.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    since: Instant,
    /// Blocks are small until then.
    until: Instant,
    /// Largest block meanwhile, in bytes; 0: of one frame.
    largest: u32,
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

    /// Returns the largest block that may be of several frames now, if there is such a bound.
    pub(super) fn largest(&self, now: Instant) -> Option<u32> {
        self.dropped.filter(|it| now < it.until).map(|it| it.largest)
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

    /// A block of several frames was lost that was sent at `sent`; blocks of `one_frame` need no fragments. Once it is clear that such as this do not
    /// arrive, returns the largest block that may be of several frames from now on; 0: none.
    pub(super) fn handle_loss(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u32,
        one_frame: u32,
    ) -> Option<u32> {
        // What never arrived is given up sooner.
        let rounds = self.tuning.black_hole_rounds - u32::from(!self.is_proven);
        if self.dropped.is_some_and(|it| sent < it.since) || !self.hole.on_loss(now, sent, rounds) {
            return None;
        }
        // A queue that is shorter than a block drops the end of each, but not what fits.
        let [_, few_frames, ..] = BLOCKS;
        let is_short_queue = bytes > few_frames && few_frames > one_frame && self.lifetime == FIRST_LIFETIME;
        let largest = if is_short_queue { few_frames } else { 0 };
        let lifetime = if is_short_queue { self.lifetime } else { (self.lifetime * 2).min(MAX_LIFETIME) };
        let dropped = Some(Dropped { since: now, until: now + self.lifetime, largest });
        *self = Self { dropped, lifetime, ..Self::new(self.tuning) };
        Some(largest)
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
        [now, now, later, later].map(|sent| is_drop(fragments, sent)) == [false, false, false, true]
    }

    /// A block of a few frames is lost. Whether fragments are dropped now.
    fn is_drop(fragments: &mut Fragments, sent: Instant) -> bool {
        fragments.handle_loss(sent + FADE, sent, 4096, 1280).is_some()
    }

    fn is_limited(fragments: &Fragments, now: Instant) -> bool {
        fragments.largest(now).is_some()
    }

    #[test]
    fn large_blocks_that_do_not_arrive_are_followed_by_a_few_frames_and_those_by_one() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        let mut lose_two = |second: u64, bytes| {
            let sent = now + Duration::from_secs(second);
            [0; 2].map(|_| fragments.handle_loss(sent + FADE, sent, bytes, 1280))
        };
        assert_eq!(lose_two(0, 16_384), [None, None]);
        assert_eq!(lose_two(1, 16_384), [None, Some(4096)]);
        assert_eq!(lose_two(2, 4096), [None, None]);
        assert_eq!(lose_two(3, 4096), [None, Some(0)]);
        // What has not arrived since is not tried in two steps again.
        assert_eq!([lose_two(34, 16_384), lose_two(35, 16_384)], [[None, None], [None, Some(0)]]);
    }

    #[test]
    fn where_frames_are_larger_than_a_few_blocks_of_one_frame_come_next() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        let later = now + Duration::from_secs(1);
        let found =
            [now, now, later, later].map(|sent| fragments.handle_loss(sent + FADE, sent, 16_384, 8704));
        assert_eq!(found, [None, None, None, Some(0)]);
    }

    #[test]
    fn fragments_that_never_arrive_are_tried_again_ever_more_seldom() {
        let mut now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        for seconds in [30, 60, 120, 240, 480, 600, 600] {
            assert!(lose_four(&mut fragments, now));
            now += Duration::from_secs(1) + FADE;
            assert!(is_limited(&fragments, now + Duration::from_secs(seconds - 1)));
            now += Duration::from_secs(seconds);
            assert!(!is_limited(&fragments, now), "{seconds} s");
        }
        fragments.handle_arrival();
        assert!((0..10).all(|_| !is_drop(&mut fragments, now)), "one fade");
    }

    #[test]
    fn one_fade_is_no_sign_however_much_it_takes() {
        let now = Instant::now();
        let mut fragments = Fragments::new(MtuTuning::default());
        assert!((0..100).all(|_| !is_drop(&mut fragments, now)));
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
                dropped |= is_drop(&mut fragments, now);
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
        let lost = [1, 1, 2, 2, 3, 3].map(|second| is_drop(&mut fragments, at(second)));
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
                assert!(!is_drop(&mut fragments, at(1)), "one fade");
            }
            fragments.handle_arrival();
            // With what was lost before, two rounds more are three.
            let rounds = [2, 2, 3, 3].map(|second| is_drop(&mut fragments, at(second)));
            assert_eq!(rounds[2], goes_on, "{lost} lost before");
            // Two arrivals make up for sixteen.
            let mut fragments = Fragments::new(MtuTuning::default());
            (0..lost + 8).for_each(|_| assert!(!is_drop(&mut fragments, at(1))));
            fragments.handle_arrival();
            fragments.handle_arrival();
            let rounds = [2, 2, 3, 3].map(|second| is_drop(&mut fragments, at(second)));
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
        assert!((0..9).all(|_| fragments.handle_loss(dropped + FADE, late, 4096, 1280).is_none()));
        let after = dropped + Duration::from_secs(31);
        assert_eq!([dropped, after].map(|sent| is_drop(&mut fragments, sent)), [false; 2]);
        assert!(!is_limited(&fragments, after), "30 s are over");
        assert_eq!([after; 2].map(|sent| is_drop(&mut fragments, sent)), [false, true]);
    }
}
