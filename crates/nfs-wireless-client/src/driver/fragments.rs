//! Whether fragments of different datagrams may have been put together (RFC 4963).

use std::time::Instant;

/// How long receivers keep fragments (Linux `ipfrag_time`), in seconds, and one more for the one that has begun.
const SECONDS: usize = 31;

/// Fragmented datagrams within that time after which identifications may have come round. There are 65,536 of them (RFC 791
/// §3.1); the last quarter is for what others get from the same server, and for what was lost on the way. The adaptive policy
/// keeps to half of them.
const MOST_DATAGRAMS: u32 = 3 << 14;

/// Counts datagrams that may be fragmented, in both directions together.
#[derive(Debug)]
pub(super) struct Fragments {
    started: Instant,
    /// Whole seconds since then of the newest count.
    newest: u64,
    counts: [u32; SECONDS],
    wrapped: bool,
}

impl Fragments {
    pub(super) const fn new(now: Instant) -> Self {
        Self { started: now, newest: 0, counts: [0; SECONDS], wrapped: false }
    }

    /// A datagram was sent or received that may be fragmented.
    pub(super) fn count(&mut self, now: Instant) {
        if self.wrapped {
            return;
        }
        let second = now.saturating_duration_since(self.started).as_secs().max(self.newest);
        for passed in (self.newest + 1..=second).take(SECONDS) {
            self.counts[passed as usize % SECONDS] = 0;
        }
        self.newest = second;
        self.counts[second as usize % SECONDS] += 1;
        self.wrapped = self.counts.iter().sum::<u32>() >= MOST_DATAGRAMS;
    }

    /// Whether identifications may have been used again while fragments of their first use were waiting.
    pub(super) const fn may_have_wrapped(&self) -> bool {
        self.wrapped
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    fn epoch() -> Instant {
        Instant::now()
    }

    /// Counts at an even rate for so long.
    fn wraps(datagrams_per_second: u32, seconds: u32) -> bool {
        let start = epoch();
        let mut fragments = Fragments::new(start);
        for number in 0..datagrams_per_second * seconds {
            let at = start + Duration::from_secs(1) / datagrams_per_second * number;
            fragments.count(at);
        }
        fragments.may_have_wrapped()
    }

    #[test]
    fn what_would_wrap_within_the_reassembly_time_is_too_much() {
        // 140 Mbit/s in blocks of 8 KiB.
        assert!(wraps(2185, 30));
        assert!(!wraps(1500, 300), "slower, for however long");
        assert!(!wraps(20_000, 2), "faster, but not for long enough");
        assert!(wraps(20_000, 3));
    }

    #[test]
    fn what_is_long_past_does_not_count() {
        let start = epoch();
        let mut fragments = Fragments::new(start);
        for burst in 0..10 {
            for _ in 0..MOST_DATAGRAMS - 1 {
                fragments.count(start + Duration::from_secs(32 * burst));
            }
        }
        assert!(!fragments.may_have_wrapped());
        fragments.count(start + Duration::from_secs(32 * 9 + 30));
        assert!(fragments.may_have_wrapped());
    }
}
