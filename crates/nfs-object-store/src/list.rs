//! Listings.

use std::{collections::VecDeque, sync::Arc};

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
    directories: Vec<(String, FileHandle)>,
}

/// A directory to be read. It takes no path of its own until then: that of the one above may be long, and there may be many.
struct Pending {
    above: Arc<Path>,
    name: String,
    handle: FileHandle,
}

/// A listing of everything below a prefix.
struct Walk {
    store: NfsObjectStore,
    /// What was found and not yet told.
    found: VecDeque<ObjectMeta>,
    /// Directories to be read.
    pending: Vec<Pending>,
    /// Directories being read.
    reading: FuturesUnordered<BoxFuture<'static, Result<(Path, Level)>>>,
}

/// Lists all objects below a prefix.
pub(crate) fn walk(store: NfsObjectStore, prefix: Path) -> BoxStream<'static, Result<ObjectMeta>> {
    let start = async move {
        let first = store.prefix(&prefix).await?;
        let (found, pending, reading) = Default::default();
        let mut walk = Walk { store, found, pending, reading };
        if let Some(handle) = first {
            walk.read(prefix, handle)?;
        }
        Ok(walk)
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
    let below = directories.iter().map(|(name, _)| join(prefix, name.as_bytes()));
    let mut common_prefixes: Vec<_> = below.collect::<Result<_>>()?;
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
                && let Some(Pending { above, name, handle }) = self.pending.pop()
            {
                self.read(join(&above, name.as_bytes())?, handle)?;
            }
            let Some(level) = self.reading.next().await else { return Ok(None) };
            let (path, Level { objects, directories }) = level?;
            self.found.extend(objects);
            let above = Arc::new(path);
            let pending = |(name, handle)| Pending { above: Arc::clone(&above), name, handle };
            self.pending.extend(directories.into_iter().map(pending));
        }
    }

    /// Begins to read a directory.
    fn read(&mut self, path: Path, handle: FileHandle) -> Result<()> {
        if path.parts_count() > MAX_DEPTH {
            return Err(Refusal::TooDeep.at(path));
        }
        let store = self.store.clone();
        let reading = async move {
            let level = read(&store, &path, handle).await?;
            Ok((path, level))
        };
        self.reading.push(reading.boxed());
        Ok(())
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
        let part = part(path, &name)?;
        match metadata.file_type {
            FileType::Directory => level.directories.push((part.as_ref().to_owned(), handle)),
            _ => level.objects.push(describe(path.clone().join(part), &metadata)),
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

fn join(directory: &Path, name: &[u8]) -> Result<Path> {
    Ok(directory.clone().join(part(directory, name)?))
}

/// A name of the server as part of a path, if it can be one.
fn part<'a>(directory: &Path, name: &'a [u8]) -> Result<PathPart<'a>> {
    let shown = || format!("{directory}/{}", name.escape_ascii());
    let name = std::str::from_utf8(name);
    let name = name.map_err(|source| path::Error::NonUnicode { path: shown(), source })?;
    PathPart::parse(name).map_err(|source| path::Error::BadSegment { path: shown(), source }.into())
}
