//! A share that tells those around it where it is.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use mdns_sd::{DaemonEvent, IfKind, Receiver, ServiceInfo};
use tokio::time::{sleep, timeout};

use super::{DiscoveryError, Interfaces, Notice, PATIENCE, Responder, SERVICE, refused};

/// How long the first announcement may take.
const FIRST: Duration = Duration::from_millis(500);

/// When the end of an announcement was said twice: a fade takes 100 ms. The crate repeats it after 120 ms.
const SAID_TWICE: Duration = Duration::from_millis(150);

/// An announcement of a share, for as long as this lives: also when addresses change. Dropping it withdraws it without waiting for that.
pub struct Announcement {
    responder: Responder,
    events: Receiver<DaemonEvent>,
    interfaces: Interfaces,
    notice: Notice,
    listen: SocketAddr,
}

impl fmt::Debug for Announcement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Announcement").field("notice", &self.notice).finish_non_exhaustive()
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
        let responder = Responder::start(interfaces, move |address| is_behind(listen, address))?;
        let events = responder.0.monitor().map_err(refused)?;
        let announcement = Self { responder, events, interfaces: interfaces.clone(), notice, listen };
        announcement.register()?;
        Ok(announcement)
    }

    /// Waits until it was sent for the first time.
    ///
    /// # Errors
    /// Nobody has heard it: there is no network, or it lets no multicast through.
    pub async fn is_sent(&self) -> Result<(), DiscoveryError> {
        let listen = self.listen;
        if self.interfaces.usable(|address| is_behind(listen, address))?.is_empty() {
            return Err(DiscoveryError::NoInterface);
        }
        let sent = async {
            loop {
                match self.events.recv_async().await {
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
        if self.notice.codes != codes {
            self.notice.codes = codes;
            // Without it, those who look for a new code find the share by its address alone.
            let _ = self.register();
        }
    }

    /// Withdraws it, so that nobody finds the share any more.
    pub async fn end(self) {
        let name = format!("{}.{SERVICE}", self.notice.label());
        if let Ok(withdrawn) = self.responder.0.unregister(&name)
            && timeout(PATIENCE, withdrawn.recv_async()).await.is_ok()
        {
            sleep(SAID_TWICE).await;
        }
        if let Ok(ended) = self.responder.0.shutdown() {
            let _ = timeout(PATIENCE, ended.recv_async()).await;
        }
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
