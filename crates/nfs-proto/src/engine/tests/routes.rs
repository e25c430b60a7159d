//! What an engine passes on to and from the policy that learns about the path.

use super::{
    adaptive::Path,
    losses::{READ, known},
    *,
};

/// An engine that chooses its blocks, on a path known from before if `prior`.
fn choosing(prior: Option<PathEstimate>, window: WindowLimits) -> Path {
    let mut path = Path::new();
    let config = EngineConfig {
        tuning: Tuning::default(),
        carrier: Carrier::Datagrams,
        retry: RetryPolicy::Adaptive,
        window,
        blocks: Some(BlockRange { headers: 220, largest: 32 << 10 }),
        prior,
        credential: vec![0; 8],
    };
    path.bench.engine = Engine::new(config, server(), 1, path.bench.at(0));
    path
}

const WINDOW: WindowLimits = WindowLimits { calls: 1024, read_bytes: 1 << 20, write_bytes: 1 << 20 };

#[test]
fn a_smaller_route_makes_smaller_blocks_and_takes_back_larger_ones_once() {
    let mut path = choosing(None, WINDOW);
    let engine = &mut path.bench.engine;
    assert_eq!((engine.block(), engine.take_cut()), (Some(1280), None));
    engine.handle_route_mtu(1420, true);
    assert_eq!((engine.block(), engine.take_cut(), engine.take_cut()), (Some(1152), Some(1152), None));
    engine.bound_blocks(512);
    assert_eq!(engine.block(), Some(512));
}

#[test]
fn the_largest_fragment_of_a_reply_bounds_blocks() {
    let mut path = choosing(None, WINDOW);
    path.block = path.bench.engine.next_block(path.bench.at(0)).unwrap();
    let read = path.send(READ);
    path.pass(40);
    path.bench.engine.handle_fragments(Some(1420));
    assert!(path.reply(read));
    assert_eq!(path.bench.engine.next_block(path.bench.at(40)), Some(1152));
}

#[test]
fn a_wide_window_is_paced_and_a_timer_says_when_more_may_leave() {
    // 10 MB/s and 100 ms: half of a megabyte may leave before a reply has confirmed that.
    let prior = PathEstimate {
        rate: 1e7,
        is_app_limited: false,
        min_rtt: 100 * MS,
        fades_per_second: 0.0,
        mean_fade: Duration::ZERO,
        retransmits: false,
        block: 4096,
        in_flight: 0,
        fast: None,
    };
    let mut path = choosing(Some(prior), WINDOW);
    for _ in 0..400 {
        path.submit(Class::Read, Repeat::Idempotent);
    }
    let burst = path.sent().0.len();
    // 64 KiB, and one while there is any credit.
    assert!((16..=18).contains(&burst), "{burst} READs at once");
    let due = path.bench.engine.poll_timeout().unwrap() - path.bench.at(0);
    assert!(due > Duration::ZERO && due < MS, "{due:?}");
    let more = path.pass(10).0.len();
    assert!((48..=50).contains(&more), "{more} READs in 10 ms at 20 MB/s");
}

#[test]
fn where_reads_are_ignored_while_small_calls_are_answered_four_a_second_are_sent() {
    let mut path = known();
    let mut reads = Vec::new();
    for tick in 0..100 {
        path.submit(Class::Read, Repeat::Idempotent);
        let small = path.submit(Class::Control, Repeat::Idempotent);
        let now = path.bench.at(path.millis);
        let mut answered = None;
        while let Some(transmit) = path.bench.engine.poll_transmit(now) {
            let xid = Xid(u32::from_be_bytes(transmit.head[..4].try_into().unwrap()));
            if transmit.id == small { answered = Some(xid) } else { reads.push(tick) }
        }
        path.millis += 40;
        assert!(path.reply(answered.unwrap()));
        path.bench.engine.handle_timeout(path.bench.at(path.millis));
    }
    // 25 ticks are a second.
    let in_second = |second: usize| reads.iter().filter(|&&tick| tick / 25 == second).count();
    assert!(in_second(0) > 10, "{} READs in the first second", in_second(0));
    assert!((3..=5).contains(&in_second(2)) && (3..=5).contains(&in_second(3)), "{reads:?}");
}

#[test]
fn of_many_reads_that_are_all_ignored_few_are_sent() {
    let mut path = Path::new();
    for _ in 0..157 {
        path.submit(Class::Read, Repeat::Idempotent);
    }
    let (mut reads, mut small) = (Vec::new(), Vec::new());
    for tick in 0..4000 {
        if tick % 5 == 0 {
            small.push(path.submit(Class::Control, Repeat::Idempotent));
        }
        let (mut answered, now) = (Vec::new(), path.bench.at(path.millis));
        while let Some(transmit) = path.bench.engine.poll_transmit(now) {
            let xid = Xid(u32::from_be_bytes(transmit.head[..4].try_into().unwrap()));
            let is_probe = !transmit.head.ends_with(b"args");
            if is_probe || small.contains(&transmit.id) { answered.push(xid) } else { reads.push(tick) }
        }
        path.millis += 1;
        for xid in answered {
            path.reply(xid);
        }
        path.bench.engine.handle_timeout(path.bench.at(path.millis));
    }
    let in_second = |second: usize| reads.iter().filter(|&&tick| tick / 1000 == second).count();
    assert!((16..=45).contains(&in_second(0)), "{} READs in the first second", in_second(0));
    assert!((3..=5).contains(&in_second(2)) && (3..=5).contains(&in_second(3)), "{reads:?}");
}

#[test]
fn a_classic_policy_keeps_the_xid_of_whatever_it_sends_again() {
    let mut path = Path { bench: Bench::datagrams(), millis: 0, block: 100 };
    let first = path.send(READ);
    assert_eq!(path.pass(700).0, [first]);
}

#[test]
fn a_reply_over_ipv6_has_twenty_bytes_more_of_headers() {
    let mut path = Path::new();
    let peer = "[2001:db8::1]:2049".parse().unwrap();
    path.bench.engine.handle_move(peer);
    path.bench.results = 58;
    for _ in 0..20 {
        let call = path.send(READ);
        path.pass(40);
        let millis = path.millis;
        assert!(matches!(path.bench.reply_from(millis, call, peer), Head::Reply(_)));
    }
    let rate = path.bench.engine.path_estimate().unwrap().rate;
    // IPv6, UDP, RPC and results in 40 ms.
    assert!((rate - f64::from(40 + 8 + 24 + 58) / 0.04).abs() < 1.0, "{rate}");
}
