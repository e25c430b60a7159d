//! Header bytes of messages as a plot and a table.

use super::{Figure, Headers, Table, number::decimals};
use crate::{
    Error,
    headers::{MEASURED, Seen, measure},
    plot::{Axis, Look, Plot, Point, Series},
    published::Fact,
};

/// One bar without compression and one with it for each kind of message, and a table beside the published numbers.
pub(super) fn show(panel: &Headers, seed: u64, facts: &[Fact], figure: &mut Figure) -> Result<(), Error> {
    let measured = measure(&panel.plan, panel.entries, seed)?;
    let kinds = MEASURED.iter().zip(&measured).flat_map(|(procedure, [call, reply])| {
        [(format!("{} call", procedure.name()), *call), (format!("{} reply", procedure.name()), *reply)]
    });
    let mean = |bytes: u64, packets: u64| bytes as f64 / packets as f64;
    let bars = |name: &str, style, bytes: fn(&Seen) -> u64| Series {
        name: name.to_owned(),
        look: Look::Curve(style),
        points: kinds
            .clone()
            .enumerate()
            .map(|(place, (_, seen))| Point::at(place as f64, mean(bytes(&seen), seen.packets)))
            .collect(),
    };
    figure.plots.push(Plot {
        title: panel.title.clone(),
        subtitle: panel.subtitle.clone(),
        y: Axis::linear("mean header (bytes)"),
        series: vec![
            bars("not compressed", 1, |seen| seen.whole_bytes),
            bars("compressed", 2, |seen| seen.bytes),
        ],
        groups: kinds.clone().map(|(name, _)| name.replace(' ', "\n")).collect(),
        ..Plot::default()
    });
    let mut all = Seen::default();
    let row = |name: String, seen: &Seen| {
        vec![
            name,
            seen.packets.to_string(),
            decimals(mean(seen.whole_bytes, seen.packets), 1),
            decimals(mean(100 * seen.compressed, seen.packets), 1),
            decimals(mean(seen.compressed_bytes, seen.compressed), 1),
            decimals(mean(seen.bytes, seen.packets), 1),
        ]
    };
    let mut rows = Vec::new();
    for (name, seen) in kinds {
        rows.push(row(name, &seen));
        all.add(&seen);
    }
    rows.push(row("all".to_owned(), &all));
    let published = |what: &str| facts.iter().find(|fact| fact.what.starts_with(what));
    let cell = |what: &str, per_byte: f64| {
        published(what).map_or_else(String::new, |fact| decimals(fact.value / per_byte, 1))
    };
    rows.push(vec![
        "all, of Rx (published)".to_owned(),
        String::new(),
        cell("header of a packet", 1.0),
        cell("packets compressed", 1.0),
        cell("average header of compressed", 8.0),
        cell("average header of all", 1.0),
    ]);
    let header = [
        "",
        "packets",
        "not compressed (bytes)",
        "share compressed (%)",
        "compressed (bytes)",
        "mean of all (bytes)",
    ];
    let header = header.map(str::to_owned).to_vec();
    figure.tables.push(Table { title: panel.title.clone(), header, rows });
    Ok(())
}
