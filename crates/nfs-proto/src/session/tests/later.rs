//! Where the server asks to come back later, or refuses a credential for a while.

use super::*;

/// Waits in milliseconds until a transfer asks again that is always put off.
fn waits(bench: &mut Bench, times: usize) -> Vec<u128> {
    let mut waits = Vec::new();
    for _ in 0..times {
        let calls = bench.calls();
        assert_eq!(calls.len(), 1, "the many that it could have in flight would all be refused");
        bench.refuse(&calls[0], Status::JUKEBOX);
        waits.push(bench.wait().as_millis());
    }
    waits
}

#[test]
fn a_transfer_that_is_put_off_asks_again_with_one_call_after_longer_and_longer_waits() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 1);
    bench.download(50_000);
    assert_eq!(waits(&mut bench, 8), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    assert_eq!(bench.session.stats().postponed, 8);
    assert_eq!(bench.events(), [], "it does not fail");
}

#[test]
fn refusals_of_what_was_sent_before_the_first_one_are_one_with_it() {
    let mut bench = Bench::new(|_| {});
    bench.download(50_000);
    let calls = bench.calls();
    assert_eq!(calls.len(), 4);
    for (call, outstanding) in calls.iter().zip([3, 2, 1, 0]) {
        assert_eq!(bench.refuse(call, Status::JUKEBOX), Incoming::Done);
        assert_eq!((bench.send(), bench.session.outstanding()), (0, outstanding));
        bench.pass(10 * MS);
    }
    assert_eq!(bench.wait(), 60 * MS, "100 ms after the first");
    let again = bench.calls();
    assert_eq!(
        again.iter().map(Call::range).collect::<Vec<_>>(),
        [(0, 1000)],
        "the same bytes, with one call"
    );
    bench.read(&again[0], 1000);
    assert_eq!(bench.ranges().len(), 4, "it is answered, and goes on as before");
}

#[test]
fn a_transfer_that_is_put_off_asks_for_nothing_while_it_waits_for_earlier_calls() {
    let mut bench = Bench::new(|_| {});
    bench.download(50_000);
    let calls = bench.calls();
    bench.refuse(&calls[0], Status::JUKEBOX);
    assert_eq!(bench.tick(), 100 * MS);
    assert_eq!(bench.send(), 0);
    assert_eq!(bench.tick(), 600 * MS, "the next timer is that of the calls that are not answered");
    assert_eq!(bench.calls().len(), 3);
    bench.read(&calls[1], 1000);
    assert_eq!(bench.ranges(), [(0, 1000), (4000, 1000)], "the server runs calls again");
}

#[test]
fn a_transfer_that_was_answered_begins_with_short_waits_again() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 1);
    bench.download(50_000);
    assert_eq!(bench.session.put_off_transfers(), 0);
    assert_eq!(waits(&mut bench, 2), [100, 200]);
    assert_eq!(bench.session.put_off_transfers(), 1);
    let call = bench.calls().remove(0);
    bench.read(&call, 1000);
    assert_eq!(bench.session.put_off_transfers(), 0);
    assert_eq!(waits(&mut bench, 1), [100]);
}

#[test]
fn part_of_an_answer_does_not_end_the_waits() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 1);
    bench.download(50_000);
    waits(&mut bench, 1);
    let message = data(&bench.calls()[0], 1000);
    let incoming = bench.session.handle_head(bench.now, server(), &message[..32], false);
    assert_eq!((incoming, bench.session.put_off_transfers()), (Ok(Incoming::NeedMore), 1));
}

#[test]
fn only_the_transfer_that_was_put_off_waits() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 2);
    let (one, two) = (bench.download(1000), bench.download(50_000));
    let calls = bench.calls();
    bench.refuse(&calls[0], Status::JUKEBOX);
    assert!(!bench.session.is_asking(one) && bench.session.is_asking(two));
    assert_eq!(bench.ranges(), [(1000, 1000)], "the other uses the room");
    assert_eq!(bench.session.put_off_transfers(), 1);
}

#[test]
fn writes_that_are_put_off_are_made_again() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 1);
    let transfer = bench.write(1000);
    assert_eq!(waits(&mut bench, 2), [100, 200]);
    let call = bench.calls().remove(0);
    bench.written(&call, 1000, 1);
    assert_eq!(bench.events(), [Event::Progress(transfer, 1000), Event::Finished(transfer)]);
}

#[test]
fn small_calls_that_are_put_off_are_sent_again_each_after_its_own_wait() {
    let mut bench = Bench::new(|_| {});
    bench.upload(Placement::Existing(handle(1)));
    bench.call(7).unwrap();
    for wait in [100, 200, 400] {
        let calls = bench.calls();
        assert_eq!(calls.len(), 2);
        for call in &calls {
            assert_eq!(bench.refuse(call, Status::JUKEBOX), Incoming::Done);
        }
        assert_eq!(bench.session.put_off_transfers(), 0, "its calls are");
        assert_eq!(bench.wait(), wait * MS);
    }
    let calls = bench.calls();
    let getattr = calls.iter().find(|call| call.procedure() == Procedure::Getattr).unwrap();
    let incoming = bench.reply(getattr, &[0]);
    assert!(matches!(incoming, Incoming::Reply { token: 7, attempts: 1, .. }), "{incoming:?}");
}

#[test]
fn only_what_nfs_answers_can_be_put_off() {
    let mut bench = Bench::new(|_| {});
    let mnt = (Program::MOUNT, nfs_wire::mount::procedure::MNT);
    bench.session.submit(bench.now, 7, mnt, None, |_| {}).unwrap();
    let call = bench.calls().remove(0);
    let incoming = bench.reply(&call, &[Status::JUKEBOX.code()]);
    assert!(matches!(incoming, Incoming::Reply { token: 7, .. }), "{incoming:?}");

    bench.call(8).unwrap();
    let call = bench.calls().remove(0);
    let incoming = bench.reply(&call, &[0, Status::JUKEBOX.code()]);
    assert!(matches!(incoming, Incoming::Reply { token: 8, .. }), "it is the status: {incoming:?}");
}

const REFUSED: Rejection = Rejection::Authentication(1);

/// A session whose credential the server has accepted.
fn accepted() -> Bench {
    let mut bench = Bench::new(|_| {});
    bench.call(0).unwrap();
    let call = bench.calls().remove(0);
    bench.reply(&call, &[0]);
    bench
}

/// Makes a call, which is rejected; whether the application learns that.
fn learns(bench: &mut Bench, rejection: Rejection) -> bool {
    let id = bench.call(1).unwrap();
    let call = bench.calls().remove(0);
    let incoming = bench.reject(&call, rejection);
    bench.session.cancel(bench.now, id);
    match incoming {
        Incoming::Reply { token: 1, outcome, .. } => {
            assert_eq!(outcome, Err(rejection));
            true
        }
        Incoming::Done => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_credential_that_was_never_accepted_is_refused_at_once() {
    assert!(learns(&mut Bench::new(|_| {}), REFUSED));
    let mut bench = Bench::new(|_| {});
    bench.session.submit(bench.now, 0, (Program::NFS, Procedure::Null.number()), None, |_| {}).unwrap();
    let call = bench.calls().remove(0);
    bench.reply(&call, &[]);
    assert!(learns(&mut bench, REFUSED), "NULL is answered to anybody");
}

#[test]
fn a_credential_that_was_accepted_may_be_refused_for_a_minute() {
    let mut bench = accepted();
    assert!(!learns(&mut bench, REFUSED));
    bench.pass(SECOND * 60 - MS);
    assert!(!learns(&mut bench, REFUSED), "the server exports again, or resolves names again");
    bench.pass(MS);
    assert!(learns(&mut bench, REFUSED), "it means it");
}

#[test]
fn the_minute_begins_again_when_the_credential_was_accepted_between() {
    let mut bench = accepted();
    assert!(!learns(&mut bench, REFUSED));
    bench.pass(SECOND * 59);
    bench.call(0).unwrap();
    let call = bench.calls().remove(0);
    bench.reply(&call, &[Status::NOENT.code()]);
    bench.pass(SECOND * 59);
    assert!(!learns(&mut bench, REFUSED));
    bench.pass(SECOND * 59);
    assert!(!learns(&mut bench, REFUSED));
}

#[test]
fn a_credential_that_is_too_weak_does_not_become_stronger() {
    let mut bench = accepted();
    assert!(learns(&mut bench, Rejection::Authentication(5)));
    assert!(!learns(&mut bench, REFUSED));
    assert!(learns(&mut bench, Rejection::Authentication(5)));
}

#[test]
fn other_rejections_do_not_wait_for_a_credential() {
    let mut bench = accepted();
    assert!(learns(&mut bench, Rejection::ProcedureUnavailable));
    assert!(!learns(&mut bench, REFUSED));
    assert!(learns(&mut bench, Rejection::ProcedureUnavailable));
}

#[test]
fn a_transfer_survives_a_credential_that_is_refused_for_seconds() {
    let mut bench = accepted();
    let transfer = bench.download(1000);
    for wait in [100, 200, 400] {
        let call = bench.calls().remove(0);
        assert_eq!(bench.reject(&call, REFUSED), Incoming::Done);
        assert_eq!(bench.wait(), wait * MS);
    }
    let call = bench.calls().remove(0);
    bench.read(&call, 1000);
    assert_eq!(bench.events(), [Event::Progress(transfer, 1000), Event::Finished(transfer)]);
}
