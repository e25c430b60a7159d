//! Files and sockets that the process may have open.

use rustix::process::{Resource, getrlimit};

/// Returns how many files and sockets the process may have open (`RLIMIT_NOFILE`), by which those bound themselves that keep many: a
/// [`Directory`](crate::Directory) keeps a quarter at most.
pub fn most_descriptors() -> usize {
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
