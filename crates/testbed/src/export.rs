//! Rows as text: for a terminal, for a spreadsheet, for a program.

mod csv;
mod json;
mod table;

use std::io::{self, Write};

pub use csv::Csv;
pub(crate) use csv::{header, line};
pub use json::JsonLines;
pub use table::TextTable;

use crate::Row;

/// Writes rows in one format.
///
/// Rows may come one by one, as a sweep finishes them: `header` first, `row` for each, `end` last.
pub trait Exporter {
    /// What comes before the rows.
    ///
    /// # Errors
    /// Those of `out`.
    fn header(&self, out: &mut dyn Write) -> io::Result<()>;

    /// One row.
    ///
    /// # Errors
    /// Those of `out`.
    fn row(&self, row: &Row, out: &mut dyn Write) -> io::Result<()>;

    /// The header and all rows.
    ///
    /// # Errors
    /// Those of `out`.
    fn write(&self, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
        self.header(out)?;
        rows.iter().try_for_each(|row| self.row(row, out))
    }
}

/// The columns that people read: heading, unit and text of a row.
const COLUMNS: [Column; 13] = [
    Column::text("op", 5, |row| row.op.clone()),
    Column::number("bad", "ms", 6, |row| decimals(row.bad_ms, 0)),
    Column::number("block", "B", 7, |row| row.block.to_string()),
    Column::number("window", "", 6, |row| row.window.to_string()),
    Column::text("policy", 11, |row| row.policy.clone()),
    Column::text("arq", 16, |row| row.arq.clone()),
    Column::number("clients", "", 7, |row| row.clients.to_string()),
    Column::number("mean", "s", 7, |row| decimals(row.mean_s, 2)),
    Column::number("±95%", "s", 6, |row| decimals(row.ci95_s, 2)),
    Column::number("min–max", "s", 13, |row| {
        format!("{}–{}", decimals(row.min_s, 2), decimals(row.max_s, 2))
    }),
    Column::number("limit", "s", 7, |row| decimals(row.limit_s, 2)),
    Column::number("over", "%", 7, |row| signed(row.over_limit_pct)),
    Column::number("edge", "%", 7, |row| signed(row.over_edge_limit_pct)),
];

/// One column for people.
struct Column {
    heading: &'static str,
    unit: &'static str,
    /// Characters that usual values need.
    width: usize,
    numeric: bool,
    text: fn(&Row) -> String,
}

impl Column {
    const fn text(heading: &'static str, width: usize, text: fn(&Row) -> String) -> Self {
        Self { heading, unit: "", width, numeric: false, text }
    }

    const fn number(
        heading: &'static str,
        unit: &'static str,
        width: usize,
        text: fn(&Row) -> String,
    ) -> Self {
        Self { heading, unit, width, numeric: true, text }
    }

    fn title(&self) -> String {
        format!("{} {}", self.heading, self.unit).trim_end().to_owned()
    }
}

/// A number with this many decimals, or a dash if there is none.
pub(crate) fn decimals(number: f64, digits: usize) -> String {
    if number.is_finite() { format!("{number:.digits$}") } else { "–".to_owned() }
}

fn signed(percent: f64) -> String {
    if percent.is_finite() { format!("{percent:+.1}") } else { "–".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::example;

    fn export(exporter: &dyn Exporter) -> String {
        let rows = [
            example(),
            Row { op: "write".to_owned(), mean_s: f64::NAN, ci95_s: f64::NAN, failed: 10, ..example() },
        ];
        let mut out = Vec::new();
        exporter.write(&rows, &mut out).expect("memory takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn text_table_lines_up() {
        insta::assert_snapshot!(export(&TextTable));
    }

    #[test]
    fn csv_has_every_field_and_nothing_for_missing_numbers() {
        insta::assert_snapshot!(export(&Csv));
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = export(&JsonLines);
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0], serde_json::to_value(example()).expect("plain values"));
        assert!(rows[1]["mean_s"].is_null());
    }
}
