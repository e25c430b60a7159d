//! What the server's clock shows at least.

use std::time::{Duration, Instant};

use nfs_proto::attr::Time;

/// A lower bound of the server's clock, from the times of last change (`ctime`) that it stamped: a stamp was in the past when it was
/// seen, and clients cannot set it.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// When a stamp was seen, and what it said.
    latest: Option<(Instant, Duration)>,
    /// A change was seen with a stamp that the clock of this machine makes impossible.
    is_off: bool,
}

/// Clocks differ by less than 1 part in this many: NTP slews by at most 500 ppm (RFC 5905 §11.3).
const DRIFT: u32 = 1000;

/// How far a server's clock may be from that of this machine without being off: one of them may take local time for UTC.
const OFF: Duration = Duration::from_secs(24 * 3600);

/// What a stamp may lag behind the server's clock: ticks of a file system.
const TICK: Duration = Duration::from_secs(2);

impl ServerClock {
    /// Takes in a stamp that was seen at `at`.
    pub(crate) fn observe(&mut self, at: Instant, stamp: Time) {
        let stamp = since_1970(stamp);
        if self.at_least(at).is_none_or(|bound| stamp > bound) {
            self.latest = Some((at, stamp));
        }
    }

    /// Takes in the stamp of a change that was made after `since`. If the bound is above it, a stamp from the future or a server
    /// whose clock was set back has made it so: then it starts again.
    pub(crate) fn observe_change(&mut self, since: Instant, at: Instant, stamp: Time) {
        if self.at_least(since).is_some_and(|bound| since_1970(stamp) + TICK < bound) {
            self.latest = Some((at, since_1970(stamp)));
        }
    }

    /// Compares the stamp of a change that was just made with the clock of this machine: `since` and `wall` are what it showed, since 1970,
    /// before the change and after it.
    pub(crate) fn compare(&mut self, since: Duration, wall: Duration, stamp: Time) {
        let stamp = since_1970(stamp);
        self.is_off |= stamp + OFF < since || stamp > wall + OFF;
    }

    /// Whether a stamp is older than any server's clock can be behind the clock of this machine, which shows `wall`. Not said of a server
    /// whose clock is known to be further off.
    pub(crate) fn is_long_before(&self, stamp: Time, wall: Duration) -> bool {
        !self.is_off && since_1970(stamp) + OFF < wall
    }

    /// Returns what the clock showed at least at `at`, since 1970.
    pub(crate) fn at_least(&self, at: Instant) -> Option<Duration> {
        let (seen, stamp) = self.latest?;
        Some(match at.checked_duration_since(seen) {
            Some(later) => stamp + later - later / DRIFT,
            None => {
                let earlier = seen.saturating_duration_since(at);
                stamp.saturating_sub(earlier + earlier / DRIFT)
            }
        })
    }

    /// Returns from when on a stamp is so old at least, if any stamp was ever seen.
    pub(crate) fn aged_at(&self, stamp: Time, age: Duration) -> Option<Instant> {
        let (seen, latest) = self.latest?;
        let left = (since_1970(stamp) + age).saturating_sub(latest);
        // The bound is slower than any clock.
        Some(seen + left + left / (DRIFT / 2))
    }

    /// Returns how long ago a stamp was made at least.
    pub(crate) fn age(&self, now: Instant, stamp: Time) -> Duration {
        self.at_least(now).map_or(Duration::ZERO, |bound| bound.saturating_sub(since_1970(stamp)))
    }
}

fn since_1970(time: Time) -> Duration {
    Duration::from_secs(time.seconds.into()) + Duration::from_nanos(time.nanoseconds.into())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
mod tests {
    use super::*;

    fn at(seconds: u32) -> Time {
        Time { seconds, nanoseconds: 0 }
    }

    #[test]
    fn the_bound_goes_on_more_slowly_than_any_clock() {
        let (mut clock, start) = (ServerClock::default(), Instant::now());
        assert_eq!(clock.at_least(start), None);
        clock.observe(start, at(1000));
        assert_eq!(clock.age(start + Duration::from_secs(1000), at(1000)), Duration::from_secs(999));
        assert_eq!(clock.at_least(start - Duration::from_secs(100)), Some(Duration::from_millis(899_900)));
        clock.observe(start + Duration::from_secs(100), at(1050));
        assert_eq!(
            clock.age(start + Duration::from_secs(1000), at(1000)),
            Duration::from_secs(999),
            "an older stamp says less"
        );
    }

    #[test]
    fn what_is_a_week_old_by_our_clock_is_old_unless_the_servers_clock_is_off() {
        let (mut clock, wall) = (ServerClock::default(), Duration::from_secs(10_000_000));
        let week = at(10_000_000 - 7 * 86_400);
        assert!(clock.is_long_before(week, wall));
        assert!(!clock.is_long_before(at(10_000_000 - 3600), wall), "it may take local time for UTC");
        clock.compare(wall, wall, at(10_003_600));
        assert!(clock.is_long_before(week, wall), "an hour is not much");
        clock.compare(wall, wall, week);
        assert!(!clock.is_long_before(week, wall), "it stamps what changes now with that");
    }

    #[test]
    fn when_a_stamp_is_old_enough_is_known_before() {
        let (mut clock, start) = (ServerClock::default(), Instant::now());
        assert_eq!(clock.aged_at(at(1000), Duration::ZERO), None);
        clock.observe(start, at(1000));
        for (stamp, age) in [(1000, 2), (990, 2), (1000, 1), (1005, 0), (5000, 100_000)] {
            let age = Duration::from_secs(age);
            let when = clock.aged_at(at(stamp), age).unwrap();
            assert!(clock.age(when, at(stamp)) >= age, "{stamp} {age:?}");
            let waits = when - start;
            assert!(
                waits.is_zero()
                    || clock.age(start + waits * 99 / 100, at(stamp)) < age.max(Duration::from_nanos(1))
            );
        }
    }

    #[test]
    fn a_stamp_from_the_future_is_found_out_by_the_next_change() {
        let (mut clock, start) = (ServerClock::default(), Instant::now());
        clock.observe(start, at(4_000_000_000));
        let later = start + Duration::from_secs(10);
        clock.observe_change(start, later, at(1010));
        assert_eq!(clock.at_least(later), Some(Duration::from_secs(1010)));
    }
}
