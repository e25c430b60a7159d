//! `nfsw rm`: removes files and trees.

use nfs_files::Context;

use crate::{
    args::RmArgs,
    chain::Chain,
    error::{ErrorKind, ResultExt, is_missing},
    exit::{Exit, Failure},
    remote::{Children, Found, find_entries},
    report::{Reporter, event},
};
use futures_util::{StreamExt, stream};

/// Calls in flight in one directory.
const REMOVALS: usize = 16;

pub(super) async fn run(arguments: &RmArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    for target in &arguments.targets {
        if target.is_contents || target.name() == Some(b"..") {
            let dots = if target.is_contents { "." } else { ".." };
            let text = format!("{target}: nothing is removed by the name {dots}; name the directory itself");
            reporter.failed(Failure::with(Exit::SomeFailed, text))?;
            continue;
        }
        let found = match find_entries(context, target).await {
            Ok(found) => found,
            Err(error) if arguments.force && error.kind() == ErrorKind::SourceMissing => continue,
            Err(error) => {
                reporter.failed(error)?;
                continue;
            }
        };
        report_all(reporter, found.into_iter().map(|found| remove(arguments, context, reporter, found)))
            .await?;
    }
    Ok(())
}

/// Removes a file, or a directory from its leaves upwards.
async fn remove(
    arguments: &RmArgs,
    context: Context<'_>,
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
    // Directories still to be emptied, and those that can go once everything in them is gone.
    let mut to_empty = vec![(Chain::default().to(&found), found)];
    let mut to_remove: Vec<Vec<_>> = Vec::new();
    let top = to_empty[0].1.remote.path.len();
    while let Some((chain, directory)) = to_empty.pop() {
        let mut listed = Children::of(&directory)?;
        // The look takes no round trip of its own.
        let (holds, mut part) = tokio::join!(chain.holds_now(context), listed.next(context));
        if !holds? {
            continue;
        }
        loop {
            let mut files = Vec::new();
            for child in part? {
                let child = directory.child(child);
                if child.is_directory() {
                    to_empty.push((chain.to(&child), child))
                } else {
                    files.push(child)
                }
            }
            let unlinks = files.iter().map(|file| async {
                match chain.holds(context).await? {
                    true => unlink(arguments, reporter, file).await,
                    false => Ok(()),
                }
            });
            report_all(reporter, unlinks).await?;
            if listed.is_done() {
                break;
            }
            part = listed.next(context).await;
        }
        let depth = directory.remote.path[top..].iter().filter(|&&byte| byte == b'/').count();
        to_remove.resize_with(to_remove.len().max(depth + 1), Vec::new);
        to_remove[depth].push((chain, directory));
    }
    for directories in to_remove.into_iter().rev() {
        let removals = directories.iter().map(|(chain, directory)| async {
            let (parent, name) = directory.directory()?;
            if !chain.last_holds_now(context).await? {
                return Ok(());
            }
            match directory.client.rmdir(parent, name).await {
                Err(error) if !is_missing(&error) => Err(error).at(&directory.remote)?,
                _ => gone(reporter, directory),
            }
        });
        report_all(reporter, removals).await?;
    }
    Ok(())
}

/// Does many things, some at once, and reports what fails.
async fn report_all(
    reporter: &Reporter,
    all: impl Iterator<Item = impl Future<Output = anyhow::Result<()>>>,
) -> anyhow::Result<()> {
    let mut all = stream::iter(all).buffer_unordered(REMOVALS);
    while let Some(done) = all.next().await {
        if let Err(error) = done {
            reporter.failed(error)?;
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
