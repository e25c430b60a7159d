//! How many copies run at once: as many as the machine can carry without delaying their links.

use std::sync::{Condvar, Mutex, PoisonError};

/// The machine, as a sum of loads.
#[derive(Debug)]
pub(crate) struct Machine {
    all: u64,
    free: Mutex<u64>,
    given_back: Condvar,
}

/// A part of the machine, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    machine: &'a Machine,
    load: u64,
}

impl Machine {
    pub(crate) fn new(all: u64) -> Self {
        Self { all, free: Mutex::new(all), given_back: Condvar::new() }
    }

    /// Waits until so much is free; for all of it if the load is larger.
    pub(crate) fn take(&self, load: u64) -> Share<'_> {
        let load = load.min(self.all);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.given_back.wait_while(free, |free| *free < load).unwrap_or_else(PoisonError::into_inner);
        *free -= load;
        Share { machine: self, load }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.machine.free.lock().unwrap_or_else(PoisonError::into_inner) += self.load;
        self.machine.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU64, sync::atomic::Ordering, thread};

    use super::*;

    #[test]
    fn no_more_runs_at_once_than_the_machine_carries() {
        let (machine, running) = (Machine::new(10), AtomicU64::new(0));
        thread::scope(|scope| {
            for load in [3, 4, 7, 20, 1, 9, 10, 2, 5] {
                let share = machine.take(load);
                let now = load.min(10) + running.fetch_add(load.min(10), Ordering::SeqCst);
                assert!(now <= 10, "{now}");
                let running = &running;
                scope.spawn(move || {
                    thread::yield_now();
                    running.fetch_sub(load.min(10), Ordering::SeqCst);
                    drop(share);
                });
            }
        });
        assert_eq!(*machine.free.lock().unwrap(), 10);
    }
}
