//! The adaptive policy as a whole: what a reply, a loss and a silence mean together (`docs/algorithm.md` §3 to §7).

mod blocks;
mod losses;

use super::{
    super::for_tests::{MS, acked, epoch},
    *,
};

/// Headers of WRITEs over IPv4 with the credential of a user.
const RANGE: BlockRange = BlockRange { headers: 220, largest: 32 << 10 };

/// Bytes of a block that takes 100 ms on these paths.
const BLOCK: u32 = 4096;
const RATE: f64 = 40_960.0;

struct Flow {
    adaptive: Adaptive,
    now: Instant,
}

impl Flow {
    /// Nothing is known of the path.
    fn new(range: Option<BlockRange>) -> Self {
        let now = epoch();
        Self { adaptive: Adaptive::new(&Tuning::default(), range, None, now), now }
    }

    /// A path of 50 ms that delivers 40,960 bytes a second, over which replies come 20 ms apart.
    fn known(range: Option<BlockRange>) -> Self {
        let mut flow = Self::new(range);
        flow.adaptive.path.delivery.resume(RATE);
        flow.adaptive.path.min_rtt.set(flow.now, 50 * MS);
        flow.adaptive.path.is_startup = false;
        flow.reply_interval(20 * MS);
        flow
    }

    /// Two replies, so far apart.
    fn reply_interval(&mut self, interval: Duration) {
        for _ in 0..2 {
            self.now += interval;
            self.adaptive.detector.pto.on_reply(self.now, 0, true, true, MS, false);
        }
    }

    /// A WRITE leaves while nothing else is in flight.
    fn send(&mut self) -> Acked {
        self.send_call(Class::Write, BLOCK, true)
    }

    fn send_call(&mut self, class: Class, bytes: u32, alone: bool) -> Acked {
        let before = self.adaptive.delivered(self.now);
        self.adaptive.handle_sent(self.now, class, bytes, alone, bytes.into());
        Acked { class, bytes, before, size: 150, ..acked(self.now, bytes, 0) }
    }

    /// A probe leaves.
    fn probe(&mut self) {
        self.adaptive.on_probe_timeout(self.now);
    }

    fn reply(&mut self, acked: Acked) {
        self.adaptive.look_back(self.now);
        self.adaptive.on_ack(self.now, &acked);
    }

    /// Reads over a fast route of 9000 bytes until a READ is to be a probe.
    fn until_a_probe(mut self) -> Self {
        self.adaptive.handle_route_mtu(9000, true);
        for _ in 0..100 {
            let sent = self.send_call(Class::Read, 1280, true);
            self.now += 10 * MS;
            self.reply(Acked { size: 1436, ..sent });
            self.adaptive.path_mtu.set_rate(1e7);
            if self.adaptive.path_mtu.read_to_probe(self.now).is_some() {
                return self;
            }
        }
        panic!("nothing is probed");
    }

    fn retransmits(&self) -> bool {
        self.adaptive.path.arq.retransmits()
    }

    fn interval(&self) -> Duration {
        self.adaptive.detector.pto.interval()
    }
}

fn prior(block: u32) -> PathEstimate {
    PathEstimate {
        rate: 100_000.0,
        is_app_limited: false,
        min_rtt: 100 * MS,
        fades_per_second: 0.5,
        mean_fade: Duration::ZERO,
        retransmits: false,
        block,
        in_flight: 0,
        fast: None,
    }
}

fn resumed(range: Option<BlockRange>, prior: PathEstimate) -> Adaptive {
    Adaptive::new(&Tuning::default(), range, Some(&prior), epoch())
}

const WIDE: WindowLimits = WindowLimits { calls: 64, read_bytes: u64::MAX, write_bytes: u64::MAX };

#[test]
fn an_earlier_estimate_gives_half_of_what_the_path_held_and_one_of_its_blocks() {
    // 100 kB/s for 100 ms are 10,000 bytes, and one block may queue.
    let limits = resumed(None, prior(8192)).limits(WIDE);
    assert_eq!(limits, WindowLimits { calls: 64, read_bytes: 18_192 / 2, write_bytes: 18_192 / 2 });
    let narrow = WindowLimits { calls: 3, read_bytes: 1000, write_bytes: 2000 };
    assert_eq!(resumed(None, prior(8192)).limits(narrow), narrow, "the sockets hold no more");
}

#[test]
fn an_earlier_block_is_taken_up_within_what_may_be_chosen_now() {
    for (block, first) in [(512, 1280), (8704, 8704), (65_536, 32 << 10)] {
        assert_eq!(resumed(Some(RANGE), prior(block)).block(), Some(first));
    }
}

#[test]
fn an_estimate_of_what_no_path_has_is_rejected() {
    let sound = prior(8704);
    for unsound in [
        PathEstimate { rate: f64::NAN, ..sound },
        PathEstimate { rate: f64::INFINITY, ..sound },
        PathEstimate { rate: 0.0, ..sound },
        PathEstimate { fades_per_second: -0.1, ..sound },
        PathEstimate { block: 0, ..sound },
        PathEstimate { block: u32::MAX, ..sound },
        PathEstimate { rate: 1e300, ..sound },
        PathEstimate { fades_per_second: f64::INFINITY, ..sound },
        PathEstimate { min_rtt: Duration::MAX, ..sound },
        PathEstimate { mean_fade: Duration::MAX, ..sound },
        // It says only how little there was to send.
        PathEstimate { is_app_limited: true, ..sound },
    ] {
        assert_eq!(resumed(Some(RANGE), unsound).block(), Some(1280), "{unsound:?}");
    }
    assert_eq!(resumed(Some(RANGE), PathEstimate { fades_per_second: 0.0, ..sound }).block(), Some(8704));
}

#[test]
fn there_is_an_estimate_once_a_block_was_delivered_at_a_known_rate() {
    assert_eq!(resumed(Some(RANGE), prior(8704)).path_estimate(), None, "nothing was delivered");
    let mut flow = Flow::known(None);
    let sent = flow.send();
    flow.now += 100 * MS;
    flow.reply(sent);
    let estimate = flow.adaptive.path_estimate().unwrap();
    assert_eq!((estimate.rate, estimate.min_rtt, estimate.block), (RATE, 50 * MS, BLOCK));
    flow.adaptive.path.delivery.reset();
    assert_eq!(flow.adaptive.path_estimate(), None, "its rate is not known any more");
    // The answer to a READ of the application's, before any block was chosen.
    let mut flow = Flow::known(Some(RANGE));
    let sent = flow.send();
    flow.now += 100 * MS;
    flow.reply(sent);
    assert_eq!(flow.adaptive.path_estimate().map(|it| it.block), Some(BLOCK));
}

/// A call whose reply takes so long, and what the link is taken for.
fn after_fade(flow: &mut Flow, is_probed: bool, lasts: Duration) {
    let sent = flow.send();
    if is_probed {
        flow.now += 20 * MS;
        flow.probe();
    }
    flow.now = sent.sent + lasts;
    flow.reply(sent);
    let next = flow.send();
    flow.now += 50 * MS;
    flow.reply(next);
}

#[test]
fn a_probed_silence_longer_than_round_trip_and_block_that_ends_with_the_oldest_call_shows_retransmission() {
    for (is_probed, lasts, retransmits) in [
        // 50 ms of min_rtt, and 100 ms that a block takes.
        (true, 149, false),
        (true, 152, true),
        (true, 1000, true),
        (false, 1000, false),
    ] {
        let mut flow = Flow::known(None);
        after_fade(&mut flow, is_probed, lasts * MS);
        assert_eq!(flow.retransmits(), retransmits, "{lasts} ms, probed: {is_probed}");
    }
}

#[test]
fn a_silence_must_be_twice_the_reply_interval() {
    for (lasts, retransmits) in [(590, false), (610, true)] {
        let mut flow = Flow::known(None);
        (0..50).for_each(|_| flow.reply_interval(300 * MS));
        let interval = flow.interval();
        assert!(interval > 290 * MS && interval <= 300 * MS, "{interval:?}");
        after_fade(&mut flow, true, lasts * MS);
        assert_eq!(flow.retransmits(), retransmits, "{lasts} ms");
    }
}

#[test]
fn a_silence_must_be_longer_than_the_block_that_ends_it_takes() {
    for (lasts, retransmits) in [(110, false), (160, true)] {
        let mut flow = Flow::known(None);
        let one = flow.send_call(Class::Control, 0, true);
        let two = flow.send_call(Class::Write, BLOCK, false);
        // What is late by then is late for the first one's sake.
        flow.now += 60 * MS;
        flow.reply(one);
        flow.probe();
        flow.now += lasts * MS;
        flow.reply(two);
        let next = flow.send();
        flow.now += 50 * MS;
        flow.reply(next);
        assert_eq!(flow.retransmits(), retransmits, "{lasts} ms");
    }
}

#[test]
fn a_probed_silence_that_does_not_end_with_the_oldest_call_refutes_retransmission() {
    for (oldest, since, is_probed, retransmits) in [
        (true, 0, true, true),
        (false, 0, true, false),
        // The oldest of what was sent after the last reply.
        (true, 1, true, false),
        (false, 1, true, false),
        (false, 0, false, true),
    ] {
        let mut flow = Flow::known(None);
        flow.adaptive.path.arq.resume(true);
        let mut sent = flow.send();
        if since > 0 {
            flow.now += MS;
            sent = flow.send_call(Class::Write, BLOCK, false);
        }
        if is_probed {
            flow.now += 20 * MS;
            flow.probe();
        }
        flow.now += 20 * MS;
        flow.reply(Acked { oldest, ..sent });
        assert_eq!(flow.retransmits(), retransmits, "oldest: {oldest}, {since} ms, probed: {is_probed}");
    }
}

#[test]
fn the_reply_interval_is_of_replies_in_order_and_not_of_probes() {
    for (oldest, probe, interval) in
        [(true, false, 30), (false, false, 20), (true, true, 20), (false, true, 20)]
    {
        let mut flow = Flow::known(None);
        let sent = flow.send_call(Class::Write, BLOCK, false);
        flow.now += 100 * MS;
        flow.reply(Acked { oldest, probe, ..sent });
        // An eighth of 80 ms more.
        assert_eq!(flow.interval(), interval * MS, "oldest: {oldest}, probe: {probe}");
    }
}

#[test]
fn only_exact_replies_are_samples_of_the_round_trip() {
    for (exact, timeout) in [(true, 120), (false, 1000)] {
        let mut flow = Flow::new(None);
        let sent = flow.send();
        flow.now += 40 * MS;
        flow.reply(Acked { exact, ..sent });
        assert_eq!(flow.adaptive.usual_timeout(Class::Write), timeout * MS);
    }
}

#[test]
fn blocks_leave_at_twice_the_rate_after_a_burst_and_small_calls_at_once() {
    let mut flow = Flow::known(None);
    let sent = flow.send();
    flow.now += 100 * MS;
    flow.reply(sent);
    for _ in 0..40 {
        flow.send_call(Class::Control, BLOCK, false);
        assert_eq!(flow.adaptive.paced_until(flow.now), None);
    }
    let blocks = (0..40).take_while(|_| {
        flow.send_call(Class::Write, BLOCK, false);
        flow.adaptive.paced_until(flow.now).is_none()
    });
    assert_eq!(blocks.count(), 16, "64 KiB");
    // The 17th is 4096 bytes too many, less what was earned since the pacer knew the rate.
    let wait = flow.adaptive.paced_until(flow.now).unwrap() - flow.now;
    assert!(wait <= 51 * MS && wait > 49 * MS, "{wait:?}");
}

#[test]
fn what_is_in_flight_leaves_one_block_after_the_other() {
    let mut flow = Flow::known(None);
    assert_eq!(flow.adaptive.pace().spacing, Duration::ZERO, "no block was sent");
    flow.send();
    let pace = flow.adaptive.pace();
    assert_eq!((pace.spacing, pace.bytes), (100 * MS, 4 * u64::from(BLOCK)));
}

#[test]
fn before_anything_was_received_a_hedge_is_better_than_a_probe() {
    let mut flow = Flow::new(None);
    assert!(flow.adaptive.wants_hedge());
    let sent = flow.send();
    assert!(flow.adaptive.wants_hedge());
    flow.now += 40 * MS;
    flow.reply(sent);
    assert!(!flow.adaptive.wants_hedge());
}

#[test]
fn nothing_is_probed_while_nothing_is_outstanding() {
    let mut flow = Flow::new(None);
    assert_eq!(flow.adaptive.next_probe(), None);
    flow.send();
    // RFC 9002 §6.2.1: the PTO before any sample.
    assert_eq!(flow.adaptive.next_probe(), Some(flow.now + 100 * MS));
    flow.adaptive.handle_idle();
    assert_eq!(flow.adaptive.next_probe(), None);
}

#[test]
fn a_server_that_answers_in_parts_ends_no_startup_and_slows_nothing() {
    for (size, is_startup) in [(250, true), (1436, false)] {
        let mut flow = Flow::new(Some(RANGE));
        for _ in 0..20 {
            let sent = [(); 4].map(|()| flow.send_call(Class::Read, 1280, false));
            for sent in sent {
                flow.now += 10 * MS;
                flow.reply(Acked { size, ..sent });
            }
        }
        assert_eq!(flow.adaptive.path.is_startup, is_startup, "{size} bytes");
        let (spacing, paced) = (flow.adaptive.path.spacing.rate(), flow.adaptive.path.highest_rate());
        assert_eq!((spacing.is_none(), paced == 0.0), (is_startup, is_startup), "{size} bytes");
    }
}
