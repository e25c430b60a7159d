mod rules;

use super::*;

/// Bytes per second of UDP and TCP at a time in seconds; what each does alone, the trial takes nothing away.
type Path = fn(f64) -> [f64; 2];

/// A transfer begins over a transport; its round trip takes 5 ms.
fn choice_from(epoch: Instant, start: Protocol) -> Choice {
    let mut choice =
        Choice::new(epoch, start, Reason::OnlyOne, Duration::from_millis(5), TransportTuning::DEFAULT);
    choice.begin(epoch);
    choice
}

/// Moves data for so long and returns what was decided, each with its time in tenths of a second.
fn run(start: Protocol, path: Path, seconds: u32) -> Vec<(u32, Protocol)> {
    run_from(start, path, seconds, (Duration::from_millis(5), u64::MAX))
}

/// The same with another round trip, and so many bytes that are left all the time.
fn run_from(
    start: Protocol,
    path: Path,
    seconds: u32,
    (round_trip, left): (Duration, u64),
) -> Vec<(u32, Protocol)> {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    let mut choice = choice_from(epoch, start);
    choice.round_trip = round_trip;
    let mut verdicts = vec![];
    for tick in 1..seconds * 10 {
        let now = epoch + Duration::from_millis(100) * tick;
        let rates = path(f64::from(tick) / 10.0);
        let uses = choice.decide(now, left);
        for over in [Protocol::Udp, Protocol::Tcp] {
            let bytes = rates[index(over)] / 10.0;
            if (over == uses.current || uses.trial) && bytes > 0.0 {
                choice.handle_bytes(now, over, bytes as u64);
            }
        }
        if uses.ask && rates[index(other(uses.current))] > 0.0 {
            choice.handle_answer(now);
        }
        if choice.verdict().0 != verdicts.last().map_or(start, |&(_, over)| over) {
            verdicts.push((tick, choice.verdict().0));
        }
    }
    verdicts
}

#[test]
fn what_works_stays_even_if_the_other_is_a_little_faster() {
    assert_eq!(run(Protocol::Udp, |_| [1e6, 1.4e6], 120), []);
    assert_eq!(run(Protocol::Tcp, |_| [1.4e6, 1e6], 120), []);
}

#[test]
fn a_fade_that_takes_both_moves_nothing() {
    let fade: Path = |second| if (5.0..65.0).contains(&second) { [0.0; 2] } else { [1e6; 2] };
    assert_eq!(run(Protocol::Udp, fade, 120), []);
}

#[test]
fn a_transport_that_moves_nothing_is_left_when_the_other_one_moves() {
    let moved = run(Protocol::Udp, |_| [0.0, 1e6], 60);
    assert!(matches!(moved[..], [(at, Protocol::Tcp)] if at < 50), "{moved:?}");
    let moved = run(Protocol::Tcp, |second| if second < 5.0 { [1e6; 2] } else { [1e6, 0.0] }, 60);
    assert!(matches!(moved[..], [(at, Protocol::Udp)] if at < 100), "{moved:?}");
}

#[test]
fn one_that_is_throttled_is_left_after_a_trial_and_returned_to_when_that_is_over() {
    let policed: Path = |second| if second < 60.0 { [1e5, 5e6] } else { [5e6, 1e5] };
    let moved = run(Protocol::Udp, policed, 200);
    assert!(matches!(moved[..], [(first, Protocol::Tcp), (_, Protocol::Udp)] if first < 120), "{moved:?}");
}

#[test]
fn the_faster_a_path_the_sooner_the_other_transport_is_tried() {
    // The trial of 8 MiB takes 0.9 s (8 round trips), at most 2 s; before it, UDP is alone for four times as long.
    for (path, moved_at) in [((|_| [35e6, 108e6]) as Path, 43..=48), (|_| [1e6, 3e6], 100..=105)] {
        // Too long for a test of TCP alone.
        let moved = run_from(Protocol::Udp, path, 20, (Duration::from_millis(110), u64::MAX));
        assert!(matches!(moved[..], [(at, Protocol::Tcp)] if moved_at.contains(&at)), "{moved:?}");
    }
}

#[test]
fn a_test_of_tcp_that_failed_is_repeated_after_ever_longer_pauses() {
    // Too little is left for a trial.
    let moved = |path| run_from(Protocol::Udp, path, 70, (Duration::from_millis(5), 60 << 20));
    let times = |moved: Vec<(u32, Protocol)>| -> Vec<u32> {
        moved.into_iter().filter(|&(_, over)| over == Protocol::Tcp).map(|(at, _)| at).collect()
    };
    // The machine was busy when it was tested.
    let busy: Path = |second| if second < 2.0 { [20e6, 5e6] } else { [20e6, 100e6] };
    let after_load = moved(busy);
    assert_eq!(after_load.last().map(|&(_, over)| over), Some(Protocol::Tcp));
    let (after_load, never) = (times(after_load), times(moved(|_| [20e6, 5e6])));
    assert!(after_load.len() == 2 && after_load[1] < 55, "{after_load:?}");
    // Half a second each, in which TCP moves a quarter.
    let pauses: Vec<u32> = never.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() == 4, "{never:?}");
    assert!(
        pauses.iter().zip([40, 80, 160, 320]).all(|(&pause, wanted)| (wanted..wanted + 15).contains(&pause)),
        "{pauses:?}"
    );
}

#[test]
fn what_ends_soon_is_not_worth_a_trial() {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    for (seconds, worth) in [(25, false), (40, true)] {
        let mut choice = choice_from(epoch, Protocol::Udp);
        let tried = (1..seconds * 10).any(|tick| {
            let now = epoch + Duration::from_millis(100) * tick;
            let uses = choice.decide(now, u64::from(seconds * 10 - tick) * 10_000);
            choice.handle_bytes(now, Protocol::Udp, 10_000);
            if uses.ask {
                choice.handle_answer(now);
            }
            uses.trial
        });
        assert_eq!(tried, worth, "{seconds} s");
    }
}

#[test]
fn outages_are_no_reason_to_compare() {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
    let epoch = Instant::now();
    let mut choice = choice_from(epoch, Protocol::Udp);
    let mut left = 1_000_000;
    for tick in 1..=200 {
        let now = epoch + Duration::from_millis(100) * tick;
        let uses = choice.decide(now, left);
        assert!(!uses.trial, "after {tick} tenths of a second, {left} bytes left");
        // Two seconds of every six nothing is answered, over either.
        if tick % 60 < 40 && left > 0 {
            left -= 10_000;
            choice.handle_bytes(now, Protocol::Udp, 10_000);
            if uses.ask {
                choice.handle_answer(now);
            }
        }
    }
}

#[test]
fn trials_become_rare() {
    let alternating: Path =
        |second| if ((second / 20.0) as u32).is_multiple_of(2) { [1e5, 1e6] } else { [1e6, 1e5] };
    assert!(run(Protocol::Udp, alternating, 1200).len() <= 12);
}
