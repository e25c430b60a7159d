//! Listings.

use std::collections::VecDeque;

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use nfs_wireless_client::{Client, DirEntry, Error, FileHandle, FileType, NfsStatus};
use object_store::{
    ListResult, ObjectMeta, Result,
    path::{self, Path, PathPart},
};

use crate::{
    NfsObjectStore,
    error::{Refusal, explain},
    locate::{describe, is_staging},
};

/// Directories that lie in each other at most: a server may go on for ever.
pub(crate) const MAX_DEPTH: usize = 512;

/// Directories that are read at the same time.
const AT_ONCE: usize = 8;

/// How often a directory is read that changes meanwhile.
const ATTEMPTS: u32 = 3;

/// What is in a directory.
#[derive(Default)]
struct Level {
    objects: Vec<ObjectMeta>,
    directories: Vec<(Path, FileHandle)>,
}

/// A listing of everything below a prefix.
struct Walk {
    store: NfsObjectStore,
    /// What was found and not yet told.
    found: VecDeque<ObjectMeta>,
    /// Directories to be read.
    pending: Vec<(Path, FileHandle)>,
    /// Directories being read.
    reading: FuturesUnordered<BoxFuture<'static, Result<Level>>>,
}

/// Lists all objects below a prefix.
pub(crate) fn walk(store: NfsObjectStore, prefix: Path) -> BoxStream<'static, Result<ObjectMeta>> {
    let start = async move {
        let pending = store.prefix(&prefix).await?.map(|handle| (prefix, handle)).into_iter().collect();
        Ok(Walk { store, found: VecDeque::new(), pending, reading: FuturesUnordered::new() })
    };
    let objects = start.map(|walk| match walk {
        Ok(walk) => stream::try_unfold(walk, |mut walk| async move {
            let next = walk.next().await?;
            Ok(next.map(|object| (object, walk)))
        })
        .boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    });
    objects.flatten_stream().boxed()
}

/// Lists what is directly below a prefix.
pub(crate) async fn one_level(store: &NfsObjectStore, prefix: &Path) -> Result<ListResult> {
    let level = match store.prefix(prefix).await? {
        Some(handle) => read(store, prefix, handle).await?,
        None => Level::default(),
    };
    let Level { mut objects, directories } = level;
    let mut common_prefixes: Vec<_> = directories.into_iter().map(|(path, _)| path).collect();
    objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
    common_prefixes.sort_unstable();
    Ok(ListResult { common_prefixes, objects, extensions: Default::default() })
}

impl Walk {
    async fn next(&mut self) -> Result<Option<ObjectMeta>> {
        loop {
            if let Some(object) = self.found.pop_front() {
                return Ok(Some(object));
            }
            while self.reading.len() < AT_ONCE
                && let Some((path, handle)) = self.pending.pop()
            {
                if path.parts_count() > MAX_DEPTH {
                    return Err(Refusal::TooDeep.at(path));
                }
                let store = self.store.clone();
                self.reading.push(async move { read(&store, &path, handle).await }.boxed());
            }
            let Some(level) = self.reading.next().await else { return Ok(None) };
            let Level { objects, directories } = level?;
            self.found.extend(objects);
            self.pending.extend(directories);
        }
    }
}

/// Reads a directory. One that is gone is empty, if its name says so: a server may have forgotten the handle alone.
async fn read(store: &NfsObjectStore, path: &Path, mut handle: FileHandle) -> Result<Level> {
    let (mut attempt, mut was_found_again) = (1, false);
    let entries = loop {
        match entries(&store.client, handle).await {
            Ok(entries) => break entries,
            Err(error)
                if (error.is_stale() || error.status() == Some(NfsStatus::NOENT)) && !was_found_again =>
            {
                let Some(found) = store.prefix(path).await? else { return Ok(Level::default()) };
                (handle, was_found_again) = (found, true);
            }
            Err(error) if error.status() == Some(NfsStatus::BAD_COOKIE) && attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(explain(error, path)),
        }
    };
    let mut level = Level::default();
    for DirEntry { name, metadata, handle, .. } in entries {
        let (Some(metadata), Some(handle)) = (metadata, handle) else {
            return Err(Refusal::NotFound.at(format!("{path}/{}", name.escape_ascii())));
        };
        if !matches!(metadata.file_type, FileType::Regular | FileType::Directory) {
            continue;
        }
        if metadata.file_type == FileType::Regular && is_staging(&name) {
            continue;
        }
        let location = path.clone().join(part(path, &name)?);
        match metadata.file_type {
            FileType::Directory => level.directories.push((location, handle)),
            _ => level.objects.push(describe(location, &metadata)),
        }
    }
    Ok(level)
}

async fn entries(client: &Client, directory: FileHandle) -> Result<Vec<DirEntry>, Error> {
    let mut entries = Vec::new();
    let mut listing = client.read_dir(directory);
    while let Some(entry) = listing.next_complete().await? {
        entries.push(entry);
    }
    Ok(entries)
}

/// A name of the server as part of a path, if it can be one.
fn part<'a>(directory: &Path, name: &'a [u8]) -> Result<PathPart<'a>> {
    let shown = || format!("{directory}/{}", name.escape_ascii());
    let name = std::str::from_utf8(name);
    let name = name.map_err(|source| path::Error::NonUnicode { path: shown(), source })?;
    PathPart::parse(name).map_err(|source| path::Error::BadSegment { path: shown(), source }.into())
}
