//! What the channel of a seed allows: no client can be faster.

use std::time::Duration;

use linkemu::{ArqKind, Channel, Duplex, LinkConfig};
use nfs_wireless_client::BlockSize;

use crate::{Error, Operation, Plan};

/// The earliest end of a copy that this seed's channel allows, counted from its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// When the channel has offered as much good time as calls, replies and their headers take on the air.
    pub physical: Duration,
    /// The same, if every bad period also costs one block: what its edges destroy on average. With ARQ the same
    /// as `physical`.
    pub edge_aware: Duration,
}

/// READ call: RPC header with AUTH_SYS of an 8-byte name and one group (72), handle (36), offset, count.
const READ_CALL: u64 = 120;
/// READ reply before the data: RPC header (24), status, attributes (88), count, eof, length.
const READ_REPLY: u64 = 128;
/// WRITE call before the data.
const WRITE_CALL: u64 = 128;
/// WRITE reply: RPC header (24), status, attributes before (28) and after (88), count, committed, verifier.
const WRITE_REPLY: u64 = 160;

/// Block that stands for an automatic size in the limit: larger ones do not fit a datagram with most servers.
const AUTO_BLOCK: u32 = 32 << 10;

impl Limit {
    /// The limit of a plan whose first call is the first on the channel of a seed; `None` if it lies beyond all time.
    ///
    /// # Errors
    /// [`Error`] when the plan cannot be.
    pub fn of_seed(plan: &Plan, seed: u64) -> Result<Option<Self>, Error> {
        plan.check()?;
        let mut channel = Channel::new(&plan.room.link.channel, seed, 0)?;
        Ok(Self::of(plan, &mut channel, Duration::ZERO))
    }

    /// The limit of a plan whose first call is made at `start` of `channel`'s time; `None` if it lies beyond all time.
    pub(crate) fn of(plan: &Plan, channel: &mut Channel, start: Duration) -> Option<Self> {
        let blocks = blocks(plan);
        let air = air_time(plan) * u32::from(plan.clients);
        let host = {
            let (bytes, costs) = (plan.size, &plan.room.client);
            let each = match plan.operation {
                Operation::Read => costs.read(0) * blocks + (costs.read(bytes) - costs.read(0)),
                Operation::Write => costs.write(0) * blocks + (costs.write(bytes) - costs.write(0)),
            };
            start + each
        };
        let physical = channel.offered(start, air)?;
        let edge_aware = if plan.room.link.arq.kind == ArqKind::None {
            let block = air / (blocks * u32::from(plan.clients));
            let mut end = physical;
            loop {
                let bursts = u32::try_from(channel.bad_periods(start, end)).ok()?;
                let next = channel.offered(start, air + block * bursts)?;
                if next == end {
                    break end;
                }
                end = next;
            }
        } else {
            physical
        };
        Some(Self { physical: physical.max(host) - start, edge_aware: edge_aware.max(host) - start })
    }
}

/// The bytes of a block, for the limit.
fn block(plan: &Plan) -> u32 {
    match plan.block {
        BlockSize::Exact(bytes) => bytes,
        BlockSize::Auto { max } => AUTO_BLOCK.min(max.unwrap_or(AUTO_BLOCK)),
    }
}

fn blocks(plan: &Plan) -> u32 {
    u32::try_from(plan.size.div_ceil(block(plan).into())).unwrap_or(u32::MAX)
}

/// The air time of all calls and replies of one copy, retransmissions excluded; on a full-duplex link that of the
/// direction that takes longer.
pub(crate) fn air_time(plan: &Plan) -> Duration {
    let block = u64::from(block(plan));
    let full = u32::try_from(plan.size / block).unwrap_or(u32::MAX);
    let rest = plan.size % block;
    let mut total = one_block(&plan.room.link, plan.operation, block) * full;
    if rest > 0 {
        total += one_block(&plan.room.link, plan.operation, rest);
    }
    total
}

fn one_block(link: &LinkConfig, operation: Operation, data: u64) -> Duration {
    let data = data.next_multiple_of(4);
    let bytes = |bytes: u64| usize::try_from(bytes).expect("a block is at most 1 MiB");
    let air = |header: u64, data: u64| link.least_air_time(bytes(header + data), bytes(data));
    let (call, reply) = match operation {
        Operation::Read => (air(READ_CALL, 0), air(READ_REPLY, data)),
        Operation::Write => (air(WRITE_CALL, data), air(WRITE_REPLY, 0)),
    };
    match link.duplex {
        Duplex::Half => call + reply,
        Duplex::Full => call.max(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Room;

    #[test]
    fn air_times_are_those_of_the_independent_model() {
        let mut plan = Plan::new(Room::named("modern").unwrap());
        assert_eq!(air_time(&plan).as_micros(), 9_240_576);
        plan.operation = Operation::Write;
        assert_eq!(air_time(&plan).as_micros(), 9_322_496);
    }

    #[test]
    fn compressed_headers_lower_the_limit_of_what_fits_one_frame() {
        let mut plan = Plan::new(Room::named("modern").unwrap());
        plan.block = BlockSize::Exact(1024);
        plan.room.link.header_compression = true;
        // 6 B of header and 18 B of link in call and reply.
        assert_eq!(air_time(&plan).as_micros(), 1024 * (1024 + 24 + 24) * 8);
        plan.block = BlockSize::Exact(4096);
        assert_eq!(air_time(&plan).as_micros(), 256 * (4346 + 24) * 8, "fragments stay as they are");
    }

    #[test]
    fn without_errors_the_limit_is_the_air_time() {
        let plan = Plan::new(Room::named("modern").unwrap());
        let mut channel = Channel::new(&plan.room.link.channel, 1, 0).unwrap();
        let limit = Limit::of(&plan, &mut channel, Duration::ZERO).unwrap();
        assert_eq!(limit, Limit { physical: air_time(&plan), edge_aware: air_time(&plan) });
    }
}
