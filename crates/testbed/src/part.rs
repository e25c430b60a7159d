//! A part of a sweep as lines of text, and all parts as the sweep again: many machines run it, and one shows it.
//!
//! The first line says which sweep it is, and how many lines follow; each of these has what a [`Row`](crate::Row) takes of one run.
//! Durations are whole nanoseconds, so that the rows come out as if one process had run everything.

use std::{collections::BTreeSet, time::Duration};

use nfs_proto::{engine::Resends, transfer::Limits};
use nfs_wire::portmap::Protocol;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Copy, Limit, Run, Samples, tcp::TcpStats};

/// Which sweep something is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What stands for its plans.
    pub options: String,
    /// The number of its plans.
    pub points: usize,
    /// Runs of each plan.
    pub runs: u32,
    /// The first seed.
    pub seed: u64,
}

/// Why parts are no sweep.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PartError {
    /// It is something else.
    #[error("line {line}: is not what --shard prints")]
    Syntax {
        /// The first line that is, counted from 1.
        line: usize,
    },
    /// Lines are missing.
    #[error("ends early: it has {found} of {lines} runs")]
    Short {
        /// Lines that it has.
        found: usize,
        /// Lines that it should have.
        lines: usize,
    },
    /// It is of another sweep.
    #[error("is part of another sweep; repeat the options that its parts were made with")]
    OtherSweep,
    /// Other parts are needed.
    #[error("{missing} of {all} runs are in none of the files, which are the parts {parts}")]
    Incomplete {
        /// Runs that no part has.
        missing: usize,
        /// Runs of the sweep.
        all: usize,
        /// The parts that there are.
        parts: String,
    },
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    sweep: Sweep,
    part: String,
    lines: usize,
}

/// One run.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    point: usize,
    seed: u64,
    copies: Vec<CopyLine>,
    last_done_ns: Option<u64>,
    limit_ns: u64,
    edge_limit_ns: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pings_ns: Vec<u64>,
    /// In digits that give the same number again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    competitor_rate: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyLine {
    started_ns: u64,
    response_ns: Option<u64>,
    calls: u64,
    /// By reason, in the order of [`Resends`].
    resends: [u64; 5],
    probes: u64,
    spurious_resends: u64,
    rtt_mean_ns: u64,
    reconnections: u64,
    is_over_tcp: bool,
    transport_changes: u32,
}

/// The parts of a sweep that were read so far.
#[derive(Debug)]
pub struct Parts {
    sweep: Sweep,
    /// The runs of each plan, by their places in the order of seeds.
    runs: Vec<Vec<Option<Run>>>,
    names: BTreeSet<String>,
}

/// Writes what the plans of a sweep have shown in one part of it.
pub fn part_lines(sweep: &Sweep, part: &str, samples: &[Samples]) -> String {
    let lines = samples.iter().map(|samples| samples.runs.len()).sum();
    let head = Head { sweep: sweep.clone(), part: part.to_owned(), lines };
    let mut text = line(&head);
    for (point, samples) in samples.iter().enumerate() {
        for run in &samples.runs {
            text += &line(&Line::of(point, run));
        }
    }
    text
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has text, numbers and lists only") + "\n"
}

impl Parts {
    /// Begins without any.
    pub fn new(sweep: Sweep) -> Self {
        let runs = vec![vec![None; sweep.runs as usize]; sweep.points];
        Self { sweep, runs, names: BTreeSet::new() }
    }

    /// Adds what [`part_lines`] has written; the same part may come twice.
    ///
    /// # Errors
    /// It is something else, of another sweep, or not complete.
    pub fn add(&mut self, text: &str) -> Result<(), PartError> {
        let mut lines = text.split_inclusive('\n').enumerate();
        let syntax = |index: usize| PartError::Syntax { line: index + 1 };
        let (_, first) = lines.next().ok_or_else(|| syntax(0))?;
        let head: Head = serde_json::from_str(first).map_err(|_| syntax(0))?;
        if head.sweep != self.sweep {
            return Err(PartError::OtherSweep);
        }
        let mut found = 0;
        // What was written last may have been cut off.
        for (index, line) in lines.filter(|(_, line)| line.ends_with('\n')) {
            let line: Line = serde_json::from_str(line).map_err(|_| syntax(index))?;
            let place = usize::try_from(line.seed.wrapping_sub(self.sweep.seed));
            let place = place.map_err(|_| syntax(index))?;
            let run = self.runs.get_mut(line.point).and_then(|runs| runs.get_mut(place));
            *run.ok_or_else(|| syntax(index))? = Some(line.run().ok_or_else(|| syntax(index))?);
            found += 1;
        }
        if found != head.lines {
            return Err(PartError::Short { found, lines: head.lines });
        }
        self.names.insert(head.part);
        Ok(())
    }

    /// Returns the runs of each plan.
    ///
    /// # Errors
    /// Parts are missing.
    pub fn finish(self) -> Result<Vec<Samples>, PartError> {
        let all = self.runs.iter().map(Vec::len).sum();
        let missing = self.runs.iter().flatten().filter(|run| run.is_none()).count();
        if missing > 0 {
            let parts = self.names.into_iter().collect::<Vec<_>>().join(", ");
            return Err(PartError::Incomplete { missing, all, parts });
        }
        let samples =
            self.runs.into_iter().map(|runs| Samples { runs: runs.into_iter().flatten().collect() });
        Ok(samples.collect())
    }
}

/// In virtual time nothing lasts for 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Line {
    fn of(point: usize, run: &Run) -> Self {
        Self {
            point,
            seed: run.seed,
            copies: run.copies.iter().map(CopyLine::of).collect(),
            last_done_ns: run.last_done.map(nanoseconds),
            limit_ns: nanoseconds(run.limit.physical),
            edge_limit_ns: nanoseconds(run.limit.edge_aware),
            pings_ns: run.pings.iter().copied().map(nanoseconds).collect(),
            competitor_rate: run.competitor_rate.map(|rate| rate.to_string()),
        }
    }

    /// Returns the run, with what rows take of it; `None` where a number is none.
    fn run(self) -> Option<Run> {
        let competitor_rate = match self.competitor_rate {
            Some(rate) => Some(rate.parse().ok()?),
            None => None,
        };
        Some(Run {
            seed: self.seed,
            copies: self.copies.into_iter().map(CopyLine::copy).collect(),
            last_done: self.last_done_ns.map(Duration::from_nanos),
            limit: Limit {
                physical: Duration::from_nanos(self.limit_ns),
                edge_aware: Duration::from_nanos(self.edge_limit_ns),
            },
            pings: self.pings_ns.into_iter().map(Duration::from_nanos).collect(),
            competitor_rate,
            tcp: TcpStats::NONE,
            link: linkemu::Stats::default(),
        })
    }
}

impl CopyLine {
    fn of(copy: &Copy) -> Self {
        let Resends { timeout, rack, probe, hedge, reconnect, .. } = copy.resends;
        Self {
            started_ns: nanoseconds(copy.started),
            response_ns: copy.response.map(nanoseconds),
            calls: copy.calls,
            resends: [timeout, rack, probe, hedge, reconnect],
            probes: copy.probes,
            spurious_resends: copy.spurious_resends,
            rtt_mean_ns: nanoseconds(copy.rtt_mean),
            reconnections: copy.reconnections,
            is_over_tcp: copy.transport == Protocol::Tcp,
            transport_changes: copy.transport_changes,
        }
    }

    fn copy(self) -> Copy {
        let mut resends = Resends::default();
        [resends.timeout, resends.rack, resends.probe, resends.hedge, resends.reconnect] = self.resends;
        Copy {
            started: Duration::from_nanos(self.started_ns),
            response: self.response_ns.map(Duration::from_nanos),
            calls: self.calls,
            resends,
            probes: self.probes,
            spurious_resends: self.spurious_resends,
            rtt_mean: Duration::from_nanos(self.rtt_mean_ns),
            limits: Limits::default(),
            reconnections: self.reconnections,
            transport: if self.is_over_tcp { Protocol::Tcp } else { Protocol::Udp },
            transport_changes: self.transport_changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Room, Row, json_lines, sweep, sweep_part};

    fn plans() -> Vec<Plan> {
        let plan = Plan { size: 16 << 10, ..Plan::new(Room::named("modern").unwrap()) };
        let competing = Plan { competitor: true, clients: 2, ..plan.clone() };
        vec![plan, competing]
    }

    fn sweep_of(runs: u32) -> Sweep {
        Sweep { options: "options".to_owned(), points: 2, runs, seed: 7 }
    }

    fn part(runs: u32, number: u32, count: u32) -> String {
        let indexes: Vec<u32> = (0..runs).filter(|index| index % count == number).collect();
        let samples = sweep_part(&plans(), 7, &indexes, &|_| true).unwrap();
        part_lines(&sweep_of(runs), &number.to_string(), &samples.into_iter().flatten().collect::<Vec<_>>())
    }

    fn rows(samples: &[Samples]) -> String {
        let rows: Vec<_> =
            plans().iter().zip(samples).map(|(plan, samples)| Row::new(plan, samples, 7)).collect();
        json_lines(&rows)
    }

    #[test]
    fn parts_are_the_sweep_of_one_process() {
        let whole: Vec<_> = sweep(&plans(), 7, 3, &|_| true).unwrap().into_iter().flatten().collect();
        // More parts than runs: one has nothing.
        for count in [1, 2, 4] {
            let mut parts = Parts::new(sweep_of(3));
            for number in (0..count).rev() {
                parts.add(&part(3, number, count)).unwrap();
            }
            // A job may run twice.
            parts.add(&part(3, 0, count)).unwrap();
            assert_eq!(rows(&parts.finish().unwrap()), rows(&whole), "{count}");
        }
    }

    #[test]
    fn what_is_missing_or_of_another_sweep_is_told() {
        let text = part(2, 1, 2);
        let read = |text: &str| Parts::new(sweep_of(2)).add(text);
        assert_eq!(read(&part(3, 1, 2)), Err(PartError::OtherSweep));
        let cut = &text[..text.len() - 1];
        assert_eq!(read(cut), Err(PartError::Short { found: 1, lines: 2 }));
        for wrong in ["", "nonsense\n"] {
            assert_eq!(read(wrong), Err(PartError::Syntax { line: 1 }), "{wrong:?}");
        }
        let other_point = text.replace("\"point\":1", "\"point\":2");
        assert_eq!(read(&other_point), Err(PartError::Syntax { line: 3 }));
        let mut parts = Parts::new(sweep_of(2));
        parts.add(&text).unwrap();
        let error = parts.finish().unwrap_err().to_string();
        assert_eq!(error, "2 of 4 runs are in none of the files, which are the parts 1");
    }
}
