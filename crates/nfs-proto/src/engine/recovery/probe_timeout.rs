//! Probe timeout (PTO, RFC 9002 §6.2): when the absence of replies means something, and when to send NULL calls meanwhile.
//!
//! Nothing arrives during a fade, so no reply can show a loss. Probes find the end of the fade within about one round trip.

use std::time::{Duration, Instant};

use super::{reply_interval::ReplyInterval, tuning::ProbeTuning};

/// Shortest time that a timer is set for (kGranularity, RFC 9002 §6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// The time since the last reply, and what the gaps before were.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeTimeout {
    tuning: ProbeTuning,
    interval: ReplyInterval,
    /// The last reply, or the first call after there was none in flight.
    since: Instant,
    /// Whether something has been received since nothing was in flight.
    is_flowing: bool,
    /// Whether anything was ever received.
    is_heard: bool,
    next: Option<Instant>,
    /// The next probe is a tail-loss probe; when the PTO is due.
    tail_loss: Option<Instant>,
    /// Whether this episode was probed.
    is_probed: bool,
    /// When the last loss episode ended, and how long it was.
    episode: Option<(Instant, Duration)>,
    /// The longest of the last episodes that were probed.
    longest: Duration,
    /// Smoothed length of the episodes that were probed, beyond the reply interval.
    mean_fade: Duration,
    /// Time without a reply after which the oldest call is sent again.
    resend_after: Duration,
    /// When the link below changed during this episode.
    link_event: Option<Instant>,
}

/// A gap between replies that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// How long it lasted beyond the reply interval.
    pub(super) excess: Duration,
    /// Whether it was probed.
    pub(super) is_probed: bool,
    /// Whether it lasted twice the reply interval.
    pub(super) is_long: bool,
}

/// How a call was sent, as far as the PTO depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Whether nothing else was in flight.
    pub(super) alone: bool,
    /// How long its reply may take.
    pub(super) timeout: Duration,
    /// When a tail-loss probe is to follow it (RFC 8985 §7).
    pub(super) tail_loss_probe: Option<Duration>,
}

impl ProbeTimeout {
    pub(super) fn new(tuning: ProbeTuning, now: Instant) -> Self {
        Self {
            tuning,
            interval: ReplyInterval::default(),
            since: now,
            is_flowing: false,
            is_heard: false,
            next: None,
            tail_loss: None,
            is_probed: false,
            episode: None,
            longest: Duration::ZERO,
            mean_fade: Duration::ZERO,
            resend_after: tuning.first_resend,
            link_event: None,
        }
    }

    /// The link below has changed: what this episode has shown about how long to wait does not count any more.
    pub(super) fn handle_link_event(&mut self, now: Instant) {
        if self.next.is_some() {
            self.next = Some(now);
            self.link_event = Some(now);
            self.resend_after = self.tuning.first_resend;
        }
    }

    /// A call was sent.
    pub(super) fn on_sent(&mut self, now: Instant, sent: Sent, link_retransmits: bool) {
        let Sent { alone, timeout, tail_loss_probe } = sent;
        if alone || self.next.is_none() {
            self.since = now;
            self.is_flowing = false;
            self.is_probed = false;
            self.link_event = None;
            self.resend_after = self.tuning.first_resend;
            let due = now + self.timeout(timeout, link_retransmits).max(GRANULARITY);
            self.tail_loss = tail_loss_probe.map(|_| due);
            self.next = Some(tail_loss_probe.map_or(due, |after| now + after.max(GRANULARITY)));
        }
    }

    /// A reply is there: was there a loss episode before it?
    pub(super) fn look_back(&mut self, now: Instant) {
        let gap = now.saturating_duration_since(self.since);
        if if self.is_flowing { self.interval.is_exceeded_by(gap) } else { self.is_probed } {
            self.episode = Some((now, gap));
        }
    }

    /// A reply brought a block of `bytes`, if any; `is_sample`: it is neither smaller than what is asked for now nor a probe's;
    /// `waiting`: others are outstanding. Returns what the gap before it was.
    pub(super) fn on_reply(
        &mut self,
        now: Instant,
        bytes: u32,
        is_sample: bool,
        waiting: bool,
        timeout: Duration,
        link_retransmits: bool,
    ) -> Gap {
        let gap = now.saturating_duration_since(self.since);
        self.interval.handle_block(bytes);
        if self.is_flowing && is_sample {
            self.interval.sample(gap);
        }
        let interval = self.interval.mean();
        let ended = Gap {
            excess: gap.saturating_sub(interval),
            is_probed: self.is_probed,
            is_long: gap > 2 * interval,
        };
        if ended.is_probed {
            self.longest = gap.max(self.longest * 7 / 8);
            let is_first = self.mean_fade.is_zero();
            self.mean_fade = if is_first { ended.excess } else { (self.mean_fade * 7 + ended.excess) / 8 };
        }
        self.since = now;
        self.is_heard = true;
        self.is_flowing = true;
        self.is_probed = false;
        self.link_event = None;
        self.resend_after = self.tuning.first_resend;
        let due = waiting.then(|| now + self.timeout(timeout, link_retransmits));
        self.tail_loss = self.tail_loss.and(due);
        if self.tail_loss.is_none() {
            self.next = due;
        }
        ended
    }

    /// Blocks have another size from now on.
    pub(super) fn handle_block_change(&mut self, from: u32, to: u32) {
        self.interval.handle_block_change(from, to);
    }

    /// Nothing is outstanding any more.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }

    /// A probe goes out now; `rate` is the path's, in bytes per second, `timeout` how long replies may take. Returns whether it
    /// is time to send the oldest call again, too: perhaps the server answers calls and no probes.
    pub(super) fn on_probe(
        &mut self,
        now: Instant,
        rate: f64,
        timeout: Duration,
        link_retransmits: bool,
    ) -> bool {
        if let Some(due) = self.tail_loss.take() {
            self.next = Some(due.max(now + self.tuning.min_interval));
            return false;
        }
        self.is_probed = true;
        let lasted = now.saturating_duration_since(self.since);
        let is_urgent = lasted < self.tuning.urgent;
        let is_usual = lasted < (2 * self.longest).min(self.tuning.usual_limit);
        let (parts, most) = match () {
            () if !self.is_heard && is_urgent => (2, self.tuning.first_interval),
            () if !self.is_heard => (8, self.tuning.unheard_interval),
            // Probes are retransmitted, too.
            () if link_retransmits => (4, self.tuning.max_interval),
            () if is_usual => (16, self.tuning.urgent_interval),
            () if is_urgent => (8, self.tuning.urgent_interval),
            () => (8, self.tuning.max_interval),
        };
        let since = self.link_event.map_or(self.since, |event| event.max(self.since));
        let interval = (now.saturating_duration_since(since) / parts).min(most);
        let share = if rate > 0.0 {
            Duration::from_secs_f64((self.tuning.bytes_between / rate).min(60.0))
        } else {
            3 * self.tuning.min_interval
        };
        let resend = lasted >= self.resend_after.max(2 * timeout);
        if resend {
            self.resend_after = (2 * self.resend_after).min(16 * self.tuning.first_resend);
        }
        self.next =
            Some(now + interval.max(self.tuning.min_interval).max(share).max(self.interval.mean() / 4));
        resend
    }

    /// Whether nothing has been received at all.
    pub(super) const fn is_unheard(&self) -> bool {
        !self.is_heard
    }

    /// Returns how long a call that is sent again and again waits at most, while others are answered.
    pub(super) const fn longest_wait(&self) -> Duration {
        self.tuning.first_resend
    }

    /// Returns when the next probe is due.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns when the present gap between replies began.
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// Returns the smoothed length of the episodes that were probed.
    pub(super) const fn mean_fade(&self) -> Duration {
        self.mean_fade
    }

    /// Returns the smoothed time between replies.
    pub(super) fn interval(&self) -> Duration {
        self.interval.mean()
    }

    /// Whether a loss episode ended within `span` before `now`.
    pub(super) fn explains_loss(&self, now: Instant, span: Duration) -> bool {
        self.episode.is_some_and(|(ended, _)| now.saturating_duration_since(ended) <= span)
    }

    /// Whether an episode ended since `sent` that was longer than `pause`, and long enough to mean something.
    pub(super) fn has_met(&self, sent: Instant, pause: Duration) -> bool {
        self.episode.is_some_and(|(ended, gap)| ended > sent && gap > pause.max(self.tuning.min_pto))
    }

    fn timeout(&self, timeout: Duration, link_retransmits: bool) -> Duration {
        let pto = match self.interval.probe_timeout() {
            _ if !self.is_heard => self.tuning.first_probe(),
            Some(pto) if self.is_flowing => timeout.min(pto.max(self.tuning.min_pto)),
            Some(_) | None => timeout,
        };
        if link_retransmits { pto.max(self.tuning.arq_pto) } else { pto }
    }
}

#[cfg(test)]
mod tests;
