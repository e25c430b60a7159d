//! When an unanswered datagram is sent again, as users choose it.

use std::time::Duration;

/// When an unanswered datagram is sent again. TCP never resends on a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// Losses are found from later replies and from silences; window and block follow what the path delivers.
    #[default]
    Adaptive,
    /// The Linux kernel's UDP client, for comparison: round-trip timers that remember back-off.
    Kernel {
        /// Longest timeout. Default: 60 s.
        maximum: Duration,
    },
    /// The timeout doubles after every loss: "No changes" in Dube et al. 1997 §5.
    Exponential {
        /// Timeout of the first attempt. Default: 700 ms.
        initial: Duration,
        /// Longest timeout. Default: 60 s.
        maximum: Duration,
    },
    /// The timeout grows linearly at first, then doubles (Dube et al. 1997 §5.2).
    Hybrid {
        /// Timeout of the first attempt. Default: 700 ms.
        initial: Duration,
        /// How many resends lengthen the timeout linearly. Default: 3.
        linear_steps: u32,
        /// By how much each of them does. Default: 100 ms.
        linear_step: Duration,
        /// Longest timeout. Default: 60 s.
        maximum: Duration,
    },
}

impl RetryPolicy {
    /// Timeout of the first attempt in the 1997 testbed.
    pub const INITIAL: Duration = Duration::from_millis(700);
    /// Longest timeout of the 1997 testbed.
    pub const MAXIMUM: Duration = Duration::from_secs(60);
    /// Linear steps of the hybrid back-off.
    pub const LINEAR_STEPS: u32 = 3;
    /// Increment of a linear step.
    pub const LINEAR_STEP: Duration = Duration::from_millis(100);

    /// Returns the papers' unmodified client.
    pub const fn exponential() -> Self {
        Self::Exponential { initial: Self::INITIAL, maximum: Self::MAXIMUM }
    }

    /// Returns the papers' hybrid client.
    pub const fn hybrid() -> Self {
        Self::Hybrid {
            initial: Self::INITIAL,
            linear_steps: Self::LINEAR_STEPS,
            linear_step: Self::LINEAR_STEP,
            maximum: Self::MAXIMUM,
        }
    }

    /// Returns the Linux kernel's UDP client.
    pub const fn kernel() -> Self {
        Self::Kernel { maximum: Self::MAXIMUM }
    }
}
