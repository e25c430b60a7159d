//! A download over one connection or several.

use std::time::Instant;

use nfs_wire::portmap::Protocol;

use super::{
    ConnectionId, Direction, Endpoint, Reason,
    choice::{Use, index, other},
    pieces::{Pieces, RunId},
};
use crate::transfer::{Range, RangeSet};

/// What a driver is to do for a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownloadStep {
    /// Read these ranges on a connection; [`DownloadPlan::handle_end`] records the end.
    Read {
        /// Which connection.
        connection: ConnectionId,
        /// Names the attempt.
        run: RunId,
        /// What to read.
        ranges: RangeSet,
    },
    /// Give up a run: others have brought its bytes.
    Cancel(RunId),
    /// Have the connection over this transport with this number, and make it if there is none yet. [`DownloadPlan::handle_join`]
    /// takes note of it.
    Join {
        /// Over which transport.
        protocol: Protocol,
        /// Which of the connections over it.
        number: usize,
        /// Whether it has to answer a NULL call now, if it is there already.
        must_answer: bool,
    },
}

/// One download over the connections of an endpoint: which of them reads what.
#[derive(Debug)]
pub struct DownloadPlan {
    pieces: Pieces,
    /// In the order of their numbers in `pieces`.
    connections: Vec<ConnectionId>,
    /// Over which transports a connection is being made or asked: UDP, TCP. One that does not answer holds up no other.
    joining: [bool; 2],
    join_from: Instant,
}

impl DownloadPlan {
    /// Starts to read `wanted`.
    pub fn new(now: Instant, endpoint: &Endpoint, wanted: RangeSet) -> Self {
        Self {
            pieces: Pieces::new(wanted, now, endpoint.config.tuning),
            connections: Vec::new(),
            joining: [false; 2],
            join_from: now,
        }
    }

    /// Returns what is to be done next. `takes_more`: whether what is read has somewhere to go.
    pub fn poll(&mut self, now: Instant, endpoint: &mut Endpoint, takes_more: bool) -> Option<DownloadStep> {
        if let Some(run) = self.pieces.needless() {
            self.pieces.end(run);
            return Some(DownloadStep::Cancel(run));
        }
        let (left, trouble) = (self.pieces.left(), self.pieces.trouble(now));
        if left == 0 {
            return None;
        }
        // What moves well over TCP need not be compared with UDP.
        let first = self.connections.first();
        let is_quiet = trouble == 0 && first.is_some_and(|&first| endpoint.protocol(first) == Protocol::Tcp);
        let uses = endpoint.decide(now, Direction::Down, if is_quiet { 0 } else { left });
        if self.connections.is_empty() {
            self.add(now, endpoint, endpoint.carrier(uses.current));
        }
        if let Some(run) = self.needless_over_udp(endpoint, uses) {
            self.pieces.end(run);
            return Some(DownloadStep::Cancel(run));
        }
        for (index, &connection) in self.connections.iter().enumerate() {
            if takes_more
                && (endpoint.protocol(connection) == uses.current || uses.trial)
                && let Some((run, ranges)) = self.pieces.next(now, index)
            {
                return Some(DownloadStep::Read { connection, run, ranges });
            }
        }
        if now < self.join_from {
            return None;
        }
        let (protocol, number, must_answer) = self.join(endpoint, uses, left, trouble)?;
        self.joining[index(protocol)] = true;
        Some(DownloadStep::Join { protocol, number, must_answer })
    }

    /// Records bytes that arrived, or were stored, on behalf of a run; returns how many of them are new.
    pub fn handle_bytes(&mut self, now: Instant, run: RunId, range: Range) -> u64 {
        self.pieces.handle_bytes(now, run, range)
    }

    /// Records the end of a run; what it has not brought is asked for again.
    pub fn handle_end(&mut self, run: RunId) {
        self.pieces.end(run);
    }

    /// Records the connection over a transport that was to join; `None`: the server refuses, or does not answer.
    pub fn handle_join(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        protocol: Protocol,
        connection: Option<ConnectionId>,
    ) {
        self.joining[index(protocol)] = false;
        // It shows what it is worth before the next one is made or asked.
        self.join_from = now + endpoint.config.tuning.outage();
        let Some(connection) = connection else { return };
        let choice = endpoint.choice_mut(Direction::Down);
        if choice.verdict().0 != protocol {
            choice.handle_answer(now);
        }
        if !self.connections.contains(&connection) {
            self.add(now, endpoint, connection);
        }
    }

    /// Returns the bytes that have not arrived.
    pub fn left(&self) -> u64 {
        self.pieces.left()
    }

    /// Returns when something new arrived last.
    pub const fn arrived(&self) -> Instant {
        self.pieces.arrived()
    }

    /// Returns how many connections took part, and how many bytes arrived twice.
    pub const fn connections_and_bytes_twice(&self) -> (usize, u64) {
        (self.connections.len(), self.pieces.twice())
    }

    /// Returns a run over UDP that TCP takes over: the rest of it would take UDP long, and TCP is tested alone.
    fn needless_over_udp(&self, endpoint: &Endpoint, uses: Use) -> Option<RunId> {
        let is_fast = matches!(endpoint.verdict(Direction::Down).1, Reason::Fast(_));
        let mut all = self.connections.iter().enumerate();
        all.find_map(|(index, &connection)| {
            let is_left = is_fast && !uses.trial && endpoint.protocol(connection) == Protocol::Udp;
            self.pieces.run_over(index).filter(|_| is_left)
        })
    }

    fn add(&mut self, now: Instant, endpoint: &Endpoint, connection: ConnectionId) {
        self.pieces.add_connection(now, endpoint.round_trip(connection));
        self.connections.push(connection);
    }

    /// Returns the connection that would help, if one would: over which transport, its number, and whether it has to answer.
    fn join(
        &self,
        endpoint: &Endpoint,
        uses: Use,
        left: u64,
        trouble: u32,
    ) -> Option<(Protocol, usize, bool)> {
        let over = |protocol| {
            let connections = self.connections.iter();
            connections.filter(move |&&connection| endpoint.protocol(connection) == protocol)
        };
        let may_join = |protocol| !self.joining[index(protocol)];
        if over(uses.current).count() == 0 {
            return may_join(uses.current).then_some((uses.current, 0, false));
        }
        let elsewhere = other(uses.current);
        if may_join(elsewhere) && (uses.ask || (uses.trial && over(elsewhere).count() == 0)) {
            return Some((elsewhere, 0, true));
        }
        let tuning = &endpoint.config.tuning;
        let number = over(Protocol::Tcp).count();
        let wanted = (1 + (trouble / tuning.trouble) as usize).min(tuning.connections);
        let is_far = over(Protocol::Tcp).any(|&connection| endpoint.round_trip(connection) >= tuning.near);
        let more = endpoint.config.several_connections
            && uses.current == Protocol::Tcp
            && number < wanted
            && is_far
            && left >= tuning.piece_bytes * 8
            && may_join(Protocol::Tcp);
        more.then_some((Protocol::Tcp, number, false))
    }
}

#[cfg(test)]
mod tests;
