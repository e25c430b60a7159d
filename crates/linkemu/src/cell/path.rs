//! What lies before and after the medium: wire, receive buffer, latency, and the fate of datagrams.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;

use super::{Cell, Delivery, Entry, Event};
use crate::{
    ChannelState, Content, DatagramRecord, Duplex, Fate, FrameRecord, IpIdentification, JitterSpread,
    UdpChecksum,
    fragment::Frame,
    reassembly::{Joined, Piece},
    rng,
    units::{Nanos, nanos},
};

const FROM_HOSTS: usize = 0;
const TO_HOSTS: usize = 1;

/// Frames that a mobile has received and its host has not taken yet.
#[derive(Debug, Default)]
pub(super) struct ReceiveBuffer {
    frames: VecDeque<Frame>,
}

impl Cell {
    /// A frame sets out from its sender.
    pub(super) fn send(&mut self, frame: Frame) {
        if frame.end % 2 == 1 || self.wires[FROM_HOSTS].is_transparent() {
            self.enqueue(frame);
        } else {
            self.onto_wire(FROM_HOSTS, frame);
        }
    }

    fn onto_wire(&mut self, direction: usize, frame: Frame) {
        match self.wires[direction].push(self.now, frame) {
            Some(due) => self.schedule(due, Event::Wire(direction as u32)),
            None => self.frame_over(frame, Fate::WireFull),
        }
    }

    pub(super) fn off_wire(&mut self, direction: usize) {
        while let Some(frame) = self.wires[direction].pop(self.now) {
            if direction == FROM_HOSTS {
                self.enqueue(frame);
            } else {
                self.frame_over(frame, Fate::Delivered);
            }
        }
    }

    /// A frame reaches the queue before the medium.
    fn enqueue(&mut self, mut frame: Frame) {
        self.stats.frames += 1;
        frame.queued = self.now;
        let mobile = frame.end as usize / 2;
        let (queue, position) = if frame.end.is_multiple_of(2) { (0, mobile) } else { (mobile + 1, 0) };
        if !self.queues[queue].push(frame, position) {
            self.frame_over(frame, Fate::QueueFull);
        }
    }

    /// A frame has crossed the medium to `end`.
    pub(super) fn pass_up(&mut self, end: usize, frame: Frame) {
        if !self.decompress(end, frame) {
            self.frame_over(frame, Fate::Header);
            return;
        }
        let Some(config) = self.config.receive_buffer.filter(|_| end % 2 == 1) else {
            self.delay(end, frame);
            return;
        };
        let buffer = &mut self.buffers[end / 2].frames;
        if buffer.len() >= config.packets as usize {
            self.frame_over(frame, Fate::ReceiveBufferFull);
            return;
        }
        buffer.push_back(frame);
        if buffer.len() == 1 {
            self.schedule(self.now + nanos(config.service), Event::Buffer(end as u32 / 2));
        }
    }

    pub(super) fn buffer_served(&mut self, mobile: usize) {
        let Some(frame) = self.buffers[mobile].frames.pop_front() else {
            return;
        };
        if let (false, Some(config)) = (self.buffers[mobile].frames.is_empty(), self.config.receive_buffer) {
            self.schedule(self.now + nanos(config.service), Event::Buffer(mobile as u32));
        }
        self.delay(2 * mobile + 1, frame);
    }

    fn delay(&mut self, end: usize, frame: Frame) {
        let fixed = match self.config.duplex {
            Duplex::Half => nanos(self.config.delay),
            Duplex::Full => 0,
        };
        let due = self.now + fixed + self.draw_jitter();
        let line = &mut self.latency[end];
        let due = if self.config.jitter.overtaking { due } else { due.max(line.last()) };
        if due == self.now {
            self.out_of_latency(end, frame);
            return;
        }
        line.push(due, frame);
        self.schedule(due, Event::Latency(end as u32));
    }

    fn draw_jitter(&mut self) -> Nanos {
        let micros = match self.config.jitter.spread {
            JitterSpread::None => return 0,
            JitterSpread::Uniform(most) => most.as_secs_f64() * 1e6 * rng::unit(&mut self.jitter),
            JitterSpread::Exponential(mean) => {
                let draws = -(1.0 - rng::unit(&mut self.jitter)).ln();
                mean.as_secs_f64() * 1e6 * draws.min(20.0)
            }
        };
        micros.round() as Nanos * 1000
    }

    pub(super) fn latency_over(&mut self, end: usize) {
        while let Some(frame) = self.latency[end].pop(self.now) {
            self.out_of_latency(end, frame);
        }
    }

    fn out_of_latency(&mut self, end: usize, frame: Frame) {
        if end % 2 == 1 || self.wires[TO_HOSTS].is_transparent() {
            self.frame_over(frame, Fate::Delivered);
        } else {
            self.onto_wire(TO_HOSTS, frame);
        }
    }

    /// The fate of a frame is settled: it has reached its destination, or it is gone.
    pub(super) fn frame_over(&mut self, frame: Frame, fate: Fate) {
        if !self.observers.is_empty() {
            let record = FrameRecord {
                datagram: frame.datagram,
                index: u32::from(frame.index),
                bytes: frame.air_bytes,
                queued: self.channel_time(frame.queued),
                first_air: (frame.first_air != Nanos::MAX).then(|| self.channel_time(frame.first_air)),
                attempts: frame.attempts,
                ended: self.channel_time(self.now),
                fate,
            };
            for observer in &mut self.observers {
                observer.frame(&record);
            }
        }
        let Some(entry) = self.table.entry(frame.slot, frame.datagram) else {
            return;
        };
        entry.transmissions += frame.attempts;
        entry.first_air = entry.first_air.min(frame.first_air);
        entry.open -= 1;
        let last = entry.open == 0;
        // A packet is whole, or a fragment that its receiver puts together with others.
        let identification = match entry.content {
            Content::UdpPayload => self.config.reassembly.identification,
            Content::IpPacket => IpIdentification::Distinct,
        };
        match (fate, identification) {
            (Fate::Delivered, IpIdentification::Distinct) => {
                entry.arrived += 1;
                if entry.arrived == entry.frames {
                    let (from, to, payload) = (entry.from, entry.to, entry.payload.clone());
                    self.settle_datagram(frame.slot, frame.datagram, Fate::Delivered);
                    self.deliver(frame.datagram, from, to, payload);
                }
            }
            (Fate::Delivered, IpIdentification::Wrapping { checksum, .. }) => self.join(frame, checksum),
            (fate, _) => self.settle_datagram(frame.slot, frame.datagram, fate),
        }
        if last {
            self.settle_datagram(frame.slot, frame.datagram, Fate::ReassemblyTimeout);
            self.close(frame.slot);
        }
    }

    /// A fragment reaches a destination where identifications repeat.
    fn join(&mut self, frame: Frame, checksum: UdpChecksum) {
        let Some(entry) = self.table.entry(frame.slot, frame.datagram) else {
            return;
        };
        let (from, to, payload) = (entry.from, entry.to, entry.payload.clone());
        let key = (from.station, to.station, entry.identification);
        let piece = Piece { frame, payload: payload.clone() };
        match self.reassembly.arrive(self.now, key, usize::from(entry.frames), piece) {
            Joined::Waiting => {}
            Joined::PlaceTaken => self.settle_datagram(frame.slot, frame.datagram, Fate::Spliced),
            Joined::Whole => {
                self.settle_datagram(frame.slot, frame.datagram, Fate::Delivered);
                self.deliver(frame.datagram, from, to, payload);
            }
            Joined::Spliced(pieces) => {
                for piece in &pieces {
                    self.settle_datagram(piece.frame.slot, piece.frame.datagram, Fate::Spliced);
                }
                let (joined, agrees) = self.reassembly.splice(&pieces);
                if agrees || checksum == UdpChecksum::Off {
                    self.stats.splices_delivered += 1;
                    self.deliver(frame.datagram, from, to, joined);
                } else {
                    self.stats.splices_caught += 1;
                }
            }
        }
    }

    fn deliver(&mut self, datagram: u64, from: crate::Endpoint, to: crate::Endpoint, payload: Bytes) {
        self.stats.delivered_bytes += payload.len() as u64;
        self.deliveries.push_back(Delivery { datagram, at: self.instant(self.now), from, to, payload });
    }

    /// The first fate of a datagram is its fate.
    pub(super) fn settle_datagram(&mut self, slot: u32, datagram: u64, fate: Fate) {
        let now = self.now;
        if let Some(entry) = self.table.entry(slot, datagram).filter(|entry| entry.fate.is_none()) {
            entry.fate = Some((fate, now));
            self.stats.count(fate);
        }
    }

    /// No frame of this datagram is under way any more.
    pub(super) fn close(&mut self, slot: u32) {
        if let Some(entry) = self.table.remove(slot) {
            self.record(&entry);
        }
    }

    pub(super) fn record(&mut self, entry: &Entry) {
        if self.observers.is_empty() {
            return;
        }
        let (fate, ended) = entry.fate.unwrap_or((Fate::UnderWay, self.now));
        let mobile = match (entry.from.station, entry.to.station) {
            (crate::Station::Mobile(mobile), _) | (_, crate::Station::Mobile(mobile)) => usize::from(mobile),
            _ => 0,
        };
        let (offered, ended) = (self.channel_time(entry.offered), self.channel_time(ended));
        let number = self.channel_of(2 * mobile);
        let first_air = (entry.first_air != Nanos::MAX).then(|| self.channel_time(entry.first_air));
        let mut state = |time: Duration| match self.channels.get_mut(number) {
            Some((channel, _)) => channel.state(time),
            None => ChannelState::Good,
        };
        let record = DatagramRecord {
            datagram: entry.datagram,
            from: entry.from,
            to: entry.to,
            content: entry.content,
            payload_bytes: entry.payload.len() as u32,
            frames: u32::from(entry.frames),
            offered,
            first_air,
            transmissions: entry.transmissions,
            ended,
            fate,
            state_offered: state(offered),
            state_ended: state(ended),
        };
        for observer in &mut self.observers {
            observer.datagram(&record, &entry.payload);
        }
    }

    fn channel_time(&self, at: Nanos) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.origin.unwrap_or(at)))
    }
}
