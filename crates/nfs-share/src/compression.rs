//! Compressed messages (DEFLATE, RFC 1951): on a slow link, source text and pages of directories take a third of the time.
//!
//! Each message is compressed by itself, as any of those before it may be lost.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

#[cfg(feature = "sharer")]
mod compressor;

#[cfg(feature = "sharer")]
pub(crate) use compressor::Compressor;

/// Largest message, in bytes: that of a UDP datagram.
const MAX_BYTES: usize = 65_535;

/// Takes compressed messages apart.
pub(crate) struct Decompressor {
    state: Decompress,
    message: Vec<u8>,
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Decompressor")
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self { state: Decompress::new(false), message: vec![0; MAX_BYTES] }
    }
}

impl Decompressor {
    /// Returns the message that was compressed; `None`, if there is none, or one that no datagram could carry.
    pub(crate) fn decompress(&mut self, compressed: &[u8]) -> Option<&[u8]> {
        self.state.reset(false);
        let status = self.state.decompress(compressed, &mut self.message, FlushDecompress::Finish).ok()?;
        let is_whole = status == Status::StreamEnd && self.state.total_in() == compressed.len() as u64;
        is_whole.then(|| &self.message[..self.state.total_out() as usize])
    }
}
