//! Rows as text: for people, for spreadsheets, for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::Row;

/// A table for a terminal, one line a row.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "op    over policy      block window arq                bad ms   mean s  ± 95 %   min     max   over limit  over edge  resends spurious failed\n",
    );
    for row in rows {
        let bad = row.bad_ms.map_or_else(|| "-".to_owned(), |bad| format!("{bad:.0}"));
        let _ = writeln!(
            text,
            "{:5} {:4} {:11} {:>5} {:>6} {:16} {bad:>8} {:8.2} {:7.2} {:6.2} {:7.2} {:>+9.2} % {:>+8.2} % {:8.3} {:8.4} {:6}",
            row.op,
            row.transport,
            row.policy,
            row.block,
            row.window,
            row.arq,
            row.mean_s,
            row.ci95_s,
            row.min_s,
            row.max_s,
            row.over_limit_pct,
            row.over_edge_limit_pct,
            row.resends_per_call,
            row.spurious_resends_per_call,
            row.failed,
        );
        if let Some(share) = row.competitor_share {
            let _ = writeln!(text, "      the competitor got {:.0} % of its fair share", 100.0 * share);
        }
    }
    text
}

/// One JSON object a line, with the fields of the rows.
pub fn json_lines(rows: &[impl Serialize]) -> String {
    rows.iter().map(|row| json(row).to_string() + "\n").collect()
}

/// A heading and one line a row, with the fields of the rows.
pub fn csv(rows: &[impl Serialize]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let Value::Object(fields) = json(row) else { continue };
        if index == 0 {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            let _ = writeln!(text, "{}", names.join(","));
        }
        let values = fields.values().map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) if text.contains([',', '"', '\n']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let _ = writeln!(text, "{}", values.collect::<Vec<_>>().join(","));
    }
    text
}

/// A row, its fractions rounded to what they are good for.
fn json(row: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(row).expect("a row has nothing that JSON lacks");
    if let Value::Object(fields) = &mut value {
        for value in fields.values_mut() {
            if let Some(number) = value.as_f64().filter(|_| value.is_f64()) {
                *value = ((number * 1e6).round() / 1e6).into();
            }
        }
    }
    value
}
