use std::time::Duration;

use super::{
    super::{EndpointConfig, Reason, TransportTuning},
    *,
};

const MS: Duration = Duration::from_millis(1);

const CONFIG: EndpointConfig =
    EndpointConfig { either_transport: true, several_connections: true, tuning: TransportTuning::DEFAULT };

#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
fn epoch() -> Instant {
    Instant::now()
}

type Read = (ConnectionId, RunId, RangeSet);

/// Over which transport, its number, and whether it has to answer.
type Joining = (Protocol, usize, bool);

/// A download of so many bytes over a first connection of 50 ms.
struct Flow {
    endpoint: Endpoint,
    plan: DownloadPlan,
    now: Instant,
}

impl Flow {
    fn new(config: EndpointConfig, first: Protocol, size: u64) -> Self {
        let now = epoch();
        let mut endpoint = Endpoint::new(config, now, first, 50 * MS, Reason::OnlyOne);
        endpoint.begin(now, Direction::Down);
        let plan = DownloadPlan::new(now, &endpoint, RangeSet::new().missing(size));
        Self { endpoint, plan, now }
    }

    fn poll(&mut self) -> Option<DownloadStep> {
        self.plan.poll(self.now, &mut self.endpoint, true)
    }

    /// Starts every READ that may be started; returns them, and the connection that is to join after them.
    fn reads(&mut self) -> (Vec<Read>, Option<Joining>) {
        let mut reads = Vec::new();
        loop {
            match self.poll() {
                Some(DownloadStep::Read { connection, run, ranges }) => reads.push((connection, run, ranges)),
                Some(DownloadStep::Join { protocol, number, must_answer }) => {
                    return (reads, Some((protocol, number, must_answer)));
                }
                Some(DownloadStep::Cancel(_)) => {}
                None => return (reads, None),
            }
        }
    }

    fn bytes(&mut self, run: RunId, start: u64, end: u64) -> u64 {
        self.endpoint.handle_bytes(self.now, Direction::Down, Protocol::Tcp, end - start);
        self.plan.handle_bytes(self.now, run, Range { start, end })
    }

    /// Over TCP, and so long after a timer of TCP had to end a silence that a second connection would help.
    fn in_trouble(config: EndpointConfig, round_trip: Duration, size: u64) -> (Self, Option<Joining>) {
        let mut flow = Self::new(config, Protocol::Tcp, size);
        flow.endpoint.connections[0].round_trip = round_trip;
        let (reads, join) = flow.reads();
        assert_eq!(join, None);
        flow.bytes(reads[0].1, 0, 1000);
        flow.now += 400 * MS;
        let (_, join) = flow.reads();
        (flow, join)
    }
}

#[test]
fn what_a_run_has_not_brought_is_asked_for_again_and_what_came_twice_is_counted() {
    let mut flow = Flow::new(CONFIG, Protocol::Udp, 1000);
    let (reads, _) = flow.reads();
    let [(_, run, ref ranges)] = reads[..] else { panic!("{reads:?}") };
    assert_eq!((ranges.bytes(), flow.plan.connections_and_bytes_twice()), (1000, (1, 0)));
    assert_eq!([flow.bytes(run, 0, 400), flow.bytes(run, 300, 500)], [400, 100]);
    assert_eq!((flow.plan.left(), flow.plan.connections_and_bytes_twice()), (500, (1, 100)));
    assert_eq!(flow.poll(), None, "the rest is under way");
    flow.plan.handle_end(run);
    let (reads, _) = flow.reads();
    assert_eq!(reads.iter().map(|(_, _, ranges)| ranges.bytes()).collect::<Vec<_>>(), [500]);
}

#[test]
fn a_second_connection_joins_where_the_first_is_in_trouble_far_away_and_much_is_left() {
    let single = EndpointConfig { several_connections: false, ..CONFIG };
    let piece = TransportTuning::DEFAULT.piece_bytes;
    for (config, round_trip, size, joins) in [
        (CONFIG, 50 * MS, 64 << 20, true),
        (CONFIG, MS, 64 << 20, true),
        (CONFIG, MS - MS / 1000, 64 << 20, false),
        (single, 50 * MS, 64 << 20, false),
        (CONFIG, 50 * MS, 8 * piece + 1000, true),
        (CONFIG, 50 * MS, 8 * piece + 999, false),
    ] {
        let (_, join) = Flow::in_trouble(config, round_trip, size);
        assert_eq!(join, joins.then_some((Protocol::Tcp, 1, false)), "{round_trip:?}, {size} bytes");
    }
}

#[test]
fn one_connection_joins_at_a_time_and_shows_for_half_a_second_what_it_is_worth() {
    let (mut flow, join) = Flow::in_trouble(CONFIG, 50 * MS, 64 << 20);
    assert!(join.is_some());
    assert_eq!(flow.reads().1, None, "it has not joined yet");
    // The server did not answer.
    flow.plan.handle_join(flow.now, &mut flow.endpoint, Protocol::Tcp, None);
    assert_eq!(flow.plan.connections_and_bytes_twice().0, 1);
    flow.now += 499 * MS;
    assert_eq!(flow.reads().1, None);
    flow.now += MS;
    assert_eq!(flow.reads().1, Some((Protocol::Tcp, 1, false)));
    let second = flow.endpoint.add(Protocol::Tcp, 50 * MS);
    flow.plan.handle_join(flow.now, &mut flow.endpoint, Protocol::Tcp, Some(second));
    flow.plan.handle_join(flow.now, &mut flow.endpoint, Protocol::Tcp, Some(second));
    assert_eq!(flow.plan.connections_and_bytes_twice().0, 2, "once");
    assert!(flow.reads().0.iter().any(|&(connection, ..)| connection == second));
}

#[test]
fn a_transfer_begins_on_the_transport_that_was_found_better() {
    let now = epoch();
    let mut endpoint = Endpoint::new(CONFIG, now, Protocol::Udp, 50 * MS, Reason::OnlyOne);
    assert_eq!(endpoint.carrier(Protocol::Tcp), ConnectionId(0), "there is no other");
    let tcp = endpoint.add(Protocol::Tcp, 50 * MS);
    assert_eq!([endpoint.carrier(Protocol::Tcp), endpoint.carrier(Protocol::Udp)], [tcp, ConnectionId(0)]);
}

#[test]
fn the_first_of_several_transfers_starts_the_comparison_and_the_others_join_it() {
    let now = epoch();
    let mut endpoint = Endpoint::new(CONFIG, now, Protocol::Udp, 50 * MS, Reason::OnlyOne);
    let stalled = |endpoint: &mut Endpoint, at| endpoint.decide(at, Direction::Down, 1 << 30).ask;
    endpoint.begin(now, Direction::Down);
    endpoint.begin(now + 900 * MS, Direction::Down);
    assert!(!stalled(&mut endpoint, now + 999 * MS));
    assert!(stalled(&mut endpoint, now + 1000 * MS), "a second without a byte");
    // Both end, and another one begins: time without a transfer is no stall.
    endpoint.end(now + 1000 * MS, Direction::Down);
    endpoint.end(now + 1000 * MS, Direction::Down);
    endpoint.begin(now + 5000 * MS, Direction::Down);
    assert!(!stalled(&mut endpoint, now + 5999 * MS));
    assert!(stalled(&mut endpoint, now + 6000 * MS));
}

#[test]
fn what_was_asked_of_udp_comes_over_tcp_when_that_is_tested() {
    let mut flow = Flow::new(CONFIG, Protocol::Udp, 64 << 20);
    flow.endpoint = Endpoint::new(CONFIG, flow.now, Protocol::Udp, 5 * MS, Reason::OnlyOne);
    flow.endpoint.begin(flow.now, Direction::Down);
    let (reads, _) = flow.reads();
    flow.now += 100 * MS;
    let moved = 1 << 20;
    flow.endpoint.handle_bytes(flow.now, Direction::Down, Protocol::Udp, moved);
    flow.plan.handle_bytes(flow.now, reads[0].1, Range { start: 0, end: 1000 });
    assert_eq!(flow.reads().1, Some((Protocol::Tcp, 0, true)));
    let tcp = flow.endpoint.add(Protocol::Tcp, 5 * MS);
    flow.plan.handle_join(flow.now, &mut flow.endpoint, Protocol::Tcp, Some(tcp));
    for (_, run, _) in reads {
        assert_eq!(flow.poll(), Some(DownloadStep::Cancel(run)));
    }
    let (again, _) = flow.reads();
    assert!(again.iter().all(|(connection, ..)| *connection == tcp), "{again:?}");
    let first = again[0].2.iter().next();
    assert_eq!(first.map(|range| range.start), Some(1000), "what UDP has brought is not asked for again");
}
