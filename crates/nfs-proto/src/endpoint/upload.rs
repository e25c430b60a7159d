//! An upload that moves to the other transport when that does better.

use std::time::{Duration, Instant};

use nfs_wire::portmap::Protocol;

use super::{ConnectionId, Direction, Endpoint, Reason, choice::other};

/// What a driver is to do for an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadStep {
    /// Have a connection over this transport answer a NULL call, and make it if there is none yet. [`UploadPlan::handle_answer`] takes
    /// note.
    Ask(Protocol),
    /// Make no further calls; [`UploadPlan::handle_drained`] records when none is outstanding.
    Hold,
    /// Take the transfer back from its connection, unless it waits for a call that must not be run twice;
    /// [`UploadPlan::handle_detached`] records it.
    Detach,
}

/// What the connection that carries an upload has noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carrier {
    /// When it received something last.
    pub last_heard: Option<Instant>,
    /// The lowest round-trip time, once it knows one.
    pub min_rtt: Option<Duration>,
    /// [`Stats::overflow`](crate::engine::Stats::overflow).
    pub overflow: u64,
}

/// One upload over the connections of an endpoint: on which of them it is. WRITEs are made on one at a time.
#[derive(Debug)]
pub struct UploadPlan {
    connection: ConnectionId,
    left: u64,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Looks again then whether the other transport would do better.
    Writing { look: Instant },
    /// The other transport has been asked.
    Asking,
    /// Waits for what is in flight.
    Draining { to: ConnectionId, began: Instant, heard: Instant, is_drained: bool },
    /// Is being taken back.
    Detaching { to: ConnectionId },
}

impl UploadPlan {
    /// Starts an upload of so many bytes.
    pub fn new(now: Instant, endpoint: &mut Endpoint, bytes: u64) -> Self {
        let protocol = endpoint.decide(now, Direction::Up, bytes).current;
        let state = State::Writing { look: now + endpoint.tick() };
        Self { connection: endpoint.carrier(protocol), left: bytes, state }
    }

    /// Returns the connection that carries it.
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Returns what is to be done next. `carrier`: what its connection has noticed.
    pub fn poll(&mut self, now: Instant, endpoint: &mut Endpoint, carrier: Carrier) -> Option<UploadStep> {
        match self.state {
            State::Writing { look } if look <= now => self.look(now, endpoint, carrier),
            State::Draining { to, is_drained, .. } if is_drained || self.drained_by(endpoint)? <= now => {
                self.state = State::Detaching { to };
                Some(UploadStep::Detach)
            }
            State::Writing { .. } | State::Asking | State::Draining { .. } | State::Detaching { .. } => None,
        }
    }

    /// Records bytes that the server accepted.
    pub fn handle_accepted(&mut self, now: Instant, endpoint: &mut Endpoint, bytes: u64) {
        endpoint.handle_bytes(now, Direction::Up, endpoint.protocol(self.connection), bytes);
        self.left = self.left.saturating_sub(bytes);
        if let State::Draining { heard, .. } = &mut self.state {
            *heard = now;
        }
    }

    /// Records that the other transport has answered, or does not.
    pub fn handle_answer(&mut self, now: Instant, endpoint: &mut Endpoint, has_answered: bool) {
        if has_answered {
            endpoint.choice_mut(Direction::Up).handle_answer(now);
        }
        self.state = State::Writing { look: now + endpoint.tick() };
    }

    /// Records that none of its calls is outstanding.
    pub const fn handle_drained(&mut self) {
        if let State::Draining { is_drained, .. } = &mut self.state {
            *is_drained = true;
        }
    }

    /// Records that the transfer was taken back, and is now carried by [`Self::connection`]; or could not be.
    pub fn handle_detached(&mut self, now: Instant, endpoint: &Endpoint, was_handed_over: bool) {
        if let State::Detaching { to } = self.state
            && was_handed_over
        {
            self.connection = to;
        }
        self.state = State::Writing { look: now + endpoint.tick() };
    }

    /// Returns when to poll it next, whatever happens.
    pub fn poll_timeout(&self, endpoint: &Endpoint) -> Option<Instant> {
        match self.state {
            State::Writing { look } => Some(look),
            State::Draining { .. } => self.drained_by(endpoint),
            State::Asking | State::Detaching { .. } => None,
        }
    }

    fn look(&mut self, now: Instant, endpoint: &mut Endpoint, carrier: Carrier) -> Option<UploadStep> {
        self.state = State::Writing { look: now + endpoint.tick() };
        let protocol = endpoint.protocol(self.connection);
        if let Some(round_trip) = carrier.min_rtt {
            endpoint.handle_round_trip(self.connection, round_trip);
        }
        if protocol == Protocol::Udp {
            endpoint.choice_mut(Direction::Up).handle_overflow(carrier.overflow);
        }
        // Over TCP only a stall is a reason to try UDP.
        let left = if protocol == Protocol::Tcp { 0 } else { self.left };
        let uses = endpoint.decide(now, Direction::Up, left);
        if uses.ask {
            self.state = State::Asking;
            return Some(UploadStep::Ask(other(uses.current)));
        }
        let wanted = if uses.trial { other(uses.current) } else { uses.current };
        let to = endpoint.find(wanted, 0).filter(|_| wanted != protocol)?;
        let silent = self.silent(endpoint);
        let heard = carrier.last_heard.unwrap_or(now).max(now.checked_sub(silent).unwrap_or(now));
        // Most of what is in flight will be lost: to wait for it takes longer than to write it again.
        let is_drained =
            protocol == Protocol::Udp && matches!(endpoint.verdict(Direction::Up).1, Reason::Overflow(_));
        self.state = State::Draining { to, began: now, heard, is_drained };
        Some(UploadStep::Hold)
    }

    /// When what is in flight is waited for no longer: nothing has come for half a stall and two round trips, or for four times as long it came late.
    fn drained_by(&self, endpoint: &Endpoint) -> Option<Instant> {
        let State::Draining { began, heard, .. } = self.state else { return None };
        let silent = self.silent(endpoint);
        Some((heard + silent).min(began + silent * 4))
    }

    fn silent(&self, endpoint: &Endpoint) -> Duration {
        endpoint.config.tuning.outage() + endpoint.round_trip(self.connection) * 2
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{EndpointConfig, TransportTuning},
        *,
    };

    /// An upload over UDP, with a connection over TCP beside it and a round trip of 50 ms, and the time.
    struct World {
        endpoint: Endpoint,
        plan: UploadPlan,
        epoch: Instant,
    }

    const FIRST: ConnectionId = ConnectionId(0);
    const SECOND: ConnectionId = ConnectionId(1);

    impl World {
        fn new() -> Self {
            Self::after(Duration::from_millis(50))
        }

        /// UDP's NULL call took so long.
        fn after(first: Duration) -> Self {
            #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
            let epoch = Instant::now() + Duration::from_secs(60);
            let config = EndpointConfig {
                either_transport: true,
                several_connections: true,
                tuning: TransportTuning::DEFAULT,
            };
            let mut endpoint = Endpoint::new(config, epoch, Protocol::Udp, first, Reason::OnlyOne);
            endpoint.add(Protocol::Tcp, Duration::from_millis(50));
            endpoint.begin(epoch, Direction::Up);
            let plan = UploadPlan::new(epoch, &mut endpoint, 1 << 30);
            Self { endpoint, plan, epoch }
        }

        fn at(&self, millis: u64) -> Instant {
            self.epoch + Duration::from_millis(millis)
        }

        fn poll(&mut self, millis: u64, last_heard: Option<u64>) -> Option<UploadStep> {
            let (now, last_heard) = (self.at(millis), last_heard.map(|millis| self.at(millis)));
            self.plan.poll(now, &mut self.endpoint, Carrier { last_heard, ..Carrier::default() })
        }

        fn answer(&mut self, millis: u64, has_answered: bool) {
            let now = self.at(millis);
            self.plan.handle_answer(now, &mut self.endpoint, has_answered);
        }

        fn accept(&mut self, millis: u64) {
            let now = self.at(millis);
            self.plan.handle_accepted(now, &mut self.endpoint, 1000);
        }

        /// When it is to be polled next, in ms.
        fn due(&self) -> Option<u128> {
            self.plan.poll_timeout(&self.endpoint).map(|due| (due - self.epoch).as_millis())
        }

        /// UDP has stalled, TCP has answered, and what is in flight is waited for from 2600 ms on.
        fn draining(last_heard: Option<u64>) -> Self {
            let mut world = Self::new();
            assert_eq!(world.poll(1000, None), Some(UploadStep::Ask(Protocol::Tcp)));
            world.answer(1010, true);
            assert_eq!(world.poll(2600, last_heard), Some(UploadStep::Hold));
            world
        }
    }

    #[test]
    fn it_looks_every_50_ms_whether_the_other_transport_would_do_better() {
        let mut world = World::new();
        assert_eq!((world.due(), world.plan.connection()), (Some(50), FIRST));
        assert_eq!((world.poll(50, None), world.due()), (None, Some(100)));
        assert_eq!(world.poll(1000, None), Some(UploadStep::Ask(Protocol::Tcp)));
        assert_eq!((world.poll(1100, None), world.due()), (None, None), "until that has answered or not");
        world.answer(1200, false);
        assert_eq!(world.due(), Some(1250));
        assert_eq!(world.poll(1249, None), None);
        assert_eq!(world.poll(1250, None), Some(UploadStep::Ask(Protocol::Tcp)));
    }

    #[test]
    fn a_null_call_that_the_link_has_held_is_not_the_round_trip() {
        for (min_rtt, step) in [(None, None), (Some(50), Some(UploadStep::Ask(Protocol::Tcp)))] {
            let mut world = World::after(Duration::from_millis(1300));
            let carrier = Carrier { min_rtt: min_rtt.map(Duration::from_millis), ..Carrier::default() };
            let now = world.at(1000);
            assert_eq!(world.plan.poll(now, &mut world.endpoint, carrier), step, "{min_rtt:?}");
        }
    }

    #[test]
    fn it_waits_for_what_is_in_flight_until_nothing_came_for_half_a_second_and_two_round_trips() {
        for (last_heard, due) in [(None, 3200), (Some(2400), 3000), (Some(100), 2600)] {
            let mut world = World::draining(last_heard);
            assert_eq!(world.due(), Some(due), "{last_heard:?}");
            let due = u64::try_from(due).unwrap();
            if due > 2600 {
                assert_eq!(world.poll(due - 1, None), None);
            }
            assert_eq!(world.poll(due, None), Some(UploadStep::Detach));
            assert_eq!((world.poll(due, None), world.due()), (None, None));
        }
    }

    #[test]
    fn what_is_accepted_meanwhile_prolongs_that_to_four_times_as_long_at_most() {
        let mut world = World::draining(None);
        world.accept(3100);
        assert_eq!(world.due(), Some(3700));
        world.accept(4900);
        assert_eq!(world.due(), Some(5000));
    }

    #[test]
    fn what_the_server_has_no_room_for_is_not_waited_for() {
        let mut world = World::new();
        world.accept(10);
        let carrier = Carrier { overflow: 1000, ..Carrier::default() };
        let mut poll = |millis| {
            let now = world.epoch + Duration::from_millis(millis);
            world.plan.poll(now, &mut world.endpoint, carrier)
        };
        assert_eq!(poll(50), Some(UploadStep::Ask(Protocol::Tcp)));
        world.answer(60, true);
        let mut poll = |millis| {
            let now = world.epoch + Duration::from_millis(millis);
            world.plan.poll(now, &mut world.endpoint, carrier)
        };
        assert_eq!([110, 110, 110].map(&mut poll), [Some(UploadStep::Hold), Some(UploadStep::Detach), None]);
    }

    #[test]
    fn when_nothing_is_outstanding_it_moves_at_once() {
        for (is_handed_over, connection) in [(true, SECOND), (false, FIRST)] {
            let mut world = World::draining(None);
            world.plan.handle_drained();
            assert_eq!(world.poll(2700, None), Some(UploadStep::Detach));
            assert_eq!(world.plan.connection(), FIRST);
            let now = world.at(2800);
            world.plan.handle_detached(now, &world.endpoint, is_handed_over);
            assert_eq!((world.plan.connection(), world.due()), (connection, Some(2850)));
        }
        let mut world = World::new();
        world.plan.handle_drained();
        assert_eq!(world.poll(40, None), None, "it was not waited for");
    }
}
