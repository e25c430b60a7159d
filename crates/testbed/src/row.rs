//! One row of a sweep: what one point of a response-time curve came out as.

use std::fmt;

use linkemu::Periods;
use nfs_wireless_client::{BlockSize, RetryPolicy, Window};
use serde::{Serialize, Serializer};

use crate::{Plan, Samples, confidence, mean};

/// A number, or what the client chose by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// The client chose.
    #[default]
    Auto,
    /// Fixed by the experiment.
    Fixed(u32),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Fixed(number) => fmt::Display::fmt(number, f),
        }
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(number) => serializer.serialize_u32(*number),
        }
    }
}

/// One point of a sweep, over all its runs. The fields are those of a JSON row, in this order.
///
/// A number that does not exist (the mean response time when every run failed) is NaN here, `null` in JSON and empty in
/// CSV.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// `read` or `write`.
    pub op: String,
    /// The room's name.
    pub room: String,
    /// Mean length of a bad period, in milliseconds.
    pub bad_ms: f64,
    /// Mean length of a good period, in milliseconds.
    pub good_ms: f64,
    /// How the lengths of periods are distributed.
    pub distribution: String,
    /// Bytes of file data in a READ or WRITE.
    pub block: Choice,
    /// Calls in flight, at most.
    pub window: Choice,
    /// The client's retransmission policy.
    pub policy: String,
    /// Retransmission on the link.
    pub arq: String,
    /// How the base station chooses whom to send to.
    pub scheduler: String,
    /// Mobile hosts that copy at the same time.
    pub clients: u32,
    /// Runs that the row is about; failed ones included.
    pub runs: u32,
    /// Seed of the first run; the i-th uses `seed + i`.
    pub seed: u64,
    /// Mean response time of the runs that did not fail, in seconds.
    pub mean_s: f64,
    /// Shortest response time, in seconds.
    pub min_s: f64,
    /// Longest response time, in seconds.
    pub max_s: f64,
    /// Half width of the 95 % confidence interval of `mean_s`, in seconds.
    pub ci95_s: f64,
    /// Mean of the runs' physical limits, in seconds.
    pub limit_s: f64,
    /// Mean of the runs' limits with one datagram lost at the edge of each bad period, in seconds.
    pub edge_limit_s: f64,
    /// Mean over the runs of 100 · (response time / limit − 1), paired.
    pub over_limit_pct: f64,
    /// The same over the edge-aware limit.
    pub over_edge_limit_pct: f64,
    /// Attempts after the first, for each call.
    pub resends_per_call: f64,
    /// Attempts after the first though an earlier attempt's reply arrived, for each call.
    pub useless_resends_per_call: f64,
    /// File bits a second.
    pub goodput_bps: f64,
    /// Largest `over_limit_pct` of one run.
    pub worst_over_limit_pct: f64,
    /// Largest `over_edge_limit_pct` of one run.
    pub worst_over_edge_limit_pct: f64,
    /// Mean round-trip time that the client measured, in milliseconds.
    pub rtt_mean_ms: f64,
    /// Jain's fairness index over the clients' response times: 1 if all are equal.
    pub jain: f64,
    /// When the last client was done, in seconds.
    pub last_done_s: f64,
    /// NULL calls sent to probe the link, a run.
    pub probes: f64,
    /// Copies that failed or were given up.
    pub failed: u32,
}

impl Row {
    /// What `samples` of a plan came out as; `seed` is that of the first run.
    pub fn new(plan: &Plan, seed: u64, samples: &Samples) -> Self {
        let channel = &plan.room.link.channel;
        let (bad_ms, good_ms, distribution) = match &channel.periods {
            Periods::AlwaysGood => (0.0, f64::NAN, "none".to_owned()),
            Periods::Drawn { good, bad } => {
                (1e3 * bad.mean.as_secs_f64(), 1e3 * good.mean.as_secs_f64(), bad.shape.to_string())
            }
            Periods::Trace(_) => (f64::NAN, f64::NAN, "trace".to_owned()),
        };
        let copies = || samples.runs.iter().flat_map(|run| &run.copies);
        let responses = samples.responses();
        let (over_limit, over_edge_limit) = (samples.over_limit(), samples.over_edge_limit());
        let each_run =
            |number: fn(&crate::Run) -> f64| mean(&samples.runs.iter().map(number).collect::<Vec<_>>());
        let goodput: Vec<f64> = responses.iter().map(|seconds| 8.0 * plan.size as f64 / seconds).collect();
        let last_done: Vec<f64> =
            samples.runs.iter().filter_map(|run| run.last_done).map(|it| it.as_secs_f64()).collect();
        let rtt: Vec<f64> = copies().map(|copy| 1e3 * copy.rtt_mean.as_secs_f64()).collect();
        Self {
            op: plan.operation.name().to_owned(),
            room: plan.room.name.clone(),
            bad_ms,
            good_ms,
            distribution,
            block: match plan.block {
                BlockSize::Exact(bytes) => Choice::Fixed(bytes),
                BlockSize::Auto { .. } => Choice::Auto,
            },
            window: match plan.window {
                Window::Calls(calls) => Choice::Fixed(calls),
                Window::Auto => Choice::Auto,
            },
            policy: policy_name(&plan.policy).to_owned(),
            arq: plan.room.link.arq.kind.name().to_owned(),
            scheduler: plan.room.link.queue.scheduler.name().to_owned(),
            clients: plan.clients.into(),
            runs: u32::try_from(samples.runs.len()).unwrap_or(u32::MAX),
            seed,
            mean_s: mean(&responses),
            min_s: responses.iter().copied().fold(f64::NAN, f64::min),
            max_s: responses.iter().copied().fold(f64::NAN, f64::max),
            ci95_s: confidence(&responses),
            limit_s: each_run(|run| run.limit.physical.as_secs_f64()),
            edge_limit_s: each_run(|run| run.limit.edge_aware.as_secs_f64()),
            over_limit_pct: mean(&over_limit),
            over_edge_limit_pct: mean(&over_edge_limit),
            resends_per_call: samples.resends_per_call(),
            useless_resends_per_call: samples.useless_resends_per_call(),
            goodput_bps: mean(&goodput),
            worst_over_limit_pct: over_limit.iter().copied().fold(f64::NAN, f64::max),
            worst_over_edge_limit_pct: over_edge_limit.iter().copied().fold(f64::NAN, f64::max),
            rtt_mean_ms: mean(&rtt),
            jain: each_run(jain),
            last_done_s: mean(&last_done),
            probes: copies().map(|copy| copy.probes).sum::<u64>() as f64 / samples.runs.len() as f64,
            failed: u32::try_from(samples.failed()).unwrap_or(u32::MAX),
        }
    }
}

/// The name of a policy on the command line.
pub(crate) const fn policy_name(policy: &RetryPolicy) -> &'static str {
    match policy {
        RetryPolicy::Exponential { .. } => "exponential",
        RetryPolicy::Hybrid { .. } => "hybrid",
        RetryPolicy::Kernel { .. } => "kernel",
        _ => "adaptive",
    }
}

/// Jain's index of the response times of a run's copies: (Σx)² / (n Σx²).
fn jain(run: &crate::Run) -> f64 {
    let times: Vec<f64> =
        run.copies.iter().filter_map(|copy| copy.response).map(|it| it.as_secs_f64()).collect();
    let (sum, squares) = (times.iter().sum::<f64>(), times.iter().map(|time| time * time).sum::<f64>());
    sum * sum / (times.len() as f64 * squares)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row with a number of its own in every field.
    pub(crate) fn example() -> Row {
        Row {
            op: "read".to_owned(),
            room: "modern".to_owned(),
            bad_ms: 80.0,
            good_ms: 1000.0,
            distribution: "uniform".to_owned(),
            block: Choice::Fixed(4096),
            window: Choice::Auto,
            policy: "hybrid".to_owned(),
            arq: "none".to_owned(),
            scheduler: "fifo".to_owned(),
            clients: 1,
            runs: 10,
            seed: 1,
            mean_s: 13.84,
            min_s: 10.53,
            max_s: 26.73,
            ci95_s: 0.4,
            limit_s: 9.98,
            edge_limit_s: 10.31,
            over_limit_pct: 38.0,
            over_edge_limit_pct: 34.2,
            resends_per_call: 0.138,
            useless_resends_per_call: 0.0,
            goodput_bps: 606_000.0,
            worst_over_limit_pct: 161.1,
            worst_over_edge_limit_pct: 150.0,
            rtt_mean_ms: 114.0,
            jain: 1.0,
            last_done_s: 13.84,
            probes: 0.0,
            failed: 0,
        }
    }

    #[test]
    fn json_has_the_documented_fields_in_order() {
        let value = serde_json::to_value(example()).expect("plain values");
        let fields: Vec<&str> = value.as_object().expect("a struct").keys().map(String::as_str).collect();
        let documented = "op room bad_ms good_ms distribution block window policy arq scheduler clients runs seed mean_s min_s \
                          max_s ci95_s limit_s edge_limit_s over_limit_pct over_edge_limit_pct resends_per_call \
                          useless_resends_per_call goodput_bps worst_over_limit_pct worst_over_edge_limit_pct rtt_mean_ms jain \
                          last_done_s probes failed";
        assert_eq!(fields, documented.split_whitespace().collect::<Vec<_>>());
        assert_eq!((value["block"].clone(), value["window"].clone()), (4096.into(), "auto".into()));
    }

    #[test]
    fn row_of_runs_says_what_they_were_and_what_they_took() {
        let mut plan = Plan::new(crate::Room::named("modern").expect("a room"));
        plan.policy = RetryPolicy::exponential();
        plan.window = Window::Calls(1);
        plan.clients = 2;
        let samples = crate::sweep(&[plan.clone()], 7, 2, &|_| true)
            .expect("a valid plan")
            .remove(0)
            .expect("all runs");
        let row = Row::new(&plan, 7, &samples);
        assert_eq!((row.op.as_str(), row.policy.as_str(), row.arq.as_str()), ("read", "exponential", "none"));
        assert_eq!((row.block, row.window), (Choice::Fixed(4096), Choice::Fixed(1)));
        assert_eq!((row.clients, row.runs, row.seed, row.failed), (2, 2, 7, 0));
        assert!(row.jain > 0.99 && row.jain <= 1.0, "{}", row.jain);
        assert!(row.min_s <= row.mean_s && row.mean_s <= row.max_s && row.max_s <= row.last_done_s + 1e-9);
        assert!((row.over_limit_pct - 100.0 * (row.last_done_s / row.limit_s - 1.0)).abs() < 1.0);
    }

    #[test]
    fn missing_number_is_null() {
        let row = Row { mean_s: f64::NAN, ..example() };
        assert!(serde_json::to_value(row).expect("plain values")["mean_s"].is_null());
    }
}
