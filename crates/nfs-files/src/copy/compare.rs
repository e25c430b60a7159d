//! What is older than its source and what has its time, as far as the times of a file system can tell.

use std::time::{Duration, SystemTime};

use nfs_wireless_client::Time;

use super::{
    Run,
    destination::{Location, directory::TargetDirectory},
    source::{Attributes, Node},
};
use crate::{error::Result, journal::nanoseconds};

/// The coarsest times that files have: FAT's.
const COARSEST: Duration = Duration::from_secs(2);

const SECOND: u128 = 1_000_000_000;

/// Whether a source is newer than what is there, as far as the times of what is there can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newer {
    Yes,
    No,
    /// Only if what is there keeps its times in steps of less than [`COARSEST`].
    IfFine,
}

/// Compares a source's time with what is there, whose times come in steps: what was given the source's own time may look older by
/// up to one step, and is not.
fn newer(source: SystemTime, there: &Attributes) -> Newer {
    let (source, modified) = (nanoseconds(source), nanoseconds(there.times.modified));
    if floor(source, step(there)) <= modified {
        Newer::No
    } else if step(there) < SECOND || floor(source, COARSEST.as_nanos()) > modified {
        Newer::Yes
    } else {
        Newer::IfFine
    }
}

/// Whether a source is newer when what is there has times in steps of `step`.
fn is_newer_in_steps(source: SystemTime, there: &Attributes, step: Duration) -> bool {
    let step = step.min(COARSEST).as_nanos().max(self::step(there));
    floor(nanoseconds(source), step) > nanoseconds(there.times.modified)
}

/// What is there, compared with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It has the time of its source.
    Same,
    /// Its source is newer.
    Older,
    /// It is newer than its source.
    Newer,
}

/// Compares what is there with a source's time; `None` if that depends on whether it keeps its times in steps of less than
/// [`COARSEST`]. Two times less than one step apart are the same.
pub(super) fn age(source: SystemTime, there: &Attributes) -> Option<Age> {
    let apart = apart(source, there);
    let (distance, step) = (apart.unsigned_abs(), step(there));
    if distance < step {
        Some(Age::Same)
    } else if step < SECOND || distance >= COARSEST.as_nanos() {
        Some(if apart < 0 { Age::Older } else { Age::Newer })
    } else {
        None
    }
}

/// By how many nanoseconds what is there is newer. NFSv3 has no times before 1970 and after 2106 (RFC 1813 §2.6), so the source's
/// counts as the nearest that a server can keep.
fn apart(source: SystemTime, there: &Attributes) -> i128 {
    let nearest = |time| nanoseconds(Time::from_system(time).into());
    nearest(there.times.modified) - nearest(source)
}

/// As [`age`] where the steps are known.
fn age_in_steps(source: SystemTime, there: &Attributes, step: Duration) -> Age {
    let step = step.min(COARSEST).as_nanos().max(self::step(there));
    match apart(source, there) {
        apart if apart.unsigned_abs() < step => Age::Same,
        apart if apart < 0 => Age::Older,
        _ => Age::Newer,
    }
}

/// Times that are the last ones, or the first ones, of some file system, in seconds since 1970: 32 bits with a sign, those without, FAT
/// and exFAT, ext4, XFS, HFS+.
const LAST_SECONDS: [i128; 7] =
    [0x7fff_ffff, 0xffff_ffff, 4_354_819_198, 4_354_819_199, 15_032_385_535, 16_299_260_424, 2_082_844_800];
const FIRST_SECONDS: [i128; 3] = [-0x8000_0000, 0, 315_532_800];

/// The limits of FAT and exFAT among them. FAT has local times: its first and last one may be so many seconds away.
const FAT_LIMITS: [i128; 3] = [315_532_800, 4_354_819_198, 4_354_819_199];
const ZONE_SECONDS: i128 = 14 * 3600;

/// The finest step of any time there: exFAT's. Elsewhere, the first day of 1980 is a time as any other (archives have it).
const FINEST_OF_FAT: u128 = 10_000_000;

/// Whether what is there has the time that its file system has for all later ones, or for all earlier ones, and the source's is one.
fn is_nearest(source: SystemTime, there: &Attributes) -> bool {
    let second = SECOND as i128;
    let source = nanoseconds(source).div_euclid(second);
    let may_be_fat = step(there) >= FINEST_OF_FAT;
    let there = nanoseconds(there.times.modified).div_euclid(second);
    let is_at = |limit: &i128| {
        if FAT_LIMITS.contains(limit) {
            may_be_fat && (there - limit).abs() <= ZONE_SECONDS
        } else {
            there == *limit
        }
    };
    there < source && LAST_SECONDS.iter().any(|last| is_at(last) && source > *last)
        || there > source && FIRST_SECONDS.iter().any(|first| is_at(first) && source < *first)
}

impl Run<'_> {
    /// As [`Run::age`], of a file that has the size of its source: a destination may hold no time that is nearer to the source's than the
    /// one that it has.
    pub(super) async fn age_held(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        there: &Attributes,
    ) -> Result<Age> {
        let age = self.age(node, &target_directory.location, there).await?;
        let modified = node.attributes.times.modified;
        if age == Age::Same || is_nearest(modified, there) {
            return Ok(Age::Same);
        }
        let is_near = apart(modified, there).unsigned_abs() < COARSEST.as_nanos();
        if let Location::Local { directory, .. } = &target_directory.location
            && is_near
            && step(there) == SECOND
            && !self.copy.dry_run
        {
            // It does not tell its steps: FAT through FUSE.
            target_directory.touch(self.context).await;
            let held = directory.held_time(modified);
            if held.is_ok_and(|held| nanoseconds(held) == nanoseconds(there.times.modified)) {
                return Ok(Age::Same);
            }
        }
        Ok(age)
    }

    /// Compares the time of what is there with its source's.
    pub(super) async fn age(&self, node: &Node, location: &Location, there: &Attributes) -> Result<Age> {
        let modified = node.attributes.times.modified;
        Ok(match age(modified, there) {
            Some(age) => age,
            None => age_in_steps(modified, there, location.time_step(self.context).await?),
        })
    }

    /// Whether a source is newer than what is there.
    pub(super) async fn is_newer(
        &self,
        node: &Node,
        location: &Location,
        there: &Attributes,
    ) -> Result<bool> {
        let modified = node.attributes.times.modified;
        Ok(match newer(modified, there) {
            Newer::Yes => true,
            Newer::No => false,
            Newer::IfFine => is_newer_in_steps(modified, there, location.time_step(self.context).await?),
        })
    }
}

/// Returns the step of a file's times, in ns, as far as it can be seen: the largest power of ten, up to a second, that divides all.
fn step(there: &Attributes) -> u128 {
    let times = [there.times.modified, there.times.accessed, there.changed].map(nanoseconds);
    let divides = |step: u128| times.iter().all(|time| time.unsigned_abs().is_multiple_of(step));
    std::iter::successors(Some(SECOND), |step| Some(step / 10)).find(|&step| divides(step)).unwrap_or(1)
}

fn floor(time: i128, step: u128) -> i128 {
    let step = i128::try_from(step).expect("at most two seconds");
    time.div_euclid(step) * step
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::local::Times;

    /// In nanoseconds since 2001.
    fn time(nanoseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000_000) + Duration::from_nanos(nanoseconds)
    }

    /// What was made at a time and keeps times in steps.
    fn there(made: u64, step: u64) -> Attributes {
        let made = time(made / step * step);
        let times = Times { accessed: made, modified: made };
        Attributes {
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            stored: 0,
            times,
            changed: made,
            file: (0, 0),
            is_lasting: true,
        }
    }

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    #[test]
    fn a_copy_with_its_sources_time_is_not_older_however_coarse_its_times_are() {
        for step in [1, 100, 1000, MS, 10 * MS, S] {
            let copy = there(3 * S + 123_456_789, step);
            assert_eq!(newer(time(3 * S + 123_456_789), &copy), Newer::No, "{step}");
            assert_eq!(newer(time(1), &copy), Newer::No, "{step}");
            assert_eq!(newer(time(5 * S + 123_456_789), &copy), Newer::Yes, "{step}");
        }
    }

    #[test]
    fn steps_that_cannot_be_seen_are_asked_for() {
        // FAT: made at 3.9 s, so it says 2 s.
        let copy = there(3 * S + 900 * MS, 2 * S);
        assert_eq!(newer(time(3 * S + 900 * MS), &copy), Newer::IfFine);
        assert!(!is_newer_in_steps(time(3 * S + 900 * MS), &copy, COARSEST));
        assert!(is_newer_in_steps(time(4 * S), &copy, COARSEST));
        // The same on a file system of whole seconds: it is older, by a second.
        assert!(is_newer_in_steps(time(3 * S + 900 * MS), &copy, Duration::from_secs(1)));
        // Nobody has steps of a day.
        assert!(is_newer_in_steps(time(4 * S), &copy, Duration::from_secs(86_400)));
    }

    #[test]
    fn a_copy_with_its_sources_time_has_its_age_however_coarse_its_times_are() {
        for step in [1, 100, 1000, MS, 10 * MS, S] {
            let copy = there(3 * S + 123_456_789, step);
            assert_eq!(age(time(3 * S + 123_456_789), &copy), Some(Age::Same), "{step}");
            assert_eq!(age(time(1), &copy), Some(Age::Newer), "{step}");
            assert_eq!(age(time(5 * S + 123_456_789), &copy), Some(Age::Older), "{step}");
        }
        let fat = there(3 * S + 900 * MS, 2 * S);
        assert_eq!(age(time(3 * S + 900 * MS), &fat), None);
        assert_eq!(age_in_steps(time(3 * S + 900 * MS), &fat, COARSEST), Age::Same);
        assert_eq!(age_in_steps(time(3 * S + 900 * MS), &fat, Duration::from_secs(1)), Age::Older);
    }

    #[test]
    fn the_nearest_time_that_a_file_system_has_is_that_of_its_source() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let (fine, exfat, fat) = (1, 10 * MS, 2 * S);
        for (source, held, step, expected) in [
            (2_209_000_000, 0x7fff_ffff, fine, true),
            (2_209_000_000, 0x7fff_fffe, fine, false),
            (2_000_000_000, 0x7fff_ffff, fine, false),
            (5_000_000_000, 0xffff_ffff, fine, true),
            (5_000_000_000, 4_354_819_198 - 3600, fat, true),
            (5_000_000_000, 4_354_819_198 - 3600, fine, false),
            (86_400, 315_532_800 + 7200, fat, true),
            (86_400, 315_532_800 + 7200, exfat, true),
            (86_400, 315_532_800, fine, false),
            (86_400, 315_532_800 + 86_400, fat, false),
            (1_000_000_000, 315_532_800, fat, false),
        ] {
            let mut copy = there(S + 123_456_789, step);
            copy.times.modified = at(held);
            assert_eq!(is_nearest(at(source), &copy), expected, "{source} {held} {step}");
        }
    }

    #[test]
    fn times_that_a_server_cannot_keep_do_not_make_a_file_differ_for_ever() {
        let mut copy = there(S, 1);
        copy.times.modified = Time::from_system(UNIX_EPOCH - Duration::from_secs(100)).into();
        copy.changed = time(7);
        assert_eq!(age(UNIX_EPOCH - Duration::from_secs(100), &copy), Some(Age::Same));
    }

    #[test]
    fn one_fine_time_shows_that_all_are_fine() {
        let mut copy = there(2 * S, S);
        copy.changed = time(7 * S + 1);
        assert_eq!(newer(time(2 * S + 1), &copy), Newer::Yes);
        assert_eq!(newer(time(2 * S), &copy), Newer::No);
    }
}
