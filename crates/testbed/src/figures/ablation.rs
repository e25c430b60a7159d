//! What the rules of the adaptive policy are worth: the policy without each of them, on channels that it was tuned on and on others.

use std::time::Duration;

use linkemu::{ArqKind, LinkConfig, Shape};
use nfs_proto::{config::BlockSize, engine::Tuning};

use super::{
    Experiment, Figure, FigureRow, Panel, Results, Table, channels,
    targets::{self, AUTO, OPERATIONS, plan, with_bad},
};
use crate::{Error, Plan, Row};

/// The name of the experiment, which no report of the papers' figures holds.
pub(super) const NAME: &str = "ablation";

/// What is switched off, and how.
type Variant = (&'static str, fn(&mut Tuning));

const VARIANTS: [Variant; 8] = [
    ("all of it", |_| {}),
    ("no tail-loss probes", |it| it.loss.tail_loss_rtt = Duration::MAX),
    ("no longer PTO where the link retransmits", |it| it.probes.arq_pto = Duration::ZERO),
    ("startup without reply spacings", |it| it.path.spacings = 0),
    ("windows not rounded to blocks", |it| it.window.rounded_from = f64::INFINITY),
    ("min_rtt believed for 10 s whatever it is", |it| it.path.min_rtt_round_trips = 0),
    ("ProbeRTT at 85 % of the path whatever its size", |it| it.window.narrow_blocks = 0),
    ("no pacing", |it| it.pacing.burst_bytes = f64::INFINITY),
];

/// Sets of plans, and every variant's plans for each set.
#[derive(Clone, Debug)]
pub(super) struct Ablation {
    sets: [&'static str; 4],
    variants: Vec<(&'static str, [Vec<Plan>; 4])>,
}

impl Ablation {
    pub(super) fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.variants.iter().flat_map(|(_, sets)| sets.iter().flatten())
    }

    /// Mean time over the limit of each set, of each variant the difference from that of all rules, and the mean share that competitors get.
    pub(super) fn show(&self, results: &Results, figure: &mut Figure) {
        let mut table = Table {
            title: "Mean time over the limit in %; below, by how many points it changes without a rule."
                .to_owned(),
            header: [""].into_iter().chain(self.sets).chain(["TCP's share (%)"]).map(str::to_owned).collect(),
            rows: Vec::new(),
        };
        let mut whole: Option<Vec<f64>> = None;
        for (name, sets) in &self.variants {
            let row = |plan: &Plan| Some(Row::new(plan, results.of(plan)?, results.seed));
            let rows: Option<Vec<Vec<Row>>> =
                sets.iter().map(|plans| plans.iter().map(row).collect()).collect();
            let Some(rows) = rows else { continue };
            let over: Vec<f64> =
                rows.iter().map(|rows| mean(rows.iter().map(|it| it.over_limit_pct))).collect();
            let share = mean(rows.iter().flatten().filter_map(|it| it.competitor_share)) * 100.0;
            let cells: Vec<String> = match &whole {
                None => over.iter().map(|over| format!("{over:.2}")).collect(),
                Some(whole) => {
                    over.iter().zip(whole).map(|(over, whole)| format!("{:+.2}", over - whole)).collect()
                }
            };
            whole.get_or_insert(over);
            table
                .rows
                .push([(*name).to_owned()].into_iter().chain(cells).chain([format!("{share:.0}")]).collect());
            for (set, rows) in self.sets.into_iter().zip(rows) {
                figure.rows.extend(rows.into_iter().map(|row| FigureRow::measured(NAME, set, name, row)));
            }
        }
        if !table.rows.is_empty() {
            figure.tables.push(table);
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// Every variant on the cases of `adaptive-targets` that leave the block to the client, on cellular links, recorded channels, and on links
/// with other periods and link layers.
pub(super) fn experiment(recorded: &[(String, LinkConfig)]) -> Result<Experiment, Error> {
    let tuned_on = targets::plans()?.into_iter().filter(|it| matches!(it.block, BlockSize::Auto { .. }));
    let sets = [
        tuned_on.collect(),
        channels::plans_of(&channels::cellular()?),
        channels::plans_of(&channels::recorded(recorded)?),
        others()?,
    ];
    let variants = VARIANTS.into_iter().map(|(name, change)| {
        let mut sets = sets.clone();
        sets.iter_mut().flatten().for_each(|plan| change(&mut plan.tuning));
        (name, sets)
    });
    let variants = variants.collect();
    Ok(Experiment {
        name: NAME.to_owned(),
        title: "The adaptive policy without each of its rules".to_owned(),
        items: Vec::new(),
        remarks: vec![
            "The cases of adaptive-targets are what the rules were tuned on; the other sets validate them.",
        ],
        panels: vec![Panel::Ablation(Box::new(Ablation {
            sets: ["adaptive-targets", "cellular", "recorded", "other links"],
            variants,
        }))],
    })
}

/// Other laws of fades, other mean periods, link-level retransmission, others on the link, fast links that lose.
fn others() -> Result<Vec<Plan>, Error> {
    let changes: [fn(&mut Plan); 7] = [
        |it| it.room.link.channel.set_shape(Shape::Exponential),
        |it| it.room.link.channel.set_shape(Shape::Deterministic),
        |it| it.room.link.channel.set_good_mean(Duration::from_millis(300)),
        |it| it.room.link.channel.set_good_mean(Duration::from_secs(4)),
        |it| (it.room.link.arq.kind, it.room.link.queue.packets) = (ArqKind::SelectiveRepeat, Some(50)),
        |it| it.room.link.arq.kind = ArqKind::StopAndWait,
        |it| it.clients = 3,
    ];
    let mut plans = Vec::new();
    for operation in OPERATIONS {
        for bad in [40, 120] {
            for change in changes {
                let mut plan = with_bad(plan("modern", operation, AUTO)?, bad);
                change(&mut plan);
                plans.push(plan);
            }
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_but_the_first_changes_something_of_its_own() {
        let mut seen = Vec::new();
        for (name, change) in VARIANTS {
            let mut tuning = Tuning::default();
            change(&mut tuning);
            assert!(!seen.contains(&tuning), "{name}");
            seen.push(tuning);
        }
        assert_eq!(seen[0], Tuning::default());
    }
}
