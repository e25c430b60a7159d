//! The copies in trials.jsonl are of one tree of crates/, and of every cell, and the tables show them.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

fn lines() -> (Value, Vec<Value>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("trials.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

#[test]
fn every_copy_is_of_one_tree_of_the_crates() {
    let (setting, trials) = lines();
    let tree = &setting["versions"]["crates"];
    assert!(tree.as_str().is_some_and(|tree| tree.len() == 12 && !tree.ends_with("dirty")), "{setting}");
    let others: BTreeSet<_> =
        trials.iter().filter(|trial| trial["tree"] != *tree).map(|trial| trial["tree"].to_string()).collect();
    assert!(others.is_empty(), "{tree} and {others:?}");
}

#[test]
fn no_cell_is_missing() {
    let (_, trials) = lines();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_head-to-head"))
        .args(["--list", "--runs", "1", "--programs", "nfsw"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let listed =
        printed.lines().filter_map(|line| Some(line.split_once(": ")?.0)).filter(|it| it.contains('/'));
    let there: BTreeSet<String> =
        trials.iter().map(|trial| trial["cell"].as_str().unwrap().to_owned()).collect();
    let missing: Vec<&str> = listed.filter(|cell| !there.contains(*cell)).collect();
    assert!(there.len() > 90 && missing.is_empty(), "{missing:?}");
    assert!(there.iter().any(|cell| cell.contains("/recorded/")), "no recorded channel");
}

/// Renews the tables in a copy of docs/comparison.md that lacks the rows which begin so, and compares it with what is committed. Returns the directory
/// of the copy, where all tables are, too.
fn renew(options: &[&str], row: &str) -> tempfile::TempDir {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = "docs/comparison.md";
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("docs")).unwrap();
    let committed = fs::read_to_string(package.join("../..").join(name)).unwrap();
    // What the table had is not what it gets.
    let without_rows: Vec<&str> = committed.lines().filter(|line| !line.starts_with(row)).collect();
    assert!(without_rows.len() < committed.lines().count(), "{row}");
    fs::write(copy.path().join(name), without_rows.join("\n")).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_head-to-head"))
        .args(options)
        .arg("--renew")
        .arg(copy.path())
        .arg("--out")
        .arg(copy.path())
        .current_dir(package)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Which cells there are of recorded channels, the files of the channels say, which are not here.
    let lines = |text: &str| {
        let everywhere = |line: &&str| !line.contains("recorded") && !line.ends_with(" reached.");
        text.trim_end().lines().filter(everywhere).map(str::to_owned).collect::<Vec<_>>()
    };
    let (renewed, committed) =
        (lines(&fs::read_to_string(copy.path().join(name)).unwrap()), lines(&committed));
    let difference = renewed.iter().zip(&committed).find(|(new, old)| new != old);
    assert_eq!(difference, None, "{name} is not what {options:?} --renew makes of it");
    assert_eq!(renewed.len(), committed.len(), "{name}");
    copy
}

#[test]
fn the_comparison_shows_the_copies_over_good_links() {
    renew(&["--good", "--from", "good.jsonl"], "| 1000M-");
}

#[test]
fn the_comparison_shows_these_copies_and_the_tables_have_every_cell() {
    let (_, trials) = lines();
    let copy = renew(&["--from", "trials.jsonl"], "| paper-1997");
    let tables = fs::read_to_string(copy.path().join("tables.md")).unwrap();
    let cells: BTreeSet<&str> = trials.iter().map(|trial| trial["cell"].as_str().unwrap()).collect();
    let here = cells.iter().filter(|cell| !cell.contains("/recorded/"));
    let missing: Vec<_> = here.filter(|cell| !tables.contains(&format!("| {cell} | "))).collect();
    assert!(tables.contains("## Targets") && missing.is_empty(), "{missing:?}");
}
