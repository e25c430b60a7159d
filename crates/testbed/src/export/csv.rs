use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use super::Exporter;
use crate::Row;

/// Comma-separated values with every field of a row (RFC 4180, but with line feeds alone).
#[derive(Clone, Copy, Debug)]
pub struct Csv;

impl Exporter for Csv {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        header(&Row::default(), out)
    }

    fn row(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        line(row, out)
    }
}

/// The names of a struct's fields.
pub(crate) fn header(example: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let fields: Vec<String> = fields(example)?.into_iter().map(|(name, _)| name).collect();
    writeln!(out, "{}", fields.join(","))
}

/// The values of a struct's fields.
pub(crate) fn line(row: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<String> = fields(row)?.into_iter().map(|(_, value)| cell(&value)).collect();
    writeln!(out, "{}", cells.join(","))
}

/// A value as one field of a line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => quoted(&value.to_string()),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn fields(row: &impl Serialize) -> io::Result<Map<String, Value>> {
    match serde_json::to_value(row)? {
        Value::Object(fields) => Ok(fields),
        other => Err(io::Error::other(format!("a row is an object, not {other}"))),
    }
}
