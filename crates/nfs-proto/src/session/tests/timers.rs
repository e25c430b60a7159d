//! What waits for a moment, and for which.

use super::*;

#[test]
fn a_rate_limit_spreads_reads_over_time() {
    // 1000 bytes at 80 kbit/s: one READ every 100 ms.
    let mut bench = Bench::new(|config| config.rate_limit = Some(80_000));
    bench.download(50_000);
    let start = bench.now;
    for _ in 0..50 {
        while bench.send() == 0 {
            bench.tick();
        }
        bench.answer(1000);
    }
    assert!(bench.events().iter().any(|event| matches!(event, Event::Finished(_))));
    let took = bench.now - start;
    assert!((4.8..5.0).contains(&took.as_secs_f64()), "50 blocks, 49 pauses: {took:?}");
}

#[test]
fn a_transfer_without_progress_stalls_and_leaves_nothing_behind() {
    let mut bench = Bench::new(|config| config.stall_timeout = Some(SECOND * 3));
    let transfer = bench.download(50_000);
    bench.send();
    bench.now += SECOND * 2;
    bench.session.handle_timeout(bench.now);
    bench.answer(1000);
    let progress = bench.now;
    while bench.session.outstanding() > 0 {
        bench.tick();
        bench.send();
    }
    assert_eq!(bench.now, progress + SECOND * 3, "counted from the last bytes accepted");
    let events = bench.events();
    assert_eq!(events.last(), Some(&Event::Stalled(transfer, SECOND * 3)));
    assert_eq!(bench.session.poll_timeout(), None);
}

#[test]
fn bytes_that_a_read_asked_for_and_did_not_bring_cost_no_rate() {
    // 1000 bytes at 80 kbit/s take 100 ms.
    let mut bench = Bench::new(|config| config.rate_limit = Some(80_000));
    bench.download(50_000);
    assert_eq!(bench.send(), 1);
    bench.answer(400);
    assert_eq!(bench.wait(), 40 * MS);
}

#[test]
fn a_transfer_that_a_rate_limit_holds_up_lets_calls_pass() {
    let mut bench = Bench::new(|config| config.rate_limit = Some(80_000));
    bench.download(50_000);
    bench.send();
    bench.upload(Placement::Existing(handle(2)));
    bench.call(7).unwrap();
    bench.sent.clear();
    let mut calls: Vec<_> = bench.calls().iter().map(Call::procedure).collect();
    calls.sort();
    assert_eq!(calls, [Procedure::Getattr, Procedure::Setattr]);
}

#[test]
fn a_pause_is_over_when_its_timer_has_fired_and_not_before() {
    let mut bench = Bench::new(|config| {
        config.engine.carrier = Carrier::Connection;
        config.rate_limit = Some(80_000);
    });
    let start = bench.now;
    assert_eq!(bench.session.poll_timeout(), None);
    bench.download(2000);
    let call = bench.calls().remove(0);
    assert_eq!(bench.session.poll_timeout(), Some(start + 100 * MS));
    bench.pass(50 * MS);
    assert_eq!(
        bench.session.poll_timeout(),
        Some(start + 100 * MS),
        "a timer that fires early changes nothing"
    );
    bench.read(&call, 1000);
    bench.tick();
    assert_eq!(bench.session.poll_timeout(), None, "nothing is to be waited for any more");
    let call = bench.calls().remove(0);
    bench.read(&call, 1000);
    bench.pass(SECOND);
    assert_eq!((bench.send(), bench.session.poll_timeout()), (0, None), "nobody waits for the rate");
}

#[test]
fn a_call_that_expires_says_how_often_it_was_sent_and_how_long_it_took() {
    let mut bench = Bench::new(|_| {});
    let getattr = (Program::NFS, Procedure::Getattr.number());
    bench.session.submit(bench.now, 42, getattr, Some(bench.now + SECOND), |_| {}).unwrap();
    bench.send();
    assert_eq!(bench.wait(), 700 * MS);
    assert_eq!(bench.tick(), 300 * MS);
    assert_eq!(bench.events(), [Event::Expired { token: 42, attempts: 2, elapsed: SECOND }]);
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn only_the_transfer_without_progress_stalls() {
    let mut bench = Bench::new(|config| config.stall_timeout = Some(SECOND * 3));
    let (one, two) = (bench.download(2000), bench.download(2000));
    let calls = bench.calls();
    bench.pass(SECOND * 2);
    bench.read(&calls[1], 1000);
    bench.events();
    bench.pass(SECOND);
    assert_eq!(bench.events(), [Event::Stalled(one, SECOND * 3)]);
    assert!(bench.session.is_asking(two));
}

#[test]
fn an_answer_without_bytes_is_progress_of_an_upload() {
    let mut bench = Bench::new(|config| config.stall_timeout = Some(SECOND * 3));
    bench.upload(Placement::Temporary(b".name".to_vec()));
    let create = bench.calls().remove(0);
    bench.pass(SECOND * 2);
    bench.refuse(&create, Status::EXIST);
    bench.pass(SECOND * 2);
    assert_eq!(bench.events(), []);
}
