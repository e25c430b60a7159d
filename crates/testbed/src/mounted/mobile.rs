//! A mobile with a mount and its server, as the two nodes of a simulation.

use nfs_proto::config::{BlockSize, RetryPolicy, Window};
use nfs_wire::portmap::Protocol;

use super::*;
use crate::{Plan, Room, client::session, server::ServerHost};

/// Either end of the link.
#[derive(Debug)]
pub(super) enum Machine<U> {
    User(Box<U>),
    Server(Box<ServerHost>),
}

impl<U: User> Node for Machine<U> {
    fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: Bytes) {
        match self {
            Self::User(user) => {
                if user.front_mut().handle_input(now, to, payload) {
                    user.pump(now);
                }
            }
            Self::Server(server) => server.handle_input(now, from, to, payload),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::User(user) => {
                user.front_mut().handle_timeout(now);
                user.pump(now);
            }
            Self::Server(server) => server.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        match self {
            Self::User(user) => user.front_mut().poll_transmit(now),
            Self::Server(server) => server.poll_transmit(now),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::User(user) => user.next_due(),
            Self::Server(server) => server.poll_timeout(),
        }
    }
}

/// What `nfsw mount` does in a room.
pub(super) fn plan(room: Room) -> Plan {
    let mut plan = Plan::new(room);
    (plan.policy, plan.window, plan.block) = (RetryPolicy::Adaptive, Window::Auto, BlockSize::default());
    plan
}

/// The first mobile's cache, with a connection of its own.
pub(super) fn front(
    plan: &Plan,
    protocol: Protocol,
    seed: u64,
    cache: Cache<MemoryStore>,
    epoch: Instant,
) -> Front {
    let session = session(plan, protocol, seed, 0, epoch).expect("a session");
    let place = Endpoint::mobile(0, 700);
    let path = match protocol {
        Protocol::Udp => Path::datagrams(session, place),
        Protocol::Tcp => Path::stream(session, place, epoch),
    };
    Front::new(path, Host::new(plan.operation, plan.room.client, 0, seed, epoch), cache)
}
