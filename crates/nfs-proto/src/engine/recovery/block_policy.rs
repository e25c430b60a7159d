//! How many bytes one READ or WRITE should move (Dube et al. 1997 §5.1).
//!
//! Large blocks waste fewer headers, small ones lose less to a fade: each loss episode destroys one block on average. With rate C and
//! λ loss episodes per second of good time, a block of b bytes takes D(b) = air(b)/C and costs air(b)/b · 1/(1 − λ·D(b)) per byte.

use super::tuning::BlockTuning;

/// Blocks to choose from, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Largest block whose message fits the path's MTU: one frame.
    pub(super) one_frame: u32,
    /// Largest block at all.
    pub(super) largest: u32,
    /// Bytes of a datagram in each of its frames.
    pub(super) frame: u32,
}

/// Blocks tried beside one frame and the largest: the small ones leave little of Ethernet's frames empty.
pub(super) const BLOCKS: [u32; 7] = [2560, 4096, 5632, 8704, 12800, 16 << 10, 32 << 10];

/// Where frames are large, blocks of one Ethernet frame are tried, too: they lose least to a fade.
const SMALL: u32 = 1280;

/// Headers of call and reply, link headers of the smaller one included, in bytes (RFC 1813 §3.3.6).
const HEADERS: f64 = 340.0;

/// Frames of a block for which no queue is too short: one of 50 packets holds eight.
const SHORT_TRAIN: f64 = 6.0;

/// Blocks that the path itself holds where they are longer: they do not meet in its queue then.
const LONG_TRAINS: f64 = 8.0;

/// Bytes per second above which short trains are too many datagrams, so that blocks have one frame where longer trains have no room.
const MOST_SHORT_TRAINS: f64 = 8704.0 * DATAGRAMS_PER_SECOND;

/// Bytes after which that costs more work than a queue that overflows costs time.
const LONG_TRANSFER: u64 = 4 << 20;

/// Calls a second from which processors take longer than the link: READs of one frame cost client and server 80 µs together (2 processors of 2023).
const MOST_CALLS: f64 = 12_500.0;

/// Headers of IP and link in each frame.
const FRAME_HEADERS: f64 = 38.0;

/// Datagrams in fragments a second: half of the IP identifications in the 30 s that receivers keep fragments (RFC 4963 §3).
const DATAGRAMS_PER_SECOND: f64 = 65_536.0 / 2.0 / 30.0;

/// Bytes of incomplete datagrams that a receiver keeps: four fifths of Linux's `ipfrag_high_thresh`. What comes beyond is dropped for up to 30 s.
const INCOMPLETE_BYTES: f64 = 0.8 * 4_194_304.0;

/// A loss episode leaves two blocks incomplete, half of each there on average, for 30 s, in buffers 1.6 times as large (2304 bytes for a frame);
/// in seconds.
const INCOMPLETE_SECONDS: f64 = 1.6 * 30.0;

impl Blocks {
    /// Returns the block that loses least to a fade.
    fn small(self) -> u32 {
        SMALL.min(self.one_frame)
    }
}

/// What the path is like, as far as the block depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Rate of the bottleneck in bytes per second; 0 if it is not known yet.
    pub(super) rate: f64,
    /// Loss episodes per second of good time.
    pub(super) episodes_per_second: f64,
    /// The bandwidth-delay product, and the bytes that may queue beside it.
    pub(super) bdp: f64,
    pub(super) queue: f64,
    /// Bytes that were delivered so far.
    pub(super) delivered: u64,
}

impl Path {
    /// Whether blocks of this size fit a short queue: their frames are few, or they are spread over the path, or one follows the other.
    fn has_room(self, bytes: u32, in_use: u32, range: Blocks) -> bool {
        frames(bytes, range) <= SHORT_TRAIN
            || self.spreads(bytes, in_use)
            || self.holds_beside(in_use) + self.queue <= f64::from(bytes)
            || self.rate >= MOST_SHORT_TRAINS && self.delivered >= LONG_TRANSFER
    }

    /// Whether the path itself holds several blocks of this size. What a block in use needs of it counts for half, as what that holds is not known
    /// so exactly.
    fn spreads(self, bytes: u32, in_use: u32) -> bool {
        let share = if bytes == in_use { 0.5 } else { 1.0 };
        self.holds_beside(in_use) >= LONG_TRAINS * f64::from(bytes) * share
    }

    /// Whether a transfer that is so short that identifications do not come round is faster in such blocks above the safe rate: calls of one frame would
    /// wait for processors, and trains are half as long as where each costs a datagram in any case.
    fn is_worth_fragments(self, bytes: u32, in_use: u32, range: Blocks) -> bool {
        self.delivered < LONG_TRANSFER
            && self.rate >= MOST_CALLS * f64::from(range.small())
            && frames(bytes, range) <= SHORT_TRAIN / 2.0
            && self.spreads(bytes, in_use)
    }

    /// Returns how many bytes the path holds: a round trip has the time of the block in use on the air in it.
    fn holds_beside(self, in_use: u32) -> f64 {
        (self.bdp - f64::from(in_use)).max(0.0)
    }
}

/// Returns the block to use from now on, after blocks of `block` bytes.
pub(super) fn choose(tuning: &BlockTuning, path: Path, block: u32, range: Blocks) -> u32 {
    let Path { rate, episodes_per_second, .. } = path;
    if rate <= 0.0 {
        return block.min(range.largest);
    }
    let one_frame = range.one_frame.min(range.largest);
    let kept = INCOMPLETE_SECONDS * episodes_per_second;
    let is_allowed = |bytes: u32| {
        let has_room = if rate / f64::from(bytes) < DATAGRAMS_PER_SECOND {
            path.has_room(bytes, block, range)
        } else {
            path.is_worth_fragments(bytes, block, range)
        };
        bytes <= one_frame || f64::from(bytes) * kept < INCOMPLETE_BYTES && has_room
    };
    let candidates = BLOCKS.into_iter().chain([one_frame, range.largest, range.small().min(range.largest)]);
    let price = |bytes: u32| cost(bytes, range, rate, episodes_per_second);
    let best = candidates
        .filter(|&bytes| bytes <= range.largest && is_allowed(bytes))
        .min_by(|&a, &b| price(a).total_cmp(&price(b)))
        .unwrap_or(block);
    let doubt = tuning.doubt * episodes_per_second * f64::from(block) / rate;
    let gains = price(best) < price(block) * (1.0 - tuning.hysteresis - doubt);
    if block > range.largest || !is_allowed(block) || gains { best } else { block }
}

/// Bytes on the air for each byte of the file.
fn overhead(block: u32, range: Blocks) -> f64 {
    let bytes = f64::from(block);
    (bytes + HEADERS + FRAME_HEADERS * frames(block, range)) / bytes
}

/// Frames of a message with so many bytes.
fn frames(block: u32, range: Blocks) -> f64 {
    ((f64::from(block) + 136.0) / f64::from(range.frame)).ceil()
}

fn cost(block: u32, range: Blocks, rate: f64, episodes: f64) -> f64 {
    let overhead = overhead(block, range);
    let time = f64::from(block) * overhead / (rate * 1.06);
    overhead / (1.0 - (episodes * time).min(0.99))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Blocks = Blocks { one_frame: 1280, largest: 32 << 10, frame: 1480 };

    /// A path that holds nothing by itself.
    const fn short(rate: f64, episodes_per_second: f64) -> Path {
        Path { rate, episodes_per_second, bdp: 0.0, queue: 0.0, delivered: 0 }
    }

    #[test]
    fn the_more_loss_episodes_the_smaller_the_block() {
        let choose = |episodes_per_second| {
            super::choose(&BlockTuning::default(), short(125_000.0, episodes_per_second), 8704, RANGE)
        };
        let chosen = [0.0, 0.3, 1.0, 3.0, 30.0].map(choose);
        assert!(chosen.is_sorted_by(|a, b| a >= b), "{chosen:?}");
        assert_eq!((chosen[0], chosen[4]), (32 << 10, 1280));
    }

    fn choose(rate: f64, episodes_per_second: f64, block: u32) -> u32 {
        super::choose(&tuning(), short(rate, episodes_per_second), block, RANGE)
    }

    /// The numbers that these examples are computed with.
    fn tuning() -> BlockTuning {
        BlockTuning { hysteresis: 0.003, doubt: 1.0 / 3.0 }
    }

    #[test]
    fn the_block_of_least_cost_is_chosen() {
        for (rate, chosen) in [
            // 1 Mbit/s: a block of 32,768 bytes takes 0.26 s.
            (
                125_000.0,
                &[
                    (0.0, 32_768),
                    (0.1, 16_384),
                    (0.2, 12_800),
                    (0.5, 8704),
                    (1.0, 5632),
                    (2.0, 4096),
                    (5.0, 2560),
                    (10.0, 1280),
                ][..],
            ),
            // 8 Mbit/s
            (1e6, &[(0.5, 32_768), (1.0, 16_384), (2.0, 12_800), (5.0, 8704), (10.0, 5632), (30.0, 1280)]),
        ] {
            for &(episodes, block) in chosen {
                assert_eq!(choose(rate, episodes, 1280), block, "{rate} B/s, {episodes} episodes a second");
            }
        }
    }

    #[test]
    fn a_change_must_gain_0_3_percent_and_a_third_of_what_fades_cost() {
        // At 1 Mbit/s and 0.1 episodes a second 16,384 bytes cost 1.0624, 12,800 bytes 1.0641, and 8704 bytes 1.0728.
        for (block, chosen) in [(16_384, 16_384), (12_800, 12_800), (8704, 16_384), (4096, 16_384)] {
            assert_eq!(choose(125_000.0, 0.1, block), chosen, "{block}");
        }
        // 32,768 bytes cost 1.0643: that is 0.2 % more.
        assert_eq!(choose(125_000.0, 0.1, 32_768), 32_768);
    }

    #[test]
    fn fragments_stay_below_1092_datagrams_a_second() {
        assert_eq!(choose(35.7e6, 0.0, 32_768), 32_768);
        assert_eq!(choose(35.9e6, 0.0, 32_768), 1280, "datagrams of one frame need no identification");
    }

    #[test]
    fn a_short_transfer_saves_calls_where_processors_are_the_limit() {
        // 35 and 125 MB/s over 1 ms, 16 MB/s over 2 ms.
        for (rate, bdp, chosen) in
            [(15.9e6, 32e3, 1280), (16e6, 33e3, 2560), (35e6, 35e3, 4096), (125e6, 125e3, 4096)]
        {
            let path = Path { bdp, queue: bdp, delivered: 1 << 20, ..short(rate, 0.0) };
            let choose = |path| super::choose(&tuning(), path, 1280, RANGE);
            assert_eq!(choose(path), chosen, "{rate}");
            let later = Path { delivered: 4 << 20, ..path };
            assert!([1280, 32 << 10].contains(&choose(later)), "{rate}: many datagrams of a few frames");
        }
    }

    #[test]
    fn incomplete_datagrams_fit_the_receiver_s_memory() {
        // 32,768 B · 48 s · 2.1 / s are 3.30 MB.
        assert_eq!(choose(1e7, 2.1, 32_768), 32_768);
        assert_eq!(choose(1e7, 2.2, 32_768), 16_384, "3.46 MB");
    }

    #[test]
    fn where_frames_are_large_a_block_of_one_small_frame_loses_least() {
        let jumbo = Blocks { one_frame: 8768, largest: 32 << 10, frame: 8980 };
        for (episodes_per_second, block) in [(0.0, 32_768), (5.0, 8768), (100.0, 1280)] {
            let path = short(1e6, episodes_per_second);
            assert_eq!(super::choose(&tuning(), path, 8768, jumbo), block, "{episodes_per_second}");
        }
    }

    #[test]
    fn blocks_that_queue_few_at_a_time_have_few_frames() {
        // 6 MB/s, where 20,000 bytes may queue. The path holds so many bytes beside a block in use.
        for (holds, in_use, chosen) in [
            (0.0, 1280, 32_768),
            (12_000.0, 1280, 32_768),
            (13_000.0, 1280, 8704),
            (13_000.0, 32_768, 8704),
            (8.0 * 12_800.0, 8704, 12_800),
            (8.0 * 32_768.0, 8704, 32_768),
            (4.0 * 32_768.0, 8704, 16_384),
            // What it holds is not known so exactly.
            (4.0 * 32_768.0, 32_768, 32_768),
            (3.9 * 32_768.0, 32_768, 12_800),
        ] {
            let path = Path { bdp: holds + f64::from(in_use), queue: 20_000.0, ..short(6e6, 0.0) };
            assert_eq!(super::choose(&tuning(), path, in_use, RANGE), chosen, "{holds} beside {in_use}");
        }
    }

    #[test]
    fn before_the_rate_is_known_blocks_stay_as_they_are() {
        assert_eq!(choose(0.0, 1.0, 4096), 4096);
        assert_eq!(choose(0.0, 1.0, 65_536), 32_768, "but for what the server takes");
    }
}
