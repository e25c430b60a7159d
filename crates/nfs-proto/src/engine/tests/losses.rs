//! Which calls the adaptive policy declares lost, to the millisecond: `docs/algorithm.md` §3, on a path of 40 ms.

use super::{adaptive::Path, *};

pub(super) const READ: (Class, Repeat) = (Class::Read, Repeat::Idempotent);

impl Path {
    /// Sends one call and returns its XID.
    pub(super) fn send(&mut self, (class, repeat): (Class, Repeat)) -> Xid {
        self.submit(class, repeat);
        let (calls, _) = self.sent();
        assert_eq!(calls.len(), 1);
        calls[0]
    }

    /// Lets time pass until a call is sent again; returns its XID and how many ms that took.
    pub(super) fn sent_again(&mut self) -> (Xid, u64) {
        let start = self.millis;
        while self.millis < start + 5000 {
            if let [xid] = self.pass(1).0[..] {
                return (xid, self.millis - start);
            }
        }
        panic!("nothing is sent again");
    }

    pub(super) fn resends(&self) -> Resends {
        self.bench.engine.stats().resends
    }

    fn silent(&mut self) -> Vec<(Class, u32)> {
        let events = std::iter::from_fn(|| self.bench.engine.poll_event());
        let silent = events.filter_map(|event| match event {
            Event::Silent { class, attempts, .. } => Some((class, attempts)),
            Event::Expired { .. } => None,
        });
        silent.collect()
    }
}

/// A path that has answered READs after 40 ms.
pub(super) fn known() -> Path {
    let mut path = Path::new();
    path.learn();
    path
}

#[test]
fn a_call_that_one_of_its_class_has_overtaken_is_lost_after_an_eighth_of_min_rtt() {
    let (mut path, first) = Path::with_overtaken_read();
    let (again, after) = path.sent_again();
    assert_eq!(after, 5);
    assert_ne!(again, first);
    assert_eq!(path.silent(), [(Class::Read, 1)]);
}

#[test]
fn a_suspect_leaves_the_window_at_once() {
    let mut path = known();
    let calls = [(); 2].map(|()| path.send(READ));
    assert!(!path.bench.engine.has_room(Class::Read, 4096), "two calls are the window here");
    path.pass(40);
    path.reply(calls[1]);
    assert!(path.bench.engine.has_room(Class::Read, 4096));
    path.send(READ);
    path.send(READ);
    assert!(!path.bench.engine.has_room(Class::Read, 4096));
}

#[test]
fn each_spurious_retransmission_doubles_the_reordering_window() {
    let mut path = known();
    for window in [5, 10, 20] {
        let calls = [(); 2].map(|()| path.send(READ));
        path.pass(40);
        path.reply(calls[1]);
        assert_eq!(path.sent_again().1, window);
        // It was only late.
        assert!(path.reply(calls[0]));
    }
    assert_eq!(path.bench.engine.stats().spurious_resends, 3);
    assert_eq!(path.resends(), Resends { rack: 3, ..Resends::default() });
}

#[test]
fn a_call_that_must_not_run_twice_waits_a_quarter_of_a_second_for_each_time_that_it_was_overtaken() {
    let mut path = known();
    let call = path.send((Class::Control, Repeat::SameXid));
    let mut waited = 0;
    for quarters in 1..=3 {
        let read = path.send(READ);
        path.pass(40);
        assert!(path.reply(read));
        let (again, after) = path.sent_again();
        assert_eq!(again, call, "its XID stays");
        assert_eq!(40 + after, 250 * quarters);
        waited += 40 + after;
    }
    assert_eq!((waited, path.silent()), (1500, vec![]));
    assert!(path.reply(call));
    assert_eq!(path.bench.engine.stats().rtt.count(), 20 + 3, "which attempt was answered is not known");
}

#[test]
fn what_is_not_known_to_be_lost_is_no_retransmission() {
    let (mut path, first) = Path::with_overtaken_read();
    path.pass(4);
    assert!(path.reply(first));
    path.pass(1000);
    assert_eq!((path.resends(), path.silent()), (Resends::default(), vec![]));
}

#[test]
fn the_path_estimate_is_of_the_data_that_was_delivered() {
    let path = known();
    let estimate = path.bench.engine.path_estimate().unwrap();
    // One block of 4096 bytes in 40 ms.
    assert!((estimate.rate - 102_400.0).abs() < 1.0, "{}", estimate.rate);
    assert_eq!((estimate.min_rtt, estimate.block), (40 * MS, 4096));
    assert_eq!((estimate.mean_fade, estimate.retransmits), (Duration::ZERO, false));
    let pace = path.bench.engine.pace();
    assert_eq!(pace.spacing.as_micros().div_ceil(10) * 10, 40_000);
    assert_eq!(pace.bytes / 4096, u64::from(estimate.in_flight));
    assert_eq!(Path::new().bench.engine.path_estimate(), None, "nothing was delivered");
}

#[test]
fn each_late_reply_to_a_call_that_has_ended_is_a_stray_one() {
    let mut path = known();
    for number in 1..=2 {
        let call = path.send(READ);
        path.pass(40);
        assert!(path.reply(call) && !path.reply(call));
        assert_eq!(path.bench.engine.stats().stray_replies, number);
    }
}

#[test]
fn each_probe_is_counted_and_its_reply_makes_what_is_older_suspect() {
    let mut path = known();
    let first = path.send(READ);
    let (calls, mut probes) = path.pass(300);
    assert!(calls.is_empty());
    assert_eq!(path.bench.engine.stats().probes, probes.len() as u64);
    assert!(probes.len() > 1);
    assert!(!path.reply(probes.pop().unwrap()), "nobody's call");
    let (again, after) = path.sent_again();
    assert!(again != first && after <= 20, "{after} ms");
    assert_eq!(path.bench.engine.stats().stray_replies, 0, "probes are ours");
}

#[test]
fn a_short_read_counts_for_no_more_bytes_than_have_arrived() {
    // 40 ms for each: a reply has 24 bytes of RPC (RFC 5531), and 28 of UDP and IPv4.
    for (class, results, bytes) in
        [(Class::Read, 1280, 1280), (Class::Read, 58, 28 + 24 + 58), (Class::Write, 58, 1280)]
    {
        let mut path = Path::new();
        (path.block, path.bench.results) = (1280, results);
        for _ in 0..20 {
            let call = path.send((class, Repeat::Idempotent));
            path.pass(40);
            assert!(path.reply(call));
        }
        let rate = path.bench.engine.path_estimate().unwrap().rate;
        assert!((rate - f64::from(bytes) / 0.04).abs() < 1.0, "{class:?} with {results} bytes: {rate}");
    }
}
