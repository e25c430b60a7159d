//! The link under whole network stacks: IP packets between pairs of TUN devices, TCP, ICMP and all (Linux only).
//!
//! A mobile is a pair of devices. What its own network stack routes into one of them crosses the link and comes out of the
//! other, on the side of the hosts, and the other way round. The devices are made by the caller, in whatever network
//! namespaces they belong; all that is asked of a descriptor is that each read and write is one IP packet, as on a TUN device
//! with `IFF_NO_PI` or on a socket pair of datagrams or sequenced packets.
//!
//! Packets cross as they are, real fragments included ([`Cell::handle_packet`]). Multicast does not cross: a link with two
//! ends has no neighbours to discover, and what network stacks say about themselves would be the first packet of the
//! channel's time.
//!
//! ```no_run
//! use std::os::fd::OwnedFd;
//!
//! use linkemu::{Preset, tunnel::{Tunnel, TunnelError}};
//!
//! # async fn example(mobile: OwnedFd, host: OwnedFd) -> Result<(), TunnelError> {
//! let mut tunnel = Tunnel::new(Preset::named("satellite-600")?.config(), 1)?;
//! tunnel.attach(mobile, host)?;
//! tunnel.run().await;
//! # Ok(())
//! # }
//! ```

use std::{fmt, io, os::fd::OwnedFd, sync::Arc, time::Instant};

use bytes::Bytes;
use rustix::io::{Errno, ioctl_fionbio};
use tokio::{io::unix::AsyncFd, sync::mpsc, task::JoinHandle};

use crate::{
    Cell, ConfigError, Delivery, Endpoint, Lateness, LinkConfig, Observer, Snapshot, Station,
    realtime::{self, BATCH, Batch, Ends, Remote, Running, clock},
};

/// A link between pairs of TUN devices.
pub struct Tunnel {
    link: Running<Devices>,
}

/// Talks to a running tunnel.
#[derive(Clone, Debug)]
pub struct TunnelHandle {
    remote: Remote<Devices>,
}

/// What a tunnel has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelStats {
    /// The link.
    pub link: Snapshot,
    /// Mobiles that are attached.
    pub mobiles: usize,
    /// Packets that a device did not take: they crossed the link and were lost behind it.
    pub unsent: u64,
    /// How much later than computed packets left.
    pub lateness: Lateness,
    /// Why observers have stopped, for those that have: a full disk, say. The link goes on.
    pub problems: Vec<String>,
}

/// Why a tunnel cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// The link cannot be, or has no room for another mobile.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A descriptor cannot be waited for.
    #[error("cannot wait for packets on this descriptor")]
    Device(#[source] io::Error),
    /// The system has no timer to offer.
    #[error("cannot create a timer")]
    Timer(#[source] io::Error),
    /// The tunnel has ended.
    #[error("the tunnel has ended")]
    Ended,
}

/// A device, read by a task and written to by the tunnel.
type Device = Arc<AsyncFd<OwnedFd>>;

/// The devices of a mobile.
#[derive(Debug)]
struct Pair {
    mobile: Device,
    host: Device,
    readers: [JoinHandle<()>; 2],
}

/// The devices of a tunnel.
#[derive(Debug)]
struct Devices {
    /// By the number of the mobile; those that have left are empty.
    pairs: Vec<Option<Pair>>,
    input: mpsc::Sender<Batch<Self>>,
}

impl Tunnel {
    /// A link without mobiles.
    ///
    /// # Errors
    /// [`TunnelError`] naming the field of the link that is wrong.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver enabled.
    pub fn new(link: LinkConfig, seed: u64) -> Result<Self, TunnelError> {
        let cell = Cell::new(link, seed, clock())?;
        let ends = |input| Ok(Devices { pairs: Vec::new(), input });
        Ok(Self { link: Running::new(cell, TunnelError::Timer, ends)? })
    }

    /// Adds a mobile and returns its number: `mobile` is the device in its own network stack, `host` the one among the hosts.
    ///
    /// # Errors
    /// [`TunnelError::Device`] if a descriptor cannot be waited for, [`TunnelError::Config`] beyond 65,535 mobiles.
    pub fn attach(&mut self, mobile: OwnedFd, host: OwnedFd) -> Result<u16, TunnelError> {
        attach(&mut self.link, mobile, host)
    }

    /// Tells `observer`, too, of every packet and frame.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.link.cell.observe(observer);
    }

    /// A handle for another task.
    pub fn handle(&self) -> TunnelHandle {
        TunnelHandle { remote: self.link.remote() }
    }

    /// Carries packets until [`TunnelHandle::stop`], then closes the records. Dropping the future stops it at once.
    pub async fn run(mut self) -> TunnelStats {
        self.link.run().await;
        stats(&mut self.link)
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = &self.link.ends.pairs;
        f.debug_struct("Tunnel").field("cell", &self.link.cell).field("pairs", pairs).finish_non_exhaustive()
    }
}

impl TunnelHandle {
    /// As [`Tunnel::attach`], while the tunnel runs.
    ///
    /// # Errors
    /// Those of [`Tunnel::attach`], and [`TunnelError::Ended`].
    pub async fn attach(&self, mobile: OwnedFd, host: OwnedFd) -> Result<u16, TunnelError> {
        let attached = self.remote.ask(move |link| attach(link, mobile, host)).await;
        attached.ok_or(TunnelError::Ended)?
    }

    /// Closes the devices of a mobile. What is under way to and from it is lost.
    pub async fn detach(&self, number: u16) {
        // The devices of a tunnel that has ended are closed.
        let close = move |link: &mut Running<Devices>| {
            if let Some(pair) = link.ends.pairs.get_mut(usize::from(number)) {
                *pair = None;
            }
        };
        self.remote.tell(close).await;
    }

    /// What the tunnel has done so far; `None` if it has ended.
    pub async fn stats(&self) -> Option<TunnelStats> {
        self.remote.ask(stats).await
    }

    /// Ends [`Tunnel::run`]. A tunnel that has ended needs no stopping.
    pub async fn stop(&self) {
        self.remote.stop().await;
    }
}

impl TunnelStats {
    /// The counters as one JSON object.
    pub fn to_json(&self) -> String {
        let own = format!("\"mobiles\":{},\"unsent\":{}", self.mobiles, self.unsent);
        realtime::to_json(&self.link, &own, &self.lateness)
    }
}

impl Devices {
    fn pair(&self, number: u16) -> Option<&Pair> {
        self.pairs.get(usize::from(number))?.as_ref()
    }
}

impl Ends for Devices {
    /// The ends of the way.
    type Source = (Endpoint, Endpoint);
    type Datagram = Bytes;

    fn offer(&mut self, now: Instant, cell: &mut Cell, (from, to): Self::Source, packet: Bytes) {
        cell.handle_packet(now, from, to, packet);
    }

    fn deliver(&mut self, delivery: &Delivery) -> bool {
        let device = match (delivery.from.station, delivery.to.station) {
            (_, Station::Mobile(number)) => self.pair(number).map(|pair| &pair.mobile),
            (Station::Mobile(number), Station::Host(_)) => self.pair(number).map(|pair| &pair.host),
            (Station::Host(_), Station::Host(_)) => None,
        };
        let sent = device.map(|device| rustix::io::write(device.get_ref(), &delivery.payload));
        let is_sent = matches!(sent, Some(Ok(_)));
        if !is_sent {
            tracing::debug!(?sent, to = %delivery.to, "not sent");
        }
        is_sent
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

impl Drop for Pair {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.abort();
        }
    }
}

fn attach(link: &mut Running<Devices>, mobile: OwnedFd, host: OwnedFd) -> Result<u16, TunnelError> {
    let (mobile, host) = (device(mobile)?, device(host)?);
    let number = match link.ends.pairs.iter().position(Option::is_none) {
        Some(free) => free as u16,
        None => link.cell.add_mobile()?,
    };
    let (up, down) = (Endpoint::mobile(number, 0), Endpoint::host(0, 0));
    let readers = [
        tokio::spawn(read(mobile.clone(), up, down, link.ends.input.clone())),
        tokio::spawn(read(host.clone(), down, up, link.ends.input.clone())),
    ];
    let pair = Some(Pair { mobile, host, readers });
    match link.ends.pairs.get_mut(usize::from(number)) {
        Some(place) => *place = pair,
        None => link.ends.pairs.push(pair),
    }
    Ok(number)
}

fn stats(link: &mut Running<Devices>) -> TunnelStats {
    TunnelStats {
        link: link.cell.snapshot(),
        mobiles: link.ends.pairs.iter().flatten().count(),
        unsent: link.unsent,
        lateness: link.lateness.clone(),
        problems: link.cell.observer_problems(),
    }
}

fn device(descriptor: OwnedFd) -> Result<Device, TunnelError> {
    let nonblocking = ioctl_fionbio(&descriptor, true).map_err(io::Error::from);
    #[allow(deprecated, reason = "the safe constructor: an `OwnedFd` keeps its descriptor")]
    let device = nonblocking.and_then(|()| AsyncFd::new(descriptor));
    device.map(Arc::new).map_err(TunnelError::Device)
}

/// Reads a device until it or the tunnel is gone.
async fn read(device: Device, from: Endpoint, to: Endpoint, input: mpsc::Sender<Batch<Devices>>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let Ok(mut ready) = device.readable().await else {
            return;
        };
        let mut packets = Vec::new();
        while packets.len() < BATCH {
            match rustix::io::read(device.get_ref(), &mut buffer[..]) {
                Ok(0) => return,
                Ok(length) if is_unicast(&buffer[..length]) => {
                    packets.push(Bytes::copy_from_slice(&buffer[..length]));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, %from, "a device is gone");
                    return;
                }
            }
        }
        drop(ready);
        if !packets.is_empty() && input.send(((from, to), packets)).await.is_err() {
            return;
        }
    }
}

/// Whether an IP packet is for one receiver: by the first byte of its destination (RFC 1112 §4, RFC 4291 §2.7).
fn is_unicast(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(16).is_some_and(|&first| first < 224),
        Some(6) => packet.get(24).is_some_and(|&first| first != 0xff),
        _ => false,
    }
}
