//! Records off a stream: heads to the session, file bytes straight to their file.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use bytes::Bytes;
use nfs_proto::{config::MAX_BLOCK_BYTES, session::TransferId};
use nfs_wire::record::RecordReader;

use super::super::{
    clock,
    pump::{Pump, Rest},
};

/// Longest record accepted: a READ of the largest block, or a listing, with room to spare.
const MAX_RECORD_BYTES: u64 = MAX_BLOCK_BYTES as u64 + (64 << 10);

/// Bytes of a record that are gathered before the session looks at it: every head fits.
const HEAD_BYTES: usize = 512;

/// Takes a stream apart.
#[derive(Debug)]
pub(super) struct Receiver {
    peer: SocketAddr,
    records: RecordReader,
    head: Vec<u8>,
    wanted: usize,
    /// Bytes of the last long reply to a call. The next one has as many, mostly.
    usual: usize,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// Gathering the head of a record.
    Head,
    /// Moving file bytes.
    Data { transfer: TransferId, offset: u64, left: usize },
    /// Ignoring the rest of a record.
    Skip,
}

impl Receiver {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            records: RecordReader::new(MAX_RECORD_BYTES),
            head: Vec::with_capacity(HEAD_BYTES),
            wanted: HEAD_BYTES,
            usual: 0,
            mode: Mode::Head,
        }
    }

    /// Whether a record has begun and not ended.
    pub(super) const fn is_inside_record(&self) -> bool {
        !self.head.is_empty() || !matches!(self.mode, Mode::Head)
    }

    /// Takes in the next bytes of the stream. An error means that it makes no sense any more.
    pub(super) fn take_in(&mut self, pump: &mut Pump, mut input: &[u8]) -> io::Result<()> {
        loop {
            let most = match self.mode {
                Mode::Head => self.wanted - self.head.len(),
                Mode::Data { .. } | Mode::Skip => usize::MAX,
            };
            let Some(chunk) = self.records.next(&mut input, most).map_err(broken)? else { return Ok(()) };
            match self.mode {
                Mode::Head => {
                    self.head.extend_from_slice(chunk.bytes);
                    self.look_at_head(pump, chunk.end)?;
                }
                Mode::Data { transfer, offset, left } => {
                    let bytes = &chunk.bytes[..left.min(chunk.bytes.len())];
                    self.move_data(pump, transfer, offset, left, bytes);
                }
                Mode::Skip => {}
            }
            if chunk.end {
                if matches!(self.mode, Mode::Data { .. }) {
                    return Err(broken("a record ends inside its data"));
                }
                self.mode = Mode::Head;
                self.head.clear();
                self.wanted = HEAD_BYTES;
            }
        }
    }

    fn look_at_head(&mut self, pump: &mut Pump, complete: bool) -> io::Result<()> {
        if !complete && self.head.len() < self.wanted.min(HEAD_BYTES) {
            return Ok(());
        }
        match pump.receive(clock(), self.peer, &self.head, complete).map_err(broken)? {
            Rest::NeedMore if complete => return Err(broken("a record ends inside its head")),
            Rest::NeedMore => {
                if self.head.len() == self.wanted {
                    self.wanted *= 2;
                    // So that it need not move while it grows.
                    self.head.reserve_exact(self.usual.saturating_sub(self.head.len()));
                }
            }
            Rest::Skip => self.mode = Mode::Skip,
            Rest::Reply(replied, at) => {
                // Short ones leave the buffer where it is.
                let results = if self.head.len() > HEAD_BYTES {
                    self.usual = self.head.len();
                    Bytes::from(std::mem::take(&mut self.head)).slice(at..)
                } else {
                    Bytes::copy_from_slice(&self.head[at..])
                };
                replied.hand_on(results);
                self.mode = Mode::Skip;
            }
            Rest::Data { transfer, offset, length, data_at } => {
                let head = std::mem::take(&mut self.head);
                let left = length as usize;
                let bytes = head.get(data_at..).unwrap_or_default();
                self.move_data(pump, transfer, offset, left, &bytes[..left.min(bytes.len())]);
                self.head = head;
            }
        }
        Ok(())
    }

    fn move_data(&mut self, pump: &mut Pump, transfer: TransferId, offset: u64, left: usize, bytes: &[u8]) {
        let now = clock();
        if !bytes.is_empty() {
            pump.store(now, transfer, offset, bytes);
        }
        let left = left - bytes.len();
        if left == 0 {
            pump.session.handle_payload_done(now);
            self.mode = Mode::Skip;
        } else {
            self.mode = Mode::Data { transfer, offset: offset + bytes.len() as u64, left };
        }
    }
}

pub(super) fn broken(reason: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.to_string())
}
