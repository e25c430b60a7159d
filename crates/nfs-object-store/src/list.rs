//! Listings.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use nfs_wireless_client::{DirEntry, FileHandle, FileType, NfsStatus, ReadDir};
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

/// Bytes of the entries of a directory that are told at once, about. One that changes is read again only before that.
const PART_BYTES: usize = 4 << 20;

/// Bytes that directories take that are still to be read: beyond it, their directory is read further when they are.
const PENDING_BYTES: usize = 16 << 20;

/// Objects and prefixes in one result, at most: a server may list for ever. They take more than 2 GB.
const MAX_RESULT: usize = 10_000_000;

/// What is in a part of a directory.
#[derive(Default)]
struct Level {
    objects: Vec<ObjectMeta>,
    directories: Vec<(String, FileHandle)>,
    bytes: usize,
    directory_bytes: usize,
}

/// A directory to be read. It takes no path of its own until then: that of the one above may be long, and there may be many.
struct Pending {
    above: Arc<Path>,
    name: String,
    handle: FileHandle,
}

impl Pending {
    const fn bytes(name: &str) -> usize {
        size_of::<Self>() + name.len()
    }
}

/// A directory that is being read.
struct Reading {
    store: NfsObjectStore,
    path: Path,
    handle: FileHandle,
    listing: ReadDir,
    attempt: u32,
    was_found_again: bool,
    /// Entries of it were told.
    is_told: bool,
}

/// What was read of a directory, and the rest of it, if there is more.
struct Part {
    path: Path,
    level: Level,
    rest: Option<Box<Reading>>,
}

/// What is to be read.
enum Work {
    Directory(Pending),
    Rest(Box<Reading>),
}

/// A listing of everything below a prefix.
struct Walk {
    store: NfsObjectStore,
    /// What was found and not yet told.
    found: VecDeque<ObjectMeta>,
    /// The last one is read first.
    work: Vec<Work>,
    /// Bytes of the directories in it.
    pending_bytes: usize,
    /// Directories being read.
    reading: FuturesUnordered<BoxFuture<'static, Result<Part>>>,
}

/// Lists all objects below a prefix.
pub(crate) fn walk(store: NfsObjectStore, prefix: Path) -> BoxStream<'static, Result<ObjectMeta>> {
    let start = async move {
        let first = store.prefix(&prefix).await?;
        let (found, work, pending_bytes, reading) = Default::default();
        let mut walk = Walk { store, found, work, pending_bytes, reading };
        if let Some(handle) = first {
            walk.read(Box::new(Reading::new(&walk.store, prefix, handle)?));
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
    let (mut objects, mut common_prefixes) = (Vec::new(), Vec::new());
    let mut rest = match store.prefix(prefix).await? {
        Some(handle) => Some(Box::new(Reading::new(store, prefix.clone(), handle)?)),
        None => None,
    };
    while let Some(reading) = rest {
        let part = reading.part(usize::MAX).await?;
        objects.extend(part.level.objects);
        for (name, _) in part.level.directories {
            common_prefixes.push(join(prefix, name.as_bytes())?);
        }
        if objects.len() + common_prefixes.len() > MAX_RESULT {
            return Err(Refusal::TooMany.at(prefix));
        }
        rest = part.rest;
    }
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
                && let Some(work) = self.work.pop()
            {
                let reading = match work {
                    Work::Rest(reading) => reading,
                    Work::Directory(Pending { above, name, handle }) => {
                        self.pending_bytes -= Pending::bytes(&name);
                        Box::new(Reading::new(&self.store, join(&above, name.as_bytes())?, handle)?)
                    }
                };
                self.read(reading);
            }
            let Some(part) = self.reading.next().await else { return Ok(None) };
            let Part { path, level: Level { objects, directories, .. }, rest } = part?;
            self.found.extend(objects);
            self.work.extend(rest.map(Work::Rest));
            let above = Arc::new(path);
            for (name, handle) in directories {
                self.pending_bytes += Pending::bytes(&name);
                self.work.push(Work::Directory(Pending { above: Arc::clone(&above), name, handle }));
            }
        }
    }

    /// Begins to read a part of a directory.
    fn read(&mut self, reading: Box<Reading>) {
        let room = PENDING_BYTES.saturating_sub(self.pending_bytes) / AT_ONCE;
        self.reading.push(reading.part(room).boxed());
    }
}

impl Reading {
    fn new(store: &NfsObjectStore, path: Path, handle: FileHandle) -> Result<Self> {
        if path.parts_count() > MAX_DEPTH {
            return Err(Refusal::TooDeep.at(path));
        }
        let (store, listing) = (store.clone(), store.client.read_dir(handle));
        Ok(Self { store, path, handle, listing, attempt: 1, was_found_again: false, is_told: false })
    }

    /// Reads until so much is known of it, and at least one entry. A directory that is gone is empty, if its name says so: a server may have
    /// forgotten the handle alone.
    async fn part(mut self: Box<Self>, directory_bytes: usize) -> Result<Part> {
        let mut level = Level::default();
        loop {
            match self.listing.next_complete().await {
                Ok(Some(entry)) => self.add(entry, &mut level)?,
                Ok(None) => return Ok(Part { path: self.path, level, rest: None }),
                Err(error) if self.is_told => return Err(explain(error, &self.path)),
                Err(error)
                    if (error.is_stale() || error.status() == Some(NfsStatus::NOENT))
                        && !self.was_found_again =>
                {
                    level = Level::default();
                    let Some(found) = self.store.prefix(&self.path).await? else {
                        return Ok(Part { path: self.path, level, rest: None });
                    };
                    (self.handle, self.was_found_again) = (found, true);
                    self.listing = self.store.client.read_dir(found);
                }
                Err(error) if error.status() == Some(NfsStatus::BAD_COOKIE) && self.attempt < ATTEMPTS => {
                    level = Level::default();
                    self.attempt += 1;
                    self.listing = self.store.client.read_dir(self.handle);
                }
                Err(error) => return Err(explain(error, &self.path)),
            }
            if level.bytes >= PART_BYTES || level.directory_bytes > directory_bytes {
                self.is_told = true;
                return Ok(Part { path: self.path.clone(), level, rest: Some(self) });
            }
        }
    }

    fn add(&self, entry: DirEntry, level: &mut Level) -> Result<()> {
        let (path, DirEntry { name, metadata, handle, .. }) = (&self.path, entry);
        let (Some(metadata), Some(handle)) = (metadata, handle) else {
            return Err(Refusal::NotFound.at(format!("{path}/{}", name.escape_ascii())));
        };
        if !matches!(metadata.file_type, FileType::Regular | FileType::Directory)
            || metadata.file_type == FileType::Regular && is_staging(&name)
        {
            return Ok(());
        }
        let part = part(path, &name)?;
        match metadata.file_type {
            FileType::Directory => {
                let name = part.as_ref().to_owned();
                level.directory_bytes += Pending::bytes(&name);
                level.bytes += Pending::bytes(&name);
                level.directories.push((name, handle));
            }
            _ => {
                let object = describe(path.clone().join(part), &metadata);
                level.bytes += size_of::<ObjectMeta>() + object.location.as_ref().len();
                level.objects.push(object);
            }
        }
        Ok(())
    }
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
