//! The UDP client of the Linux kernel, for comparison: `net/sunrpc/timer.c` and `xprt.c`.

use std::time::Duration;

use super::{Class, Policy, doubled};

/// A timer for each class of calls that remembers back-off, and a window in calls that a timeout halves.
///
/// A timeout is (SRTT + max(4·mean deviation, 100 ms)) · 2^(remembered + resends). A reply that needed k resends makes k the
/// remembered back-off; each later reply that needed fewer takes one off.
#[derive(Debug)]
pub(super) struct Kernel {
    classes: [Timer; 3],
    maximum: Duration,
    /// In calls, times 256.
    window: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timer {
    estimate: Option<(Duration, Duration)>,
    remembered: u32,
}

/// Timeout before any sample: the default `timeo` of UDP mounts is 1.1 s.
const INITIAL: Duration = Duration::from_millis(1100);
/// Smallest allowance over the smoothed round-trip time, `HZ/10`.
const FLOOR: Duration = Duration::from_millis(100);
/// Most remembered doublings.
const MAX_REMEMBERED: u32 = 8;
/// One call of the window.
const CALL: u32 = 256;
/// Largest window in calls: the kernel's default slot table.
const MAX_WINDOW: u32 = 16 * CALL;

impl Kernel {
    pub(super) const fn new(maximum: Duration) -> Self {
        Self { classes: [Timer { estimate: None, remembered: 0 }; 3], maximum, window: CALL }
    }
}

impl Policy for Kernel {
    fn timeout(&self, class: Class, resends: u32) -> Duration {
        let Timer { estimate, remembered } = self.classes[class as usize];
        let base = estimate.map_or(INITIAL, |(smoothed, deviation)| smoothed + (4 * deviation).max(FLOOR));
        doubled(base, remembered.saturating_add(resends), self.maximum)
    }

    fn handle_reply(&mut self, class: Class, rtt: Option<Duration>, resends: u32) {
        let timer = &mut self.classes[class as usize];
        if let Some(rtt) = rtt {
            timer.estimate = Some(match timer.estimate {
                None => (rtt, rtt / 2),
                Some((smoothed, deviation)) => {
                    let error = rtt.abs_diff(smoothed);
                    ((smoothed * 7 + rtt) / 8, (deviation * 3 + error) / 4)
                }
            });
        }
        let needed = resends.min(MAX_REMEMBERED);
        timer.remembered = needed.max(timer.remembered.saturating_sub(1));
        // One call more for each window of replies.
        self.window = (self.window + CALL * CALL / self.window).min(MAX_WINDOW);
    }

    fn handle_timeout(&mut self) {
        self.window = (self.window / 2).max(CALL);
    }

    fn window(&self) -> Option<u32> {
        Some(self.window / CALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_fade_is_remembered_by_later_calls() {
        let mut kernel = Kernel::new(60_000 * MS);
        for _ in 0..200 {
            kernel.handle_reply(Class::Read, Some(5 * MS), 0);
        }
        assert_eq!(kernel.timeout(Class::Read, 0), 105 * MS);
        assert_eq!(kernel.timeout(Class::Read, 3), 840 * MS);
        assert_eq!(kernel.window(), Some(16));
        kernel.handle_timeout();
        assert_eq!(kernel.window(), Some(8));
        kernel.handle_reply(Class::Read, None, 4);
        assert_eq!(kernel.timeout(Class::Read, 0), 1680 * MS, "the next first loss waits 16 times as long");
        assert_eq!(kernel.timeout(Class::Write, 0), INITIAL, "other classes have their own timer");
        kernel.handle_reply(Class::Read, Some(5 * MS), 0);
        assert!(kernel.timeout(Class::Read, 0) < 900 * MS);
    }

    #[test]
    fn the_deviation_is_half_of_the_first_sample_and_then_follows_by_a_quarter() {
        let mut kernel = Kernel::new(60_000 * MS);
        let timeouts = [200, 400, 200].map(|rtt| {
            kernel.handle_reply(Class::Read, Some(rtt * MS), 0);
            kernel.timeout(Class::Read, 0)
        });
        // 200 and 4 · 100; 225 and 4 · 125; 221.875 and 4 · 100.
        assert_eq!(timeouts, [600 * MS, 725 * MS, Duration::from_micros(621_875)]);
    }

    #[test]
    fn the_window_grows_by_a_call_for_each_window_of_replies() {
        let mut kernel = Kernel::new(60_000 * MS);
        let windows = [(); 7].map(|()| {
            kernel.handle_reply(Class::Read, None, 0);
            kernel.window
        });
        assert_eq!(windows, [512, 640, 742, 830, 908, 980, 1046]);
    }
}
