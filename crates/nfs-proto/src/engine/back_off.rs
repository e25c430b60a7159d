//! How long to wait when a server asks to come back later.

use std::time::Duration;

/// First delay; every further one is twice as long. Linux waits 5 s at once (NFS_JUKEBOX_RETRY_TIME), which is long for a server that has
/// run out of open files for a moment.
const FIRST: Duration = Duration::from_millis(100);

/// Longest delay: that of Linux.
const MAX: Duration = Duration::from_secs(5);

/// Returns the delay after `before` earlier ones in a row (JUKEBOX, RFC 1813 §2.6): 100 ms, doubling up to 5 s.
pub(crate) fn back_off(before: u32) -> Duration {
    FIRST.saturating_mul(1_u32.checked_shl(before).unwrap_or(u32::MAX)).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_a_tenth_of_a_second_to_five() {
        let delays = [0, 1, 2, 3, 4, 5, 6, 40].map(|before| back_off(before).as_millis());
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
