//! Statistics and purity of the channel.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Lengths, Phase, Shape};

const MILLI: f64 = 1e-3;

fn drawn(good: Shape, good_ms: u64, bad: Shape, bad_ms: u64) -> ChannelConfig {
    ChannelConfig {
        periods: Periods::Drawn {
            good: Lengths::new(good, Duration::from_millis(good_ms)),
            bad: Lengths::new(bad, Duration::from_millis(bad_ms)),
        },
        ..ChannelConfig::default()
    }
}

/// Mean and variance of `count` periods of each state, in seconds.
fn moments(config: &ChannelConfig, count: u64) -> [(f64, f64); 2] {
    let mut channel = Channel::new(config, 1997, 0).expect("a valid channel");
    let mut sums = [(0.0, 0.0); 2];
    // The first pair is cut by the phase.
    let mut at = channel.run_end(0);
    at = channel.run_end(at);
    let mut seen = [0; 2];
    while seen[0] < count || seen[1] < count {
        let index = usize::from(channel.span(at).state == ChannelState::Bad);
        let end = channel.run_end(at);
        if seen[index] < count {
            let length = (end - at) as f64 * 1e-9;
            sums[index].0 += length;
            sums[index].1 += length * length;
            seen[index] += 1;
        }
        at = end;
    }
    sums.map(|(sum, squares)| {
        let mean = sum / count as f64;
        (mean, squares / count as f64 - mean * mean)
    })
}

#[test]
fn a_million_periods_have_the_mean_and_variance_of_their_distribution() {
    let count = 1_000_000;
    // (shape, variance over squared mean, kurtosis bound for the error of the variance)
    for (shape, relative_variance, kurtosis) in [
        (Shape::Uniform, 1.0 / 3.0, 1.8),
        (Shape::Exponential, 1.0, 9.0),
        (Shape::Deterministic, 0.0, 1.0),
        (Shape::LogNormal(0.5), (0.25_f64).exp() - 1.0, 9.0),
    ] {
        let [good, bad] = moments(&drawn(shape, 1000, shape, 80), count);
        for ((mean, variance), expected) in [(good, 1000.0 * MILLI), (bad, 80.0 * MILLI)] {
            let sigma2 = relative_variance * expected * expected;
            // Five standard errors, plus half a microsecond of rounding.
            let mean_bound = 5.0 * (sigma2 / count as f64).sqrt() + 5e-7;
            assert!((mean - expected).abs() < mean_bound, "{shape:?}: mean {mean} not {expected}");
            let variance_bound = 5.0 * sigma2 * ((kurtosis - 1.0) / count as f64).sqrt() + 1e-9;
            assert!(
                (variance - sigma2).abs() < variance_bound,
                "{shape:?}: variance {variance} not {sigma2}"
            );
        }
    }
}

#[test]
fn pareto_periods_have_the_mean_and_the_tail_of_their_exponent() {
    let config = drawn(Shape::Pareto(2.5), 1000, Shape::Pareto(2.5), 80);
    let mut channel = Channel::new(&config, 3, 0).expect("a valid channel");
    let (count, scale) = (1_000_000_u64, 0.6);
    let (mut sum, mut squares, mut beyond) = (0.0, 0.0, 0_u64);
    let mut at = channel.run_end(0);
    at = channel.run_end(at);
    for _ in 0..count {
        if channel.span(at).state == ChannelState::Bad {
            at = channel.run_end(at);
        }
        let end = channel.run_end(at);
        let length = (end - at) as f64 * 1e-9;
        assert!(length >= scale - 1e-6, "no period is shorter than the scale");
        sum += length;
        squares += length * length;
        beyond += u64::from(length > 10.0 * scale);
        at = end;
    }
    let n = count as f64;
    let mean = sum / n;
    // Five standard errors from the sample, since the variance of the variance is infinite.
    let bound = 5.0 * ((squares / n - mean * mean) / n).sqrt();
    assert!((mean - 1.0).abs() < bound, "mean {mean}");
    let tail = 10_f64.powf(-2.5);
    let bound = 5.0 * (tail * (1.0 - tail) / n).sqrt();
    assert!((beyond as f64 / n - tail).abs() < bound, "tail {beyond}");
}

#[test]
fn the_random_phase_is_the_steady_state() {
    // Over many seeds the state at time 0, and the good time of the first 100 ms, match the long run.
    for shape in
        [Shape::Uniform, Shape::Exponential, Shape::Deterministic, Shape::Pareto(3.0), Shape::LogNormal(0.8)]
    {
        let config = drawn(shape, 100, shape, 50);
        let seeds = 100_000;
        let (mut good_at_0, mut good_at_30) = (0_u32, 0_u32);
        for seed in 0..seeds {
            let mut channel = Channel::new(&config, seed, 0).expect("a valid channel");
            good_at_0 += u32::from(channel.state(Duration::ZERO) == ChannelState::Good);
            good_at_30 += u32::from(channel.state(Duration::from_millis(30)) == ChannelState::Good);
        }
        let share: f64 = 2.0 / 3.0;
        let bound = 5.0 * (share * (1.0 - share) / seeds as f64).sqrt();
        for (when, good) in [("0", good_at_0), ("30 ms", good_at_30)] {
            let measured = f64::from(good) / seeds as f64;
            assert!((measured - share).abs() < bound, "{shape:?} at {when}: {measured}");
        }
    }
}

#[test]
fn realised_good_share_matches_the_means() {
    let config = drawn(Shape::Uniform, 1000, Shape::Uniform, 80);
    let mut channel = Channel::new(&config, 11, 0).expect("a valid channel");
    let cycles = 500_000.0;
    let length = Duration::from_secs_f64(cycles * 1.08);
    let good = channel.good_time(Duration::ZERO, length).as_secs_f64() / length.as_secs_f64();
    // Variance of the good share per cycle of a renewal reward process, five standard errors.
    let share: f64 = 1000.0 / 1080.0;
    let cycle_variance = (1.0 - share).powi(2) * (1.0 / 3.0) + share * share * (0.08 * 0.08 / 3.0);
    let bound = 5.0 * (cycle_variance / cycles).sqrt() / 1.08;
    assert!((good - share).abs() < bound, "{good} not {share}");
}

#[test]
fn a_good_start_is_good_and_granularity_rounds_every_edge() {
    let mut config = drawn(Shape::Uniform, 1000, Shape::Uniform, 80);
    config.phase = Phase::Good;
    config.granularity = Some(Duration::from_millis(20));
    for seed in 0..50 {
        let mut channel = Channel::new(&config, seed, 0).expect("a valid channel");
        let periods = channel.periods(Duration::ZERO, Duration::from_secs(100));
        for pair in periods.windows(2) {
            assert_ne!(pair[0].state, pair[1].state, "periods alternate");
            assert_eq!(pair[0].end, pair[1].start, "periods leave no gap");
            assert_eq!(pair[0].end.as_micros() % 20_000, 0, "edges lie on ticks");
        }
    }
}

#[test]
fn offered_inverts_good_time() {
    let config = drawn(Shape::Exponential, 100, Shape::Exponential, 40);
    let mut channel = Channel::new(&config, 5, 0).expect("a valid channel");
    for start_ms in [0, 17, 5000] {
        let from = Duration::from_millis(start_ms);
        for amount_ms in [1, 50, 5_000, 100_000] {
            let amount = Duration::from_millis(amount_ms);
            let until = channel.offered(from, amount).expect("good time never ends");
            assert_eq!(channel.good_time(from, until), amount);
            assert!(channel.good_time(from, until - Duration::from_nanos(1)) < amount);
        }
    }
    let forever_bad = ChannelTrace::parse("0,good\n5,bad\n").expect("a valid trace");
    let config = ChannelConfig { periods: Periods::Trace(forever_bad), ..ChannelConfig::default() };
    let mut channel = Channel::new(&config, 5, 0).expect("a valid channel");
    assert_eq!(channel.offered(Duration::ZERO, Duration::from_millis(6)), None);
    assert_eq!(channel.bad_periods(Duration::ZERO, Duration::from_millis(5)), 0);
    assert_eq!(channel.bad_periods(Duration::ZERO, Duration::from_millis(6)), 1);
    assert_eq!(channel.next_edge(Duration::from_millis(6)), None);
}

#[test]
fn memory_stays_bounded_over_a_hundred_million_periods_of_time() {
    // 1000 years of channel time would be 3e10 periods; a day of 1 ms periods is 8.6e7. Two hours suffice to wrap the
    // checkpoints several times.
    let config = ChannelConfig {
        periods: Periods::Drawn {
            good: Lengths::new(Shape::Uniform, Duration::from_millis(1)),
            bad: Lengths::new(Shape::Uniform, Duration::from_millis(1)),
        },
        ..ChannelConfig::default()
    };
    let mut channel = Channel::new(&config, 1, 0).expect("a valid channel");
    let late = Duration::from_secs(600);
    let state = channel.state(late);
    let Source::Renewal(renewal) = &channel.source else { panic!("drawn periods") };
    assert!(renewal.checkpoint_count() <= 512, "{}", renewal.checkpoint_count());
    let edge = channel.next_edge(late);
    channel.state(Duration::ZERO);
    assert_eq!(channel.state(late), state);
    assert_eq!(channel.next_edge(late), edge);
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Uniform),
        Just(Shape::Exponential),
        Just(Shape::Deterministic),
        (1.1..4.0).prop_map(Shape::Pareto),
        (0.1..2.0).prop_map(Shape::LogNormal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_state_does_not_depend_on_what_was_asked_before(
        seed: u64,
        good in any_shape(),
        bad in any_shape(),
        granular: bool,
        times in prop::collection::vec(0_u64..300_000_000_000, 1..40),
    ) {
        let mut config = drawn(good, 50, bad, 20);
        config.granularity = granular.then_some(Duration::from_millis(20));
        let mut asked = Channel::new(&config, seed, 3).expect("a valid channel");
        for &time in &times {
            let time = Duration::from_nanos(time);
            let mut fresh = Channel::new(&config, seed, 3).expect("a valid channel");
            prop_assert_eq!(asked.state(time), fresh.state(time));
            prop_assert_eq!(asked.next_edge(time), fresh.next_edge(time));
        }
    }
}
