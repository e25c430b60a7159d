//! Blocks that a server or a path does not take.

use super::*;

#[test]
fn large_blocks_that_stop_arriving_are_resegmented() {
    let mut bench = Bench::adaptive();
    bench.download(1 << 32);
    let (_, asked) = bench.serve(u32::MAX, SECOND * 3);
    assert_eq!(asked, 32 << 10);
    // As where a receiver's memory for fragments is full.
    bench.serve(1280, SECOND);
    let (read, _) = bench.serve(1280, SECOND);
    assert!(read > 1280 * 500, "{read} bytes in a second");
    let withdrawn = bench.session.stats().withdrawn;
    assert!(withdrawn.resegment > 0 && withdrawn.hand_over + withdrawn.too_large == 0, "{withdrawn:?}");
    // And when it is not any more, a trial finds that out.
    bench.serve(u32::MAX, SECOND * 33);
    let (_, asked) = bench.serve(u32::MAX, SECOND);
    assert_eq!(asked, 32 << 10);
}

#[test]
fn where_no_fragment_passes_few_are_asked_for() {
    let mut bench = Bench::adaptive();
    bench.download(1 << 32);
    bench.serve(1280, SECOND);
    let (mut read, mut vain) = (0, 0);
    for _ in 0..100 {
        let (bytes, asked) = bench.serve(1280, SECOND / 10);
        read += bytes;
        vain += u32::from(asked > 1280);
    }
    assert!(read > 1280 * 5000, "{read} bytes in ten seconds");
    assert!(vain <= 4, "after 1, 2, 4 and 8 s, not {vain} times");
}

/// Sends and lets timers fire for so long; returns the NULL calls that left, each once, however often.
fn nulls(bench: &mut Bench, time: Duration) -> Vec<Call> {
    let end = bench.now + time;
    let mut nulls: Vec<Call> = Vec::new();
    loop {
        for call in bench.calls() {
            if call.procedure() == Procedure::Null && nulls.iter().all(|it| it.xid() != call.xid()) {
                nulls.push(call);
            }
        }
        match bench.session.poll_timeout().filter(|&due| due <= end) {
            Some(_) => bench.tick(),
            None => break,
        };
    }
    bench.now = end;
    nulls
}

#[test]
fn a_large_block_that_was_sent_twice_in_vain_for_a_second_has_the_server_asked_whether_it_lives() {
    let timeouts = |initial: u64, step: u64| RetryPolicy::Hybrid {
        initial: Duration::from_millis(initial),
        linear_steps: 9,
        linear_step: Duration::from_millis(step),
        maximum: SECOND * 60,
    };
    for (initial, step, asked) in [
        // Resends after 0.7 and 1.5 s.
        (700, 100, 1500),
        // After 0.5 and 1 s.
        (500, 0, 1000),
        // After 0.4, 0.8 and 1.2 s.
        (400, 0, 1200),
        // After 3 and 6 s.
        (3000, 0, 6000),
    ] {
        let mut bench = Bench::new(|config| {
            config.engine.retry = timeouts(initial, step);
            config.limits.read_block = 1024;
        });
        bench.download(50_000);
        let start = bench.now;
        let null = loop {
            match nulls(&mut bench, Duration::ZERO).pop() {
                Some(null) => break null,
                None => bench.tick(),
            };
        };
        assert_eq!((bench.now - start).as_millis(), asked);
        let again = nulls(&mut bench, SECOND * 60);
        assert!(again.iter().all(|it| it.xid() == null.xid()), "no other one, until it is answered");
    }
}

#[test]
fn where_the_server_lives_silent_blocks_become_smaller_until_they_are_answered() {
    let mut bench = Bench::with_blocks(4096);
    bench.download(1 << 30);
    for (bytes, withdrawn) in [(4096, 0), (2048, 4), (1024, 8), (512, 12)] {
        assert_eq!(bench.session.limits().read_block, bytes);
        assert_eq!(bench.session.stats().withdrawn.too_large, withdrawn);
        let calls = bench.calls();
        let ranges: Vec<_> = calls.iter().map(Call::range).collect();
        assert_eq!(ranges, [0, 1, 2, 3].map(|at| (at * u64::from(bytes), bytes)), "from the beginning");
        if bytes > MIN_BLOCK_BYTES {
            let null = nulls(&mut bench, SECOND * 2).remove(0);
            assert_eq!(bench.reply(&null, &[]), Incoming::Done);
        }
    }
    assert_eq!(nulls(&mut bench, SECOND * 60).len(), 0, "every server takes 512 bytes");
    assert_eq!(bench.events(), []);
}

#[test]
fn while_no_call_is_answered_blocks_stay_as_they_are() {
    let mut bench = Bench::with_blocks(4096);
    bench.download(50_000);
    assert_eq!(nulls(&mut bench, SECOND * 60).len(), 1);
    assert_eq!(bench.session.limits().read_block, 4096);
    assert_eq!(bench.session.outstanding(), 5);
}

#[test]
fn a_size_that_was_answered_once_is_not_suspected() {
    let mut bench = Bench::with_blocks(4096);
    bench.download(1 << 30);
    bench.send();
    bench.answer(4096);
    assert_eq!(nulls(&mut bench, SECOND * 60).len(), 0);

    let mut bench = Bench::with_blocks(4096);
    bench.write(1 << 30);
    let call = bench.calls().remove(0);
    bench.written(&call, 4096, 1);
    assert_eq!(nulls(&mut bench, SECOND * 60).len(), 0);
}

#[test]
fn what_was_answered_of_reads_says_nothing_about_writes() {
    for proves_read in [true, false] {
        let mut bench = Bench::with_blocks(4096);
        let (download, upload) = (bench.download(8192), bench.write(8192));
        let calls = bench.calls();
        let of = |procedure| calls.iter().filter(move |call| call.procedure() == procedure);
        if proves_read {
            of(Procedure::Read).for_each(|call| assert_ne!(bench.read(call, 4096), Incoming::Done));
        } else {
            of(Procedure::Write).for_each(|call| assert_eq!(bench.written(call, 4096, 1), Incoming::Done));
        }
        let null = nulls(&mut bench, SECOND * 2).remove(0);
        bench.reply(&null, &[]);
        let Limits { read_block, write_block, .. } = bench.session.limits();
        let expected = if proves_read { (4096, 2048) } else { (2048, 4096) };
        assert_eq!((read_block, write_block), expected);
        assert!(!bench.session.is_asking(download), "what it had in flight is taken back");
        assert!(bench.session.upload(upload).is_some() || !proves_read);
    }
}

#[test]
fn a_block_that_was_not_sent_yet_is_not_too_large() {
    let mut bench = Bench::with_blocks(4096);
    let silent = bench.download(50_000);
    let null = nulls(&mut bench, SECOND * 2).remove(0);
    bench.session.stop(bench.now, silent);
    bench.download(50_000);
    bench.call(7).unwrap();
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(transmit.transfer, None, "the call leaves first, and a READ waits behind it");
    bench.reply(&null, &[]);
    assert_eq!(bench.session.limits().read_block, 4096);
    assert_eq!(bench.calls()[0].range(), (0, 4096));
}

#[test]
fn a_server_that_finds_a_block_too_large_is_asked_for_half() {
    for rejection in [Rejection::GarbageArguments, Rejection::SystemError] {
        let mut bench = Bench::with_blocks(2048);
        let transfer = bench.download(50_000);
        let calls = bench.calls();
        assert_eq!(bench.reject(&calls[1], rejection), Incoming::Done);
        assert_eq!(bench.session.limits(), Limits { read_block: 1024, ..bench.session.limits() });
        assert_eq!(bench.session.limits().write_block, 2048);
        assert_eq!(bench.session.outstanding(), 3, "the others may be answered yet");
        assert_eq!(bench.ranges(), [(2048, 1024)]);
        assert_eq!(bench.session.stats().withdrawn.too_large, 1);
        assert_eq!(bench.events(), []);

        bench.write(50_000);
        bench.session.stop(bench.now, transfer);
        let calls = bench.calls();
        bench.reject(&calls[0], rejection);
        assert_eq!(bench.session.limits().write_block, 1024);
        assert_eq!(bench.ranges(), [(0, 1024)]);
    }
}

#[test]
fn the_smallest_block_and_small_calls_are_never_too_large() {
    for rejection in [Rejection::GarbageArguments, Rejection::SystemError] {
        let mut bench = Bench::with_blocks(512);
        let transfer = bench.download(50_000);
        let call = bench.calls().remove(0);
        bench.reject(&call, rejection);
        let error = TransferError::Rejected { procedure: Procedure::Read, rejection };
        assert_eq!(bench.events(), [Event::Failed(transfer, error)]);

        let mut bench = Bench::with_blocks(2048);
        let transfer = bench.upload(Placement::Existing(handle(1)));
        let call = bench.calls().remove(0);
        bench.reject(&call, rejection);
        let error = TransferError::Rejected { procedure: Procedure::Setattr, rejection };
        assert_eq!(bench.events(), [Event::Failed(transfer, error)]);
    }
}

#[test]
fn other_rejections_do_not_mean_the_size() {
    let mut bench = Bench::with_blocks(2048);
    bench.download(50_000);
    let call = bench.calls().remove(0);
    bench.reject(&call, Rejection::ProcedureUnavailable);
    assert_eq!(bench.session.limits().read_block, 2048);
    assert!(matches!(bench.events()[..], [Event::Failed(..)]));
}

#[test]
fn a_connection_that_closes_over_a_block_has_it_asked_for_in_halves() {
    let mut bench = Bench::connection(65_536);
    bench.download(1 << 30);
    assert_eq!(bench.send(), 4);
    bench.session.handle_close(bench.now, false);
    assert_eq!(bench.session.limits().read_block, 32_768);
    assert_eq!(bench.session.limits().write_block, 65_536);
    assert_eq!(bench.session.stats().withdrawn.too_large, 4);
    bench.sent.clear();
    assert_eq!(bench.ranges(), [0, 1, 2, 3].map(|at| (at * 32_768, 32_768)));
}

#[test]
fn reads_and_writes_of_a_closed_connection_are_judged_apart() {
    let mut bench = Bench::new(|config| {
        config.engine.carrier = Carrier::Connection;
        (config.limits.read_block, config.limits.write_block) = (65_536, 8192);
    });
    bench.download(40_000);
    bench.download(1 << 30);
    bench.write(1 << 30);
    let mut bytes: Vec<_> = bench.ranges().iter().map(|&(_, bytes)| bytes).collect();
    bytes.sort_unstable();
    assert_eq!(bytes, [8192, 40_000, 65_536, 65_536]);
    bench.session.handle_close(bench.now, false);
    let Limits { read_block, write_block, .. } = bench.session.limits();
    assert_eq!((read_block, write_block), (32_768, 4096), "half of the largest of each");
}

#[test]
fn a_connection_that_closes_over_what_was_answered_before_has_another_reason() {
    for (again, read_block) in [(false, 65_536), (true, 32_768)] {
        let mut bench = Bench::connection(65_536);
        bench.download(1 << 30);
        bench.send();
        bench.answer(65_536);
        bench.session.handle_close(bench.now, again);
        assert_eq!(bench.session.limits().read_block, read_block, "again: {again}");

        let mut bench = Bench::connection(65_536);
        bench.write(1 << 30);
        let calls = bench.calls();
        bench.written(&calls[0], 65_536, 1);
        bench.session.handle_close(bench.now, again);
        assert_eq!(bench.session.limits().write_block, read_block, "again: {again}");
    }
}

#[test]
fn a_connection_closes_over_what_was_sent() {
    let mut bench = Bench::connection(65_536);
    bench.download(1 << 30);
    bench.call(7).unwrap();
    bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(bench.session.outstanding(), 2, "the call has left, and a READ waits behind it");
    bench.session.handle_close(bench.now, false);
    assert_eq!(bench.session.limits().read_block, 65_536);

    let mut bench = Bench::connection(512);
    bench.download(1 << 30);
    bench.send();
    bench.session.handle_close(bench.now, true);
    assert_eq!(bench.session.limits().read_block, 512, "no server closes over the smallest");
    assert_eq!(bench.session.outstanding(), 4);
}
