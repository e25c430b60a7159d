//! The rules of docs/transports.md, to the millisecond: UDP is in use, and the round trip takes 5 ms.

use super::*;

const UDP: Protocol = Protocol::Udp;
const TCP: Protocol = Protocol::Tcp;

/// More than any trial costs.
const MUCH: u64 = 1 << 40;

/// A choice, and the time.
struct World {
    choice: Choice,
    epoch: Instant,
}

impl World {
    fn new() -> Self {
        Self::with_round_trip(5)
    }

    fn with_round_trip(millis: u64) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let epoch = Instant::now();
        let mut choice =
            Choice::new(epoch, UDP, Reason::OnlyOne, Duration::from_millis(millis), TransportTuning::DEFAULT);
        choice.begin(epoch);
        Self { choice, epoch }
    }

    fn at(&self, millis: u64) -> Instant {
        self.epoch + Duration::from_millis(millis)
    }

    fn bytes(&mut self, millis: u64, over: Protocol, bytes: u64) {
        self.choice.handle_bytes(self.at(millis), over, bytes);
    }

    fn answer(&mut self, millis: u64) {
        self.choice.handle_answer(self.at(millis));
    }

    /// Decides while so much is left: whether the other transport is tried, and whether it is asked.
    fn decide_with(&mut self, millis: u64, left: u64) -> (bool, bool) {
        let Use { trial, ask, .. } = self.choice.decide(self.at(millis), left);
        (trial, ask)
    }

    fn decide(&mut self, millis: u64) -> (bool, bool) {
        self.decide_with(millis, MUCH)
    }

    /// UDP moves 100,000 bytes a second from one moment to another, TCP so many bytes every 100 ms.
    fn steady(&mut self, from: u64, to: u64, tcp: u64) {
        for millis in (from + 100..=to).step_by(100) {
            self.bytes(millis, UDP, 10_000);
            if tcp > 0 {
                self.bytes(millis, TCP, tcp);
            }
        }
    }

    /// UDP has stalled, TCP has answered, and a trial has begun.
    fn in_trial_after_a_stall() -> Self {
        let mut world = Self::new();
        world.decide(1000);
        world.answer(1100);
        assert_eq!(world.decide(2600), (true, false));
        world
    }
}

const NOTHING: (bool, bool) = (false, false);
const ASK: (bool, bool) = (false, true);
const TRIAL: (bool, bool) = (true, false);

#[test]
fn a_transport_that_moves_nothing_for_a_second_makes_the_other_one_asked() {
    let mut world = World::new();
    assert_eq!([999, 1000, 1001].map(|millis| world.decide(millis)), [NOTHING, ASK, ASK]);
    // Eight round trips, if that is longer;
    let mut world = World::with_round_trip(200);
    assert_eq!([1599, 1600].map(|millis| world.decide(millis)), [NOTHING, ASK]);
    // and twice the longest time between two moves lately.
    let mut world = World::new();
    world.bytes(900, UDP, 1000);
    world.bytes(1000, UDP, 1000);
    // That was 900 ms, of which a sixteenth is forgotten with every move: 1687.5 ms from 1000 ms on.
    assert_eq!([2687, 2688].map(|millis| world.decide(millis)), [NOTHING, ASK]);
}

#[test]
fn the_other_transport_is_tried_if_the_stall_lasts_1_5_s_beyond_its_answer() {
    let mut world = World::new();
    world.answer(500);
    world.decide(1000);
    assert_eq!(world.decide(3000), ASK, "it has not answered since it was asked");
    world.answer(3100);
    assert_eq!([4599, 4600].map(|millis| world.decide(millis)), [NOTHING, TRIAL]);
}

#[test]
fn a_move_of_the_stalled_transport_ends_the_question() {
    let mut world = World::new();
    world.decide(1000);
    world.answer(1100);
    world.bytes(1200, UDP, 1);
    assert_eq!(world.decide(2800), NOTHING, "not yet twice 1.2 s");
    assert_eq!(world.decide(3600), ASK, "from the beginning");
    // What the other one moves for others does not.
    world.answer(3600);
    world.bytes(3700, TCP, 1);
    assert_eq!(world.decide(5100), TRIAL);
}

#[test]
fn after_two_seconds_of_trial_a_stalled_transport_is_left_for_one_that_moves_anything() {
    let mut world = World::in_trial_after_a_stall();
    world.bytes(2700, TCP, 1);
    assert_eq!(world.decide(4599), TRIAL);
    assert_eq!(world.decide(4600), NOTHING);
    assert_eq!(world.choice.verdict(), (TCP, Reason::Stalled(Duration::from_millis(4600))));
    // Eight round trips, if that is longer.
    let mut world = World::with_round_trip(300);
    world.decide(2400);
    world.answer(2400);
    world.decide(3900);
    world.bytes(4000, TCP, 1);
    assert_eq!([6299, 6300].map(|millis| world.decide(millis)), [TRIAL, NOTHING]);
    assert_eq!(world.choice.verdict().0, TCP);
}

#[test]
fn a_trial_in_which_neither_moves_goes_on() {
    let mut world = World::in_trial_after_a_stall();
    assert_eq!(world.decide(60_000), TRIAL);
    assert_eq!(world.choice.verdict().0, UDP);
}

#[test]
fn a_transfer_that_ends_in_a_trial_decides_it_if_only_the_other_transport_moved() {
    let mut world = World::in_trial_after_a_stall();
    world.bytes(2700, TCP, 1);
    world.choice.end(world.at(2800));
    assert_eq!(world.choice.verdict(), (TCP, Reason::Stalled(Duration::from_millis(2800))));

    let mut world = World::in_trial_after_a_stall();
    world.bytes(2700, TCP, 1);
    world.bytes(2700, UDP, 1);
    world.choice.end(world.at(2800));
    assert_eq!(world.choice.verdict().0, UDP, "both did");

    let mut world = World::in_trial_after_a_stall();
    world.choice.begin(world.at(2600));
    world.bytes(2700, TCP, 1);
    world.choice.end(world.at(2800));
    assert_eq!(world.choice.verdict().0, UDP, "another transfer waits for more");
    world.choice.end(world.at(2900));
    assert_eq!(world.choice.verdict().0, TCP);
}

#[test]
fn what_moves_is_compared_after_eight_seconds_if_enough_is_left() {
    // 100,000 bytes a second, and a trial of 2 s that is to be a tenth of what is left at most.
    let mut world = World::new();
    world.steady(0, 7900, 0);
    assert_eq!(world.decide(7999), NOTHING);
    world.steady(7900, 8000, 0);
    assert_eq!(world.decide_with(8000, 2_000_000), NOTHING);
    assert_eq!(world.decide_with(8000, 2_000_001), ASK);
    world.answer(8010);
    assert_eq!(world.decide_with(8010, 2_100_000), TRIAL, "no stall, and nothing to wait for");
}

#[test]
fn the_other_transport_is_taken_if_it_is_more_than_half_as_fast_again() {
    for (tcp, over) in [(15_000, UDP), (15_100, TCP)] {
        let mut world = World::new();
        world.steady(0, 8000, 0);
        world.decide(8000);
        world.answer(8000);
        world.decide(8000);
        world.steady(8000, 10_000, tcp);
        assert_eq!(world.decide(10_000), NOTHING, "the trial is over");
        assert_eq!(world.choice.verdict().0, over, "{tcp}");
        if over == TCP {
            assert_eq!(world.choice.verdict().1, Reason::Faster(151_000.0, 100_000.0));
        }
    }
}

#[test]
fn a_trial_that_takes_from_the_one_in_use_is_compared_with_what_that_moved_alone() {
    let mut world = World::new();
    world.steady(0, 8000, 0);
    world.decide(8000);
    world.answer(8000);
    world.decide(8000);
    for millis in (8100..=10_000).step_by(100) {
        world.bytes(millis, UDP, 2000);
        world.bytes(millis, TCP, 8000);
    }
    world.decide(10_000);
    assert_eq!(world.choice.verdict().0, UDP, "four times as fast in the trial, and no faster than before");
}

#[test]
fn each_trial_doubles_the_time_to_the_next_up_to_128_s() {
    let mut world = World::new();
    let (mut moved, mut pauses) = (0, Vec::new());
    for _ in 0..6 {
        let mut now = moved;
        loop {
            world.steady(now, now + 100, 0);
            now += 100;
            if world.decide(now) == ASK {
                break;
            }
        }
        pauses.push(now - moved);
        world.answer(now);
        world.decide(now);
        world.steady(now, now + 2000, 0);
        moved = now + 2000;
        world.decide(moved);
    }
    assert_eq!(pauses, [8000, 16_000, 32_000, 64_000, 128_000, 128_000]);
}

#[test]
fn outages_are_not_counted_as_time_in_which_a_transport_was_slow() {
    let mut world = World::new();
    world.steady(0, 4000, 0);
    // 600 ms without anything, which is more than 500 ms and more than four times 100 ms.
    world.steady(4500, 8500, 0);
    assert_eq!(world.decide(8500), NOTHING, "7.9 s so far");
    world.steady(8500, 8600, 0);
    assert_eq!(world.decide_with(8600, 2_020_000), NOTHING, "810,000 bytes in 8 s");
    assert_eq!(world.decide_with(8600, 2_030_000), ASK);
    // 400 ms are none.
    let mut world = World::new();
    world.steady(0, 4000, 0);
    world.steady(4300, 8000, 0);
    assert_eq!(world.decide(8000), ASK);
}

#[test]
fn a_silence_is_an_outage_if_it_takes_four_times_as_long_as_usual() {
    // Each time counts for an eighth: after three moves 400 ms apart 132 ms are usual, and after four 166 ms.
    for (moves, decision) in [(3, NOTHING), (4, ASK)] {
        let mut world = World::new();
        for millis in (400..=400 * moves).step_by(400) {
            world.bytes(millis, UDP, 40_000);
        }
        world.steady(400 * moves + 500, 8000, 0);
        assert_eq!(world.decide(8000), decision, "600 ms after {moves} moves");
    }
}

#[test]
fn a_transfer_after_a_pause_begins_from_the_start() {
    let mut world = World::new();
    world.steady(0, 7000, 0);
    world.choice.end(world.at(7000));
    world.choice.begin(world.at(60_000));
    assert_eq!(world.decide(60_999), NOTHING);
    assert_eq!(world.decide(61_000), ASK);
    // A second one beside it changes nothing.
    world.choice.begin(world.at(61_000));
    assert_eq!(world.decide(61_000), ASK);
}

#[test]
fn each_reason_is_said_in_words() {
    let (near, far) = (Duration::from_micros(250), Duration::from_millis(40));
    for (reason, words) in [
        (Reason::Given, "as asked for"),
        (Reason::OnlyOne, "the other transport has not answered"),
        (Reason::Near(near), "the server is near (0.25 ms), where TCP costs least"),
        (Reason::Far(far), "the server is 40.0 ms away, and UDP loses least on bad links"),
        (
            Reason::Stalled(Duration::from_millis(4600)),
            "the other transport moved nothing for 4.6 s while this one did",
        ),
        (Reason::Fast(10_000_000.0), "the link is fast (UDP moved 80.00 Mbit/s), where TCP costs least"),
        (
            Reason::Slower(1_000_000.0, 10_000_000.0),
            "TCP moved only 8.00 Mbit/s, this one 80.00 Mbit/s before it",
        ),
        (
            Reason::Faster(2_500_000.0, 125_000.0),
            "side by side this one moved 20.00 Mbit/s, the other one 1.00 Mbit/s",
        ),
    ] {
        assert_eq!(reason.to_string(), words);
    }
}

/// In three seconds UDP moves 150,000 bytes, and the server loses so many.
fn overflowing(lost: u64) -> World {
    let mut world = World::new();
    for millis in (100..=3000).step_by(100) {
        world.bytes(millis, UDP, 5000);
    }
    world.choice.handle_overflow(lost);
    world
}

#[test]
fn where_the_server_loses_more_than_a_quarter_tcp_is_taken_without_a_trial() {
    for (lost, taken) in [(49_000, false), (51_000, true)] {
        let mut world = overflowing(lost);
        assert_eq!(world.decide(3000), (false, true), "TCP is asked");
        assert_eq!(world.decide(3010), (false, true));
        world.answer(3020);
        assert_eq!(world.decide(3020), (false, false), "{lost}");
        let (over, reason) = world.choice.verdict();
        assert_eq!(over == TCP, taken, "{lost}");
        assert_eq!(
            matches!(reason, Reason::Overflow(share) if share > 0.25 && share < 0.26),
            taken,
            "{lost}"
        );
    }
}

#[test]
fn it_stays_where_the_loss_costs_less_than_a_trial() {
    // 50,000 bytes a second, of which two fifths of the time are lost: 5 s, of which 2 s are a trial.
    for (left, taken) in [(245_000, false), (260_000, true)] {
        let mut world = overflowing(100_000);
        assert_eq!(world.decide_with(3000, left), (false, true));
        world.answer(3000);
        world.decide_with(3000, left);
        assert_eq!(world.choice.verdict().0 == TCP, taken, "{left}");
    }
}

#[test]
fn over_tcp_and_after_it_an_earlier_overflow_does_not_count() {
    let mut world = overflowing(100_000);
    world.decide(3000);
    world.answer(3000);
    world.decide(3000);
    world.bytes(3100, TCP, 1000);
    assert_eq!((world.choice.verdict().0, world.decide(3100)), (TCP, (false, false)));
    // TCP stalls, and UDP moves something: the bytes that it lost before are no reason to leave it again.
    assert_eq!(world.decide(4200), (false, true));
    world.answer(4200);
    assert_eq!(world.decide(5700), (true, false));
    world.bytes(7000, UDP, 100_000);
    world.decide(7700);
    world.bytes(7800, UDP, 1000);
    assert_eq!((world.choice.verdict().0, world.decide(7800)), (UDP, (false, false)));
}

#[test]
fn a_slow_start_over_tcp_is_no_stall() {
    let mut world = overflowing(100_000);
    world.decide(3000);
    world.answer(3000);
    world.decide(3000);
    assert_eq!((world.choice.verdict().0, world.decide(5999)), (TCP, (false, false)));
    assert_eq!(world.decide(6000), (false, true), "a trial and a stall");
    world.bytes(6010, TCP, 1000);
    // A gap of 3.01 s counts twice.
    assert_eq!([12_029, 12_030].map(|millis| world.decide(millis)), [(false, false), (false, true)]);
}

#[test]
fn a_stall_needs_an_answer_of_its_own() {
    let mut world = overflowing(1000);
    assert_eq!(world.decide(3000), (false, true));
    world.answer(3000);
    assert_eq!(world.decide(3000), (false, false), "too little is lost");
    assert_eq!(world.decide(4000), (false, true), "UDP has been silent for a second");
    world.answer(4010);
    assert_eq!((world.decide(5509), world.decide(5510)), ((false, false), (true, false)));
}

/// UDP moves so many bytes per millisecond: when TCP is taken, if within 800 ms.
fn taken_at(round_trip: u64, rate: u64) -> Option<u64> {
    let mut world = World::with_round_trip(round_trip);
    (1..=800).find(|&millis| {
        world.bytes(millis, UDP, rate);
        if world.decide(millis) == ASK {
            world.answer(millis);
            world.decide(millis);
        }
        matches!(world.choice.verdict(), (TCP, Reason::Fast(_)))
    })
}

#[test]
fn tcp_is_taken_without_a_trial_where_udp_is_fast_and_the_round_trip_short() {
    for (round_trip, rate, taken) in [
        // 512 KiB at 8 MiB per second or more,
        (5, 8400, Some(63)),
        (5, 8380, None),
        (5, 10_000, Some(53)),
        // and 50 ms, after which a rate can be told.
        (5, 100_000, Some(50)),
        // The longest test takes 2 s.
        (100, 10_000, Some(53)),
        (101, 10_000, None),
    ] {
        assert_eq!(taken_at(round_trip, rate), taken, "{round_trip} ms, {rate}");
    }
}

/// UDP has moved 10,000 bytes per millisecond for 60 ms.
fn on_a_fast_link() -> World {
    let mut world = World::new();
    (1..=60).for_each(|millis| world.bytes(millis, UDP, 10_000));
    world
}

#[test]
fn what_ends_within_the_test_of_tcp_stays_where_it_is() {
    for (left, decision) in [(4_999_000, NOTHING), (5_001_000, ASK)] {
        assert_eq!(on_a_fast_link().decide_with(60, left), decision);
    }
}

/// The same, and TCP has been taken.
fn in_a_test() -> World {
    let mut world = on_a_fast_link();
    assert_eq!(world.decide(60), ASK);
    world.answer(60);
    assert_eq!((world.decide(60), world.choice.verdict().0), (NOTHING, TCP));
    world
}

/// TCP moves so many bytes per millisecond from one on: when UDP is taken again.
fn left_at(world: &mut World, from: u64, to: u64, rate: u64) -> Option<u64> {
    (from + 1..=to).find(|&millis| {
        if rate > 0 {
            world.bytes(millis, TCP, rate);
        }
        world.decide(millis);
        world.choice.verdict().0 == UDP
    })
}

#[test]
fn tcp_that_moves_less_than_two_thirds_of_what_udp_did_is_left_after_half_a_second() {
    for (rate, at) in [(6700, None), (6600, Some(560)), (0, Some(560))] {
        let mut world = in_a_test();
        assert_eq!(left_at(&mut world, 60, 5000, rate), at, "{rate}");
        if at.is_some() {
            assert_eq!(world.choice.verdict().1, Reason::Slower(rate as f64 * 1000.0, 1e7));
        }
    }
    // Also when it becomes slower later: in the half second in which it does.
    let mut world = in_a_test();
    assert_eq!(left_at(&mut world, 60, 3000, 20_000), None);
    assert_eq!(left_at(&mut world, 3000, 5000, 1000), Some(3560));
}

#[test]
fn after_a_failed_test_there_is_no_other_one() {
    let mut world = in_a_test();
    assert_eq!(left_at(&mut world, 60, 560, 0), Some(560));
    // A trial of both is due after 3.4 s.
    for millis in 561..=3900 {
        world.bytes(millis, UDP, 10_000);
        assert_eq!(world.decide(millis), NOTHING, "{millis}");
    }
}
