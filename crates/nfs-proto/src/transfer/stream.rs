//! A file that is read and written at will: what `File` is a handle on.

mod pages;
mod read_ahead;
#[cfg(test)]
mod tests;
mod tuning;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_wire::{
    Procedure,
    nfs3_types::nfs3::{stable_how, writeverf3},
};

use self::{
    pages::Pages,
    read_ahead::{Ahead, ReadAhead},
    tuning::StreamTuning,
};
use super::{
    Effort, Limits, TransferError,
    ranges::{Range, RangeSet},
    stability::{SentUnder, Stability, lateness},
};

/// A call that a [`Stream`] wants made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCall {
    /// Names the call until its results have been taken in.
    pub part: u32,
    /// How long to wait before it is sent.
    pub delay: Duration,
    /// What to call.
    pub action: StreamAction,
}

/// What a [`StreamCall`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// READ (RFC 1813 §3.3.6).
    Read {
        /// Offset of the first byte.
        offset: u64,
        /// Bytes asked for.
        count: u32,
    },
    /// WRITE (RFC 1813 §3.3.7).
    Write {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// Whether they are to be stable at once.
        stable: stable_how,
    },
    /// COMMIT of the whole file (RFC 1813 §3.3.21).
    Commit,
}

/// What a WRITE did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// Bytes accepted, from the first on.
    pub count: u32,
    /// What the server promises about them.
    pub committed: stable_how,
    /// Changes when the server may have lost unstable bytes.
    pub verifier: writeverf3,
}

/// What [`Stream::read`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Available {
    /// So many bytes, at least one.
    Bytes(usize),
    /// The end of the file.
    End,
    /// Nothing before the results of further calls are taken in.
    Wait,
}

/// Reads and writes a file at any offset, with several READs and WRITEs in flight.
///
/// Commands are [`read`](Self::read), [`write`](Self::write), [`seek`](Self::seek) and
/// [`flush`](Self::flush), each of which may be given up and followed by any other. Whoever drives
/// the machine makes the calls of [`next_call`](Self::next_call) and gives their results back, in
/// any order. `E` is an error of whoever makes the calls.
///
/// What is written is kept in dirty pages, which hold the newest bytes of every place, until a
/// COMMIT was answered with the write verifier of the WRITE that carried these very bytes (RFC 1813
/// §4.8). So
/// - reads return the newest bytes: those of dirty pages, and for all others what a READ returned
///   that was sent after the page was forgotten;
/// - what a server forgot is written again with the newest bytes, not with those that were lost;
/// - nothing is forgotten while a newer WRITE of it waits, is in flight, or is unstable.
///
/// No two WRITEs in flight overlap. A copy of a WRITE that was sent more than once may be run after
/// its reply: for as long as that is likely nothing is written over it.
///
/// The first error ends the stream: every later command returns it.
#[derive(Debug)]
pub struct Stream<E> {
    tuning: StreamTuning,
    pages: Pages,
    /// What of the pages has to be written.
    todo: RangeSet,
    stability: Stability,
    in_flight: BTreeMap<u32, InFlight>,
    next_part: u32,
    /// Where the last write ended: another one may follow and fill the block.
    tail: u64,
    flushing: bool,
    committing: bool,
    /// COMMIT is not offered: every WRITE must be stable itself.
    write_through: bool,
    empty_writes: u32,
    /// What may be overwritten by a late copy of a WRITE, and until when.
    late: RangeSet,
    late_until: Option<Instant>,
    read_ahead: ReadAhead<E>,
    /// Where a reader is.
    reader: Option<u64>,
    empty_reads: u32,
    failed: Option<E>,
}

#[derive(Clone, Copy, Debug)]
enum InFlight {
    Read {
        offset: u64,
        count: u32,
    },
    Write {
        range: Range,
        /// What it was asked to be.
        stable: stable_how,
        /// What was known of write verifiers when it was sent.
        sent_under: SentUnder,
    },
    Commit,
}

impl<E: Clone + From<TransferError>> Default for Stream<E> {
    /// Opens a file of which nothing is known.
    fn default() -> Self {
        Self::new(StreamTuning::default())
    }
}

impl<E: Clone + From<TransferError>> Stream<E> {
    fn new(tuning: StreamTuning) -> Self {
        Self {
            pages: Pages::default(),
            todo: RangeSet::default(),
            stability: Stability::default(),
            in_flight: BTreeMap::new(),
            next_part: 0,
            tail: 0,
            flushing: false,
            committing: false,
            write_through: false,
            empty_writes: 0,
            late: RangeSet::default(),
            late_until: None,
            read_ahead: ReadAhead::new(&tuning),
            reader: None,
            empty_reads: 0,
            failed: None,
            tuning,
        }
    }

    /// Copies bytes that begin at `offset` into a buffer that is not empty.
    ///
    /// # Errors
    /// What ended the stream.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Available, E> {
        self.check()?;
        if offset == u64::MAX {
            return Ok(Available::End);
        }
        self.read_ahead.advance(offset, &self.tuning);
        let next = self.pages.run(offset);
        let until = next.map_or(u64::MAX, |run| if run.start <= offset { run.end } else { run.start });
        let most = buffer.len().min(usize::try_from(until - offset).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..most];
        let count = if next.is_some_and(|run| run.start <= offset) {
            self.pages.read(offset, buffer);
            most
        } else {
            match self.read_ahead.at(offset) {
                Ahead::Data(data) => {
                    let count = most.min(data.len());
                    buffer[..count].copy_from_slice(&data[..count]);
                    count
                }
                // The server's file is shorter than ours: between them is a hole.
                Ahead::End if next.is_some() => {
                    buffer.fill(0);
                    most
                }
                Ahead::End => {
                    // Whoever reads again wants to know whether there is more by then.
                    self.read_ahead.clear();
                    self.reader = None;
                    return Ok(Available::End);
                }
                Ahead::Wait => {
                    self.reader = Some(offset);
                    return Ok(Available::Wait);
                }
                Ahead::Failed(error) => {
                    let error = error.clone();
                    self.fail(error.clone());
                    return Err(error);
                }
            }
        };
        self.reader = Some(offset + count as u64);
        Ok(Available::Bytes(count))
    }

    /// Takes bytes in that begin at `offset`, and returns how many: none while too many are not yet
    /// stable. `offset + data.len()` is at most `u64::MAX`.
    ///
    /// # Errors
    /// What ended the stream.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<usize, E> {
        self.check()?;
        (self.flushing, self.reader) = (false, None);
        if self.is_full() {
            return Ok(0);
        }
        let count = data.len().min(self.tuning.dirty_bytes - self.pages.memory_bytes());
        let end = offset + count as u64;
        self.pages.write(offset, &data[..count]);
        self.todo.insert(Range { start: offset, end });
        self.tail = end;
        Ok(count)
    }

    /// Forgets what was read ahead: the next read or write is elsewhere.
    pub fn seek(&mut self) {
        self.read_ahead.restart(&self.tuning);
        self.reader = None;
    }

    /// Begins to make everything stable that was written so far; [`Stream::is_stable`] says when
    /// that is done.
    pub const fn flush(&mut self) {
        self.flushing = true;
    }

    /// Returns the next call to make, if there is one.
    pub fn next_call(&mut self, now: Instant, limits: Limits) -> Option<StreamCall> {
        if self.failed.is_some() {
            return None;
        }
        if self.wants_commit() {
            self.committing = true;
            self.stability.start_commit();
            return Some(self.call(Duration::ZERO, InFlight::Commit, StreamAction::Commit));
        }
        self.write_call(now, limits.write_block).or_else(|| self.read_call(limits.read_block))
    }

    /// Takes in what a READ returned: bytes, and whether the file ends after them.
    pub fn handle_read(&mut self, part: u32, data: Bytes, end: bool) {
        let Some(InFlight::Read { offset, count }) = self.in_flight.remove(&part) else { return };
        if !self.read_ahead.wants(part, offset) {
            return;
        }
        let reason = if data.len() > count as usize {
            "READ returns more bytes than it was asked for"
        } else if data.is_empty() && !end && self.empty_reads >= self.tuning.empty_reads {
            "READ returns neither data nor the end of the file"
        } else {
            self.empty_reads = if data.is_empty() && !end { self.empty_reads + 1 } else { 0 };
            self.read_ahead.receive(offset, data, end);
            return;
        };
        let error = TransferError::NoProgress { procedure: Procedure::Read, reason };
        self.read_ahead.fail(offset, error.into());
    }

    /// Takes in what a WRITE did.
    pub fn handle_write(&mut self, now: Instant, part: u32, effort: Effort, result: WriteResult) {
        let Some(InFlight::Write { range, stable, sent_under }) = self.in_flight.remove(&part) else {
            return;
        };
        if effort.attempts > 1 {
            self.expect_late_copies(now, range, effort.elapsed);
        }
        let accepted = u64::from(result.count);
        if accepted > range.length() {
            return self.give_up(Procedure::Write, "WRITE claims more bytes than it was given");
        }
        self.empty_writes = if accepted == 0 { self.empty_writes + 1 } else { 0 };
        if self.empty_writes > self.tuning.empty_writes {
            return self.give_up(Procedure::Write, "WRITE accepts no bytes");
        }
        let written = Range { start: range.start, end: range.start + accepted };
        self.todo.insert(Range { start: written.end, end: range.end });
        match (self.write_through && result.committed == stable_how::UNSTABLE, stable) {
            (false, _) => {
                let WriteResult { committed, verifier, .. } = result;
                self.stability.written(written, committed, verifier, sent_under, &mut self.todo);
            }
            // It left before it was known that there is no COMMIT.
            (true, stable_how::UNSTABLE) => self.todo.insert(written),
            (true, stable_how::DATA_SYNC | stable_how::FILE_SYNC) => {
                return self.give_up(Procedure::Write, "there is no COMMIT, and WRITE makes nothing stable");
            }
        }
        self.settle(Procedure::Write);
    }

    /// Takes in the write verifier that a COMMIT was answered with.
    pub fn handle_commit(&mut self, part: u32, verifier: writeverf3) {
        if let Some(InFlight::Commit) = self.in_flight.remove(&part) {
            self.committing = false;
            self.stability.committed(verifier, &mut self.todo);
            self.settle(Procedure::Commit);
        }
    }

    /// Records that the server has no COMMIT: what was written is written again, stable.
    pub fn handle_no_commit(&mut self, part: u32) {
        if let Some(InFlight::Commit) = self.in_flight.remove(&part) {
            self.committing = false;
            self.write_through = true;
            self.stability.abandon(&mut self.todo);
        }
    }

    /// Records that a call failed. A READ that nobody has come to yet may fail without harm.
    pub fn handle_failure(&mut self, part: u32, error: E) {
        match self.in_flight.remove(&part) {
            Some(InFlight::Read { offset, .. }) if self.read_ahead.wants(part, offset) => {
                self.read_ahead.fail(offset, error);
            }
            Some(InFlight::Write { .. } | InFlight::Commit) => self.fail(error),
            Some(InFlight::Read { .. }) | None => {}
        }
    }

    /// Forgets the READs in flight that nobody waits for any more; afterwards
    /// [`Stream::is_in_flight`] tells which calls are left.
    pub fn cancel_unwanted(&mut self) {
        let (read_ahead, has_failed) = (&self.read_ahead, self.failed.is_some());
        self.in_flight.retain(|&part, call| match call {
            InFlight::Read { offset, .. } => !has_failed && read_ahead.wants(part, *offset),
            InFlight::Write { .. } | InFlight::Commit => !has_failed,
        });
    }

    /// Whether the results of a call are waited for.
    pub fn is_in_flight(&self, part: u32) -> bool {
        self.in_flight.contains_key(&part)
    }

    /// Whether every byte that was written is on stable storage.
    pub fn is_stable(&self) -> bool {
        self.pages.is_empty()
    }

    /// Fails if the stream has ended.
    ///
    /// # Errors
    /// What ended it.
    pub fn check(&self) -> Result<(), E> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn call(&mut self, delay: Duration, call: InFlight, action: StreamAction) -> StreamCall {
        let part = self.next_part;
        self.next_part = self.next_part.wrapping_add(1);
        self.in_flight.insert(part, call);
        StreamCall { part, delay, action }
    }

    fn write_call(&mut self, now: Instant, block: u32) -> Option<StreamCall> {
        if self.todo.is_empty() || self.writes().count() >= self.tuning.writes {
            return None;
        }
        let mut busy = RangeSet::default();
        self.writes().for_each(|range| busy.insert(range));
        let block = u64::from(block.clamp(1, self.tuning.write_bytes));
        let must_leave = self.flushing || self.is_full();
        // No two WRITEs in flight overlap, and the end of what is being written waits until it
        // fills a block.
        let is_ripe = |gap: &Range| must_leave || gap.length() >= block || gap.end != self.tail;
        let free = self.todo.iter().find_map(|range| busy.gaps(range).iter().find(is_ripe))?;
        let range = Range { end: free.end.min(free.start.saturating_add(block)), ..free };
        self.todo.remove(range);
        // A round trip less than with a COMMIT behind it.
        let is_alone = self.todo.is_empty() && busy.is_empty() && self.stability.unstable_bytes() == 0;
        let at_once = self.write_through
            || self.stability.wants_write_through()
            || (self.flushing && is_alone && !self.committing);
        let mut data = vec![0; range.length() as usize];
        self.pages.read(range.start, &mut data);
        let stable = if at_once { stable_how::FILE_SYNC } else { stable_how::UNSTABLE };
        let delay = self.wait_for_late_copies(now, range);
        let sent_under = self.stability.sent_under();
        let action = StreamAction::Write { offset: range.start, data, stable };
        Some(self.call(delay, InFlight::Write { range, stable, sent_under }, action))
    }

    fn read_call(&mut self, block: u32) -> Option<StreamCall> {
        let reads = self.in_flight.values().filter(|call| matches!(call, InFlight::Read { .. }));
        if reads.count() >= self.tuning.reads {
            return None;
        }
        let gap = self.read_ahead.gap(self.reader?, &self.pages, block.max(1), &self.tuning)?;
        let count = u32::try_from(gap.length()).expect("at most one block");
        let action = StreamAction::Read { offset: gap.start, count };
        let call = self.call(Duration::ZERO, InFlight::Read { offset: gap.start, count }, action);
        self.read_ahead.ask(call.part, gap.start, count);
        Some(call)
    }

    fn wants_commit(&self) -> bool {
        let unstable = self.stability.unstable_bytes();
        let all_written = || self.todo.is_empty() && self.writes().next().is_none();
        let is_needed = || self.flushing || self.is_full();
        let much = unstable >= self.tuning.commit_bytes;
        !self.committing && unstable > 0 && (much || (is_needed() && all_written()))
    }

    fn is_full(&self) -> bool {
        self.pages.memory_bytes() >= self.tuning.dirty_bytes
            || self.pages.fragments() >= self.tuning.fragments
    }

    fn writes(&self) -> impl Iterator<Item = Range> + '_ {
        self.in_flight.values().filter_map(|call| match call {
            InFlight::Write { range, .. } => Some(*range),
            InFlight::Read { .. } | InFlight::Commit => None,
        })
    }

    /// A WRITE that was sent more than once took so long to be answered: a copy of it may be as
    /// late.
    fn expect_late_copies(&mut self, now: Instant, range: Range, elapsed: Duration) {
        self.late.insert(range);
        if self.late.count() > self.tuning.fragments {
            // More than is in it is no harm.
            let start = self.late.first_after(0).map_or(0, |first| first.start);
            self.late.insert(Range { start, end: self.late.end() });
        }
        self.late_until = self.late_until.max(Some(now + lateness(elapsed)));
    }

    /// Returns for how long nothing may be written over a range.
    fn wait_for_late_copies(&mut self, now: Instant, range: Range) -> Duration {
        let left = self.late_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if left.is_zero() {
            (self.late, self.late_until) = (RangeSet::default(), None);
        }
        if self.late.overlaps(range) { left } else { Duration::ZERO }
    }

    /// Forgets the pages that are on stable storage as they are.
    fn settle(&mut self, procedure: Procedure) {
        if self.stability.is_hopeless() {
            let reason = "its write verifier changes all the time, so that nothing becomes stable";
            return self.give_up(procedure, reason);
        }
        let mut forgotten = self.stability.take_stable();
        self.stability.keep_unstable(&mut forgotten);
        for newer in self.todo.iter().chain(self.writes()) {
            forgotten.remove(newer);
        }
        forgotten.iter().for_each(|range| self.pages.remove(range));
        self.read_ahead.outdate(&forgotten);
    }

    fn give_up(&mut self, procedure: Procedure, reason: &'static str) {
        self.fail(TransferError::NoProgress { procedure, reason }.into());
    }

    fn fail(&mut self, error: E) {
        self.failed.get_or_insert(error);
    }
}
