//! What the tests of the link share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use linkemu::{
    ArqKind, BitRate, Cell, ChannelTrace, Delivery, Endpoint, LinkConfig, Periods, Rate, virtual_epoch,
};

/// The 1997 link without its wire, so that every microsecond is on the medium: 8 µs a byte.
pub(crate) fn bare() -> LinkConfig {
    let mut config = LinkConfig::default();
    config.wired.rate = BitRate::UNLIMITED;
    config.wired.delay = Duration::ZERO;
    config
}

/// A link that neither delays nor loses.
pub(crate) fn open() -> LinkConfig {
    let mut config = bare();
    config.rate = BitRate::UNLIMITED.into();
    config
}

/// [`bare`] with a recorded channel and an ARQ.
pub(crate) fn traced(trace: &str, kind: ArqKind) -> LinkConfig {
    let mut config = bare();
    config.channel.periods = Periods::Trace(ChannelTrace::parse(trace).expect("a valid trace"));
    config.arq.kind = kind;
    config
}

pub(crate) fn host() -> Endpoint {
    Endpoint::host(0, 2049)
}

pub(crate) fn mobile(number: u16) -> Endpoint {
    Endpoint::mobile(number, 700)
}

/// A link under a virtual clock that tells times in microseconds since its creation.
pub(crate) struct World {
    pub(crate) cell: Cell,
    pub(crate) epoch: Instant,
}

impl World {
    pub(crate) fn new(config: LinkConfig, mobiles: u16, seed: u64) -> Self {
        let epoch = virtual_epoch();
        let cell = Cell::with_mobiles(config, mobiles, seed, epoch).expect("a valid link");
        Self { cell, epoch }
    }

    pub(crate) fn at(&self, micros: u64) -> Instant {
        self.epoch + Duration::from_micros(micros)
    }

    pub(crate) fn send(&mut self, micros: u64, from: Endpoint, to: Endpoint, bytes: usize) -> u64 {
        let at = self.at(micros);
        self.cell.handle_input(at, from, to, Bytes::from(vec![0; bytes]))
    }

    /// Runs until nothing is left to do, at most until `micros`.
    pub(crate) fn run(&mut self, micros: u64) -> Vec<Delivery> {
        let end = self.at(micros);
        let mut deliveries = Vec::new();
        while let Some(next) = self.cell.poll_timeout().filter(|&next| next <= end) {
            self.cell.handle_timeout(next);
            while let Some(delivery) = self.cell.poll_transmit(next) {
                deliveries.push(delivery);
            }
            let after = self.cell.poll_timeout();
            assert!(after.is_none_or(|after| after > next), "no progress at {:?}", next - self.epoch);
        }
        self.cell.handle_timeout(end);
        deliveries
    }

    /// Datagram and time of arrival in nanoseconds.
    pub(crate) fn arrivals(&mut self, micros: u64) -> Vec<(u64, u64)> {
        let epoch = self.epoch;
        let deliveries = self.run(micros);
        deliveries
            .iter()
            .map(|delivery| (delivery.datagram, (delivery.at - epoch).as_nanos() as u64))
            .collect()
    }
}

pub(crate) fn megabits(rate: u64) -> Rate {
    Rate::Constant(BitRate::megabits(rate))
}
