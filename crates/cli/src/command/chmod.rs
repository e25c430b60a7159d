//! `nfsw chmod`: permissions.

use futures_util::{StreamExt, stream};
use nfs_wireless_client::{FileType, SetAttributes};

use crate::{
    args::ChmodArgs,
    connections::Connections,
    error::ResultExt,
    exit::{Exit, Failure},
    local,
    remote::{Children, Found, find_all_or_report, follow},
    report::{Reporter, event},
};

/// Calls in flight in one directory.
const CHANGES: usize = 16;

/// Set-user-ID, set-group-ID, sticky.
const SPECIAL_BITS: u32 = 0o7000;

pub(super) async fn run(
    arguments: &ChmodArgs,
    connections: &Connections,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    for target in &arguments.targets {
        for found in find_all_or_report(connections, reporter, target).await? {
            if let Err(error) = tree(arguments, connections, reporter, found).await {
                reporter.failed(error)?;
            }
        }
    }
    Ok(())
}

/// Changes what a target names and, if asked, everything below. Links below are left alone, as by chmod(1).
async fn tree(
    arguments: &ChmodArgs,
    connections: &Connections,
    reporter: &Reporter,
    top: Found,
) -> anyhow::Result<()> {
    let top = follow(connections, reporter, top).await?;
    change(arguments, reporter, &top).await?;
    let mut directories = if arguments.recursive && top.is_directory() { vec![top] } else { Vec::new() };
    while let Some(directory) = directories.pop() {
        let mut listed = Children::of(&directory)?;
        while !listed.is_done() {
            let part = listed.next(connections, reporter).await?;
            let found: Vec<Found> = part
                .into_iter()
                .filter(|child| child.metadata.file_type != FileType::Symlink)
                .map(|child| directory.child(child))
                .collect();
            let mut changes = stream::iter(&found)
                .map(|found| change(arguments, reporter, found))
                .buffer_unordered(CHANGES);
            while let Some(changed) = changes.next().await {
                if let Err(error) = changed {
                    reporter.failed(error)?;
                }
            }
            drop(changes);
            directories.extend(found.into_iter().filter(Found::is_directory));
        }
    }
    Ok(())
}

async fn change(arguments: &ChmodArgs, reporter: &Reporter, found: &Found) -> anyhow::Result<()> {
    let mode = arguments.mode.apply(found.metadata.mode, found.is_directory(), local::umask());
    if mode != found.metadata.mode {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        found.client.set_attributes(found.handle, attributes).await.at(&found.remote)?;
        // Servers may leave these bits out without an error, as chmod(2) does.
        if mode & SPECIAL_BITS != 0 {
            let kept = found.client.metadata(found.handle).await.at(&found.remote)?.mode;
            if kept != mode {
                let text = format!("{}: the server has set mode {kept:04o}, not {mode:04o}", found.remote);
                return Err(Failure::with(Exit::SomeFailed, text));
            }
        }
    }
    reporter.activity().step();
    let mut event = event("mode", &[("path", &found.remote.path)]);
    event["mode"] = format!("{mode:04o}").into();
    reporter.done(format_args!("{}: {mode:04o}", found.remote), &event)
}
