//! Which grains of a file are held, and which are being fetched.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Instant,
};

use bytes::Bytes;
use nfs_proto::attr::Metadata;

use crate::ids::{CallId, OpenId};

/// Bytes of a grain, what is held or not as a whole: two READs of the largest safe datagram.
pub const GRAIN_BYTES: u64 = 64 << 10;

/// The data of one version of a file.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Grains in the store, with their lengths in bytes.
    pub(crate) present: BTreeMap<u64, u32>,
    /// Those of them of which it is not proven that they are of the newest version, and when they were what the file had.
    pub(crate) unproven: BTreeMap<u64, Instant>,
    /// When the latest open began that the server has confirmed: unproven grains that are older have to be fetched again.
    pub(crate) since: Option<Instant>,
    /// The file has changed in a way that may have kept the bytes that are held.
    pub(crate) doubt: Option<Box<Doubt>>,
    /// Grains that are to be fetched again when that proves of which version they are.
    pub(crate) again: BTreeSet<u64>,
    pub(crate) fetches: BTreeMap<u64, Fetch>,
    /// The store was asked what it has kept.
    pub(crate) recalled: bool,
    /// A READ of several grains failed or brought less: each READ asks for one.
    pub(crate) one_by_one: bool,
}

/// What a front knows of a file, whether anything is held of it or not.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// It has opened the file.
    pub(crate) wanted: bool,
    /// It was given bytes of it.
    pub(crate) given: bool,
    changes: Option<Box<Changes>>,
}

/// What changes of a file mean for what a front knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    /// How often the file had other bytes before any were given.
    pub(crate) renewals: u32,
    pub(crate) pages: Pages,
    /// The size that it was told before it was clear that the file has another version, if it is larger than that of this one.
    pub(crate) shown_bytes: u64,
    /// Names the version in which the file was met first, if its attributes have changed since: see [`crate::Identity`].
    pub(crate) origin: Option<u64>,
}

impl Front {
    /// Returns what is so while nothing has changed, or what has come of changes.
    pub(crate) fn changes(&self) -> Changes {
        self.changes.as_deref().copied().unwrap_or_default()
    }

    pub(crate) fn changes_mut(&mut self) -> &mut Changes {
        self.changes.get_or_insert_default()
    }
}

/// A change after which it is looked at what is held: one grain is fetched again and compared.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The attributes under which the grains were fetched.
    pub(crate) before: Metadata,
    /// The grains that were held then, and whether their version was proven.
    pub(crate) old: BTreeMap<u64, bool>,
    /// Although one grain has not changed, others may have: the file has grown, or nothing tells what its change was.
    pub(crate) others_may_differ: bool,
}

/// What a front may have kept of the file: the pages of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pages {
    /// What the file has.
    #[default]
    Good,
    /// Maybe older bytes.
    Doubtful,
    /// This open has told the front to drop them. That is done when the front uses the open file.
    Dropping(OpenId),
}

/// Bytes that are compared after a change.
const WITNESS_BYTES: u64 = 1024;

/// What is held of a file of which nothing is held.
pub(crate) static NOTHING: Held = Held {
    present: BTreeMap::new(),
    unproven: BTreeMap::new(),
    since: None,
    doubt: None,
    again: BTreeSet::new(),
    fetches: BTreeMap::new(),
    recalled: false,
    one_by_one: false,
};

impl Held {
    /// Whether a grain is missing, or a part of it since the file has grown.
    pub(crate) fn lacks(&self, grain: u64, size: u64) -> bool {
        self.present.get(&grain).is_none_or(|&length| u64::from(length) < grain_length(size, grain))
    }

    /// Takes out a fetch. A map that had one keeps room for eleven, in every file.
    pub(crate) fn end_fetch(&mut self, grain: u64) -> Option<Fetch> {
        let fetch = self.fetches.remove(&grain);
        if self.fetches.is_empty() {
            self.fetches = BTreeMap::new();
        }
        fetch
    }

    /// Whether nothing is held nor being fetched.
    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_empty() && self.fetches.is_empty() && self.doubt.is_none()
    }

    /// Returns how many bytes are held, while there is a doubt, of the version before it.
    pub(crate) fn bytes(&self) -> u64 {
        let is_old = |grain: &u64| self.doubt.as_ref().is_none_or(|doubt| doubt.old.contains_key(grain));
        let lengths = self.present.iter().filter(|(grain, _)| is_old(grain));
        lengths.map(|(_, &length)| u64::from(length)).sum()
    }

    /// Returns the grain to fetch again and to compare, while there is a doubt: the last one, where files grow.
    pub(crate) fn witness(&self) -> Option<u64> {
        self.doubt.as_ref()?.old.keys().next_back().copied()
    }
}

/// A grain on its way.
#[derive(Debug)]
pub(crate) struct Fetch {
    length: u64,
    /// What has come: all of it in one reply, which is not copied, or parts.
    whole: Option<Bytes>,
    parts: Vec<u8>,
    /// Ranges of the grain that are missing: start and end.
    pub(crate) missing: BTreeMap<u64, u64>,
    /// When its first call was begun, and from which call on replies count: earlier ones may bring what was dropped.
    pub(crate) begun: Instant,
    pub(crate) first: CallId,
    /// From which call on replies without attributes count: earlier ones may have been sent before the file changed.
    pub(crate) changed_before: CallId,
    /// A reply had no attributes: they must be asked for afterwards, with this call or a later one.
    pub(crate) confirm: Option<CallId>,
    /// How often calls in a row brought nothing, and from which call on that counts again.
    pub(crate) fruitless: u32,
    pub(crate) counted: CallId,
    /// Nobody waits for it: prefetch asks for its parts one after the other.
    pub(crate) quiet: bool,
    /// Bytes that came before the file changed in a way that may have kept them, and where they are: they are asked for again and compared.
    witness: Option<(u64, Vec<u8>)>,
    /// How often it was restarted because the file had changed.
    pub(crate) restarts: u32,
    /// Bytes of its READs: the same while they are larger elsewhere, or parts would be asked for twice.
    block: u64,
}

impl Fetch {
    pub(crate) fn new(length: u64, begun: Instant, first: CallId) -> Self {
        Self {
            length,
            whole: None,
            parts: Vec::new(),
            missing: BTreeMap::from([(0, length)]),
            begun,
            first,
            changed_before: first,
            confirm: None,
            fruitless: 0,
            counted: first,
            quiet: false,
            witness: None,
            restarts: 0,
            block: u64::MAX,
        }
    }

    /// Whether nothing has come.
    pub(crate) fn is_untouched(&self) -> bool {
        self.whole.is_none() && self.parts.is_empty() && self.witness.is_none()
    }

    /// Returns what has come, once nothing is missing.
    pub(crate) fn into_data(self) -> Bytes {
        self.whole.unwrap_or_else(|| self.parts.into())
    }

    /// Makes room for parts, where there was none or less.
    fn parts(&mut self) -> &mut Vec<u8> {
        if let Some(whole) = self.whole.take() {
            self.parts = whole.into();
        }
        self.parts.resize(self.length as usize, 0);
        &mut self.parts
    }

    /// The file has changed, and is maybe longer: some of what has come is asked for again; or all, where replies do not say of which
    /// version they are. Calls from `next` on are made after the change was seen.
    pub(crate) fn doubt(&mut self, length: u64, next: CallId) {
        self.changed_before = next;
        if self.confirm.take().is_some() {
            self.restarts += 1;
            (self.missing, self.witness) = (BTreeMap::from([(0, self.length)]), None);
        } else if self.witness.is_none() {
            let start = self.missing.get(&0).copied().unwrap_or(0);
            let next = self.missing.range(start..).next().map_or(self.length, |(&next, _)| next);
            let end = next.min(start + WITNESS_BYTES);
            if start < end {
                self.witness = Some((start, self.parts()[start as usize..end as usize].to_vec()));
                self.missing.insert(start, end);
            }
        }
        if self.length < length {
            self.missing.insert(self.length, length);
            self.length = length;
        }
    }

    /// Compares what has come with what came before a change. If it differs, nothing of that counts.
    fn compare(&mut self, offset: u64, bytes: &[u8]) {
        let Some((start, witness)) = self.witness.take() else { return };
        let (end, stop) = (start + witness.len() as u64, offset + bytes.len() as u64);
        let (from, to) = (start.max(offset), end.min(stop));
        if from >= to {
            self.witness = Some((start, witness));
            return;
        }
        let part = |of: &[u8], at: u64| of[(from - at) as usize..(to - at) as usize].to_vec();
        if part(&witness, start) != part(bytes, offset) {
            self.missing = BTreeMap::from([(0, self.length)]);
        } else if to < end {
            self.witness = Some((to, witness[(to - start) as usize..].to_vec()));
        } else if from > start {
            self.witness = Some((start, witness[..(from - start) as usize].to_vec()));
        }
    }

    /// Returns the bytes of its next READs: `most`, or less if there were less before.
    pub(crate) fn block(&mut self, most: u64) -> u64 {
        self.block = self.block.min(most);
        self.block
    }

    /// Whether bytes between two offsets within the grain are missing.
    pub(crate) fn lacks(&self, from: u64, to: u64) -> bool {
        self.missing.range(..to).next_back().is_some_and(|(_, &end)| end > from)
    }

    /// Takes in bytes at an offset within the grain; whether any of them were missing.
    pub(crate) fn fill(&mut self, offset: u64, bytes: &Bytes) -> bool {
        self.compare(offset, bytes);
        let length = bytes.len() as u64;
        if (offset, length) == (0, self.length) && self.missing.get(&0) == Some(&length) {
            self.missing.clear();
            self.whole = Some(bytes.clone());
            return true;
        }
        let end = offset + bytes.len() as u64;
        let mut filled = false;
        let touched: Vec<(u64, u64)> = self
            .missing
            .iter()
            .map(|(&start, &end)| (start, end))
            .filter(|&(s, e)| s < end && offset < e)
            .collect();
        for (start, stop) in touched {
            let (from, to) = (start.max(offset), stop.min(end));
            self.parts()[from as usize..to as usize]
                .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
            self.missing.remove(&start);
            for (a, b) in [(start, from), (to, stop)] {
                if a < b {
                    self.missing.insert(a, b);
                }
            }
            filled = true;
        }
        filled
    }
}

/// Returns the grains that bytes of a file are in.
pub(crate) const fn grains_of(offset: u64, count: u64) -> Range<u64> {
    offset / GRAIN_BYTES..(offset + count).div_ceil(GRAIN_BYTES)
}

/// Returns the length of a grain of a file.
pub(crate) fn grain_length(size: u64, grain: u64) -> u64 {
    size.saturating_sub(grain.saturating_mul(GRAIN_BYTES)).min(GRAIN_BYTES)
}
