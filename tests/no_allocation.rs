//! A READ costs no allocation once the session has warmed up.

#[path = "support/read_loop.rs"]
mod read_loop;

use nfs_proto::engine::Carrier;
use read_loop::ReadLoop;

#[test]
fn a_read_through_the_session_allocates_nothing() {
    for carrier in [Carrier::Datagrams, Carrier::Connection] {
        let mut reads = ReadLoop::new(carrier, 4096);
        for _ in 0..1000 {
            reads.read();
        }
        let counted = allocation_counter::measure(|| {
            for _ in 0..10_000 {
                reads.read();
            }
        });
        assert_eq!(counted.count_total, 0, "{carrier:?}: allocations in 10,000 READs");
    }
}
