//! Every number that the choice of transports and connections was tuned with, its range, and its source.

use std::time::Duration;

use crate::engine::PathEstimate;

/// Tuning parameters of an [`Endpoint`](super::Endpoint) and of the plans of its transfers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TransportTuning {
    /// Servers below this round trip are near: there TCP costs least work, and fades are no matter of a link so short. 0.2 to 2 ms.
    pub near: Duration,
    /// What it takes to notice something and to ask, beyond round trips. Rates are averaged over four times as long, and a loss that TCP's timer has to
    /// repair takes three times as long (RFC 6298 §2.4, of which systems take 200 ms). 50 to 200 ms.
    pub notice: Duration,
    /// Nothing for so long: perhaps the transport is broken, and the other one is asked with a NULL call. Half as long is an outage, and twice as long a
    /// trial of both. 0.5 to 5 s.
    pub stall: Duration,
    /// The same in round trips. 4 to 16.
    pub stall_round_trips: u32,
    /// Once the other transport has answered, it is used if this one still gives nothing so much later: a fade, which took both, is over by then.
    /// 0.5 to 5 s.
    pub grace: Duration,
    /// A transport that refuses is not asked again for so long. 10 to 300 s.
    pub refused: Duration,
    /// So many bytes take as long as a trial, where the rate is so high that this is shorter: TCP's slow start must be a small part of them. 4 to 32 MiB.
    pub trial_bytes: u64,
    /// What is moving gets so many times as long as a trial before the other transport is tried, and twice as long after every trial, up to 16 times
    /// as long. 2 to 30.
    pub first_pause: u32,
    /// A trial is made when what is left takes so many times as long as the trial, which on a slow link costs most of its own time. 5 to 50.
    pub trial_worth: u32,
    /// The other transport must be faster by this factor to be taken. 1.2 to 3.
    pub advantage: f64,
    /// An upload leaves UDP if a server's receive buffer has no room for this share of what is sent. 0.1 to 0.5.
    pub overflow: f64,
    /// TCP connections of one download at most. 1 to 8.
    pub connections: usize,
    /// Losses that make a further connection worth while: a first one is what ends the slow start of every connection. 1 to 10.
    pub trouble: u32,
    /// Bytes of a piece where several connections read a file: a quarter of it at first, four where the server is near. A connection owes 16 at most.
    /// 64 KiB to 1 MiB.
    pub piece_bytes: u64,
    /// Bytes of a page of a listing over UDP: three frames, and less than what every server sends. 1 to 16 KiB.
    pub udp_page_bytes: u32,
    /// Bytes of the first page over TCP; later ones are up to 16 times as large. 16 to 64 KiB.
    pub tcp_page_bytes: u32,
}

impl Default for TransportTuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TransportTuning {
    /// What is used where nothing else is asked for.
    pub const DEFAULT: Self = Self {
        near: Duration::from_millis(1),
        notice: Duration::from_millis(100),
        stall: Duration::from_secs(1),
        stall_round_trips: 8,
        grace: Duration::from_millis(1500),
        refused: Duration::from_secs(30),
        trial_bytes: 8 << 20,
        first_pause: 4,
        trial_worth: 10,
        advantage: 1.5,
        overflow: 0.25,
        connections: 4,
        trouble: 3,
        piece_bytes: 256 << 10,
        udp_page_bytes: 4096,
        tcp_page_bytes: 64 << 10,
    };

    /// Returns how often a transfer looks whether another connection would do better.
    pub fn tick(&self) -> Duration {
        self.notice / 2
    }

    /// A silence as long as this is an outage: it is not held against a transport, and what is in flight is waited for no longer.
    pub(super) fn outage(&self) -> Duration {
        self.stall / 2
    }

    /// Returns for how long both transports are used side by side before they are compared, where the one in use moves so many bytes per second.
    pub(super) fn trial(&self, round_trip: Duration, rate: f64) -> Duration {
        let bytes = Duration::from_secs_f64(self.trial_bytes as f64 / rate.max(1.0));
        (self.stall * 2).min(bytes).max(round_trip * self.stall_round_trips)
    }

    /// Returns how long TCP's slow start may take.
    pub(super) fn slow_start(&self, round_trip: Duration) -> Duration {
        self.trial(round_trip, 0.0)
    }

    /// Whether UDP that moves so many bytes per second is a reason to test TCP. The fastest wireless link of the presets has 54 Mbit/s, and READs and WRITEs
    /// of one frame end at 80 to 120 Mbit/s on two processors, whatever the link carries.
    pub(super) fn is_fast(&self, round_trip: Duration, rate: f64) -> bool {
        round_trip <= self.notice && rate * self.stall.as_secs_f64() >= self.trial_bytes as f64
    }

    /// Returns for how long TCP is tested on a fast link: as long as an outage, which has 20 of the round trips that are a quarter of `notice`; as many of
    /// longer ones. In these TCP leaves its slow start and repairs losses.
    pub(super) fn test(&self, round_trip: Duration) -> Duration {
        self.outage().mul_f64(round_trip.div_duration_f64(self.notice / 4).max(1.0))
    }

    /// Returns what the rest of a transfer must take over UDP for a test to be worth while. Where a test takes longer than an outage, a mistake costs more:
    /// then it is half as many tests as it is trials for a trial.
    pub(super) fn test_worth(&self, round_trip: Duration) -> Duration {
        let test = self.test(round_trip);
        if test > self.outage() { test * self.trial_worth / 2 } else { test }
    }

    /// Whether the next client does better to begin with TCP: UDP has found a path that delivers much, does not fade, and is so short that calls of one
    /// frame take longer than TCP's slow start. From 5 ms on they do not: 1 MiB at 100 Mbit/s and 10 ms takes 139 ms over UDP, 186 ms over TCP
    /// (docs/transports.md).
    pub fn is_better_over_tcp(&self, path: &PathEstimate) -> bool {
        path.min_rtt < self.near * 5 && path.mean_fade.is_zero() && self.is_fast(path.min_rtt, path.rate)
    }

    /// Returns how long after a failed test of TCP the next one may be, where so many had failed before: eight times as long as a test, and twice as
    /// long each time.
    pub(super) fn test_pause(&self, round_trip: Duration, failed: u32) -> Duration {
        self.test(round_trip) * 8 * (1 << failed.min(4))
    }

    /// Returns after how many bytes the rate of UDP is no longer that of its slow start.
    pub(super) const fn fast_bytes(&self) -> u64 {
        self.piece_bytes * 2
    }

    /// Returns after what silence a transport may be broken.
    pub(super) fn stalled_after(&self, round_trip: Duration) -> Duration {
        self.stall.max(round_trip * self.stall_round_trips)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_test_takes_the_more_must_be_left() {
        let times = |millis| {
            let round_trip = Duration::from_millis(millis);
            let tuning = TransportTuning::DEFAULT;
            (tuning.test(round_trip).as_millis(), tuning.test_worth(round_trip).as_millis())
        };
        assert_eq!([1, 25, 50, 100].map(times), [(500, 500), (500, 500), (1000, 5000), (2000, 10_000)]);
    }

    #[test]
    fn a_short_and_fast_path_without_fades_is_better_over_tcp() {
        let path = PathEstimate {
            rate: 2e7,
            is_app_limited: false,
            min_rtt: Duration::from_millis(2),
            fades_per_second: 1.0,
            mean_fade: Duration::ZERO,
            retransmits: false,
            block: 1280,
            in_flight: 10,
            fast: None,
        };
        let is_better = |path| TransportTuning::DEFAULT.is_better_over_tcp(&path);
        assert!(is_better(path));
        assert!(!is_better(PathEstimate { rate: 6e6, ..path }), "54 Mbit/s");
        assert!(!is_better(PathEstimate { min_rtt: Duration::from_millis(5), ..path }));
        assert!(!is_better(PathEstimate { mean_fade: Duration::from_millis(20), ..path }));
    }
}
