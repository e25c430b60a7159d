//! How long a server takes to make a WRITE stable, measured on the way (RFC 1813 §3.3.7).
//!
//! A COMMIT after the last WRITE takes a round trip. WRITEs that are stable each need none, and cost nothing if the server makes one stable
//! before the next one comes.

use std::time::Duration;

use super::super::{Effort, Limits};
use crate::engine::Pace;

/// Assumed before it is measured: a disk's seek.
const ASSUMED: Duration = Duration::from_millis(10);

/// Samples that are needed; the middle one counts, as any of them may have met a queue.
const SAMPLES: usize = 3;

/// Samples that are sent at most: one that was sent more than once was lost, or is so slow that it seemed to be.
const MOST_SAMPLES: u32 = 5;

/// WRITEs between two samples.
const INTERVAL: u32 = 48;

/// Blocks that leave in a round trip where a COMMIT takes long enough to be worth samples, and how many round trips must be left.
const LONG_WAY: u64 = 8;
const LEFT: u64 = 4;

/// Windows at the end that are stable at once: one for what the COMMIT would wait for, and one for what is lost before it.
const TAIL: u64 = 2;

/// What is known of it.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncTime {
    /// WRITEs since the last sample was sent.
    since: u32,
    sent: u32,
    /// In ascending order.
    samples: Vec<Duration>,
    /// Those sent more than once.
    retried: usize,
    /// How long the last WRITE took that need not be stable.
    usual: Option<Duration>,
}

impl SyncTime {
    /// Returns how many bytes at the end of a file are better written stable than committed.
    pub(super) fn tail(&self, pace: Pace) -> u64 {
        let time = if let [_, middle, _] = self.samples[..] { middle } else { ASSUMED };
        if pace.spacing >= time { TAIL * pace.bytes } else { 0 }
    }

    /// Whether the next WRITE, after which `left` bytes are still to be written, is to be stable at once for the sake of the measurement.
    pub(super) fn wants_sample(&mut self, limits: Limits, left: u64) -> bool {
        let Pace { bytes, .. } = limits.pace;
        let far = bytes >= LONG_WAY * u64::from(limits.write_block);
        if !far || left < LEFT * bytes || self.sent >= self.wanted() {
            return false;
        }
        self.since += 1;
        if self.since < INTERVAL {
            return false;
        }
        (self.since, self.sent) = (0, self.sent + 1);
        true
    }

    /// Takes in how long a WRITE took. Those before and after it went the same way.
    pub(super) fn handle_reply(&mut self, stable: bool, effort: Effort) {
        match (stable, self.usual) {
            (false, _) if effort.attempts == 1 => self.usual = Some(effort.elapsed),
            (true, Some(usual)) if effort.attempts == 1 && self.samples.len() < SAMPLES => {
                self.samples.push(effort.elapsed.saturating_sub(usual));
                self.samples.sort_unstable();
            }
            (true, Some(_)) if effort.attempts > 1 => self.retried += 1,
            _ => {}
        }
    }

    fn wanted(&self) -> u32 {
        MOST_SAMPLES.min((SAMPLES + self.retried) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upload of blocks that are 2 ms apart on a path of 50 ms, to a server that takes `milliseconds` to make one stable; returns
    /// the bytes at the end that are to be stable, and how many were before.
    fn tail(milliseconds: u64, attempts: u32) -> (u64, u32) {
        let mut sync_time = SyncTime::default();
        let pace = Pace { bytes: 25 << 15, spacing: Duration::from_millis(2) };
        let limits = Limits { read_block: 1 << 15, write_block: 1 << 15, pace };
        let mut samples = 0;
        for left in (1..512_u64).rev() {
            let stable = sync_time.wants_sample(limits, left << 15);
            samples += u32::from(stable);
            let elapsed = Duration::from_millis(50 + if stable { milliseconds } else { 0 });
            let attempts = if stable { attempts } else { 1 };
            sync_time.handle_reply(stable, Effort { attempts, elapsed });
        }
        (sync_time.tail(pace), samples)
    }

    #[test]
    fn the_end_is_stable_at_once_where_the_server_keeps_up() {
        assert_eq!(SyncTime::default().tail(Pace { bytes: 1000, spacing: ASSUMED }), 2000);
        assert_eq!(SyncTime::default().tail(Pace { bytes: 1000, spacing: Duration::from_millis(2) }), 0);
        assert_eq!(SyncTime::default().tail(Pace::default()), 0);
        assert_eq!((tail(1, 1), tail(2, 1)), ((50 << 15, 3), (50 << 15, 3)));
        assert_eq!(tail(3, 1), (0, 3));
        assert_eq!(tail(1, 2), (0, 5), "what was sent twice tells nothing, and is not tried for ever");
    }

    /// The time to make a WRITE stable, in milliseconds, as these replies to WRITEs tell: whether each was stable, its attempts, and
    /// how long it took.
    fn measured(replies: &[(bool, u32, u64)]) -> Option<u64> {
        let mut sync_time = SyncTime::default();
        for &(stable, attempts, milliseconds) in replies {
            let elapsed = Duration::from_millis(milliseconds);
            sync_time.handle_reply(stable, Effort { attempts, elapsed });
        }
        let tail = |&it: &u64| sync_time.tail(Pace { bytes: 3, spacing: Duration::from_millis(it) });
        let time = (0..100).find(|it| tail(it) == 6);
        assert!((0..100).all(|it| tail(&it) == if time.is_some_and(|time| it >= time) { 6 } else { 0 }));
        time
    }

    #[test]
    fn the_middle_of_three_samples_counts() {
        const ASSUMED_MILLISECONDS: Option<u64> = Some(10);
        let usual = (false, 1, 50);
        let table = [
            (&[][..], ASSUMED_MILLISECONDS),
            (&[usual, (true, 1, 51), (true, 1, 51)], ASSUMED_MILLISECONDS),
            (&[usual, (true, 1, 51), (true, 1, 90), (true, 1, 55)], Some(5)),
            (&[usual, (true, 1, 90), (true, 1, 55), (true, 1, 51)], Some(5)),
            (&[usual, (true, 1, 55), (true, 1, 51), (true, 1, 90)], Some(5)),
            // Later ones change nothing, and neither do those that were sent more than once.
            (&[usual, (true, 1, 55), (true, 1, 55), (true, 1, 55), (true, 1, 51), (true, 1, 51)], Some(5)),
            (&[usual, (true, 2, 51), (true, 2, 51), (true, 1, 55), (true, 1, 55), (true, 1, 55)], Some(5)),
            // The latest WRITE that need not be stable counts, unless it was sent more than once.
            (&[usual, (false, 1, 53), (true, 1, 55), (true, 1, 55), (true, 1, 55)], Some(2)),
            (&[usual, (false, 2, 53), (true, 1, 55), (true, 1, 55), (true, 1, 55)], Some(5)),
            (&[usual, (true, 1, 49), (true, 1, 49), (true, 1, 49)], Some(0)),
            (&[(true, 1, 55), (true, 1, 55), (true, 1, 55), usual], ASSUMED_MILLISECONDS),
        ];
        for (replies, time) in table {
            assert_eq!(measured(replies), time, "{replies:?}");
        }
    }

    /// How many samples are wanted in so many WRITEs, of which `left` bytes are left, where `window` bytes leave in a round trip.
    fn samples(sync_time: &mut SyncTime, writes: u32, window: u64, left: u64) -> usize {
        let pace = Pace { bytes: window, spacing: Duration::from_millis(2) };
        let limits = Limits { read_block: 1, write_block: 1000, pace };
        (0..writes).filter(|_| sync_time.wants_sample(limits, left)).count()
    }

    #[test]
    fn every_48th_write_is_a_sample_until_three_were_sent_once_or_five_in_all() {
        for (writes, window, left, wanted) in [
            (47, 8000, 32_000, 0),
            (48, 8000, 32_000, 1),
            (95, 8000, 32_000, 1),
            (96, 8000, 32_000, 2),
            (1000, 8000, 32_000, 3),
            (1000, 8000, 31_999, 0),
            (1000, 7999, 32_000, 0),
        ] {
            let found = samples(&mut SyncTime::default(), writes, window, left);
            assert_eq!(found, wanted, "{writes} WRITEs, {window} bytes in a round trip, {left} left");
        }
        let mut sync_time = SyncTime::default();
        let effort = |attempts| Effort { attempts, elapsed: Duration::from_millis(50) };
        sync_time.handle_reply(true, effort(2));
        sync_time.handle_reply(false, effort(1));
        (0..9).for_each(|_| sync_time.handle_reply(true, effort(1)));
        assert_eq!(samples(&mut sync_time, 1000, 8000, 32_000), 3);
        for more in [1, 1, 0] {
            sync_time.handle_reply(true, effort(2));
            assert_eq!(samples(&mut sync_time, 1000, 8000, 32_000), more);
        }
    }

    #[test]
    fn short_ways_and_short_files_are_not_measured() {
        let mut sync_time = SyncTime::default();
        let pace = Pace { bytes: 4 << 15, spacing: Duration::from_millis(2) };
        let limits = Limits { read_block: 1 << 15, write_block: 1 << 15, pace };
        assert!((0..1000).all(|_| !sync_time.wants_sample(limits, 1 << 30)));
        let far = Limits { pace: Pace { bytes: 25 << 15, ..pace }, ..limits };
        assert!((0..1000).all(|_| !sync_time.wants_sample(far, 1 << 20)));
    }
}
