//! The pages of a listing: over which transport, and how large.

use std::time::{Duration, Instant};

use nfs_wire::{Procedure, portmap::Protocol};

use super::{ConnectionId, Endpoint, Route, TransportTuning};

/// The connection is given up after so long: the kernel sends a SYN at 0, 1, 3 and 7 s (RFC 6298 §2.1).
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// What a driver is to do for the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingStep {
    /// Begin to make a connection over this transport, and give it up after this time. The listing goes on meanwhile.
    Connect(Protocol, Duration),
    /// Make the call, with [`ListingPlan::page_bytes`] for the transport that it takes.
    Call(Route),
}

/// One listing over the connections of an endpoint.
///
/// Pages follow from each other, so each costs a round trip. Over UDP pages are small, for a lost fragment loses the page; a listing
/// of more than one page, if that was quick, goes on over TCP, where pages may be large. Where only UDP may be used, they are larger as long
/// as they are quick.
#[derive(Debug)]
pub struct ListingPlan {
    tuning: TransportTuning,
    /// `None` before the first page.
    was_quick: Option<bool>,
    has_connected: bool,
    is_over_tcp: bool,
    udp_page_bytes: u32,
    tcp_page_bytes: u32,
    /// A page came only after it had been asked for over UDP, too: the listing stays where the procedure goes.
    has_failed: bool,
}

impl ListingPlan {
    /// Starts a listing.
    pub const fn new(endpoint: &Endpoint) -> Self {
        let tuning = endpoint.config.tuning;
        Self {
            tuning,
            was_quick: None,
            has_connected: false,
            is_over_tcp: false,
            udp_page_bytes: tuning.udp_page_bytes,
            tcp_page_bytes: tuning.tcp_page_bytes,
            has_failed: false,
        }
    }

    /// Returns what is to be done for the next page.
    pub fn poll(&mut self, now: Instant, endpoint: &Endpoint, procedure: Procedure) -> ListingStep {
        let usual = endpoint.route(procedure);
        let wants_tcp = self.is_over_tcp || self.was_quick == Some(true);
        let may_move =
            endpoint.config.either_transport && endpoint.protocol(usual.connection) == Protocol::Udp;
        if !wants_tcp || !may_move || self.has_failed {
            return ListingStep::Call(usual);
        }
        if let Some(connection) = endpoint.find(Protocol::Tcp, 0) {
            return ListingStep::Call(Route { connection, failover: Some(endpoint.failover(connection)) });
        }
        if self.has_connected || !endpoint.may_connect(now, Protocol::Tcp) {
            return ListingStep::Call(usual);
        }
        self.has_connected = true;
        ListingStep::Connect(Protocol::Tcp, CONNECT_TIME)
    }

    /// Returns the size of the next page over a transport.
    pub const fn page_bytes(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::Udp => self.udp_page_bytes,
            Protocol::Tcp => self.tcp_page_bytes,
        }
    }

    /// Records a page that a connection brought.
    pub fn handle_page(&mut self, endpoint: &Endpoint, over: ConnectionId, took: Duration) {
        // It cost waiting rather than air time. TCP in slow start needs three round trips for a page four times as large as the one before (RFC 6928:
        // 10 segments, doubled).
        let was_quick = took <= endpoint.round_trip(over) * 4;
        self.was_quick = Some(was_quick);
        self.is_over_tcp = endpoint.protocol(over) == Protocol::Tcp;
        if self.is_over_tcp && was_quick {
            self.tcp_page_bytes = (self.tcp_page_bytes * 4).min(self.tuning.tcp_page_bytes * 16);
        }
        let is_larger = was_quick && !endpoint.config.either_transport;
        self.udp_page_bytes = self.tuning.udp_page_bytes * if is_larger { 4 } else { 1 };
    }

    /// Records that a page came only over the other transport than asked for.
    pub const fn handle_failover(&mut self) {
        self.has_failed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{EndpointConfig, Reason},
        *,
    };

    const ROUND_TRIP: Duration = Duration::from_millis(50);
    const EITHER: EndpointConfig = EndpointConfig {
        either_transport: true,
        several_connections: true,
        tuning: TransportTuning::DEFAULT,
    };

    fn endpoint(config: EndpointConfig, first: Protocol) -> (Instant, Endpoint) {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        (now, Endpoint::new(config, now, first, ROUND_TRIP, Reason::OnlyOne))
    }

    /// Takes so many pages, each in so many round trips; returns transport and size of each.
    fn pages(
        plan: &mut ListingPlan,
        (now, endpoint): &mut (Instant, Endpoint),
        count: u32,
        round_trips: u32,
    ) -> Vec<(Protocol, u32)> {
        let mut connecting = None;
        let page = |_| {
            let route = loop {
                match plan.poll(*now, endpoint, Procedure::Readdirplus) {
                    ListingStep::Call(route) => break route,
                    ListingStep::Connect(protocol, _) => connecting = Some(protocol),
                }
            };
            let over = endpoint.protocol(route.connection);
            let bytes = plan.page_bytes(over);
            plan.handle_page(endpoint, route.connection, ROUND_TRIP * round_trips);
            if let Some(protocol) = connecting.take() {
                endpoint.add(protocol, ROUND_TRIP);
            }
            (over, bytes)
        };
        (0..count).map(page).collect()
    }

    fn small(count: usize) -> Vec<(Protocol, u32)> {
        vec![(Protocol::Udp, 4096); count]
    }

    #[test]
    fn a_long_listing_of_quick_pages_moves_to_tcp_and_its_pages_grow() {
        let mut endpoint = endpoint(EITHER, Protocol::Udp);
        let seen = pages(&mut ListingPlan::new(&endpoint.1), &mut endpoint, 6, 1);
        let large = [64, 256, 1024, 1024].map(|kib| (Protocol::Tcp, kib << 10));
        assert_eq!(seen, [small(2), large.to_vec()].concat());
    }

    #[test]
    fn pages_that_cost_air_time_stay_small() {
        let mut endpoint = endpoint(EITHER, Protocol::Udp);
        let mut plan = ListingPlan::new(&endpoint.1);
        assert_eq!(pages(&mut plan, &mut endpoint, 9, 5), small(9));
        assert_eq!(pages(&mut plan, &mut endpoint, 2, 1), small(2));
        let slow_tcp = pages(&mut plan, &mut endpoint, 3, 5);
        assert_eq!(slow_tcp, vec![(Protocol::Tcp, 64 << 10); 3]);
    }

    #[test]
    fn where_only_udp_may_be_used_pages_stay_on_it_and_grow_while_they_are_quick() {
        let mut endpoint = endpoint(EndpointConfig { either_transport: false, ..EITHER }, Protocol::Udp);
        let mut plan = ListingPlan::new(&endpoint.1);
        let large = |count| vec![(Protocol::Udp, 16_384); count];
        assert_eq!(pages(&mut plan, &mut endpoint, 3, 1), [small(1), large(2)].concat());
        assert_eq!(pages(&mut plan, &mut endpoint, 2, 5), [large(1), small(1)].concat());
        assert_eq!(pages(&mut plan, &mut endpoint, 2, 1), [small(1), large(1)].concat());
    }

    #[test]
    fn a_server_that_refuses_tcp_is_not_asked_for_every_page() {
        let mut endpoint = endpoint(EITHER, Protocol::Udp);
        let mut plan = ListingPlan::new(&endpoint.1);
        pages(&mut plan, &mut endpoint, 1, 1);
        let step = plan.poll(endpoint.0, &endpoint.1, Procedure::Readdirplus);
        assert_eq!(step, ListingStep::Connect(Protocol::Tcp, CONNECT_TIME));
        endpoint.1.handle_refused(endpoint.0, Protocol::Tcp);
        assert_eq!(
            pages(&mut ListingPlan::new(&endpoint.1), &mut endpoint, 9, 1),
            small(9),
            "nor for another listing"
        );
        endpoint.0 += Duration::from_secs(60);
        assert_eq!(pages(&mut plan, &mut endpoint, 9, 1), small(9));
    }

    #[test]
    fn a_page_that_only_udp_brought_ends_the_use_of_tcp() {
        let mut endpoint = endpoint(EITHER, Protocol::Udp);
        let mut plan = ListingPlan::new(&endpoint.1);
        assert_eq!(pages(&mut plan, &mut endpoint, 3, 1).last(), Some(&(Protocol::Tcp, 64 << 10)));
        plan.handle_failover();
        assert_eq!(pages(&mut plan, &mut endpoint, 4, 1), small(4));
    }

    #[test]
    fn the_first_connection_may_be_tcp() {
        let mut endpoint = endpoint(EITHER, Protocol::Tcp);
        let large = [64, 256, 1024].map(|kib| (Protocol::Tcp, kib << 10));
        assert_eq!(pages(&mut ListingPlan::new(&endpoint.1), &mut endpoint, 3, 1), large);
    }
}
