//! The one place that sends again: what was lost, and why a call is sent once more.

use std::time::{Duration, Instant};

use nfs_wire::rpc::{Program, encode_call_header};

use super::{
    CallId, Class, Engine, Event, Owner, Repeat, Transmit, Withdrawal,
    calls::{Reason, Resend, State},
    recovery::{Acked, Recovery},
    xids::Attempt,
};

/// A slot that no call has: the calls of probes.
const PROBE_SLOT: u32 = u32::MAX;

/// Another: the padded calls that look for the path's MTU. Their size is in place of the generation.
const MTU_PROBE_SLOT: u32 = u32::MAX - 1;

/// A call that has waited for so long when the link changes was probably lost: ten times a wireless link's round trip.
const LATE: Duration = Duration::from_millis(200);

/// NULL, which does nothing, in every program (RFC 5531 §12.1).
const NULL: u32 = 0;

/// What a reply showed about the call that it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    attempt: Attempt,
    class: Class,
    bytes: u32,
    attempts: u32,
}

impl Engine {
    /// Looks at the reply of a call before the call is forgotten: its time, and which resends were spurious.
    pub(super) fn take_reply(&mut self, id: CallId) -> Option<Answer> {
        let slot = self.calls.at(id.slot);
        let xid = slot.replied.or_else(|| slot.xids.last().copied())?;
        let (class, bytes, attempts) = (slot.class, slot.bytes, slot.attempts);
        let by_peer = slot.overtaken_by_peer;
        let counted_lost = slot.state == State::Resending || slot.state == State::Suspect && by_peer;
        let attempt = *self.xids.find(xid)?;
        if attempt.sends == 1 {
            self.stats.rtt.record(self.now.saturating_duration_since(attempt.sent));
        }
        // Attempts after the answered one were spurious. An answer to an earlier one may still come, and then those
        // between were.
        let later = slot.xids.len() as u64 - 1 - u64::from(attempt.index);
        self.stats.spurious_resends += later;
        let mut after = slot.xids[attempt.index as usize + 1..].iter();
        let was_taken_for_lost = after.any(|&xid| self.xids.find(xid).is_none_or(|it| !it.hedged));
        if let Recovery::Adaptive(adaptive) = &mut self.recovery {
            if was_taken_for_lost {
                adaptive.on_spurious_retransmission();
            }
            if (counted_lost || later > 0 && by_peer) && class != Class::Control {
                adaptive.on_spurious_loss(class, attempt.sent, bytes);
                self.stats.overflow = adaptive.overflow();
            }
        }
        for earlier in &slot.xids[..attempt.index as usize] {
            if let Some(earlier) = self.xids.find(*earlier) {
                earlier.surplus = 1;
            }
        }
        if let Some(attempt) = self.xids.find(xid) {
            attempt.surplus = attempt.sends - 1;
        }
        Some(Answer { attempt, class, bytes, attempts })
    }

    /// Learns from a reply, and finds the calls that it overtook.
    pub(super) fn handle_answer(&mut self, answer: Option<Answer>) {
        let Some(Answer { attempt, class, bytes, attempts }) = answer else { return };
        self.ignored.handle_answer(class, attempt.sent);
        match &mut self.recovery {
            Recovery::Connection => {}
            Recovery::Timers(policy) => {
                let rtt = self.now.saturating_duration_since(attempt.sent);
                policy.handle_reply(class, (attempts == 1).then_some(rtt), attempts - 1);
            }
            Recovery::Adaptive(_) => self.learn(&attempt, class, bytes, attempt.sends == 1),
        }
    }

    /// A reply to a call that has ended, or to a probe.
    pub(super) fn handle_late(&mut self, late: &Attempt) {
        if late.call.slot == MTU_PROBE_SLOT {
            if let Recovery::Adaptive(adaptive) = &mut self.recovery {
                adaptive.handle_mtu_probe_reply(late.call.generation);
            }
            return;
        }
        let is_probe = late.call.slot == PROBE_SLOT;
        if is_probe {
            self.ignored.handle_answer(Class::Control, late.sent);
        } else {
            self.stats.stray_replies += 1;
        }
        if late.surplus > 0 {
            self.stats.spurious_resends += 1;
        }
        if let Recovery::Adaptive(adaptive) = &mut self.recovery {
            if late.surplus > 0 && !late.hedged {
                adaptive.on_spurious_retransmission();
            }
            // A reply counts once, however often it comes.
            if !late.answered {
                self.learn(late, Class::Control, 0, is_probe);
            }
        }
    }

    fn learn(&mut self, attempt: &Attempt, class: Class, bytes: u32, exact: bool) {
        let oldest = self.oldest();
        if let Recovery::Adaptive(adaptive) = &mut self.recovery {
            adaptive.look_back(self.now);
        }
        let is_oldest = oldest.is_none_or(|(number, _)| attempt.number <= number);
        while let Some(&(number, id)) = self.order.front() {
            if number >= attempt.number {
                break;
            }
            self.order.pop_front();
            self.suspect(number, id, class);
        }
        self.oldest();
        let waiting = !self.order.is_empty();
        let Recovery::Adaptive(adaptive) = &mut self.recovery else { return };
        let acked = Acked {
            class,
            bytes,
            sent: attempt.sent,
            before: attempt.before,
            exact,
            oldest: is_oldest,
            waiting,
            probe: attempt.call.slot == PROBE_SLOT,
            size: self.arriving,
            window_limited: self.is_window_limited.take(),
        };
        adaptive.on_ack(self.now, &acked);
    }

    /// Something sent after transmission `number` was answered: if the call still waits for it, it is probably lost.
    fn suspect(&mut self, number: u64, id: CallId, evidence: Class) {
        let Recovery::Adaptive(adaptive) = &mut self.recovery else { return };
        let Some(slot) = self.calls.find(id) else { return };
        if slot.number != number || slot.state != State::InFlight {
            return;
        }
        slot.state = State::Suspect;
        slot.losses += 1;
        let by_peer = evidence == slot.class;
        slot.overtaken_by_peer = by_peer;
        let (class, sent, losses, deadline) = (slot.class, slot.last_sent, slot.losses, slot.deadline);
        let (cautious, caution) = (slot.repeat == Repeat::SameXid, adaptive.caution());
        let mut due = self.now + adaptive.reordering_window(self.now, class, sent, losses, evidence);
        if cautious {
            due = due.max(sent + caution * losses);
        }
        self.timers.set(id.slot, deadline.map_or(due, |deadline| deadline.min(due)));
        self.leave_window(id.slot);
        // A full queue is known by what the reply that shows the loss has queued; but what only a small call has overtaken may well come.
        if by_peer {
            self.count_loss(id);
        }
    }

    /// The reordering window of a suspect is over: it is lost.
    pub(super) fn handle_reordering_window_over(&mut self, id: CallId) {
        if !self.calls.at(id.slot).overtaken_by_peer {
            self.count_loss(id);
        }
        self.send_again(id, Reason::Rack);
    }

    /// The last attempt of a call is lost: to a burst, or to a full queue.
    fn count_loss(&mut self, id: CallId) {
        let Recovery::Adaptive(adaptive) = &mut self.recovery else { return };
        let slot = self.calls.at(id.slot);
        let last = slot.xids.last().and_then(|xid| self.xids.find(*xid));
        if slot.class != Class::Control {
            let delivered = last.map_or(0, |it| it.before.bytes);
            adaptive.on_loss(self.now, slot.class, slot.bytes, slot.last_sent, delivered);
            self.stats.overflow = adaptive.overflow();
        }
    }

    /// Returns the oldest transmission that is still waited for, and forgets those before it.
    fn oldest(&mut self) -> Option<(u64, CallId)> {
        while let Some(&(number, id)) = self.order.front() {
            let slot = self.calls.peek(id);
            if slot.is_some_and(|slot| slot.number == number && slot.state == State::InFlight) {
                return Some((number, id));
            }
            self.order.pop_front();
        }
        None
    }

    /// Sends a call again.
    pub(super) fn send_again(&mut self, id: CallId, reason: Reason) {
        let slot = self.calls.at(id.slot);
        slot.state = State::Resending;
        let (class, bytes, attempts) = (slot.class, slot.bytes, slot.attempts);
        if class != Class::Control && reason != Reason::Reconnect {
            let elapsed = self.now.saturating_duration_since(slot.submitted);
            self.events.push_back(Event::Silent { class, bytes, attempts, elapsed });
        }
        if let Recovery::Timers(policy) = &mut self.recovery {
            policy.handle_timeout();
        }
        tracing::debug!(?class, bytes, attempts, ?reason, "sends again");
        let resend = Resend { id, reason };
        // What still counts in the window needs no room in it, and must not wait behind what does.
        match reason {
            Reason::Probe => self.resend.push_front(resend),
            Reason::Timeout | Reason::Rack | Reason::Hedge | Reason::Reconnect => {
                self.resend.push_back(resend);
            }
        }
    }

    /// Takes back every call that `matches` by owner, class, bytes and attempts, as others are to move its bytes; returns owners and bytes.
    pub fn withdraw(
        &mut self,
        now: Instant,
        reason: Withdrawal,
        matches: impl Fn(Owner, Class, u32, u32) -> bool,
    ) -> Vec<(Owner, u32)> {
        self.advance(now);
        for (_, slot) in self.calls.iter() {
            if slot.attempts > 0 && matches(slot.owner, slot.class, slot.bytes, slot.attempts) {
                tracing::debug!(class = ?slot.class, bytes = slot.bytes, attempts = slot.attempts, ?reason, "takes back");
                self.stats.withdrawn.count(reason);
            }
        }
        let withdrawn = self.cancel_matching(now, matches);
        if !withdrawn.is_empty() {
            self.ignored.handle_withdrawal();
        }
        withdrawn
    }

    /// Records that the link below has changed, as Dube et al. 1997 §6 ask for: what waits for a timer is sent
    /// again now, and a probe is sent at once.
    pub fn handle_link_event(&mut self, now: Instant) {
        self.advance(now);
        match &mut self.recovery {
            Recovery::Connection => {}
            Recovery::Adaptive(adaptive) => adaptive.handle_link_event(self.now),
            Recovery::Timers(_) => {
                let late = |sent: Instant| self.now.saturating_duration_since(sent) >= LATE;
                let waiting = self
                    .calls
                    .iter()
                    .filter(|(_, slot)| slot.state == State::InFlight && late(slot.last_sent));
                for index in waiting.map(|(index, _)| index).collect::<Vec<_>>() {
                    self.timers.set(index, self.now);
                }
            }
        }
    }

    /// Sends a probe when the PTO is over.
    pub(super) fn handle_probe_timeout(&mut self) {
        if self.recovery.next_probe().is_none_or(|due| due > self.now) {
            return;
        }
        let oldest = self.oldest();
        let Recovery::Adaptive(adaptive) = &mut self.recovery else { return };
        if oldest.is_none() {
            adaptive.handle_idle();
            return;
        }
        let waits = |&&(number, id): &&(u64, CallId)| {
            let slot = self.calls.peek(id);
            slot.is_some_and(|it| it.number == number && it.state == State::InFlight && it.hedge)
        };
        let hedge = if adaptive.wants_hedge() { self.order.iter().find(waits).copied() } else { None };
        let resend = adaptive.on_probe_timeout(self.now);
        if let Some((_, id)) = hedge {
            self.calls.at(id.slot).hedge = false;
            self.send_again(id, Reason::Hedge);
            return;
        }
        self.probe = oldest.and_then(|(_, id)| self.calls.peek(id)).map(|slot| slot.program);
        if let Some((_, id)) = oldest.filter(|_| resend) {
            self.send_again(id, Reason::Probe);
        }
    }

    /// Makes the NULL call that is a probe. It belongs to nobody, and is not sent again.
    pub(super) fn transmit_probe(&mut self, program: Program) -> Transmit<'_> {
        self.transmissions += 1;
        self.stats.probes += 1;
        self.transmit_null(CallId { slot: PROBE_SLOT, generation: 0 }, program, 0)
    }

    /// Makes a NULL call of so many bytes, headers of IP and UDP included, that must not be fragmented. Whether it is answered says nothing about
    /// anything but the path's MTU: it has no place in the order of transmissions.
    pub(super) fn transmit_mtu_probe(&mut self, program: Program, bytes: u32) -> Transmit<'_> {
        self.stats.mtu_probes += 1;
        self.transmit_null(CallId { slot: MTU_PROBE_SLOT, generation: bytes }, program, bytes)
    }

    fn transmit_null(&mut self, id: CallId, program: Program, bytes: u32) -> Transmit<'_> {
        let attempt = Attempt {
            call: id,
            index: 0,
            sends: 1,
            number: self.transmissions,
            sent: self.now,
            before: self.recovery.delivered(self.now),
            answered: false,
            hedged: false,
            surplus: 0,
        };
        let calls = &self.calls;
        let xid = self.xids.assign(attempt, |call| calls.is_live(call));
        self.probe_head.clear();
        encode_call_header(&mut self.probe_head, xid, program, NULL, &self.credential);
        let padded = bytes.saturating_sub(self.packet_headers()) as usize;
        self.probe_head.resize(self.probe_head.len().max(padded), 0);
        let dont_fragment = bytes > 0;
        Transmit { id, owner: Owner(u64::MAX), head: &self.probe_head, payload: None, dont_fragment }
    }
}
