//! READs of the application that were answered in part: what asks for the rest leaves before the READs that wait.
//!
//! A server that does not know whether it sends to the right address answers READs with small parts until some of them are continued where
//! they ended. Behind hundreds of other READs, that would take hundreds of round trips.

use std::collections::VecDeque;

use nfs_wire::{Procedure, Reader, reply::ReadHead, rpc::Program};

use super::Session;
use crate::engine::{CallId, Reply};

/// Rests that are remembered, those of the last READs: more are not in flight before anything was answered whole.
const MOST: usize = 64;

/// Where READs of the application have stopped before what they asked for was there.
#[derive(Debug, Default)]
pub(super) struct Rests(VecDeque<Rest>);

#[derive(Debug, PartialEq, Eq)]
struct Rest {
    /// Header and file handle of the READ, without its XID: the same for all READs of a file.
    file: Vec<u8>,
    offset: u64,
}

/// The message of a READ, taken apart.
struct Read<'a> {
    file: &'a [u8],
    offset: u64,
    count: u32,
}

impl<'a> Read<'a> {
    /// Offset and count are the last of the arguments (RFC 1813 §3.3.6).
    fn of(message: &'a [u8]) -> Option<Self> {
        const XID_BYTES: usize = 4;
        let (message, count) = message.split_last_chunk()?;
        let (message, offset) = message.split_last_chunk()?;
        let (offset, count) = (u64::from_be_bytes(*offset), u32::from_be_bytes(*count));
        Some(Self { file: message.get(XID_BYTES..)?, offset, count })
    }
}

impl Session {
    /// Remembers where a READ has stopped, if that is neither where it was to end nor the end of the file.
    pub(super) fn remember_rest(&mut self, reply: &Reply, results: &[u8]) {
        let is_read = reply.program == Program::NFS && reply.procedure == Procedure::Read.number();
        let read = self.engine.head(reply.id).filter(|_| is_read && reply.outcome.is_ok()).and_then(Read::of);
        let Some(Read { file, offset, count }) = read else { return };
        let Ok(Ok(told)) = ReadHead::decode(&mut Reader::new(results), count) else { return };
        if told.eof || told.count >= count {
            return;
        }
        if self.rests.0.len() == MOST {
            self.rests.0.pop_front();
        }
        self.rests
            .0
            .push_back(Rest { file: file.to_vec(), offset: offset.saturating_add(told.count.into()) });
    }

    /// Lets a READ that was just queued leave before the others, if it asks for what an earlier one has left.
    pub(super) fn put_rest_first(&mut self, id: CallId) {
        let Some(Read { file, offset, .. }) = self.engine.head(id).and_then(Read::of) else { return };
        let is_asked = |rest: &Rest| rest.offset == offset && rest.file == file;
        if let Some(at) = self.rests.0.iter().position(is_asked) {
            self.rests.0.remove(at);
            self.engine.put_first(id);
        }
    }
}
