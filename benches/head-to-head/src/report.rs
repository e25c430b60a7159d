//! Results as tables.

use std::{fmt::Write, fs, path::Path};

use anyhow::Context;

use crate::{
    cell::{Beside, Cell},
    results::Results,
    summary::Row,
    target,
};

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(
        || "–".into(),
        |value| if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") },
    )
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(
        || "–".into(),
        |value| if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") },
    )
}

/// Every program in every cell.
pub(crate) fn full(rows: &[Row]) -> String {
    let mut text = "| cell | program | runs | mean s | worst s | limit s | × limit | worst × | × edge-aware limit | failed | ping ms |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let failed = match (row.stopped, row.lost()) {
            (0, lost) => lost.to_string(),
            (stopped, lost) => format!("{lost} ({stopped} stopped)"),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {failed} | {} |",
            row.cell,
            row.contender(),
            row.runs,
            seconds(row.mean_s),
            seconds(row.worst_s),
            seconds(Some(row.limit_s)),
            ratio(row.times_limit),
            ratio(row.worst_times_limit),
            ratio(row.times_edge_limit),
            row.ping_ms.map_or_else(String::new, |ping| format!("{ping:.0}")),
        );
    }
    text
}

/// One line a cell: what most would use, the best of the others, and nfsw.
fn overview(all: &[Cell], rows: &[Row]) -> String {
    const COLUMNS: [(&str, &str, &str); 6] = [
        ("nfs-cp cubic", "nfs-cp", "cubic"),
        ("nfs-cp bbr", "nfs-cp", "bbr"),
        ("client of 1997", "papers", ""),
        ("**nfsw** cubic", "nfsw", "cubic"),
        ("**nfsw** bbr", "nfsw", "bbr"),
        ("**nfsw** UDP", "nfsw-udp", ""),
    ];
    let mut text = "| link, fades, direction | seeds | limit |".to_owned();
    for (title, ..) in &COLUMNS[..3] {
        let _ = write!(text, " {title} |");
    }
    text += " best of the others |";
    for (title, ..) in &COLUMNS[3..] {
        let _ = write!(text, " {title} |");
    }
    text += "\n|---|---|---|---|---|---|---|---|---|---|\n";
    let entry = |row: Option<&Row>| {
        let Some(row) = row else { return String::new() };
        let lost = match row.lost() {
            0 => String::new(),
            lost => format!(", {lost} of {} failed", row.runs),
        };
        format!("{} ({}){lost}", seconds(row.mean_s), seconds(row.worst_s))
    };
    for cell in all.iter().filter(|cell| cell.beside == Beside::Nothing && cell.arq == linkemu::ArqKind::None)
    {
        let name = cell.to_string();
        let here: Vec<&Row> = rows.iter().filter(|row| row.cell == name).collect();
        let Some(first) = here.first() else { continue };
        let find = |(_, program, congestion): &(&str, &str, &str)| {
            here.iter().copied().find(|row| row.program == *program && row.congestion == *congestion)
        };
        let others = here.iter().filter(|row| {
            row.whole()
                && !row.program.starts_with("nfsw")
                && !["nfs-cp", "papers"].contains(&row.program.as_str())
        });
        let best =
            others.min_by(|a, b| a.mean_s.unwrap_or(f64::MAX).total_cmp(&b.mean_s.unwrap_or(f64::MAX)));
        let best = best.map_or_else(String::new, |row| format!("{} {}", entry(Some(row)), row.contender()));
        let [cubic, bbr, papers, ours @ ..] = COLUMNS.each_ref().map(find).map(entry);
        let [ours_cubic, ours_bbr, ours_udp] = ours;
        let seeds = here.iter().map(|row| row.runs).max().unwrap_or_default();
        let limit = seconds(Some(first.limit_s));
        let _ = writeln!(
            text,
            "| {}, {}, {} | {seeds} | {limit} | {cubic} | {bbr} | {papers} | {best} | {ours_cubic} | {ours_bbr} | {ours_udp} |",
            cell.link,
            cell.fades,
            cell.operation.name()
        );
    }
    text
}

/// One line a cell of good links: the programs that most would use, nfsw, and nfsw over the fastest of the others.
fn good_overview(all: &[Cell], results: &Results, rows: &[Row]) -> String {
    const OTHERS: [&str; 3] = ["nfs-cp", "rsync", "scp"];
    let mut text = "| link, round trip, losses, direction | beside | MiB |".to_owned();
    for name in OTHERS {
        let _ = write!(text, " {name} |");
    }
    text += " **nfsw** | nfsw / fastest other |\n|---|---|---|---|---|---|---|---|\n";
    for cell in all {
        let name = cell.to_string();
        let find = |program: &str| {
            rows.iter().find(|row| row.cell == name && row.program == program && row.congestion == "cubic")
        };
        let Some(ours) = find("nfsw") else { continue };
        let against = |program: &&str| {
            let (ours, theirs) = results.pair(&name, ("nfsw", "cubic"), (program, "cubic"))?;
            find(program).filter(|row| row.whole()).map(|_| ours / theirs)
        };
        let beside = if cell.beside == Beside::Busy { "busy" } else { "" };
        let size = cell.size() >> 20;
        let _ =
            write!(text, "| {}, {}, {} | {beside} | {size} |", cell.link, cell.fades, cell.operation.name());
        for row in OTHERS.map(find) {
            let _ = write!(text, " {} |", row.map_or_else(String::new, |row| seconds(row.mean_s)));
        }
        let ratio = ratio(OTHERS.iter().filter_map(against).reduce(f64::max));
        let _ = writeln!(text, " {} | {ratio} |", seconds(ours.mean_s));
    }
    text
}

/// Versions, and how often the link was late.
pub(crate) fn notes(results: &Results) -> String {
    let mut text = String::new();
    for setting in &results.settings {
        let versions: Vec<String> =
            setting.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let _ = writeln!(text, "{}; {} processors.", versions.join(", "), setting.processors);
    }
    let repeated = results.trials().filter(|trial| trial.repeated > 0).count();
    let late = results.trials().filter(|trial| trial.late).count();
    let mut delays: Vec<f64> = results.trials().map(|trial| trial.late_ms).collect();
    delays.sort_by(f64::total_cmp);
    let middle = delays.get(delays.len() / 2).copied().unwrap_or_default();
    let most = delays.last().copied().unwrap_or_default();
    let _ = writeln!(
        text,
        "{} copies; deliveries of the link were {middle:.2} ms late at the 99th percentile of the median copy, {most:.2} ms of the worst. \
         {repeated} copies were repeated because the link was late or the machine stood still; {late} of them were late again.",
        results.len()
    );
    text
}

/// Whether every target is reached, and every program in every cell.
pub(crate) fn page(all: &[Cell], results: &Results, rows: &[Row]) -> anyhow::Result<String> {
    let (notes, targets) = (notes(results), target::table(all, results, rows)?);
    Ok(format!(
        "# Head to head\n\n{notes}\n## Targets\n\n{targets}\n## Every program in every cell\n\n\
         Seconds are those of the whole command, for copies with the right bytes. The limit is the time that the channel of a seed needs (no\n\
         round trips, no acknowledgements, 4096-byte blocks on `paper-1997` and 32 KiB elsewhere); the edge-aware limit adds a lost block\n\
         for each fade. `papers` is the client of 1997.\n\n{}",
        full(rows)
    ))
}

/// Which cells a summary in docs/comparison.md is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summary {
    BadLinks,
    GoodLinks,
}

impl Summary {
    /// What stands before and after it.
    const fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::BadLinks => ("<!-- head-to-head -->\n", "<!-- /head-to-head -->"),
            Self::GoodLinks => ("<!-- good links -->\n", "<!-- /good links -->"),
        }
    }
}

/// Puts the summary between its marks in docs/comparison.md.
pub(crate) fn renew(
    root: &Path,
    summary: Summary,
    all: &[Cell],
    results: &Results,
    rows: &[Row],
) -> anyhow::Result<()> {
    let marks = summary.marks();
    let path = root.join("docs/comparison.md");
    let comparison = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let parts =
        comparison.split_once(marks.0).and_then(|(before, rest)| Some((before, rest.split_once(marks.1)?.1)));
    let (before, after) = parts.with_context(|| format!("{}: no {}", path.display(), marks.0.trim()))?;
    let overview = match summary {
        Summary::BadLinks => overview(all, rows),
        Summary::GoodLinks => good_overview(all, results, rows),
    };
    let (notes, targets) = (notes(results), target::table(all, results, rows)?);
    let reached = targets.lines().last().unwrap_or_default();
    let text = format!("{before}{}\n{overview}\n{notes}\nTargets: {reached}\n\n{}{after}", marks.0, marks.1);
    Ok(fs::write(&path, text)?)
}
