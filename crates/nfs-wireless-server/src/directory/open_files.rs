//! Files that are kept open for READ and WRITE, the last used first.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use nfs_wire::Status;
use rustix::process::{Uid, geteuid};

use super::{
    Access,
    host::{self, look},
};
use crate::{descriptors::most_descriptors, vfs::NodeId};

/// A regular file that is open, and what is known of the bytes that were written to it.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: OwnedFd,
    access: Access,
    /// Bytes were written, and nobody has waited since until they are on the disk.
    is_unsynced: AtomicBool,
    /// Why such bytes did not get there, if no client has heard of it. Held by whoever finds that out without one.
    lost: Mutex<Option<Status>>,
}

impl OpenFile {
    pub(super) const fn new(file: OwnedFd, access: Access) -> Self {
        Self { file, access, is_unsynced: AtomicBool::new(false), lost: Mutex::new(None) }
    }

    /// Notes that bytes were written.
    pub(super) fn note_written(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    /// Waits until all of it is on the disk, for a client.
    ///
    /// # Errors
    /// Also what went wrong with earlier bytes: the host tells that once.
    pub(super) fn sync(&self) -> Result<(), Status> {
        self.sync_with(|file| host::sync(file))
    }

    /// Waits until the bytes of it are on the disk, and what is needed to read them, for a client.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(super) fn sync_data(&self) -> Result<(), Status> {
        self.sync_with(|file| host::sync_data(file))
    }

    fn sync_with(&self, sync: impl FnOnce(&OwnedFd) -> Result<(), Status>) -> Result<(), Status> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.is_unsynced.store(false, Ordering::Release);
        lost.map_or_else(|| sync(&self.file), Err)
    }

    /// Waits until what was written is on the disk; false, if a client has yet to hear that it is not.
    fn settle(&self) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_unsynced.swap(false, Ordering::AcqRel) && lost.is_none() {
            *lost = host::sync(&self.file).err();
        }
        lost.is_none()
    }

    /// Whether it may be closed without loss of what a client has yet to hear.
    fn has_told_all(&self) -> bool {
        self.lost.try_lock().is_ok_and(|lost| lost.is_none())
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The files that a directory keeps open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: VecDeque<Kept>,
    most: usize,
}

/// A file that is kept open.
#[derive(Debug)]
struct Kept {
    node: NodeId,
    file: Arc<OpenFile>,
    /// How often the directory has [rested](OpenFiles::rest) since it was opened for writing or written.
    rests: u32,
}

/// A file of which it is to be found out whether it is kept open any longer.
#[derive(Debug)]
pub(super) struct Candidate {
    node: NodeId,
    file: Arc<OpenFile>,
    rests: u32,
}

/// Rests after which a file is not kept open for writing any more: meanwhile the host does not run it ("Text file busy").
const RESTS: u32 = 2;

/// The same for a file whose mode does not let it be opened for writing again: whoever made it may still be writing, over a link that fails.
const RESTS_BEFORE_LAST: u32 = 60;

/// Files that all directories of this process keep open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Returns how many files all directories together may keep open: a quarter of what the process may open.
fn most_kept() -> usize {
    most_descriptors() / 4
}

impl Kept {
    fn new(node: NodeId, file: Arc<OpenFile>) -> Self {
        KEPT.fetch_add(1, Ordering::Relaxed);
        Self { node, file, rests: 0 }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Candidate {
    /// Whether it is of no use any more: it has no name on the host, where it takes room until it is closed, or has not been written for a
    /// while. What was written is on the disk then.
    pub(super) fn is_done(&self) -> bool {
        let Ok(found) = look(&*self.file) else { return false };
        let rests = rests_to_close(found.attributes.mode, geteuid());
        let is_quiet = self.file.access == Access::ReadWrite && self.rests >= rests;
        found.attributes.nlink == 0 || is_quiet && self.file.settle()
    }
}

/// Returns after how many rests a file of this user's is closed that has this mode.
fn rests_to_close(mode: u32, user: Uid) -> u32 {
    const OWNER_WRITES: u32 = 0o200;
    if mode & OWNER_WRITES != 0 || user.is_root() { RESTS } else { RESTS_BEFORE_LAST }
}

impl OpenFiles {
    pub(super) const fn new(most: usize) -> Self {
        Self { files: VecDeque::new(), most }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns a file that is open, for whatever it is.
    pub(super) fn any(&self, node: NodeId) -> Option<&OpenFile> {
        self.files.iter().find(|kept| kept.node == node).map(|kept| &*kept.file)
    }

    /// Returns a file that is open for this, as the last one used.
    pub(super) fn find(&mut self, node: NodeId, access: Access) -> Option<Arc<OpenFile>> {
        let index = self.files.iter().position(|kept| {
            kept.node == node && (kept.file.access == Access::ReadWrite || access == Access::ReadOnly)
        })?;
        let mut kept = self.files.remove(index)?;
        if access == Access::ReadWrite {
            kept.rests = 0;
        }
        let file = Arc::clone(&kept.file);
        self.files.push_front(kept);
        Some(file)
    }

    /// Keeps a file open, in the place of what was open of it, and closes others if there are too many.
    pub(super) fn keep(&mut self, node: NodeId, file: OpenFile) -> Arc<OpenFile> {
        self.close(node);
        while !self.files.is_empty()
            && (self.files.len() >= self.most || KEPT.load(Ordering::Relaxed) >= most_kept())
        {
            self.close_one();
        }
        let file = Arc::new(file);
        self.files.push_front(Kept::new(node, Arc::clone(&file)));
        file
    }

    /// Closes the file unused for longest of which no client has yet to hear something, if there is one.
    fn close_one(&mut self) {
        let index = self.files.iter().rposition(|kept| kept.file.has_told_all());
        self.files.remove(index.unwrap_or(self.files.len() - 1));
    }

    /// Closes all of which no client has yet to hear something.
    pub(super) fn close_all(&mut self) {
        self.files.retain(|kept| !kept.file.has_told_all());
    }

    pub(super) fn close(&mut self, node: NodeId) {
        self.files.retain(|kept| kept.node != node);
    }

    /// Notes that the directory rests, and returns what may be of no use any more.
    pub(super) fn rest(&mut self) -> Vec<Candidate> {
        let candidate = |kept: &mut Kept| {
            kept.rests = kept.rests.saturating_add(1);
            Candidate { node: kept.node, file: Arc::clone(&kept.file), rests: kept.rests }
        };
        self.files.iter_mut().map(candidate).collect()
    }

    /// Lets go of those that are of no use, unless they were used meanwhile. They are closed with the candidates.
    pub(super) fn let_go(&mut self, done: &[Candidate]) {
        let is_same = |kept: &Kept, it: &Candidate| {
            it.node == kept.node && it.rests == kept.rests && Arc::ptr_eq(&it.file, &kept.file)
        };
        self.files.retain(|kept| !done.iter().any(|it| is_same(kept, it)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose bytes the host does not get to a disk: it has none for a pipe.
    fn lost() -> OpenFile {
        let (reader, _) = std::io::pipe().unwrap();
        OpenFile::new(reader.into(), Access::ReadWrite)
    }

    #[test]
    fn what_was_lost_without_a_client_is_told_to_the_next_one() {
        let file = lost();
        assert!(file.settle(), "nothing was written");
        file.note_written();
        assert!(!file.settle() && !file.settle());
        let later = || file.sync_with(|_| Ok(()));
        assert_eq!((later(), later()), (Err(Status::INVAL), Ok(())));
        assert!(file.settle());
    }

    #[test]
    fn a_file_stays_open_until_a_client_has_heard_what_was_lost() {
        let mut files = OpenFiles::new(2);
        let file = files.keep(NodeId(2), lost());
        file.note_written();
        for _ in 0..10 {
            let done: Vec<_> = files.rest().into_iter().filter(Candidate::is_done).collect();
            files.let_go(&done);
        }
        for node in 3..10 {
            files.keep(NodeId(node), lost());
        }
        files.close_all();
        let kept = files.find(NodeId(2), Access::ReadOnly).expect("it is open");
        assert_eq!((kept.sync_with(|_| Ok(())), files.files.len()), (Err(Status::INVAL), 1));
        files.close_all();
        assert!(files.is_empty());
    }

    #[test]
    fn what_can_be_opened_again_is_closed_earlier() {
        let user = Uid::from_raw(1000);
        assert_eq!([0o644, 0o200, 0o500].map(|mode| rests_to_close(mode, user)), [2, 2, 60]);
        assert_eq!(rests_to_close(0o444, Uid::ROOT), 2);
    }
}
