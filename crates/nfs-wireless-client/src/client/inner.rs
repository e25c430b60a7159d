//! Exports within the export.
//!
//! A server may export a directory and, on its own, a file system that is mounted below it. LOOKUP stays in the outer export there
//! (Linux without `crossmnt`), so that the mount point looks like an empty directory; only MNT leads to what the users of the server
//! see. Whoever walks through a tree must therefore know the exports below it: the client asks for them when it connects, and where a
//! name is such an export, it uses the root handle that MNT gives. Where the server does not list its exports, every directory that is
//! looked up may be one, and MNT is asked about each. Handles of all exports are valid on every connection to the server (RFC 1813
//! §2.3.3: they are opaque, and name a file whatever was mounted).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use nfs_proto::attr::{FileType, Metadata, optional};
use nfs_wire::{
    FileHandle, MountStatus, Procedure, Reader, Status, encode,
    mount::{Export, MAX_PATH_BYTES},
    nfs3_types::nfs3::{GETATTR3args, GETATTR3resok, LOOKUP3resok, Nfs3Option, READDIRPLUS3resok},
    reply,
};
use tokio::sync::OnceCell;

use super::{Client, Entry, Inner, within};
use crate::{
    connect::{Finder, normal_path, unlikely_name},
    driver::Connection,
    error::Error,
    shown::shown,
};

/// Mount points that are looked up ahead. A file server has some hundred file systems at most.
const MOST_FOUND: usize = 4096;

/// Bytes that the directories whose paths are remembered may take; those that were used last are remembered beyond that. With short
/// paths these are 26,000 directories.
const MOST_PATH_BYTES: usize = 8 << 20;

/// What is known of the exports below the one that the client has mounted.
#[derive(Debug)]
pub(super) struct InnerExports {
    /// Their paths, by the server's list.
    listed: BTreeSet<Vec<u8>>,
    /// Whether the server tells what it exports.
    is_known: bool,
    state: Mutex<State>,
    service: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// What the server answers to MNT of a path that does not exist, where it does not list its exports.
    missing: OnceCell<Option<MountStatus>>,
    /// Set when the directories above the exports have been looked up.
    is_explored: OnceCell<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that `above` and `above_paths` take.
    above_bytes: usize,
    /// Directories that inner exports lie in, with their paths: those that were used last, and those before.
    above: BTreeMap<FileHandle, Vec<u8>>,
    above_before: BTreeMap<FileHandle, Vec<u8>>,
    above_paths: BTreeMap<Vec<u8>, FileHandle>,
    /// What lies below mount points, with their paths.
    covered: BTreeMap<FileHandle, Vec<u8>>,
    mounts: BTreeMap<Vec<u8>, Mounted>,
}

/// What MNT has given for a mount point.
#[derive(Clone, Debug)]
struct Mounted {
    covered: FileHandle,
    root: Result<FileHandle, Error>,
}

impl InnerExports {
    pub(super) fn new(listed: &[Export], export: &[u8], root: FileHandle) -> Self {
        let export = normal_path(export);
        let paths: Vec<_> = listed.iter().map(|it| normal_path(&it.directory)).collect();
        // What was mounted by another path, through a link of the server's, has inner exports by other paths.
        let is_known = paths.iter().any(|path| *path == export || is_below(&export, path));
        let all: BTreeSet<_> = paths.into_iter().filter(|path| is_below(path, &export)).collect();
        let mut state = State::default();
        if !all.is_empty() || !is_known {
            state.lies_above(root, export);
        }
        Self {
            listed: all,
            is_known,
            state: Mutex::new(state),
            service: tokio::sync::Mutex::default(),
            missing: OnceCell::new(),
            is_explored: OnceCell::new(),
        }
    }

    /// Whether there is nothing to look out for.
    pub(super) fn is_empty(&self) -> bool {
        let mounts_anything = self.missing.get().is_some_and(Option::is_none);
        if self.is_known { self.listed.is_empty() } else { mounts_anything }
    }

    /// Returns the path of a name in a directory, if an inner export may be there or below.
    fn path_of(&self, directory: FileHandle, name: &[u8]) -> Option<Vec<u8>> {
        if self.is_empty() || matches!(name, b"." | b"..") {
            return None;
        }
        let path = join(&self.state().path_above(directory)?, name);
        // MNT takes no longer ones.
        if path.len() > MAX_PATH_BYTES {
            return None;
        }
        (!self.is_known || self.listed.contains(&path) || self.has_below(&path)).then_some(path)
    }

    /// Whether a name that leads to this has to be looked up, so that it leads to what is mounted there.
    fn must_be_looked_up(
        &self,
        path: &[u8],
        handle: Option<FileHandle>,
        file_type: Option<FileType>,
    ) -> bool {
        let mut state = self.state();
        match handle {
            Some(handle) if self.is_known && !self.listed.contains(path) => {
                state.lies_above(handle, path.to_vec());
                false
            }
            Some(handle) if !self.is_known => {
                let is_directory = file_type.is_none_or(|it| it == FileType::Directory);
                is_directory && state.path_above(handle).as_deref() != Some(path)
            }
            _ => true,
        }
    }

    /// Whether it was seen before that what is mounted at a path is this directory.
    fn is_seen(&self, path: &[u8], entry: &Entry) -> bool {
        self.state().path_above(entry.handle).as_deref() == Some(path)
    }

    /// Whether an inner export is at this path, as far as that is known.
    fn is_at(&self, path: &[u8]) -> bool {
        self.listed.contains(path) || self.state().mounts.contains_key(path)
    }

    fn has_below(&self, path: &[u8]) -> bool {
        let first = join(path, b"");
        self.listed.range(first.clone()..).next().is_some_and(|next| next.starts_with(&first))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the path of a directory that inner exports may lie in.
    fn path_above(&mut self, directory: FileHandle) -> Option<Vec<u8>> {
        if let Some(path) = self.above.get(&directory) {
            return Some(path.clone());
        }
        let path = self.above_before.remove(&directory)?;
        self.lies_above(directory, path.clone());
        Some(path)
    }

    fn lies_above(&mut self, handle: FileHandle, path: Vec<u8>) {
        if self.above.get(&handle) == Some(&path) && self.above_paths.get(&path) == Some(&handle) {
            return;
        }
        let bytes = 2 * (size_of::<FileHandle>() + size_of::<Vec<u8>>() + path.len());
        if self.above_bytes + bytes > MOST_PATH_BYTES {
            self.above_before = mem::take(&mut self.above);
            self.above_paths.clear();
            self.above_bytes = 0;
        }
        self.above_bytes += bytes;
        let before = self.above_paths.insert(path.clone(), handle);
        if let Some(before) = before.filter(|before| *before != handle) {
            self.above.remove(&before);
        }
        self.above.insert(handle, path);
    }

    fn is_mounted(&mut self, path: &[u8], mounted: Mounted) {
        let covered = mounted.covered;
        if let Some(before) = self.mounts.insert(path.to_vec(), mounted) {
            self.covered.remove(&before.covered);
        }
        self.covered.insert(covered, path.to_vec());
    }

    fn forget(&mut self, path: &[u8]) {
        if let Some(before) = self.mounts.remove(path) {
            self.covered.remove(&before.covered);
        }
    }
}

impl Client {
    /// Whether a handle is that of a mount point: of the root of an export within the client's own, or of what lies below it.
    pub fn is_inner_export(&self, handle: FileHandle) -> bool {
        let inner = &self.inner.inner_exports;
        if inner.is_empty() {
            return false;
        }
        let state = inner.state();
        state.covered.contains_key(&handle)
            || state.mounts.values().any(|mounted| mounted.root.as_ref().ok() == Some(&handle))
    }

    /// Makes a call as [`Client::call_raw`] does, for file systems that keep handles and names themselves. Where a name is an export
    /// of its own, LOOKUP gives its root, READDIRPLUS neither handle nor attributes, so that it is looked up. In an export that the
    /// server refuses to mount, LOOKUP, READDIR and READDIRPLUS fail with `NFS3ERR_ACCES`.
    ///
    /// # Errors
    /// As [`Client::call_raw`].
    pub async fn call_across(&self, procedure: Procedure, mut arguments: Vec<u8>) -> Result<Bytes, Error> {
        let inner = &self.inner.inner_exports;
        if inner.is_empty() {
            return self.call_raw(procedure, arguments).await;
        }
        inner.is_explored.get_or_try_init(|| self.explore()).await?;
        let mut reader = Reader::new(&arguments);
        let Some(directory) = handle_in(&mut reader) else {
            return self.call_raw(procedure, arguments).await;
        };
        let is_listing = matches!(procedure, Procedure::Readdir | Procedure::Readdirplus);
        match self.inside(directory) {
            Ok(root) if root != directory => {
                let mut changed = Vec::with_capacity(arguments.len() + 64);
                encode(&mut changed, &root.to_fh3());
                changed.extend_from_slice(reader.rest());
                arguments = changed;
            }
            Err(error) if is_listing || procedure == Procedure::Lookup => {
                tracing::warn!(%error, "an export is not entered");
                let mut refusal = Vec::new();
                encode(&mut refusal, &Status::ACCES.code());
                // No attributes.
                encode(&mut refusal, &0_u32);
                return Ok(refusal.into());
            }
            Ok(_) | Err(_) => {}
        }
        let mut reader = Reader::new(&arguments);
        let Some(directory) = handle_in(&mut reader) else {
            return self.call_raw(procedure, arguments).await;
        };
        let name = (procedure == Procedure::Lookup)
            .then(|| reader.opaque("name", MAX_NAME_BYTES).ok().map(<[u8]>::to_vec));
        let name = name.flatten();
        let results = self.call_raw(procedure, arguments).await?;
        match (procedure, name) {
            (Procedure::Lookup, Some(name)) => self.looked_up_across(directory, &name, results).await,
            (Procedure::Readdirplus, _) => Ok(self.listed_across(directory, results)),
            _ => Ok(results),
        }
    }

    /// Returns the directory that a handle is to stand for: what is mounted there, if something is.
    ///
    /// # Errors
    /// [`Error::NotEntered`].
    pub(crate) fn inside(&self, handle: FileHandle) -> Result<FileHandle, Error> {
        let inner = &self.inner.inner_exports;
        if inner.is_empty() {
            return Ok(handle);
        }
        let state = inner.state();
        let Some(path) = state.covered.get(&handle) else { return Ok(handle) };
        match state.mounts.get(path).map(|mounted| &mounted.root) {
            Some(Ok(root)) => Ok(*root),
            Some(Err(source)) => Err(not_entered(path, source.clone())),
            None => Ok(handle),
        }
    }

    /// Returns what a name in a directory leads to, which LOOKUP says is `entry`.
    pub(crate) async fn crossed(
        &self,
        directory: FileHandle,
        name: &[u8],
        entry: Entry,
    ) -> Result<Entry, Error> {
        let inner = &self.inner.inner_exports;
        if entry.metadata.file_type != FileType::Directory {
            return Ok(entry);
        }
        let Some(path) = inner.path_of(directory, name) else { return Ok(entry) };
        let mut entry = entry;
        if inner.is_known && inner.listed.contains(&path) || !inner.is_known && !inner.is_seen(&path, &entry)
        {
            let Some(root) = self.root_of(&path, &entry).await? else { return Ok(entry) };
            if root != entry.handle {
                entry = match self.metadata(root).await {
                    Ok(metadata) => Entry { handle: root, metadata },
                    // It was mounted again.
                    Err(error) if error.is_stale() => {
                        inner.state().forget(&path);
                        match self.root_of(&path, &entry).await? {
                            Some(handle) => Entry { handle, metadata: self.metadata(handle).await? },
                            None => return Ok(entry),
                        }
                    }
                    Err(error) => return Err(error),
                };
            }
        }
        if !inner.is_known && !inner.is_empty() || inner.has_below(&path) {
            inner.state().lies_above(entry.handle, path);
        }
        Ok(entry)
    }

    /// Takes handles and attributes away from the names in a directory that are exports of their own, so that they are looked up.
    pub(crate) fn hide_mount_points<'a>(
        &self,
        directory: FileHandle,
        entries: impl Iterator<Item = (&'a [u8], &'a mut Option<FileHandle>, &'a mut Option<Metadata>)>,
    ) {
        let inner = &self.inner.inner_exports;
        for (name, handle, metadata) in entries {
            let Some(path) = inner.path_of(directory, name) else { continue };
            if inner.must_be_looked_up(&path, *handle, metadata.as_ref().map(|it| it.file_type)) {
                (*handle, *metadata) = (None, None);
            }
        }
    }

    /// Whether a name in a directory is an export of its own, which has to stay.
    pub(crate) fn refuse_mount_point(&self, directory: FileHandle, name: &[u8]) -> Result<(), Error> {
        let inner = &self.inner.inner_exports;
        match inner.path_of(directory, name) {
            Some(path) if inner.is_at(&path) => Err(Error::MountPoint { path: shown(&path) }),
            _ => Ok(()),
        }
    }

    /// Returns what is mounted at a path, where LOOKUP leads to `covered`: the root of an inner export, or `covered` itself; `None` where
    /// the server refuses it.
    async fn root_of(&self, path: &[u8], covered: &Entry) -> Result<Option<FileHandle>, Error> {
        let inner = &self.inner.inner_exports;
        let known = inner.state().mounts.get(path).filter(|it| it.covered == covered.handle).cloned();
        if let Some(Mounted { root, .. }) = known {
            return Ok(root.ok());
        }
        let root = match self.mount_at(path).await {
            Err(error) if !matches!(error, Error::Mount { .. }) => return Err(error),
            answer if !inner.is_known => match self.unlisted(answer, covered).await? {
                Some(root) => root,
                None => return Ok(Some(covered.handle)),
            },
            Ok(root) if root == self.root() || inner.state().above.contains_key(&root) => {
                Err(Error::SameDirectory { shorter: shown(self.export()), longer: shown(path) })
            }
            answer => answer,
        };
        inner.state().is_mounted(path, Mounted { covered: covered.handle, root: root.clone() });
        Ok(root.ok())
    }

    /// Decides what an answer to MNT means where exports are not listed: an inner export, or one that is refused, or (`None`) nothing.
    async fn unlisted(
        &self,
        answer: Result<FileHandle, Error>,
        covered: &Entry,
    ) -> Result<Option<Result<FileHandle, Error>>, Error> {
        let missing = self.missing().await?;
        let root = match answer {
            Ok(root) => root,
            Err(Error::Mount { status, .. }) if is_no_export(status) || missing == Some(status) => {
                return Ok(None);
            }
            // Servers that mount exports alone refuse any other directory.
            Err(error) => return Ok(self.looks_empty(covered.handle).await?.then_some(Err(error))),
        };
        if missing.is_none() || [self.root(), covered.handle].contains(&root) {
            return Ok(None);
        }
        let there = self.metadata(root).await?;
        // Some servers give a directory several handles.
        let identity = |it: &Metadata| (it.fsid, it.fileid);
        let is_another = identity(&there) != identity(&covered.metadata);
        Ok((is_another && there.file_type == FileType::Directory).then_some(Ok(root)))
    }

    /// Whether a directory has no entries; one that cannot be listed has some.
    async fn looks_empty(&self, directory: FileHandle) -> Result<bool, Error> {
        match self.read_dir(directory).next().await {
            Ok(first) => Ok(first.is_none()),
            Err(error) if error.status().is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns how MNT refuses a path that does not exist; `None` where it does not.
    async fn missing(&self) -> Result<Option<MountStatus>, Error> {
        let inner = &self.inner.inner_exports;
        let missing = inner.missing.get_or_try_init(async || {
            match self.mount_at(&join(&normal_path(self.export()), &unlikely_name())).await {
                Ok(_) => Ok(None),
                Err(Error::Mount { status, .. }) => Ok(Some(status)),
                Err(error) => Err(error),
            }
        });
        missing.await.copied()
    }

    /// MNT at the service that was found when the client connected.
    async fn mount_at(&self, path: &[u8]) -> Result<FileHandle, Error> {
        let Inner { endpoint, mount, host, inner_exports, .. } = &*self.inner;
        let config = &endpoint.config;
        let finder = Finder { reactor: &endpoint.reactor, config, host };
        let mounting = async {
            let service = {
                let mut service = inner_exports.service.lock().await;
                match &*service {
                    Some(connection) => Arc::clone(connection),
                    None => Arc::clone(service.insert(Arc::new(finder.mount_service(*mount).await?))),
                }
            };
            finder.mount_exactly(&service, *mount, path).await
        };
        let mounted = within(config, host, mounting).await;
        if mounted.as_ref().is_err_and(|error| !matches!(error, Error::Mount { .. })) {
            *inner_exports.service.lock().await = None;
        }
        mounted
    }

    /// Learns the handles of all directories above inner exports.
    async fn explore(&self) -> Result<(), Error> {
        let inner = &self.inner.inner_exports;
        let export = normal_path(self.export());
        for path in inner.listed.iter().take(MOST_FOUND) {
            let below = path.strip_prefix(&export[..]).unwrap_or_default();
            let mut names: Vec<_> =
                below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
            names.pop();
            let mut directory = self.root();
            for name in names {
                match self.lookup(directory, name).await {
                    Ok(entry) => directory = entry.handle,
                    // Not for us, or gone: nobody gets there by this way.
                    Err(error) if error.status().is_some() => break,
                    Err(Error::NotEntered { .. } | Error::Circle { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn looked_up_across(
        &self,
        directory: FileHandle,
        name: &[u8],
        results: Bytes,
    ) -> Result<Bytes, Error> {
        let Ok(Ok(found)) = reply::decode::<LOOKUP3resok>(&results) else { return Ok(results) };
        if self.inner.inner_exports.path_of(directory, name).is_none() {
            return Ok(results);
        }
        let before = self.entry(Procedure::Lookup, &found.object, &found.obj_attributes).await?;
        let entry = self.crossed(directory, name, before).await?;
        if entry.handle == before.handle {
            return Ok(results);
        }
        let arguments = GETATTR3args { object: entry.handle.to_fh3() };
        let attributes: GETATTR3resok = self.call(Procedure::Getattr, &arguments).await?;
        let mut bytes = Vec::new();
        // NFS3_OK.
        encode(&mut bytes, &0_u32);
        let (object, obj_attributes) = (entry.handle.to_fh3(), Nfs3Option::Some(attributes.obj_attributes));
        encode(&mut bytes, &LOOKUP3resok { object, obj_attributes, dir_attributes: found.dir_attributes });
        Ok(bytes.into())
    }

    fn listed_across(&self, directory: FileHandle, results: Bytes) -> Bytes {
        let inner = &self.inner.inner_exports;
        if inner.state().path_above(directory).is_none() {
            return results;
        }
        let Ok(Ok(mut page)) = reply::decode::<READDIRPLUS3resok<'_>>(&results) else { return results };
        for entry in &mut page.reply.entries.0 {
            let Some(path) = inner.path_of(directory, entry.name.as_ref()) else { continue };
            let handle = match &entry.name_handle {
                Nfs3Option::Some(handle) => FileHandle::try_from(handle).ok(),
                Nfs3Option::None => None,
            };
            let metadata: Option<Metadata> = optional(&entry.name_attributes);
            if inner.must_be_looked_up(&path, handle, metadata.map(|it| it.file_type)) {
                entry.name_handle = Nfs3Option::None;
                entry.name_attributes = Nfs3Option::None;
            }
        }
        let mut bytes = Vec::with_capacity(results.len());
        // NFS3_OK.
        encode(&mut bytes, &0_u32);
        encode(&mut bytes, &page);
        bytes.into()
    }
}

/// Longest name of a call that may concern an inner export.
const MAX_NAME_BYTES: usize = 1024;

fn handle_in(reader: &mut Reader<'_>) -> Option<FileHandle> {
    FileHandle::decode(reader).ok()
}

/// Whether a refusal of MNT says that no export is at a path: there is nothing, or no export has so long a path.
const fn is_no_export(status: MountStatus) -> bool {
    use MountStatus as S;
    matches!(status, S::NOENT | S::NOTDIR | S::INVAL | S::NAMETOOLONG)
}

fn not_entered(path: &[u8], source: Error) -> Error {
    Error::NotEntered { path: shown(path), source: Arc::new(source) }
}

/// Whether a path lies below a directory, and is not it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory.strip_suffix(b"/").unwrap_or(directory), name].join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The handle of a directory with this number.
    fn handle(number: u64) -> FileHandle {
        FileHandle::try_from(&number.to_be_bytes()[..]).unwrap()
    }

    #[test]
    fn what_is_remembered_of_directories_is_bounded_in_bytes() {
        for length in [10, 100, MAX_PATH_BYTES] {
            let mut state = State::default();
            let of = |number: u64| format!("/{number:0length$}").into_bytes();
            for number in 0..100_000 {
                state.lies_above(handle(number), of(number));
                // One that is used stays.
                assert_eq!(state.path_above(handle(0)), Some(of(0)));
            }
            let paths = state.above.values().chain(state.above_before.values());
            let bytes: usize = paths.chain(state.above_paths.keys()).map(Vec::len).sum();
            assert!(bytes <= MOST_PATH_BYTES * 3 / 2, "{length}: {bytes}");
            assert!(state.path_above(handle(99_000)).is_some());
            assert!(state.path_above(handle(1)).is_none());
        }
    }

    #[test]
    fn what_is_learned_again_takes_no_more() {
        let mut state = State::default();
        for _ in 0..3 {
            for number in 0..1000 {
                state.lies_above(handle(number), format!("/{number}").into_bytes());
            }
        }
        let before = state.above_bytes;
        state.lies_above(handle(7), b"/7".to_vec());
        assert_eq!((state.above_bytes, state.above.len()), (before, 1000));
    }

    #[test]
    fn no_export_has_a_path_that_mnt_does_not_take() {
        let root = handle(1);
        let inner = InnerExports::new(&[], b"/export", root);
        for (length, may_be) in [(MAX_PATH_BYTES - 8, true), (MAX_PATH_BYTES - 7, false)] {
            assert_eq!(inner.path_of(root, &vec![b'd'; length]).is_some(), may_be, "{length}");
        }
        for (status, is_no) in
            [(MountStatus::NAMETOOLONG, true), (MountStatus::NOENT, true), (MountStatus::ACCES, false)]
        {
            assert_eq!(is_no_export(status), is_no, "{status}");
        }
    }
}
