//! The client's end of a TCP connection: records of RPC (RFC 5531 §11), and another connection after one that has died, as the
//! client's driver does it on sockets.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use linkemu::{Endpoint, Outgoing};
use nfs_proto::{
    config::MAX_BLOCK_BYTES,
    session::{Incoming, Session, TransferId},
};
use nfs_wire::{
    padding,
    record::{RecordReader, mark},
};

use crate::{
    address::TCP_SERVER,
    host::{Answered, Host},
    server::server_address,
    tcp::{Connection, Phase, Segment, TcpStats},
};

/// Longest record accepted, as in the client.
const MAX_RECORD_BYTES: u64 = MAX_BLOCK_BYTES as u64 + (64 << 10);

/// Bytes of a record that are gathered before the session looks at it, as in the client: every head fits.
const HEAD_BYTES: usize = 512;

/// Messages are taken from the session while fewer bytes wait for the connection (`BATCH_BYTES` of the client).
const BATCH_BYTES: usize = 64 << 10;

/// A connection with calls outstanding that is silent for so long is closed and reconnected, as in the client.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// How long an attempt to connect may take, as in the client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Pause before the second attempt to connect, and the longest; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Distance of the initial sequence numbers of two connections: more than any window.
const INITIAL_STEP: u32 = 0x1000_0000;

/// Records over one connection after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    place: Endpoint,
    connection: Option<Connection>,
    /// Connections begun.
    begun: u32,
    began: Option<Instant>,
    /// When the next attempt is made, and how many have failed in a row.
    attempt_at: Option<Instant>,
    failed: u32,
    heard: Option<Instant>,
    records: RecordReader,
    head: Vec<u8>,
    wanted: usize,
    mode: Mode,
    /// Since when the processor is busy with what was read: nothing is read meanwhile.
    busy_until: Option<Instant>,
    /// Messages that wait for the connection, and when the processor is done with them.
    leaving: VecDeque<(Instant, BytesMut)>,
    leaving_bytes: usize,
    /// What connections before this one have done.
    before: TcpStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Gathering the head of a record.
    Head,
    /// Moving file bytes.
    Data { transfer: TransferId, offset: u64, left: usize },
    /// Ignoring the rest of a record.
    Skip,
}

impl Stream {
    /// Connects from `place` at a moment.
    pub(crate) const fn new(place: Endpoint, at: Instant) -> Self {
        Self {
            place,
            connection: None,
            begun: 0,
            began: None,
            attempt_at: Some(at),
            failed: 0,
            heard: None,
            records: RecordReader::new(MAX_RECORD_BYTES),
            head: Vec::new(),
            wanted: HEAD_BYTES,
            mode: Mode::Head,
            busy_until: None,
            leaving: VecDeque::new(),
            leaving_bytes: 0,
            before: TcpStats::NONE,
        }
    }

    /// Connections made after the first.
    pub(crate) fn reconnections(&self) -> u64 {
        self.begun.saturating_sub(1).into()
    }

    /// What the sending half of all connections has done.
    pub(crate) fn stats(&self) -> TcpStats {
        self.connection.as_ref().map_or(self.before, |connection| self.before.plus(&connection.stats()))
    }

    pub(crate) fn handle_input(
        &mut self,
        now: Instant,
        session: &mut Session,
        host: &mut Host,
        payload: &Bytes,
    ) {
        let (Some(connection), Some(segment)) = (&mut self.connection, Segment::decode(payload)) else {
            return;
        };
        self.heard = Some(now);
        connection.handle_input(now, &segment);
        self.read(now, session, host);
        self.look(now, session);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, session: &mut Session, host: &mut Host) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
        self.read(now, session, host);
        self.look(now, session);
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        session: &mut Session,
        host: &mut Host,
    ) -> Option<Outgoing> {
        if self.attempt_at.is_some_and(|at| at <= now) {
            self.connect(now);
        }
        self.write(now, session, host);
        let segment = self.connection.as_mut()?.poll_transmit(now)?;
        Some(Outgoing { from: self.place, to: TCP_SERVER, payload: segment.encode() })
    }

    pub(crate) fn poll_timeout(&self, session: &Session) -> Option<Instant> {
        let Some(connection) = &self.connection else { return self.attempt_at };
        let busy = self.busy_until.filter(|_| !connection.is_drained());
        let leaving = self.leaving.front().map(|(at, _)| *at).filter(|_| connection.room() > 0);
        let silent = self.silent_at(session);
        let connecting =
            self.began.filter(|_| connection.phase() == Phase::SynSent).map(|at| at + CONNECT_TIMEOUT);
        let timers = [connection.poll_timeout(), busy, leaving, silent, connecting];
        timers.into_iter().flatten().min()
    }

    /// When a silent connection is reconnected.
    fn silent_at(&self, session: &Session) -> Option<Instant> {
        (session.outstanding() > 0).then_some(self.heard? + SILENCE_LIMIT)
    }

    fn connect(&mut self, now: Instant) {
        self.connection = Some(Connection::connect(self.begun.wrapping_mul(INITIAL_STEP), now));
        self.begun += 1;
        (self.began, self.heard, self.attempt_at) = (Some(now), Some(now), None);
    }

    /// Looks whether the connection has died; then every call is made again on another one.
    fn look(&mut self, now: Instant, session: &mut Session) {
        let Some(connection) = &mut self.connection else { return };
        match connection.phase() {
            Phase::Established => self.failed = 0,
            Phase::SynSent if self.began.is_some_and(|at| at + CONNECT_TIMEOUT <= now) => connection.abort(),
            Phase::SynSent | Phase::SynReceived | Phase::Closed => {}
        }
        if session.outstanding() == 0 {
            self.heard = Some(now);
        }
        let is_silent = self.silent_at(session).is_some_and(|at| at <= now);
        let Some(connection) = self.connection.as_ref() else { return };
        if connection.phase() != Phase::Closed && !is_silent {
            return;
        }
        let pause = match self.failed {
            0 => Duration::ZERO,
            failed => (FIRST_PAUSE * (1 << (failed - 1).min(6))).min(MAX_PAUSE),
        };
        self.failed += 1;
        self.before = self.stats();
        self.connection = None;
        self.attempt_at = Some(now + pause);
        self.records = RecordReader::new(MAX_RECORD_BYTES);
        self.head.clear();
        (self.wanted, self.mode, self.busy_until) = (HEAD_BYTES, Mode::Head, None);
        self.leaving.clear();
        self.leaving_bytes = 0;
        session.handle_reconnect(now);
    }

    /// Takes messages from the session as long as there is room for them.
    fn gather(&mut self, now: Instant, session: &mut Session, host: &mut Host) {
        while self.leaving_bytes < BATCH_BYTES
            && let Some(transmit) = session.poll_transmit(now)
        {
            let length = transmit.payload.map_or(0, |payload| payload.length as usize);
            let total = transmit.head.len() + length + padding(length);
            let mut message = BytesMut::with_capacity(4 + total);
            message.extend_from_slice(&mark(total));
            message.extend_from_slice(transmit.head);
            let mut ready = now;
            if let Some(payload) = transmit.payload {
                let start = message.len();
                message.resize(4 + total, 0);
                host.give(payload.offset, &mut message[start..start + length]);
                ready = host.process(now, host.cost_of_write(payload.length));
            }
            self.leaving_bytes += message.len();
            self.leaving.push_back((ready, message));
        }
    }

    /// Hands messages to the connection, as far as it takes them.
    fn write(&mut self, now: Instant, session: &mut Session, host: &mut Host) {
        loop {
            let Some(connection) = self.connection.as_mut().filter(|it| it.phase() == Phase::Established)
            else {
                return;
            };
            let room = connection.room() as usize;
            if room == 0 {
                return;
            }
            match self.leaving.front_mut().filter(|(ready, _)| *ready <= now) {
                Some((_, message)) => {
                    let part = message.split_to(room.min(message.len()));
                    let is_whole = message.is_empty();
                    self.leaving_bytes -= part.len();
                    connection.write(part.freeze());
                    if is_whole {
                        self.leaving.pop_front();
                    }
                }
                None => {
                    let before = self.leaving.len();
                    self.gather(now, session, host);
                    if self.leaving.len() == before {
                        return;
                    }
                }
            }
        }
    }

    /// Reads what has arrived, while the processor has time.
    fn read(&mut self, now: Instant, session: &mut Session, host: &mut Host) {
        loop {
            if self.busy_until.is_some_and(|until| until > now) {
                return;
            }
            self.busy_until = None;
            let Some(data) = self.connection.as_mut().and_then(Connection::read) else { return };
            let cost = host.cost_of_reply(data.len());
            if !cost.is_zero() {
                self.busy_until = Some(host.process(now, cost));
            }
            if !self.take_in(now, session, host, &data) {
                // It makes no sense any more.
                self.connection.as_mut().into_iter().for_each(Connection::abort);
                return;
            }
        }
    }

    /// Takes the next bytes of the stream; false if they make no sense.
    fn take_in(&mut self, now: Instant, session: &mut Session, host: &mut Host, mut input: &[u8]) -> bool {
        loop {
            let most = match self.mode {
                Mode::Head => self.wanted - self.head.len(),
                Mode::Data { .. } | Mode::Skip => usize::MAX,
            };
            let chunk = match self.records.next(&mut input, most) {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let end = chunk.end;
            match self.mode {
                Mode::Head => {
                    self.head.extend_from_slice(chunk.bytes);
                    if !self.look_at_head(now, session, host, end) {
                        return false;
                    }
                }
                Mode::Data { transfer, offset, left } => {
                    let bytes = &chunk.bytes[..left.min(chunk.bytes.len())];
                    self.mode = move_data(now, session, host, (transfer, offset, left), bytes);
                }
                Mode::Skip => {}
            }
            if end {
                if matches!(self.mode, Mode::Data { .. }) {
                    return false;
                }
                (self.mode, self.wanted) = (Mode::Head, HEAD_BYTES);
                self.head.clear();
            }
        }
    }

    fn look_at_head(&mut self, now: Instant, session: &mut Session, host: &mut Host, complete: bool) -> bool {
        if !complete && self.head.len() < self.wanted {
            return true;
        }
        match session.handle_head(now, server_address(), &self.head, complete) {
            Ok(Incoming::NeedMore) if complete => return false,
            Ok(Incoming::NeedMore) => self.wanted *= 2,
            Ok(Incoming::Data { transfer, offset, length, data_at, .. }) => {
                let (left, head) = (length as usize, std::mem::take(&mut self.head));
                let bytes = head.get(data_at..).unwrap_or_default();
                let bytes = &bytes[..left.min(bytes.len())];
                self.mode = move_data(now, session, host, (transfer, offset, left), bytes);
                self.head = head;
            }
            Ok(reply @ Incoming::Reply { .. }) => {
                host.answered.extend(Answered::from_reply(&reply, &self.head));
                self.mode = Mode::Skip;
            }
            Ok(Incoming::Done) => self.mode = Mode::Skip,
            Err(_) => return false,
        }
        true
    }
}

fn move_data(
    now: Instant,
    session: &mut Session,
    host: &mut Host,
    (transfer, offset, left): (TransferId, u64, usize),
    bytes: &[u8],
) -> Mode {
    if !bytes.is_empty() {
        host.take(transfer, offset, bytes);
    }
    match left - bytes.len() {
        0 => {
            session.handle_payload_done(now);
            Mode::Skip
        }
        left => Mode::Data { transfer, offset: offset + bytes.len() as u64, left },
    }
}
