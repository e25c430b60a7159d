//! When an unanswered call is sent again: one trait, one file per policy.

mod exponential;
mod hybrid;

use std::{fmt, time::Duration};

use crate::config::RetryPolicy;

/// Decides how long to wait for the reply to an attempt.
pub(super) trait Policy: fmt::Debug + Send {
    /// Returns the timeout of attempt `resends` of a call; 0 is the first send.
    fn timeout(&self, resends: u32) -> Duration;
}

/// Builds the policy that a configuration names.
pub(super) fn build(config: RetryPolicy) -> Box<dyn Policy> {
    match config {
        RetryPolicy::Exponential { initial, maximum } => {
            Box::new(exponential::Exponential { initial, maximum })
        }
        RetryPolicy::Hybrid { initial, linear_steps, linear_step, maximum } => {
            Box::new(hybrid::Hybrid { initial, linear_steps, linear_step, maximum })
        }
    }
}

/// Doubles `base` `times` times without overflow, capped at `maximum`.
fn doubled(base: Duration, times: u32, maximum: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(maximum)
}
