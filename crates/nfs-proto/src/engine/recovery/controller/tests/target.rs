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

/// A path where every other reply of many rounds was twice so much later than the lowest.
fn with_jitter(jitter: Duration) -> Flow {
    let mut flow = Flow::steady(0);
    flow.round(CLEAR.0, CLEAR.1);
    for _ in 0..200 {
        flow.path.min_rtt.sample(flow.now, MIN_RTT);
        flow.path.min_rtt.sample(flow.now, MIN_RTT + jitter * 2);
        flow.path.min_rtt.end_round(10 * MS);
    }
    flow
}

#[test]
fn the_path_holds_what_its_jitter_takes_up_to_ten_milliseconds() {
    for (jitter, target) in [(0, 60_000), (4, 64_000), (9, 69_000), (10, 70_000), (11, 70_000), (40, 70_000)]
    {
        let flow = with_jitter(jitter * MS);
        let found = flow.controller.target(&flow.path, MEGABYTE, BLOCK);
        assert!((target - 10..=target).contains(&found), "{jitter} ms: {found}");
    }
}

#[test]
fn what_the_jitter_takes_is_no_queue() {
    for (jitter, longest) in [(0, 60), (4, 64), (40, 70)] {
        let mut flow = with_jitter(jitter * MS);
        let mut queues = |rtt: u32| {
            flow.path.min_rtt.sample(flow.now, rtt * MS);
            flow.controller.is_queueing(&flow.path, BLOCK)
        };
        assert_eq!((queues(longest - 1), queues(longest + 1)), (false, true), "{jitter} ms");
    }
}

#[test]
fn a_path_whose_replies_wait_for_opportunities_keeps_its_window() {
    /// Where a hundred rounds of so much jitter at 1 MB/s leave a window, while 3 ms queue, which is more than nothing.
    fn after(longest: u32, window: u64) -> u64 {
        let mut flow = Flow::steady(window);
        for _ in 0..100 {
            let (sent, before) = (flow.now, flow.path.delivery.bytes());
            flow.controller.on_sent(flow.controller.window);
            for millis in 53..=longest {
                flow.now = sent + millis * MS;
                flow.ack(millis * MS, if millis == 53 { 53_000 } else { 1000 }, before);
            }
        }
        flow.window()
    }
    // From 53 to 69 ms: 61 ms on average, that is 8 ms more than the lowest.
    for window in [80_000, 68_000, 40_000] {
        let found = after(69, window);
        assert!((67_900..=68_010).contains(&found), "from {window}: {found}");
        let found = after(53, window);
        assert!((59_990..=60_010).contains(&found), "without jitter, from {window}: {found}");
    }
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
