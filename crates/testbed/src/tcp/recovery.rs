//! What a sender remembers while it recovers from losses. What it does then is in `acknowledgements.rs`.

use std::time::{Duration, Instant};

/// Step of the clock of timestamps (RFC 7323 §5.4; Linux: 1 ms).
const TIMESTAMP: Duration = Duration::from_millis(1);

/// Where a sender stands (`tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Open,
    /// Something was acknowledged selectively.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// An acknowledgement as a sender takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack<'a> {
    pub(super) ack: u64,
    /// The right edge of the window.
    pub(super) edge: u64,
    /// SACK blocks, the first of which may be a D-SACK.
    pub(super) blocks: &'a [(u64, u64)],
    /// When the segment was sent that made the peer acknowledge (TSecr).
    pub(super) echo: Option<Instant>,
    /// Whether the segment had data: then it is no duplicate acknowledgement.
    pub(super) has_data: bool,
}

/// The state of loss recovery.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    pub(super) state: State,
    /// What had been sent when it began.
    pub(super) high: u64,
    /// Window and threshold before the reduction.
    pub(super) prior: Option<(u32, u32)>,
    /// The window when the reduction began, segments delivered and sent since (RFC 6937 §3).
    pub(super) prior_window: u32,
    pub(super) delivered: u32,
    pub(super) sent: u32,
    /// Undo is possible for what was sent from here on, once so many retransmissions turn out to have been spurious.
    pub(super) undo_from: Option<u64>,
    pub(super) undo_count: Option<u32>,
    /// When the first retransmission was made.
    pub(super) retransmitted_at: Option<Instant>,
    /// Whether the timeout may have been spurious, and new data is sent to find out (RFC 5682 §3.1).
    pub(super) frto: bool,
    pub(super) holds_back: bool,
    /// Timeouts since something was acknowledged cumulatively.
    pub(super) timeouts: u32,
    pub(super) reordering_seen: bool,
    pub(super) reordering_steps: u32,
    pub(super) reordering_persists: u32,
    pub(super) reordering_round: u64,
    pub(super) duplicate_seen: bool,
}

impl Recovery {
    /// Whether lost segments are to be sent before new ones.
    pub(super) const fn may_retransmit(&self) -> bool {
        !self.holds_back && matches!(self.state, State::Recovery | State::Loss)
    }

    pub(super) const fn handle_sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn handle_retransmitted(&mut self, now: Instant) {
        self.sent += 1;
        self.undo_count = self.undo_count.map(|count| count + 1);
        self.retransmitted_at.get_or_insert(now);
    }

    /// Whether the peer got twice whatever was retransmitted.
    pub(super) fn all_spurious(&self) -> bool {
        self.undo_count == Some(0) && self.retransmitted_at.is_some()
    }

    /// Whether the peer acknowledges what was sent before the first retransmission.
    pub(super) fn is_original(&self, ack: &Ack<'_>) -> bool {
        let (Some(echo), Some(at)) = (ack.echo, self.retransmitted_at) else { return false };
        echo + TIMESTAMP <= at
    }
}
