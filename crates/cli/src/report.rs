//! What a run tells its user: lines on standard output, messages on standard error, the verdict at the end.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt::Display,
    io::{self, Write},
    time::Instant,
};

use serde_json::{Value, json};

use crate::{
    args::OutputArgs,
    error::explain,
    exit::{Exit, Failure},
    progress::Progress,
    summary::Summary,
};

/// Prints for the whole run. Nothing else writes to standard output or standard error.
#[derive(Debug)]
pub(crate) struct Reporter {
    json: bool,
    stats: bool,
    quiet: bool,
    verbose: bool,
    started: Instant,
    progress: RefCell<Option<Progress>>,
    failures: RefCell<Vec<Exit>>,
    succeeded: Cell<bool>,
    warned: RefCell<BTreeSet<String>>,
}

impl Reporter {
    /// Creates a reporter that prints errors and warnings, and JSON if asked.
    pub(crate) fn new(output: &OutputArgs, started: Instant) -> Self {
        Self {
            json: output.json,
            stats: output.stats,
            quiet: false,
            verbose: false,
            started,
            progress: RefCell::default(),
            failures: RefCell::default(),
            succeeded: Cell::default(),
            warned: RefCell::default(),
        }
    }

    /// Sets how much is said beyond errors.
    pub(crate) fn with_verbosity(self, verbose: bool, quiet: bool) -> Self {
        Self { verbose, quiet, ..self }
    }

    /// Whether standard output carries JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Shows a progress bar from now on; messages appear above it.
    pub(crate) fn show_progress(&self, progress: Progress) {
        *self.progress.borrow_mut() = Some(progress);
    }

    /// Takes the bar away, and leaves a line in its place.
    pub(crate) fn end_progress(&self, line: Option<String>) {
        if let Some(progress) = self.progress.borrow_mut().take() {
            progress.end(line);
        }
    }

    /// Draws the bar anew; false when there is none.
    pub(crate) fn show(&self, line: impl FnOnce() -> String) -> bool {
        match &*self.progress.borrow() {
            Some(progress) => {
                progress.show(line());
                true
            }
            None => false,
        }
    }

    /// Writes text, complete lines, to standard output.
    ///
    /// # Errors
    /// A quiet one when nobody reads any more, a local one when it cannot be written.
    pub(crate) fn print(&self, text: &[u8]) -> anyhow::Result<()> {
        self.above_progress(|| io::stdout().lock().write_all(text)).map_err(stdout_error)
    }

    /// Writes an event when standard output carries JSON.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn event(&self, event: &Value) -> anyhow::Result<()> {
        if self.json { self.print(format!("{event}\n").as_bytes()) } else { Ok(()) }
    }

    /// Says that something is done: an event, a line if verbose, and a success for the verdict.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn done(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        self.succeeded.set(true);
        if self.json {
            self.event(event)
        } else if self.verbose {
            self.print(format!("{text}\n").as_bytes())
        } else {
            Ok(())
        }
    }

    /// Says on standard error what the user may like to know, or as an event.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn remark(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        if !self.quiet && !self.json {
            self.note(text);
        }
        self.event(event)
    }

    /// Says on standard error what the user should know; it does not change the verdict.
    pub(crate) fn warning(&self, text: impl Display) {
        if !self.quiet {
            self.note(&text);
        }
        // A reader who left is noticed at the next line that matters.
        let _ = self.event(&json!({"event": "warning", "message": text.to_string()}));
    }

    /// As [`Reporter::warning`], but the same words are said only once.
    pub(crate) fn warning_once(&self, text: &str) {
        if self.warned.borrow_mut().insert(text.to_owned()) {
            self.warning(text);
        }
    }

    /// Says once that this run cannot be resumed, for its state cannot be written.
    pub(crate) fn keeps_nothing(&self, error: &io::Error) {
        self.warning_once(&format!(
            "an interrupted run will not be gone on with: nothing can be kept in $XDG_STATE_HOME or ~/.local/state: {}",
            crate::error::io_text(error)
        ));
    }

    /// Says on standard error what failed, and goes on.
    ///
    /// # Errors
    /// Hands the error back when the run cannot go on after it.
    pub(crate) fn failed(&self, error: anyhow::Error) -> anyhow::Result<()> {
        let exit = Exit::of(&error);
        if matches!(exit, Exit::Done | Exit::GaveUp | Exit::Interrupted | Exit::Unreachable) {
            return Err(error);
        }
        self.error(&error, exit);
        Ok(())
    }

    /// Prints a line on standard error, unadorned.
    pub(crate) fn note(&self, text: impl Display) {
        self.above_progress(|| {
            let _ = writeln!(io::stderr(), "nfsw: {text}");
        });
    }

    /// Whether anything failed so far.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.borrow().is_empty()
    }

    /// Ends the run: reports the error that ended it, prints the summary, and decides the exit status.
    pub(crate) fn finish(&self, result: anyhow::Result<()>, summary: &Summary) -> Exit {
        if let Err(error) = result {
            let exit = Exit::of(&error);
            if exit != Exit::Done {
                self.error(&error, exit);
            }
        }
        let exit = verdict(&self.failures.borrow(), self.succeeded.get());
        if self.verbose && !self.json {
            summary.links().into_iter().for_each(|link| self.note(link));
        }
        if self.stats {
            let _ = write!(io::stderr(), "{}", summary.for_people(self.started.elapsed()));
        }
        let _ = self.event(&summary.to_json(self.started.elapsed(), exit));
        exit
    }

    fn error(&self, error: &anyhow::Error, exit: Exit) {
        let message = explain(error);
        self.note(&message);
        let _ = self.event(&json!({"event": "error", "message": message, "exit_code": exit.code()}));
        self.failures.borrow_mut().push(exit);
    }

    fn above_progress<T>(&self, print: impl FnOnce() -> T) -> T {
        match &*self.progress.borrow() {
            Some(progress) => progress.suspend(print),
            None => print(),
        }
    }
}

/// Turns a failed write to standard output into an error that ends the run.
pub(crate) fn stdout_error(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::with(Exit::Done, "standard output was closed");
    }
    Failure::with(Exit::LocalIo, format!("standard output: {}", crate::error::io_text(&error)))
}

/// Decides between several failures: what ended the run outweighs all, failures of one kind keep their status,
/// and where something succeeded or kinds differ, some files failed.
fn verdict(failures: &[Exit], succeeded: bool) -> Exit {
    let Some(&first) = failures.first() else {
        return Exit::Done;
    };
    let ending = [Exit::Interrupted, Exit::GaveUp, Exit::Unreachable, Exit::Usage];
    if let Some(exit) = ending.into_iter().find(|exit| failures.contains(exit)) {
        return exit;
    }
    let alike = failures.iter().all(|&exit| exit == first);
    let keeps_status = !succeeded || matches!(first, Exit::SourceMissing | Exit::Mismatch | Exit::LocalIo);
    if alike && keeps_status { first } else { Exit::SomeFailed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_of_failure_keeps_its_status() {
        assert_eq!(verdict(&[], true), Exit::Done);
        assert_eq!(verdict(&[Exit::SourceMissing], false), Exit::SourceMissing);
        assert_eq!(verdict(&[Exit::SourceMissing, Exit::SourceMissing], true), Exit::SourceMissing);
        assert_eq!(verdict(&[Exit::SourceMissing, Exit::SomeFailed], false), Exit::SomeFailed);
        assert_eq!(verdict(&[Exit::Mismatch, Exit::LocalIo], true), Exit::SomeFailed);
    }

    #[test]
    fn what_ended_the_run_outweighs_single_files() {
        assert_eq!(verdict(&[Exit::SomeFailed, Exit::GaveUp], true), Exit::GaveUp);
        assert_eq!(verdict(&[Exit::LocalIo, Exit::Interrupted], true), Exit::Interrupted);
        assert_eq!(verdict(&[Exit::SomeFailed, Exit::Unreachable], true), Exit::Unreachable);
    }
}
