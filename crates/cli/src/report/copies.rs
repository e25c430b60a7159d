//! What a copy does, in words for people and as JSON for programs.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use super::{Reporter, event};
use nfs_files::Events;

use crate::{
    error::{Error, io_text},
    event::{Change, Event, Name, NotDone, Skip, Warning, What, says_incomplete},
    exit::{Exit, Failure},
    outcome::{skip_name, skip_words},
    text::escape,
    units,
};

/// What a sync has done, or would do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    is_planned: bool,
    new: u64,
    changed: u64,
    deleted: u64,
    unchanged: u64,
    bytes: u64,
}

impl Tally {
    fn count(&mut self, event: &Event<'_>) {
        match event {
            Event::Copied { what, bytes, change: Some((_, change)), .. } => {
                let is_new = matches!(change, Change::New | Change::Link);
                *(if is_new { &mut self.new } else { &mut self.changed }) += 1;
                if change.moves_bytes() && *what == What::File {
                    self.bytes += bytes;
                }
            }
            Event::Skipped { reason: Skip::Unchanged, .. } => self.unchanged += 1,
            Event::Deleted { .. } => self.deleted += 1,
            _ => {}
        }
    }

    fn to_json(self) -> Value {
        let Self { is_planned, new, changed, deleted, unchanged, bytes } = self;
        json!({
            "event": "totals", "dry_run": is_planned, "new": new, "changed": changed,
            "deleted": deleted, "unchanged": unchanged, "bytes": bytes,
        })
    }
}

impl Display for Tally {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { is_planned, new, changed, deleted, unchanged, bytes } = self;
        let size = units::bytes(*bytes);
        match is_planned {
            true => write!(
                out,
                "would create {new} and update {changed} ({size}), delete {deleted}; {unchanged} unchanged"
            ),
            false => {
                write!(
                    out,
                    "{new} new and {changed} changed ({size}), {deleted} deleted, {unchanged} unchanged"
                )
            }
        }
    }
}

/// The line that says what happens to one file.
struct Line<'a> {
    event: &'a Event<'a>,
    is_sync: bool,
    is_planned: bool,
}

impl Display for Line<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (sync, planned) = (self.is_sync, self.is_planned);
        match self.event {
            Event::Copied { what, bytes, change: Some((path, change)), .. } if sync => {
                let (what, bytes, change) = (*what, *bytes, *change);
                Synced { what, bytes, path, change, is_planned: planned }.fmt(out)
            }
            Event::Copied { source, target, .. } => {
                let would = if planned { "would copy " } else { "" };
                write!(out, "{would}{} -> {}", source.shown, target.shown)
            }
            Event::Skipped { target, reason, .. } => {
                write!(out, "{}: skipped: it {}", target.shown, skip_words(*reason))
            }
            Event::KeptNewer { target, may_be_same, .. } => {
                let compare = if *may_be_same { "--checksum compares the contents, " } else { "" };
                write!(
                    out,
                    "{}: kept, it is newer than its source ({compare}--force replaces it, --update skips it)",
                    target.shown
                )
            }
            Event::Resumed { target, bytes, size, .. } => {
                let (done, size) = (units::bytes(*bytes), units::bytes(*size));
                write!(out, "{}: resuming after {done} of {size}", target.shown)
            }
            Event::Deleted { path, is_directory, .. } => {
                let words = if planned { "would delete" } else { "deleted " };
                write!(out, "{words} {}{}", escape(path), if *is_directory { "/" } else { "" })
            }
            Event::Planned { .. }
            | Event::Written
            | Event::Verified
            | Event::Differs { .. }
            | Event::Failed(_)
            | Event::Warning(_)
            | Event::Done { .. } => Ok(()),
        }
    }
}

/// What a sync does to one file of its destination.
struct Synced<'a> {
    what: What,
    bytes: u64,
    path: &'a [u8],
    change: Change,
    is_planned: bool,
}

impl Display for Synced<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { what, bytes, path, change, is_planned } = *self;
        let is_new = match what {
            What::Directory => change != Change::Attributes,
            What::File | What::Link => matches!(change, Change::New | Change::Link),
        };
        let words = match (is_new, is_planned) {
            (true, true) => "would create",
            (true, false) => "new     ",
            (false, true) => "would update",
            (false, false) => "changed ",
        };
        let slash = if what == What::Directory { "/" } else { "" };
        write!(out, "{words} {}{slash}", escape(path))?;
        match (what, change) {
            (What::Directory, Change::Attributes) => out.write_str(" (mode)"),
            (What::Directory, _) => Ok(()),
            (What::File, Change::New) => write!(out, " ({})", units::bytes(bytes)),
            (_, Change::New) => Ok(()),
            (_, Change::Link) => out.write_str(" (hard link)"),
            (_, Change::Size(was)) => write!(out, " ({}, was {})", units::bytes(bytes), units::bytes(was)),
            (_, Change::Time) => out.write_str(" (time)"),
            (_, Change::Contents | Change::Replaced) => out.write_str(" (contents)"),
            (_, Change::Target) => out.write_str(" (link target)"),
            (_, Change::Kind) => out.write_str(" (kind)"),
            (_, Change::Attributes) => out.write_str(" (owner, mode or time only)"),
        }
    }
}

/// The reason in JSON for a copy.
const fn name(change: Change) -> &'static str {
    match change {
        Change::New => "new",
        Change::Replaced => "replaced",
        Change::Size(_) => "size",
        Change::Time => "time",
        Change::Contents => "contents",
        Change::Target => "target",
        Change::Kind => "kind",
        Change::Attributes => "attributes",
        Change::Link => "hard_link",
    }
}

fn of_two(kind: &str, source: &Name, target: &Name) -> Value {
    event(kind, &[("source", &source.bytes), ("target", &target.bytes)])
}

impl Events for Reporter {
    fn tell(&self, event: &Event<'_>) -> Result<(), Error> {
        self.say_event(event).map_err(stop)
    }
}

impl Reporter {
    /// Says what happens in a copy, and counts it.
    fn say_event(&self, event: &Event<'_>) -> anyhow::Result<()> {
        let sync = self.sync.get();
        let is_planned = self.is_planned.get();
        let line = Line { event, is_sync: sync.is_some(), is_planned };
        if let Some(mut tally) = sync {
            tally.count(event);
            self.sync.set(Some(tally));
        }
        match event {
            Event::Planned { is_sync, is_dry_run } => {
                self.is_planned.set(*is_dry_run);
                if *is_sync {
                    self.sync.set(Some(Tally { is_planned: *is_dry_run, ..Tally::default() }));
                    self.closes.set(!is_dry_run);
                }
                Ok(())
            }
            Event::Copied { .. } | Event::Deleted { .. } if is_planned && !self.json => self.would(line),
            Event::Copied { what: What::Directory, .. } => self.entered(&line, &self.value(event)),
            Event::Copied { .. } => self.done(&line, &self.value(event)),
            Event::Deleted { .. } => self.deleted(&line, &self.value(event)),
            Event::Written => {
                self.count_done();
                Ok(())
            }
            // A warning has said it to people, or it goes without saying.
            Event::Skipped {
                reason: reason @ (Skip::Special | Skip::Partial | Skip::LeadsOut | Skip::Unchanged),
                ..
            } => self.passed_over(&self.value(event), *reason),
            Event::Skipped { reason, .. } => self.skipped(&line, &self.value(event), *reason),
            Event::KeptNewer { .. } => self.kept(&line.to_string(), &self.value(event)),
            Event::Resumed { .. } => self.resumed(&line, &self.value(event)),
            Event::Verified => {
                self.verified();
                Ok(())
            }
            Event::Differs { .. } => self.event(&self.value(event)),
            Event::Failed(error) => {
                self.error(*error, Exit::of(*error), true);
                Ok(())
            }
            Event::Warning(warning) => {
                self.warn(warning);
                Ok(())
            }
            Event::Done { is_verified } => match self.sync.get() {
                Some(tally) if self.json => self.event(&tally.to_json()),
                Some(tally) if is_planned => self.tell_planned(&tally.to_string()),
                Some(_) => Ok(()),
                None => {
                    self.tell_copies(*is_verified);
                    Ok(())
                }
            },
        }
    }

    /// Returns an event for programs.
    fn value(&self, happened: &Event<'_>) -> Value {
        let mut value = match happened {
            Event::Copied { what, source, target, bytes, change } => {
                let kind = match what {
                    What::File => "file",
                    What::Directory => "directory",
                    What::Link => "link",
                };
                let mut value = of_two(kind, source, target);
                value["bytes"] = (*bytes).into();
                if let Some((_, change)) = change.filter(|_| self.sync.get().is_some()) {
                    value["change"] = name(change).into();
                }
                value
            }
            Event::Skipped { source, target, .. } | Event::KeptNewer { source, target, .. } => {
                let reason = if let Event::Skipped { reason, .. } = happened { *reason } else { Skip::Newer };
                let mut value = of_two("skipped", source, target);
                value["reason"] = skip_name(reason).into();
                return value;
            }
            Event::Resumed { source, target, bytes, .. } => {
                let mut value = of_two("resumed", source, target);
                value["bytes"] = (*bytes).into();
                return value;
            }
            Event::Differs { source, target, ranges } => {
                let pairs: Vec<_> = ranges.iter().map(|range| [range.start, range.end]).collect();
                let mut value = of_two("differs", source, target);
                value["ranges"] = json!(pairs);
                return value;
            }
            Event::Deleted { target, .. } => event("deleted", &[("path", &target.bytes)]),
            Event::Planned { .. }
            | Event::Written
            | Event::Verified
            | Event::Failed(_)
            | Event::Warning(_)
            | Event::Done { .. } => Value::Null,
        };
        if self.is_planned.get() {
            value["dry_run"] = true.into();
        }
        value
    }

    /// Says it once, of one file among many, or as it is.
    fn warn(&self, warning: &Warning<'_>) {
        match warning {
            Warning::Option(_)
            | Warning::NotKept(_)
            | Warning::SetIdNotKept(_)
            | Warning::NotResumable(_)
            | Warning::NotResumableBesideAnother
            | Warning::JournalIsTaken(_)
            | Warning::LostUpload { .. }
            | Warning::IdentificationsWrap
            | Warning::Changed(_) => self.warning_once(&Said(warning).to_string()),
            Warning::Grew(..) | Warning::Special(..) | Warning::Left(_) | Warning::LeadsOut(_) => {
                self.warning_of(&Said(warning).to_string());
            }
            Warning::OtherSize { .. } | Warning::Marker(_) | Warning::NothingDeleted { .. } => {
                self.warning(Said(warning));
            }
        }
    }
}

/// What the user should know, in words.
struct Said<'a>(&'a Warning<'a>);

impl Display for Said<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Warning::Option(what) => out.write_str(what),
            Warning::NotKept(why) => write!(out, "the destination does not keep modes or times: {why}"),
            Warning::SetIdNotKept(server) => {
                write!(out, "{server}: set-user-ID and set-group-ID bits are not kept")
            }
            Warning::NotResumable(error) => write!(
                out,
                "if this run is interrupted, it cannot be resumed: nothing can be kept in $XDG_STATE_HOME or \
                 ~/.local/state: {}",
                io_text(error)
            ),
            Warning::NotResumableBesideAnother => out.write_str(
                "if this run is interrupted, it cannot be resumed: another nfsw is copying there",
            ),
            Warning::JournalIsTaken(journal) => write!(
                out,
                "if this run is interrupted, it cannot be resumed: {} is not a file of this user",
                journal.shown
            ),
            Warning::LostUpload { target } => write!(
                out,
                "{}: the server does not have what an earlier run sent, so it is copied from the beginning",
                target.shown
            ),
            Warning::IdentificationsWrap => out.write_str(
                "datagrams are fragmented faster than their identifications last (RFC 4963), so every copy is read again and \
                 compared; --transport tcp or --block-size auto needs none of that",
            ),
            Warning::OtherSize { source, target } => write!(
                out,
                "{}: kept, it has the time of {} but another size (without -u it is replaced)",
                target.shown, source.shown
            ),
            Warning::Changed(file) => {
                write!(out, "{}: changed since its copy was begun; copied again", file.shown)
            }
            Warning::Grew(file, bytes) => write!(
                out,
                "{}: grew while it was copied; the copy has the {} that were there when it was begun",
                file.shown,
                units::bytes(*bytes)
            ),
            Warning::Special(file, what) => write!(out, "{}: skipped, it is a {what}", file.shown),
            Warning::Left(file) => write!(out, "{}: skipped: it {}", file.shown, skip_words(Skip::Partial)),
            Warning::LeadsOut(file) => {
                write!(out, "{}: skipped: it {} (-L copies what it stands for)", file.shown, skip_words(Skip::LeadsOut))
            }
            Warning::Marker(file) => out.write_str(&says_incomplete(file)),
            Warning::NothingDeleted { is_rest, why } => {
                let other = if *is_rest { "nothing else" } else { "nothing" };
                let what = match why {
                    NotDone::Copying => "copied",
                    NotDone::Listing => "listed",
                };
                write!(out, "{other} is deleted, as not everything could be {what}")
            }
        }
    }
}

/// Stops a copy, as nothing can be printed any more.
fn stop(error: anyhow::Error) -> Error {
    match error.downcast::<Failure>() {
        Ok(failure) => Error::stopped(failure),
        Err(error) => Error::other(error.to_string()),
    }
}
