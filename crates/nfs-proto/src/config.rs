//! What may be chosen about a session, with defaults and their sources.

use std::time::Duration;

use nfs_wire::auth::Credential;
use thiserror::Error;

use crate::engine::PathEstimate;
pub use crate::engine::RetryPolicy;

/// Smallest block of a READ or WRITE that may be configured, in bytes.
pub const MIN_BLOCK_BYTES: u32 = 512;

/// Largest block of a READ or WRITE, in bytes: above 1 MiB nothing is gained and servers allocate it at once.
pub const MAX_BLOCK_BYTES: u32 = 1 << 20;

/// What a session does at whoever's wish. Every transport makes its own [`SessionConfig`](crate::session::SessionConfig) of it.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Who the calls claim to come from. Default: AUTH_NONE.
    pub credential: Credential,
    /// When an unanswered datagram is sent again. Default: [`RetryPolicy::Adaptive`].
    pub retry: RetryPolicy,
    /// Bytes per READ. Default: as large as the transport carries safely.
    pub read_block: BlockSize,
    /// Bytes per WRITE. Default: as large as the transport carries safely.
    pub write_block: BlockSize,
    /// READs and WRITEs in flight. Default: [`Window::Auto`].
    pub window: Window,
    /// How long a transfer may go without accepted bytes. Default: `None`, for ever.
    pub stall_timeout: Option<Duration>,
    /// Upper bound of the transfer rate in bit/s, counted in file bytes. Default: `None`.
    pub rate_limit: Option<u64>,
    /// The estimate of the path from an earlier connection. Default: none.
    pub prior: Option<PathEstimate>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            credential: Credential::None,
            retry: RetryPolicy::default(),
            read_block: BlockSize::default(),
            write_block: BlockSize::default(),
            window: Window::default(),
            stall_timeout: None,
            rate_limit: None,
            prior: None,
        }
    }
}

impl SessionOptions {
    /// Checks what no single field's type can.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and the bound.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.read_block.check("read_block")?;
        self.write_block.check("write_block")?;
        check_retry(self.retry)?;
        if self.window == Window::Calls(0) {
            return Err(ConfigError::TooSmall { field: "window", value: "0".into(), bound: "1 call".into() });
        }
        if let Some(rate) = self.rate_limit.filter(|&rate| rate < MIN_RATE_LIMIT) {
            let bound = format!("{MIN_RATE_LIMIT} bit/s");
            return Err(ConfigError::TooSmall { field: "rate_limit", value: rate.to_string(), bound });
        }
        Ok(())
    }
}

/// Lowest rate limit, in bit/s: one smallest block every four seconds.
const MIN_RATE_LIMIT: u64 = 1000;

/// Bytes of file data in one READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// What the transport carries best, at most `max` bytes if given.
    Auto {
        /// Upper bound in bytes, from 512 to 1 MiB.
        max: Option<u32>,
    },
    /// Exactly this many bytes: a multiple of 512 from 512 to 1 MiB. A server that does not answer this size is
    /// asked for less.
    Exact(u32),
}

impl Default for BlockSize {
    fn default() -> Self {
        Self::Auto { max: None }
    }
}

impl BlockSize {
    fn check(self, field: &'static str) -> Result<(), ConfigError> {
        let bytes = match self {
            Self::Auto { max: None } => return Ok(()),
            Self::Auto { max: Some(bytes) } | Self::Exact(bytes) => bytes,
        };
        let value = bytes.to_string();
        if bytes < MIN_BLOCK_BYTES {
            return Err(ConfigError::TooSmall { field, value, bound: format!("{MIN_BLOCK_BYTES} bytes") });
        }
        if bytes > MAX_BLOCK_BYTES {
            return Err(ConfigError::TooLarge { field, value, bound: format!("{MAX_BLOCK_BYTES} bytes") });
        }
        if matches!(self, Self::Exact(_)) && !bytes.is_multiple_of(MIN_BLOCK_BYTES) {
            return Err(ConfigError::NotAMultiple { field, value, factor: MIN_BLOCK_BYTES });
        }
        Ok(())
    }
}

/// How many READs and WRITEs may be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// As many as the transport needs.
    #[default]
    Auto,
    /// At most this many.
    Calls(u32),
}

/// Checks what no single field's type can.
fn check_retry(retry: RetryPolicy) -> Result<(), ConfigError> {
    let (initial, maximum) = match retry {
        RetryPolicy::Adaptive => return Ok(()),
        RetryPolicy::Kernel { maximum } => (Duration::from_millis(100), maximum),
        RetryPolicy::Exponential { initial, maximum } | RetryPolicy::Hybrid { initial, maximum, .. } => {
            (initial, maximum)
        }
    };
    if initial < Duration::from_millis(1) {
        let value = format!("{initial:?}");
        return Err(ConfigError::TooSmall { field: "initial timeout", value, bound: "1 ms".into() });
    }
    if maximum < initial {
        let value = format!("{maximum:?}");
        let bound = format!("the initial timeout, {initial:?}");
        return Err(ConfigError::TooSmall { field: "maximum timeout", value, bound });
    }
    Ok(())
}

/// A setting that cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is below its bound.
    #[error("{field} is {value}, must be at least {bound}")]
    TooSmall {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: String,
        /// The smallest value allowed.
        bound: String,
    },
    /// A value is above its bound.
    #[error("{field} is {value}, must be at most {bound}")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: String,
        /// The largest value allowed.
        bound: String,
    },
    /// A size has a remainder.
    #[error("{field} is {value}, must be a multiple of {factor}")]
    NotAMultiple {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: String,
        /// What it must be a multiple of.
        factor: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_name_the_field_and_the_bound() {
        let check = |change: fn(&mut SessionOptions), message: &str| {
            let mut config = SessionOptions::default();
            change(&mut config);
            assert_eq!(config.check().unwrap_err().to_string(), message);
        };
        check(|c| c.read_block = BlockSize::Exact(500), "read_block is 500, must be at least 512 bytes");
        check(|c| c.write_block = BlockSize::Exact(1000), "write_block is 1000, must be a multiple of 512");
        check(
            |c| c.read_block = BlockSize::Auto { max: Some(1 << 21) },
            "read_block is 2097152, must be at most 1048576 bytes",
        );
        check(|c| c.window = Window::Calls(0), "window is 0, must be at least 1 call");
        check(|c| c.rate_limit = Some(10), "rate_limit is 10, must be at least 1000 bit/s");
        SessionOptions::default().check().unwrap();
    }
}
