//! WRITEs whose bytes come later.

use super::*;

#[test]
fn a_write_leaves_with_the_bytes_that_it_waited_for_and_keeps_them() {
    let mut bench = Bench::new(|_| {});
    let id = bench.session.start_loading(bench.now, writes(1501));
    assert_eq!((bench.send(), bench.session.outstanding()), (0, 0), "its bytes are not there");
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 0, length: 1000 })]);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    bench.session.handle_loaded(bench.now, id, &[8; 1000]);
    assert_eq!(bench.send(), 1, "nobody asked for the others");
    bench.tick();
    assert_eq!(bench.send(), 1, "it is sent again without being loaded again");
    assert!(bench.sent.iter().all(|call| call.0.ends_with(&[7; 1000])));
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 1000, length: 501 })]);

    // It leaves before the second block has come.
    let upload = bench.session.detach(bench.now, id).unwrap();
    assert_eq!(bench.session.stats().withdrawn.hand_over, 1, "the one that was sent");
    bench.session.handle_loaded(bench.now, id, &[7; 501]);
    assert_eq!((bench.send(), bench.session.outstanding()), (0, 0));
    let mut other = Bench::new(|_| {});
    let id = other.session.start_loading(other.now, upload);
    for (offset, length) in [(0, 1000), (1000, 501)] {
        assert_eq!(other.send(), 0);
        assert_eq!(other.events(), [Event::Load(id, Payload { offset, length })]);
        other.session.handle_loaded(other.now, id, &vec![9; length as usize]);
        assert_eq!(other.send(), 1);
    }
    assert!(other.sent[1].0.ends_with(&[&[9; 501][..], &[0; 3]].concat()), "padded to words");
    other.session.stop(other.now, id);
    assert_eq!(other.session.outstanding(), 0);
}

#[test]
fn the_reply_to_a_write_that_waited_for_its_bytes_counts_as_any() {
    let mut bench = Bench::new(|_| {});
    let id = bench.session.start_loading(bench.now, writes(1000));
    assert_eq!(bench.send(), 0);
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 0, length: 1000 })]);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(transmit.payload, None, "the bytes are part of the message");
    let call = Call(transmit.head.to_vec());
    assert_eq!((call.range(), call.word(68)), ((0, 1000), 1000));
    bench.written(&call, 1000, 1);
    assert_eq!(bench.events(), [Event::Progress(id, 1000), Event::Finished(id)]);
}

#[test]
fn where_the_driver_has_the_bytes_nobody_is_asked_for_them() {
    let mut bench = Bench::new(|_| {});
    let id = bench.write(1000);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(transmit.payload, Some(Payload { offset: 0, length: 1000 }));
    let none = bench.session.poll_transmit(bench.now).is_none();
    assert!(none && bench.events().is_empty());
}

#[test]
fn only_writes_wait_for_bytes() {
    let mut bench = Bench::new(|_| {});
    let download = Transfer::Download(Download::new(&handle(1), 1000));
    bench.session.start_loading(bench.now, download);
    assert_eq!(bench.ranges(), [(0, 1000)]);
    assert_eq!(bench.events(), []);
}

#[test]
fn a_transfer_that_waits_for_bytes_lets_others_pass() {
    for calls in [1, 4] {
        let mut bench = Bench::new(|config| config.engine.window.calls = calls);
        let slow = bench.session.start_loading(bench.now, writes(9000));
        let quick = bench.session.start_loading(bench.now, writes(1000));
        let (download, upload) = (bench.download(1000), bench.write(1000));
        let (mut ended, mut messages) = (Vec::new(), 0);
        // As a driver does: nothing is polled again unless something has happened.
        let mut happened = true;
        while std::mem::take(&mut happened) {
            for call in bench.calls() {
                match call.procedure() {
                    Procedure::Read => bench.read(&call, 1000),
                    _ => bench.written(&call, 1000, 1),
                };
                (happened, messages) = (true, messages + 1);
            }
            for event in bench.events() {
                match event {
                    Event::Load(id, _) if id == quick => {
                        bench.session.handle_loaded(bench.now, id, &[7; 1000]);
                        happened = true;
                    }
                    Event::Finished(id) => ended.push(id),
                    _ => {}
                }
            }
        }
        ended.sort();
        assert_eq!((ended, messages), (vec![quick, download, upload], 3), "a window of {calls} calls");

        bench.session.handle_loaded(bench.now, slow, &[7; 1000]);
        assert_eq!(bench.ranges(), [(0, 1000)], "it goes on when its bytes have come");
    }
}

#[test]
fn a_write_that_waits_for_its_bytes_has_a_place_already() {
    let mut bench = Bench::new(|config| config.engine.window.calls = u32::MAX);
    let upload = bench.session.start_loading(bench.now, writes(1000));
    assert_eq!(bench.send(), 0);
    for _ in 0..5000 {
        bench.upload(Placement::Temporary(b".".to_vec()));
    }
    while bench.call(1).is_some() {}
    assert_eq!(bench.send(), APPLICATION_CALLS + TRANSFER_CALLS - 1);
    bench.session.handle_loaded(bench.now, upload, &[7; 1000]);
    assert_eq!(bench.send(), 1);
    assert_eq!(bench.sent.back().unwrap().range(), (0, 1000));
}

#[test]
fn no_more_is_loaded_than_the_window_takes_and_one_write_beside_it() {
    const MIB: u32 = 1 << 20;
    let large = u64::from(MIB) * 4;
    for (calls, write_bytes, block, most) in
        [(64, large, MIB, 5), (64, large, MIB / 2, 9), (4, u64::MAX, MIB, 5), (64, 1000, MIB, 2)]
    {
        let mut bench = Bench::new(|config| {
            config.engine.window = WindowLimits { calls, read_bytes: large, write_bytes };
            config.limits.write_block = block;
        });
        for _ in 0..2000 {
            bench.session.start_loading(bench.now, writes(block.into()));
        }
        assert_eq!(bench.send(), 0);
        assert_eq!(bench.events().len(), most, "{calls} calls and {write_bytes} bytes, by {block}");
    }
}

#[test]
fn what_is_loaded_and_not_answered_stays_that_little_until_all_is_sent() {
    let mut bench = Bench::new(|_| {});
    for _ in 0..20 {
        bench.session.start_loading(bench.now, writes(10_000));
    }
    let (mut loads, mut finished, mut written) = (VecDeque::new(), 0, 0);
    for round in 0.. {
        bench.send();
        for event in bench.events() {
            match event {
                Event::Load(id, payload) => loads.push_back((id, payload)),
                Event::Finished(_) => finished += 1,
                Event::Progress(_, bytes) => written += bytes,
                other => panic!("{other:?}"),
            }
        }
        let mut held = loads.len();
        bench.session.engine.look(|_, class, _, _| held += usize::from(class == Class::Write));
        assert!(held <= 5, "{held} in round {round}");
        if finished == 20 {
            break;
        }
        // Loads and replies come in bursts of other lengths.
        for (id, Payload { length, .. }) in loads.drain(..loads.len().min(round % 3)) {
            bench.session.handle_loaded(bench.now, id, &vec![7; length as usize]);
        }
        for _ in 0..round % 5 {
            if let Some(call) = bench.sent.pop_front() {
                match call.procedure() {
                    Procedure::Commit => bench.committed(&call, 1),
                    _ => bench.written(&call, 1000, 1),
                };
            }
        }
    }
    assert_eq!(written, 20 * 10_000);
}
