//! Which directory to mount for a path, where the names of the path must lead from there on.
//!
//! MNT takes a path, and what a server makes of it is its own affair (RFC 1813 §5.2.1). Some mount exports alone, some any directory
//! below them, and some do not look at the path at all and give the root of their one export. So what the list of exports names is
//! mounted; where it names nothing, the shortest path that can be mounted, and the rest is looked up name by name. Other answers to
//! MNT only serve to contradict that.

use std::{future::poll_fn, task::Poll};

use nfs_proto::attr::{FileType, Metadata};
use nfs_wire::{FileHandle, MountStatus, mount::Export};

use crate::{error::Error, shown::shown};

/// MNTs under way at a time, as servers drop bursts of datagrams.
const MOUNTS_AT_ONCE: usize = 16;

/// The MOUNT service.
pub(super) trait Mounting {
    /// MNT; [`Error::Mount`] when it is refused.
    async fn mount(&self, path: &[u8]) -> Result<FileHandle, Error>;
}

/// The NFS service.
pub(crate) trait Looking {
    /// LOOKUP, and the attributes of what was found.
    async fn look_up(&self, directory: FileHandle, name: &[u8]) -> Result<(FileHandle, Metadata), Error>;

    /// GETATTR.
    async fn attributes(&self, file: FileHandle) -> Result<Metadata, Error>;
}

/// What can be mounted for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// Paths, each below the one before by one name, with what MNT gives for it.
    all: Vec<(Vec<u8>, Option<FileHandle>)>,
    /// The server mounts what does not exist, so that its answers say nothing of the paths.
    mounts_anything: bool,
}

/// A directory to look names up from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Its path.
    pub(crate) export: Vec<u8>,
    pub(crate) handle: FileHandle,
}

impl Candidates {
    /// Mounts what holds `path`. `listed` is empty where the list cannot be had. `unlikely` is a name that no file has.
    pub(super) async fn mount(
        service: &impl Mounting,
        path: &[u8],
        listed: &[Export],
        unlikely: &[u8],
    ) -> Result<Self, Error> {
        let mut paths = prefixes(path);
        let whole = normal(path);
        let mut refusal = None;
        if let Some(export) = deepest(listed, &whole) {
            match mount_listed(service, listed, export).await {
                Ok(handle) => {
                    let all = vec![(export.to_vec(), Some(handle))];
                    return Ok(Self { all, mounts_anything: false });
                }
                // The list may name a root that is not for us, and hide what is.
                Err(error @ Error::Mount { .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
            paths.retain(|candidate| candidate.len() > export.len());
            if paths.is_empty() {
                return Err(refusal.expect("set above"));
            }
        }
        let nowhere = below(&whole, unlikely);
        let mut mounts = Vec::with_capacity(paths.len() + 1);
        let asked: Vec<&Vec<u8>> = paths.iter().chain((whole != b"/").then_some(&nowhere)).collect();
        for some in asked.chunks(MOUNTS_AT_ONCE) {
            mounts.extend(all(some.iter().map(|path| service.mount(path))).await);
        }
        let mounts_anything = mounts.get(paths.len()).is_some_and(Result::is_ok);
        let mut all = Vec::with_capacity(paths.len());
        let mut refusals = Vec::new();
        for (path, mounted) in paths.into_iter().zip(mounts) {
            let handle = match mounted {
                Ok(handle) => Some(handle),
                Err(error @ Error::Mount { .. }) => {
                    refusals.push(error);
                    None
                }
                Err(error) => return Err(error),
            };
            all.push((path, handle));
        }
        let Some(first) = all.iter().position(|(_, handle)| handle.is_some()) else {
            return Err(refusal.unwrap_or_else(|| most_telling(refusals)));
        };
        all.drain(..first);
        // The root of everything is what it is. Of any other path it has to be believed that the server has looked at it.
        if mounts_anything && all[0].0 != b"/" {
            return Err(Error::MountsAnything { shorter: shown(&all[0].0), longer: shown(&nowhere) });
        }
        refuse_doubles(service, listed, &all[0]).await?;
        Ok(Self { all, mounts_anything })
    }

    /// Decides where to look names up from.
    ///
    /// The names are looked up as far as another candidate was mounted, too, which must then be the same directory. Where a name is
    /// not there, a longer path that can be mounted is taken: there are directories that exist for MNT alone.
    pub(crate) async fn settle(&self, server: &impl Looking) -> Result<Root, Error> {
        let mut base = 0;
        while let Some(next) = self.next_base(server, base).await? {
            base = next;
        }
        let (path, handle) = &self.all[base];
        let handle = handle.expect("a base is mounted");
        Ok(Root { export: path.clone(), handle })
    }

    /// Looks the names below a base up. Returns a base further down if they do not lead to it.
    async fn next_base(&self, server: &impl Looking, base: usize) -> Result<Option<usize>, Error> {
        let mounted = |at: &usize| self.all[*at].1.is_some();
        let Some(last) = (base + 1..self.all.len()).rfind(mounted).filter(|_| !self.mounts_anything) else {
            return Ok(None);
        };
        let root = self.all[base].1.expect("a base is mounted");
        if let Some(same) = (base + 1..=last).find(|&at| self.all[at].1 == Some(root)) {
            return Err(self.same(base, same));
        }
        let mut chain = vec![root];
        for at in base + 1..=last {
            let (path, mounted) = &self.all[at];
            let directory = *chain.last().expect("the base is in it");
            let (handle, metadata) = match server.look_up(directory, name(path)).await {
                Ok(found) => found,
                Err(error) if error.status().is_some() => return self.base_from(base, &chain).map(Some),
                Err(error) => return Err(error),
            };
            if let Some(above) = chain.iter().position(|&above| above == handle) {
                let above = shown(&self.all[base + above].0);
                return Err(Error::Circle { name: shown(path), above });
            }
            // Whether MNT goes where a link leads is up to the server, and where that is, is not known here.
            if metadata.file_type == FileType::Symlink {
                return Ok(None);
            }
            if let Some(mounted) = *mounted
                && mounted != handle
                && !is_same(server, mounted, &metadata).await?
            {
                let shorter = shown(&self.all[base].0);
                return Err(Error::TwoDirectories { shorter, longer: shown(path) });
            }
            if metadata.file_type != FileType::Directory {
                return Ok(None);
            }
            chain.push(handle);
        }
        Ok(None)
    }

    /// Returns the next candidate that can be mounted, as looking names up from `base` has ended after `chain`.
    fn base_from(&self, base: usize, chain: &[FileHandle]) -> Result<usize, Error> {
        let mut further = base + chain.len()..self.all.len();
        let next = further.find(|&at| self.all[at].1.is_some()).expect("one was mounted below the names");
        let handle = self.all[next].1;
        let above = |&above: &usize| {
            let looked_up = chain.get(above - base).copied();
            self.all[above].1 == handle || looked_up.is_some() && looked_up == handle
        };
        match (base..next).find(above) {
            Some(above) => Err(self.same(above, next)),
            None => Ok(next),
        }
    }

    fn same(&self, above: usize, below: usize) -> Error {
        Error::SameDirectory { shorter: shown(&self.all[above].0), longer: shown(&self.all[below].0) }
    }
}

/// Mounts an export of the list, and the one around it: if both are the same directory, then one of them is not what the list says.
/// (Linux does that when two exports were given the same `fsid`.)
async fn mount_listed(
    service: &impl Mounting,
    listed: &[Export],
    export: &[u8],
) -> Result<FileHandle, Error> {
    let around = deepest(listed.iter().filter(|it| !is_same_path(&it.directory, export)), export);
    let Some(around) = around else { return service.mount(export).await };
    let mut mounts = all([export, around].map(|path| service.mount(path))).await;
    let (outer, inner) = (mounts.pop().expect("two of them"), mounts.pop().expect("two of them")?);
    if outer.is_ok_and(|outer| outer == inner) {
        return Err(Error::SameDirectory { shorter: shown(around), longer: shown(export) });
    }
    Ok(inner)
}

/// Makes sure that a directory above the exports on the list is not one of them.
async fn refuse_doubles(
    service: &impl Mounting,
    listed: &[Export],
    (path, handle): &(Vec<u8>, Option<FileHandle>),
) -> Result<(), Error> {
    let inside = listed.iter().map(|export| &export.directory[..]).filter(|export| holds(path, export));
    let inside: Vec<&[u8]> = inside.take(MOUNTS_AT_ONCE).collect();
    let mounts = all(inside.iter().map(|export| service.mount(export))).await;
    match inside.iter().zip(mounts).find(|(_, mounted)| mounted.as_ref().ok() == handle.as_ref()) {
        Some((export, _)) => Err(Error::SameDirectory { shorter: shown(path), longer: shown(export) }),
        None => Ok(()),
    }
}

/// Whether what was mounted is what was looked up: some servers give one file several handles.
async fn is_same(server: &impl Looking, mounted: FileHandle, found: &Metadata) -> Result<bool, Error> {
    let identity = |it: &Metadata| (it.fsid, it.fileid, it.file_type);
    match server.attributes(mounted).await {
        Ok(metadata) => Ok(identity(&metadata) == identity(found)),
        Err(error) if error.status().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the export on the list that holds a path.
pub(crate) fn listed_export<'a>(listed: &'a [Export], path: &[u8]) -> Option<&'a [u8]> {
    deepest(listed, &normal(path))
}

/// Returns a path as candidates are written: without empty names, `.`, a slash at its end, and what follows `..`.
pub(crate) fn normal(path: &[u8]) -> Vec<u8> {
    prefixes(path).pop().expect("begins with the root")
}

/// Returns the path itself and what is above it, the shortest first. What follows `..` is for the server's links to decide.
fn prefixes(path: &[u8]) -> Vec<Vec<u8>> {
    let mut prefixes = vec![b"/".to_vec()];
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    for name in names.take_while(|name| *name != b"..") {
        let above = prefixes.last().expect("begins with the root");
        prefixes.push(below(above, name));
    }
    prefixes
}

fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory.strip_suffix(b"/").unwrap_or(directory), name].join(&b'/')
}

/// Returns the last name of a path.
fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Returns the refusal that says most: "not for you" rather than "there is no such directory", and of the longest path.
fn most_telling(mut refusals: Vec<Error>) -> Error {
    let says_little = |error: &Error| {
        let little = [MountStatus::NOENT, MountStatus::NOTDIR];
        matches!(error, Error::Mount { status, .. } if little.contains(status))
    };
    let at = refusals.iter().rposition(|error| !says_little(error)).unwrap_or(refusals.len() - 1);
    refusals.swap_remove(at)
}

/// Whether `path` is the exported directory or lies below it.
pub(super) fn holds(export: &[u8], path: &[u8]) -> bool {
    let export = export.strip_suffix(b"/").unwrap_or(export);
    path.strip_prefix(export).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn is_same_path(one: &[u8], other: &[u8]) -> bool {
    holds(one, other) && holds(other, one)
}

/// Returns the export that holds `path`, and no other one inside it does.
pub(super) fn deepest<'a>(listed: impl IntoIterator<Item = &'a Export>, path: &[u8]) -> Option<&'a [u8]> {
    let held = listed.into_iter().map(|export| &export.directory[..]).filter(|export| holds(export, path));
    held.max_by_key(|export| export.len())
}

/// Waits for all, side by side, and returns what they do in their order.
pub(crate) async fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().map(|(_, output)| output.expect("all are done")).collect()
}

#[cfg(test)]
mod tests;
