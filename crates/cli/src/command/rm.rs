//! `nfsw rm`: removes files and trees.

use crate::{
    args::RmArgs,
    connections::Connections,
    error::{ResultExt, is_missing},
    exit::{Exit, Failure},
    remote::{Children, Found, find_entries},
    report::{Reporter, event},
};
use futures_util::{StreamExt, stream};

/// Calls in flight in one directory.
const REMOVALS: usize = 16;

pub(super) async fn run(
    arguments: &RmArgs,
    connections: &Connections,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    for target in &arguments.targets {
        if target.is_contents || target.name() == Some(b"..") {
            let dots = if target.is_contents { "." } else { ".." };
            let text = format!("{target}: nothing is removed by the name {dots}; name the directory itself");
            reporter.failed(Failure::with(Exit::SomeFailed, text))?;
            continue;
        }
        let found = match find_entries(connections, reporter, target).await {
            Ok(found) => found,
            Err(error) if arguments.force && Exit::of(&error) == Exit::SourceMissing => continue,
            Err(error) => {
                reporter.failed(error)?;
                continue;
            }
        };
        let removals = stream::iter(found).map(|found| remove(arguments, connections, reporter, found));
        let mut removals = removals.buffer_unordered(REMOVALS);
        while let Some(removed) = removals.next().await {
            if let Err(error) = removed {
                reporter.failed(error)?;
            }
        }
    }
    Ok(())
}

/// Removes a file, or a directory from its leaves upwards.
async fn remove(
    arguments: &RmArgs,
    connections: &Connections,
    reporter: &Reporter,
    found: Found,
) -> anyhow::Result<()> {
    found.directory()?;
    if !found.is_directory() {
        return unlink(arguments, reporter, &found).await;
    }
    if !arguments.recursive {
        return Err(Failure::with(
            Exit::SomeFailed,
            format!("{}: is a directory (-r removes it)", found.remote),
        ));
    }
    // Directories still to be emptied, and those that can go once everything after them is gone.
    let mut to_empty = vec![found];
    let mut to_remove = Vec::new();
    while let Some(directory) = to_empty.pop() {
        let mut listed = Children::of(&directory)?;
        while !listed.is_done() {
            let mut files = Vec::new();
            for child in listed.next(connections, reporter).await? {
                let child = directory.child(child);
                if child.is_directory() { to_empty.push(child) } else { files.push(child) }
            }
            let mut unlinks =
                stream::iter(&files).map(|file| unlink(arguments, reporter, file)).buffer_unordered(REMOVALS);
            while let Some(removed) = unlinks.next().await {
                if let Err(error) = removed {
                    reporter.failed(error)?;
                }
            }
        }
        to_remove.push(directory);
    }
    while let Some(directory) = to_remove.pop() {
        let (parent, name) = directory.directory()?;
        match directory.client.rmdir(parent, name).await {
            Err(error) if !is_missing(&error) => {
                reporter.failed(Err::<(), _>(error).at(&directory.remote).unwrap_err())?
            }
            _ => gone(reporter, &directory)?,
        }
    }
    Ok(())
}

async fn unlink(arguments: &RmArgs, reporter: &Reporter, found: &Found) -> anyhow::Result<()> {
    let (parent, name) = found.directory()?;
    match found.client.remove(parent, name).await {
        Err(error) if is_missing(&error) && (arguments.force || arguments.recursive) => {}
        other => other.at(&found.remote)?,
    }
    gone(reporter, found)
}

fn gone(reporter: &Reporter, found: &Found) -> anyhow::Result<()> {
    reporter.activity().step();
    let event = event("removed", &[("path", &found.remote.path)]);
    reporter.done(format_args!("removed {}", found.remote), &event)
}
