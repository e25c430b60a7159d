//! How fast the medium is: one rate, a trace of delivery opportunities, or such a trace drawn by chance.

mod cellular;

use std::{str::FromStr, sync::Arc};

use crate::{
    BitRate, ConfigError,
    units::{Nanos, nanos},
};

/// Bytes of one delivery opportunity in a mahimahi trace: `PACKET_SIZE` of `mm-link` (Netravali et al. 2015).
const OPPORTUNITY_BYTES: u64 = 1504;
const MILLISECOND: Nanos = 1_000_000;
/// Longest trace read: a week.
const LONGEST_MILLIS: u64 = 7 * 24 * 3600 * 1000;

/// The rate of the medium.
#[derive(Clone, Debug)]
pub enum Rate {
    /// Always the same.
    Constant(BitRate),
    /// As recorded, repeated for ever from the channel's time 0.
    Trace(RateTrace),
    /// A cellular link's, drawn from the seed: Poisson deliveries of 1504 bytes, whose rate is a Brownian
    /// motion between 0 and 1000 a second (200 per second per square root of a second) that leaves 0 once a second (Winstein et
    /// al., NSDI 2013, §3.1). Repeats after ten minutes.
    Cellular,
}

/// A recorded rate: mahimahi's packet-delivery format.
///
/// Each line is a time in milliseconds at which a packet of 1504 bytes could be delivered; the last line is the length
/// of the trace. The bytes of an opportunity are spread evenly over the millisecond that ends at its time, so frames of
/// any size can be sent.
#[derive(Clone, Debug)]
pub struct RateTrace(Arc<Cumulative>);

#[derive(Debug)]
struct Cumulative {
    /// Milliseconds with an opportunity, and the bits offered until their end.
    steps: Vec<(u64, u64)>,
    /// In milliseconds.
    length: u64,
}

impl RateTrace {
    /// Reads a trace in mahimahi's format.
    ///
    /// # Errors
    /// [`ConfigError::Trace`] with the line: not a number, a time before the line above, or a trace without length.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut times: Vec<u64> = Vec::new();
        let mut lines = 0;
        for (index, line) in text.lines().enumerate() {
            lines = index + 1;
            let line_text = line.trim();
            let time: u64 = line_text.parse().map_err(|_| {
                ConfigError::trace(lines, format!("{line_text:?} is not a time in whole milliseconds"))
            })?;
            if time > LONGEST_MILLIS {
                return Err(ConfigError::trace(lines, format!("{time} ms is more than a week")));
            }
            if times.last().is_some_and(|&before| before > time) {
                return Err(ConfigError::trace(lines, format!("{time} ms lies before the line above")));
            }
            times.push(time);
        }
        let length = times.last().copied().unwrap_or(0);
        if length == 0 {
            return Err(ConfigError::trace(lines.max(1), "the trace ends at 0 ms, so it has no length"));
        }
        // Opportunities at 0 belong to the last millisecond of the round before.
        let at_zero = times.partition_point(|&time| time == 0);
        times.rotate_left(at_zero);
        let last = times.len() - at_zero;
        times[last..].fill(length);
        Ok(Self::from_times(&times, length))
    }

    /// Opportunities at these milliseconds, ascending from 1, repeated after `length` of them.
    fn from_times(times: &[u64], length: u64) -> Self {
        let mut steps: Vec<(u64, u64)> = Vec::new();
        let mut bits = 0;
        for &time in times {
            bits += OPPORTUNITY_BYTES * 8;
            match steps.last_mut() {
                Some(step) if step.0 == time => step.1 = bits,
                _ => steps.push((time, bits)),
            }
        }
        Self(Arc::new(Cumulative { steps, length }))
    }

    fn round(&self) -> (u64, Nanos) {
        (self.bits(self.0.length), self.0.length * MILLISECOND)
    }

    /// Bits offered in the first `millis` of a round.
    fn bits(&self, millis: u64) -> u64 {
        let steps = &self.0.steps;
        let after = steps.partition_point(|&(end, _)| end <= millis);
        after.checked_sub(1).map_or(0, |last| steps[last].1)
    }

    /// Bits offered from 0 to `time`.
    fn offered(&self, time: Nanos) -> u128 {
        let (round_bits, round) = self.round();
        let (rounds, rest) = (time / round, time % round);
        let (millis, within) = (rest / MILLISECOND, rest % MILLISECOND);
        let slope = self.bits(millis + 1) - self.bits(millis);
        let partial = slope * within / MILLISECOND;
        u128::from(rounds) * u128::from(round_bits) + u128::from(self.bits(millis) + partial)
    }

    /// The earliest time at which `bits` have been offered since 0.
    fn when(&self, bits: u128) -> Nanos {
        let (round_bits, round) = self.round();
        let mut rounds = bits / u128::from(round_bits);
        let mut rest = (bits % u128::from(round_bits)) as u64;
        if rest == 0 && rounds > 0 {
            rounds -= 1;
            rest = round_bits;
        }
        let steps = &self.0.steps;
        let within = match steps.partition_point(|&(_, offered)| offered < rest) {
            _ if rest == 0 => 0,
            index => {
                let (end, offered) = steps[index];
                let before = if index == 0 { 0 } else { steps[index - 1].1 };
                (end - 1) * MILLISECOND + ((rest - before) * MILLISECOND).div_ceil(offered - before)
            }
        };
        u64::try_from(rounds * u128::from(round)).unwrap_or(u64::MAX - round) + within
    }
}

impl Rate {
    /// The rate over a long time; half of the highest where it is still to be drawn.
    pub fn mean(&self) -> BitRate {
        match self {
            Self::Constant(rate) => *rate,
            Self::Cellular => BitRate::bits((cellular::MOST / 2.0) as u64 * OPPORTUNITY_BYTES * 8),
            Self::Trace(trace) => {
                let (bits, length) = trace.round();
                let per_second = u128::from(bits) * 1_000_000_000 / u128::from(length);
                BitRate::try_from(per_second.max(1) as u64).unwrap_or(BitRate::UNLIMITED)
            }
        }
    }

    /// When `bits` sent from `start` (channel time) are through.
    pub(crate) fn finish(&self, start: Nanos, bits: u64) -> Nanos {
        match self {
            Self::Constant(rate) => start.saturating_add(rate.nanos(bits)),
            Self::Trace(trace) => trace.when(trace.offered(start) + u128::from(bits)).max(start),
            Self::Cellular => unreachable!("a link draws its rates when it is made"),
        }
    }

    /// What a seed makes of it in a direction: 0 from the base station, 1 towards it.
    pub(crate) fn drawn(&self, seed: u64, direction: u32) -> Self {
        match self {
            Self::Constant(_) | Self::Trace(_) => self.clone(),
            Self::Cellular => Self::Trace(cellular::draw(seed, direction)),
        }
    }
}

impl FromStr for Rate {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text == "cellular" { Ok(Self::Cellular) } else { text.parse::<BitRate>().map(Self::Constant) }
    }
}

impl From<BitRate> for Rate {
    fn from(rate: BitRate) -> Self {
        Self::Constant(rate)
    }
}

impl RateTrace {
    /// How long the trace is before it repeats.
    pub fn length(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.round().1)
    }

    /// Bytes the medium offers from `from` to `to`, in channel time.
    pub fn offered_bytes(&self, from: std::time::Duration, to: std::time::Duration) -> u64 {
        self.offered_bits(nanos(from), nanos(to)) / 8
    }

    pub(crate) fn offered_bits(&self, from: Nanos, to: Nanos) -> u64 {
        u64::try_from(self.offered(to).saturating_sub(self.offered(from))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_opportunity_a_millisecond_is_twelve_megabits() {
        let trace = RateTrace::parse("1\n2\n").expect("a valid trace");
        let rate = Rate::Trace(trace.clone());
        assert_eq!(rate.mean().bits_per_second(), 12_032_000);
        assert_eq!(rate.finish(0, 1504 * 8), MILLISECOND);
        assert_eq!(rate.finish(500_000, 1504 * 8), 1_500_000);
        assert_eq!(trace.offered_bytes(Duration::ZERO, Duration::from_secs(1)), 1_504_000);
    }

    #[test]
    fn a_long_trace_takes_no_more_memory_than_its_text() {
        let trace = RateTrace::parse("0\n1\n600000000\n").expect("a valid trace");
        assert_eq!(trace.0.steps.len(), 2);
        let week = Duration::from_secs(600_000);
        assert_eq!(trace.offered_bytes(Duration::ZERO, week), 3 * 1504);
    }

    #[test]
    fn a_silent_stretch_is_waited_for_and_the_trace_repeats() {
        // One packet at 1 ms, nothing until 10 ms.
        let rate = Rate::Trace(RateTrace::parse("1\n10\n").expect("a valid trace"));
        assert_eq!(rate.finish(0, 1504 * 8), MILLISECOND);
        assert_eq!(rate.finish(MILLISECOND, 1504 * 8), 10 * MILLISECOND);
        assert_eq!(rate.finish(10 * MILLISECOND, 1504 * 8), 11 * MILLISECOND);
        assert_eq!(rate.finish(5 * MILLISECOND, 1504 * 4), 9_500_000);
    }

    #[test]
    fn bad_traces_name_the_line() {
        let message = |text: &str| RateTrace::parse(text).expect_err("a bad trace").to_string();
        assert_eq!(message("1\n2\nx\n"), "trace line 3: \"x\" is not a time in whole milliseconds");
        assert_eq!(message("5\n4\n"), "trace line 2: 4 ms lies before the line above");
        assert_eq!(message("0\n0\n"), "trace line 2: the trace ends at 0 ms, so it has no length");
        assert!(message("1\n99999999999\n").starts_with("trace line 2"));
    }
}
