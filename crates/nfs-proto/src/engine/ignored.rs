//! READs or WRITEs that are not answered while other calls are: the server lives and ignores them, or the path takes nothing so large. Sending
//! them again as if they were lost would only make work for both.

use std::time::{Duration, Instant};

use super::{Class, Tuning};

/// What is known of one class of calls.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// The first that was sent since one was answered.
    since: Option<Instant>,
    last_sent: Option<Instant>,
    /// Other calls that were sent since then and are answered.
    others: u32,
    /// How often calls of the class were sent since then, as far as smaller ones have not taken their place.
    sends: u32,
    /// Whether one of the class was ever answered.
    was_answered: bool,
}

/// Which calls are ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ignored {
    /// How long that takes to be more than loss.
    after: Duration,
    /// So many in a row that are not answered are more than loss, too: where none of the class was ever answered, and where some were.
    sends: [u32; 2],
    read: Watch,
    write: Watch,
}

impl Ignored {
    pub(super) fn new(tuning: &Tuning) -> Self {
        // Four windows: the first one, and the widest of a path without fades. Where half are lost, one of 16 is answered but for 2^-16.
        let windows = [tuning.window.initial_blocks as u32, tuning.window.wired_reads as u32];
        let sends = windows.map(|window| 4 * window);
        Self { after: tuning.loss.ignored, sends, read: Watch::default(), write: Watch::default() }
    }

    fn watch(&mut self, class: Class) -> Option<&mut Watch> {
        match class {
            Class::Control => None,
            Class::Read => Some(&mut self.read),
            Class::Write => Some(&mut self.write),
        }
    }

    /// A call was sent.
    pub(super) fn handle_sent(&mut self, now: Instant, class: Class) {
        if let Some(watch) = self.watch(class) {
            watch.since.get_or_insert(now);
            watch.last_sent = Some(now);
            watch.sends = watch.sends.saturating_add(1);
        }
    }

    /// A call that was sent at `sent` is answered.
    pub(super) fn handle_answer(&mut self, class: Class, sent: Instant) {
        match self.watch(class) {
            Some(watch) => *watch = Watch { was_answered: true, ..Watch::default() },
            None => {
                for watch in [&mut self.read, &mut self.write] {
                    watch.others += u32::from(watch.since.is_some_and(|since| sent > since));
                }
            }
        }
    }

    /// Smaller READs and WRITEs take the place of those that were not answered.
    pub(super) fn handle_withdrawal(&mut self) {
        (self.read.sends, self.write.sends) = (0, 0);
    }

    /// Returns when the next call of an ignored class may be sent; `timeout` is how long one usually takes at most.
    ///
    /// At first, each waits a quarter of the time that they were ignored for, so that their number grows with its logarithm.
    pub(super) fn wait_until(&self, now: Instant, class: Class, timeout: Duration) -> Option<Instant> {
        let watch = match class {
            Class::Control => return None,
            Class::Read => &self.read,
            Class::Write => &self.write,
        };
        let lasted = now.saturating_duration_since(watch.since?);
        let is_more_than_loss = watch.sends >= self.sends[usize::from(watch.was_answered)]
            || lasted >= self.after.max(2 * timeout);
        let ignored = watch.others >= 4 && is_more_than_loss;
        let pause = lasted.min(self.after) / 4;
        watch.last_sent.map(|last| last + pause).filter(|&due| ignored && now < due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn of_reads_that_are_never_answered_few_are_sent_before_it_is_known() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let start = Instant::now();
        for (was_answered, most, others) in [(false, 40, 1), (true, 280, 1), (false, 1000, 0)] {
            let mut ignored = Ignored::new(&Tuning::default());
            if was_answered {
                ignored.handle_answer(Class::Read, start);
            }
            let mut sent = 0;
            // One is to be sent each millisecond.
            for at in (0..1000).map(|at| start + at * MS) {
                if ignored.wait_until(at, Class::Read, MS).is_none() {
                    ignored.handle_sent(at, Class::Read);
                    sent += 1;
                }
                (0..others).for_each(|_| ignored.handle_answer(Class::Control, at));
            }
            assert!((most - 50..=most).contains(&sent), "{was_answered}: {sent}");
            ignored.handle_withdrawal();
            let at = start + 999 * MS;
            assert_eq!(ignored.wait_until(at, Class::Read, MS), None, "smaller ones may be answered");
        }
    }

    #[test]
    fn reads_that_alone_are_not_answered_are_sent_four_times_a_second() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let start = Instant::now();
        let mut ignored = Ignored::new(&Tuning::default());
        ignored.handle_sent(start, Class::Read);
        for other in 1..=4 {
            ignored.handle_answer(Class::Control, start + other * MS);
        }
        let wait = |ignored: &Ignored, at: u32| ignored.wait_until(start + at * MS, Class::Read, 10 * MS);
        ignored.handle_sent(start + 900 * MS, Class::Read);
        assert_eq!(wait(&ignored, 999), None, "a second is not over");
        assert_eq!(wait(&ignored, 1000), Some(start + 1150 * MS));
        assert_eq!(wait(&ignored, 1150), None, "one may be sent");
        assert_eq!(ignored.wait_until(start + 1000 * MS, Class::Read, 600 * MS), None, "the path is slow");
        assert_eq!(ignored.wait_until(start + 1000 * MS, Class::Write, 10 * MS), None);
        ignored.handle_answer(Class::Read, start);
        ignored.handle_sent(start + 1150 * MS, Class::Read);
        assert_eq!(wait(&ignored, 1160), None, "one is answered");
    }

    #[test]
    fn a_silence_of_all_calls_is_a_fade() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let start = Instant::now();
        let mut ignored = Ignored::new(&Tuning::default());
        for _ in 0..9 {
            ignored.handle_answer(Class::Control, start);
        }
        ignored.handle_sent(start, Class::Write);
        assert_eq!(ignored.wait_until(start + 9000 * MS, Class::Write, MS), None);
    }

    #[test]
    fn only_other_calls_that_were_sent_later_show_that_the_server_lives() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let start = Instant::now();
        for (sent, waits) in [(start, false), (start + MS, true)] {
            let mut ignored = Ignored::new(&Tuning::default());
            ignored.handle_sent(start, Class::Write);
            (0..4).for_each(|_| ignored.handle_answer(Class::Control, sent));
            ignored.handle_sent(start + 1000 * MS, Class::Write);
            let wait = ignored.wait_until(start + 1000 * MS, Class::Write, MS);
            assert_eq!(wait, waits.then_some(start + 1250 * MS));
            assert_eq!(ignored.wait_until(start + 1000 * MS, Class::Control, MS), None);
        }
    }
}
