//! Which grains of a file are held, and which are being fetched.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::call::CallId;

/// Bytes of a grain, what is held or not as a whole: two READs of the largest safe datagram.
pub const GRAIN_BYTES: u64 = 64 << 10;

/// The data of one version of a file.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Grains in the store.
    pub(crate) present: BTreeSet<u64>,
    /// Those of them that were fetched so soon after the last change that it is not proven of which version they are, and when the
    /// fetch began.
    pub(crate) unproven: BTreeMap<u64, Instant>,
    /// Grains that are to be fetched again when that proves of which version they are.
    pub(crate) again: BTreeSet<u64>,
    /// Unproven grains were held since the last open that dropped them: a front may have them.
    pub(crate) tainted: bool,
    pub(crate) fetches: BTreeMap<u64, Fetch>,
    /// The store was asked what it has kept.
    pub(crate) recalled: bool,
    /// A front has opened it.
    pub(crate) wanted: bool,
}

/// What is held of a file of which nothing is held.
pub(crate) static NOTHING: Held = Held {
    present: BTreeSet::new(),
    unproven: BTreeMap::new(),
    again: BTreeSet::new(),
    tainted: false,
    fetches: BTreeMap::new(),
    recalled: false,
    wanted: false,
};

/// A grain on its way.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) data: Vec<u8>,
    /// Ranges of the grain that are missing: start and end.
    pub(crate) missing: BTreeMap<u64, u64>,
    /// When its first call was begun, and from which call on replies count: earlier ones may bring what was dropped.
    pub(crate) begun: Instant,
    pub(crate) first: CallId,
    /// A reply had no attributes: they must be asked for afterwards, with this call or a later one.
    pub(crate) confirm: Option<CallId>,
    /// How often calls in a row brought nothing, and from which call on that counts again.
    pub(crate) fruitless: u32,
    pub(crate) counted: CallId,
    /// Nobody waits for it: prefetch asks for its parts one after the other.
    pub(crate) quiet: bool,
    /// Bytes of its READs: the same while they are larger elsewhere, or parts would be asked for twice.
    block: u64,
}

impl Fetch {
    pub(crate) fn new(length: u64, begun: Instant, first: CallId) -> Self {
        let missing = BTreeMap::from([(0, length)]);
        let data = vec![0; length as usize];
        let (confirm, fruitless, counted, quiet) = (None, 0, first, false);
        Self { data, missing, begun, first, confirm, fruitless, counted, quiet, block: u64::MAX }
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
    pub(crate) fn fill(&mut self, offset: u64, bytes: &[u8]) -> bool {
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
            self.data[from as usize..to as usize]
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

/// Returns the length of a grain of a file.
pub(crate) fn grain_length(size: u64, grain: u64) -> u64 {
    size.saturating_sub(grain.saturating_mul(GRAIN_BYTES)).min(GRAIN_BYTES)
}
