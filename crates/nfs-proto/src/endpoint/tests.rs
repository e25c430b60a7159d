//! The machines together, over connections that deliver at given rates.

use std::time::{Duration, Instant};

use nfs_wire::{Procedure, portmap::Protocol};

use super::{
    Carrier, ConnectionId, Direction, DownloadPlan, DownloadStep, Endpoint, EndpointConfig, Failover, Reason,
    Route, RunId, TransportTuning, UploadPlan, UploadStep,
};
use crate::transfer::{Range, RangeSet};

const EITHER: EndpointConfig =
    EndpointConfig { either_transport: true, several_connections: true, tuning: TransportTuning::DEFAULT };
const ONE: EndpointConfig =
    EndpointConfig { either_transport: false, several_connections: false, tuning: TransportTuning::DEFAULT };

#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
fn epoch() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn endpoint(config: EndpointConfig, first: Protocol, now: Instant) -> Endpoint {
    Endpoint::new(config, now, first, Duration::from_millis(50), Reason::OnlyOne)
}

/// Bytes per millisecond of UDP and TCP at a millisecond. A transport that moves nothing answers nothing.
type Rates = fn(u64) -> [u64; 2];

fn rate(rates: Rates, millisecond: u64, protocol: Protocol) -> u64 {
    rates(millisecond)[usize::from(protocol == Protocol::Tcp)]
}

/// What became of a transfer.
#[derive(Debug)]
struct Outcome {
    milliseconds: u64,
    connections: Vec<Protocol>,
    bytes: [u64; 2],
}

/// Downloads so many bytes. A connection's share of its transport's rate is equal.
fn download(config: EndpointConfig, first: Protocol, size: u64, rates: Rates) -> Outcome {
    let epoch = epoch();
    let mut endpoint = endpoint(config, first, epoch);
    let mut plan = DownloadPlan::new(epoch, &endpoint, RangeSet::new().missing(size));
    endpoint.begin(epoch, Direction::Down);
    let mut runs: Vec<(ConnectionId, RunId, RangeSet)> = Vec::new();
    let mut joins: Vec<(u64, Protocol, usize)> = Vec::new();
    let mut outcome = Outcome { milliseconds: 0, connections: vec![first], bytes: [0; 2] };
    for millisecond in 0..600_000 {
        let now = epoch + Duration::from_millis(millisecond);
        joins.retain(|&(asked, protocol, number)| {
            let answers = rate(rates, millisecond, protocol) > 0 && millisecond >= asked + 50;
            if answers {
                let connection = endpoint.find(protocol, number).unwrap_or_else(|| {
                    outcome.connections.push(protocol);
                    endpoint.add(protocol, Duration::from_millis(50))
                });
                plan.handle_join(now, &mut endpoint, protocol, Some(connection));
            }
            !answers
        });
        while let Some(step) = plan.poll(now, &mut endpoint, true) {
            match step {
                DownloadStep::Read { connection, run, ranges } => runs.push((connection, run, ranges)),
                DownloadStep::Cancel(id) => runs.retain(|&(_, run, _)| run != id),
                DownloadStep::Join { protocol, number, .. } => joins.push((millisecond, protocol, number)),
            }
        }
        for (index, &protocol) in outcome.connections.clone().iter().enumerate() {
            let alike = outcome.connections.iter().filter(|&&it| it == protocol).count() as u64;
            let mut budget = rate(rates, millisecond, protocol) / alike;
            while let Some(at) = runs.iter().position(|run| run.0 == ConnectionId(index) && budget > 0) {
                let (_, run, ranges) = &mut runs[at];
                let run = *run;
                if let Some(Range { start, end }) = ranges.take(budget.min(1024)) {
                    budget -= end - start;
                    outcome.bytes[usize::from(protocol == Protocol::Tcp)] += end - start;
                    endpoint.handle_bytes(now, Direction::Down, protocol, end - start);
                    plan.handle_bytes(now, run, Range { start, end });
                }
                if runs[at].2.is_empty() {
                    runs.remove(at);
                    plan.handle_end(run);
                }
            }
        }
        if plan.left() == 0 {
            outcome.milliseconds = millisecond;
            return outcome;
        }
    }
    panic!("{} bytes never came: {plan:?}", plan.left());
}

/// Uploads so many bytes; a transfer that is taken back continues where it was. Connections over both transports are there.
fn upload(config: EndpointConfig, size: u64, rates: Rates) -> (Outcome, Vec<UploadStep>) {
    let epoch = epoch();
    let mut endpoint = endpoint(config, Protocol::Udp, epoch);
    endpoint.add(Protocol::Tcp, Duration::from_millis(50));
    endpoint.begin(epoch, Direction::Up);
    let mut plan = UploadPlan::new(epoch, &mut endpoint, size);
    let (mut left, mut steps, mut is_held, mut asked) = (size, Vec::new(), false, None);
    let mut outcome = Outcome { milliseconds: 0, connections: Vec::new(), bytes: [0; 2] };
    for millisecond in 0..600_000 {
        let now = epoch + Duration::from_millis(millisecond);
        if let Some(protocol) = asked
            && rate(rates, millisecond, protocol) > 0
        {
            asked = None;
            plan.handle_answer(now, &mut endpoint, true);
        }
        let is_due = plan.poll_timeout(&endpoint).is_none_or(|due| due <= now);
        while let Some(step) = plan.poll(now, &mut endpoint, Carrier::default()) {
            assert!(is_due, "{step:?} at {millisecond}, before its time");
            steps.push(step);
            match step {
                UploadStep::Ask(protocol) => asked = Some(protocol),
                UploadStep::Hold => is_held = true,
                UploadStep::Detach => {
                    is_held = false;
                    plan.handle_detached(now, &endpoint, true);
                }
            }
        }
        let protocol = endpoint.protocol(plan.connection());
        let bytes = if is_held { 0 } else { rate(rates, millisecond, protocol).min(left) };
        if bytes > 0 {
            left -= bytes;
            outcome.bytes[usize::from(protocol == Protocol::Tcp)] += bytes;
            plan.handle_accepted(now, &mut endpoint, bytes);
        }
        if left == 0 {
            outcome.milliseconds = millisecond;
            return (outcome, steps);
        }
    }
    panic!("{left} bytes were never accepted: {plan:?}");
}

#[test]
fn one_transport_that_was_asked_for_is_never_left() {
    let dies: Rates = |millisecond| if millisecond < 500 { [1000, 1000] } else { [100, 1000] };
    let end = download(ONE, Protocol::Udp, 4 << 20, dies);
    assert_eq!((end.connections, end.bytes), (vec![Protocol::Udp], [4 << 20, 0]));
    let (end, steps) = upload(ONE, 4 << 20, dies);
    assert_eq!((end.bytes, steps), ([4 << 20, 0], vec![]));
}

#[test]
fn a_download_leaves_a_transport_that_has_fallen_silent() {
    let dies: Rates = |millisecond| if millisecond < 500 { [1000, 1000] } else { [0, 1000] };
    let end = download(EITHER, Protocol::Udp, 8 << 20, dies);
    assert_eq!(end.connections[..2], [Protocol::Udp, Protocol::Tcp]);
    // A stall is 1 s; the other has 1.5 s to show that it is no fade that takes both.
    assert!(end.milliseconds < 8400 + 3200, "{end:?}");
    assert!(end.bytes[0] <= 500_000 && end.bytes[1] >= (8 << 20) - 500_000, "{end:?}");
}

#[test]
fn an_upload_leaves_a_transport_that_has_fallen_silent() {
    let dies: Rates = |millisecond| if millisecond < 500 { [1000, 1000] } else { [0, 1000] };
    let (end, steps) = upload(EITHER, 8 << 20, dies);
    assert_eq!(steps[..3], [UploadStep::Ask(Protocol::Tcp), UploadStep::Hold, UploadStep::Detach]);
    assert!(end.milliseconds < 8400 + 3800, "{end:?}");
    assert_eq!(end.bytes.iter().sum::<u64>(), 8 << 20);
}

#[test]
fn a_fade_of_both_transports_moves_nothing() {
    let fades: Rates = |millisecond| if (1000..21_000).contains(&millisecond) { [0; 2] } else { [1000; 2] };
    let end = download(EITHER, Protocol::Udp, 8 << 20, fades);
    assert_eq!(end.bytes[1], 0, "{end:?}");
    let (end, steps) = upload(EITHER, 8 << 20, fades);
    assert_eq!((end.bytes[1], steps), (0, vec![UploadStep::Ask(Protocol::Tcp)]));
}

#[test]
fn a_download_over_tcp_that_stalls_takes_more_connections_and_one_that_does_not_takes_none() {
    let stalls: Rates = |millisecond| if millisecond % 1000 < 600 { [0, 2000] } else { [0, 0] };
    let end = download(EITHER, Protocol::Tcp, 16 << 20, stalls);
    assert_eq!(end.connections, [Protocol::Tcp; 4]);
    let end = download(EITHER, Protocol::Tcp, 16 << 20, |_| [0, 2000]);
    assert_eq!(end.connections, [Protocol::Tcp]);
    let single = EndpointConfig { several_connections: false, ..EITHER };
    let end = download(single, Protocol::Tcp, 16 << 20, stalls);
    assert_eq!(end.connections, [Protocol::Tcp], "as the rate or the window was given");
}

#[test]
fn nothing_is_read_that_has_nowhere_to_go() {
    let epoch = epoch();
    let mut endpoint = endpoint(EITHER, Protocol::Udp, epoch);
    let mut plan = DownloadPlan::new(epoch, &endpoint, RangeSet::new().missing(1 << 20));
    assert_eq!(plan.poll(epoch, &mut endpoint, false), None);
    assert!(matches!(plan.poll(epoch, &mut endpoint, true), Some(DownloadStep::Read { .. })));
}

/// A further connection over a transport that has fallen silent never comes; the other transport is asked all the same.
#[test]
fn a_connection_that_never_comes_keeps_the_other_transport_not_waiting() {
    for first in [Protocol::Udp, Protocol::Tcp] {
        let [udp, tcp]: [Rates; 2] = [
            |millisecond| if millisecond < 1000 { [4 << 10; 2] } else { [0, 4 << 10] },
            |millisecond| if millisecond < 1000 { [4 << 10; 2] } else { [4 << 10, 0] },
        ];
        let outcome = download(EITHER, first, 16 << 20, if first == Protocol::Udp { udp } else { tcp });
        // A stall, its grace and a trial beside 4 s of the file.
        assert!(outcome.milliseconds < 10_000, "{first:?}: {outcome:?}");
    }
}

#[test]
fn an_upload_that_cannot_be_taken_back_stays_and_is_asked_again() {
    let epoch = epoch();
    let at = |milliseconds| epoch + Duration::from_millis(milliseconds);
    let mut endpoint = endpoint(EITHER, Protocol::Udp, epoch);
    endpoint.add(Protocol::Tcp, Duration::from_millis(50));
    endpoint.begin(epoch, Direction::Up);
    let mut plan = UploadPlan::new(epoch, &mut endpoint, 1 << 20);
    let mut detached = 0;
    for millisecond in (0..10_000).step_by(10) {
        match plan.poll(at(millisecond), &mut endpoint, Carrier::default()) {
            Some(UploadStep::Ask(_)) => plan.handle_answer(at(millisecond), &mut endpoint, true),
            Some(UploadStep::Hold) => plan.handle_drained(),
            Some(UploadStep::Detach) => {
                detached += 1;
                plan.handle_detached(at(millisecond), &endpoint, false);
            }
            None => {}
        }
    }
    assert!(detached > 10, "{detached}");
    assert_eq!(plan.connection(), ConnectionId(0));
}

#[test]
fn only_idempotent_calls_are_made_on_the_other_transport() {
    let now = epoch();
    let mut endpoint = endpoint(EITHER, Protocol::Udp, now);
    let tcp = endpoint.add(Protocol::Tcp, Duration::from_millis(50));
    let first = ConnectionId(0);
    for procedure in [Procedure::Null, Procedure::Remove, Procedure::Setattr, Procedure::Write] {
        assert_eq!(endpoint.route(procedure), Route { connection: first, failover: None }, "{procedure:?}");
    }
    let failover = Some(Failover { after: Duration::from_secs(1), grace: Duration::from_millis(1500) });
    assert_eq!(endpoint.route(Procedure::Readdirplus), Route { connection: first, failover });
    // Two calls find out that only TCP answers; then, that only UDP does.
    for (silent, then) in [(Protocol::Udp, tcp), (Protocol::Udp, tcp), (Protocol::Tcp, first)] {
        endpoint.handle_failover(Procedure::Readdirplus, silent);
        assert_eq!(endpoint.route(Procedure::Readdirplus).connection, then);
        assert_eq!(endpoint.route(Procedure::Lookup).connection, first, "each procedure on its own");
    }
    let mut given = Endpoint::new(ONE, now, Protocol::Udp, Duration::from_secs(1), Reason::Given);
    assert_eq!(given.route(Procedure::Lookup).failover, None);
    given.config = EITHER;
    assert_eq!(given.route(Procedure::Lookup).failover.unwrap().after, Duration::from_secs(8));
}

#[test]
fn a_transport_that_refuses_is_left_alone_for_a_while() {
    let now = epoch();
    let mut endpoint = endpoint(EITHER, Protocol::Udp, now);
    assert!(endpoint.may_connect(now, Protocol::Tcp));
    endpoint.handle_refused(now, Protocol::Tcp);
    assert!(!endpoint.may_connect(now + Duration::from_millis(29_999), Protocol::Tcp));
    assert!(endpoint.may_connect(now, Protocol::Udp));
    assert!(endpoint.may_connect(now + Duration::from_secs(30), Protocol::Tcp));
}

#[test]
fn a_download_that_moves_well_over_tcp_is_not_compared_with_udp() {
    let end = download(EITHER, Protocol::Tcp, 60 << 20, |_| [1000; 2]);
    assert_eq!((end.connections, end.bytes), (vec![Protocol::Tcp], [0, 60 << 20]));
}
