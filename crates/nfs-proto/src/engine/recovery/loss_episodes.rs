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
    /// When the last block was sent that was lost, and the first one after it that was acknowledged.
    lost: Option<Instant>,
    acked: Option<Instant>,
}

impl LossEpisodes {
    pub(super) const fn new(tuning: EpisodeTuning, now: Instant) -> Self {
        Self {
            tuning,
            count: 0.0,
            seconds: 0.0,
            counted_until: now,
            last: None,
            lost_in_last: 0,
            lost: None,
            acked: None,
        }
    }

    /// Starts from an earlier rate of episodes, which counts as much as a few seconds' own experience.
    pub(super) fn resume(&mut self, per_second: f64) {
        self.seconds = self.tuning.resumed_seconds;
        self.count =
            (per_second * (self.seconds + self.tuning.prior_seconds) - self.tuning.prior_count).max(0.0);
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

    /// A block is acknowledged that was sent at `sent`.
    pub(super) fn on_ack(&mut self, sent: Instant) {
        if self.lost.is_some_and(|lost| sent > lost) && self.acked.is_none_or(|acked| sent < acked) {
            self.acked = Some(sent);
        }
    }

    /// A fade destroyed what was sent at `sent`. What was sent before the last episode was found belongs to that, unless it is
    /// [`EpisodeTuning::apart`] from it. Returns whether this is the first loss since then.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant) -> bool {
        let is_found = self.last.is_none_or(|last| sent >= last);
        let is_apart = self.acked.is_some_and(|acked| acked < sent)
            && self.lost.is_some_and(|lost| sent > lost + self.tuning.apart);
        if is_found || is_apart {
            self.count += 1.0;
            self.lost = None;
        }
        if self.lost.is_none_or(|lost| lost < sent) {
            (self.lost, self.acked) = (Some(sent), None);
        }
        if is_found {
            self.last = Some(now);
            self.lost_in_last = 0;
        }
        self.lost_in_last += 1;
        is_found
    }

    /// What was declared lost is answered. Returns whether nothing else was lost then, so that there was no episode.
    pub(super) fn on_spurious(&mut self) -> bool {
        let was_none = self.lost_in_last == 1;
        if was_none {
            self.count = (self.count - 1.0).max(0.0);
            self.last = None;
        }
        self.lost_in_last = self.lost_in_last.saturating_sub(1);
        was_none
    }

    /// Returns the episodes per second of good time.
    pub(super) fn per_second(&self) -> f64 {
        let rate = (self.count + self.tuning.prior_count) / (self.seconds + self.tuning.prior_seconds);
        if self.count > 0.0 {
            return rate;
        }
        rate / (1.0 + (self.tuning.certainty * (self.seconds - self.tuning.even_odds_seconds)).exp())
    }

    /// The same for a link that seems to retransmit. Such a link loses nothing but what was lost before that was known. Where more is lost,
    /// others fill a queue: episodes end there without a loss now and then, too.
    pub(super) fn unexpected_per_second(&self) -> f64 {
        (self.count - 1.0).max(0.0) / (self.seconds + self.tuning.prior_seconds)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a beginning of time")]
mod tests {
    use super::*;

    #[test]
    fn losses_that_are_found_together_are_one_episode_unless_something_was_acknowledged_between_them() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let episodes = |acked: &[u64], lost: &[u64]| {
            let mut episodes = LossEpisodes::new(EpisodeTuning::default(), epoch);
            for &sent in lost {
                for &sent in acked.iter().filter(|&&it| it < sent + 10) {
                    episodes.on_ack(at(sent));
                }
                episodes.on_loss(at(sent + 610), at(sent));
            }
            episodes.count
        };
        for (acked, lost, number) in [
            (&[][..], &[100, 201, 302][..], 1.0),
            (&[150], &[100, 201, 302], 2.0),
            (&[150, 250], &[100, 201, 302], 3.0),
            (&[150, 250], &[100, 200, 300], 1.0),
            (&[], &[100, 800], 2.0),
        ] {
            let found = episodes(acked, lost);
            assert!((found - number).abs() < 1e-9, "{found} episodes, {acked:?} acknowledged, {lost:?} lost");
        }
    }

    #[test]
    fn without_an_episode_it_soon_becomes_certain_that_there_are_none() {
        let epoch = Instant::now();
        let mut episodes = LossEpisodes::new(EpisodeTuning::default(), epoch);
        assert!(episodes.per_second() > 0.9, "one a second is assumed at first");
        for second in 1..=5 {
            episodes.handle_reply(epoch + Duration::from_secs(second), Duration::ZERO);
        }
        assert!(episodes.per_second() < 0.001);
        episodes.on_loss(epoch + Duration::from_secs(5), epoch + Duration::from_secs(4));
        assert!((0.2..0.4).contains(&episodes.per_second()), "{}", episodes.per_second());
        assert!(episodes.on_spurious());
        assert!(episodes.per_second() < 0.001, "there was none");
    }
}
