//! Outstanding calls in their slots.

use std::time::Instant;

use nfs_wire::rpc::{Program, Xid};

use super::{CallSpec, Class, Owner, Payload, Repeat, message::CallId};

/// Where a call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The slot is unused.
    Free,
    /// Waiting for its first send, or for its first send after being postponed.
    Queued,
    /// Sent, and waiting for a reply.
    InFlight,
    /// Sent, and probably lost: something sent later was answered. Out of the window.
    Suspect,
    /// Waiting to be sent again.
    Resending,
    /// To be sent later: the server asked for that, or whoever submitted it.
    Postponed,
}

/// Why a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A classic policy's timer ran out.
    Timeout,
    /// Something sent later was acknowledged, and the reordering window is over (RACK, RFC 8985).
    Rack,
    /// Neither calls nor probes were answered for seconds.
    Probe,
    /// Hedged request: in case it is lost, before anything says so (Dean and Barroso 2013).
    Hedge,
    /// The client reconnected.
    Reconnect,
}

/// A call that is to be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resend {
    pub(super) id: CallId,
    pub(super) reason: Reason,
}

/// One call. `head` and `xids` keep their capacity when the slot is used again.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) state: State,
    pub(super) owner: Owner,
    pub(super) program: Program,
    pub(super) procedure: u32,
    pub(super) class: Class,
    pub(super) repeat: Repeat,
    /// Whether it may be sent once more before anything says that it is lost.
    pub(super) hedge: bool,
    pub(super) payload: Option<Payload>,
    pub(super) bytes: u32,
    pub(super) deadline: Option<Instant>,
    pub(super) head: Vec<u8>,
    /// The XIDs of its attempts since it was submitted or postponed, oldest first.
    pub(super) xids: Vec<Xid>,
    /// The XID whose reply is being taken in.
    pub(super) replied: Option<Xid>,
    /// Attempts since it was submitted or postponed.
    pub(super) attempts: u32,
    /// Attempts before it was postponed that were not answered, and may yet be run.
    pub(super) unanswered: u32,
    /// How often something sent later was answered first.
    pub(super) losses: u32,
    /// The last time by a call of its own class.
    pub(super) overtaken_by_peer: bool,
    /// Whether the call counts in the window.
    pub(super) counted: bool,
    /// How often the server asked to come back later.
    pub(super) postponed: u32,
    pub(super) submitted: Instant,
    pub(super) last_sent: Instant,
    /// Number of its last transmission.
    pub(super) number: u64,
}

/// Most calls outstanding at once; [`Calls::insert`] refuses more.
pub(crate) const MAX_CALLS: usize = 2048;

/// Memory that a slot keeps for the next call, in bytes: all heads fit, and no file bytes do.
const KEPT_HEAD_BYTES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Calls {
    /// Takes a slot for a call; `None` when too many are outstanding.
    pub(super) fn insert(&mut self, now: Instant, spec: &CallSpec) -> Option<CallId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_CALLS => {
                self.slots.push(Slot {
                    generation: 0,
                    state: State::Free,
                    owner: spec.owner,
                    program: spec.program,
                    procedure: spec.procedure,
                    class: spec.class,
                    repeat: spec.repeat,
                    hedge: false,
                    payload: None,
                    bytes: 0,
                    deadline: None,
                    head: Vec::new(),
                    xids: Vec::new(),
                    replied: None,
                    attempts: 0,
                    unanswered: 0,
                    losses: 0,
                    overtaken_by_peer: false,
                    counted: false,
                    postponed: 0,
                    submitted: now,
                    last_sent: now,
                    number: 0,
                });
                u32::try_from(self.slots.len() - 1).expect("bounded by MAX_CALLS")
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.state = State::Queued;
        slot.owner = spec.owner;
        slot.program = spec.program;
        slot.procedure = spec.procedure;
        slot.class = spec.class;
        slot.repeat = spec.repeat;
        slot.hedge = spec.hedge;
        slot.payload = spec.payload;
        slot.bytes = spec.bytes;
        slot.deadline = spec.deadline;
        (slot.postponed, slot.unanswered) = (0, 0);
        slot.submitted = now;
        slot.head.clear();
        slot.start_over();
        Some(CallId { slot: index, generation: slot.generation })
    }

    /// Frees the slot of a call.
    pub(super) fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Free;
        if slot.head.capacity() > KEPT_HEAD_BYTES {
            slot.head = Vec::new();
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Whether the call is outstanding.
    pub(super) fn is_live(&self, id: CallId) -> bool {
        self.peek(id).is_some()
    }

    /// Whether the call has not ended and is in this state.
    pub(super) fn is_in(&self, id: CallId, state: State) -> bool {
        self.peek(id).is_some_and(|slot| slot.state == state)
    }

    /// Returns the call to look at, unless it has ended.
    pub(super) fn peek(&self, id: CallId) -> Option<&Slot> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation && slot.state != State::Free).then_some(slot)
    }

    /// Returns the call, unless it has ended.
    pub(super) fn find(&mut self, id: CallId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.generation == id.generation && slot.state != State::Free).then_some(slot)
    }

    pub(super) fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    pub(super) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the slots that hold a call, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.state != State::Free)
    }
}

impl Slot {
    /// Forgets every attempt: the next one is the first of a new call to the server.
    pub(super) fn start_over(&mut self) {
        self.xids.clear();
        self.replied = None;
        self.attempts = 0;
        (self.losses, self.overtaken_by_peer) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    fn insert(calls: &mut Calls) -> Option<CallId> {
        let spec = CallSpec {
            program: Program::NFS,
            procedure: 6,
            class: Class::Read,
            repeat: Repeat::Idempotent,
            hedge: false,
            owner: Owner(1),
            payload: None,
            bytes: 100,
            deadline: None,
            not_before: None,
        };
        calls.insert(Instant::now(), &spec)
    }

    #[test]
    fn there_are_2048_slots_and_each_is_used_again() {
        let mut calls = Calls::default();
        let ids: Vec<CallId> = std::iter::from_fn(|| insert(&mut calls)).collect();
        assert_eq!((ids.len(), calls.outstanding()), (MAX_CALLS, MAX_CALLS));
        calls.remove(ids[7].slot);
        assert_eq!(calls.outstanding(), MAX_CALLS - 1);
        let again = insert(&mut calls).unwrap();
        assert_eq!(again.slot, ids[7].slot);
        assert_eq!(insert(&mut calls), None);
    }

    #[test]
    fn the_name_of_a_call_that_has_ended_is_nobody_s() {
        let mut calls = Calls::default();
        let first = insert(&mut calls).unwrap();
        assert!(
            calls.is_live(first) && calls.is_in(first, State::Queued) && !calls.is_in(first, State::InFlight)
        );
        calls.remove(first.slot);
        assert!(!calls.is_live(first) && calls.find(first).is_none());
        assert_eq!(calls.iter().count(), 0);
        // Its slot has a new name already, and nothing is in it.
        let next = CallId { generation: first.generation + 1, ..first };
        assert!(!calls.is_live(next) && calls.find(next).is_none());
        assert_eq!(insert(&mut calls), Some(next));
        assert!(calls.is_live(next) && !calls.is_live(first) && calls.find(first).is_none());
        assert_eq!(calls.iter().count(), 1);
    }

    #[test]
    fn a_slot_keeps_the_memory_of_a_head_and_not_that_of_a_block() {
        let mut calls = Calls::default();
        for (bytes, is_kept) in [(100, true), (KEPT_HEAD_BYTES, true), (KEPT_HEAD_BYTES + 1, false)] {
            let id = insert(&mut calls).unwrap();
            calls.at(id.slot).head = vec![0; bytes];
            calls.remove(id.slot);
            assert_eq!(calls.at(id.slot).head.capacity() > 0, is_kept, "{bytes} bytes");
        }
    }
}
