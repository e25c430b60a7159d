//! The matrix in `docs/servers.md`.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::table::{self, Expectation, Step, Transport};
use crate::lane::{self, Lane};

const BEGIN: &str = "<!-- matrix: written by ./ci.sh servers --write -->\n";
const END: &str = "<!-- /matrix -->\n";

/// Fails unless the document has the matrix of the tables.
///
/// # Errors
/// Where it has another one.
pub fn agrees_with_document() -> Result<()> {
    let (before, matrix, after) = parts()?;
    drop((before, after));
    ensure!(
        matrix == rendered(),
        "docs/servers.md has another matrix than tests/servers/matrix: ./ci.sh servers --write writes it"
    );
    Ok(())
}

/// Writes the matrix into the document.
///
/// # Errors
/// Where the document has no place for it.
pub fn write_document() -> Result<()> {
    let (before, _, after) = parts()?;
    fs::write(path(), format!("{before}{BEGIN}{}{END}{after}", rendered()))?;
    Ok(())
}

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/servers.md"))
}

/// What stands before the matrix, the matrix, and what stands behind it.
fn parts() -> Result<(String, String, String)> {
    let text = fs::read_to_string(path()).context("docs/servers.md")?;
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("no line {BEGIN:?}"))?;
    let (matrix, after) = rest.split_once(END).with_context(|| format!("no line {END:?}"))?;
    Ok((before.to_owned(), matrix.to_owned(), after.to_owned()))
}

/// The lanes, a table with a column for each in three parts, and the notes.
fn rendered() -> String {
    let (steps, expectations) = (table::steps(), table::expectations());
    let mut notes = Notes::default();
    let mut out = String::from(
        "\n| lane | server and setting | cells | pass | cannot | fail |\n|---|---|---|---|---|---|\n",
    );
    for lane in lane::ALL {
        let (mut cells, mut cannot, mut red) = (0, 0, 0);
        for step in steps.iter().filter(|step| lane.runs(step)) {
            for transport in lane.transports(step) {
                cells += 1;
                match table::expected(&expectations, lane.name, &step.name, transport) {
                    Some(expected) if expected.is_red() => red += 1,
                    Some(_) => cannot += 1,
                    None => {}
                }
            }
        }
        let pass = cells - cannot - red;
        let _ = writeln!(out, "| {} | {} | {cells} | {pass} | {cannot} | {red} |", lane.name, lane.is);
    }
    for family in [&["knfsd"][..], &["ganesha", "embedded"], &["go-nfs", "nfs3", "nfsserve", "unfs3"]] {
        let lanes: Vec<_> =
            lane::ALL.iter().filter(|lane| family.iter().any(|start| lane.name.starts_with(start))).collect();
        out.push_str("\n| step |");
        lanes.iter().for_each(|lane| out.push_str(&format!(" {} |", lane.name)));
        out.push_str("\n|---|");
        lanes.iter().for_each(|_| out.push_str("---|"));
        out.push('\n');
        for step in steps.iter().filter(|step| lanes.iter().any(|lane| lane.runs(step))) {
            let _ = write!(out, "| {} |", step.name);
            for lane in &lanes {
                let _ = write!(out, " {} |", cell(lane, step, &expectations, &mut notes));
            }
            out.push('\n');
        }
    }
    out.push('\n');
    for (index, note) in notes.0.iter().enumerate() {
        let _ = writeln!(out, "{}. {note}", index + 1);
    }
    out.push('\n');
    out
}

/// A cell: one mark where all transports agree, otherwise one for each.
fn cell(lane: &Lane, step: &Step, expectations: &[Expectation], notes: &mut Notes) -> String {
    if !lane.runs(step) {
        return String::new();
    }
    let marks: Vec<(Transport, String)> = lane
        .transports(step)
        .map(|transport| {
            let mark = match table::expected(expectations, lane.name, &step.name, transport) {
                None => "✓".to_owned(),
                Some(expected) if expected.is_red() => format!("✗ {}", notes.number(expected.reason())),
                Some(expected) => format!("– {}", notes.number(expected.reason())),
            };
            (transport, mark)
        })
        .collect();
    if marks.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        return marks.first().map_or_else(String::new, |(_, mark)| mark.clone());
    }
    let each: Vec<_> = marks.iter().map(|(transport, mark)| format!("{} {mark}", transport.name())).collect();
    each.join(", ")
}

/// Reasons by number, in the order in which they are first met.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Notes {
    fn number(&mut self, reason: &str) -> usize {
        let known = self.0.iter().position(|note| note == reason);
        known.unwrap_or_else(|| {
            self.0.push(reason.to_owned());
            self.0.len() - 1
        }) + 1
    }
}
