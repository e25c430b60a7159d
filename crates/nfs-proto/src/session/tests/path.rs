//! What the session knows of link and path, and of where the server is.

use super::*;

#[test]
fn a_mount_that_a_fade_takes_is_asked_again_as_soon_as_one_reply_shows_its_end() {
    let mut bench = Bench::new(|config| config.engine.retry = RetryPolicy::Adaptive);
    let start = bench.now;
    for procedure in [nfs_wire::mount::procedure::EXPORT, nfs_wire::mount::procedure::MNT] {
        bench.session.submit(bench.now, 1, (Program::MOUNT, procedure), None, |_| {}).unwrap();
    }
    assert_eq!(bench.send(), 2);
    bench.sent.clear();
    bench.wait();
    let again = bench.sent.pop_front().unwrap();
    bench.now += 5 * MS;
    bench.reply(&again, &[]);
    bench.wait();
    let took = bench.now - start;
    let sent_again = [again.number(), bench.sent[0].number()];
    assert_eq!(sent_again, [nfs_wire::mount::procedure::EXPORT, nfs_wire::mount::procedure::MNT]);
    assert!(took < 150 * MS, "{took:?}");
}

#[test]
fn an_upload_sends_create_twice_into_a_silence_and_setattr_once() {
    let file = handle(1);
    let temporary = Placement::Temporary(b".name".to_vec());
    let cases =
        [(temporary, Procedure::Create, 2..=9), (Placement::Existing(file), Procedure::Setattr, 1..=1)];
    for (placement, procedure, expected) in cases {
        let mut bench = Bench::adaptive();
        bench.upload(placement);
        let end = bench.now + SECOND;
        bench.send();
        while bench.session.poll_timeout().is_some_and(|due| due < end) {
            bench.tick();
            bench.send();
        }
        let is_it = |call: &&Call| call.procedure() == procedure;
        let (copies, all) = (bench.sent.iter().filter(is_it).count(), bench.sent.len());
        assert!(expected.contains(&copies) && all > copies, "{procedure}: {copies} of {all} calls");
    }
}

#[test]
fn when_the_link_changes_what_waits_is_sent_again_at_once() {
    let mut bench = Bench::new(|_| {});
    bench.download(50_000);
    bench.send();
    bench.pass(300 * MS);
    assert_eq!(bench.send(), 0);
    bench.session.handle_link_event(bench.now);
    bench.session.handle_timeout(bench.now);
    assert_eq!(bench.send(), 4, "not only after 700 ms");
}

#[test]
fn when_the_server_moves_downloads_and_calls_go_on_at_its_new_address() {
    let mut bench = Bench::new(|_| {});
    let download = bench.download(2000);
    bench.call(7).unwrap();
    let calls = bench.calls();
    let of = |procedure| calls.iter().find(|call| call.procedure() == procedure).unwrap();
    bench.pass(300 * MS);
    let new = "198.51.100.7:2049".parse().unwrap();
    bench.session.handle_move(bench.now, new);
    bench.session.handle_timeout(bench.now);
    assert_eq!(bench.send(), 3, "all is sent again at once");

    let message = data(of(Procedure::Read), 1000);
    let mut head = |peer, message: &[u8]| bench.session.handle_head(bench.now, peer, message, true).unwrap();
    assert_eq!(head(server(), &message), Incoming::Done, "from where it was");
    assert!(matches!(head(new, &message), Incoming::Data { transfer, .. } if transfer == download));
    let message = reply(of(Procedure::Getattr), &[0]);
    assert!(matches!(head(new, &message), Incoming::Reply { token: 7, .. }));
}

#[test]
fn when_the_server_moves_uploads_end_as_stale() {
    let mut bench = Bench::new(|config| config.engine.window.calls = 16);
    let (one, download, two) = (bench.write(1000), bench.download(3000), bench.write(2000));
    assert_eq!(bench.send(), 6);
    bench.session.handle_move(bench.now, "198.51.100.7:2049".parse().unwrap());
    let error = TransferError::Status { procedure: Procedure::Write, status: Status::STALE };
    assert_eq!(bench.events(), [Event::Failed(one, error), Event::Failed(two, error)]);
    assert_eq!(
        bench.session.outstanding(),
        3,
        "what was written is at the new address only if a look says so"
    );
    assert!(bench.session.is_asking(download));
}

#[test]
fn blocks_fit_the_mtu_of_the_route() {
    let mut bench = Bench::adaptive();
    bench.session.handle_route_mtu(1400, false);
    assert_eq!(
        bench.session.limits().read_block,
        1152,
        "headers take 220 bytes, and blocks are multiples of 64"
    );
    bench.download(1 << 20);
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert!(transmit.dont_fragment);
    assert_eq!(bench.calls()[0].range().1, 1152);
}

#[test]
fn blocks_under_way_that_do_not_fit_a_smaller_mtu_are_asked_for_in_smaller_ones() {
    let mut bench = Bench::adaptive();
    bench.download(1280 + 1024);
    assert_eq!(bench.ranges(), [(0, 1280), (1280, 1024)]);
    bench.session.handle_route_mtu(1280, false);
    assert_eq!(bench.ranges(), [(0, 1024), (1024, 256)]);
    assert_eq!(bench.session.stats().withdrawn.resegment, 1, "the other one fits");
}

#[test]
fn the_size_of_fragments_that_arrive_is_the_mtu_of_the_path() {
    let next = |fragment| {
        let mut bench = Bench::adaptive();
        bench.session.handle_route_mtu(1500, true);
        bench.download(1 << 20);
        let call = bench.calls().remove(0);
        bench.session.handle_fragments(fragment);
        bench.now += 5 * MS;
        bench.read(&call, 1280);
        bench.ranges()[0].1
    };
    assert_eq!(next(None), 1280);
    assert_eq!(next(Some(1420)), 1152, "1,420 bytes without headers are 1,200, and blocks multiples of 64");
}

#[test]
fn what_was_measured_of_the_path_is_known_once_something_arrived() {
    let mut bench = Bench::adaptive();
    assert_eq!(bench.session.path_estimate(), None);
    bench.download(1 << 20);
    bench.serve(u32::MAX, SECOND);
    let estimate = bench.session.path_estimate().unwrap();
    assert_eq!(estimate.min_rtt, 5 * MS);
    assert_eq!(bench.session.limits().read_block, estimate.block);
    assert_eq!(Bench::new(|_| {}).session.path_estimate(), None);
}

#[test]
fn without_a_policy_that_chooses_blocks_are_as_configured() {
    let bench = Bench::new(|config| (config.limits.read_block, config.limits.write_block) = (4096, 2048));
    let limits = Limits { read_block: 4096, write_block: 2048, ..Limits::default() };
    assert_eq!(bench.session.limits(), limits);
}
