//! A transfer that leaves for another session.

use super::*;

#[test]
fn a_transfer_that_leaves_takes_what_it_waits_for_with_it() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 8);
    let (leaving, staying) = (bench.download(4000), bench.write(3000));
    let calls = bench.calls();
    let reads: Vec<_> = calls.iter().filter(|call| call.procedure() == Procedure::Read).collect();
    bench.read(reads[1], 1000);
    bench.events();
    let download = bench.session.detach(bench.now, leaving).unwrap();
    assert_eq!(bench.session.stats().withdrawn.hand_over, 3);
    assert_eq!(bench.session.outstanding(), 3, "the WRITEs of the other");
    assert!(bench.session.is_asking(staying));
    assert_eq!(bench.read(reads[0], 1000), Incoming::Done, "too late");
    assert_eq!(bench.events(), []);

    let mut other = Bench::new(|_| {});
    let arrived = other.session.start(other.now, download);
    let calls = other.calls();
    assert_eq!(calls.iter().map(Call::range).collect::<Vec<_>>(), [(0, 1000), (2000, 1000), (3000, 1000)]);
    for call in &calls {
        other.read(call, 1000);
    }
    assert_eq!(other.events().last(), Some(&Event::Finished(arrived)));
}

#[test]
fn what_is_held_makes_no_further_calls_and_lets_others_do_so() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 2);
    let (one, two) = (bench.download(50_000), bench.download(50_000));
    let calls = bench.calls();
    bench.session.hold(one);
    bench.read(&calls[0], 1000);
    bench.read(&calls[1], 1000);
    assert_eq!(bench.ranges(), [(1000, 1000), (2000, 1000)]);
    assert!(!bench.session.is_asking(one) && bench.session.is_asking(two));
}

#[test]
fn a_transfer_stays_while_it_waits_for_a_call_that_must_not_be_made_twice() {
    let mut bench = Bench::new(|_| {});
    let (upload, download) = (bench.upload(Placement::Existing(handle(1))), bench.download(1000));
    let calls = bench.calls();
    let setattr = calls.iter().find(|call| call.procedure() == Procedure::Setattr).unwrap();
    assert!(bench.session.detach(bench.now, upload).is_none());
    assert!(bench.session.detach(bench.now, download).is_some(), "it waits for no such call");
    assert_eq!(bench.session.outstanding(), 1);
    bench.reply(setattr, &[0, 0, 0]);
    assert_eq!(bench.events(), [Event::Finished(upload)]);
    assert!(bench.session.detach(bench.now, upload).is_none(), "it has ended");
}

#[test]
fn a_transfer_that_could_not_leave_continues_where_it_is() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.upload(Placement::Temporary(b".name".to_vec()));
    let create = bench.calls().remove(0);
    bench.session.hold(transfer);
    assert!(bench.session.detach(bench.now, transfer).is_none());
    bench.refuse(&create, Status::EXIST);
    assert_eq!(bench.calls()[0].procedure(), Procedure::Lookup);
}

#[test]
fn file_bytes_that_are_on_their_way_when_their_transfer_leaves_are_asked_for_again() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(1000);
    let call = bench.calls().remove(0);
    assert!(matches!(bench.receive(&data(&call, 1000)), Incoming::Data { .. }));
    let download = bench.session.detach(bench.now, transfer).unwrap();
    bench.session.handle_payload_done(bench.now);
    assert_eq!((bench.events(), bench.session.outstanding()), (vec![], 0));
    bench.session.start(bench.now, download);
    assert_eq!(bench.ranges(), [(0, 1000)]);

    let mut bench = Bench::new(|_| {});
    let (one, two) = (bench.download(1000), bench.download(1000));
    let calls = bench.calls();
    assert!(matches!(bench.receive(&data(&calls[0], 1000)), Incoming::Data { .. }));
    assert!(bench.session.detach(bench.now, two).is_some());
    bench.session.handle_payload_done(bench.now);
    assert_eq!(bench.events(), [Event::Progress(one, 1000), Event::Finished(one)], "the other left");
}

#[test]
fn after_a_reconnect_calls_are_made_again_over_the_new_connection() {
    let mut bench = Bench::connection(1000);
    let transfer = bench.download(2000);
    let calls = bench.calls();
    assert!(matches!(bench.receive(&data(&calls[0], 1000)), Incoming::Data { .. }));
    bench.session.handle_reconnect(bench.now);
    bench.session.handle_payload_done(bench.now);
    assert_eq!(bench.events(), [], "the rest of the message never came");
    let again = bench.calls();
    assert_eq!(again.iter().map(Call::range).collect::<Vec<_>>(), [(0, 1000), (1000, 1000)]);
    assert_eq!(bench.session.stats().resends.reconnect, 2);
    for call in &again {
        bench.read(call, 1000);
    }
    assert_eq!(bench.events().last(), Some(&Event::Finished(transfer)));
}
