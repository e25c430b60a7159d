//! Congestion window: CUBIC (RFC 9438) as Linux has it (`net/ipv4/tcp_cubic.c`), with its HyStart.
//!
//! HyStart (Ha and Rhee 2011) ends slow start on a train of acknowledgements longer than half of the least RTT or on an RTT an
//! eighth above it. HyStart++ (RFC 9406) has the second rule too and a phase of slower growth after it, which Linux lacks.

use std::time::{Duration, Instant};

/// Initial window, in segments (RFC 6928 §2).
pub(super) const INITIAL_WINDOW: u32 = 10;

/// C of RFC 9438 §5, in segments/s³.
const C: f64 = 0.4;

/// β of RFC 9438 §4.6, as Linux rounds it.
const BETA: f64 = 717.0 / 1024.0;

/// HyStart counts from this window on, in segments (`hystart_low_window`).
const HYSTART_LOW_WINDOW: u32 = 16;

/// Acknowledgements closer than this belong to one train (`hystart_ack_delta_us`).
const HYSTART_ACK_DELTA: Duration = Duration::from_millis(2);

/// RTT samples of a round before they are judged (`HYSTART_MIN_SAMPLES`).
const HYSTART_MIN_SAMPLES: u32 = 8;

/// Bounds of the rise of the RTT that ends slow start (`HYSTART_DELAY_THRESH`).
const HYSTART_DELAY: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

/// The cubic function is evaluated again after this time if the window has not changed (`HZ / 32`).
const EVALUATION_INTERVAL: Duration = Duration::from_micros(31_250);

/// Congestion window and slow-start threshold, in segments.
#[derive(Debug)]
pub(super) struct Cubic {
    pub(super) window: u32,
    pub(super) threshold: u32,
    /// Acknowledged segments that have not raised the window yet.
    credit: u32,
    /// W_max of RFC 9438 §4.1; 0 is none.
    maximum: u32,
    epoch: Option<Epoch>,
    /// The least RTT since the last timeout.
    delay: Option<Duration>,
    hystart: HyStart,
}

/// A stage of congestion avoidance (RFC 9438 §4.2).
#[derive(Clone, Copy, Debug)]
struct Epoch {
    started: Instant,
    /// K in s, and the window at the plateau.
    k: f64,
    origin: u32,
    /// W_est of RFC 9438 §4.3, and the acknowledged segments that have not raised it.
    estimate: u32,
    acknowledged: u32,
    evaluated: Instant,
    last_window: u32,
    /// Acknowledged segments that raise the window by one.
    count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct HyStart {
    found: bool,
    /// The round ends when this is acknowledged.
    end: u64,
    started: Option<Instant>,
    last_ack: Option<Instant>,
    least: Option<Duration>,
    samples: u32,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: u32::MAX,
            credit: 0,
            maximum: 0,
            epoch: None,
            delay: None,
            hystart: HyStart::default(),
        }
    }

    pub(super) const fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Records the RTT of a segment that is acknowledged; `next` is what will be sent next.
    pub(super) fn handle_rtt(&mut self, now: Instant, rtt: Duration, acknowledged: u64, next: u64) {
        // Samples right after recovery have seen the queue that caused it.
        let is_new = |epoch: Epoch| now.saturating_duration_since(epoch.started) < Duration::from_secs(1);
        if self.epoch.is_some_and(is_new) {
            return;
        }
        let delay = self.delay.map_or(rtt, |delay| delay.min(rtt)).max(Duration::from_micros(1));
        self.delay = Some(delay);
        if self.hystart.found || !self.in_slow_start() {
            return;
        }
        if acknowledged > self.hystart.end || self.hystart.started.is_none() {
            self.start_round(now, next);
        }
        if self.window >= HYSTART_LOW_WINDOW && self.hystart.is_over(now, rtt, delay) {
            self.hystart.found = true;
            self.threshold = self.window;
        }
    }

    /// Grows by acknowledged segments (RFC 5681 §3.1, RFC 9438 §4.2).
    pub(super) fn handle_acked(&mut self, now: Instant, segments: u32) {
        let mut segments = segments;
        if self.in_slow_start() {
            let grown = self.window.saturating_add(segments).min(self.threshold);
            segments -= grown - self.window;
            self.window = grown;
            if segments == 0 {
                return;
            }
        }
        let count = self.evaluate(now, segments);
        if self.credit >= count {
            self.credit = 0;
            self.window += 1;
        }
        self.credit += segments;
        if self.credit >= count {
            let more = self.credit / count;
            self.credit -= more * count;
            self.window += more;
        }
    }

    /// A loss: returns the window to go down to (RFC 9438 §4.6, fast convergence §4.7).
    pub(super) fn reduce(&mut self) -> u32 {
        self.epoch = None;
        self.maximum = if self.window < self.maximum {
            (f64::from(self.window) * (1.0 + BETA) / 2.0) as u32
        } else {
            self.window
        };
        ((f64::from(self.window) * BETA) as u32).max(2)
    }

    /// A timeout: Linux forgets W_max and the least RTT, departing from RFC 9438 §4.8.
    pub(super) fn forget(&mut self, now: Instant, next: u64) {
        (self.maximum, self.epoch, self.delay) = (0, None, None);
        self.hystart = HyStart::default();
        self.start_round(now, next);
        self.credit = 0;
    }

    /// Halves the window for every timeout that nothing was sent for (RFC 2861, `tcp_cwnd_restart`).
    pub(super) fn restart(&mut self, idle: Duration, timeout: Duration) {
        self.threshold = match self.threshold {
            u32::MAX => u32::MAX,
            threshold => threshold.max(self.window / 2 + self.window / 4),
        };
        let mut left = idle.saturating_sub(timeout);
        let floor = self.window.min(INITIAL_WINDOW);
        while !left.is_zero() && self.window > floor {
            self.window /= 2;
            left = left.saturating_sub(timeout);
        }
        self.window = self.window.max(floor);
        self.credit = 0;
    }

    /// The time between two transfers does not count for the cubic function (RFC 9438 §5.8).
    pub(super) fn skip(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.started += idle;
        }
    }

    /// Returns how many acknowledged segments raise the window by one.
    fn evaluate(&mut self, now: Instant, acknowledged: u32) -> u32 {
        let (window, maximum) = (self.window, self.maximum);
        let mut epoch = match self.epoch {
            Some(mut epoch) => {
                epoch.acknowledged += acknowledged;
                let recent = now.saturating_duration_since(epoch.evaluated) <= EVALUATION_INTERVAL;
                if epoch.last_window == window && recent {
                    self.epoch = Some(epoch);
                    return epoch.count;
                }
                epoch
            }
            None => {
                let below = f64::from(maximum.saturating_sub(window));
                Epoch {
                    started: now,
                    k: cube_root(below / C),
                    origin: maximum.max(window),
                    estimate: window,
                    acknowledged,
                    evaluated: now,
                    last_window: window,
                    count: 1,
                }
            }
        };
        (epoch.evaluated, epoch.last_window) = (now, window);
        let time = now.saturating_duration_since(epoch.started) + self.delay.unwrap_or_default();
        let offset = time.as_secs_f64() - epoch.k;
        let target = f64::from(epoch.origin) + C * offset * offset * offset;
        let current = f64::from(window);
        let mut count = if target > current { current / (target - current) } else { 100.0 * current };
        // Faster at the beginning of what is not known yet.
        if maximum == 0 {
            count = count.min(20.0);
        }
        // At least as fast as Reno (RFC 9438 §4.3): W_est grows by α for every window, α = 3(1 - β)/(1 + β).
        let each = current * (1.0 + BETA) / (3.0 * (1.0 - BETA));
        while f64::from(epoch.acknowledged) > each {
            epoch.acknowledged -= (each as u32).max(1);
            epoch.estimate += 1;
        }
        if epoch.estimate > window {
            count = count.min(current / f64::from(epoch.estimate - window));
        }
        // At most half of the slow start's rate.
        epoch.count = (count as u32).max(2);
        self.epoch = Some(epoch);
        epoch.count
    }

    fn start_round(&mut self, now: Instant, next: u64) {
        let found = self.hystart.found;
        let (started, last_ack) = (Some(now), Some(now));
        self.hystart = HyStart { found, end: next, started, last_ack, least: None, samples: 0 };
    }
}

impl HyStart {
    /// Whether slow start is to end (`hystart_update`).
    fn is_over(&mut self, now: Instant, rtt: Duration, delay: Duration) -> bool {
        let since =
            |then: Option<Instant>| then.map_or(Duration::MAX, |then| now.saturating_duration_since(then));
        if since(self.last_ack) <= HYSTART_ACK_DELTA {
            self.last_ack = Some(now);
            // The whole RTT only where packets are paced, which they are not.
            if since(self.started) > delay / 2 {
                return true;
            }
        }
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        if self.samples < HYSTART_MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        least > delay + (delay / 8).clamp(HYSTART_DELAY[0], HYSTART_DELAY[1])
    }
}

/// The cube root by Newton's method: the same bits on every platform, which `f64::cbrt` does not promise.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = if value > 1.0 { value } else { 1.0 };
    for _ in 0..200 {
        let next = (2.0 * root + value / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use linkemu::virtual_epoch;

    use super::*;

    /// Acknowledges whole windows, one a round trip, and returns the windows.
    fn rounds(cubic: &mut Cubic, from: Instant, rtt: Duration, count: u32) -> Vec<u32> {
        (1..=count)
            .map(|round| {
                cubic.handle_acked(from + rtt * round, cubic.window);
                cubic.window
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles() {
        let mut cubic = Cubic::new();
        let windows = rounds(&mut cubic, virtual_epoch(), Duration::from_millis(100), 4);
        assert_eq!(windows, [20, 40, 80, 160]);
    }

    #[test]
    fn slow_start_ends_when_the_rtt_rises() {
        let mut cubic = Cubic::new();
        let (epoch, ms) = (virtual_epoch(), Duration::from_millis);
        cubic.window = 64;
        for sample in 0..20 {
            cubic.handle_rtt(epoch + ms(sample * 3), ms(100), 1, 1);
        }
        assert!(cubic.in_slow_start(), "the RTT is as before");
        for sample in 20..40 {
            cubic.handle_rtt(epoch + ms(sample * 3), ms(113), 2 + sample, 2 + sample + 30);
        }
        assert_eq!(cubic.threshold, 64, "an eighth more");
    }

    #[test]
    fn slow_start_ends_when_acknowledgements_come_for_half_an_rtt() {
        let mut cubic = Cubic::new();
        let (epoch, us) = (virtual_epoch(), Duration::from_micros);
        cubic.window = 100;
        let ended = (0..200).find(|ack| {
            cubic.handle_rtt(epoch + us(ack * 500), us(50_000), 1, 1000);
            !cubic.in_slow_start()
        });
        assert_eq!(ended, Some(51), "25 ms after the first");
    }

    /// RFC 9438 §4.2: concave up to W_max, which is reached after K = ∛(W_max (1 - β) / C), then convex.
    #[test]
    fn the_window_returns_to_its_maximum_after_k() {
        let mut cubic = Cubic::new();
        (cubic.window, cubic.threshold) = (1000, 1000);
        cubic.threshold = cubic.reduce();
        cubic.window = cubic.threshold;
        assert_eq!(cubic.window, 700);
        let k = cube_root(300.0 / C);
        assert!((k - 9.085).abs() < 0.01, "{k} s");
        let rtt = Duration::from_millis(100);
        let windows = rounds(&mut cubic, virtual_epoch(), rtt, 180);
        let at = |second: f64| windows[(second * 10.0) as usize];
        assert!((985..=1000).contains(&at(k)), "{}", at(k));
        assert!(at(1.0) - 700 > 5 * (at(k) - at(k - 1.0)), "concave: {} {}", at(1.0), at(k - 1.0));
        assert!(at(17.0) > 1150, "convex: {}", at(17.0));
    }

    #[test]
    fn a_second_loss_below_the_maximum_gives_way_to_others() {
        let mut cubic = Cubic::new();
        cubic.window = 100;
        assert_eq!((cubic.reduce(), cubic.maximum), (70, 100));
        cubic.window = 80;
        assert_eq!((cubic.reduce(), cubic.maximum), (56, 68));
    }
}
