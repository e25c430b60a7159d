//! Messages onto a stream: heads gathered into one write, large payloads by `sendfile` where there is one.

use std::{
    io::{self, ErrorKind},
    os::fd::OwnedFd,
};

use nfs_proto::session::{TransferId, Transmit};
use nfs_wire::{padding, record};
use tokio::{io::Interest, net::TcpStream};

use super::super::{clock, pump::Pump};

/// Bytes gathered before they are written.
const BATCH_BYTES: usize = 64 << 10;

/// Payloads from this size on go from file to socket without a copy here.
const SENDFILE_BYTES: usize = 32 << 10;

/// What is under way to the socket.
#[derive(Debug, Default)]
pub(super) struct Sender {
    buffer: Vec<u8>,
    written: usize,
    /// A payload that follows the buffer.
    file: Option<FilePart>,
}

#[derive(Debug)]
struct FilePart {
    transfer: TransferId,
    /// The transfer may be stopped before its message is complete. The other transfers of the connection need the end of the message.
    file: OwnedFd,
    offset: u64,
    left: usize,
    padding: usize,
}

impl FilePart {
    /// Sends some of what is left, and returns how many bytes.
    #[cfg(all(target_os = "linux", not(portable_only)))]
    fn send(&mut self, stream: &TcpStream) -> rustix::io::Result<usize> {
        rustix::fs::sendfile(stream, &self.file, Some(&mut self.offset), self.left)
    }

    /// Sends some of what is left, and returns how many bytes. What the socket does not take is read again.
    #[cfg(any(not(target_os = "linux"), portable_only))]
    fn send(&mut self, stream: &TcpStream) -> rustix::io::Result<usize> {
        let mut buffer = [0; 16 << 10];
        let wanted = self.left.min(buffer.len());
        let read = rustix::io::pread(&self.file, &mut buffer[..wanted], self.offset)?;
        if read == 0 {
            return Ok(0);
        }
        let sent = rustix::net::send(stream, &buffer[..read], rustix::net::SendFlags::empty())?;
        self.offset += sent as u64;
        Ok(sent)
    }
}

impl Sender {
    /// Writes until nothing is left (false) or the socket is full (true).
    pub(super) fn send(&mut self, stream: &TcpStream, pump: &mut Pump) -> io::Result<bool> {
        loop {
            if self.written == self.buffer.len() && self.file.is_none() {
                self.buffer.clear();
                self.written = 0;
                self.gather(pump);
                if self.buffer.is_empty() {
                    return Ok(false);
                }
            }
            let result = if self.written < self.buffer.len() {
                stream.try_write(&self.buffer[self.written..]).map(|count| self.written += count)
            } else {
                self.send_file(stream, pump)
            };
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills the buffer with messages.
    fn gather(&mut self, pump: &mut Pump) {
        let now = clock();
        while self.buffer.len() < BATCH_BYTES && self.file.is_none() {
            let start = self.buffer.len();
            let Some(Transmit { transfer, head, payload, .. }) = pump.session.poll_transmit(now) else {
                return;
            };
            let length = payload.map_or(0, |payload| payload.length as usize);
            self.buffer.extend_from_slice(&record::mark(head.len() + length + padding(length)));
            self.buffer.extend_from_slice(head);
            let (Some(transfer), Some(payload)) = (transfer, payload) else { continue };
            let file = (length >= SENDFILE_BYTES).then(|| pump.source_file(transfer));
            if let Some(file) = file.flatten() {
                let (offset, padding) = (payload.offset, padding(length));
                self.file = Some(FilePart { transfer, file, offset, left: length, padding });
            } else if pump.load(now, transfer, payload.offset, length, &mut self.buffer) {
                self.buffer.resize(self.buffer.len() + padding(length), 0);
            } else {
                // Nothing of the message has been written yet, and its transfer has ended.
                self.buffer.truncate(start);
            }
        }
    }

    fn send_file(&mut self, stream: &TcpStream, pump: &mut Pump) -> io::Result<()> {
        let Some(part) = &mut self.file else { return Ok(()) };
        let sent = stream.try_io(Interest::WRITABLE, || Ok(part.send(stream)?))?;
        if sent == 0 {
            // The file has become shorter: only a new connection can forget what was promised of it.
            let transfer = part.transfer;
            pump.fail(clock(), transfer, ErrorKind::UnexpectedEof.into());
            return Err(ErrorKind::ConnectionAborted.into());
        }
        part.left -= sent;
        if part.left == 0 {
            self.buffer.clear();
            self.buffer.resize(part.padding, 0);
            self.written = 0;
            self.file = None;
        }
        Ok(())
    }
}
