//! What compresses messages.

use std::{fmt, time::Duration};

use flate2::{Compress, Compression, FlushCompress, Status};

use super::MAX_BYTES;

/// How hard it is tried, of nine. More takes twice the time for a tenth of the bytes.
const LEVEL: u32 = 2;

/// Messages with fewer bytes are sent as they are: they fit into a frame with anything else.
const MIN_BYTES: usize = 256;

/// Bytes of a message that tell whether all of it is worth compressing.
const SAMPLE_BYTES: usize = 4 << 10;

/// A message is worth compressing that loses a share of its bytes of one in so many.
const WORTH: usize = 16;

/// Compressing takes at most a quarter of the time, and so much at once: a link that brings more messages than that is faster without it.
const PART_OF_TIME: u32 = 4;
const BURST: Duration = Duration::from_millis(20);

/// Where it has taken more, nothing is compressed for so long, then for twice as long, and at last for so long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(64);

/// Compresses messages: one for all members, as it takes some hundred KiB.
pub(crate) struct Compressor {
    state: Compress,
    compressed: Vec<u8>,
}

/// The time that compressing may take for one member.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Time that may be taken yet.
    budget: Duration,
    /// Time in which nothing is compressed.
    pause: Duration,
    next_pause: Duration,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Compressor")
    }
}

impl Default for Compressor {
    fn default() -> Self {
        let state = Compress::new(Compression::new(LEVEL), false);
        Self { state, compressed: vec![0; 2 * MAX_BYTES] }
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self { budget: BURST, pause: Duration::ZERO, next_pause: FIRST_PAUSE }
    }
}

impl Allowance {
    /// Whether there is time to compress.
    pub(crate) const fn is_left(&self) -> bool {
        self.pause.is_zero()
    }

    /// Time has passed.
    pub(crate) fn rest(&mut self, time: Duration) {
        self.pause = self.pause.saturating_sub(time);
        self.budget = BURST.min(self.budget + time / PART_OF_TIME);
    }

    /// Time was taken.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.budget = self.budget.saturating_sub(time);
        if self.budget.is_zero() && self.pause.is_zero() {
            self.pause = self.next_pause;
            self.next_pause = LAST_PAUSE.min(self.next_pause * 2);
        }
    }
}

impl Compressor {
    /// Returns the message compressed; `None` where that is not worth it.
    pub(crate) fn compress(&mut self, message: &[u8]) -> Option<&[u8]> {
        if message.len() < MIN_BYTES || message.len() > MAX_BYTES {
            return None;
        }
        // It has room for whatever comes out: zlib-rs 0.6.8 panics when it continues after it had none.
        self.state.reset();
        let (sample, rest) = message.split_at(message.len().min(SAMPLE_BYTES));
        if !rest.is_empty() {
            self.state.compress(sample, &mut self.compressed, FlushCompress::Partial).ok()?;
            if !pays(self.state.total_out(), sample) {
                return None;
            }
        }
        let (taken, made) = (self.state.total_in() as usize, self.state.total_out() as usize);
        let status =
            self.state.compress(&message[taken..], &mut self.compressed[made..], FlushCompress::Finish);
        let is_done = status.ok()? == Status::StreamEnd && pays(self.state.total_out(), message);
        is_done.then(|| &self.compressed[..self.state.total_out() as usize])
    }
}

/// Whether it is worth it to send so many bytes instead of these.
fn pays(compressed: u64, bytes: &[u8]) -> bool {
    compressed <= (bytes.len() - bytes.len() / WORTH) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::Decompressor, *};

    fn noise(bytes: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(1);
        std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
    }

    #[test]
    fn text_shrinks_and_noise_is_left_as_it_is() {
        let text = include_bytes!("compressor.rs");
        let mut compressor = Compressor::default();
        let mut decompressor = Decompressor::default();
        for bytes in [1200, text.len()] {
            let compressed = compressor.compress(&text[..bytes]).unwrap();
            assert!(compressed.len() * 10 < bytes * 6, "{} of {bytes}", compressed.len());
            assert_eq!(decompressor.decompress(compressed), Some(&text[..bytes]));
        }
        for bytes in (MIN_BYTES..MAX_BYTES).step_by(100).chain([MAX_BYTES]) {
            assert_eq!(compressor.compress(&noise(bytes)), None, "{bytes}");
        }
        assert_eq!(compressor.compress(&text[..MIN_BYTES - 1]), None);
        // A message with text at its end only.
        assert_eq!(compressor.compress(&[&noise(SAMPLE_BYTES), &text[..]].concat()), None);
    }

    #[test]
    fn compressing_takes_a_part_of_the_time() {
        let mut allowance = Allowance::default();
        for _ in 0..1000 {
            allowance.spend(Duration::from_micros(100));
            allowance.rest(Duration::from_micros(400));
        }
        assert!(allowance.is_left());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            allowance.spend(BURST);
            let mut pause = Duration::ZERO;
            while !allowance.is_left() {
                allowance.rest(FIRST_PAUSE);
                pause += FIRST_PAUSE;
            }
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn what_no_datagram_could_carry_is_no_message() {
        let mut state = Compress::new(Compression::best(), false);
        let mut compressed = Vec::with_capacity(1000);
        state.compress_vec(&[0; MAX_BYTES + 1], &mut compressed, FlushCompress::Finish).unwrap();
        let mut decompressor = Decompressor::default();
        assert_eq!(decompressor.decompress(&compressed), None);
        assert_eq!(decompressor.decompress(&compressed[..compressed.len() / 2]), None);
        assert_eq!(decompressor.decompress(&[]), None);
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            messages in prop::collection::vec(prop::collection::vec((any::<u8>(), 0_usize..9000), 0..8), 1..20)
        ) {
            let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
            for parts in messages {
                let text = include_bytes!("compressor.rs").iter().copied().cycle();
                let message: Vec<u8> = parts
                    .iter()
                    .flat_map(|&(byte, bytes)| match byte % 3 {
                        0 => vec![byte; bytes],
                        1 => noise(bytes),
                        _ => text.clone().skip(byte.into()).take(bytes).collect(),
                    })
                    .take(MAX_BYTES)
                    .collect();
                if let Some(compressed) = compressor.compress(&message) {
                    prop_assert!(compressed.len() < message.len());
                    prop_assert_eq!(decompressor.decompress(compressed), Some(&message[..]));
                }
            }
        }
    }
}
