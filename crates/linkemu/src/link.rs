//! A link with two ends: a mobile and a host.

use std::time::Instant;

use bytes::Bytes;

use crate::{Cell, ConfigError, Delivery, Endpoint, LinkConfig, Observer, Stats};

/// One mobile, one host, and the link between them: a [`Cell`] without addresses.
///
/// The same contract as [`Cell`], which it wraps; use that for more than one mobile.
#[derive(Debug)]
pub struct Link {
    cell: Cell,
}

/// An end of a [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The mobile.
    Mobile,
    /// The host behind the base station.
    Host,
}

impl Side {
    /// The address of this end in records.
    pub const fn endpoint(self) -> Endpoint {
        match self {
            Self::Mobile => Endpoint::mobile(0, 0),
            Self::Host => Endpoint::host(0, 0),
        }
    }

    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Mobile => Self::Host,
            Self::Host => Self::Mobile,
        }
    }
}

impl Link {
    /// A link at rest.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field out of bounds.
    pub fn new(config: LinkConfig, seed: u64, now: Instant) -> Result<Self, ConfigError> {
        Ok(Self { cell: Cell::with_mobiles(config, 1, seed, now)? })
    }

    /// Offers a UDP payload at one end, and returns the number of the datagram.
    pub fn handle_input(&mut self, now: Instant, from: Side, payload: Bytes) -> u64 {
        self.cell.handle_input(now, from.endpoint(), from.other().endpoint(), payload)
    }

    /// Does everything due until `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cell.handle_timeout(now);
    }

    /// Tells `observer` of every datagram and frame from now on.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.cell.observe(observer);
    }

    /// Ends the run: see [`Cell::close_records`].
    pub fn close_records(&mut self) {
        self.cell.close_records();
    }

    /// The next datagram that has arrived by `now`, and where.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Side, Delivery)> {
        let delivery = self.cell.poll_transmit(now)?;
        let side = if delivery.to == Side::Host.endpoint() { Side::Host } else { Side::Mobile };
        Some((side, delivery))
    }

    /// When [`Link::handle_timeout`] is wanted next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.cell.poll_timeout()
    }

    /// A copy of the counters.
    pub fn stats(&self) -> Stats {
        self.cell.stats()
    }

    /// The machine inside.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }
}
