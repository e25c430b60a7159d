//! One JSON object per line for every datagram and frame.

use std::{fmt::Write as _, io::Write, time::Duration};

use bytes::Bytes;

use super::Sink;
use crate::{DatagramRecord, FrameRecord, Observer};

/// Writes a row per datagram and per frame as newline-delimited JSON.
///
/// ```json
/// {"event":"frame","datagram":0,"index":0,"bytes":1046,"queued_s":0.000000000,"first_air_s":0.000000000,"attempts":1,"ended_s":0.008368000,"fate":"delivered"}
/// {"event":"datagram","datagram":0,"from":"host0:2049","to":"mobile0:700","payload_bytes":1000,"frames":1,"offered_s":0.000000000,"first_air_s":0.000000000,"transmissions":1,"ended_s":0.008368000,"fate":"delivered","state_offered":"good","state_ended":"good"}
/// ```
///
/// Times are channel times in seconds, exact to the nanosecond; `first_air_s` is `null` for what never went on the air.
/// When the output fails, the rows stop and the link goes on: see [`Observer::problem`].
#[derive(Debug)]
pub struct RecordWriter<W: Write> {
    sink: Sink<W>,
    row: String,
}

impl<W: Write> RecordWriter<W> {
    /// Writes rows to `out`, buffered.
    pub fn new(out: W) -> Self {
        Self { sink: Sink::new("the record", out), row: String::new() }
    }
}

impl<W: Write + Send> Observer for RecordWriter<W> {
    fn frame(&mut self, record: &FrameRecord) {
        self.row.clear();
        let FrameRecord { datagram, index, bytes, attempts, .. } = record;
        let _ = write!(
            self.row,
            "{{\"event\":\"frame\",\"datagram\":{datagram},\"index\":{index},\"bytes\":{bytes},\"queued_s\":{},\
             \"first_air_s\":{},\"attempts\":{attempts},\"ended_s\":{},\"fate\":\"{}\"}}",
            Seconds(Some(record.queued)),
            Seconds(record.first_air),
            Seconds(Some(record.ended)),
            record.fate.name(),
        );
        self.row.push('\n');
        self.sink.write(self.row.as_bytes());
    }

    fn datagram(&mut self, record: &DatagramRecord, _payload: &Bytes) {
        self.row.clear();
        let DatagramRecord { datagram, from, to, payload_bytes, frames, transmissions, .. } = record;
        let _ = write!(
            self.row,
            "{{\"event\":\"datagram\",\"datagram\":{datagram},\"from\":\"{from}\",\"to\":\"{to}\",\
             \"payload_bytes\":{payload_bytes},\"frames\":{frames},\"offered_s\":{},\"first_air_s\":{},\
             \"transmissions\":{transmissions},\"ended_s\":{},\"fate\":\"{}\",\"state_offered\":\"{}\",\
             \"state_ended\":\"{}\"}}",
            Seconds(Some(record.offered)),
            Seconds(record.first_air),
            Seconds(Some(record.ended)),
            record.fate.name(),
            record.state_offered.name(),
            record.state_ended.name(),
        );
        self.row.push('\n');
        self.sink.write(self.row.as_bytes());
    }

    fn flush(&mut self) {
        self.sink.flush();
    }

    fn problem(&self) -> Option<String> {
        self.sink.problem.clone()
    }
}

struct Seconds(Option<Duration>);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{}.{:09}", time.as_secs(), time.subsec_nanos()),
            None => f.write_str("null"),
        }
    }
}
