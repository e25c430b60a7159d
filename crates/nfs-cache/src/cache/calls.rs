//! Calls: who waits for them, and who does not any more.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use nfs_proto::transfer::Listing;

use super::Cache;
use crate::{
    call::{Call, Question},
    data::{Fetch, GRAIN_BYTES, grain_length},
    ids::{CallId, NodeId, OperationId},
    object::Object,
    reachability::Link,
    store::Store,
};

/// Rounds of calls for one operation after which the next ones are made more slowly: the server contradicts itself, or everything
/// changes all the time.
const QUICK_ROUNDS: u32 = 4;

/// Pause before the first of them; it doubles with each.
const SLOWER: Duration = Duration::from_millis(50);

/// The longest of these pauses.
const SLOWEST: Duration = Duration::from_secs(1);

/// How often the root is asked for where another server was seen: it may have been a short visit.
const ANOTHER_PAUSE: Duration = Duration::from_secs(5);

/// Calls in flight at once that ask whether the server responds.
const MOST_PROBES: usize = 8;

impl<S: Store> Cache<S> {
    /// Makes sure that a question is asked by a call begun not before `earliest`, and that the operation waits for it.
    pub(super) fn ask(
        &mut self,
        operation: Option<OperationId>,
        question: Question,
        earliest: CallId,
    ) -> CallId {
        let call = self.calls.asking(&question, earliest).unwrap_or_else(|| {
            // Before the server is identified nothing else is sent.
            let may_send = self.server.may_send();
            let rounds = operation.and_then(|it| self.operations.get(&it)).map_or(0, |it| it.rounds);
            let now = self.tree.now();
            let send_at = may_send.then_some(now.max(self.server.not_before()) + slower(rounds));
            self.calls.begin(question, now, send_at)
        });
        self.wait_for(operation, call);
        call
    }

    /// Records that an operation waits for a call.
    fn wait_for(&mut self, operation: Option<OperationId>, call: CallId) {
        let Some(operation) = operation else { return };
        self.calls.wait(operation, call);
        if let Some(operation) = self.operations.get_mut(&operation) {
            operation.since = operation.since.min(call);
        }
    }

    /// Fetches a grain.
    pub(super) fn fetch(&mut self, operation: Option<OperationId>, node: NodeId, grain: u64) {
        let (now, next, block) = (self.tree.now(), self.calls.next(), u64::from(self.read_block));
        let Some(object) = self.tree.objects.get_mut(node) else { return };
        let (handle, size) = (object.handle(), object.known.metadata.size);
        let Some(held) = object.held_mut() else { return };
        let fetch =
            held.fetches.entry(grain).or_insert_with(|| Fetch::new(grain_length(size, grain), now, next));
        fetch.quiet = false;
        let (mut missing, confirm, first) = (fetch.missing.clone(), fetch.confirm, fetch.first);
        // A READ of several grains may bring it. Where something has come before, it is asked for by itself: it may be to be compared.
        if fetch.is_untouched() {
            let brings = |call: &Call| {
                let grains = call.question.grains(node);
                grains.contains(&grain) && grains.end > grains.start + 1
            };
            let asked = self.calls.since(first).find(|(_, call)| brings(call)).map(|(id, _)| id);
            if let Some(call) = asked {
                return self.wait_for(operation, call);
            }
        }
        let block = fetch.block(block);
        let end_of_block = |start: u64| (start / block + 1) * block;
        // What continues where a READ has ended does not wait behind others.
        if self.path.answers_in_parts()
            && let Some((start, end)) = missing.pop_first()
        {
            missing = BTreeMap::from([(start, end.min(end_of_block(start)))]);
        }
        for (mut start, end) in missing {
            while start < end {
                let stop = end.min(end_of_block(start));
                let (offset, count) = (grain * GRAIN_BYTES + start, (stop - start) as u32);
                self.ask(operation, Question::Read { handle, node, offset, count }, first);
                start = stop;
            }
        }
        if let Some(confirm) = confirm {
            self.ask(operation, Question::Getattr(handle), confirm);
        }
    }

    /// Fetches grains ahead of a reader: `wanted` are those that are neither held nor fetched up to the grain `end`, as far as the reader may
    /// be ahead, of a file that ends with the grain before `last`. Of what is far ahead, nothing is asked for before it fills a READ.
    pub(super) fn fetch_ahead(&mut self, node: NodeId, wanted: &[u64], near: u64, (end, last): (u64, u64)) {
        if self.path.answers_in_parts() {
            return;
        }
        let narrow = self.tree.objects.get(node).and_then(Object::held).is_none_or(|held| held.one_by_one);
        let most = if narrow { 1 } else { self.path.grains_at_once(self.read_block) };
        let mut rest = wanted;
        while let Some(&first) = rest.first() {
            let follows = |it: &(usize, &u64)| *it.1 == first + it.0 as u64;
            let count = rest.iter().enumerate().take(most).take_while(follows).count();
            let stop = first + count as u64;
            rest = &rest[count..];
            if count < most && stop == end && end < last && first >= near {
                return;
            }
            self.fetch_run(node, first..stop);
        }
    }

    /// Fetches grains that follow each other with one READ.
    fn fetch_run(&mut self, node: NodeId, grains: Range<u64>) {
        if grains.end == grains.start + 1 {
            return self.fetch(None, node, grains.start);
        }
        let (now, next) = (self.tree.now(), self.calls.next());
        let Some(object) = self.tree.objects.get_mut(node) else { return };
        let (handle, size) = (object.handle(), object.known.metadata.size);
        let Some(held) = object.held_mut() else { return };
        for grain in grains.clone() {
            held.fetches.entry(grain).or_insert_with(|| Fetch::new(grain_length(size, grain), now, next));
        }
        let offset = grains.start * GRAIN_BYTES;
        let count = ((grains.end * GRAIN_BYTES).min(size) - offset) as u32;
        self.ask(None, Question::Read { handle, node, offset, count }, next);
    }

    /// Asks for the root's attributes, which show that the server responds and which one it is.
    pub(super) fn ensure_probe(&mut self) {
        let Some(question) = self.probe() else { return };
        if self.calls.asking(&question, CallId(0)).is_some() {
            return;
        }
        let call = self.ask(None, question, CallId(0));
        let pause = if self.server.link() == Link::Another { ANOTHER_PAUSE } else { Duration::ZERO };
        let send_at = Some(self.tree.now().max(self.server.not_before()) + pause);
        if let Some(call) = self.calls.get_mut(call) {
            call.send_at = send_at;
        }
    }

    /// When the server is asked again whether it responds: it is silent, and somebody waits or was just given what may be out of date.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let is_silent = matches!(self.server.link(), Link::Down | Link::Unidentified { .. });
        let sent =
            self.probes().next_back().and_then(|(_, call)| call.sent.filter(|_| call.send_at.is_none()));
        let is_used = !self.operations.is_empty() || self.server.is_used(self.tree.now());
        sent.filter(|_| is_silent && is_used).map(|sent| sent.at + self.probe_pause())
    }

    /// Returns the time between two questions for the root. On a slow link, one in each round trip would leave little room for others.
    pub(super) fn probe_pause(&self) -> Duration {
        self.config.probe.max(2 * self.path.round_trip())
    }

    /// Asks once more, if it is time. What was lost is not made up for: of many calls the first and the latest ones stay.
    pub(super) fn probe_again(&mut self) {
        if self.probe_at().is_none_or(|at| at > self.tree.now()) {
            return;
        }
        let surplus = self.probes().count().saturating_sub(MOST_PROBES);
        let calls: Vec<CallId> = self.probes().skip(1).take(surplus).map(|(id, _)| id).collect();
        self.withdraw(|id, _| calls.contains(&id));
        let Some(probe) = self.probe() else { return };
        let call = self.ask(None, probe, self.calls.next());
        if let Some(call) = self.calls.get_mut(call) {
            call.send_at = Some(call.begun);
        }
    }

    /// The server responds: the other calls that asked whether it does are not needed.
    pub(super) fn end_probes(&mut self) {
        let calls: Vec<CallId> =
            self.probes().filter(|(_, call)| call.waiters.is_empty()).map(|(id, _)| id).collect();
        self.withdraw(|id, _| calls.contains(&id));
    }

    fn probes(&self) -> impl DoubleEndedIterator<Item = (CallId, &Call)> {
        let probe = self.probe();
        self.calls.iter().filter(move |(_, call)| Some(&call.question) == probe.as_ref())
    }

    /// Whether a question is for the root's attributes.
    pub(super) fn is_probe(&self, question: &Question) -> bool {
        self.probe().as_ref() == Some(question)
    }

    /// What shows whether the server responds, and who it is: the attributes of the root. Nothing shows that after the end.
    pub(super) fn probe(&self) -> Option<Question> {
        if self.server.link() == Link::Ended {
            return None;
        }
        self.tree.objects.get(NodeId::ROOT).map(|root| Question::Getattr(root.handle()))
    }

    /// Cancels calls that nobody waits for, and leaves one that shows when the server responds again.
    pub(super) fn withdraw_unwanted(&mut self) {
        let probe = self.probe();
        let unwanted = |_, call: &Call| call.waiters.is_empty() && Some(&call.question) != probe.as_ref();
        self.withdraw(unwanted);
        self.ensure_probe();
    }

    /// Cancels all calls.
    pub(super) fn withdraw_calls(&mut self) {
        self.withdraw(|_, _| true);
    }

    fn withdraw(&mut self, which: impl Fn(CallId, &Call) -> bool) {
        for question in self.calls.withdraw(which) {
            self.abandon_question(&question);
        }
        if self.server.is_up() && !self.calls.are_in_flight() {
            self.server.begin_silence(None);
        }
    }

    /// The server was heard: a silence begins now, if it is asked for anything.
    pub(super) fn begin_silence(&mut self) {
        let is_asked = self.calls.are_in_flight();
        self.server.begin_silence(is_asked.then_some(self.tree.now()));
    }

    /// Gives up what the call was a part of.
    pub(super) fn abandon_question(&mut self, question: &Question) {
        match question {
            Question::Read { node, .. } => {
                if let Some(held) = self.tree.objects.get_mut(*node).and_then(|object| object.held_mut()) {
                    question.grains(*node).for_each(|grain| _ = held.end_fetch(grain));
                }
            }
            Question::Page(handle) => {
                if let Some(node) = self.tree.objects.node(handle)
                    && let Some(directory) =
                        self.tree.objects.get_mut(node).and_then(|object| object.directory_mut())
                {
                    directory.run = None;
                }
            }
            Question::Getattr(_) | Question::Lookup { .. } | Question::Readlink(_) => {}
        }
    }

    /// Returns the listing that a question belongs to.
    pub(super) fn listing(&self, question: &Question) -> Option<&Listing> {
        let Question::Page(handle) = question else { return None };
        let (_, object) = self.tree.objects.at(handle)?;
        Some(&object.directory()?.run.as_ref()?.listing)
    }
}

/// Returns for how long the next call of an operation waits that has had so many rounds of calls.
fn slower(rounds: u32) -> Duration {
    match rounds.checked_sub(QUICK_ROUNDS) {
        Some(more) => SLOWER.saturating_mul(1 << more.min(8)).min(SLOWEST),
        None => Duration::ZERO,
    }
}
