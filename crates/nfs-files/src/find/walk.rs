//! From a path on a server to a file, through symbolic links.

use std::collections::VecDeque;

use nfs_wireless_client::{Client, Entry, FileHandle, FileType, LookedUp};

use super::{Above, Found};
use crate::{
    context::Context,
    error::{Error, ErrorKind, Result, ResultExt},
    escape::escape,
    servers::Servers,
    url::{Remote, components, is_within, join},
};

/// Symbolic links followed for one path, as on Linux.
const MAX_LINKS: usize = 40;

/// Bytes of the target of a symbolic link, at most: those of a path on Linux.
const MAX_TARGET_BYTES: usize = 4096;

/// Directories on the way, at most: as many as a path on Linux can name. Links may lead on and on.
const MAX_DIRECTORIES: usize = MAX_TARGET_BYTES / 2;

/// Where a walk has got to.
struct Walk {
    client: Client,
    /// Directories from the export's root down, with their path.
    directories: Vec<(FileHandle, Vec<u8>)>,
    /// Components still to come.
    rest: VecDeque<Vec<u8>>,
    /// What some of them were found to be.
    ahead: LookedUp,
}

/// Finds the file of a path. Links on the way are followed, the last one only if asked.
pub(super) async fn walk(context: Context<'_>, remote: &Remote, follow_last: bool) -> Result<Found> {
    Ok(walk_to(context, remote, follow_last).await?.0)
}

/// Finds the file that a path leads to, through all links. The result has the path that leads there
/// without any.
pub(super) async fn real(context: Context<'_>, remote: &Remote) -> Result<Found> {
    let (found, path) = walk_to(context, remote, true).await?;
    Ok(Found { remote: remote.with_path(&path), ..found })
}

/// As [`walk`]; also returns the path without links.
async fn walk_to(context: Context<'_>, remote: &Remote, follow_last: bool) -> Result<(Found, Vec<u8>)> {
    let mut walk = Walk::start(context.servers, remote, VecDeque::new()).await?;
    let mut found = None;
    let mut links = 0;
    while let Some(name) = walk.rest.pop_front() {
        found = None;
        let (directory, path) = walk.directories.last().cloned().expect("the root is never left");
        if name == b".." {
            if walk.directories.len() > 1 {
                walk.directories.pop();
                continue;
            }
            // Above the export: another export may hold what is there.
            let parent = remote.with_path(&path).parent();
            if parent.path == path {
                continue;
            }
            walk = Walk::start(context.servers, &parent, walk.rest).await?;
            continue;
        }
        let entry = match walk.ahead.take(directory, &name) {
            Some(found) => found,
            None => walk.client.lookup(directory, &name).await,
        };
        let entry = entry.at_source(remote)?;
        if let Some((_, above)) = walk.directories.iter().find(|(above, _)| *above == entry.handle) {
            let (name, above) = (text(&join(&path, &name)), text(above));
            return Err(nfs_wireless_client::Error::Circle { name, above }).at(remote);
        }
        context.servers.activity().step();
        let is_last = walk.rest.is_empty();
        match entry.metadata.file_type {
            FileType::Symlink if !is_last || follow_last => {
                links += 1;
                if links > MAX_LINKS {
                    let text = format!("{remote}: too many levels of symbolic links");
                    return Err(Error::new(ErrorKind::SourceMissing, text));
                }
                let target = walk.client.read_link(entry.handle).await.at(remote)?;
                if target.len() > MAX_TARGET_BYTES {
                    let text = format!("{remote}: a symbolic link leads to a path of {} bytes", target.len());
                    return Err(Error::new(ErrorKind::SourceMissing, text));
                }
                if target.starts_with(b"/") {
                    walk = Walk::start(context.servers, &remote.with_path(&target), walk.rest).await?;
                } else {
                    for component in components(&target).into_iter().rev() {
                        walk.rest.push_front(component);
                    }
                }
            }
            FileType::Directory if !is_last => {
                if walk.directories.len() >= MAX_DIRECTORIES {
                    let text = format!("{remote}: leads through more than {MAX_DIRECTORIES} directories");
                    return Err(Error::new(ErrorKind::SourceMissing, text));
                }
                walk.directories.push((entry.handle, join(&path, &name)));
            }
            _ if !is_last => {
                let text = format!("{remote}: {} is not a directory", escape(&join(&path, &name)));
                return Err(Error::new(ErrorKind::SourceMissing, text));
            }
            _ => found = Some((entry, join(&path, &name))),
        }
    }
    context.servers.note(&walk.client, &walk.directories);
    let (above, entry, path) = match found {
        Some((entry, path)) => {
            let directories = walk.directories.iter();
            (directories.fold(Above::default(), |above, (handle, _)| above.inside(*handle)), entry, path)
        }
        None => {
            let (handle, path) = walk.directories.last().cloned().expect("the root is never left");
            let metadata = walk.client.metadata(handle).await.at(remote)?;
            (Above::default(), Entry { handle, metadata }, path)
        }
    };
    context.servers.activity().step();
    let Entry { handle, metadata } = entry;
    Ok((Found { remote: remote.clone(), client: walk.client, above, handle, metadata }, path))
}

impl Walk {
    /// Begins at the root of the export that holds a path; `rest` follows after it.
    async fn start(servers: &Servers, remote: &Remote, rest: VecDeque<Vec<u8>>) -> Result<Self> {
        let client = servers.client(remote).await?;
        let export = client.export().to_vec();
        if !is_within(&remote.path, &export) {
            let text =
                format!("{remote}: is not in the export {} that the server has for it", escape(&export));
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        let below = &remote.path[export.len().min(remote.path.len())..];
        let mut all: VecDeque<Vec<u8>> = components(below).into();
        all.extend(rest);
        let ahead = servers.look_ahead(&client, all.iter()).await;
        Ok(Self { directories: vec![(client.root(), export)], client, rest: all, ahead })
    }
}

fn text(path: &[u8]) -> String {
    escape(path).into_owned()
}
