//! The target, and the standing queue in it (rules 1 to 3).

use super::*;

#[test]
fn the_target_is_what_the_path_holds_and_a_standing_queue() {
    for (min_rtt, block, target) in [
        (50 * MS, 1000, 50_000 + 10_000),
        // An eighth of min_rtt if that is more than 10 ms,
        (160 * MS, 1000, 160_000 + 20_000),
        // eight times min_rtt if that is less,
        (MS, 1000, 1000 + 8000),
        // and one block at least.
        (50 * MS, 32_768, 50_000 + 32_768),
        // Below 1 ms, 0.5 ms.
        (MS * 9 / 10, 1, 900 + 500),
    ] {
        let mut flow = Flow::steady(0);
        flow.path.min_rtt.set(flow.now, min_rtt);
        assert_eq!(flow.controller.target(&flow.path, MEGABYTE, block), target, "{min_rtt:?}, {block}");
    }
}

#[test]
fn on_a_wire_reads_may_queue_for_longer_than_writes_but_not_in_too_many_calls() {
    let mut flow = Flow::steady(0);
    flow.path.min_rtt.set(flow.now, Duration::from_micros(100));
    let rate = 100.0 * MEGABYTE;
    flow.path.delivery.resume(rate);
    flow.path.delivery.end_round();
    let target = |flow: &Flow, block| flow.controller.target(&flow.path, rate, block);
    assert_eq!(target(&flow, BLOCK), 60_000, "0.5 ms beyond what the path holds");
    let read = Acked { class: Class::Read, ..acked(flow.now, BLOCK, 0) };
    flow.controller.on_ack(flow.now + Duration::from_micros(100), &mut flow.path, &read, BLOCK);
    assert_eq!(target(&flow, 32 << 10), 1_010_000, "10 ms");
    assert_eq!(target(&flow, BLOCK), 10_000 + 64 * u64::from(BLOCK));
    flow.ack(Duration::from_micros(100), BLOCK, 0);
    assert_eq!(target(&flow, BLOCK), 60_000, "now it writes again");
}

#[test]
fn reads_on_longer_paths_queue_no_longer_than_writes() {
    let mut flow = Flow::steady(0);
    let read = Acked { class: Class::Read, ..acked(flow.now, BLOCK, 0) };
    flow.controller.on_ack(flow.now + MIN_RTT, &mut flow.path, &read, BLOCK);
    assert_eq!(flow.controller.target(&flow.path, MEGABYTE, BLOCK), 60_000);
}

#[test]
fn a_rate_that_rises_gets_a_standing_queue_until_a_queue_is_full() {
    let mut flow = Flow::steady(50_000);
    let allowed = |flow: &Flow| flow.controller.allowed;
    for _ in 0..8 {
        flow.used_round(QUEUED.0, QUEUED.1);
    }
    assert_eq!(allowed(&flow), 10 * MS, "a steady rate needs no more");
    flow.used_round(CLEAR.0, CLEAR.1);
    assert_eq!(allowed(&flow), 10 * MS, "the rate is not higher");
    let doubled = [75_000, 100_000, 150_000].map(|bytes| {
        flow.used_round(MIN_RTT, bytes);
        allowed(&flow)
    });
    assert_eq!(doubled, [20 * MS, 40 * MS, 40 * MS]);
    let target = flow.controller.target(&flow.path, 3.0 * MEGABYTE, BLOCK);
    assert_eq!(target, 270_000, "what the path holds, and 40 ms");

    assert!(flow.congestion_event());
    for number in 1..=100 {
        flow.used_round(MIN_RTT, number * 50_000);
        assert_eq!(allowed(&flow), 10 * MS, "round {number}: others may have left");
    }
    flow.used_round(MIN_RTT, 101 * 50_000);
    assert_eq!(allowed(&flow), 20 * MS);
}

#[test]
fn a_rate_that_rises_gets_no_standing_queue_from_a_window_that_was_not_used() {
    let mut flow = Flow::steady(100_000);
    for bytes in [50_000, 75_000, 100_000] {
        flow.round(MIN_RTT, bytes);
    }
    assert_eq!(flow.controller.allowed, 10 * MS);
}

#[test]
fn a_reply_queues_when_it_is_later_than_the_standing_queue_makes_it() {
    for (rtt, block, queues) in [
        (60, BLOCK, false),
        (61, BLOCK, true),
        // A block of 32,768 bytes takes 33 ms.
        (82, 32_768, false),
        (83, 32_768, true),
    ] {
        let mut flow = Flow::steady(0);
        flow.round(CLEAR.0, CLEAR.1);
        flow.path.min_rtt.sample(flow.now, rtt * MS);
        assert_eq!(flow.controller.is_queueing(&flow.path, block), queues, "{rtt} ms, {block} bytes");
    }
}
