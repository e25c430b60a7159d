//! What replies tell.

use bytes::Bytes;
use nfs_proto::{
    attr::{Metadata, optional},
    transfer::{DirEntry, Listing, TransferError},
};
use nfs_wire::{
    DecodeError, FileHandle, Reader, Status,
    nfs3_types::nfs3::{GETATTR3resok, LOOKUP3resok, READLINK3resok},
    reply::{self, ReadHead},
    rpc::Rejection,
};
use std::{collections::BTreeMap, ops::Range, time::Duration};

use super::{Asked, Cache};
use crate::{
    answers::{Event, Failure},
    call::{Call, Outcome, Question},
    data::{GRAIN_BYTES, grains_of},
    directory::{Edge, Name, Run, Source, Target},
    handle::SharedHandle,
    ids::{CallId, NodeId, OperationId},
    object::{Kind, Object},
    path::SMALLEST_PAGE,
    reachability::Link,
    store::Store,
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
        let Some(call) = self.calls.take(id) else { return };
        self.measure(id, &call, &outcome);
        let outcome = match outcome {
            Outcome::NotAsked => return self.take_silence(&call),
            Outcome::Results(results) => Ok(results),
            Outcome::Rejected(rejection) => Err(rejection),
        };
        self.server.handle_reply(self.tree.now(), call.sent.map(|sent| sent.at));
        self.begin_silence();
        match self.server.link() {
            Link::Unidentified { .. } | Link::Another => self.identify(call, id, outcome.ok()),
            // Whoever answers after a silence has to show that it is the same server: until then nothing else counts.
            Link::Down if !self.is_probe(&call.question) => {
                let call = Call { reply: Some(outcome), after: Some(CallId(0)), ..call };
                self.calls.put_back(id, call);
            }
            Link::Down => self.identify(call, id, outcome.ok()),
            Link::Up => self.accept(id, call, outcome),
            Link::Ended => {}
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
                        (it.brought, it.mute_since) = (self.tree.now(), None);
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
                self.tree.end_unknown(call.question.handle(), self.calls.next());
                self.fail(&call, |cache, operation| (!cache.revalidate(operation)).then_some(Failure::Stale));
            }
        }
        for operation in call.waiters {
            self.step(operation);
        }
        // Others may wait for what this one told as well: those of the same object.
        self.step_all();
        self.tree.drop_objects();
    }

    /// The server does not know a handle. A server that is just starting knows none: only if it knows the root, and says the same once
    /// more, is that believed.
    fn doubt_stale(&mut self, id: CallId, mut call: Call) {
        call.stale += 1;
        let Some(probe) = self.probe() else { return };
        let root = self.ask(None, probe, self.calls.next());
        (call.after, call.send_at) = (Some(root), None);
        self.calls.put_back(id, call);
    }

    /// A directory changes so fast that its pages cannot be had: from the beginning, if it is still there.
    fn begin_listing_again(&mut self, call: &Call) {
        self.abandon_question(&call.question);
        let Question::Page(handle) = call.question else { return };
        let node = self.tree.objects.node(&handle);
        let object = node.and_then(|node| self.tree.objects.get_mut(node));
        if let Some(directory) = object.and_then(Object::directory_mut) {
            directory.moved = true;
        }
        let earliest = self.calls.next();
        for &operation in &call.waiters {
            self.operations.entry(operation).and_modify(|it| it.rounds += 1);
            self.ask(Some(operation), Question::Getattr(handle), earliest);
        }
    }

    /// A listing makes no sense: the user should know which.
    fn tell_unlisted(&mut self, question: &Question, failure: &Failure) {
        if let (Question::Page(handle), Failure::Listing(_) | Failure::Protocol) = (question, failure)
            && let Some(path) = self.tree.objects.node(handle).and_then(|node| self.tree.path(node))
        {
            self.events.push_back(Event::Unlisted { path, failure: failure.clone() });
        }
    }

    /// The server does not know the root: it is just starting, or it is another one.
    fn lose_root(&mut self, id: CallId, call: Call) {
        if self.server.handle_no_root(self.tree.now()) {
            self.meet_another();
        } else {
            self.withdraw_calls();
            // Soon, however long it has said so: what is held is shown until it says something else.
            let send_at = Some(self.tree.now() + self.probe_pause());
            self.calls.put_back(id, Call { send_at, ..call });
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
        call.send_at = Some(self.tree.now() + call.pause);
        self.calls.put_back(id, call);
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
        self.server.handle_not_sent(self.tree.now());
        if self.server.is_up() {
            self.set_link(Link::Down);
        }
        self.ensure_probe();
        self.step_all();
        // What they were given is held: a listing that nobody waits for is not continued later.
        if self.calls.asking(&call.question, CallId(0)).is_none() {
            self.abandon_question(&call.question);
        }
    }

    /// Looks whether the root is the one that it was.
    fn identify(&mut self, call: Call, id: CallId, results: Option<Bytes>) {
        let Some(root) = self.tree.objects.get(NodeId::ROOT) else { return };
        let (handle, before) = (root.handle(), root.known.metadata);
        if call.question != Question::Getattr(handle) {
            return;
        }
        let identity = |it: &Metadata| (it.fsid, it.fileid, it.file_type);
        let shown = results.and_then(|results| reply::decode::<GETATTR3resok>(&results).ok());
        match shown {
            Some(Ok(shown)) if identity(&Metadata::from(&shown.obj_attributes)) == identity(&before) => {
                self.server.handle_identity(self.tree.now());
                self.observe(handle, Metadata::from(&shown.obj_attributes), id, &call);
                if self.server.link() == Link::Down {
                    self.end_probes();
                    self.calls.root_was_seen(CallId::LAST, self.tree.now());
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
                self.server.handle_not_sent(self.tree.now());
                self.ensure_probe();
            }
        }
        self.step_all();
    }

    /// Takes in the replies that came before it was clear whose they are.
    fn accept_replies(&mut self) {
        let replied = self.calls.iter().filter(|(_, call)| call.reply.is_some()).map(|(id, _)| id);
        for id in replied.collect::<Vec<_>>() {
            let Some(mut call) = self.calls.take(id) else { continue };
            match call.reply.take().filter(|_| self.server.is_up()) {
                Some(outcome) => self.accept(id, call, outcome),
                None => self.calls.put_back(id, Call { after: None, send_at: Some(self.tree.now()), ..call }),
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
        let known =
            self.tree.objects.at(question.handle()).map(|(node, object)| (node, object.known.metadata));
        let (Some(shown), Some((node, known))) = (shown, known) else { return false };
        if node == NodeId::ROOT && (shown.fileid, shown.file_type) != (known.fileid, known.file_type) {
            return true;
        }
        // A server may have put another file system in this place: then the root is the same.
        let is_identified = self.server.is_identified(self.tree.now());
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
            self.calls.root_was_seen(id, self.tree.now());
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
        let now = self.tree.now();
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
                (
                    Target::Handle(self.tree.objects.share(handle), fileid),
                    self.tree.proof(directory, id, call.begun),
                )
            }
            // The reply's attributes of the directory are not decoded: it holds for its time only.
            Err(Status::NOENT) => (Target::Absent, None),
            Err(status) => return Err(status.into()),
        };
        let found = target.handle().and_then(|handle| self.tree.objects.node(&handle.get()));
        if let Some(names) = self.tree.directory_of(&directory) {
            names.learn(name, Edge { target, source: source(proven) });
        }
        if let Some(node) = self.tree.objects.node(&directory) {
            if let Some(found) = found {
                self.tree.adopt(node, name, found);
            }
            self.tree.changed(node);
        }
        Ok(Taken::Done)
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
        if let Some(node) = self.tree.objects.node(&handle)
            && let Some(Kind::Link(known)) = self.tree.objects.get_mut(node).map(|object| &mut object.kind)
            && known.as_ref().is_none_or(|known| known.1 < id)
        {
            *known = Some(Box::new((target, id)));
            self.tree.told(node, true);
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
        let before = self.tree.objects.get(node).map(|object| object.known.metadata);
        if let Some(metadata) = shown {
            self.observe(handle, metadata, id, call);
        }
        if !head.eof {
            self.path.observe_part(count, head.count);
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
        let next = self.calls.next();
        let Some(object) = self.tree.objects.get_mut(node) else { return Ok(()) };
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
            held.end_fetch(grain);
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
        if let Some(held) = self.tree.objects.get_mut(*node).and_then(Object::held_mut).filter(|_| is_long) {
            held.one_by_one = true;
        }
        is_long
    }

    /// Holds a grain that is complete and, where replies had no attributes, confirmed; else goes on with it.
    fn finish_fetch(&mut self, node: NodeId, grain: u64) {
        let Some(object) = self.tree.objects.get_mut(node) else { return };
        let confirmed_by = object.known.call;
        let Some(held) = object.held_mut() else { return };
        let Some(fetch) = held.fetches.get(&grain) else { return };
        let is_confirmed = fetch.confirm.is_none_or(|since| confirmed_by >= since);
        if fetch.missing.is_empty() && is_confirmed {
            let fetch = held.end_fetch(grain).expect("it was just there");
            let (quiet, begun, data) = (fetch.quiet, fetch.begun, fetch.into_data());
            if !self.tree.settle_doubt(node, grain, &data) {
                let known = self.tree.objects.get(node).map(|object| object.known);
                let next = known.and_then(|known| self.tree.begin_version(node, known));
                self.follow_versions();
                if let Some(node) = next {
                    self.tree.hold(node, grain, data, begun);
                }
                return;
            }
            if quiet {
                self.hold_prefetched(node, grain, data, begun);
            } else {
                self.tree.hold(node, grain, data, begun);
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
        self.calls.iter().any(|(_, call)| call.question.grains(node).contains(&grain))
    }

    fn confirm_fetches(&mut self, handle: FileHandle) {
        let Some((node, object)) = self.tree.objects.at(&handle) else { return };
        let Some(held) = object.held() else { return };
        let waiting = held.fetches.iter().filter(|(_, fetch)| fetch.confirm.is_some());
        let grains: Vec<u64> = waiting.map(|(&grain, _)| grain).collect();
        for grain in grains {
            self.finish_fetch(node, grain);
        }
    }

    /// Continues a listing, or begins one.
    pub(super) fn list_next(&mut self, operation: Option<OperationId>, node: NodeId) {
        let Some(handle) = self.handle(node) else { return };
        let (next, now) = (self.calls.next(), self.tree.now());
        let Some(directory) = self.tree.objects.get_mut(node).and_then(Object::directory_mut) else { return };
        let begin = if directory.moved { Listing::of_names } else { Listing::new };
        let run = directory.run.get_or_insert_with(|| {
            Box::new(Run {
                listing: begin(handle, SMALLEST_PAGE),
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
            .tree
            .objects
            .at(&handle)
            .and_then(|(_, object)| object.directory()?.seen_before(call.begun).cloned());
        if let Some(metadata) = shown {
            self.observe(handle, metadata, id, call);
        }
        let Some(node) = self.tree.objects.node(&handle) else { return Ok(Taken::Done) };
        let size = self.tree.objects.get(node).map_or(0, |object| object.known.metadata.size);
        let Some(run) = self.listing_run(node) else { return Ok(Taken::Done) };
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
        for entry in entries {
            self.take_entry(id, call, node, entry);
        }
        let Some(run) = self.listing_run(node) else { return Ok(Taken::Done) };
        if run.listing.is_done() {
            self.complete_listing(node);
        } else {
            let waiters: Vec<OperationId> = call.waiters.iter().copied().collect();
            self.list_next(None, node);
            for waiter in waiters {
                self.list_next(Some(waiter), node);
            }
        }
        Ok(Taken::Done)
    }

    /// Returns the listing of a directory that is under way.
    fn listing_run(&mut self, node: NodeId) -> Option<&mut Run> {
        self.tree.objects.get_mut(node).and_then(Object::directory_mut)?.run.as_deref_mut()
    }

    /// Takes in a name of the page of a listing that a call brought, and what it leads to.
    fn take_entry(&mut self, id: CallId, call: &Call, node: NodeId, entry: DirEntry) {
        let DirEntry { name, fileid, metadata, handle, .. } = entry;
        let name = Name::from(name);
        if let (Some(handle), Some(metadata)) = (handle, metadata) {
            self.observe(handle, metadata, id, call);
            if let Some(found) = self.tree.objects.node(&handle) {
                self.tree.adopt(node, &name, found);
            }
        }
        let target = match handle {
            Some(handle) => Target::Handle(self.tree.objects.share(handle), fileid),
            None => Target::Listed(fileid),
        };
        if let Some(run) = self.listing_run(node) {
            run.names.insert(name, target);
        }
    }

    /// The last page has come: what the pages told is now what is known of the directory's names.
    fn complete_listing(&mut self, node: NodeId) {
        let now = self.tree.now();
        let Some(object) = self.tree.objects.get_mut(node) else { return };
        let ctime = object.known.metadata.ctime;
        let Some(directory) = object.directory_mut() else { return };
        let Some(run) = directory.run.take() else { return };
        directory.moved = false;
        let Run { first, begun, under, names, .. } = *run;
        let proven = under.filter(|_| self.tree.freshness.proves(begun, ctime));
        let told: Vec<SharedHandle> = names.values().filter_map(Target::handle).cloned().collect();
        directory.learn_all(names, Source { call: first, asked_at: begun, seen_at: now, proven });
        self.tree.changed(node);
        self.saw_all(first, &told);
    }

    /// A listing is one answer: what its first page told is used for as long as what the last one did.
    fn saw_all(&mut self, first: CallId, told: &[SharedHandle]) {
        let now = self.tree.now();
        for handle in told {
            let Some(node) = self.tree.objects.node(&handle.get()) else { continue };
            if let Some(object) = self.tree.objects.get_mut(node).filter(|object| object.known.call >= first)
            {
                object.known.seen_at = now;
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
        let Some(node) = self.tree.objects.node(handle) else { return Taken::Done };
        let Some(run) = self.listing_run(node) else { return Taken::Done };
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
        self.tree.observe(handle, metadata, (id, call.begun), self.calls.next());
        self.follow_versions();
    }
}
