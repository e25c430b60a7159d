//! What comes after the data: its name, and a look at the time that was set if a late copy of a WRITE may touch it.

use std::time::Duration;

use nfs_wire::nfs3_types::nfs3::{Nfs3Option, fattr3};

use super::{super::stability::lateness, Phase, Upload};
use crate::attr::{SetTime, Time, optional};

/// Looks at the time that was set after a WRITE that was sent more than once.
const MAX_CONFIRMATIONS: u32 = 3;

/// Seconds by which a server's file system may round a time.
const ROUNDING_SECONDS: u32 = 1;

impl Upload {
    pub(super) fn rename_or_done(&self) -> Phase {
        if self.is_temporary() && !self.named && self.spec.gets_name {
            Phase::Rename
        } else {
            self.confirm_or_done()
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

    /// SETATTR was answered, perhaps with the time as the file system keeps it.
    pub(super) fn time_is_set(&mut self, attributes: &Nfs3Option<fattr3>) {
        self.kept_time = optional(attributes).map(|it| it.mtime).filter(|&kept| !self.is_far_off(kept));
        self.observe(attributes);
    }

    /// Whether a late copy of a WRITE set the time of day.
    pub(super) fn is_touched(&self, found: Time) -> bool {
        self.kept_time.map_or_else(|| self.is_far_off(found), |kept| found != kept)
    }

    /// Whether no file system rounds the time that was asked for to this one.
    fn is_far_off(&self, found: Time) -> bool {
        let asked = self.spec.attributes.mtime;
        matches!(asked, Some(SetTime::To(asked)) if found.seconds.abs_diff(asked.seconds) > ROUNDING_SECONDS)
    }
}
