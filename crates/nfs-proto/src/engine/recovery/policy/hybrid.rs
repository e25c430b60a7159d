//! Hybrid linear and exponential back-off (Dube et al. 1997 §5.2).

use std::time::Duration;

use super::{Class, Policy, doubled};

/// Timeout r is T + c·r for r ≤ a, then (T + c·a)·2^(r−a).
#[derive(Debug)]
pub(super) struct Hybrid {
    pub(super) initial: Duration,
    pub(super) linear_steps: u32,
    pub(super) linear_step: Duration,
    pub(super) maximum: Duration,
}

impl Policy for Hybrid {
    fn timeout(&self, _class: Class, resends: u32) -> Duration {
        let linear = resends.min(self.linear_steps);
        let base = self.initial.saturating_add(self.linear_step.saturating_mul(linear));
        doubled(base, resends - linear, self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_grow_linearly_and_then_double() {
        let policy = Hybrid {
            initial: Duration::from_millis(700),
            linear_steps: 3,
            linear_step: Duration::from_millis(100),
            maximum: Duration::from_secs(60),
        };
        let millis: Vec<_> =
            (0..11).map(|resends| policy.timeout(Class::Read, resends).as_millis()).collect();
        assert_eq!(millis, [700, 800, 900, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(policy.timeout(Class::Read, u32::MAX), Duration::from_secs(60));
    }
}
