//! What a loss means: a full queue, a fade, a black hole, or nothing.

use super::*;

/// Bytes of a round of the window.
fn deliver(flow: &mut Flow, rounds: u32) {
    for _ in 0..rounds {
        let sent = flow.send();
        flow.now += 100 * MS;
        flow.reply(sent);
    }
}

/// A WRITE that was sent just before is lost.
fn lose(flow: &mut Flow) {
    let (sent, delivered) = (flow.now - MS, flow.adaptive.path.delivery.bytes());
    flow.adaptive.on_loss(flow.now, Class::Write, BLOCK, sent, delivered);
}

fn had_congestion(flow: &Flow) -> bool {
    flow.adaptive.controller.had_congestion_since(0)
}

fn episodes(flow: &Flow) -> f64 {
    flow.adaptive.episodes.per_second()
}

/// The last reply has queued for so long.
fn queue(flow: &mut Flow, queueing: Duration) {
    flow.adaptive.path.min_rtt.sample(flow.now, 50 * MS + queueing);
}

#[test]
fn a_loss_while_replies_queue_is_a_congestion_event_and_one_without_a_queue_is_an_episode() {
    // One block may queue: 100 ms.
    for (queueing, is_congestion) in [(0, false), (99, false), (101, true)] {
        let mut flow = Flow::known(None);
        deliver(&mut flow, 1);
        queue(&mut flow, queueing * MS);
        let before = episodes(&flow);
        lose(&mut flow);
        assert_eq!(had_congestion(&flow), is_congestion, "{queueing} ms");
        assert_eq!(episodes(&flow) > before, !is_congestion, "{queueing} ms");
    }
}

#[test]
fn a_fade_that_ended_half_a_second_and_two_round_trips_ago_explains_a_loss_whatever_queues() {
    // Smoothed RTT of READs: 100 ms.
    for (later, is_congestion) in [(0, false), (700, false), (701, true)] {
        let mut flow = Flow::known(None);
        (0..100).for_each(|_| flow.adaptive.path.rtt.sample(Class::Read, 100 * MS));
        let sent = flow.send_call(Class::Write, BLOCK, true);
        flow.now += 20 * MS;
        flow.probe();
        flow.now += 80 * MS;
        flow.reply(sent);
        flow.now += later * MS;
        queue(&mut flow, 200 * MS);
        lose(&mut flow);
        assert_eq!(had_congestion(&flow), is_congestion, "{later} ms later");
    }
}

#[test]
fn a_gap_between_replies_that_was_not_looked_back_at_explains_nothing() {
    // Replies 20 ms apart, and then one after 200 ms.
    let mut flow = Flow::known(None);
    let sent = flow.send_call(Class::Write, BLOCK, false);
    flow.now += 200 * MS;
    flow.reply(sent);
    queue(&mut flow, 200 * MS);
    lose(&mut flow);
    assert!(!had_congestion(&flow), "it was a fade");
}

#[test]
fn what_was_sent_before_a_congestion_event_belongs_to_it() {
    let mut flow = Flow::known(None);
    deliver(&mut flow, 1);
    queue(&mut flow, 200 * MS);
    lose(&mut flow);
    assert!(had_congestion(&flow));
    // Nothing queues any more, but it was in flight then.
    queue(&mut flow, Duration::ZERO);
    let before = episodes(&flow);
    flow.adaptive.on_loss(flow.now, Class::Write, BLOCK, flow.now - MS, 0);
    assert!((episodes(&flow) - before).abs() < 1e-9, "no episode");
    lose(&mut flow);
    assert!(episodes(&flow) > before, "this was sent later");
}

#[test]
fn a_loss_for_every_four_replies_is_congestion_whatever_explains_it() {
    let mut flow = Flow::known(None);
    deliver(&mut flow, 1);
    for round in 0..60 {
        flow.adaptive.controller.on_loss(BLOCK);
        flow.adaptive.controller.on_reply(&flow.adaptive.path, u64::MAX / 2 + round);
    }
    assert!(flow.adaptive.controller.loses_heavily());
    lose(&mut flow);
    assert!(had_congestion(&flow));
}

#[test]
fn a_loss_refutes_retransmission_and_its_reply_undoes_that() {
    let mut flow = Flow::known(None);
    flow.adaptive.path.arq.resume(true);
    let sent = flow.now;
    lose(&mut flow);
    assert!(!flow.retransmits());
    let before = episodes(&flow);
    flow.adaptive.on_spurious_loss(Class::Write, sent, BLOCK);
    assert!(flow.retransmits());
    assert!(episodes(&flow) < before, "nor was there an episode");
}

#[test]
fn what_is_late_because_of_a_long_fade_shows_retransmission_by_itself() {
    // Longer than the pause between two windows: 50 ms, and 100 ms for the block.
    for (gap, retransmits) in [(149, false), (152, true)] {
        let mut flow = Flow::known(None);
        let late = flow.send_call(Class::Write, BLOCK, false);
        flow.now += gap * MS;
        flow.adaptive.look_back(flow.now);
        flow.adaptive.on_spurious_loss(Class::Write, late.sent, BLOCK);
        // One loss was undone that was none, and one is shown.
        assert!(flow.retransmits());
        let mut flow = Flow::known(None);
        lose(&mut flow);
        lose(&mut flow);
        let late = flow.send_call(Class::Write, BLOCK, false);
        flow.now += gap * MS;
        flow.adaptive.look_back(flow.now);
        flow.adaptive.on_spurious_loss(Class::Write, late.sent, BLOCK);
        flow.adaptive.on_spurious_loss(Class::Write, late.sent + gap * MS, BLOCK);
        assert_eq!(flow.retransmits(), retransmits, "{gap} ms");
    }
}

#[test]
fn the_loss_of_a_read_that_was_a_probe_says_nothing_of_the_path() {
    for (class, bytes, counts) in
        [(Class::Read, 8768, false), (Class::Read, 1280, true), (Class::Write, 8768, true)]
    {
        let mut flow = Flow::known(Some(RANGE));
        flow.adaptive.path.arq.resume(true);
        flow = flow.until_a_probe();
        flow.send_call(Class::Read, 8768, true);
        flow.adaptive.on_loss(flow.now + 10 * MS, class, bytes, flow.now, 0);
        assert_eq!(!flow.retransmits(), counts, "{class:?} of {bytes} bytes");
    }
}

/// Loses blocks of so many bytes in rounds, twice in each; in which loss smaller ones were taken.
fn lose_blocks(flow: &mut Flow, bytes: u32) -> Option<u32> {
    (1..=8).find(|loss| {
        let sent = flow.now;
        if loss % 2 == 0 {
            flow.now += 10 * MS;
        }
        flow.adaptive.on_loss(sent + MS, Class::Write, bytes, sent, 0);
        flow.adaptive.take_cut().inspect(|&cut| assert_eq!(cut, flow.adaptive.path_mtu.block())).is_some()
    })
}

#[test]
fn blocks_of_several_frames_that_never_arrive_are_given_up_after_four_and_others_after_six() {
    // Linux drops fragments for half a minute when its memory for them is full.
    for (class, arrived, losses) in [
        (Class::Write, None, 4),
        (Class::Write, Some(4096), 6),
        (Class::Write, Some(1280), 4),
        (Class::Control, Some(4096), 4),
    ] {
        let mut flow = Flow::known(Some(RANGE));
        if let Some(bytes) = arrived {
            let sent = flow.send_call(class, bytes, true);
            flow.now += 100 * MS;
            flow.reply(sent);
        }
        assert_eq!(lose_blocks(&mut flow, 4096), Some(losses), "{class:?}, {arrived:?}");
        assert!(flow.adaptive.path.is_startup, "the losses were no congestion");
        assert!(flow.adaptive.next_block(flow.now).unwrap() <= 1280);
        assert_eq!(flow.adaptive.fragments.largest(flow.now + 29_000 * MS), Some(0));
    }
}

#[test]
fn blocks_that_do_not_fit_a_queue_become_a_few_frames_and_startup_is_over() {
    let mut flow = Flow::known(Some(RANGE));
    flow.adaptive.path.delivery.resume(1e6);
    let cut = (0..4).find_map(|loss| {
        let sent = flow.now;
        flow.now += loss % 2 * 10 * MS;
        flow.adaptive.on_loss(sent + MS, Class::Read, 16_384, sent, 0);
        flow.adaptive.take_cut()
    });
    assert_eq!(cut, Some(4096));
    assert!(!flow.adaptive.path.is_startup);
    assert_eq!(flow.adaptive.next_block(flow.now), Some(4096));
}

#[test]
fn a_black_hole_of_one_frame_makes_blocks_smaller() {
    let mut flow = Flow::known(Some(RANGE));
    assert_eq!(lose_blocks(&mut flow, 1280), Some(4));
    assert_eq!(flow.adaptive.path_mtu.block(), 1024, "RFC 8899 §4.3: down to 1280 bytes");
    assert!(flow.adaptive.path.is_startup);
    assert_eq!(flow.adaptive.fragments.largest(flow.now), None);
}

#[test]
fn where_blocks_are_given_no_loss_is_a_black_hole() {
    for bytes in [1280, 8704] {
        let mut flow = Flow::known(None);
        assert_eq!(lose_blocks(&mut flow, bytes), None);
        assert!(!flow.adaptive.keeps_whole(100) && !flow.adaptive.path.is_startup);
    }
}
