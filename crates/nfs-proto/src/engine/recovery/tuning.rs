//! The numbers that the adaptive policy was tuned with, its range, and its source.
//!
//! Ranges say what is worth trying, not what was measured: docs/experiments.md has the measurements. Sizes that a protocol sets are beside the
//! code that needs them.

use std::time::Duration;

/// Tuning parameters of loss detection and congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tuning {
    /// Round-trip times (RFC 6298).
    pub rtt: RttTuning,
    /// What was overtaken, and for how long (RFC 8985).
    pub loss: LossTuning,
    /// When a probe is due, and how often (RFC 9002 §6.2).
    pub probes: ProbeTuning,
    /// What is known of the path.
    pub path: PathTuning,
    /// Congestion control.
    pub window: WindowTuning,
    /// Pacing (RFC 9002 §7.7).
    pub pacing: PacingTuning,
    /// How often fades destroy something.
    pub episodes: EpisodeTuning,
    /// The size of blocks.
    pub blocks: BlockTuning,
    /// The path's MTU (RFC 8899).
    pub mtu: MtuTuning,
}

/// Round-trip times (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RttTuning {
    /// Timeout before any sample: RFC 6298 §2.1. 0.2 to 3 s.
    pub initial_rto: Duration,
    /// Smallest allowance over the smoothed RTT. 1 to 100 ms; timers of drivers are good to a few milliseconds.
    pub min_variation: Duration,
}

impl Default for RttTuning {
    fn default() -> Self {
        Self { initial_rto: Duration::from_secs(1), min_variation: Duration::from_millis(10) }
    }
}

/// What was overtaken, and for how long (RFC 8985).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LossTuning {
    /// Shortest reordering window. 1 to 10 ms; kGranularity of RFC 9002 §6.1.2.
    pub min_window: Duration,
    /// Shortest window where a call of another class is the evidence: small calls overtake data inside servers. 1 to 50 ms.
    pub small_call_window: Duration,
    /// From so many losses of one call on it also waits before it is sent again, for a timeout that doubles each time: perhaps the server answers
    /// others and never this one. 1 to 10.
    pub back_off_after: u32,
    /// A tail-loss probe follows every small call that is alone from this RTT on (RFC 8985 §7): if it was lost, that is known a round trip
    /// earlier. 50 ms to never.
    pub tail_loss_rtt: Duration,
    /// A call that must not run twice is given so long each time it was overtaken: not every server has a duplicate request cache, and a copy that
    /// is run late makes again what was renamed or removed meanwhile. A server's threads and a disk's seeks are mostly less far apart. 0.1 to 1 s.
    pub caution: Duration,
    /// For so long no READ, or no WRITE, is answered while other calls are before this is more than loss: the server ignores them, or the path takes
    /// nothing so large. Four a second are sent then. 1 to 5 s.
    pub ignored: Duration,
}

impl Default for LossTuning {
    fn default() -> Self {
        Self {
            min_window: Duration::from_millis(1),
            small_call_window: Duration::from_millis(6),
            back_off_after: 4,
            tail_loss_rtt: Duration::from_millis(200),
            caution: Duration::from_millis(250),
            ignored: Duration::from_secs(1),
        }
    }
}

/// When a probe is due, and how often (RFC 9002 §6.2).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProbeTuning {
    /// Shortest PTO, however short the reply interval; five times as long before anything is known of it. 5 to 100 ms.
    pub min_pto: Duration,
    /// Shortest PTO where the link retransmits: probes are retransmitted, too, and take room in queues when the fade is over. 100 ms to 1 s.
    pub arq_pto: Duration,
    /// Shortest time between probes. Three times as long where no block was ever delivered and the rate is not known: a block of somebody else may
    /// take 0.3 s, and a queue hold 50 probes. 1 to 50 ms.
    pub min_interval: Duration,
    /// File bytes that could have been delivered between two probes: three times what call and reply of NULL are on the air, so that probes take a
    /// third of a slow link at most. 150 to 1500.
    pub bytes_between: f64,
    /// The longest episode that is usual, if half as long a one has been seen to end. 1 to 30 s.
    pub usual_limit: Duration,
    /// Longest time between probes at the beginning of an episode. 20 to 500 ms.
    pub urgent_interval: Duration,
    /// How long that beginning is. 1 to 10 s.
    pub urgent: Duration,
    /// Longest time between probes later. 0.5 to 5 s.
    pub max_interval: Duration,
    /// Longest time between probes at the beginning while nothing was received at all. 50 ms to 1 s.
    pub first_interval: Duration,
    /// The same later: perhaps nobody is there. 5 to 60 s.
    pub unheard_interval: Duration,
    /// Time without a reply after which the oldest call itself is sent again; doubles up to 16 times as long, and from then on every probe brings
    /// the call (RFC 6298 §5.5; §2.4 asks for 60 s at least). 1 s filled queues in outages. 4 to 8 s.
    pub first_resend: Duration,
}

impl ProbeTuning {
    /// PTO before anything is known of the reply interval.
    pub(super) fn first_probe(&self) -> Duration {
        5 * self.min_pto
    }
}

impl Default for ProbeTuning {
    fn default() -> Self {
        Self {
            min_pto: Duration::from_millis(20),
            arq_pto: Duration::from_millis(490),
            min_interval: Duration::from_millis(5),
            bytes_between: 3.0 * 150.0,
            usual_limit: Duration::from_secs(6),
            urgent_interval: Duration::from_millis(80),
            urgent: Duration::from_millis(2500),
            max_interval: Duration::from_millis(1250),
            first_interval: Duration::from_millis(150),
            unheard_interval: Duration::from_secs(30),
            first_resend: Duration::from_secs(4),
        }
    }
}

/// What is known of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathTuning {
    /// Rounds over which the highest delivery rate sample counts, as in BBR. 2 to 16.
    pub rate_rounds: usize,
    /// Spacings of replies whose median shows the rate of the bottleneck at startup. 3 to 15.
    pub spacings: usize,
    /// Replies that come closer together than this are one aggregate: the link or the system delayed some. 0 to 1 ms.
    pub aggregate: Duration,
    /// How long `min_rtt` is believed, at least: measuring it again costs a part of a round trip. 5 to 30 s; BBR has 10 s.
    pub min_rtt_lifetime: Duration,
    /// The same in round trips. 0 to 1000.
    pub min_rtt_round_trips: u32,
}

impl Default for PathTuning {
    fn default() -> Self {
        Self {
            rate_rounds: 10,
            spacings: 5,
            aggregate: Duration::from_micros(50),
            min_rtt_lifetime: Duration::from_secs(10),
            min_rtt_round_trips: 128,
        }
    }
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct WindowTuning {
    /// Blocks in flight at first. 1 to 10; blocks are one frame then (RFC 6928: 10 segments).
    pub initial_blocks: u64,
    /// Blocks that may always be in flight. 1 to 4; RFC 9002 §7.2 has 2.
    pub min_blocks: u64,
    /// Of blocks longer than this, in bytes, as many may be in flight as the window comes nearest to, not those that it holds whole. 4 to 64 KiB.
    pub large_block: u64,
    /// Blocks that the path must hold for that. 1 to 4; below, a queue of 50 packets overflows.
    pub rounded_from: f64,
    /// Standing queue that the window may cause beyond one block: an eighth of min_rtt, or eight times min_rtt up to this. It keeps a short burst
    /// from emptying the path. The window also holds what the path's jitter takes, as long as that is no more. 5 to 25 ms.
    pub allowance: Duration,
    /// Paths with a shorter min_rtt are wires without fades, and the narrowest place is a server's socket buffer, which holds about a hundred
    /// datagrams: less than that of WRITEs, which may queue for half of this, and so many calls of READs. 0.2 to 2 ms.
    pub wired_rtt: Duration,
    /// READs in flight there at most. 16 to 100.
    pub wired_reads: f64,
    /// Rounds after a congestion event in which others are taken to need the queue, too. 0 to 100.
    pub shared_rounds: u32,
    /// Part of the bandwidth-delay product that is left in flight during ProbeRTT. 0.5 to 0.95; BBRv2 has 0.5.
    pub probe_rtt_gain: f64,
    /// Blocks in a window that ProbeRTT reduces to one. 2 to 16.
    pub narrow_blocks: u64,
    /// A round without this much growth of the rate counts against startup, as in BBR. 1.1 to 1.5.
    pub startup_growth: f64,
    /// Rounds in a row with a loss for every four replies that mean a full queue, whatever the loss episodes; and those with an eighth of the
    /// bytes lost that mean a queue shorter than the allowance; twice as many with any loss, while more than half of the allowance queues, mean one
    /// that is a little shorter. 2 to 10.
    pub heavy_rounds: u32,
    /// Replies in such a round, at least. 5 to 50.
    pub loss_round: u32,
    /// By what the part of the allowance that may queue grows in a round without a loss. 1.01 to 1.25.
    pub queue_growth: f64,
    /// Which part of what has overflowed such a queue may queue from then on. 0.5 to 0.95.
    pub queue_limit: f64,
    /// The least part of the allowance to which that leads: what was lost may have met fades. 0 to 0.5.
    pub least_queue_limit: f64,
    /// By what that part grows in a round without a loss. 1 to 1.01.
    pub queue_limit_growth: f64,
}

impl Default for WindowTuning {
    fn default() -> Self {
        Self {
            initial_blocks: 4,
            min_blocks: 2,
            large_block: 8192,
            rounded_from: 1.5,
            allowance: Duration::from_millis(10),
            wired_rtt: Duration::from_millis(1),
            wired_reads: 64.0,
            shared_rounds: 20,
            probe_rtt_gain: 0.85,
            narrow_blocks: 8,
            startup_growth: 1.25,
            heavy_rounds: 3,
            loss_round: 10,
            queue_growth: 17.0 / 16.0,
            queue_limit: 0.8,
            least_queue_limit: 0.25,
            queue_limit_growth: 2049.0 / 2048.0,
        }
    }
}

/// Pacing (RFC 9002 §7.7).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PacingTuning {
    /// How much faster than the path's rate calls may leave. 1.25 to 2.9; RFC 9002 §7.7 has 1.25, BBR 2.77 at startup.
    pub gain: f64,
    /// Bytes that may leave at once. Servers drop bursts of WRITEs in their own socket buffers, measured from 160 KiB on. 16 to 128 KiB.
    pub burst_bytes: f64,
    /// The burst in time at the path's rate, at least, in seconds: timers of drivers are good to a millisecond or two. 0.001 to 0.01.
    pub burst_seconds: f64,
}

impl Default for PacingTuning {
    fn default() -> Self {
        Self { gain: 2.0, burst_bytes: 64.0 * 1024.0, burst_seconds: 0.005 }
    }
}

/// How often fades destroy something.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EpisodeTuning {
    /// Weight of the assumption, before anything was seen, that there is one episode a second. 0.1 to 2.
    pub prior: f64,
    /// Good time that an earlier connection's rate of episodes is worth, in seconds. 1 to 60.
    pub resumed_seconds: f64,
    /// Good time after which the past counts half, in seconds. 10 to 600.
    pub memory_seconds: f64,
}

impl Default for EpisodeTuning {
    fn default() -> Self {
        Self { prior: 0.7, resumed_seconds: 10.0, memory_seconds: 60.0 }
    }
}

/// The size of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BlockTuning {
    /// A change of block must gain this part. 0 to 0.05.
    pub hysteresis: f64,
    /// And this part of what fades cost now: a change unsettles min_rtt and the reply interval, by which they are found. 0 to 1.
    pub doubt: f64,
}

impl Default for BlockTuning {
    fn default() -> Self {
        Self { hysteresis: 0.003, doubt: 1.0 / 3.0 }
    }
}

/// The path's MTU (RFC 8899). What its §5.1 fixes is beside the code.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MtuTuning {
    /// Bytes that are acknowledged for each byte of a probe: a probe costs a slow link a fifth of the time since the last one at most. 1 to 16.
    pub bytes_for_probes: u64,
    /// Time that a probe of more than Ethernet's MTU may take the path, in seconds: on slower ones large datagrams gain little, and others wait for
    /// them. 0.002 to 0.05.
    pub affordable: f64,
    /// Data that takes both directions within this time shares one size of blocks. 0.5 to 10 s.
    pub together: Duration,
    /// So many rounds of losses in a row, of twice as many datagrams, are a black hole (RFC 8899 §4.3). What never arrived is given up a round sooner.
    /// 2 to 6.
    pub black_hole_rounds: u32,
    /// A receiver that keeps datagrams incomplete drops some fragments, and lets a block through now and then: one of so many does not end a row of
    /// losses. 4 to 16.
    pub rare_fragments: u32,
}

impl Default for MtuTuning {
    fn default() -> Self {
        Self {
            bytes_for_probes: 4,
            affordable: 0.010,
            together: Duration::from_secs(1),
            black_hole_rounds: 3,
            rare_fragments: 8,
        }
    }
}
