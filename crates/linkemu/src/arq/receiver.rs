//! The receiving half of a stop-and-wait hop.

use super::{Data, Outcome};

/// Passes every frame up once.
#[derive(Debug, Default)]
pub(super) struct OneByOne {
    /// The sequence number that comes next; earlier ones are duplicates.
    next: u64,
}

impl OneByOne {
    pub(super) fn accept(&mut self, data: Data, outcome: &mut Outcome) {
        if data.sequence < self.next {
            outcome.duplicates += 1;
            return;
        }
        self.next = data.sequence + 1;
        outcome.up.push(data.frame);
    }

    pub(super) fn has(&self, sequence: u64) -> bool {
        sequence < self.next
    }
}
