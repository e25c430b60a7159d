//! How long the machine has slept.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A clock that runs while the machine sleeps, and that nobody sets.
#[cfg(target_os = "linux")]
const ALWAYS: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const ALWAYS: ClockId = ClockId::Monotonic;

/// Compares a clock that always runs with [`Instant`], which stops while the machine sleeps.
#[derive(Debug)]
pub(super) struct Sleep {
    awake: Instant,
    always: Duration,
}

impl Sleep {
    pub(super) fn new() -> Self {
        Self { awake: Instant::now(), always: always() }
    }

    /// Returns how long the machine has slept since this was asked last.
    pub(super) fn take(&mut self) -> Duration {
        let before = std::mem::replace(self, Self::new());
        self.always.saturating_sub(before.always).saturating_sub(self.awake - before.awake)
    }
}

fn always() -> Duration {
    let now = clock_gettime(ALWAYS);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}
