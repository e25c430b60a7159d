use super::*;

/// Bytes per millisecond of a connection at a millisecond.
type Rate = fn(u64) -> u64;

/// Downloads a file over connections that each deliver in order; returns the milliseconds it took and the bytes that came twice.
fn download(size: u64, round_trip: u64, connections: &[Rate]) -> (u64, u64) {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    let mut pieces = Pieces::new(RangeSet::new().missing(size), epoch, TransportTuning::DEFAULT);
    for _ in connections {
        pieces.add_connection(epoch, Duration::from_millis(round_trip));
    }
    // What a connection was asked for, from when on it may arrive.
    let mut queues: Vec<Vec<(u64, RunId, RangeSet)>> = vec![vec![]; connections.len()];
    let mut arrived = vec![0_u8; size as usize / 1024];
    for millisecond in 0..600_000 {
        let now = epoch + Duration::from_millis(millisecond);
        for (index, queue) in queues.iter_mut().enumerate() {
            while let Some((id, ranges)) = pieces.next(now, index) {
                assert!(!ranges.is_empty());
                queue.push((millisecond + round_trip, id, ranges));
            }
            assert!(queue.iter().map(|(.., ranges)| ranges.bytes()).sum::<u64>() <= 8 * (4 << 20));
            let mut budget = connections[index](millisecond);
            while let Some((from, id, ranges)) = queue.first_mut().filter(|_| budget > 0) {
                let Some(range) = ranges.take(budget.min(1024)).filter(|_| *from <= millisecond) else {
                    break;
                };
                budget -= range.length();
                arrived[range.start as usize / 1024] += 1;
                let id = *id;
                pieces.handle_bytes(now, id, range);
                if ranges.is_empty() {
                    queue.remove(0);
                    pieces.end(id);
                }
            }
            pieces.trouble(now);
        }
        while let Some(id) = pieces.needless() {
            pieces.end(id);
        }
        if pieces.left() == 0 {
            assert!(arrived.iter().all(|&times| times > 0));
            return (millisecond, pieces.twice());
        }
    }
    panic!("{} bytes never came", pieces.left());
}

const SIZE: u64 = 16 << 20;

#[test]
fn one_connection_is_kept_busy() {
    let (time, twice) = download(SIZE, 50, &[|_| 10 << 10]);
    assert!(time < 1600 + 200 && twice == 0, "{time} ms, {twice} bytes twice");
}

#[test]
fn connections_add_up_whatever_their_rates() {
    let (time, twice) = download(SIZE, 50, &[|_| 6 << 10, |_| 2 << 10, |_| 1 << 10, |_| 1 << 10]);
    assert!(time < 1600 * 5 / 4 && twice < SIZE / 16, "{time} ms, {twice} bytes twice");
}

#[test]
fn what_a_stalled_connection_owes_comes_over_another() {
    let stalls: Rate = |millisecond| if millisecond < 400 { 5 << 10 } else { 0 };
    let (time, twice) = download(SIZE, 50, &[stalls, |_| 5 << 10]);
    assert!(time < 3200 * 5 / 4 && twice == 0, "{time} ms, {twice} bytes twice");
}

#[test]
fn a_stall_that_ends_costs_little() {
    let pauses: Rate = |millisecond| if (400..1200).contains(&millisecond) { 0 } else { 5 << 10 };
    let (time, twice) = download(SIZE, 50, &[pauses, pauses]);
    // 1640 ms, the pause, and two round trips: the second connection is asked for little at first.
    assert!(time < 2440 + 100 && twice < SIZE / 16, "{time} ms, {twice} bytes twice");
}

#[test]
fn short_losses_are_less_trouble_than_long_silences() {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    let at = |milliseconds| epoch + Duration::from_millis(milliseconds);
    let mut pieces = Pieces::new(RangeSet::new().missing(SIZE), epoch, TransportTuning::DEFAULT);
    pieces.add_connection(epoch, Duration::from_millis(100));
    let (id, _) = pieces.next(epoch, 0).unwrap();
    assert_eq!(pieces.trouble(at(5000)), 0, "nothing has come yet: the server may be slow");
    pieces.handle_bytes(at(5000), id, Range { start: 0, end: 1000 });
    assert_eq!(pieces.trouble(at(5112)), 0);
    assert_eq!((pieces.trouble(at(5113)), pieces.trouble(at(5299))), (1, 1), "more than a round trip");
    assert_eq!((pieces.trouble(at(5300)), pieces.trouble(at(9000))), (3, 3), "three round trips");
    pieces.handle_bytes(at(9000), id, Range { start: 1000, end: 2000 });
    assert_eq!(pieces.trouble(at(9160)), 4);
}

#[test]
fn a_connection_that_owes_nothing_may_be_silent() {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    let at = |milliseconds| epoch + Duration::from_millis(milliseconds);
    let mut pieces = Pieces::new(RangeSet::new().missing(1000), epoch, TransportTuning::DEFAULT);
    pieces.add_connection(epoch, Duration::from_millis(100));
    let (id, _) = pieces.next(epoch, 0).unwrap();
    pieces.handle_bytes(at(100), id, Range { start: 0, end: 1000 });
    pieces.end(id);
    assert_eq!(pieces.trouble(at(5000)), 0);
}

/// A file of so many KiB over so many connections with this round trip, and the time.
fn pieces(kib: u64, connections: usize, round_trip: Duration) -> (Pieces, Instant) {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    let mut pieces = Pieces::new(RangeSet::new().missing(kib << 10), epoch, TransportTuning::DEFAULT);
    (0..connections).for_each(|_| pieces.add_connection(epoch, round_trip));
    (pieces, epoch)
}

const MS: Duration = Duration::from_millis(1);

/// What a connection is asked for at once: how many pieces, and their bytes.
fn asked(pieces: &mut Pieces, now: Instant, connection: usize) -> (usize, u64) {
    let asked: Vec<u64> =
        std::iter::from_fn(|| pieces.next(now, connection).map(|(_, ranges)| ranges.bytes())).collect();
    (asked.len(), asked.iter().sum())
}

/// From one KiB to another.
const fn range(start: u64, end: u64) -> Range {
    Range { start: start << 10, end: end << 10 }
}

#[test]
fn connections_share_what_is_asked_for_at_once() {
    for (connections, round_trip, expected) in [
        // 4 MiB in pieces of 256 KiB, and of 1 MiB where the server is near.
        (1, 50 * MS, (16, 4 << 20)),
        (1, TransportTuning::DEFAULT.near, (16, 4 << 20)),
        (1, TransportTuning::DEFAULT.near - MS / 2, (4, 4 << 20)),
        (2, TransportTuning::DEFAULT.near - MS / 2, (4, 4 << 20)),
        (2, 50 * MS, (8, 2 << 20)),
        // 1 MiB at least.
        (4, 50 * MS, (4, 1 << 20)),
        (8, 50 * MS, (4, 1 << 20)),
    ] {
        let (mut pieces, epoch) = pieces(1 << 20, connections, round_trip);
        // The others are asked for little at first: 128 KiB.
        let others = if round_trip < TransportTuning::DEFAULT.near { expected } else { (2, 128 << 10) };
        for connection in 0..connections {
            let expected = if connection == 0 { expected } else { others };
            assert_eq!(asked(&mut pieces, epoch, connection), expected, "{connections}, {round_trip:?}");
        }
        assert_eq!(pieces.next(epoch, connections), None, "there is no such connection");
    }
}

#[test]
fn a_connection_that_owes_something_and_is_silent_is_asked_for_half_a_mebibyte() {
    // Two round trips, and 100 ms at least.
    for (round_trip, silence) in [(20, 100), (50, 100), (80, 160)] {
        for (silence, more) in [(silence - 1, 15), (silence, 1)] {
            let (mut pieces, epoch) = pieces(1 << 20, 1, round_trip * MS);
            pieces.next(epoch, 0).unwrap();
            let (count, _) = asked(&mut pieces, epoch + silence * MS, 0);
            assert_eq!(count, more, "{silence} ms of {round_trip}");
        }
    }
}

#[test]
fn bytes_count_once_and_what_came_twice_is_known() {
    let (mut pieces, epoch) = pieces(256, 1, 50 * MS);
    let (id, _) = pieces.next(epoch, 0).unwrap();
    assert_eq!(pieces.handle_bytes(epoch + MS, id, range(0, 10)), 10 << 10);
    assert_eq!(pieces.handle_bytes(epoch + 2 * MS, id, range(5, 15)), 5 << 10);
    assert_eq!(pieces.handle_bytes(epoch + 3 * MS, id, range(0, 15)), 0);
    assert_eq!((pieces.left(), pieces.twice()), (241 << 10, 20 << 10));
    assert_eq!(pieces.arrived(), epoch + 2 * MS, "nothing new since");
}

#[test]
fn what_a_run_has_not_brought_is_asked_for_again() {
    let (mut pieces, epoch) = pieces(256, 2, 50 * MS);
    let (id, _) = pieces.next(epoch, 0).unwrap();
    pieces.handle_bytes(epoch + MS, id, range(0, 10));
    pieces.handle_bytes(epoch + MS, id, range(20, 30));
    pieces.end(id);
    pieces.end(id);
    let (_, again) = pieces.next(epoch + MS, 1).unwrap();
    assert_eq!(again.iter().collect::<Vec<_>>(), [range(10, 20)]);
    let (_, again) = pieces.next(epoch + MS, 1).unwrap();
    assert_eq!(again.iter().collect::<Vec<_>>(), [range(30, 94)]);
}

#[test]
fn a_piece_is_asked_for_again_where_that_takes_less_than_half_of_the_time() {
    // The second connection has brought its 256 KiB: 640 KiB a second. The first has brought 128 KiB, and takes 0.4 s for
    // the others, against 0.15 s and 0.2 s; or 64 KiB, and takes 1.2 s, against 0.15 s and 0.3 s.
    for (brought, again) in [(128, None), (64, Some(range(64, 256)))] {
        let (mut pieces, epoch) = pieces(512, 3, 50 * MS);
        let (slow, _) = pieces.next(epoch, 0).unwrap();
        let now = epoch + 50 * MS;
        pieces.handle_bytes(now, slow, range(0, brought));
        while !pieces.waiting.is_empty() {
            let (fast, ranges) = pieces.next(now, 1).unwrap();
            ranges.iter().for_each(|range| {
                pieces.handle_bytes(now, fast, range);
            });
            pieces.end(fast);
        }
        let copy = pieces.next(now, 1);
        let ranges = copy.as_ref().and_then(|(_, ranges)| ranges.iter().next());
        assert_eq!(ranges, again, "{brought} KiB");
        let Some((copy, _)) = copy else { continue };
        assert_eq!(pieces.next(now, 2), None, "twice at most");
        assert_eq!(pieces.needless(), None);
        pieces.handle_bytes(now, copy, range(64, 256));
        assert_eq!(pieces.needless(), Some(slow), "the other one has brought it");
        pieces.end(slow);
        assert_eq!((pieces.needless(), pieces.left()), (Some(copy), 0));
    }
}

#[test]
fn a_silent_connection_asks_for_what_another_owes_only_if_it_owes_nothing() {
    for owes in [false, true] {
        // The first owes all that is left, or all but the first 64 KiB, and neither brings anything for a second.
        let (mut pieces, epoch) = pieces(256 + 64, 2, 50 * MS);
        let (own, ranges) = pieces.next(epoch, 1).unwrap();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [range(0, 64)]);
        asked(&mut pieces, epoch, 0);
        if !owes {
            pieces.handle_bytes(epoch + 50 * MS, own, range(0, 64));
            pieces.end(own);
        }
        let copy = pieces.next(epoch + 1050 * MS, 1).map(|(_, ranges)| ranges.iter().collect::<Vec<_>>());
        assert_eq!(copy, (!owes).then(|| vec![range(64, 320)]));
    }
}

/// Lets a second connection bring so many bytes per millisecond for so long, while it is asked for more whenever it may be; returns the most that
/// it has owed, and the largest piece.
fn trial(round_trip: Duration, rate: u64, millis: u32) -> (u64, u64) {
    let (mut pieces, epoch) = pieces(64 << 10, 2, round_trip);
    asked(&mut pieces, epoch, 0);
    let (mut queue, mut owed, mut largest) = (std::collections::VecDeque::new(), 0, 0);
    for millisecond in 0..millis {
        let now = epoch + millisecond * MS;
        while let Some((id, ranges)) = pieces.next(now, 1) {
            largest = largest.max(ranges.bytes());
            queue.push_back((id, ranges));
        }
        owed = owed.max(pieces.pending(1));
        let mut budget = if now >= epoch + round_trip { rate } else { 0 };
        while let Some((id, ranges)) = queue.front_mut().filter(|_| budget > 0) {
            let range = ranges.take(budget).unwrap();
            budget -= range.length();
            pieces.handle_bytes(now, *id, range);
            if ranges.is_empty() {
                pieces.end(*id);
                queue.pop_front();
            }
        }
    }
    (owed, largest)
}

#[test]
fn on_a_slow_path_a_further_connection_owes_little_after_a_trial() {
    for round_trip in [20, 50, 100, 300] {
        // 100 kB/s for 2 s.
        let (owed, largest) = trial(round_trip * MS, 100, 2000);
        assert!(owed <= 256 << 10, "{owed} bytes, {round_trip} ms");
        assert!((64 << 10..=128 << 10).contains(&largest), "pieces of {largest} bytes, {round_trip} ms");
    }
}

#[test]
fn a_further_connection_is_asked_for_what_it_brings_in_a_second_and_two_round_trips() {
    // 1 MB/s: 1.2 MB, and a piece beyond them at most.
    let (owed, largest) = trial(100 * MS, 1000, 4000);
    assert!((1_150_000..1_250_000 + (256 << 10)).contains(&owed), "{owed} bytes");
    assert_eq!(largest, 256 << 10);
    // The same over 400 ms: 1.8 MB.
    let (owed, _) = trial(400 * MS, 1000, 12_000);
    assert!((1_750_000..1_850_000 + (256 << 10)).contains(&owed), "{owed} bytes");
    // 20 MB/s: half of 4 MiB, as the first.
    let (owed, _) = trial(100 * MS, 20_000, 4000);
    assert!((2 << 20..(2 << 20) + (256 << 10)).contains(&owed), "{owed} bytes");
}
