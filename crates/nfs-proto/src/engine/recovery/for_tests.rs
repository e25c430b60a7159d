//! What tests of recovery begin with.

use std::time::{Duration, Instant};

use super::{Acked, Class, Delivered};

pub(super) const MS: Duration = Duration::from_millis(1);

/// Any moment will do as the beginning of a test.
#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
pub(super) fn epoch() -> Instant {
    Instant::now()
}

/// The acknowledgement of a WRITE of so many bytes, sent when `before` bytes had been delivered, the latest of them sent just then.
pub(super) fn acked(sent: Instant, bytes: u32, before: u64) -> Acked {
    Acked {
        class: Class::Write,
        bytes,
        sent,
        before: Delivered { bytes: before, acked_sent: sent },
        exact: true,
        oldest: true,
        waiting: true,
        probe: false,
        size: bytes,
        window_limited: true,
    }
}
