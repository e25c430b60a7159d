//! The RPC engine: calls in, messages out, replies matched to calls, losses repaired.
//!
//! A plain struct: no socket, no clock. [`Engine::submit`] queues a call, [`Engine::poll_transmit`] says what to
//! send now, [`Engine::handle_head`] takes what was received, [`Engine::complete`] ends a call,
//! [`Engine::poll_timeout`] and [`Engine::handle_timeout`] make time pass. The engine knows RPC, not NFS.

mod calls;
mod policy;
mod rtt;
mod stats;
#[cfg(test)]
mod tests;
mod timer;
mod window;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nfs_wire::{
    DecodeError, Reader,
    rpc::{Program, Rejection, ReplyHeader, encode_call_header, set_xid},
};

pub use self::{
    calls::CallId,
    rtt::RttHistogram,
    stats::{Resends, Stats},
    window::WindowLimits,
};
use self::{
    calls::{Calls, MAX_CALLS, Match, State},
    policy::Policy,
    timer::TimerTable,
    window::Window,
};
use crate::config::RetryPolicy;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Datagrams may be lost: calls are sent again when the policy's timer runs out.
    Datagrams,
    /// A connection loses nothing while it lives: calls are sent again only after it was made anew.
    Connection,
}

/// Settings of an [`Engine`].
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// What carries the messages.
    pub carrier: Carrier,
    /// When an unanswered datagram is sent again.
    pub retry: RetryPolicy,
    /// Limit on READs and WRITEs in flight.
    pub window: WindowLimits,
    /// The credential of every call, already encoded.
    pub credential: Vec<u8>,
}

/// What a call is for; decides its place in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Anything small: sent at once, ahead of data.
    Control,
    /// Brings file data.
    Read,
    /// Carries file data.
    Write,
}

/// Whose call it is: a number the submitter chose and gets back with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// File bytes that follow a message's head and that only the driver touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Offset in the source file.
    pub offset: u64,
    /// Length in bytes, without padding.
    pub length: u32,
}

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec {
    /// Program and version to call.
    pub program: Program,
    /// Number of the procedure.
    pub procedure: u32,
    /// What the call is for.
    pub class: Class,
    /// Whose call it is.
    pub owner: Owner,
    /// File bytes that follow the arguments.
    pub payload: Option<Payload>,
    /// File bytes that the call moves, in either direction; counted by the window.
    pub bytes: u32,
    /// When to give the call up.
    pub deadline: Option<Instant>,
}

/// A message to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The call it belongs to.
    pub id: CallId,
    /// Whose call it is.
    pub owner: Owner,
    /// The message up to its payload.
    pub head: &'a [u8],
    /// File bytes that follow the head; the driver pads them to a multiple of four.
    pub payload: Option<Payload>,
}

/// What the head of a received message turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The message's header is not all there yet.
    NeedMore,
    /// Nobody waits for this message.
    Stray,
    /// A reply to an outstanding call; it stays outstanding until [`Engine::complete`].
    Reply(Reply),
}

/// A reply to an outstanding call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The call that is answered.
    pub id: CallId,
    /// Whose call it is.
    pub owner: Owner,
    /// Program that was called.
    pub program: Program,
    /// Where the results begin in the message.
    pub results_at: usize,
    /// Whether the server ran the call.
    pub outcome: Result<(), Rejection>,
    /// How often the call was sent; above one it may have been run more than once.
    pub attempts: u32,
}

/// What became of a call without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The call's deadline passed; it is no longer outstanding.
    Expired {
        /// Whose call it was.
        owner: Owner,
        /// How often it was sent.
        attempts: u32,
        /// How long it was outstanding.
        elapsed: Duration,
    },
    /// A READ or WRITE stayed unanswered and is sent again.
    Silent {
        /// What the call is for.
        class: Class,
        /// File bytes that it moves.
        bytes: u32,
        /// How often it was sent before.
        attempts: u32,
    },
}

/// First delay of a call that the server asked to repeat later; every further one is twice as long.
const FIRST_POSTPONEMENT: Duration = Duration::from_millis(10);

/// Longest such delay.
const MAX_POSTPONEMENT: Duration = Duration::from_secs(1);

/// Makes calls to one server over one socket. See the [module documentation](self).
#[derive(Debug)]
pub struct Engine {
    carrier: Carrier,
    credential: Vec<u8>,
    peer: SocketAddr,
    policy: Box<dyn Policy>,
    window: Window,
    calls: Calls,
    timers: TimerTable,
    resend: VecDeque<CallId>,
    control: VecDeque<CallId>,
    bulk: VecDeque<CallId>,
    events: VecDeque<Event>,
    now: Instant,
    stats: Stats,
}

impl Engine {
    /// Starts with nothing outstanding; `seed` decides the first XID.
    pub fn new(config: EngineConfig, peer: SocketAddr, seed: u64, now: Instant) -> Self {
        let EngineConfig { carrier, retry, window, credential } = config;
        Self {
            carrier,
            credential,
            peer,
            policy: policy::build(retry),
            window: Window::new(window),
            calls: Calls::new(seed),
            timers: TimerTable::default(),
            resend: VecDeque::new(),
            control: VecDeque::new(),
            bulk: VecDeque::new(),
            events: VecDeque::new(),
            now,
            stats: Stats::default(),
        }
    }

    /// Queues a call whose arguments `encode` appends; `None` when 2,048 calls are outstanding already.
    pub fn submit(
        &mut self,
        now: Instant,
        spec: CallSpec,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Option<CallId> {
        self.advance(now);
        let id = self.calls.insert(self.now, &spec)?;
        let slot = self.calls.at(id.slot);
        // The real XID is put in at the first send, so that XIDs rise in the order of sending.
        let placeholder = nfs_wire::rpc::Xid(0);
        encode_call_header(&mut slot.head, placeholder, spec.program, spec.procedure, &self.credential);
        encode(&mut slot.head);
        if let Some(deadline) = spec.deadline {
            self.timers.set(id.slot, deadline);
        }
        self.enqueue(id, spec.class);
        Some(id)
    }

    /// Forgets a call. A reply that arrives later is stray.
    pub fn cancel(&mut self, now: Instant, id: CallId) {
        self.advance(now);
        if self.calls.find(id).is_some() {
            self.remove(id.slot);
        }
    }

    /// Looks at the beginning of a received message; `complete` says that `bytes` is all of it.
    ///
    /// # Errors
    /// [`DecodeError`] when it is no reply; nothing changed. A datagram is dropped, a connection closed.
    pub fn handle_head(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        bytes: &[u8],
        complete: bool,
    ) -> Result<Head, DecodeError> {
        self.advance(now);
        if peer != self.peer {
            self.stats.stray_replies += 1;
            return Ok(Head::Stray);
        }
        let mut reader = Reader::new(bytes);
        let header = match ReplyHeader::decode(&mut reader) {
            Ok(header) => header,
            Err(DecodeError::Truncated { .. }) if !complete => return Ok(Head::NeedMore),
            Err(error) => {
                self.stats.malformed += 1;
                return Err(error);
            }
        };
        match self.calls.resolve(header.xid) {
            Match::Live(id) => {
                let slot = self.calls.at(id.slot);
                Ok(Head::Reply(Reply {
                    id,
                    owner: slot.owner,
                    program: slot.program,
                    results_at: bytes.len() - reader.rest().len(),
                    outcome: header.outcome,
                    attempts: slot.attempts,
                }))
            }
            Match::Surplus => {
                self.stats.useless_resends += 1;
                self.stats.stray_replies += 1;
                Ok(Head::Stray)
            }
            Match::Unknown => {
                self.stats.stray_replies += 1;
                Ok(Head::Stray)
            }
        }
    }

    /// Ends a call whose reply has been taken in completely.
    pub fn complete(&mut self, now: Instant, id: CallId) {
        self.advance(now);
        let Some(slot) = self.calls.find(id) else { return };
        self.stats.replies += 1;
        if slot.attempts == 1 {
            self.stats.rtt.record(self.now.saturating_duration_since(slot.last_sent));
        }
        self.remove(id.slot);
    }

    /// Makes a call again after a while, as a new call to the server: it answered, and asked to wait.
    ///
    /// The delay starts at 10 ms and doubles up to 1 s.
    pub fn postpone(&mut self, now: Instant, id: CallId) {
        self.advance(now);
        let Some(slot) = self.calls.find(id) else { return };
        let (class, bytes, deadline) = (slot.class, slot.bytes, slot.deadline);
        if matches!(slot.state, State::InFlight | State::Resending) {
            self.window.leave(class, bytes);
        }
        slot.state = State::Postponed;
        let factor = 1_u32.checked_shl(slot.postponed).unwrap_or(u32::MAX);
        let delay = FIRST_POSTPONEMENT.saturating_mul(factor).min(MAX_POSTPONEMENT);
        slot.postponed += 1;
        self.calls.retire_xid(id.slot);
        let again = self.now + delay;
        self.timers.set(id.slot, deadline.map_or(again, |deadline| deadline.min(again)));
        self.stats.postponed += 1;
    }

    /// Queues every call again that was sent over a connection that is gone.
    pub fn handle_reconnect(&mut self, now: Instant) {
        self.advance(now);
        let lost: Vec<_> = self.calls.iter().filter(|(_, slot)| slot.state == State::InFlight).collect();
        let mut lost: Vec<_> =
            lost.into_iter().map(|(index, slot)| (slot.last_sent, index, slot.generation)).collect();
        lost.sort_unstable();
        for (_, index, generation) in lost {
            self.calls.at(index).state = State::Resending;
            self.stats.resends.reconnect += 1;
            self.resend.push_back(CallId { slot: index, generation });
        }
    }

    /// Fires every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some((due, index)) = self.timers.earliest() {
            if due > self.now {
                return;
            }
            self.timers.clear(index);
            let slot = self.calls.at(index);
            let id = CallId { slot: index, generation: slot.generation };
            if slot.deadline.is_some_and(|deadline| deadline <= self.now) {
                let elapsed = self.now.saturating_duration_since(slot.submitted);
                self.events.push_back(Event::Expired { owner: slot.owner, attempts: slot.attempts, elapsed });
                self.stats.expired += 1;
                self.remove(index);
                continue;
            }
            match slot.state {
                State::InFlight => {
                    slot.state = State::Resending;
                    if slot.class != Class::Control {
                        let (class, bytes, attempts) = (slot.class, slot.bytes, slot.attempts);
                        self.events.push_back(Event::Silent { class, bytes, attempts });
                    }
                    self.stats.resends.timeout += 1;
                    self.resend.push_back(id);
                    if let Some(deadline) = slot.deadline {
                        self.timers.set(index, deadline);
                    }
                }
                State::Postponed => {
                    slot.state = State::Queued;
                    let class = slot.class;
                    if let Some(deadline) = slot.deadline {
                        self.timers.set(index, deadline);
                    }
                    self.enqueue(id, class);
                }
                State::Queued | State::Resending | State::Free => {}
            }
        }
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.advance(now);
        let (id, first) = self.next_to_send()?;
        if first {
            self.calls.assign_xid(id.slot);
        }
        let slot = self.calls.at(id.slot);
        if first {
            self.stats.calls += 1;
            self.window.enter(slot.class, slot.bytes);
            set_xid(&mut slot.head, slot.xid);
        }
        let resends = slot.attempts;
        slot.attempts += 1;
        slot.state = State::InFlight;
        slot.last_sent = self.now;
        if self.carrier == Carrier::Datagrams {
            let again = self.now + self.policy.timeout(resends);
            self.timers.set(id.slot, slot.deadline.map_or(again, |deadline| deadline.min(again)));
        }
        Some(Transmit { id, owner: slot.owner, head: &slot.head, payload: slot.payload })
    }

    /// Returns the next call that expired or is sent again.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when to call [`Engine::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.earliest().map(|(due, _)| due)
    }

    /// Whether another READ or WRITE of `bytes` would be sent at once.
    pub fn has_room(&self, class: Class, bytes: u32) -> bool {
        self.bulk.is_empty() && self.window.admits(class, bytes) && self.calls.outstanding() < MAX_CALLS / 2
    }

    /// Returns how many calls are outstanding: sent, or waiting to be.
    pub fn outstanding(&self) -> usize {
        self.calls.outstanding()
    }

    /// Forgets every call that `matches` by owner, class, bytes and attempts; returns owners and bytes.
    pub fn cancel_matching(
        &mut self,
        now: Instant,
        matches: impl Fn(Owner, Class, u32, u32) -> bool,
    ) -> Vec<(Owner, u32)> {
        self.advance(now);
        let chosen = self.calls.iter().filter(|(_, s)| matches(s.owner, s.class, s.bytes, s.attempts));
        let chosen: Vec<_> = chosen.map(|(index, slot)| (index, slot.owner, slot.bytes)).collect();
        for &(index, ..) in &chosen {
            self.remove(index);
        }
        chosen.into_iter().map(|(_, owner, bytes)| (owner, bytes)).collect()
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn enqueue(&mut self, id: CallId, class: Class) {
        match class {
            Class::Control => self.control.push_back(id),
            Class::Read | Class::Write => self.bulk.push_back(id),
        }
    }

    /// Takes the next call off the queues; the flag says whether it starts a new XID.
    fn next_to_send(&mut self) -> Option<(CallId, bool)> {
        while let Some(id) = self.resend.pop_front() {
            if self.calls.find(id).is_some_and(|slot| slot.state == State::Resending) {
                return Some((id, false));
            }
        }
        while let Some(id) = self.control.pop_front() {
            if self.calls.find(id).is_some_and(|slot| slot.state == State::Queued) {
                return Some((id, true));
            }
        }
        while let Some(&id) = self.bulk.front() {
            let Some(slot) = self.calls.find(id).filter(|slot| slot.state == State::Queued) else {
                self.bulk.pop_front();
                continue;
            };
            if !self.window.admits(slot.class, slot.bytes) {
                return None;
            }
            self.bulk.pop_front();
            return Some((id, true));
        }
        None
    }

    fn remove(&mut self, index: u32) {
        let slot = self.calls.at(index);
        if matches!(slot.state, State::InFlight | State::Resending) {
            let (class, bytes) = (slot.class, slot.bytes);
            self.window.leave(class, bytes);
        }
        self.timers.clear(index);
        self.calls.remove(index);
    }
}
