//! `nfsw chmod`: permissions.

use std::rc::Rc;

use futures_util::{StreamExt, stream};
use nfs_wireless_client::{FileType, NfsStatus, SetAttributes};

use nfs_files::{Context, pending::Pending};

use super::rm::next_below;
use crate::{
    args::ChmodArgs,
    chain::Chain,
    error::{ResultExt, has_status},
    exit::{Exit, Failure},
    find::{Child, Children, Found, find_all_or_report, follow, real_if_exists},
    local,
    mode::ModeChange,
    report::{Reporter, event},
};

/// Calls in flight in one directory.
const CHANGES: usize = 16;

/// How often a mode is computed anew for a file that has changed since it was looked at.
const ATTEMPTS: u32 = 8;

/// Set-user-ID, set-group-ID, sticky.
const SPECIAL_BITS: u32 = 0o7000;

pub(super) async fn run(
    arguments: &ChmodArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let changes = Changes { arguments, context, reporter };
    for target in &arguments.targets {
        for found in find_all_or_report(context, target).await? {
            if let Err(error) = changes.tree(found).await {
                reporter.failed(error)?;
            }
        }
    }
    Ok(())
}

/// One run's way of changing modes.
#[derive(Clone, Copy)]
struct Changes<'a> {
    arguments: &'a ChmodArgs,
    context: Context<'a>,
    reporter: &'a Reporter,
}

impl Changes<'_> {
    /// Changes what a target names and, if asked, everything below. Links below are left alone, as by chmod(1).
    async fn tree(self, top: Found) -> anyhow::Result<()> {
        let context = self.context;
        // Without links, where what a link leads to can be moved.
        let shown = top.remote.clone();
        let real = if top.is_link() { real_if_exists(context, &top).await? } else { None };
        let top = match real {
            Some(real) => real,
            None => follow(context, top).await?,
        };
        let chain = Chain::default().to(&top);
        let top = Found { remote: shown, ..top };
        self.change(&top).await?;
        let mut next = (self.arguments.recursive && top.is_directory()).then_some((chain, top));
        let mut pending = Pending::<Chain>::default();
        while let Some((chain, directory)) = next.take() {
            self.children(&mut pending, &chain, &Rc::new(directory)).await?;
            next = next_below(&mut pending, context, self.reporter).await?;
        }
        Ok(())
    }

    /// Changes what lies in a directory, and adds the directories in it to those that are to be visited. Nothing where its path leads
    /// elsewhere by now.
    async fn children(
        self,
        pending: &mut Pending<Chain>,
        chain: &Chain,
        directory: &Rc<Found>,
    ) -> anyhow::Result<()> {
        let Self { context, reporter, .. } = self;
        let mut listed = Children::of(directory)?;
        // The look takes no round trip of its own.
        let (holds, mut part) = tokio::join!(chain.holds_now(context), listed.next(context));
        if !holds? {
            return Ok(());
        }
        loop {
            let found = match part {
                Ok(found) => found,
                Err(error) => return reporter.failed(error),
            };
            let is_no_link = |child: &Child| child.metadata.file_type != FileType::Symlink;
            let found: Vec<Child> = found.into_iter().filter(is_no_link).collect();
            let changes = stream::iter(&found).map(|child| async {
                match chain.holds(context).await? {
                    true => self.change(&directory.child(child.clone())).await,
                    false => Ok(()),
                }
            });
            let mut changes = changes.buffer_unordered(CHANGES);
            while let Some(changed) = changes.next().await {
                if let Err(error) = changed {
                    reporter.failed(error)?;
                }
            }
            drop(changes);
            let directories = found.into_iter().rev().filter(Child::is_directory);
            // Those that were added are visited.
            if let Err(error) = pending.add(chain, directory, directories) {
                return reporter.failed(error);
            }
            if listed.is_done() {
                return Ok(());
            }
            part = listed.next(context).await;
        }
    }

    async fn change(self, found: &Found) -> anyhow::Result<()> {
        let mut metadata = found.metadata;
        let mut attempts = 0;
        let mode = loop {
            let mode = self.arguments.mode.apply(metadata.mode, found.is_directory(), local::umask());
            if mode == metadata.mode {
                break mode;
            }
            let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            let set = match self.arguments.mode {
                ModeChange::Absolute(_) => found.client.set_attributes(found.handle, attributes).await,
                // The new mode is that of a file that was as it was seen.
                ModeChange::Symbolic(_) => {
                    found.client.set_attributes_if(found.handle, attributes, metadata.ctime).await
                }
            };
            match set {
                Err(error) if has_status(&error, NfsStatus::NOT_SYNC) => {
                    attempts += 1;
                    if attempts == ATTEMPTS {
                        let text = format!(
                            "{}: changes all the time, so its mode cannot be changed by letters; give it in octal",
                            found.remote
                        );
                        return Err(Failure::with(Exit::SomeFailed, text));
                    }
                    metadata = found.client.metadata(found.handle).await.at(&found.remote)?;
                    continue;
                }
                set => set.at(&found.remote)?,
            }
            // Servers may leave these bits out without an error, as chmod(2) does.
            if mode & SPECIAL_BITS != 0 {
                let kept = found.client.metadata(found.handle).await.at(&found.remote)?.mode;
                if kept != mode {
                    let text =
                        format!("{}: the server has set mode {kept:04o}, not {mode:04o}", found.remote);
                    return Err(Failure::with(Exit::SomeFailed, text));
                }
            }
            break mode;
        };
        self.reporter.activity().step();
        let mut event = event("mode", &[("path", &found.remote.path)]);
        event["mode"] = format!("{mode:04o}").into();
        self.reporter.done(format_args!("{}: {mode:04o}", found.remote), &event)
    }
}
