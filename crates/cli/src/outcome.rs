//! What a run has done, and the exit status that follows from it.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::{event::Skip, exit::Exit};

/// What became of everything that a run was asked for. The exit status is computed from this and from nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Files and links that were copied, or files that were removed, moved or changed, or directories that were asked for.
    done: u64,
    /// Directories that a copy made or entered.
    directories: u64,
    /// Copies that went on with what an earlier run had left.
    resumed: u64,
    /// Copies that were read again and are equal to their sources.
    verified: u64,
    /// Files and directories that a sync has deleted.
    deleted: u64,
    skipped: BTreeMap<Skip, u64>,
    failed: BTreeMap<Exit, u64>,
    /// Standard output could not take everything.
    is_unprinted: bool,
}

/// All reasons.
const SKIPS: [Skip; 8] = [
    Skip::Complete,
    Skip::Exists,
    Skip::NotOlder,
    Skip::Newer,
    Skip::Unchanged,
    Skip::Special,
    Skip::Partial,
    Skip::LeadsOut,
];

/// Returns the word for a reason in JSON.
pub(crate) const fn skip_name(reason: Skip) -> &'static str {
    match reason {
        Skip::Complete => "complete",
        Skip::Exists => "exists",
        Skip::NotOlder => "not_older",
        Skip::Newer => "newer",
        Skip::Unchanged => "unchanged",
        Skip::Special => "special",
        Skip::Partial => "partial",
        Skip::LeadsOut => "leads_out",
    }
}

/// Returns the words for a reason, for people.
pub(crate) const fn skip_words(reason: Skip) -> &'static str {
    match reason {
        Skip::Complete => "was copied by the interrupted run",
        Skip::Exists => "exists",
        Skip::NotOlder => "is not older than its source",
        Skip::Newer => "is newer than its source",
        Skip::Unchanged => "is as its source",
        Skip::Special => "is a special file",
        Skip::Partial => "is left of an interrupted copy of the file beside it",
        Skip::LeadsOut => "is a link in a share that leads out of what is copied",
    }
}

/// Returns the words that follow the number of such files.
const fn skip_counted(reason: Skip) -> &'static str {
    match reason {
        Skip::Complete => "copied by an earlier run",
        Skip::Exists => "skipped (exists)",
        Skip::NotOlder => "skipped (not older)",
        Skip::Newer => "kept (newer)",
        Skip::Unchanged => "unchanged",
        Skip::Special => "skipped (special)",
        Skip::Partial => "skipped (partial)",
        Skip::LeadsOut => "skipped (leads out)",
    }
}

impl Outcome {
    /// What came of a command line that cannot be obeyed.
    pub(crate) fn of_failure(exit: Exit) -> Self {
        let mut outcome = Self::default();
        outcome.add_failure(exit);
        outcome
    }

    /// Counts what was copied, removed or changed.
    pub(crate) fn add_done(&mut self) {
        self.done += 1;
    }

    /// Counts a directory that copies go into.
    pub(crate) fn add_directory(&mut self) {
        self.directories += 1;
    }

    /// Counts a copy that goes on with what is there.
    pub(crate) fn add_resumed(&mut self) {
        self.resumed += 1;
    }

    /// Counts a copy that was found equal to its source.
    pub(crate) fn add_verified(&mut self) {
        self.verified += 1;
    }

    /// Counts what a sync has deleted.
    pub(crate) fn add_deleted(&mut self) {
        self.deleted += 1;
    }

    /// Counts a file that was left as it is.
    pub(crate) fn add_skipped(&mut self, reason: Skip) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Counts what failed.
    pub(crate) fn add_failure(&mut self, exit: Exit) {
        *self.failed.entry(exit).or_default() += 1;
    }

    /// Notes that standard output could not take what was to be printed: no failure of the work, but one.
    pub(crate) fn set_unprinted(&mut self) {
        self.is_unprinted = true;
    }

    /// Whether anything was copied, deleted or left as it is, or more than one thing failed.
    pub(crate) fn has_done_anything(&self) -> bool {
        self.done + self.deleted + self.skipped.values().sum::<u64>() > 0
            || self.failed.values().sum::<u64>() > 1
    }

    /// Whether anything of the work failed so far, or a newer file was kept.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failed.is_empty() || self.count(Skip::Newer) > 0
    }

    /// Returns the exit status. What ended the run outweighs all, failures of one kind keep their status, and where
    /// something succeeded or kinds differ, some files failed.
    pub(crate) fn exit(&self) -> Exit {
        let Some((&first, _)) = self.failed.first_key_value() else {
            return match (self.has_failures(), self.is_unprinted) {
                (true, _) => Exit::SomeFailed,
                (false, true) => Exit::LocalIo,
                (false, false) => Exit::Done,
            };
        };
        let ending = [Exit::Interrupted, Exit::GaveUp, Exit::Unreachable, Exit::Usage];
        if let Some(exit) = ending.into_iter().find(|exit| self.failed.contains_key(exit)) {
            return exit;
        }
        let succeeded = self.done > 0 || self.deleted > 0 || self.directories > 0 || !self.skipped.is_empty();
        let keeps_status =
            !succeeded || matches!(first, Exit::SourceMissing | Exit::Mismatch | Exit::LocalIo);
        if self.failed.len() == 1 && keeps_status { first } else { Exit::SomeFailed }
    }

    /// Returns the counts for JSON.
    pub(crate) fn to_json(&self) -> Value {
        let skipped: serde_json::Map<_, _> = SKIPS
            .map(|reason| (skip_name(reason).to_owned(), self.count(reason).into()))
            .into_iter()
            .collect();
        json!({
            "done": self.done,
            "skipped": skipped,
            "resumed": self.resumed,
            "verified": self.verified,
            "deleted": self.deleted,
            "failed": self.failed.values().sum::<u64>(),
        })
    }

    /// Returns what became of the files of a copy, for people: `800 files: 784 copied, 16 copied by an earlier run, 800 verified`.
    pub(crate) fn of_copies(&self) -> String {
        let failed = self.failed.values().sum::<u64>();
        // What failed was not counted as copied, and not as verified: a copy counts once it is known to be right.
        let all = self.done + self.skipped.values().sum::<u64>() + failed;
        let mut line = format!("{all} {}: {} copied", if all == 1 { "file" } else { "files" }, self.done);
        if self.resumed > 0 {
            let _ = write!(line, " ({} resumed)", self.resumed);
        }
        for (reason, count) in &self.skipped {
            let _ = write!(line, ", {count} {}", skip_counted(*reason));
        }
        line + &counts(&[(self.verified, "verified"), (failed, "failed")])
    }

    /// Returns what follows the totals of a sync, for people.
    pub(crate) fn of_sync(&self) -> String {
        let mut line = String::new();
        for (reason, count) in self.skipped.iter().filter(|(reason, _)| **reason != Skip::Unchanged) {
            let _ = write!(line, ", {count} {}", skip_counted(*reason));
        }
        let failed = self.failed.values().sum::<u64>();
        line + &counts(&[(self.resumed, "resumed"), (self.verified, "verified"), (failed, "failed")])
    }

    fn count(&self, reason: Skip) -> u64 {
        self.skipped.get(&reason).copied().unwrap_or(0)
    }
}

/// Words the counts that are not zero.
fn counts(counts: &[(u64, &str)]) -> String {
    counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!(", {count} {word}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(failures: &[Exit], succeeded: bool) -> Exit {
        let mut outcome = Outcome { done: succeeded.into(), ..Outcome::default() };
        failures.iter().for_each(|&exit| outcome.add_failure(exit));
        outcome.exit()
    }

    #[test]
    fn one_kind_of_failure_keeps_its_status() {
        assert_eq!(exit(&[], true), Exit::Done);
        assert_eq!(exit(&[Exit::SourceMissing], false), Exit::SourceMissing);
        assert_eq!(exit(&[Exit::SourceMissing, Exit::SourceMissing], true), Exit::SourceMissing);
        assert_eq!(exit(&[Exit::SourceMissing, Exit::SomeFailed], false), Exit::SomeFailed);
        assert_eq!(exit(&[Exit::Mismatch, Exit::LocalIo], true), Exit::SomeFailed);
    }

    #[test]
    fn what_ended_the_run_outweighs_single_files() {
        assert_eq!(exit(&[Exit::SomeFailed, Exit::GaveUp], true), Exit::GaveUp);
        assert_eq!(exit(&[Exit::LocalIo, Exit::Interrupted], true), Exit::Interrupted);
        assert_eq!(exit(&[Exit::SomeFailed, Exit::Unreachable], true), Exit::Unreachable);
    }

    #[test]
    fn everything_is_counted_once() {
        let mut outcome = Outcome::default();
        (0..3).for_each(|_| outcome.add_done());
        outcome.add_directory();
        outcome.add_resumed();
        (0..4).for_each(|_| outcome.add_verified());
        outcome.add_skipped(Skip::Complete);
        outcome.add_skipped(Skip::Special);
        outcome.add_failure(Exit::SomeFailed);
        let line = "6 files: 3 copied (1 resumed), 1 copied by an earlier run, 1 skipped (special), 4 verified, 1 failed";
        assert_eq!(outcome.of_copies(), line);
        assert_eq!(
            outcome.of_sync(),
            ", 1 copied by an earlier run, 1 skipped (special), 1 resumed, 4 verified, 1 failed"
        );
        let json = outcome.to_json();
        assert_eq!((&json["done"], &json["verified"], &json["failed"]), (&json!(3), &json!(4), &json!(1)));
        assert_eq!(
            json["skipped"],
            json!({"complete": 1, "exists": 0, "not_older": 0, "newer": 0, "unchanged": 0, "special": 1, "partial": 0, "leads_out": 0})
        );
    }

    #[test]
    fn a_newer_file_that_is_kept_fails_the_run() {
        let mut outcome = Outcome::default();
        outcome.add_done();
        assert_eq!((outcome.exit(), outcome.has_failures()), (Exit::Done, false));
        outcome.add_skipped(Skip::Newer);
        assert_eq!((outcome.exit(), outcome.has_failures()), (Exit::SomeFailed, true));
        assert_eq!(outcome.of_sync(), ", 1 kept (newer)");
        outcome.add_failure(Exit::Interrupted);
        assert_eq!(outcome.exit(), Exit::Interrupted);
    }
}
