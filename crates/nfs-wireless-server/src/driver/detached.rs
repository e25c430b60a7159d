//! The service without sockets: somebody else carries its messages.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use nfs_wire::portmap::Protocol;
use tokio::{runtime::Handle, sync::Notify, task::JoinHandle};

use super::{Shared, State, clock, time_of_day};
use crate::service::{Peer, Service, Transmit};

/// A server that has no sockets: messages are [handed](Self::handle) to it as datagrams, and its [replies](Self::reply) are taken from
/// it. They travel on other sockets, encrypted, or over an emulated link under a paused clock.
///
/// Dropping it stops the server.
#[derive(Debug)]
pub struct Detached {
    shared: Arc<Shared>,
    resting: Option<JoinHandle<()>>,
}

impl Detached {
    /// Starts it on the caller's runtime, as [`Server::bind`](super::Server::bind) does.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(mut service: Service) -> Self {
        if service.backend().may_block() {
            service.defer_calls();
        }
        service.set_wall_clock(clock(), time_of_day());
        let rest = service.rest();
        let shared = Shared {
            runtime: Handle::current(),
            elsewhere: None,
            state: Mutex::new(State::new(service)),
            bell: Notify::new(),
        };
        Self { shared: Arc::new(shared), resting: rest.map(|it| tokio::spawn(super::rest(it))) }
    }

    /// Takes a message that came from an address. What is no call is dropped without a word.
    pub fn handle(&self, address: SocketAddr, message: &[u8]) {
        let _ = self.shared.call(Peer { address, protocol: Protocol::Udp }, message);
    }

    /// Waits for the next reply. May be cancelled, and called again.
    pub async fn reply(&self) -> Transmit {
        loop {
            let due = self.shared.tick();
            if let Some(transmit) = self.shared.lock().datagrams.pop() {
                return transmit;
            }
            let alarm = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = alarm => {}
                () = self.shared.bell.notified() => {}
            }
        }
    }

    /// Gives access to the service.
    pub fn with_service<T>(&self, access: impl FnOnce(&mut Service) -> T) -> T {
        self.shared.with_service(access)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(resting) = &self.resting {
            resting.abort();
        }
    }
}
