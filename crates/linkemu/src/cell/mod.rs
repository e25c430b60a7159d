//! The whole link: queues, medium, channel, ARQ and wire as one machine.

mod air;
mod headers;
mod path;
mod table;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fmt,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;

use self::{
    air::Air,
    path::ReceiveBuffer,
    table::{Entry, Table},
};
use crate::{
    Channel, ChannelScope, ChannelStart, ChannelState, ConfigError, Content, Duplex, Endpoint, Fate,
    IpIdentification, LinkConfig, Observer, Offered, Station, Stats,
    arq::{self, End, Outcome, Parameters},
    channel::LossDraws,
    fragment::{self, Frame, IP_HEADER_BYTES, MAX_PAYLOAD_BYTES},
    headers::HeaderCodec,
    queue::Queue,
    reassembly::Reassembly,
    rng::{self, Stream},
    units::Nanos,
    wire::{DelayLine, Wire},
};

/// A base station, its mobiles, and the hosts on the wire behind it.
///
/// A plain machine driven by `now`, without sockets, clock or tasks. Offer UDP payloads with [`Cell::handle_input`] or IP
/// packets with [`Cell::handle_packet`]; drain [`Cell::poll_transmit`]; call [`Cell::handle_timeout`] when [`Cell::poll_timeout`] says. `now` never decreases (an
/// earlier value counts as the latest seen). What happens between two calls happens at its own time, so a late caller
/// changes when it learns of a delivery, not the delivery.
///
/// Memory is bounded by the queues and by what is on its way, whatever time passes.
pub struct Cell {
    config: LinkConfig,
    parameters: Parameters,
    seed: u64,
    epoch: Instant,
    now: Nanos,
    /// Channel time 0.
    origin: Option<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    next_event: u64,
    airs: Vec<Air>,
    /// Two for each mobile: `2m` at the base station, `2m + 1` at mobile `m`.
    ends: Vec<Box<dyn End>>,
    /// The timer of each end that is in `events`.
    armed: Vec<Nanos>,
    /// Of the base station, then of each mobile.
    queues: Vec<Queue>,
    channels: Vec<(Channel, LossDraws)>,
    table: Table,
    /// From the hosts, and to them.
    wires: [Wire; 2],
    /// Latency after the medium, for each receiving end.
    latency: Vec<DelayLine>,
    buffers: Vec<ReceiveBuffer>,
    jitter: ChaCha8Rng,
    reassembly: Reassembly,
    /// One for each end, if headers are compressed.
    codecs: Vec<HeaderCodec>,
    deliveries: VecDeque<Delivery>,
    outcome: Outcome,
    stats: Stats,
    observers: Vec<Box<dyn Observer>>,
}

/// A datagram that has crossed the link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Its number, as [`Cell::handle_input`] or [`Cell::handle_packet`] gave it.
    pub datagram: u64,
    /// When it arrived: at or before the `now` of the call that returns it.
    pub at: Instant,
    /// Its sender.
    pub from: Endpoint,
    /// Its destination.
    pub to: Endpoint,
    /// The UDP payload or IP packet: the bytes offered, unless fragments were mis-spliced.
    pub payload: Bytes,
}

/// The state of a link at one moment, for a live view.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Time since the channel's time 0; zero before.
    pub channel_time: Duration,
    /// The state of every channel.
    pub states: Vec<ChannelState>,
    /// Packets in the queue of the base station, then of each mobile.
    pub queue_packets: Vec<usize>,
    /// Bytes in the same queues.
    pub queue_bytes: Vec<u64>,
    /// The counters.
    pub stats: Stats,
}

/// What is due. At one moment the medium goes first: an answer that arrives when its timer ends is in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A transmission or a reservation on this air ends.
    Air(u32),
    /// A signal on this air has propagated.
    Propagated(u32),
    /// A frame leaves this direction of the wire.
    Wire(u32),
    /// A frame leaves the latency of this end.
    Latency(u32),
    /// The host of this mobile has taken a frame from the receive buffer.
    Buffer(u32),
    /// The timer of this end.
    End(u32),
}

/// Commands and `handle_*`.
impl Cell {
    /// A link with no mobiles yet.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field out of bounds.
    pub fn new(config: LinkConfig, seed: u64, now: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        let config = config.drawn(seed);
        let airs = match config.duplex {
            Duplex::Half => vec![Air::default()],
            Duplex::Full => vec![Air::default(), Air::default()],
        };
        let mut cell = Self {
            parameters: Parameters::new(&config),
            seed,
            epoch: now,
            now: 0,
            origin: match config.start {
                ChannelStart::Creation => Some(0),
                ChannelStart::FirstDatagram => None,
            },
            events: BinaryHeap::new(),
            next_event: 0,
            airs,
            ends: Vec::new(),
            armed: Vec::new(),
            queues: vec![Queue::new(&config)],
            channels: Vec::new(),
            table: Table::default(),
            wires: [Wire::new(&config.wired), Wire::new(&config.wired)],
            latency: Vec::new(),
            buffers: Vec::new(),
            jitter: rng::stream(seed, Stream::Jitter, 0),
            reassembly: Reassembly::new(&config.reassembly, config.mtu_bytes),
            codecs: Vec::new(),
            deliveries: VecDeque::new(),
            outcome: Outcome::default(),
            stats: Stats::default(),
            observers: Vec::new(),
            config,
        };
        match cell.config.channel.scope {
            ChannelScope::Shared => cell.add_channel(0)?,
            ChannelScope::PerDirection => {
                cell.add_channel(0)?;
                cell.add_channel(1)?;
            }
            ChannelScope::PerMobile => {}
        }
        Ok(cell)
    }

    /// A link with `mobiles` mobiles.
    ///
    /// # Errors
    /// [`ConfigError`] as [`Cell::new`]; at most 65,535 mobiles.
    pub fn with_mobiles(
        config: LinkConfig,
        mobiles: u16,
        seed: u64,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        let mut cell = Self::new(config, seed, now)?;
        for _ in 0..mobiles {
            cell.add_mobile()?;
        }
        Ok(cell)
    }

    /// Adds a mobile and returns its number.
    ///
    /// # Errors
    /// [`ConfigError`] beyond 65,535 mobiles.
    pub fn add_mobile(&mut self) -> Result<u16, ConfigError> {
        let Ok(mobile) = u16::try_from(self.buffers.len()) else {
            return Err(ConfigError::out_of_range("mobiles", self.buffers.len() + 1, "at most 65535"));
        };
        if self.config.channel.scope == ChannelScope::PerMobile {
            self.add_channel(u32::from(mobile))?;
        }
        let down = 2 * u32::from(mobile);
        self.queues[0].add_end(down);
        let mut queue = Queue::new(&self.config);
        queue.add_end(down + 1);
        self.queues.push(queue);
        for _ in 0..2 {
            self.ends.push(arq::end(&self.config));
            self.armed.push(Nanos::MAX);
            self.latency.push(DelayLine::default());
            if self.config.header_compression {
                self.codecs.push(HeaderCodec::new(self.config.mtu_bytes));
            }
        }
        self.buffers.push(ReceiveBuffer::default());
        Ok(mobile)
    }

    /// Tells `observer`, too, of every datagram and frame from now on.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// Offers the payload of a UDP datagram to the link and returns its number.
    ///
    /// The link adds 8 bytes of UDP and 20 bytes of IP per fragment. What cannot be sent is counted and recorded, not
    /// reported here: a UDP socket would not know either.
    pub fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: Bytes) -> u64 {
        self.offer(now, from, to, Content::UdpPayload, payload)
    }

    /// Offers a whole IP packet to the link and returns its number.
    ///
    /// It is one frame with nothing but the link header added, and its bytes are not looked at: a real IP fragment crosses
    /// or is lost by itself, and is put together by its receiver. A packet longer than the MTU is [`Fate::TooLong`].
    pub fn handle_packet(&mut self, now: Instant, from: Endpoint, to: Endpoint, packet: Bytes) -> u64 {
        self.offer(now, from, to, Content::IpPacket, packet)
    }

    fn offer(&mut self, now: Instant, from: Endpoint, to: Endpoint, content: Content, payload: Bytes) -> u64 {
        self.handle_timeout(now);
        let origin = *self.origin.get_or_insert(self.now);
        let datagram = self.table.number();
        self.stats.datagrams += 1;
        self.stats.payload_bytes += payload.len() as u64;
        for observer in &mut self.observers {
            observer.offered(&Offered {
                datagram,
                at: Duration::from_nanos(self.now - origin),
                from,
                to,
                content,
                payload: &payload,
            });
        }
        let payload_bytes = payload.len();
        let end = end_between(from.station, to.station);
        let refused = self.refusal(end, content, payload_bytes);
        let frames = if refused.is_some() { 0 } else { self.frame_count(content, payload_bytes) };
        let identification = self.identify(content, from.station, to.station);
        let slot = self.table.insert(Entry {
            datagram,
            from,
            to,
            content,
            payload,
            frames: frames as u16,
            open: frames as u16,
            arrived: 0,
            identification,
            packet: Bytes::new(),
            on_the_link: Vec::new(),
            offered: self.now,
            first_air: Nanos::MAX,
            transmissions: 0,
            fate: None,
        });
        if let Some(fate) = refused {
            self.settle_datagram(slot, datagram, fate);
            self.close(slot);
        }
        for index in 0..frames {
            let bytes = self.frame_bytes(content, payload_bytes, index, frames);
            self.send(Frame {
                datagram,
                slot,
                index: index as u16,
                end,
                bytes,
                air_bytes: bytes,
                queued: self.now,
                first_air: Nanos::MAX,
                attempts: 0,
            });
        }
        self.grant_all();
        datagram
    }

    /// Why a datagram may not enter the link, if so.
    fn refusal(&self, end: u32, content: Content, payload_bytes: usize) -> Option<Fate> {
        let longest = match content {
            Content::UdpPayload => MAX_PAYLOAD_BYTES,
            Content::IpPacket => self.config.mtu_bytes as usize,
        };
        if payload_bytes > longest {
            Some(Fate::TooLong)
        } else if end as usize >= self.ends.len() {
            Some(Fate::NoRoute)
        } else {
            None
        }
    }

    /// The number of frames that carry a datagram.
    fn frame_count(&self, content: Content, payload_bytes: usize) -> u32 {
        match content {
            Content::UdpPayload => fragment::count(payload_bytes, self.config.mtu_bytes),
            Content::IpPacket => 1,
        }
    }

    /// Bytes of frame `index` of `count`, with its headers.
    fn frame_bytes(&self, content: Content, payload_bytes: usize, index: u32, count: u32) -> u32 {
        let LinkConfig { mtu_bytes, link_header_bytes, .. } = self.config;
        let packet_bytes = match content {
            Content::UdpPayload => {
                fragment::content_bytes(payload_bytes, mtu_bytes, index, count) + IP_HEADER_BYTES
            }
            Content::IpPacket => payload_bytes as u32,
        };
        link_header_bytes + packet_bytes
    }

    /// The IP identification of a datagram; 0 where nobody looks at it.
    fn identify(&mut self, content: Content, from: Station, to: Station) -> u16 {
        if content == Content::IpPacket {
            return 0;
        }
        match self.config.reassembly.identification {
            IpIdentification::Distinct if self.config.header_compression => {
                self.reassembly.identify(from, to, 1 << 16)
            }
            IpIdentification::Distinct => 0,
            IpIdentification::Wrapping { values, .. } => self.reassembly.identify(from, to, values),
        }
    }

    /// Does everything due until `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.nanos(now).max(self.now);
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > now {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            self.handle_event(event);
        }
        self.now = now;
    }

    /// Ends the run: every datagram still under way is recorded with [`Fate::UnderWay`], and nothing else happens.
    pub fn close_records(&mut self) {
        let entries: Vec<Entry> = self.table.drain().collect();
        for mut entry in entries {
            if entry.fate.is_none() {
                entry.fate = Some((Fate::UnderWay, self.now));
                self.stats.count(Fate::UnderWay);
            }
            self.record(&entry);
        }
        self.events.clear();
        for observer in &mut self.observers {
            observer.flush();
        }
    }
}

/// `poll_*`.
impl Cell {
    /// The next datagram that has arrived by `now`, in order of arrival.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Delivery> {
        self.handle_timeout(now);
        self.deliveries.pop_front()
    }

    /// When [`Cell::handle_timeout`] is wanted next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.events.peek().map(|&Reverse((at, ..))| self.instant(at))
    }
}

/// Getters.
impl Cell {
    /// A copy of the counters.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// The number of datagrams whose fate is settled: cheaper than [`Cell::stats`].
    pub fn settled(&self) -> u64 {
        self.stats.settled()
    }

    /// The description of the link.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The number of mobiles.
    pub fn mobiles(&self) -> usize {
        self.buffers.len()
    }

    /// When the channel's time 0 was; `None` before the first datagram.
    pub fn channel_start(&self) -> Option<Instant> {
        self.origin.map(|origin| self.instant(origin))
    }

    /// The channel from the base station to a mobile, to be asked about any time; `None` if there is no such mobile.
    pub fn channel(&self, mobile: u16) -> Option<Channel> {
        if usize::from(mobile) >= self.mobiles() {
            return None;
        }
        self.channels.get(self.channel_of(2 * usize::from(mobile))).map(|(channel, _)| channel.clone())
    }

    /// The state of the link now.
    pub fn snapshot(&mut self) -> Snapshot {
        let channel_time = Duration::from_nanos(self.now - self.origin.unwrap_or(self.now));
        Snapshot {
            channel_time,
            states: self.channels.iter_mut().map(|(channel, _)| channel.state(channel_time)).collect(),
            queue_packets: self.queues.iter().map(Queue::packets).collect(),
            queue_bytes: self.queues.iter().map(Queue::bytes).collect(),
            stats: self.stats.clone(),
        }
    }

    /// Why observers have stopped, for those that have.
    pub fn observer_problems(&self) -> Vec<String> {
        self.observers.iter().filter_map(|observer| observer.problem()).collect()
    }
}

impl Cell {
    fn add_channel(&mut self, link: u32) -> Result<(), ConfigError> {
        let channel = Channel::new(&self.config.channel, self.seed, link)?;
        self.channels.push((channel, LossDraws::new(&self.config.channel, self.seed, link)));
        Ok(())
    }

    /// The channel that frames sent by `end` meet.
    fn channel_of(&self, end: usize) -> usize {
        match self.config.channel.scope {
            ChannelScope::Shared => 0,
            ChannelScope::PerDirection => end % 2,
            ChannelScope::PerMobile => end / 2,
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Air(air) => self.air_free(air as usize),
            Event::Propagated(air) => self.propagated(air as usize),
            Event::Wire(direction) => self.off_wire(direction as usize),
            Event::Latency(end) => self.latency_over(end as usize),
            Event::Buffer(mobile) => self.buffer_served(mobile as usize),
            Event::End(end) => self.end_timeout(end as usize),
        }
        self.grant_all();
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        // The medium goes before the timers of one moment; otherwise in the order of scheduling.
        let class = u64::from(matches!(event, Event::End(_))) << 63;
        self.events.push(Reverse((at, class | self.next_event, event)));
        self.next_event += 1;
    }

    fn nanos(&self, at: Instant) -> Nanos {
        crate::units::nanos(at.saturating_duration_since(self.epoch))
    }

    fn instant(&self, at: Nanos) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }
}

/// The end of the medium that sends from one station to the other; none has this number where no way leads there.
fn end_between(from: Station, to: Station) -> u32 {
    match (from, to) {
        (Station::Host(_), Station::Mobile(mobile)) => 2 * u32::from(mobile),
        (Station::Mobile(mobile), Station::Host(_)) => 2 * u32::from(mobile) + 1,
        (Station::Host(_), Station::Host(_)) | (Station::Mobile(_), Station::Mobile(_)) => u32::MAX,
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell")
            .field("config", &self.config)
            .field("seed", &self.seed)
            .field("mobiles", &self.mobiles())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
