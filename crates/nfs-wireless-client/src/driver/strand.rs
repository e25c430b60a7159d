//! Jobs on a value one after the other, where nobody waits for another's: what calls storage and callbacks.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::Handle;

/// A job; it finds `None` after the value was taken away.
type Job<T> = Box<dyn FnOnce(&mut Option<T>) + Send>;

/// Runs jobs on a value in the order in which they were given. No lock is held while one runs.
///
/// With a pool the jobs run on its threads, and no thread is kept while there are none; whoever gives one waits for nothing. Without
/// one they run on the thread that gives them.
pub(crate) struct Strand<T> {
    state: Arc<Mutex<State<T>>>,
    pool: Option<Handle>,
}

struct State<T> {
    /// Elsewhere while a job runs.
    value: Option<T>,
    jobs: VecDeque<Job<T>>,
    is_running: bool,
}

impl<T: Send + 'static> Strand<T> {
    pub(crate) fn new(value: T, pool: Option<Handle>) -> Self {
        let state = State { value: Some(value), jobs: VecDeque::new(), is_running: false };
        Self { state: Arc::new(Mutex::new(state)), pool }
    }

    /// Whether jobs run on threads of a pool.
    pub(crate) const fn is_apart(&self) -> bool {
        self.pool.is_some()
    }

    /// Runs a job when those before it have ended. It is dropped, and not run, if one before it panicked.
    pub(crate) fn run(&self, job: impl FnOnce(&mut Option<T>) + Send + 'static) {
        let mut state = self.lock();
        state.jobs.push_back(Box::new(job));
        if state.is_running {
            return;
        }
        state.is_running = true;
        let work = Work { state: Arc::clone(&self.state), value: state.value.take() };
        drop(state);
        match &self.pool {
            Some(pool) => drop(pool.spawn_blocking(|| work.go_on())),
            None => work.go_on(),
        }
    }

    /// Runs a job on this thread and returns what it does; `None` if another one runs, or the value was taken away.
    pub(crate) fn with<R>(&self, job: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut state = self.lock();
        if state.is_running {
            return None;
        }
        let value = Some(state.value.take()?);
        state.is_running = true;
        drop(state);
        let mut work = Work { state: Arc::clone(&self.state), value };
        let result = work.value.as_mut().map(job);
        work.go_on();
        result
    }

    /// Takes the value away, and forgets the jobs that have not begun.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        let forgotten = std::mem::take(&mut state.jobs);
        let is_gone = !state.is_running && state.value.is_none();
        drop(state);
        drop(forgotten);
        if !is_gone {
            self.run(|value| drop(value.take()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

impl<T> Clone for Strand<T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), pool: self.pool.clone() }
    }
}

impl<T> fmt::Debug for Strand<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Strand").finish_non_exhaustive()
    }
}

/// Whoever runs the jobs has the value.
struct Work<T> {
    state: Arc<Mutex<State<T>>>,
    value: Option<T>,
}

impl<T> Work<T> {
    fn go_on(mut self) {
        loop {
            let job = {
                let mut state = lock(&self.state);
                let Some(job) = state.jobs.pop_front() else {
                    state.value = self.value.take();
                    state.is_running = false;
                    return;
                };
                job
            };
            job(&mut self.value);
        }
    }
}

impl<T> Drop for Work<T> {
    /// A job has panicked, or the pool is closed: nobody waits for what will not be run.
    fn drop(&mut self) {
        let forgotten = {
            let mut state = lock(&self.state);
            if std::thread::panicking() || self.value.is_some() {
                state.is_running = false;
                std::mem::take(&mut state.jobs)
            } else {
                VecDeque::new()
            }
        };
        drop(forgotten);
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn jobs_run_in_their_order_and_nobody_waits_for_them() {
        let strand = Strand::new(Vec::new(), Some(Handle::current()));
        let (go, wait) = mpsc::channel::<()>();
        strand.run(move |_| wait.recv().unwrap());
        for number in 0..100 {
            strand.run(move |value| value.as_mut().unwrap().push(number));
        }
        assert!(strand.with(|_| ()).is_none(), "the first job runs");
        go.send(()).unwrap();
        let (done, result) = oneshot::channel();
        strand.run(move |value| done.send(value.take()).unwrap());
        assert_eq!(result.await.unwrap().unwrap(), (0..100).collect::<Vec<_>>());
        strand.run(|value| assert!(value.is_none()));
    }

    #[test]
    fn without_a_pool_jobs_run_on_the_thread_that_gives_them() {
        let strand = Strand::new(0, None);
        strand.run(|value| *value.as_mut().unwrap() += 1);
        let other = strand.clone();
        let inside = strand.with(move |value| {
            other.run(|value| *value.as_mut().unwrap() *= 10);
            *value += 1;
            other.with(|_| ())
        });
        assert_eq!(inside, Some(None), "a job that is given while one runs comes after it");
        assert_eq!(strand.with(|value| *value), Some(20));
    }

    #[tokio::test]
    async fn what_is_abandoned_ends_with_the_job_that_runs() {
        let (dropped, is_dropped) = oneshot::channel::<()>();
        let strand = Strand::new(dropped, Some(Handle::current()));
        let ((go, wait), (begin, begun)) = (mpsc::channel::<()>(), oneshot::channel());
        strand.run(move |_| {
            begin.send(()).unwrap();
            wait.recv().unwrap();
        });
        begun.await.unwrap();
        strand.run(|_| panic!("it must not be run"));
        strand.abandon();
        go.send(()).unwrap();
        assert!(is_dropped.await.is_err());
        assert!(strand.with(|_| ()).is_none());
    }

    #[tokio::test]
    async fn a_job_that_panics_ends_those_that_wait() {
        for pool in [Some(Handle::current()), None] {
            let strand = Strand::new((), pool);
            let (done, result) = oneshot::channel::<()>();
            let other = strand.clone();
            let panics = move |_: &mut Option<()>| {
                other.run(move |_| done.send(()).unwrap());
                panic!("as a user's callback may");
            };
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| strand.run(panics)));
            assert!(result.await.is_err());
            let (done, result) = oneshot::channel();
            strand.run(move |value| done.send(value.is_none()).unwrap());
            assert!(result.await.unwrap(), "the value is gone");
        }
    }
}
