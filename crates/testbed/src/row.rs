//! One point of a response-time curve: what was asked, and what all seeds together showed.

use linkemu::{ArqKind, Periods};
use nfs_proto::config::{BlockSize, RetryPolicy, Window};
use nfs_wire::portmap::Protocol;
use serde::{Serialize, Serializer};

use crate::{Plan, Samples, Transport, confidence, mean};

/// A number, or `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrAuto {
    /// The choice was the client's.
    Auto,
    /// The choice was the plan's.
    Number(u32),
}

impl Serialize for OrAuto {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Number(number) => serializer.serialize_u32(*number),
        }
    }
}

impl std::fmt::Display for OrAuto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Number(number) => f.pad(&number.to_string()),
        }
    }
}

/// What a plan showed over its seeds. Numbers are means over the runs unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// `read` or `write`.
    pub op: &'static str,
    /// Name of the room.
    pub room: String,
    /// Mean bad period in ms; none for a trace.
    pub bad_ms: Option<f64>,
    /// Mean good period in ms; none for a trace.
    pub good_ms: Option<f64>,
    /// Shape of the periods.
    pub distribution: String,
    /// Bytes per READ or WRITE.
    pub block: OrAuto,
    /// READs and WRITEs in flight.
    pub window: OrAuto,
    /// What calls travelled over.
    pub transport: &'static str,
    /// Name of the policy.
    pub policy: &'static str,
    /// Name of the link-level retransmission.
    pub arq: &'static str,
    /// Name of the base station's scheduler.
    pub scheduler: &'static str,
    /// Mobiles that copy at once.
    pub clients: u16,
    /// Seeds.
    pub runs: u32,
    /// The first seed.
    pub seed: u64,
    /// Response time in s, over all copies.
    pub mean_s: f64,
    /// The shortest.
    pub min_s: f64,
    /// The longest.
    pub max_s: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    pub ci95_s: f64,
    /// What the channels allowed over UDP with these blocks; a copy over TCP, with fewer headers, may end before it.
    pub limit_s: f64,
    /// The same, if every burst costs a block.
    pub edge_limit_s: f64,
    /// How far above the limit, in per cent, paired by seed.
    pub over_limit_pct: f64,
    /// How far above the edge-aware limit, in per cent, paired by seed.
    pub over_edge_limit_pct: f64,
    /// Attempts after the first, for each call.
    pub resends_per_call: f64,
    /// Spurious ones of these.
    pub spurious_resends_per_call: f64,
    /// File bits per second of response time.
    pub goodput_bps: f64,
    /// The worst seed's.
    pub worst_over_limit_pct: f64,
    /// The worst seed's.
    pub worst_over_edge_limit_pct: f64,
    /// Round-trip time of calls that were sent once.
    pub rtt_mean_ms: f64,
    /// Jain's index of fairness over the mobiles' rates: 1 is fair.
    pub jain: f64,
    /// When the last mobile was done.
    pub last_done_s: f64,
    /// NULL calls into silences, for each copy.
    pub probes: f64,
    /// Copies that failed or were given up.
    pub failed: usize,
    /// Round-trip time of somebody else's calls beside the copies, in ms.
    pub ping_ms: Option<f64>,
    /// What the competitor got, as a part of what all flows together got, divided by the number of flows: 1 is fair.
    pub competitor_share: Option<f64>,
    /// With `transport` auto: the part of the copies that ended over TCP, and changes of transport for each copy.
    pub ended_over_tcp: Option<f64>,
    /// See there.
    pub transport_changes: Option<f64>,
}

impl Row {
    /// Sums up the runs of a plan with seeds from `seed` on.
    pub fn new(plan: &Plan, samples: &Samples, seed: u64) -> Self {
        let (good_ms, bad_ms, distribution) = match &plan.room.link.channel.periods {
            Periods::AlwaysGood => (None, Some(0.0), "none".to_owned()),
            Periods::Drawn { good, bad } => {
                let ms = |it: std::time::Duration| Some(it.as_secs_f64() * 1e3);
                (ms(good.mean), ms(bad.mean), bad.shape.to_string())
            }
            Periods::Trace(_) => (None, None, "trace".to_owned()),
        };
        let responses = samples.responses();
        let (over, over_edge) = (samples.over_limit(), samples.over_edge_limit());
        let each =
            |value: &dyn Fn(&crate::Run) -> f64| mean(&samples.runs.iter().map(value).collect::<Vec<_>>());
        let copies = || samples.runs.iter().flat_map(|run| &run.copies);
        let done: Vec<f64> = samples.runs.iter().filter_map(|it| Some(it.last_done?.as_secs_f64())).collect();
        let mean_s = mean(&responses);
        let is_auto = plan.transport == Transport::Auto;
        let per_copy = |value: &dyn Fn(&crate::Copy) -> f64| mean(&copies().map(value).collect::<Vec<_>>());
        Self {
            op: plan.operation.name(),
            room: plan.room.name.clone(),
            bad_ms,
            good_ms,
            distribution,
            block: match plan.block {
                BlockSize::Auto { .. } => OrAuto::Auto,
                BlockSize::Exact(bytes) => OrAuto::Number(bytes),
            },
            window: match plan.window {
                Window::Auto => OrAuto::Auto,
                Window::Calls(calls) => OrAuto::Number(calls),
            },
            transport: plan.transport.name(),
            policy: policy_name(plan.policy),
            arq: plan.room.link.arq.kind.name(),
            scheduler: plan.room.link.queue.scheduler.name(),
            clients: plan.clients,
            runs: samples.runs.len() as u32,
            seed,
            mean_s,
            min_s: responses.iter().copied().fold(f64::NAN, f64::min),
            max_s: highest(&responses),
            ci95_s: confidence(&responses),
            limit_s: each(&|run| run.limit.physical.as_secs_f64()),
            edge_limit_s: each(&|run| run.limit.edge_aware.as_secs_f64()),
            over_limit_pct: mean(&over),
            over_edge_limit_pct: mean(&over_edge),
            resends_per_call: samples.resends_per_call(),
            spurious_resends_per_call: samples.spurious_resends_per_call(),
            goodput_bps: plan.size as f64 * 8.0 / mean_s,
            worst_over_limit_pct: highest(&over),
            worst_over_edge_limit_pct: highest(&over_edge),
            rtt_mean_ms: mean(&copies().map(|copy| copy.rtt_mean.as_secs_f64() * 1e3).collect::<Vec<_>>()),
            jain: each(&jain),
            last_done_s: mean(&done),
            probes: mean(&copies().map(|copy| copy.probes as f64).collect::<Vec<_>>()),
            failed: samples.failed(),
            ping_ms: plan.ping.map(|_| {
                let pings = samples.runs.iter().flat_map(|run| &run.pings);
                mean(&pings.map(|it| it.as_secs_f64() * 1e3).collect::<Vec<_>>())
            }),
            ended_over_tcp: is_auto
                .then(|| per_copy(&|it| f64::from(u8::from(it.transport == Protocol::Tcp)))),
            transport_changes: is_auto.then(|| per_copy(&|it| f64::from(it.transport_changes))),
            competitor_share: plan.competitor.then(|| each(&|run| competitor_share(plan, run))),
        }
    }

    /// Whether the link retransmits.
    pub fn has_arq(&self) -> bool {
        self.arq != ArqKind::None.name()
    }
}

/// The name of a policy, as on the command line.
pub const fn policy_name(policy: RetryPolicy) -> &'static str {
    match policy {
        RetryPolicy::Adaptive => "adaptive",
        RetryPolicy::Hybrid { .. } => "hybrid",
        RetryPolicy::Exponential { .. } => "exponential",
        RetryPolicy::Kernel { .. } => "kernel",
        _ => "unknown",
    }
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

fn competitor_share(plan: &Plan, run: &crate::Run) -> f64 {
    let (Some(competitor), Some(done)) = (run.competitor_rate, run.last_done) else { return f64::NAN };
    let ours = plan.size as f64 * run.copies.len() as f64 / done.as_secs_f64();
    competitor / (ours + competitor) * (run.copies.len() + 1) as f64
}

/// Jain, Chiu and Hawe 1984: (Σx)² / (n·Σx²) over the rates of the copies that ended.
fn jain(run: &crate::Run) -> f64 {
    let rates = || run.copies.iter().filter_map(|copy| Some(1.0 / copy.response?.as_secs_f64()));
    let (sum, squares) = (rates().sum::<f64>(), rates().map(|rate| rate * rate).sum::<f64>());
    sum * sum / (rates().count() as f64 * squares)
}
