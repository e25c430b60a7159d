//! The bounds of a [`LinkConfig`], checked once when a link is built.

use std::time::Duration;

use crate::{
    ChannelConfig, ConfigError, IpIdentification, JitterSpread, LinkConfig, Periods, Shape,
    config::{ArqConfig, Lengths},
};

const LONGEST_DELAY: Duration = Duration::from_secs(60);
const LONGEST_PERIOD: Duration = Duration::from_secs(24 * 3600);
const SHORTEST_GOOD: Duration = Duration::from_micros(10);

impl LinkConfig {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is wrong, its value and the bound.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range("bits_per_byte", self.bits_per_byte, 8, 16)?;
        range("mtu_bytes", self.mtu_bytes, 68, 65_535)?;
        range("link_header_bytes", self.link_header_bytes, 0, 1000)?;
        at_most("delay", self.delay, LONGEST_DELAY)?;
        match self.jitter.spread {
            JitterSpread::None => {}
            JitterSpread::Uniform(most) => at_most("jitter", most, LONGEST_DELAY)?,
            JitterSpread::Exponential(mean) => at_most("jitter", mean, LONGEST_DELAY / 20)?,
        }
        at_most("wired.delay", self.wired.delay, LONGEST_DELAY)?;
        let frame = u64::from(self.mtu_bytes + self.link_header_bytes);
        if self.wired.queue_bytes < frame {
            return Err(below("wired.queue_bytes", self.wired.queue_bytes, frame));
        }
        self.channel.validate()?;
        self.arq.validate()?;
        if let Some(packets) = self.queue.packets {
            range("queue.packets", packets, 1, 1_000_000)?;
        }
        if let Some(bytes) = self.queue.bytes.filter(|&bytes| bytes < frame) {
            return Err(below("queue.bytes", bytes, frame));
        }
        at_most("queue.bad_mark", self.queue.bad_mark, LONGEST_DELAY)?;
        if let Some(buffer) = self.receive_buffer {
            range("receive_buffer.packets", buffer.packets, 1, 100_000)?;
            at_most("receive_buffer.service", buffer.service, Duration::from_secs(1))?;
        }
        at_most("reassembly.timeout", self.reassembly.timeout, Duration::from_secs(3600))?;
        if let IpIdentification::Wrapping { values, .. } = self.reassembly.identification {
            range("reassembly.identification.values", values, 1, 65_536)?;
        }
        Ok(())
    }
}

impl ChannelConfig {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if let Some(granularity) = self.granularity {
            at_most("channel.granularity", granularity, Duration::from_secs(1))?;
            at_least("channel.granularity", granularity, Duration::from_micros(1))?;
        }
        let Periods::Drawn { good, bad } = &self.periods else {
            return Ok(());
        };
        let shortest = self.granularity.unwrap_or(SHORTEST_GOOD).max(SHORTEST_GOOD);
        at_least("channel.good", good.mean, shortest)?;
        good.validate("channel.good")?;
        if !bad.mean.is_zero() {
            // Shorter ones would nearly all round to nothing.
            let shortest = self.granularity.unwrap_or_default() / 2;
            at_least("channel.bad", bad.mean, shortest.max(Duration::from_micros(1)))?;
        }
        bad.validate("channel.bad")
    }
}

impl Lengths {
    fn validate(&self, field: &'static str) -> Result<(), ConfigError> {
        at_most(field, self.mean, LONGEST_PERIOD)?;
        match self.shape {
            Shape::Pareto(exponent) if !(exponent > 1.0 && exponent <= 100.0) => {
                Err(ConfigError::out_of_range(
                    field,
                    format!("Pareto with exponent {exponent}"),
                    "Pareto with an exponent of more than 1 (else it has no mean) and at most 100",
                ))
            }
            Shape::LogNormal(sigma) if !(sigma > 0.0 && sigma <= 5.0) => Err(ConfigError::out_of_range(
                field,
                format!("log-normal with sigma {sigma}"),
                "log-normal with sigma more than 0 and at most 5",
            )),
            Shape::Uniform
            | Shape::Exponential
            | Shape::Deterministic
            | Shape::Pareto(_)
            | Shape::LogNormal(_) => Ok(()),
        }
    }
}

impl ArqConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        for (field, value) in
            [("arq.ack", self.ack), ("arq.block_ack", self.block_ack), ("arq.rts_cts", self.rts_cts)]
        {
            at_least(field, value, Duration::from_nanos(2))?;
            at_most(field, value, Duration::from_secs(1))?;
        }
        at_most("arq.retry", self.retry, LONGEST_DELAY)?;
        range("arq.block_frames", self.block_frames, 1, 64)?;
        if let Some(window) = self.window_frames {
            range("arq.window_frames", window, 1, 65_536)?;
        }
        Ok(())
    }
}

fn range(field: &'static str, value: u32, low: u32, high: u32) -> Result<(), ConfigError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::out_of_range(field, value, format!("{low} to {high}")))
}

fn at_most(field: &'static str, value: Duration, most: Duration) -> Result<(), ConfigError> {
    if value <= most {
        return Ok(());
    }
    Err(ConfigError::out_of_range(field, format!("{value:?}"), format!("at most {most:?}")))
}

fn at_least(field: &'static str, value: Duration, least: Duration) -> Result<(), ConfigError> {
    if value >= least {
        return Ok(());
    }
    Err(ConfigError::out_of_range(field, format!("{value:?}"), format!("at least {least:?}")))
}

fn below(field: &'static str, value: u64, least: u64) -> ConfigError {
    ConfigError::out_of_range(field, value, format!("at least one frame of {least} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl FnOnce(&mut LinkConfig)) -> String {
        let mut config = LinkConfig::default();
        change(&mut config);
        config.validate().expect_err("the change is out of bounds").to_string()
    }

    #[test]
    fn the_default_is_valid() {
        assert_eq!(LinkConfig::default().validate(), Ok(()));
    }

    #[test]
    fn impossible_values_name_field_value_and_bound() {
        assert_eq!(message(|c| c.mtu_bytes = 20), "mtu_bytes is 20, but must be 68 to 65535");
        assert_eq!(message(|c| c.delay = Duration::from_secs(61)), "delay is 61s, but must be at most 60s");
        assert_eq!(message(|c| c.queue.packets = Some(0)), "queue.packets is 0, but must be 1 to 1000000");
        assert_eq!(
            message(|c| c.queue.bytes = Some(1000)),
            "queue.bytes is 1000, but must be at least one frame of 1518 bytes"
        );
        let second = Duration::from_secs(1);
        assert!(
            message(|c| c.channel = ChannelConfig::alternating(Shape::Pareto(0.9), second, second))
                .starts_with("channel.good is Pareto with exponent 0.9")
        );
        assert_eq!(
            message(|c| c.channel = ChannelConfig::alternating(Shape::Uniform, Duration::ZERO, second)),
            "channel.good is 0ns, but must be at least 10µs"
        );
    }
}
