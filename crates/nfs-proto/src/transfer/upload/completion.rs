//! What comes after the data: its name, and a look at the time that was set if a late copy of a WRITE may touch it.

use std::time::Duration;

use super::{super::stability::lateness, Phase, Placement, Upload};
use crate::attr::SetTime;

/// Looks at the time that was set after a WRITE that was sent more than once.
const MAX_CONFIRMATIONS: u32 = 3;

/// Seconds by which a server's file system may round a time.
const ROUNDING_SECONDS: u32 = 1;

impl Upload {
    pub(super) fn rename_or_done(&self) -> Phase {
        match self.spec.placement {
            Placement::Temporary(_) | Placement::Resumable { .. } if !self.named => Phase::Rename,
            _ => self.confirm_or_done(),
        }
    }

    fn confirm_or_done(&self) -> Phase {
        let dated = matches!(self.spec.attributes.mtime, Some(SetTime::To(_)));
        if dated && !self.lateness.is_zero() && self.confirmations < MAX_CONFIRMATIONS {
            Phase::Confirm
        } else {
            Phase::Done
        }
    }

    /// The file has its name.
    pub(super) fn complete(&mut self) {
        self.named = true;
        self.phase = self.confirm_or_done();
    }

    /// A WRITE that was sent more than once took so long to be answered: a copy of it may be as late.
    pub(super) fn expect_late_copies(&mut self, elapsed: Duration) {
        self.lateness = self.lateness.max(lateness(elapsed));
    }

    /// Whether a late copy of a WRITE set the time of day.
    pub(super) fn is_touched(&self) -> bool {
        match (self.spec.attributes.mtime, self.latest) {
            (Some(SetTime::To(asked)), Some(found)) => {
                found.mtime.seconds.abs_diff(asked.seconds) > ROUNDING_SECONDS
            }
            _ => false,
        }
    }
}
