//! How far a run is: counters that whoever copies advances and whoever watches reads.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Counters that transfers advance and the bar and the timeouts read.
#[derive(Debug, Default)]
pub struct Activity {
    /// File bytes accepted at their destination.
    bytes: AtomicU64,
    /// File bytes that are to be copied, as far as known.
    expected_bytes: AtomicU64,
    files: AtomicU64,
    expected_files: AtomicU64,
    /// Directory entries and other calls that got somewhere.
    steps: AtomicU64,
    mounted: AtomicBool,
    /// Bytes of these files that interrupted runs have copied.
    present_bytes: AtomicU64,
    /// What is being done with which file.
    current: Mutex<Option<String>>,
    /// Files that are being compared with their sources.
    verifying: AtomicUsize,
}

/// A file that is being compared with its source, until this is dropped.
#[derive(Debug)]
pub struct Verifying<'a>(&'a AtomicUsize);

impl Drop for Verifying<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Activity {
    /// Counts file bytes.
    pub fn add_bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Relaxed);
    }

    /// Counts a file that will be copied.
    pub fn expect(&self, bytes: u64) {
        self.expected_files.fetch_add(1, Relaxed);
        self.expected_bytes.fetch_add(bytes, Relaxed);
    }

    /// Forgets what was to be copied, and what of it is done: that was a dry run.
    pub fn plan_again(&self) {
        self.step();
        for counter in
            [&self.bytes, &self.expected_bytes, &self.files, &self.expected_files, &self.present_bytes]
        {
            counter.store(0, Relaxed);
        }
    }

    /// Notes what is being done now.
    pub fn set_current(&self, text: String) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Notes that a file is being compared with its source.
    pub fn verify(&self) -> Verifying<'_> {
        self.verifying.fetch_add(1, Relaxed);
        Verifying(&self.verifying)
    }

    /// Counts a finished file.
    pub fn file_done(&self) {
        self.files.fetch_add(1, Relaxed);
    }

    /// Counts anything else that got somewhere: a directory entry, a created name.
    pub fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    /// Notes that a server let us mount.
    pub fn set_mounted(&self) {
        self.mounted.store(true, Relaxed);
        self.step();
    }

    /// Whether any server let us mount.
    pub fn mounted(&self) -> bool {
        self.mounted.load(Relaxed)
    }

    /// Returns the file bytes moved so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the file bytes that are to be moved, as far as known.
    pub fn expected_bytes(&self) -> u64 {
        self.expected_bytes.load(Relaxed)
    }

    /// Returns the bytes of these files that interrupted runs have copied.
    pub fn present_bytes(&self) -> u64 {
        self.present_bytes.load(Relaxed)
    }

    /// Returns the files that are done, and the files in all as far as known.
    pub fn files(&self) -> (u64, u64) {
        (self.files.load(Relaxed), self.expected_files.load(Relaxed))
    }

    /// Whether files are being compared with their sources.
    pub fn is_verifying(&self) -> bool {
        self.verifying.load(Relaxed) > 0
    }

    /// Returns what is being done with which file.
    pub fn current(&self) -> Option<String> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a number that changes with every progress.
    pub fn mark(&self) -> u64 {
        let files = self.files.load(Relaxed);
        self.bytes().wrapping_add(self.steps.load(Relaxed)).wrapping_add(files)
    }
}

/// One file's part in what is to be copied. It is known again whenever a copy begins, and whatever becomes of the file, no more is
/// taken back than was counted.
#[derive(Debug)]
pub struct Share {
    activity: Arc<Activity>,
    /// Bytes of this file that the activity expects, those that were copied in vain among them.
    expected: Cell<u64>,
    /// Bytes that were copied, and how many of them before the copy that is under way.
    copied: Arc<AtomicU64>,
    before: Cell<u64>,
    was_resumed: Cell<bool>,
}

impl Share {
    /// Takes over a file for which `expected` bytes were counted with [`Activity::expect`].
    pub fn new(activity: &Arc<Activity>, expected: u64) -> Self {
        Self {
            activity: Arc::clone(activity),
            expected: Cell::new(expected),
            copied: Arc::default(),
            before: Cell::default(),
            was_resumed: Cell::default(),
        }
    }

    /// Begins a copy of so many bytes.
    pub fn begin(&self, bytes: u64) {
        self.before.set(self.copied.load(Relaxed));
        self.set(self.before.get().saturating_add(bytes));
    }

    /// Leaves out bytes that an earlier run has copied; whether these are the first of this file.
    pub fn resume(&self, bytes: u64) -> bool {
        self.leave_out(bytes);
        self.activity.present_bytes.fetch_add(bytes, Relaxed);
        !self.was_resumed.replace(true)
    }

    /// Leaves out bytes that need not be copied.
    pub fn leave_out(&self, bytes: u64) {
        let least = self.before.get();
        self.set(self.expected.get().saturating_sub(bytes).max(least));
        self.activity.step();
    }

    /// Returns how many bytes of this file are left to copy.
    pub fn remaining(&self) -> u64 {
        self.expected.get().saturating_sub(self.copied.load(Relaxed))
    }

    /// Returns what to hand to a transfer so that it counts its bytes here.
    pub fn observer(&self) -> Arc<dyn Fn(u64) + Send + Sync> {
        let (activity, copied) = (Arc::clone(&self.activity), Arc::clone(&self.copied));
        Arc::new(move |bytes| {
            copied.fetch_add(bytes, Relaxed);
            activity.add_bytes(bytes);
        })
    }

    fn set(&self, expected: u64) {
        let change = expected.wrapping_sub(self.expected.replace(expected));
        // What is taken back was counted by this share before, so the sum of all shares never wraps.
        self.activity.expected_bytes.fetch_add(change, Relaxed);
    }
}

/// What the link looks like at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkState {
    /// Replies of any kind so far.
    pub replies: u64,
    /// Calls sent again so far.
    pub resends: u64,
    /// Calls sent so far.
    pub calls: u64,
    /// Calls that wait for a reply now.
    pub outstanding: usize,
    /// Median round trip.
    pub rtt: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_becomes_of_files_what_is_expected_of_them_never_wraps() {
        let activity = Arc::<Activity>::default();
        let expected = || activity.expected_bytes();
        // A link counts no bytes, whatever its own size.
        activity.expect(0);
        Share::new(&activity, 0).leave_out(17);
        assert_eq!(expected(), 0);
        // A file grows between the listing and its copy, which finds most of it there, and is begun again twice, with more there.
        activity.expect(100);
        let share = Share::new(&activity, 100);
        let observer = share.observer();
        for (had, copied) in [(120, 10), (130, 5), (135, 15)] {
            share.begin(150);
            share.leave_out(had);
            observer(copied);
        }
        assert_eq!((expected(), activity.bytes()), (30, 30));
        // It changes, and is copied from the beginning.
        share.begin(40);
        assert_eq!(expected(), 70);
        observer(40);
        assert_eq!((expected(), activity.bytes()), (70, 70));
        // More is left out than there is.
        share.leave_out(1000);
        assert_eq!(expected(), 30);
    }
}
