//! The papers' unmodified client: every timeout is twice the one before.

use std::time::Duration;

use super::{Class, Policy, doubled};

#[derive(Debug)]
pub(super) struct Exponential {
    pub(super) initial: Duration,
    pub(super) maximum: Duration,
}

impl Policy for Exponential {
    fn timeout(&self, _class: Class, resends: u32) -> Duration {
        doubled(self.initial, resends, self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_double_up_to_the_maximum() {
        let policy = Exponential { initial: Duration::from_millis(700), maximum: Duration::from_secs(60) };
        let millis: Vec<_> = (0..9).map(|resends| policy.timeout(Class::Read, resends).as_millis()).collect();
        assert_eq!(millis, [700, 1400, 2800, 5600, 11_200, 22_400, 44_800, 60_000, 60_000]);
        assert_eq!(policy.timeout(Class::Read, u32::MAX), Duration::from_secs(60));
    }
}
