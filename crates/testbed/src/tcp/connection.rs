//! One end of a connection: the handshake, and segments between sender and receiver.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    receiver::{RECEIVE_BUFFER, Receiver},
    recovery::Ack,
    segment::{Segment, unwrap},
    sender::{Sender, TcpStats},
};

/// Timeout of the first SYN (RFC 6298 §2.1), and how often it is sent again (`tcp_syn_retries`).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const SYN_RETRIES: u32 = 6;

/// Sequence numbers of 64 bits begin here, so that those before the first are none below zero.
const BASE: u64 = 1 << 32;

/// How far a connection is (RFC 9293 §3.3.2; there is no FIN, so nothing follows).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    SynSent,
    SynReceived,
    Established,
    /// Reset by either end, or given up.
    Closed,
}

/// One end of a TCP connection, without a clock.
///
/// A stream ends by [`Connection::abort`] only: the programs of the testbed never close one in the middle of a run.
#[derive(Debug)]
pub(crate) struct Connection {
    phase: Phase,
    /// Timestamps count from here.
    epoch: Instant,
    /// Sequence number of our SYN, and of the peer's.
    own: u64,
    peer: u64,
    sender: Sender,
    receiver: Receiver,
    /// The peer's timestamp to be echoed (TS.Recent of RFC 7323 §4.3).
    recent: u32,
    /// When SYN was sent, how often, and when it is due again.
    syn_sent: Option<Instant>,
    syn_count: u32,
    syn_due: Option<Instant>,
    /// RST is to be sent.
    resets: bool,
}

impl Connection {
    /// Begins a handshake (RFC 9293 §3.5). `initial` is the initial sequence number; connections that follow each other between
    /// the same ports need different ones.
    pub(crate) fn connect(initial: u32, now: Instant) -> Self {
        Self::new(Phase::SynSent, initial, now)
    }

    /// Answers a SYN.
    pub(crate) fn accept(initial: u32, syn: &Segment, now: Instant) -> Self {
        let mut connection = Self::new(Phase::SynReceived, initial, now);
        connection.handle_syn(syn);
        connection
    }

    fn new(phase: Phase, initial: u32, now: Instant) -> Self {
        let own = BASE + u64::from(initial);
        Self {
            phase,
            epoch: now,
            own,
            peer: 0,
            sender: Sender::new(own + 1),
            receiver: Receiver::new(0),
            recent: 0,
            syn_sent: None,
            syn_count: 0,
            syn_due: Some(now),
            resets: false,
        }
    }

    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether a SYN began this connection, at its other end.
    pub(crate) fn was_begun_by(&self, syn: &Segment) -> bool {
        self.peer == BASE + u64::from(syn.sequence)
    }

    /// Returns how many bytes may be written.
    pub(crate) fn room(&self) -> u64 {
        if matches!(self.phase, Phase::Established) { self.sender.room() } else { 0 }
    }

    /// Writes to the stream; more than [`Self::room`] is taken all the same.
    pub(crate) fn write(&mut self, data: Bytes) {
        self.sender.write(data);
    }

    /// Reads from the stream; `None` when nothing is there.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        self.receiver.read()
    }

    /// Whether there is nothing to read.
    pub(crate) fn is_drained(&self) -> bool {
        self.receiver.is_empty()
    }

    /// Ends the connection with a reset (RFC 9293 §3.10.5).
    pub(crate) fn abort(&mut self) {
        self.resets = !matches!(self.phase, Phase::Closed | Phase::SynSent);
        self.phase = Phase::Closed;
    }

    pub(crate) const fn stats(&self) -> TcpStats {
        self.sender.stats
    }

    /// The smoothed RTT; none before the handshake.
    #[cfg(test)]
    pub(crate) const fn smoothed_rtt(&self) -> Option<Duration> {
        self.sender.rtt.smoothed()
    }

    /// Takes a segment of the peer.
    pub(crate) fn handle_input(&mut self, now: Instant, segment: &Segment) {
        match self.phase {
            Phase::Closed => {}
            Phase::SynSent => {
                let answers = segment.acknowledgment == Some((self.own + 1) as u32);
                if segment.rst && answers {
                    self.phase = Phase::Closed;
                } else if segment.syn && answers {
                    self.handle_syn(segment);
                    self.establish(now, segment);
                    self.receiver.request();
                }
            }
            Phase::SynReceived | Phase::Established => self.handle_segment(now, segment),
        }
    }

    /// Fires the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            Phase::Established => {
                self.sender.handle_timeout(now);
                self.receiver.handle_timeout(now);
                if self.sender.is_given_up(now) {
                    self.abort();
                }
            }
            Phase::SynSent | Phase::SynReceived => {
                if self.syn_due.is_some_and(|due| due <= now) && self.syn_count > SYN_RETRIES {
                    self.phase = Phase::Closed;
                }
            }
            Phase::Closed => {}
        }
    }

    /// Returns the next segment to send.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        match self.phase {
            Phase::Closed => std::mem::take(&mut self.resets)
                .then(|| Segment { rst: true, ..self.segment(now, self.sender.next) }),
            Phase::SynSent | Phase::SynReceived => {
                self.syn_due.filter(|due| *due <= now)?;
                self.syn_due = Some(now + SYN_TIMEOUT * (1 << self.syn_count));
                self.syn_count += 1;
                self.syn_sent = Some(now);
                let acknowledgment = (self.phase == Phase::SynReceived).then_some((self.peer + 1) as u32);
                let window = RECEIVE_BUFFER.min(u16::MAX.into()) as u32;
                Some(Segment { syn: true, acknowledgment, window, ..self.segment(now, self.own) })
            }
            Phase::Established => {
                if let Some(output) = self.sender.poll(now) {
                    self.receiver.handle_sent(now);
                    return Some(Segment { data: output.data, ..self.told(now, output.sequence) });
                }
                self.receiver.is_due().then(|| self.told(now, self.sender.next))
            }
        }
    }

    /// Returns when [`Self::handle_timeout`] is wanted next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::SynSent | Phase::SynReceived => self.syn_due,
            Phase::Established => {
                self.sender.poll_timeout().into_iter().chain(self.receiver.poll_timeout()).min()
            }
            Phase::Closed => None,
        }
    }

    fn handle_syn(&mut self, syn: &Segment) {
        self.peer = BASE + u64::from(syn.sequence);
        self.receiver = Receiver::new(self.peer + 1);
        self.recent = syn.timestamp;
    }

    fn establish(&mut self, now: Instant, segment: &Segment) {
        self.phase = Phase::Established;
        self.syn_due = None;
        self.sender.handle_window(self.own + 1 + u64::from(segment.window));
        // Karn's rule; by its timestamp a repeated SYN could be measured, too (RFC 7323 §4.1), to a millisecond.
        if let Some(sent) = self.syn_sent.filter(|_| self.syn_count == 1) {
            let rtt = now.saturating_duration_since(sent);
            self.sender.rtt.saw(rtt);
            self.sender.rtt.sample(rtt, self.own, self.own + 1);
        }
    }

    fn handle_segment(&mut self, now: Instant, segment: &Segment) {
        let sequence = unwrap(self.receiver.expected(), segment.sequence);
        if segment.rst {
            if self.receiver.is_within(sequence) {
                self.phase = Phase::Closed;
            }
            return;
        }
        if segment.syn {
            // The peer has not heard our answer.
            if self.phase == Phase::SynReceived {
                self.syn_due = Some(self.syn_due.map_or(now, |due| due.min(now)));
            } else {
                self.receiver.request();
            }
            return;
        }
        let Some(wire) = segment.acknowledgment else { return };
        let ack = unwrap(self.sender.acknowledged, wire);
        if !self.receiver.is_within(sequence) && !self.receiver.is_before(sequence) {
            // Of another connection, or beyond the window.
            return;
        }
        if self.phase == Phase::SynReceived {
            if ack <= self.own {
                return;
            }
            self.establish(now, segment);
        }
        if sequence <= self.receiver.told() {
            self.recent = segment.timestamp;
        }
        let blocks: Vec<(u64, u64)> =
            segment.blocks.iter().map(|&(start, end)| (unwrap(ack, start), unwrap(ack, end))).collect();
        let echo = self.epoch + Duration::from_millis(segment.echo.into());
        self.sender.handle_ack(
            now,
            &Ack {
                ack,
                edge: ack + u64::from(segment.window),
                blocks: &blocks,
                echo: (echo <= now).then_some(echo),
                has_data: !segment.data.is_empty(),
            },
        );
        if !segment.data.is_empty() {
            self.receiver.handle_data(now, sequence, segment.data.clone(), self.sender.rtt.timeout());
        } else if sequence < self.receiver.told() {
            // An old sequence number asks for the window.
            self.receiver.request();
        }
    }

    /// A segment that says what was received.
    fn told(&mut self, now: Instant, sequence: u64) -> Segment {
        let (next, window, blocks) = self.receiver.tell();
        Segment {
            acknowledgment: Some(next as u32),
            window: window as u32,
            blocks: blocks.into_iter().map(|(start, end)| (start as u32, end as u32)).collect(),
            ..self.segment(now, sequence)
        }
    }

    fn segment(&self, now: Instant, sequence: u64) -> Segment {
        Segment {
            sequence: sequence as u32,
            timestamp: now.saturating_duration_since(self.epoch).as_millis() as u32,
            echo: self.recent,
            ..Segment::default()
        }
    }
}
