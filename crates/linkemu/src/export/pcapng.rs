//! Captures that Wireshark and tshark read (pcapng, draft-ietf-opsawg-pcapng).

use std::{borrow::Cow, io::Write, time::Duration};

use bytes::Bytes;

use super::Sink;
use crate::{Content, DatagramRecord, Endpoint, Fate, Observer, Offered, packet};

/// LINKTYPE_RAW: packets begin with an IP header.
const LINKTYPE_RAW: u16 = 101;
/// Interfaces, in the order of their description blocks.
const INTERFACES: [&str; 3] = ["in", "out", "dropped"];
const IN: u32 = 0;
const OUT: u32 = 1;
const DROPPED: u32 = 2;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;

/// Writes what goes into a link and what comes out as a pcapng capture.
///
/// Three interfaces: `in` has every datagram as it is offered, `out` as it arrives, `dropped` as it is lost, with the cause
/// as the packet's comment (`frame.comment` in Wireshark). A UDP payload is one IPv4 packet, so that higher layers decode;
/// how many frames it was is in the comment. There mobile n is 10.0.0.0 + n + 1, host n is 10.128.0.0 + n + 1. IP packets
/// are written as they are.
///
/// When the output fails, a full disk say, the capture stops and the link goes on: see [`Observer::problem`].
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    sink: Sink<W>,
    /// Channel time 0 since the Unix epoch.
    start: Duration,
    block: Vec<u8>,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes a capture to `out`, buffered, in which channel time 0 is `start` after the Unix epoch.
    pub fn new(out: W, start: Duration) -> Self {
        let mut writer = Self { sink: Sink::new("the capture", out), start, block: Vec::new() };
        writer.header();
        writer
    }

    fn header(&mut self) {
        // Section header: byte-order magic, version 1.0, length unknown.
        let mut body = Vec::new();
        body.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        body.extend_from_slice(&1_u16.to_le_bytes());
        body.extend_from_slice(&0_u16.to_le_bytes());
        body.extend_from_slice(&u64::MAX.to_le_bytes());
        self.write_block(0x0a0d_0d0a, &body);
        for name in INTERFACES {
            let mut body = Vec::new();
            body.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
            body.extend_from_slice(&0_u16.to_le_bytes());
            body.extend_from_slice(&0_u32.to_le_bytes());
            option(&mut body, OPTION_NAME, name.as_bytes());
            // Times in units of 10^-9 s.
            option(&mut body, OPTION_RESOLUTION, &[9]);
            option(&mut body, OPTION_END, &[]);
            self.write_block(1, &body);
        }
    }

    fn packet(&mut self, interface: u32, at: Duration, packet: &[u8], comment: &str) {
        let time = u64::try_from((self.start + at).as_nanos()).unwrap_or(u64::MAX);
        let length = (packet.len() as u32).to_le_bytes();
        let mut body = Vec::with_capacity(packet.len() + comment.len() + 64);
        body.extend_from_slice(&interface.to_le_bytes());
        body.extend_from_slice(&((time >> 32) as u32).to_le_bytes());
        body.extend_from_slice(&(time as u32).to_le_bytes());
        body.extend_from_slice(&length);
        body.extend_from_slice(&length);
        body.extend_from_slice(packet);
        pad(&mut body);
        if !comment.is_empty() {
            option(&mut body, OPTION_COMMENT, comment.as_bytes());
            option(&mut body, OPTION_END, &[]);
        }
        self.write_block(6, &body);
    }

    fn write_block(&mut self, kind: u32, body: &[u8]) {
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.block.clear();
        self.block.extend_from_slice(&kind.to_le_bytes());
        self.block.extend_from_slice(&length);
        self.block.extend_from_slice(body);
        self.block.extend_from_slice(&length);
        self.sink.write(&self.block);
    }
}

impl<W: Write + Send> Observer for CaptureWriter<W> {
    fn offered(&mut self, offered: &Offered<'_>) {
        let comment = format!("datagram {}", offered.datagram);
        let packet = packet(offered.from, offered.to, offered.content, offered.payload);
        self.packet(IN, offered.at, &packet, &comment);
    }

    fn datagram(&mut self, record: &DatagramRecord, payload: &Bytes) {
        let DatagramRecord { datagram, frames, transmissions, .. } = record;
        let comment = format!(
            "datagram {datagram}: {}, {frames} frames, {transmissions} transmissions, {:.6} s after it was offered",
            record.fate.name(),
            (record.ended - record.offered).as_secs_f64(),
        );
        let interface = if record.fate == Fate::Delivered { OUT } else { DROPPED };
        let packet = packet(record.from, record.to, record.content, payload);
        self.packet(interface, record.ended, &packet, &comment);
    }

    fn flush(&mut self) {
        self.sink.flush();
    }

    fn problem(&self) -> Option<String> {
        self.sink.problem.clone()
    }
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

/// What was offered, as an IP packet.
fn packet(from: Endpoint, to: Endpoint, content: Content, payload: &[u8]) -> Cow<'_, [u8]> {
    match content {
        Content::UdpPayload => packet::udp(from, to, 0, payload).into(),
        Content::IpPacket => payload.into(),
    }
}
