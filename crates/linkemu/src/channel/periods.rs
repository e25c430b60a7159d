//! Drawn periods with random access: period pair `k` comes from its own place in the ChaCha stream.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, LogNormal, Pareto};

use super::{ChannelState, Span};
use crate::{
    ChannelConfig, Phase, Shape,
    config::Lengths,
    rng::{self, Stream},
    units::{Nanos, nanos},
};

/// Words of the stream set aside for each pair: one refill of the generator, far more than a pair draws.
const WORDS_PER_PAIR: u128 = 64;
/// Pairs remembered for going back. When they are all used, every second one goes and the spacing doubles.
const CHECKPOINTS: usize = 512;
/// Longest single period, in microseconds (31 years): heavy tails have no bound of their own.
const LONGEST_MICROS: f64 = 1e15;

/// Alternating good and bad periods.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    rng: ChaCha8Rng,
    good: Lengths,
    bad: Lengths,
    granularity: Nanos,
    phase: Phase,
    pair: Pair,
    checkpoints: Vec<Checkpoint>,
    spacing: u64,
}

/// A good period and the bad one after it; either may be empty.
#[derive(Clone, Copy, Debug)]
struct Pair {
    index: u64,
    start: Nanos,
    middle: Nanos,
    end: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    index: u64,
    start: Nanos,
}

impl Renewal {
    pub(super) fn new(config: &ChannelConfig, good: Lengths, bad: Lengths, seed: u64, link: u32) -> Self {
        let mut renewal = Self {
            rng: rng::stream(seed, Stream::Periods, link),
            good,
            bad,
            granularity: config.granularity.map_or(0, nanos),
            phase: config.phase,
            pair: Pair { index: 0, start: 0, middle: 0, end: 0 },
            checkpoints: vec![Checkpoint { index: 0, start: 0 }],
            spacing: 64,
        };
        renewal.pair = renewal.draw(0, 0);
        renewal
    }

    pub(super) fn span(&mut self, time: Nanos) -> Span {
        let known = self.checkpoints.partition_point(|checkpoint| checkpoint.start <= time);
        // The first checkpoint lies at 0, so there always is one at or before `time`.
        let best = self.checkpoints[known - 1];
        if time < self.pair.start || best.index > self.pair.index {
            self.pair = self.draw(best.index, best.start);
        }
        while time >= self.pair.end && self.pair.end < Nanos::MAX {
            self.pair = self.draw(self.pair.index + 1, self.pair.end);
            self.remember();
        }
        let Pair { start, middle, end, .. } = self.pair;
        if time < middle {
            Span { state: ChannelState::Good, start, end: middle }
        } else {
            Span { state: ChannelState::Bad, start: middle, end }
        }
    }

    fn remember(&mut self) {
        let last = self.checkpoints[self.checkpoints.len() - 1];
        if self.pair.index < last.index + self.spacing {
            return;
        }
        if self.checkpoints.len() == CHECKPOINTS {
            let mut keep = false;
            self.checkpoints.retain(|_| {
                keep = !keep;
                keep
            });
            self.spacing *= 2;
            return;
        }
        self.checkpoints.push(Checkpoint { index: self.pair.index, start: self.pair.start });
    }

    fn draw(&mut self, index: u64, start: Nanos) -> Pair {
        self.rng.set_word_pos(u128::from(index) * WORDS_PER_PAIR);
        let (good, bad) = if index == 0 && self.phase == Phase::Random {
            self.first()
        } else {
            (sample(&mut self.rng, self.good), sample(&mut self.rng, self.bad))
        };
        let middle = start.saturating_add(self.quantise(good));
        Pair { index, start, middle, end: middle.saturating_add(self.quantise(bad)) }
    }

    /// The first pair in the steady state: which state time 0 falls in, and what is left of it.
    fn first(&mut self) -> (f64, f64) {
        let (good, bad) = (self.good.mean.as_secs_f64(), self.bad.mean.as_secs_f64());
        if rng::unit(&mut self.rng) * (good + bad) < good {
            (residual(&mut self.rng, self.good), sample(&mut self.rng, self.bad))
        } else {
            (0.0, residual(&mut self.rng, self.bad))
        }
    }

    /// Whole microseconds, then the nearest multiple of the granularity.
    fn quantise(&self, micros: f64) -> Nanos {
        let length = micros.clamp(0.0, LONGEST_MICROS).round() as Nanos * 1000;
        match self.granularity {
            0 => length,
            step => (length + step / 2) / step * step,
        }
    }
}

/// A period length in microseconds.
fn sample(rng: &mut ChaCha8Rng, lengths: Lengths) -> f64 {
    let mean = lengths.mean.as_secs_f64() * 1e6;
    match lengths.shape {
        Shape::Uniform => 2.0 * mean * rng::unit(rng),
        Shape::Exponential => mean * exponential(rng),
        Shape::Deterministic => mean,
        Shape::Pareto(exponent) => pareto(rng, mean * (exponent - 1.0) / exponent, exponent),
        Shape::LogNormal(sigma) => log_normal(rng, mean.ln() - sigma * sigma / 2.0, sigma),
    }
}

/// What is left of the period that contains a moment far from the beginning: a length drawn in proportion to itself,
/// cut at a uniform place.
fn residual(rng: &mut ChaCha8Rng, lengths: Lengths) -> f64 {
    let mean = lengths.mean.as_secs_f64() * 1e6;
    let whole = match lengths.shape {
        Shape::Uniform => 2.0 * mean * rng::unit(rng).sqrt(),
        Shape::Exponential => return mean * exponential(rng),
        Shape::Deterministic => mean,
        Shape::Pareto(exponent) => pareto(rng, mean * (exponent - 1.0) / exponent, exponent - 1.0),
        Shape::LogNormal(sigma) => log_normal(rng, mean.ln() + sigma * sigma / 2.0, sigma),
    };
    whole * rng::unit(rng)
}

fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    let draw: f64 = Exp1.sample(rng);
    draw
}

fn pareto(rng: &mut ChaCha8Rng, scale: f64, exponent: f64) -> f64 {
    // A mean of zero never gets here; the bounds of the exponent were checked.
    Pareto::new(scale.max(f64::MIN_POSITIVE), exponent).map_or(scale, |pareto| pareto.sample(rng))
}

fn log_normal(rng: &mut ChaCha8Rng, mu: f64, sigma: f64) -> f64 {
    LogNormal::new(mu, sigma).map_or(0.0, |log_normal| log_normal.sample(rng))
}

#[cfg(test)]
impl Renewal {
    pub(super) fn checkpoint_count(&self) -> usize {
        self.checkpoints.len()
    }
}
