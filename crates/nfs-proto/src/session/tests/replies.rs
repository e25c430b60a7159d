//! What replies are taken for, and what they mean for a transfer.

use super::*;
use crate::transfer::Uploaded;

#[test]
fn more_data_than_asked_for_ends_the_transfer() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(50_000);
    bench.send();
    assert_eq!(bench.answer(1001), Incoming::Done);
    let events = bench.events();
    let [Event::Failed(failed, TransferError::Protocol { .. })] = events[..] else { panic!("{events:?}") };
    assert_eq!(failed, transfer);
}

#[test]
fn reads_without_data_and_without_end_are_given_up() {
    let mut bench = Bench::new(|_| {});
    bench.download(50_000);
    for _ in 0..20 {
        bench.send();
        if bench.answer(0) == Incoming::Done {
            break;
        }
    }
    let events = bench.events();
    assert!(matches!(events[..], [Event::Failed(_, TransferError::NoProgress { .. })]), "{events:?}");
}

#[test]
fn file_bytes_are_progress_when_they_are_where_they_belong() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(1500);
    let calls = bench.calls();
    assert_eq!(calls.iter().map(Call::range).collect::<Vec<_>>(), [(0, 1000), (1000, 500)]);
    let message = data(&calls[1], 500);
    let data_at = message.len() - 500;
    let expected = Incoming::Data { transfer, offset: 1000, length: 500, attributes: None, data_at };
    assert_eq!(bench.receive(&message), expected);
    assert_eq!((bench.events(), bench.session.outstanding()), (vec![], 2));
    bench.session.handle_payload_done(bench.now);
    bench.session.handle_payload_done(bench.now);
    assert_eq!((bench.events(), bench.session.outstanding()), (vec![Event::Progress(transfer, 500)], 1));
    bench.read(&calls[0], 1000);
    assert_eq!(bench.events(), [Event::Progress(transfer, 1000), Event::Finished(transfer)]);
}

#[test]
fn file_bytes_of_a_transfer_that_was_stopped_meanwhile_belong_nowhere() {
    let mut bench = Bench::new(|_| {});
    let (one, two) = (bench.download(1000), bench.download(1000));
    let calls = bench.calls();
    bench.receive(&data(&calls[0], 1000));
    bench.session.stop(bench.now, two);
    bench.session.handle_payload_done(bench.now);
    assert_eq!(bench.events(), [Event::Progress(one, 1000), Event::Finished(one)], "the other is not meant");

    let (mut bench, call) = (Bench::new(|_| {}), |bench: &mut Bench| bench.calls().remove(0));
    let transfer = bench.download(1000);
    let read = call(&mut bench);
    bench.receive(&data(&read, 1000));
    bench.session.stop(bench.now, transfer);
    bench.session.handle_payload_done(bench.now);
    assert_eq!((bench.events(), bench.session.outstanding()), (vec![], 0));
}

#[test]
fn a_short_read_goes_on_where_it_ended() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(1000);
    let call = bench.calls().remove(0);
    bench.read(&call, 300);
    assert_eq!(bench.events(), [Event::Progress(transfer, 300)]);
    assert_eq!(bench.ranges(), [(300, 700)]);
}

#[test]
fn a_short_write_goes_on_where_it_ended() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.write(1000);
    let call = bench.calls().remove(0);
    bench.written(&call, 300, 1);
    assert_eq!(bench.events(), [Event::Progress(transfer, 300)]);
    let call = bench.calls().remove(0);
    assert_eq!(call.range(), (300, 700));
    bench.written(&call, 700, 1);
    assert_eq!(bench.events(), [Event::Progress(transfer, 700), Event::Finished(transfer)]);
}

#[test]
fn an_answer_without_bytes_is_no_progress_to_show() {
    let mut bench = Bench::new(|_| {});
    bench.write(1000);
    let call = bench.calls().remove(0);
    bench.written(&call, 0, 1);
    assert_eq!(bench.events(), []);
    assert_eq!(bench.ranges(), [(0, 1000)]);
}

#[test]
fn an_upload_is_finished_when_a_commit_with_the_verifier_of_its_writes_is_answered() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.write(2000);
    let calls = bench.calls();
    for call in &calls {
        bench.written(call, 1000, 1);
    }
    let progress = Event::Progress(transfer, 1000);
    assert_eq!(bench.events(), [progress, progress]);
    let commit = bench.calls().remove(0);
    assert_eq!(bench.committed(&commit, 1), Incoming::Done);
    let made = Uploaded { file: handle(1), metadata: None };
    assert_eq!(bench.all_events(), [Event::Uploaded(transfer, made), Event::Finished(transfer)]);
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn a_commit_with_another_write_verifier_has_the_bytes_written_again() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.write(2000);
    for call in bench.calls() {
        bench.written(&call, 1000, 1);
    }
    bench.events();
    let commit = bench.calls().remove(0);
    bench.committed(&commit, 2);
    assert_eq!(bench.session.upload(transfer).unwrap().rewritten(), 1000);
    let again = bench.calls().remove(0);
    assert_eq!(again.range(), (0, 1000), "the last block was stable at once");
    bench.written(&again, 1000, 2);
    assert_eq!(bench.events(), [Event::Progress(transfer, 1000), Event::Finished(transfer)]);
}

#[test]
fn a_refused_call_ends_its_transfer_and_no_other() {
    for status in [Status::STALE, Status::BADHANDLE, Status::IO, Status::ACCES] {
        let mut bench = Bench::new(|config| config.engine.window.calls = 8);
        let (one, two) = (bench.download(3000), bench.write(3000));
        let calls = bench.calls();
        let read = calls.iter().find(|call| call.procedure() == Procedure::Read).unwrap();
        assert_eq!(bench.refuse(read, status), Incoming::Done);
        let error = TransferError::Status { procedure: Procedure::Read, status };
        assert_eq!(bench.events(), [Event::Failed(one, error)]);
        assert_eq!(bench.session.outstanding(), 3, "the WRITEs");
        assert!(!bench.session.is_asking(one) && bench.session.is_asking(two));

        let write = calls.iter().find(|call| call.procedure() == Procedure::Write).unwrap();
        bench.refuse(write, status);
        let error = TransferError::Status { procedure: Procedure::Write, status };
        assert_eq!(bench.events(), [Event::Failed(two, error)]);
        assert_eq!((bench.send(), bench.session.outstanding()), (0, 0));
    }
}

#[test]
fn a_call_that_the_server_does_not_run_ends_its_transfer() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(3000);
    let calls = bench.calls();
    let rejection = Rejection::ProcedureUnavailable;
    assert_eq!(bench.reject(&calls[0], rejection), Incoming::Done);
    let error = TransferError::Rejected { procedure: Procedure::Read, rejection };
    assert_eq!(bench.events(), [Event::Failed(transfer, error)]);
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn a_reply_is_for_the_application_with_its_token_and_what_it_took() {
    let mut bench = Bench::new(|_| {});
    let tokens = [0, 7, u64::MAX >> 1];
    for token in tokens {
        bench.call(token).unwrap();
    }
    let calls = bench.calls();
    bench.wait();
    bench.pass(30 * MS);
    for (call, token) in calls.iter().zip(tokens) {
        let results_at = reply(call, &[]).len();
        let outcome = Ok(());
        let (attempts, round_trip) = (2, 30 * MS);
        let expected = Incoming::Reply { token, results_at, outcome, attempts, round_trip };
        assert_eq!(bench.reply(call, &[0, 0]), expected);
    }
    bench.call(5).unwrap();
    bench.sent.clear();
    let call = bench.calls().remove(0);
    let rejection = Rejection::ProcedureUnavailable;
    let incoming = bench.reject(&call, rejection);
    assert!(
        matches!(incoming, Incoming::Reply { token: 5, outcome: Err(it), .. } if it == rejection),
        "{incoming:?}"
    );
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn more_of_a_message_is_wanted_until_it_tells_what_it_is() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(1000);
    bench.session.handle_mount(bench.now, handle(9), None);
    bench.call(7).unwrap();
    let calls = bench.calls();
    let of = |procedure| calls.iter().find(|call| call.procedure() == procedure).unwrap();
    let head = |bench: &mut Bench, bytes: &[u8], complete| {
        bench.session.handle_head(bench.now, server(), bytes, complete).unwrap()
    };

    // File bytes need not be there: the driver puts them where they belong.
    let message = data(of(Procedure::Read), 1000);
    let data_at = message.len() - 1000;
    for length in 0..data_at {
        assert_eq!(head(&mut bench, &message[..length], false), Incoming::NeedMore, "{length} bytes");
    }
    assert_eq!(bench.events(), []);
    let expected = Incoming::Data { transfer, offset: 0, length: 1000, attributes: None, data_at };
    assert_eq!(head(&mut bench, &message[..data_at], false), expected);

    let message = reply(of(Procedure::Getattr), &[0, 1, 2]);
    for length in 0..=message.len() {
        assert_eq!(head(&mut bench, &message[..length], false), Incoming::NeedMore, "{length} bytes");
    }
    assert!(matches!(head(&mut bench, &message, true), Incoming::Reply { token: 7, .. }));

    let message = reply(of(Procedure::Fsinfo), &[Status::ACCES.code(), 0]);
    for length in 0..=message.len() {
        assert_eq!(head(&mut bench, &message[..length], false), Incoming::NeedMore, "{length} bytes");
        assert_eq!(bench.session.server_limits(), None);
    }
    assert_eq!(head(&mut bench, &message, true), Incoming::Done);
    assert!(bench.session.server_limits().is_some());
}

#[test]
fn results_that_end_too_early_end_the_transfer() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(1000);
    let call = bench.calls().remove(0);
    assert_eq!(bench.reply(&call, &[]), Incoming::Done);
    let events = bench.events();
    assert!(matches!(events[..], [Event::Failed(it, TransferError::Protocol { .. })] if it == transfer));
}

#[test]
fn what_is_no_reply_or_from_elsewhere_changes_nothing() {
    let mut bench = Bench::new(|_| {});
    bench.download(1000);
    let call = bench.calls().remove(0);
    assert!(bench.session.handle_head(bench.now, server(), &call.0, true).is_err(), "a call");
    let elsewhere = "192.0.2.2:2049".parse().unwrap();
    let incoming = bench.session.handle_head(bench.now, elsewhere, &data(&call, 1000), true);
    assert_eq!(incoming, Ok(Incoming::Done));
    assert_eq!((bench.events(), bench.session.outstanding()), (vec![], 1));
    assert!(matches!(bench.read(&call, 1000), Incoming::Data { .. }));
}

#[test]
fn writes_become_smaller_where_the_path_takes_half_a_second_for_them() {
    let mut bench = Bench::new(|config| {
        config.engine.carrier = Carrier::Connection;
        config.measure_writes = true;
        config.limits.write_block = 1 << 20;
    });
    bench.write(1 << 20);
    let call = bench.calls().remove(0);
    bench.pass(SECOND);
    bench.written(&call, 1 << 20, 1);
    assert_eq!(bench.session.limits().write_block, 512 << 10);

    bench.pass(SECOND * 60);
    bench.write(512 << 10);
    let call = bench.calls().remove(0);
    bench.pass(SECOND);
    bench.written(&call, 512 << 10, 1);
    assert_eq!(bench.session.limits().write_block, 256 << 10, "the idle minute does not count");

    let (one, two) = (bench.write(256 << 10), bench.calls());
    bench.pass(SECOND / 2);
    bench.write(256 << 10);
    bench.pass(SECOND / 2);
    bench.written(&two[0], 256 << 10, 1);
    assert_eq!(bench.session.limits().write_block, 128 << 10, "a second transfer begins no new measurement");
    assert!(bench.session.upload(one).is_none());
}

#[test]
fn the_rate_that_another_session_found_bounds_the_first_write() {
    let mut bench = Bench::new(|config| {
        config.measure_writes = true;
        (config.limits.read_block, config.limits.write_block) = (1 << 20, 1 << 20);
    });
    bench.session.expect_rate(131_072.0);
    let Limits { read_block, write_block, .. } = bench.session.limits();
    assert_eq!((read_block, write_block), (1 << 20, 64 << 10));
    bench.write(1 << 20);
    assert_eq!(bench.calls()[0].range(), (0, 64 << 10));

    let mut given = Bench::with_blocks(1 << 20);
    given.session.expect_rate(131_072.0);
    assert_eq!(given.session.limits().write_block, 1 << 20, "where the size is given, it stays");
}
