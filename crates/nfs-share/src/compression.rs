//! Compressed messages (DEFLATE, RFC 1951): on a slow link, source text and pages of directories take a third of the time.
//!
//! Each message is compressed by itself, as any of those before it may be lost.

#[cfg(feature = "receiver")]
use std::fmt;

#[cfg(feature = "receiver")]
use flate2::{Decompress, FlushDecompress, Status};

#[cfg(feature = "sharer")]
mod compressor;

#[cfg(feature = "sharer")]
pub(crate) use compressor::{Allowance, Compressor};

/// Largest message, in bytes: that of a UDP datagram.
const MAX_BYTES: usize = 65_535;

/// Takes compressed messages apart.
#[cfg(feature = "receiver")]
pub(crate) struct Decompressor {
    state: Decompress,
    message: Vec<u8>,
}

#[cfg(feature = "receiver")]
impl fmt::Debug for Decompressor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Decompressor")
    }
}

#[cfg(feature = "receiver")]
impl Default for Decompressor {
    fn default() -> Self {
        Self { state: Decompress::new(false), message: vec![0; MAX_BYTES] }
    }
}

#[cfg(feature = "receiver")]
impl Decompressor {
    /// Returns the message that was compressed; `None`, if there is none, or one that no datagram could carry.
    pub(crate) fn decompress(&mut self, compressed: &[u8]) -> Option<&[u8]> {
        self.state.reset(false);
        let status = self.state.decompress(compressed, &mut self.message, FlushDecompress::Finish).ok()?;
        let is_whole = status == Status::StreamEnd && self.state.total_in() == compressed.len() as u64;
        is_whole.then(|| &self.message[..self.state.total_out() as usize])
    }

    /// Puts the message that was compressed in the place of what came; false where [`Decompressor::decompress`] finds none.
    pub(crate) fn decompress_in_place(&mut self, bytes: &mut Vec<u8>) -> bool {
        let Some(message) = self.decompress(bytes) else { return false };
        bytes.clear();
        bytes.extend_from_slice(message);
        true
    }
}
