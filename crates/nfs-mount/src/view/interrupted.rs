//! Requests of threads that are to die.

use std::{collections::BTreeSet, time::Instant};

use rustix::io::Errno;

use super::{Inner, View, Waiting};
use crate::kernel::is_interrupted;

impl View {
    /// Ends the requests of threads that are to die. The kernel tells only of the first signal, and of none that meets a thread while it
    /// waits for pages that are read ahead: so this is to be called again and again while somebody waits.
    pub(crate) fn end_interrupted(&self) {
        let threads: BTreeSet<u32> = {
            let inner = self.lock();
            let waiting = inner.waiting.values().chain(&inner.space.waiting);
            waiting.map(|waiting| waiting.asker.thread).collect()
        };
        // Without the lock: this reads files.
        let dying: BTreeSet<u32> = threads.into_iter().filter(|&thread| is_interrupted(thread)).collect();
        if !dying.is_empty() {
            self.lock().end(|waiting| dying.contains(&waiting.asker.thread));
        }
    }

    /// Records that a signal has arrived for the thread that waits for a request. It may be one that means nothing to a program which
    /// waits for a file: then the request goes on.
    pub(crate) fn interrupted(&self, unique: u64) {
        let thread = {
            let inner = self.lock();
            let mut waiting = inner.waiting.values().chain(&inner.space.waiting);
            waiting.find(|waiting| waiting.asker.unique == unique).map(|waiting| waiting.asker.thread)
        };
        // One that is not there is answered, or on its way: that is looked at soon.
        if thread.is_some_and(is_interrupted) {
            self.lock().end(|waiting| waiting.asker.unique == unique);
        }
    }
}

impl Inner {
    fn end(&mut self, is_over: impl Fn(&Waiting) -> bool) {
        let over: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| is_over(waiting)).map(|(&id, _)| id).collect();
        for operation in over {
            self.cache.abandon(Instant::now(), operation);
            if let Some(Waiting { reply, .. }) = self.waiting.remove(&operation) {
                reply.fail(Errno::INTR);
            }
        }
        for Waiting { reply, .. } in self.space.waiting.extract_if(.., |waiting| is_over(waiting)) {
            reply.fail(Errno::INTR);
        }
    }
}
