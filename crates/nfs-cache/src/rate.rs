//! How fast the server's data arrives.

use std::time::{Duration, Instant};

/// A sample counts for at least this long, and at most twice as long.
const WINDOW: Duration = Duration::from_secs(10);

/// What had arrived when a call was sent, and when that was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    delivered: u64,
}

/// The delivery rate of READ replies (draft-cheng-iccrg-delivery-rate-estimation), as the largest of the recent samples: a sample is too low
/// where little was asked for, never too high.
#[derive(Debug, Default)]
pub(crate) struct DeliveryRate {
    delivered: u64,
    /// Largest sample since a time, in bytes per second.
    newest: Option<(Instant, f64)>,
    /// Largest sample of the window before.
    before: Option<f64>,
}

impl DeliveryRate {
    /// Returns what a call needs to remember that is sent now.
    pub(crate) const fn sent(&self, now: Instant) -> Sent {
        Sent { at: now, delivered: self.delivered }
    }

    /// Records a reply with file data; returns the rate while it was under way, in bytes per second.
    pub(crate) fn observe(&mut self, now: Instant, bytes: usize, sent: Sent) -> Option<f64> {
        self.delivered += bytes as u64;
        let elapsed = now.saturating_duration_since(sent.at);
        if bytes == 0 || elapsed.is_zero() {
            return None;
        }
        let sample = (self.delivered - sent.delivered) as f64 / elapsed.as_secs_f64();
        match &mut self.newest {
            Some((since, _)) if now.saturating_duration_since(*since) >= WINDOW => {
                let is_recent = now.saturating_duration_since(*since) < 2 * WINDOW;
                self.before = self.newest.map(|(_, rate)| rate).filter(|_| is_recent);
                self.newest = Some((now, sample));
            }
            Some((_, rate)) => *rate = rate.max(sample),
            None => self.newest = Some((now, sample)),
        }
        Some(sample)
    }

    /// Returns the rate in bytes per second, once there was a sample.
    pub(crate) fn bytes_per_second(&self) -> Option<f64> {
        let (_, newest) = self.newest?;
        Some(newest.max(self.before.unwrap_or(0.0)))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
mod tests {
    use super::*;

    #[test]
    fn replies_in_parallel_show_the_rate_and_single_ones_less() {
        let (mut rate, start) = (DeliveryRate::default(), Instant::now());
        let sent = rate.sent(start);
        for number in 1..=10_u64 {
            // 10 kB each 10 ms, after a round trip of 100 ms.
            rate.observe(start + Duration::from_millis(100 + 10 * number), 10_000, sent);
        }
        let shown = rate.bytes_per_second().expect("there were samples");
        assert!((499_000.0..501_000.0).contains(&shown), "{shown}");
    }

    #[test]
    fn what_a_link_was_once_is_forgotten() {
        let (mut rate, start) = (DeliveryRate::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let sent = rate.sent(at(0));
        rate.observe(at(1), 1_000_000, sent);
        for second in 1..30 {
            let sent = rate.sent(at(second));
            rate.observe(at(second + 1), 1000, sent);
        }
        assert_eq!(rate.bytes_per_second(), Some(1000.0));
    }
}
