//! The rate of a cellular link as Winstein et al. model it (NSDI 2013, §3.1): packets are delivered as a Poisson process, whose rate is
//! a Brownian motion that may stay at zero.

use rand_chacha::rand_core::Rng as _;
use rand_distr::{Distribution, Normal, Poisson};

use super::RateTrace;
use crate::rng::{Stream, stream, unit};

/// The highest rate, in packets a second.
pub(super) const MOST: f64 = 1000.0;

/// How far the rate moves, in packets a second, in a second; with the square root of the time in others.
const NOISE: f64 = 200.0;

/// How often an outage ends, a second.
const ESCAPE: f64 = 1.0;

/// Time between two steps of the rate.
const TICK_MILLIS: u64 = 20;

/// After this time the rates repeat.
const LENGTH_MILLIS: u64 = 600_000;

/// Draws the delivery opportunities of one direction.
pub(super) fn draw(seed: u64, direction: u32) -> RateTrace {
    let mut random = stream(seed, Stream::Rate, direction);
    let tick = TICK_MILLIS as f64 / 1e3;
    let step = Normal::new(0.0, NOISE * tick.sqrt()).expect("a finite deviation");
    let stays = (-ESCAPE * tick).exp();
    let mut rate = (unit(&mut random) * MOST).round();
    let (mut times, mut tick_times) = (Vec::new(), Vec::new());
    for start in (0..LENGTH_MILLIS).step_by(TICK_MILLIS as usize) {
        if rate > 0.0 {
            let count = Poisson::new(rate * tick).expect("a positive mean").sample(&mut random) as u64;
            tick_times.extend((0..count).map(|_| start + 1 + random.next_u64() % TICK_MILLIS));
            tick_times.sort_unstable();
            times.append(&mut tick_times);
        }
        // Whole packets a second, so that the last bits of a logarithm do not matter.
        let moved = (rate + step.sample(&mut random)).round();
        rate = if rate > 0.0 {
            if moved > MOST { 2.0 * MOST - moved } else { moved.max(0.0) }
        } else if unit(&mut random) < stays {
            0.0
        } else {
            moved.abs()
        };
    }
    RateTrace::from_times(&times, LENGTH_MILLIS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn per_second(trace: &RateTrace) -> Vec<f64> {
        (0..600)
            .map(|second| trace.offered_bytes(second * SECOND, (second + 1) * SECOND) as f64 / 1504.0)
            .collect()
    }

    #[test]
    fn a_seed_has_one_course_and_directions_have_their_own() {
        let course = |seed, direction| per_second(&draw(seed, direction));
        assert_eq!(course(1, 0), course(1, 0));
        assert_ne!(course(1, 0), course(1, 1));
        assert_ne!(course(1, 0), course(2, 0));
        assert_eq!(draw(1, 0).length(), Duration::from_secs(600));
    }

    #[test]
    fn rates_wander_between_outages_and_the_most_as_in_the_paper() {
        let seconds: Vec<f64> = (0..40).flat_map(|seed| per_second(&draw(seed, 0))).collect();
        let count = seconds.len() as f64;
        assert!(seconds.iter().all(|&packets| packets < MOST + 6.0 * MOST.sqrt()));
        // What the rate does in a second that begins in the middle of the range: sqrt(200^2 / 3 + Poisson) about the straight line,
        // and 200 between neighbours' means, less what averaging takes.
        let steps: Vec<f64> = seconds
            .windows(2)
            .filter(|pair| (400.0..600.0).contains(&pair[0]))
            .map(|pair| pair[1] - pair[0])
            .collect();
        let deviation = (steps.iter().map(|step| step * step).sum::<f64>() / steps.len() as f64).sqrt();
        // Means over neighbouring seconds differ by sqrt(2/3) of the noise, and by the counts' own spread.
        let expected = (NOISE * NOISE * 2.0 / 3.0 + 2.0 * 500.0).sqrt();
        assert!((deviation / expected - 1.0).abs() < 0.05, "{deviation}, not {expected}, of {}", steps.len());
        let outages = seconds.iter().filter(|&&packets| packets == 0.0).count() as f64 / count;
        assert!((0.05..0.4).contains(&outages), "{outages} of all seconds have no packet");
    }
}
