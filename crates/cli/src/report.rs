//! What a run tells its user: lines on standard output, messages on standard error, the verdict at the end.

mod copies;

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    io::{self, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};

use self::copies::Tally;
use crate::{
    advice::{explain, word},
    args::OutputArgs,
    color::Style,
    event::Skip,
    exit::{Exit, Failure},
    hang::while_others_take_their_time,
    local::close_copy,
    log::Log,
    outcome::Outcome,
    progress::{Activity, Line, Progress},
    schema,
    summary::Summary,
    text::{for_people, json_line, shell_quote},
};

/// Columns of a message behind `nfsw: `: names are cut in their middle until it has no more, if that is enough.
const MESSAGE_COLUMNS: usize = 194;

/// Different things that are said of files and whose files are counted, at most: beyond, every line is printed.
const MOST_CAUSES: usize = 1000;

/// What goes without saying until the end of a run.
#[derive(Debug, Default)]
struct Unsaid {
    count: u64,
    style: Style,
    /// The last line.
    line: String,
}

/// Prints for the whole run. Nothing else writes to standard output or standard error.
#[derive(Debug)]
pub(crate) struct Reporter {
    json: bool,
    stats: bool,
    quiet: bool,
    /// Whether anything was written to standard output.
    has_printed: Cell<bool>,
    verbose: bool,
    /// Whether standard error has colours.
    color: bool,
    log: OnceCell<Log>,
    /// Whether what is done is named.
    names: bool,
    /// Whether the command does more than to print.
    changes: bool,
    /// Whether the command copies files, so that there is progress to be told.
    is_copy: bool,
    /// Whether `-v` names every file.
    may_be_verbose: bool,
    /// Standard output takes nothing any more.
    is_mute: Cell<bool>,
    started: Instant,
    progress: RefCell<Option<Progress>>,
    /// What a sync has done.
    sync: Cell<Option<Tally>>,
    /// Whether a copy is a dry run.
    is_planned: Cell<bool>,
    /// Whether there is a closing line also where there is no bar.
    closes: Cell<bool>,
    outcome: RefCell<Outcome>,
    warned: RefCell<BTreeSet<String>>,
    /// Files of which something was not said, for it was said of another one before, by what it is.
    unsaid: RefCell<BTreeMap<String, Unsaid>>,
    activity: Arc<Activity>,
}

impl Reporter {
    /// Creates a reporter that prints errors and warnings, and JSON if asked.
    pub(crate) fn new(output: &OutputArgs, started: Instant) -> Self {
        Self {
            json: output.json,
            stats: output.stats,
            quiet: false,
            has_printed: Cell::default(),
            verbose: false,
            color: output.color.shows(io::stderr().is_terminal()),
            log: OnceCell::new(),
            names: false,
            changes: false,
            is_copy: false,
            may_be_verbose: false,
            is_mute: Cell::default(),
            started,
            progress: RefCell::default(),
            sync: Cell::default(),
            is_planned: Cell::default(),
            closes: Cell::default(),
            outcome: RefCell::default(),
            warned: RefCell::default(),
            unsaid: RefCell::default(),
            activity: Arc::default(),
        }
    }

    /// Sets how much is said beyond errors.
    pub(crate) fn with_verbosity(self, verbose: bool, quiet: bool) -> Self {
        Self { verbose, quiet, names: verbose, is_copy: true, may_be_verbose: true, ..self }
    }

    /// Says that the command does more than to print, so that it goes on when standard output takes nothing any more;
    /// `names` says whether it names what it does.
    pub(crate) fn that_changes(self, names: bool) -> Self {
        Self { changes: true, names, may_be_verbose: true, ..self }
    }

    /// Returns the counters of what was done.
    pub(crate) const fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Whether standard output carries JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Shows a progress bar from now on; messages appear above it.
    pub(crate) fn show_progress(&self, progress: Progress) {
        *self.progress.borrow_mut() = Some(progress);
    }

    /// Writes to a file from now on what is done and said.
    pub(crate) fn log_to(&self, log: Log) {
        let line: Vec<_> = std::env::args_os().map(|word| shell_quote(word.as_bytes())).collect();
        let log = self.log.get_or_init(|| log);
        if let Err(error) = log.line(line.join(" ")) {
            self.cannot_log(&error);
        }
    }

    /// Writes a line to the file of `--log-file`.
    fn log(&self, text: impl Display) {
        if let Some(log) = self.log.get()
            && let Err(error) = log.line(text)
        {
            self.cannot_log(&error);
        }
    }

    fn cannot_log(&self, error: &io::Error) {
        let text = format!("--log-file: {}", crate::error::io_text(error));
        if self.warned.borrow_mut().insert(text.clone()) {
            self.tell(Style::Warning, &text);
            self.outcome.borrow_mut().set_unprinted();
        }
    }

    /// Redraws the bar; false when there is none.
    pub(crate) fn show(&self, line: impl FnOnce((usize, bool)) -> Line) -> bool {
        match &*self.progress.borrow() {
            Some(progress) => {
                while_others_take_their_time(|| progress.show(line));
                true
            }
            None => false,
        }
    }

    /// Writes text, complete lines, to standard output.
    ///
    /// # Errors
    /// None if the command changes something: then it is said once, and no more is written. Otherwise a quiet one when nobody reads
    /// any more, a local one when it cannot be written.
    pub(crate) fn print(&self, text: &[u8]) -> anyhow::Result<()> {
        if self.is_mute.get() {
            return Ok(());
        }
        match self.above_progress(|| io::stdout().lock().write_all(text)) {
            Ok(()) => {
                self.has_printed.set(true);
                Ok(())
            }
            Err(error) => self.not_printed(error),
        }
    }

    /// As [`Reporter::print`], of what could not be written.
    fn not_printed(&self, error: io::Error) -> anyhow::Result<()> {
        if !self.changes {
            return Err(stdout_error(error));
        }
        self.is_mute.set(true);
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.note("standard output was closed; what was asked for is done all the same");
        } else {
            self.note(stdout_error(error));
            self.outcome.borrow_mut().set_unprinted();
        }
        Ok(())
    }

    /// Writes an event when standard output carries JSON.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn event(&self, event: &Value) -> anyhow::Result<()> {
        if !self.json {
            return Ok(());
        }
        debug_assert_eq!(schema::check(event), Ok(()), "{event}");
        self.print(json_line(event).as_bytes())
    }

    /// Says how far a copy is, to programs.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn progress(&self, event: impl FnOnce() -> Value) -> anyhow::Result<()> {
        if self.json && self.is_copy { self.event(&event()) } else { Ok(()) }
    }

    /// Says that something is done, and counts it.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn done(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        self.count_done();
        self.named(text, event)
    }

    /// Counts something that is done and goes without saying.
    fn count_done(&self) {
        self.outcome.borrow_mut().add_done();
    }

    /// Says that there is a directory to copy into, and counts it.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    fn entered(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        self.outcome.borrow_mut().add_directory();
        self.named(text, event)
    }

    /// Says that a file is left as it is, and counts it.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    pub(crate) fn skipped(&self, text: impl Display, event: &Value, reason: Skip) -> anyhow::Result<()> {
        self.outcome.borrow_mut().add_skipped(reason);
        self.named(text, event)
    }

    /// Counts a file that was left as it is, and says that to programs only.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    fn passed_over(&self, event: &Value, reason: Skip) -> anyhow::Result<()> {
        self.outcome.borrow_mut().add_skipped(reason);
        self.event(event)
    }

    /// Says that a newer file was kept, which is a failure of the run; errors are those of [`Reporter::print`].
    fn kept(&self, line: &str, event: &Value) -> anyhow::Result<()> {
        self.log(line);
        self.tell_once_of_many(Style::Error, line);
        self.passed_over(event, Skip::Newer)
    }

    /// Says that something was deleted, and counts it.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    fn deleted(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        self.outcome.borrow_mut().add_deleted();
        self.activity.step();
        self.named(text, event)
    }

    /// Says on standard error how an option was understood, to people who watch or want to know more.
    pub(crate) fn understood(&self, text: impl Display) {
        if (self.verbose || io::stderr().is_terminal()) && !self.quiet && !self.json {
            self.note(text);
        }
    }

    /// Says what would be done, and what failed while that was found out.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    fn tell_planned(&self, totals: &str) -> anyhow::Result<()> {
        self.print(format!("dry run: {totals}{}\n", self.outcome.borrow().of_sync()).as_bytes())
    }

    /// Says what would be done to one file.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    fn would(&self, text: impl Display) -> anyhow::Result<()> {
        self.log(&text);
        self.print(format!("{text}\n").as_bytes())
    }

    /// Counts a file whose copy goes on with what is there, and says so.
    ///
    /// # Errors
    /// As [`Reporter::print`].
    fn resumed(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        self.outcome.borrow_mut().add_resumed();
        self.remark(text, event)
    }

    /// Counts a copy that was found equal to its source.
    fn verified(&self) {
        self.outcome.borrow_mut().add_verified();
    }

    fn named(&self, text: impl Display, event: &Value) -> anyhow::Result<()> {
        if self.log.get().is_some() {
            self.log(&text);
        }
        if self.json {
            self.event(event)
        } else if self.names {
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
        self.say(Style::Plain, text, !self.quiet && !self.json);
        self.event(event)
    }

    /// Whether warnings are said.
    pub(crate) fn tells(&self) -> bool {
        !self.quiet
    }

    /// Says on standard error what the user should know; it does not change the verdict.
    pub(crate) fn warning(&self, text: impl Display) {
        self.say(Style::Warning, &text, !self.quiet);
        // A reader who left is noticed at the next line that matters.
        let _ = self.event(&json!({"event": "warning", "message": text.to_string()}));
    }

    /// As [`Reporter::warning`], about a file among many: what is said of one is not said of the others, which are counted.
    fn warning_of(&self, line: &str) {
        self.log(line);
        if !self.quiet {
            self.tell_once_of_many(Style::Warning, line);
        }
        let _ = self.event(&json!({"event": "warning", "message": line}));
    }

    /// As [`Reporter::warning`], but the same words are said only once.
    pub(crate) fn warning_once(&self, text: &str) {
        if self.warned.borrow_mut().insert(text.to_owned()) {
            self.warning(text);
        }
    }

    /// Says on standard error what the curious like to know, the same words only once.
    pub(crate) fn detail(&self, text: String) {
        if self.verbose && !self.json && self.warned.borrow_mut().insert(text.clone()) {
            self.note(text);
        }
    }

    /// Says on standard error what failed, and goes on.
    ///
    /// # Errors
    /// Hands the error back when the run cannot go on after it.
    pub(crate) fn failed(&self, error: impl Into<anyhow::Error>) -> anyhow::Result<()> {
        let error = error.into();
        let exit = Exit::of(error.as_ref());
        if matches!(exit, Exit::Done | Exit::GaveUp | Exit::Interrupted | Exit::Unreachable) {
            return Err(error);
        }
        self.error(error.as_ref(), exit, true);
        Ok(())
    }

    /// Prints a line about a file, unless the same was said of another one: that is counted, and the number said at the end.
    fn tell_once_of_many(&self, style: Style, line: &str) {
        // A local name that has a colon itself is a cause of its own, which is said, too.
        let counts = self.may_be_verbose && !self.names;
        let Some((_, cause)) = line.split_once(": ").filter(|_| counts) else {
            return self.tell(style, line);
        };
        let mut unsaid = self.unsaid.borrow_mut();
        if let Some(unsaid) = unsaid.get_mut(cause) {
            unsaid.count += 1;
            line.clone_into(&mut unsaid.line);
            return;
        }
        if unsaid.len() < MOST_CAUSES {
            unsaid.insert(cause.to_owned(), Unsaid { style, ..Unsaid::default() });
        }
        drop(unsaid);
        self.tell(style, line);
    }

    /// Says of how many files the same could have been said.
    fn say_unsaid(&self) {
        for (cause, Unsaid { count, style, line }) in std::mem::take(&mut *self.unsaid.borrow_mut()) {
            match count {
                0 => {}
                1 => self.tell(style, &line),
                count => self.tell(style, &format!("{count} more files: {cause} (-v names them)")),
            }
        }
    }

    /// Prints a line on standard error, not too long for a person.
    pub(crate) fn note(&self, text: impl Display) {
        self.say(Style::Plain, text, true);
    }

    /// Writes a line to the log, and prints it on standard error if it `is_shown`.
    fn say(&self, style: Style, text: impl Display, is_shown: bool) {
        let text = text.to_string();
        self.log(&text);
        if is_shown {
            self.tell(style, &text);
        }
    }

    /// Prints a line on standard error.
    fn tell(&self, style: Style, text: &str) {
        let name = style.paint("nfsw:", self.color);
        let text = for_people(text, MESSAGE_COLUMNS);
        self.above_progress(|| {
            let _ = writeln!(io::stderr(), "{name} {text}");
        });
    }

    /// Returns what was counted so far.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Value {
        self.outcome.borrow().to_json()
    }

    /// Whether anything failed so far.
    pub(crate) fn has_failures(&self) -> bool {
        self.outcome.borrow().has_failures()
    }

    /// Makes the run of a copy end with a line that says what became of the files, if the user `asked` for that or for every name.
    /// Where there is a bar, there is such a line anyway.
    fn tell_copies(&self, asked: bool) {
        self.closes.set(asked || self.verbose);
    }

    /// Takes the bar away, and says in its place what was done; `moved` says how much was moved.
    pub(crate) fn close(&self, is_done: bool, moved: &str) {
        let progress = self.progress.borrow_mut().take();
        let had_bar = progress.is_some();
        let is_alone = progress.is_some_and(Progress::end);
        self.say_unsaid();
        // What cannot be logged is counted, too.
        let outcome = self.outcome.borrow().clone();
        let is_worth_it =
            (is_done && !outcome.has_failures()) || outcome.has_done_anything() || self.activity.bytes() > 0;
        if !self.is_copy || !is_worth_it {
            return;
        }
        let files = match self.sync.get() {
            Some(tally) => format!("{tally}{}", outcome.of_sync()),
            None if self.closes.get() || had_bar || self.log.get().is_some() => outcome.of_copies(),
            None => return,
        };
        let line = format!("{files}; {moved}");
        self.log(&line);
        if self.quiet || self.json || is_alone {
            return;
        }
        if had_bar {
            // Standard error may have gone with its terminal.
            let _ = while_others_take_their_time(|| writeln!(io::stderr(), "{line}"));
        } else if self.closes.get() {
            self.tell(Style::Plain, &line);
        }
    }

    /// Ends the run: reports the error that ended it, prints the summary, and decides the exit status.
    pub(crate) fn finish(&self, result: anyhow::Result<()>, summary: &Summary) -> Exit {
        self.say_unsaid();
        if let Err(error) = result {
            let exit = Exit::of(error.as_ref());
            if exit != Exit::Done {
                self.error(error.as_ref(), exit, false);
            }
        }
        let outcome = self.outcome.borrow().clone();
        if self.verbose && !self.json {
            summary.links().into_iter().for_each(|link| self.note(link));
        }
        if self.stats {
            let text = summary.for_people(self.started.elapsed());
            let _ = while_others_take_their_time(|| write!(io::stderr(), "{text}"));
        }
        let _ = self.event(&summary.to_json(self.started.elapsed(), &outcome));
        // A full disk may be told only when the file is closed.
        if self.has_printed.get()
            && let Err(error) = while_others_take_their_time(|| close_copy(&io::stdout()))
            && let Err(error) = self.not_printed(error)
        {
            self.is_mute.set(true);
            self.error(error.as_ref(), Exit::LocalIo, false);
        }
        // The summary itself may have found standard output full.
        let exit = self.outcome.borrow().exit();
        self.log(format_args!("exit status {}", exit.code()));
        exit
    }

    /// Ends the run of a command that runs until it is told to end.
    pub(crate) fn end(&self, exit: Exit, summary: &Summary) -> Exit {
        if exit != Exit::Done {
            self.outcome.borrow_mut().add_failure(exit);
        }
        self.finish(Ok(()), summary)
    }

    fn error(&self, error: &(dyn std::error::Error + 'static), exit: Exit, is_one_of_many: bool) {
        let line = explain(error);
        self.log(&line);
        if is_one_of_many {
            self.tell_once_of_many(Style::Error, &line);
        } else {
            self.tell(Style::Error, &line);
        }
        self.outcome.borrow_mut().add_failure(exit);
        let _ = self.event(&error_event(exit, word(error), &line));
    }

    fn above_progress<T>(&self, print: impl FnOnce() -> T) -> T {
        while_others_take_their_time(|| match &*self.progress.borrow() {
            Some(progress) => progress.suspend(print),
            None => print(),
        })
    }
}

/// Returns the event that says what failed, in the words for people, which are never cut here.
pub(crate) fn error_event(exit: Exit, kind: &str, message: &str) -> Value {
    json!({"event": "error", "kind": kind, "message": message, "exit_code": exit.code()})
}

/// Returns an event about files, each under its key: the real name, and where that is not UTF-8 also all its bytes in hexadecimal
/// digits, under `KEY_bytes`.
pub(crate) fn event(kind: &str, names: &[(&str, &[u8])]) -> Value {
    let mut event = json!({"event": kind});
    for (key, name) in names {
        put_name(&mut event, key, name);
    }
    event
}

/// Adds a name to an event, as [`event`] does.
pub(crate) fn put_name(event: &mut Value, key: &str, name: &[u8]) {
    event[key] = String::from_utf8_lossy(name).into();
    if str::from_utf8(name).is_err() {
        event[format!("{key}_bytes")] = hex::encode(name).into();
    }
}

/// Writes text for people to standard output, for a command that does nothing else; that nobody reads on is no failure.
///
/// # Errors
/// A local one when it cannot be written.
pub(crate) fn print_all(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    match while_others_take_their_time(|| io::stdout().lock().write_all(text.as_ref())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(stdout_error(error)),
        _ => Ok(()),
    }
}

/// Turns a failed write to standard output into an error that ends the run.
pub(crate) fn stdout_error(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::with(Exit::Done, "standard output was closed");
    }
    Failure::with(Exit::LocalIo, format!("standard output: {}", crate::error::io_text(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_events_are_the_real_ones() {
        let event = event("copied", &[("source", "nas:/grö\n\\ße".as_bytes()), ("target", b"a\xff")]);
        assert_eq!(event["source"], "nas:/grö\n\\ße");
        assert_eq!(event.get("source_bytes"), None);
        assert_eq!(event["target"], "a\u{fffd}");
        assert_eq!(event["target_bytes"], "61ff");
    }
}
