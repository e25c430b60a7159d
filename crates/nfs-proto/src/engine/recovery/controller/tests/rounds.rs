//! How the window moves (rules 4 to 6).

use super::*;

#[test]
fn the_window_moves_half_the_way_to_the_target_once_a_round() {
    let mut flow = Flow::steady(100_000);
    assert_eq!([(); 2].map(|()| flow.used_round(QUEUED.0, QUEUED.1)), [80_000, 70_000]);
    let mut flow = Flow::steady(20_000);
    assert_eq!([(); 2].map(|()| flow.used_round(QUEUED.0, QUEUED.1)), [40_000, 50_000]);
    // What was sent before the round began does not end it.
    flow.ack(60 * MS, BLOCK, 0);
    assert_eq!(flow.window(), 50_000);
}

#[test]
fn the_window_grows_only_if_it_was_used() {
    for (window, block, in_flight, grows) in [
        // Seven tenths are use,
        (20_000, 1000, 14_000, true),
        (20_000, 1000, 13_999, false),
        // and so is everything where another block has no room.
        (24_000, 8000, 16_001, true),
        (24_000, 8000, 16_000, false),
    ] {
        for round in [CLEAR, QUEUED] {
            let mut flow = Flow::steady(window).with_block(block);
            flow.controller.on_sent(in_flight);
            flow.controller.on_sent(1);
            let after = flow.round(round.0, round.1);
            assert_eq!(after > window, grows, "{in_flight} of {window} bytes, {round:?}");
            let unused = flow.round(round.0, round.1);
            assert!(unused <= after, "that was the round before");
        }
    }
}

#[test]
fn the_window_shrinks_whether_it_was_used_or_not() {
    assert_eq!(Flow::steady(100_000).round(QUEUED.0, QUEUED.1), 80_000);
}

#[test]
fn where_nothing_queued_the_window_grows_by_a_quarter_or_to_the_target() {
    assert_eq!(Flow::steady(100_000).used_round(CLEAR.0, CLEAR.1), 125_000);
    assert_eq!(Flow::steady(20_000).used_round(CLEAR.0, CLEAR.1), 60_000);
    // The lowest RTT of the round counts, up to a quarter of the allowance.
    for (late, window) in [(2, 125_000), (3, 80_000)] {
        let mut flow = Flow::steady(100_000);
        let rtt = MIN_RTT + late * MS;
        flow.path.min_rtt.sample(flow.now, MIN_RTT + 9 * MS);
        assert_eq!(flow.used_round(rtt, 1000 * rtt.as_millis() as u32), window, "{late} ms");
    }
}

#[test]
fn where_an_eighth_of_a_round_was_lost_the_window_does_not_grow_beyond_the_target() {
    // Blocks of 1000 bytes, and 50,000 bytes that arrived.
    for (lost, window) in [(6, 125_000), (7, 80_000)] {
        let mut flow = Flow::steady(100_000);
        (0..lost).for_each(|_| flow.controller.on_loss(BLOCK));
        assert_eq!(flow.used_round(CLEAR.0, CLEAR.1), window, "{lost} blocks lost");
        let next = flow.used_round(CLEAR.0, CLEAR.1);
        assert_eq!(next, window + window / 4, "losses count in their own round");
        // The same in a later round, of what was delivered in that.
        flow.controller.window = 100_000;
        (0..lost).for_each(|_| flow.controller.on_loss(BLOCK));
        assert_eq!(flow.used_round(CLEAR.0, CLEAR.1), window, "{lost} blocks lost");
    }
    // An eighth to the byte is not more than an eighth.
    let mut flow = Flow::steady(100_000);
    (0..6).for_each(|_| flow.controller.on_loss(BLOCK));
    assert_eq!(flow.used_round(MIN_RTT, 48_000), 125_000);
}

#[test]
fn blocks_of_another_size_change_the_window_by_the_difference() {
    let mut flow = Flow::steady(60_000);
    flow.path.delivery.handle_ack(MIN_RTT, &acked(flow.now, BLOCK, 0), false);
    flow.controller.handle_block_change(1280, 8704);
    assert_eq!(flow.window(), 67_424);
    flow.controller.handle_block_change(8704, 1280);
    assert_eq!(flow.window(), 60_000);
    flow.controller.handle_block_change(65_536, 1280);
    assert_eq!(flow.window(), 2000, "never less than its blocks");
}

#[test]
fn two_blocks_may_always_be_in_flight() {
    for block in [1280, 32_768] {
        let mut flow = Flow::steady(0).with_block(block);
        flow.path.delivery.handle_ack(MIN_RTT, &acked(flow.now, BLOCK, 0), false);
        assert_eq!(flow.window(), 2 * u64::from(block));
    }
}

#[test]
fn twenty_rounds_after_a_congestion_event_the_window_is_rounded_again() {
    let mut flow = Flow::steady(90_000);
    flow.round(CLEAR.0, CLEAR.1);
    flow.congestion_event();
    for round in 1..=20 {
        let window = flow.controller.window;
        assert_eq!(flow.controller.window(&flow.path, 32_768), window.max(65_536), "round {round}");
        flow.used_round(CLEAR.0, CLEAR.1);
        flow.controller.window = 90_000;
    }
    assert_eq!(flow.controller.window(&flow.path, 32_768) / 32_768, 3);
}

#[test]
fn the_window_is_rounded_to_large_blocks_until_a_queue_is_full() {
    let mut narrow = Flow::steady(90_000);
    narrow.path.delivery.resume(0.6 * MEGABYTE);
    narrow.path.delivery.handle_ack(Duration::from_secs(1), &acked(narrow.now, 1, 0), false);
    assert_eq!(narrow.controller.window(&narrow.path, 32_768) / 32_768, 2);
    let mut flow = Flow::steady(90_000);
    flow.path.delivery.resume(MEGABYTE);
    flow.path.delivery.handle_ack(Duration::from_secs(1), &acked(flow.now, 1, 0), false);
    let window = |flow: &Flow, block| flow.controller.window(&flow.path, block);
    assert_eq!(window(&flow, 32_768) / 32_768, 3, "90 KB are nearer to three than to two");
    assert_eq!((window(&flow, 8192), window(&flow, 4096)), (90_000, 90_000));
    flow.controller.window = 80_000;
    assert_eq!(window(&flow, 32_768) / 32_768, 2);
    flow.controller.on_congestion_event(&mut flow.path, 0, 32_768);
    flow.controller.window = 90_000;
    flow.path.delivery.resume(MEGABYTE);
    assert_eq!(window(&flow, 32_768) / 32_768, 2, "others need the queue, too");
}

#[test]
fn one_and_a_half_blocks_must_fill_the_path_for_rounding() {
    for (rate, window) in [(0.6 * MEGABYTE, 100_000), (0.599 * MEGABYTE, 90_000)] {
        let mut flow = Flow::steady(90_000);
        flow.path.delivery.resume(rate);
        flow.path.delivery.handle_ack(Duration::from_secs(1), &acked(flow.now, 1, 0), false);
        assert_eq!(flow.controller.window(&flow.path, 20_000), window, "{rate}");
    }
}

#[test]
fn rounds_with_little_to_send_leave_the_rate_as_it_was() {
    let mut flow = Flow::steady(60_000);
    for _ in 0..30 {
        flow.app_limited_round(MIN_RTT, 5000);
    }
    assert_eq!(flow.path.rate(), MEGABYTE);
    assert_eq!(flow.window(), 60_000, "what the path holds, and 10 ms");
    // The path carries a tenth now.
    for _ in 0..10 {
        flow.round(MIN_RTT, 5000);
    }
    assert_eq!(flow.path.rate(), MEGABYTE / 10.0);
}

#[test]
fn rounds_that_queue_or_lose_something_are_the_path_s_however_little_there_was_to_send() {
    for (rtt, lost) in [(MIN_RTT + 20 * MS, 0), (MIN_RTT, BLOCK)] {
        let mut flow = Flow::steady(60_000);
        for _ in 0..10 {
            if lost > 0 {
                flow.controller.on_loss(lost);
            }
            flow.app_limited_round(rtt, 5000);
        }
        assert!(flow.path.rate() < MEGABYTE / 5.0, "{rtt:?}, {lost}: {}", flow.path.rate());
    }
}

/// 1 MB/s over a path of 5 ms, where another 10 ms may queue and 5 ms do.
#[test]
fn a_queue_that_overflows_in_three_rounds_is_given_half_of_the_allowance_until_it_does_not() {
    let mut flow = Flow::steady(15_000);
    flow.path.min_rtt.set(flow.now, 5 * MS);
    let mut round = |losses| {
        for _ in 0..losses {
            flow.controller.on_loss(BLOCK);
        }
        flow.used_round(10 * MS, 10_000)
    };
    assert_eq!([round(2), round(2)], [15_000; 2], "a fade may take two rounds");
    assert_eq!([round(2), round(2)], [12_500, 10_000], "half of the way to 5 + 5 ms, then to 5 + 2.5 ms");
    // One block is less than an eighth: neither full nor free.
    assert_eq!([round(1), round(1)], [8750, 8125]);
    // A quarter more of 2.5 ms with each round.
    assert_eq!([round(0), round(0)], [8125, 8515]);
    let last = (0..20).map(|_| round(0)).last();
    assert_eq!(last, Some(14_999), "all of the allowance");
}

/// The same path, where more than 9 ms of a queue do not fit: one block is lost in each round, which is less than an eighth.
#[test]
fn a_queue_that_is_a_little_too_short_is_given_less_and_for_long() {
    let mut flow = Flow::steady(15_000);
    flow.path.min_rtt.set(flow.now, 5 * MS);
    let mut round = |queueing: Duration, losses| {
        for _ in 0..losses {
            flow.controller.on_loss(BLOCK);
        }
        let rtt = 5 * MS + queueing;
        flow.used_round(rtt, rtt.as_millis() as u32 * 1000)
    };
    // What is lost while little queues is lost to something else.
    let few = (0..20).map(|_| round(5 * MS, 1)).last();
    assert_eq!(few, Some(15_000));
    let windows: Vec<u64> = (0..12).map(|_| round(9 * MS, 1)).collect();
    assert_eq!(windows[..5], [15_000; 5], "a few rounds may have met fades");
    assert_eq!(windows[5], 14_000, "half of the way to 5 + 8 ms");
    assert!(windows[10] < 13_100 && windows[11] < 12_400, "then to 5 + 6.4 ms: {windows:?}");
    let later = (0..100).map(|_| round(6 * MS, 0)).last().unwrap();
    assert!((11_700..12_200).contains(&later), "what has overflowed is not tried again so soon: {later}");
}
