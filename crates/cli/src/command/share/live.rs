//! What a share shows on a terminal while it runs: how long it lasts, and who reads what.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nfs_share::Served;

use crate::{text::escape, units};

/// Who was not heard for so long is not shown.
const ACTIVE: Duration = Duration::from_secs(10);

/// What each has read, as it was a second ago.
#[derive(Debug, Default)]
pub(super) struct Live {
    before: BTreeMap<String, (Instant, u64)>,
}

/// Somebody who may read.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// Nobody else has it.
    pub(super) name: String,
    pub(super) heard: Instant,
    pub(super) served: Served,
}

impl Live {
    /// Words the state; it is asked for once a second.
    pub(super) fn line(&mut self, now: Instant, left: Duration, mut readers: Vec<Reader>) -> String {
        readers.retain(|reader| now.saturating_duration_since(reader.heard) < ACTIVE);
        readers.sort_by_key(|reader| std::cmp::Reverse(reader.heard));
        let words: Vec<String> = readers.iter().map(|reader| self.words(now, reader)).collect();
        self.before = readers.into_iter().map(|it| (it.name, (now, it.served.read_bytes))).collect();
        let who = if words.is_empty() { "nobody is reading".to_owned() } else { words.join("; ") };
        format!("{} left  {who}", units::whole_seconds(left))
    }

    fn words(&self, now: Instant, reader: &Reader) -> String {
        let Reader { name, served, .. } = reader;
        let mut words = format!("{name}: {} read", units::bytes(served.read_bytes));
        if let Some(&(at, before)) = self.before.get(name)
            && served.read_bytes > before
        {
            let rate = units::rate(served.read_bytes - before, now.saturating_duration_since(at));
            words += &format!(", {rate}");
            if let Some(file) = &served.last_read {
                words += &format!(", {}", escape(file));
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_is_told_with_the_file_and_the_rate() {
        let start = Instant::now();
        let mut live = Live::default();
        let mut at = |second: u64, heard: u64, kib: u64| {
            let at = |second| start + Duration::from_secs(second);
            let served = Served {
                read_bytes: kib << 10,
                last_read: Some(b"trip/\x1b.jpg".to_vec()),
                ..Served::default()
            };
            let reader = Reader { name: "sophia".to_owned(), heard: at(heard), served };
            live.line(at(second), Duration::from_secs(1800 - second), vec![reader])
        };
        assert_eq!(at(0, 0, 0), "30 min 0 s left  sophia: 0 B read");
        assert_eq!(at(1, 1, 512), "29 min 59 s left  sophia: 512 KiB read, 512 KiB/s, trip/\\u{1b}.jpg");
        assert_eq!(at(2, 2, 512), "29 min 58 s left  sophia: 512 KiB read");
        assert_eq!(at(12, 2, 512), "29 min 48 s left  nobody is reading");
    }
}
