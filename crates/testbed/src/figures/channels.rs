//! Channels whose rate changes: drawn from a seed, and recorded.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use linkemu::{LinkConfig, Preset};
use nfs_proto::config::BlockSize;

use super::{
    Experiment, Panel,
    targets::{AUTO, Check, OPERATIONS, Target, least, most, plan},
};
use crate::{Error, Plan, Row, Transport};

/// Names of the experiments, which no report of the papers' figures holds.
pub(super) const CELLULAR: &str = "cellular";
pub(super) const RECORDED: &str = "recorded";

/// Small blocks.
const SMALL: BlockSize = BlockSize::Exact(4096);

/// How long a copy takes at the mean rate of a recorded channel, at least.
const RECORDED_SECONDS: u64 = 30;

/// File bytes in each 1500 bytes that a channel offers, at most.
const DATA_OF_FRAME: (u64, u64) = (1472, 1500);

/// Returns the link files (`*.toml`) of a directory of recorded channels, in the order of their names.
///
/// # Errors
/// When the directory cannot be read.
pub fn link_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<PathBuf>> = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect();
    let mut files = entries?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

/// Copies over links of preset `cellular`, one for each seed.
pub(super) fn cellular() -> Result<Experiment, Error> {
    let link = Preset::named("cellular")?.config();
    let plans = copies("modern", &link, 16 << 20)?;
    let checks = vec![
        most("over the limit (%)", |rows| rows[0].over_limit_pct, 4.0),
        most("worst seed over its limit (%)", |rows| rows[0].worst_over_limit_pct, 12.0),
        failed(),
    ];
    let targets = vec![Target { case: "16 MiB, preset cellular".into(), plans, checks }];
    Ok(experiment(CELLULAR, "Copies over cellular links drawn from the seed", targets))
}

/// Copies of half a minute over recorded channels.
///
/// # Errors
/// [`Error`] when one of the links cannot be.
pub(super) fn recorded(channels: &[(String, LinkConfig)]) -> Result<Experiment, Error> {
    let mut all = Vec::new();
    let mut targets = Vec::new();
    for (name, link) in channels {
        let rate = link.rate.mean();
        let offered = rate.bits_per_second() / 8 * RECORDED_SECONDS;
        let size = (offered * DATA_OF_FRAME.0 / DATA_OF_FRAME.1).max(1);
        let plans = copies("lan-50ms", link, size)?;
        all.extend(plans.iter().map(|(operation, plan)| (format!("{name}, {operation}"), plan.clone())));
        let checks = vec![most("over the limit (%)", |rows| rows[0].over_limit_pct, 10.0), failed()];
        targets.push(Target { case: name.clone(), plans, checks });
    }
    let median = Check { step: all.len(), ..most("median over the limit (%)", median_over_limit, 3.0) };
    targets.push(Target { case: "all of them".into(), plans: all, checks: vec![median] });
    let title = "Copies of 30 s of data over recorded channels";
    Ok(experiment(RECORDED, title, targets))
}

/// The plans of an experiment of this file.
pub(super) fn plans_of(experiment: &Experiment) -> Vec<Plan> {
    let targets = experiment.panels.iter().filter_map(|panel| {
        let Panel::Targets(targets) = panel else { return None };
        Some(targets)
    });
    // The last case has the plans of all others.
    targets
        .filter_map(|targets| targets.last())
        .flat_map(|target| &target.plans)
        .map(|(_, plan)| plan.clone())
        .collect()
}

/// A copy each way over UDP with everything left to the client, with the transport left to it, too, and with small blocks, which make short queues.
fn copies(room: &str, link: &LinkConfig, size: u64) -> Result<Vec<(String, Plan)>, Error> {
    let ways =
        [("", Transport::Udp, AUTO), (", auto", Transport::Auto, AUTO), (", 4096 B", Transport::Udp, SMALL)];
    let mut copies = Vec::new();
    for (way, transport, block) in ways {
        for operation in OPERATIONS {
            let mut plan = plan(room, operation, block)?;
            (plan.room.link, plan.size, plan.transport) = (link.clone(), size, transport);
            copies.push((format!("{}{way}", operation.name()), plan));
        }
    }
    Ok(copies)
}

const fn failed() -> Check {
    least("copies that ended (%)", |rows| if rows[0].failed == 0 { 100.0 } else { 0.0 }, 100.0)
}

fn median_over_limit(rows: &[Row]) -> f64 {
    let mut over: Vec<f64> = rows.iter().map(|row| row.over_limit_pct).collect();
    over.sort_unstable_by(f64::total_cmp);
    let middle = over.len() / 2;
    if over.len().is_multiple_of(2) { f64::midpoint(over[middle - 1], over[middle]) } else { over[middle] }
}

fn experiment(name: &str, title: &str, targets: Vec<Target>) -> Experiment {
    Experiment {
        name: name.to_owned(),
        title: title.to_owned(),
        items: Vec::new(),
        remarks: Vec::new(),
        panels: vec![Panel::Targets(targets)],
    }
}
