use super::*;

pub(super) struct Path {
    pub(super) bench: Bench,
    pub(super) millis: u64,
    /// Bytes that READs ask for, and WRITEs bring.
    pub(super) block: u32,
}

impl Path {
    pub(super) fn new() -> Self {
        let mut bench = Bench::new(Carrier::Datagrams, RetryPolicy::Adaptive);
        bench.results = 4096;
        Self { bench, millis: 0, block: 4096 }
    }

    pub(super) fn submit(&mut self, class: Class, repeat: Repeat) -> CallId {
        self.submit_hedged(class, repeat, false)
    }

    pub(super) fn submit_hedged(&mut self, class: Class, repeat: Repeat, hedge: bool) -> CallId {
        let spec = CallSpec {
            program: Program::NFS,
            procedure: 6,
            class,
            repeat,
            hedge,
            owner: Owner(1),
            payload: None,
            bytes: self.block,
            deadline: None,
            not_before: None,
        };
        let now = self.bench.at(self.millis);
        self.bench.engine.submit(now, spec, |buffer| buffer.extend_from_slice(b"args")).unwrap()
    }

    /// Sends everything there is to send and returns the XIDs of calls, and of NULLs into a silence.
    pub(super) fn sent(&mut self) -> (Vec<Xid>, Vec<Xid>) {
        let now = self.bench.at(self.millis);
        let (mut calls, mut probes) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.bench.engine.poll_transmit(now) {
            let xid = Xid(u32::from_be_bytes(transmit.head[..4].try_into().unwrap()));
            let list = if transmit.head.ends_with(b"args") { &mut calls } else { &mut probes };
            list.push(xid);
        }
        (calls, probes)
    }

    /// Lets `millis` pass and returns how many calls and NULLs left.
    pub(super) fn pass(&mut self, millis: u64) -> (Vec<Xid>, Vec<Xid>) {
        let (mut calls, mut probes) = (Vec::new(), Vec::new());
        for _ in 0..millis {
            self.millis += 1;
            let now = self.bench.at(self.millis);
            self.bench.engine.handle_timeout(now);
            let (more, asked) = self.sent();
            assert!(self.bench.engine.poll_timeout().is_none_or(|due| due > now), "would spin");
            calls.extend(more);
            probes.extend(asked);
        }
        (calls, probes)
    }

    pub(super) fn reply(&mut self, xid: Xid) -> bool {
        matches!(self.bench.reply(self.millis, xid), Head::Reply(_))
    }

    /// Teaches it a round trip of 40 ms, one call at a time.
    pub(super) fn learn(&mut self) {
        for _ in 0..20 {
            self.submit(Class::Read, Repeat::Idempotent);
            let (calls, _) = self.sent();
            self.pass(40);
            assert!(self.reply(calls[0]));
        }
    }

    /// A path with two READs under way, of which the second was answered after 40 ms; the XID of the first.
    pub(super) fn with_overtaken_read() -> (Self, Xid) {
        let mut path = Self::new();
        path.learn();
        path.submit(Class::Read, Repeat::Idempotent);
        path.submit(Class::Read, Repeat::Idempotent);
        let (calls, _) = path.sent();
        path.pass(40);
        assert!(path.reply(calls[1]));
        (path, calls[0])
    }
}

#[test]
fn a_call_that_was_overtaken_is_sent_again_under_another_xid() {
    let (mut path, first) = Path::with_overtaken_read();
    let (again, probes) = path.pass(10);
    assert_eq!((again.len(), probes.len()), (1, 0));
    assert_ne!(again[0], first);
    assert_eq!(path.bench.engine.stats().resends, Resends { rack: 1, ..Resends::default() });
    path.pass(30);
    assert!(path.reply(again[0]));
    assert_eq!(path.bench.engine.stats().spurious_resends, 0);
    assert_eq!(path.bench.engine.outstanding(), 0);
}

#[test]
fn any_attempts_reply_ends_the_call_and_spurious_resends_are_counted() {
    let (mut path, first) = Path::with_overtaken_read();
    let (again, _) = path.pass(10);
    assert!(path.reply(first), "it was late, not lost");
    assert_eq!(path.bench.engine.stats().spurious_resends, 1);
    assert!(!path.reply(again[0]), "the call has ended");
    assert_eq!(path.bench.engine.stats().spurious_resends, 1, "and is not counted twice");
}

#[test]
fn a_call_answered_before_it_was_sent_again_keeps_no_other_waiting() {
    let (mut path, first) = Path::with_overtaken_read();
    path.millis += 10;
    let now = path.bench.at(path.millis);
    path.bench.engine.handle_timeout(now);
    assert!(!path.bench.engine.has_room(Class::Read, 4096), "the first call is about to be sent again");
    assert!(path.reply(first));
    assert_eq!(path.bench.engine.outstanding(), 0);
    assert!(path.bench.engine.has_room(Class::Read, 4096), "nothing else would ever ask for more");
}

#[test]
fn what_must_not_run_twice_keeps_its_xid() {
    let mut path = Path::new();
    path.learn();
    path.submit(Class::Control, Repeat::SameXid);
    let (first, _) = path.sent();
    let mut again = Vec::new();
    while again.is_empty() {
        let (calls, probes) = path.pass(1);
        again = calls;
        // The server is there, only this call was lost.
        probes.into_iter().for_each(|xid| {
            path.reply(xid);
        });
        assert!(path.millis < 3000, "it is never sent again");
    }
    assert_eq!(again, first);
}

#[test]
fn on_a_long_path_a_null_call_shows_the_loss_of_a_small_one_that_is_alone() {
    let lost_after = |round_trip: u64| {
        let mut path = Path::new();
        for _ in 0..5 {
            path.submit(Class::Control, Repeat::Idempotent);
            let (calls, _) = path.sent();
            path.pass(round_trip);
            assert!(path.reply(calls[0]));
        }
        path.submit(Class::Control, Repeat::Idempotent);
        path.sent();
        let (again, company) = path.pass(round_trip);
        assert!(again.is_empty());
        (path, company)
    };
    let (mut path, company) = lost_after(600);
    assert_eq!(company.len(), 1, "it is enough");
    path.pass(75);
    path.reply(company[0]);
    let (again, _) = path.pass(75);
    assert_eq!(again.len(), 1, "known after a round trip and an eighth");
    let (_, company) = lost_after(100);
    assert!(company.is_empty(), "a short way needs none");
}

/// A fade has ended, and then somebody else's block is on the link for 0.3 s.
#[test]
fn small_calls_whose_path_is_not_known_are_asked_after_seldom() {
    let mut path = Path::new();
    path.submit(Class::Control, Repeat::Idempotent);
    let (first, _) = path.sent();
    path.pass(3);
    assert!(path.reply(first[0]));
    let waiting = [(); 2].map(|()| path.submit(Class::Control, Repeat::Idempotent));
    let (calls, _) = path.sent();
    assert_eq!(calls.len(), waiting.len());
    let (_, asked) = path.pass(500);
    for xid in asked.into_iter().rev().take(5).chain([calls[0]]) {
        path.pass(2);
        path.reply(xid);
    }
    let (_, asked) = path.pass(280);
    assert!((5..=40).contains(&asked.len()), "{} NULL calls in 0.28 s", asked.len());
}

/// A path of 1 MB/s and 100 ms: 100 kB in flight, of which half may leave before a reply has confirmed it.
#[test]
fn an_earlier_run_s_window_is_taken_up_with_care() {
    let prior = PathEstimate {
        rate: 1e6,
        is_app_limited: false,
        min_rtt: Duration::from_millis(100),
        fades_per_second: 0.0,
        mean_fade: Duration::ZERO,
        retransmits: false,
        block: 4096,
        in_flight: 0,
        fast: None,
    };
    let window = WindowLimits { calls: 1024, read_bytes: u64::MAX, write_bytes: u64::MAX };
    let in_flight = |rtt: u64| {
        let mut path = Path::new();
        let start = path.bench.at(0);
        let config = EngineConfig {
            tuning: Tuning::default(),
            carrier: Carrier::Datagrams,
            retry: RetryPolicy::Adaptive,
            window,
            blocks: None,
            prior: Some(prior),
            credential: vec![0; 8],
        };
        path.bench.engine = Engine::new(config, server(), 1, start);
        for _ in 0..40 {
            path.submit(Class::Read, Repeat::Idempotent);
        }
        let (mut first, _) = path.sent();
        // A wide window is spread over time.
        first.extend(path.pass(rtt).0);
        path.reply(first[0]);
        let (second, _) = path.sent();
        let more = path.pass(20).0;
        (first.len(), second.len() + more.len())
    };
    let (before, after) = in_flight(100);
    assert!((11..=14).contains(&before), "{before} calls before the first reply");
    assert!(after >= 10, "{after} calls after it");
    let (_, after) = in_flight(410);
    assert!(after <= 2, "a path of 410 ms is another one: {after} calls");
}

#[test]
fn probes_into_a_silence_have_a_bounded_rate() {
    let mut path = Path::new();
    path.learn();
    path.submit(Class::Read, Repeat::Idempotent);
    path.sent();
    let (calls, probes) = path.pass(60_000);
    assert!((30..=100).contains(&probes.len()), "{} probes in 60 s", probes.len());
    assert!((3..=8).contains(&calls.len()), "{} resends in 60 s", calls.len());
    // The link is back: one answer to a probe, and the call is on its way again.
    assert!(!path.reply(*probes.last().unwrap()), "a probe is nobody's call");
    let (calls, _) = path.pass(60);
    assert_eq!(calls.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Over a path that loses, delays, repeats and reorders, nothing starves, nothing spins, and what is sent again is bounded by
    /// what was heard and by time. When the path is good again every call ends.
    #[test]
    fn any_path_is_survived(
        seed: u64, loss in 0.0..0.9_f64, delay in 1_u64..400, spread in 0_u64..600, repeats in 0.0..0.5_f64,
        classes in prop::collection::vec(0_u8..4, 1..40),
    ) {
        use rand_chacha::{ChaCha8Rng, rand_core::{Rng, SeedableRng}};
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut chance = move |share: f64| (random.next_u32() as f64) < share * f64::from(u32::MAX);
        let mut spread_by = ChaCha8Rng::seed_from_u64(!seed);
        let mut path = Path::new();
        let mut flying: Vec<(u64, Xid)> = Vec::new();
        let (mut heard, mut sent) = (0_u64, 0_u64);
        for class in &classes {
            match class {
                0 => path.submit(Class::Control, Repeat::SameXid),
                1 => path.submit(Class::Control, Repeat::Idempotent),
                2 => path.submit(Class::Write, Repeat::Idempotent),
                _ => path.submit(Class::Read, Repeat::Idempotent),
            };
        }
        for step in 0..400_000_u64 {
            if path.bench.engine.outstanding() == 0 {
                break;
            }
            let (calls, probes) = if step == 0 { path.sent() } else { path.pass(1) };
            sent += calls.len() as u64;
            // After a minute the path is good again.
            let bad = path.millis < 60_000;
            for xid in calls.into_iter().chain(probes) {
                let copies = 1 + u32::from(bad && chance(repeats));
                for _ in 0..copies {
                    if !(bad && chance(loss)) {
                        let extra = if bad { u64::from(spread_by.next_u32()) % (spread + 1) } else { 0 };
                        flying.push((path.millis + delay + extra, xid));
                    }
                }
            }
            let now = path.millis;
            let (due, later) = flying.into_iter().partition(|(at, _)| *at <= now);
            flying = later;
            for (_, xid) in due {
                heard += 1;
                path.reply(xid);
            }
            while path.bench.engine.poll_event().is_some() {}
        }
        let stats = path.bench.engine.stats();
        prop_assert_eq!(path.bench.engine.outstanding(), 0, "{:?} at {} ms", stats, path.millis);
        prop_assert_eq!(stats.replies, classes.len() as u64);
        // Every reply can make each outstanding call suspect once; silences add one resend a second at most.
        let bound = heard * classes.len() as u64 + path.millis / 1000 + 1;
        prop_assert!(stats.resends.total() <= bound && sent <= classes.len() as u64 + bound, "{:?}", stats);
        prop_assert!(stats.probes <= path.millis / 5 + 1, "{:?}", stats);
    }
}

#[test]
fn on_a_long_path_a_tail_loss_probe_follows_small_calls() {
    for (rtt, probed) in [(300, 1), (100, 0)] {
        let mut path = Path::new();
        for _ in 0..4 {
            path.submit(Class::Control, Repeat::SameXid);
            let (calls, _) = path.sent();
            path.pass(rtt);
            assert!(path.reply(calls[0]));
        }
        path.submit(Class::Control, Repeat::SameXid);
        let (first, _) = path.sent();
        let (again, probes) = path.pass(rtt / 8 + 5);
        assert_eq!((again.len(), probes.len()), (0, probed), "{rtt} ms");
        path.pass(rtt - rtt / 8 - 5);
        assert!(path.reply(first[0]));
    }
}

#[test]
fn before_anything_was_received_small_calls_are_hedged_and_the_copies_teach_nothing() {
    for repeat in [Repeat::Idempotent, Repeat::SameXid] {
        let mut path = Path::new();
        path.submit_hedged(Class::Control, repeat, true);
        let (first, _) = path.sent();
        let (again, probes) = path.pass(105);
        assert_eq!((again.len(), probes.len()), (1, 0));
        assert_eq!(again == first, repeat == Repeat::SameXid);
        path.pass(195);
        assert!(path.reply(first[0]));
        assert!(!path.reply(again[0]), "answered already");
        assert_eq!(path.bench.engine.stats().resends.hedge, 1);
        // As soon as before: the reordering window is not longer.
        path.submit(Class::Read, Repeat::Idempotent);
        path.submit(Class::Read, Repeat::Idempotent);
        let (reads, _) = path.sent();
        path.pass(300);
        assert!(path.reply(reads[1]));
        path.pass(40);
        assert_eq!(path.bench.engine.stats().resends.rack, 1, "{repeat:?}");
    }
}

#[test]
fn a_probe_is_sent_at_once_when_the_link_has_changed() {
    let mut path = Path::new();
    path.learn();
    path.submit(Class::Read, Repeat::Idempotent);
    path.sent();
    path.pass(30_000);
    let (_, usual) = path.pass(1000);
    assert!(usual.len() <= 1, "after half a minute it asks once in a while");
    path.bench.engine.handle_link_event(path.bench.at(path.millis));
    let (calls, first) = path.pass(1);
    assert_eq!((calls.len(), first.len()), (1, 1), "the call itself, too: perhaps only probes are ignored");
    let (_, more) = path.pass(1000);
    assert!(more.len() >= 10, "and keeps asking, for the link may not be ready yet: {}", more.len());
    let (_, later) = path.pass(5000);
    assert!(later.len() <= 20, "but not for long: {}", later.len());
}

#[test]
fn writes_on_a_route_of_jumbo_frames_grow_after_a_padded_call_that_was_not_fragmented() {
    let mut path = Path::new();
    path.bench.results = 0;
    let start = path.bench.at(0);
    let config = EngineConfig {
        tuning: Tuning::default(),
        carrier: Carrier::Datagrams,
        retry: RetryPolicy::Adaptive,
        window: WindowLimits { calls: 4, read_bytes: u64::MAX, write_bytes: u64::MAX },
        blocks: Some(BlockRange { headers: 220, largest: 8704 }),
        prior: None,
        credential: vec![0; 8],
    };
    path.bench.engine = Engine::new(config, server(), 1, start);
    path.bench.engine.handle_route_mtu(9000, true);
    let (mut probed, mut blocks) = (Vec::new(), Vec::new());
    for round in 0..60 {
        let now = path.bench.at(5 * round);
        let block = path.bench.engine.next_block(now).unwrap();
        blocks.push(block);
        let payload = Some(Payload { offset: 0, length: block });
        let spec = CallSpec {
            program: Program::NFS,
            procedure: 7,
            class: Class::Write,
            repeat: Repeat::Idempotent,
            hedge: false,
            owner: Owner(1),
            payload,
            bytes: block,
            deadline: None,
            not_before: None,
        };
        // Some always wait for the window: else the rate is not the path's.
        for _ in 0..if round == 0 { 8 } else { 4 } {
            path.bench.engine.submit(now, spec, |buffer| buffer.resize(buffer.len() + 64, 0)).unwrap();
        }
        let known = if probed.is_empty() { 1500 } else { 8924 };
        let mut calls = Vec::new();
        while let Some(transmit) = path.bench.engine.poll_transmit(now) {
            calls.push(Xid(u32::from_be_bytes(transmit.head[..4].try_into().unwrap())));
            match transmit.payload {
                Some(payload) => {
                    let bytes = payload.length + transmit.head.len() as u32 + 28;
                    assert_eq!(transmit.dont_fragment, bytes <= known, "{bytes}");
                }
                None => {
                    assert!(transmit.dont_fragment);
                    probed.push(transmit.head.len() + 28);
                }
            }
        }
        for xid in calls {
            path.bench.reply(5 * round + 5, xid);
        }
    }
    assert_eq!(probed, [8924], "once is enough, and no larger than needed");
    assert_eq!(blocks.last(), Some(&8704));
    assert_eq!(path.bench.engine.stats().mtu_probes, 1);
    assert_eq!(path.bench.engine.stats().probes, 0);
}
