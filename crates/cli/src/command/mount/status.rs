//! `nfsw mount --status`.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use jiff::{Timestamp, tz::TimeZone};
use nfs_mount::Snapshot;
use serde_json::Value;

use super::{
    line,
    socket::{Told, ask_all},
};
use crate::{
    args::OutputArgs,
    error::{io_text, show},
    exit::{Exit, Failure},
    report::{Reporter, event},
    summary::Summary,
    text::{escape, exact_time, full_time},
    units,
    url::Remote,
};

/// What does not change about a mount.
#[derive(Debug)]
pub(super) struct Identity {
    target: String,
    directory: PathBuf,
    since: SystemTime,
}

impl Identity {
    pub(super) fn new(target: &Remote, directory: &Path) -> Self {
        let since = SystemTime::now();
        Self { target: target.to_string(), directory: directory.to_owned(), since }
    }

    /// Returns the state of the mount as an event.
    pub(super) fn state(&self, snapshot: &Snapshot, now: Instant) -> Value {
        let stats = &snapshot.stats;
        let mut state = event("mounted", &[("directory", self.directory.as_os_str().as_bytes())]);
        state["target"] = self.target.as_str().into();
        state["pid"] = std::process::id().into();
        state["since"] = exact_time(Timestamp::try_from(self.since).unwrap_or_default()).into();
        state["link"] = snapshot.link.word().into();
        state["link_ns"] = units::nanoseconds(now.saturating_duration_since(snapshot.link_since)).into();
        state["operations"] = stats.operations.into();
        state["hits"] = stats.without_calls.into();
        state["stale"] = stats.stale_answers.into();
        state["waiting"] = snapshot.waiting.into();
        state["held_bytes"] = stats.held_bytes.into();
        state["prefetched_bytes"] = stats.prefetched_bytes.into();
        state["objects"] = stats.objects.into();
        state["hoard_is_full"] = snapshot.hoard_is_full.into();
        state["fetching"] = snapshot.fetching.as_deref().map(|name| escape(name).into_owned()).into();
        state
    }
}

/// Tells of all mounts, or of one.
pub(super) fn execute(directory: Option<&Path>, json: bool) -> Exit {
    let reporter = Reporter::new(&OutputArgs { json, ..OutputArgs::default() }, Instant::now());
    let result = run(directory, &reporter);
    reporter.finish(result, &Summary::default())
}

fn run(directory: Option<&Path>, reporter: &Reporter) -> anyhow::Result<()> {
    let wanted = directory.map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
    let all = ask_all().map_err(|error| {
        Failure::with(Exit::LocalIo, format!("the mounts of this user cannot be listed: {}", io_text(&error)))
    })?;
    let mut states = Vec::new();
    let mut are_silent = false;
    for told in all {
        match told {
            Told::State(state) => states.push(state),
            Told::Silent(socket) => {
                are_silent = true;
                reporter.warning(format!("a mount does not answer (its socket: {})", show(&socket)));
            }
        }
    }
    let is_wanted =
        |state: &Value| wanted.as_ref().is_none_or(|wanted| state["directory"] == *wanted.to_string_lossy());
    states.retain(is_wanted);
    states.sort_by_key(|state| state["directory"].to_string());
    if states.is_empty() && are_silent {
        return Err(Failure::with(Exit::LocalIo, "no mount answers; a process that is stopped does not"));
    }
    if let (true, Some(wanted)) = (states.is_empty(), &wanted) {
        let text = format!("{} is no mount of nfsw of this user", show(wanted));
        return Err(Failure::with(Exit::LocalIo, text));
    }
    if states.is_empty() && !reporter.json() {
        reporter.note("nothing is mounted");
    }
    for state in states {
        if reporter.json() {
            reporter.event(&state)?;
        } else {
            reporter.print(words(&state).as_bytes())?;
        }
    }
    Ok(())
}

/// Words a state for people.
fn words(state: &Value) -> String {
    let text = |key: &str| state[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| state[key].as_u64().unwrap_or_default();
    let since = text("since").parse().unwrap_or_else(|_| Timestamp::default());
    let since = full_time(since.as_second(), 0, &TimeZone::system());
    // Without the fraction of a second.
    let since = since.split('.').next().unwrap_or(&since).to_owned();
    let link = line::link_words(&text("link"), Duration::from_nanos(number("link_ns")));
    let hits = line::hit_words(number("hits"), number("operations"));
    let mut words = format!(
        "{} at {}\n  since {since}, process {}\n  {link}; {hits}; {} cached, {} of it prefetched\n",
        text("target"),
        escape(text("directory").as_bytes()),
        number("pid"),
        units::bytes(number("held_bytes")),
        units::bytes(number("prefetched_bytes").min(number("held_bytes"))),
    );
    if number("waiting") > 0 {
        words.push_str(&format!("  {} requests wait for the server\n", number("waiting")));
    }
    if state["hoard_is_full"] == true {
        words.push_str("  not all hoarded files fit into the cache (--cache-size)\n");
    }
    if let Some(name) = state["fetching"].as_str() {
        words.push_str(&format!("  fetching {name}\n"));
    }
    words
}
