use std::io::{self, Write};

use super::{COLUMNS, Column, Exporter};
use crate::Row;

/// A table for terminals, its columns wide enough for usual values so that rows can come one by one.
#[derive(Clone, Copy, Debug)]
pub struct TextTable;

impl Exporter for TextTable {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        line(out, Column::title, "")
    }

    fn row(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        let note = if row.failed == 0 {
            String::new()
        } else {
            format!("{} of {} runs failed", row.failed, row.runs)
        };
        line(out, |column| (column.text)(row), &note)
    }
}

fn line(out: &mut dyn Write, text: impl Fn(&Column) -> String, note: &str) -> io::Result<()> {
    let cells = COLUMNS.iter().map(|column| {
        let (text, width) = (text(column), column.width);
        if column.numeric { format!("{text:>width$}") } else { format!("{text:<width$}") }
    });
    let line: Vec<String> = cells.chain([note.to_owned()]).collect();
    writeln!(out, "{}", line.join("  ").trim_end())
}
