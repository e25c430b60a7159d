//! Do the ends of the link compress headers?
//!
//! A datagram of one frame then costs next to nothing but its data, and is what loses least to a burst; fragments keep their headers. A
//! client can tell by the pace of replies: a few blocks of one frame are asked for between larger ones, and the time that each byte
//! took is compared.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Blocks of one frame in a trial.
const BLOCKS: u32 = 8;

/// Gaps between replies that show the pace of a trial, and that of larger blocks.
const FEWEST_GAPS: usize = 4;
const GAPS: usize = 8;

/// Replies come at a pace if the middle half of their gaps differs by no more than this share of the median: not if others use the
/// link, too.
const EVEN: f64 = 0.1;

/// Part of the way from a pace with compression to one without that still counts as the former.
const NEAR: f64 = 0.25;

/// A pace this much better than compression explains has other reasons.
const PLAUSIBLE: f64 = 0.9;

/// How long an answer is believed; the first that finds compression, which might be chance, until it can be repeated.
const LIFETIME: Duration = Duration::from_secs(120);
const FIRST_LIFETIME: Duration = Duration::from_secs(30);

/// Compares paces.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Replies with blocks of one size, one after the other while others were awaited.
    run: Option<Run>,
    under_way: Option<UnderWay>,
    /// The last answer, and until when it is believed.
    answer: Option<(bool, Instant)>,
    /// Block of the trial that found compression, and the seconds for each byte that would refute it.
    refuted_by: Option<(u32, f64)>,
}

#[derive(Debug)]
struct Run {
    bytes: u32,
    last: Instant,
    /// The last gaps, at most [`GAPS`].
    gaps: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    one_frame: u32,
    /// Blocks to ask for.
    left: u32,
    /// Seconds for each byte if headers are compressed, and if not.
    compressed: f64,
    whole: f64,
}

impl Trial {
    /// Returns whether headers are compressed, if it is known.
    pub(super) fn answer(&self, now: Instant) -> Option<bool> {
        self.answer.filter(|&(_, until)| now < until).map(|(answer, _)| answer)
    }

    /// Begins a trial with blocks of `one_frame` bytes, if larger ones come at a pace. `expected(larger)` is the time for each byte, in that
    /// of the larger blocks, if headers are compressed, and if not.
    pub(super) fn begin(&mut self, one_frame: u32, expected: impl FnOnce(u32) -> (f64, f64)) {
        if let (None, Some(run)) = (self.under_way, &self.run)
            && run.gaps.len() >= GAPS
            && run.bytes > one_frame
            && let Some(pace) = run.seconds_per_byte()
        {
            let (compressed, whole) = expected(run.bytes);
            let (compressed, whole) = (compressed * pace, whole * pace);
            self.under_way = Some(UnderWay { one_frame, left: BLOCKS, compressed, whole });
        }
    }

    /// Returns the size of the next block, if a trial asks for one.
    pub(super) fn block(&self) -> Option<u32> {
        self.under_way.filter(|trial| trial.left > 0).map(|trial| trial.one_frame)
    }

    /// A block of `bytes` was asked for.
    pub(super) fn handle_sent(&mut self, bytes: u32) {
        if let Some(trial) = self.under_way.as_mut().filter(|trial| trial.one_frame == bytes) {
            trial.left = trial.left.saturating_sub(1);
        }
    }

    /// A block of `bytes` is there; `waiting`: others are awaited.
    pub(super) fn handle_reply(&mut self, now: Instant, bytes: u32, waiting: bool) {
        match &mut self.run {
            Some(run) if run.bytes == bytes => {
                run.gaps.push_back(now.saturating_duration_since(run.last));
                if run.gaps.len() > GAPS {
                    run.gaps.pop_front();
                }
                run.last = now;
                let slow = self.refuted_by.filter(|&(bytes, _)| bytes == run.bytes && run.gaps.len() == GAPS);
                if slow.zip(run.seconds_per_byte()).is_some_and(|((_, most), pace)| pace > most) {
                    // So few replies said so, and their successors do not.
                    (self.answer, self.refuted_by) = (Some((false, now + LIFETIME)), None);
                }
            }
            run => {
                let before = run.replace(Run { bytes, last: now, gaps: VecDeque::new() });
                self.conclude(before);
            }
        }
        if !waiting {
            self.interrupt();
        }
    }

    /// A fade, or nothing to do: the next reply is at no pace.
    pub(super) fn interrupt(&mut self) {
        let before = self.run.take();
        self.conclude(before);
    }

    /// A run has ended; if it was the trial's, that is over.
    fn conclude(&mut self, run: Option<Run>) {
        let Some((trial, run)) = self.under_way.zip(run).filter(|(trial, run)| run.bytes == trial.one_frame)
        else {
            return;
        };
        if run.gaps.len() >= FEWEST_GAPS {
            let most = trial.compressed + NEAR * (trial.whole - trial.compressed);
            let plausible = trial.compressed * PLAUSIBLE..most;
            let answer = run.seconds_per_byte().is_some_and(|pace| plausible.contains(&pace));
            self.refuted_by = answer.then_some((run.bytes, f64::midpoint(trial.compressed, trial.whole)));
            let repeated = self.answer.is_some_and(|(before, _)| before);
            self.answer =
                Some((answer, run.last + if answer && !repeated { FIRST_LIFETIME } else { LIFETIME }));
        }
        self.under_way = None;
    }
}

impl Run {
    /// By the median gap, as some are longer for reasons of their own; `None` if replies do not come at a pace.
    fn seconds_per_byte(&self) -> Option<f64> {
        let mut gaps: Vec<f64> = self.gaps.iter().map(Duration::as_secs_f64).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let quarter = |quarters: usize| gaps[(gaps.len() - 1) * quarters / 4];
        let even = quarter(3) - quarter(1) <= EVEN * quarter(2);
        even.then(|| quarter(2) / f64::from(self.bytes))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
mod tests {
    use super::*;

    /// What is believed, so many seconds after the last of `number` trials in a row.
    fn believed(number: u32, seconds: u64) -> Option<bool> {
        let mut trial = Trial::default();
        let mut now = Instant::now();
        for _ in 0..number {
            now = run(&mut trial, now, (34_960, 10_700), None);
        }
        trial.answer(now + Duration::from_secs(seconds))
    }

    #[test]
    fn compression_must_be_found_twice_to_be_believed_for_long() {
        assert_eq!([believed(1, 29), believed(1, 31)], [Some(true), None]);
        assert_eq!([believed(2, 119), believed(2, 121)], [Some(true), None]);
    }

    /// Runs a trial on a link that takes so many microseconds for a large and a small block, interrupted after so many replies.
    fn run(
        trial: &mut Trial,
        mut now: Instant,
        (large, small): (u64, u64),
        interrupted_after: Option<u32>,
    ) -> Instant {
        for _ in 0..10 {
            now += Duration::from_micros(large);
            trial.handle_reply(now, 4096, true);
        }
        trial.begin(1280, |larger| {
            assert_eq!(larger, 4096);
            (0.98, 1.16)
        });
        for reply in 0.. {
            let Some(bytes) = trial.block() else { break };
            trial.handle_sent(bytes);
            if interrupted_after == Some(reply) {
                trial.interrupt();
            }
            now += Duration::from_micros(small);
            trial.handle_reply(now, bytes, true);
        }
        now += Duration::from_micros(large);
        trial.handle_reply(now, 4096, true);
        now
    }

    fn trial(large: u64, small: u64, interrupted_after: Option<u32>) -> Option<bool> {
        let mut trial = Trial::default();
        let now = run(&mut trial, Instant::now(), (large, small), interrupted_after);
        trial.answer(now)
    }

    #[test]
    fn compressed_headers_show_in_the_pace() {
        // 1 Mbit/s: (4096 + 416, 1280 + 340) bytes with headers, (4096 + 274, 1280 + 58) compressed.
        assert_eq!(trial(36_096, 12_960, None), Some(false));
        assert_eq!(trial(34_960, 10_700, None), Some(true));
    }

    #[test]
    fn a_fade_ends_a_trial_that_has_seen_too_little() {
        assert_eq!(trial(34_960, 10_700, Some(4)), None);
        assert_eq!(trial(34_960, 10_700, Some(6)), Some(true));
    }

    #[test]
    fn what_compression_does_not_explain_is_not_taken_for_it() {
        assert_eq!(trial(105_000, 13_000, None), Some(false), "others share the link");
    }

    #[test]
    fn without_a_pace_there_is_no_trial() {
        let mut trial = Trial::default();
        trial.handle_reply(Instant::now(), 4096, true);
        trial.begin(1280, |_| (0.98, 1.16));
        assert_eq!(trial.block(), None);
    }
}
