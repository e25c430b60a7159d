//! What an operation needs next: an answer, or a call.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_wire::{FileHandle, Status};

use super::{Asked, Cache, Open, Operation};
use crate::{
    answers::{Answer, Failure, ListEntry},
    call::Question,
    data::{GRAIN_BYTES, Held, grain_length},
    directory::{Edge, Name, Source, Target},
    ids::{CallId, NodeId, OpenId, OperationId},
    object::{Entry, Kind, Object},
    reachability::Link,
    store::Store,
};

/// Rounds of calls that an operation takes which needs one or two answers: more, and the server contradicts itself.
const MOST_ROUNDS: u32 = 10;

/// Where a name leads.
enum Leads {
    /// To the file that is meant.
    Here,
    /// To another one, if that is known, or to none.
    Elsewhere(Option<NodeId>),
    /// This directory has to be asked.
    Unknown(FileHandle),
}

/// `None`: it waits for a call.
pub(super) type Step = Option<Result<Answer, Failure>>;

impl<S: Store> Cache<S> {
    /// Takes an operation as far as it goes.
    pub(super) fn step(&mut self, id: OperationId) {
        let was_prompt = self.operations.get(&id).and_then(|operation| self.prompt_at(operation));
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let asked = operation.asked.clone();
        let step = match operation.failed.take() {
            _ if self.server.link() == Link::Ended => Some(Err(Failure::Stale)),
            Some(failure) => Some(Err(failure)),
            None => match asked {
                Asked::Lookup { directory, name } => self.step_lookup(id, directory, &name),
                Asked::Attributes(node) => self.step_attributes(id, node),
                Asked::List(node) => self.step_list(id, node),
                Asked::ReadLink(node) => self.step_read_link(id, node),
                Asked::Open { node, by } => self.step_open(id, node, by.as_ref()),
                Asked::Read { open, offset, count } => self.step_read(id, open, offset, count),
                Asked::Find(handle) => self.step_find(id, handle),
                Asked::Confirm(node) => self.step_confirm(id, node),
            },
        };
        let step = step.or_else(|| self.give_up(id));
        if let Some(result) = step {
            if result.is_ok() && was_prompt.is_some_and(|at| at <= self.tree.now()) {
                self.server.handle_slow(self.tree.now());
            }
            self.finish(id, Some(result));
        }
    }

    /// Fails an operation that has waited for long enough.
    fn give_up(&self, id: OperationId) -> Step {
        let operation = self.operations.get(&id)?;
        if self.server.link() == Link::Another {
            return Some(Err(Failure::AnotherServer));
        }
        if operation.rounds > MOST_ROUNDS {
            return Some(Err(Failure::Protocol));
        }
        (self.given_up_at(operation) <= self.tree.now()).then_some(Err(Failure::Unreachable))
    }

    /// When an operation has waited for long enough, as far as is known.
    pub(super) fn given_up_at(&self, operation: &Operation) -> Instant {
        // What others have asked of the same file in vain counts as well.
        let since = operation.mute_since.map_or(operation.brought, |since| since.min(operation.brought));
        self.server.given_up_at(operation.begun, since)
    }

    /// Whether an operation is given what is held although nothing confirms it.
    pub(super) fn takes_stale(&self, id: OperationId) -> bool {
        let is_over = |operation: &Operation| operation.brought + self.config.wait <= self.tree.now();
        !self.server.may_answer() || self.operations.get(&id).is_some_and(is_over)
    }

    /// How old names and attributes of an object may be for an operation: longer when the server is slow to confirm them.
    fn longest_age(&self, operation: &Operation, object: &Object) -> Duration {
        let is_slow = |at| at <= self.tree.now() || self.server.is_slow(self.tree.now());
        match self.prompt_at(operation).is_some_and(is_slow) {
            true => self.config.longest_ttl,
            false => self.tree.freshness.ttl(&object.known),
        }
    }

    /// Whether the newest attributes of an object are new enough for an operation.
    fn is_confirmed(&self, id: OperationId, object: &Object) -> bool {
        let Some(operation) = self.operations.get(&id) else { return false };
        self.is_confirmed_within(operation, object, self.longest_age(operation, object))
    }

    fn is_confirmed_within(&self, operation: &Operation, object: &Object, longest: Duration) -> bool {
        let (asked_at, seen_at) = (object.known.asked_at, object.known.seen_at);
        let is_recent = object.known.call != CallId::KEPT
            && !self.tree.freshness.is_old((asked_at, seen_at), longest, Duration::ZERO);
        object.known.call >= operation.since || !operation.must_revalidate && is_recent
    }

    /// Whether what is known of the names of a directory is new enough for an operation.
    fn are_names_confirmed(&self, id: OperationId, directory: &Object, source: &Source) -> bool {
        let Some(operation) = self.operations.get(&id) else { return false };
        let longest = self.longest_age(operation, directory);
        let has_changed = directory.directory().is_some_and(|it| it.has_changed_since(source));
        let is_recent = source.call != CallId::KEPT
            && !has_changed
            && !self.tree.freshness.is_old((source.asked_at, source.seen_at), longest, Duration::ZERO);
        let holds = source.holds(&directory.known.metadata);
        source.call >= operation.since
            || !operation.must_revalidate && is_recent
            || !operation.must_revalidate && holds && self.is_confirmed_within(operation, directory, longest)
    }

    /// Whether the server has said since an operation began that a name is not there: a program that waits for a file which another one
    /// makes on the server finds it as soon as it looks.
    fn is_absence_confirmed(&self, id: OperationId, directory: &Object, source: &Source) -> bool {
        let Some(operation) = self.operations.get(&id) else { return false };
        let is_same = source.holds(&directory.known.metadata) && !operation.must_revalidate;
        source.call >= operation.first || is_same && directory.known.call >= operation.first
    }

    fn step_lookup(&mut self, id: OperationId, directory: NodeId, name: &Name) -> Step {
        self.tree.recall_names(directory, self.takes_stale(id));
        let Some(parent) = self.tree.objects.get(directory) else { return Some(Err(Failure::Stale)) };
        let Some(names) = parent.directory() else { return Some(Err(Failure::WrongKind)) };
        let handle = parent.handle();
        let stale = self.takes_stale(id);
        let edge = names.find(name);
        let is_confirmed = edge.as_ref().is_some_and(|edge| match edge.target {
            Target::Absent => self.is_absence_confirmed(id, parent, &edge.source),
            Target::Handle(..) | Target::Listed(_) => self.are_names_confirmed(id, parent, &edge.source),
        });
        if let Some(edge) = &edge
            && (is_confirmed || stale)
        {
            match &edge.target {
                Target::Absent => {
                    self.count_stale(!is_confirmed);
                    return Some(Err(Failure::Status(Status::NOENT)));
                }
                Target::Handle(target, _) => {
                    let target = target.get();
                    match self.tree.objects.at(&target) {
                        // A file without a name is not what this one leads to any more.
                        Some((_, object)) if !stale && self.tree.is_nameless(&object.known.metadata) => {
                            return self.ask_name(id, handle, name);
                        }
                        Some((node, object)) if stale || object.is_led_to(edge) => {
                            let is_known = self.is_confirmed(id, object);
                            if is_known || stale {
                                let metadata = object.known.metadata;
                                self.count_stale(!is_known || !is_confirmed);
                                self.refresh_name(directory, name, node);
                                self.tree.objects.touch(node);
                                self.reference(node);
                                return Some(Ok(Answer::Entry { node, metadata }));
                            }
                        }
                        // The handle leads to another version than when the name was asked for: the name may lead elsewhere.
                        Some(_) => return self.ask_name(id, handle, name),
                        None => {}
                    }
                    // The name was just looked up: its attributes are missing.
                    if self.operations.get(&id).is_some_and(|operation| edge.source.call >= operation.first) {
                        self.ask(Some(id), Question::Getattr(target), CallId(0));
                        return None;
                    }
                }
                Target::Listed(_) => {}
            }
        }
        self.confirm_name(id, directory, name, edge.as_ref())
    }

    /// Asks for a name, unless it is enough to ask for its directory.
    fn confirm_name(&mut self, id: OperationId, directory: NodeId, name: &Name, edge: Option<&Edge>) -> Step {
        let Some(parent) = self.tree.objects.get(directory) else { return Some(Err(Failure::Stale)) };
        let handle = parent.handle();
        // That the directory has not changed is enough for a name that was not there.
        let is_proven =
            |edge: &Edge| edge.target == Target::Absent && edge.source.holds(&parent.known.metadata);
        let must_revalidate = self.operations.get(&id).is_some_and(|operation| operation.must_revalidate);
        if edge.is_some_and(is_proven) && !must_revalidate {
            self.ask(Some(id), Question::Getattr(handle), CallId(0));
            None
        } else {
            self.ask_name(id, handle, name)
        }
    }

    fn ask_name(&mut self, id: OperationId, directory: FileHandle, name: &Name) -> Step {
        let earliest = self.earliest_joined(id);
        self.ask(Some(id), Question::Lookup { directory, name: Arc::clone(name) }, earliest);
        None
    }

    fn step_attributes(&mut self, id: OperationId, node: NodeId) -> Step {
        let Some(object) = self.tree.objects.get(node) else { return Some(Err(Failure::Stale)) };
        let is_confirmed = self.is_confirmed(id, object);
        // A version that is over stays what it was.
        if object.over || is_confirmed || self.takes_stale(id) {
            let metadata = object.known.metadata;
            self.count_stale(!is_confirmed);
            self.tree.objects.touch(node);
            self.refresh_attributes(node);
            return Some(Ok(Answer::Attributes(metadata)));
        }
        let handle = object.handle();
        let earliest = self.earliest_joined(id);
        self.ask(Some(id), Question::Getattr(handle), earliest);
        None
    }

    fn step_list(&mut self, id: OperationId, node: NodeId) -> Step {
        self.tree.recall_names(node, self.takes_stale(id));
        let Some(object) = self.tree.objects.get(node) else { return Some(Err(Failure::Stale)) };
        let Some(directory) = object.directory() else { return Some(Err(Failure::WrongKind)) };
        if object.over {
            return Some(Err(Failure::Stale));
        }
        let stale = self.takes_stale(id);
        if let Some(complete) = directory.complete.clone() {
            let are_confirmed = self.are_names_confirmed(id, object, &complete);
            let mut are_known = true;
            let mut is_due = self.tree.freshness.are_names_due(object, &complete);
            let entry = |(name, edge): (&Name, &Edge)| {
                let (fileid, node) = match &edge.target {
                    Target::Absent => return None,
                    Target::Listed(fileid) => (*fileid, None),
                    Target::Handle(handle, fileid) => match self.tree.objects.at(&handle.get()) {
                        Some((node, object)) if stale || object.is_led_to(edge) => {
                            are_known &= self.is_confirmed(id, object);
                            is_due |= self.tree.freshness.is_due(object);
                            (object.known.metadata.fileid, Some(node))
                        }
                        Some(_) | None => {
                            are_known = false;
                            (*fileid, None)
                        }
                    },
                };
                Some(ListEntry { name: name.clone(), fileid, node })
            };
            // One listing refreshes the attributes of all that is in it.
            let is_own = self.operations.get(&id).is_some_and(|operation| complete.call >= operation.since);
            if are_confirmed || stale {
                let mut entries = Vec::with_capacity(directory.names.len());
                entries.extend(directory.names.iter().filter_map(entry));
                if are_known || is_own || stale {
                    self.count_stale(!are_confirmed || !are_known && !is_own);
                    self.tree.objects.touch(node);
                    self.was_listed(node);
                    if is_due && self.server.is_up() {
                        self.list_next(None, node);
                    }
                    return Some(Ok(Answer::Listing(entries.into())));
                }
            }
        }
        self.list_next(Some(id), node);
        None
    }

    fn step_read_link(&mut self, id: OperationId, node: NodeId) -> Step {
        let Some(object) = self.tree.objects.get(node) else { return Some(Err(Failure::Stale)) };
        let Kind::Link(target) = &object.kind else { return Some(Err(Failure::WrongKind)) };
        if object.over {
            return Some(Err(Failure::Stale));
        }
        let is_confirmed = self.is_confirmed(id, object);
        if let Some(known) = target
            && (is_confirmed || self.takes_stale(id))
        {
            let target = known.0.clone();
            self.count_stale(!is_confirmed);
            self.tree.objects.touch(node);
            return Some(Ok(Answer::Target(target)));
        }
        let handle = object.handle();
        let earliest = self.earliest_joined(id);
        self.ask(Some(id), Question::Readlink(handle), earliest);
        None
    }

    /// What is known of where a name leads, for an operation that takes no older answer than `first`.
    fn leads(&self, by: Option<&Entry>, node: NodeId, first: CallId) -> Leads {
        let Some(Entry { directory, name }) = by else { return Leads::Here };
        // A directory that was forgotten cannot be asked.
        let Some(parent) = self.tree.objects.get(*directory).filter(|parent| !parent.over) else {
            return Leads::Here;
        };
        let edge =
            parent.directory().and_then(|names| names.find(name)).filter(|edge| edge.source.call >= first);
        let Some(edge) = edge else { return Leads::Unknown(parent.handle()) };
        match edge.target {
            Target::Absent => Leads::Elsewhere(None),
            Target::Listed(_) => Leads::Unknown(parent.handle()),
            Target::Handle(handle, fileid) => {
                // Some servers give one file several handles: what this one leads to is asked for as well.
                let is_it = |object: &Object| {
                    let is_same = fileid != 0 && fileid == object.known.metadata.fileid;
                    !object.over && (handle == object.handle || is_same)
                };
                match self.tree.objects.get(node).is_some_and(is_it) {
                    true => Leads::Here,
                    false => Leads::Elsewhere(self.tree.objects.node(&handle.get())),
                }
            }
        }
    }

    /// Who opened a file by a name that leads elsewhere will look it up again, and open what is there: it should not learn only then that
    /// this has another version, too.
    fn step_elsewhere(&mut self, id: OperationId, other: Option<NodeId>, first: CallId) -> Step {
        let Some((node, object)) = other.and_then(|node| Some((node, self.tree.objects.get(node)?))) else {
            return Some(Err(Failure::Stale));
        };
        let (handle, witness) = (object.handle(), object.held().and_then(Held::witness));
        if object.known.call < first {
            self.ask(Some(id), Question::Getattr(handle), first);
        } else if let Some(witness) = witness {
            self.fetch(Some(id), node, witness);
        } else {
            return Some(Err(Failure::Stale));
        }
        None
    }

    fn step_open(&mut self, id: OperationId, node: NodeId, by: Option<&Entry>) -> Step {
        self.tree.recall_data(node);
        let operation = self.operations.get(&id)?;
        let (first, begun) = (operation.first, operation.begun);
        let leads = self.leads(by, node, first);
        if let Leads::Elsewhere(other) = leads
            && !self.takes_stale(id)
        {
            return self.step_elsewhere(id, other, first);
        }
        let is_there = |object: &&Object| !object.over && !self.tree.is_nameless(&object.known.metadata);
        let Some(object) = self.tree.objects.get(node).filter(is_there) else {
            return match (leads, by) {
                // Who opens it will look the name up again, and is not to be led to what is over as well.
                (Leads::Unknown(directory), Some(Entry { name, .. })) if !self.takes_stale(id) => {
                    self.ask(Some(id), Question::Lookup { directory, name: Arc::clone(name) }, first);
                    None
                }
                _ => Some(Err(Failure::Stale)),
            };
        };
        let (handle, size) = (object.handle(), object.known.metadata.size);
        let Some(held) = object.held() else { return Some(Err(Failure::WrongKind)) };
        let is_confirmed = object.known.call >= first && held.doubt.is_none() && matches!(leads, Leads::Here);
        if is_confirmed || self.takes_stale(id) {
            return Some(Ok(self.open_file(node, is_confirmed.then_some(begun))));
        }
        if self.calls.since(first).any(|(_, call)| call.waiters.contains(&id)) {
            return None;
        }
        // The first READ of what is not held also asks for the version.
        let is_missing =
            size > 0 && !held.present.contains_key(&0) && held.fetches.get(&0).is_none_or(|it| it.quiet);
        let read = held.witness().or_else(|| is_missing.then_some(0));
        if let Some(grain) = read.filter(|_| object.known.call < first || held.doubt.is_some()) {
            self.fetch(Some(id), node, grain);
        }
        match (leads, by) {
            // It brings the attributes as well.
            (Leads::Unknown(directory), Some(Entry { name, .. })) => {
                self.ask(Some(id), Question::Lookup { directory, name: Arc::clone(name) }, first);
            }
            _ if read.is_none() => {
                self.ask(Some(id), Question::Getattr(handle), first);
            }
            _ => {}
        }
        None
    }

    /// Opens a file as it is known; `confirmed` is the beginning of the operation that has confirmed that, if one has.
    fn open_file(&mut self, node: NodeId, confirmed: Option<Instant>) -> Answer {
        let is_bare =
            |object: &Object| object.open == 0 && object.held().is_some_and(|held| held.present.is_empty());
        // A front that drops what it has read has nothing of what was held, which may change as it likes then.
        let is_begun_again = confirmed.is_some() && self.tree.objects.get(node).is_some_and(is_bare);
        self.count_stale(confirmed.is_none());
        if let Some(begun) = confirmed {
            self.tree.confirm_open(node, begun);
        }
        let open = OpenId(self.calls.number());
        let keep_cache = confirmed.is_none() || self.tree.takes_pages(node, open) && !is_begun_again;
        self.tree.objects.touch(node);
        if let Some(object) = self.tree.objects.get_mut(node) {
            object.open += 1;
            object.front.wanted = true;
            object.front.given &= !is_begun_again;
        }
        self.opens.insert(open, Open { node, next: 0, ahead: 1, in_order: 0 });
        Answer::Opened { open, keep_cache }
    }

    fn step_read(&mut self, id: OperationId, open: OpenId, offset: u64, count: u32) -> Step {
        let Some(&Open { node, ahead, .. }) = self.opens.get(&open) else { return Some(Err(Failure::Stale)) };
        self.tree.was_used(open, node);
        let Some(object) = self.tree.objects.get(node) else { return Some(Err(Failure::Stale)) };
        if object.held().is_none() {
            return Some(Err(Failure::WrongKind));
        }
        let size = object.known.metadata.size;
        let end = offset.saturating_add(count.into());
        // Where a front believes that there is more it would take what it is given for the end, or for the beginning of a hole.
        if size < end.min(object.front.changes().shown_bytes) {
            return Some(Err(Failure::Stale));
        }
        let end = end.min(size);
        if offset >= end {
            return Some(Ok(Answer::Data(Vec::new())));
        }
        self.read_held(id, node, offset..end, ahead)
    }

    /// Reads bytes of a file that are held, and fetches those that are not.
    fn read_held(
        &mut self,
        id: OperationId,
        node: NodeId,
        Range { start: offset, end }: Range<u64>,
        ahead: u32,
    ) -> Step {
        let begun = self.operations.get(&id)?.begun;
        let object = self.tree.objects.get(node)?;
        let (held, size) = (object.held()?, object.known.metadata.size);
        let grains = offset / GRAIN_BYTES..(end - 1) / GRAIN_BYTES + 1;
        let (is_over, stale) = (object.over, self.takes_stale(id));
        // What was read by another open is as good as what this one asks for itself: they share what the front keeps.
        let is_disconnected = stale || is_over && !self.server.is_up();
        let since = if is_disconnected { None } else { held.since.map(|since| since.min(begun)) };
        // While it is not known whether what was held is still what the file has, nothing else goes with it.
        let witness = held.witness().filter(|_| !is_over);
        let last = size.div_ceil(GRAIN_BYTES);
        let (near, far) = (grains.end + u64::from(ahead / 2), (grains.end + u64::from(ahead)).min(last));
        let ahead = (grains.end..far)
            .filter(|grain| !held.present.contains_key(grain) && !held.fetches.contains_key(grain));
        let ahead: Vec<u64> = if is_over || !self.server.is_up() { Vec::new() } else { ahead.collect() };
        let is_old = |grain: &u64| held.doubt.as_ref().is_some_and(|doubt| doubt.old.contains_key(grain));
        let is_mixed = witness.is_some() && !grains.clone().all(|grain| is_old(&grain));
        let mut pieces = Vec::new();
        let mut is_complete = true;
        for grain in grains {
            let start = grain * GRAIN_BYTES;
            let (from, to) = (offset.max(start) - start, (end - start).min(GRAIN_BYTES));
            let enough = if is_over || stale { to } else { grain_length(size, grain) };
            if let Some(data) = self.tree.grain(node, grain, since, enough) {
                pieces.push(data.slice(from as usize..to as usize));
                continue;
            }
            // What has changed is not fetched: its bytes would be those of another version.
            if is_over {
                return Some(Err(Failure::Stale));
            }
            if is_complete || !self.path.answers_in_parts() {
                self.fetch(Some(id), node, grain);
            }
            is_complete = false;
        }
        if let Some(witness) = witness
            && (is_mixed || !is_complete)
        {
            is_complete = false;
            self.fetch(Some(id), node, witness);
        }
        self.fetch_ahead(node, &ahead, near, (far, last));
        self.tree.objects.touch(node);
        if !is_complete {
            return None;
        }
        if let Some(object) = self.tree.objects.get_mut(node) {
            object.front.given = true;
        }
        Some(Ok(Answer::Data(pieces)))
    }

    /// The oldest call that an operation may join: one that began within the shortest time that answers are used for.
    pub(super) fn earliest_joined(&self, id: OperationId) -> CallId {
        let Some(operation) = self.operations.get(&id) else { return CallId(0) };
        if operation.must_revalidate {
            return operation.first;
        }
        let recent = |begun| operation.begun.saturating_duration_since(begun) < self.config.shortest_ttl;
        let joined = self.calls.iter().find(|(_, call)| recent(call.begun));
        joined.map_or(operation.first, |(id, _)| id.min(operation.first))
    }

    pub(super) fn count_stale(&mut self, is_stale: bool) {
        self.stats.stale_answers += u64::from(is_stale);
    }

    /// Records that the server does not know a handle that an operation was led to: its name must be looked up again.
    pub(super) fn revalidate(&mut self, id: OperationId) -> bool {
        let (next, limit) = (self.calls.next(), self.config.fruitless_calls);
        let Some(operation) = self.operations.get_mut(&id) else { return false };
        operation.fruitless += 1;
        (operation.must_revalidate, operation.since, operation.first) = (true, next, next);
        let may_lead_elsewhere =
            matches!(operation.asked, Asked::Lookup { .. } | Asked::Open { by: Some(_), .. });
        operation.fruitless <= limit && may_lead_elsewhere
    }
}
