//! What is kept of a copy while it is not complete.

use std::{fs, os::unix::fs::MetadataExt};

/// Returns the name of the journal of a download by this user.
pub(crate) fn journal(name: &str) -> String {
    journal_of(fs::metadata("/proc/self").unwrap().uid(), name)
}

/// As [`journal`], by the user of a number.
pub(crate) fn journal_of(user: u32, name: &str) -> String {
    format!(".{name}.nfsw-journal-{user:08x}")
}
