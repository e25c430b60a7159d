//! How many files may be open at once.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that are open whatever is copied: standard streams, runtimes, sockets, journals.
const OTHERS: u64 = 24;

/// Descriptors that one piece of work takes at most: a directory, two files, and a socket or a journal.
const PER_WORK: u64 = 4;

/// Raises the limit of open files as far as this process may: the soft limit is low for the sake of programs that use `select`.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without it there are fewer at once.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Returns how many pieces of work there may be at once.
pub(crate) fn at_once() -> usize {
    within(getrlimit(Resource::Nofile).current)
}

fn within(limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return usize::MAX };
    let works = limit.saturating_sub(OTHERS) / PER_WORK;
    usize::try_from(works).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_few_files_at_once() {
        assert_eq!([None, Some(1024), Some(64), Some(16)].map(within), [usize::MAX, 250, 10, 1]);
    }
}
