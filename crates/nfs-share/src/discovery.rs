//! Shares that are found without their address: announced and looked for by multicast DNS (RFC 6762, RFC 6763).
//!
//! An announcement is a convenience. Anybody on the network can read it, and can make one that says the same: what is found is a place to
//! ask, and the session says whose it is. It has no secret, no name of a file or folder, and nobody's name but the one that the sharer gives
//! to the share.

mod announcement;
mod interfaces;
mod notice;
mod search;

use std::{io, time::Duration};

use mdns_sd::{IfKind, IfPredicate, ServiceDaemon};
use thiserror::Error;

pub use announcement::Announcement;
pub use interfaces::Interfaces;
pub use notice::{KeyPrefix, Notice};
pub use search::{Discovery, Found, NotFound};

/// The service, as RFC 6763 §7 names it.
const SERVICE: &str = "_nfsw._udp.local.";

/// How often it is looked for changed addresses, in seconds: the least that the crate takes.
const LOOK_SECONDS: u32 = 1;

/// How long the responder's thread may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The name of the thread that takes what strangers send, as the crate gives it. If it panics, shares are neither announced nor found any more,
/// and nothing else is concerned: whoever ends a process at a panic may leave this one out.
pub const DISCOVERY_THREAD: &str = "mDNS_daemon";

/// Why shares cannot be announced or looked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The system does not tell its network interfaces.
    #[error("the network interfaces cannot be listed")]
    Interfaces(#[source] io::Error),
    /// An interface that was named does not exist; these do.
    #[error("there is no network interface {name} (there are: {})", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// An interface that was named has no multicast.
    #[error("{0} is a point-to-point link, which has no multicast")]
    PointToPoint(String),
    /// No interface is up that has multicast and people nearby.
    #[error("no network interface here has multicast and people nearby")]
    NoInterface,
    /// The system, or the network, lets no multicast DNS through.
    #[error("multicast DNS cannot be used: {0}")]
    Refused(String),
}

/// An error of the crate, whose type is not part of the interface.
fn refused(error: mdns_sd::Error) -> DiscoveryError {
    DiscoveryError::Refused(error.to_string())
}

/// A thread that speaks multicast DNS. It ends by itself once this is dropped, and nobody waits for it.
struct Responder(ServiceDaemon);

impl Responder {
    /// Starts it on these interfaces, and only where this machine has an address that `takes` accepts.
    fn start(
        interfaces: &Interfaces,
        takes: impl Fn(std::net::IpAddr) -> bool + Send + Sync + 'static,
    ) -> Result<Self, DiscoveryError> {
        let responder = Self(ServiceDaemon::new().map_err(refused)?);
        responder.0.set_ip_check_interval(LOOK_SECONDS).map_err(refused)?;
        let interfaces = interfaces.clone();
        let is_wanted = IfPredicate::new(move |it| takes(it.ip()) && interfaces.takes(&it.name));
        // What is said last counts.
        responder.0.disable_interface(IfKind::All).map_err(refused)?;
        responder.0.enable_interface(IfKind::Predicate(is_wanted)).map_err(refused)?;
        Ok(responder)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.shutdown();
    }
}
