//! A share that tells those around it where it is.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use mdns_sd::{DaemonEvent, IfKind, Receiver, ServiceInfo};
use tokio::time::{sleep, timeout};

use super::{DiscoveryError, Interfaces, Notice, PATIENCE, Responder, SERVICE, refused};

/// How long the first announcement may take.
const FIRST: Duration = Duration::from_millis(500);

/// When the end of an announcement was said twice: a fade takes 100 ms. The crate repeats it after 120 ms.
const SAID_TWICE: Duration = Duration::from_millis(150);

/// Records of strangers that the crate keeps, at most, of up to 9,000 bytes each: whoever sends any has them kept for as long as they like. A large
/// network has a thousand.
const MOST_RECORDS: i64 = 3000;

/// Timers that it keeps, at most: two for each record that is received, also where that is kept already, until the time that the record names.
const MOST_TIMERS: i64 = 100_000;

/// How often they are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// An announcement of a share, for as long as this lives: also when addresses change. Dropping it withdraws it without waiting for that.
pub struct Announcement(Arc<Mutex<Announcer>>);

/// What announces a share.
struct Announcer {
    responder: Responder,
    events: Receiver<DaemonEvent>,
    interfaces: Interfaces,
    notice: Notice,
    listen: SocketAddr,
    /// It is withdrawn, or about to be.
    is_over: bool,
}

impl fmt::Debug for Announcement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Announcement").field("notice", &lock(&self.0).notice).finish_non_exhaustive()
    }
}

impl Announcement {
    /// Begins to announce a share that listens there. Where there is no network yet, it is announced once there is one.
    ///
    /// # Errors
    /// An interface that is named does not exist or has no multicast; the system grants no thread or socket.
    pub fn start(
        notice: Notice,
        listen: SocketAddr,
        interfaces: &Interfaces,
    ) -> Result<Self, DiscoveryError> {
        interfaces.names()?;
        let announcer = Arc::new(Mutex::new(Announcer::start(notice, listen, interfaces.clone())?));
        let watched = Arc::downgrade(&announcer);
        thread::Builder::new()
            .name("mDNS_count".to_owned())
            .spawn(move || watch(&watched))
            .map_err(|error| DiscoveryError::Refused(error.to_string()))?;
        Ok(Self(announcer))
    }

    /// Waits until it was sent for the first time.
    ///
    /// # Errors
    /// Nobody has heard it: there is no network, or it lets no multicast through.
    pub async fn is_sent(&self) -> Result<(), DiscoveryError> {
        let (listen, interfaces, events) = {
            let announcer = lock(&self.0);
            (announcer.listen, announcer.interfaces.clone(), announcer.events.clone())
        };
        if interfaces.usable(|address| is_behind(listen, address))?.is_empty() {
            return Err(DiscoveryError::NoInterface);
        }
        let sent = async {
            loop {
                match events.recv_async().await {
                    Ok(DaemonEvent::Announce(..)) => return Ok(()),
                    Ok(DaemonEvent::Error(error)) => return Err(refused(error)),
                    Ok(_) => {}
                    Err(_) => return Err(refused(mdns_sd::Error::DaemonShutdown)),
                }
            }
        };
        let nothing = || Err(DiscoveryError::Refused("nothing could be sent from UDP port 5353".to_owned()));
        timeout(FIRST, sent).await.unwrap_or_else(|_| nothing())
    }

    /// Announces other codes from now on.
    pub fn set_codes(&mut self, codes: Vec<u16>) {
        let mut announcer = lock(&self.0);
        if announcer.notice.codes != codes {
            announcer.notice.codes = codes;
            // Without it, those who look for a new code find the share by its address alone.
            let _ = announcer.register();
        }
    }

    /// Withdraws it, so that nobody finds the share any more.
    pub async fn end(self) {
        let (daemon, name) = {
            let mut announcer = lock(&self.0);
            announcer.is_over = true;
            (announcer.responder.0.clone(), format!("{}.{SERVICE}", announcer.notice.label()))
        };
        if let Ok(withdrawn) = daemon.unregister(&name)
            && timeout(PATIENCE, withdrawn.recv_async()).await.is_ok()
        {
            sleep(SAID_TWICE).await;
        }
        if let Ok(ended) = daemon.shutdown() {
            let _ = timeout(PATIENCE, ended.recv_async()).await;
        }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        lock(&self.0).is_over = true;
    }
}

impl Announcer {
    fn start(notice: Notice, listen: SocketAddr, interfaces: Interfaces) -> Result<Self, DiscoveryError> {
        let responder = Responder::start(&interfaces, move |address| is_behind(listen, address))?;
        let events = responder.0.monitor().map_err(refused)?;
        let announcer = Self { responder, events, interfaces, notice, listen, is_over: false };
        announcer.register()?;
        Ok(announcer)
    }

    fn register(&self) -> Result<(), DiscoveryError> {
        let Self { notice, listen, .. } = self;
        let (label, host) = (notice.label(), notice.host());
        let strings = notice.strings();
        let service = ServiceInfo::new(SERVICE, &label, &host, "", listen.port(), &strings[..]);
        let mut service = service.map_err(refused)?.enable_addr_auto();
        if listen.is_ipv4() {
            // A share on IPv4 has no address on IPv6.
            service.set_interfaces(vec![IfKind::IPv4]);
        }
        // Both names have digits of the key: nobody else has them, and those who pretend to would win a dispute as well.
        service.set_requires_probe(false);
        self.responder.0.register(service).map_err(refused)
    }

    /// Forgets what strangers have sent: only the end of the crate's thread does that.
    fn begin_again(&mut self) {
        if self.is_over {
            return;
        }
        if let Ok(ended) = self.responder.0.shutdown() {
            // Its withdrawal is sent before the new announcement.
            let _ = ended.recv_timeout(PATIENCE);
        }
        // It is tried again after the next count.
        if let Ok(again) = Self::start(self.notice.clone(), self.listen, self.interfaces.clone()) {
            *self = again;
        }
    }
}

/// Begins again where strangers have had too much kept, or have ended the crate's thread, for as long as there is an announcement.
#[expect(clippy::disallowed_methods, reason = "it has a thread of its own, as the crate that it watches has")]
fn watch(announcer: &Weak<Mutex<Announcer>>) {
    loop {
        thread::sleep(COUNT_EVERY);
        let Some(announcer) = announcer.upgrade() else { return };
        let daemon = lock(&announcer).responder.0.clone();
        let has_too_much = match daemon.get_metrics() {
            Ok(metrics) => metrics.recv_timeout(PATIENCE).is_ok_and(|metrics| is_too_much(&metrics)),
            Err(error) => matches!(error, mdns_sd::Error::DaemonShutdown),
        };
        if has_too_much {
            lock(&announcer).begin_again();
        }
    }
}

/// Whether more is kept than should be.
fn is_too_much(metrics: &mdns_sd::Metrics) -> bool {
    let records: i64 =
        metrics.iter().filter(|(name, _)| name.starts_with("cached-")).map(|(_, count)| count).sum();
    records > MOST_RECORDS || metrics.get("timer").is_some_and(|&count| count > MOST_TIMERS)
}

fn lock(announcer: &Mutex<Announcer>) -> MutexGuard<'_, Announcer> {
    announcer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether who listens at one address is reached at another.
fn is_behind(listen: SocketAddr, address: IpAddr) -> bool {
    let is_of_family = listen.is_ipv6() || address.is_ipv4();
    if listen.ip().is_unspecified() { is_of_family } else { listen.ip() == address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_announced_where_it_listens() {
        for (listen, address, is_there) in [
            ("0.0.0.0:7049", "192.168.1.5", true),
            ("0.0.0.0:7049", "fe80::1", false),
            ("[::]:7049", "192.168.1.5", true),
            ("[::]:7049", "fe80::1", true),
            ("192.168.1.5:7049", "192.168.1.5", true),
            ("192.168.1.5:7049", "10.0.0.5", false),
            ("127.0.0.1:7049", "192.168.1.5", false),
        ] {
            assert_eq!(
                is_behind(listen.parse().unwrap(), address.parse().unwrap()),
                is_there,
                "{listen} {address}"
            );
        }
    }
}
