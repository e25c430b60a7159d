//! `nfsw mv`: new names within an export.

use std::collections::HashMap;

use nfs_files::{Context, name::folded};
use nfs_wireless_client::is_reservation;

use crate::{
    args::MvArgs,
    error::ResultExt,
    event::Skip,
    exit::{Exit, Failure},
    find::{Found, find, find_entries, find_if_exists, follow},
    outcome::skip_words,
    report::{Reporter, event},
    url::{Remote, is_within},
};

pub(super) async fn run(arguments: &MvArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let mut sources = Vec::new();
    for source in &arguments.sources {
        if source.is_contents || source.name() == Some(b"..") {
            let text = format!("{source}: cannot be moved by the name . or ..; name the directory itself");
            reporter.failed(Failure::with(Exit::SomeFailed, text))?;
            continue;
        }
        match find_entries(context, source).await {
            Ok(found) => sources.extend(found),
            Err(error) => reporter.failed(error)?,
        }
    }
    let moving = match &sources[..] {
        [source] if source.is_directory() => Some(source),
        _ => None,
    };
    let place = Destination::find(context, &arguments.destination, moving).await?;
    let destination = &arguments.destination;
    // Also when all but one are missing: what was asked for cannot be meant.
    if sources.len().max(arguments.sources.len()) > 1 && place.name.is_some() {
        let text = format!("{destination}: not a directory, and there are several files to move");
        return Err(Failure::usage(text));
    }
    // A directory gets a new name also if that has a slash at its end.
    if destination.names_directory
        && place.name.is_some()
        && !sources.iter().all(|source| source.is_directory() && place.taken.is_none())
    {
        let text = match place.taken {
            Some(_) => format!("{destination}: is not a directory"),
            None => {
                let word = destination.shell_word();
                format!("{destination} does not exist; create it first: nfsw mkdir {word}")
            }
        };
        return Err(Failure::usage(text));
    }
    // By what their names have in common that some server takes for one.
    let mut earlier: HashMap<Vec<u8>, Vec<Found>> = HashMap::new();
    for source in sources {
        let name = place.name.as_deref().or_else(|| source.remote.name()).unwrap_or_default();
        let alike = earlier.entry(folded(name)).or_default();
        let moved = match in_the_way(context, alike, &place.directory.remote.join(name)).await {
            Ok(None) => rename(arguments, context, reporter, &source, &place).await,
            Ok(Some(first)) if first.remote.name() == source.remote.name() => {
                let text = format!("{}: not moved, an earlier source has the same name", source.remote);
                Err(Failure::with(Exit::SomeFailed, text))
            }
            Ok(Some(first)) => {
                let text = format!(
                    "{}: not moved, the server takes its name for that of {}, which was moved before",
                    source.remote, first.remote
                );
                Err(Failure::with(Exit::SomeFailed, text))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = moved {
            reporter.failed(error)?;
        }
        alike.push(source);
    }
    Ok(())
}

/// Returns which of the sources that were moved before has the name `target` now.
async fn in_the_way<'a>(
    context: Context<'_>,
    earlier: &'a [Found],
    target: &Remote,
) -> anyhow::Result<Option<&'a Found>> {
    if earlier.is_empty() {
        return Ok(None);
    }
    let there = find_if_exists(context, target).await?;
    Ok(there.and_then(|there| earlier.iter().find(|it| is_one_file(it, &there))))
}

/// Where the files go.
struct Destination {
    directory: Found,
    /// The new name; `None` to keep the old one.
    name: Option<Vec<u8>>,
    /// What has that name.
    taken: Option<Found>,
}

impl Destination {
    /// Finds it for one directory that is `moving`, or for other sources.
    async fn find(
        context: Context<'_>,
        destination: &Remote,
        moving: Option<&Found>,
    ) -> anyhow::Result<Self> {
        // A run that ended early has reserved the name: it is for the directory, and no place for it to go to. And a server without case finds the
        // directory itself under its new name.
        let is_free = |found: &Found| {
            moving.is_some_and(|it| {
                let is_itself = it.handle == found.handle && it.remote.name() != destination.name();
                is_reservation(&found.metadata) || is_itself
            })
        };
        let taken = find_if_exists(context, destination).await?.filter(|found| !is_free(found));
        if let Some(found) = &taken {
            // A link that leads nowhere is a name like any other.
            let followed = follow(context, found.clone()).await.unwrap_or_else(|_| found.clone());
            if followed.is_directory() {
                return Ok(Self { directory: followed, name: None, taken: None });
            }
        }
        let name = destination.name().map(<[u8]>::to_vec);
        let directory = follow(context, find(context, &destination.parent()).await?).await?;
        Ok(Self { directory, name, taken })
    }
}

async fn rename(
    arguments: &MvArgs,
    context: Context<'_>,
    reporter: &Reporter,
    source: &Found,
    place: &Destination,
) -> anyhow::Result<()> {
    let (parent, old) = source.directory()?;
    let new = place.name.as_deref().unwrap_or(old);
    let client = &source.client;
    let target = place.directory.remote.join(new);
    if !source.is_beside(&place.directory) {
        let text = format!(
            "{} and {target} are not in the same export: use nfsw cp -rp and nfsw rm -r",
            source.remote
        );
        return Err(Failure::usage(text));
    }
    if source.is_directory()
        && source.remote.path != target.path
        && is_within(&target.path, &source.remote.path)
    {
        return Err(Failure::with(
            Exit::SomeFailed,
            format!("{}: cannot move a directory into itself", source.remote),
        ));
    }
    let is_same_name = parent == place.directory.handle && old == new;
    // RENAME of a file to another of its names does nothing (RFC 1813 §3.3.14), and a run with -n that ended early leaves both.
    let may_be_same = !source.is_directory() && source.metadata.links > 1;
    let there = match &place.taken {
        Some(taken) => Some(taken.clone()),
        None if arguments.no_clobber || may_be_same => find_if_exists(context, &target).await?,
        None => None,
    };
    let is_free = |there: &Found| source.is_directory() && is_reservation(&there.metadata);
    let there = there.filter(|there| !is_free(there));
    let is_same = may_be_same && there.as_ref().is_some_and(|there| is_one_file(source, there));
    if arguments.no_clobber && there.is_some() && (is_same_name || !is_same) {
        return skipped(reporter, source, &target);
    }
    if is_same_name || is_same {
        let text = format!("{} and {target} are the same file", source.remote);
        return Err(Failure::with(Exit::SomeFailed, text));
    }
    let (from, to) = ((parent, old), (place.directory.handle, new));
    let moved = match (arguments.no_clobber, source.is_directory()) {
        (true, true) => client.rename_directory_if_free(source.handle, from, to).await,
        (true, false) => client.rename_if_free(source.handle, from, to).await,
        (false, _) => client.rename(source.handle, from, to).await.map(|()| true),
    };
    if !moved.at(format_args!("{} to {target}", source.remote))? {
        return skipped(reporter, source, &target);
    }
    reporter.activity().step();
    let event = event("moved", &[("source", &source.remote.path), ("target", &target.path)]);
    reporter.done(format_args!("{} -> {target}", source.remote), &event)
}

fn skipped(reporter: &Reporter, source: &Found, target: &Remote) -> anyhow::Result<()> {
    let event = event("skipped", &[("source", &source.remote.path), ("target", &target.path)]);
    let line = format!("{target}: skipped: it {}", skip_words(Skip::Exists));
    reporter.skipped(line, &event, Skip::Exists)
}

/// Whether two names are those of one file: some servers give it several handles.
fn is_one_file(one: &Found, other: &Found) -> bool {
    let number = |it: &Found| (it.metadata.fsid, it.metadata.fileid);
    one.handle == other.handle || number(one) == number(other)
}
