//! The RPC engine: calls in, messages out, replies matched to calls, losses repaired.
//!
//! A plain struct: no socket, no clock. [`Engine::submit`] queues a call, [`Engine::poll_transmit`] says what to
//! send now, [`Engine::handle_head`] takes what was received, [`Engine::complete`] ends a call,
//! [`Engine::poll_timeout`] and [`Engine::handle_timeout`] make time pass. The engine knows RPC, not NFS.

mod back_off;
mod calls;
mod ignored;
mod in_flight;
mod message;
mod recovery;
mod resend;
mod retry_policy;
mod rtt_histogram;
mod stats;
#[cfg(test)]
mod tests;
mod timer;
mod xids;

use std::{cell::Cell, collections::VecDeque, net::SocketAddr, time::Instant};

use nfs_wire::{
    DecodeError, Reader,
    rpc::{Program, ReplyHeader, Xid, encode_call_header, set_xid},
};

pub(crate) use self::{back_off::back_off, calls::MAX_CALLS};
use self::{
    calls::{Calls, Reason, Resend, State},
    ignored::Ignored,
    in_flight::InFlight,
    recovery::Recovery,
    timer::TimerTable,
    xids::{Attempt, Xids},
};
pub use self::{
    in_flight::{Pace, WindowLimits, Writes},
    message::{
        CallId, CallSpec, Carrier, Class, Direction, Event, Head, Owner, Payload, Repeat, Reply, Transmit,
    },
    recovery::{
        BlockRange,
        tuning::{self, Tuning},
    },
    retry_policy::RetryPolicy,
    rtt_histogram::RttHistogram,
    stats::{PathEstimate, Resends, Stats, Withdrawal, Withdrawn},
};

/// Settings of an [`Engine`].
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// What carries the messages.
    pub carrier: Carrier,
    /// When an unanswered datagram is sent again.
    pub retry: RetryPolicy,
    /// What the adaptive policy was tuned with.
    pub tuning: Tuning,
    /// Limit on READs and WRITEs in flight.
    pub window: WindowLimits,
    /// What the adaptive policy may choose blocks from; `None`: they are given.
    pub blocks: Option<BlockRange>,
    /// The estimate of the path from an earlier connection, which the adaptive policy starts from.
    pub prior: Option<PathEstimate>,
    /// The credential of every call, already encoded.
    pub credential: Vec<u8>,
}

/// Makes calls to one server over one socket. See the [module documentation](self).
#[derive(Debug)]
pub struct Engine {
    credential: Vec<u8>,
    peer: SocketAddr,
    recovery: Recovery,
    in_flight: InFlight,
    calls: Calls,
    xids: Xids,
    timers: TimerTable,
    /// Transmissions in the order of sending, with their numbers; what is older than an answered one has left.
    order: VecDeque<(u64, CallId)>,
    transmissions: u64,
    resend: VecDeque<Resend>,
    control: VecDeque<CallId>,
    bulk: VecDeque<CallId>,
    /// A NULL call into the silence is to be sent, before anything else.
    probe: Option<Program>,
    probe_head: Vec<u8>,
    /// Bytes of the IP packet that is being taken in.
    arriving: u32,
    /// When a READ or WRITE that waits for its turn may leave.
    paced_until: Option<Instant>,
    /// Whether a READ or WRITE had to wait for the window since the last reply.
    is_window_limited: Cell<bool>,
    ignored: Ignored,
    events: VecDeque<Event>,
    now: Instant,
    stats: Stats,
}

impl Engine {
    /// Starts with nothing outstanding; `seed` is the key of its XIDs.
    pub fn new(config: EngineConfig, peer: SocketAddr, seed: u64, now: Instant) -> Self {
        let EngineConfig { carrier, retry, tuning, window, blocks, prior, credential } = config;
        Self {
            credential,
            peer,
            recovery: Recovery::new(carrier, retry, &tuning, blocks, prior.as_ref(), now),
            in_flight: InFlight::new(window),
            calls: Calls::default(),
            xids: Xids::new(seed),
            timers: TimerTable::default(),
            order: VecDeque::new(),
            transmissions: 0,
            resend: VecDeque::new(),
            control: VecDeque::new(),
            bulk: VecDeque::new(),
            probe: None,
            probe_head: Vec::new(),
            arriving: 0,
            paced_until: None,
            is_window_limited: Cell::new(false),
            ignored: Ignored::new(&tuning),
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
        // The real XID is put in when the call is sent.
        encode_call_header(&mut slot.head, Xid(0), spec.program, spec.procedure, &self.credential);
        encode(&mut slot.head);
        if let Some(deadline) = spec.deadline {
            self.timers.set(id.slot, deadline);
        }
        match spec.not_before.filter(|&due| due > self.now) {
            Some(due) => self.set_aside(id, due),
            None => self.enqueue(id, spec.class),
        }
        Some(id)
    }

    /// Forgets a call; whether it was outstanding. A reply that arrives later is stray.
    pub fn cancel(&mut self, now: Instant, id: CallId) -> bool {
        self.advance(now);
        let is_live = self.calls.is_live(id);
        if is_live {
            self.remove(id.slot);
        }
        is_live
    }

    /// Lets a READ or WRITE that was just queued leave before those that wait.
    pub fn put_first(&mut self, id: CallId) {
        if self.bulk.back() == Some(&id) {
            self.bulk.rotate_right(1);
        }
    }

    /// Returns the message of an outstanding call, up to its payload.
    pub fn head(&self, id: CallId) -> Option<&[u8]> {
        self.calls.peek(id).map(|slot| &*slot.head)
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
        self.arriving = self.packet_headers() + bytes.len() as u32;
        let mut reader = Reader::new(bytes);
        let header = match ReplyHeader::decode(&mut reader) {
            Ok(header) => header,
            Err(DecodeError::Truncated { .. }) if !complete => return Ok(Head::NeedMore),
            Err(error) => {
                self.stats.malformed += 1;
                return Err(error);
            }
        };
        let Some(attempt) = self.xids.find(header.xid) else {
            self.stats.stray_replies += 1;
            return Ok(Head::Stray);
        };
        let live = self.calls.find(attempt.call).filter(|slot| slot.xids.contains(&header.xid));
        let Some(slot) = live else {
            let late = *attempt;
            (attempt.answered, attempt.surplus) = (true, attempt.surplus.saturating_sub(1));
            self.handle_late(&late);
            return Ok(Head::Stray);
        };
        slot.replied = Some(header.xid);
        let round_trip = self.now.saturating_duration_since(attempt.sent);
        Ok(Head::Reply(Reply {
            id: attempt.call,
            owner: slot.owner,
            program: slot.program,
            procedure: slot.procedure,
            results_at: bytes.len() - reader.rest().len(),
            outcome: header.outcome,
            attempts: slot.attempts + slot.unanswered,
            elapsed: self.now.saturating_duration_since(slot.submitted),
            round_trip,
        }))
    }

    /// Ends a call whose reply has been taken in completely.
    pub fn complete(&mut self, now: Instant, id: CallId) {
        self.advance(now);
        if !self.calls.is_live(id) {
            return;
        }
        self.stats.replies += 1;
        let answered = self.take_reply(id);
        self.remove(id.slot);
        self.handle_answer(answered);
    }

    /// Makes a call again after a while, as a new call to the server: it answered, and asked to wait.
    ///
    /// The delay is 100 ms, and doubles each time up to 5 s.
    pub fn postpone(&mut self, now: Instant, id: CallId) {
        self.advance(now);
        if !self.calls.is_live(id) {
            return;
        }
        let answered = self.take_reply(id);
        self.leave_window(id.slot);
        let slot = self.calls.at(id.slot);
        let delay = back_off(slot.postponed);
        slot.postponed += 1;
        slot.unanswered += slot.attempts.saturating_sub(1);
        // Replies to its attempts so far are not the next answer.
        slot.start_over();
        self.set_aside(id, self.now + delay);
        self.stats.postponed += 1;
        self.handle_answer(answered);
    }

    /// Ends a call that the server answered without running it, and asked to make again later.
    pub fn refuse(&mut self, now: Instant, id: CallId) {
        self.advance(now);
        if self.calls.is_live(id) {
            let answered = self.take_reply(id);
            self.remove(id.slot);
            self.stats.postponed += 1;
            self.handle_answer(answered);
        }
    }

    /// Queues a call when it is due, unless its deadline comes first.
    fn set_aside(&mut self, id: CallId, due: Instant) {
        let slot = self.calls.at(id.slot);
        slot.state = State::Postponed;
        self.timers.set(id.slot, slot.deadline.map_or(due, |deadline| deadline.min(due)));
    }

    /// Records that the server is at another address now.
    pub const fn handle_move(&mut self, peer: SocketAddr) {
        self.peer = peer;
    }

    /// Queues every call again that was sent over a connection that is gone.
    pub fn handle_reconnect(&mut self, now: Instant) {
        self.advance(now);
        let lost = self.calls.iter().filter(|(_, slot)| slot.state == State::InFlight);
        let mut lost: Vec<_> = lost
            .map(|(index, slot)| (slot.number, CallId { slot: index, generation: slot.generation }))
            .collect();
        lost.sort_unstable();
        for (_, id) in lost {
            self.send_again(id, Reason::Reconnect);
        }
    }

    /// Fires every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some((due, index)) = self.timers.earliest() {
            if due > self.now {
                break;
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
            let (state, deadline) = (slot.state, slot.deadline);
            match state {
                State::InFlight => {
                    self.send_again(id, Reason::Timeout);
                }
                State::Suspect => self.handle_reordering_window_over(id),
                State::Postponed => {
                    slot.state = State::Queued;
                    let class = slot.class;
                    self.enqueue(id, class);
                }
                State::Queued | State::Resending | State::Free => {}
            }
            if let Some(deadline) = deadline {
                self.timers.set(index, deadline);
            }
        }
        self.handle_probe_timeout();
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.advance(now);
        if let Some(program) = self.probe.take() {
            return Some(self.transmit_probe(program));
        }
        if let Some(bytes) = self.recovery.adaptive().and_then(|it| it.poll_mtu_probe(now)) {
            return Some(self.transmit_mtu_probe(Program::NFS, bytes));
        }
        let (id, reason) = self.next_to_send()?;
        Some(self.transmit(id, reason))
    }

    /// Returns the next call that expired or is sent again.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when to call [`Engine::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.earliest().map(|(due, _)| due);
        timer.into_iter().chain(self.recovery.next_probe()).chain(self.paced_until).min()
    }

    /// Returns the bytes of the next READ or WRITE, if the policy chooses them.
    pub fn next_block(&mut self, now: Instant) -> Option<u32> {
        self.advance(now);
        self.recovery.next_block(now)
    }

    /// Returns the largest block that arrives, once when the policy finds that larger ones do not.
    pub fn take_cut(&mut self) -> Option<u32> {
        self.recovery.take_cut()
    }

    /// Returns the bytes of the last READ or WRITE, or of the first, if the policy chooses them.
    pub fn block(&self) -> Option<u32> {
        self.recovery.block()
    }

    /// Returns how blocks leave, where the policy knows that.
    pub fn pace(&self) -> Pace {
        self.recovery.pace()
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

    /// Shows every outstanding call to `look` by owner, class, bytes and attempts.
    pub fn look(&self, mut look: impl FnMut(Owner, Class, u32, u32)) {
        self.calls.iter().for_each(|(_, slot)| look(slot.owner, slot.class, slot.bytes, slot.attempts));
    }

    /// Records that the server takes at most `largest` bytes per READ and WRITE.
    pub const fn bound_blocks(&mut self, largest: u32) {
        self.recovery.bound_blocks(largest);
    }

    /// Records the MTU of the route to the server: before anything is sent, and whenever the system has learned another one.
    /// `sees_fragments`: [`Engine::handle_fragments`] will say what arrives in fragments.
    pub fn handle_route_mtu(&mut self, mtu: u32, sees_fragments: bool) {
        if let Some(adaptive) = self.recovery.adaptive() {
            adaptive.handle_route_mtu(mtu, sees_fragments);
        }
    }

    /// Records that the datagram for the next [`Engine::handle_head`] was put together of fragments, the largest of which has so many
    /// bytes, IP header included; `None`: of none.
    pub fn handle_fragments(&mut self, largest: Option<u32>) {
        if let Some(adaptive) = self.recovery.adaptive() {
            adaptive.handle_fragments(largest);
        }
    }

    /// Returns what the adaptive policy has measured of the path, once something was delivered.
    pub fn path_estimate(&self) -> Option<PathEstimate> {
        self.recovery.path_estimate()
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

    /// Takes the next call off the queues, and why it is sent again if it is.
    fn next_to_send(&mut self) -> Option<(CallId, Option<Reason>)> {
        let limits = self.recovery.limits(self.in_flight.limits());
        self.paced_until = None;
        while let Some(&Resend { id, reason }) = self.resend.front() {
            let Some(slot) = self.calls.find(id).filter(|slot| slot.state == State::Resending) else {
                self.resend.pop_front();
                continue;
            };
            let (class, bytes, is_counted) = (slot.class, slot.bytes, slot.counted);
            if class != Class::Control && !is_counted && self.must_wait(&limits, class, bytes) {
                // Small calls do not wait behind those that are ignored.
                let small = |resend: &Resend| {
                    let slot = self.calls.peek(resend.id);
                    slot.is_some_and(|it| it.state == State::Resending && it.class == Class::Control)
                };
                let Some(at) = self.resend.iter().position(small) else { break };
                return self.resend.remove(at).map(|Resend { id, reason }| (id, Some(reason)));
            }
            self.resend.pop_front();
            return Some((id, Some(reason)));
        }
        while let Some(id) = self.control.pop_front() {
            if self.calls.is_in(id, State::Queued) {
                return Some((id, None));
            }
        }
        while let Some(&id) = self.bulk.front() {
            let Some(slot) = self.calls.find(id).filter(|slot| slot.state == State::Queued) else {
                self.bulk.pop_front();
                continue;
            };
            let (class, bytes) = (slot.class, slot.bytes);
            if self.must_wait(&limits, class, bytes) {
                return None;
            }
            self.bulk.pop_front();
            return Some((id, None));
        }
        None
    }

    /// Returns when the next READ or WRITE may leave, if not now.
    fn wait_until(&self, class: Class) -> Option<Instant> {
        let ignored = self.recovery.usual_timeout(class);
        let ignored = ignored.and_then(|timeout| self.ignored.wait_until(self.now, class, timeout));
        self.recovery.paced_until(self.now).max(ignored)
    }

    fn transmit(&mut self, id: CallId, reason: Option<Reason>) -> Transmit<'_> {
        let alone = self.order.is_empty();
        self.transmissions += 1;
        let number = self.transmissions;
        self.record_attempt(id, number, reason);
        let slot = self.calls.at(id.slot);
        match reason {
            Some(reason) => self.stats.resends.count(reason),
            None => self.stats.calls += 1,
        }
        if !slot.counted {
            slot.counted = true;
            self.in_flight.enter(slot.class, slot.bytes);
        }
        let resends = slot.attempts;
        slot.attempts += 1;
        slot.state = State::InFlight;
        slot.last_sent = self.now;
        slot.number = number;
        let (class, bytes, deadline) = (slot.class, slot.bytes, slot.deadline);
        self.ignored.handle_sent(self.now, class);
        if let Some(timeout) = self.recovery.timeout(class, resends) {
            let again = self.now.checked_add(timeout);
            if let Some(due) = again.into_iter().chain(deadline).min() {
                self.timers.set(id.slot, due);
            }
        }
        if self.recovery.handle_sent(self.now, class, bytes, alone, self.in_flight.bytes()) {
            self.order.push_back((number, id));
        }
        let headers = self.packet_headers();
        let slot = self.calls.at(id.slot);
        let payload = slot.payload.map_or(0, |payload| payload.length.next_multiple_of(4));
        let dont_fragment = self.recovery.keeps_whole(headers + slot.head.len() as u32 + payload);
        Transmit { id, owner: slot.owner, head: &slot.head, payload: slot.payload, dont_fragment }
    }

    /// Records a transmission under the XID that its call keeps, or under a fresh one.
    fn record_attempt(&mut self, id: CallId, number: u64, reason: Option<Reason>) {
        let slot = self.calls.at(id.slot);
        let keeps_xid = slot.repeat == Repeat::SameXid || !self.recovery.gives_fresh_xids();
        let kept = slot.xids.last().filter(|_| keeps_xid);
        match kept.and_then(|&xid| self.xids.find(xid)) {
            Some(attempt) => {
                attempt.sends += 1;
                attempt.sent = self.now;
                attempt.hedged |= reason == Some(Reason::Hedge);
            }
            // The first attempt; or an outage that lasted half a day, so that probes have pushed this XID out of memory: no
            // server's duplicate request cache holds it either.
            None => {
                let attempt = Attempt {
                    call: id,
                    index: slot.xids.len() as u32,
                    sends: 1,
                    number,
                    sent: self.now,
                    before: self.recovery.delivered(self.now),
                    answered: false,
                    hedged: reason == Some(Reason::Hedge),
                    surplus: 0,
                };
                let calls = &self.calls;
                let xid = self.xids.assign(attempt, |call| calls.is_live(call));
                let slot = self.calls.at(id.slot);
                slot.xids.push(xid);
                set_xid(&mut slot.head, xid);
            }
        }
    }

    /// Returns the bytes of IP and UDP headers.
    const fn packet_headers(&self) -> u32 {
        if self.peer.is_ipv4() { 20 + 8 } else { 40 + 8 }
    }

    fn leave_window(&mut self, index: u32) {
        let slot = self.calls.at(index);
        if slot.counted {
            slot.counted = false;
            let (class, bytes) = (slot.class, slot.bytes);
            self.in_flight.leave(class, bytes);
        }
    }

    fn remove(&mut self, index: u32) {
        self.leave_window(index);
        self.timers.clear(index);
        self.calls.remove(index);
    }
}
