//! What the engine counted.

use super::rtt::RttHistogram;

/// Counters of an engine, copied out by value.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were sent at least once.
    pub calls: u64,
    /// Calls that were answered, whatever the answer.
    pub replies: u64,
    /// Attempts after the first, by cause.
    pub resends: Resends,
    /// Resends that turned out to be needless: an earlier attempt's reply arrived anyway.
    pub useless_resends: u64,
    /// Replies to calls that were answered, cancelled or unknown, and messages from elsewhere.
    pub stray_replies: u64,
    /// Messages that were no replies at all.
    pub malformed: u64,
    /// Calls whose deadline passed.
    pub expired: u64,
    /// Calls that the server asked to repeat later (`NFS3ERR_JUKEBOX`).
    pub postponed: u64,
    /// Round-trip times of calls that were sent once (Karn's rule).
    pub rtt: RttHistogram,
}

/// Attempts after the first, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resends {
    /// The policy's timer ran out.
    pub timeout: u64,
    /// The connection was lost and made again.
    pub reconnect: u64,
}

impl Resends {
    /// Returns what was added since `before`.
    pub const fn since(&self, before: &Self) -> Self {
        Self { timeout: self.timeout - before.timeout, reconnect: self.reconnect - before.reconnect }
    }

    /// Returns the sum over all causes.
    pub const fn total(&self) -> u64 {
        self.timeout + self.reconnect
    }
}
