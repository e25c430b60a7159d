//! One TCP connection: records in, records out, never more in memory than its bounds.

use std::{collections::VecDeque, io, io::IoSlice, net::SocketAddr, sync::Arc, time::Duration};

use nfs_wire::{
    portmap::Protocol,
    record::{RecordReader, mark},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use super::{Outbox, RETRY_TIME, Shared, stop};
use crate::service::Peer;

/// Bytes taken from the socket at once.
const INPUT_BYTES: usize = 64 << 10;

/// Bytes of calls that are being made and of replies that wait for the peer, above which none of its calls are taken. The
/// socket's buffer holds what keeps a connection busy.
const MAX_WAITING_BYTES: usize = 128 << 10;

/// Bytes of a call beside the data of a WRITE: headers, credential and handle need less.
const CALL_HEAD_BYTES: usize = 4096;

/// Most data of a WRITE taken whatever the transfer size, in bytes, so that one may be larger than allowed and be cut.
const MIN_RECORD_BYTES: usize = 1 << 20;

/// Time after which a connection is closed on which nothing moves, as Linux does: it would keep its place from others.
const IDLE_TIME: Duration = Duration::from_secs(6 * 60);

/// Time that a connection has for its last replies when the server stops.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// Longest record that is taken where a call moves at most `transfer_bytes`.
const fn record_limit(transfer_bytes: u32) -> usize {
    let transfer_bytes = transfer_bytes as usize;
    let data = if transfer_bytes > MIN_RECORD_BYTES { transfer_bytes } else { MIN_RECORD_BYTES };
    data + CALL_HEAD_BYTES
}

/// Most bytes that a connection holds: input, calls and replies that wait, and one more call or reply, never both.
pub(super) const fn held_bytes(transfer_bytes: u32) -> usize {
    INPUT_BYTES + MAX_WAITING_BYTES + record_limit(transfer_bytes)
}

/// Serves a connection until either side ends it, or it has to make room.
pub(super) async fn serve(mut connection: Connection, mut stream: TcpStream, stopped: watch::Receiver<bool>) {
    // Without it, replies wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let outbox = Arc::clone(&connection.outbox);
    let stopping = tokio::select! {
        // The connection is closed whatever it was that went wrong with it.
        _ = connection.run(&mut stream) => false,
        () = outbox.replaced.notified() => false,
        () = stop(stopped) => true,
    };
    if stopping {
        let _ = tokio::time::timeout(LAST_WORDS_TIME, connection.flush(&mut stream)).await;
    }
}

/// One connection, which has a place among those of the server for as long as it lives.
pub(super) struct Connection {
    shared: Arc<Shared>,
    peer: Peer,
    outbox: Arc<Outbox>,
    records: RecordReader,
    record_limit: usize,
    /// A record that did not arrive in one piece.
    record: Vec<u8>,
    input: Box<[u8]>,
    /// The part of `input` that is not used yet.
    unused: std::ops::Range<usize>,
    sending: Sending,
}

impl Connection {
    /// Takes a place for a connection; where there is none, another one has to go.
    pub(super) fn open(shared: Arc<Shared>, address: SocketAddr) -> Self {
        let (outbox, transfer_bytes) = {
            let mut state = shared.lock();
            (state.admit(address), state.service.config().tcp_transfer_bytes)
        };
        let record_limit = record_limit(transfer_bytes);
        Self {
            shared,
            peer: Peer { address, protocol: Protocol::Tcp },
            outbox,
            records: RecordReader::new(record_limit as u64),
            record_limit,
            record: Vec::new(),
            input: vec![0; INPUT_BYTES].into(),
            unused: 0..0,
            sending: Sending::default(),
        }
    }

    async fn run(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let (mut reader, mut writer) = stream.split();
        let mut open = true;
        loop {
            let congested = self.take_calls()?;
            self.sending.take(&self.outbox);
            if !open && self.sending.is_empty() {
                return Ok(());
            }
            let hungry = open && self.unused.is_empty();
            let slices = self.sending.slices();
            tokio::select! {
                written = writer.write_vectored(&slices), if !self.sending.is_empty() => {
                    let written = written?;
                    drop(slices);
                    self.sending.advance(written);
                }
                received = reader.read(&mut self.input), if hungry => {
                    let length = received?;
                    self.unused = 0..length;
                    open = length > 0;
                }
                () = self.outbox.bell.notified() => {}
                () = tokio::time::sleep(RETRY_TIME), if congested => {}
                () = tokio::time::sleep(IDLE_TIME), if !congested => return Ok(()),
            }
        }
    }

    /// Serves the calls in the input, as long as their replies find room; says whether the service is full.
    fn take_calls(&mut self) -> io::Result<bool> {
        while !self.unused.is_empty() {
            let (deferred_bytes, is_congested) = {
                let service = &self.shared.lock().service;
                (service.deferred_bytes(self.peer), service.is_congested())
            };
            if self.sending.bytes + self.outbox_bytes() + deferred_bytes > MAX_WAITING_BYTES {
                return Ok(false);
            }
            if is_congested {
                return Ok(true);
            }
            let mut rest = &self.input[self.unused.clone()];
            let chunk = self.records.next(&mut rest, usize::MAX).map_err(invalid)?;
            self.unused.start = self.unused.end - rest.len();
            let Some(chunk) = chunk else {
                continue;
            };
            if chunk.end && self.record.is_empty() {
                self.shared.call(self.peer, chunk.bytes).map_err(invalid)?;
                continue;
            }
            // As much again as has arrived, whatever was announced, and never more than a record may have.
            let length = self.record.len();
            let room = length.min(self.record_limit - length).max(chunk.bytes.len());
            if self.record.capacity() - length < chunk.bytes.len() {
                self.record.reserve_exact(room);
            }
            self.record.extend_from_slice(chunk.bytes);
            if chunk.end {
                let record = std::mem::take(&mut self.record);
                self.shared.call(self.peer, &record).map_err(invalid)?;
            }
        }
        Ok(false)
    }

    fn outbox_bytes(&self) -> usize {
        self.outbox.lock().iter().map(Vec::len).sum()
    }

    async fn flush(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        loop {
            self.sending.take(&self.outbox);
            if self.sending.is_empty() {
                return stream.shutdown().await;
            }
            let written = stream.write_vectored(&self.sending.slices()).await?;
            self.sending.advance(written);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.lock().leave(self.peer.address, &self.outbox);
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Replies on their way out, each with its mark.
#[derive(Default)]
struct Sending {
    records: VecDeque<([u8; 4], Vec<u8>)>,
    bytes: usize,
    /// How much of the first record has gone already, its mark included.
    sent: usize,
}

impl Sending {
    /// Most records of one system call.
    const BATCH: usize = 32;

    fn take(&mut self, outbox: &Outbox) {
        for reply in outbox.lock().drain(..) {
            self.bytes += reply.len();
            self.records.push_back((mark(reply.len()), reply));
        }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.sent;
        let mut slices = Vec::with_capacity(2 * Self::BATCH);
        for (mark, reply) in self.records.iter().take(Self::BATCH) {
            for part in [&mark[..], reply] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices.push(IoSlice::new(&part[skipped..]));
                }
            }
        }
        slices
    }

    fn advance(&mut self, written: usize) {
        self.sent += written;
        while let Some((mark, reply)) = self.records.front() {
            let length = mark.len() + reply.len();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            self.bytes -= reply.len();
            self.records.pop_front();
        }
    }
}
