//! Congestion events (rule 5, and the section about them).

use super::*;

#[test]
fn a_congestion_event_takes_three_tenths_once_for_what_was_in_flight_together() {
    let mut flow = Flow::steady(100_000);
    flow.round(CLEAR.0, CLEAR.1);
    flow.controller.window = 100_000;
    flow.controller.on_congestion_event(&mut flow.path, 0, BLOCK);
    assert_eq!(flow.window(), 70_000);
    assert!(flow.controller.had_congestion_since(49_999));
    flow.controller.on_congestion_event(&mut flow.path, 49_999, BLOCK);
    assert_eq!(flow.window(), 70_000);
    assert!(!flow.controller.had_congestion_since(50_000));
    flow.controller.on_congestion_event(&mut flow.path, 50_000, BLOCK);
    assert_eq!(flow.window(), 49_000);
}

#[test]
fn a_congestion_event_leaves_two_blocks_and_forgets_the_rate() {
    let mut flow = Flow::at_startup();
    flow.round(MIN_RTT, 4000);
    flow.controller.window = 2500;
    flow.congestion_event();
    assert_eq!((flow.window(), flow.path.rate(), flow.path.is_startup), (2000, 0.0, false));
}

#[test]
fn the_two_blocks_that_are_left_are_what_the_window_grows_from() {
    let mut flow = Flow::steady(2500);
    flow.congestion_event();
    assert_eq!(flow.used_round(QUEUED.0, QUEUED.1), 31_000, "half the way from 2000 to 60,000");
}

#[test]
fn after_a_congestion_event_the_window_moves_to_the_target_as_ever() {
    for (round, windows) in [(QUEUED, [65_000, 62_500]), (CLEAR, [87_500, 109_375])] {
        let mut flow = Flow::steady(100_000);
        flow.congestion_event();
        assert_eq!([(); 2].map(|()| flow.used_round(round.0, round.1)), windows, "from 70,000, {round:?}");
    }
}

#[test]
fn three_rounds_that_lose_a_quarter_mean_a_full_queue() {
    /// A round of replies and losses, on a path that has delivered so much.
    fn round(flow: &mut Flow, replies: u32, losses: u32) -> bool {
        (0..losses).for_each(|_| flow.controller.on_loss(BLOCK));
        let delivered = flow.path.delivery.bytes();
        flow.round(CLEAR.0, CLEAR.1);
        for reply in 1..=replies {
            // Of this round only the last.
            flow.controller.on_reply(&flow.path, delivered - u64::from(reply < replies));
        }
        flow.controller.loses_heavily()
    }
    /// A path that has delivered something.
    fn begun() -> Flow {
        let mut flow = Flow::steady(50_000);
        flow.round(CLEAR.0, CLEAR.1);
        round(&mut flow, 10, 0);
        flow
    }
    let mut flow = begun();
    assert_eq!([(); 3].map(|()| round(&mut flow, 10, 3)), [false, false, true]);
    assert!(!round(&mut flow, 10, 2), "a fifth is less, and the row is at an end");
    assert_eq!([(); 3].map(|()| round(&mut flow, 10, 3)), [false, false, true]);
    flow.controller.start_again(&mut flow.path);
    assert!(!flow.controller.loses_heavily());
    let mut flow = begun();
    assert!(!(0..9).any(|_| round(&mut flow, 12, 3)), "a quarter is not more than a quarter");
    let mut flow = begun();
    let rounds = [(); 6].map(|()| round(&mut flow, 5, 3));
    assert_eq!(rounds, [false, false, false, false, false, true], "ten replies make a round");
}

#[test]
fn replies_to_what_was_sent_in_the_round_before_do_not_end_a_round() {
    let mut flow = Flow::steady(50_000);
    flow.round(CLEAR.0, CLEAR.1);
    for _ in 0..30 {
        flow.controller.on_loss(BLOCK);
        flow.controller.on_reply(&flow.path, 0);
    }
    // The first round ended after ten of them; the second lasts until what was sent after that is answered.
    assert!(!flow.controller.loses_heavily());
    flow.controller.on_reply(&flow.path, 50_000);
    for _ in 0..9 {
        flow.controller.on_loss(BLOCK);
        flow.controller.on_reply(&flow.path, 49_999);
    }
    assert!(!flow.controller.loses_heavily(), "that was the second");
    flow.controller.on_reply(&flow.path, 50_000);
    assert!(flow.controller.loses_heavily());
}
