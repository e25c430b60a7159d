//! Which written bytes are on stable storage (RFC 1813 §4.8, write verifiers).

use std::time::Duration;

use nfs_wire::nfs3_types::nfs3::{stable_how, writeverf3};

use super::ranges::{Range, RangeSet};

/// Shortest wait for late copies of a WRITE: a busy server's threads are some milliseconds apart.
const MIN_LATENESS: Duration = Duration::from_millis(100);

/// Longest such wait: what took longer was held up by the link, which has delivered all copies or
/// none.
const MAX_LATENESS: Duration = Duration::from_secs(1);

/// Returns how long after its reply a copy of a WRITE may be run that was sent more than once and
/// answered after `elapsed`: servers run calls side by side.
pub(super) fn lateness(elapsed: Duration) -> Duration {
    elapsed.clamp(MIN_LATENESS, MAX_LATENESS)
}

/// Verifiers of earlier server lives that are remembered, so that their late replies are recognised.
const MAX_RETIRED: usize = 8;

/// Changes of the verifier, without a COMMIT that counts between them, after which WRITEs had better be stable themselves: a server that is
/// restarted that often, or gives every call another verifier.
const CHANGES_TO_WRITE_THROUGH: u32 = 2;

/// Such changes after which nothing helps: WRITEs that were to be stable are not either.
const MAX_CHANGES: u32 = 5;

/// Stable WRITEs in a row with one write verifier after which a server is taken for one that stays: four windows of 16.
const STEADY_WRITES: u32 = 64;

/// What was known of the server's verifiers when a call was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentUnder {
    verifier: Option<writeverf3>,
    /// Verifiers that had been seen by then, each time that it was another.
    seen: u64,
}

/// Follows every written range until it is stable, or gives it back when the server forgot it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stability {
    latest: SentUnder,
    retired: Vec<writeverf3>,
    /// Written under the latest verifier since the last COMMIT was sent.
    unstable: RangeSet,
    /// Written under it before the COMMIT in flight was sent.
    committing: RangeSet,
    /// What the COMMIT in flight was sent under.
    committing_under: SentUnder,
    stable: RangeSet,
    lost: u64,
    /// Changes of the verifier since the last COMMIT that counted, one a round trip.
    changes: u32,
    /// Verifiers seen when a change was counted last: what is sent from then on shows the next one.
    counted_at: u64,
    /// The verifier of the last stable WRITE since then, and how many in a row had it.
    steady: Option<(writeverf3, u32)>,
}

impl Stability {
    /// Resumes with these bytes on stable storage already.
    pub(super) fn resume(stable: RangeSet) -> Self {
        Self { stable, ..Self::default() }
    }

    /// Returns what a WRITE that is sent now is sent under.
    pub(super) const fn sent_under(&self) -> SentUnder {
        self.latest
    }

    /// Records the reply to a WRITE that was sent under `sent_under`; what turns out to be lost goes to `todo`.
    pub(super) fn written(
        &mut self,
        range: Range,
        committed: stable_how,
        verifier: writeverf3,
        sent_under: SentUnder,
        todo: &mut RangeSet,
    ) {
        if committed != stable_how::UNSTABLE {
            self.stable.insert(range);
            self.observe_stable(verifier);
            return;
        }
        if self.is_late(verifier, sent_under) {
            self.lost += range.length();
            todo.insert(range);
            return;
        }
        self.observe(verifier, sent_under, todo);
        self.unstable.insert(range);
    }

    /// Records that a COMMIT is sent: it covers what was acknowledged before.
    pub(super) fn start_commit(&mut self) {
        self.unstable.drain_into(&mut self.committing);
        self.committing_under = self.latest;
    }

    /// Records that nobody waits for the COMMIT any more.
    pub(super) fn abandon_commit(&mut self) {
        self.committing.drain_into(&mut self.unstable);
    }

    /// Records a COMMIT's reply.
    pub(super) fn committed(&mut self, verifier: writeverf3, todo: &mut RangeSet) {
        if self.is_late(verifier, self.committing_under) {
            // A late reply of an earlier life: it proves nothing, so the bytes wait for the next COMMIT.
            self.committing.drain_into(&mut self.unstable);
            return;
        }
        self.observe(verifier, self.committing_under, todo);
        if !self.committing.is_empty() {
            self.changes = 0;
        }
        self.committing.drain_into(&mut self.stable);
    }

    /// Takes out what has become stable since this was called last.
    pub(super) fn take_stable(&mut self) -> RangeSet {
        std::mem::take(&mut self.stable)
    }

    /// Takes everything that still waits for a COMMIT, sent or not, out of `ranges`.
    pub(super) fn keep_unstable(&self, ranges: &mut RangeSet) {
        for range in self.unstable.iter().chain(self.committing.iter()) {
            ranges.remove(range);
        }
    }

    /// Gives everything that is not stable back to `todo`.
    pub(super) fn abandon(&mut self, todo: &mut RangeSet) {
        self.lost += self.unstable.bytes() + self.committing.bytes();
        self.unstable.drain_into(todo);
        self.committing.drain_into(todo);
    }

    /// Whether the verifier changes so often that WRITEs had better be stable themselves.
    pub(super) const fn wants_write_through(&self) -> bool {
        self.changes >= CHANGES_TO_WRITE_THROUGH
    }

    /// Whether the verifier changes so often that nothing will ever be stable.
    pub(super) const fn is_hopeless(&self) -> bool {
        self.changes >= MAX_CHANGES
    }

    /// Returns the bytes that wait for a COMMIT to be sent.
    pub(super) fn unstable_bytes(&self) -> u64 {
        self.unstable.bytes()
    }

    /// Returns the bytes on stable storage.
    pub(super) fn stable(&self) -> u64 {
        self.stable.bytes()
    }

    /// Returns what is on stable storage, and what waits for a COMMIT under which verifier.
    pub(super) fn state(&self) -> (RangeSet, [u8; 8], RangeSet) {
        let mut unstable = self.unstable.clone();
        self.committing.clone().drain_into(&mut unstable);
        (self.stable.clone(), self.latest.verifier.unwrap_or_default().0, unstable)
    }

    /// Returns the bytes that were given back so far.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether a reply is from a life of the server before the one that is taken for the latest.
    ///
    /// Replies may overtake each other, so that the life with the earlier reply may be taken for the later one. But a call that was sent
    /// after a reply of some life was run in that life or in a later one.
    fn is_late(&self, verifier: writeverf3, sent_under: SentUnder) -> bool {
        self.retired.contains(&verifier) && sent_under.verifier != self.latest.verifier
    }

    /// A server that keeps its verifier for long enough is given unstable WRITEs again: those are faster.
    fn observe_stable(&mut self, verifier: writeverf3) {
        if self.changes == 0 {
            return;
        }
        let writes = match self.steady {
            Some((steady, writes)) if steady == verifier => writes + 1,
            _ => 1,
        };
        self.steady = Some((verifier, writes));
        if writes >= STEADY_WRITES {
            (self.changes, self.steady) = (0, None);
        }
    }

    /// A verifier we did not have: the server restarted and may have forgotten every unstable byte.
    fn observe(&mut self, verifier: writeverf3, sent_under: SentUnder, todo: &mut RangeSet) {
        let before = self.latest.verifier.replace(verifier);
        if before == Some(verifier) {
            return;
        }
        self.latest.seen += 1;
        let Some(before) = before else {
            self.counted_at = self.latest.seen;
            return;
        };
        // What was sent before the last change was seen is one with it.
        if sent_under.seen >= self.counted_at {
            self.changes += 1;
            self.counted_at = self.latest.seen;
        }
        self.retired.retain(|&it| it != verifier);
        if self.retired.len() == MAX_RETIRED {
            self.retired.remove(0);
        }
        self.retired.push(before);
        self.abandon(todo);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const OLD: writeverf3 = writeverf3([1; 8]);
    const NEW: writeverf3 = writeverf3([2; 8]);

    /// Sent when this was the latest verifier.
    const fn under(verifier: writeverf3) -> SentUnder {
        SentUnder { verifier: Some(verifier), seen: 2 }
    }

    struct Bench {
        stability: Stability,
        todo: RangeSet,
    }

    impl Bench {
        fn new() -> Self {
            Self { stability: Stability::default(), todo: RangeSet::default() }
        }

        /// A WRITE that was sent before any reply came.
        fn written(&mut self, start: u64, end: u64, verifier: writeverf3) {
            self.written_under(start, end, verifier, SentUnder::default());
        }

        fn written_under(&mut self, start: u64, end: u64, verifier: writeverf3, sent_under: SentUnder) {
            let (range, unstable) = (Range { start, end }, stable_how::UNSTABLE);
            self.stability.written(range, unstable, verifier, sent_under, &mut self.todo);
        }

        fn committed(&mut self, verifier: writeverf3) {
            self.stability.committed(verifier, &mut self.todo);
        }

        /// Bytes stable, waiting for a COMMIT, and to be written again.
        fn state(&self) -> (u64, u64, u64) {
            (self.stability.stable(), self.stability.unstable_bytes(), self.todo.bytes())
        }
    }

    #[test]
    fn a_commit_covers_what_was_acknowledged_before_it_was_sent() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        bench.written(10, 15, OLD);
        bench.committed(OLD);
        assert_eq!(bench.state(), (10, 5, 0));
    }

    #[test]
    fn a_write_with_a_new_verifier_gives_back_what_was_unstable() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        bench.written(10, 15, OLD);
        bench.written(15, 20, NEW);
        assert_eq!(bench.state(), (0, 5, 15));
        bench.committed(NEW);
        assert_eq!(bench.state(), (0, 5, 15), "the COMMIT was sent before the new life began");
        assert_eq!(bench.stability.lost(), 15);
    }

    #[test]
    fn a_commit_with_a_new_verifier_proves_nothing() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        bench.committed(NEW);
        assert_eq!(bench.state(), (0, 0, 10));
    }

    #[test]
    fn late_replies_of_an_earlier_life_do_not_look_like_another_restart() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.written(10, 20, NEW);
        bench.written(20, 30, OLD);
        assert_eq!(bench.state(), (0, 10, 20), "only what the old life acknowledged is written again");
        bench.written_under(0, 10, OLD, under(OLD));
        assert_eq!(bench.state(), (0, 10, 20), "it was sent in the old life, and may have been lost with it");
    }

    #[test]
    fn a_commit_of_an_earlier_life_proves_nothing() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        bench.written(10, 20, NEW);
        bench.committed(OLD);
        assert_eq!(bench.state(), (0, 10, 10));
    }

    #[test]
    fn a_late_reply_that_looks_like_a_restart_is_found_out_by_the_next_write() {
        let mut bench = Bench::new();
        bench.written(10, 20, NEW);
        bench.written(0, 10, OLD);
        assert_eq!(bench.state(), (0, 10, 10), "which of the two lives is the later one cannot be known");
        bench.written_under(10, 20, NEW, under(OLD));
        assert_eq!(bench.state(), (0, 10, 20), "NEW answers after OLD: what OLD had is lost");
        bench.written_under(20, 30, NEW, under(OLD));
        assert_eq!(bench.state(), (0, 20, 20), "NEW is the latest now, whatever was thought before");
        bench.written_under(0, 10, OLD, under(OLD));
        assert_eq!(bench.state(), (0, 20, 20), "OLD is over");
    }

    #[test]
    fn a_late_reply_that_looks_like_a_restart_is_found_out_by_the_next_commit() {
        let mut bench = Bench::new();
        bench.written(10, 20, NEW);
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        bench.committed(NEW);
        assert_eq!(bench.state(), (0, 0, 20));
        bench.written_under(0, 20, NEW, under(NEW));
        bench.stability.start_commit();
        bench.committed(NEW);
        assert_eq!(bench.state().0, 20);
        assert!(!bench.stability.is_hopeless());
    }

    #[test]
    fn what_is_stable_is_taken_out_unless_newer_bytes_wait_for_a_commit() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        bench.written(5, 8, OLD);
        bench.committed(OLD);
        let mut stable = bench.stability.take_stable();
        assert_eq!((stable.bytes(), bench.stability.stable()), (10, 0));
        bench.stability.keep_unstable(&mut stable);
        assert_eq!(
            stable.iter().collect::<Vec<_>>(),
            [Range { start: 0, end: 5 }, Range { start: 8, end: 10 }]
        );
    }

    #[test]
    fn a_commit_that_nobody_waits_for_any_more_covers_nothing() {
        let mut bench = Bench::new();
        bench.written(0, 10, OLD);
        bench.stability.start_commit();
        assert_eq!(bench.state(), (0, 0, 0));
        bench.stability.abandon_commit();
        assert_eq!(bench.state(), (0, 10, 0));
        bench.committed(OLD);
        assert_eq!(bench.state(), (0, 10, 0));
    }

    #[test]
    fn the_state_says_what_is_stable_and_what_waits_under_which_verifier() {
        let mut bench = Bench::new();
        let range = Range { start: 0, end: 5 };
        bench.stability.written(range, stable_how::FILE_SYNC, OLD, SentUnder::default(), &mut bench.todo);
        bench.written(5, 10, NEW);
        bench.stability.start_commit();
        bench.written(20, 30, NEW);
        let (stable, verifier, unstable) = bench.stability.state();
        assert_eq!((stable.iter().collect::<Vec<_>>(), verifier), (vec![range], NEW.0));
        let waiting = [(5, 10), (20, 30)].map(|(start, end)| Range { start, end });
        assert_eq!(unstable.iter().collect::<Vec<_>>(), waiting);
    }

    #[test]
    fn what_was_stable_before_counts() {
        let mut stable = RangeSet::default();
        stable.insert(Range { start: 5, end: 25 });
        assert_eq!(Stability::resume(stable).stable(), 20);
    }

    #[test]
    fn stable_writes_need_no_commit() {
        let mut bench = Bench::new();
        let range = Range { start: 0, end: 7 };
        bench.stability.written(range, stable_how::FILE_SYNC, OLD, SentUnder::default(), &mut bench.todo);
        bench.written(7, 9, NEW);
        assert_eq!(bench.state(), (7, 2, 0));
    }

    /// Whether WRITEs are to be stable, and whether nothing helps.
    fn verdict(stability: &Stability) -> (bool, bool) {
        (stability.wants_write_through(), stability.is_hopeless())
    }

    #[test]
    fn a_verifier_that_changes_with_every_call_is_noticed_once_a_round_trip() {
        let (mut stability, mut todo) = (Stability::default(), RangeSet::default());
        let mut verdicts = Vec::new();
        for round in 0..7_u8 {
            let sent_under = stability.sent_under();
            // A window of WRITEs, each answered with a verifier of its own.
            for block in 0..64_u8 {
                let range = Range { start: block.into(), end: u64::from(block) + 1 };
                let verifier = writeverf3([round, block, 1, 1, 1, 1, 1, 1]);
                stability.written(range, stable_how::UNSTABLE, verifier, sent_under, &mut todo);
            }
            verdicts.push(verdict(&stability));
        }
        let (no, through) = ((false, false), (true, false));
        assert_eq!(verdicts, [no, no, through, through, through, (true, true), (true, true)]);
    }

    #[test]
    fn a_verifier_that_changes_with_every_call_is_noticed_when_each_reply_makes_room_for_a_call() {
        const WINDOW: usize = 16;
        let (mut stability, mut todo) = (Stability::default(), RangeSet::default());
        let mut in_flight = VecDeque::from([SentUnder::default(); WINDOW]);
        let mut replies = 0_u64;
        while !stability.is_hopeless() && replies < 1000 {
            let (range, sent_under) =
                (Range { start: replies, end: replies + 1 }, in_flight.pop_front().unwrap());
            let verifier = writeverf3(replies.to_be_bytes());
            stability.written(range, stable_how::UNSTABLE, verifier, sent_under, &mut todo);
            in_flight.push_back(stability.sent_under());
            replies += 1;
        }
        let windows = replies.div_ceil(WINDOW as u64);
        assert!((5..=7).contains(&windows), "{replies} replies");
    }

    #[test]
    fn two_verifiers_that_take_turns_are_no_late_replies() {
        // As behind an address that two servers share.
        let mut bench = Bench::new();
        let mut verdicts = Vec::new();
        for _ in 0..3 {
            let sent_under = bench.stability.sent_under();
            bench.written_under(0, 10, OLD, sent_under);
            bench.stability.start_commit();
            bench.committed(NEW);
            verdicts.push(verdict(&bench.stability));
        }
        assert_eq!(verdicts, [(false, false), (true, false), (true, true)]);
        assert_eq!(bench.stability.stable(), 0);
    }

    #[test]
    fn a_verifier_that_stays_ends_the_time_of_stable_writes() {
        let (mut stability, mut todo) = (Stability::default(), RangeSet::default());
        let mut write = |stability: &mut Stability, committed, life| {
            let (range, under) = (Range { start: 0, end: 1 }, stability.sent_under());
            stability.written(range, committed, writeverf3([life; 8]), under, &mut todo);
        };
        for life in 0..3 {
            write(&mut stability, stable_how::UNSTABLE, life);
        }
        assert_eq!(verdict(&stability), (true, false));
        for life in [2, 3] {
            // Not so many in a row.
            (1..STEADY_WRITES).for_each(|_| write(&mut stability, stable_how::FILE_SYNC, life));
            assert_eq!(verdict(&stability), (true, false), "life {life}");
        }
        write(&mut stability, stable_how::FILE_SYNC, 3);
        assert_eq!(verdict(&stability), (false, false));
        for life in 4..6 {
            write(&mut stability, stable_how::UNSTABLE, life);
        }
        assert_eq!(verdict(&stability), (true, false), "two changes more, and it begins again");
    }

    #[test]
    fn restarts_between_commits_that_count_are_waited_out() {
        let mut bench = Bench::new();
        for life in 0..100_u8 {
            let verifier = writeverf3([life; 8]);
            let sent_under = bench.stability.sent_under();
            bench.written_under(u64::from(life) * 10, u64::from(life) * 10 + 10, verifier, sent_under);
            bench.stability.start_commit();
            bench.committed(verifier);
            assert_eq!(verdict(&bench.stability), (false, false), "life {life}");
        }
        assert_eq!(bench.stability.stable(), 1000);
    }
}
