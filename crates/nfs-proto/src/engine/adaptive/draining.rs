//! A link that holds what meets a fade holds the probes, too: when the fade is over they fill its queue, and more blocks would overflow it.

use std::time::{Duration, Instant};

use super::silence::PROBE_BYTES;

/// So many probes take a good part of a queue.
const MANY: u32 = 8;

/// Blocks that are in the queue with them.
const BLOCKS: f64 = 2.0;

/// Waits until the probes into the last fade have been carried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Draining(Option<Queue>);

#[derive(Clone, Copy, Debug)]
struct Queue {
    /// When the last probe in it was sent.
    last: Instant,
    /// When it is empty at the latest: that probe may have been lost.
    until: Instant,
}

impl Draining {
    /// A silence ended with what the link had held. So many probes were sent into it, the last one at `last`; `rate` is the path's, in bytes per
    /// second, and blocks have `block` bytes.
    pub(super) fn begin(&mut self, now: Instant, (probes, last): (u32, Instant), block: u32, rate: f64) {
        if probes >= MANY {
            let queued = f64::from(probes) * PROBE_BYTES + BLOCKS * f64::from(block);
            let carried = Duration::from_secs_f64(queued / rate.max(PROBE_BYTES));
            self.0 = Some(Queue { last, until: now + carried });
        }
    }

    /// A probe is answered that was sent at `sent`.
    pub(super) fn handle_probe(&mut self, sent: Instant) {
        self.0 = self.0.filter(|queue| sent < queue.last);
    }

    /// Returns when the next READ or WRITE may leave, if not now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.0.map(|queue| queue.until).filter(|&until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_last_probe_or_as_long_as_all_of_them_take() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
        let now = Instant::now();
        let ms = |millis| now + Duration::from_millis(millis);
        let mut draining = Draining::default();
        draining.begin(ms(1000), (7, ms(900)), 4096, 125_000.0);
        assert_eq!(draining.next(ms(1000)), None, "a few do no harm");
        draining.begin(ms(1000), (20, ms(900)), 4096, 125_000.0);
        // 20 times 450 bytes and two blocks.
        let until = draining.next(ms(1000)).unwrap();
        assert_eq!((until - ms(1000)).as_millis(), 137);
        draining.handle_probe(ms(800));
        assert_eq!(draining.next(ms(1050)), Some(until), "others are still on their way");
        assert_eq!(draining.next(ms(1138)), None);
        draining.handle_probe(ms(900));
        assert_eq!(draining.next(ms(1050)), None);
    }
}
