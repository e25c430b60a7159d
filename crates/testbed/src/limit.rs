//! What the channel of a seed allows: no client can be faster.

use std::time::Duration;

use linkemu::{ArqKind, Channel, LinkConfig, Load, Side};
use nfs_proto::config::BlockSize;

use crate::{Error, Operation, Plan};

/// The earliest end of a copy that this seed's channel allows, counted from its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// When medium and wire can have carried calls, replies and their headers while the channel was good
    /// ([`LinkConfig::earliest_end`]).
    pub physical: Duration,
    /// The same, if every bad period also costs one block: what its edges destroy on average. With ARQ, and where
    /// blocks take longer than good periods last, the same as `physical`.
    pub edge_aware: Duration,
}

/// READ call: RPC header with AUTH_SYS of an 8-byte name and one group (72), handle (36), offset, count.
const READ_CALL: usize = 120;
/// READ reply before the data: RPC header (24), status, attributes (88), count, eof, length.
const READ_REPLY: usize = 128;
/// WRITE call before the data.
const WRITE_CALL: usize = 128;
/// WRITE reply: RPC header (24), status, attributes before (28) and after (88), count, committed, verifier.
const WRITE_REPLY: usize = 160;

/// Block that stands for an automatic size in the limit: larger ones do not fit a datagram with most servers.
const AUTO_BLOCK: u32 = 32 << 10;

/// A copy that a block for each bad period makes so many times as long has no edge-aware limit.
const MAX_EDGES: u32 = 100;

impl Limit {
    /// The limit of a plan whose first call is the first on the channel of a seed; `None` if it lies beyond all time.
    ///
    /// # Errors
    /// [`Error`] when the plan cannot be.
    pub fn of_seed(plan: &Plan, seed: u64) -> Result<Option<Self>, Error> {
        plan.check()?;
        let mut channel = Channel::new(&plan.room.link.channel, seed, 0)?;
        Ok(Self::of(plan, &plan.room.link.drawn(seed), &mut channel, Duration::ZERO))
    }

    /// The limit of a plan on the link of a seed, whose first call is made at `start` of `channel`'s time; `None` if it lies beyond
    /// all time.
    pub(crate) fn of(plan: &Plan, link: &LinkConfig, channel: &mut Channel, start: Duration) -> Option<Self> {
        let clients = u64::from(plan.clients);
        let blocks = plan.size.div_ceil(block(plan).into());
        let host = {
            let (bytes, costs) = (plan.size, &plan.room.client);
            let calls = u32::try_from(blocks).unwrap_or(u32::MAX);
            let each = match plan.operation {
                Operation::Read => costs.read(0) * calls + (costs.read(bytes) - costs.read(0)),
                Operation::Write => costs.write(0) * calls + (costs.write(bytes) - costs.write(0)),
            };
            start + each
        };
        let all = Load::default().plus(&load(plan), clients);
        let physical = link.earliest_end(channel, start, &all)?;
        let edge_aware = if link.arq.kind == ArqKind::None {
            let one = one_block(link, plan.operation, block(plan).into());
            let mut end = physical;
            loop {
                let bursts = channel.bad_periods(start, end);
                let next = link.earliest_end(channel, start, &all.plus(&one, bursts))?;
                if next == end {
                    break end;
                }
                // Each block meets more than one bad period on average: the time that they take grows without end.
                if next - start > MAX_EDGES * (physical - start) {
                    break physical;
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

/// All calls and replies of one copy, retransmissions excluded.
fn load(plan: &Plan) -> Load {
    let (link, block) = (&plan.room.link, u64::from(block(plan)));
    let load = Load::default().plus(&one_block(link, plan.operation, block), plan.size / block);
    match plan.size % block {
        0 => load,
        rest => load.plus(&one_block(link, plan.operation, rest), 1),
    }
}

fn one_block(link: &LinkConfig, operation: Operation, data: u64) -> Load {
    let data = usize::try_from(data.next_multiple_of(4)).expect("a block is at most 1 MiB");
    let mut load = Load::default();
    let (call, reply) = match operation {
        Operation::Read => ((READ_CALL, 0), (READ_REPLY, data)),
        Operation::Write => ((WRITE_CALL, data), (WRITE_REPLY, 0)),
    };
    load.add(link, Side::Mobile, call.0 + call.1, call.1, 1);
    load.add(link, Side::Host, reply.0 + reply.1, reply.1, 1);
    load
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Room;

    /// The limit of a plan in a channel without errors.
    fn limit(plan: &Plan) -> u128 {
        let mut channel = Channel::new(&plan.room.link.channel, 1, 0).unwrap();
        let limit = Limit::of(plan, &plan.room.link, &mut channel, Duration::ZERO).unwrap();
        assert_eq!(limit.physical, limit.edge_aware);
        limit.physical.as_micros()
    }

    #[test]
    fn air_times_are_those_of_the_independent_model() {
        let mut plan = Plan::new(Room::named("modern").unwrap());
        assert_eq!(limit(&plan), 9_240_576);
        plan.operation = Operation::Write;
        assert_eq!(limit(&plan), 9_322_496);
    }

    #[test]
    fn where_blocks_take_longer_than_good_periods_last_they_do_not_count_for_edges() {
        let mut plan = Plan::new(Room::named("bluetooth").unwrap());
        plan.room.link.channel.set_bad_mean(Duration::from_millis(5));
        plan.room.link.channel.set_good_mean(Duration::from_millis(161));
        for (block, counts) in [(4096, true), (32 << 10, false)] {
            plan.block = BlockSize::Exact(block);
            let limit = Limit::of_seed(&plan, 1).unwrap().unwrap();
            assert_eq!(limit.edge_aware > limit.physical, counts, "{block} B");
        }
    }

    #[test]
    fn compressed_headers_lower_the_limit_of_what_fits_one_frame() {
        let mut plan = Plan::new(Room::named("modern").unwrap());
        plan.block = BlockSize::Exact(1024);
        plan.room.link.header_compression = true;
        // 6 B of header and 18 B of link in call and reply.
        assert_eq!(limit(&plan), 1024 * (1024 + 24 + 24) * 8);
        plan.block = BlockSize::Exact(4096);
        assert_eq!(limit(&plan), 256 * (4346 + 24) * 8, "fragments stay as they are");
    }
}
