//! The UDP loop: receive, command or deadline, then drain.

use std::{
    future::pending, io::ErrorKind, net::SocketAddr, ops::ControlFlow, pin::pin, sync::Arc, time::Instant,
};

use bytes::Bytes;
use nfs_proto::session::Transmit;
use nfs_wire::padding;
use tokio::{io::Interest, net::UdpSocket, sync::mpsc, time::sleep_until};

use super::{
    Change, Command, clock,
    fragments::Fragments,
    pump::{Pump, Rest},
    socket::renew_udp,
    whole::{Whole, is_too_long},
};
use crate::channel::Channel;

/// What is longer may have been fragmented somewhere, and put together again by a proxy or a translator of addresses, though it leaves and
/// arrives in one piece here: largest UDP payload that one Ethernet frame carries over IPv4.
const ONE_FRAME_BYTES: usize = 1472;

/// What the route's MTU is assumed to be where the system does not tell.
const ASSUMED_MTU: u32 = 1500;

/// Batches of datagrams taken in before anything is sent.
const RECEIVE_BATCH: usize = 8;

/// Such batches before timers are looked at. What waits in the socket may be what a timer would take for lost: a disk, or another task, may
/// have kept us from it. But deadlines are kept, too, where there is always more.
const BATCHES_BEFORE_TIMERS: u32 = 16;

pub(super) async fn run(
    socket: UdpSocket,
    peer: SocketAddr,
    channel: Option<Arc<dyn Channel>>,
    pump: Pump,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut datagrams = Datagrams::new(socket, peer, channel.clone(), pump);
    let mut channel_ended = pin!(async {
        match &channel {
            Some(channel) => _ = channel.ended().await,
            None => pending().await,
        }
    });
    let mut batches = 0;
    datagrams.learn_route();
    loop {
        let now = clock();
        while let Ok(command) = commands.try_recv() {
            datagrams.pump.apply(now, command);
        }
        if datagrams.apply_change(now).is_break() {
            return;
        }
        batches += 1;
        let is_emptied = datagrams.receive(now);
        if is_emptied || batches >= BATCHES_BEFORE_TIMERS {
            batches = 0;
            datagrams.pump.session.handle_timeout(now);
        }
        datagrams.send(now);
        datagrams.pump.drain_events();
        datagrams.pump.publish();

        let deadline = datagrams.pump.session.poll_timeout();
        tokio::select! {
            () = &mut channel_ended => return,
            command = commands.recv() => match command {
                Some(command) => datagrams.pump.apply(clock(), command),
                None => return,
            },
            result = datagrams.socket.ready(Interest::READABLE | Interest::ERROR) => match result {
                Ok(ready) if ready.is_error() => datagrams.take_refusal(),
                Ok(_) => {}
                Err(_) => return,
            },
            result = datagrams.socket.writable(), if datagrams.outgoing.batch > 0 => if result.is_err() { return },
            () = sleep_until(deadline.unwrap_or(now).into()), if deadline.is_some() => {}
        }
    }
}

/// A UDP socket, and the session whose messages it carries.
struct Datagrams {
    socket: UdpSocket,
    peer: SocketAddr,
    whole: Whole,
    sealing: Option<Sealing>,
    /// Bytes that a channel adds to each message.
    overhead_bytes: u32,
    outgoing: Outgoing,
    pump: Pump,
}

impl Datagrams {
    fn new(socket: UdpSocket, peer: SocketAddr, channel: Option<Arc<dyn Channel>>, mut pump: Pump) -> Self {
        let whole = Whole::new(&socket);
        let sealing = channel.map(Sealing::new);
        let overhead_bytes = sealing.as_ref().map_or(0, |sealing| sealing.channel.overhead_bytes());
        // Identifications of IPv6 have 32 bits, and do not come round (RFC 8200 §4.5).
        pump.fragments = peer.is_ipv4().then(|| Fragments::new(clock()));
        Self { socket, peer, whole, sealing, overhead_bytes, outgoing: Outgoing::default(), pump }
    }

    /// Follows a change of the way to the server; breaks when there is none any more.
    fn apply_change(&mut self, now: Instant) -> ControlFlow<()> {
        match self.pump.take_change() {
            None => {}
            Some(Change::Link) => {
                let _ = renew_udp(&self.socket, self.peer);
                self.pump.session.handle_link_event(now);
                self.learn_route();
            }
            Some(Change::Server(moved)) => {
                self.peer = moved;
                let _ = renew_udp(&self.socket, moved);
                self.pump.session.handle_move(now, moved);
                self.learn_route();
            }
            Some(Change::End) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Takes in datagrams, up to a few batches of them. Returns whether that has emptied the socket.
    fn receive(&mut self, now: Instant) -> bool {
        for _ in 0..RECEIVE_BATCH {
            let Self { socket, peer, whole, sealing, pump, .. } = self;
            let take = |datagram: &[u8], fragment| take_in(pump, *peer, sealing, datagram, fragment);
            match whole.receive(socket, take) {
                Ok(()) => {}
                Err(error) if is_too_long(&error) => self.learn_route(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => self.pump.refused(now, error),
            }
        }
        false
    }

    /// Sends what the session has to send, as far as the socket takes it.
    fn send(&mut self, now: Instant) {
        while self.outgoing.fill(&mut self.pump, &mut self.sealing, self.whole.max_batch()) {
            let outgoing = &mut self.outgoing;
            let batch = &outgoing.bytes[..outgoing.batch];
            match self.whole.send(&self.socket, batch, outgoing.segment, outgoing.dont_fragment) {
                Ok(sent) => {
                    if outgoing.segment > ONE_FRAME_BYTES {
                        (0..sent.div_ceil(outgoing.segment)).for_each(|_| count(&mut self.pump, now));
                    }
                    outgoing.drop_first(sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The answer to what was sent before, or to this; it goes in fragments.
                Err(error) if is_too_long(&error) => {
                    if !std::mem::take(&mut outgoing.dont_fragment) {
                        outgoing.drop_first(outgoing.segment);
                    }
                    self.learn_route();
                }
                Err(error) => {
                    // The datagram is lost like any other; its timer runs. Perhaps the address it was to leave from is gone.
                    outgoing.drop_first(outgoing.segment);
                    let _ = renew_udp(&self.socket, self.peer);
                    self.pump.refused(now, error);
                }
            }
        }
    }

    /// Tells the session what the system knows of the route, and how much of that a channel leaves.
    fn learn_route(&mut self) {
        let assumed = (self.overhead_bytes > 0).then_some(ASSUMED_MTU);
        if let Some(mtu) = Whole::route_mtu(&self.socket).or(assumed) {
            tracing::trace!(mtu, "MTU of the route");
            let mtu = mtu.saturating_sub(self.overhead_bytes);
            self.pump.session.handle_route_mtu(mtu, self.whole.sees_fragments());
        }
    }

    /// A refusal is no datagram: it is an error that waits at the socket, and has to be taken from the reactor by hand.
    fn take_refusal(&mut self) {
        let _ = self.socket.try_io(Interest::ERROR, || Err::<(), _>(ErrorKind::WouldBlock.into()));
        match self.socket.take_error() {
            Ok(Some(error)) if is_too_long(&error) => self.learn_route(),
            Ok(Some(error)) => self.pump.refused(clock(), error),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Messages that wait for the socket.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// Bytes of the first messages that leave together: all of one size but the last, which may be shorter.
    batch: usize,
    /// That size.
    segment: usize,
    dont_fragment: bool,
    /// What follows the batch, one message at most, must not be fragmented.
    next_dont_fragment: bool,
}

impl Outgoing {
    /// Sees to it that there is something to send; false when there is nothing. Messages that must not be fragmented and are of one size leave
    /// together, in at most `most` bytes.
    fn fill(&mut self, pump: &mut Pump, sealing: &mut Option<Sealing>, most: usize) -> bool {
        if self.batch > 0 {
            return true;
        }
        if self.bytes.is_empty() {
            match next_datagram(pump, sealing, &mut self.bytes) {
                Some(dont_fragment) => self.next_dont_fragment = dont_fragment,
                None => return false,
            }
        }
        (self.batch, self.segment) = (self.bytes.len(), self.bytes.len());
        self.dont_fragment = self.next_dont_fragment;
        while self.dont_fragment
            && self.batch.is_multiple_of(self.segment)
            && self.batch + self.segment <= most
        {
            let Some(dont_fragment) = next_datagram(pump, sealing, &mut self.bytes) else { break };
            let length = self.bytes.len() - self.batch;
            if length > self.segment || !dont_fragment {
                self.next_dont_fragment = dont_fragment;
                break;
            }
            self.batch += length;
        }
        true
    }

    /// So many bytes of the batch have left, or are given up.
    fn drop_first(&mut self, bytes: usize) {
        let bytes = bytes.min(self.batch);
        self.bytes.drain(..bytes);
        self.batch -= bytes;
    }
}

fn count(pump: &mut Pump, now: Instant) {
    if let Some(fragments) = &mut pump.fragments {
        fragments.count(now);
    }
}

fn take_in(
    pump: &mut Pump,
    peer: SocketAddr,
    sealing: &mut Option<Sealing>,
    datagram: &[u8],
    fragment: Option<u32>,
) {
    let now = clock();
    if fragment.is_some() || datagram.len() > ONE_FRAME_BYTES {
        count(pump, now);
    }
    let datagram = match sealing {
        None => datagram,
        Some(Sealing { channel, message }) => match channel.open_datagram(datagram, message) {
            true => &message[..],
            false => return,
        },
    };
    pump.session.handle_fragments(fragment);
    match pump.receive(now, peer, datagram, true) {
        Ok(Rest::Data { transfer, offset, length, data_at }) => {
            let data = datagram.get(data_at..data_at + length as usize).unwrap_or_default();
            pump.store(now, transfer, offset, data);
            pump.session.handle_payload_done(now);
        }
        Ok(Rest::Reply(replied, at)) => replied.hand_on(Bytes::copy_from_slice(&datagram[at..])),
        Ok(Rest::NeedMore | Rest::Skip) => {}
        Err(error) => tracing::debug!(%error, "dropped a datagram that is no reply"),
    }
}

/// A channel, and room for a message on its way.
struct Sealing {
    channel: Arc<dyn Channel>,
    message: Vec<u8>,
}

impl Sealing {
    const fn new(channel: Arc<dyn Channel>) -> Self {
        Self { channel, message: Vec::new() }
    }
}

/// Appends the next datagram, and says whether it must not be fragmented; `None` when there is none.
fn next_datagram(pump: &mut Pump, sealing: &mut Option<Sealing>, bytes: &mut Vec<u8>) -> Option<bool> {
    let Some(Sealing { channel, message }) = sealing else { return next_message(pump, bytes) };
    message.clear();
    let dont_fragment = next_message(pump, message)?;
    channel.seal(message, bytes);
    Some(dont_fragment)
}

/// Appends the next message, and says whether it must not be fragmented; `None` when there is none.
fn next_message(pump: &mut Pump, bytes: &mut Vec<u8>) -> Option<bool> {
    let now = clock();
    let start = bytes.len();
    while let Some(Transmit { transfer, head, payload, dont_fragment }) = pump.session.poll_transmit(now) {
        bytes.extend_from_slice(head);
        let (Some(transfer), Some(payload)) = (transfer, payload) else { return Some(dont_fragment) };
        let length = payload.length as usize;
        if pump.load(now, transfer, payload.offset, length, bytes) {
            bytes.resize(bytes.len() + padding(length), 0);
            return Some(dont_fragment);
        }
        bytes.truncate(start);
    }
    None
}
