//! How many bytes one READ or WRITE should move (Dube et al. 1997 §5.1).
//!
//! Large blocks waste fewer headers, small ones lose less to a fade: each loss episode destroys one block on average. With rate C and
//! λ loss episodes per second of good time, a block of b bytes takes D(b) = air(b)/C and costs air(b)/b · 1/(1 − λ·D(b)) per byte.

use std::time::Instant;

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
const BLOCKS: [u32; 7] = [2560, 4096, 5632, 8704, 12800, 16 << 10, 32 << 10];

/// Where frames are large, blocks of one Ethernet frame are tried, too: they lose least to a fade.
const SMALL: u32 = 1280;

/// Headers of call and reply, link headers of the smaller one included, in bytes (RFC 1813 §3.3.6).
const HEADERS: f64 = 340.0;

/// Headers of IP and link in each frame.
const FRAME_HEADERS: f64 = 38.0;

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
}

/// Chooses the block.
#[derive(Debug, Default)]
pub(super) struct BlockPolicy {
    tuning: BlockTuning,
    /// Losses to fades and to full queues, the latest counting most.
    fades: f64,
    drops: f64,
    /// No larger blocks: their fragments overflow a queue.
    cap: Option<(u32, Instant)>,
}

impl BlockPolicy {
    pub(super) fn new(tuning: BlockTuning) -> Self {
        Self { tuning, ..Self::default() }
    }

    /// A loss episode destroyed blocks.
    pub(super) fn on_loss_episode(&mut self) {
        self.fades = self.fades * self.tuning.forgetting + 1.0;
        self.drops *= self.tuning.forgetting;
    }

    /// The last loss episode was none.
    pub(super) fn on_spurious(&mut self) {
        self.fades = ((self.fades - 1.0) / self.tuning.forgetting).max(0.0);
    }

    /// A queue is full. If that is what usually loses blocks here, fewer fragments at once are better; one frame is none.
    pub(super) fn on_congestion_event(&mut self, now: Instant, block: u32, range: Blocks) {
        self.drops = self.drops * self.tuning.forgetting + 1.0;
        self.fades *= self.tuning.forgetting;
        if self.drops >= self.tuning.congestion_score && self.drops > 2.0 * self.fades {
            self.cap = Some(((block / 2).max(range.one_frame), now));
            self.drops = 0.0;
        }
    }

    /// Returns the block to use from now on.
    pub(super) fn choose(&mut self, now: Instant, path: Path, block: u32, range: Blocks) -> u32 {
        let Path { rate, episodes_per_second } = path;
        if let Some((cap, since)) = self.cap
            && now.saturating_duration_since(since) > self.tuning.cap_lifetime
        {
            self.cap = (2 * cap < range.largest).then_some((2 * cap, now));
        }
        let largest = self.cap.map_or(range.largest, |(cap, _)| cap.min(range.largest));
        if rate <= 0.0 {
            return block.min(largest);
        }
        let one_frame = range.one_frame.min(range.largest);
        let small = range.small().min(largest);
        let kept = self.tuning.incomplete_seconds * episodes_per_second;
        let is_allowed = |bytes: u32| {
            bytes <= one_frame
                || f64::from(rate_of(rate, bytes)) < self.tuning.datagrams_per_second
                    && f64::from(bytes) * kept < self.tuning.incomplete_bytes
        };
        let candidates = BLOCKS.into_iter().chain([one_frame, largest, small]).filter(|&it| it <= largest);
        let price = |bytes: u32| cost(bytes, range, rate, episodes_per_second);
        let best = candidates
            .filter(|&bytes| is_allowed(bytes))
            .map(|bytes| (price(bytes), bytes))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((least, bytes)) = best else {
            return block;
        };
        let doubt = self.tuning.doubt * episodes_per_second * f64::from(block) / rate;
        let gains = least < price(block) * (1.0 - self.tuning.hysteresis - doubt);
        if block > largest || !is_allowed(block) || gains { bytes } else { block }
    }
}

fn rate_of(rate: f64, block: u32) -> f32 {
    (rate / f64::from(block)) as f32
}

/// Bytes on the air for each byte of the file.
fn overhead(block: u32, range: Blocks) -> f64 {
    let bytes = f64::from(block);
    (bytes + HEADERS + FRAME_HEADERS * ((bytes + 136.0) / f64::from(range.frame)).ceil()) / bytes
}

fn cost(block: u32, range: Blocks, rate: f64, episodes: f64) -> f64 {
    let overhead = overhead(block, range);
    let time = f64::from(block) * overhead / (rate * 1.06);
    overhead / (1.0 - (episodes * time).min(0.99))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a beginning of time")]
mod tests {
    use std::time::Duration;

    use super::*;

    const RANGE: Blocks = Blocks { one_frame: 1280, largest: 32 << 10, frame: 1480 };
    const CLEAN: Path = Path { rate: 1e6, episodes_per_second: 0.0 };

    #[test]
    fn after_congestion_blocks_grow_again_a_step_at_a_time() {
        let epoch = Instant::now();
        let mut policy = BlockPolicy::default();
        let mut block = 8192;
        for _ in 0..2 {
            policy.on_congestion_event(epoch, block, RANGE);
        }
        let mut choose = |seconds| {
            block = policy.choose(epoch + Duration::from_secs(seconds), CLEAN, block, RANGE);
            block
        };
        assert_eq!(
            [1, 30, 31, 61, 62, 92, 93].map(&mut choose),
            [4096, 4096, 8192, 8192, 16384, 16384, 32768]
        );
    }

    #[test]
    fn congestion_is_no_reason_for_less_than_one_frame() {
        let epoch = Instant::now();
        let range = Blocks { one_frame: 8768, largest: 32 << 10, frame: 8980 };
        let mut policy = BlockPolicy::default();
        for _ in 0..2 {
            policy.on_congestion_event(epoch, 8768, range);
        }
        assert_eq!(policy.choose(epoch, CLEAN, 8768, range), 8768);
    }

    #[test]
    fn the_more_loss_episodes_the_smaller_the_block() {
        let epoch = Instant::now();
        let choose = |episodes_per_second| {
            let path = Path { rate: 125_000.0, episodes_per_second };
            BlockPolicy::default().choose(epoch, path, 8704, RANGE)
        };
        let chosen = [0.0, 0.3, 1.0, 3.0, 30.0].map(choose);
        assert!(chosen.is_sorted_by(|a, b| a >= b), "{chosen:?}");
        assert_eq!((chosen[0], chosen[4]), (32 << 10, 1280));
    }

    /// The numbers that these examples are computed with.
    fn policy() -> BlockPolicy {
        BlockPolicy::new(BlockTuning {
            cap_lifetime: Duration::from_secs(30),
            datagrams_per_second: 65_536.0 / 2.0 / 30.0,
            incomplete_bytes: 0.8 * 4_194_304.0,
            incomplete_seconds: 48.0,
            congestion_score: 1.9,
            forgetting: 0.9,
            hysteresis: 0.003,
            doubt: 1.0 / 3.0,
        })
    }

    fn choose(rate: f64, episodes_per_second: f64, block: u32) -> u32 {
        policy().choose(Instant::now(), Path { rate, episodes_per_second }, block, RANGE)
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
    fn incomplete_datagrams_fit_the_receiver_s_memory() {
        // 32,768 B · 48 s · 2.1 / s are 3.30 MB.
        assert_eq!(choose(1e7, 2.1, 32_768), 32_768);
        assert_eq!(choose(1e7, 2.2, 32_768), 16_384, "3.46 MB");
    }

    #[test]
    fn where_frames_are_large_a_block_of_one_small_frame_loses_least() {
        let jumbo = Blocks { one_frame: 8768, largest: 32 << 10, frame: 8980 };
        for (episodes_per_second, block) in [(0.0, 32_768), (5.0, 8768), (100.0, 1280)] {
            let path = Path { rate: 1e6, episodes_per_second };
            assert_eq!(policy().choose(Instant::now(), path, 8768, jumbo), block, "{episodes_per_second}");
        }
    }

    #[test]
    fn before_the_rate_is_known_blocks_stay_as_they_are() {
        assert_eq!(choose(0.0, 1.0, 4096), 4096);
        assert_eq!(choose(0.0, 1.0, 65_536), 32_768, "but for what the server takes");
    }

    #[test]
    fn congestion_events_limit_blocks_if_they_outweigh_loss_episodes() {
        use Loss::{Episode, Queue, Spurious};
        #[derive(Clone, Copy, Debug)]
        enum Loss {
            Episode,
            Spurious,
            Queue,
        }
        for (losses, block) in [
            (&[Queue][..], 32_768),
            (&[Queue, Queue], 4096),
            (&[Queue, Episode, Queue], 32_768),
            (&[Queue, Episode, Queue, Queue], 4096),
            (&[Episode, Queue, Queue], 4096),
            (&[Episode, Episode, Queue, Queue], 32_768),
            (&[Episode, Episode, Queue, Queue, Queue], 32_768),
            (&[Episode, Episode, Queue, Queue, Queue, Queue], 4096),
            (&[Episode, Episode, Spurious, Spurious, Queue, Queue], 4096),
            (&[Spurious, Episode, Episode, Queue, Queue], 32_768),
            (&[Episode, Episode, Episode, Spurious, Queue, Queue, Queue], 32_768),
            (&[Episode, Episode, Episode, Episode, Queue, Queue, Queue, Queue], 32_768),
            (&[Episode, Episode, Episode, Episode, Queue, Queue, Queue, Queue, Queue], 4096),
        ] {
            let (mut policy, now) = (policy(), Instant::now());
            for loss in losses {
                match loss {
                    Episode => policy.on_loss_episode(),
                    Spurious => policy.on_spurious(),
                    Queue => policy.on_congestion_event(now, 8704, RANGE),
                }
            }
            assert_eq!(policy.choose(now, CLEAN, 8704, RANGE), block, "{losses:?}");
        }
    }

    #[test]
    fn a_limit_by_congestion_takes_effect_before_the_rate_is_known_again() {
        let (mut policy, now) = (policy(), Instant::now());
        for _ in 0..2 {
            policy.on_congestion_event(now, 8704, RANGE);
        }
        let unknown = Path { rate: 0.0, episodes_per_second: 0.0 };
        assert_eq!(policy.choose(now, unknown, 8704, RANGE), 4352);
        policy.on_congestion_event(now, 4352, RANGE);
        assert_eq!(policy.choose(now, CLEAN, 4352, RANGE), 4352, "counted from the beginning");
    }
}
