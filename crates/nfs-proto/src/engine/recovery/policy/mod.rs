//! Timers: when an unanswered call is sent again if nothing else tells. One trait, one file per policy.

mod exponential;
mod hybrid;
mod kernel;

use std::{fmt, time::Duration};

use super::super::{message::Class, retry_policy::RetryPolicy};

/// Decides how long to wait for the reply to an attempt, and how many calls may wait.
pub(in crate::engine) trait Policy: fmt::Debug + Send {
    /// Returns the timeout of attempt `resends` of a call; 0 is the first send.
    fn timeout(&self, class: Class, resends: u32) -> Duration;

    /// A call was answered after so many resends; `rtt` is known if there were none (Karn's rule).
    fn handle_reply(&mut self, _class: Class, _rtt: Option<Duration>, _resends: u32) {}

    /// A call is sent again because an attempt was not answered in time.
    fn handle_timeout(&mut self) {}

    /// Returns how many READs and WRITEs may be in flight, if the policy has an opinion.
    fn window(&self) -> Option<u32> {
        None
    }
}

/// Builds the timers that a configuration names; `None` for the adaptive policy, which has none.
pub(super) fn build(config: RetryPolicy) -> Option<Box<dyn Policy>> {
    Some(match config {
        RetryPolicy::Adaptive => return None,
        RetryPolicy::Exponential { initial, maximum } => {
            Box::new(exponential::Exponential { initial, maximum })
        }
        RetryPolicy::Hybrid { initial, linear_steps, linear_step, maximum } => {
            Box::new(hybrid::Hybrid { initial, linear_steps, linear_step, maximum })
        }
        RetryPolicy::Kernel { maximum } => Box::new(kernel::Kernel::new(maximum)),
    })
}

/// Doubles `base` `times` times without overflow, capped at `maximum`.
fn doubled(base: Duration, times: u32, maximum: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(maximum)
}
