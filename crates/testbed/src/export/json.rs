use std::io::{self, Write};

use super::Exporter;
use crate::Row;

/// One JSON object a line.
#[derive(Clone, Copy, Debug)]
pub struct JsonLines;

impl Exporter for JsonLines {
    fn header(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    fn row(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, row)?;
        writeln!(out)
    }
}
