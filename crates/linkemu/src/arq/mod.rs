//! Link-level retransmission: what the two ends of one hop do to get frames across.
//!
//! Each pair of stations has two ends, one at the base station and one at the mobile. An end sends the frames of its
//! station and receives those of the other. It asks for air time by being [`End::ready`]; the medium grants it by calling
//! [`End::next`], carries the signal, and hands the other end what survived.

mod exchange;
mod ideal;
mod none;
mod receiver;
mod rts_cts;
mod selective_repeat;
mod stop_and_wait;

use std::fmt::Debug;

use crate::{
    ArqKind, LinkConfig,
    fragment::Frame,
    queue::Feed,
    units::{Nanos, nanos},
};

/// One end of a hop.
pub(crate) trait End: Debug + Send {
    /// Whether [`End::next`] would send something now; `backlog` says whether the queue has a frame for this end.
    fn ready(&self, now: Nanos, backlog: bool) -> bool;

    /// The next signal to send. Takes frames from the queue as it needs them.
    fn next(&mut self, now: Nanos, feed: &mut Feed<'_>) -> Option<Transmission>;

    /// The signal just sent expects an answer: without one by `deadline` the attempt has failed.
    fn await_answer(&mut self, deadline: Nanos) {
        debug_assert!(false, "nothing expects an answer by {deadline}");
    }

    /// A signal arrived whole. Returns what must be sent at once: an answer, or the frame that a CTS allows.
    fn receive(&mut self, now: Nanos, signal: Signal, outcome: &mut Outcome) -> Option<Transmission>;

    /// A data signal to this end was lost and the channel is good again at `good_again`. True if the frame is not lost
    /// after all: only the oracle does that.
    fn rescue(&mut self, signal: &Signal, good_again: Nanos) -> bool {
        let _ = (signal, good_again);
        false
    }

    /// Does what is due.
    fn handle_timeout(&mut self, now: Nanos, outcome: &mut Outcome);

    /// When [`End::handle_timeout`] is wanted next.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Whether no frame of this end waits for its fate.
    fn idle(&self) -> bool;

    /// As a receiver: whether the frame with this sequence number has arrived.
    fn has(&self, sequence: u64) -> bool;
}

/// What goes on the air.
#[derive(Clone, Debug)]
pub(crate) enum Signal {
    /// A frame.
    Data(Data),
    /// This frame has arrived.
    Ack { sequence: u64 },
    /// May I send?
    Rts,
    /// You may send.
    Cts,
    /// Which frames have arrived?
    BlockAckRequest { serial: u64, floor: u64 },
    /// These have.
    BlockAck(BlockAck),
}

/// A frame with what the link layer needs to put it in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) frame: Frame,
    /// Its place among the frames of this end.
    pub(crate) sequence: u64,
    /// Counts transmissions of this end, so that an answer says how far it looked.
    pub(crate) serial: u64,
    /// The receiver need not wait for frames before this one.
    pub(crate) floor: u64,
    /// The receiver answers with a block acknowledgement.
    pub(crate) poll: bool,
}

/// Which frames have arrived.
#[derive(Clone, Debug)]
pub(crate) struct BlockAck {
    /// The serial number of the poll that it answers: transmissions up to here are accounted for.
    pub(crate) serial: u64,
    /// All frames before this one have arrived, or are no longer wanted.
    pub(crate) floor: u64,
    /// Frames from `floor` on that have arrived, one bit each; empty if none.
    pub(crate) arrived: Vec<u64>,
}

/// A signal and the answer that the medium keeps room for.
#[derive(Clone, Debug)]
pub(crate) struct Transmission {
    pub(crate) signal: Signal,
    /// Air time of the answer; 0 if none is expected.
    pub(crate) answer: Nanos,
}

/// What an end found out.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Frames received, in order, each once.
    pub(crate) up: Vec<Frame>,
    /// Frames given up after the retry limit.
    pub(crate) given_up: Vec<Data>,
    /// Frames received again, and removed.
    pub(crate) duplicates: u64,
    /// Attempts that brought no answer.
    pub(crate) failures: u64,
}

impl Outcome {
    pub(crate) fn is_empty(&self) -> bool {
        self.up.is_empty() && self.given_up.is_empty() && self.duplicates == 0 && self.failures == 0
    }
}

/// Air times and limits, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    pub(crate) ack: Nanos,
    pub(crate) block_ack: Nanos,
    pub(crate) rts: Nanos,
    pub(crate) cts: Nanos,
    pub(crate) retry: Nanos,
    pub(crate) retry_limit: u32,
    pub(crate) block_frames: u32,
    pub(crate) window_frames: u32,
}

impl Parameters {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let arq = &config.arq;
        let reservation = nanos(arq.rts_cts);
        Self {
            ack: nanos(arq.ack),
            block_ack: nanos(arq.block_ack),
            rts: reservation / 2,
            cts: reservation - reservation / 2,
            retry: nanos(arq.retry),
            retry_limit: arq.retry_limit.unwrap_or(u32::MAX),
            block_frames: arq.block_frames,
            window_frames: config.window_frames(),
        }
    }

    /// Air time of a signal other than data, which depends on the rate.
    pub(crate) fn control(&self, signal: &Signal) -> Nanos {
        match signal {
            Signal::Data(_) => 0,
            Signal::Ack { .. } => self.ack,
            Signal::Rts => self.rts,
            Signal::Cts => self.cts,
            Signal::BlockAckRequest { .. } | Signal::BlockAck(_) => self.block_ack,
        }
    }
}

/// An end as the configuration wants it.
pub(crate) fn end(config: &LinkConfig) -> Box<dyn End> {
    let parameters = Parameters::new(config);
    match config.arq.kind {
        ArqKind::None => Box::new(none::Plain::default()),
        ArqKind::Ideal => Box::new(ideal::Ideal::default()),
        ArqKind::StopAndWait => stop_and_wait::end(parameters, config.arq.probe),
        ArqKind::RtsCts => rts_cts::end(parameters),
        ArqKind::SelectiveRepeat => Box::new(selective_repeat::SelectiveRepeat::new(parameters)),
    }
}
