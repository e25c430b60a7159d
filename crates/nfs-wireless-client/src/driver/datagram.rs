//! The UDP loop: receive, command or deadline, then drain.

use std::{io::ErrorKind, net::SocketAddr, time::Instant};

use nfs_proto::session::Transmit;
use nfs_wire::padding;
use tokio::{io::Interest, net::UdpSocket, sync::mpsc, time::sleep_until};

use super::{
    Change, Command, clock,
    fragments::Fragments,
    pump::{Pump, Rest},
    socket::renew_udp,
};

/// Largest UDP payload over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// Datagrams taken in before anything is sent.
const RECEIVE_BATCH: usize = 64;

/// Such batches before timers are looked at. What waits in the socket may be what a timer would take for lost: a disk, or another task, may
/// have kept us from it. But deadlines are kept, too, where there is always more.
const BATCHES_BEFORE_TIMERS: u32 = 16;

pub(super) async fn run(
    socket: UdpSocket,
    mut peer: SocketAddr,
    mut pump: Pump,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut received = vec![0; MAX_DATAGRAM + 1];
    let mut outgoing = Vec::with_capacity(2048);
    let mut batches = 0;
    // Identifications of IPv6 have 32 bits, and do not come round (RFC 8200 §4.5).
    pump.fragments = peer.is_ipv4().then(|| Fragments::new(clock()));
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
            }
            Some(Change::Server(moved)) => {
                peer = moved;
                let _ = renew_udp(&socket, peer);
                pump.session.handle_move(now, peer);
            }
            Some(Change::End) => return,
        }
        batches += 1;
        for _ in 0..RECEIVE_BATCH {
            match socket.try_recv(&mut received) {
                Ok(length) => take_in(&mut pump, peer, &received[..length]),
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
        while !outgoing.is_empty() || next_datagram(&mut pump, &mut outgoing) {
            match socket.try_send(&outgoing) {
                Ok(length) => {
                    count(&mut pump, now, length);
                    outgoing.clear();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    // The datagram is lost like any other; its timer runs. Perhaps the address it was to leave from is gone.
                    outgoing.clear();
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
                Ok(ready) if ready.is_error() => take_refusal(&mut pump, &socket),
                Ok(_) => {}
                Err(_) => return,
            },
            result = socket.writable(), if !outgoing.is_empty() => if result.is_err() { return },
            () = sleep_until(deadline.unwrap_or(now).into()), if deadline.is_some() => {}
        }
    }
}

fn count(pump: &mut Pump, now: Instant, payload_bytes: usize) {
    if let Some(fragments) = &mut pump.fragments {
        fragments.count(now, payload_bytes);
    }
}

/// A refusal is no datagram: it is an error that waits at the socket, and has to be taken from the reactor by hand.
fn take_refusal(pump: &mut Pump, socket: &UdpSocket) {
    let _ = socket.try_io(Interest::ERROR, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    if let Ok(Some(error)) = socket.take_error() {
        pump.refused(clock(), error);
    }
}

fn take_in(pump: &mut Pump, peer: SocketAddr, datagram: &[u8]) {
    let now = clock();
    count(pump, now, datagram.len());
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
fn next_datagram(pump: &mut Pump, outgoing: &mut Vec<u8>) -> bool {
    let now = clock();
    while let Some(Transmit { transfer, head, payload }) = pump.session.poll_transmit(now) {
        outgoing.clear();
        outgoing.extend_from_slice(head);
        let (Some(transfer), Some(payload)) = (transfer, payload) else { return true };
        let length = payload.length as usize;
        if pump.load(now, transfer, payload.offset, length, outgoing) {
            outgoing.resize(outgoing.len() + padding(length), 0);
            return true;
        }
        outgoing.clear();
    }
    false
}
