//! Outstanding calls: their slots, and which XID stands for which.

use std::time::Instant;

use nfs_wire::rpc::{Program, Xid};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::{CallSpec, Class, Owner, Payload};

/// Names one call for as long as it is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Where a call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The slot is unused.
    Free,
    /// Waiting for its first send, or for its first send after being postponed.
    Queued,
    /// Sent, and waiting for a reply.
    InFlight,
    /// Sent, and waiting to be sent again.
    Resending,
    /// The server asked to come back later.
    Postponed,
}

/// One call. `head` keeps its capacity when the slot is used again.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) state: State,
    pub(super) owner: Owner,
    pub(super) program: Program,
    pub(super) class: Class,
    pub(super) payload: Option<Payload>,
    pub(super) bytes: u32,
    pub(super) deadline: Option<Instant>,
    pub(super) head: Vec<u8>,
    pub(super) xid: Xid,
    /// Attempts since the call got its XID.
    pub(super) attempts: u32,
    /// How often the server asked to come back later.
    pub(super) postponed: u32,
    pub(super) submitted: Instant,
    pub(super) last_sent: Instant,
}

/// What a slot of the XID table stands for.
#[derive(Clone, Copy, Debug)]
struct XidEntry {
    xid: Xid,
    slot: u32,
    live: bool,
    /// Resends of an answered call that no reply has accounted for yet.
    surplus: u32,
}

/// Slots in the XID table; calls outstanding at once are limited to half of it.
const XID_TABLE: usize = 4096;

/// Most calls outstanding at once; [`Calls::insert`] refuses more.
pub(super) const MAX_CALLS: usize = XID_TABLE / 2;

/// What an XID off the wire means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// It names this outstanding call.
    Live(CallId),
    /// It named a call that was answered already, and a resend of it was useless.
    Surplus,
    /// It names nothing we know.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    xids: Vec<XidEntry>,
    next_xid: u32,
}

impl Calls {
    pub(super) fn new(seed: u64) -> Self {
        let next_xid = ChaCha8Rng::seed_from_u64(seed).next_u32();
        let unused = XidEntry { xid: Xid(next_xid.wrapping_sub(1)), slot: 0, live: false, surplus: 0 };
        Self { slots: Vec::new(), free: Vec::new(), xids: vec![unused; XID_TABLE], next_xid }
    }

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
                    class: spec.class,
                    payload: None,
                    bytes: 0,
                    deadline: None,
                    head: Vec::new(),
                    xid: Xid(0),
                    attempts: 0,
                    postponed: 0,
                    submitted: now,
                    last_sent: now,
                });
                u32::try_from(self.slots.len() - 1).expect("bounded by MAX_CALLS")
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.state = State::Queued;
        slot.owner = spec.owner;
        slot.program = spec.program;
        slot.class = spec.class;
        slot.payload = spec.payload;
        slot.bytes = spec.bytes;
        slot.deadline = spec.deadline;
        slot.attempts = 0;
        slot.postponed = 0;
        slot.submitted = now;
        slot.head.clear();
        Some(CallId { slot: index, generation: slot.generation })
    }

    /// Gives the call in `index` an XID of its own.
    pub(super) fn assign_xid(&mut self, index: u32) -> Xid {
        loop {
            let xid = Xid(self.next_xid);
            self.next_xid = self.next_xid.wrapping_add(1);
            let entry = &mut self.xids[xid.0 as usize % XID_TABLE];
            // At most half of the table is live, so this ends.
            if !entry.live {
                *entry = XidEntry { xid, slot: index, live: true, surplus: 0 };
                let slot = &mut self.slots[index as usize];
                slot.xid = xid;
                slot.attempts = 0;
                return xid;
            }
        }
    }

    /// Looks an XID up, and settles the account of a resend that was useless.
    pub(super) fn resolve(&mut self, xid: Xid) -> Match {
        let entry = &mut self.xids[xid.0 as usize % XID_TABLE];
        if entry.xid != xid {
            return Match::Unknown;
        }
        if entry.live {
            let generation = self.slots[entry.slot as usize].generation;
            return Match::Live(CallId { slot: entry.slot, generation });
        }
        if entry.surplus > 0 {
            entry.surplus -= 1;
            return Match::Surplus;
        }
        Match::Unknown
    }

    /// Ends the life of the call's XID; replies still under way are surplus.
    pub(super) fn retire_xid(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let entry = &mut self.xids[slot.xid.0 as usize % XID_TABLE];
        if entry.live && entry.slot == index {
            entry.live = false;
            entry.surplus = slot.attempts.saturating_sub(1);
        }
    }

    /// Frees the slot of a call.
    pub(super) fn remove(&mut self, index: u32) {
        self.retire_xid(index);
        let slot = &mut self.slots[index as usize];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
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

    /// Returns the slots that hold a call, in the order of their first submission's slot number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.state != State::Free)
    }
}
