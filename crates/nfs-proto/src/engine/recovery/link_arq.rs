//! Does the link retransmit frames (ARQ), so that what meets a fade is late, not lost? Learned from how loss episodes end, and from losses.

use std::time::Instant;

/// So many episodes that end with what had been sent before them refute any number of losses.
const MOST: u32 = 3;

/// What speaks against ARQ, less what speaks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkArq {
    /// Episodes that have yet to end with what had been sent before them. One more for each that ended with what was sent later, and for each loss.
    doubts: u32,
    /// When an episode ended with what had been sent before it. The link has retransmitted if nothing is lost until what is sent now is answered:
    /// where a queue overflows, the first of a window arrives, and others do not.
    unproven: Option<Instant>,
    /// When the last such episode ended.
    released: Option<Instant>,
    /// Bytes of lost WRITEs that had been sent before such an end.
    overflow: u64,
}

impl LinkArq {
    pub(super) const fn new() -> Self {
        Self { doubts: 1, unproven: None, released: None, overflow: 0 }
    }

    /// Starts from what an earlier connection has found; the next episode that ends otherwise refutes it, or the next loss.
    pub(super) const fn resume(&mut self, retransmits: bool) {
        if retransmits {
            self.doubts = 0;
        }
    }

    /// A loss episode ended; `is_held`: with the reply to the oldest call, sent before it.
    pub(super) fn handle_fade(&mut self, now: Instant, is_held: bool) {
        if is_held {
            self.unproven.get_or_insert(now);
            self.released = Some(now);
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

    /// A call was declared lost.
    pub(super) fn on_loss(&mut self) {
        self.unproven = None;
        self.learn(false);
    }

    /// A WRITE of so many bytes that was sent at `sent` was lost.
    pub(super) fn handle_lost_write(&mut self, sent: Instant, bytes: u32) {
        if self.was_released(sent) {
            self.overflow += u64::from(bytes);
        }
    }

    /// Such a WRITE is answered after all.
    pub(super) fn handle_spurious_write(&mut self, sent: Instant, bytes: u32) {
        if self.was_released(sent) {
            self.overflow = self.overflow.saturating_sub(bytes.into());
        }
    }

    fn was_released(&self, sent: Instant) -> bool {
        self.released.is_some_and(|released| sent <= released)
    }

    /// Returns the bytes of WRITEs that were lost although the link had held and then delivered what was sent with them: they came all at once, and
    /// the server's receive buffer was full.
    pub(super) const fn overflow(&self) -> u64 {
        self.overflow
    }

    /// What had been declared lost is answered: undoes that. `met_fade`: the link has retransmitted it while others passed; else it was
    /// overtaken inside the server.
    pub(super) fn on_spurious(&mut self, met_fade: bool) {
        self.doubts = self.doubts.saturating_sub(1);
        if met_fade {
            self.learn(true);
        }
    }

    fn learn(&mut self, retransmits: bool) {
        self.doubts =
            if retransmits { self.doubts.min(MOST).saturating_sub(1) } else { self.doubts.saturating_add(1) };
    }

    /// Whether the link retransmits what meets a fade.
    pub(super) const fn retransmits(&self) -> bool {
        self.doubts == 0
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// An episode that ends, after which everything is answered.
    fn held(arq: &mut LinkArq, now: Instant) {
        arq.handle_fade(now, true);
        assert!(!arq.retransmits(), "what else was in flight is not known yet");
        arq.handle_reply(now - MS);
        assert!(!arq.retransmits(), "that was in flight then");
        arq.handle_reply(now);
    }

    #[test]
    fn one_held_episode_shows_retransmission_and_one_loss_refutes_it() {
        let (mut arq, now) = (LinkArq::new(), Instant::now());
        assert!(!arq.retransmits());
        held(&mut arq, now);
        assert!(arq.retransmits());
        arq.handle_fade(now, false);
        assert!(!arq.retransmits());
        held(&mut arq, now);
        assert!(arq.retransmits());
        arq.handle_fade(now, false);
        arq.on_loss();
        held(&mut arq, now);
        assert!(!arq.retransmits());
        held(&mut arq, now);
        assert!(arq.retransmits());
    }

    #[test]
    fn an_episode_is_not_held_where_the_rest_of_the_window_is_lost() {
        let (mut arq, now) = (LinkArq::new(), Instant::now());
        for _ in 0..10 {
            arq.handle_fade(now, true);
            arq.on_loss();
            arq.handle_reply(now + MS);
        }
        assert!(!arq.retransmits());
    }

    #[test]
    fn writes_that_are_lost_although_the_link_had_held_them_overflow_the_server() {
        let (mut arq, now) = (LinkArq::new(), Instant::now());
        arq.handle_lost_write(now - MS, 1000);
        arq.handle_fade(now, false);
        arq.handle_lost_write(now - MS, 1000);
        assert_eq!(arq.overflow(), 0, "a fade destroyed them");
        arq.handle_fade(now, true);
        arq.handle_lost_write(now, 1000);
        arq.on_loss();
        arq.handle_lost_write(now - MS, 500);
        arq.handle_lost_write(now + MS, 200);
        assert_eq!(arq.overflow(), 1500, "what was sent before the link let go");
        arq.handle_spurious_write(now + MS, 200);
        arq.handle_spurious_write(now - MS, 500);
        assert_eq!(arq.overflow(), 1000, "one is answered after all");
    }

    #[test]
    fn what_is_answered_after_all_in_a_fade_was_retransmitted() {
        let mut arq = LinkArq::new();
        arq.on_loss();
        arq.on_spurious(true);
        assert!(arq.retransmits());
    }

    #[test]
    fn calls_that_servers_answer_out_of_order_are_no_retransmission() {
        let mut arq = LinkArq::new();
        for calls in 1..10 {
            for _ in 0..calls {
                arq.on_loss();
            }
            for _ in 0..calls {
                arq.on_spurious(false);
            }
            assert!(!arq.retransmits());
        }
    }

    #[test]
    fn an_earlier_connection_s_finding_counts_until_one_episode_refutes_it() {
        let now = Instant::now();
        let mut arq = LinkArq::new();
        arq.resume(false);
        assert!(!arq.retransmits());
        arq.resume(true);
        assert!(arq.retransmits());
        arq.handle_fade(now, false);
        assert!(!arq.retransmits());
        let mut arq = LinkArq::new();
        arq.resume(true);
        arq.on_loss();
        assert!(!arq.retransmits());
    }

    #[test]
    fn two_episodes_before_anything_sent_later_is_answered_are_one_piece_of_evidence() {
        let (mut arq, now) = (LinkArq::new(), Instant::now());
        for _ in 0..4 {
            arq.on_loss();
        }
        let mut other = arq;
        arq.handle_fade(now, true);
        arq.handle_fade(now + 50 * MS, true);
        arq.handle_reply(now);
        other.handle_fade(now, true);
        other.handle_reply(now);
        assert_eq!((arq.doubts, other.doubts), (2, 2), "what was sent after the first counts");
    }

    #[test]
    fn each_held_episode_takes_one_doubt_of_three_at_most() {
        let now = Instant::now();
        // Nothing is known: one episode is to show it.
        for (losses, expected) in [
            (0, [(0, true); 4]),
            (1, [(1, false), (0, true), (0, true), (0, true)]),
            (2, [(2, false), (1, false), (0, true), (0, true)]),
            (9, [(2, false), (1, false), (0, true), (0, true)]),
        ] {
            let mut arq = LinkArq::new();
            for loss in 0..losses {
                // An episode that ended with what was sent later is one, too.
                if loss % 2 == 0 { arq.on_loss() } else { arq.handle_fade(now, false) }
            }
            let doubts = [(); 4].map(|()| {
                arq.handle_fade(now, true);
                arq.handle_reply(now);
                (arq.doubts, arq.retransmits())
            });
            assert_eq!(doubts, expected, "{losses} losses");
            arq.on_loss();
            assert_eq!((arq.doubts, arq.retransmits()), (1, false));
        }
    }
}
