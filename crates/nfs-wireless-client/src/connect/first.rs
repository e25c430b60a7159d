//! The first connection where the transport is open: carries out what [`FirstTransport`] decides.

use std::{future::pending, net::SocketAddr, time::Instant};

use nfs_proto::endpoint::{FirstTransport, ServerPlace, TransportTuning};
use nfs_wire::portmap::Protocol;
use tokio::time::sleep_until;

use super::{Attempt, Finder, Reached, is_here};
use crate::{driver::clock, endpoint::Path, error::Error};

impl Finder<'_> {
    /// Asks the NFS service over both transports; UDP is taken when it answers, unless the server is near.
    pub(super) async fn nfs_over_either(&self, address: SocketAddr) -> Result<Reached, Error> {
        let attempt =
            |protocol| -> Option<Attempt<'_, Path>> { Some(Box::pin(self.nfs_over(address, protocol))) };
        let place = if is_here(address) { ServerPlace::Here } else { ServerPlace::Elsewhere };
        let mut first = FirstTransport::new(clock(), place, TransportTuning::DEFAULT);
        let (mut udp, mut tcp, mut again) = (attempt(Protocol::Udp), attempt(Protocol::Tcp), None);
        let mut is_asked_again = false;
        let (mut over_udp, mut over_tcp, mut refusal) = (None, None, None);
        loop {
            if let Some((protocol, reason)) = first.poll(clock()) {
                let (chosen, other) = match protocol {
                    Protocol::Udp => (over_udp, over_tcp),
                    Protocol::Tcp => (over_tcp, over_udp),
                };
                let path = chosen.expect("a transport is chosen that has answered");
                return Ok(Reached { path, other, reason });
            }
            if first.asks_udp_again() && !is_asked_again {
                (again, is_asked_again) = (attempt(Protocol::Udp), true);
            }
            let (protocol, result) = tokio::select! {
                biased;
                result = ended(&mut udp) => (Protocol::Udp, result),
                result = ended(&mut again) => (Protocol::Udp, result),
                result = ended(&mut tcp) => (Protocol::Tcp, result),
                () = until(first.poll_timeout()) => continue,
            };
            if let Ok(path) = &result
                && let Some(rate) = self.fast_rate(path.address())
            {
                first.handle_fast(rate);
            }
            match (protocol, result) {
                (Protocol::Udp, Ok(path)) => {
                    first.handle_answer(clock(), protocol, path.round_trip);
                    (over_udp, udp, again) = (Some(path), None, None);
                }
                (Protocol::Tcp, Ok(path)) => {
                    first.handle_answer(clock(), protocol, path.round_trip);
                    over_tcp = Some(path);
                }
                (Protocol::Udp, Err(_)) if udp.is_some() || again.is_some() => {}
                // Of two refusals that of TCP says more.
                (Protocol::Udp, Err(_)) => first.handle_refused(protocol),
                (Protocol::Tcp, Err(error)) => {
                    first.handle_refused(protocol);
                    refusal = Some(error);
                }
            }
            if udp.is_none()
                && again.is_none()
                && tcp.is_none()
                && over_udp.is_none()
                && over_tcp.is_none()
                && let Some(error) = refusal.take()
            {
                return Err(error);
            }
        }
    }

    /// Returns the rate of UDP at which an earlier client has moved to TCP on the path to this address, and stayed there.
    fn fast_rate(&self, address: SocketAddr) -> Option<f64> {
        self.config.path_cache.as_ref()?.ask(address)?.fast
    }
}

/// Waits for the end of an attempt, if there is one, and forgets it.
async fn ended(attempt: &mut Option<Attempt<'_, Path>>) -> Result<Path, Error> {
    let Some(under_way) = attempt else { return pending().await };
    let result = under_way.await;
    *attempt = None;
    result
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}
