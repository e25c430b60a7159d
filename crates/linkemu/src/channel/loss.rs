//! What the channel does to one frame.

use rand_chacha::ChaCha8Rng;

use super::{Channel, ChannelState};
use crate::{
    ChannelConfig, Loss,
    rng::{self, Stream},
    units::Nanos,
};

/// Words of the ChaCha stream for each nanosecond of channel time: one block, eight draws.
const WORDS_PER_NANO: u128 = 16;

/// The fate of a frame on the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The frame did not arrive.
    pub(crate) lost: bool,
    /// The frame met a bad period.
    pub(crate) met_bad: bool,
}

/// Draws for states that lose only some frames: a function of (seed, link, time on the air).
#[derive(Clone, Debug)]
pub(crate) struct LossDraws {
    rng: ChaCha8Rng,
    good: Loss,
    bad: Loss,
    /// Frames seen at the same instant, which only a link without a rate can have.
    at: Nanos,
    repeats: u128,
}

impl LossDraws {
    pub(crate) fn new(config: &ChannelConfig, seed: u64, link: u32) -> Self {
        Self {
            rng: rng::stream(seed, Stream::Loss, link),
            good: config.good_loss,
            bad: config.bad_loss,
            at: Nanos::MAX,
            repeats: 0,
        }
    }

    /// Whether a frame of `bits` survives the air from `start` to `end`.
    pub(crate) fn judge(&mut self, channel: &mut Channel, start: Nanos, end: Nanos, bits: u64) -> Verdict {
        let (good, bad) = share(channel, start, end);
        let length = (good + bad) as f64;
        let mut survival = 1.0;
        for (time, loss) in [(good, self.good), (bad, self.bad)] {
            if time == 0 {
                continue;
            }
            survival *= match loss {
                Loss::Frame(p) => 1.0 - p.value(),
                Loss::Bits(p) => ((-p.value()).ln_1p() * bits as f64 * (time as f64 / length)).exp(),
            };
        }
        Verdict {
            lost: survival < 1.0 && (survival <= 0.0 || self.draw(start) >= survival),
            met_bad: bad > 0,
        }
    }

    /// When the last bad period that a frame met is over, or the end of the frame if that is later.
    pub(crate) fn good_again(&self, channel: &mut Channel, start: Nanos, end: Nanos) -> Nanos {
        let last = end.max(start + 1) - 1;
        match channel.span(last).state {
            ChannelState::Good => end,
            ChannelState::Bad => channel.run_end(last),
        }
    }

    fn draw(&mut self, time: Nanos) -> f64 {
        if self.at == time {
            self.repeats += 2;
        } else {
            self.at = time;
            self.repeats = 0;
        }
        self.rng.set_word_pos(u128::from(time) * WORDS_PER_NANO + self.repeats);
        rng::unit(&mut self.rng)
    }
}

/// Time in the good and in the bad state from `start` to `end`; an instant counts as one nanosecond.
fn share(channel: &mut Channel, start: Nanos, end: Nanos) -> (Nanos, Nanos) {
    let end = end.max(start + 1);
    let (mut at, mut good, mut bad) = (start, 0, 0);
    while at < end {
        let span = channel.span(at);
        let until = span.end.min(end);
        match span.state {
            ChannelState::Good => good += until - at,
            ChannelState::Bad => bad += until - at,
        }
        at = until;
    }
    (good, bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelTrace, Periods, Probability};

    fn setup(good: Loss, bad: Loss) -> (Channel, LossDraws) {
        let config = ChannelConfig {
            periods: Periods::Trace(ChannelTrace::parse("0,good\n10,bad\n20,end\n").expect("a valid trace")),
            good_loss: good,
            bad_loss: bad,
            ..ChannelConfig::default()
        };
        let channel = Channel::new(&config, 1, 0).expect("a valid channel");
        (channel, LossDraws::new(&config, 1, 0))
    }

    #[test]
    fn a_frame_is_lost_if_it_touches_the_bad_period_at_all() {
        let (mut channel, mut draws) = setup(Loss::Frame(Probability::ZERO), Loss::Frame(Probability::ONE));
        for (start, end, lost) in [
            (0, 10_000_000, false),
            (0, 10_000_001, true),
            (19_999_999, 21_000_000, true),
            (20_000_000, 21_000_000, false),
            (10_000_000, 10_000_000, true),
            (9_999_999, 9_999_999, false),
        ] {
            let verdict = draws.judge(&mut channel, start, end, 8);
            assert_eq!((verdict.lost, verdict.met_bad), (lost, lost), "{start}..{end}");
        }
    }

    #[test]
    fn bit_errors_count_the_bits_sent_in_each_state() {
        // 1000 bits in the bad state at 1e-3: a frame survives with (1 - 1e-3)^1000 = 0.3677.
        let ber = Probability::new(1e-3).expect("in range");
        let (mut channel, mut draws) = setup(Loss::Frame(Probability::ZERO), Loss::Bits(ber));
        let draws_taken = 100_000_u64;
        let survived = (0..draws_taken)
            .filter(|i| {
                let start = i * 20_000_000 + 9_000_000;
                !draws.judge(&mut channel, start, start + 2_000_000, 2000).lost
            })
            .count() as f64;
        let expected = 0.999_f64.powi(1000);
        // Five standard errors of a binomial share.
        let bound = 5.0 * (expected * (1.0 - expected) / draws_taken as f64).sqrt();
        assert!((survived / draws_taken as f64 - expected).abs() < bound, "{survived}");
    }

    #[test]
    fn the_draw_depends_on_the_time_alone() {
        let half = Loss::Frame(Probability::new(0.5).expect("in range"));
        let (mut channel, mut draws) = setup(half, half);
        let forward: Vec<bool> =
            (0..1000).map(|i| draws.judge(&mut channel, i * 7919, i * 7919 + 5, 8).lost).collect();
        let (mut channel, mut draws) = setup(half, half);
        let backward: Vec<bool> =
            (0..1000).rev().map(|i| draws.judge(&mut channel, i * 7919, i * 7919 + 5, 8).lost).collect();
        assert!(forward.iter().eq(backward.iter().rev()));
    }
}
