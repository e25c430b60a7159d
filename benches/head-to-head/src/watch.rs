//! Whether this machine stood still: programs of all kinds wait then, also those that are no link.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long the watch sleeps.
const NAP: Duration = Duration::from_millis(50);
/// Sleeping longer than this, beyond a nap, is worth remembering.
const PAUSE: Duration = Duration::from_millis(100);

/// A thread that wakes up often and remembers when it could not.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When pauses ended, and how long they were.
    pauses: Arc<Mutex<Vec<(Instant, Duration)>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let (pauses, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (remembered, end) = (Arc::clone(&pauses), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(NAP);
                let pause = asleep.elapsed().saturating_sub(NAP);
                if pause > PAUSE {
                    remembered.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), pause));
                }
            }
        });
        Self { pauses, ended, thread: Some(thread) }
    }

    /// The longest pause since `begin`.
    pub(crate) fn longest(&self, begin: Instant) -> Duration {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.iter().filter(|(end, _)| *end >= begin).map(|(_, pause)| *pause).max().unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
