//! A session and what carries it: datagrams, or records over a TCP connection.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::{Endpoint, Outgoing};
use nfs_proto::session::{Incoming, Session};
use nfs_wire::{padding, portmap::Protocol};

use crate::{
    address::SERVER,
    host::{Answered, Host},
    server::server_address,
    stream::Stream,
    tcp::TcpStats,
};

/// A session with its socket.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) session: Session,
    place: Endpoint,
    carrier: Carrier,
}

#[derive(Debug)]
enum Carrier {
    /// Messages that wait for the processor, in either direction, and when it is done with them.
    Datagrams {
        arriving: VecDeque<(Instant, Bytes)>,
        leaving: VecDeque<(Instant, Bytes)>,
    },
    Stream(Box<Stream>),
}

impl Path {
    /// A session over datagrams from `place`.
    pub(crate) const fn datagrams(session: Session, place: Endpoint) -> Self {
        let carrier = Carrier::Datagrams { arriving: VecDeque::new(), leaving: VecDeque::new() };
        Self { session, place, carrier }
    }

    /// A session over a connection from `place`, which is made at a moment.
    pub(crate) fn stream(session: Session, place: Endpoint, at: Instant) -> Self {
        Self { session, place, carrier: Carrier::Stream(Box::new(Stream::new(place, at))) }
    }

    pub(crate) const fn place(&self) -> Endpoint {
        self.place
    }

    pub(crate) const fn protocol(&self) -> Protocol {
        match self.carrier {
            Carrier::Datagrams { .. } => Protocol::Udp,
            Carrier::Stream(_) => Protocol::Tcp,
        }
    }

    /// Connections made after the first.
    pub(crate) fn reconnections(&self) -> u64 {
        match &self.carrier {
            Carrier::Datagrams { .. } => 0,
            Carrier::Stream(stream) => stream.reconnections(),
        }
    }

    /// What the sending half of the connections has done.
    pub(crate) fn tcp_stats(&self) -> TcpStats {
        match &self.carrier {
            Carrier::Datagrams { .. } => TcpStats::default(),
            Carrier::Stream(stream) => stream.stats(),
        }
    }

    /// Takes a packet.
    pub(crate) fn handle_input(&mut self, now: Instant, host: &mut Host, payload: Bytes) {
        if host.overflows(payload.len()) {
            return;
        }
        match &mut self.carrier {
            Carrier::Stream(stream) => stream.handle_input(now, &mut self.session, host, &payload),
            Carrier::Datagrams { arriving, .. } => {
                let cost = host.cost_of_reply(payload.len());
                if cost.is_zero() && arriving.is_empty() {
                    take_in(now, &mut self.session, host, &payload);
                } else {
                    arriving.push_back((host.process(now, cost), payload));
                }
            }
        }
    }

    /// Fires what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, host: &mut Host) {
        match &mut self.carrier {
            Carrier::Stream(stream) => stream.handle_timeout(now, &mut self.session, host),
            Carrier::Datagrams { arriving, .. } => {
                while let Some(message) = pop_due(arriving, now) {
                    take_in(now, &mut self.session, host, &message);
                }
            }
        }
        self.session.handle_timeout(now);
    }

    /// Returns the next packet to send.
    pub(crate) fn poll_transmit(&mut self, now: Instant, host: &mut Host) -> Option<Outgoing> {
        let leaving = match &mut self.carrier {
            Carrier::Stream(stream) => return stream.poll_transmit(now, &mut self.session, host),
            Carrier::Datagrams { leaving, .. } => leaving,
        };
        let from = self.place;
        let outgoing = |payload| Some(Outgoing { from, to: SERVER, payload });
        if let Some(message) = pop_due(leaving, now) {
            return outgoing(message);
        }
        while let Some(transmit) = self.session.poll_transmit(now) {
            let mut message = Vec::with_capacity(transmit.head.len());
            message.extend_from_slice(transmit.head);
            let mut cost = Duration::ZERO;
            if let Some(payload) = transmit.payload {
                let (head, length) = (message.len(), payload.length as usize);
                message.resize(head + length + padding(length), 0);
                host.give(payload.offset, &mut message[head..head + length]);
                cost = host.cost_of_write(payload.length);
            }
            if cost.is_zero() && leaving.is_empty() {
                return outgoing(message.into());
            }
            leaving.push_back((host.process(now, cost), message.into()));
        }
        None
    }

    /// Returns when [`Self::handle_timeout`] is wanted next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let carrier = match &self.carrier {
            Carrier::Stream(stream) => stream.poll_timeout(&self.session),
            Carrier::Datagrams { arriving, leaving } => {
                [arriving.front(), leaving.front()].into_iter().flatten().map(|(at, _)| *at).min()
            }
        };
        self.session.poll_timeout().into_iter().chain(carrier).min()
    }
}

/// The first message of a queue, if the processor is done with it.
fn pop_due(queue: &mut VecDeque<(Instant, Bytes)>, now: Instant) -> Option<Bytes> {
    queue.front().filter(|(at, _)| *at <= now)?;
    queue.pop_front().map(|(_, message)| message)
}

/// Takes a whole message.
fn take_in(now: Instant, session: &mut Session, host: &mut Host, message: &[u8]) {
    match session.handle_head(now, server_address(), message, true) {
        Ok(Incoming::Data { transfer, offset, length, data_at, .. }) => {
            if let Some(data) = message.get(data_at..data_at + length as usize) {
                host.take(transfer, offset, data);
            }
            session.handle_payload_done(now);
        }
        Ok(reply @ Incoming::Reply { .. }) => host.answered.extend(Answered::from_reply(&reply, message)),
        // What is broken or a stranger's is counted by the engine.
        Ok(Incoming::NeedMore | Incoming::Done) | Err(_) => {}
    }
}
