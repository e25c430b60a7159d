//! All copies of one program in one cell, summed up.

use std::collections::BTreeSet;

use serde::Serialize;
use testbed::mean;

use crate::trial::{Outcome, Trial};

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) cell: String,
    pub(crate) program: String,
    pub(crate) congestion: String,
    pub(crate) runs: usize,
    /// Copies that ended with an error, were stopped, or are not right.
    pub(crate) failed: usize,
    pub(crate) stopped: usize,
    pub(crate) broken: usize,
    /// Over the copies that are right, in seconds; none of no such copy.
    pub(crate) mean_s: Option<f64>,
    pub(crate) worst_s: Option<f64>,
    /// What the channels allowed, over all copies.
    pub(crate) limit_s: f64,
    /// Time over the limit of the same seed.
    pub(crate) times_limit: Option<f64>,
    pub(crate) worst_times_limit: Option<f64>,
    /// The same over the edge-aware limit.
    pub(crate) times_edge_limit: Option<f64>,
    /// Copies over a link that was late to the end.
    pub(crate) late: usize,
    pub(crate) ping_ms: Option<f64>,
    /// The git trees of crates/ that were measured.
    pub(crate) trees: Vec<String>,
}

impl Row {
    /// Sums up copies of the same kind.
    pub(crate) fn of(trials: &[&Trial]) -> Option<Self> {
        let first = trials.first()?;
        let count = |outcome| trials.iter().filter(|trial| trial.outcome == outcome).count();
        let right = || trials.iter().filter(|trial| trial.outcome == Outcome::Intact);
        let over = |value: &dyn Fn(&Trial) -> f64| {
            let values: Vec<f64> = right().map(|trial| value(trial)).collect();
            let worst = values.iter().copied().reduce(f64::max);
            (worst.map(|_| mean(&values)), worst)
        };
        let (mean_s, worst_s) = over(&|trial| trial.seconds);
        let (times_limit, worst_times_limit) = over(&|trial| trial.seconds / trial.limit_s);
        let (times_edge_limit, _) = over(&|trial| trial.seconds / trial.edge_limit_s);
        let limits: Vec<f64> = trials.iter().map(|trial| trial.limit_s).collect();
        let pings: Vec<f64> = right().filter_map(|trial| trial.ping_ms).collect();
        let trees: BTreeSet<&String> = trials.iter().map(|trial| &trial.tree).collect();
        Some(Self {
            cell: first.cell.clone(),
            program: first.program.clone(),
            congestion: first.congestion.clone(),
            runs: trials.len(),
            failed: count(Outcome::Failed),
            stopped: count(Outcome::Stopped),
            broken: count(Outcome::Broken),
            mean_s,
            worst_s,
            limit_s: mean(&limits),
            times_limit,
            worst_times_limit,
            times_edge_limit,
            late: trials.iter().filter(|trial| trial.late).count(),
            ping_ms: (!pings.is_empty()).then(|| mean(&pings)),
            trees: trees.into_iter().cloned().collect(),
        })
    }

    /// Program and congestion control.
    pub(crate) fn contender(&self) -> String {
        format!("{} {}", self.program, self.congestion).trim_end().to_owned()
    }

    /// Copies that are not right, for whatever reason.
    pub(crate) fn lost(&self) -> usize {
        self.failed + self.stopped + self.broken
    }

    /// Whether every copy is right.
    pub(crate) fn whole(&self) -> bool {
        self.lost() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(seconds: f64, outcome: Outcome) -> Trial {
        Trial {
            cell: "lan-50ms/3%/none/read".into(),
            program: "nfs-cp".into(),
            congestion: "bbr".into(),
            seed: 1,
            size: 1,
            tree: String::new(),
            seconds,
            outcome,
            limit_s: 2.0,
            edge_limit_s: 2.5,
            late_ms: 0.1,
            pause_ms: 0.0,
            late: false,
            repeated: 0,
            ping_ms: None,
        }
    }

    #[test]
    fn times_are_those_of_copies_that_are_right() {
        let trials = [
            trial(3.0, Outcome::Intact),
            trial(5.0, Outcome::Intact),
            trial(300.0, Outcome::Stopped),
            trial(0.1, Outcome::Broken),
        ];
        let row = Row::of(&trials.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((row.mean_s, row.worst_s, row.times_limit), (Some(4.0), Some(5.0), Some(2.0)));
        assert_eq!((row.runs, row.stopped, row.broken, row.lost(), row.whole()), (4, 1, 1, 2, false));
        let none = Row::of(&[&trials[2]]).unwrap();
        assert_eq!((none.mean_s, none.times_limit), (None, None));
    }
}
