//! What is copied next, and how much at once.

/// Files from this size on are large: each fills the link by itself, so few are copied at once.
const LARGE_BYTES: u64 = 1 << 20;

/// Large files in flight at once: one more than one, so that the end of a file hides the beginning of the next.
const LARGE_JOBS: usize = 2;

/// Files in flight at once unless it is said: where a small one takes some round trips, the more of them the better.
pub(super) const JOBS: usize = 64;

/// Of them, those that may be of any size.
const JOBS_OF_ANY_SIZE: usize = 16;

/// Bytes of small files in flight at once, beyond those. What is in flight has to be copied again after an interruption.
const SMALL_BYTES: u64 = 512 << 10;

/// Directories that a sync lists at once beside the files in flight: where nothing has changed, their round trips are all it takes.
const DIRECTORY_JOBS: usize = 48;

/// Small files that wait, at most, while more directories are listed.
const MOST_WAITING: usize = 10_000;

/// Bytes that directories take which wait, at most: of 300,000 with paths of 200 bytes. A server can show ever more of them.
const MOST_DIRECTORY_BYTES: usize = 256 << 20;

/// What a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A directory whose names take so many bytes.
    Directory(usize),
    /// A file of so many bytes, or a link, which has none.
    File(u64),
}

/// What a piece of work takes beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Large,
    /// A small file of so many bytes, a link or a directory.
    Small(u64),
}

/// What is under way at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loads {
    count: usize,
    large: usize,
    /// Of small files.
    bytes: u64,
}

/// How much may be under way at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Files.
    pub(super) jobs: usize,
    /// All work: what this machine has room for.
    pub(super) most: usize,
    /// Whether directories are listed while files wait.
    pub(super) lists_ahead: bool,
}

/// Work that begins now.
#[derive(Debug)]
pub(super) struct Begun<W> {
    pub(super) work: W,
    pub(super) load: Load,
    /// Whether there was no room for it on this machine before.
    pub(super) is_again: bool,
}

/// Work to be done: small files first, so that directories are listed only when there is room.
pub(super) struct Queue<W> {
    /// With their bytes.
    small: Vec<(W, u64)>,
    large: Vec<W>,
    /// With what they take.
    directories: Vec<(W, usize)>,
    directory_bytes: usize,
    /// What there was no room for on this machine.
    pub(super) again: Vec<W>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        let (small, large, directories, again) = Default::default();
        Self { small, large, directories, directory_bytes: 0, again }
    }
}

impl<W> Queue<W> {
    /// Adds work in its order, and what each is; returns the directories for which there is no room.
    pub(super) fn add(&mut self, works: impl DoubleEndedIterator<Item = (W, Class)>) -> Vec<W> {
        let mut refused = Vec::new();
        // The last one in is the first one out.
        for (work, class) in works.rev() {
            match class {
                Class::Directory(bytes) => {
                    let bytes = size_of::<(W, usize)>() + bytes;
                    if self.directory_bytes + bytes > MOST_DIRECTORY_BYTES {
                        refused.push(work);
                    } else {
                        self.directory_bytes += bytes;
                        self.directories.push((work, bytes));
                    }
                }
                Class::File(bytes) if bytes >= LARGE_BYTES => self.large.push(work),
                Class::File(bytes) => self.small.push((work, bytes)),
            }
        }
        refused
    }

    fn next_directory(&mut self) -> Option<Begun<W>> {
        let (work, bytes) = self.directories.pop()?;
        self.directory_bytes -= bytes;
        Some(Begun { work, load: Load::Small(0), is_again: false })
    }

    /// Takes the next work that may begin beside what is under way.
    pub(super) fn next(&mut self, running: Loads, limits: Limits) -> Option<Begun<W>> {
        let Limits { jobs, most, lists_ahead } = limits;
        let begun = |load| move |work| Begun { work, load, is_again: false };
        if running.count < jobs.min(most) {
            if running.large < LARGE_JOBS
                && let Some(work) = self.large.pop()
            {
                return Some(begun(Load::Large)(work));
            }
            let next = match self.small.last() {
                Some(&(_, bytes)) if !running.has_room(bytes) => None,
                Some(_) => self.small.pop().map(|(work, bytes)| begun(Load::Small(bytes))(work)),
                None => self.next_directory(),
            };
            let again = || self.again.pop().map(|work| Begun { work, load: Load::Small(0), is_again: true });
            if let Some(next) = next.or_else(again) {
                return Some(next);
            }
        }
        // Every directory with files that wait is open.
        let lists_more = lists_ahead
            && running.count < (jobs + DIRECTORY_JOBS).min(most)
            && self.small.len() < MOST_WAITING.min(most);
        if lists_more { self.next_directory() } else { None }
    }
}

impl Loads {
    /// Whether a small file may begin.
    const fn has_room(&self, bytes: u64) -> bool {
        self.count < JOBS_OF_ANY_SIZE || self.bytes + bytes <= SMALL_BYTES
    }

    pub(super) const fn add(&mut self, load: Load) {
        self.count += 1;
        match load {
            Load::Large => self.large += 1,
            Load::Small(bytes) => self.bytes += bytes,
        }
    }

    pub(super) const fn remove(&mut self, load: Load) {
        self.count -= 1;
        match load {
            Load::Large => self.large -= 1,
            Load::Small(bytes) => self.bytes -= bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_directories_without_end_as_many_wait_as_there_is_room_for() {
        let mut queue = Queue::default();
        let path = 100_000;
        let all = || (0..1000).map(|number| (number, Class::Directory(path)));
        let mut refused = 0;
        while refused == 0 {
            refused = queue.add(all()).len();
        }
        assert!((MOST_DIRECTORY_BYTES - 2 * path..=MOST_DIRECTORY_BYTES).contains(&queue.directory_bytes));
        let limits = Limits { jobs: 1, most: 1, lists_ahead: false };
        // Whoever is done makes room.
        assert!(queue.next(Loads::default(), limits).is_some());
        assert_eq!(queue.add([(0, Class::Directory(path)), (1, Class::Directory(path))].into_iter()), [0]);
        while queue.next(Loads::default(), limits).is_some() {}
        assert_eq!(queue.directory_bytes, 0);
    }

    #[test]
    fn small_files_of_half_a_megabyte_are_under_way_at_once_and_sixteen_of_any_size() {
        for (bytes, expected) in
            [(0, JOBS), (1 << 10, JOBS), (16 << 10, 32), (LARGE_BYTES - 1, JOBS_OF_ANY_SIZE)]
        {
            let mut loads = Loads::default();
            while loads.count < JOBS && loads.has_room(bytes) {
                loads.add(Load::Small(bytes));
            }
            assert_eq!(loads.count, expected, "{bytes}");
            loads.remove(Load::Small(bytes));
            assert!(loads.has_room(bytes));
        }
        // What is small in number and in bytes leaves room for what is large.
        let mut loads = Loads::default();
        loads.add(Load::Large);
        assert!(loads.has_room(SMALL_BYTES));
    }
}
