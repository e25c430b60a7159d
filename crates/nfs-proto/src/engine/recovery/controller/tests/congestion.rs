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
fn three_rounds_in_a_row_that_lose_more_than_an_eighth_mean_a_full_queue() {
    /// A round of 50 blocks that arrive, and losses.
    fn round(flow: &mut Flow, losses: u32) -> bool {
        (0..losses).for_each(|_| flow.controller.on_loss(BLOCK));
        flow.round(CLEAR.0, CLEAR.1);
        flow.controller.loses_heavily()
    }
    let mut flow = Flow::steady(50_000);
    flow.round(CLEAR.0, CLEAR.1);
    assert_eq!([7; 3].map(|losses| round(&mut flow, losses)), [false, false, true]);
    assert!(!round(&mut flow, 6), "an eighth of 50 is more, and the row is at an end");
    assert_eq!([7; 3].map(|losses| round(&mut flow, losses)), [false, false, true]);
    flow.controller.start_again(&mut flow.path);
    assert!(!flow.controller.loses_heavily());
}
