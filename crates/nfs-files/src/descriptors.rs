//! How many files may be open at once.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that are open whatever is copied: standard streams, runtimes, sockets, journals.
const OTHERS: usize = 24;

/// Of them, those that are not open yet where a copy begins.
const LATER: usize = 12;

/// Descriptors that one piece of work takes at most: a directory, two files, and a socket or a journal.
const PER_WORK: usize = 4;

/// Descriptors without which nothing is copied.
const MIN_LIMIT: u64 = (OTHERS + 2 * PER_WORK) as u64;

/// Raises the limit of open files as far as this process may: the soft limit is low for the sake of programs that use `select`.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without it there are fewer at once.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Looks whether as many files may be open as one copy takes.
///
/// # Errors
/// A line for the user, if not.
pub fn check_limit() -> Result<(), String> {
    match getrlimit(Resource::Nofile).current {
        Some(limit @ ..MIN_LIMIT) => Err(format!(
            "this process may open only {limit} files at once, and a copy takes up to {MIN_LIMIT} (ulimit -n {MIN_LIMIT})"
        )),
        _ => Ok(()),
    }
}

/// Returns how many pieces of work there may be at once, beside what is open now.
pub fn at_once() -> usize {
    let open = std::fs::read_dir("/dev/fd").map_or(0, Iterator::count);
    within(getrlimit(Resource::Nofile).current, open)
}

fn within(limit: Option<u64>, open: usize) -> usize {
    let Some(limit) = limit else { return usize::MAX };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    (limit.saturating_sub(OTHERS.max(open + LATER)) / PER_WORK).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_few_files_at_once() {
        assert_eq!(
            [None, Some(1024), Some(64), Some(16)].map(|limit| within(limit, 0)),
            [usize::MAX, 250, 10, 1]
        );
        assert_eq!(within(Some(64), 32), 5, "of which some are open already");
    }
}
