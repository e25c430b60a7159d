//! Which transport a client begins with: both answer a NULL call, side by side. docs/transports.md, "The first connection".

use std::time::{Duration, Instant};

use nfs_wire::portmap::Protocol;

use super::{Reason, TransportTuning, choice::index};

/// What is known of one transport.
#[derive(Clone, Copy, Debug, Default)]
enum Answer {
    #[default]
    None,
    Refused,
    At(Instant, Duration),
}

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    /// On the client's own machine: near, whatever a round trip takes.
    Here,
    /// Anywhere else.
    Elsewhere,
}

/// The choice of a client's first connection.
#[derive(Clone, Copy, Debug)]
pub struct FirstTransport {
    tuning: TransportTuning,
    started: Instant,
    server: ServerPlace,
    /// Bytes per second that UDP moved when an earlier transfer to the server went on over TCP.
    fast: Option<f64>,
    answers: [Answer; 2],
}

impl FirstTransport {
    /// Starts when a NULL call is made over both transports.
    pub const fn new(now: Instant, server: ServerPlace, tuning: TransportTuning) -> Self {
        Self { tuning, started: now, server, fast: None, answers: [Answer::None; 2] }
    }

    /// Records that earlier transfers over this path have moved to TCP, as the link was fast ([`Reason::Fast`]), and stayed there: so many bytes
    /// per second.
    pub const fn handle_fast(&mut self, rate: f64) {
        self.fast = Some(rate);
    }

    /// Records the first answer over a transport, and the round trip that it took.
    pub fn handle_answer(&mut self, now: Instant, protocol: Protocol, round_trip: Duration) {
        self.answers[index(protocol)] = Answer::At(now, round_trip);
    }

    /// Records that a transport cannot be had.
    pub fn handle_refused(&mut self, protocol: Protocol) {
        self.answers[index(protocol)] = Answer::Refused;
    }

    /// Returns the transport to begin with, and why, once that is decided.
    pub fn poll(&self, now: Instant) -> Option<(Protocol, Reason)> {
        let over = self.poll_timeout().is_some_and(|at| at <= now);
        match self.answers {
            [Answer::At(at, round_trip), tcp] if !matches!(tcp, Answer::At(then, _) if then < at) => {
                match tcp {
                    Answer::Refused => Some((Protocol::Udp, Reason::OnlyOne)),
                    Answer::At(_, other) if !self.is_far(round_trip.min(other)) => {
                        let near = Reason::Near(round_trip.min(other));
                        Some((Protocol::Tcp, self.fast.map_or(near, Reason::Fast)))
                    }
                    Answer::None if self.is_doubtful(round_trip) && !over => None,
                    _ if self.is_far(round_trip) => Some((Protocol::Udp, Reason::Far(round_trip))),
                    _ => over.then_some((Protocol::Udp, Reason::OnlyOne)),
                }
            }
            [udp, Answer::At(_, round_trip)] => match udp {
                _ if !self.is_far(round_trip) => {
                    Some((Protocol::Tcp, self.fast.map_or(Reason::OnlyOne, Reason::Fast)))
                }
                Answer::At(_, other) if !self.is_far(other) => Some((Protocol::Tcp, Reason::Near(other))),
                Answer::At(..) => Some((Protocol::Udp, Reason::Far(round_trip))),
                Answer::Refused => Some((Protocol::Tcp, Reason::OnlyOne)),
                Answer::None => over.then_some((Protocol::Tcp, Reason::OnlyOne)),
            },
            _ => None,
        }
    }

    /// Returns when [`Self::poll`] decides without a second answer. It is waited for where the first one does not decide.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let second = self.tuning.notice * 4;
        match self.answers {
            [Answer::At(at, round_trip), Answer::None] if self.is_doubtful(round_trip) => {
                Some(at + round_trip * 2)
            }
            [Answer::At(at, _), Answer::None] => Some(at + second),
            [Answer::None, Answer::At(at, round_trip)] => {
                // A datagram may have been lost. After a later answer over TCP a fade has taken what was sent before it.
                let wait = if at < self.started + self.tuning.stall {
                    self.tuning.notice / 2 + round_trip * 2
                } else {
                    second + round_trip * 4
                };
                Some(at + wait)
            }
            _ => None,
        }
    }

    /// Whether UDP should be asked once more now: what was sent over it may have been lost, and its next try may be a while off.
    pub fn asks_udp_again(&self) -> bool {
        matches!(self.answers, [Answer::None, Answer::At(..)])
    }

    /// Whether the server may be near all the same: a machine at either end may have been late. Then the shorter of two round trips counts, and TCP's
    /// is not far off.
    fn is_doubtful(&self, round_trip: Duration) -> bool {
        self.is_far(round_trip) && round_trip < self.tuning.near * 4
    }

    /// Whether the server is further away than the network of a house, over a link that is not known to be fast.
    fn is_far(&self, round_trip: Duration) -> bool {
        round_trip >= self.tuning.near && self.server == ServerPlace::Elsewhere && self.fast.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Protocol = Protocol::Udp;
    const TCP: Protocol = Protocol::Tcp;

    /// Answers at so many milliseconds with so many microseconds of round trip; when it is decided, and for what.
    fn decide(udp: Option<(u64, u64)>, tcp: Option<(u64, u64)>) -> Option<(u64, Protocol)> {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let epoch = Instant::now();
        let mut first = FirstTransport::new(epoch, ServerPlace::Elsewhere, TransportTuning::DEFAULT);
        for at in 0..5000 {
            let now = epoch + Duration::from_millis(at);
            for (protocol, answer) in [(UDP, udp), (TCP, tcp)] {
                if let Some((_, micros)) = answer.filter(|(then, _)| *then == at) {
                    first.handle_answer(now, protocol, Duration::from_micros(micros));
                }
            }
            if let Some((protocol, _)) = first.poll(now) {
                return Some((at, protocol));
            }
        }
        None
    }

    /// The table of docs/transports.md, line by line.
    #[test]
    fn the_first_answer_decides_or_is_waited_for() {
        assert_eq!(decide(Some((10, 10_000)), None), Some((10, UDP)));
        assert_eq!(decide(Some((1, 500)), Some((200, 500))), Some((200, TCP)));
        assert_eq!(decide(Some((1, 500)), None), Some((401, UDP)));
        assert_eq!(decide(None, Some((1, 500))), Some((1, TCP)));
        // The shorter round trip counts where it is known in time.
        assert_eq!(decide(Some((3, 3000)), Some((5, 500))), Some((5, TCP)));
        assert_eq!(decide(Some((3, 3000)), Some((6, 2000))), Some((6, UDP)));
        assert_eq!(decide(Some((3, 3000)), Some((10, 500))), Some((9, UDP)));
        assert_eq!(decide(Some((4, 4000)), Some((5, 500))), Some((4, UDP)));
        assert_eq!(decide(Some((4, 500)), Some((3, 3000))), Some((4, TCP)));
        assert_eq!(decide(Some((60, 10_000)), Some((20, 10_000))), Some((60, UDP)));
        assert_eq!(decide(Some((91, 10_000)), Some((20, 10_000))), Some((90, TCP)));
        assert_eq!(decide(Some((1400, 10_000)), Some((1020, 10_000))), Some((1400, UDP)));
        assert_eq!(decide(None, Some((1020, 10_000))), Some((1460, TCP)));
        // A second after the start a fade has taken what was sent before it.
        assert_eq!(decide(None, Some((999, 10_000))), Some((1069, TCP)));
        assert_eq!(decide(None, Some((1000, 10_000))), Some((1440, TCP)));
        assert_eq!(decide(None, None), None);
    }

    #[test]
    fn the_round_trip_of_the_first_answer_is_the_reason() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        let [short, long] = [20, 30].map(Duration::from_millis);
        for (udp, tcp, reason) in [((30, long), (20, short), short), ((20, short), (30, long), short)] {
            let mut first = FirstTransport::new(now, ServerPlace::Elsewhere, TransportTuning::DEFAULT);
            assert!(!first.asks_udp_again());
            first.handle_answer(at(tcp.0), TCP, tcp.1);
            assert!(first.asks_udp_again(), "a datagram may have been lost");
            first.handle_answer(at(udp.0), UDP, udp.1);
            assert!(!first.asks_udp_again());
            assert_eq!(first.poll(at(30)), Some((UDP, Reason::Far(reason))));
        }
    }

    #[test]
    fn what_was_fast_begins_over_tcp() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let far = Duration::from_millis(20);
        for udp_is_first in [false, true] {
            let mut first = FirstTransport::new(now, ServerPlace::Elsewhere, TransportTuning::DEFAULT);
            first.handle_fast(2e7);
            if udp_is_first {
                first.handle_answer(now, UDP, far);
                assert_eq!(first.poll(now), None, "TCP may still answer");
                // It may be filtered by now.
                let late = first.poll_timeout().unwrap();
                assert_eq!(first.poll(late), Some((UDP, Reason::OnlyOne)));
            }
            first.handle_answer(now, TCP, far);
            assert_eq!(first.poll(now), Some((TCP, Reason::Fast(2e7))));
        }
    }

    #[test]
    fn what_is_refused_is_not_waited_for() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let far = Duration::from_millis(20);
        let mut first = FirstTransport::new(now, ServerPlace::Elsewhere, TransportTuning::DEFAULT);
        first.handle_refused(UDP);
        assert_eq!((first.poll(now), first.asks_udp_again()), (None, false));
        first.handle_answer(now, TCP, far);
        assert_eq!(first.poll(now), Some((TCP, Reason::OnlyOne)));
        let mut first = FirstTransport::new(now, ServerPlace::Elsewhere, TransportTuning::DEFAULT);
        first.handle_answer(now, UDP, Duration::ZERO);
        first.handle_refused(TCP);
        assert_eq!(first.poll(now), Some((UDP, Reason::OnlyOne)));
    }

    #[test]
    fn the_own_machine_is_near_however_slow() {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let mut first = FirstTransport::new(now, ServerPlace::Here, TransportTuning::DEFAULT);
        first.handle_answer(now, UDP, Duration::from_millis(20));
        assert_eq!(first.poll(now), None);
        first.handle_answer(now, TCP, Duration::from_millis(20));
        assert_eq!(first.poll(now), Some((TCP, Reason::Near(Duration::from_millis(20)))));
    }
}
