//! What the two ways to run a link in real time share: the loop, its clock, a timer that keeps it, and how late it was.

mod alarm;
mod lateness;
mod running;

use std::time::Instant;

pub use self::lateness::Lateness;
pub(crate) use self::running::{Batch, Ends, Remote, Running};
use crate::Snapshot;

/// Datagrams or packets read from a descriptor in one go.
pub(crate) const BATCH: usize = 64;

pub(crate) fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The counters of a link in real time as one JSON object; `own` are the fields of its frame.
pub(crate) fn to_json(link: &Snapshot, own: &str, lateness: &Lateness) -> String {
    let states: Vec<String> = link.states.iter().map(|state| format!("\"{}\"", state.name())).collect();
    format!(
        "{{\"channel_time_s\":{:.6},\"states\":[{}],\"queue_packets\":{:?},{own},\"lateness\":{},\"link\":{}}}",
        link.channel_time.as_secs_f64(),
        states.join(","),
        link.queue_packets,
        lateness.to_json(),
        link.stats.to_json(),
    )
}
