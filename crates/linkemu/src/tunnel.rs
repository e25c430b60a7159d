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

use std::{fmt, io, os::fd::OwnedFd, sync::Arc};

use bytes::Bytes;
use rustix::io::{Errno, ioctl_fionbio};
use tokio::{
    io::unix::AsyncFd,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    Cell, ConfigError, Delivery, Endpoint, Lateness, LinkConfig, Observer, Snapshot, Station,
    realtime::{self, Alarm, BATCH, BATCHES, clock},
};

/// A link between pairs of TUN devices.
pub struct Tunnel {
    cell: Cell,
    /// By the number of the mobile; those that have left are empty.
    pairs: Vec<Option<Pair>>,
    inputs: mpsc::Receiver<Batch>,
    input: mpsc::Sender<Batch>,
    commands: mpsc::Receiver<Command>,
    command: mpsc::Sender<Command>,
    alarm: Alarm,
    unsent: u64,
    lateness: Lateness,
}

/// Talks to a running tunnel.
#[derive(Clone, Debug)]
pub struct TunnelHandle {
    commands: mpsc::Sender<Command>,
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

#[derive(Debug)]
enum Command {
    Attach(OwnedFd, OwnedFd, oneshot::Sender<Result<u16, TunnelError>>),
    Detach(u16),
    Stats(oneshot::Sender<TunnelStats>),
    Stop,
}

/// Packets read from one device at once.
#[derive(Debug)]
struct Batch {
    from: Endpoint,
    to: Endpoint,
    packets: Vec<Bytes>,
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
        let (input, inputs) = mpsc::channel(BATCHES);
        let (command, commands) = mpsc::channel(16);
        Ok(Self {
            cell: Cell::new(link, seed, clock())?,
            pairs: Vec::new(),
            inputs,
            input,
            commands,
            command,
            alarm: Alarm::new().map_err(TunnelError::Timer)?,
            unsent: 0,
            lateness: Lateness::default(),
        })
    }

    /// Adds a mobile and returns its number: `mobile` is the device in its own network stack, `host` the one among the hosts.
    ///
    /// # Errors
    /// [`TunnelError::Device`] if a descriptor cannot be waited for, [`TunnelError::Config`] beyond 65,535 mobiles.
    pub fn attach(&mut self, mobile: OwnedFd, host: OwnedFd) -> Result<u16, TunnelError> {
        let (mobile, host) = (device(mobile)?, device(host)?);
        let number = match self.pairs.iter().position(Option::is_none) {
            Some(free) => free as u16,
            None => self.cell.add_mobile()?,
        };
        let (up, down) = (Endpoint::mobile(number, 0), Endpoint::host(0, 0));
        let readers = [
            tokio::spawn(read(mobile.clone(), up, down, self.input.clone())),
            tokio::spawn(read(host.clone(), down, up, self.input.clone())),
        ];
        let pair = Some(Pair { mobile, host, readers });
        match self.pairs.get_mut(usize::from(number)) {
            Some(place) => *place = pair,
            None => self.pairs.push(pair),
        }
        Ok(number)
    }

    /// Tells `observer`, too, of every packet and frame.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.cell.observe(observer);
    }

    /// A handle for another task.
    pub fn handle(&self) -> TunnelHandle {
        TunnelHandle { commands: self.command.clone() }
    }

    /// Carries packets until [`TunnelHandle::stop`], then closes the records. Dropping the future stops it at once.
    pub async fn run(mut self) -> TunnelStats {
        loop {
            let now = clock();
            self.cell.handle_timeout(now);
            while let Some(delivery) = self.cell.poll_transmit(now) {
                self.transmit(delivery);
            }
            let deadline = self.cell.poll_timeout();
            tokio::select! {
                biased;
                Some(command) = self.commands.recv() => match command {
                    // Whoever asked may have gone; the same holds below.
                    Command::Attach(mobile, host, answer) => drop(answer.send(self.attach(mobile, host))),
                    Command::Detach(number) => {
                        if let Some(pair) = self.pairs.get_mut(usize::from(number)) {
                            *pair = None;
                        }
                    }
                    Command::Stats(answer) => drop(answer.send(self.stats())),
                    Command::Stop => {
                        self.cell.close_records();
                        return self.stats();
                    }
                },
                () = self.alarm.wait(deadline) => {}
                Some(batch) = self.inputs.recv() => self.handle_batch(batch),
            }
        }
    }

    fn stats(&mut self) -> TunnelStats {
        TunnelStats {
            link: self.cell.snapshot(),
            mobiles: self.pairs.iter().flatten().count(),
            unsent: self.unsent,
            lateness: self.lateness.clone(),
            problems: self.cell.observer_problems(),
        }
    }

    fn handle_batch(&mut self, batch: Batch) {
        let Batch { from, to, packets } = batch;
        for packet in packets {
            let now = clock();
            self.cell.handle_packet(now, from, to, packet);
            while let Some(delivery) = self.cell.poll_transmit(now) {
                self.transmit(delivery);
            }
        }
    }

    fn transmit(&mut self, delivery: Delivery) {
        let device = match (delivery.from.station, delivery.to.station) {
            (_, Station::Mobile(number)) => self.pair(number).map(|pair| &pair.mobile),
            (Station::Mobile(number), Station::Host(_)) => self.pair(number).map(|pair| &pair.host),
            (Station::Host(_), Station::Host(_)) => None,
        };
        let sent = device.map(|device| rustix::io::write(device.get_ref(), &delivery.payload));
        if !matches!(sent, Some(Ok(_))) {
            tracing::debug!(?sent, to = %delivery.to, "not sent");
            self.unsent += 1;
        }
        self.lateness.record(clock().saturating_duration_since(delivery.at));
    }

    fn pair(&self, number: u16) -> Option<&Pair> {
        self.pairs.get(usize::from(number))?.as_ref()
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("cell", &self.cell).field("pairs", &self.pairs).finish_non_exhaustive()
    }
}

impl TunnelHandle {
    /// As [`Tunnel::attach`], while the tunnel runs.
    ///
    /// # Errors
    /// Those of [`Tunnel::attach`], and [`TunnelError::Ended`].
    pub async fn attach(&self, mobile: OwnedFd, host: OwnedFd) -> Result<u16, TunnelError> {
        let (answer, number) = oneshot::channel();
        let command = Command::Attach(mobile, host, answer);
        self.commands.send(command).await.map_err(|_| TunnelError::Ended)?;
        number.await.map_err(|_| TunnelError::Ended)?
    }

    /// Closes the devices of a mobile. What is under way to and from it is lost.
    pub async fn detach(&self, number: u16) {
        // The devices of a tunnel that has ended are closed.
        let _ = self.commands.send(Command::Detach(number)).await;
    }

    /// What the tunnel has done so far; `None` if it has ended.
    pub async fn stats(&self) -> Option<TunnelStats> {
        let (answer, stats) = oneshot::channel();
        self.commands.send(Command::Stats(answer)).await.ok()?;
        stats.await.ok()
    }

    /// Ends [`Tunnel::run`].
    pub async fn stop(&self) {
        // A tunnel that has ended needs no stopping.
        let _ = self.commands.send(Command::Stop).await;
    }
}

impl TunnelStats {
    /// The counters as one JSON object.
    pub fn to_json(&self) -> String {
        let own = format!("\"mobiles\":{},\"unsent\":{}", self.mobiles, self.unsent);
        realtime::to_json(&self.link, &own, &self.lateness)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.abort();
        }
    }
}

fn device(descriptor: OwnedFd) -> Result<Device, TunnelError> {
    let nonblocking = ioctl_fionbio(&descriptor, true).map_err(io::Error::from);
    #[allow(deprecated, reason = "the safe constructor: an `OwnedFd` keeps its descriptor")]
    let device = nonblocking.and_then(|()| AsyncFd::new(descriptor));
    device.map(Arc::new).map_err(TunnelError::Device)
}

/// Reads a device until it or the tunnel is gone.
async fn read(device: Device, from: Endpoint, to: Endpoint, input: mpsc::Sender<Batch>) {
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
        if !packets.is_empty() && input.send(Batch { from, to, packets }).await.is_err() {
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
