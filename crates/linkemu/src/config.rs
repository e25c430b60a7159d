//! The description of a link: every number with its unit, default and source.

use std::time::Duration;

use crate::{
    BitRate, ChannelTrace, ConfigError, Probability, Rate,
    fragment::{self, UDP_HEADER_BYTES},
    units::{Nanos, nanos},
};

/// One link: mobiles that share a medium with a base station, and the wire behind it.
///
/// The default is the quiet channel of the 1997 testbed: 1 Mbit/s, half duplex, MTU 1500, 18 B link header, a 10 Mbit/s
/// Ethernet with 1 ms behind the base station (Dube et al. 1997 §4), without errors and without ARQ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkConfig {
    /// Rate of the medium; with full duplex, the rate from the base station. Default 1 Mbit/s (Dube et al. 1997 §4.1).
    pub rate: Rate,
    /// Rate towards the base station, full duplex only. Default: the same as `rate`.
    pub uplink_rate: Option<Rate>,
    /// Bits on the medium for each byte, 8 to 16. Default 8; a serial line has 10 (Bachmann et al. 1993 §2).
    pub bits_per_byte: u32,
    /// Who may send at the same time. Default half.
    pub duplex: Duplex,
    /// One-way delay of the medium, at most 60 s. Default 0.
    ///
    /// On a half-duplex medium this is latency between radio and host: answers of the ARQ do not wait for it. On a
    /// full-duplex link it is propagation, and they do.
    pub delay: Duration,
    /// Random addition to the delay. Default none.
    pub jitter: Jitter,
    /// MTU in bytes, IP header included, 68 (RFC 791) to 65,535. Default 1500.
    pub mtu_bytes: u32,
    /// Bytes the link adds to every frame, at most 1000. Default 18, Ethernet's header and check sum.
    pub link_header_bytes: u32,
    /// The wire behind the base station.
    pub wired: WiredConfig,
    /// Good and bad periods.
    pub channel: ChannelConfig,
    /// When the channel's time starts. Default: with the first datagram.
    pub start: ChannelStart,
    /// Link-level retransmission.
    pub arq: ArqConfig,
    /// Queues before the medium, one configuration for base station and mobiles.
    pub queue: QueueConfig,
    /// A small receive buffer in the mobile's interface. Default none.
    ///
    /// The 1997 paper saw such a buffer overflow on reads (Dube et al. 1997 §5.1).
    pub receive_buffer: Option<ReceiveBufferConfig>,
    /// How fragments become datagrams again.
    pub reassembly: ReassemblyConfig,
    /// Whether both ends of the medium compress headers of IP, UDP, RPC and NFS ([`HeaderCodec`](crate::HeaderCodec)). Default no.
    ///
    /// Fragments are not compressed, as in RFC 1144 §3.2.3: only datagrams that fit one frame gain.
    pub header_compression: bool,
}

/// Who may send at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// One sender at a time; stations with frames take turns, frame by frame.
    Half,
    /// The base station and the mobiles send at the same time; the mobiles take turns among themselves.
    Full,
}

/// A random addition to the delay of each frame.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Jitter {
    /// How the addition is drawn.
    pub spread: JitterSpread,
    /// Whether a frame with a small addition may overtake one with a large addition. Default no.
    pub overtaking: bool,
}

/// The distribution of [`Jitter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JitterSpread {
    /// No addition.
    None,
    /// Uniform from 0 to this.
    Uniform(Duration),
    /// Exponential with this mean, cut at 20 means.
    Exponential(Duration),
}

/// The wire between base station and hosts, full duplex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WiredConfig {
    /// Its rate. Default 10 Mbit/s (the Ethernet of Dube et al. 1997 §4.1).
    pub rate: BitRate,
    /// Its one-way delay, at most 60 s. Default 1 ms.
    pub delay: Duration,
    /// Bytes that may wait for it in each direction; more are dropped. Default 1,500,000 (1000 full packets).
    pub queue_bytes: u64,
}

/// Good and bad periods, and what they do to frames.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelConfig {
    /// Where the periods come from. Default: always good.
    pub periods: Periods,
    /// Rounds every period to a multiple of this, at most 1 s; a period that rounds to nothing does not happen.
    ///
    /// Default none; the 1997 testbed had 20 ms (Dube et al. 1997 §4.2).
    pub granularity: Option<Duration>,
    /// The state at time 0. Default random.
    pub phase: Phase,
    /// Who shares one channel. Default: everybody.
    pub scope: ChannelScope,
    /// What the good state does to a frame. Default: nothing.
    pub good_loss: Loss,
    /// What the bad state does to a frame. Default: every frame that overlaps it is lost.
    pub bad_loss: Loss,
}

/// Where good and bad periods come from.
#[derive(Clone, Debug)]
pub enum Periods {
    /// Always good.
    AlwaysGood,
    /// Good and bad periods alternate, each length drawn on its own.
    Drawn {
        /// Lengths of good periods.
        good: Lengths,
        /// Lengths of bad periods.
        bad: Lengths,
    },
    /// As recorded, from its beginning, whatever the [`Phase`].
    Trace(ChannelTrace),
}

/// A distribution of period lengths. Draws are rounded to whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lengths {
    /// The shape.
    pub shape: Shape,
    /// The mean: at least 10 µs for good periods; 0 for bad periods means none; at most a day.
    pub mean: Duration,
}

/// The shape of a distribution of period lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Uniform from 0 to twice the mean (Dube et al. 1997 §4.2).
    Uniform,
    /// Exponential: the Gilbert model in time.
    Exponential,
    /// Always the mean.
    Deterministic,
    /// Pareto with this exponent, more than 1 and at most 100; the smaller, the heavier the tail.
    Pareto(f64),
    /// Log-normal with this standard deviation of the logarithm, more than 0 and at most 5.
    LogNormal(f64),
}

/// The state of the channel at time 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The channel has been running for ever: the state and its remaining time are drawn from the steady state.
    Random,
    /// A good period begins. Flatters short transfers.
    Good,
}

/// Who shares one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelScope {
    /// All mobiles, both directions (the papers).
    Shared,
    /// One from the base station, one towards it.
    PerDirection,
    /// One per mobile, for both directions.
    PerMobile,
}

/// What a state of the channel does to a frame that it touches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The frame is lost with this probability, however long it is in this state.
    Frame(Probability),
    /// Every bit sent in this state is wrong with this probability, and one wrong bit loses the frame.
    Bits(Probability),
}

/// When the channel's time starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelStart {
    /// With the first datagram offered to the link, so that a transfer meets the same fades in every run.
    FirstDatagram,
    /// When the link is created.
    Creation,
}

/// Link-level retransmission. One setting holds for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArqConfig {
    /// The protocol. Default none.
    pub kind: ArqKind,
    /// Air time of an acknowledgement. Default 0.3 ms.
    pub ack: Duration,
    /// Air time of a block acknowledgement, and of a request for one. Default 0.1 ms.
    pub block_ack: Duration,
    /// Air time of RTS and CTS together. Default 0.5 ms.
    pub rts_cts: Duration,
    /// Pause after a failed attempt. Default 5 ms.
    pub retry: Duration,
    /// Failed attempts after the first before a frame is given up; `None` retries for ever. Default `None`.
    pub retry_limit: Option<u32>,
    /// Whether stop-and-wait sends an RTS before it repeats a frame. Default yes.
    pub probe: Probe,
    /// Frames per block acknowledgement, 1 to 64. Default 64 (IEEE 802.11-2020 §9.3.1.8, compressed bitmap).
    pub block_frames: u32,
    /// Frames that selective repeat may have unacknowledged, at most 65,536. Default: one block, and on a full-duplex
    /// link two round trips more.
    pub window_frames: Option<u32>,
}

/// The protocol of link-level retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArqKind {
    /// None: a frame that meets a bad period is lost.
    None,
    /// A frame that meets a bad period is held and arrives at its end, at no further air time: the emulation of
    /// Dube et al. 1997 §5.3. Not a physical protocol: transfers can end earlier than the limit of the channel.
    Ideal,
    /// One frame, one acknowledgement; after a failure an RTS must get through before the frame is repeated.
    StopAndWait,
    /// RTS, CTS, frame, acknowledgement for every frame.
    RtsCts,
    /// Frames flow; one block acknowledgement at the end of a burst names those that arrived.
    SelectiveRepeat,
}

/// What stop-and-wait does before it repeats a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Sends an RTS and waits for the CTS.
    Rts,
    /// Nothing: the frame itself is the probe.
    Off,
}

/// Queues before the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// Packets (IP fragments) that may wait, 1 to 1,000,000. Default: 50 or one round trip's worth, whichever is more.
    pub packets: Option<u32>,
    /// Bytes that may wait, at least one frame. Default: no limit but that on packets.
    pub bytes: Option<u64>,
    /// Which frame goes next. Default one FIFO.
    pub scheduler: Scheduler,
    /// How long [`Scheduler::ChannelState`] passes over a destination that failed. Default 20 ms.
    pub bad_mark: Duration,
}

/// Which frame of the base station goes next. Mobiles have one destination, so it makes no difference there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// In the order of arrival; a frame that is being retried holds up all others.
    Fifo,
    /// One queue per destination, served in turn, frame by frame (Bhagwat et al. 1996).
    RoundRobinFrame,
    /// One queue per destination, served in turn, datagram by datagram.
    RoundRobinDatagram,
    /// As [`Scheduler::RoundRobinFrame`], but a destination that just failed lets the others go first
    /// (Bhagwat et al. 1996).
    ChannelState,
}

/// A small receive buffer in the mobile's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveBufferConfig {
    /// Frames it holds, 1 to 100,000, the one being processed included.
    pub packets: u32,
    /// Time the host needs to take one frame, at most 1 s.
    pub service: Duration,
}

/// How fragments become datagrams again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassemblyConfig {
    /// The IP identification of fragments. Default [`IpIdentification::Distinct`].
    pub identification: IpIdentification,
    /// How long fragments wait for the missing ones, at most an hour. Default 30 s (Linux `ipfrag_time`).
    pub timeout: Duration,
    /// Bytes of fragments a destination keeps; the oldest datagram is dropped for more. Default 4 MiB (Linux
    /// `ipfrag_high_thresh`).
    pub memory_bytes: u64,
}

/// The IP identification, which says which fragments belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpIdentification {
    /// Never repeats: fragments of different datagrams never meet.
    Distinct,
    /// Counts per pair of addresses and wraps, so that late fragments can complete an older datagram (RFC 4963).
    Wrapping {
        /// Distinct values, 1 to 65,536. Less than 65,536 brings the mis-splices forward.
        values: u32,
        /// What the receiver does about a datagram that was put together wrongly.
        checksum: UdpChecksum,
    },
}

/// The receiver's UDP checksum (RFC 768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// Computed over the spliced bytes: about 1 splice in 65,536 passes.
    Verified,
    /// Not used, as on old NFS hosts: every splice is delivered.
    Off,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: Rate::Constant(BitRate::megabits(1)),
            uplink_rate: None,
            bits_per_byte: 8,
            duplex: Duplex::Half,
            delay: Duration::ZERO,
            jitter: Jitter::default(),
            mtu_bytes: 1500,
            link_header_bytes: 18,
            wired: WiredConfig::default(),
            channel: ChannelConfig::default(),
            start: ChannelStart::FirstDatagram,
            arq: ArqConfig::default(),
            queue: QueueConfig::default(),
            receive_buffer: None,
            reassembly: ReassemblyConfig::default(),
            header_compression: false,
        }
    }
}

impl Default for Jitter {
    fn default() -> Self {
        Self { spread: JitterSpread::None, overtaking: false }
    }
}

impl WiredConfig {
    /// Returns a wire that adds neither delay nor limit.
    pub fn unlimited() -> Self {
        Self { rate: BitRate::UNLIMITED, delay: Duration::ZERO, ..Self::default() }
    }
}

impl Default for WiredConfig {
    fn default() -> Self {
        Self { rate: BitRate::megabits(10), delay: Duration::from_millis(1), queue_bytes: 1_500_000 }
    }
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            periods: Periods::AlwaysGood,
            granularity: None,
            phase: Phase::Random,
            scope: ChannelScope::Shared,
            good_loss: Loss::Frame(Probability::ZERO),
            bad_loss: Loss::Frame(Probability::ONE),
        }
    }
}

impl Default for ArqConfig {
    fn default() -> Self {
        Self {
            kind: ArqKind::None,
            ack: Duration::from_micros(300),
            block_ack: Duration::from_micros(100),
            rts_cts: Duration::from_micros(500),
            retry: Duration::from_millis(5),
            retry_limit: None,
            probe: Probe::Rts,
            block_frames: 64,
            window_frames: None,
        }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { packets: None, bytes: None, scheduler: Scheduler::Fifo, bad_mark: Duration::from_millis(20) }
    }
}

impl Default for ReceiveBufferConfig {
    fn default() -> Self {
        Self { packets: 5, service: Duration::from_millis(12) }
    }
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            identification: IpIdentification::Distinct,
            timeout: Duration::from_secs(30),
            memory_bytes: 4 << 20,
        }
    }
}

impl Jitter {
    /// Jitter that keeps the order of frames.
    pub const fn new(spread: JitterSpread) -> Self {
        Self { spread, overtaking: false }
    }
}

impl Lengths {
    /// Lengths of this shape and mean.
    pub const fn new(shape: Shape, mean: Duration) -> Self {
        Self { shape, mean }
    }
}

impl ChannelConfig {
    /// Alternating good and bad periods of one shape, bad periods lose everything.
    pub fn alternating(shape: Shape, good: Duration, bad: Duration) -> Self {
        Self {
            periods: Periods::Drawn { good: Lengths::new(shape, good), bad: Lengths::new(shape, bad) },
            ..Self::default()
        }
    }

    /// The mean good period for which `bad` is the share `loss` of all time.
    ///
    /// # Errors
    /// `loss` must be more than 0 and less than 1.
    pub fn good_mean_for(bad: Duration, loss: Probability) -> Result<Duration, ConfigError> {
        let share = loss.value();
        if share <= 0.0 || share >= 1.0 {
            return Err(ConfigError::out_of_range("loss", loss, "more than 0% and less than 100%"));
        }
        Ok(bad.mul_f64((1.0 - share) / share))
    }
}

/// Arithmetic of the link, for limits and checks.
impl LinkConfig {
    /// Frames that a UDP datagram with `payload_bytes` becomes.
    pub fn frames(&self, payload_bytes: usize) -> u32 {
        fragment::count(payload_bytes, self.mtu_bytes)
    }

    /// Bytes on the medium of a UDP datagram with `payload_bytes`: UDP, IP and link headers included.
    pub fn air_bytes(&self, payload_bytes: usize) -> u64 {
        let headers = u64::from(fragment::IP_HEADER_BYTES + self.link_header_bytes);
        payload_bytes as u64 + u64::from(UDP_HEADER_BYTES) + u64::from(self.frames(payload_bytes)) * headers
    }

    /// Air time of a UDP datagram with `payload_bytes`, without acknowledgements; at the mean rate of a rate trace.
    pub fn air_time(&self, payload_bytes: usize) -> Duration {
        let bits = self.air_bytes(payload_bytes) * u64::from(self.bits_per_byte);
        Duration::from_nanos(self.rate.mean().nanos(bits))
    }

    /// The packets that a queue holds: as configured, or 50 or one round trip's worth of full frames.
    pub fn queue_packets(&self) -> u32 {
        const SMALLEST: u64 = 50;
        self.queue.packets.unwrap_or_else(|| {
            let round_trip = 2 * (nanos(self.delay) + nanos(self.wired.delay));
            let full = u64::from(self.mtu_bytes + self.link_header_bytes) * u64::from(self.bits_per_byte);
            let packets = self.rate.mean().bits_in(round_trip).div_ceil(full);
            packets.clamp(SMALLEST, 1_000_000) as u32
        })
    }

    /// Nanoseconds on the medium of the largest frame, at the mean rate.
    pub(crate) fn full_frame_nanos(&self) -> Nanos {
        let bits = u64::from(self.mtu_bytes + self.link_header_bytes) * u64::from(self.bits_per_byte);
        let slowest = self.uplink_rate.as_ref().unwrap_or(&self.rate).mean().min(self.rate.mean());
        slowest.nanos(bits)
    }

    /// Frames that selective repeat may have unacknowledged.
    pub(crate) fn window_frames(&self) -> u32 {
        self.arq.window_frames.unwrap_or_else(|| {
            let block = self.arq.block_frames;
            match (self.duplex, self.full_frame_nanos()) {
                (Duplex::Full, frame @ 1..) => {
                    let in_flight = (4 * nanos(self.delay)).div_ceil(frame).min(60_000);
                    block + in_flight as u32
                }
                _ => block,
            }
        })
    }
}
