//! What nfsw is to reach against the others, and what it reaches.

use std::fmt::Write;

use testbed::{Operation, mean, run};

use crate::{
    cell::{Beside, Cell, Fades, PAPER},
    results::Results,
    summary::Row,
    trial::Outcome,
};

/// One judgement.
#[derive(Debug)]
struct Check {
    cell: String,
    what: String,
    bound: Bound,
    ours: f64,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Most(f64),
    Least(f64),
}

impl Check {
    fn passes(&self) -> bool {
        match self.bound {
            Bound::Most(bound) => self.ours <= bound,
            Bound::Least(bound) => self.ours >= bound,
        }
    }
}

/// The slowest nfsw may be, over the best program of a cell.
fn behind_best(cell: &Cell) -> f64 {
    match cell.fades {
        Fades::Good(_) | Fades::Random(_) if cell.beside == Beside::Nothing => 1.0,
        _ => 1.05,
    }
}
/// How far the mean may be from virtual time, as a share of it.
const APART: f64 = 0.03;

/// All targets for which there are results.
pub(crate) fn table(all: &[Cell], results: &Results, rows: &[Row]) -> anyhow::Result<String> {
    let mut checks = Vec::new();
    for cell in all {
        let name = cell.to_string();
        let here: Vec<&Row> = rows.iter().filter(|row| row.cell == name).collect();
        for ours in here.iter().filter(|row| row.program == "nfsw") {
            checks.extend(judge(results, cell, &here, ours));
        }
        if cell.beside == Beside::Ping {
            let ping = here.iter().find(|row| row.program == "nfsw-4096").and_then(|row| row.ping_ms);
            let what = "RTT of a ping beside nfsw --transport udp --block-size 4096 (ms)".to_owned();
            checks.extend(ping.map(|ours| Check {
                cell: name.clone(),
                what,
                bound: Bound::Most(120.0),
                ours,
            }));
        }
        checks.extend(virtual_time(cell, results)?);
    }
    let mut text = "| cell | what | target | ours | |\n|---|---|---|---|---|\n".to_owned();
    for check in &checks {
        let bound = match check.bound {
            Bound::Most(bound) => format!("≤ {bound}"),
            Bound::Least(bound) => format!("≥ {bound}"),
        };
        let verdict = if check.passes() { "pass" } else { "**fail**" };
        let digits = if check.ours < 10.0 { 3 } else { 1 };
        let _ = writeln!(
            text,
            "| {} | {} | {bound} | {:.digits$} | {verdict} |",
            check.cell, check.what, check.ours
        );
    }
    let passed = checks.iter().filter(|check| check.passes()).count();
    let _ = writeln!(text, "\n{passed} of {} reached.", checks.len());
    Ok(text)
}

/// One row of nfsw against those of the same cell.
fn judge(results: &Results, cell: &Cell, here: &[&Row], ours: &Row) -> Vec<Check> {
    let mut checks = Vec::new();
    let (name, control) = (cell.to_string(), ours.congestion.as_str());
    let mut check = |what: String, bound: Bound, value: Option<f64>| {
        checks.extend(value.map(|ours| Check { cell: name.clone(), what, bound, ours }));
    };
    // On equal seeds.
    let pair =
        |program: &str, congestion: &str| results.pair(&name, ("nfsw", control), (program, congestion));
    let against =
        |program: &str, congestion: &str| pair(program, congestion).map(|(ours, theirs)| ours / theirs);
    let gain =
        |program: &str, congestion: &str| pair(program, congestion).map(|(ours, theirs)| theirs / ours);
    if !ours.whole() {
        check(format!("copies of nfsw {control} that failed"), Bound::Most(0.0), Some(ours.lost() as f64));
    }
    let no_arq = cell.arq == linkemu::ArqKind::None;
    if cell.link == PAPER && no_arq && cell.beside != Beside::Ping {
        match cell.fades {
            Fades::None | Fades::Bad(40 | 80) => {
                let value = against("nfs-cp", control);
                check(
                    format!("nfsw {control}, wall time against nfs-cp {control}"),
                    Bound::Most(1.02),
                    value,
                );
            }
            Fades::Bad(_) => {
                check(format!("nfsw {control}, × limit"), Bound::Most(1.05), ours.times_limit);
                check(
                    format!("nfsw {control}, × limit, worst seed"),
                    Bound::Most(1.13),
                    ours.worst_times_limit,
                );
            }
            Fades::Outages => {
                check(format!("nfsw {control}, × limit"), Bound::Most(1.05), ours.times_limit);
                check(
                    format!("nfsw {control}, × limit, worst seed"),
                    Bound::Most(1.10),
                    ours.worst_times_limit,
                );
            }
            Fades::Loss(_) | Fades::Recorded(_) | Fades::Good(_) | Fades::Random(_) => {}
        }
        if matches!(cell.fades, Fades::Bad(_)) {
            let value = gain("papers", "");
            check(format!("nfsw {control}, times as fast as the papers' client"), Bound::Least(1.8), value);
        }
    }
    if cell.link == PAPER && cell.arq == linkemu::ArqKind::StopAndWait && matches!(cell.fades, Fades::Bad(_))
    {
        check(format!("nfsw {control}, × limit"), Bound::Most(1.04), ours.times_limit);
    }
    if no_arq && let Fades::Loss(per_cent) = cell.fades {
        let least = match (cell.link, per_cent, control) {
            ("wifi-54", 1, "bbr") => Some(1.0),
            ("wifi-54", 3, "bbr") => Some(1.1),
            ("wifi-54", 1, _) => Some(1.3),
            ("wifi-54", 3, _) => Some(1.6),
            ("lan-50ms", 3, "bbr") => Some(1.6),
            ("lan-50ms", 3, _) => Some(8.0),
            ("satellite-600", 3, "bbr") => Some(3.0),
            ("satellite-600", 3, _) => Some(10.0),
            _ => None,
        };
        if let Some(least) = least {
            let value = gain("nfs-cp", control);
            check(format!("nfsw {control}, times as fast as nfs-cp {control}"), Bound::Least(least), value);
        }
    }
    if let Fades::Recorded(_) = cell.fades {
        check(format!("nfsw {control}, × what the recording offers"), Bound::Most(1.10), ours.times_limit);
        let best = ["cubic", "bbr"].into_iter().filter_map(|other| against("nfs-cp", other));
        let value = best.reduce(f64::max);
        check(
            format!("nfsw {control}, wall time against nfs-cp, the better of cubic and bbr"),
            Bound::Most(1.0),
            value,
        );
        return checks;
    }
    // Others that had the same congestion control, or none.
    let others = here.iter().filter(|row| {
        row.whole() && !row.program.starts_with("nfsw") && [control, ""].contains(&row.congestion.as_str())
    });
    let best = others.min_by(|a, b| a.mean_s.unwrap_or(f64::MAX).total_cmp(&b.mean_s.unwrap_or(f64::MAX)));
    if cell.beside != Beside::Ping
        && let Some(best) = best
    {
        let what = format!("nfsw {control}, wall time against the best, {}", best.contender());
        check(what, Bound::Most(behind_best(cell)), against(&best.program, &best.congestion));
    }
    checks
}

/// Real time against virtual time, where this is our own UDP over the papers' link.
fn virtual_time(cell: &Cell, results: &Results) -> anyhow::Result<Option<Check>> {
    if cell.link != PAPER || cell.beside == Beside::Ping || cell.operation != Operation::Read {
        return Ok(None);
    }
    let name = cell.to_string();
    let ours = |trial: &&crate::trial::Trial| trial.cell == name && trial.program == "nfsw-udp";
    let (mut real, mut computed) = (Vec::new(), Vec::new());
    for trial in results.trials().filter(ours).filter(|trial| trial.outcome == Outcome::Intact) {
        let copy = run(&cell.plan(trial.size)?, trial.seed)?;
        if let Some(response) = copy.copies[0].response {
            real.push(trial.seconds);
            computed.push(response.as_secs_f64());
        }
    }
    if real.is_empty() {
        return Ok(None);
    }
    let apart = mean(&real) / mean(&computed) - 1.0;
    let what = format!(
        "nfsw --transport udp, {} seed{}: {:.2} s in real time, {:.2} s in virtual time, relative difference",
        real.len(),
        if real.len() == 1 { "" } else { "s" },
        mean(&real),
        mean(&computed)
    );
    Ok(Some(Check { cell: name, what, bound: Bound::Most(APART), ours: apart.abs() }))
}
