//! What a resend counts as, once its replies have come (RFC 8985 §6, RFC 5682).

use super::{
    adaptive::Path,
    losses::{READ, known},
    *,
};

const SMALL: (Class, Repeat) = (Class::Control, Repeat::Idempotent);

impl Path {
    /// Loss episodes per second.
    fn episodes(&self) -> f64 {
        self.bench.engine.path_estimate().unwrap().fades_per_second
    }

    /// Two READs, the second of which was answered first; the XID of the first.
    fn overtake(&mut self) -> Xid {
        let calls = [(); 2].map(|()| self.send(READ));
        self.pass(40);
        assert!(self.reply(calls[1]));
        calls[0]
    }

    /// The reordering window: ms until a READ that another one has overtaken is sent again.
    fn window(&mut self) -> u64 {
        let first = self.overtake();
        let (again, window) = self.sent_again();
        self.pass(40);
        assert!(again != first && self.reply(again));
        window
    }
}

#[test]
fn a_suspect_that_is_answered_in_time_was_no_loss_episode() {
    let mut path = known();
    let before = path.episodes();
    let first = path.overtake();
    assert!(path.episodes() > 1.5 * before, "it is taken for lost");
    path.pass(4);
    assert!(path.reply(first));
    assert!(path.episodes() < before, "it was late, and the time was good");
}

#[test]
fn a_suspect_that_only_a_small_call_has_overtaken_is_no_episode_before_its_window_is_over() {
    for is_answered in [true, false] {
        let mut path = known();
        // An episode that was one.
        path.overtake();
        let (again, _) = path.sent_again();
        path.pass(40);
        assert!(path.reply(again));
        let small = path.send(SMALL);
        path.pass(40);
        assert!(path.reply(small));
        let before = path.episodes();
        let calls = [path.send(READ), path.send(SMALL)];
        path.pass(40);
        assert!(path.reply(calls[1]));
        assert!(path.episodes() <= before, "nothing is lost yet");
        if is_answered {
            assert!(path.reply(calls[0]));
            assert!(path.episodes() > 0.9 * before, "nor is the other episode undone");
        } else {
            path.sent_again();
            assert!(path.episodes() > 1.3 * before, "it is lost");
        }
    }
}

#[test]
fn an_episode_is_undone_by_the_reply_to_the_first_attempt_and_not_by_that_to_the_second() {
    for is_spurious in [true, false] {
        let mut path = known();
        let before = path.episodes();
        let first = path.overtake();
        let (again, _) = path.sent_again();
        path.pass(1);
        assert!(path.reply(if is_spurious { first } else { again }));
        assert_eq!(path.episodes() < before, is_spurious);
    }
}

#[test]
fn losses_of_small_calls_are_no_episodes() {
    let mut path = known();
    let small = path.send(SMALL);
    path.pass(40);
    assert!(path.reply(small));
    let before = path.episodes();
    let calls = [(); 2].map(|()| path.send(SMALL));
    path.pass(40);
    assert!(path.reply(calls[1]));
    path.sent_again();
    assert!(path.episodes() <= before);
}

#[test]
fn the_late_reply_to_a_second_copy_doubles_the_reordering_window_and_a_duplicate_does_not() {
    let mut path = known();
    let call = path.send((Class::Control, Repeat::SameXid));
    path.pass(100);
    let read = path.send(READ);
    path.pass(40);
    assert!(path.reply(read));
    let (again, _) = path.sent_again();
    assert_eq!(again, call);
    path.pass(40);
    assert!(path.reply(call));
    let mut other = known();
    assert_eq!(other.window(), 5);
    let ended = other.send(READ);
    other.pass(40);
    assert!(other.reply(ended) && !other.reply(ended), "a duplicate on its way");
    assert_eq!(other.window(), 5);

    // Both copies of this one were answered.
    assert!(!path.reply(call));
    assert_eq!(path.bench.engine.stats().spurious_resends, 1);
    assert_eq!(path.window(), 10);
}

#[test]
fn the_copy_of_a_hedged_call_leaves_the_reordering_window_as_it_is() {
    for repeat in [Repeat::Idempotent, Repeat::SameXid] {
        let mut path = Path::new();
        path.submit_hedged(Class::Control, repeat, true);
        let (first, _) = path.sent();
        let (again, _) = path.pass(105);
        path.pass(15);
        assert!(path.reply(first[0]) && !path.reply(again[0]));
        path.learn();
        assert_eq!(path.window(), 5, "{repeat:?}");
    }
}

#[test]
fn a_hedged_call_is_not_overtaken_by_what_was_sent_between_its_attempts() {
    let mut path = Path::new();
    path.submit_hedged(Class::Control, Repeat::Idempotent, true);
    path.submit_hedged(Class::Control, Repeat::Idempotent, false);
    path.submit_hedged(Class::Control, Repeat::Idempotent, true);
    let (first, _) = path.sent();
    assert_eq!(first.len(), 3);
    let (again, probes) = path.pass(120);
    assert_eq!((again.len(), probes.len()), (1, 0), "one at a time");
    assert_eq!(path.resends(), Resends { hedge: 1, ..Resends::default() });
    // The second call was sent after the first attempt of the first one, and before its copy.
    assert!(path.reply(first[1]));
    path.pass(90);
    assert_eq!(path.resends(), Resends { hedge: 1, ..Resends::default() });
}

#[test]
fn the_first_call_that_may_be_hedged_is_and_those_around_it_keep_their_order() {
    let mut path = Path::new();
    for hedge in [false, true, false] {
        path.submit_hedged(Class::Control, Repeat::Idempotent, hedge);
    }
    let (first, _) = path.sent();
    let (copy, _) = path.pass(120);
    assert_eq!((copy.len(), path.resends()), (1, Resends { hedge: 1, ..Resends::default() }));
    assert!(path.reply(first[2]));
    let (again, _) = path.pass(90);
    assert_eq!(path.resends(), Resends { hedge: 1, rack: 1, ..Resends::default() });
    assert!(path.reply(again[0]) && !path.reply(first[0]), "only the first was overtaken");
    assert!(path.reply(first[1]) && !path.reply(copy[0]), "the copy is one of the second");
}

#[test]
fn a_resend_waits_for_room_in_the_window_and_a_small_one_does_not() {
    let mut path = known();
    let lost = path.overtake();
    // Two more fill the window before the first is sent again.
    let others = [(); 2].map(|()| path.send(READ));
    assert!(path.pass(20).0.is_empty(), "it is lost after 5 ms, and there is no room");
    path.pass(20);
    assert!(path.reply(others[0]));
    let (again, _) = path.sent();
    assert_eq!(again.len(), 1);
    assert_ne!(again[0], lost);

    let mut path = known();
    let small = path.send(SMALL);
    path.pass(40);
    assert!(path.reply(small));
    let calls = [(); 2].map(|()| path.send(SMALL));
    for _ in 0..2 {
        path.send(READ);
    }
    path.pass(38);
    assert!(path.reply(calls[1]));
    let (again, after) = path.sent_again();
    assert!(again != calls[0] && after <= 10, "{after} ms");
}

#[test]
fn probes_may_be_fragmented_and_follow_the_interval_of_replies() {
    let mut path = known();
    // Two in flight, so that replies come 10 ms apart while the round trip is 40 ms.
    let mut flying = VecDeque::new();
    path.bench.engine.in_flight =
        InFlight::new(WindowLimits { calls: 8, read_bytes: 1 << 20, write_bytes: 1 << 20 });
    for _ in 0..4 {
        path.submit(Class::Read, Repeat::Idempotent);
        flying.extend(path.sent().0);
        path.pass(10);
    }
    for _ in 0..50 {
        assert!(path.reply(flying.pop_front().unwrap()));
        path.submit(Class::Read, Repeat::Idempotent);
        flying.extend(path.sent().0);
        path.pass(10);
    }
    assert!(path.reply(flying.pop_front().unwrap()));
    let due = path.bench.engine.poll_timeout().unwrap() - path.bench.at(path.millis);
    assert!(due <= 20 * MS, "{due:?}: the shortest PTO, and not the timeout of 50 ms");
    path.millis += 20;
    let now = path.bench.at(path.millis);
    path.bench.engine.handle_timeout(now);
    let probe = path.bench.engine.poll_transmit(now).unwrap();
    assert!(!probe.dont_fragment && !probe.head.ends_with(b"args"));
}
