//! From runs to plots and tables.

use std::time::Duration;

use crate::{
    Error, Plan, Row, Run, Samples,
    listing::list,
    plot::{Axis, Look, Plot, Point, Scale, Series},
    published::{Fact, Library},
    trace::{TraceEvent, TraceKind, trace},
};

use super::{
    Curve, Curves, Experiment, Figure, FigureEvent, FigureRow, Limit, Listing, Panel, Pick, Published,
    Results, RoundTrips, Sequence, Table, Throughput, headers,
    number::{decimals, percent},
    targets::{Bound, Target},
};

/// An experiment's plots and tables; `None` if not a single point of it was run.
pub(super) fn figure(
    experiment: &Experiment,
    library: &Library,
    results: &Results,
) -> Result<Option<Figure>, Error> {
    let items: Vec<_> = experiment.items.iter().filter_map(|name| library.item(name)).collect();
    let citation =
        experiment.items.first().and_then(|name| library.paper_of(name)).map(|it| it.citation.as_str());
    let places: Vec<&str> = items.iter().map(|item| item.place.as_str()).collect();
    let facts: Vec<Fact> = items.iter().flat_map(|item| item.facts.clone()).collect();
    let mut figure = Figure {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        source: match citation {
            Some(citation) => format!("{}. {citation}.", places.join("; ")),
            None => "docs/experiments.md".to_owned(),
        },
        says: items.iter().flat_map(|item| item.says.clone()).collect(),
        remarks: experiment.remarks.clone(),
        plots: Vec::new(),
        tables: Vec::new(),
        rows: Vec::new(),
        events: Vec::new(),
    };
    for panel in &experiment.panels {
        match panel {
            Panel::Curves(panel) => curves(panel, results, &mut figure),
            Panel::Sequence(panel) => sequence(panel, results, &facts, &mut figure)?,
            Panel::Listing(panel) => listing(panel, results.seed, &mut figure)?,
            Panel::Mounted(panel) => panel.show(results.seed, &mut figure)?,
            Panel::Headers(panel) => headers::show(panel, results.seed, &facts, &mut figure)?,
            Panel::Targets(panel) => targets(panel, results, &mut figure),
            Panel::Ablation(panel) => panel.show(results, &mut figure),
        }
    }
    Ok((!figure.tables.is_empty()).then_some(figure))
}

/// Every case with its worst point, and whether that is good enough.
fn targets(panel: &[Target], results: &Results, figure: &mut Figure) {
    let mut table = Table {
        title: "Of the points of a case the worst is shown.".to_owned(),
        header: ["", "", "ours", "reach", "", "worst at"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    for target in panel {
        let row = |(_, plan): &(String, Plan)| Some(Row::new(plan, results.of(plan)?, results.seed));
        let rows: Vec<Option<Row>> = target.plans.iter().map(row).collect();
        for (index, check) in target.checks.iter().enumerate() {
            let mut worst: Option<(f64, &str)> = None;
            for (points, (name, _)) in rows.chunks(check.step).zip(target.plans.iter().step_by(check.step)) {
                let Some(points) = points.iter().cloned().collect::<Option<Vec<Row>>>() else { continue };
                let value = (check.value)(&points);
                if worst.is_none_or(|(other, _)| check.bound.is_worse(value, other) || value.is_nan()) {
                    worst = Some((value, name));
                }
            }
            let Some((value, place)) = worst else { continue };
            let (reach, verdict) = match check.bound {
                Bound::Most(bound) => (format!("≤ {bound}"), check.bound.holds(value)),
                Bound::Least(bound) => (format!("≥ {bound}"), check.bound.holds(value)),
                Bound::None => (String::new(), true),
            };
            table.rows.push(vec![
                if index == 0 { target.case.clone() } else { String::new() },
                check.what.to_owned(),
                format!("{value:.2}"),
                reach,
                if verdict { "yes" } else { "NO" }.to_owned(),
                place.to_owned(),
            ]);
        }
        for ((series, _), row) in target.plans.iter().zip(rows) {
            let Some(row) = row else { continue };
            figure.rows.push(FigureRow::measured(&figure.name, &target.case, series, row));
        }
    }
    if !table.rows.is_empty() {
        figure.tables.push(table);
    }
}

/// A point of a curve: place, ours if it was run, theirs if it was published.
struct Measured {
    x: f64,
    row: Option<Row>,
    published: Option<Published>,
}

fn measured(curve: &Curve, results: &Results) -> Vec<Measured> {
    let measured = |(x, plan): &(f64, _)| Measured {
        x: *x,
        row: results.of(plan).map(|samples| Row::new(plan, samples, results.seed)),
        published: curve.published.iter().find(|it| it.x == *x).copied(),
    };
    curve.plans.iter().map(measured).collect()
}

fn curves(panel: &Curves, results: &Results, figure: &mut Figure) {
    let bars = !panel.groups.is_empty();
    let all: Vec<(&Curve, Vec<Measured>)> =
        panel.curves.iter().map(|curve| (curve, measured(curve, results))).collect();
    let mut plot = Plot {
        title: panel.title.clone(),
        subtitle: panel.subtitle.clone(),
        x: panel.x.clone(),
        y: Axis::linear("response time (s)"),
        series: Vec::new(),
        groups: panel.groups.clone(),
    };
    for (curve, points) in &all {
        let ours = points.iter().filter_map(|point| Some((point.x, point.row.as_ref()?))).map(|(x, row)| {
            let ci = row.ci95_s;
            let whisker = if bars { (row.min_s, row.max_s) } else { (row.mean_s - ci, row.mean_s + ci) };
            Point { x, y: row.mean_s, whisker: (whisker.1 > whisker.0).then_some(whisker) }
        });
        let series =
            Series { name: curve.name.clone(), look: Look::Curve(curve.style), points: ours.collect() };
        plot.series.push(series);
    }
    if panel.limit == Limit::Shown {
        let limit = all.first().map(|(_, points)| points.as_slice()).unwrap_or_default();
        let points = limit.iter().filter_map(|it| Some(Point::at(it.x, it.row.as_ref()?.limit_s))).collect();
        plot.series.push(Series { name: "physical limit".to_owned(), look: Look::Limit, points });
    }
    for (curve, _) in all.iter().filter(|(curve, _)| !curve.published.is_empty()) {
        let theirs =
            curve.published.iter().map(|it| Point { x: it.x, y: it.mean, whisker: it.min.zip(it.max) });
        let (name, style) = if bars {
            ("published".to_owned(), 0)
        } else {
            (format!("{}, published", curve.name), curve.style)
        };
        plot.series.push(Series { name, look: Look::Published(style), points: theirs.collect() });
    }
    if !all.iter().any(|(_, points)| points.iter().any(|point| point.row.is_some())) {
        return;
    }
    figure.tables.push(table(panel, &all));
    for (curve, points) in all {
        for (x, published, row) in points.into_iter().filter_map(|it| Some((it.x, it.published, it.row?))) {
            figure.rows.push(FigureRow {
                figure: figure.name.clone(),
                panel: panel.title.clone(),
                series: curve.name.clone(),
                x,
                published_min_s: published.and_then(|it| it.min),
                published_mean_s: published.map(|it| it.mean),
                published_max_s: published.and_then(|it| it.max),
                row,
            });
        }
    }
    figure.plots.push(plot);
}

fn table(panel: &Curves, all: &[(&Curve, Vec<Measured>)]) -> Table {
    let published = all.iter().any(|(curve, _)| !curve.published.is_empty());
    let x = if panel.groups.is_empty() { panel.x.label.as_str() } else { "" };
    let mut header = vec!["", x, "mean (s)", "± 95 %", "min–max", "limit (s)", "over limit"];
    if published {
        header.extend(["published (s)", "min–max", "ours / published"]);
    }
    let mut rows = Vec::new();
    for (curve, points) in all {
        for point in points {
            let Some(row) = &point.row else { continue };
            let place = panel
                .groups
                .get(point.x as usize)
                .map_or_else(|| number(point.x), |it| it.replace('\n', " "));
            let mut cells = vec![
                curve.name.clone(),
                place,
                note(decimals(row.mean_s, 1), row.failed),
                decimals(row.ci95_s, 1),
                span(row.min_s, row.max_s),
                decimals(row.limit_s, 1),
                percent(row.over_limit_pct, 0),
            ];
            if published {
                cells.extend(match point.published {
                    Some(theirs) => [
                        decimals(theirs.mean, 1),
                        theirs.min.zip(theirs.max).map_or_else(String::new, |(min, max)| span(min, max)),
                        decimals(row.mean_s / theirs.mean, 2),
                    ],
                    None => [const { String::new() }; 3],
                });
            }
            rows.push(cells);
        }
    }
    Table { title: panel.title.clone(), header: header.into_iter().map(str::to_owned).collect(), rows }
}

fn note(mean: String, failed: usize) -> String {
    if failed == 0 { mean } else { format!("{mean} ({failed} given up)") }
}

fn span(min: f64, max: f64) -> String {
    format!("{}–{}", decimals(min, 1), decimals(max, 1))
}

fn number(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

/// One mobile's copy in a sequence plot.
struct Lane<'a> {
    name: String,
    events: Vec<&'a TraceEvent>,
    seconds: Option<f64>,
    size: u64,
    /// The physical limit of a copy that had the line for itself, in seconds.
    limit: Option<f64>,
}

impl Lane<'_> {
    fn count(&self, kind: TraceKind) -> usize {
        self.events.iter().filter(|event| event.event == kind).count()
    }

    fn most_attempts(&self) -> usize {
        let mut attempts = std::collections::BTreeMap::<u64, usize>::new();
        let sends =
            self.events.iter().filter(|it| matches!(it.event, TraceKind::Sent | TraceKind::SentAgain));
        sends.for_each(|event| *attempts.entry(event.packet).or_default() += 1);
        attempts.into_values().max().unwrap_or(0)
    }

    /// Blocks that were received, each counted once.
    fn received(&self) -> usize {
        let packets = self.events.iter().filter(|it| it.event == TraceKind::Received).map(|it| it.packet);
        packets.collect::<std::collections::BTreeSet<_>>().len()
    }
}

fn sequence(panel: &Sequence, results: &Results, facts: &[Fact], figure: &mut Figure) -> Result<(), Error> {
    let Some(seed) = seed(panel, results) else { return Ok(()) };
    let mut runs: Vec<(&str, u64, Run, Vec<TraceEvent>)> = Vec::new();
    for (name, plan) in &panel.lanes {
        let (run, events) = trace(plan, seed)?;
        runs.push((name, plan.size, run, events));
    }
    let mut lanes = Vec::new();
    for (name, size, run, events) in &runs {
        for (mobile, copy) in run.copies.iter().enumerate() {
            let name = match (run.copies.len(), mobile) {
                (1, _) => (*name).to_owned(),
                (_, 0) => "first transfer".to_owned(),
                (2, _) => "second transfer".to_owned(),
                _ => continue,
            };
            let events = events.iter().filter(|event| usize::from(event.mobile) == mobile).collect();
            let seconds = copy.response.map(|it| it.as_secs_f64());
            let limit = (run.copies.len() == 1).then_some(run.limit.physical.as_secs_f64());
            lanes.push(Lane { name, events, seconds, size: *size, limit });
        }
    }
    let plot = |y: &str, series| Plot {
        title: panel.title.clone(),
        subtitle: panel.subtitle.clone(),
        x: Axis { label: "time (s)".to_owned(), scale: Scale::Linear, max: None },
        y: Axis::linear(y),
        series,
        groups: Vec::new(),
    };
    figure.plots.push(plot("packet number", sequence_series(&lanes)));
    if panel.round_trips == RoundTrips::Shown {
        let marks = lanes.iter().enumerate().map(|(index, lane)| Series {
            name: format!("{}: replies", lane.name),
            look: Look::Marks(2 * index + 2),
            points: lane.events.iter().filter_map(|it| Some(Point::at(it.time_s, 1e3 * it.rtt_s?))).collect(),
        });
        figure.plots.push(plot("since the call was first sent (ms)", marks.collect()));
    }
    figure.tables.push(facts_table(panel, &lanes, facts));
    for lane in &lanes {
        figure.events.extend(lane.events.iter().map(|&event| FigureEvent {
            figure: figure.name.clone(),
            series: lane.name.clone(),
            event: event.clone(),
        }));
    }
    Ok(())
}

fn seed(panel: &Sequence, results: &Results) -> Option<u64> {
    if panel.seed == Pick::First {
        return Some(results.seed);
    }
    let samples: &Samples = results.of(&panel.lanes.first()?.1)?;
    let mut runs: Vec<&Run> = samples.runs.iter().collect();
    runs.sort_by_key(|run| run.last_done);
    runs.get(runs.len() / 2).map(|run| run.seed)
}

fn sequence_series(lanes: &[Lane<'_>]) -> Vec<Series> {
    let marks = |lane: &Lane<'_>, name: String, kind: TraceKind, style: usize| Series {
        name,
        look: Look::Marks(style),
        points: lane
            .events
            .iter()
            .filter(|event| event.event == kind)
            .map(|event| Point::at(event.time_s, event.packet as f64))
            .collect(),
    };
    let series: Vec<Series> = match lanes {
        [lane] => vec![
            marks(lane, "received".to_owned(), TraceKind::Received, 2),
            marks(lane, "lost".to_owned(), TraceKind::Lost, 4),
            marks(lane, "sent again".to_owned(), TraceKind::SentAgain, 1),
            marks(lane, "sent".to_owned(), TraceKind::Sent, 0),
        ],
        _ => lanes
            .iter()
            .zip([(0, 1), (2, 3)])
            .flat_map(|(lane, (sent, again))| {
                [
                    marks(lane, format!("{}: sent", lane.name), TraceKind::Sent, sent),
                    marks(lane, format!("{}: sent again", lane.name), TraceKind::SentAgain, again),
                ]
            })
            .collect(),
    };
    series.into_iter().filter(|series| !series.points.is_empty()).collect()
}

fn listing(panel: &Listing, seed: u64, figure: &mut Figure) -> Result<(), Error> {
    let mut plot = Plot {
        title: panel.title.clone(),
        subtitle: panel.subtitle.clone(),
        x: Axis::linear("time (s)"),
        y: Axis::linear("entries listed"),
        series: Vec::new(),
        groups: Vec::new(),
    };
    let mut rows = Vec::new();
    for (style, (name, plan, how)) in panel.lanes.iter().enumerate() {
        let entries = list(plan, *how, panel.entries, seed)?;
        let quiet = list(&Plan { outages: Vec::new(), ..plan.clone() }, *how, panel.entries, seed)?;
        let end = |entries: &[Duration]| {
            let all = entries.len() as u64 == u64::from(panel.entries);
            entries.last().filter(|_| all).map_or(f64::NAN, Duration::as_secs_f64)
        };
        let (with, without) = (end(&entries), end(&quiet));
        let outages = plan.outages.iter().filter(|outage| outage.at.as_secs_f64() < with);
        let dark = outages.map(|outage| outage.length).sum::<Duration>().as_secs_f64();
        rows.push(vec![
            name.clone(),
            decimals(without, 2),
            decimals(with, 2),
            decimals(dark, 1),
            decimals((with - without - dark).max(0.0), 2),
        ]);
        let points =
            entries.iter().zip(1_u32..).map(|(at, number)| Point::at(at.as_secs_f64(), number.into()));
        plot.series.push(Series { name: name.clone(), look: Look::Marks(style), points: points.collect() });
    }
    let header = ["", "undisturbed (s)", "disturbed (s)", "disconnected (s)", "lost beyond that (s)"];
    figure.tables.push(Table {
        title: panel.title.clone(),
        header: header.map(str::to_owned).to_vec(),
        rows,
    });
    figure.plots.push(plot);
    Ok(())
}

fn facts_table(panel: &Sequence, lanes: &[Lane<'_>], facts: &[Fact]) -> Table {
    let goodput = |lane: &Lane<'_>| lane.seconds.map(|seconds| 8.0 * lane.size as f64 / seconds);
    let (unit, per_unit) = match panel.throughput {
        Throughput::Bits => ("bit/s", 1.0),
        Throughput::Kilobytes => ("KB/s", 8000.0),
    };
    type Value<'a> = Box<dyn Fn(&Lane<'_>) -> String + 'a>;
    let ours: [(&str, &str, Value<'_>); 7] = [
        ("packets needed", "packets", Box::new(|lane| lane.count(TraceKind::Sent).to_string())),
        ("packets received", "packets", Box::new(|lane| lane.received().to_string())),
        (
            "packets sent",
            "packets",
            Box::new(|lane| (lane.count(TraceKind::Sent) + lane.count(TraceKind::SentAgain)).to_string()),
        ),
        ("sent again", "packets", Box::new(|lane| lane.count(TraceKind::SentAgain).to_string())),
        ("most attempts of one packet", "packets", Box::new(|lane| lane.most_attempts().to_string())),
        (
            "throughput",
            unit,
            Box::new(|lane| {
                goodput(lane).map_or_else(|| "not finished".to_owned(), |bits| decimals(bits / per_unit, 1))
            }),
        ),
        (
            "share of the line",
            "%",
            Box::new(|lane| {
                let share = lane.limit.zip(lane.seconds).map(|(limit, seconds)| 100.0 * limit / seconds);
                share.map_or_else(String::new, |share| decimals(share, 0))
            }),
        ),
    ];
    let mut used = vec![false; facts.len()];
    let mut rows = Vec::new();
    for (what, unit, value) in &ours {
        let mut row = vec![(*what).to_owned(), (*unit).to_owned()];
        row.extend(lanes.iter().map(value));
        let mut theirs = Vec::new();
        for (fact, used) in facts.iter().zip(&mut used) {
            let of_lane = lanes.iter().find(|lane| fact.what == format!("{what}, {}", lane.name));
            if fact.unit == *unit && (fact.what == *what || of_lane.is_some()) {
                let lane = of_lane.map_or_else(String::new, |lane| format!(" ({})", lane.name));
                theirs.push(format!("{}{lane}", number(fact.value)));
                *used = true;
            }
        }
        row.push(theirs.join(", "));
        rows.push(row);
    }
    for (fact, _) in facts.iter().zip(&used).filter(|(_, used)| !**used) {
        let mut row = vec![fact.what.clone(), fact.unit.clone()];
        row.extend(lanes.iter().map(|_| String::new()));
        row.push(number(fact.value));
        rows.push(row);
    }
    let mut header = vec![String::new(), "unit".to_owned()];
    header.extend(lanes.iter().map(|lane| lane.name.clone()));
    header.push("published".to_owned());
    Table { title: panel.title.clone(), header, rows }
}
