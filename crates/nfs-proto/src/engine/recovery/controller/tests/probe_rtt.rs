//! ProbeRTT (rule 8).

use super::*;

/// `min_rtt` was seen 11 s ago, and a round that queued has ended.
fn expired(window: u64, block: u32) -> Flow {
    let mut flow = Flow::steady(window).with_block(block);
    flow.used_round(QUEUED.0, QUEUED.1);
    flow.now += Duration::from_secs(11);
    flow.used_round(QUEUED.0, QUEUED.1);
    flow
}

#[test]
fn a_min_rtt_of_ten_seconds_ago_is_measured_again_with_a_part_of_the_path_filled() {
    // 50,000 bytes fill the path.
    let mut flow = expired(60_000, BLOCK);
    assert_eq!(flow.window(), 42_500);
    // What left before the queue was drained says nothing.
    assert_eq!(flow.round(59 * MS, 59_000), 42_500);
    assert_eq!(flow.path.min_rtt.get(), MIN_RTT);
    flow.now += MS;
    let before = flow.path.delivery.bytes();
    flow.ack(70 * MS, 60_000, before);
    assert_eq!(flow.window(), 42_500);
    // The next one does, even if it took longer.
    let before = flow.path.delivery.bytes();
    flow.now += 70 * MS;
    flow.ack(70 * MS, 60_000, before);
    assert_eq!(flow.path.min_rtt.get(), 70 * MS);
    assert!(flow.window() >= 60_000, "{}", flow.window());
}

#[test]
fn a_window_of_eight_blocks_is_reduced_to_one() {
    let mut flow = expired(60_000, 7500);
    assert_eq!(flow.window(), 7500);
    flow.round(60 * MS, 60_000);
    assert_eq!(flow.path.min_rtt.get(), 60 * MS, "nothing had to drain");
    assert_eq!(expired(60_000, 7499).window(), 42_500);
    // A path that holds less than a block is left with one.
    let mut flow = expired(60_000, 6000);
    flow.path.delivery.resume(1000.0);
    assert_eq!(flow.window(), 6000);
}

#[test]
fn the_window_does_not_grow_while_min_rtt_is_measured() {
    let mut flow = expired(60_000, BLOCK);
    let window = flow.controller.window;
    for _ in 0..5 {
        // Replies that did not queue, to what left before.
        flow.controller.on_sent(window);
        let before = flow.path.delivery.bytes();
        flow.ack(MIN_RTT, 50_000, before);
    }
    assert!(flow.controller.window <= window);
}

#[test]
fn a_min_rtt_that_was_seen_again_is_not_measured() {
    let mut flow = Flow::steady(60_000);
    flow.now += Duration::from_secs(11);
    flow.round(CLEAR.0, CLEAR.1);
    assert!(flow.window() >= 60_000);
}

#[test]
fn what_an_outage_added_to_the_last_round_trip_is_not_waited_for_again() {
    let mut flow = Flow::steady(60_000);
    flow.used_round(QUEUED.0, QUEUED.1);
    flow.now += Duration::from_secs(11);
    flow.used_round(Duration::from_secs(8), 59_000);
    assert_eq!(flow.window(), 42_500);
    // 50 ms, and what is in flight at 1 MB/s: 110 ms at most, not 8 s.
    flow.now += 111 * MS;
    let before = flow.path.delivery.bytes();
    flow.now += MIN_RTT;
    flow.ack(MIN_RTT, BLOCK, before);
    assert!(flow.window() > 42_500, "{}", flow.window());
}
