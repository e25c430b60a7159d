//! What the server announces (FSINFO, RFC 1813 §3.3.19), and what it turns out to take.

use super::*;

/// The results of FSINFO: READs and WRITEs of so many bytes, and a largest file that is not told.
fn announces(read_max: u32, write_max: u32) -> [u32; 14] {
    [0, 0, read_max, 512, 512, write_max, 512, 512, 4096, 0, 0, 0, 1, 0]
}

/// Returns the FSINFO that is sent next, alone, and the root that it asks about.
fn fsinfo(bench: &mut Bench) -> Option<(Call, FileHandle)> {
    let calls = bench.calls();
    let [call] = &calls[..] else {
        assert_eq!(calls.len(), 0);
        return None;
    };
    assert_eq!(call.procedure(), Procedure::Fsinfo);
    Some((call.clone(), FileHandle::try_from(&call.0[44..]).unwrap()))
}

#[test]
fn an_expected_root_is_asked_about_once_and_again_only_if_it_is_another_or_was_refused() {
    const ACCES: [u32; 2] = [13, 0];
    let [expected, other] = [1, 2].map(handle);
    let told = announces(65_536, 65_536);
    for (first, root, asked) in
        [(&told[..], expected, None), (&told[..], other, Some(other)), (&ACCES[..], expected, Some(expected))]
    {
        let mut bench = Bench::connection(1 << 20);
        bench.session.handle_mount(bench.now, expected, None);
        let (call, root_asked) = fsinfo(&mut bench).unwrap();
        assert_eq!(root_asked, expected);
        bench.reply(&call, first);
        bench.session.handle_mount(bench.now, root, None);
        let again = fsinfo(&mut bench);
        assert_eq!(again.as_ref().map(|&(_, root)| root), asked);
        if let Some((call, _)) = again {
            bench.reply(&call, &told);
        }
        assert_eq!(bench.session.server_limits().unwrap().read_max, 65_536);
    }
}

#[test]
fn reads_and_writes_wait_for_what_the_server_takes_and_never_exceed_it() {
    let mut bench = Bench::connection(1 << 20);
    bench.session.handle_mount(bench.now, handle(9), None);
    let (download, upload) = (bench.download(1 << 20), bench.write(1 << 20));
    let (call, root) = fsinfo(&mut bench).unwrap();
    assert_eq!(root, handle(9));
    assert_eq!(bench.session.server_limits(), None);
    bench.pass(SECOND);
    assert_eq!(bench.send(), 0);
    assert_eq!(bench.reply(&call, &announces(65_536, 16_384)), Incoming::Done);
    let limits = ServerLimits { read_max: 65_536, write_max: 16_384, max_file_bytes: u64::MAX };
    assert_eq!(bench.session.server_limits(), Some(limits));
    assert_eq!(bench.session.poll_timeout(), None, "nothing is waited for any more");
    let mut blocks: Vec<_> = bench.ranges().iter().map(|&(_, bytes)| bytes).collect();
    blocks.sort_unstable();
    assert_eq!(blocks, [16_384, 16_384, 65_536, 65_536]);
    assert!(bench.session.is_asking(download) && bench.session.is_asking(upload));
}

#[test]
fn other_calls_do_not_wait_for_what_the_server_takes() {
    let mut bench = Bench::connection(1 << 20);
    bench.session.handle_mount(bench.now, handle(9), None);
    bench.upload(Placement::Existing(handle(1)));
    bench.call(7).unwrap();
    let mut calls: Vec<_> = bench.calls().iter().map(Call::procedure).collect();
    calls.sort();
    assert_eq!(calls, [Procedure::Getattr, Procedure::Setattr, Procedure::Fsinfo]);
}

#[test]
fn without_an_answer_reads_begin_after_five_seconds_with_what_every_server_takes() {
    let mut bench = Bench::connection(1 << 20);
    bench.session.handle_mount(bench.now, handle(9), None);
    bench.download(1 << 30);
    let (call, _) = fsinfo(&mut bench).unwrap();
    assert_eq!(bench.wait(), SECOND * 5);
    assert!(bench.ranges().iter().all(|&(_, bytes)| bytes == 32 << 10));
    assert_eq!(bench.session.server_limits().unwrap().read_max, 32 << 10);
    assert_eq!(bench.session.poll_timeout(), None);
    // The answer is believed when it comes.
    bench.reply(&call, &announces(1 << 18, 1 << 18));
    assert_eq!(bench.session.limits().read_block, 1 << 18);
}

#[test]
fn what_was_announced_before_stays_where_another_root_is_not_answered() {
    let mut bench = Bench::connection(1 << 20);
    let known = ServerLimits { read_max: 65_536, write_max: 65_536, max_file_bytes: 1 << 40 };
    bench.session.handle_mount(bench.now, handle(8), Some(known));
    bench.session.handle_mount(bench.now, handle(9), None);
    fsinfo(&mut bench).unwrap();
    bench.download(1 << 20);
    assert_eq!(bench.wait(), SECOND * 5);
    assert_eq!(bench.session.server_limits(), Some(known));
}

#[test]
fn what_every_server_takes_does_not_wait_for_fsinfo() {
    for (read, write, waits) in
        [(32 << 10, 32 << 10, false), (32 << 10, 33 << 10, true), (33 << 10, 32 << 10, true)]
    {
        let mut bench = Bench::new(|config| {
            config.engine.carrier = Carrier::Connection;
            (config.limits.read_block, config.limits.write_block) = (read, write);
        });
        bench.session.handle_mount(bench.now, handle(9), None);
        bench.download(8 << 10);
        assert_eq!(bench.send(), if waits { 1 } else { 2 }, "{read} and {write} bytes");
        let until = waits.then_some(bench.now + SECOND * 5);
        assert_eq!(bench.session.poll_timeout(), until);
    }
}

#[test]
fn what_another_connection_was_told_is_not_asked_again() {
    let mut bench = Bench::connection(1 << 20);
    let known = ServerLimits { read_max: 65_536, write_max: 16_384, max_file_bytes: 1 << 40 };
    bench.session.handle_mount(bench.now, handle(9), Some(known));
    assert_eq!(bench.send(), 0);
    let Limits { read_block, write_block, .. } = bench.session.limits();
    assert_eq!((read_block, write_block), (65_536, 16_384));
    assert_eq!(bench.session.server_limits(), Some(known));
}

#[test]
fn what_is_under_way_and_larger_than_announced_is_made_again_in_smaller_blocks() {
    let mut bench = Bench::connection(8192);
    bench.session.handle_mount(bench.now, handle(9), None);
    bench.download(16_384);
    bench.write(16_384);
    let calls = bench.calls();
    assert_eq!(calls.len(), 5);
    let fsinfo = calls.iter().find(|call| call.procedure() == Procedure::Fsinfo).unwrap();
    bench.reply(fsinfo, &announces(8192, 8192));
    assert_eq!((bench.send(), bench.session.stats().withdrawn.too_large), (0, 0), "they are no larger");

    bench.session.handle_reconnect(bench.now);
    let calls = bench.calls();
    let fsinfo = calls.iter().find(|call| call.procedure() == Procedure::Fsinfo).unwrap();
    bench.reply(fsinfo, &announces(8192, 4096));
    assert_eq!(bench.session.stats().withdrawn.too_large, 2, "the WRITEs alone");
    let calls = bench.calls();
    assert!(calls.iter().all(|call| call.procedure() == Procedure::Write));
    assert_eq!(calls[0].range(), (0, 4096));

    bench.session.handle_reconnect(bench.now);
    let calls = bench.calls();
    let fsinfo = calls.iter().find(|call| call.procedure() == Procedure::Fsinfo).unwrap();
    bench.reply(fsinfo, &announces(2048, 4096));
    assert_eq!(bench.session.stats().withdrawn.too_large, 4, "now the READs");
    let calls = bench.calls();
    let read = calls.iter().find(|call| call.procedure() == Procedure::Read).unwrap();
    assert_eq!(read.range(), (0, 2048));
}

#[test]
fn every_new_connection_asks_what_its_server_takes() {
    let mut bench = Bench::connection(8192);
    bench.session.handle_reconnect(bench.now);
    assert_eq!(bench.send(), 0, "nothing is mounted");
    bench.session.handle_mount(bench.now, handle(9), None);
    fsinfo(&mut bench).unwrap();
    bench.session.handle_reconnect(bench.now);
    let (call, root) = fsinfo(&mut bench).unwrap();
    assert_eq!((root, bench.session.outstanding()), (handle(9), 1), "in place of the one before");
    bench.reply(&call, &announces(4096, 4096));
    assert_eq!(bench.session.limits().read_block, 4096);
    bench.session.handle_reconnect(bench.now);
    assert!(fsinfo(&mut bench).is_some());
}

#[test]
fn a_server_that_refuses_or_garbles_fsinfo_is_given_what_every_server_takes() {
    let answers: [fn(&mut Bench, &Call) -> Incoming; 3] = [
        |bench, call| bench.refuse(call, Status::NOTSUPP),
        |bench, call| bench.reject(call, Rejection::ProcedureUnavailable),
        |bench, call| bench.reply(call, &[0, 0, 65_536]),
    ];
    for answer in answers {
        let mut bench = Bench::connection(1 << 20);
        bench.session.handle_mount(bench.now, handle(9), None);
        let (call, _) = fsinfo(&mut bench).unwrap();
        assert_eq!(answer(&mut bench, &call), Incoming::Done);
        let expected = ServerLimits { read_max: 32 << 10, write_max: 32 << 10, max_file_bytes: u64::MAX };
        assert_eq!(bench.session.server_limits(), Some(expected));
        assert_eq!(bench.session.outstanding(), 0);
    }
}

#[test]
fn a_server_that_stops_reads_twice_at_the_same_size_is_asked_for_no_more() {
    let mut bench = Bench::new(|config| {
        (config.limits.read_block, config.limits.write_block) = (8192, 8192);
        config.engine.window.calls = 2;
    });
    bench.download(1 << 20);
    let calls = bench.calls();
    bench.read(&calls[0], 4096);
    assert_eq!(bench.session.limits().read_block, 8192);
    bench.read(&calls[1], 4096);
    assert_eq!(bench.session.limits().read_block, 4096);
    assert_eq!(bench.session.limits().write_block, 8192);
    assert_eq!(bench.session.stats().withdrawn.too_large, 0);
    let next = bench.ranges();
    assert_eq!(next, [(4096, 4096), (12_288, 4096)]);
}

#[test]
fn larger_reads_under_way_are_asked_for_in_the_size_that_was_found() {
    let mut bench = Bench::with_blocks(8192);
    bench.download(1 << 20);
    let calls = bench.calls();
    bench.read(&calls[0], 4096);
    bench.read(&calls[1], 4096);
    assert_eq!(bench.session.stats().withdrawn.too_large, 2, "those that wait");
    assert!(bench.ranges().iter().all(|&(_, bytes)| bytes == 4096));
}
