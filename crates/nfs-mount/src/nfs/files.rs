//! What NFS clients do not say: which files are open, and how far a directory was read.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_cache::{Answer, Failure, Identity, NodeId, OpenId, OperationId};
use nfs_wire::{
    FileHandle,
    nfs3_types::nfs3::{READ3args, nfs_fh3},
};
use nfs_wireless_client::{FileType, Metadata, NfsStatus};

use super::{
    Answers, Export, Held,
    answered::{Body, Row, cookie},
    status,
};
use crate::kernel::UNKNOWN_NUMBER;

/// A file that was not read for so long is closed.
const OPEN_TIME: Duration = Duration::from_secs(30);

/// Most files that are open at once; the one unused for longest is closed.
const MAX_OPEN: usize = 1024;

/// Directories whose listings are kept for those who read on.
const MAX_LISTINGS: usize = 4;

/// How long a listing serves those who read on: much longer, and its attributes are older than what they were told meanwhile.
const LISTING_TIME: Duration = Duration::from_secs(10);

/// Most directories whose parent is remembered.
const MAX_PARENTS: usize = 100_000;

/// Files and directories in use.
#[derive(Debug, Default)]
pub(super) struct State {
    files: BTreeMap<NodeId, File>,
    listings: VecDeque<Kept>,
    parents: BTreeMap<FileHandle, FileHandle>,
}

/// A listing that was begun.
#[derive(Debug)]
struct Kept {
    directory: FileHandle,
    rows: Arc<[Row]>,
    at: Instant,
}

#[derive(Debug)]
struct File {
    /// A client was told of this version by what was asked since then.
    confirmed: Option<OperationId>,
    open: Option<OpenId>,
    used: Instant,
}

impl State {
    /// Records that a client knows a file as it was after an operation was begun.
    pub(super) fn confirmed(&mut self, node: NodeId, since: OperationId, now: Instant) {
        let file = self.files.entry(node).or_insert(File { confirmed: None, open: None, used: now });
        file.confirmed = Some(since);
        file.used = now;
    }

    /// Returns files to close: those that nobody has read for a while, and the oldest of too many.
    pub(super) fn tidy(&mut self, now: Instant) -> Vec<OpenId> {
        let is_old = |file: &File| now.saturating_duration_since(file.used) >= OPEN_TIME;
        let mut gone: Vec<NodeId> =
            self.files.iter().filter(|(_, file)| is_old(file)).map(|(&node, _)| node).collect();
        if self.files.len() - gone.len() > MAX_OPEN {
            let mut all: Vec<(Instant, NodeId)> =
                self.files.iter().map(|(&node, file)| (file.used, node)).collect();
            all.sort_unstable();
            gone = all[..all.len() - MAX_OPEN].iter().map(|&(_, node)| node).collect();
        }
        gone.iter().filter_map(|node| self.files.remove(node)?.open).collect()
    }

    /// Remembers which directory another one was found in.
    pub(super) fn learn_parent(&mut self, directory: FileHandle, parent: FileHandle) {
        if self.parents.len() < MAX_PARENTS || self.parents.contains_key(&directory) {
            self.parents.insert(directory, parent);
        }
    }

    pub(super) fn parent(&self, directory: &FileHandle) -> Option<FileHandle> {
        self.parents.get(directory).copied()
    }

    fn keep_listing(&mut self, directory: FileHandle, rows: &Arc<[Row]>, at: Instant) {
        self.listings.retain(|kept| kept.directory != directory);
        self.listings.push_back(Kept { directory, rows: Arc::clone(rows), at });
        if self.listings.len() > MAX_LISTINGS {
            self.listings.pop_front();
        }
    }

    fn listing(&mut self, directory: &FileHandle, now: Instant) -> Option<Arc<[Row]>> {
        self.listings.retain(|kept| now.saturating_duration_since(kept.at) < LISTING_TIME);
        self.listings.iter().find(|kept| kept.directory == *directory).map(|kept| Arc::clone(&kept.rows))
    }
}

impl Export {
    pub(super) async fn read(&self, arguments: &READ3args) -> Answers {
        let mut held = match self.object(&arguments.file).await {
            Ok(held) => held,
            Err(status) => return (Err(status), Body::Nothing),
        };
        let body = match self.data(&held, arguments).await {
            Ok(body) => body,
            // The object that the handle was for is over: its attributes are of no use.
            Err(NfsStatus::STALE) => return (Err(NfsStatus::STALE), Body::Nothing),
            Err(status) => Body::Failed(status),
        };
        // It may have been written before anything was read of it: the cache keeps its node.
        if self.is_same(&arguments.file, &held).is_err() {
            return (Err(NfsStatus::STALE), Body::Nothing);
        }
        // It may have grown meanwhile.
        held.metadata = self.view.lock().cache.known(held.node).unwrap_or(held.metadata);
        (Ok(Some(self.known(&held))), body)
    }

    async fn data(&self, held: &Held<'_>, arguments: &READ3args) -> Result<Body, NfsStatus> {
        let count = arguments.count.min(super::READ_BYTES);
        let open = self.open(held).await?;
        match self.ask(|cache, now| cache.read(now, open, arguments.offset, count)).await.1 {
            Ok(Answer::Data(pieces)) => Ok(Body::Data(pieces)),
            Ok(_) => Err(NfsStatus::SERVERFAULT),
            Err(failure) => Err(status(&failure)),
        }
    }

    /// Opens a file, or returns how it is open.
    async fn open(&self, held: &Held<'_>) -> Result<OpenId, NfsStatus> {
        let node = held.node;
        let confirmed = match self.state.borrow_mut().files.get_mut(&node) {
            Some(file) => {
                file.used = now();
                if let Some(open) = file.open {
                    return Ok(open);
                }
                file.confirmed
            }
            None => None,
        };
        let opened = self.ask(|cache, now| cache.open_handle(now, node, confirmed));
        let open = match opened.await.1 {
            Ok(Answer::Opened { open, .. }) => open,
            Ok(_) => return Err(NfsStatus::SERVERFAULT),
            // Directories and others.
            Err(Failure::WrongKind) => return Err(NfsStatus::ISDIR),
            Err(failure) => return Err(status(&failure)),
        };
        let mut state = self.state.borrow_mut();
        let file = state.files.entry(node).or_insert_with(|| File { confirmed, open: None, used: now() });
        match file.open {
            // Another READ was quicker.
            Some(other) => {
                self.view.lock().cache.release(open);
                Ok(other)
            }
            None => {
                file.open = Some(open);
                Ok(open)
            }
        }
    }

    pub(super) async fn list(&self, handle: &nfs_fh3, after: u64) -> Answers {
        let directory = match self.object(handle).await {
            Ok(directory) => directory,
            Err(status) => return (Err(status), Body::Nothing),
        };
        let kept = match after {
            0 => None,
            _ => self.state.borrow_mut().listing(&directory.server, now()),
        };
        let rows = match kept {
            Some(rows) => Ok(rows),
            None => self.rows(&directory).await,
        };
        let known = self.known(&directory);
        let body = match rows {
            Ok(rows) => Body::Listing { rows, parent: self.parent(&directory).await },
            Err(status) => Body::Failed(status),
        };
        (Ok(Some(known)), body)
    }

    /// Lists a directory from its beginning.
    async fn rows(&self, directory: &Held<'_>) -> Result<Arc<[Row]>, NfsStatus> {
        let node = directory.node;
        let listing = match self.ask(|cache, now| cache.list(now, node)).await.1 {
            Ok(Answer::Listing(listing)) => self.view.lock().usable(listing),
            Ok(_) => return Err(NfsStatus::SERVERFAULT),
            Err(Failure::WrongKind) => return Err(NfsStatus::NOTDIR),
            Err(failure) => return Err(status(&failure)),
        };
        let found: Vec<Option<(Identity, Metadata)>> = {
            let cache = &self.view.lock().cache;
            let of = |node| Some((cache.identity(node)?, cache.known(node)?));
            listing.iter().map(|entry| entry.node.and_then(of)).collect()
        };
        let mut rows = Vec::with_capacity(listing.len());
        for (entry, found) in listing.iter().zip(found) {
            if let Some((identity, Metadata { file_type: FileType::Directory, .. })) = found {
                self.state.borrow_mut().learn_parent(identity.handle, directory.server);
            }
            let known = found.map(|(identity, metadata)| self.describe(&identity, &metadata));
            let name = entry.name.to_vec();
            let fileid = if entry.fileid == 0 { UNKNOWN_NUMBER } else { entry.fileid };
            rows.push(Row { cookie: cookie(&name), name, fileid, known });
        }
        rows.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        for at in 1..rows.len() {
            // Names with one hash: rarer than broken memory, but a client would turn in circles.
            let least = rows[at - 1].cookie + 1;
            rows[at].cookie = rows[at].cookie.max(least);
        }
        let rows: Arc<[Row]> = rows.into();
        self.state.borrow_mut().keep_listing(directory.server, &rows, now());
        Ok(rows)
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
