//! A file's bytes, from the server.

use std::time::Duration;

use nfs_wire::{
    DecodeError, FileHandle, Procedure, Reader, encode, nfs3_types::nfs3::nfs_fh3, reply::ReadHead,
    rpc::Rejection,
};

use super::{
    Effort, Limits, Machine, NextCall, Step, TransferError,
    ranges::{Range, RangeSet},
};
use crate::{
    attr::Metadata,
    engine::{Class, Repeat},
};

/// READs without data and without end of file before we give up.
const MAX_EMPTY_READS: u32 = 8;

/// Reads a file of known size with many READs in flight (RFC 1813 §3.3.6).
///
/// A short READ goes on from where the server stopped. The file is read up to the size it had at the start; when
/// it turns out shorter the transfer fails, because what was read may belong to two versions.
#[derive(Debug)]
pub struct Download {
    file: nfs_fh3,
    end: u64,
    wanted: u64,
    todo: RangeSet,
    parts: Vec<Part>,
    free: Vec<u32>,
    received: u64,
    empty_reads: u32,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    asked: Range,
    arriving: u32,
}

impl Download {
    /// Reads the first `size` bytes of a file.
    pub fn new(file: &FileHandle, size: u64) -> Self {
        Self::ranges(file, RangeSet::default().missing(size))
    }

    /// Reads these ranges of a file.
    pub fn ranges(file: &FileHandle, ranges: RangeSet) -> Self {
        Self {
            file: file.to_fh3(),
            end: ranges.end(),
            wanted: ranges.bytes(),
            todo: ranges,
            parts: Vec::new(),
            free: Vec::new(),
            received: 0,
            empty_reads: 0,
        }
    }

    /// Returns the number of bytes that have arrived.
    pub const fn received(&self) -> u64 {
        self.received
    }

    fn take_part(&mut self, asked: Range) -> u32 {
        let part = Part { asked, arriving: 0 };
        match self.free.pop() {
            Some(index) => {
                self.parts[index as usize] = part;
                index
            }
            None => {
                self.parts.push(part);
                u32::try_from(self.parts.len() - 1).expect("bounded by the engine's calls")
            }
        }
    }
}

impl Machine for Download {
    fn next_call(&mut self, limits: Limits, has_room: &dyn Fn(Class, u32) -> bool) -> Option<NextCall> {
        if self.todo.is_empty() || !has_room(Class::Read, limits.read_block) {
            return None;
        }
        let asked = self.todo.take(limits.read_block.into())?;
        let part = self.take_part(asked);
        let bytes = u32::try_from(asked.length()).expect("at most one block");
        Some(NextCall {
            part,
            procedure: Procedure::Read,
            class: Class::Read,
            repeat: Repeat::Idempotent,
            payload: None,
            bytes,
            delay: Duration::ZERO,
        })
    }

    fn encode(&self, call: &NextCall, buffer: &mut Vec<u8>) {
        let Range { start, .. } = self.parts[call.part as usize].asked;
        encode(buffer, &self.file);
        encode(buffer, &start);
        encode(buffer, &call.bytes);
    }

    fn handle_results(
        &mut self,
        part: u32,
        _effort: Effort,
        results: &[u8],
        complete: bool,
    ) -> Result<Step, TransferError> {
        const READ: Procedure = Procedure::Read;
        let Range { start, end } = self.parts[part as usize].asked;
        let asked = u32::try_from(end - start).expect("at most one block");
        let mut reader = Reader::new(results);
        let head = match ReadHead::decode(&mut reader, asked) {
            Ok(Ok(head)) => head,
            Ok(Err(status)) => {
                return Err(TransferError::Status { procedure: READ, status });
            }
            Err(DecodeError::Truncated { .. }) if !complete => return Ok(Step::NeedMore),
            Err(error) => {
                return Err(TransferError::Protocol { procedure: READ, error });
            }
        };
        let data_at = results.len() - reader.rest().len();
        if complete && reader.rest().len() < head.count as usize {
            let error = DecodeError::Truncated { field: "data" };
            return Err(TransferError::Protocol { procedure: READ, error });
        }
        let reached = start + u64::from(head.count);
        if head.eof && reached < end {
            return Err(TransferError::SourceShrank { expected: self.end, found: reached });
        }
        if head.count == 0 {
            self.empty_reads += 1;
            if self.empty_reads > MAX_EMPTY_READS {
                let reason = "READ returns neither data nor end of file";
                return Err(TransferError::NoProgress { procedure: READ, reason });
            }
        }
        self.parts[part as usize].arriving = head.count;
        let attributes = head.attributes.as_ref().map(Metadata::from);
        Ok(Step::Data { offset: start, length: head.count, asked, attributes, data_at })
    }

    fn handle_payload_done(&mut self, part: u32) {
        let Part { asked, arriving } = self.parts[part as usize];
        self.received += u64::from(arriving);
        self.todo.insert(Range { start: asked.start + u64::from(arriving), end: asked.end });
        self.free.push(part);
    }

    fn handle_rejection(&mut self, _part: u32, rejection: Rejection) -> Result<(), TransferError> {
        Err(TransferError::Rejected { procedure: Procedure::Read, rejection })
    }

    fn take_back(&mut self, part: u32) {
        self.todo.insert(self.parts[part as usize].asked);
        self.free.push(part);
    }

    fn is_done(&self) -> bool {
        self.received >= self.wanted && self.free.len() == self.parts.len()
    }
}

#[cfg(test)]
mod tests;
