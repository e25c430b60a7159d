//! The rules of `docs/algorithm.md` §4.

use super::{
    super::for_tests::{MS, epoch},
    *,
};

const SECOND: Duration = Duration::from_secs(1);

/// How long replies may take in these examples.
const TIMEOUT: Duration = Duration::from_millis(400);

/// The numbers that these examples are computed with.
fn tuning() -> ProbeTuning {
    ProbeTuning {
        min_pto: 20 * MS,
        arq_pto: 490 * MS,
        min_interval: 5 * MS,
        bytes_between: 450.0,
        usual_limit: 6 * SECOND,
        urgent_interval: 80 * MS,
        urgent: 2500 * MS,
        max_interval: 1250 * MS,
        first_interval: 150 * MS,
        unheard_interval: 30 * SECOND,
        first_resend: 4 * SECOND,
    }
}

/// A probe timeout and the time.
struct Timer {
    pto: ProbeTimeout,
    start: Instant,
    now: Instant,
    /// Whether the link retransmits.
    arq: bool,
    /// What the path carries, in bytes per second.
    rate: f64,
}

impl Timer {
    /// Nothing was sent yet.
    fn new() -> Self {
        let now = epoch();
        Self { pto: ProbeTimeout::new(tuning(), now), start: now, now, arq: false, rate: 1e6 }
    }

    /// Replies come every so many milliseconds, and others are outstanding.
    fn flowing(interval: u32) -> Self {
        let mut timer = Self::new();
        timer.send(true);
        for _ in 0..100 {
            timer.reply(interval);
        }
        timer
    }

    /// A call was answered once, and another one is alone.
    fn heard() -> Self {
        let mut timer = Self::new();
        timer.send(true);
        timer.now += 10 * MS;
        timer.pto.on_reply(timer.now, 1000, true, false, TIMEOUT, false);
        timer.send(true);
        timer
    }

    fn send(&mut self, alone: bool) {
        self.send_with(alone, None);
    }

    fn send_with(&mut self, alone: bool, tail_loss_probe: Option<Duration>) {
        self.pto.on_sent(self.now, Sent { alone, timeout: TIMEOUT, tail_loss_probe }, self.arq);
    }

    /// A reply comes so many milliseconds later, while others are outstanding.
    fn reply(&mut self, after: u32) -> Gap {
        self.now += after * MS;
        self.pto.look_back(self.now);
        self.pto.on_reply(self.now, 1000, true, true, TIMEOUT, self.arq)
    }

    /// Returns how long after the last reply, or call, the next probe is due.
    fn due(&self) -> Duration {
        self.pto.next().unwrap() - self.now
    }

    /// The next probe goes out when it is due. Returns whether the oldest call does, too.
    fn probe(&mut self) -> bool {
        self.now = self.pto.next().unwrap();
        self.pto.on_probe(self.now, self.rate, TIMEOUT, self.arq)
    }

    /// A probe goes out when nothing was received for so long. Returns after what time the next one does.
    fn probe_at(&mut self, silence: Duration) -> Duration {
        self.now = self.pto.since() + silence;
        self.pto.on_probe(self.now, self.rate, TIMEOUT, self.arq);
        self.due()
    }
}

#[test]
fn before_any_reply_the_timeout_is_100_ms() {
    let mut timer = Timer::new();
    assert_eq!(timer.pto.next(), None, "nothing is outstanding");
    timer.send(true);
    assert_eq!(timer.due(), 100 * MS);
    assert!(timer.pto.is_unheard());
    timer.now += 10 * MS;
    timer.send(false);
    assert_eq!(timer.due(), 90 * MS, "counted from the first call");
    timer.reply(1);
    assert!(!timer.pto.is_unheard());
}

#[test]
fn a_call_that_is_alone_is_given_its_timeout() {
    // RFC 9002 §6.2.1: there is nothing else to measure it by.
    let mut timer = Timer::heard();
    assert_eq!(timer.due(), TIMEOUT);
    timer.arq = true;
    timer.send(true);
    assert_eq!(timer.due(), 490 * MS, "longer where the link retransmits");
}

#[test]
fn while_replies_flow_the_timeout_follows_their_interval() {
    for (interval, due) in [
        // Once the variation is gone, 5/4 of it,
        (40, 50),
        // 20 ms at least,
        (10, 20),
        // and the timeout of a call at most.
        (390, 400),
    ] {
        let timer = Timer::flowing(interval);
        let late = timer.due().saturating_sub(due * MS);
        assert!(timer.due() >= due * MS && late < MS, "{interval} ms: {:?}", timer.due());
    }
}

#[test]
fn the_first_two_replies_are_the_first_gap() {
    let mut timer = Timer::new();
    timer.send(true);
    timer.reply(300);
    assert_eq!(timer.due(), TIMEOUT, "one reply has no interval");
    timer.reply(40);
    assert_eq!(timer.pto.interval(), 40 * MS);
    assert_eq!(timer.due(), 50 * MS + 3 * 20 * MS);
}

#[test]
fn where_the_link_retransmits_the_timeout_is_490_ms_at_least() {
    let mut timer = Timer::flowing(40);
    timer.arq = true;
    timer.reply(40);
    assert_eq!(timer.due(), 490 * MS);
}

#[test]
fn replies_to_probes_and_out_of_order_do_not_count_in_the_interval() {
    let mut timer = Timer::flowing(40);
    timer.now += 200 * MS;
    timer.pto.on_reply(timer.now, 0, false, true, TIMEOUT, false);
    let interval = timer.pto.interval();
    assert!(interval > 39 * MS && interval <= 40 * MS, "{interval:?}");
    timer.reply(200);
    assert!(timer.pto.interval() > 54 * MS);
}

#[test]
fn a_pause_without_calls_is_no_gap() {
    let mut timer = Timer::flowing(40);
    let interval = timer.pto.interval();
    timer.now += 40 * MS;
    timer.pto.on_reply(timer.now, 1000, true, false, TIMEOUT, false);
    assert_eq!(timer.pto.next(), None, "nothing is outstanding");
    timer.now += 10 * SECOND;
    timer.send(false);
    assert_eq!(timer.due(), TIMEOUT);
    let gap = timer.reply(500);
    assert_eq!(timer.pto.interval(), interval);
    assert!(!gap.is_probed);
    assert!(!timer.pto.explains_loss(timer.now, SECOND));
}

#[test]
fn the_timeout_is_scaled_with_the_block() {
    let mut timer = Timer::flowing(40);
    timer.pto.handle_block_change(1000, 2000);
    assert!(timer.pto.interval() > 79 * MS && timer.pto.interval() <= 80 * MS);
}

#[test]
fn without_outstanding_calls_nothing_is_due() {
    let mut timer = Timer::flowing(40);
    timer.pto.stop();
    assert_eq!(timer.pto.next(), None);
}

#[test]
fn probes_follow_at_growing_intervals() {
    let heard = [
        // Less than 2.5 s: t/8, at most 80 ms.
        (100 * MS, 25 * MS / 2),
        (200 * MS, 25 * MS),
        (400 * MS, 50 * MS),
        (640 * MS, 80 * MS),
        (2499 * MS, 80 * MS),
        // Longer: t/8, at most 1.25 s.
        (2504 * MS, 313 * MS),
        (8 * SECOND, SECOND),
        (60 * SECOND, 1250 * MS),
    ];
    for (silence, interval) in heard {
        assert_eq!(Timer::heard().probe_at(silence), interval, "{silence:?}");
    }
    let unheard = [
        // t/2, at most 150 ms; after 2.5 s t/8, at most 30 s.
        (100 * MS, 50 * MS),
        (300 * MS, 150 * MS),
        (2499 * MS, 150 * MS),
        (2504 * MS, 313 * MS),
        (80 * SECOND, 10 * SECOND),
        (300 * SECOND, 30 * SECOND),
    ];
    for (silence, interval) in unheard {
        let mut timer = Timer::new();
        timer.send(true);
        assert_eq!(timer.probe_at(silence), interval, "{silence:?}, nothing was ever received");
    }
    for (silence, interval) in [(100 * MS, 25 * MS), (4 * SECOND, SECOND), (60 * SECOND, 1250 * MS)] {
        let mut timer = Timer::heard();
        timer.arq = true;
        assert_eq!(timer.probe_at(silence), interval, "{silence:?}, the link retransmits");
    }
}

#[test]
fn probes_are_frequent_while_the_episode_is_not_longer_than_usual() {
    /// An episode of so long was probed and has ended.
    fn after(episode: Duration) -> Timer {
        let mut timer = Timer::heard();
        timer.probe();
        timer.now = timer.pto.since();
        timer.reply(u32::try_from(episode.as_millis()).unwrap());
        timer
    }
    for (episode, silence, interval) in [
        // Less than twice the longest recent one: t/16, at most 80 ms,
        (300 * MS, 200 * MS, 25 * MS / 2),
        (300 * MS, 599 * MS, 599 * MS / 16),
        (300 * MS, 600 * MS, 75 * MS),
        (SECOND, 1280 * MS, 80 * MS),
        (SECOND, 1999 * MS, 80 * MS),
        // and less than 6 s.
        (10 * SECOND, 5999 * MS, 80 * MS),
        (10 * SECOND, 6000 * MS, 750 * MS),
    ] {
        assert_eq!(after(episode).probe_at(silence), interval, "{silence:?} after {episode:?}");
    }
    // One that was shorter makes the longest an eighth shorter: 350 ms.
    let mut timer = after(400 * MS);
    timer.probe();
    timer.now = timer.pto.since();
    timer.reply(100);
    assert_eq!(timer.probe_at(699 * MS), 699 * MS / 16);
    assert_eq!(timer.probe_at(700 * MS), 80 * MS);
}

#[test]
fn probes_leave_room_for_data() {
    // 5 ms at least.
    assert_eq!(Timer::heard().probe_at(30 * MS), 5 * MS);
    // The time in which the path carries 450 bytes.
    let mut timer = Timer::heard();
    timer.rate = 10_000.0;
    assert_eq!(timer.probe_at(100 * MS), 45 * MS);
    timer.rate = 1e-9;
    assert_eq!(timer.probe_at(100 * MS), 60 * SECOND, "a rate that nothing has");
    // 15 ms while nothing is known of that.
    timer.rate = 0.0;
    assert_eq!(timer.probe_at(100 * MS), 15 * MS);
    // A quarter of the reply interval.
    let mut timer = Timer::flowing(400);
    let interval = timer.probe_at(100 * MS);
    assert!(interval > 99 * MS && interval <= 100 * MS, "{interval:?}");
}

#[test]
fn the_oldest_call_is_sent_again_after_4_8_and_up_to_64_seconds() {
    let mut timer = Timer::heard();
    let mut resent = Vec::new();
    while timer.now < timer.start + 300 * SECOND {
        if timer.probe() {
            resent.push((timer.now - timer.pto.since()).as_secs());
        }
    }
    // Probes are up to 1.25 s apart, and after 64 s each brings the call along: what was lost is the probe's reply, perhaps.
    assert_eq!(resent[..4], [4, 8, 16, 33]);
    assert!(resent[4] >= 64 && resent.len() > 100, "{resent:?}");
}

#[test]
fn a_slow_path_is_given_two_timeouts_before_a_call_is_sent_again() {
    let mut timer = Timer::heard();
    let silence = |timer: &mut Timer, at: Duration| {
        timer.now = timer.pto.since() + at;
        timer.pto.on_probe(timer.now, 1e6, 5 * SECOND, false)
    };
    assert!(!silence(&mut timer, 9999 * MS));
    assert!(silence(&mut timer, 10 * SECOND));
    // A reply, and everything begins again.
    timer.reply(20_000);
    assert!(!timer.probe());
    assert!(!silence(&mut timer, 9999 * MS));
    assert!(silence(&mut timer, 10 * SECOND));
    // And so does a call after nothing was outstanding.
    timer.send(true);
    assert!(!silence(&mut timer, 9999 * MS));
    assert!(silence(&mut timer, 10 * SECOND));
}

#[test]
fn a_tail_loss_probe_comes_first_and_then_the_timeout() {
    // RFC 8985 §7.2.
    let mut timer = Timer::heard();
    timer.send_with(true, Some(50 * MS));
    assert_eq!(timer.due(), 50 * MS);
    assert!(!timer.probe());
    assert_eq!(timer.due(), TIMEOUT - 50 * MS);
    timer.probe();
    assert_eq!(timer.due(), 50 * MS, "an eighth of 400 ms: it is a silence now");
}

#[test]
fn a_tail_loss_probe_is_no_silence() {
    let mut timer = Timer::heard();
    timer.send_with(true, Some(50 * MS));
    timer.probe();
    assert!(!timer.reply(60).is_probed);
    timer.send_with(true, Some(50 * MS));
    timer.reply(40);
    assert_eq!(timer.due(), 10 * MS, "what is outstanding may be alone now");
}

#[test]
fn a_gap_that_was_probed_is_measured_beyond_the_interval() {
    let mut timer = Timer::flowing(40);
    let interval = |timer: &Timer| timer.pto.interval();
    let gap = timer.reply(50);
    assert!(!gap.is_probed && !gap.is_long);
    assert_eq!(timer.pto.mean_fade(), Duration::ZERO);
    timer.probe();
    timer.now = timer.pto.since();
    let gap = timer.reply(1000);
    assert!(gap.is_probed && gap.is_long);
    assert_eq!(gap.excess, SECOND - interval(&timer));
    assert_eq!(timer.pto.mean_fade(), gap.excess);
    timer.probe();
    timer.now = timer.pto.since();
    let next = timer.reply(200);
    assert_eq!(timer.pto.mean_fade(), (gap.excess * 7 + next.excess) / 8);
    assert!(!timer.reply(40).is_probed, "that was the gap before");
}

#[test]
fn a_gap_is_long_from_twice_the_interval_on_that_it_makes() {
    // 7/8 of 40 ms and 1/8 of the gap.
    for (after, is_long) in [(93, false), (94, true)] {
        assert_eq!(Timer::flowing(40).reply(after).is_long, is_long, "{after} ms");
    }
    // To the nanosecond: the first gap is the interval itself.
    let mut timer = Timer::new();
    timer.send(true);
    timer.reply(10);
    timer.reply(40);
    timer.now += 80 * MS;
    let gap = timer.pto.on_reply(timer.now, 0, false, true, TIMEOUT, false);
    assert!(!gap.is_long, "exactly twice");
}

#[test]
fn a_loss_episode_explains_losses_for_a_while() {
    let mut timer = Timer::flowing(40);
    assert!(!timer.pto.explains_loss(timer.now, 60 * SECOND), "there was none");
    timer.reply(59);
    assert!(!timer.pto.explains_loss(timer.now, 60 * SECOND), "that was none, either");
    timer.reply(1000);
    assert!(timer.pto.explains_loss(timer.now, Duration::ZERO));
    assert!(timer.pto.explains_loss(timer.now + 600 * MS, 600 * MS));
    assert!(!timer.pto.explains_loss(timer.now + 601 * MS, 600 * MS));
}

#[test]
fn a_first_gap_is_a_loss_episode_if_it_was_probed() {
    for probed in [false, true] {
        let mut timer = Timer::heard();
        if probed {
            timer.probe();
            timer.now = timer.pto.since();
        }
        timer.reply(1000);
        assert_eq!(timer.pto.explains_loss(timer.now, SECOND), probed);
    }
}

#[test]
fn a_call_has_met_an_episode_that_ended_after_it_was_sent_and_was_longer_than_a_pause() {
    let mut timer = Timer::flowing(10);
    timer.reply(100);
    let ended = timer.now;
    for (sent, pause, has_met) in [
        (ended - MS, 99 * MS, true),
        (ended, 99 * MS, false),
        (ended - MS, 100 * MS, false),
        (ended - 200 * MS, Duration::ZERO, true),
    ] {
        assert_eq!(timer.pto.has_met(sent, pause), has_met, "{:?} before, {pause:?}", ended - sent);
    }
    // 20 ms are nothing in particular.
    let mut timer = Timer::flowing(2);
    timer.reply(20);
    assert!(timer.pto.explains_loss(timer.now, SECOND));
    assert!(!timer.pto.has_met(timer.start, Duration::ZERO));
    timer.reply(21);
    assert!(timer.pto.has_met(timer.start, Duration::ZERO));
}

#[test]
fn a_link_that_has_changed_is_probed_at_once_and_then_as_if_the_silence_had_begun_there() {
    let mut timer = Timer::heard();
    timer.probe_at(16 * SECOND);
    let changed = timer.now + 100 * MS;
    timer.pto.handle_link_event(changed);
    assert_eq!(timer.pto.next(), Some(changed));
    timer.now = changed;
    assert!(timer.probe(), "the call itself, too, as after the first 4 s");
    assert_eq!(timer.due(), 5 * MS);
    // t/8 from then on, at most 1.25 s.
    for (since, interval) in [(80, 10), (400, 50), (2000, 250), (8000, 1000), (20_000, 1250)] {
        assert_eq!(timer.probe_at(16 * SECOND + (100 + since) * MS), interval * MS, "{since} ms");
    }
}

#[test]
fn a_change_of_the_link_means_nothing_where_nothing_is_outstanding_or_a_reply_came() {
    let mut timer = Timer::heard();
    timer.pto.stop();
    timer.pto.handle_link_event(timer.now);
    assert_eq!(timer.pto.next(), None);
    let mut timer = Timer::heard();
    timer.pto.handle_link_event(timer.now);
    timer.reply(10);
    assert_eq!(timer.probe_at(200 * MS), 25 * MS, "not for a change");
    assert_eq!(timer.probe_at(1500 * MS), 80 * MS);
}
