//! The names in a directory.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use nfs_proto::{attr::Metadata, transfer::Listing};

use crate::{handle::SharedHandle, ids::CallId};

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Its handle, and its file number where that was told, else 0.
    Handle(SharedHandle, u64),
    /// It is there; the server told its file number only.
    Listed(u64),
    /// It is not there.
    Absent,
}

impl Target {
    /// Returns its handle where that is known.
    pub(crate) const fn handle(&self) -> Option<&SharedHandle> {
        if let Self::Handle(handle, _) = self { Some(handle) } else { None }
    }
}

/// Where knowledge about names comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The call that brought it; of a listing the first one.
    pub(crate) call: CallId,
    /// When that call was begun.
    pub(crate) asked_at: Instant,
    /// When it was answered; of a listing when its end was.
    pub(crate) seen_at: Instant,
    /// The attributes of the directory under which it holds, where they prove that: as long as the directory has them.
    pub(crate) proven: Option<Arc<Metadata>>,
}

impl Source {
    /// Whether it is proven to hold while the directory has these attributes.
    pub(crate) fn holds(&self, directory: &Metadata) -> bool {
        self.proven.as_ref().is_some_and(|under| under.is_same_version(directory))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) target: Target,
    pub(crate) source: Arc<Source>,
}

/// A name, in memory that all who know it share.
pub(crate) type Name = Arc<[u8]>;

#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) names: BTreeMap<Name, Edge>,
    /// Where all names are known from that the directory had then: others were not there.
    pub(crate) complete: Option<Arc<Source>>,
    /// The listing under way.
    pub(crate) run: Option<Box<Run>>,
    /// Changes ended the listing before: the next one asks for names alone, which take fewer pages, and so less time.
    pub(crate) moved: bool,
    /// The store was asked what it has kept.
    pub(crate) recalled: bool,
    /// The store knows more of what names lead to: some of that was forgotten.
    pub(crate) lacks: bool,
    /// The version last shown, and when it was shown first.
    seen: Option<(Arc<Metadata>, Instant)>,
}

/// A listing under way.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) listing: Listing,
    pub(crate) first: CallId,
    pub(crate) begun: Instant,
    /// The attributes of the directory with the first page; `None` once another page had others, or none.
    pub(crate) under: Option<Arc<Metadata>>,
    pub(crate) pages: u32,
    /// Names in them, also those that came twice.
    pub(crate) entries: u64,
    pub(crate) names: BTreeMap<Name, Target>,
}

impl Directory {
    /// Whether anything is known of its names.
    pub(crate) fn is_worth_keeping(&self) -> bool {
        self.complete.is_some() || !self.names.is_empty()
    }

    /// Records the directory's attributes.
    pub(crate) fn see(&mut self, at: Instant, metadata: Metadata) {
        if self.seen.as_ref().is_none_or(|(seen, _)| !seen.is_same_version(&metadata)) {
            self.seen = Some((metadata.into(), at));
        }
    }

    /// Whether another version of the directory was shown after names came from `source`: then they may be those of the version before.
    pub(crate) fn has_changed_since(&self, source: &Source) -> bool {
        self.seen.as_ref().is_some_and(|(seen, at)| *at > source.seen_at && !source.holds(seen))
    }

    /// Returns the version last shown if a reply had shown it before `begun`: servers may find names first and attributes a moment
    /// later, so that only a version seen before a call and again with its reply is that of the names in the reply.
    pub(crate) fn seen_before(&self, begun: Instant) -> Option<&Arc<Metadata>> {
        self.seen.as_ref().filter(|(_, at)| *at <= begun).map(|(seen, _)| seen)
    }

    /// Returns what is known of a name, by itself or because it is missing in a complete listing: what comes from the later call.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Edge> {
        let edge = self.names.get(name).cloned();
        let absent = self.complete.clone().map(|source| Edge { target: Target::Absent, source });
        match (edge, absent) {
            (Some(edge), Some(absent)) if absent.source.call > edge.source.call => Some(absent),
            (Some(edge), _) => Some(edge),
            (None, absent) => absent,
        }
    }

    /// Takes in what a LOOKUP told, unless something later is known.
    pub(crate) fn learn(&mut self, name: &Name, edge: Edge) {
        if self.find(name).is_none_or(|known| known.source.call <= edge.source.call) {
            self.names.insert(Arc::clone(name), edge);
        }
    }

    /// Takes in a listing that has reached its end.
    pub(crate) fn learn_all(&mut self, names: BTreeMap<Name, Target>, source: Source) {
        let source = Arc::new(source);
        let later =
            std::mem::take(&mut self.names).into_iter().filter(|(_, edge)| edge.source.call >= source.call);
        let later: Vec<_> = later.collect();
        let edge = |(name, target)| (name, Edge { target, source: Arc::clone(&source) });
        // Of a name that comes twice the last one stays. A map that is made of all at once has no empty places.
        self.names = names.into_iter().map(edge).chain(later).collect();
        if self.complete.as_ref().is_none_or(|known| known.call < source.call) {
            self.complete = Some(source);
        }
    }
}
