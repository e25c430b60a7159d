//! Results as plots: curves over the mean fade for the papers' link, bars for the others.

use std::{fs, path::Path};

use linkemu::ArqKind;
use testbed::{
    Operation,
    plot::{Axis, Look, Plot, Point, Series},
};

use crate::{
    cell::{Beside, Cell, Fades, PAPER},
    summary::Row,
};

/// Who is shown: program and congestion control.
const SHOWN: [(&str, &str); 6] = [
    ("nfsw", "bbr"),
    ("nfsw", "cubic"),
    ("nfs-cp", "bbr"),
    ("nfs-cp", "cubic"),
    ("rsync", "bbr"),
    ("papers", ""),
];
/// Bars end here: some would leave no room for the others.
const MOST_TIMES_LIMIT: f64 = 10.0;

/// Writes every plot for which there are rows, as SVG and PNG.
pub(crate) fn write(directory: &Path, all: &[Cell], rows: &[Row]) -> anyhow::Result<()> {
    let cells: Vec<Cell> = all
        .iter()
        .copied()
        .filter(|cell| cell.beside == Beside::Nothing && rows.iter().any(|row| row.cell == cell.to_string()))
        .collect();
    for operation in [Operation::Read, Operation::Write] {
        for arq in [ArqKind::None, ArqKind::StopAndWait, ArqKind::SelectiveRepeat] {
            let (slow, fast): (Vec<&Cell>, Vec<&Cell>) = cells
                .iter()
                .filter(|cell| cell.operation == operation && cell.arq == arq)
                .partition(|cell| cell.link == PAPER);
            for (name, plot) in [(PAPER, curves(&slow, rows)), ("fast", bars(&fast, rows))] {
                if plot.series.iter().all(|series| series.points.is_empty()) {
                    continue;
                }
                let path = directory.join(format!("{name}-{arq}-{}", operation.name()));
                fs::write(path.with_extension("svg"), plot.svg()?)?;
                fs::write(path.with_extension("png"), plot.png()?)?;
            }
        }
    }
    Ok(())
}

fn find<'a>(rows: &'a [Row], cell: &Cell, (program, congestion): (&str, &str)) -> Option<&'a Row> {
    let name = cell.to_string();
    rows.iter().find(|row| row.cell == name && row.program == program && row.congestion == congestion)
}

fn title(cells: &[&Cell], what: &str) -> String {
    cells.first().map_or_else(String::new, |cell| {
        let arq = if cell.arq == ArqKind::None { "no ARQ".to_owned() } else { cell.arq.to_string() };
        format!("{what}, {}, {arq}", cell.operation.name())
    })
}

fn curves(cells: &[&Cell], rows: &[Row]) -> Plot {
    let fade = |cell: &Cell| match cell.fades {
        Fades::None => Some(0.0),
        Fades::Bad(mean) => Some(mean as f64),
        Fades::Outages | Fades::Loss(_) | Fades::Recorded(_) | Fades::Good(_) | Fades::Random(_) => None,
    };
    let points = |value: &dyn Fn(&Cell) -> Option<Point>| -> Vec<Point> {
        cells.iter().filter_map(|cell| value(cell)).collect()
    };
    let mut series = Vec::new();
    for (number, shown) in SHOWN.into_iter().enumerate() {
        let point = |cell: &Cell| {
            let row = find(rows, cell, shown)?;
            let y = row.mean_s?;
            Some(Point {
                x: fade(cell)?,
                y,
                whisker: row.worst_s.filter(|worst| *worst > y).map(|worst| (y, worst)),
            })
        };
        let name = format!("{} {}", shown.0, shown.1).trim_end().to_owned();
        series.push(Series { name, look: Look::Curve(number), points: points(&point) });
    }
    let limit = |cell: &Cell| {
        let row = rows.iter().find(|row| row.cell == cell.to_string())?;
        Some(Point::at(fade(cell)?, row.limit_s))
    };
    series.push(Series { name: "limit".into(), look: Look::Limit, points: points(&limit) });
    series.retain(|series| !series.points.is_empty());
    Plot {
        title: title(cells, "1 MB at 1 Mbit/s"),
        subtitle: "mean of all seeds, whiskers to the worst; real programs behind the same link".into(),
        x: Axis::linear("mean bad period (ms)"),
        y: Axis::linear("time of the whole command (s)"),
        series,
        groups: Vec::new(),
    }
}

fn bars(cells: &[&Cell], rows: &[Row]) -> Plot {
    let mut series = Vec::new();
    for (number, shown) in SHOWN.into_iter().enumerate() {
        let bar = |(place, cell): (usize, &&Cell)| {
            Some(Point::at(place as f64, find(rows, cell, shown)?.times_limit?.min(MOST_TIMES_LIMIT)))
        };
        let name = format!("{} {}", shown.0, shown.1).trim_end().to_owned();
        let points: Vec<Point> = cells.iter().enumerate().filter_map(bar).collect();
        series.push(Series { name, look: Look::Curve(number), points });
    }
    series.retain(|series| !series.points.is_empty());
    Plot {
        title: title(cells, "16 MB over faster links"),
        subtitle: format!("mean of all seeds; bars end at {MOST_TIMES_LIMIT} times the limit"),
        x: Axis::default(),
        y: Axis { max: Some(MOST_TIMES_LIMIT), ..Axis::linear("time of the whole command over the limit") },
        series,
        groups: cells.iter().map(|cell| format!("{}\n{}", cell.link, cell.fades)).collect(),
    }
}
