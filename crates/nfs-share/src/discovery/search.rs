//! Shares around here, as they announce themselves.

use std::{collections::BTreeMap, fmt, net::SocketAddr, net::SocketAddrV6, time::Duration};

use mdns_sd::{Receiver, ResolvedService, ScopedIp, ServiceEvent};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::{DiscoveryError, Interfaces, KeyPrefix, Notice, Responder, SERVICE, refused};

/// Shares that are remembered, at most: anybody can announce as many as they like.
const MAX_FOUND: usize = 256;

/// Addresses of one share, at most.
const MAX_ADDRESSES: usize = 8;

/// How long a further share may come after the first that is looked for: Wi-Fi holds multicast back for sleeping stations, up to three beacons of
/// 100 ms, and a busy machine adds to it. Who asks the wrong one of two has guessed.
const FURTHER: Duration = Duration::from_millis(600);

/// A search for shares, for as long as this lives.
///
/// ```no_run
/// # async fn list() -> Result<(), nfs_share::DiscoveryError> {
/// use std::time::Duration;
///
/// use nfs_share::{Discovery, Interfaces};
///
/// for share in Discovery::start(&Interfaces::Nearby)?.all(Duration::from_secs(2)).await {
///     // What a stranger says may hold control characters.
///     println!("{:?} at {:?}", share.notice.name, share.addresses);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Discovery {
    /// Ends when this is dropped.
    _responder: Responder,
    events: Receiver<ServiceEvent>,
    interfaces: Vec<String>,
    /// By the names of their instances.
    found: BTreeMap<String, Found>,
}

impl fmt::Debug for Discovery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Discovery").field("found", &self.found).finish_non_exhaustive()
    }
}

/// A share that was announced: what a stranger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is said of it.
    pub notice: Notice,
    /// Where it is said to be; IPv4 first.
    pub addresses: Vec<SocketAddr>,
}

/// Why the share with a code is not found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotFound {
    /// Nobody announces such a code; these announce others.
    #[error("no share around here announces this code")]
    Nobody(Vec<Found>),
    /// Each of these may be meant, and a code is shown to one: who is asked in vain has guessed, and so has who is meant.
    #[error("several shares around here announce this code")]
    Several(Vec<Found>),
}

impl Discovery {
    /// Begins to look for shares.
    ///
    /// # Errors
    /// There is no interface to look on; the system grants no thread or socket.
    pub fn start(interfaces: &Interfaces) -> Result<Self, DiscoveryError> {
        let names = interfaces.names()?;
        if names.is_empty() {
            return Err(DiscoveryError::NoInterface);
        }
        let responder = Responder::start(interfaces, |_| true)?;
        let events = responder.0.browse(SERVICE).map_err(refused)?;
        Ok(Self { _responder: responder, events, interfaces: names, found: BTreeMap::new() })
    }

    /// Returns the names of the interfaces on which it looks.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// Returns what was found so far.
    pub fn found(&self) -> impl Iterator<Item = &Found> {
        self.found.values()
    }

    /// Waits until [`found`](Self::found) is another one; false, if that can never be again.
    pub async fn changed(&mut self) -> bool {
        while let Ok(event) = self.events.recv_async().await {
            match event {
                ServiceEvent::ServiceResolved(service) => {
                    let Some(found) = read(&service) else { continue };
                    let is_full =
                        self.found.len() >= MAX_FOUND && !self.found.contains_key(&service.fullname);
                    if is_full || self.found.get(&service.fullname) == Some(&found) {
                        continue;
                    }
                    self.found.insert(service.fullname.clone(), found);
                    return true;
                }
                ServiceEvent::ServiceRemoved(_, name) if self.found.remove(&name).is_some() => return true,
                _ => {}
            }
        }
        false
    }

    /// Returns all that is found within a time, and is not withdrawn in it.
    pub async fn all(mut self, time: Duration) -> Vec<Found> {
        let end = Instant::now() + time;
        while timeout_at(end, self.changed()).await == Ok(true) {}
        self.found.into_values().collect()
    }

    /// Looks for the share that has a code with this number, for so long. If there is one, it is waited a moment for another one.
    ///
    /// # Errors
    /// There is none, or several are.
    pub async fn with_code(mut self, number: u16, time: Duration) -> Result<Found, NotFound> {
        let mut meant = self.with(|notice| notice.codes.contains(&number), time).await;
        match meant.len() {
            0 => Err(NotFound::Nobody(self.found.into_values().collect())),
            1 => Ok(meant.remove(0)),
            _ => Err(NotFound::Several(meant)),
        }
    }

    /// Returns where shares are whose keys begin so: an address of each, then a second one, and so on. Each may be asked: only the one that is meant
    /// can prove it.
    pub async fn with_key(mut self, key: KeyPrefix, time: Duration) -> Vec<SocketAddr> {
        let meant = self.with(|notice| notice.key == key, time).await;
        let turns =
            (0..MAX_ADDRESSES).flat_map(|turn| meant.iter().filter_map(move |it| it.addresses.get(turn)));
        turns.copied().collect()
    }

    async fn with(&mut self, is_meant: impl Fn(&Notice) -> bool, time: Duration) -> Vec<Found> {
        let mut end = Instant::now() + time;
        loop {
            let meant: Vec<Found> = self.found().filter(|it| is_meant(&it.notice)).cloned().collect();
            if !meant.is_empty() {
                end = end.min(Instant::now() + FURTHER);
            }
            if timeout_at(end, self.changed()).await != Ok(true) {
                return meant;
            }
        }
    }
}

/// Reads what was announced; `None`, if it is no share.
fn read(service: &ResolvedService) -> Option<Found> {
    let notice = Notice::read(|key| service.get_property_val_str(key))?;
    let mut addresses: Vec<SocketAddr> =
        service.addresses.iter().filter_map(|ip| address(ip, service.port)).collect();
    addresses.sort();
    addresses.truncate(MAX_ADDRESSES);
    (!addresses.is_empty() && service.port != 0).then_some(Found { notice, addresses })
}

/// Returns an address that may be asked: anybody can announce any.
fn address(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    let address = match ip {
        ScopedIp::V6(v6) if v6.addr().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.addr(), port, 0, v6.scope_id().index).into()
        }
        ip => SocketAddr::new(ip.to_ip_addr(), port),
    };
    let is_one_machine = match address {
        SocketAddr::V4(v4) => !v4.ip().is_broadcast(),
        SocketAddr::V6(_) => true,
    };
    let ip = address.ip();
    (is_one_machine && !ip.is_unspecified() && !ip.is_multicast()).then_some(address)
}
