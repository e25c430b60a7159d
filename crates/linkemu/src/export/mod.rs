//! What happened on a link, written down: rows of JSON, and captures.

mod ndjson;
mod pcapng;

use std::io::{BufWriter, Write};

pub use self::{ndjson::RecordWriter, pcapng::CaptureWriter};

/// An output that stops at its first error instead of stopping the link.
#[derive(Debug)]
struct Sink<W: Write> {
    name: &'static str,
    out: BufWriter<W>,
    problem: Option<String>,
}

impl<W: Write> Sink<W> {
    fn new(name: &'static str, out: W) -> Self {
        Self { name, out: BufWriter::new(out), problem: None }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.problem.is_none() {
            let result = self.out.write_all(bytes);
            self.note(result);
        }
    }

    fn flush(&mut self) {
        if self.problem.is_none() {
            let result = self.out.flush();
            self.note(result);
        }
    }

    fn note(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            let problem = format!("{} stopped: {error}", self.name);
            tracing::warn!("{problem}");
            self.problem = Some(problem);
        }
    }
}
