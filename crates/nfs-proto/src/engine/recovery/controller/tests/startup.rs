//! Startup (rule 7), and starts from an earlier estimate (§12).

use super::*;

#[test]
fn the_first_window_is_of_four_blocks() {
    assert_eq!(Flow::at_startup().window(), 4000);
    assert_eq!(Flow::at_startup().with_block(32_768).window(), 4 * 32_768);
}

#[test]
fn the_window_grows_by_what_is_acknowledged() {
    // Slow start (RFC 5681 §3.1): each of the first four blocks makes room for itself and for one more.
    let mut flow = Flow::at_startup();
    flow.now += MIN_RTT;
    let windows = [0; 4].map(|before| {
        flow.ack(MIN_RTT, BLOCK, before);
        flow.window()
    });
    assert_eq!(windows, [5000, 6000, 7000, 8000]);
}

#[test]
fn two_spacings_of_replies_to_calls_sent_together_show_the_rate() {
    // Blocks of 1000 bytes that leave the bottleneck 2 ms apart: 500,000 bytes a second.
    let mut flow = Flow::at_startup();
    let sent = flow.now;
    let mut windows = Vec::new();
    for reply in 0..4_u32 {
        flow.now = sent + MIN_RTT + 2 * MS * reply;
        flow.ack(flow.now - sent, BLOCK, 0);
        windows.push(flow.window());
    }
    // 25,000 bytes fill the path, and 5000 may queue: half of them at first, or an eighth of the round trip.
    assert_eq!(windows, [5000, 6000, 28_125, 28_125]);
}

#[test]
fn replies_that_the_link_held_and_let_go_together_do_not_show_the_rate() {
    // 20 blocks of 1000 bytes, which arrive 1 ms apart, or 0.1 ms apart after the link has held the first for 100 ms.
    for (held, spacing, expected) in [(Duration::ZERO, MS, 56_250), (100 * MS, MS / 10, 24_000)] {
        let mut flow = Flow::at_startup();
        flow.path.min_rtt.set(flow.now, MIN_RTT);
        let sent = flow.now;
        for reply in 1..=20_u32 {
            flow.now = sent + MIN_RTT + held + spacing * reply;
            flow.ack(flow.now - sent, BLOCK, 0);
        }
        assert_eq!(flow.window(), expected, "{held:?}");
    }
}

#[test]
fn startup_ends_when_a_queue_shows() {
    let mut flow = Flow::at_startup();
    flow.path.min_rtt.set(flow.now, MIN_RTT);
    flow.round(MIN_RTT, 4000);
    flow.round(60 * MS, 9600);
    assert!(flow.path.is_startup, "10 ms are allowed at 160,000 bytes a second");
    // 200,000 bytes a second: 10,000 fill the path, and 2000 may queue. 13 ms do.
    let window = flow.round(63 * MS, 12_600);
    assert!(!flow.path.is_startup);
    assert_eq!(window, 12_000);
}

#[test]
fn startup_ends_after_three_rounds_in_a_row_without_a_quarter_more() {
    let mut flow = Flow::at_startup();
    // In bytes per round of 50 ms: 10,000, then 24 % more, 26 % more than that, and so on.
    for (bytes, is_startup) in [
        (10_000, true),
        (12_400, true),
        (12_400, true),
        (15_600, true),
        (15_600, true),
        (15_600, true),
        (15_600, false),
    ] {
        flow.path.spacing.reset();
        flow.round(MIN_RTT, bytes);
        assert_eq!(flow.path.is_startup, is_startup, "{bytes}");
    }
    assert_eq!(flow.window(), 15_600 + 3120, "the target");
}

#[test]
fn a_rate_that_grows_by_less_than_a_quarter_a_round_ends_startup_all_the_same() {
    let mut flow = Flow::at_startup();
    for (bytes, is_startup) in [(10_000, true), (12_400, true), (15_300, true), (19_000, false)] {
        flow.path.spacing.reset();
        flow.round(MIN_RTT, bytes);
        assert_eq!(flow.path.is_startup, is_startup, "{bytes}");
    }
}

#[test]
fn startup_begins_again_with_the_rate_unknown() {
    let mut flow = Flow::at_startup();
    for _ in 0..4 {
        flow.round(CLEAR.0, CLEAR.1);
    }
    assert!(!flow.path.is_startup);
    flow.controller.start_again(&mut flow.path);
    flow.path.delivery.reset();
    for _ in 0..3 {
        assert!(flow.path.is_startup, "a tenth of the old rate is growth");
        flow.path.spacing.reset();
        flow.round(MIN_RTT, 5000);
    }
}

#[test]
fn an_earlier_connection_s_window_is_halved_until_a_reply_confirms_it() {
    let mut flow = Flow::resumed();
    assert_eq!(flow.window(), 30_000);
    assert_eq!(flow.round(200 * MS, BLOCK), 60_000, "four times min_rtt");
}

#[test]
fn a_first_reply_that_is_too_late_for_the_earlier_path_begins_startup() {
    let mut flow = Flow::resumed();
    assert_eq!(flow.round(201 * MS, BLOCK), 5000, "four blocks, and what was acknowledged");
    assert!(flow.path.is_startup);
    assert_eq!(flow.path.min_rtt.get(), 201 * MS);
    let mut flow = Flow::resumed();
    flow.round(MIN_RTT, BLOCK);
    flow.round(201 * MS, BLOCK);
    assert!(!flow.path.is_startup, "only the first");
}

#[test]
fn rounds_with_little_to_send_do_not_end_startup() {
    let mut flow = Flow::at_startup();
    for _ in 0..20 {
        flow.path.spacing.reset();
        flow.app_limited_round(MIN_RTT, 5000);
    }
    assert!(flow.path.is_startup);
    for is_startup in [true, true, false] {
        flow.path.spacing.reset();
        flow.round(MIN_RTT, 5000);
        assert_eq!(flow.path.is_startup, is_startup, "now it is the path that carries no more");
    }
}
