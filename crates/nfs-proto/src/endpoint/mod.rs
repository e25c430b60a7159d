//! The connections to one server: which transport a call takes, and when that changes. docs/transports.md is the specification.
//!
//! [`Endpoint`] knows the connections and measures the transports. [`DownloadPlan`], [`UploadPlan`] and [`ListingPlan`] say
//! what one transfer does with them. All are machines: a driver carries out their steps, on sockets or in a simulation.

mod choice;
mod download;
mod first;
mod listing;
mod pieces;
mod tuning;
mod upload;

use std::time::{Duration, Instant};

use nfs_wire::{Procedure, portmap::Protocol};

use self::choice::{Choice, index};
pub use self::{
    choice::{Reason, Use, other},
    download::{DownloadPlan, DownloadStep},
    first::{FirstTransport, ServerPlace},
    listing::{ListingPlan, ListingStep},
    pieces::RunId,
    tuning::TransportTuning,
    upload::{Carrier, UploadPlan, UploadStep},
};
pub use crate::engine::Direction;
use crate::{engine::Repeat, transfer::Copies};

/// Names a connection of an [`Endpoint`]; the first is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub usize);

/// Which connection a call takes, and when it is made on the other transport, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The connection.
    pub connection: ConnectionId,
    /// `None`: it is made on this connection only.
    pub failover: Option<Failover>,
}

/// A second attempt at a call over the other transport, if that answers a NULL call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// Without a reply for so long the other transport is asked with a NULL call.
    pub after: Duration,
    /// So long after its answer the call is made there.
    pub grace: Duration,
}

/// A connection, as far as decisions need it.
#[derive(Clone, Copy, Debug)]
struct Connection {
    protocol: Protocol,
    round_trip: Duration,
}

/// What may be chosen for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointConfig {
    /// Whether either transport may be used; else only that of the first connection.
    pub either_transport: bool,
    /// Whether a download over TCP may take several connections.
    pub several_connections: bool,
    /// The numbers that decide.
    pub tuning: TransportTuning,
}

/// The connections to one server.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    connections: Vec<Connection>,
    /// Why the first connection's transport is in use.
    reason: Reason,
    /// For READs and for WRITEs.
    choices: [Choice; 2],
    /// Procedures that only the other transport answers, by their bits.
    moved: u32,
    /// When a transport refused last.
    refused: [Option<Instant>; 2],
}

impl Endpoint {
    /// Starts with one connection, whose transport was chosen for a reason.
    pub fn new(
        config: EndpointConfig,
        now: Instant,
        first: Protocol,
        round_trip: Duration,
        reason: Reason,
    ) -> Self {
        let choice = || Choice::new(now, first, reason, round_trip, config.tuning);
        Self {
            config,
            connections: vec![Connection { protocol: first, round_trip }],
            reason,
            choices: [choice(), choice()],
            moved: 0,
            refused: [None; 2],
        }
    }

    /// Records a further connection, on which a NULL call was answered after `round_trip`.
    pub fn add(&mut self, protocol: Protocol, round_trip: Duration) -> ConnectionId {
        self.connections.push(Connection { protocol, round_trip });
        ConnectionId(self.connections.len() - 1)
    }

    /// Records a round trip that was measured on a connection: that of its NULL call may have met a fade.
    fn handle_round_trip(&mut self, connection: ConnectionId, round_trip: Duration) {
        let known = &mut self.connections[connection.0].round_trip;
        *known = round_trip.min(*known);
        self.choices.iter_mut().for_each(|choice| choice.handle_round_trip(round_trip));
    }

    /// Records that the server refuses a further connection over a transport.
    pub fn handle_refused(&mut self, now: Instant, protocol: Protocol) {
        self.refused[index(protocol)] = Some(now);
    }

    /// Whether a connection over a transport may be tried: the server has not refused one lately.
    pub fn may_connect(&self, now: Instant, protocol: Protocol) -> bool {
        self.refused[index(protocol)].is_none_or(|since| since + self.config.tuning.refused <= now)
    }

    /// Returns which connection a call takes.
    ///
    /// Calls that must not be run twice stay on the first, whose source port the server's duplicate request cache knows.
    pub fn route(&self, procedure: Procedure) -> Route {
        let first = ConnectionId::default();
        let may_move = self.config.either_transport
            && procedure != Procedure::Null
            && Copies::of_nfs(procedure).repeat == Repeat::Idempotent;
        if !may_move {
            return Route { connection: first, failover: None };
        }
        let has_moved = self.moved & bit(procedure) != 0;
        let connection = self.find(other(self.protocol(first)), 0).filter(|_| has_moved).unwrap_or(first);
        Route { connection, failover: Some(self.failover(connection)) }
    }

    /// Returns how often a transfer looks whether another connection would do better.
    pub fn tick(&self) -> Duration {
        self.config.tuning.tick()
    }

    /// Returns when a call on a connection is made on the other transport, too.
    fn failover(&self, connection: ConnectionId) -> Failover {
        let tuning = &self.config.tuning;
        Failover { after: tuning.stalled_after(self.round_trip(connection)), grace: tuning.grace }
    }

    /// Records that only another transport than `silent` has answered a call: the procedure stays there.
    pub fn handle_failover(&mut self, procedure: Procedure, silent: Protocol) {
        // Of two calls that find this out side by side the second must not undo it.
        if silent == self.protocol(ConnectionId::default()) {
            self.moved |= bit(procedure);
        } else {
            self.moved &= !bit(procedure);
        }
    }

    /// Counts a transfer that begins.
    pub fn begin(&mut self, now: Instant, direction: Direction) {
        self.choice_mut(direction).begin(now);
    }

    /// Counts a transfer that has ended.
    pub fn end(&mut self, now: Instant, direction: Direction) {
        self.choice_mut(direction).end(now);
    }

    /// Counts file bytes that arrived, or were accepted.
    pub fn handle_bytes(&mut self, now: Instant, direction: Direction, over: Protocol, bytes: u64) {
        self.choice_mut(direction).handle_bytes(now, over, bytes);
    }

    /// Returns which transport READs, or WRITEs, take, and why.
    pub fn verdict(&self, direction: Direction) -> (Protocol, Reason) {
        if self.config.either_transport {
            self.choices[direction as usize].verdict()
        } else {
            (self.protocol(ConnectionId::default()), self.reason)
        }
    }

    /// Returns the connection over a transport with this number, if there is one.
    pub fn find(&self, protocol: Protocol, number: usize) -> Option<ConnectionId> {
        let all =
            self.connections.iter().enumerate().filter(|(_, connection)| connection.protocol == protocol);
        all.map(|(index, _)| ConnectionId(index)).nth(number)
    }

    /// Returns the transport of a connection.
    ///
    /// # Panics
    /// If it is a connection of another endpoint.
    pub fn protocol(&self, connection: ConnectionId) -> Protocol {
        self.connections[connection.0].protocol
    }

    fn round_trip(&self, connection: ConnectionId) -> Duration {
        self.connections[connection.0].round_trip
    }

    /// Decides which transport the data of a transfer takes, of which so many bytes are left.
    fn decide(&mut self, now: Instant, direction: Direction, left: u64) -> Use {
        if self.config.either_transport {
            self.choice_mut(direction).decide(now, left)
        } else {
            Use { current: self.protocol(ConnectionId::default()), trial: false, ask: false }
        }
    }

    /// The connection for data over a transport, or the first while there is none.
    fn carrier(&self, protocol: Protocol) -> ConnectionId {
        self.find(protocol, 0).unwrap_or_default()
    }

    const fn choice_mut(&mut self, direction: Direction) -> &mut Choice {
        &mut self.choices[direction as usize]
    }
}

const fn bit(procedure: Procedure) -> u32 {
    1 << procedure.number()
}

#[cfg(test)]
mod tests;
