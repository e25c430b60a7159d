//! Open directories.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_cache::{Answer as Found, Failure, ListEntry, NodeId};
use nfs_wireless_client::{FileType, Metadata};
use rustix::io::Errno;

use super::{Inner, Link};
use crate::{
    errno::errno,
    event::Event,
    kernel::{Answer, Complete, Entry, FileNumber, Listing, Name, is_name},
};

/// How long the listing that came with opening a directory serves who begins to read it.
const OPENED: Duration = Duration::from_secs(1);

/// An open directory, with the listing that its reader goes through.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    entries: Option<Arc<Vec<ListEntry>>>,
    /// When it was listed, for a reader who has not begun yet.
    unread_since: Option<Instant>,
}

/// Who reads a directory, and how far that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryReader {
    pub(crate) node: NodeId,
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    /// Bytes that the kernel takes.
    pub(crate) room: u32,
    pub(crate) with_attributes: bool,
}

impl Inner {
    /// Opens a directory. One that is gone fails here, where the kernel looks its name up again and tries the next one; it does not when
    /// reading fails. What cannot be listed for other reasons fails when it is read, for programs open directories to stay in them, too.
    pub(super) fn open_directory(&mut self, node: NodeId, answer: Answer, result: Result<Found, Failure>) {
        let entries = match result {
            Ok(Found::Listing(entries)) => Some(self.usable(entries)),
            Err(failure @ (Failure::Stale | Failure::Status(_) | Failure::WrongKind)) => {
                tracing::debug!(?node, %failure, "a directory cannot be opened");
                return answer.fail(errno(&failure));
            }
            Ok(_) | Err(_) => None,
        };
        let handle = self.next_directory;
        self.next_directory += 1;
        let unread_since = entries.is_some().then(Instant::now);
        self.directories.insert(handle, OpenDirectory { entries, unread_since });
        // Directories have no pages.
        if !answer.opened(handle, false) {
            self.directories.remove(&handle);
        }
    }

    /// Closes a directory.
    pub(crate) fn close_directory(&mut self, handle: u64) {
        self.directories.remove(&handle);
        self.used_at = Instant::now();
    }

    /// Returns the listing that a reader goes through; one who comes back to its beginning has none.
    pub(crate) fn listing(&mut self, reader: DirectoryReader) -> Option<Arc<Vec<ListEntry>>> {
        let directory = self.directories.get_mut(&reader.handle).filter(|_| self.link.0 != Link::Ended)?;
        let unread_since = directory.unread_since.take();
        if reader.offset == 0 && unread_since.is_none_or(|since| since.elapsed() >= OPENED) {
            return None;
        }
        directory.entries.clone()
    }

    pub(super) fn keep_listing(&mut self, reader: DirectoryReader, entries: &Arc<Vec<ListEntry>>) {
        if let Some(directory) = self.directories.get_mut(&reader.handle) {
            directory.entries = Some(Arc::clone(entries));
        }
    }

    /// Leaves out names that no program can use, which the kernel would refuse together with all others. The user is told once.
    pub(crate) fn usable(&mut self, entries: Arc<Vec<ListEntry>>) -> Arc<Vec<ListEntry>> {
        let Some(unusable) = entries.iter().find(|entry| !is_name(&entry.name)) else { return entries };
        if !std::mem::replace(&mut self.told_unusable, true) {
            self.events.push(Event::UnusableName(unusable.name.clone()));
        }
        Arc::new(entries.iter().filter(|entry| is_name(&entry.name)).cloned().collect())
    }

    /// Sends as much of a listing as the kernel has room for.
    pub(crate) fn send_listing(&mut self, reader: DirectoryReader, answer: Answer, entries: &[ListEntry]) {
        let mut listing = Listing::new(reader.with_attributes, reader.room);
        let (is_full, is_anything_left) = self.fill(&mut listing, reader, entries);
        if is_full && is_anything_left && listing.is_empty() {
            // An empty answer would be the end of the directory.
            answer.fail(Errno::INVAL);
        } else {
            answer.listing(&listing);
        }
    }

    /// Returns whether the room is used up, and whether there was anything to send.
    fn fill(
        &mut self,
        listing: &mut Listing,
        reader: DirectoryReader,
        entries: &[ListEntry],
    ) -> (bool, bool) {
        let skipped = usize::try_from(reader.offset).unwrap_or(usize::MAX);
        for (next, (name, node)) in (1..).zip(self.dots(reader.node)).skip(skipped) {
            let number = node.map(|it| self.attributes(&it).number);
            // The kernel makes no node of these.
            let entry = Entry::Bare { number, file_type: Some(FileType::Directory) };
            if !listing.add(next, name, &entry) {
                return (true, true);
            }
        }
        let dots = self.dots(reader.node).len();
        for (next, entry) in (dots as u64 + 1..).zip(entries).skip(skipped.saturating_sub(dots)) {
            let Some(name) = Name::new(&entry.name) else { continue };
            let known = self.known(entry).map(|(node, metadata)| {
                if !listing.with_attributes() {
                    return (node, metadata);
                }
                self.cache.reference(node);
                (self.told(node, reader.node, &entry.name), metadata)
            });
            let shown = match known.and_then(|(node, it)| Complete::new(node, self.attributes(&it))) {
                Some(complete) => Entry::Complete(complete),
                None => Entry::Bare { number: self.listed_number(entry), file_type: None },
            };
            if !listing.add(next, name, &shown) {
                if let Some((node, _)) = known.filter(|_| listing.with_attributes()) {
                    self.forget(node, 1);
                }
                return (true, true);
            }
        }
        (false, false)
    }

    /// The two names that every directory has, with the attributes of what they lead to; nothing lies above the root.
    fn dots(&self, node: NodeId) -> [(Name<'static>, Option<Metadata>); 2] {
        let above = if node == NodeId::ROOT { Some(node) } else { self.cache.parent(node) };
        [(Name::DOT, self.cache.known(node)), (Name::DOT_DOT, above.and_then(|node| self.cache.known(node)))]
    }

    /// What an entry is, and its attributes, while they are known: the file may have got another version while its directory is read.
    fn known(&self, entry: &ListEntry) -> Option<(NodeId, Metadata)> {
        let node = entry.node.filter(|&node| self.cache.is_current(node))?;
        Some((node, self.cache.known(node)?))
    }

    /// The number of a file of which nothing else is known: one of the root's file system, as far as anybody can tell.
    fn listed_number(&self, entry: &ListEntry) -> Option<FileNumber> {
        let root = self.cache.known(NodeId::ROOT)?;
        (entry.fileid != 0).then(|| self.number(root.fsid, entry.fileid))
    }
}
