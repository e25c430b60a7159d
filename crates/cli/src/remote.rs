//! Finding files on servers: by path, by pattern, through links, and in directories.

mod glob;
mod walk;

use futures_util::{StreamExt, stream};
use nfs_wireless_client::{Client, FileHandle, FileType, Metadata};

pub(crate) use glob::is_pattern;

use crate::{
    context::Context,
    error::ResultExt,
    exit::{Exit, Failure},
    name::is_plain,
    target::Remote,
    text::escape,
};

/// A file that exists on a server.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) remote: Remote,
    /// The connection to it.
    pub(crate) client: Client,
    /// The directory that holds it; `None` for an export's root and for `..`.
    pub(crate) parent: Option<FileHandle>,
    /// The file.
    pub(crate) handle: FileHandle,
    /// Its attributes.
    pub(crate) metadata: Metadata,
}

/// A directory entry.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    /// Its name: one component, safe to use in a path.
    pub(crate) name: Vec<u8>,
    /// The file.
    pub(crate) handle: FileHandle,
    /// Its attributes.
    pub(crate) metadata: Metadata,
}

/// Lookups in flight for entries that came without attributes.
const LOOKUPS: usize = 16;

impl Found {
    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.metadata.file_type == FileType::Directory
    }

    /// Whether another file is in the same export of the same server.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.client.address() == other.client.address() && self.client.export() == other.client.export()
    }

    /// Returns the directory that holds it, for a command that changes its name there.
    ///
    /// # Errors
    /// The export's root has no name that could change.
    pub(crate) fn directory(&self) -> anyhow::Result<(FileHandle, &[u8])> {
        match (self.parent, self.remote.name()) {
            (Some(parent), Some(name)) => Ok((parent, name)),
            _ => Err(Failure::usage(format!("{}: this is the root of an export, which stays", self.remote))),
        }
    }
}

/// Finds one file; a symbolic link at the end of the path is found itself.
///
/// # Errors
/// Status 4 when it does not exist.
pub(crate) async fn find(context: &Context, remote: &Remote) -> anyhow::Result<Found> {
    for warning in &remote.options.warnings {
        context.reporter.warning_once(warning);
    }
    walk::walk(context, remote, false).await
}

/// Finds one file as [`find`] does, or `None` when it does not exist.
///
/// # Errors
/// As [`find`], for other reasons.
pub(crate) async fn find_if_exists(context: &Context, remote: &Remote) -> anyhow::Result<Option<Found>> {
    match find(context, remote).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if Exit::of(&error) == Exit::SourceMissing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds every file that a path with `*`, `?` or `[...]` matches, in order; without them, the one file.
///
/// # Errors
/// Status 4 when nothing matches.
pub(crate) async fn find_all(context: &Context, remote: &Remote) -> anyhow::Result<Vec<Found>> {
    if !is_pattern(&remote.path) {
        return Ok(vec![find(context, remote).await?]);
    }
    let matches = glob::expand(context, remote).await?;
    if !matches.is_empty() {
        return Ok(matches);
    }
    match find_if_exists(context, remote).await? {
        Some(literal) => Ok(vec![literal]),
        None => Err(Failure::with(Exit::SourceMissing, format!("{remote}: nothing on the server matches"))),
    }
}

/// Follows a symbolic link to what it stands for, on the same server. The result keeps the link's path.
///
/// # Errors
/// Status 4 when the link leads nowhere.
pub(crate) async fn follow(context: &Context, found: Found) -> anyhow::Result<Found> {
    match found.metadata.file_type {
        FileType::Symlink => walk::walk(context, &found.remote, true).await,
        _ => Ok(found),
    }
}

/// Reads a whole directory. Entries whose names could lead elsewhere are reported and left out.
///
/// # Errors
/// What the server answers.
pub(crate) async fn children(
    context: &Context,
    client: &Client,
    directory: FileHandle,
    shown: &Remote,
) -> anyhow::Result<Vec<Child>> {
    let mut complete = Vec::new();
    let mut bare = Vec::new();
    let mut entries = client.read_dir(directory);
    while let Some(entry) = entries.next().await.at(shown)? {
        context.activity.step();
        if !is_plain(&entry.name) {
            let text = format!("{shown}: left out an entry with the unsafe name {}", escape(&entry.name));
            context.reporter.failed(Failure::with(Exit::SomeFailed, text))?;
            continue;
        }
        match (entry.handle, entry.metadata) {
            (Some(handle), Some(metadata)) => complete.push(Child { name: entry.name, handle, metadata }),
            _ => bare.push(entry.name),
        }
    }
    let mut lookups = stream::iter(bare)
        .map(|name| async move {
            let entry = client.lookup(directory, &name).await;
            (name, entry)
        })
        .buffer_unordered(LOOKUPS);
    while let Some((name, entry)) = lookups.next().await {
        context.activity.step();
        match entry {
            Ok(entry) => complete.push(Child { name, handle: entry.handle, metadata: entry.metadata }),
            // Removed since it was listed.
            Err(error) if crate::error::is_missing(&error) => {}
            Err(error) => return Err(error).at(shown.join(&name)),
        }
    }
    complete.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(complete)
}
