//! How often fades destroy something: loss episodes per second of good time.

use std::time::{Duration, Instant};

use super::tuning::EpisodeTuning;

/// Counts loss episodes.
#[derive(Debug)]
pub(super) struct LossEpisodes {
    tuning: EpisodeTuning,
    count: f64,
    /// Good time, in seconds.
    seconds: f64,
    counted_until: Instant,
    /// When the last one was found.
    last: Option<Instant>,
    /// Blocks known to be lost in it.
    lost_in_last: u32,
}

impl LossEpisodes {
    pub(super) const fn new(tuning: EpisodeTuning, now: Instant) -> Self {
        Self { tuning, count: 0.0, seconds: 0.0, counted_until: now, last: None, lost_in_last: 0 }
    }

    /// Starts from an earlier rate of episodes, which counts as much as a few seconds' own experience.
    pub(super) fn resume(&mut self, per_second: f64) {
        self.seconds = self.tuning.resumed_seconds;
        self.count = (per_second * (self.seconds + self.tuning.prior) - self.tuning.prior).max(0.0);
    }

    /// A reply came: the time since the last one was good, but for `fade`.
    pub(super) fn handle_reply(&mut self, now: Instant, fade: Duration) {
        let passed = now.saturating_duration_since(self.counted_until).saturating_sub(fade);
        self.counted_until = now;
        self.seconds += passed.as_secs_f64().min(1.0);
        if self.seconds > 2.0 * self.tuning.memory_seconds {
            self.seconds /= 2.0;
            self.count /= 2.0;
        }
    }

    /// Nothing was in flight until now.
    pub(super) const fn handle_idle(&mut self, now: Instant) {
        self.counted_until = now;
    }

    /// A fade destroyed what was sent at `sent`. What was sent before the last episode was found belongs to that.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant) {
        if self.last.is_none_or(|last| sent >= last) {
            self.count += 1.0;
            self.last = Some(now);
            self.lost_in_last = 0;
        }
        self.lost_in_last += 1;
    }

    /// What was declared lost is answered: there was no episode if nothing else was lost then.
    pub(super) fn on_spurious(&mut self) {
        if self.lost_in_last == 1 {
            self.count = (self.count - 1.0).max(0.0);
            self.last = None;
        }
        self.lost_in_last = self.lost_in_last.saturating_sub(1);
    }

    /// Returns the episodes per second of good time.
    pub(super) fn per_second(&self) -> f64 {
        (self.count + self.tuning.prior) / (self.seconds + self.tuning.prior)
    }

    /// The same for a link that seems to retransmit. Such a link loses nothing but what was lost before that was known. Where more is lost,
    /// others fill a queue: episodes end there without a loss now and then, too.
    pub(super) fn unexpected_per_second(&self) -> f64 {
        (self.count - 1.0).max(0.0) / (self.seconds + self.tuning.prior)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a beginning of time")]
mod tests {
    use super::*;

    #[test]
    fn losses_that_are_found_together_are_one_episode() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        for (lost, number) in
            [(&[100, 201, 302][..], 1.0), (&[100, 709], 1.0), (&[100, 710], 2.0), (&[100, 800], 2.0)]
        {
            let mut episodes = LossEpisodes::new(tuning(), epoch);
            for &sent in lost {
                episodes.on_loss(at(sent + 610), at(sent));
            }
            assert!(is(episodes.count, number), "{} episodes, {lost:?} lost", episodes.count);
        }
    }

    #[test]
    fn without_an_episode_the_rate_falls_with_the_good_time() {
        for (seconds, rate) in [(0, 1.0), (1, 0.7 / 1.7), (10, 0.7 / 10.7), (60, 0.7 / 60.7)] {
            let found = after(0, seconds).per_second();
            assert!(is(found, rate), "{seconds} s: {found}");
        }
    }

    #[test]
    fn an_episode_that_was_none_does_not_count() {
        let mut episodes = after(0, 5);
        let now = Instant::now();
        episodes.on_loss(now, now);
        assert!(is(episodes.per_second(), 1.7 / 5.7));
        episodes.on_spurious();
        assert!(is(episodes.per_second(), 0.7 / 5.7));
    }

    fn tuning() -> EpisodeTuning {
        EpisodeTuning { prior: 0.7, resumed_seconds: 10.0, memory_seconds: 60.0 }
    }

    /// So many episodes, and then so many seconds of good time.
    fn after(count: u32, seconds: u32) -> LossEpisodes {
        let epoch = Instant::now();
        let mut episodes = LossEpisodes::new(tuning(), epoch);
        for _ in 0..count {
            let sent = Instant::now();
            episodes.on_loss(sent, sent);
        }
        for second in 1..=seconds {
            episodes.handle_reply(epoch + Duration::from_secs(second.into()), Duration::ZERO);
        }
        episodes
    }

    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    #[test]
    fn the_rate_is_episodes_over_good_time_both_with_a_prior() {
        for (count, seconds, rate) in [(1, 1, 1.0), (1, 10, 1.7 / 10.7), (5, 10, 5.7 / 10.7)] {
            let found = after(count, seconds).per_second();
            assert!(is(found, rate), "{count} in {seconds} s: {found}");
        }
    }

    #[test]
    fn where_the_link_retransmits_the_first_episode_is_expected() {
        for (count, seconds, rate) in [(0, 3, 0.0), (1, 3, 0.0), (3, 3, 2.0 / 3.7)] {
            let found = after(count, seconds).unexpected_per_second();
            assert!(is(found, rate), "{count} in {seconds} s: {found}");
        }
    }

    #[test]
    fn an_earlier_connection_s_rate_is_worth_ten_seconds() {
        let mut episodes = LossEpisodes::new(tuning(), Instant::now());
        episodes.resume(2.0);
        assert!(is(episodes.per_second(), 2.0), "{}", episodes.per_second());
        let now = Instant::now();
        episodes.on_loss(now, now);
        assert!(is(episodes.per_second(), 2.0 + 1.0 / 10.7));
        episodes.resume(0.0);
        assert!(is(episodes.per_second(), 0.7 / 10.7), "none, as far as ten seconds show");
    }

    #[test]
    fn neither_fades_nor_idle_time_nor_more_than_a_second_between_replies_are_good_time() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let mut episodes = LossEpisodes::new(tuning(), epoch);
        episodes.on_loss(epoch, epoch);
        let seconds = |episodes: &LossEpisodes| 1.7 / episodes.per_second() - 0.7;
        episodes.handle_reply(at(500), Duration::from_millis(200));
        assert!(is(seconds(&episodes), 0.3));
        episodes.handle_idle(at(900));
        episodes.handle_reply(at(1000), Duration::ZERO);
        assert!(is(seconds(&episodes), 0.4));
        episodes.handle_reply(at(9000), Duration::ZERO);
        assert!(is(seconds(&episodes), 1.4));
    }

    #[test]
    fn the_past_counts_half_after_twice_a_minute() {
        assert!(is(after(4, 120).per_second(), 4.7 / 120.7));
        assert!(is(after(4, 121).per_second(), 2.7 / 61.2), "half of 4 in 121 s");
    }

    #[test]
    fn only_the_first_loss_of_an_episode_counts() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let mut episodes = LossEpisodes::new(tuning(), epoch);
        // Known at 100 ms: what was sent before belongs to it.
        let counts = [(100, 0), (101, 50), (110, 99), (200, 100), (210, 150)].map(|(found, sent)| {
            episodes.on_loss(at(found), at(sent));
            episodes.count
        });
        assert_eq!(counts, [1.0, 1.0, 1.0, 2.0, 2.0]);
        // Two were lost in the second, so that one that was late leaves it one.
        episodes.on_spurious();
        assert!(is(episodes.count, 2.0));
        episodes.on_spurious();
        assert!(is(episodes.count, 1.0), "the other one was late, too");
    }
}
