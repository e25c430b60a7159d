//! Rows of a user's own sweep as a figure.

use super::{
    Figure, FigureRow, Table,
    number::{decimals, percent},
};
use crate::{
    OrAuto, Row,
    plot::{Axis, Look, Plot, Point, Scale, Series},
};

/// The name of figures that repeat nobody's.
pub(crate) const OWN: &str = "curve";

/// What may differ between the rows of a sweep, beside the place on the horizontal axis.
const WORDS: [fn(&Row) -> String; 8] = [
    |row| row.op.to_owned(),
    |row| row.policy.to_owned(),
    |row| row.arq.to_owned(),
    |row| format!("block {}", row.block),
    |row| format!("window {}", row.window),
    |row| row.bad_ms.map_or_else(String::new, |bad| format!("bad {bad} ms")),
    |row| format!("{} clients", row.clients),
    |row| row.scheduler.to_owned(),
];

/// The number behind one horizontal axis.
type Number = fn(&Row) -> Option<f64>;

/// Numbers that may be the horizontal axis, the first that differs is; and which of [`WORDS`] says the same.
const AXES: [(&str, Scale, usize, Number); 4] = [
    ("mean bad period (ms)", Scale::Linear, 5, |row| row.bad_ms),
    ("block (bytes)", Scale::PowersOfTwo, 3, |row| fixed(row.block)),
    ("window (calls)", Scale::PowersOfTwo, 4, |row| fixed(row.window)),
    ("clients", Scale::Linear, 6, |row| Some(row.clients.into())),
];

fn fixed(choice: OrAuto) -> Option<f64> {
    match choice {
        OrAuto::Auto => None,
        OrAuto::Number(number) => Some(number.into()),
    }
}

/// The rows of a sweep as a figure of one plot: curves over the first number that differs, with one curve for everything
/// else that does; bars if nothing that has an axis differs.
pub fn free(rows: &[Row]) -> Figure {
    let differs = |word: &fn(&Row) -> String| rows.windows(2).any(|pair| word(&pair[0]) != word(&pair[1]));
    let axis = AXES.iter().find(|(_, _, _, number)| {
        rows.iter().all(|row| number(row).is_some())
            && rows.windows(2).any(|it| number(&it[0]) != number(&it[1]))
    });
    let words = WORDS
        .iter()
        .enumerate()
        .filter(|(index, word)| differs(word) && axis.is_none_or(|(_, _, same, _)| same != index));
    let words: Vec<_> = words.map(|(_, word)| word).collect();
    let name = |row: &Row| words.iter().map(|word| word(row)).collect::<Vec<_>>().join(", ");
    let first = rows.first();
    let mut plot = Plot {
        title: format!("Response times in room {}", first.map_or("", |row| row.room.as_str())),
        subtitle: first.map_or_else(String::new, |row| {
            format!("{} runs a point from seed {}; whiskers: 95 % confidence", row.runs, row.seed)
        }),
        y: Axis::linear("response time (s)"),
        ..Plot::default()
    };
    let point = |x: f64, row: &Row| {
        let whisker = (row.mean_s - row.ci95_s, row.mean_s + row.ci95_s);
        Point { x, y: row.mean_s, whisker: (whisker.1 > whisker.0).then_some(whisker) }
    };
    match axis {
        Some((label, scale, _, number)) => {
            plot.x = Axis { label: (*label).to_owned(), scale: *scale, max: None };
            for row in rows {
                let point = point(number(row).unwrap_or_default(), row);
                let name = name(row);
                match plot.series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => {
                        let look = Look::Curve(plot.series.len());
                        plot.series.push(Series { name, look, points: vec![point] });
                    }
                }
            }
        }
        None => {
            plot.groups = rows.iter().map(|row| name(row).replace(", ", "\n")).collect();
            let points = rows.iter().enumerate().map(|(place, row)| point(place as f64, row)).collect();
            plot.series.push(Series { name: String::new(), look: Look::Curve(2), points });
        }
    }
    let table = table(&plot.title, rows, &name);
    let rows = rows.iter().map(|row| {
        let x = axis.and_then(|(_, _, _, number)| number(row)).unwrap_or_default();
        FigureRow { x, ..FigureRow::measured(OWN, &plot.title, &name(row), row.clone()) }
    });
    Figure {
        name: OWN.to_owned(),
        title: plot.title.clone(),
        source: plot.subtitle.clone(),
        says: Vec::new(),
        remarks: Vec::new(),
        tables: vec![table],
        rows: rows.collect(),
        events: Vec::new(),
        plots: vec![plot],
    }
}

fn table(title: &str, rows: &[Row], name: &dyn Fn(&Row) -> String) -> Table {
    let header =
        ["", "mean bad period (ms)", "mean (s)", "± 95 %", "min–max", "limit (s)", "over limit", "given up"];
    let cells = |row: &Row| {
        vec![
            name(row),
            row.bad_ms.map_or_else(String::new, |bad| bad.to_string()),
            decimals(row.mean_s, 2),
            decimals(row.ci95_s, 2),
            format!("{}–{}", decimals(row.min_s, 2), decimals(row.max_s, 2)),
            decimals(row.limit_s, 2),
            percent(row.over_limit_pct, 1),
            row.failed.to_string(),
        ]
    };
    Table {
        title: title.to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.iter().map(cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use nfs_proto::config::{BlockSize, RetryPolicy};

    use super::*;
    use crate::{Plan, Room, sweep};

    fn row(policy: RetryPolicy, bad_ms: u64, block: u32) -> Row {
        let mut plan = Plan::new(Room::named("modern").expect("a room"));
        plan.room.link.channel.set_bad_mean(std::time::Duration::from_millis(bad_ms));
        plan.policy = policy;
        plan.block = BlockSize::Exact(block);
        plan.size = 64 << 10;
        let samples = sweep(&[plan.clone()], 1, 2, &|_| true).expect("a valid plan").remove(0);
        Row::new(&plan, &samples.expect("not interrupted"), 1)
    }

    #[test]
    fn axis_is_what_differs_and_curves_are_the_rest() {
        let (hybrid, kernel) = (RetryPolicy::hybrid(), RetryPolicy::kernel());
        let rows = [row(hybrid, 0, 4096), row(hybrid, 80, 4096), row(kernel, 0, 4096), row(kernel, 80, 4096)];
        let figure = free(&rows);
        let plot = &figure.plots[0];
        assert_eq!(plot.x.label, "mean bad period (ms)");
        let names: Vec<&str> = plot.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!((names, plot.series[1].points.len()), (vec!["hybrid", "kernel"], 2));
        assert_eq!(free(&[row(hybrid, 0, 1024), row(hybrid, 0, 4096)]).plots[0].x.label, "block (bytes)");
    }

    #[test]
    fn without_a_number_that_differs_there_are_bars() {
        let rows = [RetryPolicy::hybrid(), RetryPolicy::kernel()].map(|policy| row(policy, 40, 4096));
        assert_eq!(free(&rows).plots[0].groups, ["hybrid", "kernel"]);
        assert!(free(&rows[..1]).plots[0].svg().is_ok());
    }
}
