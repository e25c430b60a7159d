//! What replies tell.

use bytes::Bytes;
use nfs_proto::{
    attr::{FileType, Metadata, optional},
    transfer::{DirEntry, Listing, TransferError},
};
use nfs_wire::{
    DecodeError, FileHandle, Reader, Status,
    nfs3_types::nfs3::{GETATTR3resok, LOOKUP3resok, READLINK3resok},
    reply::{self, ReadHead},
    rpc::Rejection,
};
use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use super::{Asked, Cache};
use crate::{
    answers::{Event, Failure},
    call::{Call, Outcome, Question},
    data::{Doubt, GRAIN_BYTES, Held, Pages, grain_length, grains_of},
    directory::{Edge, Name, Run, Source, Target},
    handle::SharedHandle,
    ids::{CallId, NodeId, OperationId},
    object::{Kind, Known, Object},
    path::SMALLEST_PAGE,
    reachability::Link,
    record,
    store::Store,
    version::{Change, change},
};

/// Longest pause after the server asked for time.
const LONGEST_JUKEBOX_PAUSE: Duration = Duration::from_secs(5);

/// How often it may say that of another handle: once is not enough. Some servers say it of a page of a listing whose entries go away.
const fn most_stale(question: &Question) -> u32 {
    match question {
        Question::Page(_) => 4,
        Question::Getattr(_) | Question::Lookup { .. } | Question::Readlink(_) | Question::Read { .. } => 1,
    }
}

/// Names of a directory that are always taken, and at most.
const FEW_ENTRIES: u64 = 80_000;
const MANY_ENTRIES: u64 = 1_000_000;

/// Returns how many names a directory of so many bytes may have: no file system stores one in less than a byte, but some tell the same
/// size for all directories. Nothing else tells a large directory from an endless one.
fn most_entries(size: u64) -> u64 {
    size.clamp(FEW_ENTRIES, MANY_ENTRIES)
}

/// What a reply came to.
enum Taken {
    Done,
    /// The same question again later.
    Later,
    /// Those who wait fail.
    Failed(Failure),
    /// The server does not know the handle.
    Gone,
    /// The place in a listing does not exist any more.
    Moved,
}

impl From<DecodeError> for Taken {
    fn from(_: DecodeError) -> Self {
        Self::Failed(Failure::Protocol)
    }
}

impl From<Status> for Taken {
    fn from(status: Status) -> Self {
        match status {
            Status::JUKEBOX => Self::Later,
            Status::STALE | Status::BADHANDLE => Self::Gone,
            other => Self::Failed(Failure::Status(other)),
        }
    }
}

impl<S: Store> Cache<S> {
    pub(super) fn take_reply(&mut self, id: CallId, outcome: Outcome) {
        let Some(call) = self.calls.remove(&id) else { return };
        self.measure(id, &call, &outcome);
        let outcome = match outcome {
            Outcome::NotAsked => return self.take_silence(&call),
            Outcome::Results(results) => Ok(results),
            Outcome::Rejected(rejection) => Err(rejection),
        };
        self.server.handle_reply(self.freshness.now(), call.sent.map(|sent| sent.at));
        self.begin_silence();
        match self.server.link() {
            Link::Unidentified { .. } | Link::Another => self.identify(call, id, outcome.ok()),
            // Whoever answers after a silence has to show that it is the same server: until then nothing else counts.
            Link::Down if !self.is_probe(&call.question) => {
                let call = Call { reply: Some(outcome), after: Some(CallId(0)), ..call };
                _ = self.calls.insert(id, call);
            }
            Link::Down => self.identify(call, id, outcome.ok()),
            Link::Up => self.accept(id, call, outcome),
        }
    }

    /// Takes in a reply of the server that is ours.
    fn accept(&mut self, id: CallId, call: Call, outcome: Result<Bytes, Rejection>) {
        let taken = match outcome {
            Ok(results) => self.take_results(id, &call, &results),
            Err(rejection) => self.take_rejection(&call, rejection),
        };
        match taken {
            Taken::Done => {
                for operation in &call.waiters {
                    self.operations.entry(*operation).and_modify(|it| {
                        (it.brought, it.mute_since) = (self.freshness.now(), None);
                        // Listings and data take many answers; they have bounds of their own.
                        let takes_data =
                            matches!(it.asked, Asked::Read { .. } | Asked::Open { .. } | Asked::Confirm(_));
                        it.rounds += u32::from(!takes_data && !matches!(call.question, Question::Page(_)));
                    });
                }
            }
            Taken::Later => return self.ask_later(id, call),
            // One of its grains may be to blame.
            Taken::Failed(_) if self.read_one_by_one(&call.question) => {
                self.abandon_question(&call.question);
            }
            Taken::Failed(failure) => {
                self.abandon_question(&call.question);
                self.tell_unlisted(&call.question, &failure);
                self.fail(&call, |_, _| Some(failure.clone()));
            }
            Taken::Gone if self.is_probe(&call.question) => return self.lose_root(id, call),
            Taken::Gone if call.stale < most_stale(&call.question) => return self.doubt_stale(id, call),
            Taken::Gone if matches!(call.question, Question::Page(_)) => self.begin_listing_again(&call),
            Taken::Moved => self.begin_listing_again(&call),
            Taken::Gone => {
                self.abandon_question(&call.question);
                self.end_unknown(&call.question);
                self.fail(&call, |cache, operation| (!cache.insist(operation)).then_some(Failure::Stale));
            }
        }
        for operation in call.waiters {
            self.step(operation);
        }
        // Others may wait for what this one told as well: those of the same object.
        self.step_all();
        self.drop_objects();
    }

    /// The server does not know a handle. A server that is just starting knows none: only if it knows the root, and says the same once
    /// more, is that believed.
    fn doubt_stale(&mut self, id: CallId, mut call: Call) {
        call.stale += 1;
        let Some(probe) = self.probe() else { return };
        let root = self.ask(None, probe, CallId(self.next));
        self.ask_after_root(id, call, root);
    }

    /// A directory changes so fast that its pages cannot be had: from the beginning, if it is still there.
    fn begin_listing_again(&mut self, call: &Call) {
        self.abandon_question(&call.question);
        let Question::Page(handle) = call.question else { return };
        let earliest = CallId(self.next);
        for &operation in &call.waiters {
            self.operations.entry(operation).and_modify(|it| it.rounds += 1);
            self.ask(Some(operation), Question::Getattr(handle), earliest);
        }
    }

    /// A listing makes no sense: the user should know which.
    fn tell_unlisted(&mut self, question: &Question, failure: &Failure) {
        if let (Question::Page(handle), Failure::Listing(_) | Failure::Protocol) = (question, failure)
            && let Some(path) = self.objects.node(handle).and_then(|node| self.path(node))
        {
            self.events.push_back(Event::Unlisted { path, failure: failure.clone() });
        }
    }

    /// The server does not know the root: it is just starting, or it is another one.
    fn lose_root(&mut self, id: CallId, call: Call) {
        if self.server.handle_no_root(self.freshness.now()) {
            self.meet_another();
        } else {
            self.withdraw_calls();
            // Soon, however long it has said so: what is held is shown until it says something else.
            let send_at = Some(self.freshness.now() + self.probe_pause());
            self.calls.insert(id, Call { send_at, ..call });
            self.set_link(Link::Unidentified { silent: true });
        }
        self.step_all();
    }

    /// Another server is there. It is asked for nothing but the root.
    fn meet_another(&mut self) {
        self.set_link(Link::Another);
        self.withdraw_calls();
        self.ensure_probe();
    }

    fn ask_later(&mut self, id: CallId, mut call: Call) {
        call.pause = (call.pause * 2).clamp(self.config.jukebox_pause, LONGEST_JUKEBOX_PAUSE);
        call.send_at = Some(self.freshness.now() + call.pause);
        self.calls.insert(id, call);
    }

    fn fail(&mut self, call: &Call, failure: impl Fn(&mut Self, OperationId) -> Option<Failure>) {
        for &operation in &call.waiters {
            let failed = failure(self, operation);
            if let Some(waiting) = self.operations.get_mut(&operation) {
                waiting.failed = failed;
            }
        }
    }

    /// The server could not be asked. Nothing is known that was not known before.
    fn take_silence(&mut self, call: &Call) {
        // Those who wait for it ask again, and what it was a part of goes on.
        if call.waiters.is_empty() {
            self.abandon_question(&call.question);
        }
        self.server.handle_not_sent(self.freshness.now());
        if self.server.is_up() {
            self.set_link(Link::Down);
        }
        self.ensure_probe();
        self.step_all();
        // What they were given is held: a listing that nobody waits for is not continued later.
        if self.calls.values().all(|other| other.question != call.question) {
            self.abandon_question(&call.question);
        }
    }

    /// Looks whether the root is the one that it was.
    fn identify(&mut self, call: Call, id: CallId, results: Option<Bytes>) {
        let Some(root) = self.objects.get(NodeId::ROOT) else { return };
        let (handle, before) = (root.handle(), root.known.metadata);
        if call.question != Question::Getattr(handle) {
            return;
        }
        let identity = |it: &Metadata| (it.fsid, it.fileid, it.file_type);
        let shown = results.and_then(|results| reply::decode::<GETATTR3resok>(&results).ok());
        match shown {
            Some(Ok(shown)) if identity(&Metadata::from(&shown.obj_attributes)) == identity(&before) => {
                self.server.handle_identity(self.freshness.now());
                self.observe(handle, Metadata::from(&shown.obj_attributes), id, &call);
                if self.server.link() == Link::Down {
                    self.end_probes();
                    self.root_was_seen(CallId::LAST);
                } else {
                    self.withdraw_calls();
                }
                self.set_link(Link::Up);
                self.accept_replies();
            }
            Some(Err(Status::JUKEBOX)) => self.ask_later(id, call),
            Some(Err(Status::STALE | Status::BADHANDLE)) if self.server.link() != Link::Another => {
                return self.lose_root(id, call);
            }
            Some(_) => self.meet_another(),
            None => {
                self.server.handle_not_sent(self.freshness.now());
                self.ensure_probe();
            }
        }
        self.step_all();
    }

    /// Takes in the replies that came before it was clear whose they are.
    fn accept_replies(&mut self) {
        let replied = self.calls.iter().filter(|(_, call)| call.reply.is_some()).map(|(&id, _)| id);
        for id in replied.collect::<Vec<_>>() {
            let Some(mut call) = self.calls.remove(&id) else { continue };
            match call.reply.take().filter(|_| self.server.is_up()) {
                Some(outcome) => self.accept(id, call, outcome),
                None => {
                    _ = self
                        .calls
                        .insert(id, Call { after: None, send_at: Some(self.freshness.now()), ..call })
                }
            }
        }
    }

    fn take_results(&mut self, id: CallId, call: &Call, results: &Bytes) -> Taken {
        if self.is_alien(&call.question, results) {
            return self.suspect();
        }
        let taken = match &call.question {
            Question::Getattr(handle) => self.take_getattr(id, call, *handle, results),
            Question::Lookup { directory, name } => self.take_lookup(id, call, *directory, name, results),
            Question::Readlink(handle) => self.take_readlink(id, call, *handle, results),
            Question::Read { handle, node, offset, count } => {
                self.take_read(id, call, (*handle, *node), (*offset, *count), results)
            }
            Question::Page(handle) => self.take_page(id, call, *handle, results),
        };
        taken.unwrap_or_else(|taken| taken)
    }

    /// Whether a reply shows the file that was asked about on another file system than before: then another server may be there. The
    /// root's identity decides.
    fn is_alien(&self, question: &Question, results: &[u8]) -> bool {
        let shown = match question {
            Question::Getattr(_) => match reply::decode::<GETATTR3resok>(results) {
                Ok(Ok(found)) => Some(Metadata::from(&found.obj_attributes)),
                _ => None,
            },
            Question::Lookup { .. } => match reply::decode::<LOOKUP3resok>(results) {
                Ok(Ok(found)) => optional(&found.dir_attributes),
                _ => None,
            },
            Question::Readlink(_) | Question::Read { .. } | Question::Page(_) => {
                let leading = reply::leading_attributes(results).ok().flatten();
                leading.as_ref().map(Metadata::from)
            }
        };
        let known = self.objects.at(question.handle()).map(|(node, object)| (node, object.known.metadata));
        let (Some(shown), Some((node, known))) = (shown, known) else { return false };
        if node == NodeId::ROOT && (shown.fileid, shown.file_type) != (known.fileid, known.file_type) {
            return true;
        }
        // A server may have put another file system in this place: then the root is the same.
        let is_identified = self.server.is_identified(self.freshness.now());
        shown.fsid != known.fsid && (node == NodeId::ROOT || !is_identified)
    }

    /// Believes nothing more before the root was seen.
    fn suspect(&mut self) -> Taken {
        self.withdraw_calls();
        self.set_link(Link::Unidentified { silent: false });
        self.ensure_probe();
        Taken::Done
    }

    fn take_getattr(
        &mut self,
        id: CallId,
        call: &Call,
        handle: FileHandle,
        results: &[u8],
    ) -> Result<Taken, Taken> {
        let found: GETATTR3resok = reply::decode(results)??;
        self.observe(handle, Metadata::from(&found.obj_attributes), id, call);
        if self.is_probe(&call.question) {
            self.server.handle_root();
            self.root_was_seen(id);
        }
        self.confirm_fetches(handle);
        Ok(Taken::Done)
    }

    fn take_lookup(
        &mut self,
        id: CallId,
        call: &Call,
        directory: FileHandle,
        name: &Name,
        results: &[u8],
    ) -> Result<Taken, Taken> {
        let now = self.freshness.now();
        let source = |proven| Source { call: id, asked_at: call.begun, seen_at: now, proven }.into();
        let (target, proven) = match reply::decode::<LOOKUP3resok>(results)? {
            Ok(found) => {
                let handle =
                    FileHandle::try_from(&found.object).map_err(|_| Taken::Failed(Failure::Protocol))?;
                if let Some(metadata) = optional(&found.dir_attributes) {
                    self.observe(directory, metadata, id, call);
                }
                let metadata = optional(&found.obj_attributes);
                if let Some(metadata) = metadata {
                    self.observe(handle, metadata, id, call);
                }
                let fileid = metadata.map_or(0, |metadata| metadata.fileid);
                (Target::Handle(self.objects.share(handle), fileid), self.proof(directory, id, call))
            }
            // The reply's attributes of the directory are not decoded: it holds for its time only.
            Err(Status::NOENT) => (Target::Absent, None),
            Err(status) => return Err(status.into()),
        };
        let found = target.handle().and_then(|handle| self.objects.node(&handle.get()));
        if let Some(names) = self.directory_of(&directory) {
            names.learn(name, Edge { target, source: source(proven) });
        }
        if let Some(node) = self.objects.node(&directory) {
            if let Some(found) = found {
                self.adopt(node, name, found);
            }
            self.changed(node);
        }
        Ok(Taken::Done)
    }

    /// Returns the attributes of a directory as what proves a name that this call told, if they do. What the call found may be older
    /// than the attributes that it brought: only those known before it count.
    fn proof(&self, directory: FileHandle, id: CallId, call: &Call) -> Option<Arc<Metadata>> {
        let (_, object) = self.objects.at(&directory)?;
        let under = object.directory()?.seen_before(call.begun)?;
        let is_unchanged = under.is_same_version(&object.known.metadata) && object.known.call == id;
        (is_unchanged && self.freshness.proves(call.begun, object.known.metadata.ctime))
            .then(|| Arc::clone(under))
    }

    fn take_readlink(
        &mut self,
        id: CallId,
        call: &Call,
        handle: FileHandle,
        results: &[u8],
    ) -> Result<Taken, Taken> {
        let found: READLINK3resok<'_> = reply::decode(results)??;
        let target = Bytes::copy_from_slice(found.data.as_ref());
        match optional(&found.symlink_attributes) {
            Some(metadata) => self.observe(handle, metadata, id, call),
            // Without them it is as new as the attributes known: the link's target never changes under its handle.
            None => {
                self.ask(None, Question::Getattr(handle), id);
            }
        }
        if let Some(node) = self.objects.node(&handle)
            && let Some(Kind::Link(known)) = self.objects.get_mut(node).map(|object| &mut object.kind)
            && known.as_ref().is_none_or(|(_, call)| *call < id)
        {
            *known = Some((target, id));
            self.told(node, true);
        }
        Ok(Taken::Done)
    }

    fn take_read(
        &mut self,
        id: CallId,
        call: &Call,
        (handle, node): (FileHandle, NodeId),
        (offset, count): (u64, u32),
        results: &Bytes,
    ) -> Result<Taken, Taken> {
        let mut reader = Reader::new(results);
        let head = ReadHead::decode(&mut reader, count)??;
        let start = results.len() - reader.rest().len();
        let end = start + head.count as usize;
        if results.len() < end {
            return Err(Taken::Failed(Failure::Protocol));
        }
        let shown = head.attributes.as_ref().map(Metadata::from);
        let before = self.objects.get(node).map(|object| object.known.metadata);
        if let Some(metadata) = shown {
            self.observe(handle, metadata, id, call);
        }
        if head.count < count {
            self.read_one_by_one(&call.question);
        }
        let (data, stop) = (results.slice(start..end), offset + u64::from(count));
        for grain in grains_of(offset, u64::from(count)) {
            let (from, to) = (offset.max(grain * GRAIN_BYTES), stop.min((grain + 1) * GRAIN_BYTES));
            let part = |at: u64| data.len().min((at - offset) as usize);
            self.take_part(id, (node, grain), from..to, &data.slice(part(from)..part(to)), (before, shown))?;
        }
        Ok(Taken::Done)
    }

    /// Takes in what a READ brought of a grain, of which it had asked for bytes of the file; and what was known of the file before, and
    /// was shown.
    fn take_part(
        &mut self,
        id: CallId,
        (node, grain): (NodeId, u64),
        asked: Range<u64>,
        data: &Bytes,
        (before, shown): (Option<Metadata>, Option<Metadata>),
    ) -> Result<(), Taken> {
        let next = CallId(self.next);
        let Some(object) = self.objects.get_mut(node) else { return Ok(()) };
        let version = object.known.metadata;
        // The reply is about another version than that of the node; or it is the first to show it, and its bytes may be older than its
        // attributes.
        let is_over = object.over;
        let shows = |version: &Metadata| shown.is_none_or(|shown| shown.is_same_version(version));
        let is_other = is_over || !shows(&version) || !before.is_some_and(|before| shows(&before));
        let Some(held) = object.held_mut() else { return Ok(()) };
        let Some(fetch) = held.fetches.get_mut(&grain).filter(|fetch| id >= fetch.first) else {
            return Ok(());
        };
        if is_over {
            held.fetches.remove(&grain);
            return Ok(());
        }
        let (at, end) = (asked.start - grain * GRAIN_BYTES, asked.end - grain * GRAIN_BYTES);
        // Another reply may have brought it meanwhile.
        let is_needed = fetch.lacks(at, end);
        let is_of_unknown = shown.is_none() && id < fetch.changed_before;
        let has_filled = !is_other && !is_of_unknown && fetch.fill(at, data);
        if has_filled {
            fetch.fruitless = 0;
        } else if is_needed && id >= fetch.counted {
            // Calls that were made before count together: what one of them meets, all do.
            (fetch.fruitless, fetch.counted) = (fetch.fruitless + 1, next);
            if fetch.fruitless > self.config.fruitless_calls {
                return Err(Taken::Failed(Failure::Protocol));
            }
        }
        if shown.is_none() {
            fetch.confirm = Some(next);
        }
        self.finish_fetch(node, grain);
        Ok(())
    }

    /// A READ did not bring what it asked for: if that was several grains, each is asked for by itself from now on. Returns whether it was.
    fn read_one_by_one(&mut self, question: &Question) -> bool {
        let Question::Read { node, .. } = question else { return false };
        let grains = question.grains(*node);
        let is_long = grains.end > grains.start + 1;
        if let Some(held) = self.objects.get_mut(*node).and_then(Object::held_mut).filter(|_| is_long) {
            held.one_by_one = true;
        }
        is_long
    }

    /// Holds a grain that is complete and, where replies had no attributes, confirmed; else goes on with it.
    fn finish_fetch(&mut self, node: NodeId, grain: u64) {
        let Some(object) = self.objects.get_mut(node) else { return };
        let confirmed_by = object.known.call;
        let Some(held) = object.held_mut() else { return };
        let Some(fetch) = held.fetches.get(&grain) else { return };
        let is_confirmed = fetch.confirm.is_none_or(|since| confirmed_by >= since);
        if fetch.missing.is_empty() && is_confirmed {
            let fetch = held.fetches.remove(&grain).expect("it was just there");
            let (quiet, begun, data) = (fetch.quiet, fetch.begun, fetch.into_data());
            if !self.settle_doubt(node, grain, &data) {
                let known = self.objects.get(node).map(|object| object.known);
                if let Some(node) = known.and_then(|known| self.begin_version(node, known)) {
                    self.hold(node, grain, data, begun);
                }
                return;
            }
            if quiet {
                self.hold_prefetched(node, grain, data, begun);
            } else {
                self.hold(node, grain, data, begun);
                if grain == 0 {
                    self.head_was_read(node);
                }
            }
        } else if fetch.quiet {
            // It goes on at its turn.
        } else if fetch.missing.is_empty() || fetch.fruitless > 0 || !self.is_asked(node, grain) {
            self.fetch(None, node, grain);
        }
    }

    /// Whether READs of a grain are under way.
    fn is_asked(&self, node: NodeId, grain: u64) -> bool {
        self.calls.values().any(|call| call.question.grains(node).contains(&grain))
    }

    fn confirm_fetches(&mut self, handle: FileHandle) {
        let Some((node, object)) = self.objects.at(&handle) else { return };
        let Some(held) = object.held() else { return };
        let waiting = held.fetches.iter().filter(|(_, fetch)| fetch.confirm.is_some());
        let grains: Vec<u64> = waiting.map(|(&grain, _)| grain).collect();
        for grain in grains {
            self.finish_fetch(node, grain);
        }
    }

    /// Goes on with a listing, or begins one.
    pub(super) fn list_next(&mut self, operation: Option<OperationId>, node: NodeId) {
        let Some(handle) = self.handle(node) else { return };
        let (next, now) = (CallId(self.next), self.freshness.now());
        let Some(directory) = self.objects.get_mut(node).and_then(Object::directory_mut) else { return };
        let run = directory.run.get_or_insert_with(|| {
            Box::new(Run {
                listing: Listing::new(handle, SMALLEST_PAGE),
                first: next,
                begun: now,
                under: None,
                pages: 0,
                entries: 0,
                names: BTreeMap::new(),
            })
        });
        let first = run.first;
        self.ask(operation, Question::Page(handle), CallId(0));
        if let Some(operation) = operation.and_then(|operation| self.operations.get_mut(&operation)) {
            operation.since = operation.since.min(first);
        }
    }

    fn take_page(
        &mut self,
        id: CallId,
        call: &Call,
        handle: FileHandle,
        results: &[u8],
    ) -> Result<Taken, Taken> {
        let shown = reply::leading_attributes(results)?.as_ref().map(Metadata::from);
        let before = self
            .objects
            .at(&handle)
            .and_then(|(_, object)| object.directory()?.seen_before(call.begun).cloned());
        if let Some(metadata) = shown {
            self.observe(handle, metadata, id, call);
        }
        let Some(node) = self.objects.node(&handle) else { return Ok(Taken::Done) };
        let size = self.objects.get(node).map_or(0, |object| object.known.metadata.size);
        let Some(run) =
            self.objects.get_mut(node).and_then(Object::directory_mut).and_then(|it| it.run.as_mut())
        else {
            return Ok(Taken::Done);
        };
        let entries = run.listing.handle_results(results).map_err(Self::listing_failed)?;
        let is_first = run.pages == 0;
        let under = if is_first { before } else { run.under.take() };
        run.under = under.filter(|under| shown.is_some_and(|shown| shown.is_same_version(under)));
        run.pages += 1;
        run.entries += entries.len() as u64;
        let (procedure, most) = (run.listing.procedure(), most_entries(size));
        if run.entries > most {
            let reason = "the directory has more names than its size allows, or does not end";
            return Err(Taken::Failed(Failure::Listing(TransferError::NoProgress { procedure, reason })));
        }
        for DirEntry { name, fileid, metadata, handle, .. } in entries {
            let name = Name::from(name);
            if let (Some(handle), Some(metadata)) = (handle, metadata) {
                self.observe(handle, metadata, id, call);
                if let Some(found) = self.objects.node(&handle) {
                    self.adopt(node, &name, found);
                }
            }
            let target = match handle {
                Some(handle) => Target::Handle(self.objects.share(handle), fileid),
                None => Target::Listed(fileid),
            };
            if let Some(run) =
                self.objects.get_mut(node).and_then(Object::directory_mut).and_then(|it| it.run.as_mut())
            {
                run.names.insert(name, target);
            }
        }
        let object = self.objects.get(node).expect("it was just there");
        let Some(run) = object.directory().and_then(|it| it.run.as_ref()) else { return Ok(Taken::Done) };
        if !run.listing.is_done() {
            let waiters: Vec<OperationId> = call.waiters.iter().copied().collect();
            self.list_next(None, node);
            for waiter in waiters {
                self.list_next(Some(waiter), node);
            }
            return Ok(Taken::Done);
        }
        let (is_proven, now) =
            (self.freshness.proves(run.begun, object.known.metadata.ctime), self.freshness.now());
        if let Some(directory) = self.objects.get_mut(node).and_then(Object::directory_mut)
            && let Some(run) = directory.run.take()
        {
            let Run { first, begun, under, names, .. } = *run;
            let proven = under.filter(|_| is_proven);
            let told: Vec<SharedHandle> = names.values().filter_map(Target::handle).cloned().collect();
            directory.learn_all(names, Source { call: first, asked_at: begun, seen_at: now, proven });
            self.changed(node);
            self.saw_all(first, &told);
        }
        Ok(Taken::Done)
    }

    /// A listing is one answer: what its first page told is used for as long as what the last one did.
    fn saw_all(&mut self, first: CallId, told: &[SharedHandle]) {
        for handle in told {
            let Some(node) = self.objects.node(&handle.get()) else { continue };
            if let Some(object) = self.objects.get_mut(node).filter(|object| object.known.call >= first) {
                object.known.seen_at = self.freshness.now();
            }
        }
    }

    const fn listing_failed(error: TransferError) -> Taken {
        match error {
            TransferError::Status { status: Status::JUKEBOX, .. } => Taken::Later,
            TransferError::Status { status: Status::BAD_COOKIE | Status::NOT_SYNC, .. } => Taken::Moved,
            TransferError::Status { status: Status::STALE | Status::BADHANDLE, .. } => Taken::Gone,
            TransferError::Status { status, .. } => Taken::Failed(Failure::Status(status)),
            other => Taken::Failed(Failure::Listing(other)),
        }
    }

    fn take_rejection(&mut self, call: &Call, rejection: Rejection) -> Taken {
        let Question::Page(handle) = &call.question else { return Taken::Failed(Failure::Protocol) };
        let Some(node) = self.objects.node(handle) else { return Taken::Done };
        let directory = self.objects.get_mut(node).and_then(Object::directory_mut);
        let Some(run) = directory.and_then(|directory| directory.run.as_mut()) else { return Taken::Done };
        match run.listing.handle_rejection(rejection) {
            Ok(()) => {
                self.list_next(None, node);
                Taken::Done
            }
            Err(error) => Self::listing_failed(error),
        }
    }

    /// Takes in attributes that a reply brought.
    fn observe(&mut self, handle: FileHandle, metadata: Metadata, id: CallId, call: &Call) {
        self.freshness.observe(metadata.ctime);
        self.counts_links |= metadata.file_type == FileType::Regular && metadata.links > 0;
        let mut known = Known { metadata, call: id, asked_at: call.begun, seen_at: self.freshness.now() };
        let Some((node, object)) = self.objects.at(&handle) else {
            // A late reply does not bring back what the server has forgotten meanwhile: whoever needs the file asks again.
            if id >= self.gone_before {
                self.objects.insert(self.freshness.now(), handle, known);
            }
            return;
        };
        let before = object.known;
        // Of two calls at the same time the server may have run the later one first.
        let is_after = id < before.call && metadata.ctime > before.metadata.ctime;
        if is_after {
            (known.call, known.asked_at) = (before.call, before.asked_at);
        }
        // A later call has told more.
        let is_before = call.begun < before.seen_at && metadata.ctime < before.metadata.ctime;
        if id < before.call && !is_after || is_before {
            return;
        }
        let is_same_kind =
            before.metadata.file_type == metadata.file_type && before.metadata.fileid == metadata.fileid;
        let change = match change(&before.metadata, &metadata) {
            _ if !is_same_kind => Change::Bytes,
            Change::None if self.is_nameless(&before.metadata) == self.is_nameless(&metadata) => Change::None,
            kept @ (Change::Attributes | Change::Growth) if !self.is_nameless(&metadata) => kept,
            _ => Change::Bytes,
        };
        let is_file = matches!(object.kind, Kind::File(_));
        if change != Change::None {
            self.freshness.observe_change(before.asked_at, metadata.ctime);
        }
        let is_new = match change {
            Change::None => false,
            Change::Bytes => !is_same_kind || is_file && !self.renew(node, metadata.size),
            Change::Attributes | Change::Growth => is_file && !self.doubt(node, &before, &metadata, change),
        };
        if is_new && node != NodeId::ROOT {
            self.begin_version(node, known);
            return;
        }
        if let Some(object) = self.objects.get_mut(node) {
            object.known = known;
            match &mut object.kind {
                Kind::Link(target) if change != Change::None => *target = None,
                Kind::Directory(directory) => directory.see(self.freshness.now(), metadata),
                Kind::Link(_) | Kind::File(_) | Kind::Other => {}
            }
            if change != Change::None && is_file {
                self.rename_kept(node);
            }
            self.told(node, change != Change::None);
        }
    }

    /// A file has other bytes, of which a front has none yet: then it is the same node, and what is held of it goes. Returns false if a
    /// front has some, or this goes on and on, or it is shorter: a node never is, for a front may believe in the bytes that it had.
    fn renew(&mut self, node: NodeId, size: u64) -> bool {
        let most = self.config.fruitless_calls;
        let object = self.objects.get_mut(node).filter(|object| object.known.metadata.size <= size);
        let held = object.and_then(Object::held_mut);
        let may_be = |held: &&mut Held| !held.given && held.doubt.is_none() && held.renewals < most;
        let Some(held) = held.filter(may_be) else { return false };
        held.renewals += 1;
        self.retire(node);
        self.drop_data(node);
        self.altered(node);
        true
    }

    /// Tells a front that knows a file of its change.
    fn altered(&mut self, node: NodeId) {
        if self.objects.get(node).is_some_and(|object| object.references > 0) {
            self.events.push_back(Event::Altered { node });
        }
    }

    /// What is held of a file may still be what the file has: what was read stays readable, and a grain is compared before other bytes are
    /// read or the file is opened. Returns false if nothing can be compared although a front was given bytes.
    fn doubt(&mut self, node: NodeId, before: &Known, after: &Metadata, change: Change) -> bool {
        self.altered(node);
        self.recall_data(node);
        self.loose.retain(|(of, ..)| *of != node);
        let next = CallId(self.next);
        let Some(object) = self.objects.get_mut(node) else { return false };
        let is_open = object.open > 0;
        let Some(held) = object.held_mut() else { return false };
        let has_grown = change == Change::Growth;
        for (&grain, fetch) in &mut held.fetches {
            fetch.doubt(grain_length(after.size, grain), next);
        }
        if held.fetches.values().any(|fetch| fetch.restarts > self.config.fruitless_calls) {
            return false;
        }
        if held.given || held.wanted {
            held.pages = Pages::Doubtful;
        }
        held.origin.get_or_insert_with(|| record::version(&before.metadata));
        if held.present.is_empty() {
            return !(held.given && is_open);
        }
        let old = held.present.keys().map(|&grain| (grain, !held.unproven.contains_key(&grain)));
        let old = old.collect::<BTreeMap<u64, bool>>();
        // Until then it was what the file had.
        for &grain in old.keys() {
            held.unproven.entry(grain).or_insert(before.asked_at);
        }
        match &mut held.doubt {
            Some(doubt) => doubt.has_grown |= has_grown,
            None => held.doubt = Some(Doubt { before: before.metadata, old, has_grown }),
        }
        true
    }

    /// Compares a grain that was fetched again with what was held, where that decides whether the file has other bytes now. Returns false
    /// if it has: then the node is over.
    fn settle_doubt(&mut self, node: NodeId, grain: u64, data: &[u8]) -> bool {
        let held = self.objects.get(node).and_then(Object::held);
        let Some(doubt) = held.and_then(|held| held.doubt.as_ref()) else { return true };
        if !doubt.old.contains_key(&grain) {
            return true;
        }
        let before = self.store.get(node, grain);
        let Some(held) = self.objects.get_mut(node).and_then(Object::held_mut) else { return true };
        let Some(doubt) = &mut held.doubt else { return true };
        match before {
            Some(before) if data.starts_with(&before) => {
                let doubt = held.doubt.take().expect("it was just there");
                // Bytes before the end of a file that has grown may be other ones all the same.
                for grain in doubt.old.iter().filter(|(_, was_proven)| **was_proven && !doubt.has_grown) {
                    held.unproven.remove(grain.0);
                }
                true
            }
            Some(_) => false,
            // The store has lost it.
            None => {
                doubt.old.remove(&grain);
                let is_last = doubt.old.is_empty();
                self.drop_grain(node, grain);
                !is_last
            }
        }
    }

    /// A file has other bytes: what was known of it is over, and what its handle leads to is a new node.
    fn begin_version(&mut self, node: NodeId, known: Known) -> Option<NodeId> {
        let object = self.objects.get_mut(node)?;
        let handle = object.handle();
        let (pinned, hoarded, entry) = (object.pinned, object.hoarded, object.entry.clone());
        let shown_bytes = object.known.metadata.size;
        // It stays what it was before it was in doubt.
        if let Some(held) = object.held_mut()
            && let Some(doubt) = held.doubt.take()
        {
            let later = held.present.keys().filter(|grain| !doubt.old.contains_key(grain));
            let later: Vec<u64> = later.copied().collect();
            held.shown_bytes = held.shown_bytes.max(shown_bytes);
            object.known.metadata = doubt.before;
            later.into_iter().for_each(|grain| self.drop_grain(node, grain));
            self.rename_kept(node);
        }
        let over = node;
        self.retire(over);
        self.objects.end(over);
        self.drop_if_unused(over);
        let node = self.objects.insert(self.freshness.now(), handle, known);
        let object = self.objects.get_mut(node)?;
        (object.changed_by, object.pinned, object.entry) = (known.call, pinned, entry);
        object.hoarded = hoarded;
        self.prefetch.hoard.follow(over, node);
        self.told(node, true);
        Some(node)
    }

    /// Whether a file has no name any more. Servers keep such files while somebody has them open; some servers count no links at all.
    pub(super) fn is_nameless(&self, metadata: &Metadata) -> bool {
        self.counts_links && metadata.file_type == FileType::Regular && metadata.links == 0
    }

    /// The server does not know the handle that was asked about: names lead elsewhere now.
    fn end_unknown(&mut self, question: &Question) {
        let handle = question.handle();
        if let Some((node, object)) = self.objects.at(handle)
            && node != NodeId::ROOT
        {
            let parent = object.parent();
            self.retire(node);
            self.objects.end(node);
            self.forget_handle(parent, handle);
            self.drop_if_unused(node);
            self.gone_before = CallId(self.next);
        }
    }

    /// What the store has kept with names of a directory is not to bring back what the server does not know any more.
    fn forget_handle(&mut self, directory: Option<NodeId>, gone: &FileHandle) {
        let Some(node) = directory else { return };
        let Some(directory) = self.objects.get_mut(node).and_then(Object::directory_mut) else { return };
        for edge in directory.names.values_mut() {
            if let Target::Handle(handle, fileid) = &edge.target
                && handle.is(gone)
            {
                edge.target = Target::Listed(*fileid);
            }
        }
        self.changed(node);
    }

    fn directory_of(&mut self, handle: &FileHandle) -> Option<&mut crate::directory::Directory> {
        let node = self.objects.node(handle)?;
        self.objects.get_mut(node)?.directory_mut()
    }
}
