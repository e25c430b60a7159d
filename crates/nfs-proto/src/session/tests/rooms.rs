//! Which call leaves next, and how many may be outstanding.

use nfs_wire::{encode, nfs3_types::nfs3::READ3args};

use super::*;

#[test]
fn calls_and_transfers_leave_each_other_room_however_many_there_are() {
    let mut bench = Bench::new(|config| config.engine.window.calls = u32::MAX);
    let mut next = 0;
    let mut submit = |bench: &mut Bench| {
        next += 1;
        bench.session.submit(bench.now, next, (Program::NFS, 0), None, |_| {})
    };
    let calls: Vec<CallId> = std::iter::from_fn(|| submit(&mut bench)).collect();
    assert_eq!(calls.len(), APPLICATION_CALLS);
    let transfers: Vec<_> = (0..5000).map(|_| bench.upload(Placement::Temporary(b".".to_vec()))).collect();
    assert_eq!(bench.send(), APPLICATION_CALLS + TRANSFER_CALLS);
    bench.session.cancel(bench.now, calls[0]);
    bench.session.cancel(bench.now, calls[0]);
    assert!(submit(&mut bench).is_some() && submit(&mut bench).is_none(), "one place was freed");
    bench.session.stop(bench.now, transfers[0]);
    assert_eq!(bench.send(), 2, "the call, and the next transfer");
}

#[test]
fn transfers_take_turns() {
    let mut bench = Bench::new(|_| {});
    let (one, two) = (bench.download(4000), bench.download(4000));
    let mut finished = Vec::new();
    while finished.len() < 2 {
        bench.send();
        bench.answer(1000);
        for event in bench.events() {
            match event {
                Event::Finished(transfer) => finished.push((transfer, bench.sent.len())),
                Event::Progress(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let left_when_first_finished = finished[0].1;
    assert!(left_when_first_finished <= 2, "neither waited for the other");
    assert_eq!([finished[0].0, finished[1].0], [one, two]);
}

#[test]
fn a_stopped_transfer_ignores_its_late_replies() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(50_000);
    assert_eq!(bench.send(), 4);
    bench.session.stop(bench.now, transfer);
    assert_eq!(bench.session.outstanding(), 0);
    assert_eq!(bench.answer(1000), Incoming::Done);
    assert_eq!(bench.events(), []);
}

#[test]
fn every_transfer_has_its_turn_at_a_window_of_one_call() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 1);
    let transfers = [1, 2, 3].map(|file| {
        let download = Download::new(&handle(file), 50_000);
        bench.session.start(bench.now, Transfer::Download(download))
    });
    let mut turns = Vec::new();
    for _ in 0..6 {
        let transmit = bench.session.poll_transmit(bench.now).unwrap();
        let call = Call(transmit.head.to_vec());
        turns.push(transmit.transfer.unwrap());
        assert_eq!(bench.session.poll_transmit(bench.now), None, "the window is full");
        bench.read(&call, 1000);
    }
    assert_eq!(turns, [transfers, transfers].concat());
}

#[test]
fn a_place_of_the_application_is_free_again_when_its_call_is_answered_or_expires() {
    let mut bench = Bench::new(|_| {});
    let deadline = bench.now + SECOND / 2;
    let getattr = (Program::NFS, Procedure::Getattr.number());
    bench.session.submit(bench.now, 0, getattr, Some(deadline), |_| {}).unwrap();
    while bench.call(1).is_some() {}
    let calls = bench.calls();
    assert_eq!(calls.len(), APPLICATION_CALLS);

    bench.reply(&calls[1], &[0]);
    assert!(bench.call(2).is_some() && bench.call(2).is_none(), "one was answered");
    bench.pass(SECOND / 2);
    let expired = Event::Expired { token: 0, attempts: 1, elapsed: SECOND / 2 };
    assert_eq!(bench.events(), [expired]);
    assert!(bench.call(3).is_some() && bench.call(3).is_none(), "one expired");
}

#[test]
fn a_reply_is_matched_with_its_transfer_however_many_there_were_before() {
    let mut bench = Bench::new(|_| {});
    bench.session.next_transfer = 0x3fff_ffff;
    let transfers = [bench.download(1000), bench.download(1000)];
    assert_ne!(transfers[0], transfers[1]);
    let calls = bench.calls();
    for (call, transfer) in calls.iter().zip(transfers) {
        bench.read(call, 1000);
        assert_eq!(bench.events(), [Event::Progress(transfer, 1000), Event::Finished(transfer)]);
    }
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn a_message_names_the_transfer_that_has_its_payload_and_no_other_does() {
    let mut bench = Bench::with_blocks(4096);
    let upload = bench.write(4096);
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(transmit.transfer, Some(upload));
    assert_eq!(transmit.payload, Some(Payload { offset: 0, length: 4096 }));
    assert!(!transmit.dont_fragment, "servers without path MTU discovery are sent blocks of several frames");

    bench.session.stop(bench.now, upload);
    bench.session.handle_mount(bench.now, handle(9), None);
    bench.call(1).unwrap();
    for _ in 0..2 {
        let transmit = bench.session.poll_transmit(bench.now).unwrap();
        assert_eq!((transmit.transfer, transmit.payload), (None, None));
    }
}

#[test]
fn a_transfer_asks_while_a_call_of_its_own_is_outstanding() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 1);
    let (one, two) = (bench.download(1000), bench.download(1000));
    assert!(!bench.session.is_asking(one), "nothing was polled");
    let calls = bench.calls();
    assert_eq!(calls.len(), 1);
    assert!(bench.session.is_asking(one) && !bench.session.is_asking(two));
    bench.read(&calls[0], 1000);
    bench.send();
    assert!(!bench.session.is_asking(one) && bench.session.is_asking(two));
}

#[test]
fn an_upload_can_be_looked_at_while_it_is_under_way() {
    let mut bench = Bench::new(|_| {});
    let (download, one, two) = (bench.download(1000), bench.write(1000), bench.write(2000));
    assert!(bench.session.upload(download).is_none());
    let calls = bench.calls();
    bench.written(&calls[1], 1000, 1);
    assert!(bench.session.upload(one).is_none(), "it is complete");
    bench.written(&calls[3], 1000, 1);
    assert_eq!(bench.session.upload(two).unwrap().stable(), 1000, "the last WRITE is stable at once");
}

#[test]
fn a_file_without_bytes_is_complete_without_a_call() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(0);
    assert_eq!(bench.events(), [Event::Finished(transfer)]);
    assert_eq!(bench.send(), 0);
}

/// A READ of the application's own takes room in queues as one of a transfer does.
#[test]
fn reads_of_the_application_wait_for_the_window_and_small_calls_do_not() {
    let mut bench = Bench::new(|config| config.engine.window.read_bytes = 3 * 4096);
    let read = (Program::NFS, Procedure::Read.number());
    for token in 0..32 {
        let arguments = |buffer: &mut Vec<u8>| {
            let arguments = READ3args { file: handle(1).to_fh3(), offset: token << 12, count: 4096 };
            encode(buffer, &arguments);
        };
        bench.session.submit(bench.now, token, read, None, arguments).unwrap();
    }
    bench.call(99).unwrap();
    assert_eq!(bench.send(), 4, "three READs of 4096 bytes, and GETATTR");
    assert_eq!(bench.sent.iter().filter(|call| call.procedure() == Procedure::Read).count(), 3);
}

#[test]
fn the_rest_of_a_read_leaves_before_the_reads_that_wait() {
    let mut bench = Bench::new(|_| {});
    let mut token = 0;
    let mut read = |bench: &mut Bench, file: u8, offset: u64, count: u32| {
        token += 1;
        let procedure = (Program::NFS, Procedure::Read.number());
        let queued = bench.session.submit(bench.now, token, procedure, None, |buffer| {
            encode(buffer, &READ3args { file: handle(file).to_fh3(), offset, count });
        });
        assert!(queued.is_some());
    };
    (0..50).for_each(|block| read(&mut bench, 1, 1000 * block, 1000));
    let window = bench.calls();
    assert_eq!(window.len(), 4);
    // Of another file, and of what nobody has begun.
    bench.receive(&data(&window[1], 60));
    read(&mut bench, 2, 1060, 940);
    read(&mut bench, 1, 100, 900);
    assert_eq!(bench.ranges(), [(4000, 1000)]);
    bench.receive(&data(&window[0], 100));
    read(&mut bench, 1, 1060, 940);
    assert_eq!(bench.ranges(), [(1060, 940)]);
    // Once: it is asked for.
    read(&mut bench, 1, 1060, 940);
    bench.receive(&data(&window[2], 1000));
    assert_eq!(bench.ranges(), [(5000, 1000)]);
}
