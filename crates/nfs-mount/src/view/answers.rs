//! How requests are answered.

use nfs_cache::{Answer as Found, Failure, NodeId};
use nfs_wireless_client::{FileType, Metadata};
use rustix::{fs::Access, io::Errno};
use tokio::sync::oneshot;

use super::{DirectoryReader, Inner};
use crate::{
    errno::errno,
    kernel::{Answer, Attributes, Complete, FileNumber, Request, Space},
};

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// How the kernel calls its request.
    pub(super) unique: u64,
    /// The thread that waits, or 0.
    pub(super) thread: u32,
}

impl Asker {
    /// Not the kernel.
    pub(crate) const NOBODY: Self = Self { unique: 0, thread: 0 };
}

impl From<&Request<'_>> for Asker {
    fn from(request: &Request<'_>) -> Self {
        Self { unique: request.unique, thread: request.thread }
    }
}

/// How somebody is to be answered.
#[derive(Debug)]
pub(crate) enum Reply {
    /// What a name in a directory leads to.
    Entry(NodeId, Box<[u8]>, Answer),
    Attributes(Answer),
    /// Whether a file may be used in this way.
    Access(Access, Answer),
    Open {
        named: NodeId,
        /// It is the second try.
        is_again: bool,
        answer: Answer,
    },
    Data(Answer),
    OpenDirectory(NodeId, Answer),
    Directory(DirectoryReader, Answer),
    Space(Answer),
    /// Not the kernel: a task of this program.
    Task(oneshot::Sender<Result<Found, Failure>>),
    /// The same, for the space.
    SpaceTask(oneshot::Sender<Option<Space>>),
}

impl Reply {
    /// Returns the answer, if the kernel gets one.
    const fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Entry(_, _, answer)
            | Self::Attributes(answer)
            | Self::Access(_, answer)
            | Self::Open { answer, .. }
            | Self::Data(answer)
            | Self::OpenDirectory(_, answer)
            | Self::Directory(_, answer)
            | Self::Space(answer) => Some(answer),
            Self::Task(_) | Self::SpaceTask(_) => None,
        }
    }

    pub(crate) fn fail(self, error: Errno) {
        match self {
            Self::Entry(_, _, answer)
            | Self::Attributes(answer)
            | Self::Access(_, answer)
            | Self::Open { answer, .. }
            | Self::Data(answer)
            | Self::OpenDirectory(_, answer)
            | Self::Directory(_, answer)
            | Self::Space(answer) => answer.fail(error),
            // Whoever waits learns that nobody answers.
            Self::Task(_) | Self::SpaceTask(_) => {}
        }
    }

    /// Tells the space of the file system, as far as it is known.
    pub(super) fn space(self, space: Option<Space>) {
        match (self, space) {
            (Self::Space(answer), Some(space)) => answer.space(&space),
            // A task that was given up does not listen.
            (Self::SpaceTask(task), space) => drop(task.send(space)),
            (other, _) => other.fail(Errno::IO),
        }
    }
}

impl Inner {
    pub(super) fn send(&mut self, reply: Reply, result: Result<Found, Failure>) {
        if let Some(answer) = reply.answer() {
            // Or what has grown would end where it did.
            for node in std::mem::take(&mut self.altered) {
                self.nodes_of(node).for_each(|node| answer.forget_attributes(node));
            }
        }
        match (reply, result) {
            (Reply::Task(task), result) => drop(task.send(result)),
            (Reply::OpenDirectory(node, answer), result) => self.open_directory(node, answer, result),
            (reply, Err(failure)) => reply.fail(errno(&failure)),
            (Reply::Entry(directory, name, answer), Ok(Found::Entry { node, metadata })) => {
                let node = self.told(node, directory, &name);
                let is_taken = match Complete::new(node, self.attributes(&metadata)) {
                    Some(complete) => answer.entry(&complete),
                    None => false,
                };
                if !is_taken {
                    self.forget(node, 1);
                }
            }
            (Reply::Attributes(answer), Ok(Found::Attributes(metadata))) => {
                answer.attributes(&self.attributes(&metadata));
            }
            (Reply::Access(wanted, answer), Ok(Found::Attributes(metadata))) => {
                match refusal(wanted, &metadata) {
                    Some(error) => answer.fail(error),
                    None => answer.done(),
                }
            }
            (Reply::Open { answer, .. }, Ok(Found::Opened { open, keep_cache })) => {
                self.open_files += 1;
                if !answer.opened(open.number(), keep_cache) {
                    self.release(open);
                }
            }
            (Reply::Data(answer), Ok(Found::Data(pieces))) => answer.data(&pieces),
            (Reply::Data(answer), Ok(Found::Target(target))) => answer.target(&target),
            (Reply::Directory(reader, answer), Ok(Found::Listing(entries))) => {
                let entries = self.usable(entries);
                self.keep_listing(reader, &entries);
                self.send_listing(reader, answer, &entries);
            }
            (reply, Ok(_)) => reply.fail(Errno::IO),
        }
    }

    /// Returns attributes with the number that programs see.
    pub(super) fn attributes(&self, metadata: &Metadata) -> Attributes {
        Attributes { number: self.number(metadata.fsid, metadata.fileid), metadata: *metadata }
    }

    pub(super) fn number(&self, file_system: u64, file: u64) -> FileNumber {
        let root = self.cache.known(NodeId::ROOT).map_or(file_system, |root| root.fsid);
        FileNumber::new(root, file_system, file)
    }
}

/// Why a file cannot be used in a way. Who may read it, the server says when it is read.
fn refusal(wanted: Access, metadata: &Metadata) -> Option<Errno> {
    const ANY_EXECUTE: u32 = 0o111;
    let is_file = metadata.file_type == FileType::Regular;
    let is_changed_here = is_file || matches!(metadata.file_type, FileType::Directory | FileType::Symlink);
    if wanted.contains(Access::WRITE_OK) && is_changed_here {
        return Some(Errno::ROFS);
    }
    let is_refused = wanted.contains(Access::EXEC_OK) && is_file && metadata.mode & ANY_EXECUTE == 0;
    is_refused.then_some(Errno::ACCESS)
}

#[cfg(test)]
mod tests {
    use nfs_wire::nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3};

    use super::*;

    fn of(type_: ftype3, mode: u32) -> Metadata {
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        Metadata::from(&fattr3 {
            type_,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: specdata3::default(),
            fsid: 1,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        })
    }

    #[test]
    fn programs_are_told_what_they_cannot_do() {
        let (plain, script) = (of(ftype3::NF3REG, 0o644), of(ftype3::NF3REG, 0o654));
        assert_eq!(refusal(Access::READ_OK, &of(ftype3::NF3REG, 0)), None, "the server knows");
        assert_eq!(refusal(Access::EXEC_OK, &plain), Some(Errno::ACCESS));
        assert_eq!(refusal(Access::EXEC_OK | Access::READ_OK, &script), None);
        assert_eq!(refusal(Access::EXEC_OK, &of(ftype3::NF3DIR, 0)), None);
        assert_eq!(refusal(Access::WRITE_OK, &script), Some(Errno::ROFS));
        assert_eq!(refusal(Access::WRITE_OK, &of(ftype3::NF3DIR, 0o777)), Some(Errno::ROFS));
        assert_eq!(refusal(Access::WRITE_OK, &of(ftype3::NF3FIFO, 0o666)), None);
    }
}
