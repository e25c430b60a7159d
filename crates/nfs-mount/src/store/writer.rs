//! Writes grains to the disk, on a thread of its own: programs do not wait for hashes and for the disk.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice},
    os::unix::fs::FileExt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use nfs_cache::{GRAIN_BYTES, NodeId};

use super::entry::{Sum, offset};

/// Grains that wait, at most: 4 MiB, and as many open files. Who brings more waits, too: nothing that was read is left out.
const MOST_WAITING: usize = 64;

/// Grains written at once, at most, if they follow each other. With four a byte takes least of the processor's time; with sixteen it takes two
/// to six times as much, for the kernel seeks memory in one piece.
const AT_ONCE: usize = 4;

/// A grain to be written.
#[derive(Debug)]
pub(super) struct Job {
    /// Later ones have greater numbers.
    pub(super) number: u64,
    pub(super) node: NodeId,
    pub(super) grain: u64,
    pub(super) file: Arc<File>,
    pub(super) data: Bytes,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) number: u64,
    pub(super) node: NodeId,
    pub(super) grain: u64,
    pub(super) sum: io::Result<Sum>,
}

/// Writes in the order of what it is given. What waits is written before this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// `None`: there is no thread for it, and it writes at once.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Rings when there is something to write.
    given: Condvar,
    /// Rings when something was written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Jobs that the thread has taken.
    taken: usize,
    written: Vec<Written>,
    is_over: bool,
}

impl Writer {
    pub(super) fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("nfsw-write".to_owned()).spawn(move || own.run()).ok();
        Self { shared, thread }
    }

    /// Has a grain written.
    pub(super) fn write(&self, job: Job) {
        let mut state = self.shared.lock();
        if self.thread.is_none() {
            state.written.extend(write(vec![job]));
            return;
        }
        while state.waiting.len() + state.taken >= MOST_WAITING {
            state = wait(&self.shared.written, state);
        }
        state.waiting.push_back(job);
        self.shared.given.notify_one();
    }

    /// Returns what was written since this was called last.
    pub(super) fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut self.shared.lock().written)
    }

    /// Waits until nothing waits to be written.
    pub(super) fn settle(&self) {
        let mut state = self.shared.lock();
        while state.waiting.len() + state.taken > 0 {
            state = wait(&self.shared.written, state);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.given.notify_one();
        // It panics nowhere.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let jobs = take_run(&mut state.waiting);
            if jobs.is_empty() {
                if state.is_over {
                    return;
                }
                state = wait(&self.given, state);
                continue;
            }
            state.taken = jobs.len();
            drop(state);
            let written = write(jobs);
            state = self.lock();
            state.taken = 0;
            state.written.extend(written);
            self.written.notify_all();
        }
    }
}

fn wait<'a>(for_what: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    for_what.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Takes the first job, and those after it whose bytes follow in the same file.
fn take_run(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let follows = |first: &Job, next: &Job| {
        Arc::ptr_eq(&first.file, &next.file)
            && next.grain == first.grain + 1
            && first.data.len() as u64 == GRAIN_BYTES
    };
    let mut count = waiting.len().min(1);
    while count < AT_ONCE && waiting.get(count).is_some_and(|next| follows(&waiting[count - 1], next)) {
        count += 1;
    }
    waiting.drain(..count).collect()
}

/// Writes what follows each other in a file.
fn write(jobs: Vec<Job>) -> Vec<Written> {
    let slices: Vec<IoSlice<'_>> = jobs.iter().map(|job| IoSlice::new(&job.data)).collect();
    let all: usize = jobs.iter().map(|job| job.data.len()).sum();
    let at_once = jobs.first().map(|first| rustix::io::pwritev(&*first.file, &slices, offset(first.grain)));
    let is_whole = matches!(at_once, Some(Ok(length)) if length == all);
    let one = |Job { number, node, grain, file, data }: Job| {
        let written = if is_whole { Ok(()) } else { file.write_all_at(&data, offset(grain)) };
        Written { number, node, grain, sum: written.map(|()| Sum::of(&data)) }
    };
    jobs.into_iter().map(one).collect()
}
