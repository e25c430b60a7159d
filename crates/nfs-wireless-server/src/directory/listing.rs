//! Listings of host directories whose cookies survive every change.
//!
//! A cookie is a hash of the entry's name, and entries come in the order of their cookies. So a cookie means the same
//! for as long as the entry exists, in this listing and the next, before and after a restart; a listing that goes on
//! after a change misses no entry and repeats none. The names read are kept while a client pages through them, which
//! only saves reading them again; whoever begins again soon gets the same names if the directory has not changed, so that
//! many small calls do not read a large directory each.

use std::{
    collections::VecDeque,
    os::fd::AsFd,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{Dir, fstat},
    io::Errno,
};

use crate::{
    reply_cache::fnv1a,
    vfs::{FIRST_COOKIE, NodeId},
};

/// The names of one directory by cookie.
#[derive(Debug)]
pub(super) struct Listing {
    directory: NodeId,
    entries: Vec<Line>,
    read: Instant,
    /// When the directory had changed last; `None` if that was so short before that a later change may have the same time.
    version: Option<Version>,
    /// It was read to its end by a client.
    has_ended: bool,
}

/// Seconds and nanoseconds of `mtime` and `ctime`.
type Version = [(i64, i64); 2];

/// One name.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) cookie: u64,
    pub(super) file_id: u64,
    pub(super) name: Box<[u8]>,
}

/// The listings last read, at most [`MAX_LISTINGS`] of them with [`MAX_NAMES`].
#[derive(Debug, Default)]
pub(super) struct Listings(VecDeque<Listing>);

/// Directories that clients can page through at the same time without reading them again for each page.
const MAX_LISTINGS: usize = 8;

/// Names kept in all of them; those of a single directory are, however many there are.
const MAX_NAMES: usize = 100_000;

/// For how long a listing that begins has the names of one before: some file systems tell no change.
const FRESH: Duration = Duration::from_secs(2);

/// Time after which every change of a directory has another time than one before: two ticks of any clock of a disk.
const SETTLED: Duration = Duration::from_secs(2);

impl Listings {
    /// Returns the entries after a cookie; at the beginning of a listing they are read, unless they were just before.
    pub(super) fn after(
        &mut self,
        directory: NodeId,
        cookie: u64,
        file: impl AsFd,
    ) -> Result<&[Line], Errno> {
        let kept = self.0.iter().position(|listing| listing.directory == directory);
        let listing = match kept.and_then(|index| self.0.remove(index)) {
            Some(listing) if cookie >= FIRST_COOKIE || listing.is_fresh(&file)? => listing,
            _ => Listing::read(directory, file)?,
        };
        let mut names = listing.entries.len();
        self.0.truncate(MAX_LISTINGS - 1);
        self.0.retain(|other| {
            names += other.entries.len();
            names <= MAX_NAMES
        });
        self.0.push_front(listing);
        let entries = self.0.front().map_or(&[][..], |listing| &listing.entries);
        let start = entries.partition_point(|line| line.cookie <= cookie);
        Ok(entries.get(start..).unwrap_or_default())
    }

    /// Notes that a listing has been read to its end.
    pub(super) fn end(&mut self, directory: NodeId) {
        self.0.iter_mut().filter(|it| it.directory == directory).for_each(|it| it.has_ended = true);
    }

    /// Drops listings that have been read to their end and are of no use any more.
    pub(super) fn rest(&mut self) {
        self.0.retain(|listing| !listing.has_ended || listing.read.elapsed() < FRESH);
    }
}

impl Listing {
    #[expect(clippy::disallowed_methods, reason = "the disk of a listing is a real one, and so is its age")]
    fn read(directory: NodeId, file: impl AsFd) -> Result<Self, Errno> {
        let (read, version) = (Instant::now(), version(&file)?);
        let mut entries = Vec::new();
        for entry in Dir::read_from(file)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                entries.push(Line { cookie: cookie(name), file_id: entry.ino(), name: name.into() });
            }
        }
        entries.sort_unstable_by(|one, other| (one.cookie, &one.name).cmp(&(other.cookie, &other.name)));
        separate(&mut entries);
        Ok(Self { directory, entries, read, version, has_ended: false })
    }

    /// Whether a listing that begins now has the same names.
    fn is_fresh(&self, file: impl AsFd) -> Result<bool, Errno> {
        let is_recent = self.version.is_some() && self.read.elapsed() < FRESH;
        Ok(is_recent && version(file)? == self.version)
    }
}

// The types of the fields differ from system to system.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
#[expect(clippy::disallowed_methods, reason = "a disk stamps changes with the time of this machine")]
fn version(file: impl AsFd) -> Result<Option<Version>, Errno> {
    let stat = fstat(file)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_settled = i64::from(stat.st_ctime) + SETTLED.as_secs() as i64 <= now.as_secs() as i64;
    let times = [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)];
    Ok(is_settled.then(|| times.map(|(seconds, nanoseconds)| (seconds as i64, nanoseconds as i64))))
}

/// Cookies are positive also where somebody keeps them in a signed number.
fn cookie(name: &[u8]) -> u64 {
    (fnv1a(name) >> 1).max(FIRST_COOKIE)
}

/// Gives entries whose names have the same hash cookies of their own.
fn separate(entries: &mut [Line]) {
    let mut last = 0;
    for line in entries {
        line.cookie = line.cookie.max(last + 1);
        last = line.cookie;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_other_directories_is_bounded() {
        let host = tempfile::tempdir().unwrap();
        std::fs::write(host.path().join("file"), "").unwrap();
        let file = std::fs::File::open(host.path()).unwrap();
        let mut listings = Listings::default();
        for number in 0..20 {
            assert_eq!(listings.after(NodeId(number), 0, &file).unwrap().len(), 1);
        }
        assert_eq!(listings.0.len(), MAX_LISTINGS);
        for listing in &mut listings.0 {
            let line = || Line { cookie: 5, file_id: 1, name: Box::default() };
            listing.entries = std::iter::repeat_with(line).take(30_000).collect();
        }
        listings.after(NodeId(99), 0, &file).unwrap();
        let names: usize = listings.0.iter().map(|listing| listing.entries.len()).sum();
        assert_eq!((listings.0.len(), names), (4, 90_001), "one more would be above {MAX_NAMES}");
    }

    #[test]
    fn a_listing_that_begins_soon_again_has_the_same_names_until_there_is_a_change() {
        let begin = |listings: &mut Listings, file: &std::fs::File| {
            assert!(!listings.after(NodeId(1), 0, file).unwrap().is_empty());
            listings.end(NodeId(1));
            listings.0[0].read
        };
        // A change just now could be followed by one of the same time.
        let host = tempfile::tempdir().unwrap();
        std::fs::write(host.path().join("file"), "").unwrap();
        let file = std::fs::File::open(host.path()).unwrap();
        let mut listings = Listings::default();
        assert_ne!(begin(&mut listings, &file), begin(&mut listings, &file));
        // It has been there for as long as it took to compile this.
        let file = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
        let mut listings = Listings::default();
        let first = begin(&mut listings, &file);
        assert_eq!(begin(&mut listings, &file), first, "it is not read again");
        listings.0[0].version = Some([(1, 0); 2]);
        assert_ne!(begin(&mut listings, &file), first);
        listings.rest();
        assert_eq!(listings.0.len(), 1);
        listings.0[0].read -= FRESH;
        listings.rest();
        assert_eq!(listings.0.len(), 0);
    }

    #[test]
    fn equal_hashes_get_cookies_of_their_own() {
        let line = |cookie| Line { cookie, file_id: 1, name: Box::default() };
        let mut entries = [line(5), line(5), line(5), line(6), line(9)];
        separate(&mut entries);
        assert_eq!(entries.map(|line| line.cookie), [5, 6, 7, 8, 9]);
    }
}
