//! What happened to the blocks of a copy, packet by packet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use linkemu::{DatagramRecord, Endpoint, Fate, Observer, Offered, Station};
use nfs_wire::{
    Procedure, Reader, call,
    nfs3_types::nfs3::{READ3args, WRITE3args},
    rpc::{CallHeader, Program},
};
use serde::Serialize;

use crate::{Error, Plan, Run, run_observed};

/// Something that happened to one block of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceEvent {
    /// When, in seconds from the first call of all.
    pub time_s: f64,
    /// Whose copy.
    pub mobile: u16,
    /// Which block, counted from 0.
    pub packet: u64,
    /// What.
    pub event: TraceKind,
    /// Of a reply: seconds since its call was sent first.
    pub rtt_s: Option<f64>,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceKind {
    /// The mobile sent its READ or WRITE for the first time.
    Sent,
    /// The mobile sent its READ or WRITE again.
    SentAgain,
    /// The reply reached the mobile.
    Received,
    /// Call or reply was lost on the way.
    Lost,
}

/// Runs a plan once and tells what happened to every block.
///
/// # Errors
/// [`Error`] when the plan cannot be.
pub fn trace(plan: &Plan, seed: u64) -> Result<(Run, Vec<TraceEvent>), Error> {
    let log = Arc::new(Mutex::new(Log { mobiles: plan.clients, ..Log::default() }));
    let run = run_observed(plan, seed, Some(Box::new(Tracer(Arc::clone(&log)))))?;
    let mut events = std::mem::take(&mut log.lock().unwrap_or_else(PoisonError::into_inner).events);
    events.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    Ok((run, events))
}

#[derive(Default)]
struct Log {
    mobiles: u16,
    /// Calls by their mobile and XID: the block, and when they were sent first.
    calls: BTreeMap<(u16, u32), (u64, Duration)>,
    /// Blocks that have been asked for.
    asked: BTreeSet<(u16, u64)>,
    block: BTreeMap<u16, u64>,
    events: Vec<TraceEvent>,
}

/// Reads calls and replies as they cross the link.
struct Tracer(Arc<Mutex<Log>>);

impl Observer for Tracer {
    fn offered(&mut self, offered: &Offered<'_>) {
        let Some((mobile, Direction::Call)) = direction(offered.from, offered.to) else { return };
        self.with(|log| log.call(mobile, offered.at, offered.payload));
    }

    fn datagram(&mut self, record: &DatagramRecord, payload: &Bytes) {
        let Some((mobile, direction)) = direction(record.from, record.to) else { return };
        self.with(|log| log.fate(mobile, &direction, record, payload));
    }
}

impl Tracer {
    fn with(&self, action: impl FnOnce(&mut Log)) {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Log {
    fn call(&mut self, mobile: u16, at: Duration, message: &[u8]) {
        let Some((xid, offset, count)) = block_of(message).filter(|_| mobile < self.mobiles) else { return };
        // Every block but the last is full, and the first to be asked for.
        let block = *self.block.entry(mobile).or_insert_with(|| u64::from(count.max(1)));
        let packet = offset / block;
        self.calls.entry((mobile, xid)).or_insert((packet, at));
        let again = !self.asked.insert((mobile, packet));
        let event = if again { TraceKind::SentAgain } else { TraceKind::Sent };
        self.events.push(TraceEvent { time_s: at.as_secs_f64(), mobile, packet, event, rtt_s: None });
    }

    fn fate(&mut self, mobile: u16, direction: &Direction, record: &DatagramRecord, message: &[u8]) {
        let xid = message.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let Some(&(packet, sent)) = xid.and_then(|xid| self.calls.get(&(mobile, xid))) else { return };
        let (event, rtt_s) = match (record.fate, direction) {
            (Fate::Delivered, Direction::Call) | (Fate::UnderWay, _) => return,
            (Fate::Delivered, Direction::Reply) => {
                (TraceKind::Received, Some(record.ended.saturating_sub(sent).as_secs_f64()))
            }
            _ => (TraceKind::Lost, None),
        };
        self.events.push(TraceEvent { time_s: record.ended.as_secs_f64(), mobile, packet, event, rtt_s });
    }
}

enum Direction {
    Call,
    Reply,
}

fn direction(from: Endpoint, to: Endpoint) -> Option<(u16, Direction)> {
    match (from.station, to.station) {
        (Station::Mobile(mobile), Station::Host(_)) => Some((mobile, Direction::Call)),
        (Station::Host(_), Station::Mobile(mobile)) => Some((mobile, Direction::Reply)),
        _ => None,
    }
}

/// XID, offset and count of a READ or WRITE.
fn block_of(message: &[u8]) -> Option<(u32, u64, u32)> {
    let mut reader = Reader::new(message);
    let header = CallHeader::decode(&mut reader).ok()?;
    if header.program != Program::NFS {
        return None;
    }
    let (offset, count) = if header.procedure == Procedure::Read.number() {
        let arguments = call::decode::<READ3args>(reader).ok()?;
        (arguments.offset, arguments.count)
    } else if header.procedure == Procedure::Write.number() {
        let arguments = call::decode::<WRITE3args<'_>>(reader).ok()?;
        (arguments.offset, arguments.count)
    } else {
        return None;
    };
    Some((header.xid.0, offset, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation, Room};

    fn count(events: &[TraceEvent], kind: TraceKind) -> usize {
        events.iter().filter(|event| event.event == kind).count()
    }

    #[test]
    fn every_block_is_sent_once_and_received_on_a_good_link() {
        for operation in [Operation::Read, Operation::Write] {
            let mut plan = Plan::new(Room::named("modern").expect("a room"));
            plan.operation = operation;
            plan.clients = 2;
            let (_, events) = trace(&plan, 1).expect("a valid plan");
            assert_eq!(count(&events, TraceKind::Sent), 512, "{operation:?}");
            assert_eq!(count(&events, TraceKind::Received), 512);
            assert_eq!(count(&events, TraceKind::SentAgain) + count(&events, TraceKind::Lost), 0);
            assert!(events.iter().all(|event| event.packet < 256));
        }
    }

    #[test]
    fn resends_of_the_trace_are_those_of_the_client() {
        let mut plan = Plan::new(Room::named("modern").expect("a room"));
        plan.policy = nfs_proto::config::RetryPolicy::hybrid();
        plan.room.link.channel.set_bad_mean(Duration::from_millis(80));
        let (run, events) = trace(&plan, 1).expect("a valid plan");
        let resends = run.copies[0].resends.total() as usize;
        assert!(resends > 0);
        assert_eq!(count(&events, TraceKind::SentAgain), resends);
        assert!(count(&events, TraceKind::Lost) >= resends);
    }
}
