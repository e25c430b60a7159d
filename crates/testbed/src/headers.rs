//! How many bytes of header the messages of NFS take on a link that compresses headers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use linkemu::{FrameRecord, LinkConfig, Observer, Offered, Station};
use nfs_wire::{
    Procedure, Reader,
    rpc::{CallHeader, Program},
};

use crate::{
    Error, Operation, Plan,
    listing::{Style, list_observed},
    run_observed,
};

/// IP and UDP.
const DATAGRAM_HEADER: usize = 28;
/// Bytes of UDP payload before data or name, with the credential and handles of the testbed (RFC 1813 §3.3).
const READ_REPLY: usize = 128;
const WRITE_CALL: usize = 128;
const LOOKUP_CALL: usize = 112;

/// The messages that are measured.
pub(crate) const MEASURED: [Procedure; 4] =
    [Procedure::Read, Procedure::Write, Procedure::Getattr, Procedure::Lookup];

/// What was seen of one kind of message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Datagrams of one frame that went on the air.
    pub(crate) packets: u64,
    /// Those whose header was compressed.
    pub(crate) compressed: u64,
    /// Header bytes of IP, UDP, RPC and NFS, as they would be without compression.
    pub(crate) whole_bytes: u64,
    /// And as they were, answers between the ends included.
    pub(crate) bytes: u64,
    /// The same of compressed packets alone.
    pub(crate) compressed_bytes: u64,
}

/// Reads and writes a plan's file, and lists `entries` names one by one, over a link that compresses headers. Returns what was seen of
/// calls and replies of each of [`MEASURED`].
///
/// # Errors
/// [`Error`] when the plan cannot be.
pub(crate) fn measure(plan: &Plan, entries: u32, seed: u64) -> Result<Vec<[Seen; 2]>, Error> {
    let mut plan = plan.clone();
    plan.room.link.header_compression = true;
    let log = Arc::new(Mutex::new(Log::new(&plan.room.link)));
    let observer = || -> Option<Box<dyn Observer>> { Some(Box::new(Meter(Arc::clone(&log)))) };
    for operation in [Operation::Read, Operation::Write] {
        run_observed(&Plan { operation, ..plan.clone() }, seed, observer())?;
    }
    list_observed(&plan, Style::OneByOne, entries, seed, observer())?;
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(MEASURED.iter().map(|procedure| log.seen.get(procedure).copied().unwrap_or_default()).collect())
}

impl Seen {
    /// Counts what another has seen, too.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.compressed += other.compressed;
        self.whole_bytes += other.whole_bytes;
        self.bytes += other.bytes;
        self.compressed_bytes += other.compressed_bytes;
    }
}

struct Log {
    link_header: usize,
    frames: Box<dyn Fn(usize) -> u32 + Send>,
    /// Procedures by XID.
    calls: BTreeMap<u32, Procedure>,
    /// Whole header and data of datagrams under way.
    under_way: BTreeMap<u64, (Procedure, usize, usize, usize)>,
    seen: BTreeMap<Procedure, [Seen; 2]>,
}

impl Log {
    fn new(link: &LinkConfig) -> Self {
        let config = link.clone();
        Self {
            link_header: link.link_header_bytes as usize,
            frames: Box::new(move |payload| config.frames(payload)),
            calls: BTreeMap::new(),
            under_way: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn offered(&mut self, offered: &Offered<'_>) -> Option<()> {
        let payload = offered.payload;
        let (direction, procedure, data_at) = match offered.from.station {
            Station::Mobile(_) => {
                let call = CallHeader::decode(&mut Reader::new(payload)).ok()?;
                let procedure = Procedure::from_number(call.procedure)
                    .filter(|procedure| call.program == Program::NFS && MEASURED.contains(procedure))?;
                self.calls.insert(call.xid.0, procedure);
                let data_at = match procedure {
                    Procedure::Write => WRITE_CALL,
                    Procedure::Lookup => LOOKUP_CALL,
                    _ => payload.len(),
                };
                (0, procedure, data_at)
            }
            Station::Host(_) => {
                let xid = u32::from_be_bytes(payload.get(..4)?.try_into().ok()?);
                let procedure = *self.calls.get(&xid)?;
                let data_at = if procedure == Procedure::Read { READ_REPLY } else { payload.len() };
                (1, procedure, data_at)
            }
        };
        let data = payload.len().saturating_sub(data_at);
        if (self.frames)(payload.len()) == 1 {
            let whole = payload.len() - data + DATAGRAM_HEADER;
            self.under_way.insert(offered.datagram, (procedure, direction, whole, data));
        }
        Some(())
    }

    fn frame(&mut self, record: &FrameRecord) -> Option<()> {
        let (procedure, direction, whole, data) = self.under_way.remove(&record.datagram)?;
        if record.attempts == 0 {
            return None;
        }
        let header = (record.bytes as usize).checked_sub(self.link_header + data)?;
        let seen = &mut self.seen.entry(procedure).or_default()[direction];
        seen.packets += 1;
        seen.whole_bytes += whole as u64;
        seen.bytes += header as u64;
        if header < whole {
            seen.compressed += 1;
            seen.compressed_bytes += header as u64;
        }
        Some(())
    }
}

struct Meter(Arc<Mutex<Log>>);

impl Observer for Meter {
    fn offered(&mut self, offered: &Offered<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).offered(offered);
    }

    fn frame(&mut self, record: &FrameRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).frame(record);
    }
}
