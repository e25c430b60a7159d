//! What happened to datagrams and frames, and who is told.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::ChannelState;

/// A machine: a mobile behind the medium, or a host on the wire behind the base station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    /// A host on the wire.
    Host(u16),
    /// A mobile behind the medium, counted from 0.
    Mobile(u16),
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(number) => write!(f, "host{number}"),
            Self::Mobile(number) => write!(f, "mobile{number}"),
        }
    }
}

/// A UDP port of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The machine.
    pub station: Station,
    /// The UDP port.
    pub port: u16,
}

impl Endpoint {
    /// A port of a mobile.
    pub const fn mobile(number: u16, port: u16) -> Self {
        Self { station: Station::Mobile(number), port }
    }

    /// A port of a host.
    pub const fn host(number: u16, port: u16) -> Self {
        Self { station: Station::Host(number), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.station, self.port)
    }
}

/// What the bytes are that were offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The payload of a UDP datagram: the link adds headers and cuts it into fragments.
    UdpPayload,
    /// An IP packet with its headers: it crosses as it is.
    IpPacket,
}

/// How a datagram or a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It arrived.
    Delivered,
    /// The channel took it: a bad period, or bit errors.
    Channel,
    /// The link layer gave it up after the retry limit.
    RetryLimit,
    /// The queue before the medium was full.
    QueueFull,
    /// The queue of the wire was full.
    WireFull,
    /// The receive buffer of the mobile was full.
    ReceiveBufferFull,
    /// Its compressed header could not be restored.
    Header,
    /// Its fragments were joined with those of another datagram of the same identification (RFC 4963).
    Spliced,
    /// Its fragments waited too long for each other, or took too much memory.
    ReassemblyTimeout,
    /// No way leads from its sender to its destination: the medium joins mobiles to hosts.
    NoRoute,
    /// It has more than 65,507 bytes of payload, or is a packet longer than the MTU.
    TooLong,
    /// It was still under way when the link was closed.
    UnderWay,
}

impl Fate {
    /// Every fate, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Delivered,
        Self::Channel,
        Self::RetryLimit,
        Self::QueueFull,
        Self::WireFull,
        Self::ReceiveBufferFull,
        Self::Header,
        Self::Spliced,
        Self::ReassemblyTimeout,
        Self::NoRoute,
        Self::TooLong,
        Self::UnderWay,
    ];

    /// The name in JSON and captures: `delivered`, `channel`, `retry_limit` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Channel => "channel",
            Self::RetryLimit => "retry_limit",
            Self::QueueFull => "queue_full",
            Self::WireFull => "wire_full",
            Self::ReceiveBufferFull => "receive_buffer_full",
            Self::Header => "header",
            Self::Spliced => "spliced",
            Self::ReassemblyTimeout => "reassembly_timeout",
            Self::NoRoute => "no_route",
            Self::TooLong => "too_long",
            Self::UnderWay => "under_way",
        }
    }
}

/// A datagram as it is offered to the link. Times in this module are channel times.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Offered<'a> {
    /// Its number, counted from 0.
    pub datagram: u64,
    /// When it was offered.
    pub at: Duration,
    /// Its sender.
    pub from: Endpoint,
    /// Its destination.
    pub to: Endpoint,
    /// What the bytes are.
    pub content: Content,
    /// The bytes.
    pub payload: &'a Bytes,
}

/// One row per datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramRecord {
    /// Its number, counted from 0.
    pub datagram: u64,
    /// Its sender.
    pub from: Endpoint,
    /// Its destination.
    pub to: Endpoint,
    /// What was offered.
    pub content: Content,
    /// Bytes that were offered.
    pub payload_bytes: u32,
    /// Frames it became.
    pub frames: u32,
    /// When it was offered.
    pub offered: Duration,
    /// When its first frame went on the air.
    pub first_air: Option<Duration>,
    /// Times one of its frames went on the air.
    pub transmissions: u32,
    /// When its fate was settled.
    pub ended: Duration,
    /// Its fate.
    pub fate: Fate,
    /// The channel of its mobile when it was offered.
    pub state_offered: ChannelState,
    /// The channel of its mobile when its fate was settled.
    pub state_ended: ChannelState,
}

/// One row per frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameRecord {
    /// The datagram it belongs to.
    pub datagram: u64,
    /// Which fragment, counted from 0.
    pub index: u32,
    /// Bytes on the medium, headers included.
    pub bytes: u32,
    /// When it reached the queue before the medium.
    pub queued: Duration,
    /// When it first went on the air.
    pub first_air: Option<Duration>,
    /// Times it went on the air.
    pub attempts: u32,
    /// When its fate was settled.
    pub ended: Duration,
    /// Its fate on the way to the destination; delivered fragments of a lost datagram are `Delivered`.
    pub fate: Fate,
}

/// Is told what happens on a link, as it happens.
///
/// A higher layer implements it to label its own messages, say with the RPC in a datagram.
pub trait Observer: Send {
    /// A datagram was offered.
    fn offered(&mut self, offered: &Offered<'_>) {
        let _ = offered;
    }

    /// The fate of a frame is settled.
    fn frame(&mut self, record: &FrameRecord) {
        let _ = record;
    }

    /// The fate of a datagram is settled and none of its frames is under way.
    fn datagram(&mut self, record: &DatagramRecord, payload: &Bytes) {
        let _ = (record, payload);
    }

    /// The link is closed: nothing comes any more.
    fn flush(&mut self) {}

    /// Why this observer has stopped, if it has: a full disk, say. The link goes on.
    fn problem(&self) -> Option<String> {
        None
    }
}
