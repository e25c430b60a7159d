//! For how long an answer of the server is used without asking again, and what it proves.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_proto::attr::{Metadata, Time};

use crate::{
    config::CacheConfig,
    directory::Source,
    ids::CallId,
    object::{Known, Object},
    server_clock::ServerClock,
};

/// The age of what is known, by the clock of this machine and by that of the server.
#[derive(Debug)]
pub(crate) struct Freshness {
    config: Arc<CacheConfig>,
    now: Instant,
    started: Instant,
    /// What the wall clock showed at a time, since 1970.
    wall: Option<(Instant, Duration)>,
    server: ServerClock,
}

impl Freshness {
    pub(crate) fn new(config: Arc<CacheConfig>, now: Instant) -> Self {
        Self { config, now, started: now, wall: None, server: ServerClock::default() }
    }

    /// Sets the time; it never decreases.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Sets what a clock of this machine shows, in time since 1970.
    pub(crate) const fn set_wall_clock(&mut self, now: Instant, since_1970: Duration) {
        self.wall = Some((now, since_1970));
    }

    /// Forgets the stamps that were seen.
    pub(crate) fn reset_server_clock(&mut self) {
        self.server = ServerClock::default();
    }

    /// Uses a stamp that the server has shown now.
    pub(crate) fn observe(&mut self, stamp: Time) {
        self.server.observe(self.now, stamp);
    }

    /// Uses the stamp of a change that was made after `since` and is seen now.
    pub(crate) fn observe_change(&mut self, since: Instant, stamp: Time) {
        self.server.observe_change(since, self.now, stamp);
        if let (Some(since), Some(wall)) = (self.wall_clock(since), self.wall_clock(self.now)) {
            self.server.compare(since, wall, stamp);
        }
    }

    /// Returns the time.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Returns when the cache began.
    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// Returns what the wall clock showed, in milliseconds since 1970; 0 if there is none.
    pub(crate) fn wall_at(&self, at: Instant) -> u64 {
        self.wall_clock(at).map_or(0, |time| time.as_millis() as u64)
    }

    /// Returns when the wall clock showed so many milliseconds since 1970; no later than the beginning of this cache.
    pub(crate) fn instant_of(&self, milliseconds: u64) -> Instant {
        let Some((now, wall)) = self.wall else { return self.started };
        let age = wall.saturating_sub(Duration::from_millis(milliseconds));
        now.checked_sub(age).map_or(self.started, |at| at.min(self.started))
    }

    /// Returns attributes that a store has kept since an earlier cache asked for them.
    pub(crate) fn kept(&self, metadata: Metadata, asked: u64) -> Known {
        let asked_at = self.instant_of(asked);
        Known { metadata, call: CallId::KEPT, asked_at, seen_at: self.started }
    }

    /// Returns how long attributes are used: longer for what has not changed for long.
    pub(crate) fn ttl(&self, known: &Known) -> Duration {
        let age = self.server.age(known.asked_at, known.metadata.ctime.max(known.metadata.mtime));
        (age / self.config.ttl_divisor.max(1)).clamp(self.config.shortest_ttl, self.config.longest_ttl)
    }

    /// Whether attributes will be too old after `more`.
    pub(crate) fn is_used_up(&self, known: &Known, more: Duration) -> bool {
        self.is_old((known.asked_at, known.seen_at), self.ttl(known), more)
    }

    /// Whether an answer that was `asked_at` and `seen_at` these times will be too old after `more`. It is used for `ttl` from when it
    /// came: after an outage, or over a slow link, it is old when it comes. But nothing is used for longer than the longest time after
    /// the question, as it may be as old as that.
    pub(crate) fn is_old(
        &self,
        (asked_at, seen_at): (Instant, Instant),
        ttl: Duration,
        more: Duration,
    ) -> bool {
        let then = self.now + more;
        then.saturating_duration_since(seen_at) >= ttl
            || then.saturating_duration_since(asked_at) >= self.config.longest_ttl
    }

    /// Whether the attributes of an object will soon have to be asked for.
    pub(crate) fn is_due(&self, object: &Object) -> bool {
        !object.over && self.is_used_up(&object.known, self.config.refresh)
    }

    /// Whether the names of a directory that come from a source will soon have to be asked for.
    pub(crate) fn are_names_due(&self, directory: &Object, source: &Source) -> bool {
        let holds = source.holds(&directory.known.metadata);
        let asked = (source.asked_at, source.seen_at);
        (!holds || self.is_due(directory))
            && self.is_old(asked, self.ttl(&directory.known), self.config.refresh)
    }

    /// Whether what was asked at `at` shows the version that was last changed at `ctime` and no later one: a later change would have
    /// stamped a later time.
    pub(crate) fn proves(&self, at: Instant, ctime: Time) -> bool {
        self.server.age(at, ctime) >= self.config.racy || self.is_long_ago(ctime)
    }

    /// Returns from when on what is asked shows that.
    pub(crate) fn proves_from(&self, ctime: Time) -> Option<Instant> {
        if self.is_long_ago(ctime) {
            return Some(self.now);
        }
        self.server.aged_at(ctime, self.config.racy)
    }

    /// Whether a stamp is so old by the clock of this machine that no clock of a server makes it a new one.
    fn is_long_ago(&self, stamp: Time) -> bool {
        self.wall_clock(self.now).is_some_and(|wall| self.server.is_long_before(stamp, wall))
    }

    /// Returns what the wall clock showed, since 1970.
    fn wall_clock(&self, at: Instant) -> Option<Duration> {
        let (now, wall) = self.wall?;
        Some(match at.checked_duration_since(now) {
            Some(later) => wall + later,
            None => wall.saturating_sub(now.saturating_duration_since(at)),
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
mod tests {
    use nfs_wire::nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn freshness() -> Freshness {
        Freshness::new(Arc::new(CacheConfig::default()), Instant::now())
    }

    fn at(seconds: u32) -> Time {
        Time { seconds, nanoseconds: 0 }
    }

    /// Attributes of a file changed at `ctime`, asked for and seen now.
    fn known(freshness: &Freshness, ctime: u32) -> Known {
        let time = nfstime3 { seconds: ctime, nseconds: 0 };
        let metadata = Metadata::from(&fattr3 {
            type_: ftype3::NF3REG,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 1,
            used: 1,
            rdev: specdata3::default(),
            fsid: 1,
            fileid: 2,
            atime: time,
            mtime: time,
            ctime: time,
        });
        let now = freshness.now();
        Known { metadata, call: CallId::FIRST, asked_at: now, seen_at: now }
    }

    #[test]
    fn what_has_not_changed_for_long_is_used_for_longer() {
        let mut freshness = freshness();
        freshness.observe(at(10_000));
        for (changed_before, ttl) in [(0, 3), (10, 3), (100, 10), (599, 59), (10_000, 60)] {
            let known = known(&freshness, 10_000 - changed_before);
            let shown = freshness.ttl(&known).as_secs();
            assert_eq!(shown, ttl, "changed {changed_before} s before");
        }
    }

    #[test]
    fn an_answer_is_used_from_when_it_came_but_not_longer_than_a_minute_after_the_question() {
        let mut freshness = freshness();
        let start = freshness.now();
        freshness.advance(start + 100 * SECOND);
        let ago = |seconds: u32| start + (100 - seconds) * SECOND;
        for (asked, seen, more, is_old) in [
            (0, 0, 0, false),
            (3, 3, 0, true),
            (50, 2, 0, false),
            (50, 2, 1, true),
            (60, 1, 0, true),
            (59, 1, 1, true),
        ] {
            let shown = freshness.is_old((ago(asked), ago(seen)), 3 * SECOND, more * SECOND);
            assert_eq!(shown, is_old, "asked {asked} s ago, seen {seen} s ago, in {more} s");
        }
    }

    #[test]
    fn time_does_not_decrease() {
        let mut freshness = freshness();
        let start = freshness.now();
        freshness.advance(start + SECOND);
        freshness.advance(start);
        assert_eq!(freshness.now(), start + SECOND);
    }

    #[test]
    fn a_change_is_proven_two_seconds_later_or_if_our_clock_says_that_it_is_long_ago() {
        let mut freshness = freshness();
        let start = freshness.now();
        assert!(!freshness.proves(start, at(10)), "no stamp of the server was seen");
        assert_eq!(freshness.proves_from(at(10)), None);
        freshness.observe(at(1000));
        assert!(!freshness.proves(start, at(1000)));
        let from = freshness.proves_from(at(1000)).expect("a stamp was seen");
        assert!(from > start + 2 * SECOND && from < start + 3 * SECOND);
        assert!(freshness.proves(from, at(1000)));
        freshness.set_wall_clock(start, Duration::from_secs(1_000_000));
        assert!(freshness.proves(start, at(1000)));
        assert_eq!(freshness.proves_from(at(1000)), Some(start));
    }

    #[test]
    fn what_was_kept_is_as_old_as_the_wall_clock_says() {
        let mut freshness = freshness();
        let start = freshness.now();
        assert_eq!(freshness.instant_of(5), start, "no wall clock");
        freshness.set_wall_clock(start, Duration::from_secs(1000));
        for (milliseconds, before) in [(1_000_000, 0), (999_000, 1), (2_000_000, 0)] {
            assert_eq!(freshness.instant_of(milliseconds), start - before * SECOND, "{milliseconds}");
        }
        assert_eq!(freshness.wall_at(start + 2 * SECOND), 1_002_000);
    }
}
