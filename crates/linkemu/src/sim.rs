//! Virtual time: machines on a link, one event after the other, as fast as the processor allows.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{Cell, ConfigError, Delivery, Endpoint, LinkConfig, Station};

/// An arbitrary moment to count virtual time from.
///
/// The only place of this crate outside the proxy that reads a clock; nothing depends on what it says.
#[expect(clippy::disallowed_methods, reason = "`Instant` has no other constructor")]
pub fn virtual_epoch() -> Instant {
    Instant::now()
}

/// A machine on a simulated link.
pub trait Node {
    /// A datagram arrives.
    fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: Bytes);

    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant);

    /// The next datagram to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing>;

    /// When [`Node::handle_timeout`] is wanted next.
    fn poll_timeout(&self) -> Option<Instant>;
}

impl<N: Node + ?Sized> Node for Box<N> {
    fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: Bytes) {
        (**self).handle_input(now, from, to, payload);
    }

    fn handle_timeout(&mut self, now: Instant) {
        (**self).handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        (**self).poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }
}

/// A datagram that a machine sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its sender.
    pub from: Endpoint,
    /// Its destination.
    pub to: Endpoint,
    /// The UDP payload.
    pub payload: Bytes,
}

/// A [`Cell`] and the machines on it under one virtual clock.
///
/// `N` is one kind of machine, an enum of several, or `Box<dyn Node>`. The same configuration, seed and machines give the
/// same run everywhere.
///
/// A client that asks again every 200 ms until it is answered, and the time that it needs on a link with long fades:
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use bytes::Bytes;
/// use linkemu::{Endpoint, Node, Outgoing, Preset, Simulation};
///
/// const CLIENT: Endpoint = Endpoint::mobile(0, 700);
/// const SERVER: Endpoint = Endpoint::host(0, 53);
///
/// enum Machine {
///     Client { next: Option<Instant>, answered: bool },
///     Server { answers: Vec<Outgoing> },
/// }
///
/// impl Node for Machine {
///     fn handle_input(&mut self, _now: Instant, from: Endpoint, to: Endpoint, payload: Bytes) {
///         match self {
///             Self::Client { next, answered } => (*next, *answered) = (None, true),
///             Self::Server { answers } => answers.push(Outgoing { from: to, to: from, payload }),
///         }
///     }
///     fn handle_timeout(&mut self, _now: Instant) {}
///     fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
///         match self {
///             Self::Client { next: Some(next), .. } if *next <= now => {
///                 *next = now + Duration::from_millis(200);
///                 Some(Outgoing { from: CLIENT, to: SERVER, payload: Bytes::from_static(b"?") })
///             }
///             Self::Client { .. } => None,
///             Self::Server { answers } => answers.pop(),
///         }
///     }
///     fn poll_timeout(&self) -> Option<Instant> {
///         match self {
///             Self::Client { next, .. } => *next,
///             Self::Server { .. } => None,
///         }
///     }
/// }
///
/// let mut world = Simulation::new(Preset::named("train")?.config(), 1, 5)?;
/// let next = Some(world.now());
/// world.attach(CLIENT.station, Machine::Client { next, answered: false });
/// world.attach(SERVER.station, Machine::Server { answers: Vec::new() });
/// let answered = world.run_while(Duration::from_secs(600), |world| {
///     !matches!(world.node(CLIENT.station), Some(Machine::Client { answered: true, .. }))
/// });
/// assert!(answered && world.elapsed() >= Duration::from_millis(70));
/// # Ok::<(), linkemu::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Simulation<N> {
    cell: Cell,
    nodes: BTreeMap<Station, N>,
    epoch: Instant,
    now: Instant,
}

impl<N: Node> Simulation<N> {
    /// A link with `mobiles` mobiles and nothing attached.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field out of bounds.
    pub fn new(config: LinkConfig, mobiles: u16, seed: u64) -> Result<Self, ConfigError> {
        let epoch = virtual_epoch();
        Ok(Self {
            cell: Cell::with_mobiles(config, mobiles, seed, epoch)?,
            nodes: BTreeMap::new(),
            epoch,
            now: epoch,
        })
    }

    /// Puts a machine in its place, and returns what was there.
    pub fn attach(&mut self, station: Station, node: N) -> Option<N> {
        self.nodes.insert(station, node)
    }

    /// Moves to the next moment at which something happens, and lets it happen. False if nothing ever will.
    pub fn step(&mut self) -> bool {
        self.drain();
        let Some(next) = self.next_event() else {
            return false;
        };
        self.advance(next);
        true
    }

    /// Runs until nothing is left to happen by `end`, counted from the beginning, and moves the clock there.
    pub fn run_until(&mut self, end: Duration) {
        self.run_while(end, |_| true);
        self.now = self.now.max(self.epoch + end);
    }

    /// Runs while `go_on` says so, at most until `end`, counted from the beginning. True if `go_on` ended it.
    pub fn run_while(&mut self, end: Duration, mut go_on: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.epoch + end;
        loop {
            self.drain();
            if !go_on(self) {
                return true;
            }
            match self.next_event() {
                Some(next) if next <= end => self.advance(next),
                Some(_) | None => return false,
            }
        }
    }

    /// The link.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The link, to observe it or to add mobiles.
    pub fn cell_mut(&mut self) -> &mut Cell {
        &mut self.cell
    }

    /// The machine at a place.
    pub fn node(&self, station: Station) -> Option<&N> {
        self.nodes.get(&station)
    }

    /// The machine at a place, to give it work.
    pub fn node_mut(&mut self, station: Station) -> Option<&mut N> {
        self.nodes.get_mut(&station)
    }

    /// The virtual time, as the machines see it.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.now - self.epoch
    }

    fn next_event(&self) -> Option<Instant> {
        let nodes = self.nodes.values().filter_map(Node::poll_timeout);
        nodes.chain(self.cell.poll_timeout()).min()
    }

    fn advance(&mut self, next: Instant) {
        self.now = self.now.max(next);
        self.cell.handle_timeout(self.now);
        for node in self.nodes.values_mut() {
            if node.poll_timeout().is_some_and(|at| at <= self.now) {
                node.handle_timeout(self.now);
            }
        }
    }

    /// Moves datagrams until nobody has any more for this moment.
    fn drain(&mut self) {
        loop {
            let mut moved = false;
            while let Some(Delivery { from, to, payload, .. }) = self.cell.poll_transmit(self.now) {
                moved = true;
                if let Some(node) = self.nodes.get_mut(&to.station) {
                    node.handle_input(self.now, from, to, payload);
                }
            }
            for node in self.nodes.values_mut() {
                while let Some(Outgoing { from, to, payload }) = node.poll_transmit(self.now) {
                    moved = true;
                    self.cell.handle_input(self.now, from, to, payload);
                }
            }
            if !moved {
                return;
            }
        }
    }
}
