//! What replies show of the path to the server, and how much of a listing may be asked for at once.

use std::time::Duration;

use nfs_proto::config::MIN_BLOCK_BYTES;

use crate::{config::CacheConfig, data::GRAIN_BYTES};

/// Bytes of call and reply of GETATTR, at least.
const SMALL_CALL_BYTES: f64 = 200.0;

/// Bytes asked for in one page at least: a few entries.
pub(crate) const SMALLEST_PAGE: u32 = 1024;

/// Bytes asked for in the first page at least: 25 entries.
const SMALLEST_FIRST_PAGE: u32 = 4096;

/// Bytes asked for in one page at most: a reply that fits into a UDP datagram.
const LARGEST_PAGE: u32 = 60 << 10;

/// How long the bytes of one READ may take, where it asks for several grains: what a person does not notice.
const AT_ONCE: Duration = Duration::from_millis(10);

/// Bytes of one READ at most, which stay in the processor's cache on their way. Even if the link has become a hundred times slower than
/// it was, they arrive within the patience.
const LARGEST_READ: u32 = 256 << 10;

/// Round trip and page size. Nothing is known of a new path.
#[derive(Debug, Default)]
pub(crate) struct PathEstimate {
    round_trip: Option<Duration>,
    /// Bytes per second of the last page.
    rate: Option<f64>,
    /// Bytes per second while the last READ was under way.
    read_rate: Option<f64>,
    /// The last READ brought so little as no server brings at most: it does not know yet that it sends to the right address, and finds out by
    /// READs that begin where others have ended.
    answers_in_parts: bool,
}

impl PathEstimate {
    /// Records how long a small call took.
    pub(crate) fn observe(&mut self, took: Duration) {
        self.round_trip = Some(self.round_trip.map_or(took, |known| known.min(took)));
    }

    /// Records how long a page took. The last one of a listing may be too short to tell.
    pub(crate) fn observe_page(&mut self, bytes: usize, took: Duration) {
        if bytes >= SMALLEST_PAGE as usize / 2 {
            self.rate = Some(bytes as f64 / took.saturating_sub(self.round_trip()).as_secs_f64());
        }
    }

    /// Records how many bytes per second came while a READ was under way.
    pub(crate) const fn observe_read(&mut self, rate: f64) {
        self.read_rate = Some(rate);
    }

    /// Records how much a READ brought that was to bring `asked` bytes, and was not at the end of the file.
    pub(crate) const fn observe_part(&mut self, asked: u32, brought: u32) {
        self.answers_in_parts = brought < asked && brought < MIN_BLOCK_BYTES;
    }

    /// Whether READs are to continue where others have ended, and those that begin elsewhere have to wait.
    pub(crate) const fn answers_in_parts(&self) -> bool {
        self.answers_in_parts
    }

    /// Returns the shortest time that a small call took; zero before there was one.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.unwrap_or_default()
    }

    /// Returns how many bytes to ask for in the next page: what arrives within half of the patience at the rate of the last one, because
    /// a longer silence would look as if the server did not respond. The first page comes within half of the wait even if the path is no
    /// faster than a small call has shown.
    pub(crate) fn page_bytes(&self, config: &CacheConfig) -> u32 {
        let shown = self.round_trip.map_or(0.0, |round_trip| SMALL_CALL_BYTES / round_trip.as_secs_f64());
        match self.rate {
            Some(rate) => within(rate, config.patience / 2).clamp(SMALLEST_PAGE, LARGEST_PAGE),
            None => within(shown, config.wait / 2).clamp(SMALLEST_FIRST_PAGE, LARGEST_PAGE),
        }
    }

    /// Returns how many grains to fetch ahead of a reader: what the path holds, and what arrives within half of the patience. What others
    /// ask for waits behind them.
    pub(crate) fn grains_ahead(&self, rate: Option<f64>, config: &CacheConfig) -> u32 {
        let time = self.round_trip() + config.patience / 2;
        let grains = rate.map(|rate| within(rate, time) / GRAIN_BYTES as u32);
        grains.unwrap_or(config.read_ahead).clamp(2, config.read_ahead.max(2))
    }

    /// Returns how many grains one READ asks for ahead of a reader, who may come to wait for the first of them: what arrives in a short time.
    pub(crate) fn grains_at_once(&self, read_block: u32) -> usize {
        let bytes = self.read_rate.map_or(0, |rate| within(rate, AT_ONCE)).min(read_block).min(LARGEST_READ);
        (bytes / GRAIN_BYTES as u32).max(1) as usize
    }
}

/// Returns what passes within a time at a rate in bytes per second.
fn within(rate: f64, time: Duration) -> u32 {
    (rate * time.as_secs_f64()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sizes of the first page and of two more, over a path of a rate in bytes per second.
    fn pages(round_trip: Duration, rate: f64) -> [u32; 3] {
        let (config, mut path) = (CacheConfig::default(), PathEstimate::default());
        path.observe(round_trip + Duration::from_secs_f64(SMALL_CALL_BYTES / rate));
        let mut page = || {
            let bytes = path.page_bytes(&config);
            path.observe_page(bytes as usize, round_trip + Duration::from_secs_f64(f64::from(bytes) / rate));
            bytes
        };
        [page(), page(), page()]
    }

    #[test]
    fn pages_take_less_time_than_a_silence_that_means_something() {
        // A serial line, Bluetooth, a satellite, a local network.
        let kib = |pages: [u32; 3]| pages.map(|bytes| bytes >> 10);
        assert_eq!(kib(pages(15 * MS, 960.0)), [4, 1, 1]);
        assert_eq!(kib(pages(27 * MS, 75_000.0)), [32, 36, 36]);
        assert_eq!(kib(pages(600 * MS, 2_500_000.0)), [4, 60, 60]);
        assert_eq!(kib(pages(MS, 12_500_000.0)), [60, 60, 60]);
    }

    #[test]
    fn a_reader_is_not_so_far_ahead_that_others_wait_for_long() {
        let (config, mut path) = (CacheConfig::default(), PathEstimate::default());
        assert_eq!(path.grains_ahead(None, &config), 32);
        path.observe(27 * MS);
        assert_eq!(path.grains_ahead(Some(75_000.0), &config), 2);
        assert_eq!(path.grains_ahead(Some(600_000.0), &config), 4);
        assert_eq!(path.grains_ahead(Some(1e9), &config), 32);
        path.observe(600 * MS);
        assert_eq!(path.grains_ahead(Some(600_000.0), &config), 4, "the shortest round trip counts");
        let mut path = PathEstimate::default();
        path.observe(600 * MS);
        assert_eq!(path.grains_ahead(Some(1_200_000.0), &config), 20, "it holds 11 grains");
    }

    #[test]
    fn a_read_takes_several_grains_only_where_they_arrive_at_once() {
        let mut path = PathEstimate::default();
        assert_eq!(path.grains_at_once(1 << 20), 1, "nothing is known");
        for (rate, block, grains) in [
            (75_000.0, 1 << 20, 1),
            (12.5e6, 1 << 20, 1),
            (125e6, 1 << 20, 4),
            (1e9, 1 << 20, 4),
            (1e9, 128 << 10, 2),
            (1e9, 60_000, 1),
            (100_000.0, 1 << 20, 1),
        ] {
            path.observe_read(rate);
            assert_eq!(path.grains_at_once(block), grains, "{rate} bytes/s, READs of {block} bytes");
        }
    }

    #[test]
    fn without_a_reply_pages_are_small_and_short_ones_tell_nothing() {
        let (config, mut path) = (CacheConfig::default(), PathEstimate::default());
        assert_eq!(path.page_bytes(&config), 4096);
        path.observe_page(300, 2000 * MS);
        assert_eq!(path.page_bytes(&config), 4096);
        path.observe_page(4096, 1000 * MS);
        assert_eq!(path.page_bytes(&config), 2048);
        path.observe_page(2048, Duration::ZERO);
        assert_eq!(path.page_bytes(&config), LARGEST_PAGE, "it came at once");
    }
}
