//! Single rules of the search, each against its bound (RFC 8899 §4 and §5).

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A path on whose route packets of 9000 bytes pass, before anything is sent.
fn jumbo(sees_fragments: bool) -> (PathMtu, Instant) {
    let Path { mut path_mtu, now, .. } = Path::new(9000, 9000, true);
    path_mtu.handle_route_mtu(9000, sees_fragments);
    (path_mtu, now)
}

/// Loses `block` in so many rounds, twice in each; in which loss the black hole was found.
fn lose(
    path_mtu: &mut PathMtu,
    now: &mut Instant,
    direction: Direction,
    block: u32,
    rounds: u32,
) -> Option<u32> {
    let mut found = None;
    for loss in 0..2 * rounds {
        let sent = *now;
        if path_mtu.handle_loss(sent + MS, direction, block, sent) {
            found.get_or_insert(loss + 1);
        }
        if loss % 2 == 1 {
            *now += 10 * MS;
        }
    }
    found
}

#[test]
fn a_route_of_another_mtu_is_told_as_smaller_only_where_a_size_in_use_is() {
    let (mut path_mtu, _) = jumbo(true);
    (path_mtu.up.size, path_mtu.down.size) = (9000, 9000);
    assert!(!path_mtu.handle_route_mtu(9000, true), "as before");
    assert!(!path_mtu.handle_route_mtu(16_384, true), "a larger one is yet to be probed");
    assert!(path_mtu.handle_route_mtu(4352, true), "both ways");
    assert_eq!((path_mtu.up.size, path_mtu.down.size), (1500, 1500));

    // What has arrived is known better than the route of the way out.
    (path_mtu.up.size, path_mtu.down.size, path_mtu.down.confirmed) = (4352, 4352, 4352);
    assert!(path_mtu.handle_route_mtu(1492, true), "upwards alone");
    assert_eq!((path_mtu.up.size, path_mtu.down.size), (1492, 4352));

    // A black hole was found upwards already.
    (path_mtu.up.size, path_mtu.down.size, path_mtu.down.confirmed) = (1280, 1500, 1280);
    assert!(path_mtu.handle_route_mtu(1280, true), "downwards alone");
    assert_eq!((path_mtu.up.size, path_mtu.down.size), (1280, 1280));
}

#[test]
fn a_route_that_is_told_again_takes_nothing_back() {
    let mut path = Path::new(9000, 9000, true).writes(300);
    assert!(!path.path_mtu.handle_route_mtu(9000, true));
    assert_eq!((path.path_mtu.up.size, path.path_mtu.up.confirmed), (9000, 9000));
    assert_eq!(path.writes(300).probes, [9000], "nor is it probed again");
}

#[test]
fn after_another_link_ethernet_is_assumed_again_and_the_route_is_probed_again() {
    let mut path = Path::new(9000, 9000, true).writes(300).reads(300);
    assert_eq!((path.path_mtu.up.size, path.path_mtu.down.size), (9000, 9000));
    path.path_mtu.handle_link_event();
    assert_eq!((path.path_mtu.up.size, path.path_mtu.down.size), (1500, 1500));
    let path = path.writes(300);
    assert_eq!((path.path_mtu.up.size, path.probes.last()), (9000, Some(&9000)));
}

#[test]
fn data_of_both_directions_within_a_second_shares_the_smaller_size() {
    let (mut path_mtu, now) = jumbo(true);
    (path_mtu.up.size, path_mtu.down.size) = (9000, 4352);
    assert_eq!(path_mtu.size(), 4352, "nothing was sent yet");
    path_mtu.handle_sent(now, Direction::Up, 1280, MS);
    assert_eq!(path_mtu.size(), 9000, "upwards alone");
    path_mtu.handle_sent(now + SECOND, Direction::Down, 1280, MS);
    assert_eq!(path_mtu.size(), 4352);
    path_mtu.handle_sent(now + 2 * SECOND, Direction::Up, 1280, MS);
    assert_eq!(path_mtu.size(), 4352, "a second after it");
    path_mtu.handle_sent(now + 2 * SECOND + MS, Direction::Up, 1280, MS);
    assert_eq!(path_mtu.size(), 9000, "later than a second after it");

    (path_mtu.up.size, path_mtu.down.size) = (4352, 9000);
    path_mtu.handle_sent(now + 3 * SECOND + MS, Direction::Down, 1280, MS);
    assert_eq!(path_mtu.size(), 4352);
    path_mtu.handle_sent(now + 3 * SECOND + 2 * MS, Direction::Down, 1280, MS);
    assert_eq!(path_mtu.size(), 9000);
    let (mut path_mtu, now) = jumbo(true);
    (path_mtu.up.size, path_mtu.down.size) = (4352, 9000);
    path_mtu.handle_sent(now, Direction::Down, 1280, MS);
    assert_eq!(path_mtu.size(), 9000, "downwards alone");
}

#[test]
fn a_block_that_exceeds_the_path_s_mtu_by_a_byte_is_fragmented() {
    let (mut path_mtu, _) = jumbo(true);
    path_mtu.up.size = 9000;
    for (direction, block) in [(Direction::Up, 8768), (Direction::Down, 1280)] {
        let fragmented = [block - 1, block, block + 1].map(|it| path_mtu.is_fragmented(direction, it));
        assert_eq!(fragmented, [false, false, true], "{direction:?}");
    }
}

#[test]
fn where_fragments_are_not_seen_a_reply_confirms_no_more_than_is_in_use() {
    for (sees_fragments, reply, size, confirmed) in [
        (false, 1400, 1500, 1400),
        (false, 1500, 1500, 1500),
        (false, 1501, 1500, 0),
        (true, 1501, 1501, 1501),
    ] {
        let (mut path_mtu, now) = jumbo(sees_fragments);
        path_mtu.handle_reply(now + MS, now, reply, None);
        let found = (path_mtu.down.size, path_mtu.down.confirmed);
        assert_eq!(found, (size, confirmed), "{reply} bytes, {sees_fragments}");
    }
}

#[test]
fn a_short_read_does_not_confirm_the_size_that_it_was_to_probe() {
    for (missing, confirmed) in [(0, 9000), (156, 8768)] {
        let mut path = Path::new(9000, 9000, true);
        for _ in 0..29 {
            path.read();
        }
        let block = path.path_mtu.read_to_probe(path.now).unwrap();
        assert_eq!(block, 8768);
        path.path_mtu.handle_sent(path.now, Direction::Down, block, 100 * MS);
        let moved = Some((Direction::Down, block));
        path.path_mtu.handle_reply(path.now + MS, path.now, block + 156 - missing, moved);
        assert_eq!(path.path_mtu.down.confirmed, confirmed, "{missing} bytes are missing");
    }
}

#[test]
fn a_write_that_is_answered_confirms_its_datagram_if_that_was_whole() {
    for (moved, confirmed) in [
        (Some((Direction::Up, 640)), 640 + HEADERS),
        // Its headers are no longer than was said.
        (Some((Direction::Up, 1280)), 1500),
        (Some((Direction::Up, 1281)), 0),
        (Some((Direction::Down, 640)), 0),
        (None, 0),
    ] {
        let (mut path_mtu, now) = jumbo(true);
        path_mtu.handle_reply(now + MS, now, 150, moved);
        assert_eq!(path_mtu.up.confirmed, confirmed, "{moved:?}");
    }
}

#[test]
fn a_lost_block_had_the_shortest_headers_at_least() {
    let (mut path_mtu, now) = jumbo(true);
    assert!(!path_mtu.handle_loss(now + MS, Direction::Down, 1280, now));
    assert_eq!((path_mtu.down.least_lost, path_mtu.up.least_lost), (1280 + 72, u32::MAX));
}

#[test]
fn two_rounds_of_two_losses_are_a_black_hole_and_three_of_what_had_arrived() {
    // RFC 8899 §4.3.
    for (confirmed, found) in [(0, 4), (1351, 4), (1352, 6), (1500, 6)] {
        let (mut path_mtu, mut now) = jumbo(true);
        path_mtu.up.confirmed = confirmed;
        let lost = lose(&mut path_mtu, &mut now, Direction::Up, 1280, 3);
        assert_eq!((lost, path_mtu.up.size), (Some(found), BASE), "{confirmed} bytes had arrived");
    }
}

#[test]
fn below_the_base_upwards_nothing_is_given_up_any_more() {
    let (mut path_mtu, mut now) = jumbo(true);
    assert_eq!(lose(&mut path_mtu, &mut now, Direction::Up, 1280, 2), Some(4));
    assert_eq!(lose(&mut path_mtu, &mut now, Direction::Up, 1024, 2), Some(4), "not even the base passes");
    assert_eq!(path_mtu.up.size, 0);
    assert_eq!(lose(&mut path_mtu, &mut now, Direction::Up, 1024, 10), None);
    // Servers decide for themselves what they fragment.
    assert_eq!(lose(&mut path_mtu, &mut now, Direction::Down, 1280, 2), Some(4));
    assert_eq!(lose(&mut path_mtu, &mut now, Direction::Down, 1024, 10), None);
    assert_eq!(path_mtu.down.size, BASE);
}

#[test]
fn what_the_base_would_carry_and_what_is_fragmented_shows_no_black_hole() {
    for (block, found) in [(1024, None), (1025, Some(4)), (1280, Some(4)), (1281, None)] {
        let (mut path_mtu, mut now) = jumbo(true);
        assert_eq!(lose(&mut path_mtu, &mut now, Direction::Up, block, 10), found, "{block}");
    }
}

#[test]
fn without_sight_of_fragments_a_read_probes_no_more_than_ethernet() {
    // The route allows 9000 bytes, and after a black hole 1500 are looked for.
    for (sees_fragments, goal, probe) in
        [(false, 9000, None), (true, 9000, Some(8768)), (false, 1500, Some(1280)), (false, 1420, Some(1152))]
    {
        let (mut path_mtu, now) = jumbo(sees_fragments);
        (path_mtu.down.size, path_mtu.down.goal, path_mtu.down.earned) = (BASE, goal, 1 << 20);
        path_mtu.handle_reply(now, now - MS, 150, None);
        path_mtu.handle_sent(now, Direction::Down, 64, MS);
        assert_eq!(path_mtu.read_to_probe(now), probe, "{goal} bytes, {sees_fragments}");
        // Padded calls are not fragmented, whoever sees that.
        (path_mtu.up.goal, path_mtu.up.earned) = (9000, 1 << 20);
        path_mtu.handle_sent(now, Direction::Up, 64, MS);
        assert_eq!(path_mtu.poll_probe(now, MS), Some(9000));
    }
}

#[test]
fn probes_end_a_second_after_the_last_data_of_their_direction() {
    for (later, is_sent) in [(SECOND, true), (SECOND + MS, false)] {
        let (mut path_mtu, now) = jumbo(true);
        (path_mtu.up.earned, path_mtu.down.earned) = (1 << 20, 1 << 20);
        path_mtu.handle_sent(now, Direction::Up, 64, MS);
        path_mtu.handle_sent(now, Direction::Down, 64, MS);
        path_mtu.handle_reply(now + later, now, 150, None);
        assert_eq!(path_mtu.read_to_probe(now + later).is_some(), is_sent);
        assert_eq!(path_mtu.poll_probe(now + later, MS).is_some(), is_sent);
    }
}

#[test]
fn a_probe_is_lost_two_timeouts_after_it_was_sent_if_something_sent_later_is_answered() {
    for (timeout, after) in [(80 * MS, 160 * MS), (10 * MS, 100 * MS)] {
        let (mut path_mtu, now) = jumbo(true);
        path_mtu.up.earned = 1 << 20;
        path_mtu.handle_sent(now, Direction::Up, 64, MS);
        path_mtu.handle_reply(now, now - MS, 150, None);
        assert_eq!(path_mtu.poll_probe(now, timeout), Some(9000));
        assert_eq!((path_mtu.poll_probe(now, timeout), path_mtu.up.earned), (None, 0), "one at a time");
        for (since, sent, lost) in [
            (after - MS, now + MS, 0),
            (after, now, 0),
            (after, now - MS, 0),
            (after, now + MS, 1),
            (after + MS, now + MS, 1),
        ] {
            path_mtu.handle_reply(now + since, sent, 150, None);
            assert_eq!(path_mtu.up.lost_probes, lost, "{since:?} after it");
        }
    }
}

#[test]
fn the_third_lost_probe_makes_a_size_too_large_until_ten_minutes_have_passed() {
    // `MAX_PROBES` of RFC 8899 §5.1.2, and PMTU_RAISE_TIMER of §5.1.1.
    let path = Path::new(9000, 1500, true).writes(120);
    let mut path = Path { probes: Vec::new(), ..path };
    let (fails, since) = path.path_mtu.up.fails.unwrap();
    assert_eq!((fails, path.path_mtu.up.lost_probes), (9000, 0));
    let gains = |path: &Path, now| path.path_mtu.up.candidate(now, |size| size > 1500);
    assert_eq!(gains(&path, since), Some(4352), "of the usual sizes only this one is between");
    assert_eq!(gains(&path, since + RAISE - MS), Some(4352));
    assert_eq!(gains(&path, since + RAISE), Some(9000));
    path.path_mtu.up.fails = Some((1480, since));
    // Six usual sizes are between 1280 and 1454: half of them are left out at once.
    let candidate = |below, fails| {
        let up = Search { fails: Some((fails, since)), ..path.path_mtu.up };
        up.candidate(since, |size| size > below)
    };
    assert_eq!(candidate(1280, 1454), Some(1420));
    assert_eq!(candidate(1420, 1454), Some(1440));
    assert_eq!(candidate(1440, 1454), None);
}

#[test]
fn what_arrives_at_a_size_ends_the_losses_of_it_and_smaller_sizes_do_not() {
    let (mut path_mtu, now) = jumbo(true);
    path_mtu.handle_loss(now + MS, Direction::Up, 1280, now);
    assert_eq!((path_mtu.up.hole.lost(), path_mtu.up.least_lost), (1, 1352));
    path_mtu.up.confirm(1351);
    assert_eq!(path_mtu.up.hole.lost(), 1);
    path_mtu.up.confirm(1352);
    assert_eq!((path_mtu.up.hole.lost(), path_mtu.up.least_lost), (0, u32::MAX));
    assert_eq!((path_mtu.up.size, path_mtu.up.confirmed), (1500, 1352));
    path_mtu.up.fails = Some((4352, now));
    path_mtu.up.lost_probes = 2;
    path_mtu.up.confirm(1500);
    assert_eq!(path_mtu.up.lost_probes, 2, "it is in use already");
    path_mtu.up.confirm(4351);
    assert_eq!((path_mtu.up.size, path_mtu.up.lost_probes), (4351, 0));
    assert_eq!(path_mtu.up.fails, Some((4352, now)));
    path_mtu.up.confirm(4352);
    assert_eq!(path_mtu.up.fails, None, "it passes after all");
}

#[test]
fn fragments_settle_the_size_and_what_is_longer_fails() {
    for (fragment, size) in [(1420, 1420), (576, BASE), (70_000, LARGEST)] {
        let (mut path_mtu, now) = jumbo(true);
        path_mtu.handle_fragments(Some(fragment));
        path_mtu.handle_reply(now, now - MS, 8000, None);
        let down = &path_mtu.down;
        assert_eq!((down.size, down.confirmed, down.fails), (size, size, Some((size + 1, now))));
        // It was that datagram's alone.
        path_mtu.handle_reply(now, now - MS, size.min(9000), None);
        assert_eq!(path_mtu.down.size, size.max(size.min(9000)));
    }
}
