//! Delays after the medium: the wire behind the base station, and latency that keeps or breaks order.

use std::collections::VecDeque;

use crate::{
    BitRate, WiredConfig,
    fragment::Frame,
    units::{Nanos, nanos},
};

/// Frames on their way, by arrival time; equal times keep their order.
#[derive(Debug, Default)]
pub(crate) struct DelayLine {
    frames: VecDeque<(Nanos, Frame)>,
}

impl DelayLine {
    /// Adds a frame that arrives at `due`, whatever was added before.
    pub(crate) fn push(&mut self, due: Nanos, frame: Frame) {
        let place = self.frames.iter().rev().take_while(|(at, _)| *at > due).count();
        self.frames.insert(self.frames.len() - place, (due, frame));
    }

    /// The arrival time of the frame added last.
    pub(crate) fn last(&self) -> Nanos {
        self.frames.back().map_or(0, |&(at, _)| at)
    }

    /// The next frame that has arrived.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Frame> {
        if self.frames.front()?.0 > now {
            return None;
        }
        self.frames.pop_front().map(|(_, frame)| frame)
    }
}

/// One direction of the wire: a serialiser with a bounded queue, then a delay.
#[derive(Debug)]
pub(crate) struct Wire {
    rate: BitRate,
    delay: Nanos,
    most_bytes: u64,
    free_at: Nanos,
    line: DelayLine,
}

impl Wire {
    pub(crate) fn new(config: &WiredConfig) -> Self {
        Self {
            rate: config.rate,
            delay: nanos(config.delay),
            most_bytes: config.queue_bytes,
            free_at: 0,
            line: DelayLine::default(),
        }
    }

    /// Whether frames pass in no time.
    pub(crate) fn is_transparent(&self) -> bool {
        self.rate.is_unlimited() && self.delay == 0
    }

    /// Sends a frame; the time of its arrival, or `None` if it did not fit the queue.
    pub(crate) fn push(&mut self, now: Nanos, frame: Frame) -> Option<Nanos> {
        let waiting = self.rate.bits_in(self.free_at.saturating_sub(now)) / 8;
        if waiting + u64::from(frame.bytes) > self.most_bytes {
            return None;
        }
        self.free_at = self.free_at.max(now) + self.rate.nanos(u64::from(frame.bytes) * 8);
        let due = self.free_at + self.delay;
        self.line.push(due, frame);
        Some(due)
    }

    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Frame> {
        self.line.pop(now)
    }
}
