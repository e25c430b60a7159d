//! Calls that wait for a thread: in their order, or those of one address in turn with those of others, however many there are.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use nfs_wire::portmap::Protocol;

use super::work::Job;

/// Most UDP calls that wait for a thread; further ones are dropped, as from a full socket buffer.
pub(super) const MOST_CALLS: usize = 1024;

/// Most bytes of calls that wait for a thread.
const MOST_BYTES: usize = 4 << 20;

/// A call, and its arguments.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) job: Job,
    pub(super) arguments: Vec<u8>,
}

/// Calls that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Line {
    calls: VecDeque<Waiting>,
    bytes: usize,
    addresses: BTreeMap<IpAddr, Turn>,
    turns: u64,
}

/// What an address has to do with a line.
#[derive(Debug, Default)]
struct Turn {
    /// Its calls that wait.
    calls: usize,
    /// When it had its last turn.
    last: u64,
}

impl Line {
    /// Whether no more should be added before some are taken.
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= MOST_CALLS || self.bytes >= MOST_BYTES
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn add(&mut self, call: Waiting) {
        self.bytes += call.arguments.len();
        self.addresses.entry(call.job.peer.address.ip()).or_default().calls += 1;
        self.calls.push_back(call);
    }

    /// Takes the first call.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        self.remove(0)
    }

    /// Takes the first call of the address whose last turn is the longest ago.
    pub(super) fn next_in_turn(&mut self) -> Option<Waiting> {
        let last =
            |call: &Waiting| self.addresses.get(&call.job.peer.address.ip()).map_or(0, |turn| turn.last);
        let (at, _) = self.calls.iter().enumerate().min_by_key(|(_, call)| last(call))?;
        let call = self.remove(at)?;
        self.turns += 1;
        if let Some(turn) = self.addresses.get_mut(&call.job.peer.address.ip()) {
            turn.last = self.turns;
        }
        if self.addresses.len() > 2 * MOST_CALLS {
            self.addresses.retain(|_, turn| turn.calls > 0);
        }
        Some(call)
    }

    /// Makes room for a call from an address in a full line: takes out the last UDP call of one that has many more there; `None` if none has.
    pub(super) fn make_room(&mut self, address: IpAddr) -> Option<Waiting> {
        let own = self.addresses.get(&address).map_or(0, |turn| turn.calls);
        let (&most, turn) = self.addresses.iter().max_by_key(|(_, turn)| turn.calls)?;
        if turn.calls < 2 * (own + 1) {
            return None;
        }
        let is_of_it =
            |call: &Waiting| call.job.peer.address.ip() == most && call.job.peer.protocol == Protocol::Udp;
        let at = self.calls.iter().rposition(is_of_it)?;
        self.remove(at)
    }

    fn remove(&mut self, at: usize) -> Option<Waiting> {
        let call = self.calls.remove(at)?;
        self.bytes -= call.arguments.len();
        if let Some(turn) = self.addresses.get_mut(&call.job.peer.address.ip()) {
            turn.calls -= 1;
        }
        if self.calls.is_empty() {
            self.clear();
        }
        Some(call)
    }
}
