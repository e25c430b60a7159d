//! Many seeds of one plan, in parallel over the processors.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::{Error, Plan, Run, run};

/// The runs of one plan, in the order of their seeds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// One for each seed.
    pub runs: Vec<Run>,
}

/// Runs every plan with the seeds `seed..seed + runs`, in parallel over all processors.
///
/// `done` is told after every run how many are done, and says whether to go on; when it does not, the plans that are
/// complete by then are returned, and `None` for the others.
///
/// # Errors
/// The first [`Error`] of any plan.
pub fn sweep(
    plans: &[Plan],
    seed: u64,
    runs: u32,
    done: &(dyn Fn(usize) -> bool + Sync),
) -> Result<Vec<Option<Samples>>, Error> {
    sweep_part(plans, seed, &(0..runs).collect::<Vec<_>>(), done)
}

/// As [`sweep()`], with some of the seeds: `seed + index` for each of the `indexes`.
///
/// # Errors
/// The first [`Error`] of any plan.
pub fn sweep_part(
    plans: &[Plan],
    seed: u64,
    indexes: &[u32],
    done: &(dyn Fn(usize) -> bool + Sync),
) -> Result<Vec<Option<Samples>>, Error> {
    let runs = indexes.len();
    for plan in plans {
        plan.check()?;
    }
    let total = plans.len() * runs;
    let (next, finished, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let worker = || {
        let mut results = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= total {
                break;
            }
            let (plan, index) = (job / runs, indexes[job % runs]);
            let result = run(&plans[plan], seed.wrapping_add(index.into()));
            if result.is_err() || !done(finished.fetch_add(1, Ordering::Relaxed) + 1) {
                stopped.store(true, Ordering::Relaxed);
            }
            results.push((job, result));
        }
        results
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(total.max(1));
    let mut results: Vec<(usize, Result<Run, Error>)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|it| it.join().expect("a worker that panics is a bug")).collect()
    });
    results.sort_unstable_by_key(|(job, _)| *job);
    let mut samples = vec![Samples::default(); plans.len()];
    for (job, result) in results {
        samples[job / runs].runs.push(result?);
    }
    Ok(samples.into_iter().map(|it| (it.runs.len() == runs).then_some(it)).collect())
}

impl Samples {
    /// Response times of all copies that ended, in seconds, in the order of seeds and mobiles.
    pub fn responses(&self) -> Vec<f64> {
        let copies = self.runs.iter().flat_map(|run| &run.copies);
        copies.filter_map(|copy| copy.response.map(|it| it.as_secs_f64())).collect()
    }

    /// Copies that failed or were given up.
    pub fn failed(&self) -> usize {
        self.runs.iter().flat_map(|run| &run.copies).filter(|copy| copy.response.is_none()).count()
    }

    /// How far above the physical limit each complete run ended, in per cent.
    pub fn over_limit(&self) -> Vec<f64> {
        self.over(|run| run.limit.physical)
    }

    /// How far above the edge-aware limit each complete run ended, in per cent.
    pub fn over_edge_limit(&self) -> Vec<f64> {
        self.over(|run| run.limit.edge_aware)
    }

    fn over(&self, limit: impl Fn(&Run) -> Duration) -> Vec<f64> {
        let over = |run: &Run| Some(100.0 * (run.last_done?.as_secs_f64() / limit(run).as_secs_f64() - 1.0));
        self.runs.iter().filter_map(over).collect()
    }

    /// Resends per call, over all copies.
    pub fn resends_per_call(&self) -> f64 {
        self.per_call(|copy| copy.resends.total())
    }

    /// Spurious retransmissions per call, over all copies.
    pub fn spurious_resends_per_call(&self) -> f64 {
        self.per_call(|copy| copy.spurious_resends)
    }

    fn per_call(&self, count: impl Fn(&crate::Copy) -> u64) -> f64 {
        let copies = || self.runs.iter().flat_map(|run| &run.copies);
        let calls: u64 = copies().map(|copy| copy.calls).sum();
        copies().map(count).sum::<u64>() as f64 / calls.max(1) as f64
    }
}

/// The mean of some numbers; NaN of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the width of the 95 % confidence interval of the mean: 1.96 standard errors; 0 for fewer than two values.
pub fn confidence(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let (mean, count) = (mean(values), values.len() as f64);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    1.96 * (variance / count).sqrt()
}
