//! What is fetched before anybody asks: a little at a time, while no operation waits, and slowly enough to leave the link to others.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    Cache,
    hoard::Hoard,
    wanted::{Next, Piece, Seen, Whole, after, join},
};
use crate::{
    answers::Event,
    call::{Call, Outcome, Question},
    data::{Fetch, GRAIN_BYTES, grain_length},
    directory::{Edge, Target},
    heads,
    ids::{CallId, NodeId, OpenId},
    object::Object,
    rate::DeliveryRate,
    store::Store,
};

/// Grains that a reader takes in order before the whole file is fetched.
const IN_ORDER_GRAINS: u64 = 3;

/// Directories and files remembered that are to be fetched from, the latest ones.
const REMEMBERED: usize = 16;

/// This part of the room for data stays free of what nobody asked for.
const SPARE_PART: u64 = 10;

/// Names looked at in one go: more would make those wait who come meanwhile.
const NAMES_AT_ONCE: usize = 500;

/// Bytes of the READs under way at first, and what they may take beyond the round trip: more delays who comes meanwhile, less wastes
/// the link's time on round trips.
const FIRST_READ: u32 = 16 << 10;
const SMALLEST_READ: u32 = 4096;
const LARGEST_READ: u32 = GRAIN_BYTES as u32;
const SHORT_READ: Duration = Duration::from_millis(50);
const LONG_READ: Duration = Duration::from_millis(150);

/// Longest pause after one call.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Pause after the head of a file that was held already was told: it was read from the store, and whoever is told needs time.
const TELL_PAUSE: Duration = Duration::from_millis(10);

/// Files remembered whose heads were told.
const TOLD: usize = 10_000;

/// What is fetched, and when.
#[derive(Debug)]
pub(super) struct Prefetch {
    pub(super) rate: DeliveryRate,
    /// Directories that were listed, the latest first.
    visits: VecDeque<Visit>,
    /// Files that are fetched whole.
    whole: VecDeque<Whole>,
    /// Grains that are fetched, and the one that is being fetched.
    grains: VecDeque<Piece>,
    current: Option<Piece>,
    /// The file that they are of, where that is known.
    pub(super) name: Option<Vec<u8>>,
    pub(super) hoard: Hoard,
    /// The first and the last of the calls under way, or those before.
    calls: Option<(CallId, CallId)>,
    /// Bytes that they ask for.
    asked: u64,
    /// Of the link's time, in percent, that the call may take.
    pub(super) percent: u32,
    /// When the last calls have had their share.
    paid_until: Option<Instant>,
    /// When an operation of the front waited last.
    front_at: Option<Instant>,
    /// Nothing is to be done before the next walk.
    is_done: bool,
    /// It is the turn of what is hoarded.
    hoards: bool,
    read: u32,
    pub(super) bytes: u64,
    told: BTreeSet<NodeId>,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self {
            rate: DeliveryRate::default(),
            visits: VecDeque::new(),
            whole: VecDeque::new(),
            grains: VecDeque::new(),
            current: None,
            name: None,
            hoard: Hoard::default(),
            calls: None,
            asked: 0,
            percent: 100,
            paid_until: None,
            front_at: None,
            is_done: true,
            hoards: false,
            read: FIRST_READ,
            bytes: 0,
            told: BTreeSet::new(),
        }
    }
}

/// A directory that was listed.
#[derive(Debug)]
struct Visit {
    node: NodeId,
    phase: Phase,
    /// The last name that was looked at.
    after: Option<Vec<u8>>,
    /// Where it is, once that was needed.
    path: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Attributes,
    Heads,
    Small,
}

impl Prefetch {
    /// The link is down: what is under way begins again when it is up.
    pub(super) fn begin_again(&mut self) {
        if let Some(piece) = self.current.take() {
            self.grains.push_front(piece);
        }
    }
}

impl<S: Store> Cache<S> {
    /// Returns when something may be fetched that nobody asked for.
    pub(super) fn prefetch_at(&self) -> Option<Instant> {
        if !self.server.is_up() || !self.operations.is_empty() || !self.calls.is_empty() {
            return None;
        }
        let prefetch = &self.prefetch;
        let next = || prefetch.hoard.next_walk().into_iter().chain(self.tree.again_at()).min();
        let walk = if prefetch.is_done { Some(next()?) } else { None };
        let pause = prefetch.front_at.map(|at| at + self.config.prefetch_pause);
        [walk, pause, prefetch.paid_until, Some(self.server.not_before())].into_iter().flatten().max()
    }

    /// Asks for what comes next, if it is time.
    pub(super) fn prefetch(&mut self) {
        if self.prefetch_at().is_none_or(|at| at > self.tree.now()) {
            return;
        }
        self.prefetch.is_done = false;
        while self.calls.is_empty() {
            if let Some(piece) = self.prefetch.current.take() {
                if let Some(calls) = self.go_on_with(&piece) {
                    (self.prefetch.calls, self.prefetch.current) = (Some(calls), Some(piece));
                    return;
                }
                continue;
            }
            if let Some(piece) = self.prefetch.grains.pop_front() {
                self.prefetch.current = self.begin_grain(&piece).then_some(piece);
                // The head of what is held was told.
                if self.prefetch_at().is_some_and(|at| at > self.tree.now()) {
                    return;
                }
                continue;
            }
            // In turn: neither waits for the end of the other.
            let hoards = !self.prefetch.hoards;
            self.prefetch.hoards = hoards;
            let walk = if hoards { self.next_of_walk() } else { None };
            let next = walk.or_else(|| self.next_of_again());
            let next = next.or_else(|| self.next_of_whole()).or_else(|| self.next_of_visit());
            let Some(next) = next.or_else(|| self.next_of_walk()) else {
                self.prefetch.is_done = true;
                return;
            };
            match next {
                Next::Ask(question) => {
                    let earliest = self.calls.next();
                    let call = self.ask(None, question, earliest);
                    (self.prefetch.calls, self.prefetch.asked) = (Some((call, call)), 0);
                }
                Next::List(node) => {
                    self.list_next(None, node);
                    let call = self.calls.iter().next_back().map(|(id, _)| id);
                    (self.prefetch.calls, self.prefetch.asked) = (call.map(|call| (call, call)), 0);
                }
                Next::Again => {}
                Next::Later => {
                    self.prefetch.paid_until = Some(self.tree.now() + Duration::from_millis(1));
                    return;
                }
            }
        }
    }

    /// Asks for the next part of a grain, in blocks as they pass the link; `None` if it is there, or cannot be had. Returns the first and
    /// the last call.
    fn go_on_with(&mut self, piece: &Piece) -> Option<(CallId, CallId)> {
        let block = u64::from(self.prefetch.read.min(self.read_block));
        let object = self.tree.objects.get_mut(piece.node).filter(|object| !object.over)?;
        let (handle, told_by) = (object.handle(), object.known.call);
        let fetch = object.held_mut()?.fetches.get_mut(&piece.grain)?;
        fetch.quiet = true;
        let (first, confirm) = (fetch.first, fetch.confirm);
        // What brought nothing, and did not say why: the file may be shorter now.
        if let Some(confirm) = confirm.filter(|&confirm| fetch.fruitless > 0 && told_by < confirm) {
            let call = self.ask(None, Question::Getattr(handle), confirm);
            return Some((call, call));
        }
        let (mut parts, mut asked) = (Vec::new(), 0);
        for (&start, &end) in &fetch.missing {
            let mut start = start;
            while start < end && asked < u64::from(self.prefetch.read) {
                let stop = end.min((start / block + 1) * block);
                parts.push((start, stop));
                (asked, start) = (asked + stop - start, stop);
            }
        }
        self.prefetch.asked = asked;
        self.prefetch.percent = self.percent_of(piece);
        let mut calls = None;
        for (start, stop) in parts {
            let (offset, count) = (piece.grain * GRAIN_BYTES + start, (stop - start) as u32);
            let call = self.ask(None, Question::Read { handle, node: piece.node, offset, count }, first);
            calls = Some((calls.map_or(call, |(first, _)| first), call));
        }
        calls.or_else(|| {
            let call = self.ask(None, Question::Getattr(handle), confirm?);
            Some((call, call))
        })
    }

    fn percent_of(&self, piece: &Piece) -> u32 {
        if piece.is_hoarded { self.config.hoard_percent } else { self.config.prefetch_percent }
    }

    /// Begins to fetch a grain, unless it is held or there is no room.
    fn begin_grain(&mut self, piece: &Piece) -> bool {
        self.tree.recall_data(piece.node);
        let (now, next, total) = (self.tree.now(), self.calls.next(), self.tree.total_bytes());
        let Some(object) = self.tree.objects.get_mut(piece.node).filter(|object| !object.over) else {
            return false;
        };
        let size = object.known.metadata.size;
        let length = grain_length(size, piece.grain);
        let Some(held) = object.held_mut() else { return false };
        if length == 0 {
            return false;
        }
        let (is_held, is_unproven) =
            (!held.lacks(piece.grain, size), held.unproven.contains_key(&piece.grain));
        if is_held && !(piece.is_again && is_unproven) && held.witness() != Some(piece.grain) {
            if self.tell_head(piece) {
                self.prefetch.paid_until = Some(self.tree.now() + TELL_PAUSE);
            }
            return false;
        }
        let limit = self.config.size_bytes - self.config.size_bytes / SPARE_PART;
        if !piece.is_hoarded && !is_held && total + length > limit {
            return false;
        }
        let fetch = held.fetches.entry(piece.grain).or_insert_with(|| Fetch::new(length, now, next));
        fetch.quiet = true;
        true
    }

    /// Holds a grain that nobody asked for. Nothing that was used makes room for it, unless it is hoarded.
    pub(super) fn hold_prefetched(&mut self, node: NodeId, grain: u64, data: Bytes, begun: Instant) {
        let length = data.len() as u64;
        let piece = self.prefetch.current.clone().filter(|piece| (piece.node, piece.grain) == (node, grain));
        if piece.as_ref().is_some_and(|piece| piece.is_hoarded) {
            self.tree.make_room(length);
        }
        if piece.as_ref().is_some_and(|piece| piece.is_again) {
            return self.hold_again(node, grain, data, begun);
        }
        if self.tree.total_bytes() + length > self.config.size_bytes {
            self.prefetch.hoard.is_full |= piece.is_some_and(|piece| piece.is_hoarded);
            return;
        }
        self.tree.hold(node, grain, data, begun);
        if self.tree.is_present(node, grain) {
            self.prefetch.bytes += length;
            if let Some(piece) = piece {
                self.tell_head(&piece);
            }
        } else {
            // The store has no room though we have.
            self.prefetch.hoard.is_full = true;
            self.prefetch.paid_until = Some(self.tree.now() + LONGEST_PAUSE);
        }
    }

    /// Holds a grain in the place of what was fetched too early. Where there is no room, what is held stays.
    fn hold_again(&mut self, node: NodeId, grain: u64, data: Bytes, begun: Instant) {
        let more = if self.tree.is_present(node, grain) { 0 } else { data.len() as u64 };
        if self.tree.total_bytes() + more <= self.config.size_bytes {
            self.tree.hold(node, grain, data, begun);
        }
    }

    /// Tells the head of a file, once; whether it did.
    fn tell_head(&mut self, piece: &Piece) -> bool {
        let Some(path) = piece.path.clone().filter(|_| piece.grain == 0) else { return false };
        let Some(object) = self.tree.objects.get(piece.node) else { return false };
        let metadata = object.known.metadata;
        if self.prefetch.told.len() >= TOLD {
            self.prefetch.told.clear();
        }
        if self.prefetch.told.insert(piece.node)
            && let Some(data) = self.tree.grain(piece.node, 0, None, GRAIN_BYTES)
        {
            self.events.push_back(Event::Head { path, metadata, data });
            return true;
        }
        false
    }

    /// Records that a front has read the head of a file, wherever it was.
    pub(super) fn head_was_read(&mut self, node: NodeId) {
        let is_full = self.prefetch.grains.len() >= NAMES_AT_ONCE;
        if !self.config.prefetch || self.config.told_heads.is_empty() || is_full {
            return;
        }
        let path = self.tree.path(node).filter(|path| self.is_told(path));
        if path.is_some() {
            self.prefetch.grains.push_back(Piece {
                node,
                grain: 0,
                is_hoarded: false,
                is_again: false,
                path,
            });
            self.prefetch.is_done = false;
        }
    }

    /// Records that an operation waits.
    pub(super) const fn front_waits(&mut self) {
        self.prefetch.front_at = Some(self.tree.now());
    }

    /// Records what a reply cost.
    pub(super) fn measure(&mut self, id: CallId, call: &Call, outcome: &Outcome) {
        let now = self.tree.now();
        let is_own = self.prefetch.calls.is_some_and(|(first, last)| (first..=last).contains(&id));
        let is_last = self.prefetch.calls.is_some_and(|(_, last)| id == last);
        if !call.waiters.is_empty() {
            self.front_waits();
        }
        let (Outcome::Results(results), Some(sent)) = (outcome, call.sent) else { return };
        let took = now.saturating_duration_since(sent.at);
        if let Question::Read { .. } = call.question {
            if let Some(rate) = self.prefetch.rate.observe(now, results.len(), sent) {
                self.path.observe_read(rate);
            }
            if is_last && self.prefetch.asked >= u64::from(self.prefetch.read) {
                let beyond = took.saturating_sub(self.path.round_trip());
                let read = self.prefetch.read;
                self.prefetch.read = if beyond < SHORT_READ {
                    (read * 2).min(LARGEST_READ)
                } else if beyond > LONG_READ {
                    (read / 2).max(SMALLEST_READ)
                } else {
                    read
                };
            }
        } else {
            if matches!(call.question, Question::Page(_)) {
                self.path.observe_page(results.len(), took);
            }
            self.path.observe(took);
        }
        // The further pages of a listing that nobody waits for come by themselves.
        let is_page = call.waiters.is_empty() && matches!(call.question, Question::Page(_));
        if is_own || is_page {
            let percent = f64::from(self.prefetch.percent.max(1)) / 100.0;
            let seconds = match self.prefetch.rate.bytes_per_second() {
                Some(rate) => results.len() as f64 / rate / percent,
                None => took.as_secs_f64() / percent,
            };
            let cost = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
            let since = self.prefetch.paid_until.map_or(sent.at, |until| until.max(sent.at));
            self.prefetch.paid_until = Some(since + cost);
        }
    }

    /// Records that a front has listed a directory.
    pub(super) fn was_listed(&mut self, node: NodeId) {
        if !self.config.prefetch {
            return;
        }
        let prefetch = &mut self.prefetch;
        prefetch.visits.retain(|visit| visit.node != node);
        prefetch.visits.push_front(Visit { node, phase: Phase::Attributes, after: None, path: None });
        prefetch.visits.truncate(REMEMBERED);
        prefetch.is_done = false;
    }

    /// Records that a file is read.
    pub(super) fn reads_in_order(&mut self, open: OpenId) {
        let Some(file) = self.opens.get(&open).filter(|_| self.config.prefetch) else { return };
        let (node, next) = (file.node, file.next / GRAIN_BYTES);
        if file.in_order >= IN_ORDER_GRAINS * GRAIN_BYTES
            && self.prefetch.whole.iter().all(|whole| whole.node != node)
        {
            self.prefetch.name = None;
            self.prefetch.whole.push_front(Whole { node, next });
            self.prefetch.whole.truncate(REMEMBERED);
            self.prefetch.is_done = false;
        }
    }

    fn next_of_again(&mut self) -> Option<Next> {
        if let Some((node, grain)) = self.tree.next_again()? {
            self.queue_again(Piece { node, grain, is_hoarded: false, is_again: true, path: None });
        }
        Some(Next::Again)
    }

    fn next_of_whole(&mut self) -> Option<Next> {
        let mut whole = self.prefetch.whole.pop_front()?;
        if let Some(piece) = self.next_grain(&mut whole, false) {
            self.prefetch.grains.push_back(piece);
            self.prefetch.whole.push_front(whole);
        }
        Some(Next::Again)
    }

    /// Returns the next grain of a file that is not held.
    pub(super) fn next_grain(&mut self, whole: &mut Whole, is_hoarded: bool) -> Option<Piece> {
        self.tree.recall_data(whole.node);
        let object = self.tree.objects.get(whole.node).filter(|object| !object.over)?;
        let size = object.known.metadata.size;
        let held = object.held()?;
        let witness = held.witness();
        let is_wanted = |&grain: &u64| held.lacks(grain, size) || witness == Some(grain);
        let grain = (whole.next..size.div_ceil(GRAIN_BYTES)).find(is_wanted)?;
        whole.next = grain + 1;
        Some(Piece { node: whole.node, grain, is_hoarded, is_again: false, path: None })
    }

    pub(super) fn queue(&mut self, piece: Piece, name: Vec<u8>) {
        self.prefetch.grains.push_back(piece);
        self.prefetch.name = Some(name);
    }

    fn queue_again(&mut self, piece: Piece) {
        self.prefetch.grains.push_back(piece);
        self.prefetch.name = None;
    }

    fn next_of_visit(&mut self) -> Option<Next> {
        let mut visit = self.prefetch.visits.pop_front()?;
        self.prefetch.percent = self.config.prefetch_percent;
        let next = self.next_in(&mut visit);
        if next.is_some() {
            self.prefetch.visits.push_front(visit);
        }
        Some(next.unwrap_or(Next::Again))
    }

    /// Looks at the next names of a directory; `None` when it is done.
    fn next_in(&mut self, visit: &mut Visit) -> Option<Next> {
        let parent = self.tree.objects.get(visit.node).filter(|object| !object.over)?;
        let handle = parent.handle();
        for _ in 0..NAMES_AT_ONCE {
            let directory = self.tree.objects.get(visit.node)?.directory()?;
            let Some((name, edge)) = after(directory, visit.after.as_deref()) else {
                visit.after = None;
                visit.phase = match visit.phase {
                    Phase::Attributes => Phase::Heads,
                    Phase::Heads => Phase::Small,
                    Phase::Small => return None,
                };
                return Some(Next::Later);
            };
            let name = name.to_vec();
            let seen = self.look_at(handle, &name, edge);
            visit.after = Some(name.clone());
            let (node, known) = match seen {
                Seen::Nothing => continue,
                Seen::Unknown(question) if visit.phase == Phase::Attributes => {
                    return Some(Next::Ask(question));
                }
                Seen::Unknown(_) => continue,
                Seen::Object(node, known) => (node, known),
            };
            let size = known.metadata.size;
            let held = self.tree.objects.get(node).and_then(Object::held);
            let Some(held) = held else { continue };
            let grains = match visit.phase {
                Phase::Attributes => continue,
                Phase::Heads => heads::grains(&name, size),
                Phase::Small if (1..=GRAIN_BYTES).contains(&size) => vec![0],
                Phase::Small => continue,
            };
            let mut path = None;
            if visit.phase == Phase::Heads && self.is_told(&name) && !grains.is_empty() {
                if visit.path.is_none() {
                    visit.path = self.tree.path(visit.node);
                }
                path = visit.path.as_deref().map(|path| join(path, &name));
            }
            if path.is_none() && grains.iter().all(|grain| held.present.contains_key(grain)) {
                continue;
            }
            let piece = |grain| Piece { node, grain, is_hoarded: false, is_again: false, path: path.clone() };
            self.prefetch.name = Some(name);
            self.prefetch.grains.extend(grains.into_iter().map(piece));
            return Some(Next::Again);
        }
        Some(Next::Later)
    }

    fn is_told(&self, name: &[u8]) -> bool {
        let Some(extension) = heads::extension(name) else { return false };
        self.config.told_heads.iter().any(|it| extension.eq_ignore_ascii_case(it.as_bytes()))
    }

    /// Looks where a name leads.
    pub(super) fn look_at(&self, directory: nfs_wire::FileHandle, name: &[u8], edge: &Edge) -> Seen {
        let lookup = || Question::Lookup { directory, name: name.into() };
        match &edge.target {
            Target::Absent => Seen::Nothing,
            Target::Listed(_) => Seen::Unknown(lookup()),
            Target::Handle(handle, _) => match self.tree.objects.at(&handle.get()) {
                Some((node, object)) if object.is_led_to(edge) => Seen::Object(node, object.known),
                Some(_) => Seen::Unknown(lookup()),
                None => Seen::Unknown(Question::Getattr(handle.get())),
            },
        }
    }

    /// Returns the name of the file that is being fetched though nobody waits for it.
    pub fn prefetching(&self) -> Option<&[u8]> {
        self.prefetch.current.as_ref().filter(|_| self.server.is_up())?;
        self.prefetch.name.as_deref()
    }
}
