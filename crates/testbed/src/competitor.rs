//! Somebody else's TCP on the same link: an endless flow of [`crate::tcp`], as a Linux host with CUBIC sends it.
//!
//! It knows nothing of NFS. It stands for what shares a queue with us and backs off when that queue overflows.

use std::time::Instant;

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};

use crate::{
    Operation,
    tcp::{Connection, MSS, Segment},
};

/// The port of both ends.
const PORT: u16 = 5001;

/// What it sends, again and again: as much as one segment takes.
static CONTENTS: [u8; MSS as usize] = [0; MSS as usize];

/// The ends of the flow on mobile `number`, sender first.
pub(crate) fn flow(
    operation: Operation,
    number: u16,
    now: Instant,
) -> ((Endpoint, Sender), (Endpoint, Receiver)) {
    let (host, mobile) = (Endpoint::host(1, PORT), Endpoint::mobile(number, PORT));
    let (from, to) = match operation {
        Operation::Read => (host, mobile),
        Operation::Write => (mobile, host),
    };
    let sender = Sender { from, to, connection: Connection::connect(0, now), running: true };
    ((from, sender), (to, Receiver { place: to, from, connection: None, received: 0 }))
}

/// Sends for ever.
#[derive(Debug)]
pub(crate) struct Sender {
    from: Endpoint,
    to: Endpoint,
    connection: Connection,
    running: bool,
}

impl Sender {
    /// Sends no more.
    pub(crate) const fn stop(&mut self) {
        self.running = false;
    }
}

impl Node for Sender {
    fn handle_input(&mut self, now: Instant, _from: Endpoint, _to: Endpoint, payload: Bytes) {
        if let Some(segment) = Segment::decode(&payload) {
            self.connection.handle_input(now, &segment);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        if !self.running {
            return None;
        }
        while self.connection.room() >= MSS {
            self.connection.write(Bytes::from_static(&CONTENTS));
        }
        let segment = self.connection.poll_transmit(now)?;
        Some(Outgoing { from: self.from, to: self.to, payload: segment.encode() })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout().filter(|_| self.running)
    }
}

/// Takes what the sender sends.
#[derive(Debug)]
pub(crate) struct Receiver {
    place: Endpoint,
    from: Endpoint,
    connection: Option<Connection>,
    received: u64,
}

impl Receiver {
    /// Bytes that have arrived in order.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }
}

impl Node for Receiver {
    fn handle_input(&mut self, now: Instant, _from: Endpoint, _to: Endpoint, payload: Bytes) {
        let Some(segment) = Segment::decode(&payload) else { return };
        match &mut self.connection {
            Some(connection) => connection.handle_input(now, &segment),
            None => self.connection = Some(Connection::accept(0, &segment, now)),
        }
        while let Some(data) = self.connection.as_mut().and_then(Connection::read) {
            self.received += data.len() as u64;
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.iter_mut().for_each(|connection| connection.handle_timeout(now));
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        let segment = self.connection.as_mut()?.poll_transmit(now)?;
        Some(Outgoing { from: self.place, to: self.from, payload: segment.encode() })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.as_ref()?.poll_timeout()
    }
}
