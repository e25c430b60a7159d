//! Somebody else's TCP on the same link: an endless flow with the congestion control of RFC 5681 and RFC 6582 (NewReno).
//!
//! It knows nothing of NFS. It stands for what shares a queue with us and backs off when that queue overflows.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};

use crate::Operation;

/// The port of both ends.
const PORT: u16 = 5001;

/// File bytes of a segment: an MTU of 1500 less IP, TCP and timestamps (RFC 7323 §3).
pub(crate) const SEGMENT_BYTES: u64 = 1448;

/// UDP payload that makes an IP packet as long as that of a full segment, and of an acknowledgement.
const DATA_PAYLOAD: usize = 1500 - 28;
const ACK_PAYLOAD: usize = 52 - 28;

/// RFC 6928 §2; bytes in flight count in segments.
const INITIAL_WINDOW: f64 = 10.0;

/// What Linux takes for RFC 6298's lower bound.
const MIN_RTO: Duration = Duration::from_millis(200);
const MAX_RTO: Duration = Duration::from_secs(60);

/// The ends of the flow on mobile `number`, sender first.
pub(crate) fn flow(
    operation: Operation,
    number: u16,
    now: Instant,
) -> ((Endpoint, Sender), (Endpoint, Receiver)) {
    let (host, mobile) = (Endpoint::host(1, PORT), Endpoint::mobile(number, PORT));
    let (from, to) = match operation {
        Operation::Read => (host, mobile),
        Operation::Write => (mobile, host),
    };
    ((from, Sender::new(from, to, now)), (to, Receiver::new(to)))
}

/// Sends for ever.
#[derive(Debug)]
pub(crate) struct Sender {
    from: Endpoint,
    to: Endpoint,
    epoch: Instant,
    /// Segments acknowledged, and the next one to be sent.
    acked: u64,
    next: u64,
    /// Congestion window and slow-start threshold, in segments.
    window: f64,
    threshold: f64,
    duplicates: u32,
    /// Recovery lasts until this segment is acknowledged.
    recover: Option<u64>,
    again: Option<u64>,
    /// Smoothed round-trip time and its deviation (RFC 6298 §2).
    trip: Option<(Duration, Duration)>,
    backoff: u32,
    timer: Option<Instant>,
    running: bool,
}

impl Sender {
    const fn new(from: Endpoint, to: Endpoint, epoch: Instant) -> Self {
        Self {
            from,
            to,
            epoch,
            acked: 0,
            next: 0,
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            duplicates: 0,
            recover: None,
            again: None,
            trip: None,
            backoff: 0,
            timer: None,
            running: true,
        }
    }

    /// Sends no more.
    pub(crate) const fn stop(&mut self) {
        (self.running, self.timer) = (false, None);
    }

    fn timeout(&self) -> Duration {
        let base = self.trip.map_or(Duration::from_secs(1), |(smoothed, deviation)| smoothed + 4 * deviation);
        (base.max(MIN_RTO) * 2_u32.pow(self.backoff.min(8))).min(MAX_RTO)
    }

    fn halve(&mut self) {
        self.threshold = ((self.next - self.acked) as f64 / 2.0).max(2.0);
    }

    fn sample(&mut self, rtt: Duration) {
        self.trip = Some(match self.trip {
            None => (rtt, rtt / 2),
            Some((smoothed, deviation)) => {
                ((smoothed * 7 + rtt) / 8, (deviation * 3 + smoothed.abs_diff(rtt)) / 4)
            }
        });
    }

    fn handle_ack(&mut self, now: Instant, ack: u64) {
        if ack > self.acked {
            let newly = (ack - self.acked) as f64;
            self.acked = ack;
            self.next = self.next.max(ack);
            self.duplicates = 0;
            self.backoff = 0;
            match self.recover {
                Some(recover) if ack < recover => {
                    // A partial acknowledgement: the next hole (RFC 6582 §3.2).
                    self.again = Some(ack);
                    self.window = (self.window - newly + 1.0).max(1.0);
                }
                Some(_) => (self.recover, self.window) = (None, self.threshold),
                None if self.window < self.threshold => self.window += newly,
                None => self.window += newly / self.window,
            }
            self.timer = (self.next > self.acked).then(|| now + self.timeout());
        } else if ack == self.acked && self.next > self.acked {
            self.duplicates += 1;
            if self.recover.is_some() {
                self.window += 1.0;
            } else if self.duplicates == 3 {
                self.halve();
                self.window = self.threshold + 3.0;
                self.recover = Some(self.next);
                self.again = Some(self.acked);
            }
        }
    }
}

impl Node for Sender {
    fn handle_input(&mut self, now: Instant, _from: Endpoint, _to: Endpoint, payload: Bytes) {
        let Some((ack, sent)) = numbers(&payload) else { return };
        self.sample(now.saturating_duration_since(self.epoch + Duration::from_nanos(sent)));
        self.handle_ack(now, ack);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_some_and(|timer| timer <= now) {
            self.halve();
            (self.window, self.next, self.recover, self.again) = (1.0, self.acked, None, None);
            self.duplicates = 0;
            self.backoff += 1;
            self.timer = None;
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        if !self.running {
            return None;
        }
        let segment = match self.again.take() {
            Some(segment) => segment,
            None if ((self.next - self.acked) as f64) < self.window.floor() => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        if self.timer.is_none() {
            self.timer = Some(now + self.timeout());
        }
        let sent = now.saturating_duration_since(self.epoch).as_nanos() as u64;
        Some(Outgoing { from: self.from, to: self.to, payload: message(segment, sent, DATA_PAYLOAD) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }
}

/// Acknowledges every segment.
#[derive(Debug)]
pub(crate) struct Receiver {
    place: Endpoint,
    /// Everything before this segment has arrived.
    next: u64,
    early: BTreeSet<u64>,
    acks: Vec<(Endpoint, u64)>,
}

impl Receiver {
    const fn new(place: Endpoint) -> Self {
        Self { place, next: 0, early: BTreeSet::new(), acks: Vec::new() }
    }

    /// Bytes that have arrived in order.
    pub(crate) const fn received(&self) -> u64 {
        self.next * SEGMENT_BYTES
    }
}

impl Node for Receiver {
    fn handle_input(&mut self, _now: Instant, from: Endpoint, _to: Endpoint, payload: Bytes) {
        let Some((segment, sent)) = numbers(&payload) else { return };
        if segment >= self.next {
            self.early.insert(segment);
        }
        while self.early.remove(&self.next) {
            self.next += 1;
        }
        self.acks.push((from, sent));
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant) -> Option<Outgoing> {
        if self.acks.is_empty() {
            return None;
        }
        let (to, sent) = self.acks.remove(0);
        Some(Outgoing { from: self.place, to, payload: message(self.next, sent, ACK_PAYLOAD) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A segment's number or an acknowledgement, and when the segment was sent.
fn message(number: u64, sent: u64, length: usize) -> Bytes {
    let mut payload = vec![0; length];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload[8..16].copy_from_slice(&sent.to_be_bytes());
    payload.into()
}

fn numbers(payload: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = payload.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(*rest.first_chunk()?)))
}
