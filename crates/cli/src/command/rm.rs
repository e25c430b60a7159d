//! `nfsw rm`: removes files and trees.

use std::rc::Rc;

use nfs_files::{Context, pending::Pending};

use crate::{
    args::RmArgs,
    chain::Chain,
    error::{ErrorKind, ResultExt, is_missing},
    exit::{Exit, Failure},
    find::{Child, Children, Found, find_entries},
    report::{Reporter, event},
};
use futures_util::{StreamExt, stream};

/// Calls in flight in one directory.
const REMOVALS: usize = 16;

/// Bytes that empty directories take which are removed together, at most.
const MOST_BYTES: usize = 8 << 20;

pub(super) async fn run(arguments: &RmArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let removal = Removal { arguments, context, reporter };
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
        report_all(reporter, found.into_iter().map(|found| removal.remove(found))).await?;
    }
    Ok(())
}

/// One run's way of removing.
#[derive(Clone, Copy)]
struct Removal<'a> {
    arguments: &'a RmArgs,
    context: Context<'a>,
    reporter: &'a Reporter,
}

impl Removal<'_> {
    /// Removes a file, or a directory from its leaves upwards.
    async fn remove(self, found: Found) -> anyhow::Result<()> {
        found.directory()?;
        if !found.is_directory() {
            return self.unlink(&found).await;
        }
        if !self.arguments.recursive {
            return Err(Failure::with(
                Exit::SomeFailed,
                format!("{}: is a directory (-r removes it)", found.remote),
            ));
        }
        // Directories still to be emptied, and those that can go once everything in them is gone.
        let (mut to_empty, mut to_remove) = (Pending::<Chain>::default(), Levels::default());
        let top = found.remote.path.len();
        let mut next = Some((Chain::default().to(&found), found));
        while let Some((chain, directory)) = next.take() {
            let depth = directory.remote.path[top..].iter().filter(|&&byte| byte == b'/').count();
            if to_remove.bytes > MOST_BYTES {
                // All below its own level and beside it were emptied before it, and so was what is in them.
                self.remove_levels(to_remove.split_off(depth)).await?;
            }
            let directory = Rc::new(directory);
            if self.empty(&mut to_empty, &chain, &directory).await? {
                to_remove.add(depth, chain, directory);
            }
            next = next_below(&mut to_empty, self.context, self.reporter).await?;
        }
        self.remove_levels(to_remove.levels).await
    }

    /// Removes the files of a directory, and adds the directories in it to those that are to be emptied. False where its path leads elsewhere
    /// by now: then nothing was done.
    async fn empty(
        self,
        to_empty: &mut Pending<Chain>,
        chain: &Chain,
        directory: &Rc<Found>,
    ) -> anyhow::Result<bool> {
        let Self { context, reporter, .. } = self;
        let mut listed = Children::of(directory)?;
        // The look takes no round trip of its own.
        let (holds, mut part) = tokio::join!(chain.holds_now(context), listed.next(context));
        if !holds? {
            return Ok(false);
        }
        loop {
            let found = match part {
                Ok(found) => found,
                Err(error) => {
                    reporter.failed(error)?;
                    break;
                }
            };
            let (directories, files): (Vec<_>, Vec<_>) = found.into_iter().partition(Child::is_directory);
            let added = to_empty.add(chain, directory, directories.into_iter().rev());
            let unlinks = files.iter().map(|file| async {
                match chain.holds(context).await? {
                    true => self.unlink(&directory.child(file.clone())).await,
                    false => Ok(()),
                }
            });
            report_all(reporter, unlinks).await?;
            // Those that were added go, and the next run finds fewer.
            if let Err(error) = added {
                reporter.failed(error)?;
                break;
            }
            if listed.is_done() {
                break;
            }
            part = listed.next(context).await;
        }
        Ok(true)
    }

    /// Removes empty directories, the deepest first.
    async fn remove_levels(self, levels: Vec<Vec<(Chain, Rc<Found>)>>) -> anyhow::Result<()> {
        for directories in levels.into_iter().rev() {
            let removals = directories.iter().map(|(chain, directory)| async {
                let (parent, name) = directory.directory()?;
                if !chain.last_holds_now(self.context).await? {
                    return Ok(());
                }
                match directory.client.rmdir(parent, name).await {
                    Err(error) if !is_missing(&error) => Err(error).at(&directory.remote)?,
                    _ => gone(self.reporter, directory),
                }
            });
            report_all(self.reporter, removals).await?;
        }
        Ok(())
    }

    async fn unlink(self, found: &Found) -> anyhow::Result<()> {
        let (parent, name) = found.directory()?;
        match found.client.remove(parent, name).await {
            Err(error) if is_missing(&error) && (self.arguments.force || self.arguments.recursive) => {}
            other => other.at(&found.remote)?,
        }
        gone(self.reporter, found)
    }
}

/// Directories that were emptied, by their depth.
#[derive(Default)]
struct Levels {
    levels: Vec<Vec<(Chain, Rc<Found>)>>,
    /// What they take until they are removed.
    bytes: usize,
}

impl Levels {
    fn add(&mut self, depth: usize, chain: Chain, directory: Rc<Found>) {
        self.levels.resize_with(self.levels.len().max(depth + 1), Vec::new);
        self.bytes += bytes(&directory);
        self.levels[depth].push((chain, directory));
    }

    /// Takes out the level `depth` and those below it.
    fn split_off(&mut self, depth: usize) -> Vec<Vec<(Chain, Rc<Found>)>> {
        let below = self.levels.split_off(depth.min(self.levels.len()));
        self.bytes = self.levels.iter().flatten().map(|(_, it)| bytes(it)).sum();
        below
    }
}

/// Returns the next directory that is to be visited, and the names that lead to it; what cannot be visited is reported.
pub(super) async fn next_below(
    pending: &mut Pending<Chain>,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<Option<(Chain, Found)>> {
    loop {
        match pending.next(context).await {
            Ok(found) => return Ok(found.map(|(above, found)| (above.to(&found), found))),
            Err(error) => reporter.failed(error)?,
        }
    }
}

/// Returns the bytes that a directory takes until it is removed.
fn bytes(directory: &Found) -> usize {
    size_of::<(Chain, Rc<Found>)>() + size_of::<Found>() + directory.remote.path.len()
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

fn gone(reporter: &Reporter, found: &Found) -> anyhow::Result<()> {
    reporter.activity().step();
    let event = event("removed", &[("path", &found.remote.path)]);
    reporter.done(format_args!("removed {}", found.remote), &event)
}
