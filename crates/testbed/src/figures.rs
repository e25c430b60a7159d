//! Named experiments: the papers' figures and tables, run again, with the published numbers beside ours.

mod ablation;
mod channels;
mod dube;
mod free;
mod headers;
mod michalakis;
mod mounted;
mod number;
mod rx_hex;
mod show;
mod targets;

pub use channels::link_files;
pub(crate) use free::OWN;
pub use free::free;

use std::{collections::BTreeMap, fmt, iter};

use linkemu::LinkConfig;
use serde::Serialize;

use crate::{
    Error, Plan, Row, Samples,
    listing::Style,
    plot::{Axis, Plot},
    published::Library,
    sweep,
    trace::TraceEvent,
};

/// A figure or table of a paper as something that can be run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name on the command line, such as `1997-5`.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The items of the [`Library`] that it repeats.
    items: Vec<String>,
    /// What is known about differences between ours and theirs.
    remarks: Vec<&'static str>,
    panels: Vec<Panel>,
}

/// One plot and its table.
#[derive(Clone, Debug)]
enum Panel {
    Curves(Curves),
    Sequence(Sequence),
    Listing(Listing),
    Mounted(Box<mounted::Mounted>),
    Headers(Box<Headers>),
    Targets(Vec<targets::Target>),
    Ablation(Box<ablation::Ablation>),
}

/// Response times over something, or as bars in groups.
#[derive(Clone, Debug, Default)]
struct Curves {
    title: String,
    subtitle: String,
    x: Axis,
    groups: Vec<String>,
    curves: Vec<Curve>,
    /// Whether the physical limit of the first curve is drawn.
    limit: Limit,
}

/// Whether a plot shows the physical limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Limit {
    #[default]
    Hidden,
    Shown,
}

/// One curve: what to run at which place of the horizontal axis, and what was published.
#[derive(Clone, Debug, Default)]
struct Curve {
    name: String,
    /// Colour and mark.
    style: usize,
    plans: Vec<(f64, Plan)>,
    published: Vec<Published>,
}

/// A published response time, in seconds, at a place of the horizontal axis.
#[derive(Clone, Copy, Debug)]
struct Published {
    x: f64,
    min: Option<f64>,
    mean: f64,
    max: Option<f64>,
}

/// Packet number against time.
#[derive(Clone, Debug)]
struct Sequence {
    title: String,
    subtitle: String,
    /// What to run, each under a name.
    lanes: Vec<(String, Plan)>,
    seed: Pick,
    throughput: Throughput,
    /// Whether round-trip times get a plot of their own.
    round_trips: RoundTrips,
}

/// Entries of a directory against time.
#[derive(Clone, Debug)]
struct Listing {
    title: String,
    subtitle: String,
    entries: u32,
    /// What to run, each under a name, with the plan's outages and without.
    lanes: Vec<(String, Plan, Style)>,
}

/// Header bytes of messages on a link that compresses them.
#[derive(Clone, Debug)]
struct Headers {
    title: String,
    subtitle: String,
    /// Names that are listed, beside the file that is read and written.
    entries: u32,
    plan: Plan,
}

/// Which of the runs is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// The first.
    First,
    /// The one whose response time is the median of those of the first lane.
    Median,
}

/// The unit of throughput that the paper uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Throughput {
    Bits,
    Kilobytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundTrips {
    Hidden,
    Shown,
}

/// What an experiment came out as.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// The experiment's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Table or figure and section, and the publication.
    pub source: String,
    /// What the paper says of it.
    pub says: Vec<String>,
    /// What is known about differences between ours and theirs.
    pub remarks: Vec<&'static str>,
    /// Plots.
    #[serde(skip)]
    pub plots: Vec<Plot>,
    /// Ours beside the published numbers.
    pub tables: Vec<Table>,
    /// Every measured point.
    pub rows: Vec<FigureRow>,
    /// Every packet of sequence plots.
    pub events: Vec<FigureEvent>,
}

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns' headings.
    pub header: Vec<String>,
    /// As many cells in each row as there are headings.
    pub rows: Vec<Vec<String>>,
}

impl fmt::Display for Table {
    /// Writes the table with its columns lined up.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || iter::once(&self.header).chain(&self.rows);
        let cell =
            |row: &'_ Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| all().map(|row| cell(row, column)).max().unwrap_or(0))
            .collect();
        writeln!(f, "{}", self.title)?;
        for row in all() {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A measured point with the published number beside it.
#[derive(Clone, Debug, Serialize)]
pub struct FigureRow {
    /// The experiment's name.
    pub figure: String,
    /// Title of the plot.
    pub panel: String,
    /// Name of the curve.
    pub series: String,
    /// TransferKey on the horizontal axis.
    pub x: f64,
    /// Published shortest time, in seconds.
    pub published_min_s: Option<f64>,
    /// Published mean time, in seconds.
    pub published_mean_s: Option<f64>,
    /// Published longest time, in seconds.
    pub published_max_s: Option<f64>,
    /// Ours.
    #[serde(flatten)]
    pub row: Row,
}

impl FigureRow {
    /// A point of ours over the mean bad period, without a published one.
    fn measured(figure: &str, panel: &str, series: &str, row: Row) -> Self {
        Self {
            figure: figure.to_owned(),
            panel: panel.to_owned(),
            series: series.to_owned(),
            x: row.bad_ms.unwrap_or_default(),
            published_min_s: None,
            published_mean_s: None,
            published_max_s: None,
            row,
        }
    }
}

/// An event of a sequence plot.
#[derive(Clone, Debug, Serialize)]
pub struct FigureEvent {
    /// The experiment's name.
    pub figure: String,
    /// Name of the run.
    pub series: String,
    /// The event.
    #[serde(flatten)]
    pub event: TraceEvent,
}

/// All experiments, in the order of the report.
///
/// # Errors
/// Data files or rooms that are not valid.
pub fn experiments() -> Result<Vec<Experiment>, Error> {
    let library = Library::new()?;
    let mut all = dube::experiments(&library)?;
    all.extend(rx_hex::experiments()?);
    all.extend(michalakis::experiments()?);
    all.extend(targets::experiments()?);
    all.push(channels::cellular()?);
    Ok(all)
}

/// The experiments of these names, separated by commas; `all` are those that repeat a paper's. `recorded` and `ablation` copy over `channels`.
///
/// # Errors
/// [`Error::UnknownFigure`] names those there are; [`Error::NoChannels`] says that those have none.
pub fn named(names: &str, channels: &[(String, LinkConfig)]) -> Result<Vec<Experiment>, Error> {
    let mut all = experiments()?;
    let mut chosen = Vec::new();
    for name in names.split(',') {
        match name {
            "all" => chosen.extend(all.iter().filter(|it| !is_about_targets(&it.name)).cloned()),
            channels::RECORDED | ablation::NAME if channels.is_empty() => return Err(Error::NoChannels),
            ablation::NAME => chosen.push(ablation::experiment(channels)?),
            channels::RECORDED => chosen.push(channels::recorded(channels)?),
            _ => {
                let Some(index) = all.iter().position(|experiment| experiment.name == name) else {
                    let mut known: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
                    known.extend([channels::RECORDED, ablation::NAME]);
                    return Err(Error::UnknownFigure { name: name.to_owned(), known: known.join(", ") });
                };
                chosen.push(all.swap_remove(index));
            }
        }
    }
    Ok(chosen)
}

/// The names that [`named`] takes.
pub fn names() -> Vec<String> {
    let all = experiments().unwrap_or_default();
    let more = ["all", channels::RECORDED, ablation::NAME].map(str::to_owned);
    all.into_iter().map(|experiment| experiment.name).chain(more).collect()
}

/// Whether an experiment is about what the engine is to reach, and none of a paper's.
fn is_about_targets(name: &str) -> bool {
    [targets::NAME, channels::CELLULAR, channels::RECORDED, ablation::NAME].contains(&name)
}

/// How often [`run`] reports progress for these experiments.
pub fn jobs(experiments: &[Experiment], runs: u32) -> usize {
    let (keys, _) = plans(experiments);
    keys.len() * runs as usize
}

/// Runs experiments, every point of a curve with the seeds `seed..seed + runs`, in parallel over all processors.
/// Points that occur in several experiments are run once.
///
/// `done` is told how many of the [`jobs`] are done, and says whether to go on; when it does not, the points that are
/// complete by then are shown, and the figures without any are left out.
///
/// # Errors
/// The first [`Error`] of any plan.
pub fn run(
    experiments: &[Experiment],
    runs: u32,
    seed: u64,
    done: &(dyn Fn(usize) -> bool + Sync),
) -> Result<Vec<Figure>, Error> {
    let library = Library::new()?;
    let (keys, plans) = plans(experiments);
    let samples = sweep(&plans, seed, runs, done)?;
    let results = Results { seed, samples: keys.into_iter().zip(samples).collect() };
    let shown = |experiment| show::figure(experiment, &library, &results).transpose();
    experiments.iter().filter_map(shown).collect()
}

/// Runs by plan.
struct Results {
    seed: u64,
    samples: BTreeMap<String, Option<Samples>>,
}

impl Results {
    /// The runs of a plan, if they were made.
    fn of(&self, plan: &Plan) -> Option<&Samples> {
        self.samples.get(&key(plan))?.as_ref()
    }
}

/// The different plans of some experiments, with their keys.
fn plans(experiments: &[Experiment]) -> (Vec<String>, Vec<Plan>) {
    let panels = experiments.iter().flat_map(|experiment| &experiment.panels);
    let plans = panels.flat_map(|panel| -> Vec<&Plan> {
        match panel {
            Panel::Curves(curves) => {
                curves.curves.iter().flat_map(|curve| &curve.plans).map(|(_, plan)| plan).collect()
            }
            Panel::Sequence(sequence) if sequence.seed == Pick::Median => {
                sequence.lanes.iter().take(1).map(|(_, plan)| plan).collect()
            }
            Panel::Targets(targets) => {
                targets.iter().flat_map(|target| &target.plans).map(|(_, plan)| plan).collect()
            }
            Panel::Ablation(ablation) => ablation.plans().collect(),
            Panel::Sequence(_) | Panel::Listing(_) | Panel::Mounted(_) | Panel::Headers(_) => Vec::new(),
        }
    });
    let mut seen = BTreeMap::new();
    let mut ordered = Vec::new();
    for plan in plans {
        let key = key(plan);
        if seen.insert(key.clone(), ()).is_none() {
            ordered.push((key, plan.clone()));
        }
    }
    ordered.into_iter().unzip()
}

/// Two plans have the same key if they are the same.
fn key(plan: &Plan) -> String {
    format!("{plan:?}")
}
