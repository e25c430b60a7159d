//! The UDP loop: receive, command or deadline, then drain.

use std::{io::ErrorKind, net::SocketAddr, time::Instant};

use nfs_proto::session::Transmit;
use nfs_wire::padding;
use rustix::io::Errno;
use tokio::{io::Interest, net::UdpSocket, sync::mpsc, time::sleep_until};

use super::{
    Change, Command, clock,
    fragments::Fragments,
    pump::{Pump, Rest},
    socket::renew_udp,
    whole::Whole,
};

/// What is longer may have been fragmented somewhere, and put together again by a proxy or a translator of addresses, though it leaves and
/// arrives in one piece here: largest UDP payload that one Ethernet frame carries over IPv4.
const ONE_FRAME_BYTES: usize = 1472;

/// Batches of datagrams taken in before anything is sent.
const RECEIVE_BATCH: usize = 8;

/// Such batches before timers are looked at. What waits in the socket may be what a timer would take for lost: a disk, or another task, may
/// have kept us from it. But deadlines are kept, too, where there is always more.
const BATCHES_BEFORE_TIMERS: u32 = 16;

pub(super) async fn run(
    socket: UdpSocket,
    mut peer: SocketAddr,
    mut pump: Pump,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut whole = Whole::new(&socket);
    let mut outgoing = Outgoing { bytes: Vec::with_capacity(2048), dont_fragment: false };
    let mut batches = 0;
    // Identifications of IPv6 have 32 bits, and do not come round (RFC 8200 §4.5).
    pump.fragments = peer.is_ipv4().then(|| Fragments::new(clock()));
    learn_route(&mut pump, &socket, &whole);
    loop {
        let now = clock();
        while let Ok(command) = commands.try_recv() {
            pump.apply(now, command);
        }
        match pump.take_change() {
            None => {}
            Some(Change::Link) => {
                let _ = renew_udp(&socket, peer);
                pump.session.handle_link_event(now);
                learn_route(&mut pump, &socket, &whole);
            }
            Some(Change::Server(moved)) => {
                peer = moved;
                let _ = renew_udp(&socket, peer);
                pump.session.handle_move(now, peer);
                learn_route(&mut pump, &socket, &whole);
            }
            Some(Change::End) => return,
        }
        batches += 1;
        for _ in 0..RECEIVE_BATCH {
            match whole.receive(&socket, |datagram, fragment| take_in(&mut pump, peer, datagram, fragment)) {
                Ok(()) => {}
                Err(error) if is_too_long(&error) => learn_route(&mut pump, &socket, &whole),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    batches = BATCHES_BEFORE_TIMERS;
                    break;
                }
                Err(error) => pump.refused(now, error),
            }
        }
        if batches >= BATCHES_BEFORE_TIMERS {
            batches = 0;
            pump.session.handle_timeout(now);
        }
        while !outgoing.bytes.is_empty() || next_datagram(&mut pump, &mut outgoing) {
            match whole.send(&socket, &outgoing.bytes, outgoing.dont_fragment) {
                Ok(()) => {
                    if outgoing.bytes.len() > ONE_FRAME_BYTES {
                        count(&mut pump, now);
                    }
                    outgoing.bytes.clear();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The answer to what was sent before, or to this; it goes in fragments.
                Err(error) if is_too_long(&error) => {
                    if !std::mem::take(&mut outgoing.dont_fragment) {
                        outgoing.bytes.clear();
                    }
                    learn_route(&mut pump, &socket, &whole);
                }
                Err(error) => {
                    // The datagram is lost like any other; its timer runs. Perhaps the address it was to leave from is gone.
                    outgoing.bytes.clear();
                    let _ = renew_udp(&socket, peer);
                    pump.refused(now, error);
                }
            }
        }
        pump.drain_events();
        pump.publish();

        let deadline = pump.session.poll_timeout();
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => pump.apply(clock(), command),
                None => return,
            },
            result = socket.ready(Interest::READABLE | Interest::ERROR) => match result {
                Ok(ready) if ready.is_error() => take_refusal(&mut pump, &socket, &whole),
                Ok(_) => {}
                Err(_) => return,
            },
            result = socket.writable(), if !outgoing.bytes.is_empty() => if result.is_err() { return },
            () = sleep_until(deadline.unwrap_or(now).into()), if deadline.is_some() => {}
        }
    }
}

/// A message that waits for the socket.
struct Outgoing {
    bytes: Vec<u8>,
    dont_fragment: bool,
}

fn count(pump: &mut Pump, now: Instant) {
    if let Some(fragments) = &mut pump.fragments {
        fragments.count(now);
    }
}

/// Whether a datagram was longer than a link on the way carries, and must not be fragmented.
fn is_too_long(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}

/// Tells the session what the system knows of the route.
fn learn_route(pump: &mut Pump, socket: &UdpSocket, whole: &Whole) {
    if let Some(mtu) = Whole::route_mtu(socket) {
        tracing::trace!(mtu, "MTU of the route");
        pump.session.handle_route_mtu(mtu, whole.sees_fragments());
    }
}

/// A refusal is no datagram: it is an error that waits at the socket, and has to be taken from the reactor by hand.
fn take_refusal(pump: &mut Pump, socket: &UdpSocket, whole: &Whole) {
    let _ = socket.try_io(Interest::ERROR, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    match socket.take_error() {
        Ok(Some(error)) if is_too_long(&error) => learn_route(pump, socket, whole),
        Ok(Some(error)) => pump.refused(clock(), error),
        Ok(None) | Err(_) => {}
    }
}

fn take_in(pump: &mut Pump, peer: SocketAddr, datagram: &[u8], fragment: Option<u32>) {
    let now = clock();
    if fragment.is_some() || datagram.len() > ONE_FRAME_BYTES {
        count(pump, now);
    }
    pump.session.handle_fragments(fragment);
    match pump.receive(now, peer, datagram, true) {
        Ok(Rest::Data { transfer, offset, length, data_at }) => {
            let data = datagram.get(data_at..data_at + length as usize).unwrap_or_default();
            pump.store(now, transfer, offset, data);
            pump.session.handle_payload_done(now);
        }
        Ok(Rest::NeedMore | Rest::Skip) => {}
        Err(error) => tracing::debug!(%error, "dropped a datagram that is no reply"),
    }
}

/// Puts the next message together; false when there is none.
fn next_datagram(pump: &mut Pump, outgoing: &mut Outgoing) -> bool {
    let now = clock();
    while let Some(Transmit { transfer, head, payload, dont_fragment }) = pump.session.poll_transmit(now) {
        outgoing.dont_fragment = dont_fragment;
        let bytes = &mut outgoing.bytes;
        bytes.clear();
        bytes.extend_from_slice(head);
        let (Some(transfer), Some(payload)) = (transfer, payload) else { return true };
        let length = payload.length as usize;
        if pump.load(now, transfer, payload.offset, length, bytes) {
            bytes.resize(bytes.len() + padding(length), 0);
            return true;
        }
        bytes.clear();
    }
    false
}
