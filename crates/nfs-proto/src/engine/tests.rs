mod adaptive;
mod bookkeeping;
mod losses;
mod resends;
mod routes;

use std::time::Duration;

use nfs_wire::rpc::Xid;
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn server() -> SocketAddr {
    "192.0.2.1:2049".parse().unwrap()
}

struct Bench {
    engine: Engine,
    epoch: Instant,
    /// Bytes of results in each reply.
    results: usize,
}

impl Bench {
    fn new(carrier: Carrier, retry: RetryPolicy) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let epoch = Instant::now();
        let window = WindowLimits { calls: 2, read_bytes: 1 << 20, write_bytes: 1 << 20 };
        let config = EngineConfig {
            tuning: Tuning::default(),
            carrier,
            retry,
            window,
            blocks: None,
            prior: None,
            credential: vec![0; 8],
        };
        Self { engine: Engine::new(config, server(), 1, epoch), epoch, results: 0 }
    }

    fn datagrams() -> Self {
        Self::new(Carrier::Datagrams, RetryPolicy::hybrid())
    }

    fn at(&self, millis: u64) -> Instant {
        self.epoch + MS * u32::try_from(millis).unwrap()
    }

    fn submit(&mut self, millis: u64, class: Class, owner: u64, deadline: Option<u64>) -> CallId {
        self.submit_later(millis, None, class, owner, deadline)
    }

    fn submit_later(
        &mut self,
        millis: u64,
        not_before: Option<u64>,
        class: Class,
        owner: u64,
        deadline: Option<u64>,
    ) -> CallId {
        let deadline = deadline.map(|deadline| self.at(deadline));
        let not_before = not_before.map(|due| self.at(due));
        let spec = CallSpec {
            program: Program::NFS,
            procedure: 6,
            class,
            repeat: Repeat::SameXid,
            hedge: false,
            owner: Owner(owner),
            payload: None,
            bytes: 100,
            deadline,
            not_before,
        };
        self.engine.submit(self.at(millis), spec, |buffer| buffer.extend_from_slice(b"args")).unwrap()
    }

    /// Sends everything there is to send and returns the XIDs.
    fn sent(&mut self, millis: u64) -> Vec<Xid> {
        let now = self.at(millis);
        let mut xids = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(now) {
            assert!(transmit.head.ends_with(b"args"));
            xids.push(Xid(u32::from_be_bytes(transmit.head[..4].try_into().unwrap())));
        }
        xids
    }

    fn reply(&mut self, millis: u64, xid: Xid) -> Head {
        self.reply_from(millis, xid, server())
    }

    fn reply_from(&mut self, millis: u64, xid: Xid, peer: SocketAddr) -> Head {
        let head = self.head_from(millis, xid, peer);
        if let Head::Reply(reply) = head {
            self.engine.complete(self.at(millis), reply.id);
        }
        head
    }

    fn head_from(&mut self, millis: u64, xid: Xid, peer: SocketAddr) -> Head {
        let mut bytes = Vec::new();
        ReplyHeader { xid, outcome: Ok(()) }.encode(&mut bytes);
        let results_at = bytes.len();
        bytes.resize(results_at + self.results, 0);
        let head = self.engine.handle_head(self.at(millis), peer, &bytes, true).unwrap();
        if let Head::Reply(reply) = head {
            assert_eq!(reply.results_at, results_at);
        }
        head
    }

    /// The server answers that it wants to be asked later.
    fn postpone(&mut self, millis: u64, xid: Xid) {
        let Head::Reply(reply) = self.head_from(millis, xid, server()) else {
            panic!("the call is outstanding");
        };
        self.engine.postpone(self.at(millis), reply.id);
    }

    /// Lets time pass up to `end` and returns the moments, in ms, at which something was sent.
    fn run_silent(&mut self, end: u64) -> Vec<u64> {
        let mut moments = Vec::new();
        while let Some(due) = self.engine.poll_timeout().filter(|&due| due <= self.at(end)) {
            let millis = u64::try_from((due - self.epoch).as_millis()).unwrap();
            self.engine.handle_timeout(due);
            moments.extend(self.sent(millis).iter().map(|_| millis));
            assert!(self.engine.poll_timeout() > Some(due), "progress after handle_timeout");
        }
        moments
    }
}

#[test]
fn a_call_is_sent_at_once_and_then_by_the_policy() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 0, None);
    assert_eq!(bench.sent(0).len(), 1);
    let moments = bench.run_silent(20_000);
    assert_eq!(moments, [700, 1500, 2400, 3400, 5400, 9400, 17_400]);

    let mut bench = Bench::new(Carrier::Datagrams, RetryPolicy::exponential());
    bench.submit(0, Class::Read, 0, None);
    bench.sent(0);
    assert_eq!(bench.run_silent(20_000), [700, 2100, 4900, 10_500]);
    assert_eq!(bench.engine.stats().resends.timeout, 4);
}

#[test]
fn a_resend_keeps_its_xid_and_its_bytes() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Control, 0, None);
    let first = bench.sent(0);
    bench.engine.handle_timeout(bench.at(700));
    assert_eq!(bench.sent(700), first);
}

#[test]
fn any_attempts_reply_completes_the_call_and_later_ones_count_as_spurious() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 42, None);
    let xid = bench.sent(0)[0];
    bench.engine.handle_timeout(bench.at(700));
    bench.sent(700);
    let Head::Reply(reply) = bench.reply(710, xid) else { panic!("the call is outstanding") };
    assert_eq!((reply.owner, reply.attempts), (Owner(42), 2));
    assert_eq!(bench.engine.stats().spurious_resends, 0);
    assert_eq!(bench.reply(750, xid), Head::Stray);
    assert_eq!(bench.engine.stats().spurious_resends, 1, "both attempts were answered");
    assert_eq!(bench.reply(760, xid), Head::Stray);
    assert_eq!(bench.engine.stats().spurious_resends, 1, "a duplicate on the way is no resend of ours");
    assert_eq!(bench.engine.poll_timeout(), None);
}

#[test]
fn a_resent_call_gives_no_rtt_sample() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 0, None);
    let xid = bench.sent(0)[0];
    bench.engine.handle_timeout(bench.at(700));
    bench.sent(700);
    bench.reply(701, xid);
    assert_eq!(bench.engine.stats().rtt.count(), 0);
    bench.submit(800, Class::Read, 0, None);
    let xid = bench.sent(800)[0];
    bench.reply(850, xid);
    assert_eq!(bench.engine.stats().rtt.count(), 1);
}

#[test]
fn strangers_are_ignored() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 0, None);
    let xid = bench.sent(0)[0];
    assert_eq!(bench.reply(1, Xid(xid.0.wrapping_add(1))), Head::Stray, "unknown XID");
    let elsewhere = "192.0.2.1:2050".parse().unwrap();
    assert_eq!(bench.reply_from(1, xid, elsewhere), Head::Stray, "wrong source");
    assert_eq!(bench.engine.stats().stray_replies, 2);
    assert!(matches!(bench.reply(2, xid), Head::Reply(_)));
}

#[test]
fn a_truncated_reply_changes_nothing() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 0, None);
    let xid = bench.sent(0)[0];
    let mut bytes = Vec::new();
    ReplyHeader { xid, outcome: Ok(()) }.encode(&mut bytes);
    for cut in 0..bytes.len() {
        let now = bench.at(1);
        bench.engine.handle_head(now, server(), &bytes[..cut], true).unwrap_err();
        assert_eq!(bench.engine.handle_head(now, server(), &bytes[..cut], false), Ok(Head::NeedMore));
    }
    assert_eq!(bench.engine.stats().malformed, bytes.len() as u64);
    assert!(matches!(bench.reply(2, xid), Head::Reply(_)));
}

#[test]
fn a_call_expires_at_its_deadline_and_not_before() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 5, Some(1000));
    let xid = bench.sent(0)[0];
    assert_eq!(bench.run_silent(999), [700]);
    assert_eq!(
        bench.engine.poll_event(),
        Some(Event::Silent { class: Class::Read, bytes: 100, attempts: 1, elapsed: 700 * MS })
    );
    assert_eq!(bench.engine.poll_event(), None);
    bench.engine.handle_timeout(bench.at(1000));
    let expired = Event::Expired { owner: Owner(5), attempts: 2, elapsed: MS * 1000 };
    assert_eq!(bench.engine.poll_event(), Some(expired));
    assert_eq!((bench.engine.poll_timeout(), bench.engine.outstanding()), (None, 0));
    assert_eq!(bench.reply(1001, xid), Head::Stray);
}

#[test]
fn a_cancelled_call_is_forgotten() {
    let mut bench = Bench::datagrams();
    let queued = bench.submit(0, Class::Read, 0, None);
    bench.engine.cancel(bench.at(0), queued);
    assert!(bench.sent(0).is_empty());
    let sent = bench.submit(0, Class::Read, 0, None);
    let xid = bench.sent(0)[0];
    bench.engine.cancel(bench.at(1), sent);
    bench.engine.cancel(bench.at(1), sent);
    assert_eq!(bench.reply(2, xid), Head::Stray);
    assert_eq!(bench.engine.poll_timeout(), None);
}

#[test]
fn the_window_holds_data_back_but_not_control() {
    let mut bench = Bench::datagrams();
    for owner in 0..4 {
        bench.submit(0, Class::Read, owner, None);
    }
    let xids = bench.sent(0);
    assert_eq!(xids.len(), 2);
    bench.submit(1, Class::Control, 9, None);
    assert_eq!(bench.sent(1).len(), 1);
    bench.reply(5, xids[0]);
    assert_eq!(bench.sent(5).len(), 1, "a reply makes room");
    assert!(!bench.engine.has_room(Class::Read, 1));
}

#[test]
fn a_postponed_call_comes_back_as_a_new_one() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Control, 3, None);
    let first = bench.sent(0)[0];
    bench.postpone(1, first);
    bench.engine.handle_timeout(bench.at(100));
    assert!(bench.sent(100).is_empty());
    bench.engine.handle_timeout(bench.at(101));
    let second = bench.sent(101);
    assert_eq!(second.len(), 1);
    assert_ne!(second[0], first, "the duplicate request cache must not answer JUKEBOX again");
    assert!(matches!(bench.reply(102, second[0]), Head::Reply(Reply { attempts: 1, .. })));
}

#[test]
fn a_copy_that_was_not_answered_counts_after_its_call_was_postponed() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Control, 3, None);
    bench.sent(0);
    bench.engine.handle_timeout(bench.at(700));
    let again = bench.sent(700)[0];
    bench.postpone(701, again);
    bench.engine.handle_timeout(bench.at(801));
    let third = bench.sent(801)[0];
    assert!(matches!(bench.reply(802, third), Head::Reply(Reply { attempts: 2, .. })));
    bench.submit(900, Class::Control, 4, None);
    let other = bench.sent(900)[0];
    assert!(
        matches!(bench.reply(901, other), Head::Reply(Reply { attempts: 1, .. })),
        "not for the next call"
    );
}

#[test]
fn a_call_that_is_to_wait_is_sent_when_it_is_due() {
    let mut bench = Bench::datagrams();
    bench.submit_later(10, Some(10), Class::Control, 1, None);
    let first = bench.sent(10)[0];
    bench.reply(11, first);
    bench.submit_later(20, Some(500), Class::Control, 2, None);
    bench.engine.handle_timeout(bench.at(499));
    assert!(bench.sent(499).is_empty());
    bench.engine.handle_timeout(bench.at(500));
    let second = bench.sent(500)[0];
    assert!(matches!(bench.reply(501, second), Head::Reply(Reply { owner: Owner(2), attempts: 1, .. })));

    bench.submit_later(600, Some(900), Class::Control, 3, Some(700));
    bench.engine.handle_timeout(bench.at(700));
    let expired = std::iter::from_fn(|| bench.engine.poll_event())
        .any(|it| matches!(it, Event::Expired { owner: Owner(3), attempts: 0, .. }));
    assert!(expired, "its deadline came first");
}

#[test]
fn a_connection_resends_nothing_until_it_reconnects() {
    let mut bench = Bench::new(Carrier::Connection, RetryPolicy::hybrid());
    bench.submit(0, Class::Read, 1, None);
    bench.submit(0, Class::Control, 2, None);
    let before = bench.sent(0);
    assert_eq!(bench.engine.poll_timeout(), None);
    bench.engine.handle_reconnect(bench.at(50));
    let mut after = bench.sent(50);
    after.sort_unstable();
    assert_eq!(after, {
        let mut sorted = before;
        sorted.sort_unstable();
        sorted
    });
    assert_eq!(bench.engine.stats().resends.reconnect, 2);
}

#[test]
fn many_thousand_calls_reuse_their_slots_and_never_collide() {
    let mut bench = Bench::datagrams();
    let stuck = bench.submit(0, Class::Control, 7, None);
    let stuck_xid = bench.sent(0)[0];
    for round in 0..20_000 {
        bench.submit(0, Class::Read, round, None);
        let xid = bench.sent(0)[0];
        let Head::Reply(reply) = bench.reply(0, xid) else { panic!("call {round} lost") };
        assert_eq!(reply.owner, Owner(round));
    }
    let Head::Reply(reply) = bench.reply(1, stuck_xid) else { panic!("the old call is still known") };
    assert_eq!((reply.id, reply.owner), (stuck, Owner(7)));
}

proptest! {
    /// Whatever happens, the engine never spins, never loses a call and never sends more than it may.
    #[test]
    fn the_engine_makes_progress_under_any_operations(
        operations in prop::collection::vec((0_u8..7, 0_usize..8, 1_u64..900), 1..120),
    ) {
        let mut bench = Bench::datagrams();
        let (mut millis, mut known, mut xids) = (0, Vec::new(), Vec::new());
        let (mut ended, mut submitted) = (0, 0);
        for (operation, pick, delta) in operations {
            match operation {
                0 | 1 => {
                    let class = if operation == 0 { Class::Read } else { Class::Control };
                    known.push(bench.submit(millis, class, 0, (pick == 0).then_some(millis + delta)));
                    submitted += 1;
                }
                2 => millis += delta,
                3 => if let Some(&xid) = xids.get(pick)
                    && matches!(bench.reply(millis, xid), Head::Reply(_)) { ended += 1; },
                4 => if let Some(&id) = known.get(pick) {
                    let before = bench.engine.outstanding();
                    bench.engine.cancel(bench.at(millis), id);
                    ended += before - bench.engine.outstanding();
                },
                5 => if let Some(&id) = known.get(pick) {
                    bench.engine.postpone(bench.at(millis), id);
                },
                _ => bench.engine.handle_reconnect(bench.at(millis)),
            }
            let now = bench.at(millis);
            bench.engine.handle_timeout(now);
            xids.extend(bench.sent(millis));
            while let Some(event) = bench.engine.poll_event() {
                ended += usize::from(matches!(event, Event::Expired { .. }));
            }
            prop_assert!(bench.engine.poll_timeout().is_none_or(|due| due > now), "would spin");
            prop_assert_eq!(bench.engine.outstanding() + ended, submitted);
        }
    }
}

#[test]
fn what_waits_for_a_timer_is_sent_again_when_the_link_has_changed() {
    let mut bench = Bench::datagrams();
    bench.submit(0, Class::Read, 1, None);
    bench.sent(0);
    bench.run_silent(20_000);
    bench.engine.handle_link_event(bench.at(20_001));
    assert_eq!(bench.run_silent(20_100), [20_001]);
    bench.engine.handle_link_event(bench.at(20_101));
    assert_eq!(bench.run_silent(20_150), [], "it was sent a moment ago");
}

#[test]
fn linux_timer_follows_the_round_trips_of_calls_that_were_sent_once() {
    let mut bench = Bench::new(Carrier::Datagrams, RetryPolicy::kernel());
    let lost = |bench: &mut Bench, at: u64| {
        bench.submit(at, Class::Control, 2, None);
        bench.sent(at);
        bench.run_silent(at + 5000)[0] - at
    };
    for call in 0..20 {
        bench.submit(call * 100, Class::Control, 1, None);
        let xid = bench.sent(call * 100)[0];
        bench.reply(call * 100 + 50, xid);
    }
    let timeout = lost(&mut bench, 2000);
    assert!((150..=160).contains(&timeout), "{timeout} ms after round trips of 50 ms"); // 100 ms at least
}
