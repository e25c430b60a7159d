//! Short fades of a slow link, which cost an upload over UDP a block each, and one over TCP a frame or two.
//!
//! A fade destroys the whole block that it meets, most of which had left before it, or leaves after it. TCP sends frames, and
//! its queue in front of a slow link lasts longer than the fade: it loses no time. Its price is that queue, which others wait in.

use crate::engine::PathEstimate;

/// Seconds that a frame takes at least: on faster links a block is no longer than a fade.
const FRAME: f64 = 0.004;
const FRAME_BYTES: f64 = 1500.0;

/// Blocks of one frame lose no more than TCP does.
const FRAGMENTED: u32 = 1500;

/// Longest round trip, in seconds, without queues but with a block on its way: there TCP was compared.
const ROUND_TRIP: f64 = 0.2;

/// Fades per second of good time. Seldom ones cost little, frequent ones TCP's window.
const SELDOM: f64 = 0.4;
const FREQUENT: f64 = 2.5;

/// So many short fades must have been seen, and two more for each long one.
const ENOUGH: u32 = 3;
const MORE: u32 = 2;

/// Seconds that what is left must take.
const WORTH: f64 = 2.0;

/// Whether what is left of an upload over UDP would take less time over TCP.
pub(super) fn lose_less_over_tcp(path: &PathEstimate, left: u64) -> bool {
    let fades = path.fades;
    !path.retransmits
        && path.block > FRAGMENTED
        && FRAME_BYTES / path.rate >= FRAME
        && path.min_rtt.as_secs_f64() <= ROUND_TRIP
        && (SELDOM..=FREQUENT).contains(&path.fades_per_second)
        && fades.short >= ENOUGH + MORE * fades.long
        && left as f64 / path.rate >= WORTH
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Fades;

    /// The link of 1997 after three fades of 40 ms.
    const SLOW: PathEstimate = PathEstimate {
        rate: 115_000.0,
        min_rtt: Duration::from_millis(61),
        fades_per_second: 1.1,
        mean_fade: Duration::from_millis(40),
        fades: Fades { short: 3, long: 0 },
        retransmits: false,
        block: 5632,
        in_flight: 2,
    };

    #[test]
    fn only_blocks_in_fragments_that_meet_short_fades_on_a_slow_link_lose_more_than_tcp() {
        assert!(lose_less_over_tcp(&SLOW, 1 << 20));
        let others = [
            ("held", PathEstimate { retransmits: true, ..SLOW }),
            ("one frame", PathEstimate { block: 1280, ..SLOW }),
            ("fast", PathEstimate { rate: 6e6, ..SLOW }),
            ("far away", PathEstimate { min_rtt: Duration::from_millis(600), ..SLOW }),
            ("seldom", PathEstimate { fades_per_second: 0.2, ..SLOW }),
            ("often", PathEstimate { fades_per_second: 4.0, ..SLOW }),
            ("not known", PathEstimate { fades: Fades { short: 2, long: 0 }, ..SLOW }),
            ("long", PathEstimate { fades: Fades { short: 4, long: 1 }, ..SLOW }),
        ];
        for (what, path) in others {
            assert!(!lose_less_over_tcp(&path, 1 << 20), "{what}");
        }
        assert!(lose_less_over_tcp(&PathEstimate { fades: Fades { short: 5, long: 1 }, ..SLOW }, 1 << 20));
        assert!(!lose_less_over_tcp(&SLOW, 200_000), "soon over");
    }
}
