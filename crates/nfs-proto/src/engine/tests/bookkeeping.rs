//! What the engine knows of its calls, and counts.

use super::*;

#[test]
fn a_server_that_asks_to_come_back_is_given_a_delay_that_doubles() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Control, 3, None);
    let mut xid = bench.sent(0)[0];
    let mut now = 0;
    for delay in [100, 200, 400] {
        bench.postpone(now, xid);
        bench.engine.handle_timeout(bench.at(now + delay - 1));
        assert!(bench.sent(now + delay - 1).is_empty(), "{delay} ms");
        now += delay;
        bench.engine.handle_timeout(bench.at(now));
        xid = bench.sent(now)[0];
    }
    let stats = bench.engine.stats();
    assert_eq!((stats.postponed, stats.replies), (3, 0));
    assert_eq!(stats.calls, 4, "each is a new call to the server");
}

#[test]
fn a_call_that_is_refused_ends_without_a_reply() {
    let mut bench = Bench::datagrams();
    for refused in 1..=2 {
        bench.submit(0, Class::Read, 3, None);
        let xid = bench.sent(0)[0];
        let Head::Reply(reply) = bench.head_from(1, xid, server()) else { panic!("it is outstanding") };
        bench.engine.refuse(bench.at(1), reply.id);
        bench.engine.refuse(bench.at(1), reply.id);
        let stats = bench.engine.stats();
        assert_eq!((bench.engine.outstanding(), stats.postponed, stats.replies), (0, refused, 0));
    }
}

#[test]
fn a_server_that_has_moved_is_heard_at_its_new_address_only() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 0, None);
    let xid = bench.sent(0)[0];
    let new = "[2001:db8::1]:2049".parse().unwrap();
    assert_eq!(bench.reply_from(1, xid, new), Head::Stray);
    bench.engine.handle_move(new);
    assert_eq!(bench.reply_from(2, xid, server()), Head::Stray);
    assert!(matches!(bench.reply_from(3, xid, new), Head::Reply(_)));
    assert_eq!(bench.engine.stats().stray_replies, 2);
}

#[test]
fn each_expired_and_each_late_call_is_counted() {
    let mut bench = Bench::datagrams();
    let mut xids = Vec::new();
    for owner in 0..2 {
        bench.submit(0, Class::Control, owner, Some(100));
        xids.extend(bench.sent(0));
    }
    bench.engine.handle_timeout(bench.at(100));
    for &xid in &xids {
        assert_eq!(bench.reply(200, xid), Head::Stray);
    }
    let stats = bench.engine.stats();
    assert_eq!((stats.expired, stats.stray_replies, stats.calls, stats.replies), (2, 2, 2, 0));
}

#[test]
fn calls_are_shown_and_forgotten_by_owner_class_bytes_and_attempts() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 1, None);
    bench.submit(0, Class::Write, 2, None);
    bench.sent(0);
    bench.submit(0, Class::Control, 3, None);
    let mut shown = Vec::new();
    bench.engine.look(|owner, class, bytes, attempts| shown.push((owner, class, bytes, attempts)));
    let expected = [
        (Owner(1), Class::Read, 100, 1),
        (Owner(2), Class::Write, 100, 1),
        (Owner(3), Class::Control, 100, 0),
    ];
    assert_eq!(shown, expected);
    let now = bench.at(1);
    let forgotten = bench.engine.cancel_matching(now, |owner, _, _, _| owner != Owner(2));
    assert_eq!(forgotten, [(Owner(1), 100), (Owner(3), 100)]);
    assert_eq!((bench.engine.outstanding(), bench.sent(1).len()), (1, 0));
    assert_eq!(bench.engine.cancel_matching(now, |_, class, _, _| class == Class::Read), []);
}

#[test]
fn what_is_taken_back_is_counted_if_it_was_sent() {
    let mut bench = Bench::datagrams();
    for owner in 0..4 {
        bench.submit(0, Class::Write, owner, None);
    }
    // Two are in the window, two wait.
    assert_eq!(bench.sent(0).len(), 2);
    let now = bench.at(1);
    let taken = bench.engine.withdraw(now, Withdrawal::HandOver, |owner, _, _, _| owner != Owner(0));
    assert_eq!(taken, [(Owner(1), 100), (Owner(2), 100), (Owner(3), 100)]);
    assert_eq!(bench.engine.stats().withdrawn, Withdrawn { hand_over: 1, ..Withdrawn::default() });
    assert_eq!(bench.engine.outstanding(), 1);
}

#[test]
fn there_is_room_for_2048_calls_of_all_classes() {
    let mut bench = Bench::datagrams();
    for call in 0..MAX_CALLS {
        assert!(bench.engine.has_room(Class::Read, 100), "{call}");
        bench.submit(0, Class::Control, 0, None);
    }
    assert!(!bench.engine.has_room(Class::Read, 100));
}

#[test]
fn only_data_that_is_late_is_an_event() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Control, 1, None);
    bench.sent(0);
    bench.submit(100, Class::Write, 2, None);
    bench.sent(100);
    bench.run_silent(1000);
    let silent = Event::Silent { class: Class::Write, bytes: 100, attempts: 1, elapsed: 700 * MS };
    assert_eq!((bench.engine.poll_event(), bench.engine.poll_event()), (Some(silent), None));
    assert_eq!(bench.engine.stats().resends, Resends { timeout: 2, ..Resends::default() });
}

#[test]
fn a_classic_policy_knows_nothing_of_the_path() {
    for carrier in [Carrier::Datagrams, Carrier::Connection] {
        let mut bench = Bench::new(carrier, RetryPolicy::hybrid());
        bench.submit(0, Class::Read, 1, None);
        let xid = bench.sent(0)[0];
        bench.reply(10, xid);
        let now = bench.at(10);
        assert_eq!(
            (bench.engine.next_block(now), bench.engine.block(), bench.engine.take_cut()),
            (None, None, None)
        );
        assert_eq!((bench.engine.path_estimate(), bench.engine.pace()), (None, Pace::default()));
    }
}
