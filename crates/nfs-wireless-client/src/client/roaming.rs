//! Where the server is, for as long as a client lives: names and ports may lead elsewhere after a while.
//!
//! When a link or an address changes ([`Client::link_event`](super::Client::link_event)), the driver probes at once, binds UDP to the new
//! local address with the same port, which the server's duplicate request cache knows, and replaces a TCP connection that has no replies.
//! Without such an event, a server that does not respond is looked up again by its name, asked for its ports and mounted again: if the
//! root handle is the same, the connection moves there with all its calls, otherwise the client ends.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use nfs_wire::{FileHandle, portmap::Protocol};
use tokio::{task::JoinSet, time::sleep};

use super::{Client, Inner, set_port};
use crate::{
    connect::{Finder, Lookups, all},
    driver::{Change, Snapshot, clock},
    endpoint::Endpoint,
    error::Error,
};

/// How often it is looked whether the server is silent.
const TICK: Duration = Duration::from_millis(250);

/// Silence after which the server is looked for where it was, and shortest time between two such looks. A look asks the port mapper and
/// MOUNT over both transports: on a slow link, where a page of a listing alone takes five seconds, it must not be in the way.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// The same once the link below has changed.
const FIRST_LOOK_AFTER_EVENT: Duration = Duration::from_secs(1);

/// Longest time between two looks; until then it is a quarter of the silence.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Looks at a time where the name leads elsewhere: one ends after 4 s, and what is asked for in it may be lost until the server is there.
const MOST_LOOKS: usize = 4;

/// Looks for the server again whenever it is silent, until the client is gone.
pub(super) async fn follow(client: Weak<Inner>) {
    let mut silence = Silence::default();
    let mut lookups: Option<Lookups> = None;
    // Where it was, and where its name leads now.
    let (mut again, mut elsewhere) = (JoinSet::new(), JoinSet::new());
    while let Some(bell) = client.upgrade().map(|inner| Arc::clone(&inner.bell)) {
        let resolved = async {
            match &mut lookups {
                Some(lookups) => lookups.next().await,
                None => pending().await,
            }
        };
        let (mut rang, mut addresses) = (false, Vec::new());
        tokio::select! {
            () = bell.notified() => rang = true,
            () = sleep(TICK) => {}
            found = resolved => addresses = found,
            Some(found) = again.join_next() => silence.looked_in_vain = !found.unwrap_or(false),
            Some(_) = elsewhere.join_next() => {}
        }
        let Some(inner) = client.upgrade() else { return };
        let (now, snapshot) = (clock(), inner.endpoint.snapshot());
        if silence.is_worth_a_look(now, rang, &snapshot) && again.is_empty() {
            let (inner, looked_in_vain) = (Arc::clone(&inner), silence.looked_in_vain);
            again.spawn(async move { inner.look(looked_in_vain).await });
        }
        lookups = match (silence.since, lookups.take()) {
            (Some(since), Some(lookups)) if lookups.since() == since => Some(lookups),
            (Some(since), _) => Some(Lookups::new(&inner.host, since)),
            (None, _) => None,
        };
        if rang && let Some(lookups) = &mut lookups {
            lookups.hurry(now);
        }
        if lookups.is_some() && elsewhere.len() < MOST_LOOKS && inner.is_elsewhere(&addresses) {
            let inner = Arc::clone(&inner);
            elsewhere.spawn(async move { inner.go_where_it_leads(&addresses, snapshot.last_heard).await });
        }
    }
}

/// A time without a reply, though one is waited for.
#[derive(Debug, Default)]
struct Silence {
    since: Option<Instant>,
    heard: Option<Instant>,
    next: Option<Instant>,
    /// Nobody was found in this silence.
    looked_in_vain: bool,
}

impl Silence {
    fn is_worth_a_look(&mut self, now: Instant, rang: bool, snapshot: &Snapshot) -> bool {
        if !snapshot.waiting {
            *self = Self::default();
            return false;
        }
        if self.since.is_none() || self.heard != snapshot.last_heard {
            *self = Self {
                since: Some(now),
                heard: snapshot.last_heard,
                next: Some(now + FIRST_LOOK),
                looked_in_vain: false,
            };
        }
        if rang {
            self.next = Some(now + FIRST_LOOK_AFTER_EVENT);
        }
        if self.next.is_some_and(|next| next > now) {
            return false;
        }
        let silence = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.next = Some(now + (silence / 4).clamp(FIRST_LOOK, MAX_PAUSE));
        true
    }
}

impl Client {
    /// Says that a link or an address of this machine has changed, or is about to: a hint from below, as Dube et al. 1997
    /// §6 ask for.
    ///
    /// The server is asked at once whether it answers, over connections made for it; nothing is lost when the hint was wrong. On
    /// Linux `RTNLGRP_LINK` and the groups of addresses and routes (rtnetlink(7)) tell when to call this.
    pub fn link_event(&self) {
        self.inner.endpoint.change(Change::Link);
        self.inner.bell.notify_one();
    }

    /// Whether two clients share one connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Inner {
    /// Looks where the server is now, and goes there; whether there is one.
    async fn look(&self, looked_in_vain: bool) -> bool {
        for (protocol, before) in self.endpoint.addresses() {
            match self.find_again(before, protocol).await {
                Ok((address, _)) if address == before => {
                    if looked_in_vain {
                        self.endpoint.change(Change::Link);
                    }
                }
                Ok((address, root)) if root == self.root => {
                    tracing::debug!(%before, %address, "the server has moved");
                    self.endpoint.move_to(protocol, address);
                }
                Ok((address, _)) => {
                    tracing::debug!(%before, %address, "another server");
                    let _ = self.elsewhere.set(address);
                    self.endpoint.change(Change::End);
                }
                Err(error) => {
                    tracing::debug!(%error, "looked for the server in vain");
                    return false;
                }
            }
        }
        true
    }

    /// Returns where the server is now, over a transport, and the handle of its root.
    async fn find_again(
        &self,
        before: SocketAddr,
        protocol: Protocol,
    ) -> Result<(SocketAddr, FileHandle), Error> {
        let Endpoint { reactor, config, .. } = &self.endpoint;
        let server = (&self.export[..], self.root);
        let Some(channel) = &config.channel else {
            let finder = Finder { reactor, config, host: &self.host };
            return finder.find_again(before, protocol, server).await;
        };
        let address = channel.find().await.map_err(|source| Error::Channel(Arc::new(source)))?;
        let mut config = config.clone();
        set_port(&mut config, address);
        Finder { reactor, config: &config, host: &self.host }.find_at(&[address], protocol, server).await
    }

    /// Whether the name leads to addresses of which none is in use.
    fn is_elsewhere(&self, addresses: &[SocketAddr]) -> bool {
        let used = self.endpoint.addresses();
        let is_used = |address: &SocketAddr| used.iter().any(|(_, used)| used.ip() == address.ip());
        !addresses.is_empty() && !addresses.iter().any(is_used)
    }

    /// Goes where the name leads now, if the same server is there, and nothing was heard meanwhile from where it was: that may only be slow.
    async fn go_where_it_leads(&self, addresses: &[SocketAddr], heard: Option<Instant>) {
        let Endpoint { reactor, config, .. } = &self.endpoint;
        let finder = Finder { reactor, config, host: &self.host };
        let protocols = self.endpoint.addresses().into_iter().map(|(protocol, _)| protocol);
        let found = all(protocols.map(async |protocol| {
            (protocol, finder.find_at(addresses, protocol, (&self.export, self.root)).await)
        }));
        let found = found.await;
        if self.endpoint.snapshot().last_heard != heard {
            return;
        }
        for (protocol, found) in found {
            match found {
                Ok((address, root)) if root == self.root => {
                    tracing::debug!(?protocol, %address, "the server has moved");
                    self.endpoint.move_to(protocol, address);
                }
                // Who else is there is a matter of looks that take more time.
                Ok((address, _)) => tracing::debug!(%address, "another server"),
                Err(error) => tracing::debug!(%error, "nobody is where the name leads"),
            }
        }
    }

    /// Says why a connection has ended.
    pub(super) fn explain(&self, error: Error) -> Error {
        let end = self.endpoint.config.channel.as_ref().and_then(|channel| channel.end());
        match (error, end, self.elsewhere.get()) {
            (Error::Closed, Some(end), _) => Error::Channel(end),
            (Error::Closed, None, Some(&address)) => {
                Error::AnotherServer { host: self.host.clone(), address }
            }
            (error, ..) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Calls are outstanding, and something was heard last at this time.
    fn waiting(heard: Option<Instant>) -> Snapshot {
        Snapshot { waiting: true, last_heard: heard, ..Snapshot::default() }
    }

    /// The seconds, of so many, in which the server is looked for; it is silent, and the link changes in second `rings`.
    fn looks(seconds: u32, rings: Option<u32>) -> Vec<u32> {
        let (start, mut silence) = (clock(), Silence::default());
        let looked = |&second: &u32| {
            silence.is_worth_a_look(start + second * SECOND, rings == Some(second), &waiting(None))
        };
        (0..seconds).filter(looked).collect()
    }

    #[test]
    fn a_silent_server_is_looked_for_after_ten_seconds_and_then_ever_more_rarely() {
        assert_eq!(looks(10, None), []);
        assert_eq!(looks(200, None), [10, 20, 30, 40, 50, 63, 79, 99, 124, 154, 184]);
    }

    #[test]
    fn a_change_of_the_link_is_a_reason_to_look_a_second_later() {
        assert_eq!(looks(20, Some(3)), [4, 14]);
    }

    #[test]
    fn a_server_that_answers_or_owes_nothing_is_not_looked_for() {
        let (start, mut silence) = (clock(), Silence::default());
        for second in 0..100 {
            let now = start + second * SECOND;
            let heard = start + second / 9 * 9 * SECOND;
            assert!(!silence.is_worth_a_look(now, false, &waiting(Some(heard))), "a reply every 9 s");
        }
        let idle = Snapshot { waiting: false, ..waiting(None) };
        assert!((100..200).all(|second| !silence.is_worth_a_look(start + second * SECOND, true, &idle)));
        assert!(!silence.is_worth_a_look(start + 209 * SECOND, false, &waiting(None)));
        assert!(silence.is_worth_a_look(start + 219 * SECOND, false, &waiting(None)));
    }
}
