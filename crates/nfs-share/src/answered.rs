//! Which greetings were answered: a copy of one costs no computation, and counts for nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::datagram::Attempt;

/// Greetings of one member that are remembered; the oldest is forgotten first.
const MAX_ANSWERED: usize = 1024;

/// Welcomes of one member that are kept until they have arrived.
const MAX_WELCOMES: usize = 64;

/// Tells a greeting from all others. Copies are one greeting, wherever they come from and whatever cookie they bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GreetingId([u8; 16]);

impl GreetingId {
    /// Names a greeting by all that decides what is computed for it.
    pub(crate) fn of(attempt: &Attempt, number: u16, share: &[u8], handshake: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(attempt).update(&number.to_be_bytes()).update(share).update(handshake);
        Self(*hasher.finalize().as_bytes().first_chunk().expect("it has 32 bytes"))
    }
}

/// Greetings of one member, and their answers, which may be lost.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// `None` once the session was used: its welcome has arrived.
    welcomes: BTreeMap<GreetingId, Option<Vec<u8>>>,
    order: VecDeque<GreetingId>,
}

impl Answered {
    /// Returns the answer of an earlier copy: `None` for the first, `Some(None)` if nobody waits for it any more.
    pub(crate) fn of(&self, greeting: GreetingId) -> Option<Option<Vec<u8>>> {
        self.welcomes.get(&greeting).cloned()
    }

    /// Remembers an answer.
    pub(crate) fn enter(&mut self, greeting: GreetingId, welcome: Vec<u8>) {
        if self.order.len() == MAX_ANSWERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.welcomes.remove(&oldest);
        }
        if let Some(&late) = self.order.len().checked_sub(MAX_WELCOMES).and_then(|at| self.order.get(at)) {
            self.settle(late);
        }
        self.order.push_back(greeting);
        self.welcomes.insert(greeting, Some(welcome));
    }

    /// Lets go of a welcome that has arrived, or leads nowhere any more.
    pub(crate) fn settle(&mut self, greeting: GreetingId) {
        if let Some(welcome) = self.welcomes.get_mut(&greeting) {
            *welcome = None;
        }
    }
}
