//! The choice of blocks, and the path's MTU that bounds it.

use super::*;

/// A path without fades on which the blocks of these tests are fast.
fn fast() -> Flow {
    let mut flow = Flow::known(Some(RANGE));
    flow.adaptive.path.delivery.resume(6e6);
    flow.adaptive.episodes.resume(0.0);
    flow
}

#[test]
fn the_first_block_is_one_frame_at_most() {
    for (largest, mtu, block) in
        [(32 << 10, 1500, 1280), (32 << 10, 9000, 1280), (32 << 10, 1420, 1152), (512, 1500, 512)]
    {
        let mut flow = Flow::new(Some(BlockRange { largest, ..RANGE }));
        flow.adaptive.handle_route_mtu(mtu, true);
        assert_eq!(flow.adaptive.block(), Some(block));
        assert_eq!(flow.adaptive.next_block(flow.now), Some(block), "nothing is known of the path");
    }
    let mut flow = Flow::new(None);
    assert_eq!((flow.adaptive.block(), flow.adaptive.next_block(flow.now)), (None, None), "not our choice");
}

#[test]
fn a_change_of_block_is_chosen_once_and_lengthens_min_rtt() {
    let mut flow = fast();
    flow.adaptive.block = 1280;
    let next = flow.adaptive.next_block(flow.now).unwrap();
    assert_eq!((next, flow.adaptive.block()), (32 << 10, Some(32 << 10)));
    // 31,488 bytes more at 6 MB/s.
    let longer = 50 * MS + Duration::from_micros(5248);
    assert_eq!(flow.adaptive.path.min_rtt.get(), longer);
    assert_eq!(flow.adaptive.next_block(flow.now), Some(32 << 10));
    assert_eq!(flow.adaptive.path.min_rtt.get(), longer, "nothing changed");

    let mut flow = fast();
    flow.adaptive.next_block(flow.now);
    assert_eq!(flow.adaptive.path.min_rtt.get(), 50 * MS, "the first block is no change");
}

#[test]
fn a_change_while_the_rate_is_not_known_leaves_the_window() {
    let mut flow = Flow::new(Some(RANGE));
    assert_eq!(flow.adaptive.next_block(flow.now), Some(1280));
    let sent = flow.send_call(Class::Write, 1280, true);
    flow.now += 50 * MS;
    flow.reply(sent);
    assert_eq!(flow.adaptive.limits(WIDE).write_bytes, 5 * 1280);
    flow.adaptive.bound_blocks(1024);
    assert_eq!(flow.adaptive.next_block(flow.now), Some(1024));
    assert_eq!(flow.adaptive.limits(WIDE).write_bytes, 5 * 1280);
}

#[test]
fn a_server_s_bound_makes_blocks_smaller_and_never_larger() {
    let mut flow = fast();
    flow.adaptive.bound_blocks(16 << 10);
    flow.adaptive.bound_blocks(64 << 10);
    assert_eq!(flow.adaptive.range, Some(BlockRange { largest: 16 << 10, ..RANGE }));
    assert_eq!(flow.adaptive.next_block(flow.now), Some(16 << 10));
    flow.adaptive.bound_blocks(1024);
    assert_eq!(flow.adaptive.next_block(flow.now), Some(1024));
    assert_eq!(flow.adaptive.path_mtu.block(), 1024);
}

#[test]
fn blocks_to_choose_from_are_one_frame_and_what_fits_so_many_fragments() {
    let mut flow = Flow::new(Some(RANGE));
    assert_eq!(flow.adaptive.blocks(), Some(Blocks { one_frame: 1280, largest: 32 << 10, frame: 1480 }));
    let largest = 1 << 20;
    flow.adaptive.range = Some(BlockRange { largest, ..RANGE });
    assert_eq!(flow.adaptive.blocks().unwrap().largest, 32 << 10, "one lost fragment loses all of it");
    let mut flow = Flow::new(Some(BlockRange { largest, ..RANGE }));
    flow.adaptive.handle_route_mtu(65_535, true);
    flow.adaptive.handle_mtu_probe_reply(65_535);
    flow.send_call(Class::Write, 1280, true);
    let one_frame = (65_535 - 220) / 64 * 64;
    assert_eq!(flow.adaptive.blocks(), Some(Blocks { one_frame, largest: one_frame, frame: 65_515 }));
}

#[test]
fn more_loss_episodes_make_smaller_blocks_but_for_those_that_a_link_of_retransmissions_explains() {
    let chosen = |episodes: u32, retransmits| {
        let mut flow = Flow::known(Some(RANGE));
        flow.adaptive.path.delivery.resume(125_000.0);
        // Ten seconds without one.
        flow.adaptive.episodes.resume(0.0);
        for _ in 0..episodes {
            flow.now += MS;
            flow.adaptive.episodes.on_loss(flow.now, flow.now);
        }
        flow.adaptive.path.arq.resume(retransmits);
        flow.adaptive.next_block(flow.now).unwrap()
    };
    assert_eq!(chosen(1, true), 32 << 10, "the first is expected");
    assert!(chosen(1, false) < 32 << 10 && chosen(100, true) <= 4096 && chosen(100, false) <= 1280);
}

#[test]
fn a_smaller_mtu_makes_blocks_of_one_frame_smaller_and_leaves_those_of_several() {
    for (block, next) in [(1280, 1152), (8704, 8704)] {
        let mut flow = Flow::new(Some(RANGE));
        flow.adaptive.next_block(flow.now);
        flow.adaptive.block = block;
        flow.adaptive.handle_route_mtu(1420, true);
        assert_eq!(flow.adaptive.take_cut(), Some(1152));
        assert_eq!(flow.adaptive.take_cut(), None, "once");
        assert_eq!(flow.adaptive.next_block(flow.now), Some(next));
    }
    let mut flow = Flow::new(Some(RANGE));
    flow.adaptive.handle_route_mtu(9000, true);
    assert_eq!(flow.adaptive.take_cut(), None);
}

#[test]
fn a_read_is_the_probe_while_blocks_are_of_one_frame() {
    let mut flow = Flow::until_a_probe(Flow::new(Some(RANGE)));
    assert_eq!(flow.adaptive.next_block(flow.now), Some(8768));
    flow.adaptive.block = 12_800;
    assert_ne!(flow.adaptive.next_block(flow.now), Some(8768), "they are larger already");
}

#[test]
fn a_read_that_was_a_lost_probe_is_resegmented() {
    let mut flow = Flow::until_a_probe(Flow::new(Some(RANGE)));
    flow.send_call(Class::Read, 8768, true);
    flow.now += MS;
    let later = flow.send_call(Class::Control, 0, false);
    flow.now += 60_000 * MS;
    flow.reply(later);
    assert_eq!(flow.adaptive.take_cut(), Some(8767), "what is as long is not to be sent again");
}

#[test]
fn fragments_of_a_reply_show_the_mtu_of_the_way_back() {
    let mut flow = Flow::new(Some(RANGE));
    flow.adaptive.handle_route_mtu(9000, true);
    let sent = flow.send_call(Class::Read, 8704, true);
    flow.now += 10 * MS;
    flow.adaptive.handle_fragments(Some(1420));
    flow.reply(Acked { size: 8860, ..sent });
    assert_eq!(flow.adaptive.path_mtu.block(), 1152);
}

#[test]
fn a_read_delivers_no_more_than_has_arrived() {
    // RFC 1813 §3.3.6: fewer bytes at the end of a file.
    for (class, delivered) in [(Class::Read, 150), (Class::Write, 4096)] {
        let mut flow = Flow::known(None);
        let sent = flow.send_call(class, BLOCK, true);
        flow.now += 100 * MS;
        flow.reply(sent);
        assert_eq!(flow.adaptive.path.delivery.bytes(), delivered, "{class:?}");
    }
}

#[test]
fn padded_calls_are_for_blocks_that_are_chosen_here() {
    for (range, probe) in [(Some(RANGE), Some(9000)), (None, None)] {
        let mut flow = Flow::new(range);
        flow.adaptive.handle_route_mtu(9000, true);
        for _ in 0..40 {
            let sent = flow.send_call(Class::Write, 1280, true);
            flow.now += 10 * MS;
            flow.reply(sent);
            flow.adaptive.path_mtu.set_rate(1e7);
        }
        assert_eq!(flow.adaptive.poll_mtu_probe(flow.now), probe);
        assert_eq!(flow.adaptive.keeps_whole(1500), range.is_some());
        flow.adaptive.handle_mtu_probe_reply(9000);
        assert_eq!(flow.adaptive.keeps_whole(9000), range.is_some());
    }
}
