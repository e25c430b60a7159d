//! Files that are opened. Where a name leads to another file than the kernel believes, it is told, looks the name up and opens what is
//! there: the same open, which takes what the server said since its first try. Else a file that is replaced all the time could not be
//! opened.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nfs_cache::{NodeId, OperationId};

use super::{Asker, Inner, Reply, View, names::Entry};
use crate::kernel::Answer;

/// The kernel tries again at once.
const AGAIN: Duration = Duration::from_secs(1);

/// Opens that the kernel tries again, by thread: a thread opens one file at a time. `T` names the first try.
#[derive(Debug)]
pub(super) struct Retries<T = OperationId> {
    by_thread: BTreeMap<u32, Retry<T>>,
}

#[derive(Debug)]
struct Retry<T> {
    entry: Entry,
    first: T,
    failed: Instant,
}

impl<T> Default for Retries<T> {
    fn default() -> Self {
        Self { by_thread: BTreeMap::new() }
    }
}

impl<T> Retries<T> {
    /// Records that the first try has failed because its name leads elsewhere.
    fn expect(&mut self, thread: u32, entry: Entry, first: T, now: Instant) {
        self.by_thread.retain(|_, retry| now.saturating_duration_since(retry.failed) < AGAIN);
        // 0 is any thread of another PID namespace.
        if thread != 0 {
            self.by_thread.insert(thread, Retry { entry, first, failed: now });
        }
    }

    /// There is no second try: the name leads nowhere.
    fn give_up(&mut self, thread: u32, directory: NodeId, name: &[u8]) {
        let is_it = |retry: &Retry<T>| retry.entry.0 == directory && *retry.entry.1 == *name;
        if self.by_thread.get(&thread).is_some_and(is_it) {
            self.by_thread.remove(&thread);
        }
    }

    /// Returns the first try, if this is the second.
    fn take(&mut self, thread: u32, entry: &Entry, now: Instant) -> Option<T> {
        let retry = self.by_thread.remove(&thread)?;
        let is_it = retry.entry == *entry && now.saturating_duration_since(retry.failed) < AGAIN;
        is_it.then_some(retry.first)
    }
}

impl View {
    /// Opens what the kernel has found.
    pub(crate) fn open(&self, asker: Asker, named: NodeId, answer: Answer) {
        let mut inner = self.lock();
        let (node, entry) = (inner.other_names.meant(named), inner.entry(named));
        let first = entry.as_ref().and_then(|it| inner.retries.take(asker.thread, it, Instant::now()));
        drop(inner);
        let reply = Reply::Open { named, is_again: first.is_some(), answer };
        self.begin(asker, reply, |cache, now| match &entry {
            Some((directory, name)) if first.is_none() => cache.open_by(now, node, *directory, name),
            _ => cache.open_handle(now, node, first),
        });
    }
}

impl Inner {
    /// Records that the name of an open that the kernel wanted to try again leads nowhere.
    pub(super) fn expect_no_retry(&mut self, asker: Asker, directory: NodeId, name: &[u8]) {
        self.retries.give_up(asker.thread, directory, name);
    }

    /// Records that the kernel will try an open again.
    pub(super) fn expect_retry(&mut self, asker: Asker, named: NodeId, first: OperationId) {
        if let Some(entry) = self.entry(named) {
            self.retries.expect(asker.thread, entry, first, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_try_is_of_the_same_thread_and_name_soon_and_once() {
        let now = Instant::now();
        let entry = |name: &str| (NodeId::ROOT, name.as_bytes().into());
        let mut retries = Retries::default();
        for thread in 0..5 {
            retries.expect(thread, entry("a"), "first", now);
        }
        assert_eq!(retries.take(0, &entry("a"), now), None, "any thread");
        assert_eq!(retries.take(1, &entry("a"), now), Some("first"));
        assert_eq!(retries.take(1, &entry("a"), now), None, "once");
        retries.expect(6, entry("a"), "first", now);
        retries.give_up(6, NodeId::ROOT, b"b");
        retries.give_up(6, NodeId::ROOT, b"a");
        assert_eq!(retries.take(6, &entry("a"), now), None, "its name led nowhere: this is another open");
        assert_eq!(retries.take(2, &entry("b"), now), None, "another name");
        assert_eq!(retries.take(2, &entry("a"), now), None, "it has opened something else since");
        assert_eq!(retries.take(3, &entry("a"), now + AGAIN), None, "late");
        retries.expect(5, entry("a"), "first", now + AGAIN);
        assert_eq!(retries.by_thread.len(), 1, "what is late is forgotten");
    }
}
