//! TCP connections of the server host: calls in, replies out, within the bounds of the server's driver.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use linkemu::{Endpoint, Outgoing};
use nfs_wire::{
    portmap::Protocol,
    record::{RecordReader, mark},
};
use nfs_wireless_server::Service;

use crate::{
    address::{TCP_SERVER, peer},
    tcp::{Connection, Phase, Segment, TcpStats},
};

/// Longest call that is taken, as in the server's driver: a WRITE of 1 MiB and its headers.
const MAX_RECORD_BYTES: u64 = (1 << 20) + 4096;

/// Bytes of replies that wait for the connection, above which no call is taken (`MAX_WAITING_BYTES` of the server's driver).
const MAX_WAITING_BYTES: usize = 128 << 10;

/// Distance of the initial sequence numbers of two connections: more than any window.
const INITIAL_STEP: u32 = 0x1000_0000;

/// All connections, by the place of their client.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    accepted: u32,
    replies: u64,
    connections: BTreeMap<Endpoint, Served>,
    /// What connections have done that others have taken the place of.
    before: TcpStats,
    /// Resets for segments of connections that are unknown.
    resets: VecDeque<Outgoing>,
}

/// One connection.
#[derive(Debug)]
struct Served {
    connection: Connection,
    records: RecordReader,
    /// A record that is not complete.
    record: Vec<u8>,
    /// What was read and is not a call yet.
    unused: Bytes,
    /// Replies that wait for the connection.
    replies: VecDeque<BytesMut>,
    waiting_bytes: usize,
}

impl Connections {
    /// Takes a segment.
    pub(crate) fn handle_input(
        &mut self,
        now: Instant,
        service: &mut Service,
        from: Endpoint,
        payload: &Bytes,
    ) {
        let Some(segment) = Segment::decode(payload) else { return };
        let known = self.connections.get(&from).filter(|it| it.connection.phase() != Phase::Closed);
        if segment.syn && known.is_none_or(|it| !it.connection.was_begun_by(&segment)) {
            // A client that has given an old connection up; RFC 5961 §4.2 would ask it first.
            self.accepted += 1;
            let connection = Connection::accept(self.accepted.wrapping_mul(INITIAL_STEP), &segment, now);
            if let Some(old) = self.connections.insert(from, Served::new(connection)) {
                self.before = self.before.plus(&old.connection.stats());
            }
            return;
        }
        match self.connections.get_mut(&from).filter(|it| it.connection.phase() != Phase::Closed) {
            Some(served) => {
                served.connection.handle_input(now, &segment);
                served.take_calls(now, service, from);
            }
            None if segment.rst => {}
            None => {
                // RFC 9293 §3.10.7.1.
                let sequence = segment.acknowledgment.unwrap_or_default();
                let reset = Segment { rst: true, sequence, ..Segment::default() };
                self.resets.push_back(Outgoing { from: TCP_SERVER, to: from, payload: reset.encode() });
            }
        }
    }

    /// Fires the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, service: &mut Service) {
        for (from, served) in &mut self.connections {
            served.connection.handle_timeout(now);
            served.take_calls(now, service, *from);
        }
    }

    /// Sends a reply over the connection that its call came over, if that is still there.
    pub(crate) fn reply(&mut self, to: Endpoint, reply: &[u8]) {
        if let Some(served) = self.connections.get_mut(&to) {
            let mut message = BytesMut::with_capacity(4 + reply.len());
            message.extend_from_slice(&mark(reply.len()));
            message.extend_from_slice(reply);
            served.waiting_bytes += message.len();
            served.replies.push_back(message);
            self.replies += 1;
        }
    }

    /// Returns what the sending halves of all connections have done.
    pub(crate) fn stats(&self) -> TcpStats {
        self.connections.values().fold(self.before, |sum, served| sum.plus(&served.connection.stats()))
    }

    /// Returns how many replies were sent so far.
    pub(crate) const fn replies(&self) -> u64 {
        self.replies
    }

    /// Returns the next segment to send.
    pub(crate) fn poll_transmit(&mut self, now: Instant, service: &mut Service) -> Option<Outgoing> {
        if let Some(reset) = self.resets.pop_front() {
            return Some(reset);
        }
        self.connections.iter_mut().find_map(|(to, served)| {
            served.write();
            // There may be room for the reply of another call.
            served.take_calls(now, service, *to);
            let segment = served.connection.poll_transmit(now)?;
            Some(Outgoing { from: TCP_SERVER, to: *to, payload: segment.encode() })
        })
    }

    /// Returns when [`Self::handle_timeout`] is wanted next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.connections.values().filter_map(|served| served.connection.poll_timeout()).min()
    }
}

impl Served {
    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            records: RecordReader::new(MAX_RECORD_BYTES),
            record: Vec::new(),
            unused: Bytes::new(),
            replies: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Hands calls to the service, while their replies find room.
    fn take_calls(&mut self, now: Instant, service: &mut Service, from: Endpoint) {
        let caller = peer(from, Protocol::Tcp);
        while self.waiting_bytes + service.deferred_bytes(caller) <= MAX_WAITING_BYTES
            && !service.is_congested()
        {
            if self.unused.is_empty() {
                let Some(read) = self.connection.read() else { return };
                self.unused = read;
            }
            let mut rest: &[u8] = &self.unused;
            let chunk = self.records.next(&mut rest, usize::MAX);
            let used = self.unused.len() - rest.len();
            let is_whole = match chunk {
                Ok(Some(chunk)) => {
                    self.record.extend_from_slice(chunk.bytes);
                    Ok(chunk.end)
                }
                Ok(None) => Ok(false),
                Err(_) => Err(()),
            };
            self.unused = self.unused.slice(used..);
            let is_good = match is_whole {
                Ok(true) => {
                    let record = std::mem::take(&mut self.record);
                    service.handle_input(now, caller, &record).is_ok()
                }
                Ok(false) => true,
                Err(()) => false,
            };
            if !is_good {
                self.connection.abort();
                return;
            }
        }
    }

    /// Writes replies, as far as the connection takes them.
    fn write(&mut self) {
        while let Some(reply) = self.replies.front_mut() {
            let room = self.connection.room() as usize;
            if room == 0 {
                return;
            }
            let part = reply.split_to(room.min(reply.len()));
            let is_whole = reply.is_empty();
            self.waiting_bytes -= part.len();
            self.connection.write(part.freeze());
            if is_whole {
                self.replies.pop_front();
            }
        }
    }
}
