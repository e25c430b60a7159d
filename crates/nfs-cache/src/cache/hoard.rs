//! Hoarding: files that match patterns are fetched whole, pinned, and looked at again after the link was down (Kistler and
//! Satyanarayanan 1992, "hoard walking").

use std::{fmt::Debug, time::Instant};

use super::{
    Cache,
    wanted::{Next, Seen, Whole, after, join},
};
use crate::{
    call::Question,
    ids::{CallId, NodeId},
    object::Kind,
    store::Store,
};

/// Says which paths below the directory that a cache shows are to be hoarded. Paths have no slash at the beginning.
pub trait Wanted: Debug + Send {
    /// Whether the file is to be held.
    fn wants(&self, path: &[u8]) -> bool;

    /// Whether something in this directory, or below it, may be wanted.
    fn may_hold(&self, directory: &[u8]) -> bool;
}

#[derive(Debug, Default)]
pub(super) struct Hoard {
    wanted: Option<Box<dyn Wanted>>,
    walk: Option<Walk>,
    /// The file that is fetched, and where it is.
    whole: Option<(Whole, Vec<u8>)>,
    next_walk: Option<Instant>,
    /// There is no room for more.
    pub(super) is_full: bool,
}

/// A walk under way.
#[derive(Debug)]
struct Walk {
    /// Its first call: what later ones told is new enough.
    first: CallId,
    directories: Vec<WalkedDirectory>,
}

/// A directory that is walked through.
#[derive(Debug)]
struct WalkedDirectory {
    node: NodeId,
    path: Vec<u8>,
    is_listed: bool,
    /// The last name that was done.
    after: Option<Vec<u8>>,
    /// It, or the name after that one, was asked for.
    has_asked: bool,
}

impl WalkedDirectory {
    const fn new(node: NodeId, path: Vec<u8>) -> Self {
        Self { node, path, is_listed: false, after: None, has_asked: false }
    }
}

impl Walk {
    /// Enters a directory, unless the walk is in it already: a server may show one inside itself.
    fn enter(&mut self, node: NodeId, path: Vec<u8>) {
        let is_new = self.directories.iter().all(|walked| walked.node != node);
        if is_new && path.len() <= LONGEST_PATH {
            self.directories.push(WalkedDirectory::new(node, path));
        }
    }

    /// Leaves the directory that it is in.
    fn leave(&mut self) -> Option<Next> {
        self.directories.pop();
        Some(Next::Again)
    }
}

/// A name that a walk comes to.
struct Visit {
    /// The walk's first call.
    first: CallId,
    /// What [`Wanted`] says of its path.
    wants: bool,
    may_hold: bool,
    /// It was asked for already.
    has_asked: bool,
}

/// What a walk does with what a name leads to.
enum Act {
    Pass,
    Ask(Question),
    Enter(NodeId),
    Keep(NodeId),
    Fetch(NodeId),
}

impl Hoard {
    /// Returns when to walk next.
    pub(super) fn next_walk(&self) -> Option<Instant> {
        self.next_walk.filter(|_| self.wanted.is_some())
    }

    /// A file that is fetched has another version now.
    pub(super) fn follow(&mut self, over: NodeId, node: NodeId) {
        if let Some((whole, _)) = self.whole.as_mut().filter(|(whole, _)| whole.node == over) {
            *whole = Whole { node, next: 0 };
        }
    }
}

/// Longer paths are of no use to systems, and a server may have endless ones.
const LONGEST_PATH: usize = 4096;

impl<S: Store> Cache<S> {
    /// Hoards what is wanted, now, after the link was down, and every now and then.
    pub fn hoard(&mut self, now: Instant, wanted: Box<dyn Wanted>) {
        self.advance(now);
        self.prefetch.hoard.wanted = Some(wanted);
        self.walk_again();
    }

    /// Whether a part of what is to be hoarded has no room.
    pub const fn hoard_is_full(&self) -> bool {
        self.prefetch.hoard.is_full
    }

    /// Begins a walk.
    pub(super) fn walk_again(&mut self) {
        let hoard = &mut self.prefetch.hoard;
        (hoard.walk, hoard.next_walk) = (None, Some(self.tree.now()));
    }

    /// Keeps an object, and of a directory nothing that lies in it: what is wanted there is kept itself.
    fn keep_hoarded(&mut self, node: NodeId) {
        if let Some(object) = self.tree.objects.get_mut(node)
            && !std::mem::replace(&mut object.hoarded, true)
        {
            self.tree.changed(node);
        }
    }

    pub(super) fn next_of_walk(&mut self) -> Option<Next> {
        self.prefetch.percent = self.config.hoard_percent;
        if let Some((mut whole, path)) = self.prefetch.hoard.whole.take() {
            let is_full = self.prefetch.hoard.is_full;
            if let Some(piece) = self.next_grain(&mut whole, true).filter(|_| !is_full) {
                self.queue(piece, path.clone());
                self.prefetch.hoard.whole = Some((whole, path));
            }
            return Some(Next::Again);
        }
        let first = self.calls.next();
        let hoard = &mut self.prefetch.hoard;
        let wanted = hoard.wanted.take()?;
        if hoard.walk.is_none() && hoard.next_walk.is_some_and(|at| at <= self.tree.now()) {
            hoard.is_full = false;
            hoard.walk =
                Some(Walk { first, directories: vec![WalkedDirectory::new(NodeId::ROOT, Vec::new())] });
        }
        let next = hoard.walk.take().and_then(|mut walk| {
            let next = self.next_step(&mut walk, &*wanted);
            if next.is_some() {
                self.prefetch.hoard.walk = Some(walk);
            } else {
                self.prefetch.hoard.next_walk = Some(self.tree.now() + self.config.hoard_every);
            }
            next
        });
        self.prefetch.hoard.wanted = Some(wanted);
        next
    }

    /// Looks at the next name of a walk; `None` when it is over.
    fn next_step(&mut self, walk: &mut Walk, wanted: &dyn Wanted) -> Option<Next> {
        let first = walk.first;
        let walked = walk.directories.last_mut()?;
        let (node, has_asked) = (walked.node, walked.has_asked);
        let found = self.tree.objects.get(node).filter(|object| !object.over);
        let Some((object, directory)) = found.and_then(|it| Some((it, it.directory()?))) else {
            return walk.leave();
        };
        if !walked.is_listed {
            if directory.complete.as_ref().is_none_or(|complete| complete.call < first) {
                // Asked in vain: it cannot be listed.
                if has_asked {
                    return walk.leave();
                }
                walked.has_asked = true;
                return Some(Next::List(node));
            }
            (walked.is_listed, walked.has_asked) = (true, false);
            self.keep_hoarded(node);
            return Some(Next::Again);
        }
        let handle = object.handle();
        let Some((name, edge)) = after(directory, walked.after.as_deref()) else { return walk.leave() };
        let (name, path) = (name.to_vec(), join(&walked.path, name));
        let (wants, may_hold) = (wanted.wants(&path), wanted.may_hold(&path));
        let seen = if wants || may_hold { self.look_at(handle, &name, edge) } else { Seen::Nothing };
        let visit = Visit { first, wants, may_hold, has_asked };
        let act = self.decide(&visit, seen)?;
        let walked = walk.directories.last_mut()?;
        let act = match act {
            Act::Ask(question) if !has_asked => {
                walked.has_asked = true;
                return Some(Next::Ask(question));
            }
            act => act,
        };
        (walked.after, walked.has_asked) = (Some(name), false);
        match act {
            Act::Enter(node) => walk.enter(node, path),
            Act::Keep(node) => self.keep_hoarded(node),
            Act::Fetch(node) => {
                self.keep_hoarded(node);
                self.prefetch.hoard.whole = Some((Whole { node, next: 0 }, path));
            }
            Act::Ask(_) | Act::Pass => {}
        }
        Some(Next::Again)
    }

    /// Says what a walk does with what a name leads to; `None` if that is not there any more.
    fn decide(&self, visit: &Visit, seen: Seen) -> Option<Act> {
        let (node, known) = match seen {
            Seen::Nothing => return Some(Act::Pass),
            Seen::Unknown(question) => return Some(Act::Ask(question)),
            Seen::Object(node, known) => (node, known),
        };
        let object = self.tree.objects.get(node)?;
        Some(match &object.kind {
            Kind::Directory(_) if visit.may_hold => Act::Enter(node),
            Kind::File(_) if visit.wants && known.call < visit.first && !visit.has_asked => {
                Act::Ask(Question::Getattr(object.handle()))
            }
            Kind::File(_) if visit.wants => Act::Fetch(node),
            Kind::Link(None) if visit.wants => Act::Ask(Question::Readlink(object.handle())),
            Kind::Link(_) if visit.wants => Act::Keep(node),
            Kind::File(_) | Kind::Directory(_) | Kind::Link(_) | Kind::Other => Act::Pass,
        })
    }
}
