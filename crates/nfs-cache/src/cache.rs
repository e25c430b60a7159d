//! The machine: operations in, calls out, replies in, answers out.

mod calls;
mod handles;
mod hoard;
mod prefetch;
mod refresh;
mod replies;
mod steps;
mod wanted;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_proto::attr::Metadata;
use nfs_wire::FileHandle;

pub use self::hoard::Wanted;
use self::prefetch::Prefetch;
use crate::{
    answers::{Answer, Event, Failure, Stats},
    call::{Outcome, Transmit},
    calls::Calls,
    config::CacheConfig,
    data::Held,
    directory::Name,
    ids::{CallId, NodeId, OpenId, OperationId},
    object::{Entry, Identity, Object, State},
    path::PathEstimate,
    reachability::{Link, Reachability},
    store::Store,
    tree::Tree,
};

/// What a server showed of an export, as a machine: see the crate's documentation.
///
/// - Commands: [`lookup`](Self::lookup), [`attributes`](Self::attributes), [`list`](Self::list), [`read_link`](Self::read_link),
///   [`open`](Self::open) and [`read`](Self::read) begin operations; [`release`](Self::release), [`reference`](Self::reference),
///   [`found`](Self::found), [`forget`](Self::forget) and [`pin`](Self::pin) say what a front still needs; [`keep`](Self::keep) gives a lasting store what
///   it is to have; [`path_changed`](Self::path_changed) is a hint from below; after [`end`](Self::end) nothing is shown any more.
/// - Input: [`handle_reply`](Self::handle_reply), [`handle_timeout`](Self::handle_timeout).
/// - Output, in this order after every command or input: [`poll_cancel`](Self::poll_cancel), [`poll_transmit`](Self::poll_transmit),
///   [`poll_event`](Self::poll_event), [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Cache<S> {
    config: Arc<CacheConfig>,
    tree: Tree<S>,
    server: Reachability,
    read_block: u32,
    operations: BTreeMap<OperationId, Operation>,
    calls: Calls,
    opens: BTreeMap<OpenId, Open>,
    events: VecDeque<Event>,
    stats: Stats,
    path: PathEstimate,
    prefetch: Prefetch,
}

#[derive(Debug)]
struct Operation {
    asked: Asked,
    begun: Instant,
    /// When an answer to one of its calls came last; when it began, before there was one.
    brought: Instant,
    /// The first call begun after it.
    first: CallId,
    /// Answers of this call and later ones are good enough: an earlier one only if it was joined.
    since: CallId,
    /// Nothing but answers to its own calls counts.
    must_revalidate: bool,
    failed: Option<Failure>,
    fruitless: u32,
    /// How often an answer to one of its calls was not enough.
    rounds: u32,
    /// Since when a call about the same file has no answer, if it was sent before the operation began.
    mute_since: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Asked {
    Lookup {
        directory: NodeId,
        name: Name,
    },
    Attributes(NodeId),
    List(NodeId),
    ReadLink(NodeId),
    /// By a name, if it is to be the file that this name leads to.
    Open {
        node: NodeId,
        by: Option<Entry>,
    },
    Read {
        open: OpenId,
        offset: u64,
        count: u32,
    },
    Find(FileHandle),
    Confirm(NodeId),
}

#[derive(Debug)]
struct Open {
    node: NodeId,
    /// Where a reader in order comes next.
    next: u64,
    /// Grains fetched ahead of it.
    ahead: u32,
    /// Bytes that were read in order.
    in_order: u64,
}

impl<S: Store> Cache<S> {
    /// Shows the directory `root`, whose attributes were just told.
    pub fn new(config: CacheConfig, now: Instant, root: FileHandle, metadata: Metadata, store: S) -> Self {
        let config = Arc::new(config);
        let tree = Tree::new(Arc::clone(&config), now, root, metadata, store);
        Self::of(config, now, tree)
    }

    /// Shows what a lasting store has kept of the directory `root`, before its server was asked for anything; `None` if there is
    /// nothing. `since_1970` is as for [`Cache::set_wall_clock`]. What the server says is believed once it shows that it has the same root.
    pub fn disconnected(
        config: CacheConfig,
        now: Instant,
        since_1970: Duration,
        root: FileHandle,
        store: S,
    ) -> Option<Self> {
        let config = Arc::new(config);
        let tree = Tree::kept(Arc::clone(&config), now, since_1970, root, store)?;
        let mut cache = Self::of(config, now, tree);
        cache.server.set_link(Link::Unidentified { silent: true });
        cache.ensure_probe();
        Some(cache)
    }

    fn of(config: Arc<CacheConfig>, now: Instant, tree: Tree<S>) -> Self {
        let server = Reachability::new(Arc::clone(&config), now);
        Self {
            config,
            tree,
            server,
            read_block: SMALLEST_READ,
            operations: BTreeMap::new(),
            calls: Calls::new(),
            opens: BTreeMap::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
            path: PathEstimate::default(),
            prefetch: Prefetch::default(),
        }
    }

    /// Finds a name in a directory: [`Answer::Entry`].
    pub fn lookup(&mut self, now: Instant, directory: NodeId, name: &[u8]) -> OperationId {
        self.submit(now, Asked::Lookup { directory, name: name.into() })
    }

    /// Asks for attributes: [`Answer::Attributes`].
    pub fn attributes(&mut self, now: Instant, node: NodeId) -> OperationId {
        self.submit(now, Asked::Attributes(node))
    }

    /// Lists a directory: [`Answer::Listing`].
    pub fn list(&mut self, now: Instant, directory: NodeId) -> OperationId {
        self.submit(now, Asked::List(directory))
    }

    /// Asks for the target of a symbolic link: [`Answer::Target`].
    pub fn read_link(&mut self, now: Instant, link: NodeId) -> OperationId {
        self.submit(now, Asked::ReadLink(link))
    }

    /// Opens a file by the name that it was [`found`](Self::found) by: [`Answer::Opened`]. [`Failure::Stale`] means that the file has
    /// another version now, or the name leads to another file: look it up again.
    pub fn open(&mut self, now: Instant, file: NodeId) -> OperationId {
        let by = self.tree.objects.get(file).and_then(|object| object.entry.clone());
        self.submit(now, Asked::Open { node: file, by })
    }

    /// Opens a file by another name: as [`open`](Self::open) does.
    pub fn open_by(&mut self, now: Instant, file: NodeId, directory: NodeId, name: &[u8]) -> OperationId {
        let by = Some(Entry { directory, name: name.into() });
        self.submit(now, Asked::Open { node: file, by })
    }

    /// Reads up to `count` bytes, fewer at the end of the file only: [`Answer::Data`].
    pub fn read(&mut self, now: Instant, open: OpenId, offset: u64, count: u32) -> OperationId {
        if let Some(file) = self.opens.get_mut(&open) {
            let limit = self.path.grains_ahead(self.prefetch.rate.bytes_per_second(), &self.config);
            let is_in_order = offset.abs_diff(file.next) <= IN_ORDER_BYTES;
            file.in_order = if is_in_order { file.in_order + u64::from(count) } else { 0 };
            file.ahead = if is_in_order { (file.ahead * 2).clamp(2, limit) } else { 0 };
            file.next = if is_in_order {
                file.next.max(offset + u64::from(count))
            } else {
                offset + u64::from(count)
            };
        }
        self.reads_in_order(open);
        self.submit(now, Asked::Read { open, offset, count })
    }

    /// Forgets an operation; it has no event any more.
    pub fn abandon(&mut self, now: Instant, operation: OperationId) {
        self.advance(now);
        self.finish(operation, None);
    }

    /// Closes a file. Reads of it that wait still fail.
    pub fn release(&mut self, open: OpenId) {
        let Some(Open { node, .. }) = self.opens.remove(&open) else { return };
        self.tree.was_used(open, node);
        let reads =
            |operation: &Operation| matches!(operation.asked, Asked::Read { open: of, .. } if of == open);
        let waiting = self.operations.iter().filter(|(_, operation)| reads(operation));
        for operation in waiting.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.step(operation);
        }
        if let Some(object) = self.tree.objects.get_mut(node) {
            object.open -= 1;
            if object.open == 0 {
                self.tree.drop_if_empty(node);
            }
        }
        self.tree.drop_if_unused(node);
    }

    /// Records that a front was told of a node, of which no [`Answer::Entry`] told it.
    pub fn reference(&mut self, node: NodeId) {
        if let Some(object) = self.tree.objects.get_mut(node) {
            object.references += 1;
        }
    }

    /// Records that a front has forgotten a node that it was told of `times` times.
    pub fn forget(&mut self, node: NodeId, times: u64) {
        if let Some(object) = self.tree.objects.get_mut(node) {
            object.references = object.references.saturating_sub(times);
        }
        self.tree.drop_if_unused(node);
    }

    /// Keeps what is held of an object, of later versions of it, and of what lies in it, when room is made for other things; or no
    /// longer does.
    pub fn pin(&mut self, node: NodeId, pinned: bool) {
        if let Some(object) = self.tree.objects.get_mut(node)
            && object.pinned != pinned
        {
            object.pinned = pinned;
            self.tree.changed(node);
        }
    }

    /// Says what a clock of this machine shows, in time since 1970, so that a later cache knows how old things are.
    pub const fn set_wall_clock(&mut self, now: Instant, since_1970: Duration) {
        self.tree.freshness.set_wall_clock(now, since_1970);
    }

    /// Returns when [`Cache::keep`] is to be called next.
    pub fn next_keep(&self) -> Option<Instant> {
        self.tree.next_keep()
    }

    /// Gives the store records that are due, so many at most.
    pub fn keep(&mut self, now: Instant, most: usize) {
        self.advance(now);
        self.tree.keep(most);
    }

    /// Gives the store all records that it does not have.
    pub fn keep_all(&mut self) {
        self.tree.keep_all();
    }

    /// Makes sure that what a lasting store has of a node is known, so that [`Cache::state`] counts it.
    pub fn recall(&mut self, node: NodeId) {
        self.tree.recall_data(node);
    }

    /// Returns what a path below the root leads to, its names joined by `/`, by what is known without asking the server.
    pub fn known_at(&mut self, path: &[u8]) -> Option<NodeId> {
        self.tree.known_at(path)
    }

    /// Returns what names the object of a node beyond the life of this cache.
    pub fn identity(&self, node: NodeId) -> Option<Identity> {
        self.tree.identity(node)
    }

    /// Returns the node of an object that an earlier cache, too, may have named so. Where nothing in memory has the handle, all that a
    /// lasting store keeps is looked through. `None` if it is not known, or has another version now.
    pub fn node_of(&mut self, identity: &Identity) -> Option<NodeId> {
        self.tree.node_of(identity)
    }

    /// Records by which name a front was just told of a node. Returns whether [`open`](Self::open) asks where this one leads: a file
    /// keeps the name that it was found by first while a front knows it.
    pub fn found(&mut self, node: NodeId, directory: NodeId, name: &[u8]) -> bool {
        self.tree.found(node, directory, name)
    }

    /// Says how many bytes a READ may ask for.
    pub fn set_read_block(&mut self, bytes: u32) {
        self.read_block = bytes.max(SMALLEST_READ);
    }

    /// Says how long the server took to answer when it was reached.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.path.observe(round_trip);
    }

    /// Records that the way to the server may be another one: before anything else is believed the server must show the root that
    /// it had. Calls in flight are cancelled and made again afterwards.
    pub fn path_changed(&mut self, now: Instant) {
        self.advance(now);
        let silent =
            matches!(self.server.link(), Link::Down | Link::Another | Link::Unidentified { silent: true });
        self.set_link(Link::Unidentified { silent });
        self.path = PathEstimate::default();
        self.server.handle_path_change(self.tree.now());
        self.withdraw_calls();
        self.ensure_probe();
    }

    /// Records that the server will never answer again, and that nothing it has shown is to be seen any more: all operations, those
    /// that wait and those to come, fail with [`Failure::Stale`].
    pub fn end(&mut self, now: Instant) {
        self.advance(now);
        self.set_link(Link::Ended);
        self.withdraw_calls();
        self.step_all();
    }

    /// Returns the nodes that a front knows: those that it was told of and has not forgotten, and those of open files.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let known = |object: &Object| object.references > 0 || object.open > 0;
        self.tree.objects.by_node.iter().filter(move |(_, object)| known(object)).map(|(&node, _)| node)
    }

    /// Takes in what became of a call.
    pub fn handle_reply(&mut self, now: Instant, call: CallId, outcome: Outcome) {
        self.advance(now);
        self.take_reply(call, outcome);
    }

    /// Fires everything due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let is_silent =
            |operation: &Operation| self.silent_at(operation).is_some_and(|at| at <= self.tree.now());
        if self.operations.values().any(is_silent)
            || self.unanswered_at().is_some_and(|at| at <= self.tree.now())
        {
            self.set_link(self.server.silent());
        }
        self.probe_again();
        self.step_all();
        self.tree.expire();
    }

    /// Returns the next call whose outcome is of no use any more.
    pub fn poll_cancel(&mut self) -> Option<CallId> {
        self.calls.poll_cancel()
    }

    /// Returns the next call to make.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        self.advance(now);
        self.prefetch();
        let call = self.calls.due(self.tree.now())?;
        let sent = self.prefetch.rate.sent(self.tree.now());
        let due = self.calls.get_mut(call)?;
        (due.send_at, due.sent) = (None, Some(sent));
        self.server.handle_sent(self.tree.now());
        let question = &self.calls.get(call)?.question;
        let (procedure, arguments) =
            question.encode(self.listing(question), self.path.page_bytes(&self.config));
        self.stats.calls += 1;
        Some(Transmit { call, procedure, arguments })
    }

    /// Returns the next thing that the front should learn.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when to call [`Cache::handle_timeout`], or [`Cache::poll_transmit`], next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = |operation: &Operation| [operation.brought + self.config.wait, self.given_up_at(operation)];
        let ends = self.operations.values().flat_map(due).filter(|&at| at > self.tree.now());
        let silences =
            self.operations.values().filter(|_| self.server.may_answer()).filter_map(|it| self.silent_at(it));
        let calls = self.calls.iter().filter_map(|(_, call)| call.send_at);
        let silences = silences.chain(self.unanswered_at()).chain(self.probe_at());
        let prompts =
            self.operations.values().filter_map(|it| self.prompt_at(it)).filter(|&at| at > self.tree.now());
        ends.chain(silences)
            .chain(prompts)
            .chain(calls)
            .chain(self.prefetch_at())
            .chain(self.tree.expiry_at())
            .min()
    }

    /// Returns how what is known of a node relates to the server.
    pub fn state(&self, now: Instant, node: NodeId) -> Option<State> {
        let object = self.tree.objects.get(node).filter(|_| self.server.link() != Link::Ended)?;
        let held = object.held();
        let size_bytes = object.known.metadata.size;
        let held_bytes = held.map_or(0, Held::bytes);
        let is_kept = object.known.call == CallId::KEPT;
        let later = now.saturating_duration_since(self.tree.now());
        let fresh = !object.over
            && self.server.is_up()
            && !is_kept
            && !self.tree.freshness.is_used_up(&object.known, later);
        Some(State { fresh, asked_at: object.known.asked_at, held_bytes, size_bytes })
    }

    /// Returns the newest attributes of a node that are known.
    pub fn known(&self, node: NodeId) -> Option<Metadata> {
        Some(self.tree.objects.get(node)?.known.metadata)
    }

    /// Whether the server answers, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.server.is_up()
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        let objects = self.tree.objects.by_node.len();
        Stats {
            held_bytes: self.tree.total_bytes(),
            objects,
            prefetched_bytes: self.prefetch.bytes,
            ..self.stats
        }
    }

    fn submit(&mut self, now: Instant, asked: Asked) -> OperationId {
        self.submit_since(now, asked, None)
    }

    /// Begins an operation that takes what was told since an earlier one began as told since it began itself.
    fn submit_since(&mut self, now: Instant, asked: Asked, since: Option<OperationId>) -> OperationId {
        self.advance(now);
        let operation = OperationId(self.calls.number());
        let first = since.map_or_else(|| self.calls.next(), |since| CallId(since.0));
        let (begun, brought) = (self.tree.now(), self.tree.now());
        let mute_since = self.mute_since(&asked);
        let asked = Operation {
            asked,
            begun,
            brought,
            first,
            since: first,
            must_revalidate: false,
            failed: None,
            fruitless: 0,
            rounds: 0,
            mute_since,
        };
        self.server.handle_operation(self.tree.now());
        self.operations.insert(operation, asked);
        self.stats.operations += 1;
        let calls = self.calls.next();
        self.step(operation);
        if self.operations.contains_key(&operation) {
            self.front_waits();
        }
        self.stats.without_calls +=
            u64::from(calls == self.calls.next() && !self.operations.contains_key(&operation));
        operation
    }

    /// Returns since when the server is silent about the file of an operation, as far as that is known.
    fn mute_since(&self, asked: &Asked) -> Option<Instant> {
        let node = match asked {
            Asked::Attributes(node) | Asked::List(node) | Asked::ReadLink(node) => *node,
            Asked::Open { node, .. } | Asked::Confirm(node) => *node,
            Asked::Read { open, .. } => self.opens.get(open)?.node,
            Asked::Lookup { .. } | Asked::Find(_) => return None,
        };
        let handle = self.tree.objects.get(node)?.handle();
        let calls =
            self.calls.iter().filter(|(_, call)| call.is_in_flight() && *call.question.handle() == handle);
        calls.filter_map(|(_, call)| call.sent.map(|sent| sent.at)).min()
    }

    fn advance(&mut self, now: Instant) {
        self.tree.freshness.advance(now);
    }

    /// Takes over what the tree has found out about files.
    fn follow_versions(&mut self) {
        let altered = self.tree.altered.drain(..).map(|node| Event::Altered { node });
        self.events.extend(altered);
        for (over, node) in self.tree.replaced.drain(..) {
            self.prefetch.hoard.follow(over, node);
        }
    }

    fn set_link(&mut self, link: Link) {
        if !self.server.set_link(link) {
            return;
        }
        if link == Link::Up {
            self.begin_silence();
            self.walk_again();
        } else {
            self.prefetch.begin_again();
            self.withdraw_unwanted();
        }
        self.events.extend(match link {
            Link::Up => Some(Event::Connected),
            Link::Down | Link::Unidentified { silent: true } => Some(Event::Disconnected),
            Link::Unidentified { silent: false } => None,
            Link::Another => Some(Event::AnotherServer),
            Link::Ended => Some(Event::Ended),
        });
    }

    /// When the server will have been silent for long enough to serve an operation what is held.
    fn silent_at(&self, operation: &Operation) -> Option<Instant> {
        self.server.silent_at(operation.begun)
    }

    /// When an operation takes names and attributes that are not confirmed, but not too old either.
    fn prompt_at(&self, operation: &Operation) -> Option<Instant> {
        let opens_nothing = match operation.asked {
            Asked::Lookup { .. } | Asked::Attributes(_) | Asked::List(_) | Asked::ReadLink(_) => true,
            Asked::Open { .. } | Asked::Read { .. } | Asked::Find(_) | Asked::Confirm(_) => false,
        };
        let may = opens_nothing && !operation.must_revalidate && self.server.is_up();
        operation.begun.checked_add(self.config.prompt).filter(|_| may)
    }

    /// Ends an operation, with an event if there is a result.
    fn finish(&mut self, operation: OperationId, result: Option<Result<Answer, Failure>>) {
        if self.operations.remove(&operation).is_none() {
            return;
        }
        self.calls.leave(operation);
        if !self.server.is_up() {
            self.withdraw_unwanted();
        }
        self.events.extend(result.map(|result| Event::Done { operation, result }));
    }

    fn step_all(&mut self) {
        let all: Arc<[OperationId]> = self.operations.keys().copied().collect();
        for &operation in all.iter() {
            self.step(operation);
        }
    }
}

/// Every server takes READs of this size.
const SMALLEST_READ: u32 = 4096;

/// A read so near to where the last one ended is in order: kernels read ahead in several READs at once.
const IN_ORDER_BYTES: u64 = 1 << 20;
