//! Quantities with their unit in the type.

use std::{fmt, str::FromStr, time::Duration};

use crate::ConfigError;

/// A time in nanoseconds since the epoch of the machine that holds it.
pub(crate) type Nanos = u64;

/// A transmission rate in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(u64);

impl BitRate {
    /// No limit: every frame takes no time on the air.
    pub const UNLIMITED: Self = Self(u64::MAX);

    /// A rate of `bits` bit/s.
    ///
    /// # Panics
    /// If `bits` is zero.
    pub const fn bits(bits: u64) -> Self {
        assert!(bits > 0, "a rate is positive");
        Self(bits)
    }

    /// A rate of `kilobits` × 1000 bit/s.
    ///
    /// # Panics
    /// If `kilobits` is zero.
    pub const fn kilobits(kilobits: u64) -> Self {
        Self::bits(kilobits * 1000)
    }

    /// A rate of `megabits` × 1,000,000 bit/s.
    ///
    /// # Panics
    /// If `megabits` is zero.
    pub const fn megabits(megabits: u64) -> Self {
        Self::kilobits(megabits * 1000)
    }

    /// The rate in bit/s; `u64::MAX` means unlimited.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Whether frames take no time.
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// The time that `bits` take, rounded up to a whole nanosecond.
    pub(crate) fn nanos(self, bits: u64) -> Nanos {
        if self.is_unlimited() {
            return 0;
        }
        match bits.checked_mul(1_000_000_000) {
            Some(scaled) => scaled.div_ceil(self.0),
            None => saturating(u128::from(bits) * 1_000_000_000 / u128::from(self.0)),
        }
    }

    /// The bits that pass in `nanos`, rounded down.
    pub(crate) fn bits_in(self, nanos: Nanos) -> u64 {
        if self.is_unlimited() {
            return 0;
        }
        saturating(u128::from(nanos) * u128::from(self.0) / 1_000_000_000)
    }
}

impl TryFrom<u64> for BitRate {
    type Error = ConfigError;

    /// A rate in bit/s, which must be positive.
    fn try_from(bits_per_second: u64) -> Result<Self, ConfigError> {
        if bits_per_second == 0 {
            return Err(ConfigError::out_of_range("rate", "0 bit/s", "more than 0 bit/s"));
        }
        Ok(Self(bits_per_second))
    }
}

impl FromStr for BitRate {
    type Err = ConfigError;

    /// Reads bit/s with an optional `k`, `M` or `G` (powers of 1000), or `unlimited`: `9.6k`, `1M`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad =
            || ConfigError::malformed("rate", text, "a number of bit/s such as 9600, 9.6k, 1M or unlimited");
        if text == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        let (number, scale) = match text.chars().last() {
            Some('k' | 'K') => (&text[..text.len() - 1], 1e3),
            Some('m' | 'M') => (&text[..text.len() - 1], 1e6),
            Some('g' | 'G') => (&text[..text.len() - 1], 1e9),
            _ => (text, 1.0),
        };
        let value: f64 = number.trim().parse().map_err(|_| bad())?;
        if !(value.is_finite() && value * scale < 1e15) {
            return Err(bad());
        }
        Self::try_from((value * scale).round().max(0.0) as u64)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("unlimited"),
            bps if bps >= 1_000_000 => write!(f, "{} Mbit/s", bps as f64 / 1e6),
            bps if bps >= 1000 => write!(f, "{} kbit/s", bps as f64 / 1e3),
            bps => write!(f, "{bps} bit/s"),
        }
    }
}

/// A probability, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);
    /// Always.
    pub const ONE: Self = Self(1.0);

    /// Checks that `value` lies in 0..=1.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] otherwise.
    pub fn new(value: f64) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&value) {
            return Err(ConfigError::out_of_range("probability", value, "0 to 1"));
        }
        Ok(Self(value))
    }

    /// The probability as a number from 0 to 1.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = ConfigError;

    /// Reads `0.03` or `3%`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, 0.01),
            None => (text, 1.0),
        };
        let value: f64 = number
            .trim()
            .parse()
            .map_err(|_| ConfigError::malformed("probability", text, "a number such as 0.03 or 3%"))?;
        Self::new(value * scale)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

/// Reads a duration with its unit: `25ms`, `0.3ms`, `1.5s`, `200us`, `30m`, `2h`; a bare number needs `bare_unit`.
///
/// # Errors
/// [`ConfigError::Malformed`] naming `field` if the text is not a non-negative quantity of time.
pub fn parse_duration(
    field: &'static str,
    text: &str,
    bare_unit: Option<Duration>,
) -> Result<Duration, ConfigError> {
    let bad = || ConfigError::malformed(field, text, "a time with its unit, such as 25ms, 0.3ms or 1.5s");
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let value: f64 = number.parse().map_err(|_| bad())?;
    let unit = match (unit.trim(), bare_unit) {
        ("ns", _) => 1e-9,
        ("us" | "µs", _) => 1e-6,
        ("ms", _) => 1e-3,
        ("s", _) => 1.0,
        ("m" | "min", _) => 60.0,
        ("h", _) => 3600.0,
        ("", Some(unit)) => unit.as_secs_f64(),
        ("", None) if value == 0.0 => 1.0,
        _ => return Err(bad()),
    };
    let nanos = (value * unit * 1e9).round();
    if !(nanos.is_finite() && nanos < 1e18) {
        return Err(bad());
    }
    Ok(Duration::from_nanos(nanos as u64))
}

/// A duration in nanoseconds; more than 584 years count as that.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    saturating(duration.as_nanos())
}

fn saturating(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_in_bits_per_second() {
        for (text, bps) in [("1M", 1_000_000), ("9.6k", 9600), ("600000", 600_000), ("1G", 1_000_000_000)] {
            assert_eq!(text.parse::<BitRate>().map(BitRate::bits_per_second), Ok(bps), "{text}");
        }
        assert!("0".parse::<BitRate>().is_err());
        assert!("fast".parse::<BitRate>().is_err());
    }

    #[test]
    fn a_byte_at_one_megabit_takes_eight_microseconds() {
        assert_eq!(BitRate::megabits(1).nanos(8), 8_000);
        assert_eq!(BitRate::UNLIMITED.nanos(12_000), 0);
    }

    #[test]
    fn probabilities_read_as_fraction_or_percent() {
        assert_eq!("3%".parse::<Probability>().map(Probability::value), Ok(0.03));
        assert_eq!("0.5".parse::<Probability>().map(Probability::value), Ok(0.5));
        let error = "101%".parse::<Probability>().unwrap_err().to_string();
        assert!(error.contains("probability") && error.contains("0 to 1"), "{error}");
    }

    #[test]
    fn durations_need_a_unit_unless_one_is_given() {
        assert_eq!(parse_duration("delay", "0.3ms", None), Ok(Duration::from_micros(300)));
        assert_eq!(
            parse_duration("bad", "80", Some(Duration::from_millis(1))),
            Ok(Duration::from_millis(80))
        );
        assert!(parse_duration("delay", "80", None).is_err());
        assert!(parse_duration("delay", "-1s", None).is_err());
    }
}
