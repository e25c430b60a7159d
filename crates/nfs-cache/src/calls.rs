//! The calls that are to be made, or were made and have no reply yet.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use crate::{
    call::{Call, Question},
    ids::{CallId, OperationId},
};

/// Calls by their names, who waits for them, and which are of no use any more.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Operations, calls and open files are numbered together.
    next: u64,
    by_id: BTreeMap<CallId, Call>,
    cancels: VecDeque<CallId>,
}

impl Calls {
    pub(crate) const fn new() -> Self {
        Self { next: CallId::FIRST.0 + 1, by_id: BTreeMap::new(), cancels: VecDeque::new() }
    }

    /// Returns the name of the next call that is begun.
    pub(crate) const fn next(&self) -> CallId {
        CallId(self.next)
    }

    /// Returns a number that nothing else has.
    pub(crate) const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Returns the first call, begun not before `earliest`, that asks this.
    pub(crate) fn asking(&self, question: &Question, earliest: CallId) -> Option<CallId> {
        self.since(earliest).find(|(_, call)| call.question == *question).map(|(id, _)| id)
    }

    /// Begins a call, which is sent at a time, or once that is known.
    pub(crate) fn begin(&mut self, question: Question, begun: Instant, send_at: Option<Instant>) -> CallId {
        let id = CallId(self.number());
        let call = Call {
            question,
            begun,
            send_at,
            sent: None,
            waiters: BTreeSet::new(),
            pause: Duration::ZERO,
            after: None,
            reply: None,
            stale: 0,
        };
        self.by_id.insert(id, call);
        id
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&Call> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.by_id.get_mut(&id)
    }

    /// Takes a call whose reply has come.
    pub(crate) fn take(&mut self, id: CallId) -> Option<Call> {
        self.by_id.remove(&id)
    }

    /// Puts a call back: it is sent again, or its reply counts later.
    pub(crate) fn put_back(&mut self, id: CallId, call: Call) {
        self.by_id.insert(id, call);
    }

    /// Returns the calls begun not before `earliest`, in order.
    pub(crate) fn since(&self, earliest: CallId) -> impl DoubleEndedIterator<Item = (CallId, &Call)> {
        self.by_id.range(earliest..).map(|(&id, call)| (id, call))
    }

    /// Returns all calls in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (CallId, &Call)> {
        self.since(CallId(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether any was sent, and its outcome is not known.
    pub(crate) fn are_in_flight(&self) -> bool {
        self.by_id.values().any(Call::is_in_flight)
    }

    /// Returns the first call that is to be sent by now.
    pub(crate) fn due(&self, now: Instant) -> Option<CallId> {
        self.iter().find(|(_, call)| call.send_at.is_some_and(|at| at <= now)).map(|(id, _)| id)
    }

    /// Lets an operation wait for a call.
    pub(crate) fn wait(&mut self, operation: OperationId, id: CallId) {
        if let Some(call) = self.by_id.get_mut(&id) {
            call.waiters.insert(operation);
        }
    }

    /// Ends the waiting of an operation.
    pub(crate) fn leave(&mut self, operation: OperationId) {
        for call in self.by_id.values_mut() {
            call.waiters.remove(&operation);
        }
    }

    /// The root was seen by a call: those that waited for that are sent.
    pub(crate) fn root_was_seen(&mut self, by: CallId, now: Instant) {
        let waits = |call: &&mut Call| call.reply.is_none() && call.after.is_some_and(|root| by >= root);
        for call in self.by_id.values_mut().filter(waits) {
            (call.after, call.send_at) = (None, Some(now));
        }
    }

    /// Cancels calls, and returns what they asked.
    pub(crate) fn withdraw(&mut self, which: impl Fn(CallId, &Call) -> bool) -> Vec<Question> {
        let gone: Vec<CallId> = self.iter().filter(|&(id, call)| which(id, call)).map(|(id, _)| id).collect();
        self.cancels.extend(&gone);
        gone.iter().filter_map(|id| Some(self.by_id.remove(id)?.question)).collect()
    }

    /// Returns the next call that was cancelled.
    pub(crate) fn poll_cancel(&mut self) -> Option<CallId> {
        self.cancels.pop_front()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
mod tests {
    use nfs_wire::FileHandle;

    use super::*;

    fn question(byte: u8) -> Question {
        Question::Getattr(FileHandle::try_from(&[byte; 8][..]).expect("eight bytes"))
    }

    #[test]
    fn a_question_is_joined_by_who_may_take_an_older_answer() {
        let (mut calls, now) = (Calls::new(), Instant::now());
        let first = calls.begin(question(1), now, Some(now));
        let between = calls.next();
        let second = calls.begin(question(1), now, Some(now));
        assert_eq!(calls.asking(&question(1), CallId(0)), Some(first));
        assert_eq!(calls.asking(&question(1), between), Some(second));
        assert_eq!(calls.asking(&question(1), calls.next()), None);
        assert_eq!(calls.asking(&question(2), CallId(0)), None);
    }

    #[test]
    fn a_call_is_due_at_its_time_and_in_order() {
        let (mut calls, now) = (Calls::new(), Instant::now());
        let later = calls.begin(question(1), now, Some(now + Duration::from_secs(1)));
        let unknown = calls.begin(question(2), now, None);
        let soon = calls.begin(question(3), now, Some(now));
        assert_eq!(calls.due(now), Some(soon));
        assert_eq!(calls.due(now + Duration::from_secs(1)), Some(later));
        calls.get_mut(unknown).expect("it was begun").after = Some(later);
        calls.root_was_seen(CallId(later.0 - 1), now);
        assert_eq!(calls.get(unknown).and_then(|call| call.send_at), None, "an earlier call has seen it");
        calls.root_was_seen(later, now);
        assert_eq!(calls.get(unknown).and_then(|call| call.send_at), Some(now));
    }

    #[test]
    fn what_is_withdrawn_is_cancelled_once() {
        let (mut calls, now) = (Calls::new(), Instant::now());
        let operation = OperationId(calls.number());
        let wanted = calls.begin(question(1), now, Some(now));
        let unwanted = calls.begin(question(2), now, Some(now));
        calls.wait(operation, wanted);
        let of_nobody = |_: CallId, call: &Call| call.waiters.is_empty();
        assert_eq!(calls.withdraw(of_nobody), [question(2)]);
        calls.leave(operation);
        assert_eq!(calls.withdraw(of_nobody), [question(1)]);
        assert_eq!(
            [calls.poll_cancel(), calls.poll_cancel(), calls.poll_cancel()],
            [Some(unwanted), Some(wanted), None]
        );
        assert!(calls.is_empty());
    }
}
