//! What the engine counted.

use std::time::Duration;

use super::{calls::Reason, rtt_histogram::RttHistogram};

/// Counters of an engine, copied out by value.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were sent at least once.
    pub calls: u64,
    /// Calls that were answered, whatever the answer.
    pub replies: u64,
    /// Attempts after the first, by reason.
    pub resends: Resends,
    /// READs and WRITEs that were taken back after they had been sent, by reason: other calls move their bytes again.
    pub withdrawn: Withdrawn,
    /// NULL calls that probed for the end of a fade.
    pub probes: u64,
    /// NULL calls that looked for the path's MTU.
    pub mtu_probes: u64,
    /// Resends that turned out to be spurious: an earlier attempt's reply arrived anyway.
    pub spurious_resends: u64,
    /// Bytes of WRITEs that the link had held, delivered all at once, and the server's receive buffer had no room for.
    pub overflow: u64,
    /// Replies to calls that were answered, cancelled or unknown, and messages from elsewhere.
    pub stray_replies: u64,
    /// Messages that were no replies at all.
    pub malformed: u64,
    /// Calls whose deadline passed.
    pub expired: u64,
    /// Calls that the server asked to repeat later (`NFS3ERR_JUKEBOX`).
    pub postponed: u64,
    /// Round-trip times of calls that were sent once (Karn's rule).
    pub rtt: RttHistogram,
}

/// What the adaptive policy has measured of the path to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathEstimate {
    /// File bytes per second that the path delivers.
    pub rate: f64,
    /// Whether the rate is only what was asked for so far: the path may carry more (`is_app_limited`, draft-cheng-iccrg-delivery-rate-estimation
    /// §3).
    pub is_app_limited: bool,
    /// Lowest round-trip time (`min_rtt`): that without queues.
    pub min_rtt: Duration,
    /// Fades that destroyed something, per second of good time.
    pub fades_per_second: f64,
    /// Mean length of the fades that were probed; zero if there was none.
    pub mean_fade: Duration,
    /// Whether the link retransmits what meets a fade, and delivers it late.
    pub retransmits: bool,
    /// Bytes per READ or WRITE.
    pub block: u32,
    /// READs or WRITEs in flight.
    pub in_flight: u32,
    /// Bytes per second that UDP moved, where the next client does better to begin with TCP: transfers have moved there, as the link was fast, and
    /// stayed there ([`Reason::Fast`](crate::endpoint::Reason::Fast)), or were too short for that.
    pub fast: Option<f64>,
}

/// Attempts after the first, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resends {
    /// The policy's timer ran out.
    pub timeout: u64,
    /// Something sent later was answered.
    pub rack: u64,
    /// A silence lasted for seconds, and probes were not answered either.
    pub probe: u64,
    /// Hedged requests: in case the first attempt is lost, before anything says so.
    pub hedge: u64,
    /// The connection was lost and made again.
    pub reconnect: u64,
}

/// Why a READ or WRITE is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It was lost again and again, or cannot cross the path; smaller blocks can.
    Resegment,
    /// The server takes no block so large.
    TooLarge,
    /// Another connection carries the transfer from now on.
    HandOver,
}

/// READs and WRITEs that were taken back, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Withdrawn {
    /// Re-segmented: smaller blocks take their place.
    pub resegment: u64,
    /// The server takes no block so large.
    pub too_large: u64,
    /// Another connection carries the transfer.
    pub hand_over: u64,
}

impl Withdrawn {
    pub(super) const fn count(&mut self, reason: Withdrawal) {
        match reason {
            Withdrawal::Resegment => self.resegment += 1,
            Withdrawal::TooLarge => self.too_large += 1,
            Withdrawal::HandOver => self.hand_over += 1,
        }
    }
}

impl Stats {
    /// Adds the counters of another engine.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.replies += other.replies;
        self.resends.timeout += other.resends.timeout;
        self.resends.rack += other.resends.rack;
        self.resends.probe += other.resends.probe;
        self.resends.hedge += other.resends.hedge;
        self.resends.reconnect += other.resends.reconnect;
        self.withdrawn.resegment += other.withdrawn.resegment;
        self.withdrawn.too_large += other.withdrawn.too_large;
        self.withdrawn.hand_over += other.withdrawn.hand_over;
        self.probes += other.probes;
        self.mtu_probes += other.mtu_probes;
        self.spurious_resends += other.spurious_resends;
        self.overflow += other.overflow;
        self.stray_replies += other.stray_replies;
        self.malformed += other.malformed;
        self.expired += other.expired;
        self.postponed += other.postponed;
        self.rtt.add(&other.rtt);
    }
}

impl Resends {
    pub(super) const fn count(&mut self, reason: Reason) {
        match reason {
            Reason::Timeout => self.timeout += 1,
            Reason::Rack => self.rack += 1,
            Reason::Probe => self.probe += 1,
            Reason::Hedge => self.hedge += 1,
            Reason::Reconnect => self.reconnect += 1,
        }
    }

    /// Returns what was added since `before`.
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            timeout: self.timeout - before.timeout,
            rack: self.rack - before.rack,
            probe: self.probe - before.probe,
            hedge: self.hedge - before.hedge,
            reconnect: self.reconnect - before.reconnect,
        }
    }

    /// Returns the sum over all causes.
    pub const fn total(&self) -> u64 {
        self.timeout + self.rack + self.probe + self.hedge + self.reconnect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of which each has another value, from `first` on.
    fn stats(first: u64) -> Stats {
        let mut next = first..;
        let mut count = || next.next().unwrap();
        let mut rtt = RttHistogram::default();
        rtt.record(Duration::from_millis(first));
        Stats {
            calls: count(),
            replies: count(),
            resends: Resends {
                timeout: count(),
                rack: count(),
                probe: count(),
                hedge: count(),
                reconnect: count(),
            },
            withdrawn: Withdrawn { resegment: count(), too_large: count(), hand_over: count() },
            probes: count(),
            mtu_probes: count(),
            spurious_resends: count(),
            overflow: count(),
            stray_replies: count(),
            malformed: count(),
            expired: count(),
            postponed: count(),
            rtt,
        }
    }

    /// All counters, in one order.
    fn counters(stats: &Stats) -> [u64; 19] {
        let Stats { calls, replies, probes, mtu_probes, spurious_resends, stray_replies, .. } = *stats;
        let Stats { overflow, malformed, expired, postponed, .. } = *stats;
        let Resends { timeout, rack, probe, hedge, reconnect } = stats.resends;
        let Withdrawn { resegment, too_large, hand_over } = stats.withdrawn;
        let own = [calls, replies, timeout, rack, probe, hedge, reconnect, resegment, too_large, hand_over];
        let rest = [
            probes,
            mtu_probes,
            spurious_resends,
            overflow,
            stray_replies,
            malformed,
            expired,
            postponed,
            stats.rtt.count(),
        ];
        [&own[..], &rest].concat().try_into().unwrap()
    }

    #[test]
    fn every_counter_is_added() {
        let mut sum = stats(100);
        sum.add(&stats(1000));
        let expected: Vec<u64> = (0..18).map(|at| 1100 + 2 * at).chain([2]).collect();
        assert_eq!(counters(&sum)[..], expected);
    }

    #[test]
    fn resends_are_counted_since_a_moment() {
        let (before, now) = (stats(3).resends, stats(3).resends);
        assert_eq!(now.since(&before), Resends::default());
        let mut later = now;
        for (reason, times) in [
            (Reason::Timeout, 1),
            (Reason::Rack, 2),
            (Reason::Probe, 3),
            (Reason::Hedge, 4),
            (Reason::Reconnect, 5),
        ] {
            (0..times).for_each(|_| later.count(reason));
        }
        let new = Resends { timeout: 1, rack: 2, probe: 3, hedge: 4, reconnect: 5 };
        assert_eq!((later.since(&before), new.total()), (new, 15));
        assert_eq!(later.total(), before.total() + 15);
    }

    #[test]
    fn each_reason_to_send_again_and_to_take_back_has_its_counter() {
        let mut resends = Resends::default();
        let reasons = [Reason::Timeout, Reason::Rack, Reason::Probe, Reason::Hedge, Reason::Reconnect];
        for (times, reason) in (1..).zip(reasons) {
            (0..times).for_each(|_| resends.count(reason));
        }
        assert_eq!(resends, Resends { timeout: 1, rack: 2, probe: 3, hedge: 4, reconnect: 5 });
        assert_eq!(resends.total(), 15);
        let before = Resends { timeout: 1, rack: 1, probe: 1, hedge: 1, reconnect: 1 };
        assert_eq!(resends.since(&before), Resends { timeout: 0, rack: 1, probe: 2, hedge: 3, reconnect: 4 });
        let mut withdrawn = Withdrawn::default();
        for (times, reason) in (1..).zip([Withdrawal::Resegment, Withdrawal::TooLarge, Withdrawal::HandOver])
        {
            (0..times).for_each(|_| withdrawn.count(reason));
        }
        assert_eq!(withdrawn, Withdrawn { resegment: 1, too_large: 2, hand_over: 3 });
    }
}
